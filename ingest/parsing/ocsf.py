"""Building events under OCSF 1.8.0 names (https://schema.ocsf.io/1.8.0)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from importlib.resources import files
from ipaddress import IPv6Address, ip_address
from types import MappingProxyType
from typing import Any, NamedTuple

import msgspec

from ingest.parsing.source import Event
from ingest.parsing.strict_json import encode
from ingest.parsing.timestamps import Stamp

VERSION = "1.8.0"
BASE, FILE, KERNEL_EXTENSION, KERNEL, _MEMORY, MODULE = 0, 1001, 1002, 1003, 1004, 1005
JOB, PROCESS, EVENT_LOG, SCRIPT, PERIPHERAL = 1006, 1007, 1008, 1009, 1010
FINDING = 2004
ACCOUNT, AUTHENTICATION, AUTHORIZATION, ENTITY, USER_ACCESS, GROUP = (
    3001,
    3002,
    3003,
    3004,
    3005,
    3006,
)
NETWORK, HTTP, DNS, DHCP, RDP, SMB, SSH, FTP, EMAIL = (
    4001,
    4002,
    4003,
    4004,
    4005,
    4006,
    4007,
    4008,
    4009,
)
NTP, TUNNEL = 4013, 4014
INVENTORY, USER_INVENTORY, CONFIG, SOFTWARE = 5001, 5003, 5019, 5020
WEB_RESOURCE, LIFECYCLE, API, DATASTORE, FILE_HOSTING = 6001, 6002, 6003, 6005, 6006
SCAN, APPLICATION_ERROR = 6007, 6008
REG_KEY, REG_VALUE, WIN_RESOURCE, WIN_SERVICE = 201001, 201002, 201003, 201004
UNKNOWN, SUCCESS, FAILURE = 0, 1, 2
INFORMATIONAL, LOW, MEDIUM, HIGH, CRITICAL, FATAL = 1, 2, 3, 4, 5, 6
ALLOWED, DENIED, OBSERVED = 1, 2, 3

STATUS = MappingProxyType({UNKNOWN: "Unknown", SUCCESS: "Success", FAILURE: "Failure", 99: "Other"})
SEVERITY = MappingProxyType(
    {
        0: "Unknown",
        1: "Informational",
        2: "Low",
        3: "Medium",
        4: "High",
        5: "Critical",
        6: "Fatal",
        99: "Other",
    }
)
ACTION = MappingProxyType(
    {0: "Unknown", 1: "Allowed", 2: "Denied", 3: "Observed", 4: "Modified", 99: "Other"}
)
DISPOSITION = MappingProxyType(
    {
        0: "Unknown",
        1: "Allowed",
        2: "Blocked",
        3: "Quarantined",
        5: "Deleted",
        6: "Dropped",
        15: "Detected",
        16: "No Action",
        17: "Logged",
        19: "Alert",
        21: "Reset",
        25: "Rejected",
        26: "Unauthorized",
        27: "Error",
        99: "Other",
    }
)


class _Kind(NamedTuple):
    """An OCSF class: its name, its category, its activities, and columns it has no place for."""

    name: str
    category_uid: int
    activities: Mapping[int, str]
    without: frozenset[str]


def _kinds() -> Iterator[tuple[int, _Kind]]:
    # Not by path: on a cluster's workers this package lies in an archive.
    stored = msgspec.json.decode(files("ingest.parsing").joinpath("classes.json").read_bytes())
    for uid, about in stored.items():
        yield (
            int(uid),
            _Kind(
                about["name"],
                about["category_uid"],
                MappingProxyType({int(key): name for key, name in about["activities"].items()}),
                frozenset(about["without"]),
            ),
        )


KINDS: Mapping[int, _Kind] = MappingProxyType(dict(_kinds()))
"""Every class of OCSF 1.8.0 that is neither deprecated nor of drones or remediation."""

HTTP_METHODS: Mapping[str, int] = MappingProxyType(
    {name.upper(): uid for uid, name in KINDS[HTTP].activities.items() if 0 < uid < 99}
)
"""The methods OCSF knows, and the activity each is."""
OTHER = 99

OBSERVABLE = MappingProxyType(
    {
        1: "Hostname",
        2: "IP Address",
        3: "MAC Address",
        4: "User Name",
        5: "Email Address",
        6: "URL String",
        7: "File Name",
        8: "Hash",
        9: "Process Name",
        10: "Resource UID",
        13: "Command Line",
        16: "HTTP User-Agent",
        19: "User Credential ID",
        30: "Fingerprint",
        36: "Script Content",
        37: "Serial Number",
        42: "Message UID",
        45: "File Path",
        46: "Registry Key Path",
    }
)
A_HOST, AN_IP, A_MAC, A_USER, A_MAIL, A_URL, A_FILE, A_HASH = 1, 2, 3, 4, 5, 6, 7, 8
A_PROCESS, A_RESOURCE, A_COMMAND, AN_AGENT, A_CREDENTIAL = 9, 10, 13, 16, 19
A_FINGERPRINT, A_SCRIPT, A_SERIAL, A_MESSAGE, A_PATH, A_KEY = 30, 36, 37, 42, 45, 46


def event(
    class_uid: int,
    activity_id: int,
    stamp: Stamp,
    *,
    activity_name: str | None = None,
    severity_id: int = INFORMATIONAL,
    status_id: int | None = None,
    action_id: int | None = None,
    disposition_id: int | None = None,
    more: Mapping[str, Any] | None = None,
    **columns: Any,
) -> Event:
    """An event of a class, with the names that belong to its ids.

    `columns` are columns of silver.event; a struct may only have the leaves that
    its column has. `more` holds what OCSF has a place for and silver.event has no
    column for, in OCSF's own shape (times in milliseconds since 1970).
    """
    kind = KINDS[class_uid]
    if activity_name is None:
        # An id that the class does not have raises: that is an error of the parser, not of the log.
        activity_name = "Other" if activity_id == OTHER else kind.activities[activity_id]
    row = {
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
    if action_id is not None:
        row["action_id"], row["action"] = action_id, ACTION[action_id]
    if disposition_id is not None:
        row["disposition_id"], row["disposition"] = disposition_id, DISPOSITION[disposition_id]
    if more:
        row["more"] = encode(more)
    return row


def metadata(product: Mapping[str, str], stamp: Stamp, **fields: str | None) -> dict[str, Any]:
    """The metadata of an event of `product`."""
    return {
        "version": VERSION,
        "product": product,
        "original_time": stamp.original,
        **fields,
    }


def observables(*candidates: tuple[str, int, Any]) -> list[dict[str, Any]] | None:
    """Observables from (OCSF path, type_id, value), without the empty ones and repeats."""
    # Through a dictionary and not a set, so that the order stays and two runs give the same row.
    return [_observable(*fromkey) for fromkey in dict.fromkeys(candidates) if fromkey[2]] or None


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
    # A zone means something on one machine only, and would keep equal addresses apart.
    if "%" in text:
        return None
    try:
        ipv4_mapped = ip_address(text)
    except ValueError:
        return None
    if isinstance(ipv4_mapped, IPv6Address) and ipv4_mapped.ipv4_mapped is not None:
        ipv4_mapped = ipv4_mapped.ipv4_mapped
    return str(ipv4_mapped)


_SEPARATORS = re.compile(r"[:.-]")
_HEX12 = re.compile(r"[0-9a-f]{12}")


@lru_cache(maxsize=65536)
def mac_address(text: str | None) -> str | None:
    """A hardware address as `02:42:ac:77:0b:19`, or None if `text` is not one of six octets."""
    # Colons, dashes, and Cisco's points in groups of four are the same address.
    digits = _SEPARATORS.sub("", (text or "").lower())
    if not _HEX12.fullmatch(digits):
        return None
    return ":".join(digits[i : i + 2] for i in range(0, 12, 2))


def first(values: Iterable[str | None]) -> str | None:
    """The first value there is."""
    return next((value for value in values if value), None)
