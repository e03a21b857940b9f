"""ISC dhcpd, as it writes to syslog (`server/dhcp.c` of ISC DHCP 4.4; dhcpd.conf(5)).

The client chooses its host name, so each pattern takes the address and the
hardware address from before it, and the interface from the very end.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING

from ingest.parsing.ocsf import OTHER, address, kept, mac_address
from ingest.parsing.source import Context, Event, ParseSettings, Read
from ingest.parsing.syslog import Line, SyslogSource
from ingest.sources.dhcp.dhcp_event import (
    ACK,
    DECLINE,
    DISCOVER,
    EXPIRE,
    INFORM,
    NAK,
    OFFER,
    RELEASE,
    REQUEST,
    dhcp_event,
)
from ingest.sources.dhcp.isc_dhcpv6 import read_v6

if TYPE_CHECKING:
    import pyarrow as pa

_PRODUCT: Mapping[str, str] = {"name": "ISC DHCP", "vendor_name": "ISC"}

_CLIENT = r"(?P<client>\S+)(?: \((?P<hostname>.*)\))?"
# No blank in it: what follows ` via ` last is the server's word, not the client's.
_VIA = r" via (?P<via>[^\s:]+(?::[^\s:]+)*)"
# Infoblox' dhcpd says more at the end: of a question, and of a grant.
_STATE = r"(?: \((?P<state>[A-Z]+)\))?"
_EXTRA = rf"(?: TransID (?P<xid>[0-9a-fA-F]{{1,8}}))?(?: uid (?P<uid>\S+?))?{_STATE}"
_LEASE = (
    r"(?: relay (?P<relay>\S+))?(?: lease-duration (?P<lease>\d{1,10})"
    rf"(?: offered-duration (?P<offered>\d{{1,10}}))?{_STATE}"
    r"(?: uid (?P<uid>\S+))?)?"
)
_DETAIL = r"(?:: (?P<detail>.*))?"
_IP = r"(?P<ip>[0-9.]+)"
_PATTERNS = (
    ("DHCPDISCOVER", DISCOVER, re.compile(rf"from {_CLIENT}{_VIA}{_EXTRA}{_DETAIL}")),
    ("DHCPOFFER", OFFER, re.compile(rf"on {_IP} to {_CLIENT}{_VIA}{_LEASE}")),
    (
        "DHCPREQUEST",
        REQUEST,
        re.compile(
            rf"for {_IP}(?: \((?P<server>[0-9.]+)\))? from {_CLIENT}{_VIA}{_EXTRA}{_DETAIL}"
        ),
    ),
    ("DHCPACK", ACK, re.compile(rf"on {_IP} to {_CLIENT}{_VIA}{_LEASE}")),
    # The answer to an INFORM: the client has its address from elsewhere, nothing is leased.
    ("DHCPACK", OTHER, re.compile(rf"to {_IP} \((?P<client>[^\s()]+)\){_VIA}")),
    ("DHCPNAK", NAK, re.compile(rf"on {_IP} to {_CLIENT}{_VIA}{_EXTRA}")),
    (
        "DHCPRELEASE",
        RELEASE,
        re.compile(rf"of {_IP} from {_CLIENT}{_VIA} \((?P<found>found|not found)\){_EXTRA}"),
    ),
    ("DHCPDECLINE", DECLINE, re.compile(rf"of {_IP} from {_CLIENT}{_VIA}{_EXTRA}{_DETAIL}")),
    ("DHCPINFORM", INFORM, re.compile(rf"from {_IP}{_VIA}{_EXTRA}{_DETAIL}")),
    ("DHCPEXPIRE", EXPIRE, re.compile(rf"(?:on|of|for) {_IP} (?:to|from) {_CLIENT}(?:{_VIA})?")),
    ("BOOTREQUEST", REQUEST, re.compile(rf"from {_CLIENT}{_VIA}{_DETAIL}")),
    # Of a host with an address of its own: its name in dhcpd.conf, then its hardware address.
    (
        "BOOTREPLY",
        ACK,
        re.compile(
            rf"for {_IP} to (?P<hostname>\S+) "
            rf"\((?P<client>[0-9a-fA-F]{{2}}(?::[0-9a-fA-F]{{2}}){{5,19}})\){_VIA}"
        ),
    ),
    ("BOOTREPLY", ACK, re.compile(rf"(?:on|for) {_IP} to {_CLIENT}{_VIA}{_DETAIL}")),
)


def read(line: Line, context: Context) -> Event | None:
    """A DHCP message; None for what else the server says."""
    word, _, rest = line.text.partition(" ")
    for name, activity, pattern in _PATTERNS:
        if word == name and (match := pattern.fullmatch(rest)):
            return _event(activity, match.groupdict(), line, context)
    return read_v6(line, context)


def _event(activity: int, part: dict[str, str | None], line: Line, context: Context) -> Event:
    via = part["via"] or ""
    relay = address(via) or address(part.get("relay") or "")
    lease, state = part.get("lease"), part.get("state")
    client = part.get("client")
    mac = mac_address(client)
    # dhcpd names a client without hardware address by its identifier.
    by_uid = client is not None and mac is None
    detail = part.get("detail")
    # A release of a lease that dhcpd does not know changes nothing.
    refused = part["found"] if part.get("found") == "not found" else detail
    return dhcp_event(
        activity,
        context,
        line.stamp,
        _PRODUCT,
        activity_name="Inform Ack" if activity == OTHER else None,
        ip=part.get("ip"),
        mac=mac,
        client_uid=client if by_uid else None,
        hostname=part.get("hostname") or None,
        host=line.host,
        server_ip=part.get("server"),
        refused=refused if activity not in (DECLINE, ACK) else None,
        message=line.text,
        relay_ip=relay,
        lease_seconds=int(lease) if lease else None,
        is_renewal=state == "RENEW" if lease or state else None,
        transaction_uid=part.get("xid"),
        rest=line.rest
        | kept(
            pid=line.pid,
            interface=None if address(via) else via or None,
            offered_duration=part.get("offered"),
            client_id=part.get("uid"),
            state=state,
            detail=detail if activity in (DECLINE, ACK) else None,
        ),
        fields={"log_provider": line.program},
    )


def _at_once(records: pa.RecordBatch, settings: ParseSettings) -> Read:
    # Imported where Arrow is at hand anyway: the command line starts without it.
    from ingest.sources.dhcp.isc_dhcpd_columns import read_dhcpd

    return read_dhcpd(records, settings)


SOURCES = (
    SyslogSource(
        name="isc_dhcpd",
        programs=frozenset({"dhcpd", "dhcpd6", "dhcpdv6"}),
        product=_PRODUCT,
        reader=read,
        at_once=_at_once,
    ),
)
