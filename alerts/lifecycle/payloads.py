"""Rows on their way through the alert state: JSON in, MessagePack out.

The state sees five kinds of row and gives four (attributed events pass it by). One column for all
of them keeps the plan small and the nested types out of pandas. What comes in is JSON, which Spark
writes: a finding's text is that which waited in the join. What goes out no reader sees, so it is
packed: only an alert's body becomes JSON, once, where its row is written. Times keep their
microseconds.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import msgspec
from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql import types as T

ATTRIBUTED = "attributed_event"

_STAMP = {"timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX"}


def to_payload(*columns: str | Column) -> Column:
    """The columns as one JSON object; nulls are left out."""
    return F.to_json(F.struct(*columns), _STAMP)


def decode_payload(payload: str | bytes, schema: T.StructType) -> dict[str, Any]:
    """A payload as a plain row: every column of `schema`, times aware in UTC.

    Fields that `schema` does not know are kept as they came.
    """
    # `to_json` leaves nulls out, so every column of the schema is put back.
    return _row(msgspec.json.decode(payload), schema)


def pack_row(row: Mapping[str, Any]) -> bytes:
    """A plain row as MessagePack; times must be aware."""
    return msgspec.msgpack.encode(row)


def unpack_row(data: bytes, schema: T.StructType) -> dict[str, Any]:
    """What `pack_row` made, as `decode_payload` gives rows."""
    return _row(msgspec.msgpack.decode(data), schema)


def _row(raw: dict[str, Any], schema: T.StructType) -> dict[str, Any]:
    row = {field.name: _value(raw.pop(field.name, None), field.dataType) for field in schema}
    return row | raw


def _value(value: Any, kind: T.DataType) -> Any:
    if value is None:
        return None
    if isinstance(kind, T.TimestampType):
        time = value if isinstance(value, datetime) else datetime.fromisoformat(value)
        return time.astimezone(UTC)
    if isinstance(kind, T.StructType):
        return {field.name: _value(value.get(field.name), field.dataType) for field in kind}
    if isinstance(kind, T.ArrayType):
        return [_value(item, kind.elementType) for item in value]
    return value
