"""A backup comes back as it was, or not at all; and jobs go on from it."""

from __future__ import annotations

import errno
import json
import os
import shutil
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from pyspark.sql import DataFrame
from pyspark.sql import types as T

from headgate.cli import main
from infra.config.settings import Settings, load
from infra.delta.schema import Column, Table
from infra.errors import Fatal, Retryable, Usage
from infra.kafka.client import Broker, admin, ensure_topics, free_port, producer, topic_of
from infra.kafka.transactions import read_all
from infra.maintenance.backup import backup, left_at
from infra.maintenance.restore import _Steps, restore
from infra.spark.internals import forget_tables
from infra.streaming.batch import Batch
from infra.streaming.job import Job
from infra.streaming.job_lock import JobLock
from infra.streaming.lake import Lake
from ingest.completeness.ledger_state import LedgerCheckState, ledger_check_folder

NUMBER = Table("silver.number", "numbers that arrive", (Column("n", T.LongType(), "a number"),))
SQUARE = Table("gold.square", "their squares", (Column("n", T.LongType(), "a square"),))
DATABASES = ("redelivery.sqlite", "webhooks.sqlite")
ROWS = "CREATE TABLE kept (row TEXT); INSERT INTO kept VALUES ('row')"
LEFT_OUT = {"api.token", "checkpoints/ingest/lock", "checkpoints/lock"}


@pytest.fixture
def home(tmp_path: Path) -> Settings:
    settings = load(home=tmp_path / "home")
    for name, text in {
        "lake/silver/event/a.parquet": "rows",
        "lake/_rules/packs/one.json": "{}",
        "checkpoints/ingest/batches/3.json": '{"topic_ids": {}}',
        "checkpoints/ingest/lock": "77",
        "spool/audit/one.json": "{}",
        "erasures/one.json": "{}",
        "api.token": "secret",
    }.items():
        file = settings.home / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        os.utime(file, (1_000_000, 1_000_000))
    for name in DATABASES:
        with closing(sqlite3.connect(settings.home / name)) as db:
            db.executescript(f"PRAGMA journal_mode = WAL; {ROWS}")
    return settings


def tree(home: Path) -> dict[str, str]:
    """Each file and what is in it; of a database what it says."""
    return {str(f.relative_to(home)): said(f) for f in home.rglob("*") if f.is_file()}


def said(file: Path) -> str:
    if file.name not in DATABASES:
        return file.read_text()
    with closing(sqlite3.connect(f"file:{file}?mode=ro", uri=True)) as db:
        return "".join(db.iterdump())


def test_what_comes_back_is_what_was_there(home: Settings, tmp_path: Path) -> None:
    made = backup(home, tmp_path / "backups")
    assert not any("secret" in text for text in tree(made).values())
    other = load(home=tmp_path / "other", lake=tmp_path / "elsewhere" / "lake")
    assert restore(other, made) == 7
    assert (tmp_path / "elsewhere/lake/silver/event/a.parquet").read_text() == "rows"
    assert (tmp_path / "elsewhere/lake/silver/event/a.parquet").stat().st_mtime == 1_000_000
    databases = {name: text for name, text in tree(home.home).items() if name in DATABASES}
    assert "'row'" in databases["webhooks.sqlite"]
    assert tree(other.home) == {
        "checkpoints/ingest/batches/3.json": '{"topic_ids": {}}',
        "spool/audit/one.json": "{}",
        "erasures/one.json": "{}",
        **databases,
    }
    with pytest.raises(Usage, match="something is there; restore onto an empty home"):
        restore(other, made)


def test_the_next_check_of_the_ledger_looks_at_all_of_what_came_back(
    home: Settings, tmp_path: Path
) -> None:
    made = backup(home, tmp_path / "kept")
    LedgerCheckState(through={"raw.sshd:0": ("topic", 5000)}).save(ledger_check_folder(home))
    for folder in ("lake", "checkpoints", "spool", "erasures"):
        shutil.rmtree(home.home / folder)
    for file in home.home.glob("*.sqlite*"):
        file.unlink()
    restore(home, made)
    assert LedgerCheckState.load(ledger_check_folder(home)) == LedgerCheckState()


@pytest.mark.parametrize("harm", ["change", "remove"])
def test_a_backup_that_was_harmed_restores_nothing(
    home: Settings, tmp_path: Path, harm: str
) -> None:
    made = backup(home, tmp_path / "backups")
    file = made / "spool/audit/one.json"
    file.write_text("[]") if harm == "change" else file.unlink()
    other = load(home=tmp_path / "other")
    with pytest.raises(Fatal, match="nothing was restored"):
        restore(other, made)
    assert not other.home.exists() or tree(other.home) == {}
    with pytest.raises(Usage, match="is no backup of ours"):
        restore(other, tmp_path)


@pytest.mark.parametrize("part", ["lake", "checkpoints", "spool", "erasures", *DATABASES])
@pytest.mark.parametrize("there", [True, False])
def test_a_link_is_followed(home: Settings, tmp_path: Path, part: str, there: bool) -> None:
    """To a folder of another disk, which may have to be made."""
    made = backup(home, tmp_path / "backups")
    other = load(home=tmp_path / "other")
    other.home.mkdir()
    target = tmp_path / "disk" / part
    (target if there and "." not in part else target.parent).mkdir(parents=True)
    (other.home / part).symlink_to(target)
    assert restore(other, made) == 7
    assert (other.home / part).is_symlink()
    assert {**tree(other.home), **under(other.home, part)} == {
        name: text for name, text in tree(home.home).items() if name not in LEFT_OUT
    }
    assert not list(tmp_path.rglob("*restoring*"))
    again = load(home=tmp_path / "again")
    assert restore(again, backup(other, tmp_path / "from-the-link")) == 7


def under(home: Path, part: str) -> dict[str, str]:
    """The files of a part that is a link."""
    if (home / part).is_file():
        return {part: said(home / part)}
    return {f"{part}/{name}": text for name, text in tree((home / part).resolve()).items()}


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of its own, as it is when it is fresh."""
    at = tmp_path / "disk"
    at.mkdir()
    if os.geteuid() != 0:
        pytest.skip("only root may mount")
    asked = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(at)]
    told = subprocess.run(asked, capture_output=True, text=True, check=False)
    if told.returncode != 0:
        pytest.skip(f"no file system can be mounted here: {told.stderr.strip()}")
    (at / "lost+found").mkdir(mode=0o700)
    (at / "lost+found" / "found").write_text("nobody's")
    yield at
    subprocess.run(["umount", "-l", str(at)], check=True)


@pytest.mark.parametrize("part", ["lake", "checkpoints"])
def test_a_place_that_is_a_mount_point_is_filled(
    home: Settings, tmp_path: Path, disk: Path, part: str
) -> None:
    made = backup(home, tmp_path / "backups")
    other = load(home=tmp_path / "other", **{part: disk})
    assert restore(other, made) == 7
    assert disk.is_mount()
    whole = {name: text for name, text in tree(home.home).items() if name not in LEFT_OUT}
    here = {f"{part}/{name}": text for name, text in tree(disk).items()}
    assert here.pop(f"{part}/lost+found/found") == "nobody's"
    assert {**tree(other.home), **here} == whole
    names = {file.name for file in backup(other, tmp_path / "again").rglob("*")}
    assert "found" not in names


@pytest.mark.parametrize("place", ["checkpoints/ingest", "spool/audit"])
def test_a_restore_that_fails_half_way_takes_back_what_it_put_in_place(
    home: Settings, tmp_path: Path, place: str
) -> None:
    """A job that begins meanwhile has made a folder where one of the backup belongs."""
    made = backup(home, tmp_path / "backups")
    other = load(home=tmp_path / "other")

    def meanwhile(done: int, total: int) -> None:
        if done == total:
            file = other.home / place / "of-a-job"
            file.parent.mkdir(parents=True)
            file.write_text("begun")

    with pytest.raises(Fatal, match=r"cannot be restored: .*not empty.*; nothing was restored"):
        restore(other, made, meanwhile)
    assert tree(other.home) == {f"{place}/of-a-job": "begun"}
    assert not list(tmp_path.rglob("*restoring*"))
    assert [folder.name for folder in other.home.iterdir()] == [place.split("/")[0]]


def test_a_layer_on_another_disk_is_backed_up_with_the_others(
    home: Settings, tmp_path: Path
) -> None:
    disk = tmp_path / "disk"
    (home.lake_root / "silver").rename(disk)
    (home.lake_root / "silver").symlink_to(disk)
    (disk / "around").symlink_to(home.lake_root)  # whoever follows it has no end
    (home.lake_root / "lost+found").mkdir(mode=0)
    other = load(home=tmp_path / "other")
    assert restore(other, backup(home, tmp_path / "backups")) == 7
    assert (other.lake_root / "silver" / "event" / "a.parquet").read_text() == "rows"
    assert not (other.lake_root / "silver").is_symlink()


def test_a_link_among_empty_folders_is_not_lost(home: Settings, tmp_path: Path) -> None:
    """Gold on another disk: it would fill the lake's."""
    made = backup(home, tmp_path / "backups")
    other = load(home=tmp_path / "other")
    (tmp_path / "disk").mkdir()
    other.lake_root.mkdir(parents=True)
    (other.lake_root / "gold").symlink_to(tmp_path / "disk")
    with pytest.raises(Usage, match="lake/gold: something is there"):
        restore(other, made)
    assert (other.lake_root / "gold").is_symlink()


def test_what_cannot_be_taken_back_is_told() -> None:
    def fails() -> None:
        raise PermissionError

    undone, steps = list[str](), _Steps()
    steps.add(Path("first"), lambda: undone.append("first"))
    steps.add(Path("second"), fails)
    steps.add(Path("third"), lambda: undone.append("third"))
    assert steps.undo() == [Path("second")]
    assert undone == ["third", "first"]


def test_what_a_killed_restore_left_is_not_taken_for_a_part_of_the_next(
    home: Settings, tmp_path: Path
) -> None:
    made = backup(home, tmp_path / "backups")
    other = load(home=tmp_path / "other")
    for name in ("lake/.restoring/silver/event/b.parquet", "spool/.restoring/audit/two.json"):
        left = other.home / name
        left.parent.mkdir(parents=True)
        left.write_text("of another backup")
    (other.home / ".redelivery.sqlite.restoring").write_text("of another backup")
    assert restore(other, made) == 7
    assert tree(other.home).keys() == tree(home.home).keys() - LEFT_OUT


@pytest.mark.parametrize(
    "name", ["spool/../../one.json", "spool//etc/one.json", "spool", "redelivery.sqlite/one"]
)
def test_a_manifest_cannot_name_a_place_of_its_own(
    home: Settings, tmp_path: Path, name: str
) -> None:
    made = backup(home, tmp_path / "backups")
    file = made / "manifest.json"
    file.write_text(file.read_text().replace("spool/audit/one.json", name))
    with pytest.raises(Fatal, match="which is no part of a backup"):
        restore(load(home=tmp_path / "other"), made)


KILLED = """
import os, sqlite3, sys
for name in sys.argv[1:]:
    db = sqlite3.connect(name)
    db.execute("INSERT INTO kept VALUES ('in the log')")
    db.commit()
os.kill(os.getpid(), 9)
"""


def test_a_database_is_whole_also_after_a_kill(home: Settings, tmp_path: Path) -> None:
    """What was committed may lie beside it, and a copy of the file alone would lack it."""
    files = [str(home.home / name) for name in DATABASES]
    assert subprocess.run([sys.executable, "-c", KILLED, *files], check=False).returncode == -9
    assert all(Path(f"{file}-wal").stat().st_size > 0 for file in files)
    other = load(home=tmp_path / "other")
    assert restore(other, backup(home, tmp_path / "backups")) == 7
    for name in DATABASES:
        assert "in the log" in said(other.home / name)
        assert not list(other.home.glob(f"{name}-*"))


def test_what_a_database_left_is_not_taken_for_a_part_of_the_one_that_comes(
    home: Settings, tmp_path: Path
) -> None:
    made = backup(home, tmp_path / "backups")
    other = load(home=tmp_path / "other")
    left = other.home / "webhooks.sqlite-wal"
    left.parent.mkdir()
    left.write_bytes(b"of another one")
    with pytest.raises(Usage, match=r"webhooks.sqlite-wal: something is there"):
        restore(other, made)


def test_a_damaged_database_is_named(home: Settings, tmp_path: Path) -> None:
    (home.home / "webhooks.sqlite").write_bytes(b"no database" * 100)
    with pytest.raises(Fatal, match=r"webhooks.sqlite: cannot be copied \(.*no backup was made"):
        backup(home, tmp_path / "backups")
    assert list((tmp_path / "backups").iterdir()) == []


def test_a_backup_of_an_earlier_form_is_restored_and_a_later_one_refused(
    home: Settings, tmp_path: Path
) -> None:
    made = backup(home, tmp_path / "backups")
    manifest = made / "manifest.json"
    text = manifest.read_text()
    manifest.write_text(text.replace('"form": 2', '"form": 3'))
    with pytest.raises(Fatal, match="has form 3, this version restores up to 2"):
        restore(load(home=tmp_path / "later"), made)
    manifest.write_text(text.replace('"form": 2', '"form": 1'))
    assert restore(load(home=tmp_path / "earlier"), made) == 7


@pytest.mark.full
def test_a_backup_says_how_much_is_only_in_the_broker(
    home: Settings, tmp_path: Path, own_broker: Broker, capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    spark = home.checkpoint_root / "ingest" / "spark"
    for name, text in {
        "offsets/3": 'v1\n{}\n{"logs.sshd":{"0":1}}',
        "commits/3": "v1\n{}",
    }.items():
        (spark / name).parent.mkdir(parents=True, exist_ok=True)
        (spark / name).write_text(text)
    settings = load(home=home.home, kafka={"bootstrap": own_broker.address})
    ensure_topics(settings, ["sshd"])
    client = producer(settings.kafka)
    for _ in range(3):
        client.produce(topic_of("sshd", settings.kafka), b"line")
    assert client.flush(20) == 0
    command = ["--home", str(home.home), "backup", str(tmp_path / "backups")]
    monkeypatch.setenv("HEADGATE_KAFKA__BOOTSTRAP", own_broker.address)
    assert main(command) == 0
    assert "2 messages are not read yet; they are only in the broker" in capsys.readouterr().err
    (made,) = (tmp_path / "backups").iterdir()
    assert json.loads((made / "manifest.json").read_text())["kafka"]["unread"] == 2
    own_broker.stop()
    later = load(home=home.home, kafka={"bootstrap": f"127.0.0.1:{free_port()}"})
    assert left_at(backup(later, tmp_path / "later")) == (
        "the broker did not say how much is not read yet; that is only in the broker"
    )


@pytest.mark.full
def test_a_broker_of_the_home_is_kept_when_it_rests(home: Settings, tmp_path: Path) -> None:
    own = Broker(home.home / "kafka", free_port()).start()
    try:
        settings = load(home=home.home, kafka={"bootstrap": own.address})
        ensure_topics(settings, ["sshd"])
        client = producer(settings.kafka)
        client.produce(topic_of("sshd", settings.kafka), b"a line that nobody has read")
        assert client.flush(20) == 0
        running = backup(settings, tmp_path / "backups")
        assert not (running / "kafka").exists()
    finally:
        own.stop()
    rested = backup(settings, tmp_path / "rested")
    assert (rested / "kafka" / "server.properties").exists()
    assert left_at(rested) is None
    other = load(home=tmp_path / "other", kafka={"bootstrap": own.address})
    restore(other, rested)
    shutil.rmtree(home.home / "kafka")
    own = Broker(other.home / "kafka", own.port).start()
    try:
        topic, end = topic_of("sshd", other.kafka), time.monotonic() + 20
        while topic not in admin(other.kafka).list_topics(timeout=20).topics:
            assert time.monotonic() < end
            time.sleep(0.1)
        (message,) = read_all(other, topic)
        assert message.value() == b"a line that nobody has read"
    finally:
        own.stop()


def test_a_backup_that_cannot_be_made_leaves_nothing(home: Settings, tmp_path: Path) -> None:
    def full(done: int, total: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with pytest.raises(Fatal, match=r"no backup was made: .*No space left"):
        backup(home, tmp_path / "backups", full)
    assert list((tmp_path / "backups").iterdir()) == []


def test_no_backup_is_taken_while_a_job_runs(home: Settings, tmp_path: Path) -> None:
    lock = JobLock(home.checkpoint_root / "ingest", "ingest")
    with pytest.raises(Fatal, match="job ingest already runs"):
        backup(home, tmp_path / "backups")
    lock.release()
    assert not (tmp_path / "backups").exists()
    with pytest.raises(Usage, match="lies inside"):
        backup(home, home.lake_root / "backups")
    assert main(["--home", str(tmp_path / "none"), "backup", str(tmp_path)]) == 1


def test_no_job_begins_while_a_backup_is_taken(home: Settings, tmp_path: Path) -> None:
    """Also one that has never run, and so has no folder yet; nor is a second backup begun."""
    told: list[str] = []

    def meanwhile(done: int, total: int) -> None:
        for job in ("import", "ingest"):
            with pytest.raises(Retryable) as refused:
                JobLock(home.checkpoint_root / job, job)
            told.append(str(refused.value))
        with pytest.raises(Fatal, match="another backup is at work on this home"):
            backup(home, tmp_path / "more")

    made = backup(home, tmp_path / "backups", meanwhile)
    assert f"job import cannot begin: a backup is under way (process {os.getpid()})" in told[0]
    assert "goes on by itself when it is done" in told[0]
    assert "job ingest cannot begin" in told[1]
    assert not (home.checkpoint_root / "import").exists()
    assert not list(made.rglob("lock"))
    JobLock(home.checkpoint_root / "import", "import").release()
    backup(home, tmp_path / "later")


def test_a_lock_that_root_made_for_a_backup_is_the_jobs(home: Settings, tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root makes files for others")
    os.chown(home.checkpoint_root, 4711, 4712)
    backup(home, tmp_path / "backups")
    made = (home.checkpoint_root / "lock").stat()
    assert (made.st_uid, made.st_gid) == (4711, 4712)


def squares(lake: Lake) -> Job:
    def batch(rows: DataFrame, run: Batch) -> None:
        lake.append(rows.selectExpr("n * n AS n"), SQUARE, run)

    return lake.each_batch("squares", lake.stream(NUMBER), batch, trigger_seconds=None)


@pytest.mark.full
def test_a_job_goes_on_from_a_backup_and_nothing_is_lost_or_doubled(
    lake: Lake, tmp_path: Path
) -> None:
    lake.ensure(NUMBER, SQUARE)
    lake.add(NUMBER, [{"n": 2}], "test")
    squares(lake).wait()
    lake.add(NUMBER, [{"n": 3}], "test")  # in the table, and not read by the job yet
    made = backup(lake.settings, tmp_path / "backups")
    squares(lake).wait()  # goes on after the backup: all of that is lost with the machine
    lake.settings.lake_root.rename(tmp_path / "broken")
    (lake.settings.checkpoint_root).rename(tmp_path / "broken-checkpoints")
    (lake.settings.home / "spool").rename(tmp_path / "broken-spool")
    restore(lake.settings, made)
    # A machine of its own would have a fresh JVM; ours must forget what it knew of the tables.
    forget_tables(lake.spark)
    lake.add(NUMBER, [{"n": 4}], "test")
    squares(lake).wait()
    assert sorted(row["n"] for row in lake.read(SQUARE).collect()) == [4, 9, 16]
