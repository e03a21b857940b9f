"""A short Delta log: what leaves it can still be read, and nothing leaves that a stream needs."""

from __future__ import annotations

import json
import os
import time
from dataclasses import replace
from datetime import timedelta
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import DataFrame
from pyspark.sql import types as T

from infra.delta import log_archive
from infra.delta.duckdb_views import open_engine
from infra.delta.log_archive import ARCHIVE, LOG
from infra.delta.log_reader import (
    checkpoints,
    commit,
    commit_text,
    live_versions,
    newest_first,
    oldest_version,
    versions,
)
from infra.delta.schema import Column, Table
from infra.delta.time_travel import instant_of_version, lend
from infra.errors import Fatal, Usage
from infra.maintenance import maintenance
from infra.streaming import log_retention
from infra.streaming.batch import Batch
from infra.streaming.lake import Lake
from infra.streaming.log_retention import archive_commits, forget_archived

COLUMNS = (Column("n", T.LongType(), "a number"),)
TABLE = Table(
    "silver.visit", "numbers as they come", COLUMNS, properties={"delta.checkpointInterval": "10"}
)
SEEN = replace(TABLE, name="gold.seen")
LATER = 86_400.0


def fill(lake: Lake, until: int) -> Path:
    """`until` commits with one number each, after the one that makes the table."""
    for n in range(lake.version(TABLE), until):
        lake.add(TABLE, [{"n": n + 1}], "test")
    return lake.folder(TABLE)


def numbers(rows: DataFrame) -> list[int]:
    return sorted(row["n"] for row in rows.collect())


def by_duckdb(path: str) -> list[int]:
    engine = open_engine(memory="300MB", threads=1)
    return [
        n for (n,) in engine.execute(f"SELECT n FROM delta_scan('{path}') ORDER BY n").fetchall()
    ]


@pytest.fixture
def small_packs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_retention, "PACK", 10)


@pytest.mark.full
@pytest.mark.usefixtures("small_packs")
def test_what_left_the_log_is_read_as_before(lake: Lake) -> None:
    folder = fill(lake.ensure(TABLE), 34)
    before = {version: commit(folder, version) for version in versions(folder)}
    assert archive_commits(folder, 34, time.time() + LATER) == 30
    assert live_versions(folder) == [30, 31, 32, 33, 34]
    assert checkpoints(folder / LOG) == [30]
    assert [file.name for file in sorted((folder / LOG).glob("*0029*"))] == []
    assert sorted((first, last) for first, last, _ in log_archive.archive_packs(folder)) == [
        (0, 9), (10, 19), (20, 29),
    ]  # fmt: skip
    assert versions(folder) == list(range(35)) == sorted(before)
    assert versions(folder, 32) == [32, 33, 34]
    assert versions(folder, 25) == list(range(25, 35))
    assert oldest_version(folder) == 0
    assert {version: commit(folder, version) for version in before} == before
    assert [one.version for one in newest_first(folder)] == list(range(34, -1, -1))

    assert numbers(lake.read(TABLE)) == by_duckdb(lake.path(TABLE)) == list(range(1, 35))
    for version in (7, 20, 29, 31):
        assert numbers(lake.read(TABLE, version)) == list(range(1, version + 1))
    lake.add(TABLE, [{"n": 35}], "test")
    assert numbers(lake.read(TABLE)) == list(range(1, 36))
    assert archive_commits(folder, 35, time.time() + LATER) == 0

    # Delta's own clean-up of files leaves the archive and what is read from it alone.
    maintenance.vacuum(lake, TABLE, timedelta(0))
    assert commit(folder, 3) == before[3]
    assert numbers(lake.read(TABLE, 7)) == list(range(1, 8))


@pytest.mark.full
@pytest.mark.usefixtures("small_packs")
def test_what_a_reader_is_lent_is_little_and_stays_while_it_may_be_read(lake: Lake) -> None:
    folder = fill(lake.ensure(TABLE), 54)
    archive_commits(folder, 54, time.time() + LATER)
    assert live_versions(folder)[0] == 50
    assert not instant_of_version(folder, 27)
    lend(folder, 27)
    assert instant_of_version(folder, 27)
    assert not instant_of_version(folder, 37)
    assert log_archive.singles(folder / LOG) == [*range(20, 28), *range(50, 55)]
    # Readers of Delta that know nothing of the archive see that version, and the newest.
    plain = lake.spark.read.format("delta")
    assert numbers(plain.option("versionAsOf", 27).load(str(folder))) == list(range(1, 28))
    engine = open_engine(memory="300MB", threads=1)
    counted = "SELECT count(*) FROM delta_scan($1, version => {})"
    for version in (27, 54):
        found = engine.execute(counted.format(version), [str(folder)]).fetchall()
        assert found == [(version,)]
    assert by_duckdb(str(folder)) == numbers(lake.read(TABLE)) == list(range(1, 55))
    assert (live_versions(folder)[0], versions(folder)) == (50, list(range(55)))

    assert archive_commits(folder, 54, time.time() - 600) == 0
    fill(lake, 64)
    for version in range(50, 65):
        age(folder, version)
    assert archive_commits(folder, 64, time.time() - 600) == 10
    assert log_archive.singles(folder / LOG) == [*range(20, 28), *range(60, 65)]
    assert instant_of_version(folder, 27)
    assert archive_commits(folder, 64, time.time() + LATER) == 8
    assert log_archive.singles(folder / LOG) == list(range(60, 65))
    assert checkpoints(folder / LOG) == [60]
    assert versions(folder) == list(range(65))


@pytest.mark.full
def test_a_stream_that_lags_holds_the_log_and_misses_nothing(
    lake: Lake, capsys: pytest.CaptureFixture[str]
) -> None:
    def once() -> None:
        def batch(rows: DataFrame, run: Batch) -> None:
            lake.append(rows, SEEN, run)

        lake.each_batch("watch", lake.stream(TABLE), batch, trigger_seconds=None).wait()

    folder = fill(lake.ensure(TABLE, SEEN), 14)
    once()
    fill(lake, 34)
    for version in live_versions(folder):
        age(folder, version)
    with lake.alone(TABLE):
        log_retention.retire(lake.settings, folder)
    assert live_versions(folder) == list(range(10, 35)), "from the checkpoint before what is unread"
    once()
    assert numbers(lake.read(SEEN)) == list(range(1, 35))
    maintenance.tend(lake, TABLE)
    assert live_versions(folder)[0] == 10, "Spark lists the batch before once more"
    lake.add(TABLE, [{"n": 35}], "test")
    once()
    assert numbers(lake.read(SEEN)) == list(range(1, 36))
    maintenance.tend(lake, TABLE)
    assert live_versions(folder)[0] == 30
    lake.add(TABLE, [{"n": 36}], "test")
    once()
    assert numbers(lake.read(SEEN)) == list(range(1, 37))

    # Its checkpoint was not there for a while, so nothing held the log.
    for n in range(37, 65):
        lake.add(TABLE, [{"n": n}], "test")
    newest = lake.version(TABLE)
    assert archive_commits(folder, newest, time.time() + LATER) > 20
    assert live_versions(folder)[0] == 60
    once()
    assert numbers(lake.read(SEEN)) == list(range(1, 65))
    assert live_versions(folder)[0] <= 36
    assert "commits of silver.visit are put back into its log" in capsys.readouterr().err
    assert versions(folder) == list(range(newest + 1))
    assert archive_commits(folder, newest, time.time() + LATER) > 0
    assert (live_versions(folder)[0], versions(folder)) == (60, list(range(newest + 1)))


def age(folder: Path, version: int) -> None:
    """As if a commit had been made a day ago."""
    when = time.time() - LATER
    os.utime(log_archive.single(folder / LOG, version), (when, when))


@pytest.mark.full
def test_a_job_keeps_the_logs_of_what_it_writes_short(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("infra.streaming.lake.RETIRE_EVERY", 10)
    folder = fill(lake.ensure(TABLE, SEEN), 24)

    def batch(rows: DataFrame, run: Batch) -> None:
        lake.append(rows, SEEN, run)
        age(lake.folder(SEEN), run.versions[SEEN.name])

    lake.each_batch("watch", lake.stream(TABLE, 1), batch, trigger_seconds=None).wait()
    assert numbers(lake.read(SEEN)) == list(range(1, 25))
    assert lake.version(SEEN) >= 24
    assert live_versions(lake.folder(SEEN))[0] == 10
    assert versions(lake.folder(SEEN)) == list(range(lake.version(SEEN) + 1))
    assert live_versions(folder)[0] == 0, (
        "nobody wrote into it meanwhile, and maintenance was not there"
    )


@pytest.mark.full
@pytest.mark.usefixtures("small_packs")
def test_what_is_too_old_goes_and_asking_for_it_says_so(lake: Lake) -> None:
    folder = fill(lake.ensure(TABLE), 43)
    archive_commits(folder, 43, time.time() + LATER)
    assert checkpoints(folder / ARCHIVE) == [10, 20, 30]
    old = folder / ARCHIVE / f"{20:020d}.checkpoint.parquet"
    os.utime(old, (0, 0))
    os.utime(log_archive.checkpoint_file(folder / ARCHIVE, 10), (0, 0))
    assert numbers(lake.read(TABLE, 7)) == list(range(1, 8))
    assert forget_archived(folder, time.time()) == 3  # two packs and the checkpoint at 10
    assert versions(folder) == list(range(20, 44))
    assert numbers(lake.read(TABLE, 25)) == list(range(1, 26))
    with pytest.raises(Usage, match=r"silver\.visit: its version 15 is no longer kept"):
        lake.read(TABLE, 15)
    assert list((folder / ARCHIVE / "read").glob(".*")) == []
    kept = folder / ARCHIVE / "read" / "7"
    assert kept.is_dir()
    forget_archived(folder, time.time() + 2 * LATER)
    assert not kept.exists()


@pytest.mark.usefixtures("small_packs")
def test_a_log_that_is_long_already_is_shortened_bit_by_bit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_retention, "MOST_COMMITS", 12)
    made(tmp_path, range(35))
    moved = [archive_commits(tmp_path, 34, time.time() + LATER) for _ in range(4)]
    assert moved == [12, 12, 6, 0]
    assert (live_versions(tmp_path)[0], checkpoints(tmp_path / LOG)) == (30, [30])
    assert versions(tmp_path) == list(range(35))
    assert checkpoints(tmp_path / ARCHIVE) == [0, 10, 20]


@pytest.mark.usefixtures("small_packs")
def test_a_damaged_pack_is_named(tmp_path: Path) -> None:
    made(tmp_path, range(25))
    assert archive_commits(tmp_path, 24, time.time() + LATER) == 20
    pack = tmp_path / ARCHIVE / f"{0:020d}-{9:020d}.commits.gz"
    pack.write_bytes(pack.read_bytes()[:-12])
    with pytest.raises(Fatal, match=r"000-\d+9\.commits\.gz: .* restore lake and checkpoints"):
        commit_text(tmp_path, 3)
    assert json.loads(commit_text(tmp_path, 13)) == {"commitInfo": {"version": 13}}


@given(st.data())
def test_every_commit_can_be_read_at_every_moment(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    table = tmp_path_factory.mktemp("table")
    first = data.draw(st.integers(0, 25), label="first")
    newest = first + data.draw(st.integers(0, 40), label="commits")
    log = made(table, range(first, newest + 1))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(log_retention, "PACK", 10)
        for unread in sorted(data.draw(st.lists(st.integers(first, newest + 5)), label="unread")):
            archive_commits(table, unread, time.time() + LATER)
            if data.draw(st.booleans(), label="a crash after a pack was written"):
                leave_singles(table)
            assert versions(table) == list(range(first, newest + 1))
            there = live_versions(table)
            assert there[0] <= max(first, unread)
            assert there[0] == first or there[0] in checkpoints(log)
            for version in range(first, newest + 1):
                assert json.loads(commit_text(table, version)) == {
                    "commitInfo": {"version": version}
                }
    ends = sorted((one, last) for one, last, _ in log_archive.archive_packs(table))
    assert all(before[1] + 1 == after[0] for before, after in pairwise(ends))


def test_a_log_that_is_read_while_commits_leave_it_has_no_hole(tmp_path: Path) -> None:
    made(tmp_path, range(35))
    archive_commits(tmp_path, 24, time.time() + LATER)
    # The reader saw version 17 before it left, and then no more of those that left after it.
    log_archive.single(tmp_path / LOG, 17).touch()
    assert live_versions(tmp_path) == list(range(20, 35))
    assert versions(tmp_path) == list(range(35))


def made(table: Path, there: range) -> Path:
    """A log with these commits and every tenth a checkpoint, as far as its folder shows them."""
    log = table / LOG
    log.mkdir()
    for version in there:
        log_archive.single(log, version).write_text(
            json.dumps({"commitInfo": {"version": version}})
        )
        if version % 10 == 0:
            log_archive.checkpoint_file(log, version).touch()
    return log


def leave_singles(table: Path) -> None:
    """As a crash does between the writing of a pack and the removal of what is in it."""
    for first, _, _ in log_archive.archive_packs(table):
        log_archive.single(table / ARCHIVE, first).write_text(commit_text(table, first))
