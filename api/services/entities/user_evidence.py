"""Who used a device, and what the inventories know of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any, Literal

from alerts.domain.entity import NORMAL, micros
from api import models
from api.tenant_views import LakeReader, scope_asked
from enrich.assets.index import AssetIndex, index_of
from enrich.assets.index_store import newest_index
from enrich.assets.user_evidence import (
    MOST_ASKED,
    WITNESSES_SQL,
    UserSeen,
    Witness,
    devices,
    users,
    window,
)
from infra.config.settings import Settings
from infra.errors import Usage

DeviceKind = Literal["ip", "mac", "host"]
_NEEDS = ("silver.event", "silver.witness", "silver.dhcp_segment")

_HELD = """
SELECT scope, mac FROM silver.dhcp_segment
WHERE ip = $ip AND kind <> 'heartbeat' AND seg_start <= $at AND seg_end > $at
  AND ($scope IS NULL OR scope = $scope)
QUALIFY row_number() OVER (PARTITION BY scope ORDER BY rev DESC) = 1 ORDER BY scope
"""


def witnesses(
    reader: LakeReader, settings: Settings, kind: str, value: str, at: datetime, scope: str | None
) -> models.Witnesses:
    """Who used an address, a MAC address or a host at an instant, by others than the lease.

    Of an address that DHCP leased then, only what the device did that held it: by whatever
    address it had, or under the host name it gave. Raises `Usage` for a value that is not of
    its kind, and when no scope is given and the address was leased in several.
    """
    named = NORMAL[kind](value)
    scope = scope_asked(reader.tenants, scope)
    held = _held(reader, named, at, scope) if kind == "ip" else {}
    # By device and not by address alone: it may have moved to another address since.
    mac = named if kind == "mac" else held.get("mac")
    scope = scope or held.get("scope")
    span = window(at)
    params = {
        "mac": mac,
        "ip": named if kind == "ip" else None,
        "host": named if kind == "host" else None,
        "scope": scope,
        **span,
    }
    # Without an end: what came later may have ended a session.
    within = {"silver.event": ("time", span["oldest"], datetime.max.replace(tzinfo=UTC))}
    rows = reader.rows(WITNESSES_SQL, params, needs=_NEEDS, within=within)
    witness_rows = [Witness.of(row) for row in rows[:MOST_ASKED]]
    # Inventories do not say whose they are.
    index = _index(settings) if reader.tenants is None else None
    return models.Witnesses(
        entity=models.Entity(type=kind, value=named),
        at=at,
        scope=scope,
        mac=mac,
        users=[_seen(user, at, index) for user in users(witness_rows, at)],
        devices=[_seen(user, at, None) for user in devices(witness_rows, at)],
        more=len(rows) > MOST_ASKED,
    )


def inventory_evidence(
    settings: Settings, kind: str, value: str, at: datetime, scope: str | None
) -> models.KnownAccount:
    """What the inventories knew of an entity at an instant."""
    named = NORMAL[kind](value)
    index = _index(settings)
    asset, user = None, None
    if index is not None and kind in ("ip", "mac", "host"):
        # Which of them wins where several fit, the index decides the same way as for alerts.
        asset = index.asset(
            micros(at),
            mac=named if kind == "mac" else None,
            hostname=named if kind == "host" else None,
            ip=named if kind == "ip" else None,
            scope=scope,
        )
    elif index is not None and kind == "user":
        user = index.user(micros(at), named)
    return models.KnownAccount(
        entity=models.Entity(type=kind, value=named),
        at=at,
        asset=models.KnownAsset(**asset) if asset else None,
        user=models.KnownUser(**user) if user else None,
    )


def _held(reader: LakeReader, ip: str, at: datetime, scope: str | None) -> dict[str, Any]:
    asked = {"ip": ip, "at": at, "scope": scope}
    rows = reader.rows(_HELD, asked, needs=("silver.dhcp_segment",))
    leased = [row for row in rows if row["mac"] is not None]
    if len(leased) > 1:
        scopes = ", ".join(str(row["scope"]) for row in leased)
        raise Usage(f"{ip} was leased in several scopes then ({scopes}); say which with scope=")
    # A statement without a holder still tells the scope.
    return next(iter(leased or rows), {})


def _seen(one: UserSeen, at: datetime, index: AssetIndex | None) -> models.SeenDevice:
    lines: dict[str, Any] = {
        name: list(value) if isinstance(value, Sequence) and not isinstance(value, str) else value
        for name, value in asdict(one).items()
    }
    user = None
    if index is not None:
        user = index.user(micros(at), one.name, domain=one.domain, uid=one.uid)
    return models.SeenDevice(**lines, user=models.KnownUser(**user) if user else None)


def _index(settings: Settings) -> AssetIndex | None:
    file = newest_index(settings)
    return index_of(file) if file else None
