"""What a folder of Sigma files holds besides rules: spellings, values of placeholders, filters."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

from sigma.filters import SigmaFilter
from sigma.rule import SigmaRule

from infra.config.bounded_yaml import yaml_document

Placeholders: TypeAlias = Mapping[str, tuple[str, ...]]

PLACEHOLDERS = "placeholders.yml"
"""File of a rule folder with the values that `expand` puts for `%name%`: name to a list."""

MAX_FILE_BYTES = 1_000_000
"""Of a file with rules, or with values of placeholders."""

_SPELLINGS = {"utf16le": "wide"}
"""Modifiers of Sigma that pySigma knows under another name."""


def rule_files(folder: Path) -> Iterator[Path]:
    """The YAML files below a folder, in order, but for those of placeholders and git."""
    # Sorted: of two rules with one id the first is taken, and that must not be chance.
    for path in sorted(folder.rglob("*")):
        # Relative to the folder, which may itself lie below a hidden one, such as a home's.
        hidden = any(part.startswith(".") for part in path.relative_to(folder).parts)
        is_rule = path.suffix in (".yml", ".yaml") and path.name != PLACEHOLDERS
        if is_rule and not hidden and path.is_file():
            yield path


def require_small(path: Path) -> None:
    """Raises `ValueError` for a file that is larger than rules are."""
    if path.stat().st_size > MAX_FILE_BYTES:
        raise ValueError(f"larger than {MAX_FILE_BYTES} bytes")


def placeholder_files(folders: Sequence[Path]) -> list[Path]:
    """The files of placeholders below the folders."""
    return [path for folder in folders for path in sorted(folder.rglob(PLACEHOLDERS))]


def read_placeholders(path: Path) -> Placeholders:
    """Name -> values of one file; raises `ValueError` or `yaml.YAMLError` when it is not so."""
    require_small(path)
    data = yaml_document(path.read_text("utf-8")) or {}
    if not isinstance(data, dict):
        raise ValueError("not a mapping of names to lists of values")
    placeholders = {}
    for name, values in data.items():
        listed = values if isinstance(values, list) else [values]
        if any(isinstance(value, dict | list) or value is None for value in listed):
            raise ValueError(f"{name}: values must be texts or numbers")
        placeholders[str(name)] = tuple(str(value) for value in listed)
    return placeholders


def with_known_names(document: Any) -> Any:
    """The document with the modifiers spelt as pySigma knows them."""
    if isinstance(document, list):
        return [with_known_names(item) for item in document]
    if not isinstance(document, dict):
        return document
    return {_respelt(key): with_known_names(value) for key, value in document.items()}


def _respelt(key: Any) -> Any:
    if not isinstance(key, str) or "|" not in key:
        return key
    name, *modifiers = key.split("|")
    return "|".join([name, *(_SPELLINGS.get(modifier, modifier) for modifier in modifiers)])


@dataclass
class Filter:
    """A Sigma filter; `used` once it concerned a rule, `broken` once it could not be translated."""

    parsed: SigmaFilter
    path: Path
    used: bool = False
    broken: bool = False
    names: frozenset[str] | None = field(init=False)

    def __post_init__(self) -> None:
        named = self.parsed.filter.rules
        self.names = None if isinstance(named, str) else frozenset(n.reference for n in named)

    def concerns(self, rule: SigmaRule) -> bool:
        """Whether its log source holds the rule's and it names the rule, or any."""
        if self.broken or rule.logsource not in self.parsed.logsource:
            return False
        return self.names is None or bool(self.names & {str(rule.id), rule.name, rule.title})
