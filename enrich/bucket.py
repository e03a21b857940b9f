"""What the session job remembers of a bucket of addresses, and how it takes in new lines.

For each address: the session that ran when its past was settled, and the raw lines since. A
line that comes late, but not later than `late_seconds`, is put in its place and the address
played again before and after it; only the differences are said. So the order of arrival does
not matter inside that time, and neither do the cuts between batches.

Stream time (`known_at`) is how far the input is known: the arrival time of the newest line, but
never beyond what ingest says it has finished (its heartbeats). While several partitions catch
up at different speeds, ingest's heartbeat is that of the slowest; taking the newest line instead
would settle addresses whose lines are still to come and push time past other buckets' rows.

Nothing here looks at a clock or at chance: the same input gives the same rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby

import msgspec

from enrich.leases import (
    SECOND_US,
    LeaseEvent,
    Segment,
    Session,
    Timeline,
    diff,
    order,
    replay,
    too_late,
)
from infra.errors import Fatal

MAGIC = b"headgate.sessions"
VERSION = 1


class Limits(msgspec.Struct, frozen=True):
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
    def sweep_us(self) -> int:
        """How often addresses that nobody asked about are looked at."""
        return max(1, min(self.late_us, self.max_lease_us) // 8)


class AddressState(msgspec.Struct, array_like=True):
    """One address: its settled session, the lines since, and how far it has been painted."""

    scope: str
    ip: str
    base: Session | None = None
    lines: list[LeaseEvent] = []
    painted_us: int = 0

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
        self.lines.sort(key=order)
        return len(self.lines) > count

    def settle(self, horizon_us: int) -> None:
        """Make the base of what happened before `horizon_us`; no line from there may come."""
        past = [line for line in self.lines if line.time_us < horizon_us]
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


class BucketState:
    """The addresses of one bucket, how far time has come, and the last revision given.

    `last_rev` is the bucket's, not the address's: it outlives addresses that are forgotten.
    """

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.known_at_us: int | None = None
        self.finished_us: int | None = None
        self.swept_us = 0
        self.last_rev = 0
        self.addresses: dict[tuple[str, str], AddressState] = {}

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
        said: list[Segment] = []
        arrived = sorted(lines, key=lambda e: (e.received_us, *order(e)))
        for _, second in groupby(arrived, key=lambda e: e.received_us // SECOND_US):
            step = list(second)
            said += self._move(step[-1].received_us)
            said += self._take(step)
        if newest is not None:
            said += self._move(newest)
        return said

    @property
    def horizon_us(self) -> int:
        """Lines older than this are too late. Whole seconds: the cut of a batch moves it not."""
        return (self.known_at_us or 0) // SECOND_US * SECOND_US - self.limits.late_us

    def _move(self, arrival_us: int) -> list[Segment]:
        """Let stream time go on; look after every address when that is due."""
        if self.finished_us is not None:
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
        said: list[Segment] = []
        for key, address in list(self.addresses.items()):
            address.settle(self.horizon_us)
            if address.empty:
                del self.addresses[key]
            elif address.painted_us - self._known < self.limits.ahead_us // 2:
                old = address.timeline()
                if old.sessions and old.sessions[-1].end_us > old.painted_us:
                    said += self._say(address, old, learned_us=self._known)
        return said

    def _take(self, lines: Sequence[LeaseEvent]) -> list[Segment]:
        said: list[Segment] = []
        touched: dict[tuple[str, str], list[LeaseEvent]] = {}
        for line in lines:
            if line.time_us < self.horizon_us:
                said.append(too_late(line, self._known, self._rev()))
                self.last_rev = said[-1].rev
            else:
                touched.setdefault((line.scope, line.ip), []).append(line)
        for key, found in touched.items():
            address = self.addresses.get(key) or AddressState(*key)
            old = address.timeline()
            if address.insert(found):
                self.addresses[key] = address
                said += self._say(address, old, max(line.received_us for line in found))
                address.settle(self.horizon_us)
        return said

    def _say(self, address: AddressState, old: Timeline, learned_us: int) -> list[Segment]:
        address.painted_us = max(address.painted_us, self._known + self.limits.ahead_us)
        said = diff(
            old,
            address.timeline(),
            self._known,
            self._rev(),
            learned_at_us=learned_us,
            max_span_us=self.limits.max_lease_us,
        )
        if said:
            self.last_rev = said[-1].rev
        return said

    @property
    def _known(self) -> int:
        return self.known_at_us or 0

    def _rev(self) -> int:
        return max(self.last_rev + 1, self._known)


class _Kept(msgspec.Struct, array_like=True):
    """The state as it is written."""

    known_at_us: int | None
    finished_us: int | None
    swept_us: int
    last_rev: int
    addresses: list[AddressState]


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(_Kept)


def encode(state: BucketState) -> bytes:
    """The state as one blob: a name, a version byte, MessagePack."""
    kept = _Kept(
        state.known_at_us,
        state.finished_us,
        state.swept_us,
        state.last_rev,
        list(state.addresses.values()),
    )
    return MAGIC + bytes([VERSION]) + _encoder.encode(kept)


def decode(blob: bytes, limits: Limits) -> BucketState:
    """The state `encode` wrote. Raises `Fatal` for what this release cannot read."""
    head = len(MAGIC)
    if blob[:head] != MAGIC or len(blob) <= head:
        raise Fatal(
            f"job sessions: its state starts with {blob[:head]!r}, not with {MAGIC!r}; "
            "the checkpoint belongs to something else"
        )
    if blob[head] != VERSION:
        raise Fatal(
            f"job sessions: its state has version {blob[head]}, this release reads {VERSION}; "
            "run the release that wrote it, or start the job on a new checkpoint"
        )
    try:
        kept = _decoder.decode(blob[head + 1 :])
    except msgspec.MsgspecError as error:
        raise Fatal(
            f"job sessions: its state cannot be read ({error}); restore the checkpoint, "
            "or start the job on a new one"
        ) from error
    state = BucketState(limits)
    state.known_at_us, state.finished_us = kept.known_at_us, kept.finished_us
    state.swept_us, state.last_rev = kept.swept_us, kept.last_rev
    state.addresses = {(a.scope, a.ip): a for a in kept.addresses}
    return state
