"""Every type of correlation and every condition, against SQL over the whole history."""

from __future__ import annotations

import random
from datetime import timedelta
from itertools import pairwise
from typing import Any

import msgspec
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from alerts.correlation import history as history_module
from alerts.correlation import windows as windows_module
from alerts.correlation.conditions import measure_condition, told_at_once
from alerts.correlation.correlator import Correlator
from alerts.correlation.finding import Fired
from alerts.correlation.group import MAX_ENTRIES, CorrelationState
from alerts.correlation.history import over_history
from alerts.correlation.negation import looks_ahead, measure_without
from alerts.correlation.windows import unseen
from alerts.domain.entity import micros
from alerts.domain.finding import DISPROVED
from alerts.lifecycle.bucket_state import BucketState
from alerts.rulepack.rule_pack import RulePack
from infra.config.settings import AlertSettings
from tests.alerts.correlation_history import (
    END,
    NOON,
    OPS,
    RULES,
    SPAN,
    Judge,
    Point,
    correlation,
    cut,
    delayed,
    ends,
    row,
    streamed,
    tick,
)
from tests.examples import examples

VALUES = ("0", "1", "2", "7", "40", "x", "X", "", None)

# Neighbours of the timespan are drawn often: a window's bounds are where mistakes live.
SECONDS = st.one_of(
    st.integers(0, 70),
    st.integers(0, 400),
    st.sampled_from([0, 1, SPAN - 1, SPAN, SPAN + 1, 2 * SPAN]),
)


@st.composite
def histories(draw: st.DrawFn) -> list[Point]:
    drawn = draw(
        st.lists(
            st.tuples(
                SECONDS,
                st.sampled_from(RULES),
                st.sampled_from(["bob", "Bob", "eve"]),
                st.sampled_from(VALUES),
            ),
            max_size=25,
        )
    )
    return [Point(n, *one) for n, one in enumerate(sorted(drawn, key=lambda d: d[0]))]


SETS = st.sampled_from([("a",), ("b",), ("c",), ("a", "b"), ("b", "c"), ("a", "c"), RULES])
NUMERIC = ("value_sum", "value_avg", "value_median", "value_percentile")
COUNTS = ("event_count", "value_count", "temporal")


@st.composite
def definitions(draw: st.DrawFn, at_once: bool | None = None) -> Any:
    """Any type with any condition; or only what is told at once, or only what waits."""
    kinds, ops = [*COUNTS, *NUMERIC, "temporal_ordered"], sorted(OPS)
    if at_once:
        # Most of the others would be drawn in vain.
        kinds, ops = [*COUNTS, "value_sum", "temporal_ordered"], ["gt", "gte"]
    kind = draw(st.sampled_from(kinds))
    keys: dict[str, Any] = {
        "op": draw(st.sampled_from(ops)),
        # None at all is an absence.
        "count": draw(st.integers(0 if kind == "event_count" else 1, 4)),
    }
    if kind in NUMERIC:
        keys["count"] = draw(st.sampled_from([1, 2, 7, 12, 40]))
    if kind == "value_percentile":
        keys["percentile"] = draw(st.sampled_from([0, 25, 50, 75, 100]))
    if kind == "temporal_ordered":
        keys = {"op": "gte", "count": draw(st.integers(1, 3))}
    if kind.startswith("temporal") and draw(st.booleans()):
        keys = {"op": "gte", "count": 1}
        keys["any_of"] = tuple(draw(st.lists(SETS, min_size=1, max_size=3, unique=True)))
    elif (
        keys["op"] in ("gt", "gte")
        and kind != "temporal_ordered"
        and not at_once
        and draw(st.booleans())
    ):
        keys["upper"] = (
            draw(st.sampled_from(["lt", "lte"])),
            keys["count"] + draw(st.integers(0, 9)),
        )
    definition = correlation(type=kind, **keys)
    assume(at_once in (None, told_at_once(definition)))
    return definition


@st.composite
def expressions(draw: st.DrawFn) -> Any:
    """Conditions with `not`."""
    sets = draw(st.lists(SETS, min_size=1, max_size=3, unique=True))
    never = [tuple(r for r in RULES if r not in fire and draw(st.booleans())) for fire in sets]
    assume(any(never))
    keys = {"op": "gte", "count": 1, "any_of": tuple(sets), "none_of": tuple(never)}
    return correlation(type=draw(st.sampled_from(["temporal", "temporal_ordered"])), **keys)


def finding_id(told: dict[str, Any]) -> str:
    return str(told["finding_id"])


@examples(100)
@given(definitions() | expressions(), histories(), st.randoms(use_true_random=False))
def test_in_order_the_stream_tells_exactly_the_windows_that_sql_finds(
    definition: Any, points: list[Point], chance: random.Random
) -> None:
    rows = sorted(map(row, points), key=lambda r: (r["event_time"], r["finding_id"]))
    told = streamed(definition, cut(rows, chance))
    assert ends(told) == Judge(definition, points).firings()
    assert len(ends(told)) == len(told)
    until = micros(NOON + timedelta(seconds=END))
    history = list(over_history(definition, rows, until))
    assert sorted(history, key=finding_id) == sorted(told, key=finding_id)


@examples(100)
@given(definitions(at_once=False) | expressions(), histories(), st.randoms(use_true_random=False))
def test_conditions_that_wait_do_not_depend_on_the_order_of_arrival(
    definition: Any, points: list[Point], chance: random.Random
) -> None:
    told = streamed(definition, cut(delayed(points, chance), chance))
    assert ends(told) == Judge(definition, points).firings()
    assert not any("late" in r["fields"] for r in told)


@examples(100)
@given(definitions(at_once=True), histories(), st.randoms(use_true_random=False))
def test_told_at_once_every_window_is_told_or_rests_beside_one_that_was(
    definition: Any, points: list[Point], chance: random.Random
) -> None:
    """In any order, with each finding twice: nothing untrue is told and nothing true is missed."""
    rows = [row(point) for point in points] * 2
    chance.shuffle(rows)
    told = streamed(definition, cut(rows, chance))
    true = Judge(definition, points).occurrences()
    assert ends(told) <= true
    for group, end in true:
        assert any(
            r["fields"]["user.name"].lower() == group
            and r["window_start"] - timedelta(seconds=SPAN)
            <= NOON + timedelta(seconds=end)
            <= r["event_time"] + timedelta(seconds=SPAN)
            for r in told
        )
    for group in {g for g, _ in true}:
        at = sorted(end for g, end in ends(told) if g == group)
        assert all(later - sooner > SPAN for sooner, later in pairwise(at))


@examples(100)
@given(
    st.sampled_from([("eq", 0), ("lt", 1), ("lte", 0)]),
    histories(),
    st.randoms(use_true_random=False),
)
def test_a_group_that_falls_silent_is_told_once_when_its_time_is_over(
    nothing: tuple[str, int], points: list[Point], chance: random.Random
) -> None:
    definition = correlation(op=nothing[0], count=nothing[1])
    told = streamed(definition, cut(delayed(points, chance), chance))
    assert ends(told) == Judge(definition, points).firings()
    rows = sorted(map(row, points), key=lambda r: (r["event_time"], r["finding_id"]))
    # History that ends with its newest finding cannot say what came after.
    last = max((point.second for point in points), default=0)
    heard = ends(over_history(definition, rows))
    assert heard == {(group, end) for group, end in ends(told) if end <= last}
    for each in told:
        assert each["event_time"] - each["window_start"] == timedelta(seconds=SPAN)
        assert (each["fields"]["event_count"], each["evidence_total"]) == ("0", 1)


def standing(
    definition: Any, batches: list[list[dict[str, Any]]]
) -> dict[str, tuple[dict[str, Any], Fired]]:
    """What was told over the batches and not taken back in the end: what was said, and what is so.

    What is taken back and told again keeps the row under its id, and so the time in it.
    """
    pack, state = RulePack(correlations=(definition,)), BucketState()
    rows: dict[str, dict[str, Any]] = {}
    for batch in [*batches, [tick(END)]]:
        for out in state.step(batch, lambda _: pack, AlertSettings(), 0):
            told = out["row"]
            if out["out"] == "finding":
                assert told["finding_id"] not in rows
                rows[told["finding_id"]] = told
            elif out["out"] == "attribution" and told["via"] == DISPROVED:
                rows.pop(told["finding_id"])
            elif out["out"] == "attribution":
                rows[told["finding_id"]] = msgspec.json.decode(told["finding"]) | told
        state = BucketState.decode(state.encode())
    groups = [g for c in state._kept.correlations.values() for g in c.groups.values()]
    kept = {f.finding["finding_id"]: f for g in groups for f in g.fired if not f.disproved}
    assert kept.keys() == rows.keys()
    return {finding_id: (rows[finding_id], kept[finding_id]) for finding_id in rows}


@examples(100)
@given(histories(), st.randoms(use_true_random=False))
def test_a_silence_that_a_late_finding_ends_is_taken_back(
    points: list[Point], chance: random.Random
) -> None:
    """In any order of arrival, however late, what stands in the end is what was so."""
    definition = correlation(op="eq", count=0)
    rows = [row(point, chance.randint(0, 500)) for point in points] * 2
    chance.shuffle(rows)
    told = standing(definition, cut(rows, chance))
    assert ends(row for row, _ in told.values()) == Judge(definition, points).firings()


@examples(100)
@given(expressions(), histories(), st.randoms(use_true_random=False))
def test_of_an_expression_with_not_only_what_is_true_stands_however_late_findings_come(
    definition: Any, points: list[Point], chance: random.Random
) -> None:
    """Each finding twice and in any order: nothing untrue is left, and nothing true is missed."""
    rows = [row(point, chance.randint(0, 500)) for point in points] * 2
    chance.shuffle(rows)
    ahead, span, noon = looks_ahead(definition), SPAN * 1_000_000, micros(NOON)
    true = {
        (group, noon + end * 1_000_000 - ahead)
        for group, end in Judge(definition, points).occurrences()
    }
    stands = [
        (told["fields"]["user.name"].lower(), fired)
        for told, fired in standing(definition, cut(rows, chance)).values()
    ]
    assert {(group, fired.end) for group, fired in stands} <= true
    for group, end in true:
        assert any(
            its == group and fired.start - span <= end <= fired.end + span for its, fired in stands
        )
    for group in {group for group, _ in stands}:
        at = sorted(fired.end for its, fired in stands if its == group)
        assert all(later - sooner > span for sooner, later in pairwise(at))


@examples(30)
@given(histories(), st.randoms(use_true_random=False))
def test_a_correlation_counts_what_another_tells(
    points: list[Point], chance: random.Random
) -> None:
    below = correlation(count=2, timespan_seconds=10, feeds=("d",))
    above = correlation(id="d", rules=("many",), timespan_seconds=200, count=2)
    fed = streamed(below, cut([row(point) for point in points], chance))
    rows = sorted(fed, key=lambda r: (r["event_time"], r["finding_id"]))
    told = streamed(above, cut([r | {"row_kind": "finding", "target": "d"} for r in rows], chance))

    first = Judge(below, points).firings()
    results = [Point(n, t, "many", g, None) for n, (g, t) in enumerate(sorted(first))]
    assert ends(told) == Judge(above, results).firings()
    assert all(micros(r["window_start"]) <= micros(r["event_time"]) for r in told)


def test_history_is_forgotten_as_it_goes_and_tells_the_same(monkeypatch: Any) -> None:
    points = [Point(n, n * 7, RULES[n % 3], "bob", "1") for n in range(500)]
    rows = [row(point) for point in points]
    whole = [list(over_history(correlation(op=op, count=9), rows)) for op in OPS]
    monkeypatch.setattr(history_module, "HISTORY_BATCH", 20)
    assert [list(over_history(correlation(op=op, count=9), rows)) for op in OPS] == whole
    assert any(whole)


@pytest.mark.full
def test_a_batch_that_brings_days_of_one_group_loses_no_window_that_closed() -> None:
    definition = correlation(type="value_avg", op="gte", count=1)
    points = [Point(n, n * 10, RULES[n % 3], "bob", "1") for n in range(2 * MAX_ENTRIES)]
    rows = [row(point) for point in points]
    want = Judge(definition, points).firings()
    assert ends(over_history(definition, rows)) == want
    assert ends(streamed(definition, [rows, [tick(points[-1].second + 3600)]])) == want


#   seconds   0 ... five c a second ... 220: the group is full, and what came until 20 is dropped
#             5 d                25 a: told at 175                      late, of second 30: one more
@pytest.mark.parametrize(
    ("fire", "late", "taken_back"),
    [("a5", "c", []), ("a25", "c", []), ("a25 d5", "c", []), ("a25", "b", ["disproved"])],
)
def test_what_a_full_group_dropped_takes_nothing_back(
    fire: str, late: str, taken_back: list[str]
) -> None:
    first = [Point(9_000 + n, int(p[1:]), p[0], "bob", None) for n, p in enumerate(fire.split())]
    definition = correlation(
        type="temporal",
        rules=(*RULES, "d"),
        count=1,
        any_of=(tuple(point.rule for point in first),),
        none_of=(("b",),),
    )
    points = first + [Point(n, n // 5, "c", "bob", None) for n in range(1_100)]
    correlator = Correlator(CorrelationState())
    told: list[dict[str, Any]] = []
    for number, each in enumerate(map(row, sorted(points, key=lambda point: point.second))):
        told += correlator.feed(definition, each)
        if number % 100 == 0:
            told += correlator.settle(definition, micros(each["received_at"]))
    assert [out["out"] for out in told] == ["finding"]
    (group,) = correlator.state.groups.values()
    assert group.dropped == 100 + len(first)
    out = correlator.feed(definition, row(Point(9_999, 30, late, "bob", None), 190))
    assert [one["row"]["via"] for one in out] == taken_back


def test_a_full_group_whose_windows_are_open_is_not_looked_through_with_each_finding(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    definition = correlation(type="value_avg", op="gte", count=1)
    correlator = Correlator(CorrelationState())
    looks: list[Any] = []
    is_closed = correlator._is_closed

    def counted(*given: Any, **named: Any) -> bool:
        looks.append(given)
        return is_closed(*given, **named)

    monkeypatch.setattr(correlator, "_is_closed", counted)
    for number in range(MAX_ENTRIES + 500):
        correlator.feed(definition, row(Point(number, number // 50, "a", "bob", "1")))
    assert len(looks) == 500


@pytest.mark.parametrize("kind", ["temporal", "temporal_ordered"])
def test_what_comes_on_time_has_no_window_that_closed_looked_at_again(
    monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """Of a noisy group each finding would go through all that it keeps."""
    measured: list[Any] = []

    def counted(*given: Any) -> Any:
        measured.append(given)
        return measure_without(*given)

    monkeypatch.setattr(windows_module, "measure_without", counted)
    definition = correlation(
        type=kind, rules=("b", "a"), count=1, any_of=(("a",),), none_of=(("b",),),
        timespan_seconds=600,
    )  # fmt: skip
    correlator = Correlator(CorrelationState())
    for number in range(600):
        each = row(Point(number, number, "b", "bob", None))
        assert correlator.feed(definition, each) == []
        if number % 50 == 0:
            assert correlator.settle(definition, micros(each["received_at"])) == []
    # Each window once, when it closes.
    assert len(measured) <= 600


def test_what_many_corrections_stir_is_looked_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A lease that was another device's brings a correction for each of its findings."""
    measured: list[Any] = []

    def counted(*given: Any) -> Any:
        measured.append(given)
        return measure_condition(*given)

    monkeypatch.setattr(windows_module, "measure_condition", counted)
    # Both rules are in each window but the first, and never in their order.
    definition = correlation(
        type="temporal_ordered", rules=("b", "a"), count=2, timespan_seconds=600
    )
    correlator = Correlator(CorrelationState())
    rows = [row(Point(n, n, "b" if n else "a", "bob", None)) for n in range(300)]
    for each in rows:
        correlator.feed(definition, each)
    measured.clear()
    for each in rows:
        correlator.feed(definition, each | {"user_name": "eve", "attr_rev": 5})
    assert correlator.judge(definition) == []
    # Each window of the group that they came to; in the one that they left there is none.
    assert len(measured) == len(rows) - 1


SPANS = st.tuples(st.integers(0, 30), st.integers(0, 8)).map(lambda s: (s[0], s[0] + s[1]))


@examples(100)
@given(st.lists(SPANS, max_size=12))
def test_each_instant_of_some_spans_is_unseen_once(spans: list[tuple[int, int]]) -> None:
    seen: list[tuple[int, int]] = []
    known: set[int] = set()
    for since, until in spans:
        parts = unseen(seen, since, until)
        new = [instant for first, last in parts for instant in range(first, last + 1)]
        assert new == sorted(set(range(since, until + 1)) - known)
        known |= set(new)
        assert {n for first, last in seen for n in range(first, last + 1)} == known
        assert all(sooner[1] + 1 < later[0] for sooner, later in pairwise(seen))


def test_an_absence_at_the_end_of_all_years_is_told() -> None:
    nothing = correlation(op="eq", count=0)
    last = row(Point(1, 0, "a", "bob", None))
    last["event_time"] = last["event_time"].replace(
        year=9999, month=12, day=31, hour=23, minute=59, second=30
    )
    (told,) = streamed(nothing, [[last]])
    assert told["event_time"].year == 9999
