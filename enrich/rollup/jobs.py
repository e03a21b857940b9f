"""Jobs `rollup` and `logins`: counts by minute and hour, and logins in sessions.

Two queries, for Spark wants sessions in append mode and gives counts as they grow only in update
mode. Both keep their state in RocksDB: who counts devices must not have its memory filled by them.
"""

from __future__ import annotations

import json
import time
from datetime import UTC, datetime, timedelta

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from enrich.attribution.asof_join import newest_cover, statements
from enrich.rollup.reconcile import RollupComparison, check_rollup, counted_in
from enrich.rollup.rollup import login_sessions, rolled
from enrich.rollup.topic import Topic
from enrich.rollup.unpublished import unpublished_hours
from enrich.tables import DHCP_SEGMENT
from enrich.tables_rollup import LOGIN_SESSION, ROLLUP
from infra.process.log import say
from infra.streaming.batch import Batch
from infra.streaming.job import Job
from infra.streaming.lake import Lake
from infra.streaming.merge import merge
from ingest.tables import EVENT

_STORE = "spark.sql.streaming.stateStore"
_ROCKSDB = {
    f"{_STORE}.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
    # A batch leaves a file with its changes, not a copy of the store.
    f"{_STORE}.rocksdb.changelogCheckpointing.enabled": "true",
    # A start plays those files since the last snapshot: at the default of 10 the few large batches
    # of a backlog all came again with each start. A snapshot is cheap here: only what is new.
    f"{_STORE}.minDeltasForSnapshot": "3",
}

_FEW_TASKS = {
    # A task that runs is not put off for alerts. By default a minute's events are as many tasks as
    # there are cores, and all of them were taken for seconds (decision 0034).
    "spark.sql.files.minPartitionNum": "1",
    # Of many small files: at the default of 4 MB each they count as far more than they hold.
    "spark.sql.files.openCostInBytes": "65536",
}
"""Beside the other jobs on one machine, events are read in one task up to 128 MB."""

_LONG = timedelta(hours=6)
"""An import that takes longer was likely ended half way."""


def rollup(lake: Lake, *, once: bool = False) -> Job:
    """silver.event -> gold.rollup, the absolute count of each window that has changed.

    Now and then the counts of hours that are closed are compared with the events, and counted
    anew where they differ (`enrich.rollup.reconcile`).
    """
    lake = for_counting(lake, once)
    settings = lake.settings
    jobs = settings.jobs
    topic = Topic(settings) if settings.kafka.rollups_topic else None
    pause = jobs.rollup_check_minutes * 60
    # The first batch after a start compares.
    checked = time.monotonic() - pause

    def batch(rows: DataFrame, run: Batch) -> None:
        nonlocal checked
        # MERGE reads them more than once, then the topic: each time would compute the batch anew.
        rows = rows.persist()
        try:
            merge(lake, rows, ROLLUP, run)
            if topic:
                topic.send(rows)
        finally:
            rows.unpersist()
        if pause and time.monotonic() - checked >= (0 if once else pause):
            check = check_now(lake, _watermark(run))
            run.counts["late"] = check.missing
            if not check.more:
                checked = time.monotonic()
        if topic:
            tell_again(lake, topic)

    counts = rolled(
        lake.stream(EVENT, job="rollup"), settings.scopes, jobs.rollup_allowed_lateness_seconds
    )
    return lake.each_batch(
        "rollup",
        counts,
        batch,
        trigger_seconds=None if once else jobs.rollup_trigger_seconds or 60.0,
        output_mode="update",
    )


def tell_again(lake: Lake, topic: Topic) -> None:
    """Send what was counted anew, by this job or by the command; a failure repeats the batch."""
    for file, hours in unpublished_hours(lake.settings):
        topic.send(counted_in(lake, hours))
        # Only when sent: a count that is sent twice changes nothing.
        file.unlink()


def check_now(lake: Lake, closed: datetime) -> RollupComparison:
    """The comparison as the job does it: what fails is said, and tried again in due time."""
    try:
        comparison = check_rollup(lake, closed)
    except Exception as error:  # counting must go on whatever this comes to
        say(f"job rollup: counts not compared, again in due time: {type(error).__name__}: {error}")
        return RollupComparison()
    if comparison.recounted:
        say(
            f"job rollup: {comparison.missing} events were not in their counts; "
            f"{len(comparison.recounted)} hours counted anew"
        )
    if comparison.waits_for and comparison.waits_for < datetime.now(UTC) - _LONG:
        say(
            f"job rollup: counts are compared up to {comparison.waits_for:%Y-%m-%dT%H}:00Z "
            "only: an "
            "import, or a batch of job files, began then and is not in; run the same headgate "
            "import again, or start job files (headgate status)"
        )
    return comparison


def _watermark(run: Batch) -> datetime:
    """Up to when windows are closed once a batch of a stateful job is in."""
    decoded = json.loads(run.offsets.splitlines()[1])
    return datetime.fromtimestamp(0, UTC) + timedelta(milliseconds=decoded["batchWatermarkMs"])


def logins(lake: Lake, *, once: bool = False) -> Job:
    """silver.event -> gold.login_session, each session once, when it has ended."""
    lake = for_counting(lake, once)
    settings = lake.settings
    jobs = settings.jobs

    def batch(rows: DataFrame, run: Batch) -> None:
        # Decided once: a retry must name the same holders, whatever was said of them since.
        version = run.decide("segments", lambda: lake.version(DHCP_SEGMENT))
        # In the batch, not in the stream: there Spark pushes the filter below the watermark, and
        # heartbeats no longer move it.
        ended = rows.where(F.col("user_name").isNotNull()).persist()
        try:
            named = with_holders(ended, lake.read(DHCP_SEGMENT, version))
            lake.append(named, LOGIN_SESSION, run)
        finally:
            ended.unpersist()

    sessions = login_sessions(
        lake.stream(EVENT, job="logins"),
        settings.scopes,
        jobs.login_gap_minutes,
        jobs.rollup_allowed_lateness_seconds,
    )
    trigger = None if once else jobs.rollup_trigger_seconds or 60.0
    return lake.each_batch("logins", sessions, batch, trigger_seconds=trigger)


def with_holders(sessions: DataFrame, segments: DataFrame) -> DataFrame:
    """Sessions of logins with who held the address when they began.

    Nothing is asked of the segments where no session has an address.
    """
    addressed = sessions.withColumns(
        {
            "ip": F.when(F.col("device_type") == "ip", F.col("device")),
            "event_time": F.col("started_at"),
        }
    )
    oldest = addressed.where("ip IS NOT NULL").agg(F.min("started_at").alias("at")).first()
    if oldest is None or oldest["at"] is None:
        nothing = F.lit(None).cast("string")
        return sessions.withColumns(dict.fromkeys(_HOLDER, nothing))
    # A batch asks about few addresses; the table has the segments of all.
    few = addressed.select("scope", "ip").distinct()
    # What ended before the oldest login of the batch can hold none of its addresses.
    lately = statements(segments).where(F.col("seg_end") > F.lit(oldest["at"]))
    newest_rows = newest_cover(
        addressed,
        lately.join(F.broadcast(few), ["scope", "ip"], "left_semi"),
        carried=_HOLDER,
    )
    held = F.col("s_mac").isNotNull()
    return newest_rows.withColumns({name: F.when(held, F.col(f"s_{name}")) for name in _HOLDER})


_HOLDER = ("mac", "hostname", "session_id")


def with_rocksdb(spark: SparkSession) -> SparkSession:
    """A session whose queries keep their state in RocksDB."""
    # The state store provider is a setting of the session: the other jobs keep theirs.
    own = spark.newSession()
    for key, value in _ROCKSDB.items():
        own.conf.set(key, value)
    return own


def for_counting(lake: Lake, once: bool) -> Lake:
    """The lake in a session of its own, whose queries keep their state in RocksDB.

    `once`: nothing runs beside them, and they end with what is there.
    """
    spark = with_rocksdb(lake.spark)
    # Heartbeats bring a batch each minute: one more without rows, only to close windows, would
    # double what the job costs. A run that ends with what is there has no next batch.
    spark.conf.set("spark.sql.streaming.noDataMicroBatches.enabled", str(once).lower())
    if lake.settings.spark.local and not once:
        for key, value in _FEW_TASKS.items():
            spark.conf.set(key, value)
    return Lake(spark, lake.settings)
