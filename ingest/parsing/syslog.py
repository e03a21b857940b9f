"""Syslog framing: RFC 3164, RFC 5424 and the ISO-dated form that rsyslog writes to files.

The framing is read here once; a `SyslogSource` only adds how its programs'
own words are read.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple
from zoneinfo import ZoneInfo

import msgspec

from ingest.parsing.ocsf import BASE, device, event, kept, metadata, unmapped
from ingest.parsing.source import (
    Context,
    Event,
    ParseSettings,
    Read,
    Record,
    Source,
    Unreadable,
)
from ingest.parsing.strict_json import LINE_BYTES, encode, not_utf8
from ingest.parsing.syslog_header import find
from ingest.parsing.timestamps import Stamp

if TYPE_CHECKING:
    import pyarrow as pa

SEVERITIES = (6, 5, 5, 4, 3, 2, 1, 1)
"""OCSF severity of syslog's eight levels, from emergency to debug."""
_SOLARIS_ID = re.compile(r"\[ID (\d{1,8}) ([\w-]{1,20}\.[\w-]{1,20})\] ", re.ASCII)
"""The number and the priority in words that Solaris puts before each message (syslogd(1M))."""
_METALOG = re.compile(r"\[([\w./-]{1,64})\]", re.ASCII)
"""A program as metalog writes it, where others have the host."""
REPEATED = re.compile(r"message repeated (\d{1,9}) times: \[ ?(.*)\]", re.ASCII)
# What a Cisco device wrote itself, behind the header of the relay that passed it on.
CISCO_BODY = re.compile(
    r"(?:: )?(?:\d{1,10}: )?(?:(?:\S{1,64}: )?[*.]?"
    r"(?P<time>[A-Z][a-z]{2} [ \d]\d [\d: .]{8,30}(?:[A-Z]{3,4})?): )?"
    r"(?P<program>%[A-Z0-9_]+-(?:[A-Z0-9_]+-)*[0-7]-[A-Z0-9_]+): ?(?P<text>.*)",
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
    # A line break inside would let a sender forge a second line under another host's name.
    if "\n" in text:
        raise Unreadable(f"a second line starts at byte {raw.index(10) + 1}; a record is one line")
    return text


def read_syslog(raw: bytes, context: Context) -> Line:
    """The syslog message that `raw` is. Raises `Unreadable`."""
    return read_text(one_line(raw), context)


def read_text(message: str, context: Context) -> Line:
    """The syslog message in a text of one line. Raises `Unreadable`."""
    position = find(message)
    part = position.match.groupdict()
    received_at = context.record.received_at
    # The line's own host wins: behind a relay the header names only the relay.
    host = _value(part.get("host")) or context.host
    if position.header is None:
        stamp = Stamp.missing(received_at, None)
    else:
        stamp = position.header.stamp(part["time"], context.zone(host), received_at)
    pid = _value(part.get("pid")) or None
    # RFC 5424 allows any text as process id; what is no number goes to `unmapped`.
    number = int(pid) if pid and pid.isdecimal() and len(pid) <= 10 else None
    program, text = _value(part["program"]), (part["text"] or "").strip()
    # A priority is eight times the facility plus the level (RFC 5424, 6.2.1).
    level = position.level
    rest: dict[str, Any] = {} if level is None else {"facility": level >> 3, "level": level & 7}
    rest |= _said_besides(part, pid if number is None else None, position.octets)
    return _line(stamp, host, program, number, text, rest)


def _said_besides(
    part: Mapping[str, str | None], pid: str | None, octets: int | None
) -> dict[str, Any]:
    """What else a header says. It is asked of every line, and most say nothing."""
    rest: dict[str, Any] = {}
    for name, key in (("msgid", "msgid"), ("data", "structured_data")):
        if (value := part.get(name)) is not None and value != "-":
            rest[key] = value
    if pid is not None:
        rest["pid"] = pid
    if octets is not None:
        rest["octets"] = octets
    for name, key in (("sequence", "sequence"), ("mark", "clock_mark"), ("unit", "unit")):
        value = part.get(name)
        if name == "unit":
            value = (value or "").strip(" ()") or None
        if value is not None:
            rest[key] = value
    return rest


def _line(
    stamp: Stamp,
    host: str | None,
    program: str | None,
    pid: int | None,
    text: str,
    rest: dict[str, Any],
) -> Line:
    """A line whose program is its bare name, and whose text is not told as repeated."""
    # A cheap look first: `CISCO_BODY` is dear, and few lines can match it.
    if text[:1] in "%*:.0123456789" and (
        program is None or program.isdecimal() or len(program) < 5
    ):
        body = CISCO_BODY.fullmatch(text)
        if body:
            rest |= kept(relay_tag=program, device_time=body["time"])
            program, text = body["program"], body["text"]
    # Rules and readers know programs by bare names; the path stays in `unmapped`.
    if program and program[0] == "/" and program[-1] != "/":
        rest["program_path"] = program
        program = program.rpartition("/")[2]
    named = _SOLARIS_ID.match(text) if text[:4] == "[ID " else None
    if named:
        rest["msgid"], rest["priority"] = named.groups()
        text = text[named.end() :]
    if program is None and host and host[0] == "[":
        tag = _METALOG.fullmatch(host)
        if tag:
            program, host = tag[1], None
    again = REPEATED.fullmatch(text)
    if again:
        rest["repeated"] = int(again[1])
        text = again[2].strip()
    return Line(stamp, host, program, pid, text, rest)


def _value(text: str | None) -> str | None:
    """RFC 5424 writes `-` for none."""
    return None if text in (None, "-") else text


def restamp(raw: bytes, when: datetime, zone: ZoneInfo) -> bytes:
    """`raw` with the time in its header replaced by `when`, in its own framing."""
    text = one_line(raw)
    position = find(text)
    if position.header is None:
        raise Unreadable("no time in the syslog header, but a priority alone")
    old = position.match["time"]
    new = position.header.write(old, when, zone)
    if new is None:
        raise Unreadable(f"no time in the syslog header, but '{old[:40]}'")
    # Positions in text are not positions in bytes: a mark before the header may be three bytes.
    instant = len(text[: position.match.start("time")].encode())
    return raw[:instant] + new.encode() + raw[instant + len(old.encode()) :]


def base_event(line: Line, product: Mapping[str, str]) -> Event:
    """An event of no particular class: the message as it stands."""
    return event(
        BASE,
        0,
        line.stamp,
        severity_id=severity(line),
        message=line.text,
        metadata=metadata(product, line.stamp, log_provider=line.program),
        device=device(line.host),
        unmapped=unmapped(line.rest | kept(pid=line.pid)),
    )


def severity(line: Line) -> int:
    """The OCSF severity of the level in the line's priority; informational where it has none."""
    level = line.rest.get("level")
    return SEVERITIES[level] if type(level) is int and 0 <= level <= 7 else 1


def counted(event: Event, line: Line) -> Event:
    """`event` with the count of its repetitions, where syslog says the line came so often."""
    times = line.rest.get("repeated")
    if times:
        more = msgspec.json.decode(event["more"]) if event.get("more") else {}
        event["more"] = encode(more | {"count": times})
    return event


def with_device(event: Event) -> Event:
    """`event` with a device where OCSF requires one and the line names none."""
    # OCSF requires a device of the classes about systems and about discovery.
    if event.get("category_uid") in (1, 5) and not event.get("device"):
        more = msgspec.json.decode(event["more"]) if event.get("more") else {}
        event["more"] = encode({"device": {"name": "unknown", "type_id": 0}} | more)
    return event


def names_of(program: str | None) -> tuple[str, ...]:
    """The names a program may be known by, the one it gave first."""
    if not program:
        return ()
    # gdm gives itself a name that ends in a bracket.
    lower = program.lower().rstrip("]")
    names = (program, lower, lower.rpartition("/")[2], lower.partition("/")[0])
    return tuple(dict.fromkeys(name for name in names if name))


_Reader = Callable[[Line, Context], "Event | None"]
"""Reads one program's own words; None where a line belongs to no class of its own."""

_AtOnce = Callable[["pa.RecordBatch", ParseSettings], Read]


@dataclass(frozen=True)
class SyslogSource(Source):
    """A source whose records are syslog lines of certain programs.

    Lines of other programs, and lines that `reader` has no class for, become
    base events.
    """

    name: str
    programs: frozenset[str]
    product: Mapping[str, str]
    reader: _Reader
    at_once: _AtOnce | None = field(default=None, kw_only=True)
    """Reads the usual ones among many records at once, as in `Source.columns`."""

    def parse(self, record: Record, context: Context) -> list[Event]:
        line = read_syslog(record.raw, context)
        return [self.read(line, context)]

    def read(self, line: Line, context: Context) -> Event:
        """The event of a line whose framing has been read."""
        return self.known(line, context) or counted(base_event(line, self.product), line)

    def known(self, line: Line, context: Context) -> Event | None:
        """The event of a line that the source has a class for."""
        if line.program is None or not self.reads_program(line.program):
            return None
        reader = self.reader(line, context)
        return reader and with_device(counted(reader, line))

    def reads_program(self, program: str) -> bool:
        """Whether the lines of `program` are for this source."""
        # The plain name first: nearly all lines match it, and the other names cost more.
        return program in self.programs or not self.programs.isdisjoint(names_of(program))

    def columns(self, records: pa.RecordBatch, settings: ParseSettings) -> Read | None:
        return self.at_once(records, settings) if self.at_once else None

    def restamp(self, raw: bytes, when: datetime, zone: ZoneInfo) -> bytes:
        return restamp(raw, when, zone)
