"""Kea's DHCPv4 and DHCPv6 servers, 1.x to 2.7: their own log format, and through syslog.

Message ids are those of the Kea messages manual
(https://kea.readthedocs.io/en/latest/kea-messages.html). Kea's own format has
a naive local time; syslog brings its own and leaves process and thread out.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from types import MappingProxyType
from typing import Any
from zoneinfo import ZoneInfo

from ingest.parsing import syslog
from ingest.parsing.ocsf import (
    BASE,
    OTHER,
    address,
    device,
    event,
    kept,
    mac_address,
    metadata,
    unmapped,
)
from ingest.parsing.source import Context, Event, Record, Source
from ingest.parsing.timestamps import Stamp, like_iso, stamp_iso
from ingest.sources.dhcp.dhcp_event import (
    ACK,
    DECLINE,
    EXPIRE,
    INFINITE,
    NAK,
    OFFER,
    RELEASE,
    REQUEST,
    dhcp_event,
    mac_of_duid,
)

_PRODUCT: Mapping[str, str] = {"name": "Kea DHCPv4", "vendor_name": "ISC"}
_PRODUCT6: Mapping[str, str] = {"name": "Kea DHCPv6", "vendor_name": "ISC"}

_OWN = re.compile(
    r"(?P<time>\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?:[.,]\d+)?) (?P<body>[A-Z]+ .*)", re.ASCII
)
_BODY = re.compile(
    r"(?P<level>[A-Z]+)\s+\[(?P<logger>[^\]\s]+)\] (?P<id>[A-Z][A-Z0-9_]+) (?P<text>.*)", re.ASCII
)
_CLIENT = re.compile(
    r"(?:duid=\[(?P<duid>[^\]]*)\], )?"
    r"\[(?:hwtype=\d+ (?P<mac>[0-9a-fA-F:]*)|no hwaddr info)\](?:, cid=\[(?P<cid>[^\]]*)\])?"
    r"(?:, tid=(?P<tid>0x[0-9a-f]+))?",
    re.ASCII,
)
DUID_ONLY = re.compile(r"duid=\[(?P<duid>[^\]]*)\](?:, tid=(?P<tid>0x[0-9a-f]+))?", re.ASCII)
_ADDRESS = re.compile(
    r"\b(?:lease|address|addr|for|[Aa]ddress|prefix|requested-ip-address|ciaddr) "
    r"(\d+\.\d+\.\d+\.\d+|[0-9a-fA-F]{0,4}:[0-9a-fA-F:.]{1,40}[0-9a-fA-F:])(?![\w.])",
    re.ASCII,
)
IAID = re.compile(r"\biaid=(\d{1,10})\b", re.ASCII)
_LEASED = re.compile(
    r"has been (?:allocated|reused|renewed) for (\d{1,10}|infinity) second", re.ASCII
)

# DHCPv4 in DHCPv6 (RFC 7341): the servers tell each other by type 20 and 21 what came for whom.
_OVER_SIX = frozenset(
    {
        "DHCP4_DHCP4O6_PACKET_RECEIVED",
        "DHCP4_DHCP4O6_PACKET_SEND",
        "DHCP6_DHCP4O6_PACKET_RECEIVED",
    }
)
_CARRIED = re.compile(
    r"(?P<start>.*?)(?:received DHCPv4o6 packet from DHCPv[46] server|trying to send packet \S+) "
    r"\(type (?P<type>20|21)\) (?:for|to) (?P<ip>[0-9a-fA-F:.]{2,45})"
    r"(?: port (?P<port>\d{1,5}))? on interface (?P<interface>\S+)"
    r"(?: encapsulating .*: (?P<inner>DHCP[A-Z]{3,12}) \(type \d{1,2}\))?",
    re.ASCII,
)

_ACTIVITY: Mapping[str, int] = MappingProxyType(
    {
        "DHCP4_LEASE_ADVERT": OFFER,
        "DHCP4_LEASE_OFFER": OFFER,
        "DHCP4_LEASE_ALLOC": ACK,
        "DHCP4_LEASE_REUSE": ACK,
        "DHCP4_INIT_REBOOT": REQUEST,
        "DHCP4_RELEASE": RELEASE,
        "DHCP4_RELEASE_DELETED": RELEASE,
        "DHCP4_RELEASE_EXPIRED": RELEASE,
        "DHCP4_RELEASE_FAIL": RELEASE,
        "DHCP4_RELEASE_FAIL_NO_LEASE": RELEASE,
        "DHCP4_RELEASE_FAIL_WRONG_CLIENT": RELEASE,
        "DHCP4_DECLINE_LEASE": DECLINE,
        "DHCP4_DECLINE_LEASE_MISMATCH": DECLINE,
        "DHCP4_DECLINE_LEASE_NOT_FOUND": DECLINE,
        "DHCP4_PACKET_NAK_0001": NAK,
        "DHCP4_PACKET_NAK_0002": NAK,
        "DHCP4_PACKET_NAK_0003": NAK,
        "DHCP4_PACKET_NAK_0004": NAK,
        "DHCP4_PACKET_NAK_0005": NAK,
        "ALLOC_ENGINE_V4_LEASE_RECLAIM": EXPIRE,
        "ALLOC_ENGINE_V4_DECLINED_RECOVERED": EXPIRE,
        "ALLOC_ENGINE_V4_ALLOC_FAIL": OTHER,
        "DHCP6_LEASE_ADVERT": OFFER,
        "DHCP6_LEASE_ALLOC": ACK,
        "DHCP6_LEASE_RENEW": ACK,
        "DHCP6_LEASE_REUSE": ACK,
        "DHCP6_RELEASE_NA": RELEASE,
        "DHCP6_RELEASE_NA_DELETED": RELEASE,
        "DHCP6_RELEASE_NA_EXPIRED": RELEASE,
        "DHCP6_RELEASE_NA_FAIL": RELEASE,
        "DHCP6_RELEASE_NA_FAIL_WRONG_DUID": RELEASE,
        "DHCP6_RELEASE_NA_FAIL_WRONG_IAID": RELEASE,
        "DHCP6_DECLINE_LEASE": DECLINE,
        "DHCP6_DECLINE_FAIL_DUID_MISMATCH": DECLINE,
        "DHCP6_DECLINE_FAIL_IAID_MISMATCH": DECLINE,
        "DHCP6_DECLINE_FAIL_NO_LEASE": DECLINE,
        "ALLOC_ENGINE_V6_LEASE_RECLAIM": EXPIRE,
        "ALLOC_ENGINE_V6_DECLINED_RECOVERED": EXPIRE,
        "ALLOC_ENGINE_V6_ALLOC_FAIL": OTHER,
    }
)
# A delegated prefix belongs to a network behind the client, so it is no lease of an address.
_PREFIX: Mapping[str, str] = MappingProxyType(
    {
        "DHCP6_PD_LEASE_ADVERT": "Advertise prefix",
        "DHCP6_PD_LEASE_ALLOC": "Reply prefix",
        "DHCP6_PD_LEASE_RENEW": "Renew prefix",
        "DHCP6_PD_LEASE_REUSE": "Reply prefix",
        "DHCP6_RELEASE_PD": "Release prefix",
        "DHCP6_RELEASE_PD_DELETED": "Release prefix",
        "DHCP6_RELEASE_PD_EXPIRED": "Release prefix",
        "DHCP6_RELEASE_PD_FAIL": "Release prefix",
        "DHCP6_RELEASE_PD_FAIL_WRONG_DUID": "Release prefix",
        "DHCP6_RELEASE_PD_FAIL_WRONG_IAID": "Release prefix",
    }
)
_LENGTH = re.compile(r"\bprefix [0-9a-fA-F:.]{2,45}/(\d{1,3})\b", re.ASCII)
_REFUSED = frozenset(
    {
        "DHCP4_RELEASE_FAIL",
        "DHCP4_RELEASE_FAIL_NO_LEASE",
        "DHCP4_RELEASE_FAIL_WRONG_CLIENT",
        "DHCP4_DECLINE_LEASE_MISMATCH",
        "DHCP4_DECLINE_LEASE_NOT_FOUND",
        "ALLOC_ENGINE_V4_ALLOC_FAIL",
        "ALLOC_ENGINE_V6_ALLOC_FAIL",
        "DHCP6_RELEASE_NA_FAIL",
        "DHCP6_RELEASE_NA_FAIL_WRONG_DUID",
        "DHCP6_RELEASE_NA_FAIL_WRONG_IAID",
        "DHCP6_RELEASE_PD_FAIL",
        "DHCP6_RELEASE_PD_FAIL_WRONG_DUID",
        "DHCP6_RELEASE_PD_FAIL_WRONG_IAID",
        "DHCP6_DECLINE_FAIL_DUID_MISMATCH",
        "DHCP6_DECLINE_FAIL_IAID_MISMATCH",
        "DHCP6_DECLINE_FAIL_NO_LEASE",
    }
)
_NAMELESS = frozenset({"ALLOC_ENGINE_V4_DECLINED_RECOVERED", "ALLOC_ENGINE_V6_DECLINED_RECOVERED"})
"""Messages about an address whose holder they do not name."""
ADDRESSED = frozenset({OFFER, ACK, RELEASE, DECLINE, EXPIRE})


def _read(body: str, stamp: Stamp, host: str | None, rest: dict[str, Any], at: Context) -> Event:
    """The event of one Kea message, whatever brought it."""
    match = _BODY.fullmatch(body)
    if match is None:
        return _base(body, stamp, host, rest, None)
    code, text = match["id"], match["text"]
    rest = rest | {"log_level": match["level"], "logger": match["logger"]}
    if code in _OVER_SIX and (carried := _CARRIED.fullmatch(text)):
        return _over_six(carried, code, stamp, host, rest, at)
    # The longer form first, since a DUID alone is a part of it.
    client = _CLIENT.search(text) or DUID_ONLY.search(text)
    prefix = _PREFIX.get(code)
    activity = OTHER if prefix else _ACTIVITY.get(code)
    # Behind the client's identity: that is bytes of its own choice, which may look like one.
    ip = _address(text, client.end() if client and client.start() == 0 else 0)
    named = client is not None or code in _NAMELESS
    # A lease needs a holder and an address; half of one would give the address to nobody.
    if activity is None or not named or ((prefix or activity in ADDRESSED) and not ip):
        return _base(text, stamp, host, rest, code)
    part = client.groupdict() if client else {}
    leased, iaid = _LEASED.search(text), IAID.search(text)
    length = _LENGTH.search(text, client.end() if client else 0) if prefix else None
    duid = part.get("duid")
    mac = mac_address(part.get("mac")) or mac_of_duid(_octets(duid))
    return dhcp_event(
        activity,
        at,
        stamp,
        # `DHCP6_...` and `ALLOC_ENGINE_V6_...`: both servers share the names of loggers.
        _PRODUCT6 if "6_" in code[:15] else _PRODUCT,
        activity_name=prefix or ("Allocation failed" if activity == OTHER else None),
        ip=ip,
        mac=mac,
        client_uid=duid or (part.get("cid") if mac is None else None),
        host=host,
        lease_seconds=_seconds(leased[1]) if leased else None,
        refused=text if code in _REFUSED else None,
        transaction_uid=part.get("tid"),
        message=text,
        rest=rest
        | kept(
            cid=part.get("cid"),
            iaid=iaid[1] if iaid else None,
            prefix_length=length[1] if length else None,
            hwaddr=part.get("mac") if mac is None else None,
        ),
        fields={"event_code": code},
    )


def _over_six(
    carried: re.Match[str],
    code: str,
    stamp: Stamp,
    host: str | None,
    rest: dict[str, Any],
    at: Context,
) -> Event:
    """A message of DHCPv4 on its way over IPv6; the lease that it ends in has a line of its own."""
    client = _CLIENT.match(carried["start"])
    return dhcp_event(
        OTHER,
        at,
        stamp,
        _PRODUCT6 if code.startswith("DHCP6_") else _PRODUCT,
        activity_name="DHCPv4-query" if carried["type"] == "20" else "DHCPv4-response",
        # Where the packet comes from or goes to: the client, or the relay before it.
        ip=address(carried["ip"]),
        mac=None,
        host=host,
        transaction_uid=client["tid"] if client else None,
        message=carried[0],
        rest=rest
        | kept(
            port=carried["port"],
            interface=carried["interface"],
            carried=carried["inner"],
            hwaddr=client["mac"] if client else None,
        ),
        fields={"event_code": code},
    )


def _address(text: str, start: int) -> str | None:
    """The first address in a message behind `start` that is one: clients may send 0.0.0.0."""
    for match in _ADDRESS.finditer(text, start):
        ip = address(match[1])
        if ip and ip not in ("0.0.0.0", "::"):
            return ip
    return None


def _octets(duid: str | None) -> bytes:
    try:
        return bytes.fromhex((duid or "").replace(":", ""))
    except ValueError:
        return b""


def _seconds(written: str) -> int:
    return INFINITE if written == "infinity" else int(written)


def _base(
    text: str, stamp: Stamp, host: str | None, rest: dict[str, Any], code: str | None
) -> Event:
    return event(
        BASE,
        0,
        stamp,
        message=text,
        metadata=metadata(_PRODUCT, stamp, event_code=code),
        device=device(host),
        unmapped=unmapped(rest),
    )


@dataclass(frozen=True)
class Kea(Source):
    """Kea's log, as a file or through syslog; each line says which it is."""

    name: str = "kea_dhcp4"
    programs: frozenset[str] = frozenset({"kea-dhcp4", "kea-dhcp6"})

    def parse(self, record: Record, context: Context) -> list[Event]:
        own = _OWN.fullmatch(syslog.one_line(record.raw))
        if own is None:
            return [self.read(syslog.read_syslog(record.raw, context), context)]
        host = context.host
        stamp = stamp_iso(own["time"], context.zone(host), record.received_at)
        return [_read(own["body"], stamp, host, {}, context)]

    def read(self, line: syslog.Line, context: Context) -> Event:
        """The event of a line that came through syslog."""
        if line.program not in self.programs:
            return syslog.base_event(line, _PRODUCT)
        rest = line.rest | kept(pid=line.pid)
        own = _OWN.fullmatch(line.text)
        if own:
            # What the server printed went to syslog by systemd or Docker; theirs has a zone more.
            rest |= {"printed_time": own["time"]}
            return _read(own["body"], line.stamp, line.host, rest, context)
        return _read(line.text, line.stamp, line.host, rest, context)

    def restamp(self, raw: bytes, when: datetime, zone: ZoneInfo) -> bytes:
        own = _OWN.fullmatch(syslog.one_line(raw))
        new = like_iso(own["time"], when, zone) if own else None
        if own is None or new is None:
            return syslog.restamp(raw, when, zone)
        return new.encode() + raw[own.end("time") :]


SOURCES = (Kea(),)
