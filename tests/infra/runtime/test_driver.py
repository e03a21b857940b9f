"""A driver's jobs come back, are given up by name, are resumed, and keep their pace."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from confluent_kafka.cimpl import NewTopic
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame
from pyspark.sql import types as T

from headgate.cli import main
from infra.checkpoint import failed_batch
from infra.config.settings import Settings, load
from infra.delta.log_reader import newest_first
from infra.delta.schema import Column, Table
from infra.errors import Fatal, Retryable
from infra.kafka.client import Broker, admin, producer, topic_of
from infra.maintenance import maintenance
from infra.process.clock import ForwardClock
from infra.process.log import log_line_json
from infra.runtime import job_registry, job_supervisor, lag
from infra.runtime.driver import Driver
from infra.runtime.ingest_rate import Governor
from infra.runtime.job_registry import JobSpec, Later, Starter, resume
from infra.runtime.job_status import JobStatus, read_status
from infra.runtime.job_status import write_status as written
from infra.runtime.job_supervisor import JobSupervisor, WatchedJob, out_of_the_way, state_below
from infra.runtime.lag import LagReader
from infra.runtime.monitor import Watch
from infra.runtime.restart_policy import PAUSES
from infra.runtime.scheduled_tasks import Every
from infra.runtime.ticker import Ticker
from infra.storage.file_lock import ExclusiveLock, Taken
from infra.streaming.batch import Batch
from infra.streaming.job import Job
from infra.streaming.job_lock import JobLock
from infra.streaming.lake import Lake
from infra.streaming.progress import Pulse
from ingest.tables import RECORD
from tests.full import rest_full
from tests.wait import until

NUMBER = Table("silver.number", "numbers that arrive", (Column("n", T.LongType(), "a number"),))
SQUARE = Table("gold.square", "their squares", (Column("n", T.LongType(), "a square"),))


def squares(lake: Lake, *, once: bool) -> Job:
    """A job that cannot stand a 13."""

    def batch(rows: DataFrame, run: Batch) -> None:
        poisoned = not (lake.spool / "antidote").exists()
        if poisoned and rows.where("n = 13").count():
            raise ValueError("13 is not a number")
        run.counts["read"] = rows.count()
        lake.append(rows.selectExpr("n * n AS n"), SQUARE, run)

    return lake.each_batch("squares", lake.stream(NUMBER), batch, trigger_seconds=0.1)


def over(lake: Lake, ours: Driver, *watched: WatchedJob) -> JobSupervisor:
    """The round of a driver over some jobs."""
    settings = lake.settings
    watch = Watch(settings, lake.spark, LagReader(settings))
    return JobSupervisor(ours, lake, list(watched), watch, Governor(settings))


@contextmanager
def running(lake: Lake, *jobs: str, form: Callable[[str], str] = str) -> Iterator[list[str]]:
    """The round of a driver over some jobs, in a thread; what it says, in a form."""
    said: list[str] = []
    ours = Driver(lake.settings, jobs, tell=lambda line: said.append(form(line)))
    watched = [WatchedJob(name) for name in jobs]
    round_ = over(lake, ours, *watched)
    looking = round_.watch.waiting.start()
    thread = threading.Thread(target=round_.run)
    thread.start()
    try:
        yield said
    finally:
        ours.stop()
        thread.join(60)
        looking.stop()
        for one in watched:
            if one.job:
                one.job.stop()


def arrived(lake: Lake) -> int:
    """Rows of bronze, as its log has them: asked often, beside jobs on two cores."""
    return sum(commit.rows for commit in newest_first(lake.folder(RECORD)))


def register(monkeypatch: pytest.MonkeyPatch, name: str, start: Starter) -> None:
    """One more job, the way a package registers its own."""
    monkeypatch.setitem(job_registry.JOBS, name, JobSpec(name, 100, lambda: start))


def delay(monkeypatch: pytest.MonkeyPatch, name: str, later: Later) -> None:
    monkeypatch.setitem(job_registry.JOBS, name, replace(job_registry.JOBS[name], later=later))


def status(settings: Settings, job: str) -> JobStatus:
    return read_status(settings).get(job) or JobStatus(job)


@pytest.mark.full
def test_a_poison_batch_is_named_and_its_job_goes_on_when_a_person_says_so(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    register(monkeypatch, "squares", squares)
    register(monkeypatch, "other", other)
    lake = impatient(lake)
    monkeypatch.setattr(lag, "EVERY_SECONDS", 0.2)
    lake.ensure(NUMBER, SQUARE)
    lake.add(NUMBER, [{"n": 2}], "test")
    with running(lake, "squares", "other") as said:
        until(lambda: status(lake.settings, "squares").batch == 0, what=said)
        assert status(lake.settings, "squares").rows == 1
        lake.add(NUMBER, [{"n": 13}], "test")
        until(lambda: status(lake.settings, "squares").state == "failed", what=said)
        stopped_for = status(lake.settings, "squares")
        assert "batch 1 failed 2 times in a row" in stopped_for.why
        assert "13 is not a number" in stopped_for.why
        assert status(lake.settings, "other").state in ("running", "waiting")
        # What waits is told on.
        lake.add(NUMBER, [{"n": 3}], "test")
        until(lambda: status(lake.settings, "squares").unread_commits == 2, what=said)
        assert (status(lake.settings, "squares").behind_seconds or 0) > 0
        assert time.time() - status(lake.settings, "squares").at < 5

        (lake.spool / "antidote").touch()
        resume(lake.settings, "squares")
        until(lambda: (status(lake.settings, "squares").batch or 0) >= 1, what=said)
        assert status(lake.settings, "squares").why == ""
        until(lambda: status(lake.settings, "squares").unread_commits == 0, what=said)
    assert sorted(row["n"] for row in lake.read(SQUARE).collect()) == [4, 9, 169]


def impatient(lake: Lake, attempts: int = 2) -> Lake:
    """The lake of jobs whose batches are poison so soon."""
    jobs = lake.settings.jobs.model_copy(update={"max_batch_failures": attempts})
    return Lake(lake.spark, lake.settings.model_copy(update={"jobs": jobs}))


@pytest.mark.full
def test_poison_stays_poison_for_the_drivers_that_follow(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    register(monkeypatch, "squares", squares)
    lake = impatient(lake)
    lake.ensure(NUMBER, SQUARE)
    lake.add(NUMBER, [{"n": 13}], "test")
    with running(lake, "squares", form=lambda line: log_line_json(line, {})) as said:
        until(lambda: any("failed, again in" in line for line in said), what=said)
    told = [json.loads(line) for line in said if "failed, again in" in line]
    assert [(one["job"], one["batch"]) for one in told] == [("squares", 0)]

    # Its failures count on; then a driver of this job alone ends.
    with running(lake, "squares") as said:
        until(lambda: any("batch 0 failed 2 times in a row" in line for line in said), what=said)
    assert not any("again in" in line for line in said)

    # The next one stops it at once, beside others, and begins nothing where it is alone.
    with running(lake, "squares") as said:
        until(lambda: said, what=said)
    assert said[0].startswith("job squares: stopped for good: batch 0 failed 2 times in a row")
    assert "(so since 20" in said[0]
    assert Driver(lake.settings, ("squares",), tell=said.append).run() == 1
    assert said[-1] == said[0]
    assert status(lake.settings, "squares").state == "failed"

    # No driver runs: a person's word holds for the next one.
    written(lake.settings, replace(status(lake.settings, "squares"), at=time.time() - 60))
    assert main(["--home", str(lake.settings.home), "jobs", "resume", "squares"]) == 0
    assert "job squares: goes on with the next driver" in capsys.readouterr().err
    assert status(lake.settings, "squares").state == "stopped"
    assert main(["--home", str(lake.settings.home), "jobs", "resume", "squares"]) == 2
    (lake.spool / "antidote").touch()
    with running(lake, "squares") as said:
        until(lambda: status(lake.settings, "squares").batch == 0, what=said)
    assert [row["n"] for row in lake.read(SQUARE).collect()] == [169]
    assert not (lake.settings.checkpoint_root / "squares" / "poison.json").exists()


def fragile(lake: Lake, *, once: bool) -> Job:
    """The same, which rests on something that may be away."""
    if (lake.spool / "away").exists():
        raise Retryable("the broker is away")
    return squares(lake, once=once)


@pytest.mark.full
def test_failures_before_and_after_one_from_outside_are_not_in_a_row_for_the_next_driver_either(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    register(monkeypatch, "squares", fragile)
    lake = impatient(lake)
    lake.ensure(NUMBER, SQUARE)
    lake.add(NUMBER, [{"n": 13}], "test")
    folder = lake.settings.checkpoint_root / "squares"
    away = lake.spool / "away"
    away.parent.mkdir(exist_ok=True)
    for why, failures in (("13 is not", 1), ("broker is away", 0), ("13 is not", 1)):
        away.touch() if "away" in why else away.unlink(missing_ok=True)
        with running(lake, "squares") as said:
            until(lambda: any("again in" in line for line in said), what=said)
        assert why in next(line for line in said if "again in" in line)
        found = failed_batch.read_failures(folder)
        assert found is not None
        assert (found.batch, found.failures) == (0, failures)


@pytest.mark.full
def test_jobs_in_whose_batches_drivers_ended_begin_one_after_the_other(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Under `up` all have a batch under way when the driver ends, and one of them is why."""
    register(monkeypatch, "held", held)
    register(monkeypatch, "other", other)
    register(monkeypatch, "squares", squares)
    lake.ensure(NUMBER, SQUARE)
    for job, times in (("other", 3), ("held", 4), ("squares", 2)):
        for _ in range(times):
            failed_batch.ended(job, lake.settings.checkpoint_root / job, 0, 6)
    LET_GO.clear()
    with running(lake, "other", "squares", "held") as said:
        try:
            until(lambda: "job squares: running" in said, what=said)
            time.sleep(3)
            assert said[0] == "job held: running"
            assert said[1].startswith("job other: waits for job held: ")
            assert "job other: running" not in said
        finally:
            LET_GO.set()
        until(lambda: "job other: running" in said, what=said)


@pytest.mark.full
def test_a_clock_set_back_starts_the_jobs_anew_and_holds_up_maintenance(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    register(monkeypatch, "squares", squares)
    moved = [0.0]
    monkeypatch.setattr(
        job_supervisor, "clock", clock := ForwardClock(lambda: time.time() + moved[0])
    )
    monkeypatch.setattr(maintenance, "clock", clock)
    lake.ensure(NUMBER, SQUARE)
    lake.add(NUMBER, [{"n": 2}], "test")
    with running(lake, "squares") as said:
        until(lambda: status(lake.settings, "squares").batch == 0, what=said)
        moved[0] = -10_800.0
        until(lambda: said.count("job squares: running") == 2, what=said)
        assert "job squares: started anew, since the clock was set back" in said
        (jump,) = (line for line in said if "the clock jumped" in line)
        assert "3.0 hours back" in jump
        lake.add(NUMBER, [{"n": 3}], "test")
        until(lambda: status(lake.settings, "squares").batch == 1, what=said)

        every = Every("tables", ("tables",), 0.005, lake.settings, said.append, clock.doubt)
        every.start()
        until(lambda: "tables: not now, the clock jumped 3.0 hours back" in said, what=said)
        every.stop()
        assert not (lake.settings.home / "tables.log").exists()
        maintenance.tend(lake, NUMBER, said.append)
        assert said[-1] == "silver.number: left as it is, the clock jumped 3.0 hours back"
        moved[0] = 0.0
        until(lambda: "the clock is right again" in said, what=said)
        assert said.count("job squares: running") == 2, "what goes ahead stops nothing"
    assert sorted(row["n"] for row in lake.read(SQUARE).collect()) == [4, 9]


LET_GO = threading.Event()


def held(lake: Lake, *, once: bool) -> Job:
    """A job whose first batch lasts until it is let go."""
    return lake.each_batch(
        "held", lake.stream(NUMBER), lambda rows, run: LET_GO.wait(60), trigger_seconds=0.1
    )


@pytest.mark.full
@pytest.mark.parametrize("patience", [600.0, 1.0])
def test_a_job_starts_once_the_one_before_it_has_had_a_batch_or_after_a_while(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, patience: float
) -> None:
    register(monkeypatch, "held", held)
    register(monkeypatch, "other", other)
    delay(monkeypatch, "other", Later(patience, "held"))
    lake.ensure(NUMBER)
    LET_GO.clear()
    with running(lake, "held", "other") as said:
        try:
            until(lambda: "job held: running" in said, what=said)
            if patience > 60:
                time.sleep(3)
                assert "job other: running" not in said
            else:
                until(lambda: "job other: running" in said, what=said)
        finally:
            LET_GO.set()
        until(lambda: "job other: running" in said, what=said)


@pytest.mark.full
def test_a_job_with_little_state_waits_for_none(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    register(monkeypatch, "held", held)
    register(monkeypatch, "other", other)
    delay(monkeypatch, "other", Later(600.0, "held", state_bytes=1))
    lake.ensure(NUMBER)
    LET_GO.set()
    with running(lake, "held", "other") as said:
        until(lambda: "job other: running" in said, what=said)


def test_state_counts_with_its_former_versions(tmp_path: Path) -> None:
    assert state_below(tmp_path, 1)
    assert not state_below(tmp_path, 0), "who names no bound waits always"
    kept = tmp_path / "spark" / "state" / "0" / "1"
    kept.mkdir(parents=True)
    for version in range(3):
        (kept / f"{version}.delta").write_bytes(b"x" * 10_000)
    assert state_below(tmp_path, 64_000)
    assert not state_below(tmp_path, 30_000)


def test_a_first_batch_is_left_alone_for_a_while() -> None:
    first = WatchedJob("first", SimpleNamespace(pulse=Pulse()))  # type: ignore[arg-type]
    assert not out_of_the_way(first, 0.0), "it had no batch yet"
    assert first.job is not None
    first.job.pulse.ended(7, 1.0)
    assert not out_of_the_way(first, 600.0)
    assert out_of_the_way(first, 0.0)
    first.stopped_for = "its checkpoint is damaged"
    assert out_of_the_way(first, 600.0)


@pytest.mark.full
def test_a_job_alone_waits_for_none(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    register(monkeypatch, "other", other)
    delay(monkeypatch, "other", Later(600.0, "squares"))
    lake.ensure(NUMBER)
    with running(lake, "other") as said:
        until(lambda: said, what=said)
        assert said[0] == "job other: running"


def other(lake: Lake, *, once: bool) -> Job:
    """A job that is always well."""
    return lake.each_batch(
        "other", lake.stream(NUMBER), lambda rows, run: None, trigger_seconds=0.5
    )


def refused(lake: Lake, *, once: bool) -> Job:
    """A job that refuses its batches: the sixes by name."""

    def batch(rows: DataFrame, run: Batch) -> None:
        if rows.where("n = 6").count():
            raise Fatal("a 6 is there; take it away")
        raise ValueError("a bug")

    return lake.each_batch("refused", lake.stream(NUMBER), batch, trigger_seconds=None)


@pytest.mark.parametrize("number", rest_full(1, [6, 7]))
def test_a_run_of_one_job_ends_with_our_sentence_and_a_bug_with_all_there_is(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    register(monkeypatch, "refused", refused)
    lake.ensure(NUMBER)
    lake.add(NUMBER, [{"n": number}], "test")
    ours = Driver(lake.settings, ("refused",), once=True)
    if number == 6:
        with pytest.raises(Fatal) as told:
            ours._through(lake, [WatchedJob("refused")])
        assert str(told.value) == "job refused: a 6 is there; take it away"
    else:
        with pytest.raises(StreamingQueryException, match="ValueError: a bug"):
            ours._through(lake, [WatchedJob("refused")])


def away(lake: Lake, *, once: bool) -> Job:
    """A job that cannot even begin."""
    raise Retryable("the broker is away")


def test_a_job_that_cannot_begin_is_tried_less_and_less_often(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    register(monkeypatch, "away", away)
    settings, said = lake.settings, list[str]()
    one = WatchedJob("away", started=-1e6)
    round_ = over(lake, Driver(settings, ("away",), tell=said.append), one)
    for _ in range(3):
        one.again_at = 0.0
        round_._look(one)
    assert said == [
        f"job away: failed, again in {seconds:.0f} s: the broker is away" for seconds in PAUSES[:3]
    ]
    assert status(settings, "away").failures == 3


def locked(lake: Lake, *, once: bool) -> Job:
    """A job whose checkpoint another process has."""
    raise Taken("job locked already runs (process 7)")


@pytest.mark.parametrize("ran", rest_full(1, [True, False]))
def test_a_lock_that_is_taken_meanwhile_is_waited_for(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, ran: bool
) -> None:
    """A command may look whether the job runs; at a driver's start it is another driver."""
    register(monkeypatch, "locked", locked)
    settings, said = lake.settings, list[str]()
    one = WatchedJob("locked", started=-1e6, again_at=0.0, ran=ran)
    ours = Driver(settings, ("locked",), tell=said.append)
    over(lake, ours, one)._look(one)
    assert (one.stopped_for is None) is ran
    assert ("failed, again in" in said[0]) is ran
    assert "job locked already runs (process 7)" in said[0]


def fresh(lake: Lake, *, once: bool) -> Job:
    """A job that takes its lock, and comes no further."""
    JobLock(lake.settings.checkpoint_root / "fresh", "fresh").release()
    raise Retryable("the broker is away")


@pytest.mark.full
def test_a_job_that_would_begin_beside_a_backup_is_tried_until_that_is_done(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    register(monkeypatch, "fresh", fresh)
    settings, said = lake.settings, list[str]()
    one = WatchedJob("fresh", started=-1e6, again_at=0.0)
    ours = Driver(settings, ("fresh",), tell=said.append)
    round_ = over(lake, ours, one)
    backup = ExclusiveLock(settings.checkpoint_root / "lock", str)
    round_._look(one)
    assert said[0].startswith("job fresh: failed, again in 1 s: job fresh cannot begin: a backup")
    assert not (settings.checkpoint_root / "fresh").exists()
    backup.release()
    one.again_at = 0.0
    round_._look(one)
    assert "the broker is away" in said[1]


def test_a_driver_begins_when_the_backup_is_done(tmp_path: Path) -> None:
    settings, said = load(home=tmp_path), list[str]()
    backup = ExclusiveLock(settings.checkpoint_root / "lock", str)
    with pytest.raises(Retryable, match="the driver cannot begin: a backup is under way"):
        Driver(settings, ("ingest",), once=True)._admitted()
    stopped = Driver(settings, ("ingest",), tell=said.append)
    stopped.stop()
    assert stopped._admitted() is None
    waits = Driver(settings, ("ingest",), tell=said.append)
    threading.Timer(1.5, backup.release).start()
    admitted = waits._admitted()
    assert admitted is not None
    assert len(said) == 2, "each of them says it once"
    with pytest.raises(Taken):
        ExclusiveLock(settings.checkpoint_root / "lock", str)
    admitted.release()
    ExclusiveLock(settings.checkpoint_root / "lock", str).release()


def numbers(lake: Lake, *, once: bool) -> Job:
    """A job that reads a table and rests for long."""

    def batch(rows: DataFrame, run: Batch) -> None:
        lake.append(rows.selectExpr("n * n AS n"), SQUARE, run)

    pause = None if once else 20.0
    return lake.each_batch(
        "numbers", lake.stream(NUMBER, job="numbers"), batch, trigger_seconds=pause
    )


@pytest.mark.full
def test_a_job_that_reads_a_table_and_is_behind_neither_rests_nor_is_started_anew(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    register(monkeypatch, "numbers", numbers)
    pace = {"max_offsets_per_batch": 100, "least_offsets_per_batch": 1}
    jobs = lake.settings.jobs.model_copy(update=pace)
    ours = Lake(lake.spark, lake.settings.model_copy(update={"jobs": jobs}))
    ours.ensure(NUMBER, SQUARE)
    ours.add(NUMBER, [{"n": 300}], "test")
    numbers(ours, once=True).wait()
    for number in range(25):
        ours.add(NUMBER, [{"n": 12 * number + n} for n in range(12)], "test")

    def squares_by_batch() -> list[int]:
        return [found.rows for found in newest_first(ours.folder(SQUARE)) if found.rows][::-1]

    with running(ours, "numbers") as said:
        until(lambda: sum(squares_by_batch()) == 301, what=said, seconds=18)
        until(lambda: status(ours.settings, "numbers").regime == "steady", what=said)
        assert status(ours.settings, "numbers").cap == 100
    assert squares_by_batch() == [1, 96, 96, 96, 12], "whole commits, at most a hundred rows"
    assert [line for line in said if "numbers" in line] == ["job numbers: running"]
    assert sorted(r["n"] for r in ours.read(SQUARE).collect()) == [n * n for n in range(301)]


@pytest.mark.full
def test_a_backlog_is_worked_off_in_large_batches_and_then_they_are_small_again(
    lake: Lake, broker: Broker
) -> None:
    prefix = f"pace{time.monotonic_ns()}."
    kafka = {"bootstrap": broker.address, "topic_prefix": prefix, "tick_topic": f"{prefix}tick"}
    pace = {
        "least_offsets_per_batch": 50,
        "steady_batch_seconds": 0.001,
        "behind_batch_seconds": 20,
    }
    settings = load(home=lake.settings.home, kafka=kafka, jobs=pace)
    topic = topic_of("sshd", settings.kafka)
    client = admin(settings.kafka)
    stamped = {"message.timestamp.type": "LogAppendTime"}
    wanted = [NewTopic(name, 1, config=stamped) for name in (topic, settings.kafka.tick_topic)]
    for made in client.create_topics(wanted).values():
        made.result(20)
    sender = producer(settings.kafka)
    for number in range(2_000):
        sender.produce(topic, f"line {number}".encode())
    assert sender.flush(60) == 0

    ours = Lake(lake.spark, settings)
    ticker = Ticker(settings.kafka).start()
    try:
        with running(ours, "ingest") as said:
            until(lambda: status(settings, "ingest").regime == "steady", what=said)
            assert status(settings, "ingest").cap == 50
            for number in range(2_000, 2_020):
                sender.produce(topic, f"line {number}".encode())
            assert sender.flush(60) == 0
            until(lambda: arrived(ours) == 2_020, what=said)
            until(lambda: status(settings, "ingest").complete_to is not None, what=said)
    finally:
        ticker.stop()
    # It starts with a large cap, comes down to the small one, and is not started a third time.
    starts = [line for line in said if "job ingest: running" in line]
    assert "behind, up to" in starts[0]
    assert starts[1:] == ["job ingest: running (steady, up to 50 messages a batch)"]
    rows = ours.read(RECORD).selectExpr("string(raw) AS raw").collect()
    assert {row["raw"] for row in rows} == {f"line {number}" for number in range(2_020)}
