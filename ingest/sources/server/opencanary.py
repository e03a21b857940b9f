"""OpenCanary, a honeypot: one JSON object for each touch of a service that nobody should touch.

https://opencanary.readthedocs.io/ and the numbers of its kinds (`logtype`) in
https://github.com/thinkst/opencanary/blob/master/opencanary/logger.py . A login to it never
succeeds. Its times are UTC without saying so.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, ClassVar
from zoneinfo import ZoneInfo

from ingest.parsing.ocsf import AUTHENTICATION, BASE, FAILURE, HTTP, NETWORK, device, kept
from ingest.parsing.source import Context, Event, Unreadable
from ingest.parsing.timestamps import Stamp, stamp_iso
from ingest.sources.cloud.common import (
    EnvelopedSource,
    Fields,
    look_text,
    take_ip,
    take_name,
    take_number,
    take_text,
)
from ingest.sources.cloud.record import CloudRecord, person
from ingest.sources.shared.http_exchange import url

_PRODUCT: Mapping[str, str] = {"name": "OpenCanary", "vendor_name": "Thinkst"}
_UTC = ZoneInfo("UTC")
LOGINS: Mapping[int, str] = MappingProxyType(
    {
        2000: "FTP",
        3001: "HTTP",
        4002: "SSH",
        6001: "Telnet",
        7001: "HTTP proxy",
        8001: "MySQL",
        9001: "SQL Server",
        9002: "SQL Server",
        12001: "VNC",
        14001: "RDP",
    }
)
"""Kinds that are a login, with the service."""
# With OCSF's number of each method.
_REQUESTS: Mapping[int, tuple[str, int]] = MappingProxyType({3000: ("GET", 3), 3001: ("POST", 6)})
TOUCHES: Mapping[int, str] = MappingProxyType(
    {
        3002: "HTTP request of an unknown method",
        3003: "HTTP redirect",
        4000: "SSH connection",
        4001: "SSH version",
        5000: "SMB file opened",
        5001: "Port scan (SYN)",
        5002: "Port scan (Nmap OS)",
        5003: "Port scan (NULL)",
        5004: "Port scan (XMAS)",
        5005: "Port scan (FIN)",
        6002: "Telnet connection",
        9003: "SQL Server connection",
        10001: "TFTP request",
        11001: "NTP monlist",
        13001: "SNMP command",
        15001: "SIP request",
        16001: "Git clone",
        17001: "Redis command",
        18001: "TCP banner: connection",
        18002: "TCP banner: keep-alive",
        18003: "TCP banner: keep-alive secret",
        18004: "TCP banner: keep-alive data",
        18005: "TCP banner: data",
        19001: "LLMNR query",
        99000: "User module",
    }
)
_HIGH = 4


def _end(fields: Fields, side: str) -> Fields | None:
    ip = take_ip(fields, f"{side}_host")
    return kept(ip=ip, port=take_number(fields, f"{side}_port", most=65535)) if ip else None


def _stamp(fields: Fields, context: Context) -> Stamp:
    text = look_text(fields, "utc_time")
    if text is None:
        return Stamp.missing(context.record.received_at, None)
    stamp = stamp_iso(text, _UTC, context.record.received_at)
    if stamp.quality == "received":
        return stamp
    take_text(fields, "utc_time")
    return Stamp.exact(stamp.time)


def _read(fields: Fields, context: Context) -> Event:
    kind = take_number(fields, "logtype")
    if kind is None:
        raise Unreadable("no number 'logtype' in the object")
    stamp = _stamp(fields, context)
    source, target = _end(fields, "src"), _end(fields, "dst")
    node = take_name(fields, "node_id")
    record = CloudRecord(_PRODUCT, fields, stamp)
    login, request = LOGINS.get(kind), _REQUESTS.get(kind)
    title = f"{login} login attempt" if login else TOUCHES.get(kind) or f"OpenCanary {kind}"
    common: dict[str, Any] = {
        "about": {"event_code": str(kind)},
        "source": source,
        "target": target,
        "device": device(node or context.host),
        # Nobody has business there, so that each touch is one to look at.
        "severity": _HIGH if source else 1,
    }
    if request:
        method, activity = request
        path = take_text(fields, "logdata", "PATH")
        host = (target or {}).get("ip")
        http_request = kept(
            http_method=method,
            url=url(path, method, host) if path and path.startswith("/") else None,
        )
        common |= {"request": http_request, "agent": take_text(fields, "logdata", "USERAGENT")}
        if not login:
            return record.event(HTTP, activity, message=f"HTTP {method} request", **common)
    if login:
        name = take_text(fields, "logdata", "USERNAME")
        who = person(name)
        return record.event(
            AUTHENTICATION,
            1,
            message=title,
            status=FAILURE,
            user=who,
            service=login,
            is_remote=True,
            **common,
        )
    if source and target:
        return record.event(NETWORK, 6, message=title, **common)
    return record.event(BASE, 0, message=title, **common)


@dataclass(frozen=True)
class OpenCanary(EnvelopedSource):
    """Events of an OpenCanary honeypot."""

    name: str = "opencanary"
    time_keys: ClassVar[tuple[str, ...]] = ("utc_time", "local_time")

    def is_own(self, fields: Fields) -> bool:
        return "logtype" in fields

    def read(self, fields: Fields, context: Context) -> Event:
        return _read(fields, context)


SOURCES = (OpenCanary(),)
