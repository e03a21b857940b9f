"""Conditions of Sigma's correlations beyond one number: ranges, several fields, expressions.

Sigma specification 2.0 lets a condition name a range (`gt: 100` with `lte: 200`); pySigma reads
one number alone, so the second is taken out before.
"""

from __future__ import annotations

import math
from collections.abc import Sequence, Sized
from itertools import product
from typing import Any, NamedTuple

from sigma.correlations import (
    CorrelationConditionAND,
    CorrelationConditionItem,
    CorrelationConditionNOT,
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


class Alternative(NamedTuple):
    """A way in which an expression comes true: rules that all fire, and some none of which does."""

    fire: tuple[str, ...]
    never: tuple[str, ...]


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
            "`type: event_count` with `condition: {eq: 0}` alerts when a group falls silent",
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
) -> tuple[Alternative, ...]:
    """The ways in which an expression over rules comes true; one is enough.

    Each in `order`, which `temporal_ordered` asks for. Raises `Untranslatable` for an expression
    that is never true, or true where nothing fires.
    """
    ways = _ways(condition.parsed)
    # What holds with fewer rules needs no mention with more.
    least = [way for way in ways if not any(other < way for other in ways)]
    _require_finding(condition.expression, least)
    ordered = {
        Alternative(
            *(tuple(name for name in order if (name, fires) in way) for fires in (True, False))
        )
        for way in least
    }
    return tuple(sorted(ordered, key=lambda way: [[order.index(n) for n in part] for part in way]))


def _ways(
    item: CorrelationConditionItem | SigmaRuleReference, fires: bool = True
) -> set[frozenset[tuple[str, bool]]]:
    """The ways in which an item is true, or false if not `fires`: by rule, whether it fired."""
    if isinstance(item, SigmaRuleReference):
        return {frozenset([(item.reference, fires)])}
    if isinstance(item, CorrelationConditionNOT):
        return _ways(item.args[0], not fires)
    # Of what is false, each part is false; of what is not all true, one part is.
    if isinstance(item, CorrelationConditionOR if fires else CorrelationConditionAND):
        ways = {way for part in item.args for way in _ways(part, fires)}
    else:
        ways = {frozenset()}
        for part in item.args:
            joined = (way | more for way, more in product(ways, _ways(part, fires)))
            ways = {way for way in joined if not _contradicts(way)}
            _require_few(ways)
    _require_few(ways)
    return ways


def _contradicts(way: frozenset[tuple[str, bool]]) -> bool:
    return any((name, not fires) in way for name, fires in way)


def _require_finding(expression: str, ways: Sequence[frozenset[tuple[str, bool]]]) -> None:
    if not ways:
        raise Untranslatable(
            f"`{expression}` can never be true", "a rule that must fire may not be ruled out beside"
        )
    if any(not any(fires for _, fires in way) for way in ways):
        raise Untranslatable(
            f"`{expression}` is true where none of its rules fires, and then there is no group to "
            "tell it of",
            "name beside each `not` a rule that must fire, such as `a and not b`; "
            "`type: event_count` with `condition: {eq: 0}` alerts when a group falls silent",
        )


def _require_few(ways: Sized) -> None:
    if len(ways) > MAX_ALTERNATIVES:
        raise Untranslatable(
            f"its condition can come true in more than {MAX_ALTERNATIVES} ways",
            "split it into correlations of correlations",
        )
