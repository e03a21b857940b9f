"""Training: history -> what is usual for each device, its peers, and how far peers stray.

Spark adds up the hours and makes a profile of each device (`alerts.anomaly.baseline`); MLlib finds
devices that behave alike (StandardScaler, KMeans; as many groups as separate them best); from
the peers' own hours it is told how rare a stray is.
"""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from pyspark.ml import Pipeline, PipelineModel
from pyspark.ml.clustering import KMeans
from pyspark.ml.evaluation import ClusteringEvaluator
from pyspark.ml.feature import StandardScaler
from pyspark.ml.functions import array_to_vector
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T
from pyspark.sql.pandas.types import to_arrow_schema

from alerts.anomaly.baseline import LEAST_STRAY, Tail, profile_of, shape, strays, tail_of
from alerts.anomaly.device_hours import counted_hours, hours, narrowed
from alerts.anomaly.step_train import learned_steps, program_shapes, step_days
from alerts.anomaly.store import ModelHeader, ModelStore, Peers, steps_schema
from alerts.domain.step import STEPS
from alerts.rulepack.rule_pack import ModelRule
from enrich.tables import DHCP_SEGMENT
from infra.errors import Usage
from infra.streaming.lake import Lake
from ingest.parsing.source import MODES
from ingest.tables import EVENT

_SEED = 20261122
_GROUPS = (2, 3, 4, 6, 8)
LEAST_DEVICES = 30
"""Fewer devices are one group: of two or three peers each nothing can be told."""
SEPARATE = 0.5
"""Silhouette below which groups are no groups."""

_FITTED = T.StructType(
    [
        T.StructField("entity", T.StringType()),
        T.StructField("days", T.IntegerType()),
        T.StructField("hours", T.LongType()),
        *(
            T.StructField(name, T.ArrayType(T.DoubleType()))
            for name in ("largest", "centre", "spread", "low", "high", "shape")
        ),
        # By feature: how far its hours stray, those beyond what is ordinary.
        T.StructField("far", T.ArrayType(T.ArrayType(T.DoubleType()))),
    ]
)


@dataclass(frozen=True)
class Trained:
    """A new model: its hash, what it says of itself, and how many hours of its own history it
    would have told of."""

    hash: str
    header: ModelHeader
    alerting_hours: int


def train(
    lake: Lake, store: ModelStore, rule: ModelRule, since: datetime, until: datetime
) -> Trained:
    """Train a model for a rule on events whose `time` is in [since, until), and keep it.

    Both are taken at full hours. Raises `Usage` when no device has the history that the rule asks
    for.
    """
    # Part of an hour would look like a quiet one.
    since, until = (_full(position) for position in (since, until))
    versions = {table.name: lake.version(table) for table in (EVENT, DHCP_SEGMENT)}
    events = narrowed(lake.read(EVENT, versions[EVENT.name])).where(
        (F.col("time") >= F.lit(since)) & (F.col("time") < F.lit(until))
    )
    segments = lake.read(DHCP_SEGMENT, versions[DHCP_SEGMENT.name])
    by_hour = hours(counted_hours(events, rule, MODES), rule, segments, named=False)
    learn = _learn_steps if STEPS in rule.features else _learn_volumes
    learned = learn(by_hour, rule, since, until)
    header = ModelHeader(
        rule_id=rule.id,
        rule_version=rule.version,
        features=rule.features,
        least=rule.least,
        since=since,
        until=until,
        trained_at=datetime.now(UTC),
        history_days=rule.history_days,
        devices=learned.devices,
        unjudged=learned.unjudged,
        device_hours=sum(group.hours for group in learned.peers),
        peers=learned.peers,
        silhouette=learned.silhouette,
        spark=lake.spark.version,
        versions=versions,
        deciles=learned.deciles,
    )
    with tempfile.TemporaryDirectory(dir=_folder(store)) as folder:
        saved = None
        if learned.pipeline is not None:
            saved = Path(folder) / "peers"
            learned.pipeline.write().save(str(saved))
        name = store.put(header, learned.rows, saved)
    return Trained(name, store.header(name), learned.alerting_hours)


class _Learned(NamedTuple):
    """What training found: rows of `baselines.arrow`, and what the header says of them."""

    rows: pa.Table
    devices: int
    unjudged: int
    peers: tuple[Peers, ...]
    alerting_hours: int
    pipeline: PipelineModel | None
    silhouette: float | None
    deciles: dict[str, tuple[float, ...]]


def _learn_volumes(
    by_hour: DataFrame, rule: ModelRule, since: datetime, until: datetime
) -> _Learned:
    # Used several times: to count, to group, to collect and for the deciles.
    by_hour = by_hour.persist()
    fitted = fit(by_hour, rule, until).persist()
    try:
        judged = fitted.where(F.col("days") >= rule.history_days)
        devices, unjudged = judged.count(), fitted.where(F.col("days") < rule.history_days).count()
        if not devices:
            raise _too_little(rule, unjudged, since, until)
        grouped, pipeline, silhouette = peers_of(judged, devices)
        # Sorted, so that the same history gives the same file.
        rows = grouped.toArrow().sort_by("entity")
        # Exact within a thousandth: a decile moves no more by chance.
        tenths = [number / 10 for number in range(1, 10)]
        bounds = by_hour.approxQuantile(list(rule.features), tenths, 0.001)
    finally:
        fitted.unpersist()
        by_hour.unpersist()
    groups = _tails(rows, rule.features)
    own_alarms = _own_alarms(rows, groups, rule)
    wanted = ["entity", "days", "peers", "largest", "centre", "spread", "low", "high"]
    deciles = {name: tuple(each) for name, each in zip(rule.features, bounds, strict=True)}
    return _Learned(
        rows.select(wanted), devices, unjudged, groups, own_alarms, pipeline, silhouette, deciles
    )


def _learn_steps(by_step: DataFrame, rule: ModelRule, since: datetime, until: datetime) -> _Learned:
    # Used several times: to see who has history, to group and to count.
    by_step = by_step.persist()
    try:
        days = F.countDistinct(F.floor(F.col("hour") / F.lit(86_400))).alias("days")
        seen = {row.entity: row.days for row in by_step.groupBy("entity").agg(days).collect()}
        known_devices = sorted(name for name, number in seen.items() if number >= rule.history_days)
        if not known_devices:
            raise _too_little(rule, len(seen), since, until)
        kept = by_step.where(F.col("entity").isin(known_devices))
        shapes = program_shapes(kept).persist()
        grouped, pipeline, silhouette = peers_of(shapes, len(known_devices))
        groups = {row.entity: row.peers for row in grouped.select("entity", "peers").collect()}
        shapes.unpersist()
        learned = learned_steps(step_days(kept, since, until), groups)
    finally:
        by_step.unpersist()
    tails = learned.held.tails()
    members = Counter(groups.values())
    peers = tuple(
        Peers(members[group], learned.held.hours[group], {STEPS: tail})
        for group, tail in sorted(tails.items())
    )
    # Of the held part: it is the only one that it did not learn from.
    held_alarms = sum(
        tails[group].score(stray) >= rule.threshold
        for group, far in learned.held.far.items()
        for stray in far
    )
    rows = pa.Table.from_pylist([row._asdict() for row in learned.rows], steps_schema())
    return _Learned(
        rows,
        len(known_devices),
        len(seen) - len(known_devices),
        peers,
        held_alarms,
        pipeline,
        silhouette,
        {},
    )


def _too_little(rule: ModelRule, devices: int, since: datetime, until: datetime) -> Usage:
    return Usage(
        f"rule '{rule.name or rule.id}': none of {devices} devices was seen on "
        f"{rule.history_days} days from {since:%Y-%m-%d} to {until:%Y-%m-%d}; give more "
        "history (--from), or lower model.history in the rule"
    )


def _folder(store: ModelStore) -> Path:
    store.folder.mkdir(parents=True, exist_ok=True)
    return store.folder


def _full(at: datetime) -> datetime:
    return at.astimezone(UTC).replace(minute=0, second=0, microsecond=0)


def fit(by_hour: DataFrame, rule: ModelRule, until: datetime) -> DataFrame:
    """Hours of devices -> a profile of each, rows of `_FITTED`."""
    end, features = int(until.timestamp()), rule.features
    least = [rule.least.get(name, 0) for name in features]
    schema = to_arrow_schema(_FITTED)

    def one(rows: pa.Table) -> pa.Table:
        rows = rows.sort_by("hour")
        starts = rows.column("hour").to_numpy().astype(np.int64)
        columns = [rows.column(name).to_numpy().astype(np.float64) for name in features]
        profiles = [profile_of(starts, values, end) for values in columns]
        far = [
            strays(starts, values, usual, floor)
            for values, usual, floor in zip(columns, profiles, least, strict=True)
        ]
        joined = {
            name: [np.concatenate([getattr(p, name) for p in profiles])]
            for name in ("centre", "spread", "low", "high")
        }
        made = {
            "entity": [rows.column("entity")[0].as_py()],
            "days": [len(np.unique(starts // 86_400))],
            "hours": [max(end - int(starts[0]), 3600) // 3600],
            "largest": [[p.largest for p in profiles]],
            "shape": [shape(profiles)],
            "far": [[each[each > LEAST_STRAY] for each in far]],
        }
        return pa.table({name: (made | joined)[name] for name in schema.names}, schema=schema)

    return by_hour.groupBy("entity").applyInArrow(one, _FITTED)


def peers_of(
    fitted: DataFrame, devices: int
) -> tuple[DataFrame, PipelineModel | None, float | None]:
    """Devices with the number of their group (`peers`), MLlib's pipeline, and its silhouette.

    Few devices, and devices that do not fall into groups, are one.
    """
    shaped = fitted.withColumn("features", array_to_vector(F.col("shape")))
    best: tuple[float, PipelineModel] | None = None
    if devices >= LEAST_DEVICES:
        evaluator = ClusteringEvaluator(featuresCol="scaled", predictionCol="peers")
        for groups in _GROUPS:
            # At least five devices a group, on average: of fewer no tail can be told.
            if groups * 5 > devices:
                break
            # KMeans goes by distance, so a feature in large numbers would decide alone.
            scaler = StandardScaler(inputCol="features", outputCol="scaled", withMean=True)
            # A fixed seed: training again on the same history has to give the same groups.
            means = KMeans(featuresCol="scaled", predictionCol="peers", k=groups, seed=_SEED)
            made = Pipeline(stages=[scaler, means]).fit(shaped)
            transform = made.transform(shaped)
            # KMeans may find fewer groups than asked; of one there is no silhouette.
            if transform.select("peers").distinct().count() < 2:
                continue
            separates = float(evaluator.evaluate(transform))
            if best is None or separates > best[0]:
                best = (separates, made)
    if best is None or best[0] < SEPARATE:
        return fitted.withColumn("peers", F.lit(0)), None, None
    drop = best[1].transform(shaped).drop("features", "scaled")
    return drop, best[1], round(best[0], 3)


def _tails(rows: pa.Table, features: Sequence[str]) -> tuple[Peers, ...]:
    """What each group's hours say of how rare a stray is."""
    groups = rows.column("peers").to_numpy()
    counts, far = rows.column("hours").to_numpy(), rows.column("far").to_pylist()
    peerses = []
    for group in range(int(groups.max()) + 1):
        mine = np.flatnonzero(groups == group)
        total = int(counts[mine].sum())
        tails: dict[str, Tail] = {}
        for place, name in enumerate(features):
            listed = [np.array(far[row][place], np.float64) for row in mine.tolist()]
            # The empty array first, since `concatenate` refuses an empty list.
            tails[name] = tail_of(np.concatenate([np.zeros(0), *listed]), total)
        peerses.append(Peers(len(mine), total, tails))
    return tuple(peerses)


def _own_alarms(rows: pa.Table, groups: Sequence[Peers], rule: ModelRule) -> int:
    """How many hours of the history the model would tell of, at most (features may share one)."""
    message = 0
    for group, far in zip(
        rows.column("peers").to_pylist(), rows.column("far").to_pylist(), strict=True
    ):
        tails = groups[group].tails
        message += sum(
            tails[name].score(stray) >= rule.threshold
            for name, each in zip(rule.features, far, strict=True)
            for stray in each
        )
    return message
