"""Findings packed away: a correlation tells what it would tell with all of them in sight."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
from hypothesis import example, given
from hypothesis import strategies as st

from alerts.correlation.correlator import Correlator
from alerts.correlation.group import LATENESS, SETTLE, CorrelationState
from alerts.correlation.history import forget_findings, pack_away
from alerts.correlation.packed_history import pack_history, unpack_history
from alerts.domain.entity import micros
from alerts.rulepack.rule_pack import Correlation
from tests.alerts.correlation.test_correlator import NOON, correlation, finding, leased
from tests.examples import examples

SPAN = 60
Step = tuple[int, list[tuple[int, str, str, int]]]
"""Seconds that arrivals move on, and findings: how much later they come, rule, device, rev."""

KINDS = (
    correlation(rules=("r", "q")),
    correlation(rules=("r", "q"), op="lte", count=2),
    correlation(rules=("r", "q"), op="eq", count=2),
    correlation(rules=("r", "q"), op="eq", count=0),
    correlation(rules=("r", "q"), type="temporal_ordered", op="gte", count=2),
    correlation(rules=("r", "q"), type="temporal", count=1, any_of=(("r",),), none_of=(("q",),)),
    correlation(rules=("r", "q"), type="value_count", field="ip", op="gte", count=2),
)

STEPS = st.lists(
    st.tuples(
        st.integers(0, 90),
        st.lists(
            st.tuples(
                st.one_of(st.integers(-20, 20), st.integers(0, 900)),
                st.sampled_from("rq"),
                st.sampled_from(["aa", "bb"]),
                st.integers(0, 2),
            ),
            max_size=4,
        ),
    ),
    max_size=25,
)


def told(definition: Correlation, steps: list[Step], enough: int) -> list[Any]:
    """What a correlation tells, step by step, when that many findings are packed at once.

    The same instant, rule and revision twice is the same finding, perhaps another device's now.
    """
    state, now, out = CorrelationState(), 0, []
    for seconds, rows in steps:
        now += seconds
        correlator = Correlator(state)
        for late, rule, mac, rev in rows:
            row = finding(now - late, rule, rev, holder=leased(mac))
            row["received_at"] = NOON + timedelta(seconds=now)
            out.append(correlator.feed(definition, row))
        arrivals = micros(NOON + timedelta(seconds=now))
        out.append(Correlator(state).settle(definition, arrivals))
        forget_findings(state, max(state.clock, arrivals - 3600 * 1_000_000))
        pack_away(state, arrivals, enough)
        state = msgspec.msgpack.decode(msgspec.msgpack.encode(state), type=CorrelationState)
    return out


# Three in a minute whose last comes ten minutes late, when the others are packed away.
LATE: list[Step] = [
    (0, [(0, "r", "aa", 1), (-10, "q", "aa", 1)]),
    (500, [(0, "r", "bb", 1)]),
    (0, [(490, "r", "aa", 1), (490, "r", "aa", 2)]),
]


@examples(300)
@given(st.sampled_from(KINDS), STEPS)
@example(KINDS[0], LATE)
def test_packing_changes_nothing_that_is_told(definition: Correlation, steps: list[Step]) -> None:
    assert told(definition, steps, 1) == told(definition, steps, 10**9)


def test_a_late_finding_completes_a_window_that_was_packed_away() -> None:
    (fired,) = [out for outs in told(KINDS[0], LATE, 1) for out in outs]
    assert fired["row"]["evidence_total"] == 3
    assert fired["row"]["fields"]["late"] == "true"


def test_only_what_lies_in_no_window_that_may_still_end_is_packed() -> None:
    state = CorrelationState()
    correlator = Correlator(state)
    for second in range(0, 400, 10):
        correlator.feed(correlation(count=1_000), finding(second))
    pack_away(state, micros(NOON) + 400 * 1_000_000, 1)
    (cold,) = state.cold
    newest = micros(NOON + timedelta(seconds=390))
    (group,) = state.groups.values()
    assert cold.until < newest - SETTLE - SPAN * 1_000_000 <= group.entries[0].time
    assert len(group.entries) + sum(map(len, unpack_history(cold).values())) == 40


def test_arrivals_that_stand_still_hold_packing_back() -> None:
    """A clock five minutes ahead is no reason to put away what everybody else still needs."""
    state = CorrelationState()
    correlator = Correlator(state)
    for second in (0, 10, 300):
        row = finding(second) | {"received_at": NOON + timedelta(seconds=10)}
        correlator.feed(correlation(count=1_000), row)
    pack_away(state, micros(NOON) + 10 * 1_000_000, 1)
    assert not state.cold


def test_packs_are_forgotten_with_what_is_in_them() -> None:
    state = CorrelationState()
    correlator = Correlator(state)
    for second in (0, 10, 300):
        correlator.feed(correlation(count=1_000), finding(second))
    pack_away(state, micros(NOON) + 300 * 1_000_000, 1)
    assert state.cold
    forget_findings(state, micros(NOON) + 10 * 1_000_000 + SPAN * 1_000_000 + LATENESS)
    assert state.cold, "its newest may still count"
    forget_findings(state, micros(NOON) + 301 * 1_000_000 + SPAN * 1_000_000 + LATENESS)
    assert not state.cold
    assert not state.groups


def test_ten_thousand_findings_are_packed_small_and_come_back_as_they_were() -> None:
    state = CorrelationState()
    correlator = Correlator(state)
    for n in range(10_000):
        correlator.feed(correlation(count=10**6), finding(n / 100, holder=leased(f"m{n % 50}")))
    entries = {key: group.entries for key, group in state.groups.items()}
    cold = pack_history(entries)
    assert unpack_history(cold) == entries
    assert len(msgspec.msgpack.encode(entries)) > 4 * len(cold.packed)
    at = datetime.fromtimestamp(cold.until / 1e6, UTC)
    assert at == NOON + timedelta(seconds=99.99)
