"""Conditions of Sigma's correlations beyond one number: ranges, several fields, expressions.

Sigma specification 2.0 lets a condition name a range (`gt: 100` with `lte: 200`); pySigma reads
one number alone, so the second is taken out before.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import product
from typing import Any

from sigma.correlations import (
    CorrelationConditionAND,
    CorrelationConditionItem,
    CorrelationConditionOR,
    SigmaCorrelationCondition,
    SigmaCorrelationRule,
    SigmaCorrelationType,
    SigmaExtendedCorrelationCondition,
    SigmaRuleReference,
)

from alerts.compiler.sigma_to_predicate import Untranslatable
from alerts.correlation.conditions import only_nothing

Number = int | float
Upper = tuple[str, Number]
"""The upper end of a range: lt or lte, and its number."""

CORRELATION_TYPES = tuple(kind.name.lower() for kind in SigmaCorrelationType)
"""Sigma's types of correlation, all of which are compiled."""

MAX_ALTERNATIVES = 100
"""Ways in which an expression over rules may come true."""

_LOWER, _UPPER, _OTHERS = ("gt", "gte"), ("lt", "lte"), ("eq", "neq")
OPERATORS = (*_LOWER, *_UPPER, *_OTHERS)
"""How a number may be compared; one of the first two with one of the next two is a range."""
_COUNTS = ("event_count", "value_count", "temporal", "temporal_ordered")
_NO_ABSENCE = (
    "a window ends with a finding, so that something did not happen has no moment to be told at"
)


def taken_upper(document: dict[str, Any]) -> Upper | None:
    """The upper end of a range, taken out of a correlation's document; None without one.

    Raises `Untranslatable` for two numbers that make no range.
    """
    correlation = document.get("correlation")
    if not isinstance(correlation, dict) or not isinstance(correlation.get("condition"), dict):
        return None
    condition = correlation["condition"]
    lower = [op for op in _LOWER if op in condition]
    upper = [op for op in _UPPER if op in condition]
    others = [op for op in _OTHERS if op in condition]
    if len([*lower, *upper, *others]) < 2:
        return None
    if others or len(lower) > 1 or len(upper) > 1:
        named = ", ".join([*lower, *upper, *others])
        raise Untranslatable(
            f"a condition with {named}", "a range is one of gt, gte with one of lt, lte"
        )
    low, high = condition[lower[0]], condition[upper[0]]
    for value in (low, high):
        if (
            isinstance(value, bool)
            or not isinstance(value, int | float)
            or not math.isfinite(value)
        ):
            raise Untranslatable(f"'{value}' in a range", "write numbers")
    _require_between(lower[0], low, upper[0], high, str(correlation.get("type")))
    # In copies: by an alias of YAML other rules may have the same condition.
    rest = {name: value for name, value in condition.items() if name != upper[0]}
    document["correlation"] = correlation | {"condition": rest}
    return upper[0], high


def _require_between(lower: str, low: Number, upper: str, high: Number, kind: str) -> None:
    empty = low > high or (low == high and (lower, upper) != ("gte", "lte"))
    if kind in _COUNTS:
        # The whole numbers at its two ends.
        first = math.floor(low) + 1 if lower == "gt" else math.ceil(low)
        last = math.ceil(high) - 1 if upper == "lt" else math.floor(high)
        empty = first > last
    if empty:
        raise Untranslatable(f"no number is {lower} {low} and {upper} {high}", "correct the range")


def require_possible(kind: str, condition: SigmaCorrelationCondition) -> None:
    """Raises `Untranslatable` for a count that only a window without findings has.

    Of events that is an absence: the group fell silent. Of rules none is left to be silent.
    """
    op, count = condition.op.name.lower(), condition.count
    if kind == "event_count" and only_nothing(op, count):
        return
    nothing = (op == "lt" and count <= 1) or (op in ("lte", "eq") and count < 1)
    # A window may well have findings without a value to count.
    if nothing and kind in _COUNTS and kind != "value_count":
        raise Untranslatable(
            f"condition {op} {count} asks for an absence: {_NO_ABSENCE}",
            "`type: event_count` with `condition: {eq: 0}` tells that a group fell silent",
        )


def fields_of_condition(kind: str, condition: SigmaCorrelationCondition) -> tuple[str, ...]:
    """The fields under `condition.field`; `Untranslatable` for several where one is meant."""
    named = condition.fieldref
    fields = tuple(dict.fromkeys(named)) if isinstance(named, list) else (named,) if named else ()
    if isinstance(named, list) and not fields:
        raise Untranslatable("condition.field is an empty list", "name a field")
    if len(fields) > 1 and kind != "value_count":
        raise Untranslatable(
            f"condition.field: {list(fields)} with {kind}", "several fields belong to value_count"
        )
    return fields


def references(parsed: SigmaCorrelationRule) -> tuple[str, ...]:
    """The names of the rules it counts, each once and in order; a condition may name them."""
    if parsed.rules:
        return tuple(dict.fromkeys(rule.reference for rule in parsed.rules))
    if isinstance(parsed.condition, SigmaExtendedCorrelationCondition):
        return tuple(parsed.condition.get_referenced_rules())
    return ()


def alternatives(
    condition: SigmaExtendedCorrelationCondition, order: Sequence[str]
) -> tuple[tuple[str, ...], ...]:
    """The sets of rules of which one must have fired whole for an expression to be true.

    Each in `order`, which `temporal_ordered` asks for. Raises `Untranslatable` for `not`.
    """
    sets = _sets(condition.parsed)
    # What holds with fewer rules needs no mention with more.
    least = [s for s in sets if not any(other < s for other in sets)]
    ordered = {tuple(name for name in order if name in rules) for rules in least}
    return tuple(sorted(ordered, key=lambda rules: [order.index(name) for name in rules]))


def _sets(item: CorrelationConditionItem | SigmaRuleReference) -> set[frozenset[str]]:
    if isinstance(item, SigmaRuleReference):
        return {frozenset([item.reference])}
    if isinstance(item, CorrelationConditionOR):
        sets = {rules for part in item.args for rules in _sets(part)}
    elif isinstance(item, CorrelationConditionAND):
        sets = {frozenset()}
        for part in item.args:
            sets = {rules | more for rules, more in product(sets, _sets(part))}
            _require_few(sets)
    else:
        raise Untranslatable(
            f"`not` in a condition asks for an absence: {_NO_ABSENCE}",
            "name only rules that do fire; what is harmless is left out by a rule's own filter",
        )
    _require_few(sets)
    return sets


def _require_few(sets: set[frozenset[str]]) -> None:
    if len(sets) > MAX_ALTERNATIVES:
        raise Untranslatable(
            f"its condition can come true in more than {MAX_ALTERNATIVES} ways",
            "split it into correlations of correlations",
        )
