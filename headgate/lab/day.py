"""What a day comes to: raw lines by source, and what really happened."""

from __future__ import annotations

import random
from collections import defaultdict
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time

HOUR = 3600.0


@dataclass(frozen=True)
class Action:
    """Something that was done. `time` in seconds since 1970, UTC.

    `host` did it, at address `ip` if it went over the network from a leased one; `what` says it in
    words. `looks_bad`: why one could take it for an attack, or empty.
    """

    time: float
    host: str
    what: str
    mac: str | None = None
    ip: str | None = None
    looks_bad: str = ""


@dataclass(frozen=True)
class Holding:
    """A client had an address, by its server's books, from `start` until `end` (seconds)."""

    ip: str
    mac: str
    device: str
    start: float
    end: float
    ended: str


@dataclass
class Day:
    """A day while it is made. All chance comes from `dice`, so a seed makes one day.

    `every_chore`: whatever falls on some days falls on this one. `lost`: which share of the DHCP
    servers' lines never arrives. `lines` holds, by source, (seconds since 1970, the line) in the
    order they were written.
    """

    seed: int
    date: date
    every_chore: bool = False
    lost: float = 0.0
    lines: dict[str, list[tuple[float, str]]] = field(default_factory=lambda: defaultdict(list))
    actions: list[Action] = field(default_factory=list)
    holdings: list[Holding] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.dice = random.Random(self.seed)
        self.start = datetime.combine(self.date, time(), UTC).timestamp()
        self._asked = 0
        self._serial = 4_000 + self.dice.randrange(1_000)

    def at(self, hours: float) -> float:
        """The instant so many hours after midnight."""
        return self.start + hours * HOUR

    def number(self) -> int:
        """A number that was not used before: process ids, serial numbers."""
        self._serial += self.dice.randrange(1, 9)
        return self._serial

    def log(self, source: str, seconds: float, line: str) -> None:
        """A source writes a line."""
        self.lines[source].append((seconds, line))

    def did(self, action: Action) -> None:
        """Note what was done."""
        self.actions.append(action)

    def falls(self, per_day: float) -> bool:
        """Whether a chore falls on this day, that falls on so many days of one.

        Not by chance: a weekly chore falls on each fifth seed, so that days of seeds in a row have
        what such days have, and their figures are no luck. Chores begin on different days.
        """
        self._asked += 3
        nth, share = self.seed + self._asked, round(per_day * 100)
        return nth * share // 100 > (nth - 1) * share // 100 or self.every_chore


def lab_instant(seconds: float) -> datetime:
    """The instant as a datetime, UTC."""
    return datetime.fromtimestamp(seconds, UTC)
