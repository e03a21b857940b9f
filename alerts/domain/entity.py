"""Whom a finding is about: the device its address belonged to, else what the event names."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from typing import Any, NamedTuple

import msgspec

from enrich.attribution.confidence import Claim, Server
from infra.errors import Usage

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MICROSECOND = timedelta(microseconds=1)


class Holder(msgspec.Struct, omit_defaults=True):
    """Who an address belonged to, as `enrich.tables.HOLDER` has it."""

    ip: str | None = None
    scope: str | None = None
    mac: str | None = None
    hostname: str | None = None
    session_id: str | None = None
    lease_start: datetime | None = None
    lease_end: datetime | None = None
    known_at: datetime | None = None
    status: str | None = None
    complete_up_to: datetime | None = None
    evidence: list[str] | None = None
    ended: str | None = None
    confidence: int | None = None
    certainty: str | None = None
    reason: str | None = None
    rivals: list[Claim] | None = None
    servers: list[Server] | None = None


class Entity(NamedTuple):
    """`type`: device, ip, host, user, rule or event. `key` tells two of them apart."""

    type: str
    value: str
    key: str


def micros(time: datetime | int) -> int:
    """Microseconds since 1970, UTC; a time without a zone is taken as UTC."""
    if isinstance(time, int):
        return time
    aware = time if time.tzinfo else time.replace(tzinfo=UTC)
    # Whole numbers: `timestamp()` is a float and loses microseconds.
    return (aware - _EPOCH) // MICROSECOND


def event_instant(us: int) -> datetime:
    """The inverse of `micros`."""
    return _EPOCH + timedelta(microseconds=us)


def holder_of(row: Mapping[str, Any]) -> Holder | None:
    """The row's holder; None when it has none."""
    holder = row.get("holder")
    if holder is None or isinstance(holder, Holder):
        return holder
    return msgspec.convert(holder, Holder)


def entity_of(row: Mapping[str, Any], holder: Holder | None) -> Entity:
    """The entity of a finding. What names nobody is its own entity, so it merges with nothing.

    The same private address may exist in two sites, so an address's key has its scope; and two
    tenants may have a user of one name, so every key has its tenant: no alert is of two.
    """
    entity = _entity(row, holder)
    return entity._replace(key=key_of(row.get("tenant_uid"), entity.key))


def key_of(tenant: str | None, key: str) -> str:
    """A key that no other tenant has; None: nobody's in particular."""
    if tenant is None:
        # Whoever can log a name can log one that ends as a tenant's keys do.
        return key + _of_tenant("") if _of_tenant("") in key else key
    return key + _of_tenant(tenant)


def shared_key(entity: Entity, row: Mapping[str, Any]) -> str:
    """An entity's key without the tenant of the row that it is of."""
    tenant = row.get("tenant_uid")
    return entity.key if tenant is None else entity.key.removesuffix(_of_tenant(tenant))


def _of_tenant(tenant: str) -> str:
    return f"|tenant|{tenant}"


def _entity(row: Mapping[str, Any], holder: Holder | None) -> Entity:
    if holder is not None and holder.status == "leased" and holder.mac:
        return Entity("device", holder.mac, f"device|{holder.mac}")
    if row.get("ip"):
        return Entity("ip", row["ip"], f"ip|{row.get('scope') or ''}|{row['ip']}")
    if row.get("host_name"):
        return Entity("host", row["host_name"], f"host|{row['host_name']}")
    if row.get("user_name"):
        return Entity("user", row["user_name"], f"user|{row['user_name']}")
    if row.get("role") == "rule":
        rule_id = fields_of(row).get("rule_id", "")
        return Entity("rule", rule_id, f"rule|{rule_id}")
    return Entity("event", row["event_uid"], f"event|{row['event_uid']}")


def fields_of(row: Mapping[str, Any]) -> dict[str, str]:
    """The finding's `fields`, which Spark gives as a mapping and Arrow as pairs."""
    return dict(row.get("fields") or {})


def _ip(value: str) -> str:
    try:
        return str(ip_address(value))
    except ValueError:
        raise Usage(f"'{value}' is not an IP address") from None


def _mac(value: str) -> str:
    # Vendors write colons, hyphens or dots in groups of four; the tables know colons only.
    digits = re.sub(r"[.:-]", "", value).lower()
    if not re.fullmatch(r"[0-9a-f]{12}", digits):
        raise Usage(f"'{value}' is not a MAC address; write 02:00:00:00:00:07")
    return ":".join(digits[index : index + 2] for index in range(0, 12, 2))


NORMAL: dict[str, Callable[[str], str]] = {
    "ip": _ip,
    "mac": _mac,
    # Compared without case: what logs write as LT-7 and lt-7 is one host.
    "user": str,
    "host": str,
    # DNS does not mind case, and logs write the final dot or leave it out.
    "domain": lambda value: value.lower().rstrip("."),
}
"""How the tables write each kind of value."""
