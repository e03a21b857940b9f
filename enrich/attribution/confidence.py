"""How sure an attribution is, and why. Plain Python, no Spark.

`judge` is the one place where confidence is decided: job `alert` calls it on each finding, the
batch forms on each row, the API and `headgate lease` on each answer. It looks at what the DHCP
log says and at what the log may be missing; docs/explanation/attribution.md has its table.

Every figure is a judgement, not a probability: what counts is their order, and that the same
facts give the same figure wherever they are asked.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from typing import Any, NamedTuple

import msgspec

from enrich.dhcp.lease_rules import TAKEN_OVER, UNANSWERED
from infra.config.settings import ScopeSettings
from infra.config.tenants import site_of

EDGE = timedelta(seconds=5)
"""So far two clocks may differ: nearer to an end of a lease, its neighbour may be meant."""

LEASED, NONE, OUTSIDE, STATIC, UNKNOWN = "leased", "none", "outside", "static", "unknown"
SUPERSEDED, BEFORE, AFTER, ELSEWHERE = "superseded", "before", "after", "elsewhere"

_BASE = {LEASED: 98, NONE: 95, OUTSIDE: 100, STATIC: 80, UNKNOWN: 0}
"""Confidence without any doubt, 0 to 100, by status."""

WORDS = ((90, "certain"), (65, "likely"), (1, "doubtful"), (0, "unknown"))
"""The word for a confidence of at least so much."""

OPPOSED, _ALONE = 45, 15
"""An end of the lease within `EDGE`: another client beside it, or nobody."""
CLAIMED, CORRECTED, SAME_ELSEWHERE, SHARED, LEASE_ON_STATIC = 40, 5, 25, 3, 45
UNKNOWN_LOG = {LEASED: 45, NONE: 60}
BEHIND = ((timedelta(hours=4), 45), (timedelta(minutes=15), 25), (timedelta(minutes=2), 10))
"""How far the DHCP log's end lies before the event's arrival, at least. Two minutes are the
usual way of a line through the jobs; what comes later is corrected."""
SILENT = {
    LEASED: ((timedelta(hours=24), 30), (timedelta(hours=6), 15), (timedelta(hours=1), 5)),
    NONE: ((timedelta(hours=24), 60), (timedelta(hours=6), 40), (timedelta(hours=1), 20)),
}
"""How long the site's DHCP servers had said nothing, at least. A lease is proof by itself; that
there was none is only as good as the log."""

_DOUBTS_NAMED = 3
"""Doubts that the reason names; the strongest come first."""

_NAMED = 2
"""Rivals that a doubt names, or one more; of the rest it gives the number."""

MOST_RIVALS = 50
"""Rivals that a holder lists. An address that changes hands every second has thousands, and each
finding and alert about it would carry them all; the reason says how many there were."""


class Claim(msgspec.Struct, frozen=True, omit_defaults=True):
    """Somebody else who could be meant.

    `kind`: superseded (the log gave the address to it and took that back later), before or after
    (it held the address within `EDGE` of the instant), elsewhere (it held the same address in
    another scope), leased (the log gives it an address that is set by hand).
    """

    kind: str
    scope: str | None = None
    mac: str | None = None
    session_id: str | None = None
    lease_start: datetime | None = None
    lease_end: datetime | None = None
    known_at: datetime | None = None
    rev: int | None = None


class Server(msgspec.Struct, frozen=True, omit_defaults=True):
    """A DHCP server and its newest line before the instant."""

    server: str | None
    last_line_at: datetime


class LeaseFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What is known when an attribution is said.

    `arrived`: when the event reached us. `servers`: the scope's DHCP servers that were heard;
    None: nobody asked. `shared_with`: other sites whose networks hold the address as well.
    """

    status: str
    event_time: datetime
    arrived: datetime | None = None
    ip: str | None = None
    mac: str | None = None
    lease_start: datetime | None = None
    lease_end: datetime | None = None
    ended: str | None = None
    complete_up_to: datetime | None = None
    servers: tuple[Server, ...] | None = None
    rivals: tuple[Claim, ...] = ()
    shared_with: tuple[str, ...] = ()


class _Verdict(NamedTuple):
    """Confidence from 0 to 100, its word, and the reason as one sentence."""

    confidence: int
    certainty: str
    reason: str


class Doubt(NamedTuple):
    """What a confidence is lowered by, and why."""

    points: int
    why: str


def judge(facts: LeaseFacts) -> _Verdict:
    """How sure it is that the address belonged to whom `facts` say.

    Never surer for one more rival, or for a log that is less complete; 0 for unknown alone.
    """
    # Ordered by their text as well: the same facts must give the same sentence.
    doubts = sorted(_doubts(facts), key=lambda doubt: (-doubt.points, doubt.why))
    left = _BASE[facts.status] - sum(doubt.points for doubt in doubts)
    # However many doubts there are, 0 is for what is unknown.
    confidence = max(left, min(1, _BASE[facts.status]))
    word = next(word for least, word in WORDS if confidence >= least)
    lines = [_statement(facts), *(doubt.why for doubt in doubts[:_DOUBTS_NAMED])]
    return _Verdict(confidence, word, "; ".join(lines) + ".")


def _statement(facts: LeaseFacts) -> str:
    """What is said, without its doubts."""
    ip = facts.ip or "the address"
    if facts.status == LEASED:
        since = f" from {_moment(facts.lease_start)}" if facts.lease_start else ""
        until = f" to {_moment(facts.lease_end)}" if facts.lease_end else ""
        return f"the DHCP log gives {ip} to {facts.mac}{since}{until}"
    if facts.status == NONE:
        upto = facts.complete_up_to
        completeness = (
            f"log complete up to {_moment(upto)}" if upto else "how far the log goes is unknown"
        )
        return f"no lease covered {ip}, {completeness}"
    if facts.status == OUTSIDE:
        return f"{ip} lies outside every DHCP scope"
    if facts.status == STATIC:
        return f"{ip} is configured as static, so no lease was asked for"
    return "the event names no address"


def _doubts(facts: LeaseFacts) -> list[Doubt]:
    if facts.status == STATIC:
        held = [rival for rival in facts.rivals if rival.kind != ELSEWHERE]
        why = f"yet the DHCP log gave it to {_named(held)}"
        return [Doubt(LEASE_ON_STATIC, why)] if held else []
    if facts.status not in (LEASED, NONE):
        return []
    checks = (_claimed, _edge, _corrected, _elsewhere, _behind, _silent)
    return [doubt for check in checks if (doubt := check(facts)) is not None]


def _claimed(facts: LeaseFacts) -> Doubt | None:
    """The server's grant is missing in the log (`enrich.dhcp.lease_rules`: a claim)."""
    if facts.status != LEASED or facts.ended != UNANSWERED:
        return None
    return Doubt(CLAIMED, "only the client's own request speaks for it, no grant was logged")


def _edge(facts: LeaseFacts) -> Doubt | None:
    """The instant lies so near to an end of a lease that a clock decides whose it is."""
    if facts.status == NONE:
        near = [rival for rival in facts.rivals if rival.kind in (BEFORE, AFTER)]
        return Doubt(OPPOSED, f"{_named(near)} held it within seconds of it") if near else None
    edges = [edge for edge in (_began(facts), _ends(facts)) if edge is not None]
    # Near to both ends of a short lease it is doubted once, by the stronger.
    return max(edges, default=None)


def _began(facts: LeaseFacts) -> Doubt | None:
    start, instant = facts.lease_start, facts.event_time
    # The first instant belongs to the lease, its end does not: `[start, end)`.
    if start is None or not timedelta(0) <= instant - start < EDGE:
        return None
    others = [rival for rival in facts.rivals if _held_until(rival, start)]
    since = f"the lease began only {_seconds(instant - start)} before"
    return Doubt(OPPOSED, f"{since}, after {_named(others)}") if others else Doubt(_ALONE, since)


def _held_until(rival: Claim, start: datetime) -> bool:
    """Whether a rival may have had the address up to the instant at which the lease began."""
    if rival.kind == SUPERSEDED:
        began, ended = rival.lease_start or start, rival.lease_end or start
        return began <= start and ended > start - EDGE
    return rival.kind == BEFORE


def _ends(facts: LeaseFacts) -> Doubt | None:
    end, instant = facts.lease_end, facts.event_time
    if end is None or not timedelta(0) < end - instant < EDGE:
        return None
    others = [rival for rival in facts.rivals if rival.kind == AFTER]
    until = f"the lease ended only {_seconds(end - instant)} later"
    if others or facts.ended == TAKEN_OVER:
        return Doubt(OPPOSED, f"{until}, then {_named(others) or 'another client'} had it")
    return Doubt(_ALONE, until)


def _corrected(facts: LeaseFacts) -> Doubt | None:
    earlier = [rival for rival in facts.rivals if rival.kind == SUPERSEDED]
    return Doubt(CORRECTED, f"the log had given it to {_named(earlier)}") if earlier else None


def _elsewhere(facts: LeaseFacts) -> Doubt | None:
    others = [rival for rival in facts.rivals if rival.kind == ELSEWHERE]
    if others:
        sites = ", ".join(sorted({str(rival.scope) for rival in others}))
        return Doubt(SAME_ELSEWHERE, f"{_named(others)} held the same address in {sites}")
    if facts.shared_with:
        return Doubt(SHARED, f"{', '.join(sorted(facts.shared_with))} uses the same addresses")
    return None


def _behind(facts: LeaseFacts) -> Doubt | None:
    """The log's end, in arrival time, against the event's arrival."""
    if facts.complete_up_to is None:
        return Doubt(UNKNOWN_LOG[facts.status], "how complete the DHCP log is was not known")
    # Both by the broker's clock; the event's own time may be anything.
    behind = (facts.arrived or facts.event_time) - facts.complete_up_to
    points = _points(BEHIND, behind)
    if not points:
        return None
    return Doubt(points, f"the DHCP log was known only up to {_moment(facts.complete_up_to)}")


def _silent(facts: LeaseFacts) -> Doubt | None:
    """All of the site's servers were silent: the newest line of any of them counts."""
    # Nobody asked which servers there are, which is no sign that they were silent.
    if facts.servers is None:
        return None
    last_lines = [(server.last_line_at, server.server) for server in facts.servers]
    if not last_lines:
        return Doubt(SILENT[facts.status][0][1], "no DHCP server of its scope was heard")
    last, server = max(last_lines, key=lambda one: (one[0], one[1] or ""))
    points = _points(SILENT[facts.status], facts.event_time - last)
    name = f"DHCP server {server}" if server else "the DHCP server"
    return Doubt(points, f"{name} had said nothing since {_moment(last)}") if points else None


def _points(steps: Sequence[tuple[timedelta, int]], span: timedelta) -> int:
    # Steps go from the longest down: the first that is reached counts.
    return next((points for least, points in steps if span >= least), 0)


def _named(claims: Iterable[Claim]) -> str:
    macs = sorted({str(claim.mac) for claim in claims})
    if len(macs) > _NAMED + 1:
        return f"{', '.join(macs[:_NAMED])} and {len(macs) - _NAMED:,} others"
    return " and ".join(macs)


def _seconds(span: timedelta) -> str:
    return f"{span.total_seconds():.3g} s"


def _moment(time: datetime) -> str:
    """A time as a sentence has it: UTC, whole seconds."""
    return time.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S") + " UTC"


# -- where an address stands by configuration ----------------------------------------------------


def standing(ip: str | None, scope: str | None, scopes: Iterable[ScopeSettings]) -> str | None:
    """`outside`, `static` or `unknown` where configuration alone decides; None: ask the leases.

    `scope` None: in whatever scope has the address.
    """
    address = _address(ip)
    if ip is None:
        return UNKNOWN
    name = None if scope is None else site_of(scope)
    sites = [site for site in scopes if name in (None, site.name)]
    # First: what is set by hand mostly lies within the networks of the same site.
    if address is not None and any(_within(address, site.static) for site in sites):
        return STATIC
    inside = address is not None and any(_within(address, site.networks) for site in sites)
    return None if inside else OUTSIDE


def sites_of(ip: str | None, scopes: Iterable[ScopeSettings]) -> tuple[str, ...]:
    """Names of the sites whose networks hold an address."""
    address = _address(ip)
    if address is None:
        return ()
    return tuple(site.name for site in scopes if _within(address, site.networks))


def _address(ip: str | None) -> IPv4Address | IPv6Address | None:
    try:
        return ip_address(ip or "")
    except ValueError:
        return None


def _within(address: IPv4Address | IPv6Address, networks: Iterable[str]) -> bool:
    return any(address in ip_network(text) for text in networks)


# -- holders, as the tables have them ------------------------------------------------------------


def _listed(rivals: tuple[Claim, ...]) -> tuple[Claim, ...]:
    """The rivals that a holder lists, in their order: the nearer ones, then the newest."""
    if len(rivals) <= MOST_RIVALS:
        return rivals
    # Taken back is the weakest claim, and the one that there are thousands of. By their text last,
    # since a retry must list the same.
    weakest_last = sorted(
        rivals,
        key=lambda claim: (
            claim.kind == SUPERSEDED,
            -(claim.rev or 0),
            claim.kind,
            claim.scope or "",
            claim.mac or "",
        ),
    )
    kept = set(weakest_last[:MOST_RIVALS])
    return tuple(claim for claim in rivals if claim in kept)


def assessed(
    holder: Mapping[str, Any],
    event_time: datetime,
    arrived: datetime | None = None,
    *,
    complete_up_to: datetime | None = None,
    servers: Iterable[Server] | None = None,
    rivals: Iterable[Claim] = (),
    scopes: Iterable[ScopeSettings] = (),
) -> dict[str, Any]:
    """A holder (`enrich.tables.HOLDER`) with its confidence, the reason, and what it rests on.

    `complete_up_to`: how far the DHCP log is complete, where that is more than the holder says. One
    that has been judged already, such as a correlation's, is left as it is.
    """
    if holder.get("confidence") is not None:
        return dict(holder)
    complete = max(filter(None, (holder.get("complete_up_to"), complete_up_to)), default=None)
    named, others = None if servers is None else tuple(servers), tuple(rivals)
    in_doubt = holder.get("status") in (LEASED, NONE)
    scope = holder.get("scope")
    # What others use is nothing to tell a tenant of.
    in_doubt_of_site = in_doubt and (scope is None or site_of(scope) == scope)
    shared = set(sites_of(holder.get("ip"), scopes)) - {scope} if in_doubt_of_site else ()
    facts = LeaseFacts(
        status=holder.get("status") or UNKNOWN,
        event_time=event_time,
        arrived=arrived,
        ip=holder.get("ip"),
        mac=holder.get("mac"),
        lease_start=holder.get("lease_start"),
        lease_end=holder.get("lease_end"),
        ended=holder.get("ended"),
        complete_up_to=complete,
        servers=named,
        rivals=others,
        shared_with=tuple(sorted(shared)),
    )
    # By all of them, however many are listed.
    verdict = judge(facts)
    shown = _listed(others)
    if len(shown) < len(others):
        cut = f"{len(shown)} of {len(others):,} others who could be meant are listed."
        verdict = verdict._replace(reason=f"{verdict.reason[:-1]}; {cut}")
    return {
        **holder,
        "complete_up_to": complete if in_doubt else holder.get("complete_up_to"),
        "rivals": [msgspec.structs.asdict(rival) for rival in shown],
        "servers": named and [msgspec.structs.asdict(server) for server in named],
        **verdict._asdict(),
    }
