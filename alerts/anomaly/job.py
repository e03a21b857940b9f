"""Job `models`: what devices do hour by hour, judged by the models in force as it comes.

What a batch adds to an hour is a row of gold.device_hour; the sum of an hour's rows is judged
anew whenever one is added. The score of an hour only grows (`alerts.anomaly.baseline`), so the
batch that lifts it over the threshold makes the one finding that the hour ever has.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from alerts.anomaly.baseline import HOUR_SECONDS
from alerts.anomaly.device_hours import counted_hours, hours, narrowed
from alerts.anomaly.finding import EVIDENCE, anomaly_finding
from alerts.anomaly.steps import MOST_STEPS
from alerts.anomaly.store import AnyModel, Judged, ModelStore
from alerts.compiler.model_rule_files import FEATURES
from alerts.domain.step import STEPS
from alerts.rulepack.locations import store_folder
from alerts.rulepack.rule_pack import ModelRule, PackStore
from alerts.tables import DEVICE_HOUR, FINDING
from enrich.tables import DHCP_SEGMENT
from infra.delta.parquet_writer import FileWriter, arrow_schema
from infra.delta.schema import Table
from infra.streaming.batch import Batch
from infra.streaming.job import Job
from infra.streaming.lake import Lake
from ingest.parsing.source import LIVE_MODES, MODES
from ingest.tables import EVENT

_Row = dict[str, Any]

PIECE = timedelta(days=7)
"""History is judged so much at once: the hours of all devices lie in memory."""


def models(lake: Lake, *, once: bool = False) -> Job:
    """silver.event -> gold.device_hour and gold.finding, for the rules of kind model in force.

    It begins with what arrives once it runs, and judges what happened after the training.
    """
    store = PackStore(store_folder(lake.settings))
    kept = ModelStore(store.folder)

    def batch(rows: DataFrame, run: Batch) -> None:
        pack = run.decide("pack", store.current)
        rules = store.get(pack).models
        versions = run.decide(
            "read", lambda: {t.name: lake.version(t) for t in (DEVICE_HOUR, DHCP_SEGMENT)}
        )
        # Also a batch that adds nothing leaves its mark: only so can a restart tell.
        # One of the two may have the batch from an attempt that was cut off.
        wanted = [table for table in (DEVICE_HOUR, FINDING) if not lake.has(table, run)]
        work = [_Work(rule, kept.get(rule.model), pack) for rule in rules if wanted]
        segments = lake.read(DHCP_SEGMENT, versions[DHCP_SEGMENT.name])
        before = lake.read(DEVICE_HOUR, versions[DEVICE_HOUR.name])
        # Each rule reads the batch; without it each would read the files again.
        rows.persist()
        try:
            for partial in work:
                partial.through(rows, segments, before)
        finally:
            rows.unpersist()
        made = {
            DEVICE_HOUR.name: [row for partial in work for row in partial.added],
            FINDING.name: [row for partial in work for row in partial.findings],
        }
        for table in wanted:
            _commit(lake, run, table, made[table.name])

    trigger = None if once else lake.settings.jobs.models_trigger_seconds
    events = narrowed(_arriving(lake, once))
    return lake.each_batch("models", events, batch, trigger_seconds=trigger)


def _arriving(lake: Lake, once: bool) -> DataFrame:
    """Rows of silver.event as they come; with `once` also all that is there already.

    Heeded at the first start only: later the checkpoint says where to go on.
    """
    return lake.stream(EVENT, job="models", only_new=not once)


def _commit(lake: Lake, run: Batch, table: Table, rows: Sequence[_Row]) -> None:
    writer = FileWriter(lake.target(table, run))
    writer.write(pa.RecordBatch.from_pylist(list(rows), schema=arrow_schema(table)))
    file = writer.close()
    lake.commit(table, run, [file] if file else [])


class _Work:
    """One rule's work on a batch: `added` to gold.device_hour, and the `findings`."""

    def __init__(self, rule: ModelRule, model: AnyModel, pack: str) -> None:
        self.added: list[_Row] = []
        self.findings: list[_Row] = []
        self._rule, self._model, self._pack = rule, model, pack

    def through(self, events: DataFrame, segments: DataFrame, before: DataFrame) -> None:
        """Judge the hours that the batch adds to; `before` is what batches added so far."""
        # Hours of the training are what is usual by definition; to judge them says nothing.
        new = F.col("time") >= F.lit(self._model.header.until)
        wanted = counted_hours(events, self._rule, LIVE_MODES).where(new)
        rows = hours(wanted, self._rule, segments).toArrow().to_pylist()
        device_hours = sorted(
            (row for row in rows if self._model.knows(row["entity"])),
            key=lambda row: (row["hour"], row["entity"]),
        )
        so_far = self._so_far(before, device_hours)
        for row in device_hours:
            self._judge(row, so_far.get((row["entity"], int(row["hour"]))))

    def _so_far(self, before: DataFrame, rows: Iterable[_Row]) -> dict[tuple[str, int], _Row]:
        """What these hours had before, by entity and hour."""
        touched = sorted({int(row["hour"]) for row in rows})
        if not touched:
            return {}
        row_list = [F.lit(datetime.fromtimestamp(hour, UTC)) for hour in touched]
        mine = before.where((F.col("rule_id") == self._rule.id) & F.col("hour").isin(*row_list))
        sums = mine.groupBy("entity", F.unix_seconds("hour").alias("hour")).agg(
            *[F.sum(name).alias(name) for name in FEATURES],
            # An hour that was told stays told, however much is added to it.
            F.bool_or("told").alias("told"),
            F.flatten(F.collect_list("top")).alias("top"),
        )
        values = sums.toArrow().to_pylist()
        return {(row["entity"], int(row["hour"])): row for row in values}

    def _judge(self, row: _Row, earlier: Mapping[str, Any] | None) -> None:
        # What this batch adds: of steps its rarest, which are all that its hour's score rests on.
        row["top"] = self._model.evidence(row)
        whole = dict(row)
        if earlier is not None:
            # Features are sums, so what batches add up to is what history finds in one go.
            whole |= {name: row[name] + earlier[name] for name in FEATURES}
            every = [*row["top"], *(earlier["top"] or ())]
            if STEPS in self._rule.features:
                whole[STEPS] = [{"step": fact["snippet"], "first": _first(fact)} for fact in every]
                whole["top"] = self._model.evidence(whole)[:MOST_STEPS]
            else:
                whole["top"] = sorted(every, key=lambda one: -one["bytes"])[:EVIDENCE]
        judged = self._model.judge(row["entity"], int(row["hour"]), whole)
        message = judged.score >= self._rule.threshold and not (earlier and earlier["told"])
        if message:
            self.findings.append(
                anomaly_finding(self._rule, self._model, whole, judged, self._pack)
            )
        self.added.append(
            {name: row[name] for name in (*FEATURES, "entity", "event_time", "received_at", "top")}
            | {
                "rule_id": self._rule.id,
                "model": self._model.hash,
                "hour": datetime.fromtimestamp(int(row["hour"]), UTC),
                "score": judged.score,
                "told": message,
            }
        )


def _first(fact: Mapping[str, Any]) -> _Row:
    return {"time": fact["time"], "event_uid": fact["event_uid"]}


def device_history(
    lake: Lake, rule: ModelRule, model: AnyModel, since: datetime, until: datetime, pack: str = ""
) -> tuple[list[_Row], int]:
    """What the rule finds in history: rows of gold.finding, and how many hours it judged.

    Events whose `time` is in [since, until), which begin and end with an hour; addresses belong
    to whom they are given to today.
    """
    rows: list[_Row] = []
    looked_at = 0
    for row, judged in judged_hours(lake, rule, model, since, until):
        looked_at += 1
        if judged.score >= rule.threshold:
            rows.append(anomaly_finding(rule, model, row, judged, pack))
    return sorted(rows, key=lambda one: (one["window_start"], one["finding_id"])), looked_at


def judged_hours(
    lake: Lake, rule: ModelRule, model: AnyModel, since: datetime, until: datetime
) -> Iterator[tuple[_Row, Judged]]:
    """Each hour in [since, until), which are full hours, of a device the model knows: the row of
    its events (`alerts.anomaly.device_hours`) and what the model says of it."""
    while since < until:
        end = min(since + PIECE, until)
        for row in _known_hours(lake, rule, model, since, end):
            row["top"] = model.evidence(row)
            yield row, model.judge(row["entity"], int(row["hour"]), row)
        since = end


def _known_hours(
    lake: Lake, rule: ModelRule, model: AnyModel, since: datetime, until: datetime
) -> Iterator[_Row]:
    """Hours in [since, until) of devices that the model knows."""
    span = (F.col("time") >= F.lit(since)) & (F.col("time") < F.lit(until))
    events = counted_hours(narrowed(lake.read(EVENT).where(span)), rule, MODES)
    rows = hours(events, rule, lake.read(DHCP_SEGMENT)).toArrow()
    for batch in rows.to_batches(max_chunksize=10_000):
        yield from (row for row in batch.to_pylist() if model.knows(row["entity"]))


def whole_hours(since: datetime, until: datetime) -> tuple[datetime, datetime]:
    """A span widened to full hours: what is judged is whole."""
    step = HOUR_SECONDS
    first = int(since.timestamp()) // step * step
    # Rounded up.
    last = -(-int(until.timestamp()) // step) * step
    return datetime.fromtimestamp(first, UTC), datetime.fromtimestamp(last, UTC)
