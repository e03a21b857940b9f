"""A batch is written once, through crashes, and what cannot be told is refused by name."""

from __future__ import annotations

import fcntl
import shutil
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, Row
from pyspark.sql import types as T

from infra.delta.ops_tables import LEDGER
from infra.delta.schema import Column, Table
from infra.errors import Fatal
from infra.process.batch_telemetry import BatchRecord, hear_batches
from infra.runtime.outbox_flusher import flush_outbox
from infra.streaming import job as job_module
from infra.streaming.batch import Batch
from infra.streaming.job import Job
from infra.streaming.job_lock import JobLock
from infra.streaming.lake import Lake
from infra.streaming.outbox import put_row

NUMBER = Table("silver.number", "numbers that arrive", (Column("n", T.LongType(), "a number"),))
SQUARE = Table("gold.square", "their squares", (Column("n", T.LongType(), "a square"),))


@pytest.fixture
def numbers(lake: Lake) -> Callable[[int], None]:
    lake.ensure(NUMBER, SQUARE)

    def arrive(*values: int) -> None:
        rows = lake.spark.createDataFrame([Row(n=value) for value in values], NUMBER.schema)
        rows.write.format("delta").mode("append").save(lake.path(NUMBER))

    return arrive


def squares(lake: Lake, after: Callable[[Batch], None] = lambda run: None) -> Job:
    def batch(rows: DataFrame, run: Batch) -> None:
        lake.append(rows.selectExpr("n * n AS n"), SQUARE, run)
        after(run)

    return lake.each_batch("squares", lake.stream(NUMBER), batch, trigger_seconds=None)


def written(lake: Lake) -> list[int]:
    return sorted(row["n"] for row in lake.read(SQUARE).collect())


def test_rows_written_before_a_crash_are_not_written_again(lake, numbers):
    numbers(1, 2, 3)

    def crash(run: Batch) -> None:
        raise RuntimeError("the driver dies between the table's commit and Spark's")

    with pytest.raises(Exception, match="the driver dies"):
        squares(lake, crash).wait()
    seen: list[bool] = []
    squares(lake, lambda run: seen.append(run.replayed)).wait()
    numbers(4)
    squares(lake).wait()

    assert written(lake) == [1, 4, 9, 16]
    assert seen == [True]


@pytest.mark.full
def test_each_attempt_at_a_batch_is_handed_on_with_its_commits(lake, numbers):
    heard: list[BatchRecord] = []
    hear_batches(heard.append)
    try:
        numbers(1, 2)

        def fail(run: Batch) -> None:
            raise RuntimeError("once")

        with pytest.raises(Exception, match="once"):
            squares(lake, fail).wait()
        squares(lake).wait()
    finally:
        hear_batches(None)
    failed, done = heard
    assert (failed.job, failed.error, done.error) == ("squares", "RuntimeError", None)
    assert [(table, began <= ended) for table, began, ended in failed.commits] == [
        ("gold.square", True)
    ]
    assert dict(failed.rows_written) == {"gold.square": 2}
    assert done.replayed
    assert failed.began <= failed.ended <= done.ended


@pytest.mark.full
def test_a_batch_that_runs_again_decides_the_same(lake, numbers):
    numbers(1)
    decided: list[int] = []

    def decide(run: Batch) -> None:
        decided.append(run.decide("choice", lambda: len(decided) + 7))
        if len(decided) == 1:
            raise RuntimeError("once")

    with pytest.raises(Exception, match="once"):
        squares(lake, decide).wait()
    squares(lake, decide).wait()

    assert decided == [7, 7]


def test_a_second_driver_on_the_same_job_is_refused_in_one_sentence(lake, numbers):
    numbers(1)
    lock = JobLock(lake.settings.checkpoint_root / "squares", "squares")
    with pytest.raises(Fatal, match="job squares already runs"):
        squares(lake)
    lock.release()
    squares(lake).wait()
    assert written(lake) == [1]


@pytest.mark.full
def test_a_job_that_was_stopped_is_nobodys_before_its_batch_has_left(lake, numbers):
    """One that Spark could not end in time may still commit."""
    numbers(1)
    inside, leave = threading.Event(), threading.Event()

    def wait(run: Batch) -> None:
        inside.set()
        leave.wait(60)

    folder = lake.settings.checkpoint_root / "squares"
    lake.spark.conf.set("spark.sql.streaming.stopTimeout", "1s")
    try:
        job = squares(lake, after=wait)
        assert inside.wait(60)
        job.stop(0)
    finally:
        lake.spark.conf.set("spark.sql.streaming.stopTimeout", "30s")
    with pytest.raises(Fatal, match="job squares already runs"):
        JobLock(folder, "squares")
    leave.set()
    end = time.monotonic() + 30
    while True:
        try:
            JobLock(folder, "squares").release()
            break
        except Fatal:
            assert time.monotonic() < end
            time.sleep(0.1)


@pytest.mark.full
def test_a_job_that_begins_but_cannot_be_handed_over_ends(lake, numbers, monkeypatch):
    """Else it would go on without its lock, and a second one write every batch again."""
    numbers(1)
    inside = threading.Event()

    def batch(rows: DataFrame, run: Batch) -> None:
        inside.set()
        lake.append(rows.selectExpr("n * n AS n"), SQUARE, run)

    def broken(rows: DataFrame) -> list[str | None]:
        assert inside.wait(60)
        raise RuntimeError("its plan is not to be read")

    with monkeypatch.context() as patched:
        patched.setattr(job_module, "streamed_paths", broken)
        with pytest.raises(RuntimeError, match="not to be read"):
            lake.each_batch("squares", lake.stream(NUMBER), batch, trigger_seconds=60)
    assert "squares" not in [query.name for query in lake.spark.streams.active]
    numbers(2)
    squares(lake).wait()
    assert written(lake) == [1, 4]


def test_tables_are_made_by_one_driver_at_a_time(lake, monkeypatch):
    """Two that begin on an empty lake would each write version 0."""
    made: list[str] = []
    create = Lake._create

    def slowly(self: Lake, table: Table) -> None:
        made.append(table.name)
        time.sleep(0.5)
        create(self, table)

    monkeypatch.setattr(Lake, "_create", slowly)
    other = Lake(lake.spark, lake.settings)
    drivers = [threading.Thread(target=one.ensure, args=(NUMBER,)) for one in (lake, other)]
    for driver in drivers:
        driver.start()
    for driver in drivers:
        driver.join(60)
    assert made == [NUMBER.name]


@pytest.mark.full
def test_a_new_checkpoint_on_old_tables_is_refused_by_name(lake, numbers):
    numbers(1)
    squares(lake).wait()
    shutil.rmtree(lake.settings.checkpoint_root / "squares")
    with pytest.raises(Exception, match="written under another checkpoint"):
        squares(lake).wait()
    assert written(lake) == [1]


def _remove(name: str) -> Callable[[Path], None]:
    return lambda checkpoint: (checkpoint / name).unlink()


def _blank(name: str) -> Callable[[Path], None]:
    return lambda checkpoint: (checkpoint / name).write_text("")


DAMAGES = (
    (_remove("metadata"), "metadata is missing or damaged"),
    (_blank("metadata"), "metadata is missing or damaged"),
    (_blank("offsets/1"), "offsets/1 is damaged"),
    (_remove("offsets/1"), "was already worked on"),
)


@pytest.mark.full
def test_a_damaged_checkpoint_is_refused_by_name(lake, numbers):
    for number in (1, 2):
        numbers(number)
        squares(lake).wait()
    checkpoint = lake.settings.checkpoint_root / "squares"
    whole = shutil.copytree(checkpoint, checkpoint.with_name("whole"))
    for damage, said in DAMAGES:
        damage(checkpoint / "spark")
        with pytest.raises(Fatal, match=said):
            squares(lake)
        shutil.rmtree(checkpoint)
        shutil.copytree(whole, checkpoint)
    numbers(3)
    squares(lake).wait()
    assert written(lake) == [1, 4, 9]


@pytest.mark.full
def test_a_checkpoint_older_than_the_table_is_refused(lake, numbers):
    checkpoint = lake.settings.checkpoint_root / "squares"
    numbers(1)
    squares(lake).wait()
    shutil.copytree(checkpoint, checkpoint.with_name("old"))
    for number in (2, 3):
        numbers(number)
        squares(lake).wait()
    shutil.rmtree(checkpoint)
    shutil.move(checkpoint.with_name("old"), checkpoint)
    with pytest.raises(Exception, match="older than the table"):
        squares(lake).wait()
    assert written(lake) == [1, 4, 9]


@pytest.mark.full
def test_a_table_older_than_the_checkpoint_is_refused(lake, numbers):
    numbers(1)
    squares(lake).wait()
    log = lake.folder(SQUARE) / "_delta_log"
    newest = log / f"{1:020d}.json"
    kept = newest.rename(log / "kept")
    with pytest.raises(Fatal, match=r"gold.square lacks batch 0 of job squares"):
        squares(lake)
    sums = log / f".{newest.name}.crc"
    theirs = sums.rename(log / "sums")
    newest.write_text('{"commitInfo": {"userMetadata": "of somebody else"}}')
    with pytest.raises(Fatal, match="the table is older than the checkpoint"):
        squares(lake)
    kept.rename(newest)
    theirs.rename(sums)
    squares(lake).wait()
    assert written(lake) == [1]


@pytest.mark.full
def test_each_batch_leaves_one_row_in_the_ledger(lake, numbers):
    for number in (1, 2):
        numbers(number)
        squares(lake).wait()
    spool = lake.spool / "ledger"
    assert flush_outbox(lake, LEDGER, spool) == 2
    assert flush_outbox(lake, LEDGER, spool) == 0
    rows = lake.read(LEDGER).orderBy("batch_id").collect()
    assert [(row["job"], row["batch_id"], row["rows_written"]) for row in rows] == [
        ("squares", 0, {"gold.square": 1}),
        ("squares", 1, {"gold.square": 1}),
    ]
    # What was no batch's: at least what this process took until the first.
    assert rows[0]["cpu_between_seconds"] > 0
    assert all(row["cpu_seconds"] > row["cpu_shared_seconds"] == 0 for row in rows)


@pytest.mark.full
def test_what_python_workers_take_is_the_batchs(lake, numbers):
    numbers(1)

    def busy(batches):
        import time

        end = time.process_time() + 2
        while time.process_time() < end:
            pass
        yield from batches

    def work(rows: DataFrame, run: Batch) -> None:
        lake.append(rows.mapInArrow(busy, rows.schema), SQUARE, run)

    lake.each_batch("squares", lake.stream(NUMBER), work, trigger_seconds=None).wait()
    assert flush_outbox(lake, LEDGER, lake.spool / "ledger") == 1
    (row,) = lake.read(LEDGER).collect()
    assert row["cpu_seconds"] >= 2


def test_a_fold_that_died_after_its_commit_is_not_repeated(lake):
    spool = lake.spool / "ledger"
    row = {"job": "a", "query_id": "q", "batch_id": 1}
    put_row(spool, "a", row)
    assert flush_outbox(lake, LEDGER, spool) == 1
    commit = max((lake.folder(LEDGER) / "_delta_log").glob("*.json")).read_text()
    name = commit.split('"userMetadata":"')[1].split('"')[0]
    put_row(spool / name, "a", row)  # as if the crash came before the round's folder was removed

    assert flush_outbox(lake, LEDGER, spool) == 0
    assert lake.read(LEDGER).count() == 1


def test_two_drivers_of_a_lake_do_not_fold_at_once(lake):
    spool = lake.spool / "ledger"
    put_row(spool / "round-under-way", "a", {"job": "a", "query_id": "q", "batch_id": 1})
    with (spool / "lock").open("w") as theirs:
        fcntl.flock(theirs, fcntl.LOCK_EX)
        assert flush_outbox(lake, LEDGER, spool) == 0
    assert flush_outbox(lake, LEDGER, spool) == 1


def test_a_fold_that_died_before_its_commit_is_made_up_for(lake):
    spool = lake.spool / "ledger"
    put_row(spool / "round-lost", "a", {"job": "a", "query_id": "q", "batch_id": 1})
    assert flush_outbox(lake, LEDGER, spool) == 1
    assert lake.read(LEDGER).count() == 1
