"""How rules do, over REST and on the console's pages, over tables in memory."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from api.app import create_app
from api.console.session import COOKIE
from infra.config.settings import load
from tests.alerts.tuning.history import Asked, alert, finding
from tests.api.routes.test_rules import RULE, TOKEN
from tests.api.test_app import problem
from tests.reporting.memory_lake import MemoryLake

ID = "3f0b8a44-6d0c-4b53-9d7a-2a6a1c0f4a10"
HOSTILE = "Odd <script>alert(1)</script> tool"


@pytest.fixture(scope="module")
def app(tmp_path_factory: pytest.TempPathFactory) -> Any:
    home: Path = tmp_path_factory.mktemp("scorecard")
    (home / "rules").mkdir()
    (home / "rules" / "odd.yml").write_text(RULE.replace("Odd tool", HOSTILE), "utf-8")
    rules = {"bundled": False, "rules": [str(home / "rules")]}
    made = create_app(load(home=home, api={"token": TOKEN}, alerts=rules))
    began = datetime.now(UTC) - timedelta(days=2)
    lake = MemoryLake().add("gold.finding", [finding("e", ID, time=began)])
    lake.add("gold.alert", [
        alert(f"a{n}", ID, "false_positive" if n < 8 else None, began=began) for n in range(9)
    ])  # fmt: skip
    made.state.services = replace(made.state.services, reader=Asked(lake))
    return made


def test_the_scorecard_says_what_verdicts_say_and_refuses_what_it_does_not_know(app: Any) -> None:
    client = TestClient(app, headers={"Authorization": f"Bearer {TOKEN}"})
    answered = client.get("/api/v1/rules/scorecard?days=7")
    assert answered.status_code == 200, answered.text
    (score,) = answered.json()["items"]
    assert (score["rule_id"], score["judged"], score["alerts"]) == (ID, 8, 9)
    assert (score["precision"], score["recommendation"]) == (0.0, "tune")
    assert answered.json()["covered_days"] == 2.0
    for query, words in (("weeks=1", "weeks: no such parameter"), ("days=0", "days")):
        refused = problem(client.get(f"/api/v1/rules/scorecard?{query}"), 422)
        assert words in str(refused)


def test_the_rules_pages_show_what_is_recommended_and_why(app: Any) -> None:
    cookie = app.state.console.sessions.begin(app.state.services.access.caller(TOKEN))
    client = TestClient(app, headers={"Cookie": f"{COOKIE}={cookie}"})
    for path in ("/rules", f"/rules/{ID}"):
        page = client.get(path)
        assert page.status_code == 200, page.text
        assert "tune" in page.text
        assert "0 of 8 judged were true" in page.text
        assert "<script>alert" not in page.text
