"""Run the tests that rules bring: events that must match and events that must not.

An event is a mapping in the shape of silver.event, nested or with dotted names
(`src_endpoint.ip: 10.0.0.5`); `holder.`, `asset.` and `person.` say whom it is about. Columns
that every event has are filled in. Or it is a raw line with its source, which is parsed
(`alerts.rulebook.raw_lines`). The test of a correlation is a list of steps `{event, times,
every_seconds, start_seconds, vary}`; `vary` gives fields whose `{n}` counts from 1.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, TypeAlias

import msgspec

from alerts.compiler.compiler import Compiled, RuleSource
from alerts.correlation.correlator import Correlator
from alerts.correlation.group import CorrelationState
from alerts.correlation.negation import rules_out
from alerts.domain.entity import micros
from alerts.matching.event_rows import brute_force, event_batch
from alerts.matching.matcher import Matcher
from alerts.rulebook.raw_lines import LINE, is_raw_line, parsed_line, why_not, with_nested_names
from alerts.rulepack.event_paths import ENRICHED
from alerts.rulepack.predicate import holds
from alerts.rulepack.rule_pack import Correlation, Query, Rule, RulePack
from infra.errors import Fatal

Lend: TypeAlias = Callable[[], Any]
"""Gives a Spark session when a rule needs one: most do not, and a JVM takes its time."""

_FED = (Rule, Correlation)
"""What a correlation's test feeds."""

BASE_TIME = datetime(2025, 3, 1, 12, 0, tzinfo=UTC)

_NEVER = micros(datetime.max.replace(tzinfo=UTC))
"""When what comes after a test's story would end."""


@dataclass(frozen=True)
class RuleTestOutcome:
    """One test: the `number`th event (from 1) of a rule that must match, or must not.

    `detail` says why it failed, or what a test that passed does not show; `path`: the rule's file.
    """

    rule_id: str
    title: str
    must_match: bool
    number: int
    passed: bool
    detail: str = ""
    path: Path = Path()

    @property
    def row(self) -> dict[str, Any]:
        """It as a row for people: id, title, event, must, passed, detail."""
        return {
            "id": self.rule_id,
            "title": self.title,
            "event": self.number,
            "must": "match" if self.must_match else "not match",
            "passed": self.passed,
            "detail": self.detail,
        }


def check_rules(
    compiled: Compiled, only: Collection[str] = (), spark: Lend | None = None
) -> list[RuleTestOutcome]:
    """Run the tests of all rules, or of those whose ids are in `only`, on or off alike.

    `spark` lends a session to rules in SQL or Python; none: their tests fail.
    """
    return [
        outcome
        for rule_id, source in compiled.sources.items()
        if not only or rule_id in only
        for outcome in _of_rule(compiled, source, spark)
    ]


def _of_rule(
    compiled: Compiled, source: RuleSource, spark: Lend | None
) -> Iterator[RuleTestOutcome]:
    rule = source.rule
    for must_match, tests in ((True, source.match), (False, source.no_match)):
        for number, test in enumerate(tests, 1):
            try:
                if isinstance(rule, Correlation):
                    matched = _fires(compiled, rule, test)
                elif isinstance(rule, Query):
                    matched = _asked(rule, test, spark)
                else:
                    matched = _matches(rule, test)
                detail = "" if matched is must_match else "matched" if matched else "did not match"
                if not matched and isinstance(rule, Rule) and is_raw_line(test):
                    detail = why_not(rule, test, must_match)
            # A test that is written wrongly fails by itself; the others still run.
            except Fatal as error:
                matched, detail = not must_match, str(error)
            except (TypeError, ValueError, KeyError, AttributeError) as error:
                matched, detail = not must_match, f"{type(error).__name__}: {error}"
            passed = matched is must_match
            yield RuleTestOutcome(
                rule.id, rule.title, must_match, number, passed, detail, source.path
            )


def _matches(rule: Rule, test: Mapping[str, Any]) -> bool:
    events = completed(test, rule.classes, rule.sources)
    return any(_event_matches(rule, event) for event in events)


def _event_matches(rule: Rule, event: dict[str, Any]) -> bool:
    about = {name: event.pop(name, None) for name in ENRICHED}
    pack = RulePack(rules=(rule,))
    # Both ways on purpose: each rule's tests prove the matcher against plain evaluation.
    matched = brute_force(pack, [event])
    rows = Matcher(pack).match(event_batch([event])).to_pylist()
    if [row["rule_id"] for row in rows] != [rule_id for rule_id, _ in matched]:
        raise Fatal(f"matcher and plain evaluation differ: {rows} and {matched}")
    return bool(matched) and (rule.confirm is msgspec.UNSET or holds(rule.confirm, about))


def _asked(query: Query, test: Any, spark: Lend | None) -> bool:
    """Whether a query finds anything: in an event, or in steps on a timeline."""
    from alerts.spark_rules.rule_tests import query_matches  # Spark, which other rules do without

    if spark is None:
        raise Fatal("a rule in SQL or Python needs Spark")
    events = list(_timeline(test)) if isinstance(test, list) else completed(test)
    about = [{name: event.pop(name, None) for name in ENRICHED} for event in events][-1]
    match_rows = query_matches(spark(), query, events)
    return match_rows and (query.confirm is msgspec.UNSET or holds(query.confirm, about))


def _fires(
    compiled: Compiled, correlation: Correlation, steps: Sequence[Mapping[str, Any]]
) -> bool:
    """Feed the steps through what it counts; a finding of a correlation may feed the next one."""
    pack = _counted_by(compiled, correlation)
    timeline = list(_timeline(steps))
    # What comes last ends the story: a group that is silent until then was silent so long. What an
    # expression rules out does not come after it either.
    last = max((micros(event["time"]) for event in timeline), default=0)
    waiting = Matcher(pack).match(event_batch(timeline)).to_pylist()
    states = {c.id: CorrelationState() for c in pack.correlations}
    # Windows that wait are closed only when nothing else comes, as in a stream that has ended.
    while waiting := sorted(waiting or _settled(pack, states, last), key=_event_time):
        row = waiting.pop(0)
        if row["rule_id"] == correlation.id:
            return True
        for counting in pack.correlations:
            if row["rule_id"] in counting.rules:
                outputs = Correlator(states[counting.id]).feed(counting, row)
                waiting += [out["row"] for out in outputs if out["out"] == "finding"]
    return False


def _counted_by(compiled: Compiled, correlation: Correlation) -> RulePack:
    """The correlation and all that it counts, however far; other rules say nothing to it."""
    rules: dict[str, Rule | Correlation] = {}
    waiting = [correlation.id]
    while waiting:
        source = compiled.sources.get(waiting.pop())
        if source is None or source.rule.id in rules or not isinstance(source.rule, _FED):
            continue
        rules[source.rule.id] = source.rule
        waiting += source.rule.rules if isinstance(source.rule, Correlation) else ()
    # In the order of all rules, as of it depends which of two findings of an instant is fed first.
    every = [rules[rule_id] for rule_id in compiled.sources if rule_id in rules]
    return RulePack(
        rules=tuple(rule for rule in every if isinstance(rule, Rule)),
        correlations=tuple(rule for rule in every if isinstance(rule, Correlation)),
    )


def _settled(
    pack: RulePack, states: Mapping[str, CorrelationState], last: int
) -> list[dict[str, Any]]:
    """What the correlations tell that wait until no more comes, each window once."""
    return [
        out["row"]
        for correlation in pack.correlations
        for out in Correlator(states[correlation.id]).settle(
            correlation, until=_NEVER if rules_out(correlation) else last
        )
    ]


def _event_time(row: Mapping[str, Any]) -> int:
    return micros(row["event_time"])


def _timeline(steps: Sequence[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    number = 0
    for step in steps:
        for n in range(1, int(step.get("times", 1)) + 1):
            seconds = step.get("start_seconds", 0) + (n - 1) * step.get("every_seconds", 1)
            varied = {path: _nth(path, text, n) for path, text in step.get("vary", {}).items()}
            instant = BASE_TIME + timedelta(seconds=seconds)
            for event in completed(dict(step["event"]) | varied, (0,), ("test",)):
                number += 1
                named = {"event_uid": f"test-{number}", "time": instant, "received_at": instant}
                yield event | named


def _nth(path: str, text: str, n: int) -> str:
    # A raw line may be JSON, whose braces are no places to fill in.
    return text.replace("{n}", str(n)) if path == LINE else text.format(n=n)


def completed(
    test: Mapping[str, Any], classes: Sequence[int] = (), sources: Sequence[str] = ()
) -> list[dict[str, Any]]:
    """The events of a test: those of its raw line, or the one it spells out, as of `complete`."""
    return parsed_line(test) if is_raw_line(test) else [complete(test, classes, sources)]


def complete(
    test: Mapping[str, Any], classes: Sequence[int] = (), sources: Sequence[str] = ()
) -> dict[str, Any]:
    """A test's event with dots unfolded and what every event has filled in."""
    # What the matcher routes by; a test names only what its rule asks for.
    event: dict[str, Any] = {
        "event_uid": "test-1",
        "source": sources[0] if sources else "test",
        "mode": "live",
        "time": BASE_TIME,
        "received_at": BASE_TIME,
        "class_uid": classes[0] if classes else 0,
    }
    return event | with_nested_names(test)
