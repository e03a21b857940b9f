"""Parsing as Spark calls it: Arrow batches of bronze.record in, of silver.event out."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from functools import partial
from typing import Any

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema

from ingest.rows import dead_letter, event_rows, joined, no_collection, rows_of_all
from ingest.source import ParseSettings, Record, sources
from ingest.tables import EVENT

__all__ = ["EVENT_ARROW", "arrow_parser", "event_rows"]

EVENT_ARROW: pa.Schema = pa.schema(
    [pa.field(f.name, f.type, nullable=True) for f in to_arrow_schema(EVENT.schema, timezone="UTC")]
)
"""silver.event as Arrow: times in microseconds UTC, plain strings and lists."""

Batches = Iterator[pa.RecordBatch]


def arrow_parser(settings: ParseSettings) -> Callable[[Batches], Batches]:
    """What `mapInArrow` takes: rows of bronze.record to rows of silver.event.

    Pickles by reference; parsers are looked up by name where it runs. A parser
    module that cannot be imported raises here, not in a worker.
    """
    sources()
    return partial(_parse, settings)


def _parse(settings: ParseSettings, batches: Batches) -> Batches:
    parser = Parser(settings)
    for batch in batches:
        yield from parser(batch)


class Parser:
    """Batches of bronze.record to batches of silver.event, one after the other."""

    def __init__(self, settings: ParseSettings) -> None:
        self._settings = settings

    def __call__(self, batch: pa.RecordBatch) -> list[pa.RecordBatch]:
        """The rows of all records, one or more for each."""
        with no_collection():
            parts = joined(records_of(batch), self._settings)
            pieces = [rows_of_all(part, self._settings) for part in parts]
            return list(_batches(parts, pieces))


def records_of(batch: pa.RecordBatch) -> list[Record]:
    """The records of a batch of bronze.record."""
    times = batch.column("received_at").cast(pa.timestamp("us", "UTC")).cast(pa.int64())
    return [
        Record(
            record_id=record_id,
            source=source,
            mode=mode,
            received_at=datetime.fromtimestamp(at // 1_000_000, UTC).replace(
                microsecond=at % 1_000_000
            ),
            raw=raw or b"",
            headers={h["key"]: h["value"] for h in headers if h["value"]} if headers else {},
        )
        for record_id, source, mode, at, raw, headers in zip(
            batch.column("record_id").to_pylist(),
            batch.column("source").to_pylist(),
            batch.column("mode").to_pylist(),
            times.to_pylist(),
            batch.column("raw").to_pylist(),
            batch.column("headers").to_pylist(),
            strict=True,
        )
    ]


def _batches(parts: list[list[Record]], pieces: list[list[dict[str, Any]]]) -> Batches:
    """The rows as Arrow. Where they do not fit its types, halved down to the event at fault."""
    try:
        yield to_arrow([row for piece in pieces for row in piece])
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        if len(parts) == 1:
            source = parts[0][0].source
            reason = f"parser {source} made a row that fits no column: {error}"[:500]
            yield to_arrow([dead_letter(record, reason) for record in parts[0]])
            return
        half = len(parts) // 2
        yield from _batches(parts[:half], pieces[:half])
        yield from _batches(parts[half:], pieces[half:])


def to_arrow(rows: list[dict[str, Any]]) -> pa.RecordBatch:
    """Rows as one batch of `EVENT_ARROW`; raises where a value fits no column."""
    present: set[str] = set().union(*rows) if rows else set()
    unknown = present.difference(EVENT_ARROW.names)
    if unknown:
        raise ValueError(f"no column {sorted(unknown)} in silver.event")
    columns = [
        pa.array([row.get(field.name) for row in rows], field.type)
        if field.name in present
        else pa.nulls(len(rows), field.type)
        for field in EVENT_ARROW
    ]
    return pa.RecordBatch.from_arrays(columns, schema=EVENT_ARROW)
