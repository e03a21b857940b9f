"""Whether rules can fire: for each an event in its product's form, parsed and matched."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from sigma.conditions import ConditionFieldEqualsValueExpression, ConditionNOT
from sigma.exceptions import SigmaError
from sigma.rule import SigmaRule, SigmaYAMLLoader

from alerts.compiler.compiler import REFUSALS, Compiled, RuleSource
from alerts.compiler.rule_files import with_known_names
from alerts.compiler.sigma_to_predicate import Meaning, codes_of_rule, condition_tree
from alerts.reach.defender_form import defender_condition, defender_row
from alerts.reach.example_values import KEYWORDS, Example, example_of
from alerts.reach.falcon_form import falcon_condition, falcon_event
from alerts.reach.product_form import RawRecord, product_record
from alerts.rulepack.event_paths import is_field
from alerts.rulepack.field_mapping import mapping
from alerts.rulepack.log_source import LogSource
from alerts.rulepack.predicate import holds
from alerts.rulepack.rule_pack import Rule
from infra.config.bounded_yaml import yaml_documents

OF_SEVERAL = MappingProxyType(
    {
        "crowdstrike": (falcon_condition, falcon_event),
        "defender_endpoint": (defender_condition, defender_row),
    }
)
"""Sources whose events tell less than those that a log source was made for: by what their events
are known there, and what makes one."""

TURNS = 6
"""Alternatives of a condition that are tried before a rule is called dead."""


@dataclass(frozen=True)
class Reach:
    """What became of a rule's event: `fires`, `dead`, or `untried`, and why not.

    `record` is the event that was tried, as the product would write it.
    """

    rule: Rule
    path: Path
    state: str
    reason: str = ""
    record: bytes = b""


def reach_of(compiled: Compiled, by: str | None = None) -> list[Reach]:
    """Each rule of the folders that asks single events, in their order.

    `by`: those alone that this source of `OF_SEVERAL` feeds, tried on its events.
    """
    tried = (
        _tried(rule_source.rule, rule_source, by)
        for rule_source in compiled.sources.values()
        if isinstance(rule_source.rule, Rule)
    )
    return [reach for reach in tried if reach is not None]


def _tried(rule: Rule, rule_source: RuleSource, by: str | None) -> Reach | None:
    try:
        parsed = _parsed(rule_source.path, rule.id)
    except (*REFUSALS, SigmaError) as error:
        return Reach(rule, rule_source.path, "untried", f"it cannot be read alone: {error}")
    if parsed is None:
        return Reach(rule, rule_source.path, "untried", "it asks a list or a query")
    named = parsed.logsource
    source = mapping().logsource(named.category, named.product, named.service)
    if by is not None and OF_SEVERAL[by][0](source) is None:
        return None
    last = Reach(rule, rule_source.path, "untried", "its condition is empty")
    for turn in range(TURNS):
        for condition in parsed.detection.parsed_condition:
            last = _attempt(rule, rule_source.path, source, parsed, condition.parsed, turn, by)
            if last.state == "fires" and by is not None:
                return replace(last, reason=_not_ruled_out(source, parsed, by))
            if last.state != "dead":
                return last
    return last


def _attempt(
    rule: Rule,
    path: Path,
    source: LogSource,
    parsed: SigmaRule,
    condition: Any,
    turn: int,
    by: str | None,
) -> Reach:
    example = example_of(condition, turn)
    known = {*source.fields, *source.by_event, KEYWORDS}
    columns = [name for name in example.values if name not in known and is_field(name)]
    if columns:
        return Reach(rule, path, "untried", f"it asks the column {columns[0]}, not the product")
    if example.beyond:
        names = ", ".join(example.beyond)
        return Reach(rule, path, "untried", f"no value can be made for {names}")
    codes = codes_of_rule(parsed.detection, source)
    record = _record(source, example.values, codes, by)
    if record is None:
        return Reach(rule, path, "untried", "no product form is known for its log source")
    events = record.events()
    refused = next((e["dead_letter_reason"] for e in events if e.get("dead_letter_reason")), None)
    if refused:
        return Reach(rule, path, "dead", f"{record.source} cannot read it: {refused}", record.raw)
    if any(_fires(rule, event) for event in events):
        return Reach(rule, path, "fires", "", record.raw)
    other = record.by_another()
    if other != record and any(_fires(rule, event) for event in other.events()):
        return Reach(rule, path, "fires", "", other.raw)
    fault = _fault(source, example, condition, events, record)
    # One source of a category cannot speak for the others.
    state = "dead" if source.sources or source.where else "untried"
    return Reach(rule, path, state, fault, record.raw)


def _record(
    source: LogSource, values: Mapping[str, str], codes: frozenset[str] | None, by: str | None
) -> RawRecord | None:
    if by is None:
        return product_record(source, values, codes)
    return RawRecord(by, OF_SEVERAL[by][1](source, values, codes))


def _not_ruled_out(source: LogSource, parsed: SigmaRule, by: str) -> str:
    """The fields by which a rule rules out what no event of the source has; empty: none."""
    meaning = Meaning(source, mapping().keywords)
    fields = set()
    for condition in parsed.detection.parsed_condition:
        for item, wanted in _asked_or_not(condition.parsed, True):
            example = example_of(item)
            # That a field says nothing is no value that another source could lack.
            if wanted or str(item.value) in ("", "-") or not example.values or example.beyond:
                continue
            record = _record(source, example.values, None, by)
            events = record.events() if record else []
            if not any(holds(condition_tree(item, meaning), event) for event in events):
                fields.add(item.field)
    if not fields:
        return ""
    names = ", ".join(sorted(fields))
    return f"what it rules out by {names} no event of {by} has, so it fires more often"


def _asked_or_not(
    item: Any, wanted: bool
) -> Iterator[tuple[ConditionFieldEqualsValueExpression, bool]]:
    if isinstance(item, ConditionFieldEqualsValueExpression):
        yield item, wanted
    for part in getattr(item, "args", ()):
        yield from _asked_or_not(part, wanted is not isinstance(item, ConditionNOT))


def _fires(rule: Rule, event: dict[str, Any]) -> bool:
    of_class = not rule.classes or event.get("class_uid") in rule.classes
    return of_class and holds(rule.predicate, event)


def _fault(
    source: LogSource,
    example: Example,
    condition: Any,
    events: Sequence[dict[str, Any]],
    record: RawRecord,
) -> str:
    """The fields whose value is not where the rule looks; else that the event is another."""
    meaning = Meaning(source, mapping().keywords)
    seen: dict[bool, set[str]] = {True: set(), False: set()}
    for item in _asked(condition):
        if item.field in example.values:
            held = any(holds(condition_tree(item, meaning), event) for event in events)
            seen[held].add(item.field)
    # Of alternatives of one field one is enough; a field that lacks all of them is named first.
    lost = sorted(seen[False] - seen[True]) or sorted(seen[False])
    of_class = {event.get("class_uid") for event in events}
    if source.classes and not of_class & set(source.classes):
        shown = ", ".join(map(str, of_class))
        return f"{record.source} makes an event of class {shown}, the rule asks {source.classes}"
    if lost:
        return f"no event of {record.source} has these values for {', '.join(lost)}"
    return "what its condition rules out, or its log source, excludes the event"


def _asked(item: Any) -> Iterator[ConditionFieldEqualsValueExpression]:
    if isinstance(item, ConditionFieldEqualsValueExpression):
        yield item
    for part in getattr(item, "args", ()):
        yield from _asked(part)


def _parsed(path: Path, rule_id: str) -> SigmaRule | None:
    """The rule as pySigma reads it; None where it is none of Sigma's own kind."""
    if path.suffix == ".py":
        return None
    for document in yaml_documents(path.read_text("utf-8"), SigmaYAMLLoader):
        if isinstance(document, dict) and str(document.get("id")) == rule_id:
            own = document.pop("headgate", None)
            if "detection" not in document or (isinstance(own, dict) and own.get("type")):
                return None
            return SigmaRule.from_dict(with_known_names(document))
    return None
