"""Four weeks of an office, made up: what each device sends and receives hour by hour.

Desks work on workdays from 8 to 18, servers all day, backups move much at 02:00. Nothing here is
an anomaly; tests plant theirs.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import numpy as np

Flow = tuple[str, datetime, int, int]
"""Address, time, bytes out, bytes in."""

START = datetime(2026, 9, 28, tzinfo=UTC)
"""A Monday."""
DAYS = 28
SEED = 7


def office(desks: int, servers: int, days: int = DAYS, seed: int = SEED) -> Iterator[Flow]:
    """Flows of all devices, a few an hour in which they work."""
    chance = np.random.default_rng(seed)
    for number in range(desks + servers):
        desk = number < desks
        level = chance.uniform(14.5, 16.5) + (0 if desk else 2)
        for hour in range(days * 24):
            at = START + timedelta(hours=hour)
            working = at.weekday() < 5 and 8 <= at.hour < 18
            if desk and not working and chance.random() > 0.01:
                continue
            flows = int(chance.integers(2, 5))
            out = np.exp(level + chance.normal(0, 0.5)) / flows
            for flow in range(flows):
                seen = at + timedelta(minutes=int(chance.integers(0, 60)), seconds=flow)
                yield address(number), seen, round(out), round(out * 8)


def address(number: int) -> str:
    """The address of a device."""
    return f"10.4.{number // 200}.{number % 200 + 1}"
