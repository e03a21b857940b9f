"""Detection: a batch's events against the rule pack, as a step of jobs `ingest` and `files`."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from alerts.correlation.group import SETTLE
from alerts.domain.finding import finding_schema
from alerts.matching.cost_metering import metered_matcher
from alerts.preliminary.selection import (
    Overrides,
    Selection,
    early_findings,
    selected_rules,
    selection_of,
)
from alerts.rulebook.rule_store import rule_store
from alerts.rulepack.rule_pack import PackStore
from alerts.spark_rules.live import Queries
from alerts.tables import FINDING, HEARTBEAT
from enrich.attribution.stream_join import SLACK_SECONDS
from infra.config.settings import Settings
from infra.streaming.batch import Batch
from infra.streaming.job import Job
from infra.streaming.lake import Lake
from ingest.pipeline.batch_pass import Find, Stage
from ingest.pipeline.files_job import files
from ingest.pipeline.ingest_job import Step, ingest
from ingest.tables import HEARTBEAT as EVENT_HEARTBEAT


def ingest_and_detect(lake: Lake, *, once: bool = False) -> Job:
    """Job `ingest` with detection handed over as a step of its batch."""
    # Late, as below: workers load this module too, and have no use for what compiles rules.
    from alerts.coverage.named_rules import say_unknown_rules

    packs = rule_store(lake.settings)
    say_unknown_rules(lake.settings)
    if not lake.settings.kafka.preliminary_topic:
        return ingest(lake, steps=[detect(lake, packs)], once=once)
    # Workers load this module too, and have no use for DuckDB and what sends to Kafka.
    from alerts.preliminary.lane import lane_of

    lane = lane_of(lake.settings, packs)
    step = detect(lake, packs, lane.choose)
    return ingest(lake, steps=[step], once=once, begun=lane.begun, committed=lane.committed)


def files_and_detect(lake: Lake, *, once: bool = False) -> Job:
    """Job `files` with detection handed over as a step of its batch."""
    return files(lake, steps=[detect(lake, rule_store(lake.settings))], once=once)


def detect(lake: Lake, store: PackStore, early: Callable[[], Any] | None = None) -> Step:
    """A step that matches a batch's events against the rules in force when it first ran.

    `early`: chooses which findings are told early (`alerts.preliminary.lane`); none: no finding.
    """

    # Outside of `step`: it remembers from batch to batch which windows were looked at.
    queries = Queries(lake, store)

    def step(run: Batch) -> Stage:
        # Rules may change between two tries of a batch.
        pack = run.decide("pack", store.current)
        spool = str(lake.spool / "rule_cost")
        told_early = selection_of(run.decide("preliminary", early)) if early else None
        find = partial(detection, str(store.folder), pack, spool, told_early)
        settings = lake.settings
        events_wait = bool(settings.jobs.attributed_classes)
        more = partial(queries, pack=pack)
        return Stage(FINDING, find, more, due_after(settings), events_wait)

    return step


def due_after(settings: Settings) -> tuple[float, ...]:
    """In how many seconds after a finding time must have moved on, if no alert is to be late.

    Once for who has no lease, once for correlations that wait until their window has closed, and
    once for an alert that counts. Ticks that come seldom would be late by half a minute.
    """
    jobs = settings.jobs
    waits = jobs.wait_seconds + jobs.watermark_seconds + SLACK_SECONDS
    settled = SETTLE / 1_000_000
    return (waits, waits + settled, waits + settings.alerts.count_every_seconds)


def detection(
    store_folder: str, pack: str, spool: str, told_early: Selection | None = None
) -> Find:
    """Findings of a rule pack among events, and ingest's heartbeats as those of detection.

    `spool`: where it tells what rules cost. `told_early`: which findings are marked so.
    """
    matcher = metered_matcher(store_folder, pack, spool)

    def find(events: pa.RecordBatch) -> tuple[pa.RecordBatch, pa.RecordBatch]:
        findings = matcher.match(events)
        if told_early is not None and findings.num_rows:
            selected = _selected(store_folder, pack, told_early.levels, told_early.rules)
            findings = early_findings(findings, selected, told_early)
        return findings, heartbeats(events, pack)

    return find


@lru_cache(maxsize=4)
def _selected(
    store_folder: str, pack: str, levels: tuple[str, ...], overrides: Overrides
) -> pa.Array:
    """The rules of a stored pack that are told early; a worker looks for them once."""
    rules = PackStore(Path(store_folder)).get(pack)
    return selected_rules(rules, levels, dict(overrides))


def heartbeats(events: pa.RecordBatch, pack: str) -> pa.RecordBatch:
    """Ingest's heartbeats among the events as heartbeats of detection."""
    # These alone: to filter all of the hundreds of fields takes 2 µs an event, for one row a batch.
    columns = events.select(["event_uid", "time", "received_at", "mode"])
    ingest_beats = columns.filter(pc.equal(events.column("source"), EVENT_HEARTBEAT))
    if ingest_beats.num_rows == 0:
        return _no_findings()
    rows = [
        {
            "finding_id": uid,
            "rule_id": HEARTBEAT,
            "event_time": position,
            "received_at": received_at,
            "mode": mode,
            "pack": pack,
        }
        for uid, position, received_at, mode in zip(
            *(column.to_pylist() for column in ingest_beats.columns),
            strict=True,
        )
    ]
    return pa.RecordBatch.from_pylist(rows, schema=finding_schema())


@lru_cache(maxsize=1)
def _no_findings() -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([], schema=finding_schema())
