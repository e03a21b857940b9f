"""dnsmasq 2.90: DHCP messages (`dnsmasq-dhcp`) and DNS (`dnsmasq`, with log-queries).

With `log-dhcp` a DHCP line starts with the transaction's number, with
`log-queries=extra` a DNS line with a serial number and the client's address.
dnsmasq words its answer to an INFORM like any other DHCPACK, so the two cannot
be told apart.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType

from ingest.dhcp import ACK, DECLINE, DISCOVER, INFORM, NAK, OFFER, RELEASE, REQUEST, dhcp_event
from ingest.ocsf import (
    A_HOST,
    AN_IP,
    BASE,
    DNS,
    address,
    device,
    event,
    kept,
    metadata,
    observables,
    unmapped,
)
from ingest.source import Context, Event
from ingest.syslog import Line, SyslogSource

PRODUCT: Mapping[str, str] = {"name": "dnsmasq", "vendor_name": "Simon Kelley"}

ACTIVITY = MappingProxyType(
    {
        "DHCPDISCOVER": DISCOVER,
        "DHCPOFFER": OFFER,
        "DHCPREQUEST": REQUEST,
        "DHCPDECLINE": DECLINE,
        "DHCPACK": ACK,
        "DHCPNAK": NAK,
        "DHCPRELEASE": RELEASE,
        "DHCPINFORM": INFORM,
    }
)
NAMING = frozenset({"DHCPACK", "DHCPDECLINE"})
"""Messages whose last word is the client's name; after the others it is a remark."""

DHCP_LINE = re.compile(
    r"(?:(?P<xid>\d+) )?(?P<word>DHCP[A-Z]+)\((?P<interface>[^)\s]+)\) "
    r"(?:(?P<ip>\d+\.\d+\.\d+\.\d+) )?"
    r"(?:[0-9a-f]{2}-)?(?P<mac>[0-9a-fA-F]{2}(?::[0-9a-fA-F]{2}){5})(?: (?P<tail>.*))?",
    re.ASCII,
)
TRANSACTION = re.compile(r"(?P<xid>\d+) (?P<text>.*)", re.ASCII)
QUERY = re.compile(
    r"(?:(?P<serial>\d+) (?P<client>[0-9a-fA-F.:]+)/(?P<port>\d+) )?"
    r"query\[(?P<type>[^\]\s]+)\] (?P<name>\S+) from (?P<from>[0-9a-fA-F.:]+)",
    re.ASCII,
)


def read(line: Line, context: Context) -> Event | None:
    """A DHCP message or a DNS question; None for what else dnsmasq says."""
    if line.program == "dnsmasq":
        match = QUERY.fullmatch(line.text)
        return _query(match.groupdict(), line) if match else None
    match = DHCP_LINE.fullmatch(line.text)
    if match and match["word"] in ACTIVITY:
        return _dhcp(match.groupdict(), line, context)
    match = TRANSACTION.fullmatch(line.text)
    return _detail(match["xid"], line) if match else None


def _dhcp(part: dict[str, str | None], line: Line, context: Context) -> Event:
    word = part["word"] or ""
    tail = part["tail"] or None
    named = word in NAMING
    return dhcp_event(
        ACTIVITY[word],
        context,
        line.stamp,
        PRODUCT,
        ip=part["ip"],
        mac=part["mac"],
        hostname=tail if named else None,
        host=line.host,
        refused=None if named else tail,
        transaction_uid=part["xid"],
        message=line.text,
        rest=line.rest | kept(pid=line.pid, interface=part["interface"]),
        fields={"log_provider": line.program},
    )


def _detail(xid: str, line: Line) -> Event:
    """A line about a DHCP exchange, such as its options: tied to it by its number."""
    return event(
        BASE,
        0,
        line.stamp,
        message=line.text,
        metadata=metadata(PRODUCT, line.stamp, log_provider=line.program, correlation_uid=xid),
        device=device(line.host),
        unmapped=unmapped(line.rest | kept(pid=line.pid)),
    )


def _query(part: dict[str, str | None], line: Line) -> Event | None:
    client = address(part["from"] or "")
    port = int(part["port"]) if part["port"] and len(part["port"]) <= 5 else None
    if client is None or (port is not None and port > 65535):
        return None
    return event(
        DNS,
        1,
        line.stamp,
        message=line.text,
        metadata=metadata(
            PRODUCT, line.stamp, log_provider=line.program, correlation_uid=part["serial"]
        ),
        src_endpoint={"ip": client, "port": port},
        dst_endpoint={"hostname": line.host} if line.host else None,
        device=device(line.host),
        query={"hostname": part["name"], "type": part["type"]},
        observables=observables(
            ("src_endpoint.ip", AN_IP, client), ("query.hostname", A_HOST, part["name"])
        ),
        unmapped=unmapped(line.rest | kept(pid=line.pid)),
    )


SOURCES = (
    SyslogSource(
        name="dnsmasq",
        programs=frozenset({"dnsmasq", "dnsmasq-dhcp"}),
        product=PRODUCT,
        reader=read,
    ),
)
