"""What a rule, in force or a draft, finds in events that are already there; nothing is kept."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa

from alerts.compiler.compiler import Compiled, compile_rules
from alerts.domain.finding import event_schema
from alerts.matching.matcher import Matcher
from alerts.rulepack.rule_pack import Query, Rule, RulePack
from infra.errors import Usage

_BATCH_ROWS = 10_000
_MODES = ("live", "replay", "import")
_STEPS = tuple(timedelta(minutes=m) for m in (1, 5, 15, 60, 4 * 60, 12 * 60, 24 * 60, 7 * 24 * 60))
_MOST_BARS = 72


@dataclass(frozen=True)
class PreviewCounts:
    """What a rule finds: `shown` are the first findings, as rows, in the order they are read.

    `by_time`: findings by the begin of each `step` that has any, in order.
    """

    shown: list[dict[str, Any]]
    findings: int
    events: int
    step: timedelta
    by_time: dict[datetime, int]


def draft(path: Path, store: Path | None = None) -> Rule | Query:
    """The rule in a file that need not be in force; raises `Usage` when it does not run.

    `store`: folder beside whose packs lists of indicators lie.
    """
    compiled = compile_rules([path if path.suffix == ".py" else path.parent], store=store)
    for source in compiled.sources.values():
        if source.path == path and isinstance(source.rule, Rule | Query):
            return source.rule
    for refused in compiled.refused:
        if refused.path == str(path):
            raise Usage(f"{path} is refused: {refused.reason}; {refused.remedy}")
    raise Usage(f"{path}: holds no rule over events; a correlation needs findings to count")


def known_rule(compiled: Compiled, rule_id: str) -> Rule | Query:
    """A rule by its id; raises `Usage` for a correlation."""
    rule = compiled.sources[rule_id].rule
    if not isinstance(rule, Rule | Query):
        raise Usage(f"rule '{rule.title}' counts findings of others; preview these")
    return rule


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
    span = datetime.now(UTC) - since
    step = next((step for step in _STEPS if span / step <= _MOST_BARS), _STEPS[-1])
    width = int(step.total_seconds())
    bars: Counter[int] = Counter()
    matcher = Matcher(RulePack(rules=(rule,)), _MODES)
    shown: list[dict[str, Any]] = []
    total = looked_at = 0
    for batch in _events(connection, rule, since):
        looked_at += batch.num_rows
        findings = matcher.match(batch)
        total += findings.num_rows
        seconds = findings.column("event_time").cast(pa.int64()).to_numpy() // 1_000_000
        begins, many = np.unique(seconds // width * width, return_counts=True)
        bars.update(dict(zip(begins.tolist(), many.tolist(), strict=True)))
        if len(shown) < limit:
            shown += findings.slice(0, limit - len(shown)).to_pylist()
    by_time = {datetime.fromtimestamp(begin, UTC): bars[begin] for begin in sorted(bars)}
    return PreviewCounts(shown, total, looked_at, step, by_time)


def _events(
    connection: duckdb.DuckDBPyConnection, rule: Rule, since: datetime
) -> Iterator[pa.RecordBatch]:
    """Events of the rule's log source, in batches of silver.event's schema."""
    schema = event_schema()
    names = ", ".join(f'"{name}"' for name in schema.names)
    answer = connection.execute(
        f"SELECT {names} FROM silver.event WHERE time >= $since "
        "AND (len($classes) = 0 OR class_uid IN (SELECT unnest($classes))) "
        "AND (len($sources) = 0 OR source IN (SELECT unnest($sources)))",
        {"since": since, "classes": list(rule.classes), "sources": list(rule.sources)},
    )
    for batch in answer.fetch_record_batch(_BATCH_ROWS):
        # DuckDB gives its own Arrow types; the matcher wants those of silver.event.
        yield pa.Table.from_batches([batch]).cast(schema).combine_chunks().to_batches()[0]
