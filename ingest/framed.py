"""Sources whose lines come out of a file as the product wrote them, or inside syslog.

Several lines in one record, such as a whole file, are as many events. The reader of a
source is asked for the bare line first, unless the line is framed and names one of the
source's own programs: what a client could put into a log never decides the framing.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from zoneinfo import ZoneInfo

from ingest import syslog
from ingest.source import Context, Event, Record, Unreadable
from ingest.strict import FILE_BYTES
from ingest.syslog import Line, SyslogSource, base_event, counted, one_line
from ingest.syslog_header import find
from ingest.time import Stamp

FRAMED = re.compile(
    r"\ufeff?(?:\d{1,8} )?<\d{1,3}>|(?:[A-Z][a-z]{2},? )?(?:\d{4} )?[A-Z][a-z]{2} {1,2}\d{1,2} "
    r"|\d{4}-\d\d-\d\d[T ]|1 \d{4}-",
    re.ASCII,
)
"""How a line in syslog begins; only such a line is tried as one."""

Restamper = Callable[[str, datetime, ZoneInfo], "str | None"]
"""The text of a line with its own time replaced; None where it has none."""


def each_line(raw: bytes, read: Callable[[bytes], Event]) -> list[Event]:
    """The event of every line in `raw`; in place of a line that cannot be read, why.

    Raises `Unreadable` where none of them can.
    """
    if len(raw) > FILE_BYTES:
        raise Unreadable(f"the record has {len(raw)} bytes; at most {FILE_BYTES} are read")
    lines = [line for line in raw.split(b"\n") if line.strip()]
    if len(lines) < 2:
        return [read(lines[0] if lines else raw)]
    found: list[Event] = []
    for line in lines:
        try:
            found.append(read(line))
        except Unreadable as why:
            found.append({"dead_letter_reason": str(why)})
    if all("dead_letter_reason" in event for event in found):
        raise Unreadable(found[0]["dead_letter_reason"])
    return found


def bare_line(text: str, context: Context) -> Line:
    """A line without framing, as readers take it."""
    stamp = Stamp.missing(context.record.received_at, None)
    return Line(stamp, context.host, None, None, text, {})


@dataclass(frozen=True)
class FramedSource(SyslogSource):
    """A source that reads its lines with and without syslog around them.

    Its reader gives None for a line that is not of the product's format.
    """

    restamper: Restamper

    def parse(self, record: Record, context: Context) -> list[Event]:
        return each_line(record.raw, lambda raw: self._event(one_line(raw), context))

    def _event(self, text: str, context: Context) -> Event:
        framed = _framed(text, context)
        if framed and framed.program and self.reads_program(framed.program):
            return self.read(framed, context)
        found = self.reader(bare_line(text, context), context)
        if found is None and framed:
            found = self.reader(framed, context) or base_event(framed, self.product)
            found = counted(found, framed)
        if found is None:
            raise Unreadable(f"no line of {self.product['name']} at byte 0: '{text[:40]}'")
        return found

    def restamp(self, raw: bytes, when: datetime, zone: ZoneInfo) -> bytes:
        text = one_line(raw)
        end = raw[len(text.encode()) :]
        changed = self.restamper(text, when, zone)
        if changed is None:
            new = one_line(syslog.restamp(raw, when, zone))
            changed = self._inside(new, when, zone)
        return changed.encode() + end

    def _inside(self, text: str, when: datetime, zone: ZoneInfo) -> str:
        """A line in syslog; where its message has a time of its own, that replaced as well."""
        match = find(text).match
        if not match["text"]:
            return text
        at = match.start("text")
        changed = self.restamper(text[at:], when, zone)
        return text if changed is None else text[:at] + changed


def _framed(text: str, context: Context) -> Line | None:
    if not FRAMED.match(text):
        return None
    try:
        return syslog.read_text(text, context)
    except Unreadable:
        return None
