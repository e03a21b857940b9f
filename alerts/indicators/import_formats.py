"""Files of indicators: plain text, CSV, JSON and STIX 2.1, read line by line where that can be.

What cannot be used is named with its number and reason; the other entries count.
"""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from alerts.rulepack.indicator_file_format import IndicatorEntry
from alerts.rulepack.indicator_normalisation import INDICATOR_KINDS, entry
from infra.config.bounded_files import BYTE_ORDER_MARK, bounded_lines, bounded_text, json_value
from infra.errors import Usage

FORMATS = ("txt", "csv", "json", "stix")

MAX_ENTRIES = 5_000_000
"""Of one list, with those that cannot be used; the largest that is measured has a million."""
MAX_JSON_BYTES = 128 * 1024 * 1024
"""Of JSON that is one value and so is in memory as a whole; a value a line has no such bound."""
_PATTERN_CHARS = 16_384
_FIRST_BYTES = 4_096

VALUES = ("value", "indicator", "ioc")
LABELS = ("label", "description", "comment", "name")
_ENDS = ("valid_until", "expires")
_TYPES = ("kind", "type")
"""Names of a column or key, the first that is there counts; `type` only where it names a kind."""

# Only behind white space: a URL may hold `#` and `;` itself.
_NOTE = re.compile(r"\s+[;#]\s*")
_BLACK_HOLES = ("0.0.0.0", "127.0.0.1", "::", "::1")
"""What stands before the names in a hosts file that blocks them."""

STIX_KINDS: Mapping[str, str] = {
    "ipv4-addr": "network",
    "ipv6-addr": "network",
    "domain-name": "domain",
    "url": "url",
    "email-addr": "email",
    "file": "hash",
}
_COMPARISON = re.compile(
    r"([a-z0-9-]+):(value|hashes\.(?:'[^']+'|\"[^\"]+\"|[\w-]+))\s*(?:=|ISSUBSET)\s*'((?:\\.|[^'\\])*)'"
)
"""The comparisons of a STIX pattern (STIX 2.1, chapter 9) that say a value and nothing else."""


class Given(NamedTuple):
    """An entry as a file has it; `number` is its line, or its place among the objects, from 1."""

    number: int
    text: str
    kind: str = "auto"
    label: str | None = None
    valid_until: str | None = None
    wrong: str = ""


@dataclass(frozen=True)
class Bad:
    """What of a file could not be used, and why."""

    number: int
    text: str
    reason: str


def read_indicators(
    path: Path, form: str | None, kind: str, bad: list[Bad]
) -> Iterator[IndicatorEntry]:
    """The entries of a file; what cannot be used is added to `bad`.

    `form` None: by the file's ending. Raises `Usage` where the file as a whole cannot be read.
    """
    try:
        for count, indicator in enumerate(_READERS[form or form_of(path)](path)):
            if count >= MAX_ENTRIES:
                raise Usage(f"{path}: more than {MAX_ENTRIES} entries; the list in force stays")
            try:
                if indicator.wrong:
                    raise ValueError(indicator.wrong)
                result, value = entry(indicator.text, indicator.kind if kind == "auto" else kind)
                until = None if not indicator.valid_until else _instant(indicator.valid_until)
                yield IndicatorEntry(result, value, indicator.label or None, until)
            except ValueError as error:
                bad.append(Bad(indicator.number, indicator.text[:100], str(error)))
    except (OSError, ValueError, csv.Error) as error:
        raise Usage(f"{path}: cannot be read ({error}); the list in force stays") from None


def form_of(path: Path) -> str:
    """The form that a file's ending tells; text where it tells none."""
    ending = path.suffix.lower().removeprefix(".")
    return {"csv": "csv", "json": "json", "ndjson": "json", "stix": "stix"}.get(ending, "txt")


def _text(path: Path) -> Iterator[Given]:
    """A value a line, `# note` or `; note` behind it; lines that begin so are notes alone."""
    for number, whole in bounded_lines(path):
        if whole is None:
            yield Given(number, "", wrong="a line that is too long to be read")
            continue
        line = whole.strip()
        if not line or line[0] in "#;":
            continue
        value, *note = _NOTE.split(line, maxsplit=1)
        first, *rest = value.split()
        if rest and first in _BLACK_HOLES:
            value = rest[0]
        yield Given(number, value, label=note[0] if note else None)


def _csv(path: Path) -> Iterator[Given]:
    rows = csv.DictReader(_short_lines(path))
    names = [name.strip().lower() for name in rows.fieldnames or ()]
    if not set(names) & set(VALUES):
        raise Usage(f"{path}: no column {' or '.join(VALUES)}; it has {str(names)[:200]}")
    rows.fieldnames = names
    try:
        for row in rows:
            # The reader's own count: a cell in quotes may go over several lines.
            yield _given(rows.line_num, row)
    except csv.Error as error:
        # A quote that is never closed takes in the lines behind it until the cell is too long.
        raise Usage(f"{path}:{rows.line_num}: {error}; the list in force stays") from None


def _short_lines(path: Path) -> Iterator[str]:
    for number, line in bounded_lines(path):
        if line is None:
            raise Usage(f"{path}:{number}: a line that is too long; the list in force stays")
        yield line


def _json(path: Path) -> Iterator[Given]:
    """An array, or one JSON value a line: texts, or objects with the names that CSV has."""
    for number, value in _json_values(path):
        if isinstance(value, dict):
            yield _given(number, value)
        elif isinstance(value, str):
            yield Given(number, value)
        else:
            yield Given(number, json.dumps(value), wrong="neither a text nor an object")


def _json_values(path: Path) -> Iterator[tuple[int, Any]]:
    with path.open("rb") as file:
        first = file.read(_FIRST_BYTES).removeprefix(BYTE_ORDER_MARK).lstrip()[:1]
    # An array is one value, to be read as a whole; anything else comes line by line.
    if first == b"[":
        yield from enumerate(json_value(bounded_text(path, MAX_JSON_BYTES)), 1)
        return
    for number, line in enumerate(_short_lines(path), 1):
        if line.strip():
            yield number, json_value(line)


def _given(number: int, row: Mapping[str, Any]) -> Given:
    texts = {name: str(value).strip() for name, value in row.items() if value is not None}

    def first(names: tuple[str, ...]) -> str:
        return next((texts[name] for name in names if texts.get(name)), "")

    kind = first(_TYPES).lower()
    return Given(
        number,
        first(VALUES),
        kind if kind in INDICATOR_KINDS else "auto",
        first(LABELS) or None,
        first(_ENDS) or None,
    )


def _stix(path: Path) -> Iterator[Given]:
    """The objects of type indicator of a bundle; those that were revoked are left out."""
    loaded = json_value(bounded_text(path, MAX_JSON_BYTES))
    objects = loaded.get("objects") if isinstance(loaded, dict) else loaded
    if not isinstance(objects, list):
        raise Usage(f"{path}: no STIX bundle: it has no list `objects`")
    for number, stix_object in enumerate(objects, 1):
        if (
            isinstance(stix_object, dict)
            and stix_object.get("type") == "indicator"
            and not stix_object.get("revoked")
        ):
            yield from of_pattern(number, stix_object)


def of_pattern(number: int, indicator: Mapping[str, Any]) -> Iterator[Given]:
    """The values that the pattern of a STIX indicator asks for, if it asks for any of some.

    Of any other pattern one `Given` says what is `wrong`.
    """
    language = str(indicator.get("pattern_type", "stix"))[:20]
    pattern = str(indicator.get("pattern", ""))
    if language != "stix":
        yield Given(number, pattern[:100], wrong=f"a pattern of type {language}")
        return
    if len(pattern) > _PATTERN_CHARS:
        # Searching one takes the square of its length in the worst case.
        yield Given(number, pattern[:100], wrong=f"a pattern of {len(pattern)} characters")
        return
    label, until = indicator.get("name"), indicator.get("valid_until")
    findall = _COMPARISON.findall(pattern)
    # What is left beside brackets and OR is a condition that a list of values cannot ask.
    rest = re.sub(r"[\[\]()\s]|\bOR\b", "", _COMPARISON.sub("", pattern))
    if not findall or rest:
        wrong = "a pattern that says more than any of some values"
        yield Given(number, pattern, wrong=wrong)
        return
    for of, _, value in findall:
        wrong = "" if of in STIX_KINDS else f"objects of type {of} are not sought"
        # STIX escapes quotes and backslashes inside its texts.
        plain = re.sub(r"\\(.)", r"\1", value)
        yield Given(number, plain, STIX_KINDS.get(of, "auto"), label, until, wrong)


def _instant(text: str) -> datetime:
    """An instant; a day, or a time without zone, is UTC."""
    try:
        day = datetime.fromisoformat(text)
        return day.replace(tzinfo=UTC) if day.tzinfo is None else day.astimezone(UTC)
    # An offset may carry the last hours of the year 9999 beyond the last instant there is.
    except (ValueError, OverflowError):
        raise ValueError(
            f"valid_until '{text[:40]}' is no instant; write 2026-01-31T00:00:00Z"
        ) from None


_READERS = {"txt": _text, "csv": _csv, "json": _json, "stix": _stix}
