"""Building events under OCSF 1.8.0 names (https://schema.ocsf.io/1.8.0)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from ipaddress import IPv6Address, ip_address
from types import MappingProxyType
from typing import Any, NamedTuple

from ingest.source import Event
from ingest.strict import encode
from ingest.time import Stamp

VERSION = "1.8.0"
BASE, PROCESS, AUTHENTICATION = 0, 1007, 3002
NETWORK, HTTP, DNS, DHCP, API = 4001, 4002, 4003, 4004, 6003
UNKNOWN, SUCCESS, FAILURE = 0, 1, 2
INFORMATIONAL, LOW, MEDIUM, HIGH = 1, 2, 3, 4

STATUS = MappingProxyType({UNKNOWN: "Unknown", SUCCESS: "Success", FAILURE: "Failure"})
SEVERITY = MappingProxyType(
    {
        0: "Unknown",
        1: "Informational",
        2: "Low",
        3: "Medium",
        4: "High",
        5: "Critical",
        6: "Fatal",
    }
)


class Kind(NamedTuple):
    """An OCSF class: its name, its category and its activities in order of their ids."""

    name: str
    category_uid: int
    activities: tuple[str, ...]


KINDS: Mapping[int, Kind] = MappingProxyType(
    {
        BASE: Kind("Base Event", 0, ("Unknown",)),
        PROCESS: Kind(
            "Process Activity",
            1,
            ("Unknown", "Launch", "Terminate", "Open", "Inject", "Set User ID"),
        ),
        AUTHENTICATION: Kind(
            "Authentication",
            3,
            (
                "Unknown",
                "Logon",
                "Logoff",
                "Authentication Ticket",
                "Service Ticket Request",
                "Service Ticket Renew",
                "Preauth",
                "Account Switch",
            ),
        ),
        NETWORK: Kind(
            "Network Activity",
            4,
            ("Unknown", "Open", "Close", "Reset", "Fail", "Refuse", "Traffic", "Listen"),
        ),
        HTTP: Kind(
            "HTTP Activity",
            4,
            (
                "Unknown",
                "Connect",
                "Delete",
                "Get",
                "Head",
                "Options",
                "Post",
                "Put",
                "Trace",
                "Patch",
            ),
        ),
        DNS: Kind("DNS Activity", 4, ("Unknown", "Query", "Response", "", "", "", "Traffic")),
        DHCP: Kind(
            "DHCP Activity",
            4,
            (
                "Unknown",
                "Discover",
                "Offer",
                "Request",
                "Decline",
                "Ack",
                "Nak",
                "Release",
                "Inform",
                "Expire",
            ),
        ),
        API: Kind("API Activity", 6, ("Unknown", "Create", "Read", "Update", "Delete")),
    }
)
OTHER = 99

OBSERVABLE = MappingProxyType(
    {
        1: "Hostname",
        2: "IP Address",
        3: "MAC Address",
        4: "User Name",
        6: "URL String",
        10: "Resource UID",
        13: "Command Line",
        16: "HTTP User-Agent",
        19: "User Credential ID",
    }
)
A_HOST, AN_IP, A_MAC, A_USER, A_URL, A_RESOURCE = 1, 2, 3, 4, 6, 10
A_COMMAND, AN_AGENT, A_CREDENTIAL = 13, 16, 19


def event(
    class_uid: int,
    activity_id: int,
    stamp: Stamp,
    *,
    activity_name: str | None = None,
    severity_id: int = INFORMATIONAL,
    status_id: int | None = None,
    **columns: Any,
) -> Event:
    """An event of a class, with the names that belong to its ids."""
    kind = KINDS[class_uid]
    if activity_name is None:
        activity_name = "Other" if activity_id == OTHER else kind.activities[activity_id]
    return {
        "class_uid": class_uid,
        "class_name": kind.name,
        "category_uid": kind.category_uid,
        "activity_id": activity_id,
        "activity_name": activity_name,
        "type_uid": class_uid * 100 + activity_id,
        "severity_id": severity_id,
        "severity": SEVERITY[severity_id],
        "status_id": status_id,
        "status": None if status_id is None else STATUS[status_id],
        "time": stamp.time,
        "time_quality": stamp.quality,
        **columns,
    }


def metadata(product: Mapping[str, str], stamp: Stamp, **fields: str | None) -> dict[str, Any]:
    """The metadata of an event of `product`."""
    return {
        "version": VERSION,
        "product": product,
        "original_time": stamp.original,
        **fields,
    }


def observables(*found: tuple[str, int, Any]) -> list[dict[str, Any]] | None:
    """Observables from (OCSF path, type_id, value), without the empty ones and repeats."""
    return [_observable(*one) for one in dict.fromkeys(found) if one[2]] or None


@lru_cache(maxsize=65536)
def _observable(name: str, type_id: int, value: str) -> dict[str, Any]:
    return {"name": name, "type": OBSERVABLE[type_id], "type_id": type_id, "value": value}


def unmapped(fields: Mapping[str, Any]) -> str | None:
    """What found no column, as JSON text; None if nothing is left."""
    return encode(fields) if fields else None


def kept(**fields: Any) -> dict[str, Any]:
    """The fields that have a value."""
    return {name: value for name, value in fields.items() if value is not None}


def device(hostname: str | None) -> dict[str, Any] | None:
    """The machine that logged; what kind of machine it is (`type_id`), logs do not say."""
    return {"hostname": hostname, "type_id": 0} if hostname else None


@lru_cache(maxsize=65536)
def address(text: str) -> str | None:
    """An IP address in its one canonical spelling, or None if `text` is not one.

    An IPv4 address inside an IPv6 one (`::ffff:10.0.0.1`) becomes plain IPv4,
    so that both spellings of a client meet. A zone (`%eth0`) is refused.
    """
    if "%" in text:
        return None
    try:
        found = ip_address(text)
    except ValueError:
        return None
    if isinstance(found, IPv6Address) and found.ipv4_mapped is not None:
        found = found.ipv4_mapped
    return str(found)


_SEPARATORS = re.compile(r"[:.-]")
_HEX12 = re.compile(r"[0-9a-f]{12}")


@lru_cache(maxsize=65536)
def mac_address(text: str | None) -> str | None:
    """A hardware address as `02:42:ac:77:0b:19`, or None if `text` is not one of six octets."""
    digits = _SEPARATORS.sub("", (text or "").lower())
    if not _HEX12.fullmatch(digits):
        return None
    return ":".join(digits[i : i + 2] for i in range(0, 12, 2))


def first(values: Iterable[str | None]) -> str | None:
    """The first value there is."""
    return next((value for value in values if value), None)
