"""Lists, facets and groups of the desk: what they count, and that no answer outlives its table."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from api.services.console import alert_list
from api.services.console.alert_list import FACETS, ListFilter
from api.services.reader import Reader
from tests.alerts.lifecycle.test_alert_fold import action
from tests.api.plain_desk import PlainDesk

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
