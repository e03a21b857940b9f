"""Job `ingest`: Kafka to bronze.record and silver.event, from one read."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from infra.checkpoint.batch_decisions import decided
from infra.checkpoint.offset_log import numbers
from infra.config.settings import Settings
from infra.delta.parquet_writer import DataFile
from infra.errors import Fatal
from infra.kafka.client import source_of, spark_options, tenant_of
from infra.kafka.range_reader import UNREADABLE_HEADERS
from infra.process.clock import TOLERANCE, clock, spoken
from infra.process.log import say
from infra.spark.internals import UNREADABLE_TIME
from infra.storage.paths import to_read
from infra.storage.state_file import StateFile
from infra.streaming.batch import Batch
from infra.streaming.job import Job
from infra.streaming.kafka_offsets import kafka_checkpoint
from infra.streaming.lake import Lake
from ingest.completeness.gaps import require_no_gap
from ingest.parsing.source import MODES, ParseSettings
from ingest.pipeline.batch_pass import Pass, Reach, Stage, latest
from ingest.pipeline.deduplication import Redelivery, discard
from ingest.pipeline.inflight import oldest_in_flight
from ingest.pipeline.kafka_batch import Taken, Topics, fetch_of, taken_by
from ingest.pipeline.kafka_fetch import Fetch
from ingest.tables import EVENT, RECORD

Step = Callable[[Batch], Stage]
"""What a caller of `ingest` does with each batch's events, decided anew for every batch."""

ROWS_PER_TASK = 2_000
"""Fewer rows than this are not worth a task of their own."""

FETCHED_ROWS = 2_000
"""From so many on workers read messages themselves: for fewer, Spark's reader, which has its
connections, is sooner done (decision 0038)."""


def ingest(
    lake: Lake,
    steps: Sequence[Step] = (),
    *,
    once: bool = False,
    begun: Callable[[], object] = lambda: None,
    committed: Callable[[Batch], object] = lambda _: None,
) -> Job:
    """Kafka -> bronze.record and silver.event, then the steps its caller hands over.

    `alerts` hands over detection; ingest itself knows nothing of rules.
    `once`: work off what is there and end. `begun`: is called before the first batch; `committed`:
    after each, when all its tables have it.
    """
    settings = lake.settings
    topics = Topics(settings)
    # Before the query starts, so that the job can say which messages are gone.
    require_no_gap(settings)
    parsing = ParseSettings.of(settings)
    cap = Cap(settings)
    if clock_problem := clock_behind(settings.checkpoint_root / "ingest", clock.now()):
        say(f"job ingest: {clock_problem}")

    # Some two hundred calls of the JVM, for what is the same from batch to batch.
    @lru_cache(maxsize=1)
    def columns(ids: tuple[tuple[str, str], ...]) -> list[Column]:
        return bronze_columns(dict(ids), settings)

    by_workers = by_spark = True

    def batch(arrived: DataFrame, run: Batch) -> None:
        nonlocal by_workers, by_spark
        # From the planned offsets, not from the rows: an empty partition has an offset as well.
        taken = taken_by(run)
        # Kept beside the checkpoint, so that a retry names its records and their time as before.
        with run.at_once():
            ids = run.decide("topic_ids", lambda: topics.ids(taken))
            read_at = datetime.fromisoformat(run.decide("read_at", lambda: clock.now().isoformat()))
            finished = run.decide(
                "finished",
                lambda: oldest_in_flight(
                    lake.spool / "open",
                    _finished(arrived, taken, topics, settings, cap(run.batch_id), read_at),
                ),
            )
            owned = with_accounts(parsing, run)
            stages = [step(run) for step in steps]
        rows = sum(count for (topic, _), (_, count) in taken.items() if topic in ids)

        def written(records: DataFrame | Fetch | None) -> None:
            through(lake, records, owned, Reach(finished, read_at), stages, run)

        fetch = None
        if by_workers and (rows >= FETCHED_ROWS or not by_spark):
            fetch = fetch_of(run, taken, ids, settings, tasks_for(lake.spark, rows))
        try:
            if fetch is not None:
                written(fetch)
        except PySparkException as error:
            if UNREADABLE_HEADERS not in str(error):
                raise
            say(f"job ingest: {UNREADABLE_HEADERS}; until its next start Spark reads messages")
            by_workers, fetch = False, None
        if fetch is None:
            # Ticks move time and are no records.
            logs = arrived.where(F.col("topic") != settings.kafka.tick_topic)
            # Few rows in many tasks cost more in scheduling than in work.
            few = logs.coalesce(tasks_for(lake.spark, rows))
            try:
                written(few.select(*columns(tuple(sorted(ids.items())))) if rows else None)
            except (PySparkException, Py4JJavaError) as error:
                if UNREADABLE_TIME not in str(error):
                    raise
                fetch = fetch_of(run, taken, ids, settings, tasks_for(lake.spark, rows))
                if fetch is None:
                    raise
                say(
                    "job ingest: a message has a time that Spark's reader has no number for; it "
                    "counts as received when it was read, and until the next start workers read "
                    "messages"
                )
                by_spark = False
                # Nobody else can read this batch: who sends both must not hold up the others.
                written(replace(fetch, any_headers=True))
        committed(run)

    trigger = None if once else settings.jobs.ingest_trigger_seconds
    read = messages(lake.spark, settings)
    return lake.each_batch("ingest", read, batch, trigger_seconds=trigger, begun=begun)


def with_accounts(parsing: ParseSettings, run: Batch) -> ParseSettings:
    """The settings with the tenants of cloud accounts as the batch first had them.

    A retry after they were changed gives no event to another one than its finding.
    """
    return replace(parsing, accounts=run.decide("accounts", lambda: parsing.accounts))


def clock_behind(checkpoint: Path, now: datetime) -> str:
    """What there is to say where the last batch is from after `now`: a clock was wrong, or is."""
    begun = numbers(checkpoint / "batches", ".json")
    finished = decided(checkpoint, max(begun)).get("finished") if begun else None
    reached = datetime.fromisoformat(finished) if finished else now
    by = (reached - now).total_seconds()
    if by <= TOLERANCE:
        return ""
    return (
        f"what it read last is dated {reached:%Y-%m-%d %H:%M} UTC, {spoken(by)} of the clock. If "
        "the clock is wrong, set it right and start again. If it was wrong then, leases that come "
        "before that time count as late, and job repair puts them in (jobs.repair_minutes)"
    )


def through(
    lake: Lake,
    records: DataFrame | Fetch | None,
    parsing: ParseSettings,
    reach: Reach,
    stages: Sequence[Stage],
    run: Batch,
) -> None:
    """A batch of records into bronze, silver and the tables of the steps, in one pass.

    Workers parse, run the stages and write all files; what they wrote is then
    committed table by table, in the order of the data. `records`: None where the
    batch only says how far the input is finished, which needs no worker.
    """
    tables = (*((RECORD,) if records is not None else ()), EVENT, *(s.table for s in stages))
    unwritten = [table for table in tables if not lake.has(table, run)]
    run.will_commit(lake.path(table) for table in unwritten)
    targets = {table.name: lake.target(table, run) for table in unwritten}
    again = Redelivery(lake, run, committed=EVENT not in unwritten)
    files: list[DataFile] = []
    if unwritten and records is None:
        files = Pass(parsing, targets, stages, reach).alone()
    elif unwritten and records is not None:
        targets |= {again.stage.table.name: again.target()}
        stages = (*stages, again.stage)
        files = Pass(parsing, targets, stages, reach).over(lake.spark, records)
        # Workers cannot know what other workers have: the rare batch with repeats is parsed twice
        # (decision 0008).
        if repeats := again.repeats(files):
            discard(lake, unwritten, files)
            files = Pass(parsing, targets, stages, reach, repeats).over(lake.spark, records)
            again.drop(files)
    # Not what lies between offsets: of a partition that is new the first may be in the millions.
    written = sum(file.rows for file in files if file.table == RECORD.name)
    run.counts["read"] = written + run.rows.get(RECORD.name, 0)
    more = {stage.table.name: stage.more for stage in stages if stage.more is not None}
    # In the order of the data: whoever sees a finding can read its event.
    for table in unwritten:
        own = [file for file in files if file.table == table.name]
        further = more[table.name](run) if table.name in more else ()
        lake.commit(table, run, [*own, *further])
    # Besides the heartbeat, for which nobody waits.
    beats = 0 if reach.finished is None else 1
    run.due_after += tuple(
        seconds
        for stage in stages
        if run.rows.get(stage.table.name, 0) > beats or (stage.events_wait and run.counts["read"])
        for seconds in stage.due_after
    )
    # Only now: keys of a batch that came to no commit must not hide its events.
    again.keep()
    run.counts["bytes"] = raw_bytes(lake, files)
    run.counts["dead"] = lake.present(EVENT, run, "dead_letter_reason")


def raw_bytes(lake: Lake, files: Sequence[DataFile]) -> int:
    """Bytes of the raw records in files of bronze, as Parquet holds them before it compresses."""
    result = 0
    for file in files:
        if file.table == RECORD.name:
            metadata = pq.read_metadata(to_read(lake.folder(RECORD) / file.name))
            for group in map(metadata.row_group, range(metadata.num_row_groups)):
                columns = map(group.column, range(group.num_columns))
                result += sum(
                    column.total_uncompressed_size
                    for column in columns
                    if column.path_in_schema == "raw"
                )
    return result


def messages(
    spark: SparkSession, settings: Settings, topics: Sequence[str] | None = None
) -> DataFrame:
    """Raw topics, all unless some are named, as one stream from their beginning.

    Offsets that retention took before they were read stop the job: nothing is skipped unseen.
    """
    kafka = settings.kafka
    subscription = ("subscribePattern", kafka.topic_prefix.replace(".", "\\.") + ".*")
    if topics is not None:
        subscription = ("subscribe", ",".join(topics))
    return (
        spark.readStream.format("kafka")
        .options(**spark_options(kafka))
        .option(*subscription)
        .option("groupIdPrefix", "headgate-ingest")
        # Only of a new checkpoint: what was sent before the first start is read as well.
        .option("startingOffsets", "earliest")
        .option("includeHeaders", "true")
        .option("maxOffsetsPerTrigger", settings.jobs.max_offsets_per_batch)
        .option("kafka.max.partition.fetch.bytes", kafka.max_message_bytes)
        # A consumer that has read to the end asks ahead and must hear back before it may read the
        # next range: at the default of 500 ms that is most of a small batch's time.
        .option("kafka.fetch.max.wait.ms", "10")
        .load()
    )


def to_records(messages: DataFrame, ids: Mapping[str, str], settings: Settings) -> DataFrame:
    """Kafka messages as rows of bronze.record, bytes unchanged."""
    return messages.select(*bronze_columns(ids, settings))


def bronze_columns(ids: Mapping[str, str], settings: Settings) -> list[Column]:
    """The columns of bronze.record, made of those of Kafka's messages."""
    topic_id = _lookup(ids, F.col("topic"))
    sources = {topic: source_of(topic, settings.kafka) for topic in ids}
    # By the topic alone, which is settled once a batch: a header is the sender's own.
    tenants = {topic: tenant for topic in ids if (tenant := tenant_of(topic, settings.kafka))}
    # The last header of that name, and `try_`, as ANSI mode fails the query for a missing element.
    mode = F.expr("try_element_at(filter(headers, h -> h.key = 'mode'), -1).value").cast("string")
    return [
        F.concat_ws(":", topic_id, "partition", "offset").alias("record_id"),
        _lookup(sources, F.col("topic")).alias("source"),
        # A word that nobody knows must not keep an event from the rules.
        F.when(mode.isin(*MODES), mode).otherwise("live").alias("mode"),
        # The time of the broker's append; a sender's clock has no say in it.
        F.col("timestamp").alias("received_at"),
        F.col("topic"),
        F.col("partition"),
        F.col("offset"),
        F.col("value").alias("raw"),
        F.col("headers").cast(RECORD.schema["headers"].dataType).alias("headers"),
        _lookup(tenants, F.col("topic")).alias("tenant_uid"),
    ]


class Cap:
    """Most messages that a batch of job `ingest` may have taken, by its number.

    The cap changes with the job's pace, and a batch that was planned before a restart was
    planned with the cap of then: for it the smallest that may have been in force counts,
    which claims less. The file is lowered before a query starts and raised inside its batches.
    """

    def __init__(self, settings: Settings) -> None:
        folder = settings.checkpoint_root / "ingest"
        remedy = "until the batch in flight is in, the least is claimed"
        self._file = StateFile(folder / "cap.json", dict[str, int], remedy)
        self._now = settings.jobs.max_offsets_per_batch
        checkpoint_folder = kafka_checkpoint(folder)
        in_flight = (
            checkpoint_folder.planned is not None
            and checkpoint_folder.planned != checkpoint_folder.done
        )
        self._planned = (
            checkpoint_folder.planned if in_flight and checkpoint_folder.planned is not None else -1
        )
        self._least = min(self._now, self._before())
        # Before the query starts: a batch it plans must never find a larger cap in the file.
        self._write(self._least)

    def __call__(self, batch: int) -> int:
        """The cap of a batch that is being worked on."""
        if batch <= self._planned:
            return self._least
        if self._least != self._now:
            self._least = self._now
            self._write(self._now)
        return self._now

    def _before(self) -> int:
        """The least that was in force until now; one, which claims least, where that is damaged."""
        try:
            before = self._file.read()
        except Fatal as error:
            say(str(error))
            return 1
        return self._now if before is None else before.get("cap", 1)

    def _write(self, cap: int) -> None:
        self._file.write({"cap": cap})


def _finished(
    arrived: DataFrame,
    taken: Taken,
    topics: Topics,
    settings: Settings,
    cap: int,
    read_at: datetime,
) -> str | None:
    """Instant up to which all that was received is in, as ISO text; None when it cannot be told.

    A batch below the cap took all there was when it was planned, so its newest
    tick vouches for everything before. A capped batch vouches only for what
    each of its partitions has reached. The half second covers that Spark asks
    for the ends of partitions one after the other. What a broker whose clock is
    ahead says counts as read when it was (`ingest.pipeline.batch_pass.Reach`).
    """
    tick = settings.kafka.tick_topic
    total = sum(count for _, count in taken.values())
    newest: datetime | None = None
    # Spark shares the cap among partitions and rounds, so a capped batch may be a little smaller.
    if total >= cap - len(taken) - 1:
        lasts = [
            topics.time_of(topic, int(partition), end - 1, of_broker=True)
            for (topic, partition), (end, count) in taken.items()
            if topic != tick and count
        ]
        # The slowest partition counts: of the others nothing later may be claimed.
        newest = min((last for last in lasts if last is not None), default=None)
        if None in lasts:
            newest = _slowest(arrived.where(F.col("topic") != tick), read_at)
    else:
        for (topic, partition), (end, count) in taken.items():
            if topic == tick and count:
                newest = topics.time_of(topic, int(partition), end - 1)
    if newest is None:
        return None
    if newest > latest(read_at):
        newest = read_at
    return (newest - timedelta(seconds=0.5)).isoformat()


def _slowest(messages: DataFrame, read_at: datetime) -> datetime | None:
    """The newest time of the partition whose newest is the oldest; it reads all messages. None
    where Spark cannot."""
    # Times are the senders' and may have no year in Python.
    newest, begin = F.max("timestamp"), F.lit(datetime(1970, 1, 1, tzinfo=UTC))
    newest = F.when(newest > F.lit(latest(read_at)), F.lit(read_at)).otherwise(newest)
    newest = F.greatest(newest, begin)
    reached = messages.groupBy("topic", "partition").agg(newest.alias("newest"))
    try:
        rows = reached.collect()
    except (PySparkException, Py4JJavaError) as error:
        if UNREADABLE_TIME not in str(error):
            raise
        return None
    return min((row["newest"].astimezone(UTC) for row in rows), default=None)


def _lookup(values: Mapping[str, Any], key: Column) -> Column:
    pairs = [F.lit(item) for pair in values.items() for item in pair]
    empty = F.lit(None).cast(T.StringType())
    return F.try_element_at(F.create_map(*pairs), key) if pairs else empty


def tasks_for(spark: SparkSession, rows: int) -> int:
    """How many tasks, and so files, a batch of so many rows is worth."""
    return max(1, min(spark.sparkContext.defaultParallelism, rows // ROWS_PER_TASK))
