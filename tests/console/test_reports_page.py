"""The page of reports: an analyst has one made, and everybody sees what came of it."""

from __future__ import annotations

import html
import sys
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from api.app import create_app
from api.console.pages.reports import unfinished
from api.credentials import Credentials
from api.wire.runs import ReportRun
from infra.config.settings import load
from infra.process import subprocesses
from tests.api.desk import TOKEN
from tests.api.routes.test_runs import MAKING
from tests.console.test_rule_tuning import csrf_of

MINUTE = 60.0


def browsers(tmp_path: Path) -> tuple[Any, TestClient, TestClient]:
    """The app, and it for somebody who reads and for an analyst."""
    weekly = {"report": "weekly", "every": "week", "mail": ["soc@example.org"]}
    settings = load(home=tmp_path, api={"token": TOKEN}, reports={"scheduled": [weekly]})
    app = create_app(settings)
    made = []
    for role in ("read", "analyst"):
        _, key = Credentials(settings).add_key(role, role)
        browser = TestClient(app, raise_server_exceptions=False, follow_redirects=False)
        assert browser.post("/login", data={"key": key}).status_code == 303
        made.append(browser)
    return app, made[0], made[1]


def test_who_reads_has_none_made_and_looking_makes_nothing(tmp_path):
    app, reader, ann = browsers(tmp_path)
    page = reader.get("/reports").text
    assert "No report was made yet" in page
    assert "Make one" not in page
    assert "Make one" in ann.get("/reports").text
    assert "each week, 3 h after its end in UTC" in page
    assert "sent to 1 address" in page
    assert "soc@example.org" not in page
    form = {"report": "daily", "interval": "yesterday"}
    assert reader.post("/reports", data=form | {"csrf": csrf_of(page)}).status_code == 403
    assert ann.post("/reports", data=form | {"csrf": "guess"}).status_code == 403
    assert not (tmp_path / "reports").exists()
    app.state.services.close()


def test_a_report_that_failed_is_told_of_for_a_day_or_until_it_is_asked_for_again():
    now = datetime(2026, 11, 27, 12, tzinfo=UTC)

    def run(
        name: str, state: str, hours: float, interval: str = "yesterday", subject: str = ""
    ) -> ReportRun:
        made = now - timedelta(hours=hours)
        return ReportRun(id=name, state=state, who="ann", made_at=made, ended_at=None, problem=None,
                         report="daily", interval=interval, subject=subject, files=[])  # fmt: skip

    runs = [
        run("making", "running", 0), run("failed before it", "failed", 1),
        run("other time", "failed", 2, "2026-11"), run("done", "done", 3, "2026-W47"),
        run("failed, then done", "failed", 4, "2026-W47"), run("old", "failed", 25, "2026-10"),
        run("of laptop-7", "failed", 5, subject="laptop-7"), run("ended", "cancelled", 0),
    ]  # fmt: skip
    assert [each.id for each in unfinished(runs, now)] == ["making", "other time", "of laptop-7"]


@pytest.mark.full
def test_a_dossier_without_a_subject_or_of_no_time_is_refused_when_it_is_asked_for(tmp_path):
    app, _, ann = browsers(tmp_path)
    form = {"csrf": csrf_of(ann.get("/reports").text)}
    for given, words in (
        ({"report": "device", "interval": "yesterday"}, "device: give the subject, a MAC address"),
        ({"report": "daily", "interval": "2026-13"}, "interval 2026-13: there is no such month"),
    ):
        refused = ann.post("/reports", data=form | given)
        assert refused.status_code == 422
        assert words in html.unescape(refused.text)
    assert app.state.services.reports.listed().items == []
    again = ann.get("/reports?make=1&report=device&interval=2026-W47&subject=laptop-7").text
    assert '<option value="device" selected>' in again
    assert 'name="subject" maxlength="500" value="laptop-7"' in again
    assert "--subject" not in again
    app.state.services.close()


@pytest.mark.full
def test_a_report_is_asked_for_and_why_it_failed_is_told(tmp_path):
    app, reader, ann = browsers(tmp_path)
    assert 'name="report"' not in reader.get("/reports?make=1").text
    page = ann.get("/reports?make=1").text
    assert '<option value="daily" selected>' in page
    form = {"csrf": csrf_of(page), "report": "daily", "interval": "2026-11-20"}
    wrong = ann.post("/reports", data=form | {"report": "none"})
    assert wrong.status_code == 422
    assert "daily" in wrong.text
    assert ann.post("/reports", data=form).headers["location"] == "/reports"
    end = time.monotonic() + MINUTE
    while "was not made:" not in (shown := html.unescape(reader.get("/reports").text)):
        assert 'hx-trigger="every 3s"' in shown
        assert time.monotonic() < end
        time.sleep(0.1)
    assert "daily of 2026-11-20" in shown
    again = ann.get("/reports?make=1&report=weekly&interval=2026-W47").text
    assert '<option value="weekly" selected>' in again
    assert 'value="2026-W47"' in again
    assert "there is no lake here" in shown
    assert "every 3s" not in shown, "nothing is under way any more"
    app.state.services.close()


@pytest.mark.full
def test_a_report_being_made_shows_how_far_it_is_and_is_ended_by_who_asked(tmp_path, monkeypatch):
    monkeypatch.setattr(subprocesses, "_command_line", [sys.executable, "-c", MAKING])
    app, reader, ann = browsers(tmp_path)
    form = {"csrf": csrf_of(ann.get("/reports").text), "report": "daily", "interval": "2026-11-20"}
    assert ann.post("/reports", data=form).headers["location"] == "/reports"
    end = time.monotonic() + MINUTE
    while "question 3 of about 4" not in (shown := ann.get("/reports").text):
        assert time.monotonic() < end
        time.sleep(0.1)
    assert '<progress value="50.0" max="100"' in shown
    assert "50 %" in shown
    assert "End it" not in reader.get("/reports").text
    run = app.state.services.reports.listed().items[0]
    address = f"/reports/runs/{run.id}/end"
    assert f'action="{address}"' in shown
    mine = {"csrf": form["csrf"]}
    assert reader.post(address, data={"csrf": csrf_of(reader.get("/").text)}).status_code == 403
    assert ann.post(address, data=mine).headers["location"] == "/reports"
    shown = ann.get("/reports").text
    assert "is being made" not in shown
    assert "every 3s" not in shown
    app.state.services.close()
