"""Proposals: nothing is changed before a person confirms, and what is done is what they saw."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from alerts.delivery.action_request import request_action, waiting_requests
from api.services import proposals as desk_of_proposals
from tests.api.desk import audited
from tests.api.plain_desk import PlainDesk
from tests.full import rest_full

PATH = "/api/v1/proposals"


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[PlainDesk]:
    running = PlainDesk(tmp_path)
    yield running
    running.app.state.services.close()


@pytest.fixture
def bot(desk: PlainDesk) -> TestClient:
    return desk.client("bot", "viewer")


def first_alert(bot: TestClient) -> str:
    return str(bot.get("/api/v1/alerts").json()["items"][0]["alert_id"])


def proposed(bot: TestClient, **change: Any) -> dict[str, Any]:
    answer = bot.post(PATH, json={"why": "the scanner of ticket 4711"} | change)
    assert answer.status_code == 201, answer.text
    body: dict[str, Any] = answer.json()
    return body


def judged(bot: TestClient) -> dict[str, Any]:
    name = first_alert(bot)
    return proposed(bot, kind="verdict", alert_id=name[:12], verdict="benign", close=True)


def decide(browser: TestClient, proposal: dict[str, Any], act: str, **fields: str) -> Any:
    page = browser.get("/proposals").text
    hidden = dict(re.findall(r'name="(csrf|etag)" value="([^"]*)"', page))
    hidden = {name: value.replace("&#34;", '"') for name, value in hidden.items()}
    path = f"/proposals/{proposal['proposal_id']}/{act}"
    return browser.post(path, data=hidden | fields)


def test_a_proposal_says_what_it_would_change_and_changes_nothing(
    desk: PlainDesk, bot: TestClient
) -> None:
    made = judged(bot)
    assert made["change"]["alert_id"] == first_alert(bot)
    assert made["before"] == {"status": "open", "assignee": None, "verdict": None}
    assert made["after"] == {"status": "closed", "assignee": None, "verdict": "benign"}
    assert waiting_requests(desk.settings) == []
    assert bot.get(PATH).json()["items"] == [made]
    (row,) = [row for row in audited(desk.settings) if row["act"] == "proposal.propose"]
    assert (row["who"], row["target"]) == ("bot", made["proposal_id"])


def test_a_person_confirms_and_the_audit_has_both_names(desk: PlainDesk, bot: TestClient) -> None:
    made = judged(bot)
    ann = desk.browser("ann", "analyst")
    answer = decide(ann, made, "confirm")
    assert "The verdict was confirmed" in answer.text
    (asked,) = waiting_requests(desk.settings)
    assert (asked["action"], asked["value"], asked["who"]) == ("close", "benign", "ann")
    assert asked["comment"] == "the scanner of ticket 4711 (proposed by bot)"
    (row,) = [row for row in audited(desk.settings) if row["act"] == "proposal.confirm"]
    assert (row["who"], row["outcome"]) == ("ann", "ok")
    detail = json.loads(row["detail"])
    assert (detail["proposed_by"], detail["change"]["verdict"]) == ("bot", "benign")
    # Once, whoever presses the button again.
    assert "Nothing was changed" in decide(ann, made, "confirm").text
    assert len(waiting_requests(desk.settings)) == 1


def test_a_note_and_a_suppression_are_done_as_they_were_shown(
    desk: PlainDesk, bot: TestClient
) -> None:
    ann = desk.browser("ann", "analyst")
    note = proposed(bot, kind="note", alert_id=first_alert(bot), text="seen before in May")
    assert "was confirmed" in decide(ann, note, "confirm").text
    silence = proposed(bot, kind="suppression", entity="02:00:00:00:00:01", until="+2d")
    assert silence["change"]["until"].startswith(
        f"{datetime.now(UTC) + timedelta(days=2):%Y-%m-%d}"
    )
    assert silence["hides"] == {"alerts": 0, "true_positives": 0}
    assert "was confirmed" in decide(ann, silence, "confirm").text
    asked = {row["action"]: row for row in waiting_requests(desk.settings)}
    assert asked["note"]["comment"] == "seen before in May (proposed by bot)"
    assert asked["suppress"]["entity"] == "02:00:00:00:00:01"
    assert asked["suppress"]["expires_at"] == silence["change"]["until"]


@pytest.mark.full
def test_who_may_not_change_alerts_may_not_confirm(desk: PlainDesk, bot: TestClient) -> None:
    made = judged(bot)
    vic = desk.browser("vic", "viewer")
    page = vic.get("/proposals").text
    assert "Deciding needs the role analyst" in page
    assert decide(vic, made, "confirm").status_code == 403
    for act in ("confirm", "reject"):
        assert bot.post(f"{PATH}/{made['proposal_id']}/{act}").status_code in (404, 405)
    # A form that another site's page sends has no mark of the session.
    ann = desk.browser("ann", "analyst")
    forged = ann.post(f"/proposals/{made['proposal_id']}/confirm", data={"etag": "*"})
    assert forged.status_code == 403
    assert waiting_requests(desk.settings) == []


def test_a_rejected_one_is_gone_and_noted(desk: PlainDesk, bot: TestClient) -> None:
    made = judged(bot)
    ann = desk.browser("ann", "analyst")
    assert "was rejected" in decide(ann, made, "reject", reason="it was the attacker").text
    assert bot.get(PATH).json()["items"] == []
    (row,) = [row for row in audited(desk.settings) if row["act"] == "proposal.reject"]
    assert json.loads(row["detail"])["reason"] == "it was the attacker"
    assert waiting_requests(desk.settings) == []


def test_what_a_person_did_meanwhile_is_not_overwritten(desk: PlainDesk, bot: TestClient) -> None:
    made = judged(bot)
    name = made["change"]["alert_id"]
    request_action(
        desk.settings, "close", name, "r", who="carol", value="true_positive", comment="hostile"
    )
    ann = desk.browser("ann", "analyst")
    assert "carol closed it as true_positive" in ann.get("/proposals").text
    refused = decide(ann, made, "confirm").text
    assert "was changed since this was proposed: carol closed it" in refused
    assert [row["who"] for row in waiting_requests(desk.settings)] == ["carol"]
    # It waits on, so that it can be rejected.
    assert "was rejected" in decide(ann, made, "reject").text


@pytest.mark.full
def test_a_further_count_is_shown_and_does_not_stop_it(desk: PlainDesk, bot: TestClient) -> None:
    made = judged(bot)
    device = int(bot.get("/api/v1/alerts").json()["items"][0]["entity"]["value"][-2:])
    assert desk.batch(desk.seen(device, 500)) == [made["change"]["alert_id"]]
    ann = desk.browser("ann", "analyst")
    page = ann.get("/proposals").text
    assert "job alert made revision 2 (count)" in page
    # Not what the page showed, though: the etag is of the alert that was looked at.
    stale = ann.post(
        f"/proposals/{made['proposal_id']}/confirm",
        data={"csrf": re.search(r'name="csrf" value="([^"]+)"', page)[1], "etag": '"1"'},  # type: ignore[index]
    )
    assert "no longer what you looked at" in stale.text
    assert "was confirmed" in decide(ann, made, "confirm").text


@pytest.mark.parametrize(
    ("change", "status", "words"),
    rest_full(
        2,
        [
            ({"kind": "verdict", "alert_id": "nope", "verdict": "benign"}, 404, "no alert"),
            ({"kind": "verdict", "alert_id": "nope", "verdict": "fine"}, 422, "verdict"),
            ({"kind": "rule", "alert_id": "nope"}, 422, "kind"),
            ({"kind": "note", "alert_id": "nope", "text": "x", "who": "ann"}, 422, "who"),
            ({"kind": "suppression", "until": "+2d"}, 422, "rule"),
            (
                {"kind": "suppression", "entity": "10.0.0.1", "until": "+500d"},
                422,
                "longer than a year",
            ),
            (
                {"kind": "suppression", "entity": "10.0.0.1", "until": "2020-01-01"},
                422,
                "over already",
            ),
        ],
    ),
)
def test_what_could_not_be_done_cannot_be_proposed(
    bot: TestClient, change: dict[str, Any], status: int, words: str
) -> None:
    answer = bot.post(PATH, json={"why": "so"} | change)
    assert answer.status_code == status, answer.text
    assert words in answer.text
    assert bot.get(PATH).json()["items"] == []


@pytest.mark.full
def test_a_proposal_ends_after_a_day_and_one_caller_has_a_bounded_number(
    desk: PlainDesk, bot: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(desk_of_proposals, "MOST_OPEN_OF_ONE", 2)
    made = judged(bot)
    judged(bot)
    body = {"kind": "note", "alert_id": first_alert(bot), "text": "x", "why": "y"}
    answer = bot.post(PATH, json=body)
    assert (answer.status_code, "at most 2 of a caller" in answer.text) == (422, True)
    file = desk.settings.home / "api" / "proposals" / f"{made['proposal_id']}.json"
    kept = json.loads(file.read_text())
    kept["expires_at"] = (datetime.now(UTC) - timedelta(seconds=1)).isoformat()
    file.write_text(json.dumps(kept))
    assert len(bot.get(PATH).json()["items"]) == 1
    ann = desk.browser("ann", "analyst")
    assert "its day is over" in decide(ann, made, "confirm").text
    assert waiting_requests(desk.settings) == []


def test_a_hostile_text_is_shown_as_text(desk: PlainDesk, bot: TestClient) -> None:
    proposed(bot, kind="note", alert_id=first_alert(bot), text="<script>alert(1)</script>",
             why="<img src=x onerror=alert(1)> \u202etxt.exe")  # fmt: skip
    page = desk.browser("ann", "analyst").get("/proposals").text
    assert "<script>alert" not in page
    assert "<img" not in page
    assert "\u202e" not in page
