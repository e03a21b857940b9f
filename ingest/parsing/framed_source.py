"""Sources whose lines come out of a file as the product wrote them, or inside syslog.

Several lines in one record, such as a whole file, are as many events. What a container
engine puts before each line (`2026-11-21T10:00:00.1Z stdout F `) is read as well.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from zoneinfo import ZoneInfo

from ingest.parsing import syslog
from ingest.parsing.source import Context, Event, Record, Unreadable
from ingest.parsing.strict_json import FILE_BYTES
from ingest.parsing.syslog import Line, SyslogSource, base_event, counted, one_line
from ingest.parsing.syslog_header import find
from ingest.parsing.timestamps import Stamp, stamp_iso

_FRAMED = re.compile(
    r"\ufeff?(?:\d{1,8} )?<\d{1,3}>|(?:[A-Z][a-z]{2},? )?(?:\d{4} )?[A-Z][a-z]{2} {1,2}\d{1,2} "
    r"|\d{4}-\d\d-\d\d[T ]|1 \d{4}-",
    re.ASCII,
)
"""How a line in syslog begins; only such a line is tried as one."""

_CONTAINER = re.compile(
    r"(?P<time>\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{1,9})?(?:Z|[+-]\d\d:\d\d)) "
    r"(?:stdout|stderr) [FP] (?P<text>.*)",
    re.ASCII | re.DOTALL,
)

Restamper = Callable[[str, datetime, ZoneInfo], "str | None"]
"""The text of a line with its own time replaced; None where it has none."""


def each_line(raw: bytes, read: Callable[[bytes], Event]) -> list[Event]:
    """The event of every line in `raw`; in place of a line that cannot be read, why.

    Raises `Unreadable` where none of them can.
    """
    # Checked before the split, which doubles what lies in memory.
    if len(raw) > FILE_BYTES:
        raise Unreadable(f"the record has {len(raw)} bytes; at most {FILE_BYTES} are read")
    lines = [line for line in raw.split(b"\n") if line.strip()]
    if len(lines) < 2:
        return [read(lines[0] if lines else raw)]
    events: list[Event] = []
    for line in lines:
        try:
            events.append(read(line))
        except Unreadable as why:
            # One bad line of a file must not take its neighbours along.
            events.append({"dead_letter_reason": str(why)})
    if all("dead_letter_reason" in event for event in events):
        raise Unreadable(events[0]["dead_letter_reason"])
    return events


def bare_line(text: str, context: Context) -> Line:
    """A line without framing, as readers take it."""
    received_at = context.record.received_at
    stamp = Stamp.missing(received_at, None)
    packed = _CONTAINER.fullmatch(text)
    # The engine's time is only a stand-in: a reader that finds the product's own prefers it.
    if packed:
        stamp = stamp_iso(packed["time"], context.zone(context.host), received_at)
        text = packed["text"]
    return Line(stamp, context.host, None, None, text, {})


@dataclass(frozen=True)
class FramedSource(SyslogSource):
    """A source that reads its lines with and without syslog around them.

    Its reader gives None for a line that is not of the product's format.
    """

    restamper: Restamper
    bare_first: bool = False
    """Whether lines that look like syslog may be the product's own: their times do."""

    def parse(self, record: Record, context: Context) -> list[Event]:
        return each_line(record.raw, lambda raw: self._event(one_line(raw), context))

    def known(self, line: Line, context: Context) -> Event | None:
        try:
            return super().known(line, context)
        except Unreadable:
            return None  # among the lines of a stream of syslog: then it is one of no class

    def _event(self, text: str, context: Context) -> Event:
        # A container's prefix also looks like syslog with an ISO date, so it is tried first.
        framed = None if _CONTAINER.match(text) else _framed(text, context)
        ours = framed is not None and self.reads_program(framed.program or "")
        reader = None
        # A program name of ours is surer than the look of the line's start.
        if framed is None or (self.bare_first and not ours):
            reader = self.reader(bare_line(text, context), context)
        if reader is None and framed is not None:
            event = self.reader(framed, context) or base_event(framed, self.product)
            # A frame that is known but with other words in it is an event of no class, not a dead
            # letter.
            return counted(event, framed)
        if reader is None:
            raise Unreadable(f"no line of {self.product['name']} at byte 0: '{text[:40]}'")
        return reader

    def restamp(self, raw: bytes, when: datetime, zone: ZoneInfo) -> bytes:
        text = one_line(raw)
        # What `one_line` cut off, such as CR LF, must come back byte for byte.
        end = raw[len(text.encode()) :]
        packed = _CONTAINER.match(text)
        changed = None
        if not _FRAMED.match(text) or self.bare_first:
            changed = self.restamper(text, when, zone)
        elif packed:
            start = packed.start("text")
            inner = self.restamper(text[start:], when, zone)
            changed = inner and text[:start] + inner
        if changed is None:
            new = one_line(syslog.restamp(raw, when, zone))
            changed = self._inside(new, when, zone)
        return changed.encode() + end

    def _inside(self, text: str, when: datetime, zone: ZoneInfo) -> str:
        """A line in syslog; where its message has a time of its own, that replaced as well."""
        match = find(text).match
        if not match["text"]:
            return text
        start = match.start("text")
        changed = self.restamper(text[start:], when, zone)
        return text if changed is None else text[:start] + changed


def _framed(text: str, context: Context) -> Line | None:
    if not _FRAMED.match(text):
        return None
    try:
        return syslog.read_text(text, context)
    except Unreadable:
        return None
