"""`headgate sql --as-of`: the tables as they were, and a sentence where that is no longer kept."""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from api import cli
from api.sql.runner import Refused, Statements
from infra.delta.duckdb_views import definitions, open_engine, refresh
from infra.delta.log_reader import live_versions
from infra.delta.schema import Table
from infra.delta.time_travel import Committed, version_at
from infra.delta.transaction import active_files
from infra.errors import Usage
from infra.maintenance import maintenance
from infra.spark.internals import checkpoint_table
from infra.streaming.lake import Lake
from infra.streaming.log_retention import archive_commits
from ingest.tables import EVENT

BEGIN = 1_763_600_000
COUNT = "SELECT count(*) AS n FROM silver.events"


@pytest.fixture
def told(lake: Lake) -> Lake:
    """silver.event in four versions: made, two events, a third, and without the first file."""
    at = datetime(2026, 11, 20, 12, tzinfo=UTC)
    rows = [
        {"event_uid": f"e{n}:0", "source": "sshd", "time": at, "class_uid": 3002} for n in "123"
    ]
    lake.add(EVENT, rows[:2], "test")
    (first,) = active_files(lake.spark, lake.path(EVENT))
    lake.add(EVENT, rows[2:], "test")
    lake.replace(EVENT, [first], [], "test")
    return lake


@pytest.fixture
def statements(told: Lake) -> Iterator[Statements]:
    running = Statements(told.settings)
    yield running
    running.close()


def at(lake: Lake, version: int) -> datetime:
    return Committed(lake.folder(EVENT)).of(version)


@pytest.mark.full
def test_each_version_is_answered_as_it_was(told: Lake, statements: Statements) -> None:
    answers = [statements.run(COUNT, as_of=at(told, version)) for version in range(4)]
    assert [answer.rows for answer in answers] == [[[0]], [[2]], [[3]], [[1]]]
    assert [answer.versions for answer in answers] == [{"silver.event": n} for n in range(4)]
    before = at(told, 2) - timedelta(milliseconds=1)
    assert statements.run(COUNT, as_of=before).rows == [[2]]
    assert statements.run(COUNT).rows == [[1]]
    assert statements.run(COUNT).versions == {}


@pytest.mark.full
def test_versions_that_left_the_log_are_answered_the_same(
    told: Lake, statements: Statements
) -> None:
    checkpoint_table(told.spark, told.path(EVENT))
    assert archive_commits(told.folder(EVENT), 3, time.time() + 86_400) == 3
    assert live_versions(told.folder(EVENT)) == [3]
    answers = [statements.run(COUNT, as_of=at(told, version)) for version in range(4)]
    assert [answer.rows for answer in answers] == [[[0]], [[2]], [[3]], [[1]]]
    assert [answer.versions for answer in answers] == [{"silver.event": n} for n in range(4)]
    assert statements.run(COUNT).rows == [[1]]


@pytest.mark.full
def test_what_was_not_there_yet_is_said(told: Lake, statements: Statements) -> None:
    with pytest.raises(Refused, match=r"silver\.event: there was no such table at 2020-01-01T00"):
        statements.run(COUNT, as_of=datetime(2020, 1, 1, tzinfo=UTC))


@pytest.mark.full
def test_what_maintenance_has_deleted_is_said_and_what_it_keeps_can_be_read(
    told: Lake, statements: Statements
) -> None:
    kept = maintenance.retention_interval(told.settings, EVENT, told.folder(EVENT))
    assert kept == timedelta(hours=told.settings.maintenance.keep_hours)
    maintenance.vacuum(told, EVENT, kept)
    assert statements.run(COUNT, as_of=at(told, 2)).rows == [[3]]
    time.sleep(0.01)
    maintenance.vacuum(told, EVENT, timedelta(0))
    with pytest.raises(Refused, match=r"\(version 2\) it can no longer be read: 1 of its 2 files"):
        statements.run(COUNT, as_of=at(told, 2))
    assert statements.run(COUNT, as_of=at(told, 3)).rows == [[1]]


@pytest.mark.full
def test_a_log_that_was_cut_is_said(told: Lake) -> None:
    log = told.folder(EVENT) / "_delta_log"
    when = [at(told, version) for version in range(4)]
    (log / f"{0:020d}.json").unlink()
    with pytest.raises(Usage, match=r"at .* is no longer kept; it begins at"):
        version_at("silver.event", told.folder(EVENT), when[0])
    with pytest.raises(Usage, match=r"\(version 2\) is no longer kept: the log lacks"):
        version_at("silver.event", told.folder(EVENT), when[2])


@pytest.mark.parametrize("second", [100, 590, 86_000])
def test_where_the_clock_was_set_back_no_version_is_guessed(tmp_path: Path, second: int) -> None:
    """300 commits two seconds apart, of which twenty are a day ahead."""
    log = tmp_path / "_delta_log"
    log.mkdir()
    for version in range(300):
        ahead = 86_400 if 140 <= version < 160 else 0
        told = {"commitInfo": {"timestamp": (BEGIN + version * 2 + ahead) * 1000}}
        (log / f"{version:020d}.json").write_text(json.dumps(told) + "\n")
    asked = datetime.fromtimestamp(BEGIN + second + 1, UTC)
    if second < 280:
        assert version_at("silver.event", tmp_path, asked) == second // 2
    else:
        with pytest.raises(Usage, match="is not known: later ones have earlier times"):
            version_at("silver.event", tmp_path, asked)


@pytest.mark.full
def test_a_column_that_came_later_is_null_before(lake: Lake) -> None:
    fewer = Table("silver.fewer", "as a release before made it", EVENT.columns[:5])
    lake.ensure(fewer)
    lake.add(fewer, [{"event_uid": "e1:0", "record_ids": ["r"]}], "test")
    known = {one.name: one for one in definitions(lake.settings.lake_root)}
    older = replace(known["silver.event"], folder=lake.path(fewer))
    engine = open_engine(memory="300MB", threads=1)
    assert refresh(engine, [older]) == {}
    asked = "SELECT event_uid, time, src_endpoint.ip, user_name = 'x', metadata FROM silver.event"
    assert engine.execute(asked).fetchall() == [("e1:0", None, None, None, None)]


@pytest.mark.full
def test_the_command_says_which_versions_it_read(
    told: Lake, capsys: pytest.CaptureFixture[str]
) -> None:
    parser = argparse.ArgumentParser()
    cli.build(parser.add_subparsers(required=True))

    def run(*more: str) -> Any:
        args = parser.parse_args(["sql", COUNT, "--output", "json", *more])
        assert args.run(args, told.settings) == 0
        return json.loads(capsys.readouterr().out)

    assert run("--as-of", at(told, 2).isoformat()) == [{"n": 3}]
    args = parser.parse_args(["sql", COUNT, "--as-of", at(told, 1).isoformat()])
    args.run(args, told.settings)
    assert "versions read: silver.event 1" in capsys.readouterr().err
    with pytest.raises(Usage, match="--as-of noon: write an instant"):
        run("--as-of", "noon")
    noted = sorted((told.spool / "audit").glob("*.json"))
    assert "as_of" in json.loads(json.loads(noted[0].read_text())["detail"])
