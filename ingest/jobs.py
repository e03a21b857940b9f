"""Job `ingest`: Kafka to bronze.record and silver.event, from one read."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from confluent_kafka import TopicCollection
from pyspark.sql import Column, DataFrame, Row, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from infra.jobs import Batch, Job
from infra.kafka import admin, client_options, source_of
from infra.lake import Lake
from infra.settings import KafkaSettings, Settings
from ingest.events import arrow_parser
from ingest.source import ParseSettings
from ingest.tables import EVENT, HEARTBEAT, RECORD

Step = Callable[[DataFrame, Batch], None]
"""What a caller of `ingest` does with a batch's events, heartbeat included, before it ends."""

MODES = ("live", "replay", "import")
ROWS_PER_TASK = 2_000
"""Fewer rows than this are not worth a task of their own."""


def ingest(lake: Lake, steps: Sequence[Step] = (), *, once: bool = False) -> Job:
    """Kafka -> bronze.record and silver.event, then the steps its caller hands over.

    `alerts` hands over detection; ingest itself knows nothing of rules.
    `once`: work off what is there and end.
    """
    settings = lake.settings
    parse = arrow_parser(ParseSettings.of(settings))
    topic_ids = TopicIds(settings.kafka)

    def batch(arrived: DataFrame, run: Batch) -> None:
        taken = _taken(run)
        ids = run.decide("topic_ids", lambda: topic_ids.of(taken))
        messages = arrived.coalesce(_tasks(lake.spark, sum(taken.values()))).persist()
        try:
            heard = messages.groupBy("topic", "partition").agg(
                F.count("*").alias("rows"), F.max("timestamp").alias("newest")
            )
            seen = heard.collect()
            tick = settings.kafka.tick_topic
            run.counts["read"] = sum(row["rows"] for row in seen if row["topic"] != tick)
            finished = run.decide("finished", lambda: _finished(seen, settings))
            records = messages.where(F.col("topic") != tick).transform(to_records, ids, settings)
            if run.counts["read"]:
                lake.append(records, RECORD, run)
            events = records.mapInArrow(parse, EVENT.schema)
            events = with_heartbeat(events, finished).persist()
            try:
                lake.append(events, EVENT, run)
                run.counts["dead"] = events.where("dead_letter_reason IS NOT NULL").count()
                for step in steps:
                    step(events, run)
            finally:
                events.unpersist()
        finally:
            messages.unpersist()

    trigger = None if once else settings.jobs.ingest_trigger_seconds
    return lake.each_batch("ingest", messages(lake.spark, settings), batch, trigger_seconds=trigger)


def messages(spark: SparkSession, settings: Settings) -> DataFrame:
    """All raw topics as one stream, from their beginning.

    Offsets that retention took before they were read stop the job: nothing is skipped unseen.
    """
    kafka = settings.kafka
    options = {
        f"kafka.{key}": value
        for key, value in client_options(kafka).items()
        if key != "sasl.password"
    }
    return (
        spark.readStream.format("kafka")
        .options(**options)
        .option("subscribePattern", kafka.topic_prefix.replace(".", "\\.") + ".*")
        .option("startingOffsets", "earliest")
        .option("includeHeaders", "true")
        .option("maxOffsetsPerTrigger", settings.jobs.max_offsets_per_batch)
        .option("kafka.max.partition.fetch.bytes", kafka.max_message_bytes)
        .load()
    )


def to_records(messages: DataFrame, ids: Mapping[str, str], settings: Settings) -> DataFrame:
    """Kafka messages as rows of bronze.record, bytes unchanged."""
    topic_id = _lookup(ids, F.col("topic"))
    sources = {topic: source_of(topic, settings.kafka) for topic in ids}
    mode = F.expr("try_element_at(filter(headers, h -> h.key = 'mode'), -1).value").cast("string")
    return messages.select(
        F.concat_ws(":", topic_id, "partition", "offset").alias("record_id"),
        _lookup(sources, F.col("topic")).alias("source"),
        F.when(mode.isin(*MODES), mode).otherwise("live").alias("mode"),
        F.col("timestamp").alias("received_at"),
        "topic",
        "partition",
        "offset",
        F.col("value").alias("raw"),
        F.col("headers").cast(RECORD.schema["headers"].dataType).alias("headers"),
    )


def with_heartbeat(events: DataFrame, finished: str | None) -> DataFrame:
    """The events and, where it is known, a row that says how far the input is finished."""
    if finished is None:
        return events
    at = datetime.fromisoformat(finished)
    row = {name: None for name in EVENT.schema.fieldNames()} | {
        "event_uid": f"heartbeat:{finished}",
        "source": HEARTBEAT,
        "mode": "live",
        "time": at,
        "received_at": at,
        "class_uid": 0,
        "record_ids": [],
    }
    beat = events.sparkSession.createDataFrame([Row(**row)], EVENT.schema)
    return events.unionByName(beat)


class TopicIds:
    """Kafka's own ids of topics: one made anew under an old name is another topic."""

    def __init__(self, kafka: KafkaSettings) -> None:
        self._kafka = kafka
        self._known: dict[str, str] = {}

    def of(self, topics: Mapping[str, int]) -> dict[str, str]:
        """Ids of the topics named, asked once each while the driver lives."""
        unknown = [name for name in topics if name not in self._known]
        if unknown:
            client = admin(self._kafka)  # kept until the answers are in: they end with it
            for name, answer in client.describe_topics(TopicCollection(unknown)).items():
                self._known[name] = str(answer.result(20).topic_id)
        return {name: self._known[name] for name in sorted(topics)}


def _taken(run: Batch) -> dict[str, int]:
    """Messages of the batch by topic, from the checkpoint's offsets."""
    spark = run.folder / "spark" / "offsets"
    now = _offsets((spark / str(run.batch_id)).read_text("utf-8"))
    before: dict[tuple[str, str], int] = {}
    if run.batch_id > 0 and (spark / str(run.batch_id - 1)).exists():
        before = _offsets((spark / str(run.batch_id - 1)).read_text("utf-8"))
    taken: dict[str, int] = {}
    for (topic, partition), end in now.items():
        taken[topic] = taken.get(topic, 0) + end - before.get((topic, partition), 0)
    return taken


def _offsets(text: str) -> dict[tuple[str, str], int]:
    """`{(topic, partition): offset}` of a Kafka source's line in an offsets file."""
    found: dict[str, dict[str, int]] = json.loads(text.splitlines()[2])
    return {
        (topic, partition): offset
        for topic, partitions in found.items()
        for partition, offset in partitions.items()
    }


def _finished(seen: Sequence[Row], settings: Settings) -> str | None:
    """Instant up to which all that was received is in, as ISO text; None when it cannot be told.

    A batch below the cap took all there was when it was planned, so the newest
    tick in it vouches for everything before. A capped batch vouches only for
    what each of its partitions has reached. The half second covers that Spark
    asks for the ends of partitions one after the other.
    """
    total = sum(row["rows"] for row in seen)
    capped = total >= settings.jobs.max_offsets_per_batch - len(seen) - 1
    ticks = [row["newest"] for row in seen if row["topic"] == settings.kafka.tick_topic]
    others = [row["newest"] for row in seen if row["topic"] != settings.kafka.tick_topic]
    newest: datetime | None = min(others, default=None) if capped else max(ticks, default=None)
    if newest is None:
        return None
    instant = newest.astimezone(UTC).timestamp() - 0.5
    return datetime.fromtimestamp(instant, UTC).isoformat()


def _lookup(values: Mapping[str, Any], key: Column) -> Column:
    pairs = [F.lit(item) for pair in values.items() for item in pair]
    empty = F.lit(None).cast(T.StringType())
    return F.try_element_at(F.create_map(*pairs), key) if pairs else empty


def _tasks(spark: SparkSession, rows: int) -> int:
    return max(1, min(spark.sparkContext.defaultParallelism, rows // ROWS_PER_TASK))
