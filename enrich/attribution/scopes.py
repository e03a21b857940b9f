"""Whether an address lies in one of a site's networks, as Spark expressions and in Python.

A job asks this several times a row, and Spark copies the whole expression to each place. One that
compares numbers, octet by octet and network by network, fills the plan of a small batch. So a
site's networks become one pattern over the address as text (decision 0011).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import lru_cache
from ipaddress import IPv4Network, IPv6Address, IPv6Network, ip_network

from pyspark.sql import Column
from pyspark.sql import functions as F

from infra.config.settings import ScopeSettings
from infra.config.tenants import OF_TENANT, site_of

_OCTET = "(?:25[0-5]|2[0-4][0-9]|1?[0-9]?[0-9])"
_GROUP = "[0-9a-fA-F]{1,4}"
_GROUPS = f"({_GROUP}:){{0,7}}{_GROUP}"  # bounded: Java's expressions recurse
_COLONS = f"^({_GROUPS})?(::({_GROUPS})?)?$"


def set_by_hand(scope: Column, ip: Column, scopes: Sequence[ScopeSettings]) -> Column:
    """Whether an address is one of its scope's `static`. Never null."""
    by_hand = [site.model_copy(update={"networks": site.static}) for site in scopes]
    return F.coalesce(in_networks(scope, ip, by_hand), F.lit(False))


def in_networks(scope: Column, ip: Column, scopes: Sequence[ScopeSettings]) -> Column:
    """Whether an address lies in one of its scope's networks, IPv4 or IPv6; null or false if not.

    Addresses are compared, not their spelling. Plain expressions: a stream's watermark passes.
    """
    answer = F.lit(False)
    # What a tenant has of a site lies in the site's networks (`infra.config.tenants`).
    site_name = F.when(
        scope.startswith("tenant-"), F.regexp_replace(scope, OF_TENANT, "")
    ).otherwise(scope)
    for site in scopes:
        v4, v6 = _networks(tuple(site.networks))
        inside = [ip.rlike(_any(map(_quad, v4)))] if v4 else []
        inside += [ipv6_digits(ip).rlike(_any(map(_hex, v6)))] if v6 else []
        for network_scope in inside:
            answer = answer | ((site_name == site.name) & network_scope)
    return answer


@lru_cache(maxsize=256)
def _networks(texts: tuple[str, ...]) -> tuple[list[IPv4Network], list[IPv6Network]]:
    networks = [ip_network(text) for text in texts]
    return (
        [network for network in networks if isinstance(network, IPv4Network)],
        [network for network in networks if isinstance(network, IPv6Network)],
    )


def by_hand(scope: str | None, ip: str | None, scopes: Sequence[ScopeSettings]) -> bool:
    """As `set_by_hand`, of one address."""
    name = None if scope is None else site_of(scope)
    return any(_is_in(ip, site.static) for site in scopes if site.name == name)


def in_scope(scope: str | None, ip: str | None, scopes: Sequence[ScopeSettings]) -> bool:
    """As `in_networks`, of one address; false where that is null."""
    name = None if scope is None else site_of(scope)
    return any(_is_in(ip, site.networks) for site in scopes if site.name == name)


def _is_in(ip: str | None, networks: Iterable[str]) -> bool:
    if ip is None:
        return False
    v4, v6 = _networks(tuple(networks))
    digits = _hex_digits(ip)
    return any(re.fullmatch(_quad(network), ip) for network in v4) or (
        digits is not None and any(re.fullmatch(_hex(network), digits) for network in v6)
    )


def _hex_digits(ip: str) -> str | None:
    """As `ipv6_digits`, of one address."""
    if not re.fullmatch(_COLONS, ip, re.ASCII):
        return None
    try:
        return f"{int(IPv6Address(ip)):032x}"
    except ValueError:
        return None


def _any(patterns: Iterable[str]) -> str:
    # Not `$`: in Java it also matches in front of a line break at the end of a text.
    return rf"\A(?:{'|'.join(patterns)})\z"


def _quad(network: IPv4Network) -> str:
    """The dotted quads of a network: its octets range by themselves, as it begins at a power."""
    ends = network.network_address.packed, network.broadcast_address.packed
    return "[.]".join(_octet(low, high) for low, high in zip(*ends, strict=True))


def _octet(low: int, high: int) -> str:
    """The octets from `low` to `high`; those below ten also with a zero before them."""
    if (low, high) == (0, 255):
        return _OCTET
    return f"(?:{'|'.join(f'0?{n}' if n < 10 else str(n) for n in range(low, high + 1))})"


def _hex(network: IPv6Network) -> str:
    """The same for an IPv6 network, in the words of `ipv6_digits`."""
    low, high = network.network_address, network.broadcast_address
    pairs = zip(f"{int(low):032x}", f"{int(high):032x}", strict=True)
    return "".join(first if first == last else f"[{first}-{last}]" for first, last in pairs)


def ipv6_digits(ip: Column) -> Column:
    """An IPv6 address as its 32 hex digits, which sort as it does; null for anything else.

    Takes any number of digits a group and one `::` (RFC 4291, 2.2), but no dotted quad at the
    end: addresses of silver.event have none.
    """
    halves = F.split(ip, "::", 2)
    # `try_`: in ANSI mode an element that is not there ends the batch.
    head, tail = (_groups(F.try_element_at(halves, F.lit(n))) for n in (1, 2))
    missing = F.lit(8) - F.size(head) - F.size(tail)
    groups = F.concat(head, F.array_repeat(F.lit("0000"), F.greatest(missing, F.lit(0))), tail)
    digits = F.lower(F.array_join(F.transform(groups, lambda group: F.lpad(group, 4, "0")), ""))
    whole = F.when(ip.contains("::"), missing > 0).otherwise(missing == 0)
    return F.when(ip.rlike(_COLONS) & whole, digits)


def _groups(half: Column) -> Column:
    """The groups between colons; none of an empty text or null."""
    written = F.split(half, ":")
    return F.when(F.length(half) > 0, written).otherwise(F.array().cast("array<string>"))
