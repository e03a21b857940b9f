"""Expressions with `not`: rules that fire, and others of which none fires with them.

What must not be there is looked for around the latest findings of the rules that fire. It is
with them when one timespan can hold them all and, where order counts, when it is in its place:

    a and not b              t - timespan           t (of a)        t + timespan
    temporal                 [-------------------- no b -------------------]
    temporal_ordered a, b                            (-------- no b -------]
    temporal_ordered b, a    [------- no b ---------)
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import timedelta

import msgspec

from alerts.correlation.conditions import MeasuredCondition, asks_absence, latest_of
from alerts.correlation.entry import CorrelationEntry
from alerts.rulepack.rule_pack import Correlation


def rules_out(definition: Correlation) -> bool:
    """Whether its expression names rules that must not fire beside the others."""
    return definition.none_of is not msgspec.UNSET


def looks_ahead(definition: Correlation) -> int:
    """How long after its end a window must stay without some findings, microseconds."""
    ahead = asks_absence(definition) or any(
        definition.type == "temporal" or _place(definition, rules, rule) == len(rules)
        for rules, never in definition.alternatives
        for rule in never
    )
    return definition.span if ahead else 0


def remembers(definition: Correlation) -> int:
    """How far back from now findings concern windows that a new one may change, microseconds."""
    return _spans(definition) * definition.span


def looks_back(definition: Correlation, seconds: int) -> timedelta:
    """How far before a time findings concern windows of so many seconds that are told from then on:
    the window itself, and what its group rested from."""
    return timedelta(seconds=(1 + _spans(definition)) * seconds)


def _spans(definition: Correlation) -> int:
    # It may take back a window that ended a span before or after it; then windows speak that this
    # one kept quiet, each with what lies a span before it.
    return 3 if rules_out(definition) else 1


def measure_without(
    definition: Correlation,
    within: Sequence[CorrelationEntry],
    around: Sequence[CorrelationEntry],
) -> MeasuredCondition | None:
    """The findings of the first alternative that is true of a window; None when none is.

    `around`: the group's findings from the window's begin to a timespan after its end. The window
    ends with one of the findings that must be there: others make nothing true.
    """
    present = {e.rule_id for e in within}
    for rules, never in definition.alternatives:
        chosen = latest_of(definition, rules, within) if present.issuperset(rules) else None
        if chosen is None or chosen[-1].time != within[-1].time:
            continue
        excluded = (entry for entry in around if entry.rule_id in never)
        if not _any_with(definition, rules, chosen, excluded):
            return MeasuredCondition(len(chosen), chosen)
    return None


def _any_with(
    definition: Correlation,
    rules: Sequence[str],
    chosen: Sequence[CorrelationEntry],
    excluded: Iterable[CorrelationEntry],
) -> bool:
    """Whether a finding that must not be there is with those that are."""
    span = definition.span
    first, last = chosen[0].time, chosen[-1].time
    for entry in excluded:
        since, until = last - span, first + span
        if definition.type == "temporal_ordered":
            # Between its neighbours, and as in every order not at the instant of one of them.
            place = _place(definition, rules, entry.rule_id)
            since = chosen[place - 1].time + 1 if place else since
            until = chosen[place].time - 1 if place < len(chosen) else until
        if since <= entry.time <= until:
            return True
    return False


def _place(definition: Correlation, rules: Sequence[str], rule: str) -> int:
    """How many of the rules that fire come before the rule, in the correlation's order."""
    order = definition.rules
    return sum(order.index(other) < order.index(rule) for other in rules)
