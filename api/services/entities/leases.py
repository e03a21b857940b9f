"""Who held an address at an instant, with what it rests on, read from the lake."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any, Literal, cast

from api import models
from api.tenant_views import LakeReader, scope_asked
from enrich.attribution.competing_leases import LeaseStatement, rivals_of, true_at
from enrich.attribution.confidence import LEASED, NONE, OUTSIDE, STATIC, Server, assessed, standing
from enrich.attribution.lease_lookup import CLAIMS_DUCKDB
from enrich.attribution.server_liveness import LAST_SEEN_SQL
from enrich.dhcp.lease_rules import ended_so_far
from infra.config.settings import ScopeSettings
from infra.config.tenants import owner_of, site_of
from infra.errors import Usage

_NEEDS = ("silver.dhcp_segment", "silver.event")
_LOOKS = (timedelta(days=1), timedelta(days=30))
"""How far back a DHCP server's last line is looked for; further only if the first finds none."""

_COMPLETE = """
SELECT max(known_at) AS known_at FROM silver.dhcp_segment
WHERE kind = 'heartbeat' AND ($known_by IS NULL OR known_at <= $known_by)
"""


def holder(
    reader: LakeReader,
    scopes: Sequence[ScopeSettings],
    ip: str,
    at: datetime,
    scope: str | None = None,
    known_by: datetime | None = None,
) -> models.AddressHolder:
    """Who held `ip` at `at`: the statement with the highest rev that covers the instant.

    `known_by`: as it was known then; none: as it is known now. Raises `Usage` when no scope is
    given and the address was leased in several. Who is limited to tenants is answered by their
    leases alone, and is not told of other sites.
    """
    scope = scope_asked(reader.tenants, scope)
    bounds = {"ip": ip, "at": at, "known_by": known_by}
    # The same revision may lie in the table twice after a retry; it is one statement.
    rows = {
        (row["scope"], row["rev"]): row for row in reader.rows(CLAIMS_DUCKDB, bounds, needs=_NEEDS)
    }
    statements = [_statement(row) for row in rows.values()]
    covering = [
        claim
        for site in sorted(
            {claim.scope for claim in statements if scope in (None, claim.scope)}, key=str
        )
        if (claim := true_at(statements, site, at)) is not None
    ]
    leased = [claim for claim in covering if claim.mac is not None]
    # Several sites may use one private network; to guess would name an innocent device.
    if len(leased) > 1:
        sites = ", ".join(str(claim.scope) for claim in leased)
        raise Usage(f"{ip} was leased in several scopes then ({sites}); say which with scope=")
    # What configuration says of an address stands above what DHCP says.
    by_hand = _by_hand(reader.tenants, ip, scope, scopes, statements)
    chosen = None if by_hand == STATIC else next(iter(leased or covering), None)
    status = LEASED if chosen and chosen.mac else NONE
    if by_hand == STATIC or (by_hand == OUTSIDE and chosen is None):
        status = by_hand
    limited = reader.tenants is not None
    site = scope or (chosen.scope if chosen else None if limited else _site(ip, scopes))
    row = rows[chosen.scope, chosen.rev] if chosen and chosen.mac else None
    # What other sites use of the same addresses.
    scopes = () if limited else scopes
    return _answer(reader, scopes, ip, at, known_by, site, status, row, statements)


def _by_hand(
    tenants: Sequence[str] | None,
    ip: str,
    scope: str | None,
    scopes: Sequence[ScopeSettings],
    statements: Sequence[LeaseStatement],
) -> str | None:
    """`standing`; for who is limited to tenants by the settings of their own parts of sites."""
    if tenants is None:
        return standing(ip, scope, scopes)
    parts = {scope} if scope is not None else {claim.scope for claim in statements}
    sites = {site_of(part) for part in parts if part and owner_of(part) in tenants}
    # Without any, what other sites have at this address is all there is, and nothing to tell.
    return standing(ip, None, [site for site in scopes if site.name in sites]) if sites else None


def _answer(
    reader: LakeReader,
    scopes: Sequence[ScopeSettings],
    ip: str,
    at: datetime,
    known_by: datetime | None,
    scope: str | None,
    status: str,
    row: dict[str, Any] | None,
    statements: Sequence[LeaseStatement],
) -> models.AddressHolder:
    """The answer, judged as job `alert` would judge it with all that is in the tables."""
    mac = row["mac"] if row else None
    complete = reader.rows(_COMPLETE, {"known_by": known_by}, needs=_NEEDS)[0]["known_at"]
    lines = {"ip": ip, "scope": scope, "mac": mac, "status": status, "complete_up_to": complete}
    if row:
        ended = (row["evidence"] or {}).get("ended")
        lines |= {"lease_start": row["lease_start"], "lease_end": row["lease_end"], "ended": ended}
    judged = assessed(
        lines,
        at,
        # Of no scope nobody can say whether its servers were silent.
        servers=_servers(reader, scope, at, known_by)
        if status in (LEASED, NONE) and (scope or reader.tenants is None)
        else None,
        rivals=rivals_of(statements, scope, mac, at),
        scopes=scopes,
    )
    return models.AddressHolder(
        ip=ip,
        at=at,
        known_by=known_by,
        scope=scope,
        status=cast("Literal['leased', 'none', 'outside', 'static']", status),
        lease=_lease(row, complete) if row else None,
        complete_up_to=complete,
        confidence=judged["confidence"],
        certainty=judged["certainty"],
        reason=judged["reason"],
        rivals=[models.Rival(**rival) for rival in judged["rivals"]],
        servers=[models.DhcpServer(**server) for server in judged["servers"] or ()],
    )


def _servers(
    reader: LakeReader, scope: str | None, at: datetime, known_by: datetime | None
) -> list[Server]:
    """The DHCP servers of a scope, each with its last line up to the instant."""
    # Most servers spoke within a day, and a day is read far quicker than a month.
    for look in _LOOKS:
        bounds = {"since": at - look, "until": at, "known_by": known_by}
        within = {"silver.event": ("time", at - look, at)}
        rows = reader.rows(LAST_SEEN_SQL, bounds, needs=_NEEDS, within=within)
        servers = [Server(r["server"], r["last_line_at"]) for r in rows if r["scope"] == scope]
        if servers:
            return servers
    return []


def _site(ip: str, scopes: Sequence[ScopeSettings]) -> str | None:
    """The site whose addresses these are, where configuration alone must tell."""
    return next((s.name for s in scopes if standing(ip, s.name, scopes) != OUTSIDE), None)


def _statement(row: dict[str, Any]) -> LeaseStatement:
    return LeaseStatement(**{name: row[name] for name in LeaseStatement.__struct_fields__})


def _lease(row: dict[str, Any], complete: datetime | None) -> models.Lease:
    evidence: dict[str, Any] = row["evidence"] or {}
    return models.Lease(
        mac=row["mac"],
        hostname=row["hostname"],
        session_id=row["session_id"],
        lease_start=row["lease_start"],
        lease_end=row["lease_end"],
        span_start=row["seg_start"],
        span_end=row["seg_end"],
        known_at=row["known_at"],
        learned_at=row["learned_at"],
        rev=row["rev"],
        evidence=evidence.get("event_uids") or [],
        ended=ended_so_far(evidence.get("ended"), row["lease_end"], complete),
    )
