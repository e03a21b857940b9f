"""Lists, facets and groups of the desk: what they count, and that no answer outlives its table."""

from __future__ import annotations

import re
from collections import Counter
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from alerts.tables import ALERT
from api.services.attack_alerts import alerts_by_id
from api.services.console import alert_list
from api.services.console.alert_detail import similar, verdicts
from api.services.console.alert_list import FACETS, ListFilter
from api.services.console.entity_lanes import alerts_as_known
from api.services.reader import Reader
from tests.alerts.lifecycle.test_alert_fold import NOON, action
from tests.api.plain_desk import PlainDesk
from tests.console.test_incident_alerts import DEVICE, row
from tests.headgate.as_code.delta_by_hand import append_rows

OPEN = {"lifecycle": ("new", "triaged")}


@pytest.fixture
def plain_desk(tmp_path: Path) -> PlainDesk:
    return PlainDesk(tmp_path, devices=6)


def listed(reader: Reader, **wanted: Any) -> list[dict[str, Any]]:
    return alert_list.alert_rows(reader, ListFilter(**wanted), 50, None).rows


def test_facets_count_what_the_list_would_show(plain_desk: PlainDesk) -> None:
    reader = plain_desk.app.state.services.reader
    first, second, *_ = listed(reader)
    plain_desk.batch(
        action(first["alert_id"], "close", value="benign"),
        action(second["alert_id"], "assign", value="ann"),
    )
    questions: list[dict[str, Any]] = [
        {},
        {"facets": OPEN},
        {"facets": {"verdict": ("", "benign")}},
        {"facets": {"lifecycle": ("closed",), "verdict": ("benign",)}},
        {"text": "00:03"},
        {"text": "nobody has this"},
    ]
    for wanted in questions:
        counts = alert_list.facet_counts(reader, ListFilter(**wanted))
        assert counts.total == len(listed(reader, **wanted))
        for facet in FACETS:
            others = {k: v for k, v in wanted.get("facets", {}).items() if k != facet}
            shown = Counter(
                row[facet] or "" for row in listed(reader, **wanted | {"facets": others})
            )
            counted = {value: n for value, _, n in counts.facets[facet] if n}
            assert counted == shown, (wanted, facet)


def test_ids_and_addresses_are_found_by_how_they_begin(plain_desk: PlainDesk) -> None:
    reader = plain_desk.app.state.services.reader
    row = listed(reader)[0]
    for text in (row["alert_id"][:9], row["alert_id"].upper()[:9]):
        assert [each["alert_id"] for each in listed(reader, text=text)] == [row["alert_id"]]
    assert row["src_ip"]
    assert row["alert_id"] in [each["alert_id"] for each in listed(reader, text=row["src_ip"][:4])]
    assert listed(reader, text=row["alert_id"][3:20]) == []


def test_the_same_question_is_answered_anew_once_the_table_has_changed(
    plain_desk: PlainDesk, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    answer = Reader._answer

    def counted(reader: Reader, engine: Any, question: Any, ended: Any) -> list[dict[str, Any]]:
        asked.append(question.sql)
        return answer(reader, engine, question, ended)

    monkeypatch.setattr(Reader, "_answer", counted)
    reader = plain_desk.app.state.services.reader
    before = listed(reader, facets=OPEN)
    before[0]["title"] = "written over by who asked"
    again = listed(reader, facets=OPEN)
    assert len(asked) == 1
    assert again[0]["title"] != before[0]["title"]
    assert len(listed(reader)) == 6
    assert len(asked) == 2, "another question"
    plain_desk.batch(plain_desk.seen(9, 500))
    assert len(listed(reader, facets=OPEN)) == 7
    assert len(asked) == 3


def test_each_box_of_a_group_says_what_it_selects(plain_desk: PlainDesk) -> None:
    page = plain_desk.browser("ann", "analyst").get("/alerts?group=entity").text
    labels = re.findall(r'aria-label="Select ([^"]*)"', page)
    assert len([label for label in labels if label.strip() and "all on" not in label]) == 6


def test_an_alert_whose_body_cannot_be_read_hides_no_other(plain_desk: PlainDesk) -> None:
    rest, reader = plain_desk.client("ann", "viewer"), plain_desk.app.state.services.reader
    odd = dict(row("odd", 0, 40, body="no JSON", sequence=9, received_at=NOON))
    append_rows(plain_desk.settings.lake_root, ALERT, [odd])
    assert "odd" in [each["alert_id"] for each in listed(reader)]

    def asked(path: str, **params: str) -> Any:
        answer = rest.get(path, params=params)
        assert answer.status_code == 200, answer.text
        return answer.json()

    items = {each["alert_id"]: each for each in asked("/api/v1/alerts")["items"]}
    assert len(items) == 7
    assert (items["odd"]["title"], items["odd"]["alert_status"]) == ("odd", "new")
    alone = asked("/api/v1/alerts/odd")
    assert (alone["alert"], alone["body"]) == (items["odd"], {"unreadable": "no JSON"})
    fed = {
        each["alert_id"]: each["body"] for each in asked("/api/v1/alerts", after="start")["items"]
    }
    assert fed.keys() == items.keys()
    assert fed["odd"] == {"unreadable": "no JSON"}
    other = next(each for name, each in items.items() if name != "odd")
    assert similar(reader, other["alert_id"], other["rule_id"], other["entity"]["value"])
    assert verdicts(reader, other["alert_id"], "odd") == {"": 1}
    span = NOON - timedelta(days=1), NOON + timedelta(days=1), NOON + timedelta(days=9)
    known = alerts_as_known(reader, "mac", DEVICE, *span)
    assert "odd" in [each["alert_id"] for each in known]
    assert len(known) == 2
    assert [each["alert_id"] for each in alerts_by_id(reader, ["odd"])] == ["odd"]
    boss = plain_desk.client("bob", "analyst")
    plan = {"ids": ["odd", other["alert_id"]], "change": {"assignee": "me"}}
    counted = boss.post("/api/v1/alerts/bulk/preview", json=plan).json()
    assert (counted["alerts"], counted["refused"]) == (1, 1)
    assert "alert odd: its body in gold.alert is no JSON" in counted["refused_because"]
    alone = boss.patch("/api/v1/alerts/odd", json={"assignee": "me"}, headers={"If-Match": "*"})
    assert alone.status_code == 409


def test_no_name_of_a_log_reads_as_that_of_a_tenant(plain_desk: PlainDesk) -> None:
    reader = plain_desk.app.state.services.reader
    of = {"entity_type": "user", "event_time": NOON + timedelta(days=1)}
    rows = (
        row("theirs", 0, 1, **of, entity_value="ann", tenant_uid="acme"),
        row("named-so", 0, 1, **of, entity_value="ann|acme"),
    )
    append_rows(plain_desk.settings.lake_root, ALERT, list(rows))
    groups, _ = alert_list.grouped(reader, ListFilter(), "entity", 0)
    shown = [[each["alert_id"] for each in group.rows] for group in groups]
    assert ["theirs"] in shown
    assert ["named-so"] in shown
