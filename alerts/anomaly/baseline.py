"""What is usual for a device, and how unusual an hour is: plain rules over numbers.

An hour is compared with the same time of day, an hour sooner and later included, workdays and
weekends apart (UTC). Volumes are compared by their logarithm, robustly: a few odd hours in the
history move neither the centre nor the spread. Hours in which a device was silent count as zero.

The stray of an hour says by how many spreads it exceeds its centre. Whether that is rare is asked
of the device's peers: how often did their hours, in all the history, stray as far? So a score of
6 is one in a million hours of the peers, whatever the rule measures. **The score never falls
while an hour fills**: what exceeds the threshold does so for good, and a stream that adds up an
hour finds the hours that history finds.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

BaselineNumbers = npt.NDArray[np.float64]

HOUR_SECONDS = 3600
SLOTS = 48
"""Hours of the day on workdays, then on weekends."""

FLOOR = 0.4
"""Smallest spread, in logarithms: an hour half as large again as usual is nothing."""

_USUAL = (0.1, 0.5, 0.9)
SIGMA_OF_MAD, SIGMA_OF_TENTH = 1.4826, 1.2816
"""A normal distribution's deviation, from the median deviation and from its upper tenth."""

LEAST_STRAY = 1.0
TAIL_SHARE = 0.02
"""The most unusual hours, from which it is told how often still more unusual ones come."""
MOST_SCORE = 20.0
"""Beyond it nothing is known: no fleet has so many hours."""
PRIOR_HOURS, PRIOR_EXCESS = 10, 1.0
"""What is assumed of the tail before anything is seen: few peers tell little."""


class Profile(NamedTuple):
    """What is usual for one device in one feature, by slot; `low` and `high` are quantities."""

    centre: BaselineNumbers
    spread: BaselineNumbers
    low: BaselineNumbers
    high: BaselineNumbers
    largest: float


class Tail(msgspec.Struct, frozen=True):
    """How often hours of peers stray beyond `start`, and by how much more on average."""

    start: float
    share: float
    excess: float

    def score(self, stray: float) -> float:
        """-log10 of the share of the peers' hours that stray as far, at most `MOST_SCORE`."""
        if stray <= 0:
            return 0.0
        at_start = -math.log10(self.share)
        # Below the tail nothing was fitted: a straight line keeps the score growing with the stray.
        if stray <= self.start:
            return at_start * stray / self.start
        return min(at_start + (stray - self.start) / (self.excess * math.log(10)), MOST_SCORE)


def slot_of(hour: int) -> int:
    """The slot of an hour that begins so many seconds after 1970, UTC."""
    instant = datetime.fromtimestamp(hour, UTC)
    return instant.hour + 24 * (instant.weekday() >= 5)


def slots_of(hours: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """The same of many. The first of January 1970 was a Thursday."""
    number = hours // HOUR_SECONDS
    weekend = (number // 24 + 3) % 7 >= 5
    return np.where(weekend, number % 24 + 24, number % 24)


def profile_of(hours: npt.NDArray[np.int64], values: BaselineNumbers, until: int) -> Profile:
    """What is usual, from a device's hours (ascending starts, seconds) and their quantities.

    From its first hour up to `until` every hour counts; those that are not given were silent.
    """
    # From its first hour on: a device that is new was not silent before.
    every = np.arange(hours[0], max(until, int(hours[-1]) + 1), HOUR_SECONDS)
    dense = np.zeros(len(every))
    dense[(hours - hours[0]) // HOUR_SECONDS] = values
    slots = slots_of(every)
    # `log1p`, since silent hours are zero.
    levels = np.log1p(dense)
    usual = np.empty((4, SLOTS))
    for slot in range(SLOTS):
        # Compared one by one: to look for three numbers `isin` takes ten times as long.
        sooner, same, later = (slots == near for near in _near(slot))
        usual[:, slot] = _usual(levels[sooner | same | later], levels)
    centre, spread, low, high = usual
    return Profile(centre, spread, np.expm1(low), np.expm1(high), float(dense.max()))


def _near(slot: int) -> list[int]:
    """The slot, and those an hour sooner and later on days of its kind."""
    first = slot - slot % 24
    return [first + (slot + step) % 24 for step in (-1, 0, 1)]


def _usual(levels: BaselineNumbers, every: BaselineNumbers) -> tuple[float, float, float, float]:
    """Centre, spread, low and high of a slot; one that never came is like all hours."""
    if not len(levels):
        levels = every
    low, centre, high = np.quantile(levels, _USUAL)
    deviation = SIGMA_OF_MAD * float(np.median(np.abs(levels - centre)))
    return centre, max(deviation, (high - centre) / SIGMA_OF_TENTH, FLOOR), low, high


def strays(
    hours: npt.NDArray[np.int64], values: BaselineNumbers, profile: Profile, least: int
) -> BaselineNumbers:
    """By how many spreads each hour exceeds what is usual; 0 below `least`."""
    slots = slots_of(hours)
    far = (np.log1p(values) - profile.centre[slots]) / profile.spread[slots]
    # Only more than usual strays: a quiet hour is no sign of an attack.
    return np.where(values < max(least, 1), 0.0, np.maximum(far, 0.0))


def stray(hour: int, value: float, profile: Profile, least: int) -> float:
    """The same of one hour."""
    return float(strays(np.array([hour]), np.array([value]), profile, least)[0])


def tail_of(far: BaselineNumbers, hours: int) -> Tail:
    """The tail of peers' strays: those above `LEAST_STRAY`, of so many hours in all."""
    # Sorted: which hours are among the most unusual must not depend on the order of devices.
    far = np.sort(far)
    kept = max(round(hours * TAIL_SHARE), 1)
    start = max(float(far[-kept]) if len(far) >= kept else LEAST_STRAY, LEAST_STRAY)
    beyond = far[far > start] - start
    # The median, not the mean: an attack in the history must not teach that attacks are usual.
    typical = float(np.median(beyond)) / math.log(2) if len(beyond) else PRIOR_EXCESS
    excess = (len(beyond) * typical + PRIOR_HOURS * PRIOR_EXCESS) / (len(beyond) + PRIOR_HOURS)
    # One more than was seen: what never came may still come, and a share of 0 has no logarithm.
    share = (len(beyond) + 1) / (max(hours, len(beyond)) + 1)
    return Tail(start, min(share, 0.5), excess)


def shape(profiles: Sequence[Profile]) -> list[float]:
    """How a device behaves, for finding its peers: its level by part of the day, and how steady."""
    lines: list[float] = []
    for profile in profiles:
        # Quarters of a day: 48 slots would let chance decide whose peer a device is.
        parts = profile.centre.reshape(-1, 6).mean(axis=1)
        lines += [*parts.tolist(), float(profile.spread.mean())]
    return lines
