"""What a folder of Sigma files holds besides rules: spellings, values of placeholders, filters."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

from sigma.correlations import SigmaCorrelationRule
from sigma.filters import SigmaFilter
from sigma.rule import SigmaRule

from alerts.rulepack.predicate import Test
from alerts.rulepack.rule_pack import Rule
from infra.config.bounded_yaml import yaml_document
from infra.errors import Fatal

Placeholders: TypeAlias = Mapping[str, tuple[str, ...]]

PLACEHOLDERS = "placeholders.yml"
"""File of a rule folder with the values that `expand` puts for `%name%`: name to a list."""

MAX_FILE_BYTES = 1_000_000
"""Of a file with rules, or with values of placeholders."""

EVERY = Test("event_uid", "exists", True)
"""Holds for every event: what a rule over a list demands that demands nothing else."""

_SPELLINGS = {"utf16le": "wide"}
"""Modifiers of Sigma that pySigma knows under another name."""

_ASKING = ("detection", "filter", "correlation")
_CAPITALS = re.compile(r"\b(AND|OR|NOT)\b")


def rule_files(folder: Path) -> Iterator[Path]:
    """The YAML files below a folder, in order, but for those of placeholders and git."""
    files: list[Path] = []
    # Not `rglob`: its work on paths takes longer than thousands of rules take to be read.
    for parent, inner, names in os.walk(folder):
        inner[:] = [name for name in inner if not name.startswith(".")]
        here = Path(parent)
        files += [here / name for name in names if _holds_rules(name)]
    # Sorted: of two rules with one id the first is taken, and that must not be chance.
    for path in sorted(files, key=lambda path: path.parts):
        if path.is_file():
            yield path


def _holds_rules(name: str) -> bool:
    ends = name.endswith((".yml", ".yaml"))
    return ends and name != PLACEHOLDERS and not name.startswith(".")


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
    """The document with modifiers and operators spelt as pySigma knows them."""
    return _with_known_modifiers(_with_known_operators(document))


def _with_known_modifiers(document: Any) -> Any:
    if isinstance(document, list):
        return [_with_known_modifiers(item) for item in document]
    if not isinstance(document, dict):
        return document
    return {_respelt(key): _with_known_modifiers(value) for key, value in document.items()}


def _with_known_operators(document: Any) -> Any:
    """A copy with `and`, `or` and `not` for AND, OR and NOT in its condition.

    Public rules and the specification write both; pySigma takes capitals for a name.
    """
    copy = dict(document) if isinstance(document, dict) else document
    for part in _ASKING if isinstance(document, dict) else ():
        detection = document.get(part)
        condition = detection.get("condition") if isinstance(detection, dict) else None
        if isinstance(condition, str):
            copy[part] = detection | {"condition": _lowered(condition, detection)}
        elif isinstance(condition, list) and all(isinstance(each, str) for each in condition):
            copy[part] = detection | {
                "condition": [_lowered(each, detection) for each in condition]
            }
    return copy


def _lowered(condition: str, named: Mapping[str, Any]) -> str:
    return _CAPITALS.sub(lambda word: word[0] if word[0] in named else word[0].lower(), condition)


def _respelt(key: Any) -> Any:
    if not isinstance(key, str) or "|" not in key:
        return key
    name, *modifiers = key.split("|")
    return "|".join([name, *(_SPELLINGS.get(modifier, modifier) for modifier in modifiers)])


def files_of(folders: Sequence[Path]) -> Iterator[Path]:
    """The rules' files of the folders, of which some may be files; raises `Fatal` for none."""
    for folder in folders:
        if folder.is_file():
            yield folder
            continue
        if not folder.is_dir():
            raise Fatal(
                f"{folder}: no such rule folder; the rules in force stay as they are "
                "(alerts.rules in the settings)"
            )
        yield from rule_files(folder)


def whole_document(document: dict[str, Any]) -> dict[str, Any]:
    """A rule with what one over a list, or a query, leaves out: any log source, any event."""
    every: dict[str, Any] = {"every": {f"{EVERY.field}|{EVERY.op}": EVERY.value}}
    confirm = document.pop("confirm", None)
    every |= {} if confirm is None else {"confirm": confirm}
    every["condition"] = " and ".join(every)
    return {"logsource": {"product": "ocsf"}, "detection": every} | document


def parsed_document(
    document: dict[str, Any],
) -> SigmaRule | SigmaCorrelationRule | SigmaFilter:
    """A rule, correlation or filter as pySigma reads it; raises `SigmaError`."""
    if "correlation" in document:
        return SigmaCorrelationRule.from_dict(_with_known_operators(document))
    if "filter" in document:
        return SigmaFilter.from_dict(with_known_names(document))
    return SigmaRule.from_dict(with_known_names(document))


def name_of(path: Path, document: Any) -> str:
    """What a rule is called when it is refused: its id, else its title, else its file."""
    named = document.get("id") or document.get("title") if isinstance(document, dict) else None
    return str(named or path.stem)


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

    def may_concern(self, rule: Rule) -> bool:
        """Whether it names a compiled rule, or any; its log source is not looked at."""
        return self.names is None or bool(self.names & {rule.id, rule.name, rule.title})

    def concerns(self, rule: SigmaRule) -> bool:
        """Whether its log source holds the rule's and it names the rule, or any."""
        if self.broken or rule.logsource not in self.parsed.logsource:
            return False
        return self.names is None or bool(self.names & {str(rule.id), rule.name, rule.title})
