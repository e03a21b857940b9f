"""Columns of silver.event built many rows at a time, for sources that are worth it.

See `ingest.sources.zeek.columns` for such a source. What the row-wise path does one value at a
time (`ingest.parsing.event_rows`, `ingest.parsing.ocsf`) is done here for a column; a value that is
the same in all rows is made once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ingest.parsing.arrow_columns import EVENT_ARROW
from ingest.parsing.ocsf import OBSERVABLE

Mask = npt.NDArray[np.bool_]
_encode = msgspec.json.Encoder().encode


def kind_of(path: str) -> pa.DataType:
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


def struct(path: str, rows: int, mask: pa.Array | None = None, **leaves: pa.Array) -> pa.Array:
    """The struct column or leaf `path` from its own leaves; those not named are null.

    `mask`: true where the struct itself is null.
    """
    kind = kind_of(path)
    fields = [kind.field(index) for index in range(kind.num_fields)]
    unknown = leaves.keys() - {field.name for field in fields}
    if unknown:
        raise ValueError(f"{path} has no {sorted(unknown)}")
    children = [
        leaves[field.name] if field.name in leaves else pa.nulls(rows, field.type)
        for field in fields
    ]
    return pa.StructArray.from_arrays(children, fields=fields, mask=mask)


def nowhere(*leaves: pa.Array) -> pa.Array:
    """True where none of the leaves has a value."""
    is_null = pc.is_null(leaves[0])
    for leaf in leaves[1:]:
        is_null = pc.and_(is_null, pc.is_null(leaf))
    return is_null


def observables(rows: int, *found: tuple[str, int, pa.Array]) -> pa.Array:
    """Observables from (OCSF path, type_id, values), those that are null or empty left out."""
    kind = EVENT_ARROW.field("observables").type
    masks = [
        # Null compares to null in Arrow; NumPy needs a plain truth value.
        np.asarray(pc.fill_null(pc.greater(pc.utf8_length(values), 0), False))
        for _, _, values in found
    ]
    present = np.column_stack(masks)
    ends = np.zeros(rows + 1, np.int32)
    np.cumsum(present.sum(axis=1), out=ends[1:])
    # Row by row and in each the paths in their order: places in all values, column after column.
    places = (np.arange(rows)[:, None] + np.arange(len(found))[None, :] * rows)[present]
    which = np.broadcast_to(np.arange(len(found)), present.shape)[present]
    values = pa.concat_arrays([values for _, _, values in found]).take(pa.array(places))
    of = pa.array(which.astype(np.int32))
    elements = pa.StructArray.from_arrays(
        [
            pa.array([name for name, _, _ in found]).take(of),
            pa.array([OBSERVABLE[type_id] for _, type_id, _ in found]).take(of),
            pa.array([type_id for _, type_id, _ in found], pa.int32()).take(of),
            values,
        ],
        fields=[kind.value_type.field(index) for index in range(4)],
    )
    empty = pa.array(~present.any(axis=1))
    return pa.ListArray.from_arrays(pa.array(ends), elements, type=kind, mask=empty)


def unmapped(rows: int, fields: Mapping[str, tuple[Sequence[Any], pa.DataType | None]]) -> pa.Array:
    """JSON objects of what found no column: name to values and their type (None: any JSON)."""
    pieces = []
    for name, (values, kind) in fields.items():
        if all(value is None for value in values):
            continue
        text = (
            pa.array([None if v is None else _encode(v) for v in values]).cast(pa.string())
            if kind is None
            else pa.array(values, kind).cast(pa.string())
        )
        key = _encode(name).decode() + ":"
        pieces.append(pc.binary_join_element_wise(key, text, ""))
    if not pieces:
        return pa.nulls(rows, pa.string())
    # A null piece is skipped with its comma, so no row gets a key without a value.
    joined = pc.binary_join_element_wise(*pieces, ",", null_handling="skip")
    whole = pc.binary_join_element_wise("{", joined, "}", "")
    return pc.if_else(pc.equal(joined, ""), pa.scalar(None, pa.string()), whole)


def batch_of(rows: int, columns: Mapping[str, pa.Array]) -> pa.RecordBatch:
    """A batch of silver.event; columns not named are null. Raises `ValueError` for unknown ones."""
    unknown = columns.keys() - set(EVENT_ARROW.names)
    if unknown:
        raise ValueError(f"no column {sorted(unknown)} in silver.event")
    return pa.RecordBatch.from_arrays(
        [
            columns[field.name] if field.name in columns else pa.nulls(rows, field.type)
            for field in EVENT_ARROW
        ],
        schema=EVENT_ARROW,
    )
