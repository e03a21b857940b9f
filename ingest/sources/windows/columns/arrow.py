"""Events whose values may be columns, as rows of silver.event.

What several groups of events have is made together: an array costs as much for ten events as for a
thousand.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa

from ingest.parsing.arrow_columns import EVENT_ARROW, column, joined
from ingest.parsing.ocsf import OBSERVABLE
from ingest.parsing.vectorized import batch_of
from ingest.sources.windows.columns.column import Codes, Column

_TEXT = pa.string()
_OBSERVABLES = EVENT_ARROW.field("observables").type
_encode = msgspec.json.Encoder().encode
Seen = tuple[str, int, Any]
"""An observable's OCSF path, its type, and its value or values."""


class Made(NamedTuple):
    """Events that were read together: where they stand among the records, and what they became."""

    places: Codes
    event: Mapping[str, Any]
    seen: Sequence[Seen]
    more: Sequence[bytes | None]
    """JSON for each event."""
    left: Sequence[bytes | None]
    """The same of what is in no column."""


def seen_once(seen: Iterable[Seen]) -> list[Seen]:
    """The observables that have a value, none of them twice."""
    listed: list[Seen] = []
    for name, type_id, value in seen:
        repeats = (old == value for key, of, old in listed if (key, of) == (name, type_id))
        # Asked of all events: `Split` where only some have nothing, or the same again.
        if value and not any(repeats):
            listed.append((name, type_id, value))
    return listed


def json_texts(tree: Mapping[str, Any], rows: int) -> list[bytes | None]:
    """JSON of an object in each event; None where there is nothing in it."""
    if not tree:
        return [None] * rows
    texts: list[list[bytes]] = []
    before = b""
    for piece in _pieces(tree):
        if isinstance(piece, bytes):
            before += piece
            continue
        parts = [before + _encode(value) for value in piece.values]
        texts.append([parts[code] for code in piece.codes.tolist()])
        before = b""
    texts.append([before] * rows)
    return list(map(b"".join, zip(*texts, strict=True)))


def _pieces(value: Any) -> Iterator[bytes | Column]:
    """The JSON of a value, and between its pieces the columns that stand in it."""
    if isinstance(value, Column):
        yield value
    elif type(value) is dict:
        before = b"{"
        for name, inner in value.items():
            yield before + _encode(name) + b":"
            yield from _pieces(inner)
            before = b","
        yield b"}" if value else b"{}"
    else:
        yield _encode(value)


def batch_of_groups(groups: Sequence[Made], whence: Mapping[str, pa.Array]) -> pa.RecordBatch:
    """The rows of groups of events, one group after the other; `whence`: columns to add.

    Raises what Arrow and Python do for a value that fits no column.
    """
    arrays = _Arrays([len(group.places) for group in groups])
    columns = dict(whence)
    for name in dict.fromkeys(name for group in groups for name in group.event):
        values = [group.event.get(name) for group in groups]
        columns[name] = arrays.of(values, EVENT_ARROW.field(name).type, name)
    columns["observables"] = _observables(groups)
    for name, texts in (
        ("more", [text for group in groups for text in group.more]),
        ("unmapped", [text for group in groups for text in group.left]),
    ):
        columns[name] = joined(texts, _TEXT)
    return batch_of(arrays.rows, columns)


class _Arrays:
    """Arrays of what groups of so many events have."""

    def __init__(self, sizes: Sequence[int]) -> None:
        self._sizes = sizes
        self.rows = sum(sizes)
        # One column often stands in several places: what a user is called, in three.
        self._known: dict[tuple[Any, ...], pa.Array] = {}

    def of(self, values: Sequence[Any], kind: pa.DataType, where: str) -> pa.Array:
        """The array of a value of each group, which may be a column."""
        present = [value for value in values if value is not None]
        if not present:
            return pa.nulls(self.rows, kind)
        if not all(isinstance(value, Mapping) for value in present):
            return self._leaf(values, kind, where)
        fields = [kind.field(place) for place in range(kind.num_fields)]
        if unknown := set().union(*present) - {field.name for field in fields}:
            raise ValueError(f"{where} has no {sorted(unknown)}")
        objects = [{} if value is None else value for value in values]
        children = [
            self.of([each.get(field.name) for each in objects], field.type, f"{where}.{field.name}")
            for field in fields
        ]
        mask = None
        if len(present) < len(values):
            mask = pa.array(np.repeat([value is None for value in values], self._sizes))
        return pa.StructArray.from_arrays(children, fields=fields, mask=mask)

    def _leaf(self, values: Sequence[Any], kind: pa.DataType, where: str) -> pa.Array:
        key = kind, *map(id, values)
        if key not in self._known:
            flat, codes = _numbered(values, self._sizes)
            array = column(flat, kind, where)
            rows = np.arange(self.rows)
            # Most values of a busy column stand in one event only.
            is_whole = len(flat) == self.rows and bool((codes == rows).all())
            self._known[key] = array if is_whole else array.take(pa.array(codes))
        return self._known[key]


def _numbered(values: Sequence[Any], sizes: Sequence[int]) -> tuple[list[Any], Codes]:
    """What groups of so many events have in one list, and the place of each event's in it."""
    flat: list[Any] = []
    codes = []
    for value, size in zip(values, sizes, strict=True):
        if isinstance(value, Column):
            codes.append(value.codes + len(flat))
            flat += value.values
        else:
            codes.append(np.full(size, len(flat)))
            flat.append(value)
    return flat, np.concatenate(codes)


def _observables(groups: Sequence[Made]) -> pa.Array:
    """Of each event as many as its group has."""
    flat: list[str] = []
    named: list[tuple[str, int]] = []
    values, names, lengths = [], [], []
    for group in groups:
        rows, width = len(group.places), len(group.seen)
        lengths.append(np.full(rows, width))
        if not width:
            continue
        own = np.empty((rows, width), np.int64)
        for place, (_, _, value) in enumerate(group.seen):
            part, codes = _numbered([value], [rows])
            own[:, place] = codes + len(flat)
            flat += part
        values.append(own.ravel())
        names.append(np.tile(np.arange(width) + len(named), rows))
        named += [(name, type_id) for name, type_id, _ in group.seen]
    counts = np.concatenate(lengths)
    if not flat:
        return pa.nulls(len(counts), _OBSERVABLES)
    of = pa.array(np.concatenate(names))
    elements = pa.StructArray.from_arrays(
        [
            pa.array([name for name, _ in named], _TEXT).take(of),
            pa.array([OBSERVABLE[type_id] for _, type_id in named], _TEXT).take(of),
            pa.array([type_id for _, type_id in named], pa.int32()).take(of),
            pa.array(flat, _TEXT).take(pa.array(np.concatenate(values))),
        ],
        fields=list(_OBSERVABLES.value_type),
    )
    ends = np.zeros(len(counts) + 1, np.int32)
    np.cumsum(counts, out=ends[1:])
    return pa.ListArray.from_arrays(
        pa.array(ends), elements, type=_OBSERVABLES, mask=pa.array(counts == 0)
    )
