"""Indicator lists over REST: filled, changed entry by entry, and what that means for rules."""

from __future__ import annotations

from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from alerts.compiler.indicator_lists import ListStore
from alerts.rulepack.locations import store_folder
from api.app import create_app
from infra.config.settings import Settings, load
from tests.api.desk import audited

TOKEN = "t" * 32
RULE = """
title: Talks to a listed address
id: 3f6f1f5e-5b7e-4f0e-9d5a-0a6d9a6b1c11
level: high
headgate: {type: indicator, list: bad-hosts}
"""


PLAIN = """
title: A failed login
id: 3f6f1f5e-5b7e-4f0e-9d5a-0a6d9a6b1c12
level: low
logsource: {product: linux, service: sshd}
detection: {failed: {status: Failure}, condition: failed}
"""


@pytest.fixture
def home(tmp_path: Path) -> Settings:
    rules = tmp_path / "rules"
    rules.mkdir()
    (rules / "listed.yml").write_text(RULE)
    (rules / "plain.yml").write_text(PLAIN)
    alerts = {"bundled": False, "rules": [str(rules)]}
    return load(home=tmp_path / "home", api={"token": TOKEN, "console": False}, alerts=alerts)


@pytest.fixture
def client(home: Settings) -> TestClient:
    client = TestClient(create_app(home), raise_server_exceptions=False)
    client.headers["Authorization"] = f"Bearer {TOKEN}"
    return client


def entries(*values: str) -> dict[str, object]:
    return {"entries": [{"value": value} for value in values]}


def test_a_list_is_made_added_to_expired_and_removed_and_rules_follow(
    client: TestClient, home: Settings
) -> None:
    path = "/api/v1/indicators/bad-hosts"
    made = client.put(path, json=entries("198.51.100[.]7", "evil.example")).json()
    assert made["list"]["kinds"] == {"domain": 1, "ip": 1}
    assert len(made["list"]["rules"]) == 1
    assert (made["before"], made["changed"], made["refused_rules"]) == (0, 2, {})
    assert "batch" in made["visible"]

    labelled = {"entries": [{"value": "evil.example", "label": "seen in May"}, {"value": "a.test"}]}
    added = client.post(f"{path}/entries", json=labelled).json()
    assert (added["before"], added["changed"], added["list"]["entries"]) == (2, 2, 3)

    asked = {"values": ["EVIL.example."], "at": "2026-11-20T00:00:00Z"}
    assert client.post(f"{path}/expire", json=asked).json()["changed"] == 1
    page = client.get(f"{path}/entries", params={"q": "may", "kind": "domain"}).json()
    assert page == {
        "items": [
            {
                "kind": "domain",
                "value": "evil.example",
                "label": "seen in May",
                "valid_until": "2026-11-20T00:00:00Z",
                "score": None,
                "source": None,
            }
        ],
        "total": 1,
        "next": None,
    }
    first = client.get(f"{path}/entries", params={"limit": 2}).json()
    rest = client.get(f"{path}/entries", params={"limit": 2, "cursor": first["next"]}).json()
    assert [len(first["items"]), len(rest["items"]), rest["next"]] == [2, 1, None]

    taken = client.delete(f"{path}/entries", params={"value": ["a.test"]}).json()
    assert (taken["changed"], taken["list"]["entries"]) == (1, 2)
    removed = client.delete(path).json()
    assert any("bad-hosts" in reason for reason in removed["refused_rules"].values())
    assert ListStore(store_folder(home)).lists() == {}
    acts = [row["act"].removeprefix("indicators.") for row in audited(home)]
    assert acts == ["replace", "add", "expire", "take-out", "remove"]


def test_what_is_no_indicator_changes_nothing_and_is_named(client: TestClient) -> None:
    path = "/api/v1/indicators/bad-hosts"
    client.put(path, json=entries("198.51.100.7"))
    wrong = client.post(f"{path}/entries", json=entries("b.test", "not one"))
    assert wrong.status_code == 422
    assert "entries.1" in wrong.json()["detail"]
    assert client.get(path).json()["entries"] == 1
    missing = client.delete(f"{path}/entries", params={"value": "9.9.9.9"})
    assert missing.status_code == 422
    assert "'9.9.9.9' is not in list" in missing.json()["detail"]
    for act in ("get", "delete"):
        assert getattr(client, act)("/api/v1/indicators/none").status_code == 404
    assert client.put("/api/v1/indicators/no name", json=entries("a.test")).status_code == 422


def test_a_list_whose_end_leaves_no_rule_ends_all_the_same_and_that_is_said(
    client: TestClient, home: Settings
) -> None:
    client.put("/api/v1/indicators/bad-hosts", json=entries("a.test"))
    (home.alerts.rules[0] / "plain.yml").unlink()
    removed = client.delete("/api/v1/indicators/bad-hosts")
    assert removed.status_code == 200, removed.text
    assert "the rules in force stay" in removed.json()["refused_rules"]["*"]
    assert client.get("/api/v1/indicators").json() == {"items": []}


def test_looking_makes_nothing_and_a_sent_key_adds_once(client: TestClient, home: Settings) -> None:
    assert client.get("/api/v1/indicators").json() == {"items": []}
    assert not store_folder(home).exists()
    headers = {"Idempotency-Key": "k1"}
    path = "/api/v1/indicators/bad-hosts/entries"
    first = client.post(path, json=entries("a.test"), headers=headers)
    again = client.post(path, json=entries("a.test"), headers=headers)
    assert first.json() == again.json()
    assert again.headers["idempotency-replayed"] == "true"
