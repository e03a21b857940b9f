"""Rows of Arrow as dictionaries, column by column.

`to_pylist` makes a scalar object for each value, also for the nulls of columns that are empty
throughout, which of findings are most: of a backtest that took a third of the time.
"""

from __future__ import annotations

from datetime import UTC
from typing import Any

import pyarrow as pa


def row_dictionaries(batch: pa.RecordBatch) -> list[dict[str, Any]]:
    """What `to_pylist` gives; times of microseconds are in UTC."""
    names = batch.schema.names
    columns = [column_values(column) for column in batch.columns]
    return [dict(zip(names, values, strict=True)) for values in zip(*columns, strict=True)]


def column_values(array: pa.Array) -> list[Any]:
    """The values of one column, None where missing."""
    kind = array.type
    if array.null_count == len(array):
        return [None] * len(array)
    values: list[Any]
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        values = array.to_numpy(zero_copy_only=False).tolist()
        return values
    if pa.types.is_timestamp(kind) and kind.unit == "us" and kind.tz is not None:
        # Missing ones become None, as NumPy's own for it does.
        values = array.to_numpy(zero_copy_only=False).tolist()
        return [None if value is None else value.replace(tzinfo=UTC) for value in values]
    if pa.types.is_struct(kind) and kind.num_fields:
        return _structs(array)
    values = array.to_pylist()
    return values


def _structs(array: pa.StructArray) -> list[Any]:
    names = [field.name for field in array.type]
    columns = [column_values(column) for column in array.flatten()]
    rows = [dict(zip(names, values, strict=True)) for values in zip(*columns, strict=True)]
    if not array.null_count:
        return rows
    there = array.is_valid().to_pylist()
    return [row if valid else None for row, valid in zip(rows, there, strict=True)]
