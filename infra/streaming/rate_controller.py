"""How much a batch takes: little while a job keeps up, much while it catches up.

Kafka's limit is fixed while a query runs, and a new one costs a restart of the query on its
checkpoint (some seconds in a warm session). So there are two regimes, and a change only
between them, or when memory asks for less. Everything here is plain arithmetic; what a row
costs is learned from the batches themselves.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

Regime = Literal["steady", "behind"]

SPREAD = 1e-3
"""Variance of x, relative to its mean squared, below which the points lie too close for a line: a
job that catches up has batches of one size, and what differs between them is chance."""

_FORGET = 0.97
"""What a batch's weight becomes with each later one: some thirty batches count."""


@dataclass(frozen=True)
class RateLine:
    """`y = fixed + slope * x`, fitted to the last batches by least squares that forget.

    It begins as `guess` (a slope), which a few real points outweigh.
    """

    guess: float
    n: float = 0.0
    x: float = 0.0
    y: float = 0.0
    xx: float = 0.0
    xy: float = 0.0

    def seen(self, x: float, y: float) -> RateLine:
        """The line after one more point."""
        f = _FORGET
        return replace(
            self,
            # Sums alone, which forget by one factor: no batch has to be kept.
            n=f * self.n + 1,
            x=f * self.x + x,
            y=f * self.y + y,
            xx=f * self.xx + x * x,
            xy=f * self.xy + x * y,
        )

    @property
    def slope(self) -> float:
        """y for each x; never below a hundredth of the guess, so that it can be divided by.

        Nor above y / x, since then y would be negative where x is 0: that much also points that
        lie too close for a line can say against a guess.
        """
        # One point makes no line.
        if self.n < 2:
            return self.guess
        spread = self.n * self.xx - self.x * self.x
        close = spread <= SPREAD * self.x * self.x
        fitted = self.guess if close else (self.n * self.xy - self.x * self.y) / spread
        return max(min(fitted, self.y / self.x), self.guess / 100)

    @property
    def fixed(self) -> float:
        """y where x is 0; never negative."""
        return max(0.0, (self.y - self.slope * self.x) / self.n) if self.n else 0.0


@dataclass(frozen=True)
class Learned:
    """What batches of a job cost here."""

    seconds: RateLine = RateLine(guess=1 / 5_000)
    """By message: planning and commits are fixed, the rest grows with messages."""
    bytes: RateLine = RateLine(guess=500.0)
    """Bytes by message."""
    memory: RateLine = RateLine(guess=3.0)
    """Resident bytes of the workers by byte of a batch."""

    def seen(self, batch: BatchSeen) -> Learned:
        """With one more batch. One without messages says nothing of what a message costs."""
        if not batch.messages:
            return self
        return Learned(
            seconds=self.seconds.seen(batch.messages, batch.seconds),
            bytes=self.bytes.seen(batch.messages, batch.bytes) if batch.bytes else self.bytes,
            memory=(
                self.memory.seen(batch.bytes, batch.memory)
                if batch.bytes and batch.memory
                else self.memory
            ),
        )

    def messages_in(self, seconds: float) -> int:
        """How many messages a batch of so many seconds takes."""
        return int(max(0.0, seconds - self.seconds.fixed) / self.seconds.slope)

    def messages_within(self, memory: float) -> int:
        """How many messages make the workers grow by so many bytes."""
        return int(memory / (self.memory.slope * self.bytes.slope))


@dataclass(frozen=True)
class BatchSeen:
    """A batch that is in. `memory`: the most its workers held, bytes; 0: not measured."""

    messages: int
    bytes: int
    seconds: float
    memory: int
    left: int
    """Messages that were there and not taken when it was planned."""


@dataclass(frozen=True)
class RateLimits:
    """What the settings allow."""

    most: int
    least: int
    steady_seconds: float
    """How long a batch may take while the job keeps up."""
    behind_seconds: float
    """The same while it catches up; longer ones gain little and show no progress."""
    memory: int
    """Bytes by which the workers may grow with a batch."""


@dataclass(frozen=True)
class Pace:
    """A regime and its cap. `streak`: batches in a row that spoke for the other regime."""

    regime: Regime
    cap: int
    streak: int = 0


def caps(learned: Learned, limits: RateLimits) -> tuple[int, int]:
    """Most messages of a batch: while keeping up, and while catching up."""
    within = min(learned.messages_within(limits.memory), limits.most)
    large = _between(limits.least, learned.messages_in(limits.behind_seconds), within)
    small = _between(limits.least, learned.messages_in(limits.steady_seconds), large)
    return small, large


def _between(least: int, value: int, most: int) -> int:
    # `most` outranks `least`: it is also what memory allows.
    return max(1, min(max(least, value), most))


def begin_regime(backlog: int, learned: Learned, limits: RateLimits) -> Pace:
    """The pace to start with, where so many messages wait."""
    small, large = caps(learned, limits)
    return Pace("behind", large) if backlog > _enter(small) else Pace("steady", small)


def _enter(small: int) -> int:
    """A backlog above this is an outage's, not a moment's: five small batches."""
    return 5 * small


_PATIENCE = 2
"""So many batches in a row must find a backlog before the regime changes."""


SAVED = 4.0
"""A larger cap within a catch-up must save so many batches: what planning and commits cost them
is then more than the restart of the query, some five seconds (`bench/catch_up`)."""


def follow(pace: Pace, batch: BatchSeen, learned: Learned, limits: RateLimits) -> Pace:
    """The pace after `batch`, `learned` including it; the same cap unless a restart is worth it.

    Up after `PATIENCE` batches that left a backlog; down at once when nothing much is left.
    Between the two thresholds nothing changes. While behind, less at once when batches as large
    as the cap would take twice the memory or time they may; and more when they may be twice as
    large and `SAVED` batches fewer then work off what is left.
    """
    small, large = caps(learned, limits)
    if pace.regime == "behind":
        # Far below the mark that began it, or the regime would go back and forth.
        if batch.left <= small // 2:
            return Pace("steady", small)
        less = pace.cap > 2 * large
        more = large > 2 * pace.cap and batch.left / pace.cap - batch.left / large > SAVED
        return Pace("behind", large) if less or more else pace
    if batch.left <= _enter(small):
        return replace(pace, streak=0)
    if pace.streak + 1 < _PATIENCE:
        return replace(pace, streak=pace.streak + 1)
    return Pace("behind", large)


def restart(before: Pace, after: Pace) -> bool:
    """Whether the query must be started anew for it."""
    return (before.regime, before.cap) != (after.regime, after.cap)
