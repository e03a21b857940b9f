"""Who else could have held an address at an instant, from what the log said of it. No Spark."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta

import msgspec

from enrich.attribution.confidence import AFTER, BEFORE, EDGE, ELSEWHERE, LEASED, SUPERSEDED, Claim
from infra.config.tenants import owner_of

INSTANT = timedelta(microseconds=1)


class Said(msgspec.Struct, frozen=True):
    """A statement of silver.dhcp_segment with a span: `mac` none says the address was free."""

    scope: str | None
    mac: str | None
    session_id: str | None
    seg_start: datetime
    seg_end: datetime
    lease_start: datetime | None
    lease_end: datetime | None
    known_at: datetime
    rev: int

    def covers(self, at: datetime) -> bool:
        """Whether it is about that instant."""
        return self.seg_start <= at < self.seg_end


def true_at(said: Iterable[Said], scope: str | None, at: datetime) -> Said | None:
    """What is true of an instant in a scope: of the statements about it, the newest."""
    about = [claim for claim in said if claim.scope == scope and claim.covers(at)]
    return max(about, key=lambda claim: claim.rev, default=None)


def rivals_of(
    said: Sequence[Said], scope: str | None, mac: str | None, at: datetime
) -> tuple[Claim, ...]:
    """Who else could have held the address at an instant, each client once in each scope.

    `said`: statements within `EDGE` of the instant, of all scopes, about one address; `mac`:
    whom the address is given to. Sorted, so that their order is no matter. What another tenant's
    logs say is no claim: these are other networks, and nobody else is to read of them.
    """
    own = [claim for claim in said if owner_of(claim.scope) == owner_of(scope)]
    claims: dict[tuple[str | None, str], Claim] = {}
    # By revision, so that of one client the newest claim stays.
    for claim in sorted(own, key=lambda claim: claim.rev):
        if claim.mac is None or (claim.scope == scope and claim.mac == mac):
            continue
        kind = _kind(claim, own, scope, at)
        if kind is not None:
            claims[claim.scope, claim.mac] = Claim(
                kind,
                claim.scope,
                claim.mac,
                claim.session_id,
                claim.lease_start,
                claim.lease_end,
                claim.known_at,
                claim.rev,
            )
    return tuple(sorted(claims.values(), key=lambda c: (c.kind, c.scope or "", c.mac or "")))


def _kind(one: Said, said: Sequence[Said], scope: str | None, at: datetime) -> str | None:
    if one.scope != scope:
        return ELSEWHERE if true_at(said, one.scope, at) == one else None
    if true_at(said, scope, at) == one:
        return LEASED  # it is true, and yet the address was given to nobody: it is set by hand
    # A statement may be true of some instants only; what holds changes where another one ends.
    edges = {edge for other in said for edge in (other.seg_start, other.seg_end)}
    before = [at - EDGE, *(edge - INSTANT for edge in edges if at - EDGE < edge <= at)]
    after = [edge for edge in edges if at < edge < at + EDGE]
    if any(true_at(said, scope, instant) == one for instant in before):
        return BEFORE
    if any(true_at(said, scope, instant) == one for instant in after):
        return AFTER
    return SUPERSEDED if one.covers(at) else None
