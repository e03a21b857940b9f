"""Search by SQL: which engine answered and why, and statements that are kept."""

from __future__ import annotations

import html
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from api.app import create_app
from api.credentials import Credentials
from api.sql.runner import Answer
from infra.config.settings import Settings, load
from tests.api.desk import TOKEN, audited
from tests.console.test_rule_tuning import csrf_of

SQL = "SELECT source, round(1.5) AS n FROM silver.events WHERE time >= :since"
WHY = "DuckDB may answer otherwise than Spark: function round is not known to answer alike"


class Answered:
    """A runner whose answer is known; what it was asked is kept."""

    def __init__(self, engine: str, reason: str) -> None:
        self.asked: dict[str, Any] = {}
        self._engine, self._reason = engine, reason

    def run(self, sql: str, params: dict[str, Any], **more: Any) -> Answer:
        self.asked = {"sql": sql, "params": params} | more
        columns = [{"name": "source", "type": "string"}, {"name": "n", "type": "bigint"}]
        return Answer(
            columns=columns, rows=[["sshd", 2]], truncated_by=None,
            elapsed_ms=2_400.0, engine=self._engine, engine_reason=self._reason,
        )  # fmt: skip

    def close(self) -> None:
        """Nothing was begun."""


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return load(home=tmp_path, api={"token": TOKEN})


def browser(settings: Settings, role: str, runner: Any = None) -> TestClient:
    app = create_app(settings)
    if runner is not None:
        app.state.services = replace(app.state.services, statements=runner)
    _, key = Credentials(settings).add_key(role, role)
    client = TestClient(app, raise_server_exceptions=False, follow_redirects=False)
    assert client.post("/login", data={"key": key}).status_code == 303
    return client


@pytest.mark.parametrize(
    ("engine", "reason", "sentence"),
    [
        ("spark", WHY, f"<b>Spark answered this.</b> {WHY}."),
        ("duckdb", "it answers this as Spark does", "DuckDB answered this: it answers this as"),
    ],
)
def test_the_page_says_which_engine_answered_and_why(settings, engine, reason, sentence):
    runner = Answered(engine, reason)
    client = browser(settings, "viewer", runner)
    page = html.unescape(client.get("/search", params={"sql": SQL, "since": "2026-11-20"}).text)
    assert sentence in page
    assert "in 2.4 s" in page
    assert '<td class="num"><code>2</code>' in page
    assert runner.asked["engine"] == "auto"
    assert runner.asked["params"] == {"since": "2026-11-20T00:00:00Z"}, "the page's time"


@pytest.mark.full
def test_an_analyst_keeps_a_statement_and_a_viewer_opens_it(settings):
    runner = Answered("duckdb", "it answers this as Spark does")
    ann = browser(settings, "analyst", runner)
    page = ann.get("/search", params={"sql": SQL}).text
    form = {
        "csrf": csrf_of(page),
        "sql": SQL,
        "name": "by-source",
        "doc": "who sends",
        "every": "1440",
    }
    kept = ann.post("/search/queries", data=form)
    assert kept.status_code == 303, kept.text
    assert kept.headers["location"] == "/search/queries/by-source"
    eve = browser(settings, "viewer", runner)
    page = html.unescape(eve.get("/search", params={"sql": "SELECT 1"}).text)
    assert ">by-source</a>" in page
    assert "every 24 h, next" in page
    assert "/search/queries/by-source/remove" not in page
    stranger = eve.post("/search/queries", data=form | {"csrf": csrf_of(page)})
    assert stranger.status_code == 403
    for wrong in ({"name": "../x"}, {"every": "7"}, {"sql": ""}):
        assert ann.post("/search/queries", data=form | wrong).status_code == 422
    assert ann.post("/search/queries", data=form | {"csrf": "guess"}).status_code == 403
    gone = ann.post("/search/queries/by-source/remove", data={"csrf": form["csrf"]})
    assert gone.status_code == 303
    assert ">by-source</a>" not in ann.get("/search", params={"sql": SQL}).text
    acts = [(row["act"], row["target"]) for row in audited(settings)]
    assert [act for act in acts if act[1] == "by-source"] == [
        ("query.save", "by-source"), ("query.remove", "by-source"),
    ]  # fmt: skip
