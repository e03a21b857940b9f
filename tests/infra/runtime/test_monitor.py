"""What batches left behind is told of all of them, also of those that ended between two looks."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import pytest
from pyspark.sql import SparkSession

from infra.config.settings import load
from infra.runtime import monitor
from infra.runtime.job_status import read_status
from infra.runtime.lag import LagReader
from infra.runtime.monitor import Watch
from infra.streaming.job import Job
from infra.streaming.lake import Lake
from infra.streaming.progress import Pulse
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


@dataclass
class Query:
    """A query that counts how often it is asked whether it waits."""

    asked: int = 0
    waits: bool = True
    isActive: bool = True

    @property
    def status(self) -> dict[str, Any]:
        self.asked += 1
        return {
            "message": "Waiting for data to arrive",
            "isDataAvailable": False,
            "isTriggerActive": not self.waits,
        }


@dataclass
class Resting:
    """What `Watch` sees of a job."""

    name: str = "resting"
    pulse: Pulse = field(default_factory=Pulse)
    query: Query = field(default_factory=Query)


@pytest.fixture
def watch(tmp_path: Path) -> Watch:
    settings = load(home=tmp_path)
    return Watch(settings, cast(SparkSession, None), LagReader(settings))


def test_a_query_that_waits_is_asked_again_only_when_it_began_a_batch_or_now_and_then(
    watch: Watch, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = Resting()
    for _ in range(3):
        watch.look(cast(Job, job))
    assert (watch.of("resting").state, job.query.asked) == ("waiting", 1)
    job.pulse.batch, job.query.waits = 7, False
    for _ in range(2):
        watch.look(cast(Job, job))
    assert (watch.of("resting").state, job.query.asked) == ("running", 3)
    job.query.waits = True
    for _ in range(2):
        watch.look(cast(Job, job))
    assert (watch.of("resting").state, job.query.asked) == ("waiting", 4)
    again = Resting(pulse=job.pulse)
    watch.look(cast(Job, again))
    assert again.query.asked == 1
    monkeypatch.setattr(monitor, "RESTING_SECONDS", 0.0)
    watch.look(cast(Job, again))
    assert again.query.asked == 2


def test_the_status_of_a_job_that_waits_is_written_seldom_and_each_change_soon(
    watch: Watch, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(monitor, "WRITE_SECONDS", 0.0)
    monkeypatch.setattr(monitor, "RESTING_WRITE_SECONDS", 3600.0)
    job = Resting()
    watch.look(cast(Job, job))
    first = read_status(watch.settings)["resting"]
    assert first.state == "waiting"
    watch.look(cast(Job, job))
    assert read_status(watch.settings)["resting"].at == first.at
    job.pulse.batch = job.pulse.done = 3
    job.pulse.done_at = time.time()
    watch.look(cast(Job, job))
    after = read_status(watch.settings)["resting"]
    assert (after.state, after.batch) == ("waiting", 3)
    job.pulse.batch, job.query.waits = 4, False
    watch.look(cast(Job, job))
    assert read_status(watch.settings)["resting"].state == "running"
