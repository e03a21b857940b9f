"""What the row reader makes of a wording, with places for what differs from line to line.

It is asked twice, with stand-ins. Where both answers show the stand-in, each line's own value goes;
where they differ in anything else, or one is a dead letter, the wording has no template.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

import pyarrow as pa

from ingest.parsing.arrow_parser import to_arrow
from ingest.parsing.event_rows import event_rows
from ingest.parsing.source import ParseSettings, Record

_STAND_INS: Mapping[str, tuple[str, str]] = {
    "bsd": ("Jan 11 11:11:11", "Feb 12 12:12:12"),
    "iso": ("2011-01-11T11:11:11Z", "2012-02-12T12:12:12Z"),
    "host": ("hosta0x", "hostb1y"),
    "pid": ("7654321", "6543217"),
    "record": ("recorda0x", "recordb1y"),
    "user": ("usera0x", "userb1y"),
    "ip": ("198.51.100.201", "203.0.113.112"),
    "ip2": ("198.51.100.133", "203.0.113.144"),
    "port": ("54321", "61234"),
    "mac": ("02:a0:a1:a2:a3:a4", "06:b0:b1:b2:b3:b4"),
    "name": ("namea0x", "nameb1y"),
    "number": ("1928374655", "1827364955"),
    "number2": ("187654329", "178654392"),
}
"""Of each thing that may differ two values, of which none stands in another."""
MASKS = ("time", *(name for name in _STAND_INS if name not in ("bsd", "iso")))
"""What may differ."""
_NAMES = tuple("time" if name in ("bsd", "iso") else name for name in _STAND_INS)
_SEARCHES = tuple(
    re.compile("|".join(f"({re.escape(pair[of])})" for pair in _STAND_INS.values()))
    for of in (0, 1)
)
_OWN = frozenset(
    ("event_uid", "record_ids", "source", "mode", "received_at", "time", "scope", "tenant_uid")
)
"""Columns that are made for each line anyway."""
_WHEN = datetime(2026, 1, 1, tzinfo=UTC)
"""When the stand-ins arrived; the row reader takes nothing from it but the time."""
OBSERVABLES, MESSAGE = "observables", "message"

Path = tuple[str | int, ...]


class Slot(NamedTuple):
    """The pieces of a text around what differs, and the names of that."""

    pieces: tuple[str, ...]
    masks: tuple[str, ...]


WHOLE = ("", "")
"""The pieces of a text that is nothing but one value."""


class Wording(NamedTuple):
    """What stays in a line, and between it what differs: `form` is that of its time."""

    form: str
    head: tuple[str, ...]
    """What stays up to the text."""
    text: tuple[str, ...]
    """What stays in the text."""
    masks: tuple[str, ...]
    """What differs, in turns with what stays; nothing does between head and text."""


class Template(NamedTuple):
    """A row of silver.event, and where each line's own values go."""

    row: Mapping[str, Any]
    slots: Mapping[Path, Slot]
    nested: frozenset[Path]
    """The paths of the slots, and all that lead to them."""


class _Differs(Exception):
    """The row reader's two answers differ in more than the stand-ins."""


class Templates:
    """Those of a source under some settings, made as lines ask for them. Holds only so many."""

    _MOST = 4_096

    def __init__(self, source: str, settings: ParseSettings) -> None:
        self.settings = settings
        self._source = source
        self._known: dict[Wording, Template | None] = {}
        self._together: dict[int, Template] = {}
        self._rows: pa.RecordBatch | None = None

    def of(self, wording: Wording) -> Template | None:
        """The template of a wording, if it can have one."""
        if wording not in self._known:
            if len(self._known) >= self._MOST:
                self._known.clear()
            self._known[wording] = _template(self._source, wording, self.settings)
        return self._known[wording]

    def rows_of(self, templates: Sequence[Template]) -> tuple[list[Template], pa.RecordBatch]:
        """Templates with these among them, and their rows in silver.event."""
        # Most batches have the wordings of the last, and to make columns of rows is dear.
        if self._rows is None or not {id(each) for each in templates} <= self._together.keys():
            last = self._together if len(self._together) <= 2 * len(templates) else {}
            self._together = last | {id(each): each for each in templates}
            names = dict.fromkeys(name for each in self._together.values() for name in each.row)
            # All of one shape, or `to_arrow` would put those of a shape together.
            self._rows = to_arrow(
                [{name: each.row.get(name) for name in names} for each in self._together.values()]
            )
        return list(self._together.values()), self._rows


_CACHE: dict[tuple[str, str | None], Templates] = {}


def templates(source: str, settings: ParseSettings) -> Templates:
    """The templates of a source; those of the last settings are kept, as they are dear to make."""
    key = source, settings.tenant
    kept = _CACHE.get(key)
    if kept is None or kept.settings != settings:
        if len(_CACHE) >= 64:
            _CACHE.clear()
        kept = _CACHE[key] = Templates(source, settings)
    return kept


def _template(source: str, wording: Wording, settings: ParseSettings) -> Template | None:
    answers, as_text = [], True
    for of in (0, 1):
        values = [
            _STAND_INS[wording.form if mask == "time" else mask][of] for mask in wording.masks
        ]
        ends = len(wording.head) - 1
        head = _interleaved(wording.head, values[:ends])
        text = _interleaved(wording.text, values[ends:])
        record = Record(_STAND_INS["record"][of], source, "live", _WHEN, (head + text).encode())
        made = event_rows([record], settings)
        if len(made) != 1 or made[0].get("dead_letter_reason"):
            return None
        as_text &= made[0].get(MESSAGE) == text
        answers.append({name: value for name, value in made[0].items() if name not in _OWN})
    slots: dict[Path, Slot] = {}
    try:
        _compare(answers[0], answers[1], (), slots)
    except _Differs:
        return None
    if as_text:
        # Each line has it as it is, and it need not be put together.
        slots[(MESSAGE,)] = Slot(WHOLE, ("text",))
    # What is required of every row, and is given each line of its own later.
    required = {"event_uid": "", "source": source, "mode": "", "time": _WHEN, "received_at": _WHEN}
    row = answers[0] | required
    try:
        to_arrow([row])
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        return None  # a number that fits no column; the row reader makes a dead letter of it
    nested = frozenset(path[:end] for path in slots for end in range(len(path) + 1))
    return Template(row, slots, nested)


def _interleaved(stays: Sequence[str], values: Sequence[str]) -> str:
    return "".join(piece for pair in zip(stays, [*values, ""], strict=True) for piece in pair)


def _compare(one: Any, other: Any, path: Path, slots: dict[Path, Slot]) -> None:
    """Collects where two answers show the stand-ins. Raises `_Differs`."""
    if type(one) is not type(other):
        raise _Differs
    if isinstance(one, dict):
        if one.keys() != other.keys():
            raise _Differs
        for name in one:
            _compare(one[name], other[name], (*path, name), slots)
    elif isinstance(one, list) and path[0] in _LISTS and len(one) == len(other):
        for place, (left, right) in enumerate(zip(one, other, strict=True)):
            _compare(left, right, (*path, place), slots)
    elif type(one) is str or type(one) is int:
        slot = _slot(str(one), 0)
        if slot != _slot(str(other), 1) or (type(one) is int and slot.masks and not _whole(slot)):
            raise _Differs
        if slot.masks and path[0] in _LISTS and not (_whole(slot) and _fillable(path)):
            raise _Differs
        if slot.masks:
            slots[path] = slot
    elif one != other:
        raise _Differs


_LISTS: Mapping[str, str] = {OBSERVABLES: "value", "answers": "rdata"}
"""The lists in whose elements one field may differ."""


def _fillable(path: Sequence[str | int]) -> bool:
    return len(path) == 3 and path[2] == _LISTS[str(path[0])]


def _whole(slot: Slot) -> bool:
    return slot.pieces == WHOLE


def _slot(text: str, of: int) -> Slot:
    pieces, names, end = [], [], 0
    for match in _SEARCHES[of].finditer(text):
        pieces.append(text[end : match.start()])
        names.append(_NAMES[(match.lastindex or 1) - 1])
        end = match.end()
    return Slot((*pieces, text[end:]), tuple(names))
