"""Rows on their way through the alert state: one JSON column in, one out.

The state sees five kinds of row and gives three; a column of JSON keeps the
plan small and the nested types out of pandas. Times keep their microseconds.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import msgspec
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from infra.tables import Table

_STAMP = {"timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX"}


def to_payload(*columns: str | Column) -> Column:
    """The columns as one JSON object; nulls are left out."""
    return F.to_json(F.struct(*columns), _STAMP)


def from_payload(rows: DataFrame, kind: str, table: Table) -> DataFrame:
    """The rows of one kind in the shape of the table they belong to."""
    mine = rows.where(F.col("out") == kind)
    return mine.select(F.from_json("payload", table.schema).alias("row")).select("row.*")


def decode(payload: str, schema: T.StructType) -> dict[str, Any]:
    """A payload as a plain row: every column of `schema`, times aware in UTC.

    Fields that `schema` does not know are kept as they came.
    """
    raw: dict[str, Any] = msgspec.json.decode(payload)
    row = {field.name: _value(raw.pop(field.name, None), field.dataType) for field in schema}
    return row | raw


def encode(row: Mapping[str, Any]) -> str:
    """A plain row as JSON that `from_payload` reads back."""
    return msgspec.json.encode(row).decode()


def _value(value: Any, kind: T.DataType) -> Any:
    if value is None:
        return None
    if isinstance(kind, T.TimestampType):
        return datetime.fromisoformat(value).astimezone(UTC)
    if isinstance(kind, T.StructType):
        return {field.name: _value(value.get(field.name), field.dataType) for field in kind}
    if isinstance(kind, T.ArrayType):
        return [_value(item, kind.elementType) for item in value]
    return value
