"""Where a process listens, as the machine's users see it."""

from __future__ import annotations

import ipaddress

import psutil


def listening(process: psutil.Process) -> set[tuple[str, int]]:
    """Addresses and ports; Java gives an address of IPv4 in IPv6's words."""
    sockets = [one for one in process.net_connections() if one.status == psutil.CONN_LISTEN]
    return {(_plain(one.laddr.ip), one.laddr.port) for one in sockets}


def _plain(ip: str) -> str:
    mapped = getattr(ipaddress.ip_address(ip), "ipv4_mapped", None)
    return str(mapped or ip)
