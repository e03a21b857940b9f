"""Drift: values that moved are measured, and what is measured is said in a sentence."""

from __future__ import annotations

import numpy as np
import pytest

from alerts.anomaly.drift import Drift, deciles, stability

CHANCE = np.random.default_rng(3)
BEFORE = CHANCE.lognormal(10, 1, 5_000)


def test_the_same_values_did_not_move_and_others_did() -> None:
    bounds = deciles(BEFORE.tolist())
    assert len(bounds) == 9
    again = CHANCE.lognormal(10, 1, 2_000).tolist()
    assert stability(bounds, again) < 0.05
    half_more = CHANCE.lognormal(10.4, 1, 2_000).tolist()
    assert 0.1 < stability(bounds, half_more) < 0.3
    assert stability(bounds, [1.0] * 500) > 2


def test_many_equal_values_are_one_bin_and_no_values_say_nothing() -> None:
    zeros = [0.0] * 700 + [float(n) for n in range(300)]
    assert stability(deciles(zeros), zeros) < 0.02
    assert stability((), [1.0]) == stability(deciles(zeros), []) == 0
    assert deciles([]) == ()


@pytest.mark.parametrize(
    ("drift", "state"),
    [
        (Drift(199, 100, {}, None), "too little"),
        (Drift(1_000, 12, {"events": 0.05}, None), "stable"),
        (Drift(1_000, 12, {"events": 0.05, "bytes_out": 0.12}, None), "moved"),
        (Drift(1_000, 12, {}, 0.06), "moved"),
        (Drift(1_000, 50, {}, 0.0), "train again"),
        (Drift(1_000, 0, {"events": 0.3}, None), "train again"),
    ],
)
def test_the_figures_say_what_to_do(drift: Drift, state: str) -> None:
    assert drift.state == state


def test_the_sentence_names_every_figure() -> None:
    told = Drift(12_000, 410, {"bytes_out": 0.314}, 0.021).sentence
    assert told == (
        "410 of 12,000 hours reached score 2, 120 were to be expected; bytes_out moved by 0.31 "
        "(PSI); 2.1% of hours had steps that the training never saw"
    )
    assert Drift(0, 0, {}, None).sentence == "no hour judged yet"
