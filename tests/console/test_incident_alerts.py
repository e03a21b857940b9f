"""An incident shows the alerts that made it, and those that came since."""

from __future__ import annotations

import html
import re
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from alerts.lifecycle.risk_score import INCIDENT
from alerts.tables import ALERT
from api.services import attack_alerts
from api.services.attack_alerts import MOST, alerts_of_incident, incidents
from api.services.console.alert_list import ListFilter, grouped
from infra.delta.catalog import table
from tests.alerts.lifecycle.test_alert_fold import NOON
from tests.api.plain_desk import PlainDesk
from tests.headgate.as_code.delta_by_hand import append_rows

DEVICE, OTHER = "02:00:00:00:00:01", "02:00:00:00:00:02"


def row(name: str, begin: int, end: int, **more: Any) -> Mapping[str, Any]:
    """An alert of the device whose findings lie between two seconds after noon."""
    return {
        "alert_id": name, "revision": 1, "rule_id": name, "rule_name": name, "level": "high",
        "severity_id": 4, "entity_type": "device", "entity_value": DEVICE, "reason": "first",
        "event_time": NOON + timedelta(seconds=end), "count": 1, "risk_score": 60, "body": "{}",
        "activity": "create", "mode": "live", "status": "confirmed", "title": name, "pack": "gone",
        "window_start": NOON + timedelta(seconds=begin),
        "window_end": NOON + timedelta(seconds=end), **more,
    }  # fmt: skip


def test_alerts_that_led_to_an_incident_belong_to_it(tmp_path: Path) -> None:
    desk = PlainDesk(tmp_path, devices=1)
    rows = (
        row("guessed", 0, 40),
        row("made", 38, 45, rule_id=INCIDENT),
        row("since", 60, 61, incident_id="made"),
        row("earlier", -900, -800),
        row("another", 0, 40, entity_value=OTHER),
    )
    append_rows(desk.settings.lake_root, ALERT, list(rows))
    reader = desk.app.state.services.reader
    of_it = alerts_of_incident(reader, "made")
    assert [(each["alert_id"], each["led"]) for each in of_it] == [
        ("made", False), ("guessed", True), ("since", False),
    ]  # fmt: skip
    (incident,), _ = incidents(reader)
    assert (incident["alerts"], incident["rules"]) == (2, 2)
    append_rows(desk.settings.lake_root, table("ops.case_act"), [])
    page = desk.browser("ann", "admin")
    text = page.get("/incidents/made").text
    assert "1 alert led to the incident" in text, text[text.find("<h1>") :]
    assert "/alerts?incident=made&" in html.unescape(text)
    assert page.get("/incidents/since").status_code == 404, "an alert, and no incident"
    assert page.get("/alerts").text.count('href="/incidents/made"') == 3, "its own row's, too"


@pytest.mark.full
def test_filters_and_groups_of_an_incident_have_the_alerts_that_led_to_it(tmp_path: Path) -> None:
    desk = PlainDesk(tmp_path, devices=0)
    lake = desk.settings.lake_root
    append_rows(lake, ALERT, [row("guessed", 0, 40), row("earlier", -900, -800)])
    rest, page = desk.client("bob", "read"), desk.browser("ann", "admin")

    def listed() -> set[str]:
        asked = {"incident_id": "made"}
        items = rest.get("/api/v1/alerts", params=asked).json()["items"]
        lines = page.get("/alerts.csv", params={"incident": "made"}).text.splitlines()[1:]
        names = {str(each["alert_id"]) for each in items}
        assert {line.partition(",")[0] for line in lines} == names
        for each in items:
            alone = rest.get(f"/api/v1/alerts/{each['alert_id']}").json()["alert"]
            assert alone == each
            assert each["incident_id"] == (None if each["alert_id"] == "made" else "made")
        return names

    assert listed() == set()
    append_rows(lake, ALERT, [row("made", 38, 45, rule_id=INCIDENT)])
    assert listed() == {"guessed", "made"}
    # It is closed late, and so written after the incident; another comes in it.
    append_rows(lake, ALERT, [row("late", 30, 39), row("since", 60, 61, incident_id="made")])
    assert listed() == {"guessed", "made", "late", "since"}
    ((group,), number) = grouped(desk.app.state.services.reader, ListFilter(), "incident", 0)
    assert (number, group.key, group.alerts) == (1, "made", 4)
    text = page.get("/alerts", params={"group": "incident"}).text
    assert all(f'data-row="{name}"' in text for name in listed())
    # A correction gives the incident to another device: who led to it is another question.
    moved = {"revision": 2, "rule_id": INCIDENT, "entity_value": OTHER}
    append_rows(lake, ALERT, [row("made", 38, 45, **moved)])
    assert listed() == {"made", "since"}


def test_rest_has_incidents_with_their_alerts(tmp_path: Path) -> None:
    desk = PlainDesk(tmp_path, devices=0)
    rows = (
        row("guessed", 0, 40),
        row("made-first", 38, 45, rule_id=INCIDENT, body='{"summary": "Ann did much"}'),
        row("since", 60, 61, incident_id="made-first"),
        row("over", 70, 80, rule_id=INCIDENT, body='{"lifecycle": "closed"}'),
    )
    append_rows(desk.settings.lake_root, ALERT, list(rows))
    rest = desk.client("bob", "read")

    def listed(**asked: Any) -> tuple[list[str], bool]:
        answer = rest.get("/api/v1/incidents", params=asked).json()
        return [each["incident_id"] for each in answer["items"]], answer["more"]

    assert listed() == (["over", "made-first"], False)
    assert listed(limit=1) == (["over"], True)
    after = rest.get("/api/v1/incidents", params={"limit": 1}).json()["next"]
    # A revision with a later time moves no incident across the cursor.
    later = row("made-first", 38, 99, revision=2, rule_id=INCIDENT, body=rows[1]["body"])
    append_rows(desk.settings.lake_root, ALERT, [later])
    assert listed(limit=1, cursor=after) == (["made-first"], False)
    refused = rest.get("/api/v1/incidents", params={"status": "open", "cursor": after})
    assert (refused.status_code, "belongs to another question" in refused.text) == (422, True)
    assert listed(status="open") == (["made-first"], False)
    assert listed(status="closed") == (["over"], False)
    one = rest.get("/api/v1/incidents/made").json()
    assert (one["summary"], one["alert_count"], one["rule_count"]) == ("Ann did much", 2, 2)
    assert one["entity"] == {"type": "device", "value": DEVICE}
    assert [(each["alert_id"], each["led"]) for each in one["alerts"]] == [
        ("guessed", True), ("since", False),
    ]  # fmt: skip
    for name in ("guessed", "nothing"):
        answer = rest.get(f"/api/v1/incidents/{name}")
        assert answer.status_code == 404
        assert f"no incident '{name}'" in answer.json()["detail"]


@pytest.mark.full
def test_an_incident_of_more_alerts_than_a_page_shows_says_so_and_opens_a_case(
    tmp_path: Path,
) -> None:
    desk = PlainDesk(tmp_path, devices=0)
    lake = desk.settings.lake_root
    # The newest of all: it is told all the same.
    append_rows(lake, ALERT, [row("made", 9_000, 9_001, rule_id=INCIDENT)])
    since = [row(f"since-{n:04}", n, n + 1, incident_id="made") for n in range(MOST)]
    append_rows(lake, ALERT, since)
    append_rows(lake, table("ops.case_act"), [])
    rest, page = desk.client("bob", "read"), desk.browser("ann", "analyst")

    def told() -> tuple[bool, int]:
        answer = rest.get("/api/v1/incidents/made").json()
        text = page.get("/incidents/made").text
        assert ("alerts are shown; the list under Alerts has all" in text) is answer["more"]
        assert ("<span>more than " in text) is answer["more"]
        assert len(answer["alerts"]) == text.count('data-row="since-')
        return answer["more"], len(answer["alerts"])

    assert told() == (False, MOST)
    append_rows(lake, ALERT, [row("since-late", 8_000, 8_001, incident_id="made")])
    assert told() == (True, MOST)
    text = page.get("/incidents/made").text
    ids = re.findall(r'name="id" value="([^"]+)"', text)
    form = {"csrf": re.findall(r'name="csrf" value="([^"]+)"', text)[0], "title": "x", "id": ids}
    assert len(ids) == MOST + 1
    opened = page.post("/cases", data=form)
    assert opened.status_code == 303
    assert "the evidence bundle has all" in page.get(opened.headers["location"]).text
    many = page.post("/cases", data=form | {"id": ids * 3})
    assert many.status_code == 422
    assert "a form has at most 6000 fields" in many.text


def older_of(text: str) -> str:
    """The cursor that a page leads to; empty on the last."""
    older = re.search(r'data-next href="[^"]+cursor=([^"&]+)"', text)
    return html.unescape(older[1]) if older else ""


def test_the_page_of_incidents_leads_to_older_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attack_alerts.incidents, "__kwdefaults__", {"limit": 2, "cursor": None})
    desk = PlainDesk(tmp_path, devices=0)
    made = [row(f"made-{n}", n, n + 1, rule_id=INCIDENT) for n in range(5)]
    append_rows(desk.settings.lake_root, ALERT, made)
    append_rows(desk.settings.lake_root, table("ops.case_act"), [])
    page = desk.browser("ann", "analyst")
    address, seen = "/cases?tab=incidents", []
    first = page.get(address).text
    while address:
        text = page.get(address).text
        seen.append(re.findall(r'data-row="(made-\d)"', text))
        after = older_of(text)
        address = f"/cases?tab=incidents&cursor={after}" if after else ""
        assert ("data-before" in text) is (len(seen) > 1)
    assert seen == [["made-4", "made-3"], ["made-2", "made-1"], ["made-0"]]
    for wrong in ("x", older_of(first)):
        assert page.get("/cases", params={"cursor": wrong}).status_code == 422
