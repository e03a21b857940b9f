"""ISC dhcpd's words about DHCPv6 (`server/dhcpv6.c` of ISC DHCP 4.4), read for `isc_dhcpd`.

A client is known by its DUID; where that holds an Ethernet address, it is the client's.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from ingest.parsing.ocsf import OTHER, address, kept
from ingest.parsing.source import Context, Event
from ingest.parsing.syslog import Line
from ingest.sources.dhcp.dhcp_event import (
    ACK,
    DECLINE,
    DISCOVER,
    INFORM,
    OFFER,
    RELEASE,
    REQUEST,
    dhcp_event,
    mac_of_duid,
)

_PRODUCT: Mapping[str, str] = {"name": "ISC DHCP", "vendor_name": "ISC"}
_ADDRESS = r"(?P<ip>[0-9a-fA-F:.]{2,45})"
_DUID = r"(?P<duid>[0-9a-fA-F:]{2,400})"
GRANT = re.compile(
    r"(?P<word>Advertise|Reply|Renew|Rebind)(?:d)? (?P<kind>NA|TA|PD): "
    rf"(?:address|prefix) {_ADDRESS}(?:/(?P<length>\d{{1,3}}))? to client with duid {_DUID}"
    r"(?: iaid = (?P<iaid>-?\d{1,10}))?"
    r"(?: valid for (?P<lease>\d{1,10}) seconds| (?P<static>static))?",
    re.ASCII,
)
_MESSAGE = re.compile(
    r"(?:Encapsulated )?(?P<word>Solicit|Request|Confirm|Renew|Rebind|Release|Decline|"
    rf"Information-request) message from {_ADDRESS} port (?P<port>\d{{1,5}})"
    rf"(?: from client DUID {_DUID})?(?:, transaction ID (?P<xid>0x[0-9A-Fa-f]{{1,8}}))?",
    re.ASCII,
)
_ENDED = re.compile(
    rf"Client {_DUID} (?P<word>releases|declines|reports) (?:address |prefix )?{_ADDRESS}"
    r"(?:/\d{1,3})?(?P<rest>.{0,200})",
    re.ASCII,
)
_SENT = re.compile(
    rf"Sending (?P<word>Advertise|Reply|Relay-reply|DHCPv4-response) (?:message )?to {_ADDRESS} "
    r"port (?P<port>\d{1,5})(?:, transaction ID (?P<xid>0x[0-9A-Fa-f]{1,8}))?",
    re.ASCII,
)
_RELAYED = re.compile(
    rf"(?P<word>Relay-forward|DHCPv4-query) message from {_ADDRESS} port (?P<port>\d{{1,5}})"
    r"(?:, link address (?P<link>[0-9a-fA-F:.]{2,45}), peer address (?P<peer>[0-9a-fA-F:.]{2,45}))?"
    r"(?:, transaction ID (?P<xid>0x[0-9A-Fa-f]{1,8}))?",
    re.ASCII,
)
_TALK: Mapping[str, int] = {
    "Solicit": DISCOVER,
    "Request": REQUEST,
    "Confirm": REQUEST,
    "Renew": REQUEST,
    "Rebind": REQUEST,
    "Release": RELEASE,
    "Decline": DECLINE,
    "Information-request": INFORM,
}


def read_v6(line: Line, context: Context) -> Event | None:
    """A grant, a client's message or the end of a lease; None for what else is said."""
    readers = (
        (GRANT, _grant),
        (_MESSAGE, _message),
        (_ENDED, _ended),
        (_SENT, _passed_on),
        (_RELAYED, _passed_on),
    )
    for pattern, make in readers:
        match = pattern.fullmatch(line.text)
        if match:
            return make(match.groupdict(), line, context)
    return None


def _octets(duid: str | None) -> bytes:
    try:
        # dhcpd leaves out a leading zero of an octet.
        return bytes(int(word, 16) for word in (duid or "").split(":") if word)
    except ValueError:
        return b""


def _make(activity: int, part: dict[str, str | None], line: Line, context: Context) -> Event | None:
    duid = _octets(part.get("duid"))
    ip = address(part["ip"] or "")
    if ip is None:
        return None
    # A delegated prefix belongs to a network behind the client, so it is no lease of an address.
    prefix = part.get("kind") == "PD"
    lease, detail = part.get("lease"), part.get("rest") or ""
    return dhcp_event(
        OTHER if prefix else activity,
        context,
        line.stamp,
        _PRODUCT,
        activity_name=f"{part['word']} prefix" if prefix else None,
        ip=ip,
        mac=mac_of_duid(duid),
        client_uid=duid.hex(":") or None,
        host=line.host,
        lease_seconds=int(lease) if lease else None,
        # dhcpd tells in the same line that it did not heed it: `..., which is not leased to it.`
        refused=detail.strip(" ,.") if " not " in detail else None,
        message=line.text,
        transaction_uid=part.get("xid"),
        rest=line.rest
        | kept(
            pid=line.pid,
            iaid=part.get("iaid"),
            prefix_length=part.get("length"),
            port=part.get("port"),
            static=part.get("static"),
        ),
        fields={"log_provider": line.program},
    )


def _grant(part: dict[str, str | None], line: Line, context: Context) -> Event | None:
    return _make(OFFER if part["word"] == "Advertise" else ACK, part, line, context)


def _message(part: dict[str, str | None], line: Line, context: Context) -> Event | None:
    """What a client asked from its own address, which says nothing of a leased one."""
    return _make(_TALK[part["word"] or ""], part, line, context)


def _passed_on(part: dict[str, str | None], line: Line, context: Context) -> Event | None:
    """What server and relay send on: it holds a client's message, which follows by itself."""
    # Who asks is behind the relay, whose own address is none of a client.
    peer = part.get("peer") or part["ip"] or ""
    ip = address(peer)
    if ip is None:
        return None
    return dhcp_event(
        OTHER,
        context,
        line.stamp,
        _PRODUCT,
        activity_name=part["word"],
        ip=ip,
        mac=None,
        host=line.host,
        message=line.text,
        transaction_uid=part.get("xid"),
        rest=line.rest
        | kept(
            pid=line.pid,
            port=part.get("port"),
            link_address=part.get("link"),
            relay=part["ip"] if part.get("peer") else None,
        ),
        fields={"log_provider": line.program},
    )


def _ended(part: dict[str, str | None], line: Line, context: Context) -> Event | None:
    return _make(RELEASE if part["word"] == "releases" else DECLINE, part, line, context)
