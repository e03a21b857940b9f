"""History read again from bronze: what is replaced, what stays, and who is not disturbed."""

from __future__ import annotations

import argparse
import json
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame

from infra.config.settings import load
from infra.delta.duckdb_views import connect
from infra.delta.log_reader import newest_first, newest_version
from infra.delta.schema import Table
from infra.delta.transaction import Moved, active_files
from infra.errors import Fatal, Usage
from infra.streaming.batch import Batch
from infra.streaming.job import Job
from infra.streaming.job_lock import JobLock
from infra.streaming.lake import Lake
from ingest.parsing.source import ParseSettings
from ingest.pipeline.batch_pass import Reach
from ingest.pipeline.ingest_job import through
from ingest.reparse.reparse import REPARSE_JOB, ReparseProgress, build, reparse
from ingest.reparse.slice_rewrite import RewriteSpan, Slice
from ingest.tables import EVENT, HEARTBEAT, RECORD
from reporting.ledger.completeness import completeness, total

BEGIN = datetime(2026, 11, 20, 12, tzinfo=UTC)
INBOX = Table("bronze.inbox", "records that arrive", RECORD.columns)
Raw = tuple[str, str, bytes]


def sshd(number: int) -> Raw:
    line = f"<38>1 2026-11-20T12:00:00Z gate sshd {number} - - Failed password for u{number} "
    return (
        f"s{number}",
        "sshd",
        f"{line}from 10.0.{number // 250}.{number % 250} port 4022 ssh2".encode(),
    )


def dns(number: int) -> Raw:
    record = {"ts": BEGIN.timestamp() + number, "uid": f"C{number}", "id.orig_h": "10.0.0.9"}
    return f"z{number}", "zeek:dns", json.dumps(record | {"query": "example.com"}).encode()


class Line:
    """A line of jobs as they are: an inbox, and job ingest on it."""

    def __init__(self, lake: Lake) -> None:
        self.lake = lake.ensure(INBOX)
        self._parsing = ParseSettings.of(lake.settings)
        self._received = 0

    def receive(self, *records: Raw, finished: bool = True) -> None:
        """Work off records in one batch, each a second after the one before it."""
        self._put(records)
        self._job(None, finished).wait()

    def _put(self, records: Sequence[Raw]) -> None:
        rows = []
        for record_id, source, raw in records:
            at = BEGIN + timedelta(seconds=self._received)
            self._received += 1
            rows.append((record_id, source, "live", at, "t", 0, self._received, raw, None, None))
        frame = self.lake.spark.createDataFrame(rows, RECORD.schema).coalesce(1)
        frame.write.format("delta").mode("append").save(self.lake.path(INBOX))

    def _job(self, trigger: float | None, finished: bool) -> Job:
        def batch(arrived: DataFrame, run: Batch) -> None:
            told = (BEGIN + timedelta(seconds=self._received)).isoformat() if finished else None
            through(self.lake, arrived.coalesce(1), self._parsing, Reach(told), (), run)

        stream = self.lake.stream(INBOX)
        return self.lake.each_batch("ingest", stream, batch, trigger_seconds=trigger)

    @contextmanager
    def live(self, records: Iterator[Raw]) -> Iterator[None]:
        """While inside, records keep coming and job ingest takes them."""
        stop = threading.Event()

        def send() -> None:
            while not stop.is_set():
                self._put([next(records) for _ in range(5)])
                stop.wait(0.2)

        job = self._job(0.2, True)
        sender = threading.Thread(target=send)
        sender.start()
        try:
            yield
        finally:
            stop.set()
            sender.join(60)
            job.query.processAllAvailable()
            job.stop()


@pytest.fixture
def line(lake: Lake) -> Line:
    return Line(lake)


def table(lake: Lake) -> dict[str, dict[str, Any]]:
    """Rows of silver by their event_uid, without heartbeats."""
    rows = [row.asDict(recursive=True) for row in lake.read(EVENT).collect()]
    found = {row["event_uid"]: row for row in rows if row["source"] != HEARTBEAT}
    assert len(found) == sum(row["source"] != HEARTBEAT for row in rows)
    return found


def older(lake: Lake, where: str) -> None:
    """Make rows what an older parser would have made of their records."""
    lake.spark.sql(
        f"UPDATE delta.`{lake.path(EVENT)}` SET message = 'old', user_name = NULL, user = NULL, "
        f"src_endpoint = NULL WHERE {where}"
    )


def dead(lake: Lake, where: str) -> None:
    lake.spark.sql(
        f"UPDATE delta.`{lake.path(EVENT)}` SET dead_letter_reason = 'no such source', "
        f"class_uid = 0 WHERE {where}"
    )


def files_of(lake: Lake) -> set[str]:
    return {file.name for file in active_files(lake.spark, lake.path(EVENT))}


@pytest.mark.full
def test_rows_become_what_todays_parser_makes_of_them_and_others_stay(line: Line) -> None:
    lake = line.lake
    line.receive(*[sshd(n) for n in range(40)], *[dns(n) for n in range(40)])
    line.receive(*[sshd(n) for n in range(40, 60)])
    truth = table(lake)
    untouched = files_of(lake)
    older(lake, "source = 'sshd' AND event_uid IN ('s3#0', 's7#0')")
    dead(lake, "event_uid IN ('s5#0')")
    was = table(lake)

    done = reparse(lake, "sshd", BEGIN)

    assert table(lake) == truth
    assert was != truth
    counts = done.counts
    assert (counts.records, counts.changed, counts.added, counts.removed) == (60, 3, 0, 0)
    assert (counts.same, counts.dead_before, counts.dead_after, counts.missing) == (57, 1, 0, 0)
    assert counts.commits == 1
    assert files_of(lake) & untouched, "the file of the second batch is as it was"
    newest = next(newest_first(lake.folder(EVENT)))
    assert json.loads(newest.user_metadata or "") == {REPARSE_JOB: done.run_id}


@pytest.mark.full
def test_a_dry_run_counts_and_changes_nothing(line: Line) -> None:
    lake = line.lake
    line.receive(*[sshd(n) for n in range(10)])
    older(lake, "event_uid = 's3#0'")
    was, version = table(lake), newest_version(lake.folder(EVENT))
    done = reparse(lake, "sshd", BEGIN, dry=True)
    assert (done.counts.changed, done.counts.same, done.counts.commits) == (1, 9, 0)
    assert table(lake) == was
    assert newest_version(lake.folder(EVENT)) == version


@pytest.mark.full
def test_rows_that_come_out_the_same_cost_no_commit(line: Line) -> None:
    line.receive(*[sshd(n) for n in range(10)], *[dns(n) for n in range(3)])
    version = newest_version(line.lake.folder(EVENT))
    done = reparse(line.lake, "sshd", BEGIN)
    assert (done.counts.same, done.counts.commits) == (10, 0)
    assert reparse(line.lake, "zeek", BEGIN).counts.same == 3
    assert newest_version(line.lake.folder(EVENT)) == version


@pytest.mark.full
def test_only_the_span_that_is_asked_for_and_complete_is_read_again(line: Line) -> None:
    lake = line.lake
    line.receive(*[sshd(n) for n in range(20)])
    line.receive(*[sshd(n) for n in range(20, 30)], finished=False)
    older(lake, "source = 'sshd'")
    said: list[str] = []
    since, until = BEGIN + timedelta(seconds=5), BEGIN + timedelta(hours=1)
    done = reparse(lake, "sshd", since, until, tell=said.append)
    assert "complete up to 2026-11-20T12:00:20" in said[0]
    assert done.until == BEGIN + timedelta(seconds=20)
    old = {uid for uid, row in table(lake).items() if row["message"] == "old"}
    assert old == {f"s{n}#0" for n in (*range(5), *range(20, 30))}


@pytest.mark.full
def test_what_ingest_never_said_to_be_complete_is_refused(line: Line) -> None:
    line.receive(sshd(1), finished=False)
    with pytest.raises(Fatal, match="ingest has not said yet how far it is"):
        reparse(line.lake, "sshd", BEGIN)
    line.receive(sshd(2))
    with pytest.raises(Fatal, match="complete up to"):
        reparse(line.lake, "sshd", BEGIN + timedelta(days=1))


@pytest.mark.full
def test_marks_of_second_deliveries_stay(line: Line) -> None:
    lake = line.lake
    line.receive(*[sshd(n) for n in range(4)])
    path = lake.path(EVENT)
    lake.spark.sql(f"UPDATE delta.`{path}` SET duplicate_of = 's1#0' WHERE event_uid = 's2#0'")
    older(lake, "event_uid = 's2#0'")
    reparse(lake, "sshd", BEGIN)
    row = table(lake)["s2#0"]
    assert (row["duplicate_of"], row["user_name"]) == ("s1#0", "u2")


@pytest.mark.full
def test_records_that_bronze_has_no_more_keep_their_rows(line: Line) -> None:
    lake = line.lake
    line.receive(*[sshd(n) for n in range(6)])
    older(lake, "source = 'sshd'")
    lake.spark.sql(f"DELETE FROM delta.`{lake.path(RECORD)}` WHERE record_id = 's4'")
    done = reparse(lake, "sshd", BEGIN)
    assert (done.counts.missing, done.counts.changed, done.counts.same) == (1, 5, 1)
    assert [uid for uid, row in table(lake).items() if row["message"] == "old"] == ["s4#0"]


@pytest.mark.full
def test_rows_deleted_by_a_vector_stay_deleted(line: Line) -> None:
    lake = line.lake
    line.receive(*[sshd(n) for n in range(8)])
    path = lake.path(EVENT)
    older(lake, "event_uid = 's1#0'")
    lake.spark.sql(
        f"ALTER TABLE delta.`{path}` SET TBLPROPERTIES ('delta.enableDeletionVectors' = true)"
    )
    lake.spark.sql(f"DELETE FROM delta.`{path}` WHERE event_uid = 's6#0'")
    done = reparse(lake, "sshd", BEGIN)
    # Its record is in bronze but no row names it: not ours to bring back (it may be erased).
    assert (done.counts.changed, done.counts.added, done.counts.same) == (1, 0, 6)
    assert sorted(table(lake)) == [f"s{n}#0" for n in range(8) if n != 6]
    assert table(lake)["s1#0"]["user_name"] == "u1"


AUDIT = (
    b"node=web1 type=SYSCALL msg=audit(1732104000.123:77): arch=c000003e syscall=59 success=yes "
    b'exit=0 ppid=1 pid=2 auid=1000 uid=0 gid=0 comm="id" exe="/usr/bin/id" key="x"',
    b'node=web1 type=EXECVE msg=audit(1732104000.123:77): argc=1 a0="id"',
    b'node=web1 type=CWD msg=audit(1732104000.123:77): cwd="/root"',
)


@pytest.mark.full
def test_events_of_several_records_stay_together_also_across_slices(line: Line) -> None:
    lake = line.lake
    line.receive(*[(f"a{n}", "auditd", raw) for n, raw in enumerate(AUDIT)])
    line.receive(*[(f"b{n}", "auditd", raw) for n, raw in enumerate(AUDIT)])
    truth = table(lake)
    assert {tuple(row["record_ids"]) for row in truth.values()} == {
        ("a0", "a1", "a2"),
        ("b0", "b1", "b2"),
    }
    older(lake, "source = 'auditd'")
    done = reparse(lake, "auditd", BEGIN, slice_rows=1)
    assert table(lake) == truth
    assert (done.counts.records, done.counts.changed, done.counts.commits) == (6, 2, 2)


@pytest.mark.full
def test_a_run_that_was_cut_off_goes_on_and_leaves_no_files(line: Line) -> None:
    lake = line.lake
    line.receive(*[sshd(n) for n in range(30)])
    truth = table(lake)
    older(lake, "source = 'sshd'")

    def cut(sentence: str) -> None:
        if "12:00:20" in sentence:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        reparse(lake, "sshd", BEGIN, tell=cut, slice_rows=10)
    kept = lake.settings.checkpoint_root / REPARSE_JOB / "progress.json"
    progress = ReparseProgress(**json.loads(kept.read_text()))
    assert progress.done == {"sshd": "2026-11-20T12:00:20+00:00"}
    orphan = lake.folder(EVENT) / f"reparse-{progress.run_id}-orphan.parquet"
    orphan.write_bytes(b"half a file")

    done = reparse(lake, "sshd", BEGIN, slice_rows=10)

    assert table(lake) == truth
    assert done.run_id == progress.run_id
    assert (done.counts.records, done.counts.changed, done.counts.commits) == (30, 30, 3)
    assert not orphan.exists()
    assert not kept.exists()


@pytest.mark.full
def test_an_interrupt_once_a_commit_is_in_takes_no_file_of_the_table(
    line: Line, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = line.lake
    line.receive(*[sshd(n) for n in range(10)])
    truth = table(lake)
    older(lake, "event_uid = 's1#0'")
    replace = Lake.replace

    def interrupted(lake: Lake, *what: Any) -> int:
        replace(lake, *what)
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(Lake, "replace", interrupted)
        with pytest.raises(KeyboardInterrupt):
            reparse(lake, "sshd", BEGIN)
    assert table(lake) == truth
    reparse(lake, "sshd", BEGIN)
    assert table(lake) == truth


@pytest.mark.full
def test_a_slice_that_others_rewrite_meanwhile_is_done_again(line: Line) -> None:
    lake = line.lake
    line.receive(*[sshd(n) for n in range(10)])
    truth = table(lake)
    older(lake, "source = 'sshd'")
    span = RewriteSpan("sshd", BEGIN, BEGIN + timedelta(minutes=1))
    folder = lake.settings.home / "parsed"
    folder.mkdir()

    class Overtaken(Slice):
        def _replace(self, prefix: str, note: str) -> None:
            older(lake, "event_uid = 's1#0'")  # rewrites the file that was just read
            super()._replace(prefix, note)

    version = newest_version(lake.folder(EVENT))
    piece = Overtaken(lake, ParseSettings.of(lake.settings), span, folder)
    with pytest.raises(Moved):
        piece.rewrite("reparse-x-", "{}", dry=False)
    assert newest_version(lake.folder(EVENT)) == version + 1
    assert list(lake.folder(EVENT).glob("reparse-x-*")) == []
    reparse(lake, "sshd", BEGIN)
    assert table(lake) == truth


@pytest.mark.full
def test_readers_streams_and_a_live_job_are_not_disturbed(line: Line) -> None:
    lake = line.lake
    line.receive(*[sshd(n) for n in range(60)], *[dns(n) for n in range(60)])
    truth = table(lake)
    older(lake, "source = 'sshd'")
    seen: list[str] = []
    watched = lake.stream(EVENT).where("source <> '_heartbeat'")

    def hear(rows: DataFrame, run: Batch) -> None:
        seen.extend(row["event_uid"] for row in rows.select("event_uid").collect())

    stream = lake.each_batch("watch", watched, hear, trigger_seconds=0.1)
    faults: list[str] = []
    stop = threading.Event()

    def read() -> None:
        reader = connect(lake.settings.lake_root, needs=("silver.event",))
        while not stop.is_set():
            row = reader.execute(
                "SELECT count(*), count(DISTINCT event_uid) FROM silver.event "
                "WHERE source <> '_heartbeat'"
            ).fetchone()
            if row is None or row[0] != row[1] or row[0] < 120:
                faults.append(str(row))
        reader.close()

    reading = threading.Thread(target=read)
    reading.start()
    numbers = iter(range(1000, 100_000))
    try:
        with line.live(map(sshd, numbers)):
            while newest_version(lake.folder(EVENT)) < 6:
                time.sleep(0.1)
            until = BEGIN + timedelta(seconds=120)
            done = reparse(lake, "sshd", BEGIN, until, slice_rows=20)
            before = newest_version(lake.folder(EVENT))
            while newest_version(lake.folder(EVENT)) < before + 2:
                time.sleep(0.1)
        stream.query.processAllAvailable()
    finally:
        stop.set()
        reading.join(60)
        stream.stop()

    assert done.counts.commits == 3
    assert faults == []
    now = table(lake)
    assert {uid: now[uid] for uid in truth} == truth
    assert sorted(seen) == sorted(now), "a stream saw every event once, and none anew"
    sums = total(
        completeness(connect(lake.settings.lake_root), BEGIN, BEGIN + timedelta(days=1), None)
    )
    assert (sums.unaccounted, sums.duplicated, sums.unfinished) == (0, 0, 0)
    assert sums.received == len(now)


@pytest.mark.full
def test_files_of_the_rewrite_carry_statistics_and_columns_as_others_do(line: Line) -> None:
    lake = line.lake
    line.receive(*[sshd(n) for n in range(5)])
    first = next(lake.folder(EVENT).glob("ingest-*.parquet"))
    older(lake, "event_uid = 's1#0'")
    reparse(lake, "sshd", BEGIN)
    (new,) = lake.folder(EVENT).glob("reparse-*.parquet")
    assert pq.read_schema(new) == pq.read_schema(first)
    newest = next(newest_first(lake.folder(EVENT)))
    (stats,) = newest.stats
    assert stats["numRecords"] == 6, "five events and the heartbeat of their file"
    assert stats["nullCount"]["dead_letter_reason"] == 6


def test_only_one_reparse_runs_at_a_time(line: Line) -> None:
    line.receive(sshd(1))
    lock = JobLock(line.lake.settings.checkpoint_root / REPARSE_JOB, REPARSE_JOB)
    with pytest.raises(Fatal, match="already runs"):
        reparse(line.lake, "sshd", BEGIN)
    lock.release()


def test_the_command_refuses_what_makes_no_sense(tmp_path: Path) -> None:
    settings = load(home=tmp_path)
    for words, said in (
        (["--from", "noon", "--source", "sshd"], "--from noon: write an instant"),
        (["--from", "2026-11-20T12:00:00", "--source", "sshd"], "name the zone"),
        (["--from", "2026-11-20T12:00:00Z", "--source", "nobody"], "no source 'nobody'"),
        (
            ["--from", "2026-11-20T12:00:00Z", "--to", "2026-11-20T11:00:00Z", "--source", "sshd"],
            "not before --to",
        ),
    ):
        parser = argparse.ArgumentParser()
        build(parser.add_subparsers())
        args = parser.parse_args(["reparse", *words])
        with pytest.raises(Usage, match=said):
            args.run(args, settings)
