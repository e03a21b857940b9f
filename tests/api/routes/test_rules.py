"""Rules over REST, without a lake: they lie in files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from api.app import create_app
from infra.config.settings import load
from tests.api.test_app import problem

TOKEN = "the-token-of-the-api"
RULE = """title: Odd tool
id: 3f0b8a44-6d0c-4b53-9d7a-2a6a1c0f4a10
name: odd_tool
status: test
logsource: {product: linux, service: sshd}
detection: {selection: {activity_id: 1, status_detail|contains: odd}, condition: selection}
level: high
tags: [attack.t1110]
headgate:
  tests:
    match: [{service.name: sshd, activity_id: 1, status_detail: an odd one}]
    no_match:
      - {service.name: sshd, activity_id: 1, status_detail: an even one}
      - {service.name: sshd, activity_id: 1, status_detail: odd too}
"""


@pytest.fixture
def client(tmp_path: Path) -> TestClient:
    folder = tmp_path / "rules"
    folder.mkdir()
    (folder / "odd.yml").write_text(RULE)
    (folder / "broken.yml").write_text("title: Broken\nid: x\n")
    alerts = {"bundled": False, "rules": [str(folder)]}
    running = TestClient(
        create_app(load(home=tmp_path, api={"token": TOKEN}, alerts=alerts)),
        raise_server_exceptions=False,
    )
    running.headers["Authorization"] = f"Bearer {TOKEN}"
    return running


def get(client: TestClient, path: str) -> Any:
    answered = client.get(path)
    assert answered.status_code == 200, answered.text
    return answered.json()


def test_rules_are_listed_read_and_tested(client: TestClient) -> None:
    listed = get(client, "/api/v1/rules")
    assert [(one["name"], one["state"]) for one in listed["items"]] == [("odd_tool", "on")]
    assert [Path(one["path"]).name for one in listed["refused"]] == ["broken.yml"]
    rule = get(client, "/api/v1/rules/odd_tool")
    assert (rule["text"], rule["techniques"]) == (RULE, ["T1110"])
    tested = client.post("/api/v1/rules/odd_tool/test").json()
    assert (tested["passed"], tested["failed"]) == (2, 1)
    wrong = next(one for one in tested["tests"] if not one["passed"])
    assert (wrong["must_match"], wrong["number"]) == (False, 2)
    assert "no rule 'nothing'" in problem(client.get("/api/v1/rules/nothing"), 404)["detail"]


def test_a_rule_is_switched_off_with_a_reason_and_on_again(client: TestClient) -> None:
    off = client.post("/api/v1/rules/odd_tool/disable", json={"reason": "too loud"}).json()
    assert (off["changed"], off["rules"]) == (True, 0)
    (item,) = get(client, "/api/v1/rules")["items"]
    assert item["state"] == "off (api: too loud)"
    assert client.post("/api/v1/rules/odd_tool/disable", json={}).json()["changed"] is False
    on = client.post("/api/v1/rules/odd_tool/enable").json()
    assert (on["changed"], on["rules"]) == (True, 1)
    assert get(client, "/api/v1/rules")["items"][0]["state"] == "on"


def test_a_rule_is_tried_in_shadow_and_promoted_or_dropped(client: TestClient) -> None:
    asked = {"days": 3, "reason": "is it loud?"}
    tried = client.post("/api/v1/rules/odd_tool/shadow", json=asked).json()
    assert (tried["changed"], tried["rules"]) == (True, 1)
    (item,) = get(client, "/api/v1/rules")["items"]
    assert item["state"].startswith("shadow until ")
    assert item["alerts"] is False
    assert client.post("/api/v1/rules/odd_tool/shadow", json=asked).json()["changed"] is False

    assert client.post("/api/v1/rules/odd_tool/promote", json={}).json()["changed"] is True
    assert get(client, "/api/v1/rules")["items"][0]["state"] == "on"
    answer = client.post("/api/v1/rules/odd_tool/drop", json={})
    assert "is in shadow" in problem(answer, 422)["detail"]
    client.post("/api/v1/rules/odd_tool/shadow", json={})
    assert client.post("/api/v1/rules/odd_tool/drop", json={"reason": "loud"}).json()["rules"] == 0
    assert client.post("/api/v1/rules/odd_tool/shadow", json={"days": 0}).status_code == 422
