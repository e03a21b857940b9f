"""Which tables maintenance on a schedule begins Spark for: those with something due, no others."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import types as T

from infra.cli import maintenance as maintenance_command
from infra.config.settings import Settings, load
from infra.delta.schema import Column, Table
from infra.maintenance.compaction_plan import FAN_IN
from infra.maintenance.idle_tables import LONGEST_UNMERGED, WAITING_FILES, tend_idle
from infra.process.clock import clock

NOTE = Table(
    "silver.note",
    "notes that arrive",
    (
        Column("source", T.StringType(), "whose"),
        Column("received_at", T.TimestampType(), "when"),
    ),
    expires="silver_days",
)
HOUR = 3600.0
LONG = LONGEST_UNMERGED.total_seconds() + 60


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return load(home=tmp_path / "home", lake=tmp_path / "lake")


def committed(settings: Settings, *actions: dict[str, Any]) -> None:
    folder = Path(str(settings.lake_root)) / NOTE.path
    log = folder / "_delta_log"
    log.mkdir(parents=True, exist_ok=True)
    version = len(list(log.glob("*.json")))
    first: list[dict[str, Any]] = [
        {"metaData": {"id": NOTE.name, "schemaString": NOTE.schema.json(), "configuration": {}}}
    ]
    lines = [*(first if version == 0 else []), *actions]
    (log / f"{version:020}.json").write_text("\n".join(map(json.dumps, lines)))


def arrived(settings: Settings, count: int = 1, age: float = 0.0, source: str = "sshd") -> None:
    """Commits of a file each, written and received so many seconds ago."""
    then = time.time() - age
    received = datetime.fromtimestamp(then, UTC).isoformat()
    stats = {
        "numRecords": 1,
        "minValues": {"source": source, "received_at": received},
        "maxValues": {"source": source, "received_at": received},
    }
    folder = Path(str(settings.lake_root)) / NOTE.path
    folder.mkdir(parents=True, exist_ok=True)
    for _ in range(count):
        name = f"part-{len(list(folder.glob('*.parquet')))}.parquet"
        (folder / name).write_bytes(b"some rows")
        os.utime(folder / name, (then, then))
        entry = {"path": name, "size": 9, "modificationTime": int(then * 1000),
                 "stats": json.dumps(stats)}  # fmt: skip
        committed(settings, {"add": entry})


def rests(settings: Settings) -> bool:
    return tend_idle(settings, NOTE) is not None


def test_a_table_without_rows_rests_and_is_counted(settings: Settings) -> None:
    committed(settings)
    done = tend_idle(settings, NOTE)
    assert done is not None
    assert (done.table, done.files, done.held) == ("silver.note", 0, ())
    assert done.kept_hours == settings.maintenance.keep_hours


def test_the_heartbeats_of_quiet_hours_wait_but_not_for_long(settings: Settings) -> None:
    arrived(settings, FAN_IN * 2)
    assert rests(settings)
    arrived(settings, age=LONG)
    assert not rests(settings)


def test_old_files_that_nothing_is_to_be_merged_with_are_no_work(settings: Settings) -> None:
    arrived(settings, FAN_IN - 1, age=LONG)
    assert rests(settings)


def test_a_busy_hour_is_merged_at_once(settings: Settings) -> None:
    arrived(settings, WAITING_FILES - 1)
    assert rests(settings)
    arrived(settings)
    assert not rests(settings)


def test_rows_go_when_their_retention_ends_though_nothing_came(settings: Settings) -> None:
    arrived(settings, age=2 * 24 * HOUR)
    assert rests(settings)
    for days, due in ((3.0, False), (1.0, True)):
        kept = settings.retention.model_copy(update={"silver_days": days})
        assert rests(settings.model_copy(update={"retention": kept})) is not due
        own = settings.retention.model_copy(update={"sources": {"sshd": days}})
        assert rests(settings.model_copy(update={"retention": own})) is not due
    other = settings.retention.model_copy(update={"sources": {"zeek": 1.0}})
    assert rests(settings.model_copy(update={"retention": other}))


@pytest.mark.parametrize("name", ["left.parquet", "deletion_vector_1.bin"])
def test_files_of_former_versions_go_when_nobody_needs_them(settings: Settings, name: str) -> None:
    arrived(settings)
    file = Path(str(settings.lake_root)) / NOTE.path / name
    file.write_bytes(b"rows")
    assert rests(settings)
    then = time.time() - settings.maintenance.keep_hours * HOUR - 60
    os.utime(file, (then, then))
    assert not rests(settings)


def damaged(file: Path) -> None:
    file.write_text('{"add": {"pa')


def lost(file: Path) -> None:
    file.unlink()


@pytest.mark.parametrize("hurt", [damaged, lost])
def test_what_cannot_be_told_is_looked_at_with_spark(
    settings: Settings, hurt: Callable[[Path], None]
) -> None:
    arrived(settings, 3)
    assert rests(settings)
    log = Path(str(settings.lake_root)) / NOTE.path / "_delta_log"
    hurt(log / f"{1:020}.json")
    assert not rests(settings)


def test_a_clock_in_doubt_leaves_the_table_to_who_says_so(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    arrived(settings)
    monkeypatch.setattr(clock, "doubt", lambda: "the clock jumped")
    assert not rests(settings)


def test_a_run_on_schedule_says_that_it_began_no_spark(
    settings: Settings, capsys: pytest.CaptureFixture[str]
) -> None:
    arrived(settings, FAN_IN)
    (done,) = maintenance_command.tend_idle_tables(settings, [NOTE])
    assert done.files == FAN_IN
    said = capsys.readouterr().err
    assert said.startswith("1 of 1 tables have little or nothing to be done")
    assert "Spark, which is not begun" in said
