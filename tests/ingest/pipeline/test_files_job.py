"""Files that land in a folder: each once, whole or refused by name, through crashes."""

from __future__ import annotations

import gzip
import io
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from infra.config.settings import Settings, load
from infra.errors import Usage
from infra.streaming.batch import Batch
from infra.streaming.lake import Lake
from ingest.parsing.record_reader import TooLong, pieces
from ingest.parsing.source import lookup
from ingest.pipeline.file_scanner import Scanner, listing
from ingest.pipeline.files_job import FileEntry, Refusals, files, flow
from ingest.pipeline.inflight import in_flight, oldest_in_flight
from ingest.tables import EVENT, RECORD
from ingest.tables_quality import LANDED

OLD = 1_200_000_000  # 2008-01-10


def sshd(number: int) -> bytes:
    return f"<86>1 2026-03-02T09:00:{number:02d}.25+00:00 b1 sshd 1 - - Server listening.".encode()


@pytest.fixture
def drop(tmp_path: Path) -> Path:
    folder = tmp_path / "drop"
    folder.mkdir()
    return folder


@pytest.fixture
def told(lake: Lake, drop: Path) -> Lake:
    """A lake whose settings name the folder; files count as finished at once."""
    return with_folders(
        lake, ssh={"paths": [str(drop)], "source": "sshd", "min_file_age_seconds": 0}
    )


def with_folders(lake: Lake, **folders: dict[str, object]) -> Lake:
    return Lake(lake.spark, load(home=lake.settings.home, folders=folders, tenants=["acme"]))


def land(folder: Path, name: str, *lines: bytes, at: float | None = None) -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    content = b"".join(line + b"\n" for line in lines)
    path.write_bytes(gzip.compress(content, mtime=0) if name.endswith(".gz") else content)
    if at is not None:
        os.utime(path, (at, at))
    return path


def once(lake: Lake) -> None:
    files(lake, once=True).wait()


def raws(lake: Lake) -> list[bytes]:
    return sorted(bytes(row["raw"]) for row in lake.read(RECORD).select("raw").collect())


def dead(lake: Lake) -> list[str]:
    rows = lake.read(EVENT).where("dead_letter_reason IS NOT NULL").collect()
    return sorted(row["dead_letter_reason"] for row in rows)


def unnamed(lake: Lake) -> tuple[int, int, int]:
    """Records that no event names; event ids that stand twice; record ids that stand twice."""
    records = [row[0] for row in lake.read(RECORD).select("record_id").collect()]
    rows = lake.read(EVENT).select("event_uid", "record_ids").collect()
    named = {one for row in rows for one in row["record_ids"]}
    uids = [row["event_uid"] for row in rows]
    return len(set(records) - named), len(uids) - len(set(uids)), len(records) - len(set(records))


def test_each_file_is_taken_once_whatever_its_age_depth_and_packing(told, drop):
    land(drop, "new.log", sshd(1))
    once(told)
    land(drop, "old.log", sshd(2), at=OLD)  # older than all that was taken: still taken
    land(drop, "2026/11/deep.log.gz", sshd(3), sshd(4))
    land(drop, "future.log", sshd(5), at=time.time() + 86400)
    land(drop, ".partial.log", b"of somebody who still writes")
    once(told)
    once(told)
    assert raws(told) == [sshd(number) for number in range(1, 6)]
    assert dead(told) == []
    assert unnamed(told) == (0, 0, 0)


@pytest.mark.full
def test_coordinates_are_path_content_and_line(told, drop):
    path = land(drop, "a.log", sshd(1), b"", sshd(2))
    once(told)
    ids = sorted(row[0] for row in told.read(RECORD).select("record_id").collect())
    (found,) = told.read(LANDED).collect()
    assert ids == [f"{path}:{found['hash'][:16]}:{number}" for number in (1, 2, 3)]
    assert found["state"] == "taken"


@pytest.mark.full
def test_what_the_folder_says_reaches_the_parser(lake, tmp_path):
    drop = tmp_path / "win"
    land(drop, "a.log", b"Nov 21 04:00:00 b1 sshd[1]: Server listening on 0.0.0.0 port 22.", at=OLD)
    folder = {"paths": [f"{drop}/*.log"], "source": "sshd", "min_file_age_seconds": 0}
    told = with_folders(lake, win=folder | {"tz": "Asia/Tokyo", "mode": "replay", "host": "gw",
                                           "tenant": "acme"})  # fmt: skip
    once(told)
    (event,) = told.spark.sql(
        f"SELECT date_format(time, 'yyyy-MM-dd HH:mm') AS t, mode, year(received_at) AS y, "
        f"tenant_uid FROM delta.`{told.path(EVENT)}`"
    ).collect()
    # The year is that of the file, the arrival is ours.
    assert event["t"] == "2007-11-20 19:00"
    assert event["mode"] == "replay"
    assert event["y"] >= 2026
    assert event["tenant_uid"] == "acme"


@pytest.mark.full
def test_a_file_that_grows_after_it_was_taken_is_refused_by_name(told, drop, capsys):
    path = land(drop, "app.log", sshd(1))
    once(told)
    with path.open("ab") as file:
        file.write(sshd(2) + b"\n")
    once(told)
    once(told)
    assert [bytes(raw) for raw in raws(told)] == [b"", sshd(1)]
    (said,) = dead(told)
    assert said.startswith(f"{path}: still grows: ")
    assert str(path) in capsys.readouterr().err
    assert told.read(LANDED).where("state = 'refused'").count() == 1
    assert unnamed(told) == (0, 0, 0)


@pytest.mark.full
def test_a_file_that_is_still_written_waits_and_is_taken_whole(lake, drop):
    told = with_folders(
        lake, ssh={"paths": [str(drop)], "source": "sshd", "min_file_age_seconds": 0.4}
    )
    said: list[str] = []
    scanner = Scanner(told, "files", told.settings.folders, said.append)
    path = land(drop, "a.log", sshd(1))
    assert scanner.look().waiting == (str(path),)
    with path.open("ab") as file:
        file.write(sshd(2) + b"\n")
    assert scanner.look()[:1] == (0,)
    time.sleep(0.5)
    assert scanner.look().taken == 1
    flow(told, "files", trigger_seconds=None).wait()
    assert raws(told) == [sshd(1), sshd(2)]


@pytest.mark.full
def test_a_file_that_changed_between_listing_and_reading_is_refused_by_name(told, drop):
    path = land(drop, "a.log", sshd(1))
    assert Scanner(told, "files", told.settings.folders, print).look().taken == 1
    land(drop, "a.log", sshd(1), sshd(2))
    flow(told, "files", trigger_seconds=None).wait()
    (said,) = dead(told)
    assert said.startswith(f"{path}: still grows: ")
    assert said.endswith("nothing of it was read")
    assert raws(told) == [b""]
    once(told)
    assert raws(told) == [b"", sshd(1), sshd(2)]


@pytest.mark.full
def test_what_was_moved_away_before_it_was_read_is_read_where_it_is(told, drop):
    """Rotated while the job was behind: taken, and another file lay there when it came to it."""
    first = land(drop, "a.log.1", sshd(1))
    kept = land(drop, "copy.log", sshd(4))
    land(drop, "also.log", sshd(4))  # read at one place, gone at the other: read all the same
    scanner = Scanner(told, "files", told.settings.folders, print)
    assert scanner.look().taken == 3
    first.rename(drop / "a.log.2")
    land(drop, "a.log.1", sshd(2), sshd(3))
    kept.unlink()
    assert scanner.look().taken == 1  # the new a.log.1; the other counts as taken under that name
    flow(told, "files", trigger_seconds=None).wait()
    assert sshd(1) not in raws(told)
    once(told)
    once(told)
    assert [raw for raw in raws(told) if raw] == [sshd(1), sshd(2), sshd(3), sshd(4)]
    assert unnamed(told) == (0, 0, 0)
    states = {(row["path"], row["state"]) for row in told.read(LANDED).collect()}
    assert (str(drop / "a.log.1"), "unread") in states
    assert (str(drop / "copy.log"), "unread") in states


@pytest.mark.full
def test_a_file_that_is_away_for_a_moment_is_read_when_it_is_back(told, drop):
    path = land(drop, "a.log", sshd(1), at=OLD)
    scanner = Scanner(told, "files", told.settings.folders, print)
    assert scanner.look().taken == 1
    path.rename(drop.parent / "away")

    def done(run: Batch, entries: Sequence[FileEntry], refused: Refusals) -> None:
        scanner.look_again(refused.unread)

    flow(told, "files", trigger_seconds=None, done=done).wait()
    assert raws(told) == [b""]
    once(told)
    (drop.parent / "away").rename(path)
    assert scanner.look().taken == 0, "not at once again, as it is there as it was"
    once(told)  # a job that begins anew looks again
    assert [raw for raw in raws(told) if raw] == [sshd(1)]
    assert unnamed(told) == (0, 0, 0)


@pytest.mark.full
def test_a_file_that_two_patterns_name_is_taken_once(lake, drop):
    land(drop, "deep/a.log", sshd(1))
    paths = [str(drop), f"{drop}/**/*.log", f"{drop}/**/**/*.log"]
    once(with_folders(lake, ssh={"paths": paths, "source": "sshd", "min_file_age_seconds": 0}))
    assert raws(lake) == [sshd(1)]
    assert unnamed(lake) == (0, 0, 0)


@pytest.mark.full
def test_rotation_by_rename_takes_each_content_once(told, drop):
    first = land(drop, "a.log.1", sshd(1))
    once(told)
    first.rename(drop / "a.log.2")
    land(drop, "a.log.1", sshd(2), sshd(3))
    once(told)
    assert raws(told) == [sshd(1), sshd(2), sshd(3)]
    assert unnamed(told) == (0, 0, 0)


@pytest.mark.full
def test_a_copy_is_a_file_of_its_own(told, drop):
    land(drop, "a.log", sshd(1))
    land(drop, "b.log", sshd(1))
    once(told)
    assert raws(told) == [sshd(1), sshd(1)]
    assert unnamed(told) == (0, 0, 0)


@pytest.mark.full
def test_broken_gzip_is_named_with_what_was_read(told, drop):
    whole = land(drop, "a.log.gz", *[sshd(number % 60) for number in range(5000)])
    whole.write_bytes(whole.read_bytes()[:-200])
    once(told)
    (said,) = dead(told)
    assert said.startswith(f"{whole}: its gzip is broken after ")
    read = len(raws(told)) - 1
    assert 0 < read < 5000
    assert f" {read} lines" in said


@pytest.mark.full
def test_a_new_folder_and_one_taken_away_need_no_new_checkpoint(lake, tmp_path):
    one, two = tmp_path / "one", tmp_path / "two"
    land(one, "a.log", sshd(1))
    land(two, "a.log", sshd(2))
    first = {"paths": [str(one)], "source": "sshd", "min_file_age_seconds": 0}
    second = {"paths": [str(two)], "source": "syslog", "min_file_age_seconds": 0}
    once(with_folders(lake, one=first))
    once(with_folders(lake, one=first, two=second))
    land(two, "b.log", sshd(3))
    once(with_folders(lake, two=second))
    assert raws(lake) == [sshd(1), sshd(2), sshd(3)]
    assert {row[0] for row in lake.read(RECORD).select("source").collect()} == {"sshd", "syslog"}


@pytest.mark.full
def test_a_crash_between_commits_loses_and_doubles_nothing_even_if_the_file_is_gone(
    told, drop, monkeypatch
):
    land(drop, "a.log", sshd(1), sshd(2))
    commit = Lake.commit

    def dies(self: Lake, table, run, found) -> None:
        if table is EVENT:
            raise RuntimeError("the driver dies before silver's commit")
        commit(self, table, run, found)

    monkeypatch.setattr(Lake, "commit", dies)
    with pytest.raises(Exception, match="the driver dies"):
        once(told)
    monkeypatch.setattr(Lake, "commit", commit)
    (drop / "a.log").unlink()
    once(told)
    assert raws(told) == [sshd(1), sshd(2)]
    assert dead(told) == []
    assert unnamed(told) == (0, 0, 0)


@pytest.mark.full
def test_an_object_store_is_read_through_sparks_own_file_systems(lake, drop, monkeypatch):
    """`file:` stands for s3a: what is not taken for local goes the way of objects."""
    monkeypatch.setattr("ingest.pipeline.file_scanner.is_local", lambda path: False)
    monkeypatch.setattr("ingest.pipeline.files_job.is_local", lambda path: False)
    land(drop, "a b[1].log.gz", sshd(1), sshd(2))
    land(drop, "sub/c.log", sshd(3))
    folder = {"paths": [f"file://{drop}"], "source": "sshd", "min_file_age_seconds": 0}
    told = with_folders(lake, bucket=folder)
    once(told)
    once(told)
    assert raws(told) == [sshd(1), sshd(2), sshd(3)]
    assert unnamed(told) == (0, 0, 0)


def test_without_folders_the_job_says_what_to_configure(lake):
    with pytest.raises(Usage, match="no folder is configured"):
        files(lake, once=True)


def test_empty_files_and_links_to_nothing_are_not_there(lake, drop):
    (drop / "empty.log").touch()
    (drop / "link.log").symlink_to(drop / "nowhere")
    land(drop, "a.log", sshd(1))
    assert [Path(found.path).name for found in listing(lake.spark, str(drop))] == ["a.log"]


READ = """
import resource, sys
from datetime import UTC, datetime
import pyarrow as pa
from ingest.parsing.source import ParseSettings
from ingest.pipeline.file_scanner import _digest, listing
from ingest.pipeline.files_job import _Reading
(found,) = listing(None, sys.argv[1])
entry = {"path": found.path, "size": found.size, "modified_at": found.modified_at,
         "hash": _digest(found.path), "state": "taken", "reason": None, "source": "sshd",
         "mode": "live", "tz": None, "host": None, "tenant_uid": None}
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
rows = 0
for batch in _Reading(datetime.now(UTC), ParseSettings()).local(
    iter([pa.RecordBatch.from_pylist([entry])])
):
    rows += batch.num_rows
print(rows, (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024)
"""


@pytest.mark.full
@pytest.mark.parametrize("name", ["a.log.gz", "a.log"])
def test_a_file_of_100_mb_is_read_in_bounded_memory(drop, name):
    lines = [(b"%d " % number).ljust(1023, b"x") + b"\n" for number in range(1024)]
    with (
        gzip.open(drop / name, "wb", 1) if name.endswith("gz") else (drop / name).open("wb") as out
    ):
        for _ in range(100):
            out.writelines(lines)
    done = subprocess.run(
        [sys.executable, "-c", READ, str(drop)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    rows, megabytes = map(int, done.stdout.split())
    assert rows == 100 * 1024
    assert megabytes < 100


def test_a_line_longer_than_lines_may_be_cannot_smuggle_one_in():
    raw = b"x" * 10 + sshd(1)
    parts = list(pieces(io.BytesIO(raw + b"\nnext\n"), lookup("sshd"), longest=10))
    assert b"".join(part.raw for part in parts[:-1]) == raw + b"\n"
    assert all(part.cut for part in parts[:-1])
    assert parts[-1][1:] == (b"next", b"", False)


def test_a_whole_file_longer_than_a_record_may_be_is_said():
    with pytest.raises(TooLong, match="more than 20 bytes"):
        list(pieces(io.BytesIO(b'{"Records": [' + b" " * 50), lookup("aws_cloudtrail"), b"", 20))


def test_heartbeats_stay_below_files_under_way(tmp_path: Path, settings: Settings):
    at = datetime(2026, 11, 21, 10, 0, tzinfo=UTC)
    told, later = at + timedelta(seconds=2), at + timedelta(seconds=40)
    with in_flight(tmp_path / "open", "files", at):
        assert oldest_in_flight(tmp_path / "open", told.isoformat()) < at.isoformat()
        assert oldest_in_flight(tmp_path / "open", later.isoformat()) == later.isoformat()
    assert oldest_in_flight(tmp_path / "open", told.isoformat()) == told.isoformat()
    assert oldest_in_flight(tmp_path / "open", None) is None
