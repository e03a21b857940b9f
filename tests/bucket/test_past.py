"""A table in a bucket, for those who only read: as it is now, and as it was."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime
from pathlib import Path

import pytest

from api.services.reader import Reader
from api.sql.runner import Refused, Statements
from infra.config.settings import Settings, load
from infra.delta.log_archive import ARCHIVE, LOG, single, singles
from infra.delta.table_lock import require_locks_here, table_locked
from infra.delta.time_travel import Committed
from infra.storage import paths as place
from infra.storage.paths import Location
from ingest.tables import EVENT
from tests.api.story import event
from tests.bucket.store import Store
from tests.infra.by_hand import add, define

COUNT = "SELECT count(*) AS n FROM silver.event"
PATIENCE = 2.0


@pytest.fixture
def settings(store: Store, tmp_path: Path, request: pytest.FixtureRequest) -> Settings:
    """silver.event with two events, of whose three commits two have left the log."""
    name = request.node.name.removeprefix("test_")
    made = load(
        home=tmp_path / "home", lake=f"s3://plant/{name}", api={"statement_memory": "300MB"}
    )
    table = folder(made)
    define(table, EVENT)
    for uid in ("e1", "e2"):
        add(table, EVENT, [event(uid, "12:00")])
    require_locks_here(made)
    with table_locked(made.lake_side, EVENT.name):
        place.move([(single(table / LOG, one), single(table / ARCHIVE, one)) for one in (0, 1)])
    return made


def folder(settings: Settings) -> Location:
    return settings.lake_root / "silver" / "event"


@contextmanager
def statements(settings: Settings) -> Iterator[Statements]:
    running = Statements(settings)
    try:
        yield running
    finally:
        running.close()


@pytest.mark.full
def test_what_left_the_log_is_lent_by_who_is_alone_with_the_table(settings: Settings) -> None:
    table = folder(settings)
    at = Committed(table).of(1)
    with statements(settings) as running, ThreadPoolExecutor(1) as beside:
        assert running.run("SELECT 1").rows == [[1]]
        with table_locked(settings.lake_side, EVENT.name):
            asked = beside.submit(running.run, COUNT, as_of=at)
            with pytest.raises(TimeoutError):
                asked.result(PATIENCE)
            assert singles(table / LOG) == [2]
        answer = asked.result(60)
    assert (answer.rows, answer.versions) == ([[1]], {"silver.event": 1})
    assert singles(table / LOG) == [0, 1, 2]


@pytest.mark.full
def test_who_has_another_home_is_refused_and_writes_nothing(
    settings: Settings, tmp_path: Path
) -> None:
    refused(
        settings.model_copy(update={"home": tmp_path / "elsewhere"}),
        Committed(folder(settings)).of(1),
    )
    assert not (tmp_path / "elsewhere" / "lake").exists()


@pytest.mark.full
def test_who_may_not_lock_is_refused_and_writes_nothing(settings: Settings) -> None:
    lock = settings.lake_side / "_locks" / EVENT.name
    lock.unlink()
    refused(settings, Committed(folder(settings)).of(1))
    assert not lock.exists()


def test_an_endpoint_sees_a_column_that_was_added_since(store: Store, tmp_path: Path) -> None:
    made = load(home=tmp_path / "home", lake="s3://plant/wider")
    old = replace(EVENT, columns=EVENT.columns[:9], cluster_by=(), stats=())
    define(folder(made), old)
    reader = Reader(made)
    asked = "SELECT user_name FROM silver.events"
    assert reader.rows(asked, needs=["silver.events"]) == []
    define(folder(made), EVENT)
    add(folder(made), EVENT, [event("e1", "12:00", user_name="ann")])
    assert reader.rows(asked, needs=["silver.events"]) == [{"user_name": "ann"}]
    reader.close()


def refused(settings: Settings, at: datetime) -> None:
    with statements(settings) as running:
        with pytest.raises(Refused, match=r"silver\.event: its commits of then have left its log"):
            running.run(COUNT, as_of=at)
        assert running.run("SELECT 1").rows == [[1]]
    assert singles(folder(settings) / LOG) == [2]
