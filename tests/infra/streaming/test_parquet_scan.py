"""Data files read by workers: the same rows as Spark gives, of the leaves that are asked for."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pytest
from pyspark.sql import functions as F
from pyspark.sql import types as T

from infra.delta.data_files import Reading
from infra.streaming.lake import Lake
from infra.streaming.parquet_scan import files_between, over_files
from ingest.tables import EVENT

BEGAN = datetime(2026, 3, 1, tzinfo=UTC)
HOUR = timedelta(hours=1)
SEEN = T.StructType(
    [T.StructField("event_uid", T.StringType()), T.StructField("pid", T.LongType())]
)


def seen(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        process = batch.column("process")
        assert process.type.get_field_index("cmd_line") < 0, "a leaf that nobody asked for"
        yield pa.RecordBatch.from_arrays(
            [batch.column("event_uid"), process.field("pid")], ["event_uid", "pid"]
        )


def written(lake: Lake, first: int) -> None:
    """Sixty events, one a minute from an hour on, in a file of their own."""
    at = F.timestamp_seconds(F.lit(int(BEGAN.timestamp())) + F.col("id") * 60)
    process = F.struct(F.col("id").alias("pid"), F.lit("x").alias("cmd_line"))
    rows = lake.spark.range(first * 60, first * 60 + 60, 1, 1).select(
        F.concat(F.lit("e"), "id").alias("event_uid"), at.alias("time"), process.alias("process")
    )
    rows.write.format("delta").mode("append").option("mergeSchema", "true").save(lake.path(EVENT))


def test_files_and_rows_outside_the_span_are_left_out(lake: Lake) -> None:
    for hour in range(3):
        written(lake, hour)
    since, until = BEGAN + 0.5 * HOUR, BEGAN + 1.5 * HOUR
    files = files_between(lake, EVENT, "time", since, until)
    assert len(files) == 2
    reading = Reading(lake.folder(EVENT), ("event_uid", "process.pid"), "time", since, until)
    found = over_files(lake, files, reading, seen, SEEN).collect()
    expected = lake.read(EVENT).where(
        (F.col("time") >= F.lit(since)) & (F.col("time") < F.lit(until))
    )
    assert sorted(found) == sorted(expected.select("event_uid", "process.pid").collect())
    assert len(found) == 60


@pytest.mark.full
def test_an_older_version_has_its_own_files(lake: Lake) -> None:
    written(lake, 0)
    before = lake.version(EVENT)
    written(lake, 1)
    span = (BEGAN - HOUR, BEGAN + 24 * HOUR)
    assert len(files_between(lake, EVENT, "time", *span, version=before)) == 1
    assert len(files_between(lake, EVENT, "time", *span)) == 2
