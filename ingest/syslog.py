"""Syslog framing: RFC 3164, RFC 5424 and the ISO-dated form that rsyslog writes to files.

The framing is read here once; a `SyslogSource` only adds how its programs'
own words are read.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo

from ingest.ocsf import BASE, device, event, kept, metadata, unmapped
from ingest.source import Context, Event, Record, Source, Unreadable
from ingest.strict import LINE_BYTES, not_utf8
from ingest.time import Stamp, as_rfc3164, like_iso, stamp_iso, stamp_rfc3164

PRI = re.compile(r"<(\d{1,3})>", re.ASCII)
# The host may be missing; a tag ends in a colon, a host does not.
_TAGGED = (
    r"(?:(?P<host>\S*[^\s:]) )?(?:(?P<program>[^\s:\[]+)(?:\[(?P<pid>\d{1,10})\])?: ?)?(?P<text>.*)"
)
RFC3164 = re.compile(rf"(?P<time>[A-Z][a-z]{{2}} [ \d]\d \d\d:\d\d:\d\d) {_TAGGED}", re.ASCII)
ISO_DATED = re.compile(rf"(?P<time>\d{{4}}-\d\d-\d\dT\S+) {_TAGGED}", re.ASCII)
RFC5424 = re.compile(
    r"1 (?P<time>\S+) (?P<host>\S+) (?P<program>\S+) (?P<pid>\S+) (?P<msgid>\S+) "
    r"(?P<data>-|(?:\[(?:[^\]\"]|\"(?:[^\"\\]|\\.)*\")*+\])+)(?: \ufeff?(?P<text>.*))?",
    re.ASCII,
)


class Line(NamedTuple):
    """One syslog message. `rest` holds what the header says besides, for `unmapped`."""

    stamp: Stamp
    host: str | None
    program: str | None
    pid: int | None
    text: str
    rest: dict[str, Any]


def one_line(raw: bytes) -> str:
    """The text of a record that must be one line, its line end cut off. Raises `Unreadable`."""
    if not raw.strip():
        raise Unreadable("the record is empty")
    if len(raw) > LINE_BYTES:
        raise Unreadable(f"the record has {len(raw)} bytes; at most {LINE_BYTES} are read")
    try:
        text = raw.decode()
    except UnicodeDecodeError:
        raise Unreadable(not_utf8(raw)) from None
    if "\x00" in text:
        raise Unreadable(f"a NUL at byte {raw.index(0)}")
    text = text.rstrip("\r\n")
    if "\n" in text:
        raise Unreadable(f"a second line starts at byte {raw.index(10) + 1}; a record is one line")
    return text


def _match(text: str) -> tuple[re.Match[str], int, int | None]:
    """The header's match, where it starts in the text, and the priority."""
    pri = PRI.match(text)
    start = pri.end() if pri else 0
    level = int(pri[1]) if pri else None
    if level is not None and level > 191:
        raise Unreadable(f"syslog priority {level} at byte 0; the highest is 191")
    for framing in (RFC3164, RFC5424, ISO_DATED):
        match = framing.fullmatch(text, start)
        if match:
            return match, start, level
    raise Unreadable(
        f"no syslog header at byte {start}: expected RFC 3164 or RFC 5424, "
        f"found '{text[start : start + 40]}'"
    )


def read(raw: bytes, context: Context) -> Line:
    """The syslog message that `raw` is. Raises `Unreadable`."""
    match, _, level = _match(one_line(raw))
    part = match.groupdict()
    received_at = context.record.received_at
    host = _value(part["host"]) or context.host
    zone = context.zone(host)
    if match.re is RFC3164:
        stamp = stamp_rfc3164(part["time"], zone, received_at)
    else:
        stamp = stamp_iso(part["time"], zone, received_at)
    pid = _value(part["pid"])
    number = int(pid) if pid and pid.isdecimal() and len(pid) <= 10 else None
    rest = kept(
        facility=None if level is None else level >> 3,
        level=None if level is None else level & 7,
        msgid=_value(part.get("msgid")),
        structured_data=_value(part.get("data")),
        pid=pid if number is None else None,
    )
    text = (part["text"] or "").strip()
    return Line(stamp, host, _value(part["program"]), number, text, rest)


def _value(text: str | None) -> str | None:
    """RFC 5424 writes `-` for none."""
    return None if text in (None, "-") else text


def restamp(raw: bytes, when: datetime, zone: ZoneInfo) -> bytes:
    """`raw` with the time in its header replaced by `when`, in its own framing."""
    text = one_line(raw)
    match, _, _ = _match(text)
    old = match["time"]
    new = as_rfc3164(when, zone) if match.re is RFC3164 else like_iso(old, when, zone)
    if new is None:
        raise Unreadable(f"no time in the syslog header, but '{old[:40]}'")
    at = len(text[: match.start("time")].encode())
    return raw[:at] + new.encode() + raw[at + len(old.encode()) :]


def base_event(line: Line, product: Mapping[str, str]) -> Event:
    """An event of no particular class: the message as it stands."""
    return event(
        BASE,
        0,
        line.stamp,
        message=line.text,
        metadata=metadata(product, line.stamp, log_provider=line.program),
        device=device(line.host),
        unmapped=unmapped(line.rest | kept(pid=line.pid)),
    )


Reader = Callable[[Line, Context], "Event | None"]
"""Reads one program's own words; None where a line belongs to no class of its own."""


@dataclass(frozen=True)
class SyslogSource(Source):
    """A source whose records are syslog lines of certain programs.

    Lines of other programs, and lines that `reader` has no class for, become
    base events.
    """

    name: str
    programs: frozenset[str]
    product: Mapping[str, str]
    reader: Reader

    def parse(self, record: Record, context: Context) -> list[Event]:
        line = read(record.raw, context)
        return [self.read(line, context)]

    def read(self, line: Line, context: Context) -> Event:
        """The event of a line whose framing has been read."""
        found = self.reader(line, context) if line.program in self.programs else None
        return found or base_event(line, self.product)

    def restamp(self, raw: bytes, when: datetime, zone: ZoneInfo) -> bytes:
        return restamp(raw, when, zone)
