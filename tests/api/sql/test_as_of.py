"""Statements about the past that come to no answer: what the user is told, and what lives on."""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from api.sql.runner import Fault, Limit, Refused, Statements
from infra.config.settings import Settings, load
from infra.delta.log_archive import ARCHIVE, LOG, single
from infra.delta.time_travel import Committed
from ingest.tables import EVENT
from tests.api.sql.test_runner import FOUR
from tests.api.story import event
from tests.infra.by_hand import add, define

COUNT = "SELECT count(*) AS n FROM silver.event"
BOMB = f"{FOUR} f AS (SELECT 1) SELECT count(*) FROM e a, e b, e c WHERE a.x + b.x * c.x = -1"


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """silver.event in three versions: made, and two events."""
    folder = tmp_path / "lake" / "silver" / "event"
    define(folder, EVENT)
    for name in ("e1", "e2"):
        add(folder, EVENT, [event(name, "12:00")])
    return folder


@pytest.fixture
def settings(tmp_path: Path, table: Path) -> Settings:
    return load(home=tmp_path, api={"statement_memory": "300MB", "statement_seconds": 6})


@pytest.fixture
def statements(settings: Settings) -> Iterator[Statements]:
    running = Statements(settings)
    yield running
    running.close()


@pytest.mark.full
def test_a_fault_of_ours_is_named_in_the_log_and_the_process_lives_on(
    table: Path, statements: Statements, caplog: pytest.LogCaptureFixture
) -> None:
    at = Committed(table).of(1)
    assert statements.run(COUNT, as_of=at).rows == [[1]]
    process = statements.processes
    damaged = single(table / LOG, 1)
    damaged.with_name(f".{damaged.name}.crc").write_bytes(b"crc\0" + bytes(8))
    with (
        caplog.at_level(logging.ERROR),
        pytest.raises(Fault, match="no fault of the statement") as told,
    ):
        statements.run(COUNT, as_of=at)
    (said,) = caplog.messages
    assert "is damaged (its checksum says otherwise)" in said
    name = said.split()[1].rstrip(":")
    assert f"(fault {name})" in str(told.value)
    assert "damaged" not in str(told.value)
    assert statements.processes == process
    assert statements.run(COUNT).rows == [[2]]


def test_what_goes_while_it_is_looked_for_is_no_longer_kept(
    table: Path, statements: Statements
) -> None:
    at = Committed(table).of(0)
    (table / ARCHIVE).mkdir()
    single(table / LOG, 0).unlink()
    single(table / ARCHIVE, 0).symlink_to(table / "gone")
    with pytest.raises(Refused, match=r"silver\.event: as it was at .* it is no longer kept"):
        statements.run(COUNT, as_of=at)
    assert len(statements.processes) == 1


@pytest.mark.full
def test_a_process_that_is_killed_leaves_nothing(
    settings: Settings, statements: Statements
) -> None:
    def left() -> list[Path]:
        places = (
            Path(tempfile.gettempdir()).glob("*as-of-*"),
            settings.scratch_root.rglob("as-of-*"),
        )
        return [one for place in places for one in place if one not in before]

    before = set(Path(tempfile.gettempdir()).glob("*as-of-*"))
    with pytest.raises(Limit, match="stopped after 6 s"):
        statements.run(BOMB, as_of=datetime.now(UTC))
    assert left() == []
    statements.run("SELECT 1")
    assert len(list(settings.scratch_root.glob("*/headgate-sql-*"))) == 1
    statements.close()
    assert list(settings.scratch_root.glob("*/headgate-sql-*")) == []
