"""A saved query whose schedule brings nothing is told of where people look, until it does again."""

from __future__ import annotations

import html
import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from api.credentials import Credentials
from api.services.act_store import StateFolder
from api.services.runs.report_runs import KIND
from api.services.searches import job_store
from infra.runtime.report_failures import ReportFailure, leave_failures
from tests.api.plain_desk import PlainDesk
from tests.wait import until

pytestmark = pytest.mark.full

PATH = "/api/v1/queries/nightly"
WRONG = {"sql": "SELECT nowhere FROM gold.alert_current", "every_minutes": 60}
PLACES = ("/", "/reports", "/search?sql=SELECT+1")


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[PlainDesk]:
    running = PlainDesk(tmp_path)
    running.all_tables()
    yield running
    running.app.state.services.close()


@pytest.fixture
def ann(desk: PlainDesk) -> TestClient:
    return desk.client("ann", "analyst")


def due(desk: PlainDesk, minutes: int) -> list[Any]:
    """What the schedules begin that many minutes from now."""
    jobs: list[Any] = desk.app.state.services.queries.run_due(
        datetime.now(UTC) + timedelta(minutes=minutes)
    )
    return jobs


def problem_of(client: TestClient) -> str | None:
    (query,) = client.get("/api/v1/queries").json()["items"]
    problem: str | None = query["problem"]
    return problem


def told(browser: TestClient, words: str) -> list[bool]:
    return [words in html.unescape(browser.get(place).text) for place in PLACES]


def test_a_scheduled_run_that_failed_is_told_until_one_does_not(
    desk: PlainDesk, ann: TestClient
) -> None:
    assert ann.put(PATH, json=WRONG).status_code == 200
    ben, eve = desk.browser("ben", "viewer"), desk.browser("eve", "read")
    assert problem_of(ann) is None
    assert told(ben, "UTC failed") == [False, False, False]
    assert due(desk, 0) == []
    (job,) = due(desk, 61)
    path = f"/api/v1/search/jobs/{job.id}"
    until(lambda: ann.get(path).json()["state"] == "failed")
    assert problem_of(ann) == f"its run of {job.made_at:%Y-%m-%d %H:%M} UTC failed"
    assert told(ben, "UTC failed") == [True, True, True]
    assert 'href="/search/queries/nightly"' in ben.get("/").text
    # Its page is a viewer's, and what the engine said is its owner's.
    assert "UTC failed" in eve.get("/").text
    assert 'href="/search/queries/nightly"' not in eve.get("/").text
    assert all("nowhere" not in ben.get(place).text for place in PLACES[:2])

    assert ann.put(PATH, json=WRONG | {"sql": "SELECT 1 AS one"}).status_code == 200
    run = ann.post(f"{PATH}/run", params={"wait_seconds": 20})
    assert run.json()["state"] == "done"
    assert problem_of(ann) is None
    assert told(ben, "UTC failed") == [False, False, False]
    # One that is asked by hand alone is looked after by who asks.
    assert ann.put(PATH, json=WRONG | {"every_minutes": 0}).status_code == 200
    asked = ann.post(f"{PATH}/run", params={"wait_seconds": 20})
    assert asked.json()["state"] == "failed"
    assert problem_of(ann) is None


def test_one_that_could_not_begin_and_one_that_nobody_may_ask_are_told(
    desk: PlainDesk, ann: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    ann.put(PATH, json=WRONG | {"sql": "SELECT 1 AS one"})
    ben = desk.browser("ben", "viewer")
    with monkeypatch.context() as full:
        full.setattr(job_store, "LEAST_FREE", 1 << 62)
        assert due(desk, 61) == []
    assert "UTC was not begun: " in str(problem_of(ann))
    assert told(ben, "less than 1 GiB is free") == [True, True, True]
    (job,) = due(desk, 122)
    until(lambda: ann.get(f"/api/v1/search/jobs/{job.id}").json()["state"] == "done")
    assert problem_of(ann) is None
    Credentials(desk.settings).remove_key("ann")
    assert told(ben, "it runs as ann, who may not ask any more") == [True, True, True]


def test_a_report_that_was_not_made_is_told_on_the_overview(desk: PlainDesk) -> None:
    run = {
        "id": "x" * 22, "state": "failed", "who": "ann", "ended_at": None,
        "made_at": datetime.now(UTC).isoformat(), "problem": "the disk is full",
        "report": "daily", "interval": "2026-11-20", "subject": "", "tenant": None, "files": [],
    }  # fmt: skip
    StateFolder(desk.settings, f"runs-{KIND}", timedelta(days=7)).put(run["id"], run)
    page = html.unescape(desk.browser("ben", "read").get("/").text)
    assert "Report daily of 2026-11-20" in page
    assert "was not made: the disk is full" in page


def test_a_scheduled_report_that_failed_is_told_with_why(tmp_path: Path) -> None:
    wanted = {"report": "weekly", "every": "week"}
    scheduled = [wanted, {"report": "daily", "every": "day"}]
    desk = PlainDesk(tmp_path, general={"reports": {"scheduled": scheduled}})
    desk.all_tables()
    failure = ReportFailure(
        **wanted, subject="", tenant=None, interval="2026-11-16 to 2026-11-23 UTC",
        stem="weekly-2026-11-16_2026-11-23", made=False, tried_at=datetime.now(UTC).isoformat(),
        problem="/reports: cannot be written (No space left on device)",
        span="2026-11-16/2026-11-23",
    )  # fmt: skip
    leave_failures(desk.settings, [failure])
    reader, ben = desk.client("eve", "read"), desk.browser("ben", "viewer")
    weekly, daily = reader.get("/api/v1/reports/scheduled").json()["items"]
    assert weekly["problem"] == (
        "not made: /reports: cannot be written (No space left on device); "
        "tried again every 15 minutes"
    )
    assert (daily["problem"], daily["interval"], daily["tried_at"]) == (None, None, None)
    why = "was not made: /reports: cannot be written (No space left on device)"
    assert told(ben, why)[:2] == [True, True]
    assert "Scheduled report weekly of 2026-11-16 to 2026-11-23 UTC" in ben.get("/").text

    assert weekly["failures"][0]["name"] == "weekly-2026-11-16_2026-11-23"
    gone = f"/api/v1/reports/scheduled/failures/{failure.stem}"
    assert reader.delete(gone).status_code == 403
    assert "Dismiss" not in ben.get("/reports").text
    ann = desk.browser("ann", "analyst")
    page = ann.get("/reports").text
    csrf = re.search(r'name="csrf" value="([^"]+)"', page)
    assert csrf is not None
    assert f'name="name" value="{failure.stem}"' in page
    dismissed = {"csrf": csrf[1], "name": failure.stem}
    assert ann.post("/reports/dismiss", data=dismissed).status_code == 303
    assert told(ben, why) == [False, False, False]
    assert desk.client("liz", "analyst").delete(gone).status_code == 404

    leave_failures(desk.settings, [])
    assert told(ben, why) == [False, False, False]
    assert reader.get("/api/v1/reports/scheduled").json()["items"][0]["problem"] is None
    desk.app.state.services.close()
