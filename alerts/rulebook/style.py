"""What is odd about a rule's text though it loads: warnings with codes that stay.

A code is never given another meaning, so a build may list those that it passes over.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from difflib import get_close_matches
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import yaml

from alerts.compiler.model_rule_files import is_model
from alerts.compiler.rule_files import require_small
from infra.config.bounded_yaml import yaml_documents

STYLE_CODES: dict[str, str] = {
    "HG000": "the file cannot be read as YAML",
    "HG001": "no description: whoever gets the alert does not know what it means",
    "HG002": "no level: it counts as medium",
    "HG003": "no status, or one that Sigma does not know",
    "HG004": "no falsepositives: whoever judges the alert has nothing to compare with",
    "HG005": "no ATT&CK technique among the tags: coverage does not count it",
    "HG006": "no author",
    "HG007": "no date, or one that is not YYYY-MM-DD, or modified lies before it",
    "HG008": "a title that is longer than 110 characters or ends with a full stop",
    "HG009": "no tests that must and must not match (headgate.tests)",
    "HG010": "no name: commands and correlations must give its id",
    "HG011": "a key that Sigma does not have: it is not read",
    "HG012": "a selection that the condition does not name: it asks nothing",
    "HG013": "status deprecated or unsupported: its authors advise against it",
    "HG014": "a text with * at both ends: write the modifier contains",
    "HG015": "an id that two rules of these files have",
    "HG016": "a timeframe: it is not read; a correlation with a timespan counts",
}
"""Each code and what it stands for."""

RULE_KEYS = frozenset({
    "title", "id", "name", "related", "taxonomy", "status", "description", "license", "author",
    "references", "date", "modified", "logsource", "detection", "correlation", "filter", "fields",
    "falsepositives", "level", "tags", "scope", "headgate", "type", "model", "query", "window",
    "slide", "group-by", "confirm",
})  # fmt: skip
"""The keys of a rule, correlation or filter that are read."""

STATUS = ("stable", "test", "experimental", "deprecated", "unsupported")
"""What Sigma says of how far a rule is."""
_TECHNIQUE = re.compile(r"attack\.t\d{4}", re.I)
_MOST_TITLE = 110
_WORD = re.compile(r"[\w*]+")
_OPERATORS = {"and", "or", "not", "of", "them", "all", "1"}

_Document = Mapping[str, Any]


@dataclass(frozen=True)
class StyleWarning:
    """One warning: its code, the rule (id, else title, else file), where, and what in particular.

    `line` counts from 1.
    """

    code: str
    rule: str
    path: Path
    line: int
    detail: str

    @property
    def row(self) -> dict[str, Any]:
        """It as a row: code, rule, path, line, detail."""
        return {
            "code": self.code, "rule": self.rule, "path": str(self.path), "line": self.line,
            "detail": self.detail,
        }  # fmt: skip


def lint_files(paths: Sequence[Path]) -> list[StyleWarning]:
    """The warnings of YAML files, in their order."""
    warnings: list[StyleWarning] = []
    seen: dict[str, Path] = {}
    for path in paths:
        for document, lines in _documents(path, warnings):
            for key, code, detail in _odd(document):
                warnings.append(_warning(path, document, lines, key, code, detail))
            rule_id = str(document.get("id") or "")
            if rule_id and seen.setdefault(rule_id, path) is not path:
                detail = f"also in {seen[rule_id]}"
                warnings.append(_warning(path, document, lines, "id", "HG015", detail))
    return warnings


def _warning(
    path: Path, document: _Document, lines: Mapping[str, int], key: str, code: str, detail: str
) -> StyleWarning:
    rule = str(document.get("id") or document.get("title") or path.stem)
    return StyleWarning(code, rule, path, lines.get(key, lines[""]), detail or STYLE_CODES[code])


def _documents(
    path: Path, warnings: list[StyleWarning]
) -> Iterator[tuple[_Document, Mapping[str, int]]]:
    """The rules of a file with the line of each of their keys; '' is that of the rule."""
    try:
        require_small(path)
        text = path.read_text("utf-8")
        documents = list(yaml_documents(text))
        # The bounds are checked above; nodes share what aliases name.
        nodes = list(yaml.compose_all(text, yaml.SafeLoader))
    except (OSError, ValueError, TypeError, yaml.YAMLError, RecursionError) as error:
        detail = " ".join(str(error).split())
        warnings.append(StyleWarning("HG000", path.stem, path, 1, detail))
        return
    for document, node in zip(documents, nodes, strict=True):
        if isinstance(document, dict):
            keys = {str(key.value): key.start_mark.line + 1 for key, _ in node.value}
            yield document, {"": node.start_mark.line + 1, **keys}


def _odd(document: _Document) -> Iterator[tuple[str, str, str]]:
    """(key it is about, code, what in particular) of each warning."""
    for check in _CHECKS:
        yield from check(document)


def _described(document: _Document) -> Iterator[tuple[str, str, str]]:
    for key, code in (("description", "HG001"), ("author", "HG006"), ("name", "HG010")):
        if not document.get(key):
            yield "", code, ""
    if "filter" in document:
        return
    # A filter raises nothing by itself: the next ones are about what people are told.
    for key, code in (("level", "HG002"), ("falsepositives", "HG004")):
        if not document.get(key):
            yield "", code, ""
    tags = [str(tag) for tag in document.get("tags") or ()]
    if not any(_TECHNIQUE.match(tag) for tag in tags):
        yield "tags", "HG005", ""
    own = document.get("headgate")
    tests = own.get("tests") if isinstance(own, dict) else None
    if not (isinstance(tests, dict) and tests.get("match") and tests.get("no_match")):
        yield "headgate", "HG009", ""


def _dated(document: _Document) -> Iterator[tuple[str, str, str]]:
    status = document.get("status")
    if status not in STATUS:
        yield "status", "HG003", "" if status is None else f"'{status}'"
    if status in ("deprecated", "unsupported"):
        yield "status", "HG013", ""
    first, last = _day(document.get("date")), _day(document.get("modified"))
    if first is None:
        yield "date", "HG007", ""
    elif last is not None and last < first:
        yield "modified", "HG007", f"modified {last} lies before date {first}"


def _day(value: Any) -> date | None:
    try:
        return date.fromisoformat(str(value))
    except ValueError:
        return None


def _spelt(document: _Document) -> Iterator[tuple[str, str, str]]:
    title = str(document.get("title") or "")
    if len(title) > _MOST_TITLE or title.endswith("."):
        yield "title", "HG008", ""
    for key in document:
        if str(key) not in RULE_KEYS:
            near = get_close_matches(str(key), RULE_KEYS, 1)
            yield str(key), "HG011", f"'{key}'" + (f"; {near[0]}?" if near else "")


def _detected(document: _Document) -> Iterator[tuple[str, str, str]]:
    detection = document.get("detection")
    if not isinstance(detection, dict) or is_model(document):
        return
    conditions = detection.get("condition")
    text = " ".join(map(str, conditions)) if isinstance(conditions, list) else str(conditions)
    words = set(_WORD.findall(text))
    for name in detection:
        # Conditions name selections by patterns too, as in `1 of selection_*`.
        named = any(fnmatchcase(str(name), word) for word in words - _OPERATORS)
        if name not in ("condition", "timeframe") and not named and "them" not in words:
            yield "detection", "HG012", f"'{name}'"
    if "timeframe" in detection:
        yield "detection", "HG016", f"'{detection['timeframe']}'"
    for value in _texts({k: v for k, v in detection.items() if k != "condition"}):
        # `*` alone asks whether there is anything, and is meant so.
        if len(value) > 2 and value[0] == value[-1] == "*" and not re.search(r"[*?]", value[1:-1]):
            yield "detection", "HG014", f"'{value}'"


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list):
        for inner in value:
            yield from _texts(inner)
    elif isinstance(value, str):
        yield value


_CHECKS: tuple[Callable[[_Document], Iterator[tuple[str, str, str]]], ...] = (
    _described,
    _dated,
    _spelt,
    _detected,
)
