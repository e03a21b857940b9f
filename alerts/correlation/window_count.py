"""What a window holds, counted along while it moves over the findings of a group.

    findings   . . x . . . x . x . . . x . .
    window     [---------]          what leaves at its begin is taken off,
                 [---------]        what comes in at its end is added

A finding that comes late lies in every window that ends within a timespan behind it. To measure
each of them anew would be to go through the whole group with each.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from alerts.correlation.conditions import asks_absence, fulfils
from alerts.correlation.entry import CorrelationEntry, number
from alerts.rulepack.predicate import fold
from alerts.rulepack.rule_pack import Correlation


class WindowCount:
    """Rules out windows that cannot fulfil a condition; these may only move forward."""

    def __init__(self, definition: Correlation, entries: Sequence[CorrelationEntry]) -> None:
        self._definition, self._entries = definition, entries
        self._begin = self._behind = 0
        self._counts: dict[str, int] = {}
        self._sum: int | Fraction = 0

    def may_fulfil(self, begin: int, behind: int) -> bool:
        """Whether the window of the entries from `begin` to before `behind` is worth measuring."""
        definition = self._definition
        if definition.type == "event_count":
            return asks_absence(definition) or fulfils(definition, behind - begin)
        if definition.type not in ("value_count", "value_sum", "temporal", "temporal_ordered"):
            return True
        self._move(begin, behind)
        if definition.alternatives:
            return any(self._counts.keys() >= {*rules} for rules, _ in definition.alternatives)
        if definition.type == "value_sum":
            return self._sum_may()
        return fulfils(definition, len(self._counts))

    def _sum_may(self) -> bool:
        try:
            # What is compared is rounded where one of the numbers is no whole one.
            near = float(self._sum)
        except OverflowError:
            return True
        return fulfils(self._definition, self._sum) or fulfils(self._definition, near)

    def _move(self, begin: int, behind: int) -> None:
        for entry in self._entries[self._begin : min(begin, self._behind)]:
            self._note(entry, -1)
        for entry in self._entries[max(begin, self._behind) : behind]:
            self._note(entry, 1)
        self._begin, self._behind = begin, behind

    def _note(self, entry: CorrelationEntry, times: int) -> None:
        if self._definition.type == "value_sum":
            value = number(entry.value)
            if value is not None:
                self._sum += times * (value if isinstance(value, int) else Fraction(value))
            return
        key = entry.rule_id
        if self._definition.type == "value_count":
            if entry.value is None:
                return
            key = fold(entry.value)
        left = self._counts.get(key, 0) + times
        if left:
            self._counts[key] = left
        else:
            del self._counts[key]
