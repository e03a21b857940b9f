"""What a correlation, in force or a draft, finds in events that are already there; nothing is kept.

The matcher, the attribution and the state are those of a backtest. A preview is one piece that is
through in seconds or is cut short, and says so; it raises no alerts.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import duckdb
import numpy as np

from alerts.backtest.fold import Refold
from alerts.backtest.plain_history import PlainHistory
from alerts.backtest.rule_selection import Chosen, choose_rules, select_rules, warm_up_seconds
from alerts.backtest.run import attributed_schema, findings_in_order, fresh_target
from alerts.compiler.compiler import Compiled
from alerts.compiler.enrichment_predicates import inventories
from alerts.domain.entity import micros
from alerts.domain.finding import finding_schema
from alerts.matching.matcher import Matcher
from alerts.rulebook.preview import (
    PreviewCounts,
    bar_step,
    bars_of,
    events_since,
    none_since,
    preview_counts,
)
from alerts.rulepack.rule_pack import Correlation, Rule, RulePack
from enrich.tables import DHCP_SEGMENT
from infra.config.settings import Settings
from infra.delta.duckdb_views import connect, open_engine
from infra.delta.parquet_writer import writing
from infra.delta.table_locations import TableLocations
from infra.errors import Usage
from infra.storage.temp_dirs import scratch
from ingest.parsing.source import MODES
from ingest.tables import EVENT

MOST_COUNTED = 50_000
"""Findings that are counted: more take the state machine longer than somebody waits."""


def preview_over_events(
    settings: Settings,
    rule: Rule | Correlation,
    since: datetime,
    limit: int,
    compiled: Compiled | None = None,
) -> PreviewCounts:
    """What a rule finds in events since then.

    `compiled`: what has a draft and the rules it counts; none: the rule is in force.
    """
    connection = connect(settings.lake_root, needs=("silver.event",), only=())
    with closing(connection):
        if isinstance(rule, Rule):
            return preview_counts(connection, rule, since, limit)
        ids = [rule.id]
        chosen = choose_rules(compiled, ids) if compiled else select_rules(settings, ids)
        return preview_correlation(settings, connection, rule, chosen, since, limit)


def preview_correlation(
    settings: Settings,
    connection: duckdb.DuckDBPyConnection,
    correlation: Correlation,
    chosen: Chosen,
    since: datetime,
    limit: int,
    *,
    most: int = MOST_COUNTED,
) -> PreviewCounts:
    """The first `limit` of a correlation's windows that end since then, and how many there are.

    Of the findings that it counts the newest `most` are taken. Raises `Usage` where one of its
    rules runs on Spark.
    """
    pack = chosen.pack
    if pack.queries:
        raise Usage(
            f"'{correlation.title}' counts '{pack.queries[0].title}', which runs on Spark: "
            "headgate rules backtest RULE --from 7d"
        )
    # Windows that reach into the span began before it.
    warm = timedelta(seconds=warm_up_seconds(pack, 0))
    own = scratch(settings.scratch_root)
    with tempfile.TemporaryDirectory(dir=own, prefix="preview-") as name:
        folder = Path(name)
        looked_at, counted, files = _matched(connection, pack, since - warm, folder)
        cut = _cut(files, most) if counted > most else None
        attributed, notes = _attributed(settings, files, since - warm, folder)
        if not looked_at:
            notes += none_since(connection, pack.rules, since - warm)
        if cut is not None:
            since = max(since, cut + warm)
            notes += (
                f"of {counted:,} findings that it counts the newest {most:,} were taken: windows "
                f"that end since {since:%Y-%m-%dT%H:%M:%SZ}; begin later to see all",
            )
        rows = findings_in_order(attributed, folder / "sorting", settings.api.statement_memory)
        findings = _windows(settings, correlation, pack, _after(rows, cut))
    within = [row for row in findings if row["event_time"] >= since]
    step = bar_step(since)
    seconds = np.array([micros(row["event_time"]) // 1_000_000 for row in within], np.int64)
    by_time = dict(bars_of(seconds, step))
    return PreviewCounts(
        within[:limit], len(within), looked_at, step, by_time, min(counted, most), notes
    )


def _matched(
    connection: duckdb.DuckDBPyConnection, pack: RulePack, since: datetime, folder: Path
) -> tuple[int, int, list[Path]]:
    """How many events were looked at, how many findings the rules have, and these as files."""
    target = fresh_target(folder / "findings", "all-", finding_schema())
    matcher, looked_at = Matcher(pack, MODES), 0
    with writing({target.table: target}) as writers:
        writer = writers[target.table]
        for batch in events_since(connection, pack.rules, since):
            looked_at += batch.num_rows
            writer.write(matcher.match(batch))
        written = writer.close()
    if written is None:
        return looked_at, 0, []
    return looked_at, written.rows, [folder / "findings" / written.name]


def _cut(files: list[Path], most: int) -> datetime:
    """When the last of the findings was that are too many."""
    with closing(open_engine(memory="512MB", threads=2)) as engine:
        engine.execute("SET TimeZone = 'UTC'")
        row = engine.execute(
            "SELECT event_time FROM read_parquet($files) ORDER BY event_time DESC "
            "LIMIT 1 OFFSET $most",
            {"files": [str(file) for file in files], "most": most},
        ).fetchone()
    assert row is not None
    instant: datetime = row[0]
    return instant.astimezone(UTC)


def _attributed(
    settings: Settings, files: list[Path], since: datetime, folder: Path
) -> tuple[list[Path], tuple[str, ...]]:
    """The findings with whose address it was, as files, and what could not be asked."""
    if not files:
        return [], ()
    places = TableLocations(settings)
    plain = PlainHistory(settings, places.version(EVENT), places.version(DHCP_SEGMENT))
    # As a backtest: a lease that began before the span may still run within it.
    first = since - timedelta(seconds=settings.jobs.max_lease_seconds)
    notes: tuple[str, ...] = ()
    if plain.asks_imported_leases(files, first, datetime.now(UTC)):
        notes = ("DHCP lines of imports were not asked whose addresses they were; backtest it",)
    target = fresh_target(folder / "attributed", "all-", attributed_schema())
    written = plain.attributed(files, target)
    return [folder / "attributed" / file.name for file in written], notes


def _after(rows: Iterator[dict[str, Any]], cut: datetime | None) -> Iterator[dict[str, Any]]:
    return rows if cut is None else (row for row in rows if row["event_time"] > cut)


def _windows(
    settings: Settings, correlation: Correlation, pack: RulePack, rows: Iterator[dict[str, Any]]
) -> list[dict[str, Any]]:
    """The correlation's findings, by time."""
    ids = [c.id for c in pack.correlations]
    refold = Refold(lambda _: pack, settings, ids, index=inventories(settings))
    refold.run(rows)
    own = [row for row in refold.findings if row["rule_id"] == correlation.id]
    return sorted(own, key=lambda row: (row["event_time"], row["finding_id"]))
