"""Rows of silver.event, as Python has them, to Arrow, leaf by leaf.

`pyarrow` looks at every leaf of a struct for every row, and passes in silence over a key
that the struct does not have. Here only the leaves that occur are looked at, and an
unknown one is an error.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Any

import numpy as np
import pyarrow as pa

from infra.delta.parquet_writer import arrow_schema
from ingest.tables import EVENT

EVENT_ARROW: pa.Schema = arrow_schema(EVENT)
"""silver.event as Arrow."""


def column(values: Sequence[Any], kind: pa.DataType, where: str) -> pa.Array:
    """Values as an array of `kind`; raises `ValueError`, `TypeError` or Arrow's own errors.

    `where` names the column in an error.
    """
    if pa.types.is_struct(kind):
        return _structs(values, kind, where)
    if pa.types.is_list(kind) and pa.types.is_struct(kind.value_type):
        return _lists(values, kind, where)
    return pa.array(values, kind)


def joined(values: Sequence[bytes | None], kind: pa.DataType) -> pa.Array:
    """Bytes as binaries, or as texts, which are not looked at: of what an encoder of ours wrote.

    Arrow adds value by value and copies the whole whenever it has grown too large for its place:
    for bytes of some length that takes three times as long.
    """
    whole = [value or b"" for value in values]
    ends = np.zeros(len(whole) + 1, np.int64)
    np.cumsum(np.fromiter(map(len, whole), np.int64, len(whole)), out=ends[1:])
    if ends[-1] > _MOST_BYTES:
        return pa.array(values, kind)
    there = pa.array([value is not None for value in values], pa.bool_())
    valid = None if there.true_count == len(there) else there.buffers()[1]
    buffers = [valid, pa.py_buffer(ends.astype(np.int32)), pa.py_buffer(b"".join(whole))]
    return pa.Array.from_buffers(kind, len(whole), buffers)


_MOST_BYTES = 2**31 - 1
"""An array's, whose places are of 32 bits."""


def _structs(values: Sequence[Any], kind: pa.StructType, where: str) -> pa.Array:
    present = [value for value in values if value is not None]
    if not present:
        return pa.nulls(len(values), kind)
    # Few shapes occur, however many rows there are.
    shapes = {tuple(value) for value in present}
    names = set().union(*shapes)
    fields = [kind.field(index) for index in range(kind.num_fields)]
    unknown = names.difference(field.name for field in fields)
    if unknown:
        raise ValueError(f"{where} has no {sorted(unknown)}")
    whole = len(present) == len(values)
    leaves: Mapping[str, Sequence[Any]] = {}
    # One shape, no gaps: the values can be turned on their side without looking up a key.
    if whole and len(shapes) == 1:
        leaves = dict(zip(*shapes, zip(*map(dict.values, values), strict=True), strict=True))
    elif names:
        there = values if whole else [{} if value is None else value for value in values]
        leaves = {name: [value.get(name) for value in there] for name in names}
    children = [
        column(leaves[field.name], field.type, f"{where}.{field.name}")
        if field.name in names
        else pa.nulls(len(values), field.type)
        for field in fields
    ]
    # A null struct and a struct of nulls are different values to a reader, hence the mask.
    mask = None if whole else pa.array([value is None for value in values], pa.bool_())
    return pa.StructArray.from_arrays(children, fields=fields, mask=mask)


def _lists(values: Sequence[Any], kind: pa.ListType, where: str) -> pa.Array:
    flat = [element for value in values if value for element in value]
    if not flat and all(value is None for value in values):
        return pa.nulls(len(values), kind)
    ends = list(accumulate((0 if value is None else len(value) for value in values), initial=0))
    elements = _shared(flat, kind.value_type, where)
    mask = pa.array([value is None for value in values], pa.bool_())
    # 32-bit offsets: Spark reads no LargeList.
    return pa.ListArray.from_arrays(pa.array(ends, pa.int32()), elements, type=kind, mask=mask)


def _shared(values: list[Any], kind: pa.DataType, where: str) -> pa.Array:
    """Structs of which many are the same object: each is converted once."""
    results: dict[int, int] = {}
    distinct: list[Any] = []
    for value in values:
        if id(value) not in results:
            results[id(value)] = len(distinct)
            distinct.append(value)
    # With few repeats, `take` would cost more than converting each of them.
    if len(distinct) * 2 > len(values):
        return column(values, kind, where)
    indices = pa.array([results[id(value)] for value in values], pa.int32())
    return column(distinct, kind, where).take(indices)
