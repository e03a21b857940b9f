"""The page of a device: its risk, and what is told as known now beside what was known then."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from fastapi.testclient import TestClient

from api.app import create_app
from api.credentials import Credentials
from infra.config.settings import load
from tests.alerts.tuning.history import Asked
from tests.api.story import A, B, alert
from tests.reporting.memory_lake import MemoryLake

SPAN = "since=2026-11-20&until=2026-11-21"


def risky(alert_id: str, risk: int, lifecycle: str, entity: str = A) -> dict:
    row = alert(alert_id, "12:05", risk_score=risk, entity_value=entity)
    return row | {"body": json.dumps(json.loads(row["body"]) | {"lifecycle": lifecycle})}


@pytest.fixture
def browser(tmp_path):
    settings = load(home=tmp_path)
    app = create_app(settings)
    rows = [risky("a", 55, "new"), risky("b", 90, "closed"), risky("c", 20, "triaged"),
            risky("d", 80, "closed", B)]  # fmt: skip
    reader = Asked(MemoryLake().add("gold.alert", rows))
    app.state.services = replace(app.state.services, reader=reader)
    _, key = Credentials(settings).add_key("ann", "read")
    client = TestClient(app, raise_server_exceptions=False, follow_redirects=False)
    assert client.post("/login", data={"key": key}).status_code == 303
    return client


def test_the_risk_of_a_device_is_the_highest_of_its_alerts_that_are_not_closed(browser):
    assert "risk <b>55</b>" in browser.get(f"/entity/mac/{A}?{SPAN}").text
    closed = browser.get(f"/entity/mac/{B}?{SPAN}")
    assert closed.status_code == 200
    assert "risk <b>" not in closed.text


def test_what_is_not_told_as_of_then_says_so(browser):
    words = "by leases as known now"
    assert words not in browser.get(f"/entity/mac/{A}?{SPAN}").text
    assert words in browser.get(f"/entity/mac/{A}?{SPAN}&known_by=2026-11-20T12:10:00Z").text
