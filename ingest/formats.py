"""What stands between the bytes of a record and its parser."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from datetime import datetime

from ingest.source import ParseSettings, Record, Unreadable

REFUSED = "refused"
"""Header: why a record is none; it becomes a dead letter that says so."""

WRITTEN = "written"
"""Header: when the file was last written; years that its lines leave out are completed from it."""


def readable(record: Record, settings: ParseSettings) -> Record:
    """The record as its parser wants it. Raises `Unreadable`."""
    if not record.headers:
        return record
    refused = record.headers.get(REFUSED)
    if refused is not None:
        raise Unreadable(refused.decode("utf-8", "replace"))
    written = record.headers.get(WRITTEN)
    if written is not None:
        with suppress(ValueError):
            at = datetime.fromisoformat(written.decode("ascii", "replace"))
            if at.tzinfo is not None and at < record.received_at:
                return replace(record, received_at=at)
    return record
