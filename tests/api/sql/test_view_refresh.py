"""An API that began before an upgrade, or before its lake was taken away."""

from __future__ import annotations

import shutil
import time
from dataclasses import replace
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from alerts.tables import FINDING
from api.app import create_app
from api.services.reader import Reader
from api.sql.runner import Refused, Statements
from infra.config.settings import Settings, load
from infra.runtime.job_registry import wanted_jobs
from infra.runtime.job_status import JobStatus, write_status
from infra.streaming.lake import Lake
from ingest.tables import EVENT
from tests.api.story import event
from tests.api.test_app import problem
from tests.infra.by_hand import add, define

OLD = replace(EVENT, columns=EVENT.columns[:9], cluster_by=(), stats=())
"""As an earlier release declared it."""
ASKED = "SELECT count(*) AS n, count(user_name) AS named FROM silver.event"
BY_VIEW = "SELECT user_name FROM silver.events WHERE user_name IS NOT NULL"


@pytest.fixture
def old(tmp_path: Path) -> Settings:
    """A lake of silver.event alone, in nine columns."""
    define(folder(tmp_path), OLD)
    named = {column.name for column in OLD.columns}
    row = {name: value for name, value in event("e1", "12:00").items() if name in named}
    add(folder(tmp_path), OLD, [row])
    return load(home=tmp_path, api={"statement_memory": "300MB"})


def folder(home: Path) -> Path:
    return home / "lake" / "silver" / "event"


def upgrade(home: Path) -> None:
    """What the next release does when its jobs start, and a row that it writes then."""
    define(folder(home), EVENT)
    add(folder(home), EVENT, [event("e2", "12:01", user_name="ann")])


def test_an_endpoint_sees_a_column_that_was_added_since(old: Settings) -> None:
    reader = Reader(old)
    assert reader.rows(ASKED, needs=["silver.event"]) == [{"n": 1, "named": 0}]
    upgrade(old.home)
    assert reader.rows(ASKED, needs=["silver.event"]) == [{"n": 2, "named": 1}]
    assert reader.rows(BY_VIEW, needs=["silver.events"]) == [{"user_name": "ann"}]
    reader.close()


def test_a_statement_sees_a_column_and_a_table_that_were_added_since(old: Settings) -> None:
    running = Statements(old)
    try:
        assert running.run(ASKED).rows == [[1, 0]]
        process = running.processes
        with pytest.raises(Refused, match=r"not in the lake: gold\.finding"):
            running.run("SELECT count(*) FROM gold.finding")
        upgrade(old.home)
        define(old.home / "lake" / "gold" / "finding", FINDING)
        assert running.run(ASKED).rows == [[2, 1]]
        assert running.run(BY_VIEW).rows == [["ann"]]
        assert running.run("SELECT count(*) FROM gold.finding").rows == [[0]]
        assert running.processes == process
    finally:
        running.close()


@pytest.mark.full
def test_an_api_whose_lake_was_taken_away_or_replaced_is_not_ready(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("api.services.reader.NEAR_SECONDS", 0.0)
    now = time.time()
    for name in wanted_jobs(lake.settings):
        write_status(
            lake.settings, JobStatus(name, "running", at=now, batch_at=now, progressed_at=now)
        )
    client = TestClient(create_app(lake.settings))
    assert client.get("/readyz").status_code == 200

    table, aside = lake.folder(FINDING), lake.settings.home / "aside"
    table.rename(aside)
    assert "not in the lake: gold.finding" in problem(client.get("/readyz"), 503)["detail"]
    aside.rename(table)
    assert client.get("/readyz").status_code == 200

    table.rename(aside)
    define(table, FINDING, "another")
    detail = problem(client.get("/readyz"), 503)["detail"]
    assert "another lake was put in the place of the one this API began with" in detail
    assert "(by the ids of gold.finding)" in detail
    assert TestClient(create_app(lake.settings)).get("/readyz").status_code == 200
    shutil.rmtree(table)
    aside.rename(table)
    assert client.get("/readyz").status_code == 200

    shutil.rmtree(lake.settings.home / "lake")
    assert "there is no lake here" in problem(client.get("/readyz"), 503)["detail"]
