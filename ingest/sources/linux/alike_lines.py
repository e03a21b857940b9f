"""Syslog lines that differ in nothing but times, names, addresses and numbers, many at once.

Few wordings occur, however many lines there are. Of each wording the row reader is asked twice,
with stand-ins for what differs, and what it makes of them is a template: where both answers show
the stand-in, each line's own value goes. Where they differ in anything else, or one is a dead
letter, all lines of that wording are left to the row reader. So both agree as long as the reader
treats one value of a mask like any other; masks are narrow for that reason.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ingest.parsing.arrow_parser import to_arrow
from ingest.parsing.event_rows import event_rows
from ingest.parsing.source import ParseSettings, Read, Record
from ingest.parsing.timestamps import stamp_rfc3164
from ingest.parsing.vectorized import batch_of, exact_times, looked_up, record_columns

FEWEST_LINES = 32
"""Lines of a source in a batch that are worth it."""
FEWEST_ALIKE = 4
"""Lines of a wording that are worth two questions to the row reader."""
_MOST_WORDINGS = 256
_LONGEST = 2_000

IPV4 = r"(?:(?:25[0-5]|2[0-4]\d|1\d\d|[1-9]?\d)\.){3}(?:25[0-5]|2[0-4]\d|1\d\d|[1-9]?\d)"
"""An IPv4 address in its one spelling."""
# Groups in turn: what stays, what differs.
_HEADER = re.compile(
    r"((?:<\d{1,3}>)?(?:1 (?=\d))?)"
    r"([A-Z][a-z]{2} (?: \d|[1-9]\d) \d\d:\d\d:\d\d"
    r"|\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{1,6})?(?:Z|[+-]\d\d:\d\d))"
    r"( )([A-Za-z][\w-]{0,62}(?:\.[\w-]{1,62}){0,6})"
    r"( [a-z][a-z_-]{1,30}[ \[])([1-9]\d{0,6})"
    r"(\]: +| - - +)([^\x00]+)",
    re.ASCII,
)
_STAND_INS: tuple[Mapping[str, str], Mapping[str, str]] = (
    {
        "bsd": "Jan 11 11:11:11",
        "iso": "2011-01-11T11:11:11Z",
        "host": "hosta0x",
        "pid": "7654321",
        "user": "usera0x",
        "ip": "198.51.100.201",
        "port": "54321",
    },
    {
        "bsd": "Feb 12 12:12:12",
        "iso": "2012-02-12T12:12:12Z",
        "host": "hostb1y",
        "pid": "6543217",
        "user": "userb1y",
        "ip": "203.0.113.112",
        "port": "61234",
    },
)
_SEARCHES = tuple(
    re.compile("|".join(f"({re.escape(text)})" for text in each.values())) for each in _STAND_INS
)
_OWN = frozenset(
    ("event_uid", "record_ids", "source", "mode", "received_at", "time", "scope", "tenant_uid")
)
"""Columns that are made for each line anyway."""
# A word of the reader's own, taken for a name, could make it read another pattern.
_NO_NAMES = frozenset(
    ("invalid", "illegal", "user", "from", "for", "port", "by", "authenticating", "unknown")
)

Path = tuple[str | int, ...]
Slot = tuple[tuple[str, ...], tuple[str, ...]]
"""The pieces of a text around what differs, and the names of that."""


class _Line(NamedTuple):
    place: int
    values: Mapping[str, str]


class _Differs(Exception):
    """The row reader's two answers differ in more than the stand-ins."""


def read_alike(
    source: str, records: pa.RecordBatch, settings: ParseSettings, texts: Sequence[re.Pattern[str]]
) -> Read:
    """The events of those of `records`, all of `source`, that are worded like others.

    `texts`: wordings of what follows the header, their groups in turn what stays and what
    differs; the latter are called `user`, `ip` and `port`.
    """
    rows = records.num_rows
    if rows < FEWEST_LINES:
        return Read(None, list(range(rows)))
    wordings = _by_wording(records, texts)
    when = records.column("received_at")[0].as_py()
    templates: list[tuple[pa.RecordBatch, Mapping[Path, Slot]]] = []
    codes: list[int] = []
    lines: list[_Line] = []
    for key, alike in wordings.items():
        if len(alike) < FEWEST_ALIKE or len(templates) == _MOST_WORDINGS:
            continue
        template = _template(source, key, texts, when, settings)
        if template is not None:
            codes += [len(templates)] * len(alike)
            lines += alike
            templates.append(template)
    if not lines:
        return Read(None, list(range(rows)))
    return _filled(source, records, settings, templates, codes, lines)


def _by_wording(
    records: pa.RecordBatch, texts: Sequence[re.Pattern[str]]
) -> dict[tuple[Any, ...], list[_Line]]:
    """The lines by what stays in them."""
    raws = records.column("raw").to_numpy(zero_copy_only=False).tolist()
    # A header may give a zone or name the sender, which only the row reader knows.
    plain = np.asarray(records.column("headers").is_null()).tolist()
    names = [sorted(text.groupindex, key=text.groupindex.__getitem__) for text in texts]
    result: dict[tuple[Any, ...], list[_Line]] = {}
    for place, raw in enumerate(raws):
        if raw is None or not plain[place] or len(raw) > _LONGEST:
            continue
        try:
            header = _HEADER.fullmatch(raw.decode())
        except UnicodeDecodeError:
            continue
        if header is None:
            continue
        before, time, _, host, program, pid, behind, text = header.groups()
        # A host of few capitals may be taken for the clock's zone.
        if host.isupper() and len(host) < 6:
            continue
        for number, wording in enumerate(texts):
            match = wording.fullmatch(text)
            if match is None:
                continue
            groups = match.groups()
            values = dict(zip(names[number], groups[1::2], strict=True))
            if values.get("user") in _NO_NAMES or int(values.get("port", 0)) > 65535:
                break
            values |= {"time": time, "host": host, "pid": pid}
            form = "iso" if time[4] == "-" else "bsd"
            key = (before, form, program, behind, number, *groups[0::2])
            if key in result:
                result[key].append(_Line(place, values))
            else:
                result[key] = [_Line(place, values)]
            break
    return result


def _template(
    source: str,
    key: tuple[Any, ...],
    texts: Sequence[re.Pattern[str]],
    when: datetime,
    settings: ParseSettings,
) -> tuple[pa.RecordBatch, Mapping[Path, Slot]] | None:
    """What the row reader makes of a wording, and where each line's own values go."""
    before, form, program, behind, number, *stays = key
    index = texts[number].groupindex
    names = sorted(index, key=index.__getitem__)
    answers = []
    for each in _STAND_INS:
        text = "".join(
            stay + (each[names[place]] if place < len(names) else "")
            for place, stay in enumerate(stays)
        )
        raw = f"{before}{each[form]} {each['host']}{program}{each['pid']}{behind}{text}"
        made = event_rows([Record("t", source, "live", when, raw.encode())], settings)
        if len(made) != 1 or made[0].get("dead_letter_reason"):
            return None
        answers.append({name: value for name, value in made[0].items() if name not in _OWN})
    slots: dict[Path, Slot] = {}
    try:
        _compare(answers[0], answers[1], (), slots)
    except _Differs:
        return None
    # What is required of every row, and is given each line of its own below.
    required = {"event_uid": "", "source": source, "mode": "", "time": when, "received_at": when}
    try:
        return to_arrow([answers[0] | required]), slots
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        return None  # a number that fits no column; the row reader makes a dead letter of it


def _compare(one: Any, other: Any, path: Path, slots: dict[Path, Slot]) -> None:
    """Collects where two answers show the stand-ins. Raises `_Differs`."""
    if type(one) is not type(other):
        raise _Differs
    if isinstance(one, dict):
        if one.keys() != other.keys():
            raise _Differs
        for name in one:
            _compare(one[name], other[name], (*path, name), slots)
    elif isinstance(one, list) and path == ("observables",) and len(one) == len(other):
        for place, (left, right) in enumerate(zip(one, other, strict=True)):
            _compare(left, right, (*path, place), slots)
    elif type(one) is str or type(one) is int:
        slot = _slot(str(one), 0)
        if slot != _slot(str(other), 1) or (type(one) is int and slot[1] and slot[0] != ("", "")):
            raise _Differs
        if slot[1] and path[0] == _SEEN and (path[2] != "value" or slot[0] != ("", "")):
            raise _Differs
        if slot[1]:
            slots[path] = slot
    elif one != other:
        raise _Differs


def _slot(text: str, of: int) -> Slot:
    pieces, names, end = [], [], 0
    for match in _SEARCHES[of].finditer(text):
        pieces.append(text[end : match.start()])
        names.append(list(_STAND_INS[of])[(match.lastindex or 1) - 1])
        end = match.end()
    return (*pieces, text[end:]), tuple("time" if n in ("bsd", "iso") else n for n in names)


class _Alike:
    """Lines whose wording has a template, by column."""

    def __init__(
        self, lines: Sequence[_Line], codes: Sequence[int], slots: Sequence[Mapping[Path, Slot]]
    ) -> None:
        self.lines, self.slots = lines, slots
        self.codes = np.array(codes, np.int64)
        self._masks = {
            name: pa.array([line.values.get(name) for line in lines], pa.string())
            for name in _MASKS
        }

    def of_mask(self, name: str) -> pa.Array:
        """What each line has under a mask."""
        return self._masks[name]

    def at_leaf(self, path: Path) -> tuple[pa.Array, pa.Array]:
        """Which lines have a value of their own at the leaf, and those values."""
        slots = [each.get(path) for each in self.slots]
        has = pa.array(np.array([slot is not None for slot in slots])[self.codes])
        masks = {slot for slot in slots if slot is not None}
        if len(masks) == 1 and (slot := masks.pop())[0] == ("", ""):
            return has, self.of_mask(slot[1][0])
        renders = [None if slot is None else _render(slot) for slot in slots]
        values = [
            None if (render := renders[code]) is None else render(line.values)
            for code, line in zip(self.codes.tolist(), self.lines, strict=True)
        ]
        return has, pa.array(values, pa.string())

    def observables(self, array: pa.Array) -> pa.Array:
        """The observables with each line's own values."""
        counts = np.asarray(pc.fill_null(pc.list_value_length(array), 0)).astype(np.int64)
        ends = np.zeros(len(array) + 1, np.int32)
        np.cumsum(counts, out=ends[1:])
        rows = np.repeat(np.arange(len(array)), counts)
        places = np.arange(len(rows)) - np.repeat(ends[:-1], counts)
        masks = np.full((len(self.slots), max(counts.max(initial=0), 1)), -1)
        for code, slots in enumerate(self.slots):
            for path, (_, names) in slots.items():
                if path[0] == _SEEN:
                    masks[code, int(path[1])] = _MASKS.index(names[0])
        of = masks[self.codes[rows], places]
        # Mask after mask in one array, a line's value at the line's place in each.
        whole = pa.concat_arrays([self._masks[name] for name in _MASKS])
        values = whole.take(pa.array(np.where(of < 0, 0, of) * len(array) + rows))
        elements = _put(array.flatten(), ("value",), pa.array(of >= 0), values)
        return pa.ListArray.from_arrays(
            pa.array(ends), elements, type=array.type, mask=array.is_null()
        )


_SEEN = "observables"
_MASKS = ("time", "host", "pid", "user", "ip", "port")


def _filled(
    source: str,
    records: pa.RecordBatch,
    settings: ParseSettings,
    templates: Sequence[tuple[pa.RecordBatch, Mapping[Path, Slot]]],
    codes: list[int],
    lines: list[_Line],
) -> Read:
    """The templates' rows, each line's own values in their places."""
    times = _times(source, records, settings, lines)
    if times.null_count:
        keep = np.flatnonzero(np.asarray(times.is_valid())).tolist()
        times = times.drop_null()
        codes, lines = [codes[place] for place in keep], [lines[place] for place in keep]
    left = np.ones(records.num_rows, np.bool_)
    if not lines:
        return Read(None, np.flatnonzero(left).tolist())
    places = [line.place for line in lines]
    left[places] = False
    alike = _Alike(lines, codes, [slots for _, slots in templates])
    events = pa.concat_batches([row for row, _ in templates]).take(pa.array(codes))
    columns = dict(zip(events.schema.names, events.columns, strict=True))
    for path in {path for each in alike.slots for path in each if path[0] != _SEEN}:
        name = str(path[0])
        columns[name] = _put(columns[name], path[1:], *alike.at_leaf(path))
    columns[_SEEN] = alike.observables(columns[_SEEN])
    columns["time"] = times
    columns["scope"] = looked_up(
        alike.of_mask("host"), lambda host: settings.scope(host, source), pa.string()
    )
    columns |= record_columns(records.take(pa.array(places)), source)
    return Read(batch_of(len(lines), columns), np.flatnonzero(left).tolist())


def _times(
    source: str, records: pa.RecordBatch, settings: ParseSettings, lines: Sequence[_Line]
) -> pa.Array:
    """The time of each line; null where it is none."""
    zones = {host: settings.zone(source, host) for host in {line.values["host"] for line in lines}}
    texts = pa.array([line.values["time"] for line in lines])
    times = exact_times(texts)
    arrivals = records.column("received_at").cast(pa.timestamp("us", "UTC"))
    hours = (np.asarray(arrivals.cast(pa.int64())) // 3_600_000_000).tolist()
    known: dict[tuple[str, str, Any], datetime | None] = {}
    yearless: list[datetime | None] = []
    for line in lines:
        text, zone = line.values["time"], zones[line.values["host"]]
        if text[4] == "-":
            yearless.append(None)
            continue
        # In UTC no hour stands twice, so of the arrival only the hour counts.
        utc = zone.key == "UTC"
        key = (text, zone.key, hours[line.place] if utc else arrivals[line.place])
        if key not in known:
            stamp = stamp_rfc3164(text, zone, arrivals[line.place].as_py())
            known[key] = None if stamp.quality == "received" else stamp.time
        yearless.append(known[key])
    return pc.coalesce(times, pa.array(yearless, times.type))


def _render(slot: Slot) -> Callable[[Mapping[str, str]], str]:
    pieces, names = slot
    first, *rest = pieces
    pairs = list(zip(names, rest, strict=True))
    return lambda values: first + "".join([values[name] + piece for name, piece in pairs])


def _put(array: pa.Array, path: Path, has: pa.Array, values: pa.Array) -> pa.Array:
    """The column with those values at the leaf `path` of its structs."""
    if not path:
        return pc.if_else(has, values.cast(array.type), array)
    fields = list(array.type)
    children = [
        _put(array.field(place), path[1:], has, values)
        if field.name == path[0]
        else array.field(place)
        for place, field in enumerate(fields)
    ]
    return pa.StructArray.from_arrays(children, fields=fields, mask=array.is_null())
