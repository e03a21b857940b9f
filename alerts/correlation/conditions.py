"""Whether a window of findings fulfils a correlation's condition, and which of them say so.

Functions of the window alone. Numbers are those of Sigma's relational reading:
a window without a number has no sum, mean or percentile, and fulfils nothing.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any, NamedTuple

import msgspec

from alerts.correlation.entry import CorrelationEntry, by_order, number
from alerts.rulepack.predicate import fold
from alerts.rulepack.rule_pack import Correlation

NUMERIC = ("value_sum", "value_avg", "value_median", "value_percentile")

_GROWING = ("event_count", "value_count", "temporal", "temporal_ordered", "value_sum", "first_seen")
"""Kinds that another finding can only bring nearer to `gt` or `gte`; sums, of what is not negative.

Told at once. The others are told when no more is expected.
"""

_OPS: dict[str, Callable[[Any, Any], bool]] = {
    name: getattr(operator, {"lte": "le", "gte": "ge", "neq": "ne"}.get(name, name))
    for name in ("lt", "lte", "gt", "gte", "eq", "neq")
}

Number = int | float

_SCALE = 2.0**64
"""Numbers divided by it have a sum that is a float, however large they are."""


class MeasuredCondition(NamedTuple):
    """A window that fulfils the condition: its number, and the findings that show it, by time."""

    value: Number
    chosen: list[CorrelationEntry]


def told_at_once(definition: Correlation) -> bool:
    """Whether a window that fulfils the condition still does so when more findings come."""
    growing = definition.op in ("gt", "gte") and definition.upper is msgspec.UNSET
    return growing and definition.type in _GROWING and definition.none_of is msgspec.UNSET


def asks_absence(definition: Correlation) -> bool:
    """Whether it tells that nothing came: a count of events that only 0 fulfils."""
    if definition.type != "event_count" or definition.upper is not msgspec.UNSET:
        return False
    return only_nothing(definition.op, definition.count)


def only_nothing(op: str, count: Number) -> bool:
    """Whether of all counts 0 alone fulfils a condition."""
    return (op == "lt" and 0 < count <= 1) or (op == "lte" and 0 <= count < 1) or (
        op == "eq" and count == 0
    )  # fmt: skip


def least(definition: Correlation) -> int:
    """The smallest whole number that fulfils a `gt` or `gte` condition, at least 0."""
    # What is counted is whole: `gt 2.5` takes three.
    above = math.floor(definition.count) + 1
    return max(0, above if definition.op == "gt" else math.ceil(definition.count))


def most_needed(definition: Correlation) -> int:
    """Findings that a count may need in one window: the higher end, where it is a range."""
    if definition.upper is msgspec.UNSET:
        return least(definition)
    # One more shows that a window is beyond its range.
    return max(least(definition), math.ceil(definition.upper[1]) + 1)


def measure_condition(
    definition: Correlation, within: Sequence[CorrelationEntry]
) -> MeasuredCondition | None:
    """The window's number and witnesses; None when it does not fulfil the condition."""
    if definition.any_of is not msgspec.UNSET:
        return _first_alternative(definition, definition.any_of, within)
    value = metric(definition, within)
    if value is None or not fulfils(definition, value):
        return None
    chosen: list[CorrelationEntry] | None = list(within)
    if definition.type == "temporal":
        chosen = _latest(within)
    elif definition.type == "temporal_ordered":
        # As many rules as a `gt` or `gte` asks for, whichever they are; else all that occur.
        present = len({e.rule_id for e in within})
        needed = least(definition) if told_at_once(definition) else present
        chosen = _in_order(definition.rules, within, needed)
    elif definition.type in NUMERIC:
        chosen = [e for e in within if number(e.value) is not None]
    elif definition.type == "value_count":
        chosen = [e for e in within if e.value is not None]
    return None if chosen is None else MeasuredCondition(value, chosen or list(within))


def fulfils(definition: Correlation, value: Number | Fraction) -> bool:
    """Whether a window's number is one that the condition asks for."""
    if not _OPS[definition.op](value, definition.count):
        return False
    if definition.upper is msgspec.UNSET:
        return True
    op, count = definition.upper
    return _OPS[op](value, count)


def metric(definition: Correlation, within: Sequence[CorrelationEntry]) -> Number | None:
    """The number a condition compares; None when the window holds no number to compute it from."""
    if definition.type == "event_count":
        return len(within)
    if definition.type == "value_count":
        return len({fold(e.value) for e in within if e.value is not None})
    if definition.type.startswith("temporal"):
        return len({e.rule_id for e in within})
    # Values that are no numbers are passed over, as a missing field matches nothing.
    numbers = [n for e in within if (n := number(e.value)) is not None]
    if not numbers:
        return None
    if definition.type == "value_sum":
        return _sum(numbers)
    if definition.type == "value_avg":
        return _sum(numbers) / len(numbers)
    percent = 50 if definition.percentile is None else definition.percentile
    return percentile(numbers, percent)


def percentile(numbers: Sequence[Number], percent: Number) -> Number:
    """The percentile, between two neighbours in proportion to their distance."""
    ordered = sorted(numbers)
    whole, rest = divmod((len(ordered) - 1) * percent, 100)
    low = ordered[int(whole)]
    if not rest:
        return low
    return low + (ordered[int(whole) + 1] - low) * rest / 100


def _sum(numbers: Sequence[Number]) -> Number:
    """Exact for whole numbers, correctly rounded for others: the order does not show."""
    if all(isinstance(n, int) for n in numbers):
        return sum(numbers)
    try:
        return math.fsum(numbers)
    except OverflowError:
        # Beyond any float, which logs can say as well: infinite, and no end of the batch.
        return math.fsum(n / _SCALE for n in numbers) * _SCALE


def _first_alternative(
    definition: Correlation,
    alternatives: Sequence[Sequence[str]],
    within: Sequence[CorrelationEntry],
) -> MeasuredCondition | None:
    """The first set of rules that all fired in the window, in their order where that counts."""
    present = {e.rule_id for e in within}
    for rules in alternatives:
        chosen = latest_of(definition, rules, within) if present.issuperset(rules) else None
        if chosen is not None:
            return MeasuredCondition(len(present), chosen)
    return None


def latest_of(
    definition: Correlation, rules: Sequence[str], within: Sequence[CorrelationEntry]
) -> list[CorrelationEntry] | None:
    """The latest finding of each of the rules, all of which have one; None: not in their order."""
    if definition.type == "temporal_ordered":
        return _in_order(rules, within, len(rules))
    return _latest([e for e in within if e.rule_id in rules])


def _latest(within: Sequence[CorrelationEntry]) -> list[CorrelationEntry]:
    """Of each rule its last finding: entries are in order of time, so the last one stays."""
    return sorted({e.rule_id: e for e in within}.values(), key=by_order)


def _in_order(
    rules: Sequence[str], within: Sequence[CorrelationEntry], needed: int
) -> list[CorrelationEntry] | None:
    """The latest chain of so many rules in which each comes later than the one before it."""
    # best[k]: of the chains of k rules the one that starts last, which leaves most room before it.
    best: list[list[CorrelationEntry]] = [[]]
    for rule_id in reversed(rules):
        times = [e for e in within if e.rule_id == rule_id]
        # From the longest down, so that one rule does not lengthen the chain it has just made.
        for length in range(len(best), 0, -1):
            after = best[length - 1]
            fitting = [e for e in times if not after or e.time < after[0].time]
            if not fitting:
                continue
            chain = [fitting[-1], *after]
            if length == len(best):
                best.append(chain)
            elif chain[0].time > best[length][0].time:
                best[length] = chain
    return best[needed] if needed < len(best) else None
