"""Rows on their way through the alert state: one JSON column in, one out.

The state sees five kinds of row and gives three (attributed events pass it by); a column of JSON
keeps the plan small and the nested types out of pandas. Times keep their microseconds.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql import types as T

from alerts.lifecycle.asset_context import in_context
from alerts.tables import ALERT, FINDING
from enrich.assets.index import index_of
from enrich.tables import ATTRIBUTED_EVENT, ATTRIBUTION
from infra.delta.parquet_writer import DataFile, Target, files_written, writing

ATTRIBUTED = "attributed_event"
OUTPUTS = {
    "attribution": ATTRIBUTION,
    ATTRIBUTED: ATTRIBUTED_EVENT,
    "finding": FINDING,
    "alert": ALERT,
}
"""Tables that the state's rows belong to, by `out`, in the order in which they are committed."""

REFUSED = "refused"

_STAMP = {"timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX"}


def to_payload(*columns: str | Column) -> Column:
    """The columns as one JSON object; nulls are left out."""
    return F.to_json(F.struct(*columns), _STAMP)


def decode_payload(payload: str, schema: T.StructType) -> dict[str, Any]:
    """A payload as a plain row: every column of `schema`, times aware in UTC.

    Fields that `schema` does not know are kept as they came.
    """
    # `to_json` leaves nulls out, so every column of the schema is put back.
    raw: dict[str, Any] = msgspec.json.decode(payload)
    row = {field.name: _value(raw.pop(field.name, None), field.dataType) for field in schema}
    return row | raw


def encode_payload(row: Mapping[str, Any]) -> str:
    """A plain row as JSON that `decode` reads back."""
    return msgspec.json.encode(row).decode()


class Outputs:
    """What `mapInArrow` takes: rows `(out, payload)` of the alert state in, the files written out.

    A table that is missing in `targets` has the batch already and is not written.
    `batch` and `sequence` are written on each revision of an alert: the batch's number, and its
    place in the order in which readers get them (`alerts.delivery.feed`).
    `index`: file with the assets and users that alerts are told with, if there are any.
    Requests that were refused come back as rows of table `refused`, the request as stats.
    """

    def __init__(
        self,
        targets: Mapping[str, Target],
        batch: int | None = None,
        sequence: int | None = None,
        index: str | None = None,
    ) -> None:
        self._targets = dict(targets)
        self._place = {"batch": batch, "sequence": sequence}
        self._index = index

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        refused: list[DataFile | None] = []
        with writing(self._targets) as writers:
            for batch in batches:
                kinds, payloads = batch.column("out"), batch.column("payload")
                for kind, table in OUTPUTS.items():
                    # After a crash some tables may have the batch already; only the rest is
                    # written.
                    if table.name in writers:
                        mine = payloads.filter(pc.equal(kinds, kind)).to_pylist()
                        rows = [decode_payload(payload, table.schema) for payload in mine]
                        if table is ALERT:
                            known = index_of(self._index) if self._index else None
                            # Assets are looked up when the row is written, so a change of them does
                            # not touch the state.
                            rows = [in_context(row, known) for row in rows]
                            rows = [row | self._place for row in rows]
                        schema = self._targets[table.name].schema
                        writers[table.name].write(pa.RecordBatch.from_pylist(rows, schema=schema))
                refused += [
                    # `mapInArrow` has one output schema; requests come back in the shape of files.
                    DataFile(REFUSED, "", 0, 0, 0, payload)
                    for payload in payloads.filter(pc.equal(kinds, REFUSED)).to_pylist()
                ]
            yield files_written([*(writer.close() for writer in writers.values()), *refused])


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
