"""macOS's unified log, as `log show` and `log stream` print it.

`man log` on macOS: `--style ndjson` and `json` (an object for each message), `syslog`, `compact`
and the default in columns. sshd, sudo, su and other programs that speak as on any Unix are read
by their own sources, macOS's services by `messages`. What `log` prints around the messages, a
head of columns and a count at the end, is an event of class 0.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, ClassVar
from zoneinfo import ZoneInfo

from ingest.parsing import syslog
from ingest.parsing.json_source import JsonSource
from ingest.parsing.ocsf import INFORMATIONAL, LOW, MEDIUM, kept
from ingest.parsing.source import Context, Event, Record, Unreadable
from ingest.parsing.syslog import Line, one_line
from ingest.parsing.timestamps import Stamp, like_iso, stamp_iso
from ingest.sources.generic.syslog_any import events_of
from ingest.sources.macos.messages import PRODUCT, READERS
from ingest.sources.shared.device_header import each_line

_TIME = r"(?P<time>\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3,6}(?:[+-]\d{4})?)"
_WORDS = (
    r"(?:\((?P<library>[^()\s][^()]{0,127})\) )?"
    r"(?:\[(?P<subsystem>[\w.-]{1,128})(?::(?P<category>[^\[\]]{0,128}))?\] )?(?P<text>.*)"
)
_STYLES = (
    # --style syslog
    re.compile(
        rf"{_TIME}  (?P<host>\S{{1,255}}) (?P<program>[^\[\]]{{1,128}})\[(?P<pid>\d{{1,10}})\]: "
        rf"(?:<(?P<level>\w{{1,16}})>: )?{_WORDS}",
        re.ASCII | re.DOTALL,
    ),
    # --style compact
    re.compile(
        rf"{_TIME} (?P<level>[A-Z][a-z]?) +(?P<program>[^\[\]]{{1,128}})"
        rf"\[(?P<pid>\d{{1,10}}):(?P<thread>[0-9a-fx]{{1,18}})\] {_WORDS}",
        re.ASCII | re.DOTALL,
    ),
    # The default: columns.
    re.compile(
        rf"{_TIME} (?P<thread>0x[0-9a-f]{{1,16}}) +(?P<level>\w{{1,16}}) +"
        rf"(?P<activity>0x[0-9a-f]{{1,16}}) +(?P<pid>\d{{1,10}}) +(?P<ttl>\d{{1,6}}) +"
        rf"(?P<program>[^:]{{1,128}}): {_WORDS}",
        re.ASCII | re.DOTALL,
    ),
)
_AROUND = re.compile(
    r"Timestamp +.{1,200}|Filtering the log data using .{1,2000}|={10,}.{0,300}|-{10,}.{0,300}"
    r"|Log +- Default:.{1,300}|Skipping info and debug messages.{0,300}",
    re.ASCII,
)
"""What `log` prints before and behind the messages."""
_LEVELS: Mapping[str, int] = {"error": LOW, "e": LOW, "fault": MEDIUM, "f": MEDIUM}
_OWN = frozenset({"eventMessage", "processImagePath", "machTimestamp", "traceID"})


def _event(line: Line, level: str | None, context: Context) -> Event:
    reader = READERS.get(line.program or "")
    read = reader(line) if reader else None
    if read is not None:
        return read
    if line.program and not line.text.startswith(("{", "<Event", "@cee:")):
        # Text that looks like JSON is here some program's words, and no format of its own.
        events = events_of(line, context)
        if events and events[0].get("class_uid"):
            return events[0]
    read = syslog.base_event(line, PRODUCT)
    read["severity_id"] = _LEVELS.get((level or "").lower(), INFORMATIONAL)
    return syslog.counted(read, line)


def _host(name: str | None, context: Context) -> str | None:
    """The machine: the log calls itself `localhost` wherever it is from."""
    return context.host or name if name in (None, "localhost") else name


def _of_text(text: str, context: Context) -> Event:
    received_at = context.record.received_at
    for style in _STYLES:
        match = style.fullmatch(text)
        if match is None:
            continue
        part = match.groupdict()
        host = _host(part.get("host"), context)
        line = Line(
            stamp_iso(part["time"], context.zone(host), received_at),
            host,
            (part["program"] or "").strip(),
            int(part["pid"] or 0),
            (part["text"] or "").strip(),
            kept(
                message_type=part["level"],
                thread=part.get("thread"),
                activity=part.get("activity"),
                library=part["library"],
                subsystem=part["subsystem"],
                category=part["category"],
            ),
        )
        return _event(line, part["level"], context)
    if _AROUND.fullmatch(text):
        stamp = Stamp.missing(received_at, None)
        return syslog.base_event(Line(stamp, context.host, "log", None, text, {}), PRODUCT)
    raise Unreadable(f"no time and process of the unified log at byte 0: '{text[:40]}'")


def _of_object(fields: dict[str, Any], context: Context) -> Event:
    """One message of the styles in JSON; what it has no column for is kept."""
    received_at = context.record.received_at
    if fields.keys() <= {"count", "finished"}:
        words = f"log: {fields.get('count')} messages"
        stamp = Stamp.missing(received_at, None)
        return syslog.base_event(Line(stamp, context.host, "log", None, words, fields), PRODUCT)
    if not fields.keys() & _OWN:
        raise Unreadable("none of 'eventMessage', 'processImagePath' and 'traceID' in the object")

    def text(name: str) -> str | None:
        value = fields.get(name)
        return fields.pop(name) if type(value) is str and value else None

    path, pid, level = text("processImagePath"), fields.get("processID"), text("messageType")
    if type(pid) is int and 0 <= pid < 2**31:
        del fields["processID"]
    spelled = text("timestamp")
    rest = {name: value for name, value in fields.items() if value not in (None, "")}
    words = rest.pop("eventMessage", None)
    if words is not None and type(words) is not str:
        rest["eventMessage"] = words
    line = Line(
        stamp_iso(spelled, context.zone(context.host), received_at),
        context.host,
        path.rpartition("/")[2] if path else None,
        pid if type(pid) is int and 0 <= pid < 2**31 else None,
        words.strip() if type(words) is str else str(rest.get("eventType") or "message"),
        rest | kept(message_type=level, process_path=path),
    )
    return _event(line, level, context)


@dataclass(frozen=True)
class UnifiedLog(JsonSource):
    """The unified log."""

    name: str = "macos_unified_log"
    envelope: ClassVar[str | None] = None
    large: ClassVar[str | None] = None
    time_key: ClassVar[str] = "timestamp"

    def is_header(self, line: bytes) -> bool:
        return line.startswith(b"Timestamp  ") and len(line) < 200

    def parse(self, record: Record, context: Context) -> list[Event]:
        if record.raw.lstrip()[:1] in (b"{", b"[") or record.raw[:2] == b"\x1f\x8b":
            return super().parse(record, context)
        return each_line(record.raw, lambda text: [_of_text(text, context)])

    def events(self, fields: dict[str, Any], context: Context) -> list[Event]:
        return [_of_object(fields, context)]

    def restamp(self, raw: bytes, when: datetime, zone: ZoneInfo) -> bytes:
        if raw.lstrip()[:1] == b"{":
            return super().restamp(raw, when, zone)
        text = one_line(raw)
        match = re.match(_TIME, text)
        new = like_iso(match["time"], when, zone) if match else None
        if match is None or new is None:
            raise Unreadable("no time at the start of the line")
        return new.encode() + raw[match.end() :]


SOURCES = (UnifiedLog(),)
