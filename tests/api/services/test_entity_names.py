"""Whoever an alert names is found by host name, user and address alike, however it is written."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from fastapi.testclient import TestClient

from tests.api.plain_desk import PlainDesk

DEVICE = "02:00:00:00:00:01"


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    desk = PlainDesk(tmp_path_factory.mktemp("desk"))
    running = TestClient(desk.app, raise_server_exceptions=False)
    running.headers["Authorization"] = f"Bearer {'t' * 32}"
    yield running
    desk.app.state.services.close()


def named(client: TestClient, **query: str) -> list[dict[str, Any]]:
    answered = client.get("/api/v1/alerts", params=query)
    assert answered.status_code == 200, answered.text
    return list(answered.json()["items"])


def test_one_parameter_finds_devices_hosts_users_and_addresses(client: TestClient) -> None:
    (alert,) = named(client, entity=DEVICE)
    body = client.get(f"/api/v1/alerts/{alert['alert_id']}").json()["body"]
    kinds = {entity["type"] for entity in body["entities"]}
    assert kinds >= {"device", "host", "user", "ip"}
    for entity in body["entities"]:
        for written in (entity["value"], entity["value"].upper()):
            ids = [item["alert_id"] for item in named(client, entity=written)]
            assert alert["alert_id"] in ids, written
    assert named(client, entity="02-00-00-00-00-01") == [alert]
    assert named(client, entity="0200.0000.0001") == [alert]
    assert named(client, entity="somebody-else") == []


def test_an_address_that_is_none_is_refused_and_names_not_quietly_nobody(
    client: TestClient,
) -> None:
    refused = client.get("/api/v1/alerts", params={"ip": "010.0.0.5"})
    assert refused.status_code == 422
    assert "'010.0.0.5' is not an IP address" in refused.json()["detail"]
