"""Windows event logs in the four ways they come; what their events mean is in
`ingest.sources.windows`."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar
from zoneinfo import ZoneInfo

from ingest.parsing.json_source import JsonSource, unpacked
from ingest.parsing.message_bounds import MAX_UNREADABLE
from ingest.parsing.source import Context, Event, ParseSettings, Read, Record, Source, Unreadable
from ingest.parsing.strict_json import FILE_BYTES, require_single
from ingest.sources.windows import event_of, event_of_xml
from ingest.sources.windows.beats import documents, logged_of_beat
from ingest.sources.windows.flat import logged
from ingest.sources.windows.objects import logged_of_object
from ingest.sources.windows.record import UNSIGNED, Logged
from ingest.sources.windows.restamp import Paths, restamped_json
from ingest.sources.windows.xml import decoded, event_elements, restamped

if TYPE_CHECKING:
    import pyarrow as pa

_Reader = Callable[[dict[str, Any], Context], Logged]
DUMP_HEADING = re.compile(rb"(?m)^Record \d{1,19}[ \t\r]*$")


@dataclass(frozen=True)
class WindowsJson(JsonSource):
    """Windows events as JSON, in the way `reader` knows."""

    name: str
    reader: _Reader
    paths: Paths
    envelope: ClassVar[str | None] = None

    def events(self, fields: dict[str, Any], context: Context) -> list[Event]:
        packed = documents(fields) if self.reader is logged_of_beat else None
        if packed is None:
            return [event_of(self.reader(fields, context))]
        return self._unpacked(packed, context)

    def _unpacked(self, packed: list[Any], context: Context) -> list[Event]:
        """An event or a reason of each document. Raises `Unreadable` where none is one."""
        events: list[Event] = []
        for each in packed:
            try:
                if type(each) is not dict:
                    raise Unreadable("a document that is no object")
                require_single(each)
                events.append(event_of(self.reader(each, context)))
            except Unreadable as why:
                events.append({"dead_letter_reason": str(why)})
                if len(events) >= MAX_UNREADABLE and all(map(_dead, events)):
                    break
        if all(map(_dead, events)):
            raise Unreadable(
                events[0]["dead_letter_reason"] if events else "no document in the object"
            )
        return events

    def parse(self, record: Record, context: Context) -> list[Event]:
        # As text the number passes the strict reader, which refuses more than 64 bits with a sign.
        if b'eywords"' in record.raw:
            raw, count = UNSIGNED.subn(rb'\1"\2"', record.raw)
            if count:
                record = replace(record, raw=raw)
        if self.name != "windows_evtx_json" or not record.raw.startswith(b"Record "):
            return super().parse(record, context)
        # evtx_dump without `-o jsonl`: each object under a heading, on several lines.
        events: list[Event] = []
        for piece in DUMP_HEADING.split(record.raw):
            if piece.strip():
                part = replace(record, raw=piece.strip())
                try:
                    events += super().parse(part, context)
                except Unreadable as why:
                    events.append({"dead_letter_reason": str(why)})
        if not any("dead_letter_reason" not in event for event in events):
            raise Unreadable(
                events[0]["dead_letter_reason"] if events else "no event in the record"
            )
        return events

    def columns(self, records: pa.RecordBatch, settings: ParseSettings) -> Read | None:
        # Imported where Arrow is at hand anyway: the command line starts without it.
        from ingest.sources.windows.columns.reader import FORMS, read_events

        form = FORMS.get(self.name)
        return None if form is None else read_events(form, self.name, records, settings)

    def is_whole(self, first: bytes) -> bool:
        return first.startswith(b"Record ") or super().is_whole(first)

    def restamp(self, raw: bytes, when: datetime, zone: ZoneInfo) -> bytes:
        return restamped_json(raw, self.paths, when, zone)


def _dead(event: Event) -> bool:
    return "dead_letter_reason" in event


@dataclass(frozen=True)
class WindowsXml(Source):
    """Windows events as XML: one, or several with or without `<Events>` around them."""

    name: str = "windows_xml"
    whole_file: ClassVar[bool] = True

    def is_whole(self, first: bytes) -> bool:
        """Unless the first line is a whole event, of which then each line has one."""
        line = first.strip()
        return (
            # UTF-16 cannot be cut at line ends: a newline there is two bytes.
            b"</Event>" not in line or b"<Events" in line or first[:2] in (b"\xff\xfe", b"\xfe\xff")
        )

    def parse(self, record: Record, context: Context) -> list[Event]:
        raw = unpacked(record.raw)
        if len(raw) > FILE_BYTES:
            raise Unreadable(f"the record has {len(raw)} bytes; at most {FILE_BYTES} are read")
        if not raw.strip():
            raise Unreadable("the record is empty")
        events: list[Event] = []
        for piece in event_elements(decoded(raw)):
            try:
                if isinstance(piece, Unreadable):
                    raise piece
                events.append(event_of_xml(piece, context))
            except Unreadable as why:
                events.append({"dead_letter_reason": str(why)})
        if all("dead_letter_reason" in event for event in events):
            raise Unreadable(
                events[0]["dead_letter_reason"] if events else "no <Event> in the record"
            )
        return events

    def restamp(self, raw: bytes, when: datetime, zone: ZoneInfo) -> bytes:
        text = restamped(decoded(raw), when)
        if raw[:2] in (b"\xff\xfe", b"\xfe\xff"):
            return raw[:2] + text.encode("utf-16-le" if raw[:1] == b"\xff" else "utf-16-be")
        return (b"\xef\xbb\xbf" if raw[:3] == b"\xef\xbb\xbf" else b"") + text.encode()


# Where each writes its times, and which of them are local where they name no zone.
FLAT: Paths = (
    (("UtcTime",), False),
    (("EventTime",), True),
    (("TimeCreated",), True),
    (("@timestamp",), False),
)
BEATS: Paths = (
    (("winlog", "event_data", "UtcTime"), False),
    (("event_data", "UtcTime"), False),
    (("@timestamp",), False),
)
_OBJECTS: Paths = (
    (("Event", "EventData", "UtcTime"), False),
    (("EventData", "UtcTime"), False),
    (("Event", "System", "TimeCreated", "#attributes", "SystemTime"), False),
    (("Event", "System", "TimeCreated", "@SystemTime"), False),
    (("Event", "System", "TimeCreated_attributes", "SystemTime"), False),
    (("Event", "System", "TimeCreated", "SystemTime"), False),
    (("System", "TimeCreated", "SystemTime"), False),
    (("TimeCreated",), False),
)
_READERS: Mapping[str, tuple[_Reader, Paths]] = MappingProxyType(
    {
        "windows_nxlog": (logged, FLAT),
        "winlogbeat": (logged_of_beat, BEATS),
        "windows_evtx_json": (logged_of_object, _OBJECTS),
    }
)
SOURCES = (*(WindowsJson(name, *how) for name, how in _READERS.items()), WindowsXml())
