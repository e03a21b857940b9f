"""Archived logs come in once, whatever kills the import, and disturb nobody."""

from __future__ import annotations

import gzip
import shutil
import signal
import subprocess
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import duckdb
import pytest

from headgate.cli import main
from infra.config.settings import FolderSettings, load
from infra.delta.duckdb_views import connect
from infra.delta.log_reader import table_id
from infra.errors import Fatal, Usage
from infra.maintenance.idle_checkpoints import move_on
from infra.maintenance.retention_holds import RetentionHold, held_up_sentence
from infra.storage.file_lock import ExclusiveLock
from infra.streaming.job_lock import JobLock
from infra.streaming.lake import Lake
from infra.streaming.log_retention import unread_by
from ingest.pipeline.backfill import IMPORT_JOB, Imported, take_in
from ingest.pipeline.file_scanner import Scanner
from ingest.tables import EVENT, RECORD
from ingest.tables_quality import LANDED

MADE = 24
LINES = 400


def line(file: int, number: int) -> bytes:
    at = f"2021-03-{file % 28 + 1:02d}T09:{number // 60 % 60:02d}:{number % 60:02d}.25+00:00"
    return f"<86>1 {at} b{file} sshd {number} - - Server listening on 0.0.0.0 port 22.".encode()


def archive(folder: Path, files: int, lines: int) -> None:
    for file in range(files):
        content = b"".join(line(file, number) + b"\n" for number in range(lines))
        path = folder / f"2021/{file:02d}.log{'.gz' if file % 2 else ''}"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(gzip.compress(content) if file % 2 else content)


def settings_of(*paths: Path, source: str = "sshd") -> FolderSettings:
    named = tuple(str(path) for path in paths)
    return FolderSettings(paths=named, source=source, mode="import", min_file_age_seconds=0)


@pytest.mark.full
def test_an_archive_is_taken_once_and_marked_as_an_import(lake: Lake, tmp_path: Path):
    archive(tmp_path / "old", 3, 5)
    said: list[str] = []
    shown: list[tuple[str, int, int]] = []
    folder = settings_of(tmp_path / "old")
    first = take_in(lake, folder, tell=said.append, show=lambda *step: shown.append(step))
    again = take_in(lake, folder, tell=said.append)
    assert (first.files, first.records, first.dead, first.refused) == (3, 15, 0, 0)
    assert again == Imported(known=0)
    assert said == []
    assert shown[-1][0] == "importing"
    assert shown[-1][1] == shown[-1][2] == first.bytes
    modes = {row["mode"] for row in lake.read(EVENT).select("mode").collect()}
    assert modes == {"import"}
    raws = sorted(bytes(row[0]) for row in lake.read(RECORD).select("raw").collect())
    assert raws == sorted(line(file, number) for file in range(3) for number in range(5))


@pytest.mark.full
def test_between_imports_its_place_moves_on_past_what_is_not_for_it(
    lake: Lake, tmp_path: Path
) -> None:
    archive(tmp_path / "old", 1, 5)
    take_in(lake, settings_of(tmp_path / "old"), tell=print)
    for number in range(3):
        lake.add(LANDED, [landed("files", f"/logs/{number}")], "test")
    newest = lake.version(LANDED)
    (before,) = unread(lake)
    assert before <= newest - 2
    running = JobLock(lake.settings.checkpoint_root / IMPORT_JOB, IMPORT_JOB)
    assert list(move_on(lake.settings)) == []
    running.release()
    assert unread(lake) == [before], "one that runs moves on by itself"
    assert list(move_on(lake.settings)) == []
    assert unread(lake) == [newest + 1]
    # What is for the import stays for it, in the middle of others' as well.
    lake.add(LANDED, [landed("files", "/logs/3")], "test")
    archive(tmp_path / "new", 2, 4)
    killed = Scanner(lake, IMPORT_JOB, {"new": settings_of(tmp_path / "new")}, print).look()
    assert killed.taken == 2
    lake.add(LANDED, [landed("files", "/logs/4")], "test")
    assert list(move_on(lake.settings)) == []
    assert unread(lake) == [newest + 2]
    found = take_in(lake, settings_of(tmp_path / "new"), tell=print)
    assert (found.files, found.records) == (2, 8)
    names = [row[0] for row in lake.read(RECORD).select("record_id").collect()]
    assert len(names) == len(set(names)) == 13


@pytest.mark.full
def test_an_import_that_has_left_something_is_asked_to_be_run_once_more(lake: Lake) -> None:
    said = held_up_sentence(lake.settings, [RetentionHold("ops.file", IMPORT_JOB, 0.0, None)])
    assert said.endswith("run headgate import once more, it takes nothing twice")
    assert "move its checkpoint" not in said


def unread(lake: Lake) -> list[int]:
    """The first version of ops.file that the import has not read."""
    identity = table_id(lake.folder(LANDED))
    return [version for job, version in unread_by(lake.settings, identity) if job == IMPORT_JOB]


def landed(job: str, path: str) -> dict[str, Any]:
    at = datetime(2026, 11, 24, tzinfo=UTC)
    told = {"found_at": at, "job": job, "folder": "f", "path": path, "size": 1, "modified_at": at}
    return told | {"hash": path, "state": "taken", "source": "sshd", "mode": "live"}


@pytest.mark.full
def test_a_file_that_is_refused_in_reading_it_is_counted(lake: Lake, tmp_path: Path):
    whole = tmp_path / "old" / "a.log.gz"
    whole.parent.mkdir()
    whole.write_bytes(gzip.compress(b"".join(line(0, n) + b"\n" for n in range(500)))[:-20])
    found = take_in(lake, settings_of(whole), tell=print)
    assert (found.files, found.refused) == (1, 1)


@pytest.mark.full
def test_what_cannot_begin_says_why(lake: Lake, tmp_path: Path):
    with pytest.raises(Usage, match="no file with anything in it"):
        take_in(lake, settings_of(tmp_path / "nothing*"), tell=print)
    archive(tmp_path / "old", 1, 1)
    with pytest.raises(Usage, match="no source 'nobody'"):
        take_in(lake, settings_of(tmp_path / "old", source="nobody"), tell=print)
    running = JobLock(lake.settings.checkpoint_root / IMPORT_JOB, IMPORT_JOB)
    with pytest.raises(Fatal, match="job import already runs"):
        take_in(lake, settings_of(tmp_path / "old"), tell=print)
    running.release()
    assert take_in(lake, settings_of(tmp_path / "old"), tell=print).records == 1


def test_no_import_begins_beside_a_backup(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    home, old = tmp_path / "home", tmp_path / "old"
    archive(old, 1, 1)
    backup = ExclusiveLock(load(home=home).checkpoint_root / "lock", str)
    assert main(["--home", str(home), "import", str(old), "--source", "sshd"]) == 1
    assert "job import cannot begin: a backup is under way" in capsys.readouterr().err
    backup.release()


def command(home: Path, old: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [
            *(sys.executable, "-m", "headgate.cli", "--home", str(home), "import"),
            *(str(old), "--source", "sshd"),
        ],
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.mark.full
def test_a_killed_import_goes_on_where_it_was(tmp_path: Path, empty_tables: Path):
    home, old = tmp_path / "home", tmp_path / "old"
    shutil.copytree(empty_tables, home / "lake")
    archive(old, MADE, LINES)
    running = command(home, old)
    log = home / "lake" / "bronze" / "record"
    end = time.monotonic() + 180
    while running.poll() is None and time.monotonic() < end and not any(log.glob("import-*")):
        time.sleep(0.02)
    running.send_signal(signal.SIGKILL)
    running.wait(30)
    again = command(home, old)
    _, said = again.communicate(timeout=300)
    assert again.returncode == 0, said
    assert f"{MADE} files, " in said.splitlines()[-1] or "files were in already" in said
    connection = connect(load(home=home).lake_root)
    try:
        assert counts(connection) == (MADE * LINES, MADE * LINES, MADE * LINES, MADE * LINES)
    finally:
        connection.close()


def counts(connection: duckdb.DuckDBPyConnection) -> tuple[int, ...]:
    row = connection.execute(
        "SELECT (SELECT count(*) FROM bronze.record), "
        "(SELECT count(DISTINCT record_id) FROM bronze.record), "
        "(SELECT count(*) FROM silver.event), "
        "(SELECT count(DISTINCT event_uid) FROM silver.event WHERE dead_letter_reason IS NULL)"
    ).fetchone()
    assert row is not None
    return tuple(row)


def test_no_progress_where_nobody_looks(capsys: pytest.CaptureFixture[str]):
    from ingest.pipeline.backfill import _progress

    with _progress() as show:
        show("importing", 1, 2)
    assert capsys.readouterr().err == ""
