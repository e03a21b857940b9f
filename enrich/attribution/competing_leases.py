"""Who else could have held an address at an instant, from what the log said of it. No Spark."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from heapq import heappop, heappush

import msgspec

from enrich.attribution.confidence import AFTER, BEFORE, EDGE, ELSEWHERE, LEASED, SUPERSEDED, Claim
from infra.config.tenants import owner_of

INSTANT = timedelta(microseconds=1)


class LeaseStatement(msgspec.Struct, frozen=True):
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


def true_at(
    statements: Iterable[LeaseStatement], scope: str | None, at: datetime
) -> LeaseStatement | None:
    """What is true of an instant in a scope: of the statements about it, the newest."""
    about = [claim for claim in statements if claim.scope == scope and claim.covers(at)]
    return max(about, key=lambda claim: claim.rev, default=None)


def rivals_of(
    statements: Sequence[LeaseStatement], scope: str | None, mac: str | None, at: datetime
) -> tuple[Claim, ...]:
    """Who else could have held the address at an instant, each client once in each scope.

    `statements`: statements within `EDGE` of the instant, of all scopes, about one address; `mac`:
    whom the address is given to. Sorted, so that their order is no matter. What another tenant's
    logs say is no claim: these are other networks, and nobody else is to read of them.
    """
    own = [claim for claim in statements if owner_of(claim.scope) == owner_of(scope)]
    # Asked once and not of each claim: of an address that changes hands all the time there are
    # thousands, as each stays a claim for as long as its lease would have run.
    newest = {name: true_at(own, name, at) for name in {claim.scope for claim in own}}
    edges = {edge for claim in own for edge in (claim.seg_start, claim.seg_end)}
    # A statement may be true of some instants only; what holds changes where another one ends.
    before = _true_at_any(
        own, scope, [at - EDGE, *(edge - INSTANT for edge in edges if at - EDGE < edge <= at)]
    )
    after = _true_at_any(own, scope, [edge for edge in edges if at < edge < at + EDGE])
    claims: dict[tuple[str | None, str], Claim] = {}
    # By revision, so that of one client the newest claim stays.
    for claim in sorted(own, key=lambda claim: claim.rev):
        if claim.mac is None or (claim.scope == scope and claim.mac == mac):
            continue
        if claim == newest[claim.scope]:
            # True of this scope, and yet the address was given to nobody: it is set by hand.
            kind = LEASED if claim.scope == scope else ELSEWHERE
        elif claim.scope != scope:
            continue
        elif claim in before:
            kind = BEFORE
        elif claim in after:
            kind = AFTER
        elif claim.covers(at):
            kind = SUPERSEDED
        else:
            continue
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


def _true_at_any(
    statements: Sequence[LeaseStatement], scope: str | None, instants: Iterable[datetime]
) -> set[LeaseStatement]:
    """The statements about a scope that are true of at least one of these instants."""
    begun = sorted(
        ((claim.seg_start, n) for n, claim in enumerate(statements) if claim.scope == scope),
        reverse=True,
    )
    true: set[LeaseStatement] = set()
    running: list[tuple[int, int]] = []
    for instant in sorted(instants):
        while begun and begun[-1][0] <= instant:
            _, n = begun.pop()
            heappush(running, (-statements[n].rev, n))
        while running and statements[running[0][1]].seg_end <= instant:
            heappop(running)
        if running:
            true.add(statements[running[0][1]])
    return true
