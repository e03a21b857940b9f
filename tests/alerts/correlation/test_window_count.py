"""What is counted along with a moving window says what measuring it anew says."""

from __future__ import annotations

from bisect import bisect_left
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from alerts.correlation import windows as windows_module
from alerts.correlation.conditions import measure_condition
from alerts.correlation.correlator import Correlator
from alerts.correlation.entry import correlation_entry
from alerts.correlation.group import CorrelationState
from alerts.correlation.window_count import WindowCount
from tests.alerts.correlation_history import OPS, RULES, Point, correlation, row
from tests.examples import examples

TYPES = ("event_count", "value_count", "value_sum", "value_avg", "temporal", "temporal_ordered")
VALUES = st.sampled_from(["1", "2", "-3", "0.1", "0.2", "1e308", "-1e308", "x", "X", None])


@examples(300)
@given(
    st.lists(st.tuples(st.integers(0, 200), st.sampled_from(RULES), VALUES), max_size=20),
    st.sampled_from(TYPES),
    st.sampled_from(sorted(OPS)),
    st.sampled_from([1, 2, 3, 0.3]),
    st.sampled_from([None, (("a",),), (("a", "b"), ("c",))]),
)
def test_no_window_is_ruled_out_that_fulfils_its_condition(
    drawn: list[tuple[int, str, str | None]], kind: str, op: str, count: float, either: Any
) -> None:
    keys: dict[str, Any] = {"type": kind, "op": op, "count": count}
    if either and kind.startswith("temporal"):
        keys["any_of"] = either
    definition = correlation(**keys)
    points = [Point(n, t, r, "bob", v) for n, (t, r, v) in enumerate(sorted(drawn, key=str))]
    entries = [correlation_entry(definition, row(point)) for point in points]
    entries = sorted(entries, key=lambda entry: entry.time if entry else 0)
    told: Any = entries
    counted = WindowCount(definition, told)
    for behind in range(1, len(told) + 1):
        begin = bisect_left(told, told[behind - 1].time - definition.span, key=lambda e: e.time)
        if measure_condition(definition, told[begin:behind]) is not None:
            assert counted.may_fulfil(begin, behind)
        else:
            counted.may_fulfil(begin, behind)


@pytest.mark.parametrize(
    "keys",
    [
        {"type": "value_count", "count": 8},
        {"type": "temporal", "count": 4},
        {"type": "value_sum", "count": 10**9},
        {"count": 500},
    ],
)
def test_a_late_finding_has_no_window_measured_that_cannot_fire(
    keys: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    measured = []

    def counting(definition: Any, within: Any) -> Any:
        measured.append(len(within))
        return measure_condition(definition, within)

    monkeypatch.setattr(windows_module, "measure_condition", counting)
    definition = correlation(timespan_seconds=3600, **keys)
    run = Correlator(CorrelationState())
    for n in range(200):
        run.feed(definition, row(Point(n, 600 + n, RULES[n % 3], "bob", str(n % 7))))
    for n in range(200):
        assert run.feed(definition, row(Point(300 + n, 300 + n, "a", "bob", str(n % 7)))) == []
    # One by one it was each window of an hour, with each finding.
    assert measured == []


def test_numbers_whose_sum_no_float_holds_fail_nothing() -> None:
    for kind in ("value_sum", "value_avg"):
        definition = correlation(type=kind, op="gte", count=5)
        run = Correlator(CorrelationState())
        points = [Point(n, n, "a", "bob", "1e308") for n in range(3)]
        rows = [out["row"] for p in points for out in run.feed(definition, row(p))]
        rows += [out["row"] for out in run.settle(definition)]
        assert rows, kind
    # The smallest and the largest take each other away, in whatever order.
    mixed = [Point(n, n, "a", "bob", v) for n, v in enumerate(("1e308", "1e308", "-1e308"))]
    definition = correlation(type="value_avg", op="gt", count=5)
    run = Correlator(CorrelationState())
    for point in mixed:
        run.feed(definition, row(point))
    assert run.settle(definition)
