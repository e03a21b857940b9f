"""What the session job must remember of an address, from what it said and the lines it said it of.

The tables hold all that the state does: `silver.dhcp_segment` each statement about an address,
with the lines it rests on, and `silver.event` the lines. Of a session that runs at the cut, the
newest statement that rests on no line after it is the settled past; the lines since are those of
the table. Whether that is so is not assumed: played, it must give the sessions that were said.
Where lines came out of order it may not, and an earlier statement is tried. Plain Python, no
Spark.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import msgspec

from enrich.dhcp.lease_rules import FREE, TOO_LATE, LeaseEvent, Segment, Session, order, replay
from enrich.dhcp.tracker_state import AddressState


class Cut(msgspec.Struct, frozen=True):
    """Times in microseconds: lines are there from `since_us`, all from `cut_us` must be kept.

    `ahead_us`: how far beyond stream time sessions are painted.
    """

    since_us: int
    cut_us: int
    ahead_us: int

    @property
    def said_us(self) -> int:
        """When a row that reaches `since_us` was said at the earliest."""
        return self.since_us - self.ahead_us

    def wants(self, row: Segment) -> bool:
        """Whether a row tells of a lease that runs, or that one which was said to run does not."""
        runs = row.seg_end is not None and row.seg_end >= self.since_us
        return runs or (row.kind == FREE and row.known_at >= self.said_us)


class Recalled(msgspec.Struct, frozen=True):
    """An address as it is to be remembered; `played`: it gives the sessions that were said.

    Where it does not, the sessions are taken as they were said, and a line from before the cut's
    end that is still to come is put on top of them instead of into its place.
    """

    address: AddressState
    played: bool


def recall(
    scope: str, ip: str, segments: Iterable[Segment], lines: Iterable[LeaseEvent], cut: Cut
) -> Recalled:
    """One address. `segments`: its rows, at least those that `cut` wants; `lines`: those since
    `cut.since_us`, without the ones that came too late. Neither needs an order."""
    needed = (row for row in segments if row.kind != TOO_LATE and cut.wants(row))
    rows = sorted(needed, key=lambda row: row.rev)
    stated = list(_sessions(rows))
    kept = sorted(lines, key=order)
    truth = {s.session_id: s for s in stated}
    for base, mine in _pasts(stated, truth, kept, cut):
        played = replay(mine, base, scope=scope, ip=ip).sessions
        if _agree(played, truth, cut):
            return Recalled(_painted(AddressState(scope, ip, base, mine), rows, played, cut), True)
    running = [s for s in truth.values() if s.end_us >= cut.cut_us and s.end_us > s.start_us]
    last = max(running, key=lambda s: s.start_us, default=None)
    address = AddressState(scope, ip, last, [])
    return Recalled(_painted(address, rows, () if last is None else (last,), cut), False)


def _sessions(rows: Sequence[Segment]) -> Iterator[Session]:
    """Each row's session as it was when the row was said, oldest first."""
    named: dict[str, tuple[str, str | None]] = {}
    for row in rows:
        uid = row.session_id
        if uid is None or row.session_start is None or row.session_end is None:
            continue
        if row.mac is not None:
            named[uid] = row.mac, row.hostname
        if uid in named:
            # A row that frees the address names no client; an earlier one of the lease did.
            mac, hostname = named[uid]
            times = row.session_start, row.session_end
            evidence = tuple(row.event_uids or ())
            yield Session(uid, mac, hostname, *times, evidence, row.ended or "")


def _pasts(
    stated: Sequence[Session],
    truth: dict[str, Session],
    lines: list[LeaseEvent],
    cut: Cut,
) -> Iterator[tuple[Session | None, list[LeaseEvent]]]:
    """What may have been the settled session, and the lines since; the likeliest first."""
    since = [line for line in lines if line.time_us >= cut.cut_us]
    fresh = {line.event_uid for line in since}
    pasts: dict[Session, None] = {}
    for session in reversed(stated):
        runs = session.start_us < cut.cut_us <= session.end_us
        if runs and not fresh.intersection(session.evidence):
            pasts[session] = None
    if not any(s.start_us < cut.cut_us <= s.end_us for s in truth.values()):
        yield None, since
    for base in pasts:
        yield base, _after(base, lines)
    # Without a settled session at all: its grant may be among the lines that are there.
    yield None, lines


def _after(base: Session, lines: list[LeaseEvent]) -> list[LeaseEvent]:
    """The lines that followed what a session rests on."""
    evidence = frozenset(base.evidence)
    last = max((n for n, line in enumerate(lines) if line.event_uid in evidence), default=-1)
    return lines[last + 1 :]


def _agree(played: Sequence[Session], truth: dict[str, Session], cut: Cut) -> bool:
    lasting = {uid for uid, s in truth.items() if s.end_us >= cut.cut_us and s.end_us > s.start_us}
    agrees = all(truth.get(s.session_id) == s or s.end_us < cut.cut_us for s in played)
    return agrees and lasting <= {s.session_id for s in played}


def _painted(
    address: AddressState, rows: Sequence[Segment], sessions: Sequence[Session], cut: Cut
) -> AddressState:
    """The address with how far it was said: to the end of its last session, or as far as that."""
    reach = max((row.known_at for row in rows), default=0) + cut.ahead_us
    if sessions:
        last = sessions[-1]
        seg_ends = [
            row.seg_end
            for row in rows
            if row.session_id == last.session_id and row.kind != FREE and row.seg_end is not None
            # A row of no length paints nothing: it corrects a lease's times.
            if row.seg_start != row.seg_end
        ]
        far = max(seg_ends, default=last.end_us)
        reach = far if far < last.end_us else max(reach, last.end_us)
    address.painted_us = reach
    return address
