"""Which windows of a group fulfil a condition: the first of a span, and that of an instant.

The windows of a group end with its findings; both ends count.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from typing import TypeAlias

from alerts.correlation.conditions import (
    MeasuredCondition,
    asks_absence,
    measure_condition,
    told_at_once,
)
from alerts.correlation.entry import CorrelationEntry, time_key
from alerts.correlation.group import Group
from alerts.correlation.negation import measure_without, rules_out
from alerts.correlation.window_count import WindowCount
from alerts.rulepack.rule_pack import Correlation

Span: TypeAlias = tuple[int, int]
"""From when to when, microseconds."""


def first_window(
    definition: Correlation, group: Group, since: int, until: int
) -> tuple[Sequence[CorrelationEntry], MeasuredCondition] | None:
    """The first window that ends in [since, until], outside every rest, and fulfils the condition.

    A group rests for a timespan after what fired, and before it: what comes late
    and only adds to what was told already tells nothing new.
    """
    span = definition.span
    entries = group.entries
    if told_at_once(definition) and not _may_fire(definition, entries, since - span, until):
        return None
    counted = WindowCount(definition, entries)
    position = bisect_left(entries, since, key=time_key)
    while position < len(entries) and entries[position].time <= until:
        end = entries[position].time
        position = bisect_right(entries, end, lo=position, key=time_key)
        begin = bisect_left(entries, end - span, key=time_key)
        quiet = not counted.may_fulfil(begin, position) or group.rests(end, span)
        measured = None if quiet else _measured(definition, entries, position)
        if measured is not None:
            return measured
    return None


def _may_fire(
    definition: Correlation, entries: Sequence[CorrelationEntry], since: int, until: int
) -> bool:
    """Whether all findings of [since, until] together fulfil what more can only fulfil the better:
    where they do not, no window of them does."""
    if definition.type == "value_sum":  # a number below zero makes it less
        return True
    begin = bisect_left(entries, since, key=time_key)
    behind = bisect_right(entries, until, key=time_key)
    return WindowCount(definition, entries).may_fulfil(begin, behind)


def _measured(
    definition: Correlation, entries: Sequence[CorrelationEntry], behind: int
) -> tuple[Sequence[CorrelationEntry], MeasuredCondition] | None:
    """The window that ends with the entry before `behind`, if it fulfils the condition."""
    span, newest = definition.span, entries[behind - 1]
    if asks_absence(definition):
        if behind < len(entries) and entries[behind].time <= newest.time + span:
            return None
        return [newest], MeasuredCondition(0, [newest])
    begin = bisect_left(entries, newest.time - span, key=time_key)
    within = entries[begin:behind]
    if rules_out(definition):
        around = entries[begin : bisect_right(entries, newest.time + span, key=time_key)]
        what = measure_without(definition, within, around)
    else:
        what = measure_condition(definition, within)
    return None if what is None else (within, what)


def holds(definition: Correlation, entries: Sequence[CorrelationEntry], end: int) -> bool:
    """Whether the window that ends then fulfils the condition."""
    return _measured(definition, entries, bisect_right(entries, end, key=time_key)) is not None


def unseen(seen: list[Span], since: int, until: int) -> list[Span]:
    """The parts of a span that lie in none of those seen; it is among these then.

    Spans have both their ends; those seen are in order, and none touches another.
    """
    parts, begin = [], since
    for first, last in seen:
        if last < begin or first > until:
            continue
        if first > begin:
            parts.append((begin, first - 1))
        begin = last + 1
    if begin <= until:
        parts.append((begin, until))
    apart = [each for each in seen if each[1] < since - 1 or each[0] > until + 1]
    ends = [(since, until), *(each for each in seen if each not in apart)]
    joined = (min(first for first, _ in ends), max(last for _, last in ends))
    seen[:] = sorted([*apart, joined])
    return parts
