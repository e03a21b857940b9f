"""Kafka's raw topics as a stream of parsed events, for pipelines of one's own."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import DataFrame, SparkSession

from infra.config.settings import Settings
from infra.errors import Usage
from infra.kafka.client import require_broker, topic_of
from infra.streaming.kafka_offsets import OffsetReader
from ingest.parsing.arrow_parser import arrow_parser
from ingest.parsing.source import ParseSettings, lookup
from ingest.pipeline.ingest_job import messages, to_records
from ingest.tables import EVENT


def parsed_stream(spark: SparkSession, settings: Settings, sources: Sequence[str]) -> DataFrame:
    """Events of these sources, in the shape of silver.event, from the topics' beginning."""
    if not sources:
        raise Usage("no source is named; 'headgate sources' lists them")
    for source in sources:
        # A misspelt source is refused before a stream is begun.
        lookup(source)
    topics = {topic_of(source, settings.kafka): source for source in sources}
    # Spark would try for minutes and end in a stack trace; this says in a sentence what is missing.
    require_broker(settings.kafka)
    # Records are named by their topic's own id, so the events have the same ids as in the lake.
    ids = OffsetReader(settings.kafka).ids(topics)
    if missing := sorted(topics.keys() - ids.keys()):
        raise Usage(f"no topic {', '.join(missing)} at {settings.kafka.bootstrap}")
    records = messages(spark, settings, sorted(topics)).transform(to_records, ids, settings)
    return records.mapInArrow(arrow_parser(ParseSettings.of(settings)), EVENT.schema)
