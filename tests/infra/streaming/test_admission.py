"""What a batch takes from Delta tables: whole commits, within memory, whatever waits."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import DataFrame
from pyspark.sql import types as T

from infra.delta.log_reader import versions
from infra.delta.parquet_writer import FileWriter, Target, arrow_schema
from infra.delta.schema import Column, Table
from infra.delta.transaction import commit_files as commit_files
from infra.errors import Retryable
from infra.streaming import admission
from infra.streaming.admission import (
    GUESS,
    AdmissionBudget,
    CommitPiece,
    TableOffset,
    commit_pieces,
    commits_ahead,
    files_of,
    insisting,
    paced,
    place,
    together,
)
from infra.streaming.batch import Batch
from infra.streaming.job import Job
from infra.streaming.lake import Lake
from infra.streaming.rate_controller import BatchSeen, Learned, Pace, RateLimits
from tests.wait import until

READING = Table(
    "silver.reading",
    "readings that arrive",
    (Column("n", T.LongType(), "a number"), Column("at", T.TimestampType(), "when it came")),
)
LIMITS = RateLimits(
    most=1_000_000, least=10, steady_seconds=3.0, behind_seconds=30.0, memory=1 << 29
)
START = datetime(2026, 3, 1, tzinfo=UTC)

sizes = st.builds(
    CommitPiece,
    version=st.just(0),
    files=st.integers(0, 4),
    rows=st.integers(0, 1_000),
    bytes=st.integers(0, 10_000),
    at=st.floats(0, 100),
)


def test_a_place_is_read_from_a_line_of_the_checkpoint() -> None:
    told = {"sourceVersion": 1, "reservoirId": "t", "reservoirVersion": 7, "index": -1}
    assert place(json.dumps(told)) == ("t", TableOffset(7))
    assert place(json.dumps(told | {"index": 2})) == ("t", TableOffset(7, 2))
    assert place(json.dumps(told | {"isStartingVersion": True})) is None
    assert place("-") is None
    assert place('{"logs.sshd":{"0":5}}') is None


@given(st.lists(st.lists(sizes, max_size=12), max_size=4), st.integers(1, 4_000))
def test_a_batch_is_within_its_budget_but_for_one_commit_of_each_table(tables, rows) -> None:
    counts = together(tables, AdmissionBudget(rows, 10**9))
    assert [count > 0 for count in counts] == [bool(table) for table in tables]
    taken = [table[:count] for table, count in zip(tables, counts, strict=True)]
    more = [piece.rows for table in taken for piece in table[1:]]
    assert sum(more) <= rows


def test_tables_are_read_side_by_side_in_the_order_in_which_they_were_written() -> None:
    slow = [CommitPiece(v, 2, 100, 1, at=10.0 * v) for v in range(10)]
    quick = [CommitPiece(v, 1, 1, 1, at=1.0 * v) for v in range(95)]
    assert together([slow, quick], AdmissionBudget(540, 10**9)) == [5, 40]
    assert together([slow, quick], AdmissionBudget(10**6, 10**9)) == [10, 95]
    # What was written while a clock was behind keeps its place in its own table.
    assert together(
        [[CommitPiece(1, 1, 9, 1, at=50.0), CommitPiece(2, 1, 9, 1, at=0.0)]],
        AdmissionBudget(9, 99),
    ) == [1]


def test_rows_that_are_large_are_bounded_by_their_bytes() -> None:
    waiting = [CommitPiece(v, 1, 10, 1_000_000) for v in range(9)]
    assert together([waiting], AdmissionBudget(10**6, 3_500_000)) == [3]
    found, whole = commits_ahead(iter(waiting), AdmissionBudget(10**6, 3_500_000))
    assert (len(found), whole) == (4, False)


def test_commits_without_rows_for_a_stream_are_passed_over() -> None:
    merged, data = CommitPiece(1, 0, 0, 0), CommitPiece(2, 2, 9, 9)
    assert commits_ahead(iter([merged, data, merged]), AdmissionBudget(10**6, 10**6)) == (
        [data],
        True,
    )
    assert commits_ahead(
        iter([merged] * admission.MOST_VERSIONS), AdmissionBudget(10**6, 10**6)
    ) == ([], False)


def test_no_limit_of_delta_itself_cuts_a_commit() -> None:
    def waiting(commits: int) -> list[CommitPiece]:
        return [CommitPiece(v, 13, 200, 1) for v in range(commits)]

    assert files_of([], 0, True) == admission.ALL
    assert files_of(waiting(30), 30, True) == admission.ALL, "and what comes meanwhile"
    assert files_of(waiting(30), 30, False) == 390, "there is more"
    assert files_of(waiting(30), 20, True) == 260
    assert files_of(waiting(100), 100, True) == 1_300, "all of it, as 1,000 would cut one"


def test_a_store_that_fails_for_a_moment_is_asked_again() -> None:
    def failing(times: int) -> tuple[list[int], Callable[[], None]]:
        asked: list[int] = []

        def step() -> None:
            asked.append(1)
            if len(asked) <= times:
                raise Retryable("the store is busy")

        return asked, step

    asked, step = failing(2)
    insisting(step, pause=0)
    assert len(asked) == 3
    asked, step = failing(3)
    with pytest.raises(Retryable):
        insisting(step, pause=0)
    assert len(asked) == 3


@given(lefts=st.lists(st.integers(0, 10**7), max_size=30))
def test_the_pace_follows_what_waits_and_keeps_to_the_limits(lefts) -> None:
    pace = Pace("steady", 1)
    for left in lefts:
        pace = paced(pace, left, GUESS, LIMITS)
        assert 1 <= pace.cap <= LIMITS.most
        assert pace.cap * 100 * 20 <= LIMITS.memory, "a row of 100 bytes takes 2 KB in memory"
        if pace.regime == "steady":
            assert left <= pace.cap


def test_between_two_thresholds_the_regime_stays() -> None:
    steady = paced(Pace("steady", 1), 0, GUESS, LIMITS)
    behind = paced(steady, steady.cap + 1, GUESS, LIMITS)
    assert (steady.regime, behind.regime) == ("steady", "behind")
    assert behind.cap > 5 * steady.cap
    some = steady.cap * 2 // 3
    assert paced(steady, some, GUESS, LIMITS).regime == "steady"
    assert paced(behind, some, GUESS, LIMITS).regime == "behind"
    assert paced(behind, steady.cap // 2, GUESS, LIMITS) == steady


def test_a_cap_grows_with_what_was_learned_and_shrinks_with_what_rows_weigh() -> None:
    def taught(rows_a_second: float, row_bytes: int) -> Learned:
        learned = GUESS
        for rows in (1_000, 9_000, 4_000):
            seen = BatchSeen(rows, rows * row_bytes, 2.0 + rows / rows_a_second, 0, 0)
            learned = learned.seen(seen)
        return learned

    first = paced(Pace("behind", 1), 10**7, GUESS, LIMITS)
    quick = paced(Pace("behind", 1), 10**7, taught(100_000.0, 20), LIMITS)
    heavy = paced(Pace("behind", 1), 10**7, taught(100_000.0, 2_000), LIMITS)
    assert quick.cap == LIMITS.most > first.cap
    assert heavy.cap == pytest.approx(LIMITS.memory / 20 / 2_000, rel=0.01)


# -- with streams ----------------------------------------------------------------------------------


def add(lake: Lake, hour: int, files: int = 2, rows: int = 50) -> None:
    """A commit of some files; what they hold came within an hour, each file all over it."""
    written = []
    for number in range(files):
        writer = FileWriter(Target.of(READING, lake.folder(READING), "t-"))
        first = (hour * files + number) * rows
        apart = timedelta(hours=1) / rows
        held = [
            {"n": first + n, "at": START + timedelta(hours=hour) + n * apart} for n in range(rows)
        ]
        writer.write(pa.RecordBatch.from_pylist(held, schema=arrow_schema(READING)))
        file = writer.close()
        assert file is not None
        written.append(file)
    commit_files(lake.spark, lake.path(READING), written, "test")


def kept(seen: list[list[int]], rows: DataFrame, run: Batch) -> None:
    seen.append(sorted(row["n"] for row in rows.select("n").collect()))


def reading(lake: Lake, seen: list[list[int]], pause: float | None, *, sized: bool = True) -> Job:
    """A job that refuses what comes later than its watermark of five seconds."""
    stream = lake.stream(READING, job="reading") if sized else lake.stream(READING, 1)
    rows = stream.withWatermark("at", "5 seconds").dropDuplicates(["n", "at"])

    def batch(rows: DataFrame, run: Batch) -> None:
        kept(seen, rows, run)

    return lake.each_batch("reading", rows, batch, trigger_seconds=pause)


def limited(lake: Lake, most: int) -> Lake:
    update = {"max_offsets_per_batch": most, "least_offsets_per_batch": 1}
    jobs = lake.settings.jobs.model_copy(update=update)
    return Lake(lake.spark, lake.settings.model_copy(update={"jobs": jobs})).ensure(READING)


def through(seen: Sequence[Sequence[int]], rows: int, seconds: float = 60) -> None:
    until(lambda: sum(map(len, seen)) >= rows, seconds=seconds)


def rested(pause: float) -> None:
    """Wait until most of a pause is left: Spark begins batches at whole multiples of it."""
    until(lambda: 0.5 < time.time() % pause < pause / 2)


def look(job: Job) -> admission.Intake:
    """Let a job that rests look at what has come; seconds of its pause are minutes elsewhere."""
    assert job._intake is not None
    job._intake._looked = 0.0
    job.look()
    return job._intake


def places(lake: Lake) -> list[TableOffset]:
    """Where the batches of the job ended."""
    folder = lake.settings.checkpoint_root / "reading" / "spark" / "offsets"
    found = sorted((int(one.name), one) for one in folder.iterdir() if one.name.isdigit())
    told = [place(one.read_text().splitlines()[2]) for _, one in found]
    return [one[1] for one in told if one is not None]


@pytest.mark.full
def test_a_limit_in_files_loses_rows_of_a_commit_that_it_cuts(lake: Lake) -> None:
    """What this is for: each file's rows reach back an hour behind what the first one reached.

    Spark lets pass what is late by the batch before alone, and not what comes after that.
    """
    ours = limited(lake, 1_000)
    for hour in range(3):
        add(ours, hour, files=4)
    seen: list[list[int]] = []
    reading(ours, seen, None, sized=False).wait()
    assert sum(map(len, seen)) == 3 * (50 + 50 + 1 + 1)


@pytest.mark.full
def test_a_job_that_is_behind_takes_whole_commits_within_its_limit_and_does_not_rest(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(admission, "LONG", 1.0)
    ours = limited(lake, 350)
    add(ours, 0)
    seen: list[list[int]] = []
    job = reading(ours, seen, 4.0)
    try:
        through(seen, 100)
        for hour in range(1, 16):
            add(ours, hour)
            look(job)
        through(seen, 1_600)
        until(lambda: job.pulse.regime == "steady")
        told = [json.loads(one.json) for one in job.query.recentProgress]
    finally:
        job.stop()
    sizes = [len(rows) for rows in seen if rows]
    assert all(size % 100 == 0 for size in sizes), "whole commits"
    assert max(sizes) <= 350 + 100, "its limit, and what came since it was last looked at"
    assert sorted(n for rows in seen for n in rows) == list(range(1_600)), "none came too late"
    begun = [
        (datetime.fromisoformat(one["timestamp"]), one["durationMs"]["triggerExecution"] / 1000)
        for one in told
        if one["numInputRows"]
    ]
    rests = [
        (after - before).total_seconds() - took for (before, took), (after, _) in pairwise(begun)
    ]
    assert max(rests[-2:]) < 1.0, "behind, one batch follows the other"


@pytest.mark.full
def test_the_first_batch_after_an_outage_is_bounded_too(lake: Lake) -> None:
    ours = limited(lake, 350)
    add(ours, 0)
    seen: list[list[int]] = []
    reading(ours, seen, None).wait()
    for hour in range(1, 9):
        add(ours, hour)
    job = reading(ours, seen, 30.0)
    try:
        through(seen, 900, seconds=25)
    finally:
        job.stop()
    assert [len(rows) for rows in seen if rows] == [100, 300, 300, 200]
    ends = places(ours)
    assert [end.index for end in ends] == [-1] * len(ends), "each batch ends with a commit"
    found = list(commit_pieces(ours.folder(READING), "told", TableOffset(2)))
    assert [piece.version for piece in found] == versions(ours.folder(READING))[2:]
    assert {(piece.files, piece.rows) for piece in found} == {(2, 100)}
    rest = next(commit_pieces(ours.folder(READING), "told", TableOffset(2, 0)))
    assert (rest.files, rest.rows) == (1, 50)


@pytest.mark.full
def test_what_comes_after_a_start_with_nothing_to_do_is_bounded_while_the_job_rests(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(admission, "LONG", 1.0)
    ours = limited(lake, 350)
    add(ours, 0)
    seen: list[list[int]] = []
    reading(ours, seen, None).wait()
    job = reading(ours, seen, 20.0)
    try:
        until(lambda: job.query.status["message"] == "Waiting for next trigger")
        rested(20.0)
        for hour in range(1, 10):
            add(ours, hour)
        look(job)
        through(seen, 1_000)
    finally:
        job.stop()
    assert [len(rows) for rows in seen if rows] == [100, 300, 300, 300]


@pytest.mark.full
def test_a_store_that_is_away_while_a_job_rests_leaves_its_limit_as_it_is(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(admission, "LONG", 1.0)
    ours = limited(lake, 350)
    add(ours, 0)
    seen: list[list[int]] = []
    job = reading(ours, seen, 60.0)
    try:
        through(seen, 100)
        until(lambda: not job.pulse.under_way)
        rested(60.0)
        for hour in range(1, 10):
            add(ours, hour)
        query = look(job)._query
        assert query is not None
        before = query._limits
        assert before == [6], "three commits of two files"
        monkeypatch.setattr(admission, "commit_pieces", gone)
        look(job)
        assert query._limits == before
    finally:
        job.stop()
    assert "cannot be set" not in capsys.readouterr().err


def gone(*_: object) -> Iterator[CommitPiece]:
    raise Retryable("the store is away")
