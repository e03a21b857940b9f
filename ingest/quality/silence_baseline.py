"""How long a source may pause, by its pauses so far: plain rules, no tables.

A pause that was itself told as a silence is no habit, or a source that was dead for days could be
dead for days again and nobody would be told. Neither is the time in which nobody can tell
whether a source sent anything: while nothing at all arrived, not even ticks, where its messages
were lost, and while nobody read its files.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import pairwise

OUTAGE = timedelta(minutes=15)
"""Shorter than this nothing at all may arrive: a batch that takes long brings no tick either."""

_USUAL = 3
"""A silence that was told so often within the look-back is a habit after all: each night."""

_REPORTED, _OUT, LOST = "reported as silent", "nothing arrived at all", "its messages were lost"
_UNREAD = "its files were not read"
"""Why a pause is left out."""

SilentInterval = tuple[datetime, datetime]


@dataclass(frozen=True)
class SourceActivity:
    """When a source was heard: in `minutes`, and its pauses longer than `OUTAGE`."""

    source: str
    first: datetime
    newest: datetime
    minutes: int
    short: float
    """Its longest pause of the others, in seconds."""
    long: Sequence[SilentInterval] = ()


@dataclass(frozen=True)
class Unknown:
    """Times in which nobody can tell whether a source sent anything."""

    out: Sequence[SilentInterval] = ()
    lost: Sequence[SilentInterval] = ()
    unread: Sequence[SilentInterval] = ()
    """In which its files were not read, if it comes as files."""

    def within(self, pause: SilentInterval) -> float:
        """Seconds of a pause that are such times."""
        silences = merged_intervals(_cut([*self.out, *self.lost, *self.unread], pause))
        return sum((end - start).total_seconds() for start, end in silences)

    def why(self, pause: SilentInterval) -> str:
        """Why a pause that has such times is no habit."""
        if any(_cut(self.out, pause)):
            return _OUT
        return LOST if any(_cut(self.lost, pause)) else _UNREAD


@dataclass(frozen=True)
class Left:
    """A pause that is not, or not all, a habit. `seconds`: so much of it is not."""

    since: datetime
    seconds: float
    why: str


@dataclass
class SilenceHabit:
    """The longest pause that is usual, and what was left out that would have been longer."""

    longest: float
    left: list[Left] = field(default_factory=list)


def habit(activity: SourceActivity, unknown: Unknown, reported: Iterable[datetime]) -> SilenceHabit:
    """How long a source usually pauses at most. `reported`: when it was reported as silent."""
    instants = sorted(reported)
    longest, silent = activity.short, []
    left: list[tuple[float, Left]] = []
    for start, end in activity.long:
        whole = (end - start).total_seconds()
        usual = whole - unknown.within((start, end))
        # The pause was reported as a silence while it lasted.
        if bisect_right(instants, end) > bisect_right(instants, start):
            silent.append(usual)
            left.append((whole, Left(start, whole, _REPORTED)))
            continue
        longest = max(longest, usual)
        if usual < whole:
            left.append((whole, Left(start, whole - usual, unknown.why((start, end)))))
    if len(silent) >= _USUAL:
        # The third longest: it was reached so often that it is usual.
        longest = max(longest, sorted(silent)[-_USUAL])
    return SilenceHabit(longest, [pause for whole, pause in left if whole > longest])


def outages(
    activities: Sequence[SourceActivity], since: datetime, at: datetime
) -> list[SilentInterval]:
    """Times longer than `OUTAGE` in which none of the sources was heard, ticks left aside."""
    steps: list[tuple[datetime, int]] = []
    for activity in activities:
        for start, end in ((since, activity.first), *activity.long, (activity.newest, at)):
            steps += [(start, 1), (end, -1)]
    quiet, began, out = 0, since, []
    # Where one ends and another begins at the same instant, something was heard between them.
    for instant, step in sorted(steps):
        if quiet == len(activities) and instant - began > OUTAGE:
            out.append((began, instant))
        quiet += step
        began = instant
    return out


def without_ticks(
    quiet: Iterable[SilentInterval], ticks: Sequence[datetime]
) -> Iterator[SilentInterval]:
    """The parts of times, longer than `OUTAGE`, without a tick; `ticks` are in their order.

    Only between the first tick and the last: before and after them nobody can tell.
    """
    for start, end in _cut(quiet, (ticks[0], ticks[-1])) if ticks else ():
        inside = ticks[bisect_right(ticks, start) : bisect_left(ticks, end)]
        points = [start, *inside, end]
        for before, after in pairwise(points):
            if after - before > OUTAGE:
                yield before, after


def merged_intervals(intervals: Iterable[SilentInterval]) -> Iterator[SilentInterval]:
    """The same times, each once."""
    held: SilentInterval | None = None
    for start, end in sorted(intervals):
        if held is None or start > held[1]:
            if held is not None:
                yield held
            held = start, end
        else:
            held = held[0], max(held[1], end)
    if held is not None:
        yield held


def _cut(intervals: Iterable[SilentInterval], to: SilentInterval) -> Iterator[SilentInterval]:
    for start, end in intervals:
        low, high = max(start, to[0]), min(end, to[1])
        if low < high:
            yield low, high
