"""Kea DHCPv4 2.x: its own log format, and the same messages through syslog.

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

from ingest import syslog
from ingest.dhcp import ACK, DECLINE, EXPIRE, NAK, OFFER, RELEASE, REQUEST, dhcp_event
from ingest.ocsf import BASE, OTHER, device, event, kept, metadata, unmapped
from ingest.source import Context, Event, Record, Source
from ingest.time import Stamp, like_iso, stamp_iso

PRODUCT: Mapping[str, str] = {"name": "Kea DHCPv4", "vendor_name": "ISC"}

OWN = re.compile(
    r"(?P<time>\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?:[.,]\d+)?) (?P<body>[A-Z]+ .*)", re.ASCII
)
BODY = re.compile(
    r"(?P<level>[A-Z]+)\s+\[(?P<logger>[^\]\s]+)\] (?P<id>[A-Z][A-Z0-9_]+) (?P<text>.*)", re.ASCII
)
CLIENT = re.compile(
    r"\[hwtype=\d+ (?P<mac>[0-9a-fA-F:]*)\](?:, cid=\[(?P<cid>[^\]]*)\])?"
    r"(?:, tid=(?P<tid>0x[0-9a-f]+))?",
    re.ASCII,
)
ADDRESS = re.compile(r"\b(?:lease|address|addr|for) (\d+\.\d+\.\d+\.\d+)\b", re.ASCII)
LEASED = re.compile(
    r"has been (?:allocated|reused|renewed) for (\d{1,10}|infinity) second", re.ASCII
)

INFINITE = 2**32 - 1
"""Seconds of a lease without end (RFC 2131, section 3.3)."""

ACTIVITY: Mapping[str, int] = MappingProxyType(
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
        "ALLOC_ENGINE_V4_LEASE_RECLAIM": EXPIRE,
        "ALLOC_ENGINE_V4_ALLOC_FAIL": OTHER,
    }
)
REFUSED = frozenset(
    {
        "DHCP4_RELEASE_FAIL",
        "DHCP4_RELEASE_FAIL_NO_LEASE",
        "DHCP4_RELEASE_FAIL_WRONG_CLIENT",
        "DHCP4_DECLINE_LEASE_MISMATCH",
        "DHCP4_DECLINE_LEASE_NOT_FOUND",
        "ALLOC_ENGINE_V4_ALLOC_FAIL",
    }
)
ADDRESSED = frozenset({OFFER, ACK, RELEASE, DECLINE, EXPIRE})


def read(body: str, stamp: Stamp, host: str | None, rest: dict[str, Any], at: Context) -> Event:
    """The event of one Kea message, whatever brought it."""
    match = BODY.fullmatch(body)
    if match is None:
        return _base(body, stamp, host, rest, None)
    code, text = match["id"], match["text"]
    rest = rest | {"log_level": match["level"], "logger": match["logger"]}
    client = CLIENT.search(text)
    activity = ACTIVITY.get(code)
    found = ADDRESS.search(text, client.end() if client and client.start() == 0 else 0)
    if activity is None or client is None or (activity in ADDRESSED and not found):
        return _base(text, stamp, host, rest, code)
    leased = LEASED.search(text)
    return dhcp_event(
        activity,
        at,
        stamp,
        PRODUCT,
        activity_name="Allocation failed" if activity == OTHER else None,
        ip=found[1] if found else None,
        mac=client["mac"] or None,
        host=host,
        lease_seconds=_seconds(leased[1]) if leased else None,
        refused=text if code in REFUSED else None,
        transaction_uid=client["tid"],
        message=text,
        rest=rest | kept(cid=client["cid"]),
        fields={"event_code": code},
    )


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
        metadata=metadata(PRODUCT, stamp, event_code=code),
        device=device(host),
        unmapped=unmapped(rest),
    )


@dataclass(frozen=True)
class Kea(Source):
    """Kea's log, as a file or through syslog; each line says which it is."""

    name: str = "kea_dhcp4"
    programs: frozenset[str] = frozenset({"kea-dhcp4"})

    def parse(self, record: Record, context: Context) -> list[Event]:
        own = OWN.fullmatch(syslog.one_line(record.raw))
        if own is None:
            return [self.read(syslog.read(record.raw, context), context)]
        host = context.host
        stamp = stamp_iso(own["time"], context.zone(host), record.received_at)
        return [read(own["body"], stamp, host, {}, context)]

    def read(self, line: syslog.Line, context: Context) -> Event:
        """The event of a line that came through syslog."""
        if line.program not in self.programs:
            return syslog.base_event(line, PRODUCT)
        return read(line.text, line.stamp, line.host, line.rest | kept(pid=line.pid), context)

    def restamp(self, raw: bytes, when: datetime, zone: ZoneInfo) -> bytes:
        own = OWN.fullmatch(syslog.one_line(raw))
        new = like_iso(own["time"], when, zone) if own else None
        if own is None or new is None:
            return syslog.restamp(raw, when, zone)
        return new.encode() + raw[own.end("time") :]


SOURCES = (Kea(),)
