"""What batches left behind is told of all of them, also of those that ended between two looks."""

from __future__ import annotations

import time

import pytest

from infra.runtime.lag import LagReader
from infra.runtime.monitor import Watch
from infra.streaming.job import Job
from infra.streaming.lake import Lake
from tests.infra.runtime.test_driver import NUMBER


def counted(lake: Lake) -> Job:
    """A job that counts numbers as instants, a second behind the newest it has seen."""
    at = lake.stream(NUMBER).selectExpr("timestamp_seconds(n) AS at")
    counts = at.withWatermark("at", "1 second").groupBy("at").count()
    return lake.each_batch(
        "counted", counts, lambda rows, run: rows.collect(), trigger_seconds=0, output_mode="update"
    )


@pytest.mark.full
def test_rows_later_than_the_watermark_are_counted_over_batches_nobody_looked_at(
    lake: Lake,
) -> None:
    lake.ensure(NUMBER)
    watch = Watch(lake.settings, lake.spark, LagReader(lake.settings))
    job = counted(lake)
    try:
        for numbers in ((1000,), (1, 2), (2000,), (3, 1001), (3000,)):
            lake.add(NUMBER, [{"n": number} for number in numbers], "test")
            job.query.processAllAvailable()
        watch.gather(job)
        assert watch.of("counted").dropped_so_far == 4
        assert watch.of("counted").dropped == 0
        newest = watch.progress["counted"]["batchId"]
        lake.add(NUMBER, [{"n": 4}], "test")
        job.query.processAllAvailable()
        end = time.monotonic() + 20
        while watch.progress["counted"]["batchId"] <= newest:
            assert time.monotonic() < end
            watch.gather(job)
        assert watch.of("counted").dropped_so_far == 5
    finally:
        job.stop()
