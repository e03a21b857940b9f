"""The page of the audit shows what people did also while no driver folds it into the table."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from api.services.console.audit_view import in_words, waiting_acts
from infra.streaming.outbox import note_audit, put_row
from tests.api.plain_desk import PlainDesk

LONG_AGO = datetime(2020, 1, 1, tzinfo=UTC)


def test_acts_that_wait_are_told_newest_first_and_left_as_they_are(tmp_path: Path) -> None:
    for act in ("rule.enable", "alert.close", "rule.disable"):
        note_audit(tmp_path, act, "x", {"why": "noisy"})
    folder = tmp_path / "audit"
    put_row(folder, "other", {"at": "no time", "who": "eve"})
    (folder / "damaged.json").write_text("{")
    (folder / "list.json").write_text("[1]")
    put_row(folder, "naive", {"at": "2026-11-20T12:00:00", "who": "eve", "act": "x"})
    before = sorted(folder.iterdir())
    rows, many = waiting_acts(tmp_path, LONG_AGO, None, None)
    assert [row["act"] for row in rows] == ["rule.disable", "alert.close", "rule.enable"]
    assert json.loads(rows[0]["detail"]) == {"why": "noisy"}
    assert many == len(rows)
    assert waiting_acts(tmp_path, LONG_AGO, None, "rule")[1] == 2
    assert waiting_acts(tmp_path, LONG_AGO, "nobody", None) == ([], 0)
    assert waiting_acts(tmp_path, datetime.now(UTC) + timedelta(hours=1), None, None) == ([], 0)
    assert waiting_acts(tmp_path / "none", LONG_AGO, None, None) == ([], 0)
    assert sorted(folder.iterdir()) == before


@pytest.mark.parametrize(
    ("act", "target", "page"),
    [
        ("alert.close", "0a/b", "/alerts/0a%2Fb"),
        ("rule.disable", "port_scan", "/rules/port_scan"),
        ("rule.remove", "port_scan", None),
        ("alert.suppress", "s1", None),
        ("key.end", "wall", None),
        ("console.login", None, None),
    ],
)
def test_an_entry_leads_to_what_it_was_done_to(act: str, target: str | None, page: str | None):
    assert in_words({"act": act, "target": target, "detail": None})["page"] == page


def test_the_detail_of_an_entry_is_told_by_name_and_without_what_is_empty():
    entry = {"act": "x.y", "target": None}
    detail = json.dumps({"value": "benign", "comment": None, "files": [], "rows": 3, "on": False})
    parts = in_words(entry | {"detail": detail})["parts"]
    assert parts == [("value", "benign"), ("rows", "3"), ("on", "false")]
    assert in_words(entry | {"detail": "no {json"})["parts"] == [("", "no {json")]
    assert in_words(entry | {"detail": "[1]"})["parts"] == [("", "[1]")]
    assert in_words(entry | {"detail": None})["parts"] == []


@pytest.mark.full
def test_the_page_shows_an_act_though_no_driver_runs(tmp_path: Path) -> None:
    desk = PlainDesk(tmp_path)
    note_audit(tmp_path / "spool", "alert.close", "<b>x</b>", {"verdict": "benign"})
    page = desk.browser("ann", "admin").get("/admin?tab=audit&act=alert")
    assert page.status_code == 200, page.text
    assert "The newest act waits for a driver" in page.text
    assert "alert.close" in page.text
    assert "<b>x</b>" not in page.text
