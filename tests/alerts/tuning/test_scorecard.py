"""The scorecard: what verdicts say of rules, and what they do not say."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from alerts.tuning.scorecard import RuleScore, Scorecard, advise, scorecard
from alerts.tuning.verdict_counts import share_bounds
from tests.alerts.tuning.history import SINCE, UNTIL, Asked, alert, finding, listed
from tests.reporting.memory_lake import MemoryLake


@pytest.fixture(scope="module")
def card() -> Scorecard:
    verdicts = [
        *["false_positive"] * 3,
        "benign",
        "suspicious",
        "true_positive",
        "test",
        None,
        None,
    ]
    alerts = [alert(f"a{n}", "noisy", verdict) for n, verdict in enumerate(verdicts)]
    alerts.append(alert("muted", "noisy", suppressed_by="s1"))
    alerts.append(alert("before", "noisy", "true_positive", began=SINCE - timedelta(days=1)))
    alerts.append(alert("gone", "removed"))
    lake = MemoryLake().add("gold.alert", alerts)
    lake.add("gold.finding", [finding("e1", "noisy", time=SINCE + timedelta(days=14)),
                              finding("e2", "noisy"), finding("x", "_heartbeat")])  # fmt: skip
    opened = UNTIL - timedelta(days=1)
    lake.add("gold.alert_action", [
        {"action_id": f"c{n}", "alert_id": f"a{n}", "action": "close",
         "at": opened + timedelta(hours=n + 1)} for n in range(3)
    ])  # fmt: skip
    spent = {"noisy": {"events": 9, "candidates": 2, "hits": 1, "us": 2_500_000}}
    for hour in (1, 2):
        lake.connection.execute(
            'INSERT INTO ops.rule_cost ("at", rules) SELECT ?, MAP {?: ?}',
            [UNTIL - timedelta(hours=hour), "noisy", spent["noisy"]],
        )
    rules = [listed("quiet", sees="blind since then: sshd is silent"), listed("noisy"),
             listed("off", state="off (ann: why)")]  # fmt: skip
    return scorecard(Asked(lake).rows, rules, SINCE, UNTIL)


def of(card: Scorecard, rule_id: str) -> RuleScore:
    (score,) = [score for score in card.rules if score.rule_id == rule_id]
    return score


def test_verdicts_are_counted_and_those_that_say_nothing_of_the_rule_stand_apart(
    card: Scorecard,
) -> None:
    score = of(card, "noisy")
    assert (score.true_positive, score.false_positive, score.benign) == (2, 3, 1)
    assert (score.judged, score.other, score.unjudged, score.alerts) == (6, 1, 2, 9)
    assert score.precision == round(2 / 6, 3)
    assert score.precision_low < 1 / 3 < score.precision_high


def test_volume_time_and_cost_are_those_of_the_span(card: Scorecard) -> None:
    score = of(card, "noisy")
    assert card.covered == timedelta(days=14)  # its first finding came in the middle
    assert score.per_week == 4.5
    assert score.close_seconds == 2 * 3600
    assert score.cpu_seconds == 5.0
    assert score.last_fired == UNTIL - timedelta(days=1)
    assert score.last_true_positive == UNTIL - timedelta(days=1)


def test_rules_that_are_off_or_gone_have_no_row_and_are_not_forgotten(card: Scorecard) -> None:
    assert [score.rule_id for score in card.rules] == ["noisy", "quiet"]
    assert card.elsewhere == 1


def test_a_blind_rule_says_so_in_its_reason(card: Scorecard) -> None:
    score = of(card, "quiet")
    assert score.recommendation == "none"
    assert score.reason == "no alert in this time; blind since then: sshd is silent"


def test_an_empty_lake_scores_every_rule_and_measures_no_cost() -> None:
    card = scorecard(Asked(MemoryLake()).rows, [listed("a")], SINCE, UNTIL)
    assert (card.rules[0].alerts, card.rules[0].cpu_seconds) == (0, None)
    assert card.rules[0].precision is None


@pytest.mark.parametrize(
    ("true", "judged", "ever", "recommended"),
    [
        (4, 4, True, "too few verdicts"),  # all were true, and it is only four
        (4, 5, True, "too few verdicts"),  # 38 to 96 %
        (5, 5, True, "keep"),
        (0, 8, False, "tune"),
        (0, 16, False, "retire"),
        (0, 16, True, "tune"),  # it was right once, before
        (15, 31, True, "tune"),
        (16, 31, True, "keep"),
    ],
)
def test_few_verdicts_recommend_nothing(
    true: int, judged: int, ever: bool, recommended: str
) -> None:
    assert advise(true, judged, 100, ever_true=ever)[0] == recommended


def test_a_rule_whose_findings_only_feed_others_is_not_blamed_for_silence() -> None:
    assert "no alerts by themselves" in advise(0, 0, 0, ever_true=False, alerting=False)[1]


@given(st.data())
def test_bounds_hold_the_share_and_close_in_with_more_verdicts(data: Any) -> None:
    of = data.draw(st.integers(1, 500))
    hits = data.draw(st.integers(0, of))
    low, high = share_bounds(hits, of)
    assert 0 <= low <= hits / of <= high <= 1
    more_low, more_high = share_bounds(10 * hits, 10 * of)
    assert more_high - more_low <= high - low
