"""What is of the alert, of its attribution and of a revision has words of its own, in and out."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from fastapi.testclient import TestClient

from tests.alerts.lifecycle.test_alert_fold import action
from tests.api.plain_desk import PlainDesk


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    desk = PlainDesk(tmp_path_factory.mktemp("desk"))
    running = TestClient(desk.app, raise_server_exceptions=False)
    running.headers["Authorization"] = f"Bearer {'t' * 32}"
    taken, closed, _ = [item["alert_id"] for item in listed(running)]
    desk.batch(action(taken, "assign", value="ann"), action(closed, "close", value="benign"))
    yield running
    desk.app.state.services.close()


def listed(client: TestClient, **query: str) -> list[dict[str, Any]]:
    answered = client.get("/api/v1/alerts", params=query)
    assert answered.status_code == 200, answered.text
    return list(answered.json()["items"])


def test_a_list_tells_the_alert_s_status_beside_the_attribution_s(client: TestClient) -> None:
    words = {item["alert_status"]: item for item in listed(client)}
    assert set(words) == {"new", "triaged", "closed"}
    assert words["closed"]["change_type"] == words["closed"]["activity"] == "close"
    assert words["closed"]["attribution_status"] == words["closed"]["status"] == "leased"
    detail = client.get(f"/api/v1/alerts/{words['closed']['alert_id']}").json()
    assert detail["alert"] == words["closed"]
    told = [(each["alert_status"], each["change_type"]) for each in detail["revisions"]]
    assert told == [("new", "create"), ("closed", "close")]


@pytest.mark.parametrize(
    ("query", "statuses"),
    [
        ({"alert_status": "open"}, {"new", "triaged"}),
        ({"alert_status": "new"}, {"new"}),
        ({"alert_status": "triaged"}, {"triaged"}),
        ({"alert_status": "closed"}, {"closed"}),
        ({"change_type": "close"}, {"closed"}),
        ({"attribution_status": "leased"}, {"new", "triaged", "closed"}),
        ({"attribution_status": "static"}, set()),
        # As before this release.
        ({"status": "open"}, {"new", "triaged"}),
        ({"status": "leased"}, {"new", "triaged", "closed"}),
        ({"attribution": "none"}, set()),
        ({"activity": "close"}, {"closed"}),
    ],
)
def test_filters_take_the_same_words_and_the_former_ones(
    client: TestClient, query: dict[str, str], statuses: set[str]
) -> None:
    assert {item["alert_status"] for item in listed(client, **query)} == statuses


@pytest.mark.parametrize(
    "query",
    [
        {"status": "open", "alert_status": "new"},
        {"status": "leased", "attribution_status": "none"},
        {"activity": "close", "change_type": "close"},
    ],
)
def test_a_former_word_beside_the_new_one_is_refused(
    client: TestClient, query: dict[str, str]
) -> None:
    refused = client.get("/api/v1/alerts", params=query)
    assert refused.status_code == 422
    assert f"{next(iter(query))}: it is the former name of" in refused.json()["detail"]


def test_a_bulk_plan_takes_the_same_words(client: TestClient) -> None:
    for name in ("alert_status", "status"):
        plan = {"filter": {name: "closed"}, "change": {"verdict": "test"}}
        counted = client.post("/api/v1/alerts/bulk/preview", json=plan)
        assert counted.json()["alerts"] == 1, counted.text
    by_triaged = {"filter": {"alert_status": "triaged"}, "change": {"verdict": "test"}}
    assert client.post("/api/v1/alerts/bulk/preview", json=by_triaged).json()["alerts"] == 1
