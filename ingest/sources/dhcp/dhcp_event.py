"""DHCP events (OCSF class 4004), the same from every server's dialect.

The client is the source endpoint: the address it asks for or holds, its
hardware address, the name it gave. The server is the destination.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ingest.parsing.ocsf import (
    A_HOST,
    A_MAC,
    AN_IP,
    DHCP,
    FAILURE,
    SUCCESS,
    address,
    device,
    event,
    mac_address,
    metadata,
    observables,
    unmapped,
)
from ingest.parsing.source import Context, Event, Unreadable
from ingest.parsing.timestamps import Stamp

# The order is that of OCSF's activity_id of class 4004.
DISCOVER, OFFER, REQUEST, DECLINE, ACK, NAK, RELEASE, INFORM, EXPIRE = range(1, 10)
FAILING = frozenset({DECLINE, NAK})
INFINITE = 2**32 - 1
"""Seconds of a lease without end (RFC 2131, section 3.3)."""
DUID_LLT, DUID_LL, ETHERNET = 1, 3, 1


def mac_of_duid(duid: bytes) -> str | None:
    """The Ethernet address in a DHCPv6 client's identifier (RFC 8415, section 11), if in it."""
    kind, hardware = int.from_bytes(duid[:2]), int.from_bytes(duid[2:4])
    start = {DUID_LLT: 8, DUID_LL: 4}.get(kind)
    # A DUID of another length is no Ethernet address: half of one would name the wrong device.
    if start is None or hardware != ETHERNET or len(duid) != start + 6:
        return None
    return mac_address(duid[start:].hex())


def dhcp_event(
    activity_id: int,
    context: Context,
    stamp: Stamp,
    product: Mapping[str, str],
    *,
    ip: str | None = None,
    mac: str | None = None,
    hostname: str | None = None,
    host: str | None = None,
    server_ip: str | None = None,
    client_uid: str | None = None,
    lease_seconds: int | None = None,
    refused: str | None = None,
    rest: Mapping[str, Any] | None = None,
    fields: Mapping[str, str | None] | None = None,
    **columns: Any,
) -> Event:
    """One DHCP message as an event.

    `ip` and `mac` may be spelled in any way; what is neither raises
    `Unreadable`. `host` is the machine that logged. `refused` says why the
    server would not do it: the event then has the status failure, and changes
    no lease. Only a granting ACK has a lease length, from the settings where
    the log has none.
    """
    # A lease under a wrong address would name the wrong device for every event in its span.
    if ip is not None and (ip := address(spelled := ip)) is None:
        raise Unreadable(f"'{spelled[:40]}' where an IP address should stand")
    if mac is not None and (mac := mac_address(spelled := mac)) is None:
        raise Unreadable(f"'{spelled[:40]}' where a hardware address should stand")
    if activity_id == ACK and lease_seconds is None:
        # Not every log has the length (dnsmasq's has not); then the settings say it.
        lease_seconds = context.settings.lease_seconds(context.record.source)
    failed = refused is not None or activity_id in FAILING
    # OCSF wants an endpoint to have more than a hardware address, hence the uid.
    uid = client_uid or (None if ip or hostname else mac)
    client = {"ip": ip, "mac": mac, "hostname": hostname, "uid": uid}
    server = {"ip": server_ip, "hostname": host}
    if not any((*client.values(), *server.values())):
        server["svc_name"] = product["name"]  # OCSF asks for one side; this one wrote the line
    return event(
        DHCP,
        activity_id,
        stamp,
        status_id=FAILURE if failed else SUCCESS,
        status_detail=refused,
        metadata=metadata(product, stamp, **(fields or {})),
        src_endpoint=client if any(client.values()) else None,
        dst_endpoint=server if any(server.values()) else None,
        device=device(host),
        lease_dur=lease_seconds if activity_id == ACK else None,
        observables=observables(
            ("src_endpoint.ip", AN_IP, ip),
            ("src_endpoint.mac", A_MAC, mac),
            ("src_endpoint.hostname", A_HOST, hostname),
        ),
        unmapped=unmapped(rest or {}),
        **columns,
    )
