"""Infoblox NIOS: its DHCP, DNS and audit log, all in one stream of syslog.

The program says which: `dhcpd` and `dhcpdv6` speak ISC's words with more at the end, `named`
BIND's with answers logged too, `httpd` is the audit log of the administrators. A relay may
have put its own address between the host and the program. Formats:
https://docs.infoblox.com/space/nios90/280760436/Using+a+Syslog+Server
https://docs.infoblox.com/space/nios85/35816694/Capturing+DNS+Queries+and+Responses
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from types import MappingProxyType
from zoneinfo import ZoneInfo

from ingest.parsing import syslog
from ingest.parsing.ocsf import OTHER, address, kept, mac_address
from ingest.parsing.source import Context, Event, Record, Source
from ingest.parsing.syslog import Line
from ingest.parsing.timestamps import Stamp, stamp_epoch
from ingest.sources.dhcp import isc_dhcpd
from ingest.sources.dhcp.dhcp_event import (
    ACK,
    DECLINE,
    DISCOVER,
    EXPIRE,
    INFORM,
    RELEASE,
    REQUEST,
    dhcp_event,
)
from ingest.sources.dns import bind
from ingest.sources.infoblox import audit, dns

_PRODUCT: Mapping[str, str] = {"name": "NIOS", "vendor_name": "Infoblox"}
_DHCP = frozenset({"dhcpd", "dhcpdv6"})
_PROGRAMS = frozenset({*_DHCP, "named", "httpd"})
RELAYED = re.compile(
    r" ?(?:(?P<relay>[A-Za-z0-9_.-]{1,255}) )?(?P<host>[0-9a-fA-F.:]{2,45}) "
    r"(?P<program>dhcpd|dhcpdv6|named|httpd)"
    r"(?:\[(?P<pid>\d{0,10})\])?: (?P<text>.*)",
    re.ASCII,
)
"""What stands behind the host where a relay has put its own name before it."""
PIDLESS = re.compile(r"(?P<program>httpd)\[\]: (?P<text>.*)", re.ASCII)
_LEASE = re.compile(
    r"r-l-e:(?P<ip>[0-9a-fA-F.:]{2,45}),(?P<what>[A-Za-z ]{1,20}),(?P<name>.*),"
    r"(?P<mac>(?:[0-9a-fA-F]{2}(?::[0-9a-fA-F]{2}){2,20})?),(?P<start>\d{0,12}),"
    r"(?P<end>\d{0,12}),(?P<rest>[^,]*,?[^,]*)",
    re.ASCII,
)
_OPTION_82 = re.compile(
    r"Option 82: received an? (?P<word>[A-Z]{3,10}) DHCP packet from relay-agent "
    r"(?P<relay>[\w.:-]{1,45}) with a (?:circuit-id of \"(?P<circuit>[^\"]{0,600})\")?"
    r"(?:(?:, a | and (?:a )?)?remote-id of \"(?P<remote>[^\"]{0,600})\")? "
    r"for (?P<ip>[0-9.]{7,15}) \((?P<mac>[0-9a-fA-F:]{11,60})\)"
    r"(?: lease time is (?:(?P<lease>\d{1,10})|undefined) seconds)?\.?(?: \((?P<state>[A-Z]+)\))?",
    re.ASCII,
)
"""What the relay added (RFC 3046): the port of the switch that the client is behind."""
_MESSAGES: Mapping[str, int] = MappingProxyType(
    {
        "DISCOVER": DISCOVER,
        "REQUEST": REQUEST,
        "DECLINE": DECLINE,
        "RELEASE": RELEASE,
        "INFORM": INFORM,
    }
)
_CHANGES: Mapping[str, int] = MappingProxyType(
    {
        "issued": ACK,
        "renewed": ACK,
        "fixed": ACK,
        "released": RELEASE,
        "freed": EXPIRE,
        "expired": EXPIRE,
        "abandoned": DECLINE,
        "declined": DECLINE,
    }
)
"""What the lease history says became of a lease. It repeats a DHCPACK of the same second."""


def unfolded(line: Line) -> Line:
    """The line as the appliance wrote it, behind what a relay has put before it."""
    # Only what came out of the relay's framing whole is read as it is.
    if line.program in _PROGRAMS:
        return line
    match = RELAYED.fullmatch(line.text) if line.program is None else None
    if match is None or address(match["host"]) is None:
        bare = PIDLESS.fullmatch(line.text) if line.program is None else None
        return line._replace(program=bare["program"], text=bare["text"]) if bare else line
    pid = int(match["pid"]) if match["pid"] else None
    rest = line.rest | kept(relayed_by=match["relay"] or line.host)
    return Line(line.stamp, match["host"], match["program"], pid, match["text"].strip(), rest)


def _read(line: Line, context: Context) -> Event | None:
    """The event of a line, by its program; None for what has no class of its own."""
    if line.program in _DHCP:
        return _lease(line, context) or _relayed(line, context) or isc_dhcpd.read(line, context)
    if line.program == "named":
        # What Infoblox words as BIND does, such as transfers and updates of zones, BIND's reads.
        return dns.read(line, context) or bind.read(line, context)
    return audit.read(line, context) if line.program == "httpd" else None


def _lease(line: Line, context: Context) -> Event | None:
    """An entry of the lease history (`r-l-e:`), which names the lease's start and end."""
    match = _LEASE.fullmatch(line.text)
    ip = address(match["ip"]) if match else None
    if match is None or ip is None:
        return None
    received_at = context.record.received_at
    start = stamp_epoch(match["start"], received_at) if match["start"] else None
    end = stamp_epoch(match["end"], received_at) if match["end"] else None
    activity = _CHANGES.get(match["what"].lower(), OTHER)
    mac = mac_address(match["mac"])
    # A lease that ends before it starts has no length that could be believed.
    granted = start is not None and end is not None and end.time >= start.time
    lease = int((end.time - start.time).total_seconds()) if start and end and granted else None
    return dhcp_event(
        activity,
        context,
        line.stamp,
        _PRODUCT,
        activity_name=match["what"] if activity == OTHER else None,
        ip=ip,
        mac=mac,
        hostname=match["name"] or None,
        host=line.host,
        lease_seconds=lease,
        is_renewal=match["what"].lower() == "renewed" if activity == ACK else None,
        message=line.text,
        start_time=_time(start),
        end_time=_time(end),
        rest=line.rest
        | kept(
            pid=line.pid,
            hwaddr=match["mac"] if match["mac"] and mac is None else None,
            more=match["rest"].strip(",$") or None,
        ),
        fields={"log_provider": line.program, "event_code": match["what"]},
    )


def _relayed(line: Line, context: Context) -> Event | None:
    """What a relay put into a client's message: where in the network the client is."""
    match = _OPTION_82.fullmatch(line.text)
    ip = address(match["ip"]) if match else None
    if match is None or ip is None:
        return None
    activity = _MESSAGES.get(match["word"], OTHER)
    # The appliance leaves out a leading zero of an octet.
    mac = mac_address(":".join(octet.zfill(2) for octet in match["mac"].split(":")))
    return dhcp_event(
        activity,
        context,
        line.stamp,
        _PRODUCT,
        activity_name=match["word"].capitalize() if activity == OTHER else None,
        # A client that only looks for a server has no address yet.
        ip=None if ip == "0.0.0.0" else ip,
        mac=mac,
        client_uid=None if mac else match["mac"],
        host=line.host,
        relay_ip=address(match["relay"]),
        message=line.text,
        rest=line.rest
        | kept(
            pid=line.pid,
            circuit_id=match["circuit"] or None,
            remote_id=match["remote"] or None,
            lease_seconds=match["lease"],
            state=match["state"],
            relay_interface=match["relay"] if address(match["relay"]) is None else None,
        ),
        fields={"log_provider": line.program, "event_code": "Option 82"},
    )


def _time(stamp: Stamp | None) -> datetime | None:
    return stamp.time if stamp and stamp.quality != "received" else None


@dataclass(frozen=True)
class Infoblox(Source):
    """The syslog of a grid."""

    name: str = "infoblox"

    def parse(self, record: Record, context: Context) -> list[Event]:
        raw = record.raw
        line = unfolded(syslog.read_syslog(raw, context))
        read_event = _read(line, context)
        if read_event is None:
            return [syslog.base_event(line, _PRODUCT)]
        # ISC's and BIND's readers name their own product, but the appliance wrote it.
        read_event["metadata"]["product"] = _PRODUCT
        return [read_event]

    def restamp(self, raw: bytes, when: datetime, zone: ZoneInfo) -> bytes:
        return syslog.restamp(raw, when, zone)


SOURCES = (Infoblox(),)
