"""What the session job remembers of a bucket of addresses, and how it takes in new lines.

For each address: the session that ran when its past was settled, and the raw lines since. A
line that comes late, but not later than `allowed_lateness_seconds`, is put in its place and
the address played again before and after it; only the differences are said. So the
order of arrival does not matter inside that time, and neither do the cuts between batches.

Stream time (`known_at`) is how far the input is known: the arrival time of the newest line, but
never beyond what ingest says it has finished (its heartbeats). While several partitions catch
up at different speeds, ingest's heartbeat is that of the slowest; taking the newest line instead
would settle addresses whose lines are still to come and push time past other buckets' rows.

A row paints a span; the newest statement about an instant is true. Times are microseconds since
1970 in UTC. Nothing here looks at a clock or at chance: the same input gives the same rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby, pairwise

import msgspec

from enrich.dhcp.lease_rules import (
    EXCHANGE_US,
    EXTEND,
    FOREVER_US,
    FREE,
    LEASE,
    SECOND_US,
    LeaseEvent,
    Segment,
    Session,
    Timeline,
    idle_lines,
    order,
    replay,
    too_late,
)

Key = tuple[str, str]
"""Scope and address."""

KEPT_LONGER_US = EXCHANGE_US + SECOND_US
"""How long after `late_us` an address may still hold what `AddressState.settle` keeps."""


class TrackerLimits(msgspec.Struct, frozen=True):
    """How long lines may be late, and how long a span one segment may cover."""

    late_us: int
    max_lease_us: int

    @property
    def ahead_us(self) -> int:
        """How far beyond stream time sessions are painted; the rest follows in time.

        A little more than `max_lease_us`, so that a lease of exactly that length, granted by
        a server whose clock is a little ahead, is one row and not two.
        """
        return self.max_lease_us + self.late_us

    @property
    def paint_us(self) -> int:
        """With less than this ahead of stream time, a longer lease is painted on."""
        return self.ahead_us * 5 // 8

    @property
    def sweep_us(self) -> int:
        """How often it is asked which addresses are due, and how finely that is noted."""
        return max(1, min(self.late_us, self.max_lease_us) // 8)


class AddressState(msgspec.Struct, array_like=True):
    """One address: its settled session, the lines since, and how far it has been painted.

    `due`: the slot of the wheel in which it is looked at next, 0 for none yet.
    """

    scope: str
    ip: str
    base: Session | None = None
    lines: list[LeaseEvent] = []
    painted_us: int = 0
    due: int = 0

    def timeline(self) -> Timeline:
        """The timeline as it has been said so far."""
        played = replay(self.lines, self.base, scope=self.scope, ip=self.ip)
        return msgspec.structs.replace(played, painted_us=self.painted_us)

    def insert(self, lines: Iterable[LeaseEvent]) -> bool:
        """Put lines in their place; False if all of them were here before."""
        seen = {line.event_uid for line in self.lines}
        count = len(self.lines)
        for line in lines:
            if line.event_uid not in seen:
                seen.add(line.event_uid)
                self.lines.append(line)
        # By the server's time, whatever the order of arrival: the rules only know time.
        self.lines.sort(key=order)
        return len(self.lines) > count

    def settle(self, horizon_us: int) -> None:
        """Make the base of what is well before `horizon_us`; no line from there may come.

        The last lines before it are kept: they may explain the next one (see `replay`).
        """
        idle = idle_lines([e for e in self.lines if e.time_us < horizon_us], self.base)
        # A request and its answer must not be parted by the cut.
        horizon_us -= EXCHANGE_US
        past = [line for line in self.lines if line.time_us < horizon_us]
        if idle:
            self.lines = past + [e for e in self.lines[len(past) :] if e.event_uid not in idle]
        if past:
            self.lines = self.lines[len(past) :]
            sessions = replay(past, self.base).sessions
            self.base = sessions[-1] if sessions else None
        if self.base is not None and self.base.end_us < horizon_us:
            self.base = None

    @property
    def empty(self) -> bool:
        """Whether there is nothing left to remember."""
        return self.base is None and not self.lines


class TrackerBucket:
    """The addresses of one bucket, how far time has come, and the last revision given.

    A batch needs only the addresses it touches: those of its lines, and those that are due.
    `wheel` has them by slot, a multiple of `sweep_us`: an address stands in the first slot in
    which there may be something to do for it, and is put into a later one when there is not.
    So an address that renews is not looked for in the wheel, and one that nobody asks about
    costs nothing in between.

    `last_rev` is the bucket's, not the address's: it outlives addresses that are forgotten.
    """

    def __init__(self, limits: TrackerLimits) -> None:
        self.limits = limits
        self.known_at_us: int | None = None
        self.finished_us: int | None = None
        self.swept_us = 0
        self.last_rev = 0
        self.addresses: dict[Key, AddressState] = {}
        self.wheel: dict[int, list[Key]] = {}

    def advance(
        self, lines: Iterable[LeaseEvent], finished_us: Iterable[int] = ()
    ) -> list[Segment]:
        """Take in what one batch brought: lines in any order, and heartbeats of ingest.

        Returns the segments to append. Lines are taken in steps of a second of arrival, so
        that in a large batch, too, each segment is known at about the time its line came.
        """
        newest = max(finished_us, default=None)
        if newest is not None:
            self.finished_us = max(newest, self.finished_us or newest)
        segments: list[Segment] = []
        arrived = sorted(lines, key=lambda e: (e.received_us, *order(e)))
        for _, second in groupby(arrived, key=lambda e: e.received_us // SECOND_US):
            step = list(second)
            # Time first: whether a line is too late is asked by its own arrival.
            segments += self._move(step[-1].received_us)
            segments += self._take(step)
        if newest is not None:
            segments += self._move(newest)
        return segments

    @property
    def horizon_us(self) -> int:
        """Lines older than this are too late. Whole seconds: the cut of a batch moves it not."""
        return (self.known_at_us or 0) // SECOND_US * SECOND_US - self.limits.late_us

    def slot(self, time_us: int) -> int:
        """The first slot of the wheel that is not before `time_us`."""
        return -(-time_us // self.limits.sweep_us)

    def enter(self, address: AddressState, timeline: Timeline) -> None:
        """Put an address into the slot in which it is due, unless it stands in an earlier one."""
        kept_us = max((line.time_us for line in address.lines), default=0)
        if timeline.sessions:
            kept_us = max(kept_us, timeline.sessions[-1].end_us)
        due = self.slot(kept_us + self.limits.late_us + KEPT_LONGER_US)
        if self._unpainted(address, timeline):
            due = min(due, self._paint_slot(address))
        due = max(due, self._known // self.limits.sweep_us + 1)
        # It stays in a later slot as well; `_sweep` tells by `due` which of the two counts.
        if not address.due or due < address.due:
            address.due = due
            self.wheel.setdefault(due, []).append((address.scope, address.ip))

    def _unpainted(self, address: AddressState, timeline: Timeline) -> bool:
        return bool(timeline.sessions) and timeline.sessions[-1].end_us > address.painted_us

    def _paint_slot(self, address: AddressState) -> int:
        return self.slot(address.painted_us - self.limits.paint_us)

    def _move(self, arrival_us: int) -> list[Segment]:
        """Let stream time go on; look after the addresses that are due when it is time to."""
        if self.finished_us is not None:
            # Never ahead of ingest: what it has not finished may still bring a line.
            arrival_us = min(arrival_us, self.finished_us)
        if self.known_at_us is not None and arrival_us <= self.known_at_us:
            return []
        self.known_at_us = arrival_us
        if arrival_us < self.swept_us + self.limits.sweep_us:
            return []
        self.swept_us = arrival_us
        return self._sweep()

    def _sweep(self) -> list[Segment]:
        """Settle and forget what is past; go on painting leases that reach far ahead."""
        now = self._known // self.limits.sweep_us
        # Sorted: revisions are numbered in this order, and a retry must give the same.
        due = sorted({key for slot in self.wheel if slot <= now for key in self.wheel[slot]})
        for slot in [slot for slot in self.wheel if slot <= now]:
            del self.wheel[slot]
        segments: list[Segment] = []
        for key in due:
            address = self.addresses.get(key)
            if address is None or address.due > now:
                continue  # forgotten, or it stands in a later slot as well
            old = new = address.timeline()
            if self._unpainted(address, old) and self._paint_slot(address) <= now:
                # First what is still to be said: after an outage the lease may be over by now.
                new = self._painted(address, old, self._farthest(old))
                segments += self._say(old, new, learned_us=self._known)
            address.settle(self.horizon_us)
            if address.empty:
                del self.addresses[key]
                continue
            # Its slot has passed; it is put into the next one in which something may be due.
            address.due = 0
            self.enter(address, new)
        return segments

    def _take(self, lines: Sequence[LeaseEvent]) -> list[Segment]:
        segments: list[Segment] = []
        touched: dict[Key, list[LeaseEvent]] = {}
        for line in lines:
            # What is settled was said for good; the repair of history looks at these lines.
            if line.time_us < self.horizon_us:
                segments.append(too_late(line, self._known, self._rev()))
                self.last_rev = segments[-1].rev
            else:
                touched.setdefault((line.scope, line.ip), []).append(line)
        for key, changes in touched.items():
            address = self.addresses.get(key) or AddressState(*key)
            address.settle(self.horizon_us)
            old = address.timeline()
            if address.insert(changes):
                self.addresses[key] = address
                new = address.timeline()
                new = self._painted(address, new, self._reach(old, new))
                segments += self._say(old, new, max(line.received_us for line in changes))
                self.enter(address, new)
        return segments

    def _reach(self, old: Timeline, new: Timeline) -> int:
        """How far an address is painted once new lines are in.

        A lease that only goes on, and is painted for long enough, is painted on when it is due.
        Else a device that renews every half hour, in a log that names no duration, would have a
        row each time for half an hour of tomorrow, and job `alert` would hold them all until then.
        """
        if old.sessions and new.sessions:
            was, now = old.sessions[-1], new.sessions[-1]
            said_us = min(was.end_us, old.painted_us)
            if was.session_id == now.session_id and said_us - self.limits.paint_us > self._known:
                return said_us
        return self._farthest(old)

    def _farthest(self, old: Timeline) -> int:
        """How far an address may be painted."""
        return max(old.painted_us, self._known + self.limits.ahead_us)

    def _painted(self, address: AddressState, timeline: Timeline, reach_us: int) -> Timeline:
        """The timeline of an address, painted so far."""
        address.painted_us = reach_us
        return msgspec.structs.replace(timeline, painted_us=reach_us)

    def _say(self, old: Timeline, new: Timeline, learned_us: int) -> list[Segment]:
        changes = diff(
            old,
            new,
            self._known,
            self._rev(),
            learned_at_us=learned_us,
            max_span_us=self.limits.max_lease_us,
        )
        if changes:
            self.last_rev = changes[-1].rev
        return changes

    @property
    def _known(self) -> int:
        return self.known_at_us or 0

    def _rev(self) -> int:
        # Near stream time, so that a repair of history can number its rows below what comes next
        # (`enrich.attribution.segment_corrections`).
        return max(self.last_rev + 1, self._known)


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
            kind = EXTEND if change.now.session_id in painted else LEASE
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
    before: dict[str, Session], after: dict[str, Session], painted: set[str], repainted: set[str]
) -> Iterator[tuple[str, int, int, Session]]:
    """Rows of no length for sessions that changed without a change of what is painted."""
    for uid, was in before.items():
        now = after.get(uid)
        if uid in repainted or now == was or uid not in painted:
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
    holders = zip(_holders(was, cuts), _holders(now, cuts), strict=True)
    for (start_us, end_us), (before, after) in zip(pairwise(cuts), holders, strict=False):
        change = _Change(start_us, end_us, before, after)
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


def _holders(
    spans: Sequence[tuple[int, int, Session]], times_us: Iterable[int]
) -> Iterator[Session | None]:
    """Who held the address at each of some ascending instants."""
    # One walk along both: a search for each would cost the square of an address that changes hands
    # all the time, and every batch compares all that it still may have to put right.
    place = 0
    for time_us in times_us:
        while place < len(spans) and spans[place][1] <= time_us:
            place += 1
        covers = place < len(spans) and spans[place][0] <= time_us
        yield spans[place][2] if covers else None


def _uid(session: Session | None) -> str | None:
    return session.session_id if session is not None else None


def _segment(
    address: Timeline,
    kind: str,
    start_us: int,
    end_us: int,
    about: Session,
    stamps: tuple[int, int, int],
) -> Segment:
    free = kind == FREE
    known_at, learned_at, rev = stamps
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
