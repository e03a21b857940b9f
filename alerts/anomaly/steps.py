"""What programs do to programs, and how rare that is among devices: plain counting, no Spark.

A step is "winword.exe started cmd.exe": a program, a verb, another program. It is counted by the
days of devices on which it was seen, so that a program that does something a thousand times an
hour weighs no more than another. What was never seen is not all alike: a program that does
something new on every other device will do so again, and one that never did will not. Names that
only one device has are one word, `ALONE`, for the same reason.

The stray of a step is minus the decimal logarithm of the share of days on which it is to be
expected on a device; that of an hour the sum of what its rarest steps exceed `USUAL_STRAY` by,
since an attack is seldom one odd step, and an odd step seldom an attack. It never falls while the
hour fills. How rare such an hour is, hours of peers tell that the counts were not made of
(`alerts.anomaly.baseline.Tail`).
"""

from __future__ import annotations

import heapq
import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from alerts.anomaly.baseline import LEAST_STRAY, Tail, tail_of
from alerts.domain.step import STEP_FORM

ALONE = "*"
"""Any program that only one device has."""

USUAL_STRAY = 2.0
"""A step that comes on one of a hundred days of a device adds nothing to an hour."""
MOST_STEPS = 10
"""So many rarest steps of an hour count, and are kept of it."""

PEER_DAYS = 50.0
"""So many days of devices of its group say as much of a device as all other devices together."""
_NEW = 0.5
"""Steps that a program which never did anything new is thought to do nevertheless."""


class SeenStep(NamedTuple):
    """A step of a device: in which group the device is, on how many days it was seen at all, and
    on how many it did this."""

    entity: str
    peers: int
    device_days: int
    step: str
    days: int


class Rarity(NamedTuple):
    """How far a step strays, on how many days devices of the group and all did it, of how many."""

    stray: float
    peer_days: int
    peer_of: int
    fleet_days: int
    fleet_of: int


class _Counts:
    """Days of a set of devices: in all, by step, and what is new by program and verb."""

    def __init__(self) -> None:
        self.all = 0
        self.of: Counter[str] = Counter()

    def share(self, step: str, prior: float, weight: float) -> float:
        return (self.of[step] + weight * prior) / (self.all + weight)


class StepCounts:
    """What devices were seen to do, ready to say how rare a step is."""

    def __init__(self, rows: Iterable[SeenStep]) -> None:
        self._fleet = _Counts()
        self._peers: dict[int, _Counts] = defaultdict(_Counts)
        self._group: dict[str, int] = {}
        self._own: set[tuple[str, str]] = set()
        rows = list(rows)
        owners: dict[str, set[str]] = defaultdict(set)
        for row in rows:
            for name in _programs(row.step):
                owners[name].add(row.entity)
        self._known = {name for name, devices in owners.items() if len(devices) > 1}
        self._usually: dict[str, Counter[str]] = defaultdict(Counter)
        of_device: dict[tuple[str, str], int] = {}
        for row in rows:
            if row.entity not in self._group:
                self._group[row.entity] = row.peers
                for counts in (self._fleet, self._peers[row.peers]):
                    counts.all += row.device_days
            # Twice, since what was done once is what an attack in the history looks like.
            if row.days > 1:
                self._own.add((row.entity, row.step))
            word = (row.entity, self.word(row.step))
            # Steps that became one word may be of the same day: at most one a day counts.
            of_device[word] = min(of_device.get(word, 0) + row.days, row.device_days)
        devices: Counter[str] = Counter()
        for (entity, step), days in of_device.items():
            devices[step] += 1
            for counts in (self._fleet, self._peers[self._group[entity]]):
                counts.of[step] += days
        self._new: Counter[str] = Counter()
        self._targets: Counter[str] = Counter()
        for step, number in devices.items():
            context, target = _split(step)
            self._targets[target] += 1
            self._usually[context][target] = self._fleet.of[step]
            self._new[context] += number == 1

    @property
    def devices(self) -> dict[str, int]:
        """The devices, with the number of their group."""
        return self._group

    def word(self, step: str) -> str:
        """The step as it is counted: programs that one device has are `ALONE`."""
        match = STEP_FORM.fullmatch(step)
        if match is None:
            return step
        names = [name if name in self._known else ALONE for name in (match[1], match[3])]
        return f"{names[0]} {match[2]} {names[1]}"

    def rarity(self, entity: str, step: str) -> Rarity:
        """How rare a step is for a device; a stray of 0 for what it did on days before."""
        word = self.word(step)
        context, target = _split(word)
        group = self._group.get(entity, -1)
        # A device that is new has no group: it is compared with all.
        peers = self._peers.get(group, self._fleet)
        numbers = (peers.of[word], peers.all, self._fleet.of[word], self._fleet.all)
        if (entity, step) in self._own:
            return Rarity(0.0, *numbers)
        every = sum(self._targets.values())
        # How often anything at all has that as its end: of two new ends the common one is likelier.
        end = (self._targets[target] + _NEW) / (every + len(self._targets) + 1)
        fleet = self._fleet.share(word, end, self._new[context] + _NEW)
        share = peers.share(word, fleet, PEER_DAYS) if group >= 0 else fleet
        return Rarity(max(-math.log10(share), 0.0), *numbers)

    def rarest(self, entity: str, steps: Iterable[str]) -> list[tuple[str, Rarity]]:
        """The steps of a device, the rarest first."""
        every = [(step, self.rarity(entity, step)) for step in sorted(set(steps))]
        return sorted(every, key=lambda pair: -pair[1].stray)

    def judge(self, entity: str, steps: Iterable[str]) -> tuple[float, list[tuple[str, Rarity]]]:
        """How far an hour with these steps strays, and its rarest steps, at most `MOST_STEPS`."""
        rarest = self.rarest(entity, steps)[:MOST_STEPS]
        return hour_stray([rarity.stray for _, rarity in rarest]), rarest

    def usually(self, step: str, most: int = 3) -> list[str]:
        """What the program of a step does on most days with that verb, without `ALONE`."""
        targets = self._usually.get(_split(self.word(step))[0], Counter())
        return [name for name, _ in targets.most_common(most + 1) if name != ALONE][:most]

    def unseen(self, steps: Iterable[str]) -> float:
        """The share of steps that no device was seen to do; 0 of none."""
        every = list(steps)
        missing = sum(not self._fleet.of[self.word(step)] for step in every)
        return missing / len(every) if every else 0.0


class HeldHours(NamedTuple):
    """Hours of devices that counts were not made of, by group: how far those stray that do, and
    how many there are."""

    far: dict[int, list[float]]
    hours: dict[int, int]

    def tails(self) -> dict[int, Tail]:
        """By group how rare a stray is."""
        return {
            group: tail_of(
                np.array([stray for stray in far if stray > LEAST_STRAY]), self.hours[group]
            )
            for group, far in self.far.items()
        }


def held_hours(
    counts: StepCounts, later: Mapping[str, Mapping[str, Sequence[int]]], active: Mapping[str, int]
) -> HeldHours:
    """How far hours stray that `counts` was not made of.

    `later`: by device and step the hours in which it was seen; `active`: hours in which a device
    did anything.
    """
    groups = range(max(counts.devices.values(), default=0) + 1)
    held = HeldHours({group: [] for group in groups}, dict.fromkeys(groups, 0))
    for entity, steps in later.items():
        group = counts.devices.get(entity, 0)
        held.hours[group] += active[entity]
        strays: dict[int, list[float]] = defaultdict(list)
        for step, when in steps.items():
            stray = counts.rarity(entity, step).stray
            if stray > USUAL_STRAY:
                for hour in when:
                    strays[hour].append(stray)
        held.far[group] += [hour_stray(each) for each in strays.values()]
    return held


def hour_stray(strays: Iterable[float]) -> float:
    """How far an hour strays whose steps stray so far."""
    return sum(max(stray - USUAL_STRAY, 0.0) for stray in heapq.nlargest(MOST_STEPS, strays))


def _programs(step: str) -> tuple[str, ...]:
    match = STEP_FORM.fullmatch(step)
    return (match[1], match[3]) if match else ()


def _split(step: str) -> tuple[str, str]:
    """Program and verb, and the other program."""
    match = STEP_FORM.fullmatch(step)
    return (f"{match[1]} {match[2]}", match[3]) if match else (step, "")
