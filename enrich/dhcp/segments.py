"""What is said of an address: rows of silver.dhcp_segment. Plain Python, no Spark.

A row paints a span; the newest statement about an instant is true. When a line changes the
timeline of an address (`enrich.dhcp.lease_rules`), only the differences are said, over what was
said before. All times are microseconds since 1970 in UTC.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

import msgspec

from enrich.dhcp.lease_rules import FOREVER_US, LeaseEvent, Session, Timeline


class Segment(msgspec.Struct, frozen=True):
    """A row of silver.dhcp_segment, times in microseconds. The highest `rev` is true."""

    scope: str | None
    ip: str | None
    seg_start: int | None
    seg_end: int | None
    mac: str | None
    hostname: str | None
    session_id: str | None
    session_start: int | None
    session_end: int | None
    known_at: int
    learned_at: int
    rev: int
    kind: str
    event_uids: tuple[str, ...] | None = None
    ended: str | None = None


_LEASE, EXTEND, FREE, TOO_LATE, _HEARTBEAT = "lease", "extend", "free", "too_late", "heartbeat"


def heartbeat(time_us: int) -> Segment:
    """The row that says how far the sessions are known."""
    nothing = (None,) * 9
    return Segment(*nothing, known_at=time_us, learned_at=time_us, rev=time_us, kind=_HEARTBEAT)


def too_late(event: LeaseEvent, known_at_us: int, rev: int) -> Segment:
    """The row that names a line which came after its time was settled. It covers nothing."""
    return Segment(
        scope=event.scope,
        ip=event.ip,
        seg_start=event.time_us,
        seg_end=event.time_us,
        mac=event.mac,
        hostname=event.hostname,
        session_id=None,
        session_start=None,
        session_end=None,
        known_at=known_at_us,
        learned_at=event.received_us,
        rev=rev,
        kind=TOO_LATE,
        event_uids=(event.event_uid,),
    )


class _Change(msgspec.Struct):
    """A span whose holder differs between two timelines."""

    start_us: int
    end_us: int
    was: Session | None
    now: Session | None


def diff(
    old: Timeline,
    new: Timeline,
    known_at_us: int,
    next_rev: int,
    *,
    learned_at_us: int | None = None,
    max_span_us: int = FOREVER_US,
) -> list[Segment]:
    """The segments that, painted over those of `old`, give `new`; none if they are equal.

    Rows have revs `next_rev`, `next_rev` + 1, ... Each session that differs in anything has at
    least one row with its new start and end, of no length if its span stays; a session that is
    gone has one that ends where it starts. No row is longer than `max_span_us`.
    """
    before = {s.session_id: s for s in old.sessions}
    after = {s.session_id: s for s in new.sessions}
    painted = {s.session_id for _, _, s in _spans(old)}
    rows: list[tuple[str, int, int, Session]] = []
    for change in _changes(old, new):
        if change.now is not None:
            kind = EXTEND if change.now.session_id in painted else _LEASE
            about = change.now
        elif change.was is not None:
            kind = FREE
            about = after.get(change.was.session_id) or _gone(change.was)
        else:
            continue
        # No row is longer than job `alert` holds one in its join (`jobs.max_lease_seconds`).
        for start_us in range(change.start_us, change.end_us, max_span_us):
            rows.append((kind, start_us, min(start_us + max_span_us, change.end_us), about))
    segments = {about.session_id for *_, about in rows}
    rows.extend(_notes(before, after, painted, segments))
    learned = known_at_us if learned_at_us is None else learned_at_us
    return [
        _segment(new, kind, start, end, about, (known_at_us, learned, next_rev + n))
        for n, (kind, start, end, about) in enumerate(rows)
    ]


def _notes(
    before: dict[str, Session], after: dict[str, Session], painted: set[str], told: set[str]
) -> Iterator[tuple[str, int, int, Session]]:
    """Rows of no length for sessions that changed without a change of what is painted."""
    for uid, was in before.items():
        now = after.get(uid)
        if uid in told or now == was or uid not in painted:
            continue
        about = now or _gone(was)
        kind = FREE if about.end_us < was.end_us else EXTEND
        yield kind, about.end_us, about.end_us, about


def _gone(session: Session) -> Session:
    # Of no length: it stays on record that it was said, and covers no instant.
    return msgspec.structs.replace(session, end_us=session.start_us, ended="withdrawn")


def _spans(timeline: Timeline) -> list[tuple[int, int, Session]]:
    limit = timeline.painted_us
    return [(s.start_us, min(s.end_us, limit), s) for s in timeline.sessions if s.start_us < limit]


def _changes(old: Timeline, new: Timeline) -> list[_Change]:
    """Spans that another session holds now, neighbours with the same answer joined."""
    was, now = _spans(old), _spans(new)
    cuts = sorted({edge for start, end, _ in (*was, *now) for edge in (start, end)})
    result: list[_Change] = []
    for start_us, end_us in pairwise(cuts):
        change = _Change(start_us, end_us, _holder(was, start_us), _holder(now, start_us))
        if _uid(change.was) == _uid(change.now):
            continue
        last = result[-1] if result else None
        if (
            last is not None
            and last.end_us == start_us
            and _uid(last.now) == _uid(change.now)
            # Two leases that are gone stay two rows: each says where its own lease ends.
            and (change.now is not None or _uid(last.was) == _uid(change.was))
        ):
            last.end_us = end_us
        else:
            result.append(change)
    return result


def _holder(spans: Sequence[tuple[int, int, Session]], time_us: int) -> Session | None:
    return next((s for start, end, s in spans if start <= time_us < end), None)


def _uid(session: Session | None) -> str | None:
    return session.session_id if session is not None else None


def _segment(
    address: Timeline,
    kind: str,
    start_us: int,
    end_us: int,
    about: Session,
    said: tuple[int, int, int],
) -> Segment:
    free = kind == FREE
    known_at, learned_at, rev = said
    return Segment(
        scope=address.scope,
        ip=address.ip,
        seg_start=start_us,
        seg_end=end_us,
        mac=None if free else about.mac,
        hostname=None if free else about.hostname,
        session_id=about.session_id,
        session_start=about.start_us,
        session_end=about.end_us,
        known_at=known_at,
        learned_at=learned_at,
        rev=rev,
        kind=kind,
        event_uids=about.evidence,
        ended=about.ended,
    )
