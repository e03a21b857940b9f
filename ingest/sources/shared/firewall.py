"""What logs of firewalls, flows and network sensors have in common."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any

from ingest.parsing.ocsf import (
    A_HOST,
    A_MAC,
    A_USER,
    ALLOWED,
    AN_IP,
    BASE,
    CRITICAL,
    DENIED,
    EMAIL,
    FAILURE,
    FATAL,
    HIGH,
    HTTP,
    INFORMATIONAL,
    KINDS,
    LOW,
    MEDIUM,
    NETWORK,
    OTHER,
    SUCCESS,
    TUNNEL,
    UNKNOWN,
    address,
    event,
    kept,
    mac_address,
    observables,
)
from ingest.parsing.source import Event
from ingest.parsing.strict_json import integral
from ingest.parsing.timestamps import Stamp

_PORT = 65535
_INT64 = 2**63
OPEN, CLOSE, RESET, FAIL, REFUSE, TRAFFIC = 1, 2, 3, 4, 5, 6
LOGON, LOGOFF = 1, 2
NETWORK_CATEGORY = 4
_BLOCKED = 2
"""OCSF's disposition for what a firewall did not let through."""

# https://www.iana.org/assignments/protocol-numbers, those that firewalls name.
_PROTOCOLS: Mapping[int, str] = MappingProxyType(
    {
        0: "hopopt",
        1: "icmp",
        2: "igmp",
        4: "ipip",
        6: "tcp",
        8: "egp",
        17: "udp",
        # The Reliable Data Protocol (RFC 908), not Remote Desktop.
        27: "rdp",
        41: "ipv6",
        46: "rsvp",
        47: "gre",
        50: "esp",
        51: "ah",
        58: "ipv6-icmp",
        88: "eigrp",
        89: "ospf",
        94: "ipip",
        103: "pim",
        108: "ipcomp",
        112: "vrrp",
        115: "l2tp",
        132: "sctp",
        136: "udplite",
    }
)
_NUMBERS: Mapping[str, int] = MappingProxyType(
    # Two numbers are called ipip, 4 and 94; the name alone means the former.
    {name: number for number, name in _PROTOCOLS.items() if number != 94}
    | {"icmpv6": 58, "icmp6": 58, "ipv6-icmp": 58, "ospfigp": 89, "igrp": 88, "ipinip": 4}
)
SYSLOG_SEVERITY: Mapping[int, int] = MappingProxyType(
    {
        0: FATAL,
        1: CRITICAL,
        2: CRITICAL,
        3: HIGH,
        4: MEDIUM,
        5: LOW,
        6: INFORMATIONAL,
        7: INFORMATIONAL,
    }
)
"""Syslog's levels as OCSF severities."""
SEVERITY_NAMES: Mapping[str, int] = MappingProxyType(
    {
        **dict.fromkeys(("emergency", "emerg", "fatal"), FATAL),
        **dict.fromkeys(("alert", "critical", "crit", "very-high", "very high"), CRITICAL),
        **dict.fromkeys(("error", "err", "high", "major"), HIGH),
        **dict.fromkeys(("warning", "warn", "medium", "elevated"), MEDIUM),
        **dict.fromkeys(("notice", "notification", "low", "minor"), LOW),
        **dict.fromkeys(
            ("information", "informational", "info", "debug", "debugging", "unknown"),
            INFORMATIONAL,
        ),
    }
)
# Also what was only watched, such as `monitor`, `log`, `alert` and `detect`: nothing was stopped.
_ALLOW = re.compile(
    r"accept(?:ed)?|allow(?:ed)?|pass(?:ed|through)?|permit(?:ted)?|est-allowed|trust(?:ed)?"
    r"|fastpath|bypass(?:ed)?|continue|monitor(?:ed)?|log(?:ged)?|alert|start|forward(?:ed)?"
    r"|success(?:ful)?|detect(?:ed)?",
    re.IGNORECASE,
)
_DENY = re.compile(
    r"den(?:y|ied)|drop(?:ped)?|block(?:ed)?|reject(?:ed)?|refuse[d]?|discard(?:ed)?|prevent(?:ed)?"
    r"|quarantine[d]?|sinkhole[d]?|kill(?:ed)?|blackhole[d]?|clear_session|shun(?:ned)?",
    re.IGNORECASE,
)
_DENY_PREFIX = re.compile(r"(?:block|drop|den[yi]|reject|reset|malware block)", re.IGNORECASE)
_DIGITS = re.compile(r"\d{1,19}", re.ASCII)
_NOTHING = frozenset({"", "-", "N/A", "n/a"})
"""How products write that there is no value."""


class Fields(dict[str, Any]):
    """A record's fields under the product's names. What is taken is gone; the rest is unmapped.

    A value that is not what is asked for stays where it is.
    """

    def text(self, *names: str) -> str | None:
        """The first of `names` that has words in it."""
        for name in names:
            value = self.get(name)
            if type(value) is str and value not in _NOTHING:
                del self[name]
                return value
        return None

    def number(self, *names: str, most: int = _INT64 - 1) -> int | None:
        """The first of `names` that is a whole number from 0 to `most`, or text of one."""
        for name in names:
            value = integral(self.get(name))
            # Only ASCII digits: `int` would take those of other scripts, and underscores.
            if type(value) is str and _DIGITS.fullmatch(value):
                value = int(value)
            if type(value) is int and 0 <= value <= most:
                del self[name]
                return value
        return None

    def port(self, *names: str) -> int | None:
        """The first of `names` that is a port."""
        return self.number(*names, most=_PORT)

    def ip(self, *names: str) -> str | None:
        """The first of `names` that is an address."""
        for name in names:
            value = self.get(name)
            ip_address = address(value) if type(value) is str else None
            if ip_address:
                del self[name]
                return ip_address
        return None

    def mac(self, *names: str) -> str | None:
        """The first of `names` that is a hardware address."""
        for name in names:
            value = self.get(name)
            clean_mac = mac_address(value) if type(value) is str else None
            if clean_mac:
                del self[name]
                return clean_mac
        return None

    def child(self, name: str) -> Fields:
        """The object `name`, taken out; empty where it is none."""
        value = self.get(name)
        if type(value) is not dict:
            return Fields()
        del self[name]
        return Fields(value)

    def keep(self, name: str, value: Any) -> None:
        """Put back what is left of `name`, where anything is."""
        if value not in (None, "", {}, []):
            self[name] = value

    def left(self) -> dict[str, Any]:
        """What has not been taken, without empty values."""
        return {name: value for name, value in self.items() if value not in (None, "")}


def located(
    class_uid: int,
    activity_id: int,
    stamp: Stamp,
    *,
    activity_name: str | None = None,
    **columns: Any,
) -> Event:
    """An event; of no network class where neither of its ends is known, which OCSF asks for.

    A tunnel needs the end that opened it, HTTP and mail what they are named for.
    """
    ends = columns.get("src_endpoint")
    if class_uid != TUNNEL:
        ends = ends or columns.get("dst_endpoint")
    without = {HTTP: ("http_request", "http_response"), EMAIL: ("email",)}.get(class_uid)
    if without and not any(columns.get(name) for name in without):
        class_uid, activity_id, activity_name = NETWORK, TRAFFIC, None
    if KINDS[class_uid].category_uid == NETWORK_CATEGORY and not ends:
        class_uid, activity_id, activity_name = BASE, UNKNOWN, None
    return event(class_uid, activity_id, stamp, activity_name=activity_name, **columns)


def forwarded(fields: Fields, name: str) -> list[str] | None:
    """The addresses in `name`, one or several between commas; None where others are among them."""
    value = fields.get(name)
    words = [address(word.strip()) for word in value.split(",")] if type(value) is str else []
    addresses = [word for word in words if word]
    # With something else among them nobody knows which hop is which, so it stays as written.
    if not addresses or len(addresses) < len(words):
        return None
    del fields[name]
    return addresses


# By the number of hexadecimal digits.
_HASHES = {32: "MD5", 40: "SHA-1", 64: "SHA-256", 128: "SHA-512"}
_HEX = re.compile(r"[0-9a-fA-F]+")


def file_hash(value: object) -> list[dict[str, str]] | None:
    """A file's hash, of the kind that its length tells; None for what is none."""
    if type(value) is not str or len(value) not in _HASHES or not _HEX.fullmatch(value):
        return None
    return [{"algorithm": _HASHES[len(value)], "value": value}]


def file_hashes(values: Iterable[object]) -> list[dict[str, str]]:
    """Those of several that are hashes."""
    return [each for value in values for each in file_hash(value) or ()]


def _protocol(value: str | int | None) -> tuple[str | None, int | None]:
    """A protocol's name, lower case, and number; `value` is either."""
    if value is None:
        return None, None
    if type(value) is str and not _DIGITS.fullmatch(value):
        name = value.lower()
        return name, _NUMBERS.get(name)
    number = int(value)
    # The field of an IP header has eight bits.
    return (_PROTOCOLS.get(number), number) if 0 <= number <= 255 else (None, None)


def connection(spoken: str | int | None, ip: str | None, **more: Any) -> dict[str, Any] | None:
    """The connection; None where nothing is known of it. `ip` is one of its ends."""
    name, number = _protocol(spoken)
    more = kept(**more)
    if name is None and number is None and not more:
        return None
    results: dict[str, Any] = {
        "protocol_name": name,
        "protocol_num": number,
        "protocol_ver_id": None if ip is None else 6 if ":" in ip else 4,
        "direction_id": 0,
        "direction": "Unknown",
    }
    return results | more


INBOUND: Mapping[str, Any] = MappingProxyType({"direction_id": 1, "direction": "Inbound"})
OUTBOUND: Mapping[str, Any] = MappingProxyType({"direction_id": 2, "direction": "Outbound"})


def traffic(
    out: int | None = None,
    back: int | None = None,
    packets_out: int | None = None,
    packets_in: int | None = None,
    *,
    total: int | None = None,
    packets: int | None = None,
) -> dict[str, Any] | None:
    """Volumes as the source endpoint sees them: `out` is what it sent."""
    if total is None:
        total = _sum(out, back)
    if packets is None:
        packets = _sum(packets_out, packets_in)
    leaves = kept(
        bytes=total,
        bytes_in=back,
        bytes_out=out,
        packets=packets,
        packets_in=packets_in,
        packets_out=packets_out,
    )
    return leaves or None


def _sum(one: int | None, other: int | None) -> int | None:
    # A sum of one side only would look like all of the traffic.
    if one is None or other is None or one + other >= _INT64:
        return None
    return one + other


def endpoint(**leaves: Any) -> dict[str, Any] | None:
    """An endpoint of the leaves that have a value; None where none has.

    OCSF wants more than ports, interfaces and zones to call it an endpoint.
    """
    given_columns = kept(**leaves)
    if not given_columns.keys() & {"ip", "hostname", "name", "uid", "interface_name"}:
        if "mac" not in given_columns:
            return None
        # OCSF wants an endpoint to have more than a hardware address.
        given_columns["uid"] = given_columns["mac"]
    return given_columns


def verdict(word: str | None) -> bool | None:
    """Whether a product's word for what it did means that it let pass; None if it says neither."""
    if not word:
        return None
    word = word.strip()
    # The whole word: `not allowed` must not count as allowed. Denials may have more words behind.
    if _ALLOW.fullmatch(word):
        return True
    if _DENY.fullmatch(word) or _DENY_PREFIX.match(word):
        return False
    return None


def firewall_disposition(allowed: bool | None) -> dict[str, Any]:
    """Columns for what a firewall decided."""
    if allowed is None:
        return {}
    return {
        "action_id": ALLOWED if allowed else DENIED,
        "disposition_id": ALLOWED if allowed else _BLOCKED,
        "status_id": SUCCESS if allowed else FAILURE,
    }


def severity(name: str | None, default: int = INFORMATIONAL) -> int:
    """A level's name as OCSF severity."""
    return SEVERITY_NAMES.get((name or "").strip().lower(), default)


def code(value: int | None) -> int | None:
    """A DNS response code as OCSF numbers them."""
    # 12 to 15 are not assigned (IANA, DNS RCODEs).
    in_range = value is None or value <= 11 or 16 <= value <= 25
    return value if in_range else OTHER


def split_user(name: str | None) -> dict[str, Any] | None:
    """`DOMAIN\\name` as a user with a domain; any other name as it is."""
    if not name:
        return None
    domain, slash, rest = name.rpartition("\\")
    if slash and rest and domain.strip("\\"):
        return {"name": rest, "domain": domain.rstrip("\\")}
    return {"name": name}


def ends_seen(
    source: Mapping[str, Any] | None,
    target: Mapping[str, Any] | None,
    user: Mapping[str, Any] | None = None,
    *more: tuple[str, int, Any],
    where: str = "actor.user",
) -> list[dict[str, Any]] | None:
    """The observables of an event: both ends, the user, and `more`."""
    source, target = source or {}, target or {}
    return observables(
        ("src_endpoint.ip", AN_IP, source.get("ip")),
        ("dst_endpoint.ip", AN_IP, target.get("ip")),
        ("src_endpoint.mac", A_MAC, source.get("mac")),
        ("dst_endpoint.mac", A_MAC, target.get("mac")),
        ("src_endpoint.hostname", A_HOST, source.get("hostname")),
        ("dst_endpoint.hostname", A_HOST, target.get("hostname")),
        (f"{where}.name", A_USER, (user or {}).get("name")),
        *more,
    )
