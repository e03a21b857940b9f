"""What stands between the bytes of a record and its parser.

A header may say that there is nothing to parse, or when the file was written. A
message in Avro or Protobuf is unpacked here: its parser gets it as JSON, or the one
field that holds the record, while bronze keeps the bytes as they came.

Framing by a registry: https://docs.confluent.io/platform/current/schema-registry/fundamentals/serdes-develop/index.html#wire-format
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING

from ingest.parsing.source import Format, ParseSettings, Record, Unreadable

if TYPE_CHECKING:
    import pyarrow as pa

REFUSED = "refused"
"""Header: why a record is none; it becomes a dead letter that says so."""

WRITTEN = "written"
"""Header: when the file was last written; years that its lines leave out are completed from it."""


def decoded_record(record: Record, settings: ParseSettings) -> Record:
    """The record as its parser wants it. Raises `Unreadable`, or `Retryable` where a registry
    is away."""
    if record.headers:
        refused = record.headers.get(REFUSED)
        if refused is not None:
            raise Unreadable(refused.decode("utf-8", "replace"))
        record = _as_written(record)
    if settings.formats:
        packed = settings.format(record.source)
        if packed is not None:
            return replace(record, raw=_unpacked(record.raw, packed))
    return record


def _as_written(record: Record) -> Record:
    written = record.headers.get(WRITTEN)
    if written is not None:
        with suppress(ValueError):
            instant = datetime.fromisoformat(written.decode("ascii", "replace"))
            # A file from the future would complete a line's year wrongly.
            if instant.tzinfo is not None and instant < record.received_at:
                return replace(record, received_at=instant)
    return record


def straight(records: pa.RecordBatch, settings: ParseSettings) -> bool:
    """Whether the bytes of these records, of one source, may be parsed as they are, all at once.

    What is parsed so says its times in full: when its file was written does not matter.
    """
    if records.num_rows == 0:
        return True
    if settings.formats and settings.format(records.column("source")[0].as_py()) is not None:
        return False
    headers = records.column("headers")
    if headers.null_count == len(headers):
        return True
    return REFUSED not in headers.flatten().field("key").unique().to_pylist()


def _unpacked(raw: bytes, packed: Format) -> bytes:
    """A message as JSON, or the field of it that is the record. Raises `Unreadable`."""
    if packed.kind == "avro":
        # Imported here: most installations have no such source and need not load the library.
        from ingest.decoding.avro import decode_avro

        return decode_avro(raw, packed)
    from ingest.decoding.protobuf import decode_protobuf

    return decode_protobuf(raw, packed)
