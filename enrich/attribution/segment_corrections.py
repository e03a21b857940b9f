"""What the stream said of an address against what its lines say: the corrections. No Spark.

The tracker takes a line only if it comes within `allowed_lateness_seconds`; what comes later,
by a server that was cut off, an import or a reparse, is repaired from the tables. The rules are
the same; the lines of an address are replayed from the lease that ran when the first doubtful
line was written, and where that differs from what is true so far, rows are said that paint over
it. Nothing that was said is changed, so what was known before stays known.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise

import msgspec
import numpy as np

from enrich.attribution.asof_join import flatten
from enrich.dhcp.lease_rules import EXCHANGE_US, SECOND_US, LeaseEvent, Segment, Session, replay
from enrich.dhcp.tracker_state import TrackerLimits

REPAIR = "repair"
"""`kind` of the rows said here."""

REACH_US = 14 * 86400 * SECOND_US
"""A lease that was renewed for longer is taken as it was said, not from its first line."""


class CorrectionStamp(msgspec.Struct, frozen=True):
    """When a repair is said: stream time, and the clock's. Both are on each of its rows."""

    known_us: int
    learned_us: int


class _Piece(msgspec.Struct, frozen=True):
    """A span and what is true of it; no session: the address was free."""

    start_us: int
    end_us: int
    session: Session | None


def lines_since(since_us: int) -> int:
    """From when on `mend` may want the lines of an address, microseconds of event time."""
    return since_us - REACH_US - 2 * EXCHANGE_US


def correct_segments(
    recorded: Sequence[Segment],
    lines: Iterable[LeaseEvent],
    since_us: int,
    stamp: CorrectionStamp,
    limits: TrackerLimits,
    kept_us: int = 0,
) -> list[Segment]:
    """Rows that, painted over `recorded`, make an address's history what its lines say from
    `since_us` on; none if it is so already.

    `recorded`: what was said of the address with a session (without heartbeats and lines that were
    too late). `lines`: all since `lines_since`, in any order, but before `kept_us` some may have
    been taken out by age; a lease whose grant was is taken as it was said. Rows have revs above
    all of `recorded`, and below what the tracker says next unless it just spoke.
    """
    lines = list(lines)
    leases = _newest(recorded)
    true = _true(recorded, leases)
    unproven = _unproven(leases.values(), lines, kept_us)
    if any(leases[uid].end_us > since_us for uid in unproven):
        # A replay without the lines that retention took would undo what they once proved.
        since_us = max(since_us, kept_us)
    begin, base = _begin(true, since_us, unproven)
    # A line so long before it may explain one behind it (see `EXCHANGE_US`).
    used = [line for line in lines if line.time_us >= begin - 2 * EXCHANGE_US]
    sessions = [s for s in replay(used, base).sessions if s.end_us > begin]
    # No further than the tracker paints, which says the rest in due time.
    limit = stamp.known_us + limits.ahead_us
    was = _clipped(true, begin, limit)
    now = _clipped([_Piece(s.start_us, s.end_us, s) for s in sessions], begin, limit)
    segments = [*_painted(was, now, leases, limits.max_lease_us)]
    segments += _notes(leases, sessions, {about.session_id for _, about in segments}, begin)
    address = _address(recorded, used)
    # The tracker numbers by stream time: a second below it, what it says next is above.
    first = max([stamp.known_us - SECOND_US, *(row.rev + 1 for row in recorded)])
    return [
        _row(address, piece, about, stamp, first + n) for n, (piece, about) in enumerate(segments)
    ]


def _address(
    segments: Sequence[Segment], lines: Sequence[LeaseEvent]
) -> tuple[str | None, str | None]:
    if segments:
        return segments[0].scope, segments[0].ip
    return (lines[0].scope, lines[0].ip) if lines else (None, None)


_Told = tuple[_Piece, Session]
"""A span with its new holder, and the session the row is about."""


def _newest(segments: Iterable[Segment]) -> dict[str, Session]:
    """Each session as the newest statement about it has it."""
    sessions: dict[str, Session] = {}
    for row in sorted(segments, key=lambda row: row.rev):
        if row.session_id is None or row.session_start is None or row.session_end is None:
            continue
        before = sessions.get(row.session_id)
        # A row that frees the address names no client; the rows of the lease before it do.
        mac = row.mac or (before.mac if before else "")
        name = row.hostname or (before.hostname if before else None)
        sessions[row.session_id] = Session(
            row.session_id,
            mac,
            name,
            row.session_start,
            row.session_end,
            tuple(row.event_uids or ()),
            row.ended or "expired",
        )
    return sessions


def _true(segments: Sequence[Segment], leases: dict[str, Session]) -> list[_Piece]:
    """What is true of the address: the highest rev of each instant, neighbours joined."""
    spans = [s for s in segments if s.seg_start is not None and s.seg_end is not None]
    # Rows of no length only tell of a lease; they cover nothing.
    spans = [s for s in spans if (s.seg_end or 0) > (s.seg_start or 0)]
    if not spans:
        return []
    columns = ([s.seg_start for s in spans], [s.seg_end for s in spans], [s.rev for s in spans])
    starts, ends, owners = flatten(*(np.array(column, dtype=np.int64) for column in columns))
    pieces: list[_Piece] = []
    for start, end, owner in zip(starts.tolist(), ends.tolist(), owners.tolist(), strict=True):
        row = spans[owner]
        session = leases.get(row.session_id or "") if row.mac is not None else None
        last = pieces[-1] if pieces else None
        if last and last.end_us == start and last.session == session:
            pieces[-1] = _Piece(last.start_us, end, session)
        else:
            pieces.append(_Piece(start, end, session))
    return pieces


def _unproven(
    leases: Iterable[Session], lines: Iterable[LeaseEvent], kept_us: int
) -> frozenset[str]:
    """Leases from a time of which lines may be gone, and whose own first line is."""
    there = {line.event_uid for line in lines}
    old = (lease for lease in leases if lease.start_us < kept_us)
    return frozenset(lease.session_id for lease in old if there.isdisjoint(lease.evidence[:1]))


def _begin(
    true: Sequence[_Piece], since_us: int, unproven: frozenset[str]
) -> tuple[int, Session | None]:
    """Where the replay begins, and the session that stands for the lines before."""
    running = [
        piece.session
        for piece in true
        if piece.session is not None and piece.start_us <= since_us and piece.end_us >= since_us
    ]
    if not running:
        return since_us, None
    oldest = min(running, key=lambda session: session.start_us)
    # From its first line on the lease is played anew; else it enters the replay as it was said.
    if since_us - oldest.start_us <= REACH_US and oldest.session_id not in unproven:
        return min(since_us, oldest.start_us), None
    return since_us, oldest


def _clipped(pieces: Sequence[_Piece], begin: int, limit: int) -> list[_Piece]:
    clipped = (_Piece(max(p.start_us, begin), min(p.end_us, limit), p.session) for p in pieces)
    return [piece for piece in clipped if piece.end_us > piece.start_us]


def _painted(
    was: Sequence[_Piece], now: Sequence[_Piece], leases: dict[str, Session], longest_us: int
) -> Iterator[_Told]:
    """Spans that another session holds now, none longer than `longest_us`."""
    after = {p.session.session_id: p.session for p in now if p.session is not None}
    for start, end, old, new in _changes(was, now):
        if new is not None:
            about = new
        elif old is not None:
            lease = leases[old.session_id]
            about = after.get(old.session_id) or _gone(lease)
        else:
            continue
        # As the tracker does: no row is longer than job `alert` holds one.
        for index in range(start, end, longest_us):
            yield _Piece(index, min(index + longest_us, end), new), about


_Change = tuple[int, int, Session | None, Session | None]


def _changes(was: Sequence[_Piece], now: Sequence[_Piece]) -> Iterator[_Change]:
    """Spans where two histories differ; where only a lease goes on, the tracker paints it."""
    cuts = sorted({edge for piece in (*was, *now) for edge in (piece.start_us, piece.end_us)})
    held: _Change | None = None
    before, after = _Walk(was), _Walk(now)
    for start, end in pairwise(cuts):
        last, earlier = before.to(start)
        _, played = after.to(start)
        old, new = _session(earlier), _session(played)
        if _uid(old) == _uid(new) or (earlier is None and _goes_on(last, start, new)):
            continue
        same = held is not None and held[1] == start and _uid(held[3]) == _uid(new)
        if held and same and (new is not None or _uid(held[2]) == _uid(old)):
            held = (held[0], end, held[2], new)
            continue
        if held:
            yield held
        held = (start, end, old, new)
    if held:
        yield held


class _Walk:
    """Pieces of an address in order, gone along once: a search for each instant would cost the
    square of an address that changes hands all the time."""

    def __init__(self, pieces: Sequence[_Piece]) -> None:
        self._pieces = pieces
        self._at = 0

    def to(self, time_us: int) -> tuple[_Piece | None, _Piece | None]:
        """The last piece that is over by an instant, and the one that covers it; instants must
        ascend."""
        pieces = self._pieces
        while self._at < len(pieces) and pieces[self._at].end_us <= time_us:
            self._at += 1
        last = pieces[self._at - 1] if self._at else None
        begun = self._at < len(pieces) and pieces[self._at].start_us <= time_us
        return last, pieces[self._at] if begun else None


def _session(piece: _Piece | None) -> Session | None:
    return None if piece is None else piece.session


def _goes_on(last: _Piece | None, at: int, new: Session | None) -> bool:
    """Whether a lease was said to go on beyond what is painted of it so far. `last`: the piece
    that is over by then; no other says anything of the instant."""
    if last is None or last.end_us != at or last.session is None:
        return False
    return _uid(last.session) == _uid(new) and last.session.end_us > at


def _notes(
    leases: dict[str, Session], sessions: Sequence[Session], rewritten: set[str], begin: int
) -> Iterator[_Told]:
    """Rows of no length for leases whose start or end is another one than was said."""
    after = {session.session_id: session for session in sessions}
    for uid, lease in leases.items():
        new = after.get(uid)
        if uid in rewritten or (new is None and (lease.start_us < begin or _void(lease))):
            continue
        about = new or _gone(lease)
        if (about.start_us, about.end_us) != (lease.start_us, lease.end_us):
            yield _Piece(about.end_us, about.end_us, new), about


def _void(session: Session) -> bool:
    return session.end_us <= session.start_us


def _gone(session: Session) -> Session:
    return msgspec.structs.replace(session, end_us=session.start_us, ended="withdrawn")


def _uid(session: Session | None) -> str | None:
    return session.session_id if session is not None else None


def _row(
    address: tuple[str | None, str | None],
    piece: _Piece,
    about: Session,
    stamp: CorrectionStamp,
    rev: int,
) -> Segment:
    free = piece.session is None
    return Segment(
        scope=address[0],
        ip=address[1],
        seg_start=piece.start_us,
        seg_end=piece.end_us,
        mac=None if free else about.mac,
        hostname=None if free else about.hostname,
        session_id=about.session_id,
        session_start=about.start_us,
        session_end=about.end_us,
        known_at=stamp.known_us,
        learned_at=stamp.learned_us,
        rev=rev,
        kind=REPAIR,
        event_uids=about.evidence,
        ended=about.ended,
    )
