"""Packs, many rules at once and rules in shadow over REST and on their pages."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from alerts.rulepack.locations import store_folder
from alerts.rulepack.shadow_marks import ShadowMark, ShadowMarks
from api.app import create_app
from infra.config.settings import Settings, load
from tests.alerts.cli.test_rules import run
from tests.alerts.rollout.test_packs import NUMBERS, rule
from tests.alerts.tuning.history import Asked, finding
from tests.api.desk import audited
from tests.api.test_app import problem
from tests.full import rest_full
from tests.reporting.memory_lake import MemoryLake

TOKEN = "t" * 32
ID = "66666666-0000-4000-8000-00000000000{}"


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    """A lake whose pack was imported twice: r1 has admin, in r2 root is of another text."""
    clone, into = tmp_path / "clone", tmp_path / "public"
    clone.mkdir()
    into.mkdir()
    home = load(
        home=tmp_path, api={"token": TOKEN}, alerts={"bundled": False, "rules": [str(into)]}
    )
    for name in ("root", "admin"):
        (clone / f"{name}.yml").write_text(rule(name), "utf-8")
    assert run(home, "import", str(clone), "--into", str(into), "--version", "r1") == 0
    (clone / "root.yml").write_text(rule("root", "toor", level="low"), "utf-8")
    (clone / "admin.yml").unlink()
    assert run(home, "import", str(clone), "--into", str(into), "--version", "r2", "--yes") == 0
    return home


@pytest.fixture
def client(settings: Settings) -> TestClient:
    running = TestClient(create_app(settings), raise_server_exceptions=False)
    running.headers["Authorization"] = f"Bearer {TOKEN}"
    return running


def get(client: TestClient, path: str) -> Any:
    answered = client.get(f"/api/v1{path}")
    assert answered.status_code == 200, answered.text
    return answered.json()


def post(client: TestClient, path: str, body: Any, **headers: str) -> Any:
    answered = client.post(f"/api/v1{path}", json=body, headers=headers)
    assert answered.status_code == 200, answered.text
    return answered.json()


def test_a_pack_is_listed_and_taken_back_once_it_was_looked_at(
    client: TestClient, settings: Settings
) -> None:
    (item,) = get(client, "/rule-packs")["items"]
    assert (item["pack"], item["version"], item["rules"], item["on"]) == ("public", "r2", 1, 1)
    versions = get(client, "/rule-packs/public/versions")["items"]
    assert [each["version"] for each in versions] == ["r2", "r1"]
    plan = post(client, "/rule-packs/public/rollback/preview", {})
    assert (plan["version"], plan["changes"], plan["same"]) == ("r1", 2, 0)
    assert {(each["act"], each["path"]) for each in plan["rules"]} == {
        ("added", "admin.yml"), ("changed", "root.yml")
    }  # fmt: skip
    act = {"to": "r1", "changes": 3, "reason": "loud"}
    refused = client.post("/api/v1/rule-packs/public/rollback", json=act)
    assert "3 rules are named, 2 would change now" in problem(refused, 422)["detail"]
    act["changes"] = 2
    once = {"Idempotency-Key": "back-to-r1"}
    done = post(client, "/rule-packs/public/rollback", act, **once)
    assert (done["version"], done["changes"]) == ("r1", 2)
    assert post(client, "/rule-packs/public/rollback", act, **once) == done
    assert len(get(client, "/rule-packs/public/versions")["items"]) == 3, "sent twice, done once"
    (line,) = [row for row in audited(settings) if row["act"] == "pack.rollback"]
    assert (line["target"], json.loads(line["detail"])["version"]) == ("public", "r1")
    wrong = client.get("/api/v1/rule-packs/none/versions")
    assert "no pack 'none' was imported; there are public" in problem(wrong, 404)["detail"]


def test_a_version_is_imported_once_it_was_looked_at(
    client: TestClient, settings: Settings
) -> None:
    files = [
        {"path": "root.yml", "text": rule("root", "toor", level="critical")},
        {"path": "windows/guest.yml", "text": rule("guest")},
        {"path": "backup.yml", "text": rule("backup").replace("user.name", "usr.nam")},
        {"path": "LICENSE", "text": "free"},
    ]
    wanted: dict[str, Any] = {"files": files, "version": "r3"}
    plan = post(client, "/rule-packs/public/import/preview", wanted)
    assert (plan["version"], plan["changes"], plan["loaded"]) == ("r3", 2, 2)
    assert {(each["act"], each["path"]) for each in plan["rules"]} == {
        ("added", "windows/guest.yml"), ("changed", "root.yml")
    }  # fmt: skip
    (refused,) = plan["refused"]
    assert (refused["kind"], refused["rules"]) == ("field without a mapping", 1)
    assert "usr.nam" in refused["examples"][0]
    assert "headgate-pack-" not in json.dumps(plan), "a folder that is gone by now"
    folder = settings.alerts.rules[0]
    assert not (folder / "windows").exists(), "looking makes nothing"

    wrong = client.post("/api/v1/rule-packs/public/import", json=wanted | {"changes": 1})
    assert "1 rules are named, 2 would change now" in problem(wrong, 422)["detail"]
    act = wanted | {"changes": 2, "shadow_days": 7, "reason": "autumn", "source": "clone at 4f2c"}
    once = {"Idempotency-Key": "import-r3"}
    done = post(client, "/rule-packs/public/import", act, **once)
    assert (done["version"], done["shadowed"], done["at_once"]) == ("r3", 2, 0)
    assert post(client, "/rule-packs/public/import", act, **once) == done
    assert (folder / "windows" / "guest.yml").read_text() == rule("guest")
    assert (folder / "LICENSE").read_text() == "free"
    newest = get(client, "/rule-packs/public/versions")["items"][0]
    assert (newest["version"], newest["source"], newest["by"]) == ("r3", "clone at 4f2c", "api")
    (line,) = [row for row in audited(settings) if row["act"] == "pack.import"]
    assert (line["target"], json.loads(line["detail"])["shadowed"]) == ("public", 2)
    assert post(client, "/rule-packs/public/rollback/preview", {})["version"] == "r2"


@pytest.mark.full
def test_criteria_choose_what_of_a_pack_is_imported(client: TestClient) -> None:
    texts = {"guest": rule("guest", level="low"), "backup": rule("backup")}
    files = [{"path": f"{name}.yml", "text": text} for name, text in texts.items()]
    plan = post(client, "/rule-packs/public/import/preview", {"files": files, "levels": ["low"]})
    assert (plan["loaded"], plan["left_out"]) == (1, {"level high": 1})
    none = {"files": files, "levels": ["critical"]}
    refused = client.post("/api/v1/rule-packs/public/import/preview", json=none)
    assert "not one rule of 2 files is wanted and loads" in problem(refused, 422)["detail"]


@pytest.mark.parametrize(
    ("pack", "path", "why"),
    rest_full(
        2,
        [
            ("public", "../x.yml", "give a path below the pack's folder"),
            ("public", "/etc/x.yml", "give a path below the pack's folder"),
            ("public", "a/./x.yml", "give a path below the pack's folder"),
            ("public", "a\\x.yml", "give a path below the pack's folder"),
            ("public", "x.py", "a pack has .yml files and licences alone"),
            ("none", "x.yml", "no pack 'none'; there are public"),
            ("bundled", "x.yml", "no pack 'bundled'; there are public"),
        ],
    ),
)
def test_files_that_no_pack_has_are_refused(
    client: TestClient, pack: str, path: str, why: str
) -> None:
    body = {"files": [{"path": path, "text": rule("guest")}]}
    refused = client.post(f"/api/v1/rule-packs/{pack}/import/preview", json=body)
    assert why in problem(refused, 404 if pack == "none" else 422)["detail"]


@pytest.mark.full
def test_a_pack_may_be_larger_than_other_requests(client: TestClient) -> None:
    files = [{"path": f"LICENSE-{n}", "text": "x" * 500_000} for n in range(3)]
    small = client.post("/api/v1/rule-switches/preview", json={"files": files})
    assert "more than 1048576 bytes" in problem(small, 413)["detail"]
    files.append({"path": "guest.yml", "text": rule("guest")})
    assert post(client, "/rule-packs/public/import/preview", {"files": files})["loaded"] == 1
    files += [{"path": f"LICENSE-m{n}", "text": "x" * 1_000_000} for n in range(16)]
    large = client.post("/api/v1/rule-packs/public/import/preview", json={"files": files})
    assert "more than 16777216 bytes" in problem(large, 413)["detail"]


def test_many_rules_are_counted_and_then_changed_as_one(
    client: TestClient, settings: Settings
) -> None:
    for name in ("guest", "backup"):
        (settings.alerts.rules[0] / f"{name}.yml").write_text(rule(name), "utf-8")
    plan: dict[str, Any] = {"act": "disable", "filter": {"packs": ["public"], "levels": ["high"]}}
    counted = post(client, "/rule-switches/preview", plan)
    assert (counted["rules"], counted["unchanged"]) == (2, 0)
    assert {each["name"] for each in counted["items"]} == {"guest", "backup"}
    wrong = client.post("/api/v1/rule-switches", json=plan | {"count": 3})
    assert "look again (preview)" in problem(wrong, 422)["detail"]
    assert post(client, "/rule-switches", plan | {"count": 2, "reason": "loud"})["rules"] == 2
    states = {each["name"]: each["state"] for each in get(client, "/rules")["items"]}
    assert states["root"] == "on"
    assert states["guest"].startswith("off (api: loud)")
    assert post(client, "/rule-switches/preview", plan)["unchanged"] == 2
    (line,) = [row for row in audited(settings) if row["act"] == "rules.disable"]
    assert sorted(json.loads(line["detail"])["ids"]) == [
        ID.format(NUMBERS[n]) for n in ("guest", "backup")
    ]

    for act, state in (("enable", "on"), ("shadow", "shadow until"), ("promote", "on")):
        named = {"act": act, "rules": ["guest"]}
        assert post(client, "/rule-switches/preview", named)["rules"] == 1
        assert post(client, "/rule-switches", named | {"count": 1, "days": 3})["pack"]
        now = {each["name"]: each["state"] for each in get(client, "/rules")["items"]}
        assert now["guest"].startswith(state)
    nothing = client.post("/api/v1/rule-switches/preview", json={"act": "disable"})
    assert "name rules, or say which by tag" in problem(nothing, 422)["detail"]
    nowhere = client.post("/api/v1/rule-switches/preview", json={"act": "drop", "rules": ["root"]})
    assert "no rule 'root' is in shadow" in problem(nowhere, 422)["detail"]


def test_what_rules_in_shadow_would_have_alerted(settings: Settings) -> None:
    since = datetime.now(UTC).replace(microsecond=0) - timedelta(days=2)
    ShadowMarks(store_folder(settings)).put(
        {ID.format(1): ShadowMark("ann", "loud?", since, since + timedelta(days=7))}
    )
    rows = [
        finding(
            f"e{number}", ID.format(1), time=since + timedelta(minutes=number), level="high",
            received_at=since + timedelta(minutes=number), alerting=False, feeds=[], mode="live",
            pack="p", rule_version="1", rule_title="root logs in", source="s",
            host_name=f"host{number % 2}", role="device", snippet="x", fields={},
        )
        for number in range(1, 5)
    ]  # fmt: skip
    app = create_app(settings)
    app.state.services = replace(
        app.state.services, reader=Asked(MemoryLake().add("gold.finding", rows))
    )
    client = TestClient(app, headers={"Authorization": f"Bearer {TOKEN}"})
    (item,) = get(client, "/rule-shadows")["items"]
    # The level of its new text alerts nobody by itself, which is said.
    assert (item["name"], item["findings"], item["muted"]) == ("root", 4, True)
    assert (item["alerts"], item["over"], item["by"]) == (0, False, "ann")


def test_the_pages_list_packs_and_go_back(settings: Settings) -> None:
    app = create_app(settings)
    client = TestClient(app, raise_server_exceptions=False, follow_redirects=False)
    client.post("/login", data={"key": TOKEN})
    listed = client.get("/rules").text
    assert 'href="/rule-packs/public"' in listed
    assert "r2" in listed
    page = client.get("/rule-packs/public").text
    assert "/rule-packs/public?to=r1" in page
    shown = client.get("/rule-packs/public?to=r1").text
    assert "admin logs in" in shown
    assert "2 rules would change" in shown
    csrf = shown.split('name="csrf" value="')[1].split('"')[0]
    form = {"csrf": csrf, "to": "r1", "changes": "2", "reason": "too loud"}
    assert client.post("/rule-packs/public/rollback", data=form).status_code == 303
    assert (settings.alerts.rules[0] / "admin.yml").is_file()
    assert client.get("/rule-packs/none").status_code == 404
    tried = {"csrf": csrf, "act": "shadow", "days": "3", "reason": "is it loud?"}
    assert client.post("/rules/admin/rollout", data=tried).status_code == 303
    assert "What it would have alerted" in client.get("/rules/admin").text
    assert client.post("/rules/admin/rollout", data=tried | {"act": "promote"}).status_code == 303
    assert "Put in shadow" in client.get("/rules/admin").text
    assert client.post("/rules/admin/rollout", data=tried | {"days": "0"}).status_code == 422
    assert client.post("/rules/admin/rollout", data=tried | {"act": "x"}).status_code == 422
    acts = [row["act"] for row in audited(settings)]
    assert acts[-3:] == ["pack.rollback", "rule.shadow", "rule.promote"]
    assert client.post("/rule-packs/public/rollback", data=form | {"reason": ""}).status_code == 422
