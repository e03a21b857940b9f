"""First-seen: a value that is new for its group, against SQL over the whole history."""

from __future__ import annotations

import random
from heapq import heapify
from typing import Any

import duckdb
import pytest
from hypothesis import given
from hypothesis import strategies as st

from alerts.correlation import first_seen as first_seen_module
from alerts.correlation.correlator import Correlator
from alerts.correlation.first_seen import MAX_VALUES, FirstSeen, OldestValues, note_value
from alerts.correlation.group import MAX_ENTRIES, CorrelationState
from alerts.correlation.history import forget_findings
from alerts.domain.entity import micros
from tests.alerts.correlation_history import NOON, Point, correlation, cut, ends, row, streamed
from tests.examples import examples

DAY = 86_400
RULE = "a"


def first_seen(**keys: Any) -> Any:
    return correlation(type="first_seen", rules=(RULE,), count=1, **keys)


def told(definition: Any, *points: Point) -> list[tuple[int, str]]:
    """(second, value) of what is told, over a state that forgets nothing."""
    run = Correlator(CorrelationState())
    rows = [out["row"] for point in points for out in run.feed(definition, row(point))]
    return [
        (int((r["event_time"] - NOON).total_seconds()), r["fields"]["traffic.bytes_out"])
        for r in rows
    ]


def at(second: int, value: str | None, group: str = "bob", number: int | None = None) -> Point:
    return Point(second if number is None else number, second, RULE, group, value)


#   seconds  0 ... 60 .......... 121     61 seconds away: new again
def test_a_value_is_new_once_and_again_when_it_stayed_away_for_longer_than_the_span() -> None:
    points = [at(0, "x"), at(30, "x"), at(60, "y"), at(90, "x"), at(150, "x"), at(211, "x")]
    assert told(first_seen(), *points) == [(0, "x"), (60, "y"), (211, "x")]


def test_what_is_seen_while_a_group_is_young_is_only_learned() -> None:
    young = first_seen(learn_seconds=40)
    points = [at(0, "x"), at(20, "y"), at(39, "z"), at(40, "new"), at(50, "y"), at(60, "last")]
    assert told(young, *points) == [(40, "new"), (60, "last")]


def test_groups_learn_apart_and_a_finding_without_the_value_says_nothing() -> None:
    points = [at(0, "x"), at(1, "x", "eve"), at(2, None), at(3, "x"), at(4, "X")]
    assert told(first_seen(), *points) == [(0, "x"), (1, "x")]


def test_what_comes_late_before_the_first_sighting_tells_nothing_new() -> None:
    assert told(first_seen(), at(50, "x"), at(20, "x"), at(20, "x"), at(80, "x")) == [(50, "x")]


def test_two_new_values_of_one_instant_are_two_findings() -> None:
    run = Correlator(CorrelationState())
    points = [at(5, "x", number=1), at(5, "y", number=2)]
    rows = [out["row"] for p in points for out in run.feed(first_seen(), row(p))]
    assert len({r["finding_id"] for r in rows}) == 2


def test_values_are_bounded_for_a_group_and_the_oldest_go() -> None:
    seen = FirstSeen()
    for n in range(MAX_VALUES + 3):
        assert note_value(seen, first_seen(), str(n), n)
    assert len(seen.values) == MAX_VALUES
    assert seen.dropped == 3
    assert "0" not in seen.values


def test_values_are_forgotten_by_age_and_the_group_with_them() -> None:
    run = Correlator(CorrelationState())
    run.feed(first_seen(), row(at(0, "x")))
    run.feed(first_seen(), row(at(900, "y")))
    forget_findings(run.state, micros(NOON) + 1_000 * 1_000_000)
    (group,) = run.state.groups.values()
    assert group.seen is not None
    assert list(group.seen.values) == ["y"]
    forget_findings(run.state, micros(NOON) + DAY * 1_000_000)
    assert not run.state.groups


@examples(50)
@given(
    st.lists(
        st.tuples(st.integers(0, 500), st.sampled_from(["bob", "eve"]), st.sampled_from("xyz")),
        max_size=25,
    ),
    st.sampled_from([0, 1, 45]),
    st.randoms(use_true_random=False),
)
def test_the_stream_tells_exactly_the_values_that_sql_finds_new(
    drawn: list[tuple[int, str, str]], learn: int, chance: random.Random
) -> None:
    points = [Point(n, t, RULE, g, v) for n, (t, g, v) in enumerate(sorted(drawn))]
    rows = streamed(first_seen(learn_seconds=learn), cut([row(p) for p in points], chance))
    found = {
        (g, t, v)
        for (g, t), v in zip(
            [next(iter(ends([r]))) for r in rows],
            [r["fields"]["traffic.bytes_out"] for r in rows],
            strict=True,
        )
    }
    assert found == new_by_sql(points, span=60, learn=learn)


def new_by_sql(points: list[Point], span: int, learn: int) -> set[tuple[str, int, str]]:
    """What has no equal before it in the span, in a group there for `learn` without a gap."""
    with duckdb.connect(config={"threads": 1}) as db:
        db.execute("CREATE TABLE f (t INT, g TEXT, v TEXT)")
        if points:
            rows = [(p.second, p.group, p.value) for p in points]
            db.executemany("INSERT INTO f VALUES (?, ?, ?)", rows)
        query = f"""
            WITH d AS (SELECT DISTINCT g, t, v FROM f),
            present AS (SELECT g, t, sum(begins) OVER (PARTITION BY g ORDER BY t) AS run FROM (
                SELECT g, t, (t - lag(t) OVER (PARTITION BY g ORDER BY t) > {span})::INT AS begins
                FROM (SELECT DISTINCT g, t FROM f))),
            since AS (SELECT g, t, min(t) OVER (PARTITION BY g, coalesce(run, 0)) AS first
                FROM present),
            news AS (SELECT g, t, v, lag(t) OVER (PARTITION BY g, v ORDER BY t) AS before FROM d)
            SELECT n.g, n.t, n.v FROM news n JOIN since s ON s.g = n.g AND s.t = n.t
            WHERE (n.before IS NULL OR n.t - n.before > {span}) AND n.t - s.first >= {learn}"""
        return set(db.execute(query).fetchall())


def test_of_values_that_are_always_new_a_group_keeps_a_bounded_history() -> None:
    month = first_seen(timespan_seconds=30 * DAY)
    run = Correlator(CorrelationState())
    many = 3 * MAX_ENTRIES
    for n in range(many):
        run.feed(month, row(at(n * 60, f"v{n}", number=n)))
    forget_findings(run.state, run.state.clock)
    (group,) = run.state.groups.values()
    assert len(group.fired) == MAX_ENTRIES
    # What was seen stays known: none of it is told once more.
    again = Correlator(run.state)
    assert again.feed(month, row(at(many * 60, "v5", number=many))) == []
    assert again.feed(month, row(at(5 * 60, "v5", number=5))) == []


@examples(100)
@given(st.lists(st.tuples(st.integers(0, 90), st.sampled_from("abcdefgh")), max_size=40))
def test_the_values_that_go_are_the_oldest_however_they_are_looked_up(
    drawn: list[tuple[int, str]],
) -> None:
    one_by_one, along = FirstSeen(), FirstSeen()
    oldest = OldestValues(along)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(first_seen_module, "MAX_VALUES", 3)
        for time, value in drawn:
            expected = note_value(one_by_one, first_seen(), value, time)
            assert note_value(along, first_seen(), value, time, oldest) == expected
            assert (along.values, along.dropped) == (one_by_one.values, one_by_one.dropped)


def test_a_group_with_too_many_values_is_not_looked_through_with_each_new_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    heaped: list[int] = []

    def counted(heap: list[Any]) -> None:
        heaped.append(len(heap))
        heapify(heap)

    monkeypatch.setattr(first_seen_module, "heapify", counted)
    monkeypatch.setattr(first_seen_module, "MAX_VALUES", 50)
    run = Correlator(CorrelationState())
    for n in range(500):
        run.feed(first_seen(), row(at(n, f"v{n}")))
    assert heaped == [51]
