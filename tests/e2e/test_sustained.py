"""A rate counts as held only where it was sent."""

from __future__ import annotations

import pytest

from bench.event_to_alert import ALERTING_LEASED, Attack, Load, Run
from bench.sustained import SENT, sent


@pytest.mark.parametrize(("slower", "held"), [(1.0, True), (1.05, True), (1.5, False)])
def test_a_sender_that_falls_behind_shows(slower: float, held: bool) -> None:
    done = Run(Load(1_000, 120))
    for second in range(120):
        for number in range(ALERTING_LEASED):
            at = 1_000.0 + (second + number / ALERTING_LEASED) * slower
            done.attacks[f"10.0.{second}.{number}"] = Attack("leased", at, counted=True)
        done.attacks[f"198.51.100.{second}"] = Attack("outside", at, counted=True)
    assert (sent(done, 30, 90) >= SENT) is held
