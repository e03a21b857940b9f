"""EfficientIP SOLIDserver: its DHCP and DNS service in one stream of syslog.

https://www.efficientip.com/resources/ (administrator guide, Syslog): `dhcpd` speaks ISC's words
with the length of the lease behind them, `named` BIND's, with answers and their records, and DNS
Guardian's triggers and lists. Formats of SOLIDserver 7 and 8.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise
from typing import Any
from zoneinfo import ZoneInfo

from ingest.parsing import syslog
from ingest.parsing.ocsf import FINDING, HIGH, INFORMATIONAL, address, kept, mac_address
from ingest.parsing.source import Context, Event, Record, Source
from ingest.parsing.syslog import Line
from ingest.sources.dhcp import isc_dhcpd
from ingest.sources.dns import bind
from ingest.sources.dns.bind_client import end_of
from ingest.sources.shared.daemon_source import daemon_event
from ingest.sources.shared.device_header import each_line
from ingest.sources.shared.dns import QUERY, RESPONSE, answered, dns_event, question

_PRODUCT: Mapping[str, str] = {"name": "SOLIDserver", "vendor_name": "EfficientIP"}
_DHCP = frozenset({"dhcpd", "dhcpd6", "dhcpdv6", "ipmdhcpd"})
_LEASE = re.compile(r"(?P<words>DHCP.{1,600}) \[(?P<seconds>\d{1,10})\](?P<detail>: .*)?", re.ASCII)
_ASKED = (
    r"(?P<name>\S{1,1100}) (?P<class>[A-Z0-9]{1,10}) (?P<type>[A-Za-z0-9-]{1,20})"
    r"(?: (?P<flags>[+-]\S{0,40}))? \((?P<server>[0-9a-fA-F:.]{2,45})\)"
)
_ANSWER = re.compile(
    r"(?:\d{1,5}:)?client (?:@0x[0-9a-fA-F]{1,16} )?(?P<ip>[0-9a-fA-F:.]{2,45})#(?P<port>\d{1,5})"
    rf"(?: \(\S{{1,1100}}\))?: (?:view (?P<view>\S{{1,64}}): )?answer: {_ASKED} -> "
    r"(?P<rcode>[A-Z]{2,16})(?P<records>(?: .*)?)",
    re.ASCII,
)
_LISTED = re.compile(
    rf"List Matched (?P<ip>[0-9a-fA-F:.]{{2,45}})#(?P<port>\d{{1,5}}): query: {_ASKED} "
    r"\{(?P<lists>[^{}]{1,500})\}(?: \[(?P<tags>[^\[\]]{1,500})\])?",
    re.ASCII,
)
_TRIGGER = re.compile(
    r"(?P<what>DIS)?ARMING trigger on (?P<ip>[0-9]{1,3}(?:\.[0-9]{1,3}){3}|[0-9a-fA-F:]{2,45})"
    r"(?:\.(?P<mac>[0-9a-fA-F]{2}(?::[0-9a-fA-F]{2}){5}))?(?:\.(?P<more>\S{1,100}))? "
    r"\(action:(?P<action>\w{1,40})\) \((?P<name>.{1,300})\)",
    re.ASCII,
)
_TYPE = re.compile(r"[A-Z][A-Z0-9]{0,9}", re.ASCII)
_MOST_RECORDS = 100
_QUARANTINED, _BLOCKED, _DROPPED = 3, 2, 6
_DISPOSITIONS = {"QUARANTINE": _QUARANTINED, "BLOCK": _BLOCKED, "DROP": _DROPPED}
_NEW, _CLOSED = 1, 3


def _lease(line: Line, context: Context) -> Event | None:
    """A DHCP message; the seconds in brackets at its end are the lease's."""
    match = _LEASE.fullmatch(line.text)
    if match is None:
        return isc_dhcpd.read(line, context)
    granting = match["words"].startswith(("DHCPACK on ", "DHCPOFFER on "))
    # Said as Infoblox says it, which ISC's reader knows.
    length = f" lease-duration {match['seconds']}" if granting else ""
    rest = line.rest if granting else line.rest | {"lease_seconds": int(match["seconds"])}
    words = f"{match['words']}{length}{match['detail'] or ''}"
    read = isc_dhcpd.read(line._replace(text=words, rest=rest), context)
    if read is not None:
        read["message"] = line.text
    return read


def _records(text: str) -> list[dict[str, Any]]:
    """`474 CNAME a. 174 A 192.0.2.1`: records, each from its time to live on."""
    words = text.split()
    starts = [
        index
        for index, (ttl, kind) in enumerate(pairwise(words))
        if ttl.isdecimal() and len(ttl) < 11 and _TYPE.fullmatch(kind)
    ]
    records = []
    for start, end in pairwise([*starts, len(words)]):
        data = " ".join(words[start + 2 : end])
        if data:
            records.append({"ttl": int(words[start]), "type": words[start + 1], "rdata": data})
    return records[:_MOST_RECORDS]


def _answer(match: re.Match[str], line: Line) -> Event:
    records = _records(match["records"])
    words = match["records"].strip()
    return dns_event(
        RESPONSE,
        line.stamp,
        _PRODUCT,
        line,
        client=end_of(match["ip"], match["port"]),
        server=end_of(match["server"], None),
        query=question(match["name"], match["type"], match["class"]),
        rest=kept(
            view=match["view"],
            flags=match["flags"],
            response=words if words and not records else None,
        ),
        answers=records or None,
        severity_id=syslog.severity(line),
        **answered(match["rcode"]),
    )


def _listed(match: re.Match[str], line: Line) -> Event:
    """A question for a name, or of a client, that stands in a list of DNS Guardian."""
    return dns_event(
        QUERY,
        line.stamp,
        _PRODUCT,
        line,
        client=end_of(match["ip"], match["port"]),
        server=end_of(match["server"], None),
        query=question(match["name"], match["type"], match["class"]),
        rest=kept(flags=match["flags"], tags=match["tags"]),
        severity_id=syslog.severity(line),
        firewall_rule={"name": match["lists"], "type": "list"},
    )


def _trigger(match: re.Match[str], line: Line) -> Event | None:
    """DNS Guardian holds a client for an attacker, or no longer."""
    ip = address(match["ip"])
    if ip is None:
        return None
    over = match["what"] is not None
    action, name = match["action"].upper(), match["name"]
    columns: dict[str, Any] = {}
    if action in _DISPOSITIONS and not over:
        columns = {"action_id": 2, "disposition_id": _DISPOSITIONS[action]}
    return daemon_event(
        line,
        _PRODUCT,
        FINDING,
        _CLOSED if over else _NEW,
        severity_id=INFORMATIONAL if over else HIGH,
        finding_info={"uid": f"{name} {ip}", "title": name, "created_time": line.stamp.time},
        src_endpoint=kept(ip=ip, mac=mac_address(match["mac"])),
        rest=kept(action=match["action"], client=match["more"]),
        **columns,
    )


def _named(line: Line, context: Context) -> Event | None:
    for pattern, make in ((_ANSWER, _answer), (_LISTED, _listed), (_TRIGGER, _trigger)):
        match = pattern.fullmatch(line.text)
        if match:
            return make(match, line)
    return bind.read(line, context)


def _read(line: Line, context: Context) -> Event:
    read = None
    if line.program in _DHCP:
        read = _lease(line, context)
    elif line.program == "named":
        read = _named(line, context)
    if read is None:
        return syslog.base_event(line, _PRODUCT)
    # ISC's and BIND's readers name their own product, but the appliance wrote it.
    read["metadata"]["product"] = _PRODUCT
    return read


@dataclass(frozen=True)
class EfficientIP(Source):
    """The syslog of a SOLIDserver."""

    name: str = "efficientip"

    def parse(self, record: Record, context: Context) -> list[Event]:
        return each_line(record.raw, lambda text: [_read(syslog.read_text(text, context), context)])

    def restamp(self, raw: bytes, when: datetime, zone: ZoneInfo) -> bytes:
        return syslog.restamp(raw, when, zone)


SOURCES = (EfficientIP(),)
