"""Whether rules can fire: for each an event in its product's form, parsed and matched."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sigma.conditions import ConditionFieldEqualsValueExpression
from sigma.exceptions import SigmaError
from sigma.rule import SigmaRule, SigmaYAMLLoader

from alerts.compiler.compiler import REFUSALS, Compiled, RuleSource
from alerts.compiler.rule_files import with_known_names
from alerts.compiler.sigma_to_predicate import Meaning, codes_of_rule, condition_tree
from alerts.reach.example_values import KEYWORDS, Example, example_of
from alerts.reach.product_form import RawRecord, product_record
from alerts.rulepack.event_paths import is_field
from alerts.rulepack.field_mapping import mapping
from alerts.rulepack.log_source import LogSource
from alerts.rulepack.predicate import holds
from alerts.rulepack.rule_pack import Rule
from infra.config.bounded_yaml import yaml_documents

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


def reach_of(compiled: Compiled) -> list[Reach]:
    """Each rule of the folders that asks single events, in their order."""
    return [
        _tried(rule_source.rule, rule_source)
        for rule_source in compiled.sources.values()
        if isinstance(rule_source.rule, Rule)
    ]


def _tried(rule: Rule, rule_source: RuleSource) -> Reach:
    try:
        parsed = _parsed(rule_source.path, rule.id)
    except (*REFUSALS, SigmaError) as error:
        return Reach(rule, rule_source.path, "untried", f"it cannot be read alone: {error}")
    if parsed is None:
        return Reach(rule, rule_source.path, "untried", "it asks a list or a query")
    named = parsed.logsource
    source = mapping().logsource(named.category, named.product, named.service)
    last = Reach(rule, rule_source.path, "untried", "its condition is empty")
    for turn in range(TURNS):
        for condition in parsed.detection.parsed_condition:
            last = _attempt(rule, rule_source.path, source, parsed, condition.parsed, turn)
            if last.state != "dead":
                return last
    return last


def _attempt(
    rule: Rule, path: Path, source: LogSource, parsed: SigmaRule, condition: Any, turn: int
) -> Reach:
    example = example_of(condition, turn)
    known = {*source.fields, *source.by_event, KEYWORDS}
    columns = [name for name in example.values if name not in known and is_field(name)]
    if columns:
        return Reach(rule, path, "untried", f"it asks the column {columns[0]}, not the product")
    if example.beyond:
        names = ", ".join(example.beyond)
        return Reach(rule, path, "untried", f"no value can be made for {names}")
    record = product_record(source, example.values, codes_of_rule(parsed.detection, source))
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
