"""Maintenance beside running streams: fewer files, the same rows, nothing taken that is needed."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from itertools import count
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import DataFrame

from infra.cli import maintenance as maintenance_command
from infra.config.settings import load
from infra.delta.catalog import table
from infra.delta.data_files import ActiveFile
from infra.delta.deleted_file_retention import PROPERTY, interval, remembered, said_interval
from infra.delta.log_reader import versions
from infra.delta.schema import Table
from infra.delta.schema_evolution import described, schema_of
from infra.delta.transaction import active_files
from infra.errors import Fatal
from infra.maintenance import maintenance
from infra.maintenance.compaction_plan import FAN_IN, CompactionPiece, plan
from infra.streaming.batch import Batch
from infra.streaming.job import Job
from infra.streaming.lake import Lake
from tests.infra.numbers import NUMBER, SQUARE, rows

TARGET = 64 * 2**20

sizes = st.lists(st.integers(1, TARGET * 2), max_size=200)


@given(sizes)
def test_a_plan_takes_each_file_once_and_makes_none_too_large(sizes: list[int]) -> None:
    pieces = [CompactionPiece(f"f{at}", size, at) for at, size in enumerate(sizes)]
    groups = plan(pieces, TARGET)
    taken = [piece for group in groups for piece in group]
    assert len(set(taken)) == len(taken)
    assert set(taken) <= set(pieces)
    for group in groups:
        assert len(group) > 1
        assert sum(piece.size for piece in group) <= TARGET
        assert [piece.order for piece in group] == sorted(piece.order for piece in group)


def test_a_file_of_many_rows_is_large_whatever_its_bytes() -> None:
    def file(rows: int) -> ActiveFile:
        return ActiveFile({"path": "f", "size": 1000, "stats": json.dumps({"numRecords": rows})})

    assert maintenance.weight(file(2), TARGET) == 1000
    assert maintenance.weight(ActiveFile({"path": "f", "size": 7}), TARGET) == 7
    pieces = [
        CompactionPiece(f"f{n}", maintenance.weight(file(100_000), TARGET), n) for n in range(8)
    ]
    assert [len(group) for group in plan(pieces, TARGET)] == [2, 2, 2, 2]


def test_ten_thousand_batches_leave_few_files_and_each_row_is_written_a_few_times() -> None:
    pieces: list[CompactionPiece] = []
    written, names = 0, count()
    for batch in range(10_000):
        pieces.append(CompactionPiece(f"f{next(names)}", 20_000, batch))
        if batch % 100:
            continue
        for group in plan(pieces, TARGET):
            size = sum(piece.size for piece in group)
            written += size
            pieces = [piece for piece in pieces if piece not in group]
            pieces.append(CompactionPiece(f"f{next(names)}", size, batch))
    assert len(pieces) < 150
    assert written / (10_000 * 20_000) < 5


def squares(lake: Lake) -> Job:
    def batch(rows: DataFrame, run: Batch) -> None:
        lake.append(rows.selectExpr("n * n AS n"), SQUARE, run)

    return lake.each_batch("squares", lake.stream(NUMBER), batch, trigger_seconds=None)


@pytest.mark.full
def test_a_stream_that_is_behind_gets_every_row_once_through_merging_and_vacuum(
    lake: Lake, arrive: Callable[..., None]
) -> None:
    for number in range(2):
        arrive(number)
    squares(lake).wait()  # has read these two, and is now behind by six commits
    for number in range(2, 8):
        arrive(number)
    assert maintenance.merge_small_files(lake, NUMBER) == (8, 1)
    assert len(active_files(lake.spark, lake.path(NUMBER))) == 1
    assert rows(lake, NUMBER) == list(range(8))

    # Long ago as it is: former versions are promised for a second only.
    time.sleep(1.1)
    short = lake.settings.maintenance.model_copy(update={"keep_hours": 1 / 3600})
    lake.settings = lake.settings.model_copy(update={"maintenance": short})
    kept = maintenance.retention_interval(lake.settings, NUMBER, lake.folder(NUMBER))
    assert kept > timedelta(hours=1)
    assert maintenance.vacuum(lake, NUMBER, kept) == (0, 0)
    arrive(8)
    squares(lake).wait()
    assert rows(lake, SQUARE) == [n * n for n in range(9)]

    # Now that the stream has read all of it, what was merged may go.
    kept = maintenance.retention_interval(lake.settings, NUMBER, lake.folder(NUMBER))
    assert kept == timedelta(seconds=1)
    time.sleep(1.1)
    deleted, freed = maintenance.vacuum(lake, NUMBER, kept)
    assert deleted == 8
    assert freed > 0
    assert rows(lake, NUMBER) == list(range(9))
    squares(lake).wait()
    assert rows(lake, SQUARE) == [n * n for n in range(9)]


def test_merged_rows_lie_in_the_tables_order_and_keep_their_statistics(
    lake: Lake, arrive: Callable[..., None]
) -> None:
    for number in (5, 3, 8, 1, 7, 2, 6, 4):
        arrive(number)
    assert maintenance.merge_small_files(lake, NUMBER) == (FAN_IN, 1)
    (file,) = active_files(lake.spark, lake.path(NUMBER))
    stats = json.loads(file.entry["stats"])
    assert (stats["numRecords"], stats["minValues"], stats["maxValues"]) == (8, {"n": 1}, {"n": 8})
    group = pq.read_metadata(lake.folder(NUMBER) / file.name).row_group(0)
    leaves = map(group.column, range(group.num_columns))
    assert {leaf.compression for leaf in leaves} == {"ZSTD"}
    read = lake.read(NUMBER).collect()
    assert [row["n"] for row in read] == [1, 2, 3, 4, 5, 6, 7, 8]
    assert maintenance.merge_small_files(lake, NUMBER) == (0, 0)


@pytest.mark.full
def test_nothing_is_deleted_while_a_job_has_to_read_what_the_log_no_longer_has(
    lake: Lake, arrive: Callable[..., None]
) -> None:
    arrive(1)
    squares(lake).wait()
    arrive(2)
    arrive(3)
    (lake.folder(NUMBER) / "_delta_log" / f"{2:020d}.json").rename(lake.folder(NUMBER) / "away")
    with pytest.raises(Fatal, match="job squares has yet to read version 2"):
        maintenance.retention_interval(lake.settings, NUMBER, lake.folder(NUMBER))


@pytest.mark.parametrize(
    "error",
    [
        Fatal("silver.number: a job has yet to read what the log no longer has"),
        pa.ArrowInvalid("Couldn't deserialize thrift\nsomewhere"),
        FileNotFoundError(2, "No such file or directory"),
    ],
)
def test_a_table_that_cannot_be_tended_holds_up_no_other(
    monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def tend(lake: Lake, one: Table, say: maintenance.Say) -> maintenance.Done:
        if one is NUMBER:
            raise error
        return maintenance.Done(one.name)

    monkeypatch.setattr(maintenance_command, "tend", tend)
    none: Any = None
    done, refused = maintenance_command.tend_all(none, [NUMBER, SQUARE])
    assert [one.table for one in done] == ["gold.square"]
    (told,) = refused
    assert isinstance(told, Fatal)
    assert str(told).startswith("silver.number: ")
    assert "\n" not in str(told)


@pytest.mark.full
def test_what_the_publisher_may_still_have_to_send_is_kept_as_long_as_the_log(lake: Lake) -> None:
    alert = table("gold.alert")
    assert maintenance.retention_interval(lake.settings, alert, lake.folder(alert)) == timedelta(
        days=30
    )


@pytest.mark.full
def test_the_log_is_cut_after_its_retention_and_jobs_go_on(
    lake: Lake, arrive: Callable[..., None]
) -> None:
    often = {"delta.checkpointInterval": "2"}
    rare = replace(SQUARE, name="gold.rare", properties=often)
    lake.ensure(rare)

    def sometimes(rows: DataFrame, run: Batch) -> None:
        if not lake.has(rare, run) and run.batch_id == 0:
            lake.commit(rare, run, [])

    def job() -> Job:
        return lake.each_batch("rare", lake.stream(NUMBER), sometimes, trigger_seconds=None)

    arrive(1)
    job().wait()
    long_ago = time.time() - 40 * 86400
    for file in (lake.folder(rare) / "_delta_log").iterdir():
        if file.is_file():
            os.utime(file, (long_ago, long_ago))
    # Our own commits have Delta write checkpoints, and clean behind them.
    for _ in range(4):
        lake.add(rare, [{"n": 1}], "another writer")
    kept = versions(lake.folder(rare))
    assert kept[0] > 0
    assert schema_of(lake.folder(rare)) == rare.schema
    # The log shows no batch of the job any more. Whether it has this one cannot be told ...
    arrive(2)
    with pytest.raises(Exception, match="the log reaches back to version"):
        job().wait()
    # ... unless it reaches back to before the batch was planned.
    first = lake.folder(rare) / "_delta_log" / f"{kept[0]:020d}.json"
    os.utime(first, (time.time() - 7200, time.time() - 7200))
    job().wait()
    assert lake.version(rare) == kept[-1]


def forgotten_after(lake: Lake, one: Table) -> timedelta:
    """By Delta's own account."""
    found = lake.spark.sql(f"SHOW TBLPROPERTIES delta.`{lake.path(one)}`").collect()
    return interval(next(row["value"] for row in found if row["key"] == PROPERTY))


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("interval 30 days", timedelta(days=30)),
        ("interval 1 day 12 hours", timedelta(hours=36)),
        ("INTERVAL 2 WEEKS", timedelta(weeks=2)),
        ("", timedelta(weeks=1)),
        ("always", timedelta(weeks=1)),
    ],
)
def test_times_of_properties_are_read(text: str, kept: timedelta) -> None:
    assert interval(text) == kept
    assert interval(said_interval(kept)) == kept


@pytest.mark.full
def test_a_log_remembers_what_left_its_table_as_long_as_former_versions_are_promised(
    lake: Lake, arrive: Callable[..., None]
) -> None:
    alert = table("gold.alert")
    assert forgotten_after(lake, alert) == timedelta(days=30)
    assert (
        forgotten_after(lake, NUMBER)
        == remembered(described(lake.folder(NUMBER)))
        == timedelta(days=7)
    )

    # Of a table that is there, once the settings promise more; a stream at work goes on.
    arrive(1)
    squares(lake).wait()
    running = lake.each_batch("square-roots", lake.stream(NUMBER), ignored, trigger_seconds=0.5)
    try:
        longer = load(
            home=lake.settings.home, lake=lake.settings.lake_root, maintenance=KEPT_LONGER
        )
        Lake(lake.spark, longer).ensure(NUMBER, alert)
        assert forgotten_after(lake, NUMBER) == timedelta(days=20)
        assert forgotten_after(lake, alert) == timedelta(days=30)
        version = lake.version(NUMBER)
        Lake(lake.spark, longer).ensure(NUMBER)
        assert lake.version(NUMBER) == version
        arrive(2)
        squares(lake).wait()
        assert rows(lake, SQUARE) == [1, 4]
        running.query.processAllAvailable()
        assert running.query.isActive
    finally:
        running.stop()
    # A shorter promise takes nothing from what other readers were promised.
    lake.ensure(NUMBER)
    assert forgotten_after(lake, NUMBER) == timedelta(days=20)


KEPT_LONGER = {"keep_hours": 480}


def ignored(rows: DataFrame, run: Batch) -> None:
    """A job that writes nothing."""


@pytest.mark.full
def test_what_a_stream_may_need_beyond_what_the_log_remembers_stays(
    lake: Lake, arrive: Callable[..., None]
) -> None:
    for number in range(8):
        arrive(number)
    assert maintenance.merge_small_files(lake, NUMBER) == (8, 1)
    told: list[str] = []
    lake.settings = load(
        home=lake.settings.home, lake=lake.settings.lake_root, maintenance={"keep_hours": 200}
    )
    done = maintenance.tend(lake, NUMBER, told.append)
    assert (done.deleted, done.kept_hours) == (0, 200)
    assert len(told) == 1
    assert "its log tells that for 7 days only: nothing is deleted" in told[0]
