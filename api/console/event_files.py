"""Events that were found, as a file: text, or columns with their types for data frames."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import islice
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from api.services.searches.search_results import ARROW, CSV, NDJSON, PARQUET
from infra.process.text_output import harmless

Rows = Iterator[dict[str, Any]]
Columns = Sequence[str]

TYPES = {
    "time": pa.timestamp("us", tz="UTC"),
    "src_port": pa.int32(),
    "dst_port": pa.int32(),
    "bytes": pa.int64(),
}
"""Of the columns that are no text."""
_ARROW_ROWS, _PARQUET_ROWS = 2_000, 20_000
"""Rows of a batch, and of a row group: all that is held at once."""


@dataclass(frozen=True)
class FileForm:
    """A form of file: what it is called, its media type, and what writes it piece by piece."""

    label: str
    media_type: str
    pieces: Callable[[Rows, Columns], Iterator[bytes]]


class _Sink(io.RawIOBase):
    """Takes what a writer writes, and gives it on; a writer may ask how far it is."""

    def __init__(self) -> None:
        self._pieces: list[bytes] = []
        self._written = 0

    def writable(self) -> bool:
        return True

    def write(self, content: Any) -> int:
        piece = bytes(content)
        self._pieces.append(piece)
        self._written += len(piece)
        return len(piece)

    def tell(self) -> int:
        return self._written

    def taken(self) -> bytes:
        content = b"".join(self._pieces)
        self._pieces.clear()
        return content


def _csv(rows: Rows, columns: Columns) -> Iterator[bytes]:
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\r\n")
    writer.writerow(columns)
    for row in rows:
        # A spreadsheet runs a cell that begins with `=`, and log text is a stranger's.
        writer.writerow([harmless(_plain(row[name])) for name in columns])
        yield out.getvalue().encode()
        # One buffer for all rows: an export may be larger than memory.
        out.seek(0)
        out.truncate()
    yield out.getvalue().encode()


def _ndjson(rows: Rows, columns: Columns) -> Iterator[bytes]:
    for row in rows:
        yield json.dumps({name: _plain(row[name]) for name in columns}).encode() + b"\n"


def _arrow(rows: Rows, columns: Columns) -> Iterator[bytes]:
    sink, schema = _Sink(), _schema(columns)
    with pa.ipc.new_stream(sink, schema) as writer:
        for batch in _batches(rows, schema, _ARROW_ROWS):
            writer.write_batch(batch)
            yield sink.taken()
    yield sink.taken()


def _parquet(rows: Rows, columns: Columns) -> Iterator[bytes]:
    sink, schema = _Sink(), _schema(columns)
    with pq.ParquetWriter(sink, schema, compression="zstd") as writer:
        for batch in _batches(rows, schema, _PARQUET_ROWS):
            writer.write_batch(batch)
            yield sink.taken()
    yield sink.taken()


def _schema(columns: Columns) -> pa.Schema:
    return pa.schema([(name, TYPES.get(name, pa.string())) for name in columns])


def _batches(rows: Rows, schema: pa.Schema, size: int) -> Iterator[pa.RecordBatch]:
    while part := list(islice(rows, size)):
        yield pa.RecordBatch.from_pylist(part, schema=schema)


def _plain(value: Any) -> Any:
    return value.astimezone(UTC).isoformat() if isinstance(value, datetime) else value


FORMS = {
    "csv": FileForm("CSV", CSV, _csv),
    "ndjson": FileForm("NDJSON", NDJSON, _ndjson),
    # The ending that is registered for a stream; `.arrow` is a file with an index.
    "arrows": FileForm("Arrow", ARROW, _arrow),
    "parquet": FileForm("Parquet", PARQUET, _parquet),
}
"""By the ending of the file, in the order of the page."""
