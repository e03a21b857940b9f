"""Syslog of any program: each line goes to the sources that know its program.

Where several know it (the kernel's lines are auditd's or netfilter's), the first that has a
class for the line reads it. Formats that are told by their text rather than by a program,
such as CEF, go to their own sources with the whole record. JSON that came in syslog is read
as the product's own JSON where the program has such a source, else as any JSON; XML is what
Sysmon for Linux writes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cache, lru_cache
from types import MappingProxyType
from zoneinfo import ZoneInfo

import msgspec

from ingest.parsing import syslog
from ingest.parsing.source import Context, Event, JoiningSource, Record, Source, Unreadable, sources
from ingest.parsing.strict_json import LINE_BYTES, encode
from ingest.parsing.syslog import Line
from ingest.sources.generic.json_any import of_line
from ingest.sources.linux.auditd import AUDITD, SERIAL
from ingest.sources.linux.pam import PAM
from ingest.sources.windows import event_of_xml

_PRODUCT: Mapping[str, str] = {"name": "syslog", "vendor_name": "Unknown"}
BY_PROGRAM: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(r"CEF"), "cef"),
    (re.compile(r"%(?:ASA|FTD|PIX|FWSM)-(?:\w+-)?\d-\d+", re.ASCII), "cisco_asa"),
)
BY_TEXT: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(r"CEF: ?\d{1,3}\|"), "cef"),
    (re.compile(r"%(?:ASA|FTD|PIX|FWSM)-(?:\w+-)?\d-\d+:", re.ASCII), "cisco_asa"),
    (re.compile(r"(?:\S{1,64}=\S{1,64} ){0,4}date=\d{4}-\d\d-\d\d,? ?time=\d\d:"), "fortigate"),
    (
        re.compile(
            r"(?:\S{1,64} )?\d{1,3},\d{4}/\d\d/\d\d \d\d:\d\d:\d\d,[^,]{0,64},"
            r"(?:TRAFFIC|THREAT|SYSTEM|CONFIG|GLOBALPROTECT|USERID|HIPMATCH|HIP-MATCH|DECRYPTION|"
            r"AUTHENTICATION|CORRELATION|GTP|SCTP|IPTAG|TUNNEL|AUDIT),",
            re.ASCII,
        ),
        "paloalto",
    ),
)
"""Formats that are known by how their text begins, and the source that reads the record."""
JSON_PROGRAMS: Mapping[str, str] = MappingProxyType(
    {
        "suricata": "suricata",
        "osqueryd": "osquery",
        "osquery": "osquery",
        "kube-apiserver": "k8s_audit",
    }
)

_CUT_ESCAPE = re.compile(r"&(lt|gt|amp|quot|apos)(?![;\w])", re.ASCII)

_OPEN_ESCAPE = re.compile(r"&\w{0,5}\Z|<[^>]{0,20}\Z", re.ASCII)

_Known = Callable[[Line, Context], "Event | list[Event] | None"]


@cache
def _all() -> tuple[Source, ...]:
    """Sources that read lines of syslog; those that read more than their own words last."""
    # Infoblox reads the words of dhcpd and named as well, which have sources of their own.
    order = sorted(sources().values(), key=lambda source: (source.name == "infoblox", source.name))
    return tuple(source for source in order if hasattr(source, "programs") and source is not PAM)


# Asked for each line, and few programs write most of them.
@lru_cache(maxsize=4096)
def _knowing(program: str | None) -> tuple[Source, ...]:
    """The sources that know a program."""
    names = syslog.names_of(program)
    return tuple(source for source in _all() if names and _reads(source, program or "", names))


def _reads(source: Source, program: str, names: tuple[str, ...]) -> bool:
    if isinstance(source, syslog.SyslogSource):
        return source.reads_program(program)
    programs: frozenset[str] = getattr(source, "programs", frozenset())
    return not programs.isdisjoint(names)


def events_of(line: Line, context: Context, record: Record | None = None) -> list[Event]:
    """The events of a line whose framing has been read; `record` where the line is all of it."""
    first: Source | None = None
    for source in _knowing(line.program):
        first = first or source
        # Not all are a SyslogSource: Kea and auditd only have one of its methods.
        read_events: _Known | None = getattr(source, "known", None) or getattr(source, "read", None)
        events = read_events(line, context) if read_events else None
        if events:
            return events if isinstance(events, list) else [events]
    if first is None or first.name != "sudo":  # which tells itself of what PAM refused
        other = PAM.known(line, context)
        if other:
            return [other]
    # What the kernel says besides is not of the audit system.
    product = _PRODUCT if first is AUDITD else getattr(first, "product", _PRODUCT)
    return _by_its_text(line, context, record) or [
        syslog.counted(syslog.base_event(line, product), line)
    ]


def _by_its_text(line: Line, context: Context, record: Record | None) -> list[Event] | None:
    if line.text[:6] == "<Event":
        return _xml(line, context)
    if line.text[:1] == "{" or line.text[:5] == "@cee:":
        return _json(line, context)
    if record is None:
        return None
    program = line.program or ""
    name = next((name for shape, name in BY_PROGRAM if shape.fullmatch(program)), None)
    name = name or next((name for shape, name in BY_TEXT if shape.match(line.text)), None)
    source = sources().get(name or "")
    if source is not None:
        with suppress(Unreadable):
            return source.parse(record, context)
    return None


def _xml(line: Line, context: Context) -> list[Event] | None:
    """Sysmon for Linux, which writes its events as Windows does, but for two faults of syslog's.

    It forgets the semicolon of what it escapes (`&lt unknown process&gt`), and a long event is
    cut short, which takes none of the fields before along.
    """
    text = _CUT_ESCAPE.sub(r"&\1;", line.text)
    whole = text.endswith("</Event>")
    try:
        xml_event = event_of_xml(text if whole else _closed(text), context)
    except Unreadable:
        return None
    if not whole:
        more = msgspec.json.decode(xml_event["more"]) if xml_event.get("more") else {}
        more["metadata"] = more.get("metadata", {}) | {"is_truncated": True}
        xml_event["more"] = encode(more)
    if line.rest:
        own = msgspec.json.decode(xml_event["unmapped"]) if xml_event.get("unmapped") else {}
        xml_event["unmapped"] = encode(line.rest | own)
    return [xml_event]


def _closed(text: str) -> str:
    """An event of XML that was cut within its data, with what it had until there."""
    text = _OPEN_ESCAPE.sub("", text)
    end, last = text.rfind("</Data>"), text.rfind("<Data ")
    if last > end and ">" in text[last:]:
        return f"{text}</Data></EventData></Event>"
    return f"{text[: end + len('</Data>')]}</EventData></Event>" if end > 0 else text


def _json(line: Line, context: Context) -> list[Event] | None:
    text = line.text.removeprefix("@cee:").strip().encode()
    name = next((JSON_PROGRAMS[n] for n in syslog.names_of(line.program) if n in JSON_PROGRAMS), "")
    source = sources().get(name)
    with suppress(Unreadable):
        if source is None:
            return of_line(line, text, context)
        headers = dict(context.record.headers)
        if line.host:
            # The product's own source sees only the JSON, which may not name the host.
            headers["host"] = line.host.encode()
        inner = replace(context.record, raw=text, headers=headers)
        return source.parse(inner, Context(inner, context.settings))
    return None


@dataclass(frozen=True)
class Syslog(JoiningSource):
    """One stream of syslog from many programs; what no source knows becomes a base event."""

    name: str = "syslog"

    def part_of(self, record: Record, context: Context) -> str | None:
        """The serial number of auditd's records; all other lines stand alone."""
        # Two cheap looks at the bytes: nearly no line of a stream is a record of auditd.
        if b"audit(" not in record.raw or not SERIAL.search(record.raw[:LINE_BYTES]):
            return None
        line = syslog.read_syslog(record.raw, context)
        # Any program may write `audit(` into its text, and must not join the kernel's records.
        if not any(source is AUDITD for source in _knowing(line.program)):
            return None
        return AUDITD.part_of_line(line)

    def join(self, parts: Sequence[Record], context: Context) -> list[Event]:
        """The events of one line, or of the lines that are auditd's records of one event."""
        if len(parts) > 1:
            return AUDITD.of_lines(
                [syslog.read_syslog(part.raw, context) for part in parts], context
            )
        (record,) = parts
        return events_of(syslog.read_syslog(record.raw, context), context, record)

    def events_of_line(self, line: Line, context: Context) -> list[Event]:
        """The events of a line whose framing another source has read."""
        return events_of(line, context)

    def restamp(self, raw: bytes, when: datetime, zone: ZoneInfo) -> bytes:
        return syslog.restamp(raw, when, zone)


SOURCES = (Syslog(),)
