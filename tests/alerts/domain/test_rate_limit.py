"""Budgets: a storm gives the topic so many alerts and one summary, the tables all of them."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from alerts.domain.rate_limit import HOUR, HourlyBudget
from alerts.lifecycle.bucket_state import BucketState
from tests.alerts.lifecycle.test_alert_fold import Bucket, action, body, finding, leased, tick
from tests.examples import examples


def storm(first: int, count: int, second: float = 0) -> list[dict[str, Any]]:
    """Findings of as many devices."""
    return [
        finding(second + n / 1000, leased(f"d{n}"), uid=f"u{n}")
        for n in range(first, first + count)
    ]


def told(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [row for row in rows if row["suppressed_by"] is None]


def test_a_storm_gives_the_budget_and_one_summary_and_the_table_gets_all() -> None:
    bucket = Bucket(hourly_budget=10, count_every_seconds=60)
    rows = bucket.alerts(*storm(0, 300))
    out, held = told(rows), [row for row in rows if row["suppressed_by"] == "budget"]
    assert (len(out), len(held)) == (11, 290)
    (summary,) = [row for row in out if row["entity_type"] == "rule"]
    assert summary["count"] == 290
    assert summary["title"] == "Guessing: 290 alerts held back"
    assert "10 alerts an hour" in body(summary)["summary"]
    assert len(body(summary)["evidence"]) == 10


def test_the_summary_is_updated_while_the_storm_lasts_and_there_is_only_one() -> None:
    bucket = Bucket(hourly_budget=10, count_every_seconds=60)
    first = [r for r in told(bucket.alerts(*storm(0, 100))) if r["entity_type"] == "rule"]
    more = told(bucket.alerts(*storm(100, 100, 100), tick(120)))
    assert [row["alert_id"] for row in more] == [first[0]["alert_id"]]
    assert (more[0]["count"], more[0]["reason"], more[0]["revision"]) == (190, "count", 2)


#   aa  e0   out, and ann has taken it
#   bb  e1   held back
#   bb  e0   by a correction
def test_an_alert_that_is_out_does_not_end_in_one_that_is_held_back() -> None:
    bucket = Bucket(hourly_budget=1)
    rows = bucket.alerts(finding(0), finding(1, leased("bb")))
    first = next(row for row in rows if row["entity_value"] == "aa")
    bucket.alerts(action(first["alert_id"], "assign", 5, value="ann"))
    (moved,) = told(bucket.alerts(finding(0, leased("bb"), rev=2)))
    assert (moved["alert_id"], moved["entity_value"]) == (first["alert_id"], "bb")
    assert (moved["activity"], body(moved)["assignee"]) == ("update", "ann")
    (more,) = bucket.alerts(finding(2, leased("bb")), tick(400))
    assert (more["alert_id"], more["count"]) == (first["alert_id"], 2)


def test_the_hour_slides_and_a_later_storm_has_a_summary_of_its_own() -> None:
    bucket = Bucket(hourly_budget=2)
    early = told(bucket.alerts(*storm(0, 5)))
    (more,) = told(bucket.alerts(*storm(5, 5, 3500)))
    assert (more["entity_type"], more["revision"]) == ("rule", 2)
    late = told(bucket.alerts(*storm(10, 5, 7300)))
    assert len(late) == 3
    summaries = {r["alert_id"] for r in [*early, *late] if r["entity_type"] == "rule"}
    assert len(summaries) == 2


def test_a_rule_may_have_a_budget_of_its_own() -> None:
    rows = Bucket(hourly_budget=1, budgets={"r": 7}).alerts(*storm(0, 7))
    assert len(told(rows)) == 7


def test_repeats_count_on_the_alert_that_was_held_back() -> None:
    bucket = Bucket(hourly_budget=1, count_every_seconds=60)
    bucket.alerts(*storm(0, 2))
    (again,) = [
        row
        for row in bucket.alerts(finding(50, leased("d1")), tick(100))
        if row["suppressed_by"] is not None
    ]
    assert (again["count"], again["revision"], again["suppressed_by"]) == (2, 2, "budget")


def test_a_summary_is_closed_as_any_alert() -> None:
    bucket = Bucket(hourly_budget=1)
    (summary,) = [r for r in told(bucket.alerts(*storm(0, 3))) if r["entity_type"] == "rule"]
    (closed,) = bucket.alerts(action(summary["alert_id"], "close", value="benign"))
    assert (closed["activity"], body(closed)["verdict"]) == ("close", "benign")


@pytest.mark.full
def test_the_state_stays_small_in_a_storm() -> None:
    bucket = Bucket(hourly_budget=10)
    rows = bucket.alerts(*storm(0, 1200))
    assert len(rows) == 1201
    state = BucketState.decode(bucket.blob)
    assert len(state._kept.folds["r"].alerts) == 1011
    bucket.step(tick(3 * 3600))
    assert len(BucketState.decode(bucket.blob)._kept.folds["r"].alerts) == 11


@examples(100)
@given(st.integers(1, 5), st.lists(st.integers(0, 3 * HOUR), max_size=60))
def test_in_no_hour_more_than_the_budget_goes_out(limit: int, times: list[int]) -> None:
    budget, out = HourlyBudget(), []
    for time in sorted(times):
        if budget.take(limit, time):
            out.append(time)
    assert all(sum(start <= t < start + HOUR for t in out) <= limit for start in out)
    assert len(out) >= min(limit, len(times))
