"""Columns of silver.event built many rows at a time, for sources that are worth it.

See `ingest.sources.zeek.columns` for such a source. What the row-wise path does one value at a
time (`ingest.parsing.event_rows`, `ingest.parsing.ocsf`) is done here for a column; a value that is
the same in all rows is made once.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from functools import cache
from typing import Any
from zoneinfo import ZoneInfo

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ingest.parsing.arrow_columns import EVENT_ARROW
from ingest.parsing.ocsf import KINDS, OBSERVABLE, OTHER, SEVERITY, STATUS, address
from ingest.parsing.source import ParseSettings, Read
from ingest.parsing.timestamps import EPOCH, of_iso, stamp_rfc3164

Mask = npt.NDArray[np.bool_]
_encode = msgspec.json.Encoder().encode
_TIME = pa.timestamp("us", "UTC")
_UTC = ZoneInfo("UTC")
_QUOTE, _COLON, _SPACE = b'": '
# From 1910 to 2199: no offset moves these out of the years kept, and as milliseconds they are
# exact in a float.
_EXACT = (
    r"^(19[1-9]|2[01]\d)\d-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,6})?"
    r"(Z|[+-]([01]\d|2[0-3]):?[0-5]\d)$"
)


def arrow_type_of(path: str) -> pa.DataType:
    """The Arrow type of a column or of a leaf, such as `traffic.bytes`."""
    name, *rest = path.split(".")
    kind = EVENT_ARROW.field(name).type
    for step in rest:
        kind = kind.field(step).type
    return kind


def constant(value: Any, rows: int, kind: pa.DataType | None = None) -> pa.Array:
    """`value` in every row."""
    return pa.repeat(pa.scalar(value, kind or pa.string()), rows)


def looked_up(keys: pa.Array, table: Callable[[Any], Any], kind: pa.DataType) -> pa.Array:
    """`table` of each key, asked once for each that occurs; null for null."""
    # Few keys differ in a batch, and Python is asked once for each of them.
    encoded = keys.dictionary_encode()
    tables = [table(key) for key in encoded.dictionary.to_pylist()]
    return pa.array(tables, kind).take(encoded.indices)


def taken(values: pa.Array, places: pa.Array) -> pa.Array:
    """The values at `places`; quick for structs of which most leaves are null."""
    if values.null_count == len(values):
        return pa.nulls(len(places), values.type)
    if not pa.types.is_struct(values.type):
        return values.take(places)
    children = [taken(values.field(index), places) for index in range(values.type.num_fields)]
    mask = values.is_null().take(places) if values.null_count else None
    return pa.StructArray.from_arrays(children, fields=list(values.type), mask=mask)


def null_where(mask: pa.Array, texts: pa.Array) -> pa.Array:
    """The texts, or bytes, null where the mask holds or is null."""
    return pc.if_else(mask, _nothing_beside(texts), texts)


def only_where(mask: pa.Array, texts: pa.Array) -> pa.Array:
    """The texts, or bytes, where the mask holds; null elsewhere."""
    return pc.if_else(mask, texts, _nothing_beside(texts))


def _nothing_beside(texts: pa.Array) -> pa.Scalar | pa.Array:
    # Beside a null scalar, which is fifteen times as fast, pyarrow takes what is a part of a longer
    # array for its beginning, and gives what lies behind its bytes in memory for texts
    # (apache/arrow#49410).
    offsets = texts.buffers()[1]
    whole = texts.offset == 0 and (offsets is None or not any(offsets[:4]))
    return pa.scalar(None, texts.type) if whole else pa.nulls(len(texts), texts.type)


IPV4 = r"(?:(?:25[0-5]|2[0-4]\d|1\d\d|[1-9]?\d)\.){3}(?:25[0-5]|2[0-4]\d|1\d\d|[1-9]?\d)"
"""An IPv4 address in its one spelling."""


def addresses(texts: pa.Array) -> pa.Array:
    """Addresses in their one spelling; null for what is none."""
    # Nearly all are of IPv4, whose spelling the expression proves at a tenth of what asking costs.
    usual = pc.match_substring_regex(texts, f"^{IPV4}$")
    if pc.all(usual).as_py():
        return texts
    others = looked_up(null_where(usual, texts), address, pa.string())
    return pc.if_else(usual, texts, others)


def struct(path: str, rows: int, mask: pa.Array | None = None, /, **leaves: pa.Array) -> pa.Array:
    """The struct column or leaf `path` from its own leaves; those not named are null.

    `mask`: true where the struct itself is null.
    """
    fields = _fields_of(path)
    unknown = leaves.keys() - fields.keys()
    if unknown:
        raise ValueError(f"{path} has no {sorted(unknown)}")
    children = [
        leaves[name] if name in leaves else pa.nulls(rows, field.type)
        for name, field in fields.items()
    ]
    return pa.StructArray.from_arrays(children, fields=list(fields.values()), mask=mask)


@cache
def _fields_of(path: str) -> Mapping[str, pa.Field]:
    return {field.name: field for field in arrow_type_of(path)}


def nowhere(*leaves: pa.Array) -> pa.Array:
    """True where none of the leaves has a value."""
    is_null = pc.is_null(leaves[0])
    for leaf in leaves[1:]:
        is_null = pc.and_(is_null, pc.is_null(leaf))
    return is_null


def observables(rows: int, *candidates: tuple[str, int, pa.Array]) -> pa.Array:
    """Observables from (OCSF path, type_id, values), those that are null or empty left out."""
    kind = EVENT_ARROW.field("observables").type
    present = np.empty((rows, len(candidates)), np.bool_)
    for place, (_, _, values) in enumerate(candidates):
        # Null compares to null in Arrow; NumPy needs a plain truth value.
        present[:, place] = np.asarray(pc.fill_null(pc.binary_length(values), 0)) > 0
    ends = np.zeros(rows + 1, np.int32)
    np.cumsum(present.sum(axis=1), out=ends[1:])
    # Row by row and in each the paths in their order: places in all values, column after column.
    row, which = np.divmod(np.flatnonzero(present), len(candidates))
    places = which * rows + row
    values = pa.concat_arrays([values for _, _, values in candidates]).take(pa.array(places))
    of = pa.array(which.astype(np.int32))
    elements = pa.StructArray.from_arrays(
        [
            pa.array([name for name, _, _ in candidates]).take(of),
            pa.array([OBSERVABLE[type_id] for _, type_id, _ in candidates]).take(of),
            pa.array([type_id for _, type_id, _ in candidates], pa.int32()).take(of),
            values,
        ],
        fields=[kind.value_type.field(index) for index in range(4)],
    )
    empty = pa.array(ends[1:] == ends[:-1])
    return pa.ListArray.from_arrays(pa.array(ends), elements, type=kind, mask=empty)


def json_of(values: pa.Array) -> pa.Array:
    """JSON text of each text, whole number or truth value; null for null."""
    if pa.types.is_string(values.type):
        return looked_up(values, lambda text: _encode(text).decode(), pa.string())
    return values.cast(pa.string())


def json_objects(rows: int, texts: Mapping[str, pa.Array]) -> pa.Array:
    """JSON objects of names and their values' JSON, in the order of `texts`; null where none has a
    value."""
    filled = {name: text for name, text in texts.items() if text.null_count < rows}
    if not filled:
        return pa.nulls(rows, pa.string())
    # Each brings its own comma: in front of a field that all rows have the one behind it.
    full = next((name for name, text in filled.items() if not text.null_count), None)
    if full is None:
        return _sparse_objects(filled)
    pieces: list[str | pa.Array] = ["{"]
    before, behind = "", ","
    for name, text in filled.items():
        if name == full:
            behind = ""
        key = f"{before}{_encode(name).decode()}:"
        if text.null_count:
            pieces.append(pc.binary_join_element_wise(key, text, behind, ""))
        else:
            pieces += [key, text, behind]
        before = "" if behind else ","
    return pc.binary_join_element_wise(
        *pieces, "}", "", null_handling="replace", null_replacement=""
    )


def _sparse_objects(texts: Mapping[str, pa.Array]) -> pa.Array:
    pieces = [
        pc.binary_join_element_wise(_encode(name).decode() + ":", text, "")
        for name, text in texts.items()
    ]
    none = nowhere(*pieces)
    # Arrow leaves a row out of its result where it skips all of its pieces.
    pieces[0] = pc.if_else(none, "", pieces[0])
    # A null piece is skipped with its comma, so no row gets a key without a value.
    joined = pc.binary_join_element_wise(*pieces, ",", null_handling="skip")
    whole = pc.binary_join_element_wise("{", joined, "}", "")
    return null_where(none, whole)


def exact_times(texts: pa.Array) -> pa.Array:
    """Times of ISO texts that name their zone, such as `2026-11-20T12:00:00.5+01:00`.

    Null for any other text, and outside the years 1910 to 2199.
    """
    shaped = only_where(pc.match_substring_regex(texts, _EXACT), texts)
    try:
        return shaped.cast(_TIME)
    except pa.ArrowInvalid:  # a 30 February among them
        return looked_up(shaped, _of_iso, _TIME)


def _of_iso(text: str) -> datetime | None:
    read = of_iso(text, _UTC)
    return read and read[0]


def single_keys(raws: Sequence[bytes], keys: npt.NDArray[np.int64]) -> Mask:
    """Which lines of JSON have no more than so many keys, so that none stands twice.

    A line where that cannot be told counts as one that has.
    """
    # As many `":` as keys. With space before a colon that cannot be told.
    counts, spaced = _keys_of(raws)
    good: Mask = np.equal(counts, keys)
    if spaced:
        good &= np.fromiter((re.search(rb'"[ \t\r\n]+:', raw) is None for raw in raws), np.bool_)
    return good


def _keys_of(raws: Sequence[bytes]) -> tuple[npt.NDArray[np.int64], bool]:
    """How often `":` stands in each line, and whether space follows a quote in any of them."""
    whole = np.frombuffer(b"\n".join(raws), np.uint8)
    quoted, after = whole[:-1] == _QUOTE, whole[1:]
    ends = np.cumsum(np.fromiter(map(len, raws), np.int64, len(raws)) + 1)
    before = np.searchsorted(np.flatnonzero(quoted & (after == _COLON)), ends)
    return np.diff(before, prepend=0), bool((quoted & (after <= _SPACE)).any())


def record_columns(
    records: pa.RecordBatch,
    source: str,
    places: Sequence[int] | npt.NDArray[np.int64],
) -> dict[str, pa.Array]:
    """The columns that tell whence a row is, for those at `places` of the records of `source`.

    Each of them is one event.
    """
    columns = [records.column(name) for name in ("record_id", "mode", "received_at")]
    if not np.array_equal(places, np.arange(records.num_rows)):
        own = pa.array(places, pa.int64())
        columns = [column.take(own) for column in columns]
    ids, mode, received = columns
    rows, ids = len(ids), ids.cast(pa.string())
    return {
        # One event a record, so its index is always 0.
        "event_uid": pc.binary_join_element_wise(ids, "#0", ""),
        "record_ids": pa.ListArray.from_arrays(pa.array(np.arange(rows + 1, dtype=np.int32)), ids),
        "source": constant(source, rows),
        "mode": mode.cast(pa.string()),
        "received_at": received.cast(_TIME),
    }


def sensor_columns(names: pa.Array, source: str, settings: ParseSettings) -> dict[str, pa.Array]:
    """The columns that tell by which host an event was seen; `names`: null where none is told."""
    rows = len(names)
    return {
        # Null would stay null without being looked up, and the default scope would be lost.
        "scope": looked_up(
            pc.fill_null(names, ""), lambda name: settings.scope(name or None, source), pa.string()
        ),
        "host_name": names,
        "device": struct(
            "device",
            rows,
            pc.is_null(names),
            hostname=names,
            type_id=constant(0, rows, pa.int32()),
        ),
    }


def classified(
    class_uid: int, activity: pa.Array, status: pa.Array, rows: int
) -> dict[str, pa.Array]:
    """The columns that follow from class, activity and status, of events of severity 1."""
    kind, text = KINDS[class_uid], pa.string()
    names = {**kind.activities, OTHER: "Other"}
    return {
        "class_uid": constant(class_uid, rows, pa.int32()),
        "class_name": constant(kind.name, rows),
        "category_uid": constant(kind.category_uid, rows, pa.int32()),
        "activity_id": activity,
        "activity_name": looked_up(activity, names.__getitem__, text),
        # By OCSF: the class' number times a hundred, plus the activity.
        "type_uid": pc.add(activity.cast(pa.int64()), class_uid * 100),
        "severity_id": constant(1, rows, pa.int32()),
        "severity": constant(SEVERITY[1], rows),
        "status_id": status,
        "status": looked_up(status, STATUS.__getitem__, text),
    }


def batch_of(rows: int, columns: Mapping[str, pa.Array]) -> pa.RecordBatch:
    """A batch of silver.event; columns not named are null. Raises `ValueError` for unknown ones."""
    unknown = columns.keys() - _COLUMNS.keys()
    if unknown:
        raise ValueError(f"no column {sorted(unknown)} in silver.event")
    return pa.RecordBatch.from_arrays(
        [
            columns[name] if name in columns else pa.nulls(rows, kind)
            for name, kind in _COLUMNS.items()
        ],
        schema=EVENT_ARROW,
    )


_COLUMNS: Mapping[str, pa.DataType] = {field.name: field.type for field in EVENT_ARROW}


def read_of(
    events: pa.RecordBatch, rows: int, places: Sequence[int] | npt.NDArray[np.int64]
) -> Read:
    """The events of those at `places` of so many records; the others are left."""
    left = np.ones(rows, np.bool_)
    left[places] = False
    return Read(events, np.flatnonzero(left).tolist())


def plain_texts(records: pa.RecordBatch, longest: int) -> pa.Array:
    """Records as text; null for what is no UTF-8, has more bytes, or came with headers.

    A header may give a zone or name the sender, which only the row reader knows.
    """
    raw = records.column("raw")
    plain = pc.and_(
        records.column("headers").is_null(), pc.less_equal(pc.binary_length(raw), longest)
    )
    return texts_of(only_where(plain, raw))


def texts_of(raws: pa.Array) -> pa.Array:
    """Bytes as text; null where they are no UTF-8."""
    try:
        return raws.cast(pa.string())
    except pa.ArrowInvalid:
        pass
    # One bad record must not cost the others more than a look at each.
    return null_where(pa.array(_not_utf8(raws)), raws).cast(pa.string())


def _not_utf8(raws: pa.Array) -> Mask:
    _, ends, data = raws.buffers()
    offsets = np.frombuffer(ends, np.int32)[raws.offset : raws.offset + len(raws) + 1]
    beyond_ascii = np.flatnonzero(np.frombuffer(data, np.uint8)[offsets[0] : offsets[-1]] > 127)
    rows = np.unique(np.searchsorted(offsets, beyond_ascii + offsets[0], side="right") - 1)
    bad = np.zeros(len(raws), np.bool_)
    bad[rows] = [not _is_utf8(raw or b"") for raw in raws.take(pa.array(rows)).to_pylist()]
    return bad


def _is_utf8(raw: bytes) -> bool:
    try:
        raw.decode()
    except UnicodeDecodeError:
        return False
    return True


def times_of_lines(
    texts: pa.Array, arrivals: pa.Array, zones: Sequence[ZoneInfo], zone_of: pa.Array
) -> pa.Array:
    """Times as syslog writes them: ISO with a zone, or RFC 3164's without a year.

    Null for any other. `zone_of`: which of `zones` is each text's.
    """
    times = exact_times(texts)
    missing = np.flatnonzero(np.asarray(times.is_null()))
    if not len(missing):
        return times
    where = np.asarray(zone_of)[missing]
    own, arrived = texts.take(pa.array(missing)), arrivals.take(pa.array(missing))
    in_utc = np.array([zone.key == "UTC" for zone in zones])[where]
    micros = np.full(len(missing), _NEVER)
    if in_utc.any():
        here = pa.array(np.flatnonzero(in_utc))
        micros[in_utc] = _yearless(own.take(here), arrived.take(here))
    # Where clocks are set back an hour stands twice, and the minute of arrival decides.
    for place in np.flatnonzero(micros == _NEVER).tolist():
        stamp = _stamp(own[place].as_py(), zones[where[place]], arrived[place].as_py())
        micros[place] = _NONE if stamp is None else stamp
    whole = np.asarray(times.cast(pa.int64()).fill_null(0)).copy()
    whole[missing] = micros
    return pa.array(whole, pa.int64(), mask=whole == _NONE).cast(_TIME)


_NONE = np.iinfo(np.int64).min
_NEVER = _NONE + 1
_PLAIN = re.compile(r"[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d", re.ASCII)
_CLOCK = r"^[A-Z][a-z][a-z] [ \d]\d \d\d:\d\d:[0-5]\d$"


def _yearless(texts: pa.Array, arrivals: pa.Array) -> npt.NDArray[np.int64]:
    """Microseconds of RFC 3164's times in UTC, read minute by minute; `_NEVER`: ask for it."""
    minutes = pc.utf8_slice_codeunits(texts, 0, 12)
    hours = pc.divide(arrivals.cast(pa.int64()), 3_600_000_000)
    keys = pc.binary_join_element_wise(minutes, hours.cast(pa.string()), "|").dictionary_encode()
    table = []
    for key in keys.dictionary.to_pylist():
        minute, hour = key.split("|")
        arrival = EPOCH + timedelta(hours=int(hour))
        # The year is another from some second on; where that lies in the minute each is asked.
        first, last = (_stamp(f"{minute}:{second}", _UTC, arrival) for second in ("00", "59"))
        whole = first is not None and last is not None and last - first == 59_000_000
        table.append(first if whole else _NEVER)
    base = np.array(table, np.int64)[np.asarray(keys.indices)]
    plain = np.asarray(pc.match_substring_regex(texts, _CLOCK))
    seconds = np.asarray(
        pc.if_else(pa.array(plain), pc.utf8_slice_codeunits(texts, 13, 15), "0").cast(pa.int64())
    )
    return np.where(plain & (base != _NEVER), base + seconds * 1_000_000, _NEVER)


def _stamp(text: str, zone: ZoneInfo, arrival: datetime) -> int | None:
    if not _PLAIN.fullmatch(text):
        return None
    stamp = stamp_rfc3164(text, zone, arrival)
    if stamp.quality == "received":
        return None
    return (stamp.time - EPOCH) // timedelta(microseconds=1)
