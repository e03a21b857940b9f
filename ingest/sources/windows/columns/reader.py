"""Windows events of NXLog and Winlogbeat, many at once.

Events of the same fields are turned into a column a field, and the row reader itself
(`ingest.sources.windows.flat` or `beats`, and of `build` and the tables what they call) is run on
these in place of values. So both agree by construction: what an event's values decide is asked of
all events, and those that answer differently are read apart. Whatever is unusual about a record, or
about too few of them, is left to the row reader: an odd number, a key that may stand twice, a time
that cannot be read, a mapping that makes one text of several fields.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from types import MappingProxyType
from typing import Any, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa

from ingest.parsing.event_rows import add_copies
from ingest.parsing.source import Context, ParseSettings, Read, Record
from ingest.parsing.strict_json import plain_object
from ingest.parsing.timestamps import EPOCH
from ingest.parsing.vectorized import read_of, record_columns
from ingest.sources.windows.beats import logged_of_beat
from ingest.sources.windows.build import observed, parts_of
from ingest.sources.windows.columns.arrow import Made, batch_of_groups, json_texts, seen_once
from ingest.sources.windows.columns.column import Codes, Column, Split, Unlike, column_of
from ingest.sources.windows.columns.many import each
from ingest.sources.windows.flat import CHANNELS, EVENT_IDS, GUIDS, PROVIDERS, logged
from ingest.sources.windows.record import UNSIGNED, Logged

FEWEST_EVENTS = 8
"""Events that are read alike and worth it."""
FEWEST_RECORDS = 100
"""Records of which enough are alike."""
_LONGEST = 64 * 1024
"""Bytes of a record read here; longer ones are read under a bound on their time."""
_MOST_KINDS = 64
_Path = tuple[str, ...]


class Form(NamedTuple):
    """How a shipper writes events: `is_id` stands before most of their ids.

    Of fields at `decide`, which tell what an event is, only events with the same are read
    together; those with a field named in `without` are not. `nested`: fields stand in objects.
    """

    reader: Callable[[dict[str, Any], Context], Logged]
    is_id: bytes
    decide: tuple[_Path, ...]
    nested: bool = False
    without: frozenset[str] = frozenset()


_NXLOG = (
    *(*EVENT_IDS, *PROVIDERS, *CHANNELS, *GUIDS),
    *("Keywords", "EventType", "Level", "SeverityValue", "Version"),
)
_WINLOG = (
    *("event_id", "provider_name", "source_name", "provider_guid", "channel", "log_name"),
    *("level", "keywords", "outcome"),
)
FORMS: Mapping[str, Form] = MappingProxyType(
    {
        "windows_nxlog": Form(logged, b'"EventID":', tuple((name,) for name in _NXLOG)),
        "winlogbeat": Form(
            logged_of_beat,
            b'"event_id":',
            (
                *(("winlog", name) for name in _WINLOG),
                *(("event", "code"), ("event", "outcome"), ("log", "level")),
            ),
            nested=True,
            # Where Elastic's modules move data; and documents inside of others.
            without=frozenset(
                {
                    *("process", "file", "registry", "dns", "network", "source", "destination"),
                    *("rule", "sysmon", "user", "powershell", "hash", "_source"),
                }
            ),
        ),
    }
)
"""The sources that are read here."""
_encode = msgspec.json.Encoder().encode


class _Group(NamedTuple):
    """Events of the same fields: where they stand among the records, and a column of each field."""

    places: Codes
    fields: Mapping[_Path, Any]

    def parted(self, labels: Codes) -> list[_Group]:
        """Those of each label together; none where there is but one."""
        kinds = np.unique(labels).tolist()
        if len(kinds) < 2:
            return []
        return [self._only(np.flatnonzero(labels == kind)) for kind in kinds]

    def _only(self, rows: Codes) -> _Group:
        if len(rows) < FEWEST_EVENTS:
            return _Group(rows, {})
        fields = {
            name: value.at(rows) if isinstance(value, Column) else value
            for name, value in self.fields.items()
        }
        return _Group(self.places[rows], fields)


def read_events(form: Form, source: str, records: pa.RecordBatch, settings: ParseSettings) -> Read:
    """The events of those of `records`, all of `source`, that are as many others are."""
    if len(records) < FEWEST_RECORDS:
        return Read(None, list(range(len(records))))
    raws = records.column("raw").to_numpy(zero_copy_only=False).tolist()
    # A header may give a zone, name the sender or refuse the record.
    plain = np.asarray(records.column("headers").is_null()).tolist()
    arrivals = records.column("received_at").cast(pa.timestamp("us", "UTC")).cast(pa.int64())
    read = list(_read(form, _groups(form, raws, plain), source, arrivals.to_numpy(), settings))
    made = list(_batches(read, source, records))
    if not made:
        return Read(None, list(range(len(raws))))
    places, batches = zip(*made, strict=True)
    whole = batches[0] if len(batches) == 1 else pa.concat_batches(batches)
    return read_of(whole, len(raws), np.concatenate(places))


def _read(
    form: Form, groups: list[_Group], source: str, arrivals: Codes, settings: ParseSettings
) -> Iterator[Made]:
    """What can be read of the groups, in parts where their events differ in what decides."""
    while groups:
        group = groups.pop()
        if len(group.places) < FEWEST_EVENTS:
            continue
        try:
            yield _event(form, group, source, arrivals[group.places], settings)
        except Split as split:
            groups += group.parted(split.labels)
        # Whatever it is: the row reader looks at them, where it costs no other record anything.
        except Exception:
            continue


def _batches(
    read: list[Made], source: str, records: pa.RecordBatch
) -> Iterator[tuple[Codes, pa.RecordBatch]]:
    """The rows of groups of events and where they stand; without those that fit no column."""
    if not read:
        return
    places = np.concatenate([part.places for part in read])
    try:
        yield places, batch_of_groups(read, record_columns(records, source, places))
    except Exception:
        if len(read) > 1:
            for part in read:
                yield from _batches([part], source, records)


def _groups(form: Form, raws: Sequence[bytes | None], plain: Sequence[bool]) -> list[_Group]:
    """The records that are one object on one line, those of the same fields together."""
    alike: dict[tuple[Any, ...], tuple[list[_Path], list[int], list[list[Any]]]] = {}
    for place in _promising(form.is_id, raws, plain):
        raw = raws[place] or b""
        fields = plain_object(raw)
        if fields is None or (form.nested and not _is_usual(form, fields)):
            continue
        shape: list[Any] = []
        values: list[Any] = []
        masks = _take_apart(fields, form.nested, shape, values)
        # With an escape in its name or much space behind it the row reader leaves it a number.
        if masks and masks != _masks_in(raw):
            continue
        key = tuple(shape)
        if key not in alike:
            alike[key] = list(_paths(fields, form.nested, ())), [], []
        _, places, rows = alike[key]
        places.append(place)
        rows.append(values)
    groups = []
    for paths, places, rows in alike.values():
        if len(places) >= FEWEST_EVENTS:
            with suppress(Unlike):
                groups.append(_group(paths, places, rows))
    return groups


def _is_usual(form: Form, document: dict[str, Any]) -> bool:
    """Whether a document is as Winlogbeat itself writes it; a key with a point names objects."""
    return (
        type(document.get("winlog")) is dict
        and form.without.isdisjoint(document)
        and not any("." in key for key in document)
    )


def _take_apart(fields: dict[str, Any], nested: bool, shape: list[Any], values: list[Any]) -> int:
    """Adds the names and types of an object's fields to `shape`, and their values; how many masks
    of an audit there were."""
    masks = _settle_keywords(fields)
    if not nested:
        shape += fields
        shape += map(type, fields.values())
        values += fields.values()
        return masks
    for name, value in fields.items():
        shape.append(name)
        if type(value) is dict and value:
            shape.append(_OPENS)
            masks += _take_apart(value, True, shape, values)
            shape.append(_CLOSES)
        else:
            shape.append(type(value))
            values.append(value)
    return masks


_OPENS, _CLOSES = object(), object()


def _paths(fields: dict[str, Any], nested: bool, before: _Path) -> Iterator[_Path]:
    """Where the values stand that `_take_apart` adds."""
    for name, value in fields.items():
        if nested and type(value) is dict and value:
            yield from _paths(value, True, (*before, name))
        else:
            yield (*before, name)


def _objects(fields: Mapping[_Path, Any]) -> dict[str, Any]:
    """The document of fields, which its reader may use up."""
    document: dict[str, Any] = {}
    for path, value in fields.items():
        node = document
        for step in path[:-1]:
            node = node.setdefault(step, {})
        node[path[-1]] = {} if type(value) is dict and not value else value
    return document


def _promising(is_id: bytes, raws: Sequence[bytes | None], plain: Sequence[bool]) -> Iterator[int]:
    """Where records stand that may be read here: of event ids that occur often enough."""
    by_id: dict[bytes, list[int]] = {}
    for place, raw in enumerate(raws):
        if raw is None or not plain[place] or raw[:1] != b"{" or len(raw) >= _LONGEST:
            continue
        # Several lines may be several records.
        if b"\n" in raw or b"\r" in raw:
            continue
        # Told before it is decoded, which would be twice for what is left.
        start = raw.find(is_id)
        event_id = raw[start : raw.find(b",", start)] if start >= 0 else b""
        by_id.setdefault(event_id, []).append(place)
    for places in by_id.values():
        if len(places) >= FEWEST_EVENTS:
            yield from places


def _settle_keywords(fields: dict[str, Any]) -> int:
    """Makes the mask of an audit text where the row reader does (`UNSIGNED`); how many it made."""
    masks = 0
    for name in ("Keywords", "keywords"):
        value = fields.get(name)
        if type(value) is int and abs(value) >= 10**18:
            fields[name] = str(value)
            masks += 1
    return masks


def _masks_in(raw: bytes) -> int:
    """How many `UNSIGNED` finds, looked for where they end alike: ten times as fast."""
    count = 0
    place = raw.find(_MASK)
    while place >= 0:
        count += UNSIGNED.match(raw, place - len(b'"K')) is not None
        place = raw.find(_MASK, place + 1)
    return count


_MASK = b'eywords"'


def _group(paths: list[_Path], places: list[int], rows: list[list[Any]]) -> _Group:
    """Raises `Unlike` for what has values that cannot be compared."""
    fields: dict[_Path, Any] = {}
    for path, values in zip(paths, zip(*rows, strict=True), strict=True):
        kind = type(values[0])
        if kind is float:
            # 0.0 and -0.0 are equal, and one must not stand for the other.
            raise Unlike
        fields[path] = _nested(values) if kind is list or kind is dict else column_of(values)
    return _Group(np.array(places, np.int64), fields)


def _nested(values: Sequence[Any]) -> Any:
    """Lists or objects as a column: equal is what is written alike. Raises `Unlike`."""
    texts = list(map(_encode, values))
    numbers: dict[bytes, int] = {}
    distinct = []
    for text, value in zip(texts, values, strict=True):
        if text not in numbers:
            # Masks in there become text as well.
            if _MASK in text:
                raise Unlike
            numbers[text] = len(numbers)
            distinct.append(value)
    if len(distinct) == 1:
        return distinct[0]
    return Column(distinct, np.array([numbers[text] for text in texts], np.int64))


def _event(
    form: Form, group: _Group, source: str, arrivals: Codes, settings: ParseSettings
) -> Made:
    """What the row reader makes of the group. Raises `Split`, or anything."""
    _same_kind(form, group)
    rows = len(group.places)
    received = each(_moment, column_of(arrivals.tolist()))
    context = Context(Record("", source, "", received, b""), settings)
    log = form.reader(_objects(group.fields), context)
    built, more, left = parts_of(log)
    seen = seen_once(observed(built))
    add_copies(built)
    # Accounts and URLs that were parted have other observables than those seen before.
    if "observables" in built:
        raise Unlike
    built["scope"] = each(settings.scope, built["host_name"], source)
    return Made(group.places, built, seen, json_texts(more, rows), json_texts(left, rows))


def _moment(micros: int) -> datetime:
    return EPOCH + timedelta(microseconds=micros)


def _same_kind(form: Form, group: _Group) -> None:
    """Raises `Split` by the fields that tell what an event is, where they differ."""
    differing = [
        value for path in form.decide if isinstance(value := group.fields.get(path), Column)
    ]
    if not differing:
        return
    labels = differing[0].codes
    for value in differing[1:]:
        labels = np.unique(labels * len(value.values) + value.codes, return_inverse=True)[1]
    if len(np.unique(labels)) > _MOST_KINDS:
        raise Unlike
    raise Split(labels)
