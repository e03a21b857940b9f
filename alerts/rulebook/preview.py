"""What a rule, in force or a draft, finds in events that are already there; nothing is kept.

Of a correlation: `alerts.backtest.correlation_preview`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

import duckdb
import numpy as np
import pyarrow as pa

from alerts.compiler.compiler import Compiled
from alerts.domain.finding import event_schema
from alerts.matching.matcher import Matcher
from alerts.rulebook.rules_anywhere import rules_at
from alerts.rulepack.rule_pack import Correlation, Query, Rule, RulePack
from infra.config.settings import Settings
from infra.errors import Usage
from ingest.parsing.source import MODES

Previewed: TypeAlias = Rule | Query | Correlation
_AnyRule = TypeVar("_AnyRule")

_BATCH_ROWS = 10_000
_STEPS = tuple(timedelta(minutes=m) for m in (1, 5, 15, 60, 4 * 60, 12 * 60, 24 * 60, 7 * 24 * 60))
_MOST_BARS = 72


@dataclass(frozen=True)
class PreviewCounts:
    """What a rule finds: `shown` are the first findings, as rows, in the order they are read.

    `by_time`: findings by the begin of each `step` that has any, in order. Of a correlation
    `counted` says how many findings of other rules were counted, and `notes` what was left out.
    """

    shown: list[dict[str, Any]]
    findings: int
    events: int
    step: timedelta
    by_time: dict[datetime, int]
    counted: int | None = None
    notes: tuple[str, ...] = ()


def draft(path: Path, settings: Settings) -> tuple[Previewed, Compiled]:
    """The rule in a file that need not be in force, and what it was compiled with.

    Of a correlation with rules that it counts, the correlation. Raises `Usage` when it does not
    run, or when there are several.
    """
    here = rules_at(path, settings)
    for refused in here.refused:
        raise Usage(f"{path} is refused: {refused.reason}; {refused.remedy}")
    sources = here.compiled.sources
    rules = uncounted([source.rule for rule_id, source in sources.items() if rule_id in here.ids])
    if not rules:
        raise Usage(f"{path}: holds no rule over events")
    if len(rules) > 1:
        titles = ", ".join(f"'{rule.title}'" for rule in rules)
        raise Usage(f"{path}: holds {len(rules)} rules, {titles}; preview one at a time")
    return rules[0], here.compiled


def uncounted(rules: Sequence[_AnyRule]) -> list[_AnyRule]:
    """The rules that no correlation among them counts."""
    counted = {of for rule in rules if isinstance(rule, Correlation) for of in rule.rules}
    return [rule for rule in rules if getattr(rule, "id", None) not in counted]


def preview(
    connection: duckdb.DuckDBPyConnection, rule: Rule, since: datetime, limit: int
) -> tuple[list[dict[str, Any]], int, int]:
    """The first `limit` findings in the order they are read, how many there are in all, and how
    many events were looked at.

    The matcher is the one that jobs use. Events of every mode count, also imported ones.
    """
    counts = preview_counts(connection, rule, since, limit)
    return counts.shown, counts.findings, counts.events


def preview_counts(
    connection: duckdb.DuckDBPyConnection, rule: Rule, since: datetime, limit: int
) -> PreviewCounts:
    """The same, with how many findings there are by time."""
    step = bar_step(since)
    bars: Counter[datetime] = Counter()
    matcher = Matcher(RulePack(rules=(rule,)), MODES)
    shown: list[dict[str, Any]] = []
    total = looked_at = 0
    for batch in events_since(connection, (rule,), since):
        looked_at += batch.num_rows
        findings = matcher.match(batch)
        total += findings.num_rows
        seconds = findings.column("event_time").cast(pa.int64()).to_numpy() // 1_000_000
        bars.update(bars_of(seconds, step))
        if len(shown) < limit:
            shown += findings.slice(0, limit - len(shown)).to_pylist()
    notes = () if looked_at else none_since(connection, (rule,), since)
    return PreviewCounts(shown, total, looked_at, step, dict(sorted(bars.items())), notes=notes)


def bar_step(since: datetime) -> timedelta:
    """How wide the bars of a chart from then until now are."""
    span = datetime.now(UTC) - since
    return next((step for step in _STEPS if span / step <= _MOST_BARS), _STEPS[-1])


def bars_of(seconds: np.ndarray[Any, Any], step: timedelta) -> Mapping[datetime, int]:
    """How many of these instants, seconds since 1970, are in each bar that has any."""
    width = int(step.total_seconds())
    begins, many = np.unique(seconds // width * width, return_counts=True)
    pairs = zip(begins.tolist(), many.tolist(), strict=True)
    return {datetime.fromtimestamp(begin, UTC): number for begin, number in pairs}


def shown_row(finding: Mapping[str, Any]) -> dict[str, Any]:
    """A finding as people and programs are shown it; of a correlation's the newest event."""
    names = ("source", "ip", "user_name", "host_name", "event_uid", "snippet")
    row = {"event_time": finding["event_time"].isoformat()} | {n: finding[n] for n in names}
    # Its own `event_uid` names the window, which is no event to look at.
    if evidence := finding.get("evidence"):
        row["event_uid"] = evidence[-1]["event_uid"]
    return row


def events_since(
    connection: duckdb.DuckDBPyConnection, rules: Iterable[Rule], since: datetime
) -> Iterator[pa.RecordBatch]:
    """Events of the rules' log sources, in batches of silver.event's schema."""
    schema = event_schema()
    names = ", ".join(f'"{name}"' for name in schema.names)
    where, params = _of_log_sources(rules)
    answer = connection.execute(
        f"SELECT {names} FROM silver.event WHERE time >= $since AND ({where})",
        params | {"since": since},
    )
    for batch in answer.fetch_record_batch(_BATCH_ROWS):
        # DuckDB gives its own Arrow types; the matcher wants those of silver.event.
        yield pa.Table.from_batches([batch]).cast(schema).combine_chunks().to_batches()[0]


def none_since(
    connection: duckdb.DuckDBPyConnection, rules: Iterable[Rule], since: datetime
) -> tuple[str, ...]:
    """What to say where no event of the rules' log sources came since: when the newest was."""
    where, params = _of_log_sources(rules)
    answer = connection.execute(
        f"SELECT epoch_us(max(time)) FROM silver.event WHERE time < $since AND ({where})",
        params | {"since": since},
    ).fetchone()
    if answer is None or answer[0] is None:
        return ("there is no event of its log source, of any time",)
    newest = datetime.fromtimestamp(answer[0] / 1_000_000, UTC).replace(microsecond=0)
    return (f"there are older ones: the newest is of {newest.isoformat()} (--since)",)


def _of_log_sources(rules: Iterable[Rule]) -> tuple[str, dict[str, Any]]:
    """A condition on events, and its parameters."""
    params: dict[str, Any] = {}
    places = []
    for number, (classes, sources) in enumerate(
        sorted({(rule.classes, rule.sources) for rule in rules})
    ):
        parts = ["true"]
        if classes:
            params[f"classes{number}"] = list(classes)
            parts.append(f"list_contains($classes{number}, class_uid)")
        if sources:
            params[f"sources{number}"] = list(sources)
            parts.append(f"list_contains($sources{number}, source)")
        places.append(f"({' AND '.join(parts)})")
    return " OR ".join(places), params
