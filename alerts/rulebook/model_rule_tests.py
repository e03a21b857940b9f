"""Run the tests that rules of kind model bring: hours that must be told of and hours that must not.

A test is `{usual: {bytes_out: 5 MB}, active: [8, 18], hour: {bytes_out: 4 GB}, at: 10}`: a device
and its peers do what is `usual` in each of the active hours (UTC) of as many days as the rule asks
for, by chance somewhat more or less; then one of them has an hour such as `hour`, at `at` o'clock
on a Tuesday. Of a rule that judges steps it is `{usual: {winword.exe started splwow#.exe: 30},
hour: {winword.exe started cmd.exe: 1}}`: how many of thirty devices make each, every day; the last
of them has the hour. It is judged as live hours are (`alerts.anomaly.baseline`), without Spark.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from datetime import UTC, datetime
from functools import lru_cache

import numpy as np

from alerts.anomaly.baseline import (
    HOUR_SECONDS,
    LEAST_STRAY,
    Profile,
    Tail,
    profile_of,
    stray,
    strays,
    tail_of,
)
from alerts.anomaly.steps import SeenStep, StepCounts
from alerts.compiler.model_rule_files import Models, ModelSource, Trial, quantity
from alerts.domain.step import STEPS
from alerts.rulebook.rule_tests import RuleTestOutcome
from alerts.rulepack.rule_pack import ModelRule

PEERS = 30
"""Devices that behave alike, the judged one among them."""
_SEED = 20261122
SCATTER = 0.3
"""Deviation of an hour's quantity, in logarithms: two thirds lie within a third of the usual."""
UNTIL = int(datetime(2025, 3, 4, tzinfo=UTC).timestamp())
"""A Tuesday; the history ends here."""


def check_models(models: Models, only: Collection[str] = ()) -> list[RuleTestOutcome]:
    """The tests of all rules of the kind, or of those whose ids are in `only`."""
    return [
        outcome
        for rule_id, source in sorted(models.sources.items())
        if not only or rule_id in only
        for outcome in _of_rule(source)
    ]


def _of_rule(source: ModelSource) -> Iterator[RuleTestOutcome]:
    rule = source.rule
    for must_match, trials in ((True, source.match), (False, source.no_match)):
        for number, trial in enumerate(trials, 1):
            reached = _score(rule, trial)
            passed = (reached >= rule.threshold) is must_match
            detail = (
                "" if passed else f"its score is {reached:.1f}, the threshold {rule.threshold:g}"
            )
            yield RuleTestOutcome(
                rule.id, rule.title, must_match, number, passed, detail, source.path
            )


def _score(rule: ModelRule, trial: Trial) -> float:
    """The score of a test's hour, from the feature in which it is most unusual."""
    if STEPS in rule.features:
        return _steps_score(rule, trial)
    return max(_feature_score(rule, trial, feature) for feature in rule.features)


def _feature_score(rule: ModelRule, trial: Trial, feature: str) -> float:
    least = rule.least.get(feature, 0)
    usual = quantity(trial.usual.get(feature, 0))
    profile, tail = _peers(rule.history_days, trial.active, usual, least)
    value = quantity(trial.hour.get(feature, 0))
    return tail.score(stray(UNTIL + trial.at * HOUR_SECONDS, value, profile, least))


# What is usual takes most of a test's time, and is the same of most tests and features of a rule.
@lru_cache(maxsize=64)
def _peers(days: int, active: tuple[int, int], usual: float, least: int) -> tuple[Profile, Tail]:
    """The profile of the last peer, and the tail of all, after so many days."""
    # Seeded, or a test near the threshold would pass on some days only.
    chance = np.random.default_rng(_SEED)
    every = np.arange(UNTIL - days * 86_400, UNTIL, HOUR_SECONDS)
    first, last = active
    of_day = every // HOUR_SECONDS % 24
    hours = every[(of_day >= first) & (of_day < last)]
    far = []
    for _ in range(PEERS):
        values = np.round(usual * np.exp(chance.normal(0, SCATTER, len(hours))))
        profile = profile_of(hours, values, UNTIL)
        far.append(strays(hours, values, profile, least))
    beyond = np.concatenate(far)
    return profile, tail_of(beyond[beyond > LEAST_STRAY], PEERS * len(every))


def _steps_score(rule: ModelRule, trial: Trial) -> float:
    """Of a rule that judges steps: each of `usual` is made on so many of the peers, every day."""
    steps = {step: min(quantity(number), PEERS) for step, number in trial.usual.items()}
    days, every = rule.history_days, range(PEERS)
    seen = [
        SeenStep(str(peer), 0, days, step, days)
        for step, number in steps.items()
        for peer in every
        if peer < number
    ]
    counts = StepCounts(seen)
    # Nothing strays in hours of which each is like the next.
    tail = tail_of(np.zeros(0), PEERS * days * (trial.active[1] - trial.active[0]))
    # The last of them: it does least, so what others do is new to it.
    stray, _ = counts.judge(str(PEERS - 1), trial.hour)
    return tail.score(stray)
