"""Suppressions over REST: what they would hide, and that they hide just that."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from fastapi.testclient import TestClient

from infra.config.settings import load
from infra.streaming.lake import Lake
from tests.api.desk import TOKEN, Desk, alert_of
from tests.api.test_app import problem

pytestmark = pytest.mark.full

NOW = datetime.now(UTC)


@pytest.fixture
def desk(lake: Lake) -> Iterator[Desk]:
    running = Desk(Lake(lake.spark, load(home=lake.settings.home, api={"token": TOKEN})))
    yield running
    running.app.state.services.close()


def lately(device: str, minutes: int, **keys: Any) -> dict[str, Any]:
    moment = NOW - timedelta(minutes=minutes)
    times = {"event_time": moment, "received_at": moment + timedelta(seconds=1)}
    return alert_of(device, minutes) | times | keys


def test_a_suppression_hides_what_its_preview_said_and_ends(desk: Desk) -> None:
    desk.batch(
        lately("0a", 50),
        lately("0b", 40, user_name="svc-1", fields={"user.name": "svc-1"}),
        lately("0c", 30, ip="192.0.2.7"),
    )
    client: TestClient = desk.client()
    patterns = {"entity": "10.0.0.0/8", "fields": {"user.name": "svc-*"}}
    shown = client.post("/api/v1/suppressions/preview", json=patterns).json()
    assert (shown["alerts"], shown["findings"], shown["checked"]) == (1, 1, 3)
    assert shown["by_entity"] == [{"value": "0b", "alerts": 1}]

    new = patterns | {"reason": "a backup runs", "until": "+7d"}
    begun = client.post("/api/v1/suppressions", json=new)
    assert begun.status_code == 201, begun.text
    name = begun.json()["suppression"]["suppression_id"]
    (waits,) = client.get("/api/v1/suppressions").json()["items"]
    assert (waits["state"], waits["who"], waits["reason"]) == ("waiting", "api", "a backup runs")
    desk.batch()
    (active,) = client.get("/api/v1/suppressions").json()["items"]
    assert (active["state"], active["fields"]) == ("active", {"user.name": "svc-*"})

    silenced = {"user_name": "svc-2", "fields": {"user.name": "svc-2"}}
    desk.batch(lately("0d", 20, **silenced), lately("0e", 10))
    listed = client.get("/api/v1/alerts").json()["items"]
    assert {item["entity"]["value"] for item in listed} == {"0a", "0b", "0c", "0e"}
    (active,) = client.get("/api/v1/suppressions").json()["items"]
    assert active["silenced"] == 1
    assert client.post("/api/v1/suppressions/preview", json=patterns).json()["hidden_already"] == 1

    ended = client.delete(f"/api/v1/suppressions/{name[:8]}", params={"reason": "over"})
    assert ended.json()["suppression"]["state"] == "ended"
    again = client.delete(f"/api/v1/suppressions/{name}")
    assert "is ended already" in problem(again, 422)["detail"]
    desk.batch(lately("0f", 5, **silenced))
    listed = client.get("/api/v1/alerts").json()["items"]
    assert "0f" in {item["entity"]["value"] for item in listed}
    assert client.get("/api/v1/suppressions").json()["items"] == []
    over = client.get("/api/v1/suppressions", params={"over": True}).json()["items"]
    assert [(one["state"], one["ended_by"]) for one in over] == [("ended", "api")]

    for body, told in (
        ({"reason": "x", "until": "+7d"}, "silence everything"),
        ({"rule": "*", "reason": "x", "until": "+7d"}, "silence everything"),
        ({"entity": "0a", "reason": " ", "until": "+7d"}, "say why"),
        ({"entity": "0a", "reason": "x", "until": "-7d"}, "over already"),
        ({"entity": "0a", "reason": "x", "until": "+60w"}, "longer than a year"),
        ({"rule": "no_such_rule", "reason": "x", "until": "+7d"}, "no rule 'no_such_rule'"),
        ({"entity": "0a", "until": "+7d"}, "body.reason"),
    ):
        answered = client.post("/api/v1/suppressions", json=body)
        assert told in problem(answered, 422)["detail"]
    assert problem(client.delete("/api/v1/suppressions/nosuch"), 404)


def test_one_of_a_tenant_hides_no_other_tenants_alerts(desk: Desk) -> None:
    tenants = ("acme", "globex", None)
    desk.batch(*(lately("0a", 50 + n, tenant_uid=each) for n, each in enumerate(tenants)))
    client: TestClient = desk.client()
    patterns = {"entity": "0a", "fields": {"tenant_uid": "acme"}}
    shown = client.post("/api/v1/suppressions/preview", json=patterns).json()
    assert (shown["alerts"], shown["checked"]) == (1, 3)
    new = patterns | {"reason": "a backup runs", "until": "+7d"}
    assert client.post("/api/v1/suppressions", json=new).status_code == 201
    again = (lately("0a", 10 + n, tenant_uid=each) for n, each in enumerate(tenants))
    silenced = {
        row["tenant_uid"]: row["suppressed_by"] is not None
        for row in desk.batch(*again)
        if row["revision"] == 1
    }
    assert silenced.pop("acme")
    assert not any(silenced.values())
