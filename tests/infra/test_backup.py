"""A backup comes back as it was, or not at all; and jobs go on from it."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest
from pyspark.sql import DataFrame
from pyspark.sql import types as T

from infra.backup import backup, restore
from infra.cli import main
from infra.errors import Fatal, Usage
from infra.jobs import Batch, Job, Lock
from infra.lake import Lake
from infra.settings import Settings, load
from infra.tables import Column, Table

NUMBER = Table("silver.number", "numbers that arrive", (Column("n", T.LongType(), "a number"),))
SQUARE = Table("gold.square", "their squares", (Column("n", T.LongType(), "a square"),))


@pytest.fixture
def home(tmp_path: Path) -> Settings:
    settings = load(home=tmp_path / "home")
    for name, text in {
        "lake/silver/event/a.parquet": "rows",
        "lake/_rules/packs/one.json": "{}",
        "checkpoints/ingest/batches/3.json": '{"topic_ids": {}}',
        "checkpoints/ingest/lock": "77",
        "spool/audit/one.json": "{}",
        "redelivery.sqlite": "keys",
        "api.token": "secret",
    }.items():
        file = settings.home / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        os.utime(file, (1_000_000, 1_000_000))
    return settings


def tree(home: Path) -> dict[str, str]:
    return {str(f.relative_to(home)): f.read_text() for f in home.rglob("*") if f.is_file()}


def test_what_comes_back_is_what_was_there(home: Settings, tmp_path: Path) -> None:
    made = backup(home, tmp_path / "backups")
    assert not any("secret" in text for text in tree(made).values())
    other = load(home=tmp_path / "other", lake=tmp_path / "elsewhere" / "lake")
    assert restore(other, made) == 5
    assert (tmp_path / "elsewhere/lake/silver/event/a.parquet").read_text() == "rows"
    assert (tmp_path / "elsewhere/lake/silver/event/a.parquet").stat().st_mtime == 1_000_000
    assert tree(other.home) == {
        "checkpoints/ingest/batches/3.json": '{"topic_ids": {}}',
        "spool/audit/one.json": "{}",
        "redelivery.sqlite": "keys",
    }
    with pytest.raises(Usage, match="something is there; restore onto an empty home"):
        restore(other, made)


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


def test_what_a_killed_restore_left_is_not_taken_for_a_part_of_the_next(
    home: Settings, tmp_path: Path
) -> None:
    made = backup(home, tmp_path / "backups")
    other = load(home=tmp_path / "other")
    left = other.home / ".lake.restoring/silver/event/of-another-backup.parquet"
    left.parent.mkdir(parents=True)
    left.write_text("rows")
    assert restore(other, made) == 5
    assert sorted(f.name for f in other.lake_root.rglob("*") if f.is_file()) == [
        "a.parquet",
        "one.json",
    ]


def test_a_manifest_cannot_name_a_place_of_its_own(home: Settings, tmp_path: Path) -> None:
    made = backup(home, tmp_path / "backups")
    file = made / "manifest.json"
    file.write_text(file.read_text().replace("spool/audit/one.json", "spool/../../one.json"))
    with pytest.raises(Fatal, match="which is no part of a backup"):
        restore(load(home=tmp_path / "other"), made)


def test_a_backup_that_cannot_be_made_leaves_nothing(home: Settings, tmp_path: Path) -> None:
    def full(done: int, total: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with pytest.raises(Fatal, match=r"no backup was made: .*No space left"):
        backup(home, tmp_path / "backups", full)
    assert list((tmp_path / "backups").iterdir()) == []


def test_no_backup_is_taken_while_a_job_runs(home: Settings, tmp_path: Path) -> None:
    lock = Lock(home.checkpoint_root / "ingest", "ingest")
    with pytest.raises(Fatal, match="job ingest already runs"):
        backup(home, tmp_path / "backups")
    lock.release()
    assert not (tmp_path / "backups").exists()
    with pytest.raises(Usage, match="lies inside"):
        backup(home, home.lake_root / "backups")
    assert main(["--home", str(tmp_path / "none"), "backup", str(tmp_path)]) == 1


def squares(lake: Lake) -> Job:
    def batch(rows: DataFrame, run: Batch) -> None:
        lake.append(rows.selectExpr("n * n AS n"), SQUARE, run)

    return lake.each_batch("squares", lake.stream(NUMBER), batch, trigger_seconds=None)


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
    forget = lake.spark._jvm.org.apache.spark.sql.delta.DeltaLog  # type: ignore[union-attr]
    forget.clearCache()
    lake.add(NUMBER, [{"n": 4}], "test")
    squares(lake).wait()
    assert sorted(row["n"] for row in lake.read(SQUARE).collect()) == [4, 9, 16]
