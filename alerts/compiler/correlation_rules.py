"""Sigma's correlation rules, as pySigma reads them, into correlations of a rule pack."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from sigma.correlations import (
    SigmaCorrelationCondition,
    SigmaCorrelationConditionOperator,
    SigmaCorrelationRule,
    SigmaCorrelationTimespan,
    SigmaCorrelationType,
    SigmaExtendedCorrelationCondition,
)
from sigma.exceptions import SigmaTimespanError
from sigma.rule import SigmaRule, SigmaRuleBase

from alerts.compiler.correlation_conditions import (
    Upper,
    alternatives,
    fields_of_condition,
    references,
    require_possible,
)
from alerts.compiler.rule_text_bounds import MAX_SPAN_SECONDS
from alerts.compiler.sigma_to_predicate import Untranslatable, codes_of_rule
from alerts.rulepack.field_mapping import mapping
from alerts.rulepack.rule_pack import Correlation

DEVICE = "device"
"""Group-by name that is no field: the device a finding was attributed to."""

FIRST_SEEN = "first_seen"
"""The one type of ours, under `headgate:`; its Sigma type must be value_count."""

MAX_COUNT = 50_000
"""Highest number of findings or values to count: a group keeps twice as many findings."""

Parsed = Mapping[str, SigmaRuleBase]


def correlation_of(
    parsed: SigmaCorrelationRule,
    described: Mapping[str, Any],
    names: Mapping[str, str],
    rules: Parsed,
    kind: str = "",
    learn: str = "",
    upper: Upper | None = None,
) -> Correlation:
    """The correlation; raises `Untranslatable` or `Unmapped` for what cannot run.

    `names` are rule ids by short name, `rules` all that were read by id. `kind` and
    `learn` are `headgate.type` and `headgate.learn`, `upper` the upper end of a range.
    """
    sigma_type = parsed.type.name.lower()
    # Each once and in order: for `temporal_ordered` the order is the condition.
    order = references(parsed)
    counted = tuple(dict.fromkeys(names.get(name, name) for name in order))
    condition, more = _counted(parsed.condition, order, names)
    _check_condition(sigma_type, condition)
    if upper is not None:
        _require_upper(sigma_type, kind, upper)
        more["upper"] = upper
    _check_circle(str(parsed.id), names, rules)
    seconds = parsed.timespan.seconds
    if seconds > MAX_SPAN_SECONDS:
        raise Untranslatable(f"timespan {seconds} s", f"at most {MAX_SPAN_SECONDS} s")
    fields = fields_of_condition(sigma_type, condition)
    if len(fields) > 1:
        if kind:
            raise Untranslatable(f"headgate.type {kind} with several fields", "name one field")
        more["fields"] = fields
    aliases = {
        alias.alias: {
            names.get(ref.reference, ref.reference): name for ref, name in alias.mapping.items()
        }
        for alias in parsed.aliases
    }
    return _with_paths(
        Correlation(
            **described,
            type=_type(sigma_type, kind),
            rules=counted,
            group_by=tuple(parsed.group_by or ()),
            timespan_seconds=seconds,
            op=condition.op.name.lower(),
            count=condition.count,
            percentile=condition.percentile,
            learn_seconds=_seconds(learn, kind),
            field=fields[0] if fields else None,
            aliases=aliases,
            generate=parsed.generate,
            **more,
        ),
        names,
        rules,
    )


def _counted(
    condition: Any, order: Sequence[str], names: Mapping[str, str]
) -> tuple[SigmaCorrelationCondition, dict[str, Any]]:
    """A condition as a count, and of an expression over rules its sets by their ids."""
    if not isinstance(condition, SigmaExtendedCorrelationCondition):
        return condition, {}
    ways = alternatives(condition, order)
    sets = {"any_of": tuple(tuple(names.get(n, n) for n in way.fire) for way in ways)}
    if any(way.never for way in ways):
        sets["none_of"] = tuple(tuple(names.get(n, n) for n in way.never) for way in ways)
    # It has no count of its own, and cannot hold below the smallest of its sets.
    least = min(len(way.fire) for way in ways)
    return SigmaCorrelationCondition(SigmaCorrelationConditionOperator.GTE, least), sets


def _type(sigma_type: str, kind: str) -> str:
    if not kind:
        return sigma_type
    if kind != FIRST_SEEN:
        raise Untranslatable(f"headgate.type: '{kind}'", f"{FIRST_SEEN}, or leave it out")
    if sigma_type != "value_count":
        raise Untranslatable(
            f"headgate.type {kind} with correlation type {sigma_type}",
            "use `type: value_count` and `condition: {field: ..., gte: 1}`",
        )
    return kind


def _require_upper(sigma_type: str, kind: str, upper: Upper) -> None:
    """Raises `Untranslatable` for a range where none can be, or beyond what is counted."""
    if kind:
        raise Untranslatable(f"headgate.type {kind} with a range", "use `gte: 1`")
    if sigma_type in ("event_count", "value_count") and upper[1] > MAX_COUNT:
        raise Untranslatable(f"it counts up to {upper[1]}", f"at most {MAX_COUNT}; or no upper end")


def _seconds(learn: str, kind: str) -> int:
    if not learn:
        return 0
    if not kind:
        raise Untranslatable("headgate.learn without a type", f"it belongs to `type: {FIRST_SEEN}`")
    try:
        seconds = SigmaCorrelationTimespan(learn).seconds
        if seconds <= MAX_SPAN_SECONDS:
            return seconds
        raise Untranslatable(f"headgate.learn: '{learn}'", f"at most {MAX_SPAN_SECONDS} s")
    except SigmaTimespanError:
        raise Untranslatable(f"headgate.learn: '{learn}'", "a time span such as 7d") from None


def _check_condition(sigma_type: str, condition: SigmaCorrelationCondition) -> None:
    require_possible(sigma_type, condition)
    percent = condition.percentile
    if sigma_type == SigmaCorrelationType.VALUE_PERCENTILE.name.lower():
        if percent is None or not 0 <= percent <= 100:
            raise Untranslatable(f"percentile {percent}", "a number from 0 to 100")
    elif percent is not None:
        raise Untranslatable(f"percentile with {sigma_type}", "it belongs to value_percentile")
    if sigma_type in ("event_count", "value_count") and condition.count > MAX_COUNT:
        raise Untranslatable(
            f"it counts up to {condition.count}", f"at most {MAX_COUNT}; or count by finer groups"
        )


def _check_circle(rule_id: str, names: Mapping[str, str], rules: Parsed) -> None:
    """Refuse a correlation that counts its own findings, however far round."""
    seen: set[str] = set()
    waiting = [rule_id]
    while waiting:
        parsed = rules.get(waiting.pop())
        if not isinstance(parsed, SigmaCorrelationRule):
            continue
        for reference in references(parsed):
            counted = names.get(reference, reference)
            if counted == rule_id:
                raise Untranslatable(
                    "it counts its own findings, if through others",
                    "remove it from correlation.rules",
                )
            # Without it a circle further up would go round for ever.
            if counted not in seen:
                seen.add(counted)
                waiting.append(counted)


def _with_paths(correlation: Correlation, names: Mapping[str, str], rules: Parsed) -> Correlation:
    """Put columns for the names of fields, for each rule by its own log source.

    Where rules have different columns for one name, the name becomes an alias.
    """
    aliases = {
        alias: {rule: _path(name, rule, names, rules) for rule, name in fields.items()}
        for alias, fields in correlation.aliases.items()
    }

    def resolved(name: str) -> str:
        if name == DEVICE or name in aliases:
            return name
        paths = {rule: _path(name, rule, names, rules) for rule in correlation.rules}
        if len(set(paths.values())) == 1:
            return next(iter(paths.values()))
        # Log sources name one thing in different columns; an alias is how Sigma says that.
        aliases[name] = paths
        return name

    group_by = tuple(resolved(name) for name in correlation.group_by)
    fields = tuple(resolved(name) for name in correlation.every_field)
    return msgspec.structs.replace(
        correlation,
        group_by=group_by,
        field=fields[0] if fields else None,
        fields=msgspec.UNSET if correlation.fields is msgspec.UNSET else fields,
        aliases=aliases,
    )


def _path(name: str, rule_id: str, names: Mapping[str, str], rules: Parsed) -> str:
    """Where findings of a rule have the field: its column, or what a correlation calls it."""
    parsed = rules.get(rule_id)
    if name == DEVICE:
        return name
    if isinstance(parsed, SigmaRule):
        where = parsed.logsource
        source = mapping().logsource(where.category, where.product, where.service)
        return source.path(name, codes_of_rule(parsed.detection, source))
    if not isinstance(parsed, SigmaCorrelationRule):
        # Its findings have the number it counted as well, under these two names.
        return name
    own = {alias.alias for alias in parsed.aliases} | {"count", parsed.type.name.lower()}
    if name in own:
        return name
    counted = [names.get(reference, reference) for reference in references(parsed)]
    paths = {_path(name, child_path, names, rules) for child_path in counted}
    return paths.pop() if len(paths) == 1 else name


def carried_fields(rule_id: str, correlations: Sequence[Correlation]) -> tuple[str, ...]:
    """Fields of the event that a correlation above the rule, however far, groups by or counts."""
    wanted: set[str] = set()
    reached = {rule_id}
    # Correlations may count correlations, so the way up is followed until it ends.
    grew = True
    while grew:
        above = [c for c in correlations if reached & set(c.rules)]
        grew = not {c.id for c in above} <= reached
        reached |= {c.id for c in above}
    for correlation in correlations:
        if correlation.id not in reached:
            continue
        named = {*correlation.group_by, *correlation.every_field}
        wanted |= named - {DEVICE} - set(correlation.aliases)
        # An alias stands for another field in each rule; this rule carries its own one.
        wanted |= {fields[rule_id] for fields in correlation.aliases.values() if rule_id in fields}
    return tuple(sorted(wanted))
