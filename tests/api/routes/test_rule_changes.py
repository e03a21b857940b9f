"""A team's own rules over REST: checked, kept, changed, taken away, with their versions."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from fastapi.testclient import TestClient

from api.app import create_app
from infra.config.settings import load
from tests.api.desk import audited
from tests.api.routes.test_rules import RULE, TOKEN
from tests.api.test_app import problem
from tests.full import rest_full

RULES = "/api/v1/rules"
GOOD = RULE.replace("      - {service.name: sshd, activity_id: 1, status_detail: odd too}\n", "")
RAW = """  tests:
    match:
      - {source: sshd, line: 'Nov 20 12:00:00 gate sshd[7]: Failed password for bob from 10.0.0.5
          port 5000 ssh2'}
"""
COUNTING = """title: Many odd ones
id: 0d2c2b8e-5ab3-4b0c-8a2e-6a36f4c7a001
name: many_odd
correlation: {type: event_count, rules: [odd_tool], group-by: [src_endpoint.ip],
  timespan: 10m, condition: {gte: 3}}
level: high
"""


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / "rules").mkdir()
    return tmp_path


@pytest.fixture
def client(home: Path) -> TestClient:
    alerts = {"bundled": False, "rules": [str(home / "rules")]}
    app = create_app(load(home=home, api={"token": TOKEN}, alerts=alerts))
    running = TestClient(app, raise_server_exceptions=False)
    running.headers["Authorization"] = f"Bearer {TOKEN}"
    return running


def check(client: TestClient, text: str) -> Any:
    answered = client.post(f"{RULES}/draft", json={"text": text})
    assert answered.status_code == 200, answered.text
    return answered.json()


def create(client: TestClient, text: str = GOOD, **headers: str) -> Any:
    answered = client.post(RULES, json={"text": text, "reason": "new"}, headers=headers)
    assert answered.status_code == 201, answered.text
    return answered.json()


def line(text: str, word: str) -> int:
    return next(n for n, each in enumerate(text.splitlines(), 1) if word in each)


@pytest.mark.parametrize(
    ("old", "new", "word"),
    rest_full(
        2,
        [
            ("status_detail|contains: odd}", "status_detial|contains: odd}", "status_detial"),
            ("condition: selection", "condition: selektion", "selektion"),
            ("service: sshd}", "service: sshdd}", "sshdd"),
            ("level: high", "level: hihg", "hihg"),
            ("status: test", "status: [test", "detection"),
            ("  tests:", "  tsts:", "tsts"),
        ],
    ),
)
def test_a_draft_is_told_what_is_wrong_where_and_what_to_do(
    client: TestClient, home: Path, old: str, new: str, word: str
) -> None:
    text = RULE.replace(old, new)
    checked = check(client, text)
    assert checked["loads"] is False
    (wrong,) = checked["problems"]
    assert wrong["reason"]
    assert wrong["remedy"]
    assert wrong["line"] is not None
    assert abs(wrong["line"] - line(text, word)) <= 1, wrong
    assert str(home) not in str(wrong), "no path of the machine"
    assert not list((home / "rules").iterdir()), "nothing is kept"


def test_a_drafts_tests_run_on_events_and_on_raw_lines(client: TestClient) -> None:
    checked = check(client, RULE)
    assert (checked["loads"], checked["tested"]["passed"], checked["tested"]["failed"]) == (
        True, 2, 1,
    )  # fmt: skip
    head = RULE.partition("  tests:")[0].replace("1, status_detail|contains: odd", "1")
    head = head.replace("selection: {activity_id: 1}", "selection: {status: Failure}")
    checked = check(client, head + RAW)
    assert checked["tested"]["tests"], checked
    empty = check(client, "# nothing\n")
    assert (empty["loads"], empty["rules"], empty["problems"]) == (False, [], [])


@pytest.mark.full
def test_tests_that_make_too_many_events_are_left_to_the_command(client: TestClient) -> None:
    create(client)
    text = (
        COUNTING + "headgate: {tests: {match: [[{event: {activity_id: 1}, times: 999999999}]]}}\n"
    )
    checked = check(client, text)
    assert checked["untested"] == ["0d2c2b8e-5ab3-4b0c-8a2e-6a36f4c7a001"]


def test_a_rule_is_kept_changed_and_taken_away_and_its_versions_say_so(
    client: TestClient, home: Path
) -> None:
    saved = create(client)
    assert "no driver runs" in saved["visible"]
    assert Path(saved["path"]) == home / "rules" / "odd_tool.yml"
    assert Path(saved["path"]).read_text() == GOOD
    read = client.get(f"{RULES}/odd_tool")
    assert (read.json()["own"], read.json()["text"]) == (True, GOOD)
    etag = read.headers["etag"]
    changed = GOOD.replace("level: high", "level: low")
    body = {"text": changed, "reason": "too loud"}
    missing = problem(client.put(f"{RULES}/odd_tool", json=body), 428)
    assert "If-Match" in missing["detail"]
    put = client.put(f"{RULES}/odd_tool", json=body, headers={"If-Match": etag})
    assert put.status_code == 200, put.text
    assert client.get(f"{RULES}/odd_tool").json()["rule"]["level"] == "low"
    stale = client.put(f"{RULES}/odd_tool", json=body, headers={"If-Match": etag})
    assert problem(stale, 412)
    assert stale.headers["etag"] == put.headers["etag"]
    # By hand: nobody's version, but shown, and kept once somebody saves over it.
    by_hand = changed.replace("level: low", "level: medium")
    (home / "rules" / "odd_tool.yml").write_text(by_hand)
    listed = client.get(f"{RULES}/{saved['id']}/versions").json()["items"]
    assert [(v["act"], v["who"], v["current"]) for v in listed] == [
        ("file", "", True), ("changed", "api", False), ("created", "api", False),
    ]  # fmt: skip
    first = client.get(f"{RULES}/odd_tool/versions/{listed[-1]['version']}").json()
    assert (first["text"], first["version"]["reason"]) == (GOOD, "new")
    assert "-level: high\n+level: medium" in first["diff"]
    against = {"against": listed[1]["version"]}
    between = client.get(f"{RULES}/odd_tool/versions/{listed[-1]['version']}", params=against)
    assert "+level: low" in between.json()["diff"]
    assert problem(client.get(f"{RULES}/odd_tool/versions/nothing"), 404)
    gone = client.delete(f"{RULES}/odd_tool?reason=done", headers={"If-Match": "*"})
    assert gone.status_code == 422, "the last rule of all stays"
    create(client, GOOD.replace("odd_tool", "other").replace("3f0b8a44", "4f0b8a44"))
    gone = client.delete(f"{RULES}/odd_tool?reason=done", headers={"If-Match": "*"})
    assert (gone.status_code, gone.json()["version"]) == (200, None)
    assert not (home / "rules" / "odd_tool.yml").exists()
    acts = [v["act"] for v in client.get(f"{RULES}/{saved['id']}/versions").json()["items"]]
    assert acts == ["removed", "file", "changed", "created"]
    assert [row["act"] for row in audited(client.app.state.services.settings)] == [
        "rule.create", "rule.change", "rule.create", "rule.remove",
    ]  # fmt: skip


def test_what_is_no_good_rule_is_refused_and_nothing_is_kept(
    client: TestClient, home: Path
) -> None:
    def refused(text: str, sentence: str) -> None:
        detail = problem(client.post(RULES, json={"text": text}), 422)["detail"]
        assert sentence in detail
        assert not list((home / "rules").iterdir())

    refused(RULE, "fails its own test 2, which must not match")
    refused(GOOD.replace("condition: selection", "condition: ood"), "line 6: Detection 'ood'")
    refused("# nothing\n", "holds no rule")
    refused(COUNTING, "counts rules that do not run")
    assert client.post(RULES, json={"text": "x" * 200_001}).status_code == 422


@pytest.mark.full
def test_ids_and_names_are_one_rules_alone_and_what_others_count_stays(
    client: TestClient, home: Path
) -> None:
    create(client)
    create(client, COUNTING)
    again = problem(client.post(RULES, json={"text": GOOD}), 422)
    assert "its id is taken by 'Odd tool'" in again["detail"]
    other = GOOD.replace("3f0b8a44-6d0c-4b53-9d7a-2a6a1c0f4a10", str(uuid4()))
    assert (
        "name 'odd_tool' is taken"
        in problem(client.post(RULES, json={"text": other}), 422)["detail"]
    )
    any_text = {"If-Match": "*"}
    kept = problem(client.delete(f"{RULES}/odd_tool", headers=any_text), 422)["detail"]
    assert "would not load then" in kept
    assert (home / "rules" / "odd_tool.yml").read_text() == GOOD
    lost = client.put(f"{RULES}/many_odd", json={"text": other}, headers=any_text)
    assert "keeps its id" in problem(lost, 422)["detail"]


def test_a_rule_that_comes_with_headgate_is_not_changed(tmp_path: Path) -> None:
    app = create_app(load(home=tmp_path, api={"token": TOKEN}))
    client = TestClient(app, headers={"Authorization": f"Bearer {TOKEN}", "If-Match": "*"})
    rule = client.get(f"{RULES}/ssh_root_login").json()
    assert rule["own"] is False
    for answered in (
        client.put(f"{RULES}/ssh_root_login", json={"text": rule["text"]}),
        client.delete(f"{RULES}/ssh_root_login"),
    ):
        assert "comes with Headgate" in problem(answered, 422)["detail"]
    assert "names no folder" in problem(client.post(RULES, json={"text": GOOD}), 422)["detail"]
    (only,) = client.get(f"{RULES}/ssh_root_login/versions").json()["items"]
    assert (only["act"], only["current"]) == ("file", True)


def test_a_post_with_a_key_keeps_one_rule(client: TestClient) -> None:
    key = {"Idempotency-Key": "once"}
    assert create(client, **key) == create(client, **key)


@pytest.mark.full
def test_a_rule_named_scorecard_is_found_by_its_name(client: TestClient) -> None:
    create(client, GOOD.replace("odd_tool", "scorecard"))
    named = client.get(f"{RULES}/scorecard")
    assert (named.status_code, named.json()["rule"]["name"]) == (200, "scorecard")
    assert named.headers["etag"]
