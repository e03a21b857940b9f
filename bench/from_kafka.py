"""A benchmark's records on topics, and who reads them there: workers, or Spark's own reader."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pyarrow.parquet as pq
from confluent_kafka.cimpl import NewTopic
from pyspark.sql import DataFrame, SparkSession

from infra.config.settings import Settings, load
from infra.kafka.client import Broker, admin, producer, source_of, spark_options
from infra.kafka.range_reader import OffsetRange, reader_options
from infra.streaming.kafka_offsets import OffsetReader
from ingest.pipeline.ingest_job import to_records
from ingest.pipeline.kafka_fetch import Fetch, TopicNames, shared_out

_TOPIC = {
    # Records keep the time at which they were received, from which syslog's lines have their year.
    "message.timestamp.type": "CreateTime",
    "retention.ms": "-1",
}


class Fed:
    """A mix's records on a broker, each source's on a topic of its own."""

    def __init__(self, home: Path, broker: Broker, name: str, raw: Path) -> None:
        """`raw`: the folder of `bench.records.store`."""
        own = {"topic_prefix": f"{name}.", "tick_topic": f"{name}-tick"}
        self._settings = load(home=home, kafka={"bootstrap": broker.address, **own})
        self._topics = sorted(_send(self._settings, raw))
        self._broker = OffsetReader(self._settings.kafka)
        self._ids = self._broker.ids(self._topics)

    def by_workers(self, tasks: int) -> Fetch:
        """As job `ingest` has them read."""
        kafka = self._settings.kafka
        held = self._broker.held((topic, 0) for topic in self._topics)
        ranges = [OffsetRange(*place, there.first, there.end) for place, there in held.items()]
        names = {
            topic: TopicNames(topic_id, source_of(topic, kafka), None)
            for topic, topic_id in self._ids.items()
        }
        return Fetch(shared_out(ranges, tasks), names, reader_options(kafka))

    def by_spark(self, spark: SparkSession) -> DataFrame:
        """As Spark reads them, as rows of bronze.record."""
        messages = (
            spark.read.format("kafka")
            .options(**spark_options(self._settings.kafka))
            .option("subscribe", ",".join(self._topics))
            .option("includeHeaders", "true")
            .load()
        )
        return to_records(messages, self._ids, self._settings)


def _send(settings: Settings, raw: Path) -> set[str]:
    """Send the records in their order; the topics."""
    prefix, topics = settings.kafka.topic_prefix, set[str]()
    client = producer(settings.kafka)
    for part in sorted(raw.glob("*.parquet")):
        rows = pq.read_table(part, columns=["source", "received_at", "raw"]).to_pylist()
        named = [(prefix + row["source"].replace(":", ".", 1), row) for row in rows]
        fresh = {topic for topic, _ in named} - topics
        _make(settings, sorted(fresh))
        topics |= fresh
        for topic, row in named:
            stamp = round(row["received_at"].timestamp() * 1000)
            client.produce(topic, row["raw"], timestamp=stamp)
            client.poll(0)
            while len(client) > 10_000:
                client.poll(0.05)
    if left := client.flush(60):
        raise ValueError(f"{left} records were not taken by the broker")
    return topics


def _make(settings: Settings, topics: Sequence[str]) -> None:
    wanted = [NewTopic(topic, num_partitions=1, config=_TOPIC) for topic in topics]
    client = admin(settings.kafka)
    for made in client.create_topics(wanted).values() if wanted else ():
        made.result(20)
