"""Rules that Spark runs, live: over what a batch of events brought, and over whole windows.

A rule over single events runs over the batch's own events. A rule with windows looks, every
`alerts.window_seconds`, at each window again that an event came into since it looked last, all of
it, from silver.event; what gold.finding has already is not told again. So a window tells of a
group once: when its rows are first so that the query gives a row for it, late events included.

A rule that fails, or takes more time or gives more rows than it may, is set aside alone, with a
finding of rule `headgate-rule-failed`; the batch goes on without it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from alerts.domain.entity import event_instant, micros
from alerts.domain.finding import RULE_FAILED, finding_schema, identity, single_line
from alerts.rulepack.rule_pack import PackStore, Query
from alerts.spark_rules.cost import QueryCost
from alerts.spark_rules.disabled_rules import DisabledRules
from alerts.spark_rules.plan import failure_sentence
from alerts.spark_rules.rule import QueryRule
from alerts.spark_rules.windows import Touched, touched, whole_windows, within
from alerts.tables import FINDING
from infra.checkpoint.batch_decisions import decided
from infra.delta.parquet_writer import DataFile, writing
from infra.streaming.batch import Batch
from infra.streaming.lake import Lake
from ingest.parsing.source import LIVE_MODES
from ingest.tables import EVENT, HEARTBEAT

_WINDOWS = "windows"
"""Decision of a batch: the versions of silver.event whose windows it looks at."""

_FAILED = "failed_queries"
"""Decision of a batch: the rules that failed in it, by id, with the reason."""

WINDOW_JOB = "ingest"
"""The job that looks at windows, also at those that other jobs' events came into."""

EVENTS_A_BUDGET = 100_000
"""A rule has its seconds again for each further so many events of a batch."""


class OverBudget(Exception):
    """A rule took more time, or gave more rows, than it may."""


class Queries:
    """The queries of the pack in force, run once a batch after its events are in the lake."""

    def __init__(self, lake: Lake, store: PackStore) -> None:
        self._lake = lake
        self._store = store
        self._aside = DisabledRules(store.folder)
        self._checked: set[str] = set()
        self._looked: dict[str, Any] | None = None
        self._spend = QueryCost(lake.spool / "rule_cost")

    def __call__(self, run: Batch, pack: str) -> list[DataFile]:
        """What the pack's queries find, written as files of gold.finding, still to be committed.

        The batch's events must be committed. Nothing is done for a pack without queries.
        """
        queries = self._store.get(pack).queries
        if not queries:
            return []
        # A retry of the batch knows which rules failed in it, and must not come to another answer.
        failed: dict[str, str] = dict(run.decisions.get(_FAILED, {}))
        aside = {q.id for q in queries if self._aside.why(q) is not None}
        healthy = [QueryRule(q, pack) for q in queries if q.id not in {*failed, *aside}]
        tables: list[pa.Table] = []
        for rule, events, what in self._work(run, healthy):
            try:
                tables.append(self._one(rule, events, what, run))
            except Exception as error:  # whatever one rule throws must not stop the others
                # A broken session or a lost file fails every rule; that must stop the batch, not
                # the rules.
                self._require_alive(events, error)
                failed[rule.query.id] = failure_sentence(error)
        if failed:
            # Decided first: a retry does not run them again, and tells of them all the same.
            failed = run.decide(_FAILED, lambda: failed)
            self._aside.put(queries, failed)
            tables.append(self._failures(run, [q for q in queries if q.id in failed], failed, pack))
        return self._written(run, tables)

    # -- what there is to do -----------------------------------------------------------------

    def _work(
        self, run: Batch, rules: Sequence[QueryRule]
    ) -> list[tuple[QueryRule, DataFrame, Touched | None]]:
        """Each rule with the events it is to look at, and of a rule with windows, which."""
        single = [rule for rule in rules if not rule.query.window_seconds]
        windowed = [rule for rule in rules if rule.query.window_seconds]
        work: list[tuple[QueryRule, DataFrame, Touched | None]] = []
        if single and run.counts.get("read"):
            arrived = self._added(range(run.versions[EVENT.name], run.versions[EVENT.name] + 1))
            work += [(rule, arrived, None) for rule in single if arrived is not None]
        # One job alone: two would look at the same windows and tell of a group twice.
        if windowed and run.job == WINDOW_JOB:
            work += self._windows(run, windowed)
        return work

    def _windows(
        self, run: Batch, rules: Sequence[QueryRule]
    ) -> list[tuple[QueryRule, DataFrame, Touched | None]]:
        # Written down before the work: `_due` asks the clock, and a retry must look at the same
        # versions.
        due = run.decide(_WINDOWS, lambda: self._due(run))
        self._looked = due
        if due["after"] is None:
            return []
        arrived = self._added(range(due["after"] + 1, due["upto"] + 1))
        arrived_windows = (
            None if arrived is None else touched(arrived, [rule.query for rule in rules])
        )
        if arrived_windows is None:
            return []
        # Pinned to a version, so that a retry sees the same events in each window.
        history = self._lake.read(EVENT, due["upto"])
        work: list[tuple[QueryRule, DataFrame, Touched | None]] = []
        for rule in rules:
            work.append(
                (rule, history.where(within(arrived_windows.spans(rule.query))), arrived_windows)
            )
        return work

    def _due(self, run: Batch) -> dict[str, Any]:
        """`after`, `upto`: versions of silver.event to look at, after None when it is too early;
        `at`: when it was looked last, seconds since 1970."""
        before = self._looked or self._decided_before(run)
        newest, now = run.versions[EVENT.name], time.time()
        if before is None:
            # The first look of all: only this batch's commit, not the whole table.
            return {"after": newest - 1, "upto": newest, "at": now}
        if now - before["at"] < self._lake.settings.alerts.window_seconds:
            return {**before, "after": None}
        return {"after": before["upto"], "upto": max(newest, before["upto"]), "at": now}

    def _decided_before(self, run: Batch) -> dict[str, Any] | None:
        """What the batch before decided, in this run of the job or an earlier one."""
        try:
            decision: dict[str, Any] | None = decided(run.folder, run.batch_id - 1).get(_WINDOWS)
        except FileNotFoundError:
            return None
        return decision

    def _added(self, versions: range) -> DataFrame | None:
        """Events that these versions of silver.event added and that rules may see."""
        files: list[str] = []
        for version in versions:
            with suppress(FileNotFoundError):  # its log is cleaned: a month old
                files += map(str, self._lake.files_of(EVENT, version))
        if not files:
            return None
        # The commit's own files: to read the table at two versions and compare costs far more.
        rows = self._lake.spark.read.schema(EVENT.schema).parquet(*files)
        return rows.where(
            F.col("mode").isin(*LIVE_MODES)
            & F.col("dead_letter_reason").isNull()
            & F.col("duplicate_of").isNull()
            & (F.col("source") != HEARTBEAT)
        )

    # -- one rule ----------------------------------------------------------------------------

    def _one(
        self, rule: QueryRule, events: DataFrame, arrived_windows: Touched | None, run: Batch
    ) -> pa.Table:
        """What a rule finds and gold.finding does not have. Raises what it throws, or
        `OverBudget`."""
        began = time.perf_counter()
        # Analysing a plan takes longer than a small batch; once for each version is enough.
        if rule.query.id + rule.query.version not in self._checked:
            rule.check(self._lake.spark)
            self._checked.add(rule.query.id + rule.query.version)
        findings = rule.findings(events, LIVE_MODES)
        if arrived_windows is not None:
            findings = findings.where(
                whole_windows(arrived_windows.spans(rule.query), rule.query)
            ).withColumn("received_at", F.lit(self._arrived(run, arrived_windows)))
        rows = self._bounded(findings, run.counts.get("read", 0))
        if arrived_windows is not None and rows.num_rows:
            rows = self._new(rule.query, rows)
        self._spend.note(rule.pack, rule.query.id, rows.num_rows, time.perf_counter() - began)
        return rows

    def _arrived(self, run: Batch, arrived_windows: Touched) -> datetime:
        """When a window's finding counts as arrived: no earlier than detection says it is done.

        Else it would be late for the join that asks whose address it was.
        """
        finished = run.decisions.get("finished")
        if finished is None:
            return arrived_windows.received
        return max(arrived_windows.received, datetime.fromisoformat(finished).astimezone(UTC))

    def _bounded(self, rows_found: DataFrame, events: int) -> pa.Table:
        """The rows, if they come in time and are not too many."""
        alerts = self._lake.settings.alerts
        seconds = alerts.query_seconds * max(1.0, events / EVENTS_A_BUDGET)
        context, tag, late = self._lake.spark.sparkContext, uuid4().hex, threading.Event()

        def stop() -> None:
            late.set()
            # By tag, since the thread also runs the batch's own jobs, which must go on.
            context.cancelJobsWithTag(tag)

        timer = threading.Timer(seconds, stop)
        context.addJobTag(tag)
        timer.start()
        try:
            # One more than allowed tells too many from exactly enough, without counting them all.
            rows = rows_found.limit(alerts.query_rows + 1).toArrow()
        except Exception as error:
            # Spark only says that a job was cancelled; whether we did it, the event says.
            if late.is_set():
                raise OverBudget(f"it took longer than {seconds:.0f} s") from error
            raise
        finally:
            timer.cancel()
            context.removeJobTag(tag)
        if rows.num_rows > alerts.query_rows:
            raise OverBudget(f"it gave more than {alerts.query_rows} rows at once")
        return rows

    def _new(self, query: Query, rows: pa.Table) -> pa.Table:
        """The rows whose windows have told nothing of their group yet."""
        times = [micros(column) for column in rows.column("event_time").to_pylist()]
        # Bounds on event time let Delta skip the files of other days.
        since, until = (
            event_instant(min(times)),
            event_instant(max(times)) + timedelta(microseconds=1),
        )
        span = timedelta(seconds=query.window_seconds)
        column = F.col("event_time")
        where = self._lake.read(FINDING).where(
            (F.col("rule_id") == query.id)
            & (column >= F.lit(since - span))
            & (column < F.lit(until + span))
        )
        # Read from the table and not remembered: it holds across restarts and other drivers.
        known = {row["finding_id"] for row in where.select("finding_id").distinct().collect()}
        new = [uid not in known for uid in rows.column("finding_id").to_pylist()]
        return rows.filter(pa.array(new, pa.bool_()))

    def _require_alive(self, events: DataFrame, error: Exception) -> None:
        """Raise the error unless it is the rule's own: what also fails without the rule is not."""
        if isinstance(error, OverBudget):
            return
        try:
            events.select("event_uid").limit(1).collect()
        except Exception:
            raise error from None

    # -- what comes of it --------------------------------------------------------------------

    def _failures(
        self, run: Batch, failed: Sequence[Query], reasons: Mapping[str, str], pack: str
    ) -> pa.Table:
        """A finding for each rule that is set aside; it is about the rule and names no address."""
        started = run.started_at
        rows = [_failure(query, single_line(reasons[query.id]), pack, started) for query in failed]
        return pa.Table.from_pylist(rows, schema=finding_schema())

    def _written(self, run: Batch, tables: Sequence[pa.Table]) -> list[DataFile]:
        target = self._lake.target(FINDING, run)
        with writing({target.table: target}) as writers:
            writer = writers[target.table]
            for rows in tables:
                for batch in rows.to_batches():
                    writer.write(batch)
            file = writer.close()
        return [file] if file is not None else []


def _failure(query: Query, reason: str, pack: str, at: datetime) -> dict[str, Any]:
    title = single_line(f"Rule '{query.title}' is set aside: {reason}")
    # With the batch's start, which a retry shares: the same failure has the same id.
    uid = identity(RULE_FAILED, query.id, query.version, at.isoformat())
    return {
        "finding_id": uid,
        "rule_id": RULE_FAILED,
        "rule_version": query.version,
        "rule_title": title,
        "level": "high",
        "kind": "event",
        "pack": pack,
        "feeds": [],
        "alerting": True,
        "event_uid": uid,
        "event_time": at,
        "received_at": at,
        "source": "headgate",
        "mode": "live",
        "role": "rule",
        "fields": {"rule_id": query.id, "error": reason},
        "snippet": title,
    }
