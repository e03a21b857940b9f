"""AWS CloudTrail: one record a message, or a whole file `{"Records": [...]}`, plain or gzip.

Also arrays, a record a line, and what CloudWatch subscriptions (`logEvents`) and
EventBridge (`detail`) wrap. Calls that come one a message are read many at once.
"""

from __future__ import annotations

import gzip
import re
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, ClassVar
from zoneinfo import ZoneInfo

from ingest.parsing.json_source import GZIP, gunzip
from ingest.parsing.json_time import restamp_json
from ingest.parsing.message_bounds import few_values
from ingest.parsing.ocsf import BASE, event, metadata, unmapped
from ingest.parsing.source import Context, Event, ParseSettings, Read, Record, Unreadable
from ingest.parsing.strict_json import FILE_BYTES, decode_object, kind, require_single
from ingest.parsing.timestamps import Stamp, like_iso, of_iso
from ingest.sources.aws.cloudtrail_event import CLOUDTRAIL, LOGSTASH_TIME, cloudtrail_event
from ingest.sources.cloud.common import EnvelopedSource, Fields

if TYPE_CHECKING:
    import pyarrow as pa

_UTC = ZoneInfo("UTC")


@dataclass(frozen=True)
class CloudTrail(EnvelopedSource):
    """CloudTrail, however it was shipped."""

    name: str = "aws_cloudtrail"
    redelivery: ClassVar[tuple[str, ...]] = ("metadata.uid", "time")

    def parse(self, record: Record, context: Context) -> list[Event]:
        if record.raw[:2] == GZIP:
            record = replace(record, raw=gunzip(record.raw, look=few_values()))
        return super().parse(record, context)

    def is_own(self, fields: Fields) -> bool:
        if "Records" in fields or "eventName" in fields or "digestStartTime" in fields:
            return True
        return "eventVersion" in fields and "eventType" in fields

    def read(self, fields: Fields, context: Context) -> Event:
        return cloudtrail_event(fields, context)

    def columns(self, records: pa.RecordBatch, settings: ParseSettings) -> Read | None:
        # Imported where Arrow is at hand anyway: the command line starts without it.
        from ingest.sources.aws.cloudtrail_columns import read_calls

        return read_calls(self.name, records, settings)

    @property
    def foreign(self) -> str:
        return "no 'eventName' in the record"

    def events(self, fields: Fields, context: Context) -> list[Event]:
        """As in the class above; a file's records are named by their number where unreadable."""
        value, record = fields, context.record
        if "Records" not in value:
            return super().events(value, context)
        entries = value.pop("Records")
        if type(entries) is not list:
            raise Unreadable(f"Records: expected an array, found {kind(entries)}")
        event_list = [_one_of(entry, index, context) for index, entry in enumerate(entries)]
        if value or not event_list:
            # A file says nothing but its records; should one, its words are kept too.
            stamp = Stamp.missing(record.received_at, None)
            about = metadata(CLOUDTRAIL, stamp)
            words = f"CloudTrail file with {len(entries)} records"
            event_list.append(
                event(BASE, 0, stamp, message=words, metadata=about, unmapped=unmapped(value))
            )
        return event_list

    def restamp(self, raw: bytes, when: datetime, zone: ZoneInfo) -> bytes:
        """As in `Source`. Of a whole file the earliest record gets `when`, the others follow.

        A gzip file is packed anew.
        """
        if raw[:2] == GZIP:
            # Without a time inside, so that the same input gives the same bytes.
            return gzip.compress(self.restamp(gunzip(raw), when, zone), mtime=0)
        value = decode_object(raw, FILE_BYTES)
        if "Records" not in value:
            key = "eventTime" if "eventTime" in value else LOGSTASH_TIME
            return restamp_json(raw, key, when, _UTC)
        return _restamp_file(raw, value, when)


def _one_of(entry: object, at: int, context: Context) -> Event:
    """The event of one of a file's records; a dead letter where that one cannot be read."""
    if type(entry) is not dict:
        return {"dead_letter_reason": f"Records[{at}]: expected an object, found {kind(entry)}"}
    try:
        require_single(entry)
        return cloudtrail_event(entry, context)
    except Unreadable as why:
        return {"dead_letter_reason": f"Records[{at}]: {why}"}


def _restamp_file(raw: bytes, value: dict[str, Any], when: datetime) -> bytes:
    entries = value["Records"] if type(value["Records"]) is list else []
    old = [entry.get("eventTime") for entry in entries if type(entry) is dict]
    times = [of_iso(entry, _UTC) if type(entry) is str else None for entry in old]
    instants = [entry[0] for entry in times if entry]
    spans = list(re.finditer(rb'"eventTime"\s*:\s*"([^"\\]*)"', raw))
    # The key may also stand in a nested object: then places and records do not match.
    if not instants or [m[1].decode() for m in spans] != old:
        raise Unreadable("the 'eventTime' of the records cannot be replaced one by one")
    by = when - min(instants)
    parts, end = [], 0
    for match, entry in zip(spans, times, strict=True):
        parts += [raw[end : match.start(1)], _moved(match[1], entry and entry[0], by)]
        end = match.end(1)
    return b"".join([*parts, raw[end:]])


def _moved(written: bytes, time: datetime | None, by: timedelta) -> bytes:
    """The time moved; one that cannot be read, or would leave the calendar, as it was."""
    try:
        new = like_iso(written.decode(), time + by, _UTC) if time else None
    except OverflowError:
        new = None
    return new.encode() if new else written


SOURCES = (CloudTrail(),)
