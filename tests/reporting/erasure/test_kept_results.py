"""What the API kept of a person's rows goes with an erasure, whoever had asked for it."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from api.services.searches import search_jobs
from api.services.searches.job_store import JobStore
from infra.config.settings import load
from reporting.erasure.kept_results import RESULTS, STATE, answers_reworded, results_removed
from reporting.erasure.outside_tables import left
from reporting.erasure.subject_match import Search, Word
from tests.api.plain_desk import PlainDesk
from tests.wait import until

pytestmark = pytest.mark.full

ANNA = Search((Word("anna", "[erased]"),))
NOTE = {"title": "Who is corp\\anna", "note": "asked anna"}


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[PlainDesk]:
    running = PlainDesk(tmp_path)
    running.all_tables()
    yield running
    running.app.state.services.close()


@pytest.fixture
def ann(desk: PlainDesk) -> TestClient:
    return desk.client("ann", "analyst")


def searched(client: TestClient, sql: str, wait: int = 20) -> dict[str, Any]:
    asked = {"sql": sql}
    answered = client.post("/api/v1/search/jobs", json=asked, params={"wait_seconds": wait})
    assert answered.status_code in (200, 202), answered.text
    job: dict[str, Any] = answered.json()
    return job


def test_results_go_whomever_they_name_and_their_jobs_with_them(
    desk: PlainDesk, ann: TestClient
) -> None:
    job = searched(ann, "SELECT alert_id FROM gold.alert")
    (alert, *_) = ann.get("/api/v1/alerts").json()["items"]
    bundle = ann.post(
        "/api/v1/evidence/jobs",
        json={"alerts": [alert["alert_id"]]},
        params={"wait_seconds": 20},
    ).json()
    paths = [f"/api/v1/search/jobs/{job['id']}", f"/api/v1/evidence/jobs/{bundle['id']}"]
    assert [ann.get(f"{path}/results").status_code for path in paths] == [200, 200]
    assert results_removed(desk.settings, dry=True) == 2
    assert [ann.get(path).status_code for path in paths] == [200, 200]

    assert results_removed(desk.settings, dry=False) == 2
    assert [ann.get(path).status_code for path in paths] == [404, 404]
    assert [ann.get(f"{path}/results").status_code for path in paths] == [404, 404]
    kept = [desk.settings.home / "api" / name for name in RESULTS]
    assert [list(folder.iterdir()) for folder in kept if folder.exists()] == [[], []]
    assert results_removed(desk.settings, dry=False) == 0
    # What is asked afterwards is of the tables as they are, and stays.
    assert searched(ann, "SELECT 1 AS one")["state"] == "done"


def test_one_that_is_under_way_meanwhile_does_not_come_back(
    desk: PlainDesk, ann: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, removed = threading.Event(), threading.Event()
    write = search_jobs.Statements.write

    def slowly(self: Any, sql: str, params: Any, into: Path, **how: Any) -> Any:
        written = write(self, sql, params, into, **how)
        begun.set()
        assert removed.wait(60)
        # Spark makes the folder of what it writes, whether or not it was there a moment ago.
        into.parent.mkdir(exist_ok=True)
        into.write_bytes(b"anna")
        return written

    monkeypatch.setattr(search_jobs.Statements, "write", slowly)
    job = searched(ann, "SELECT 1 AS one", wait=0)
    assert begun.wait(60)
    assert results_removed(desk.settings, dry=False) == 1
    removed.set()
    folder = desk.settings.home / "api" / "searches" / job["id"]
    until(lambda: not folder.exists())
    assert ann.get(f"/api/v1/search/jobs/{job['id']}").status_code == 404
    assert ann.get("/api/v1/search/jobs").json()["items"] == []


def test_a_kept_answer_loses_the_name_and_is_replayed_all_the_same(
    desk: PlainDesk, ann: TestClient
) -> None:
    key = {"Idempotency-Key": "once"}
    made = ann.post("/api/v1/cases", json=NOTE, headers=key)
    assert made.status_code == 201, made.text
    other = ann.post("/api/v1/cases", json={"title": "bob"}, headers={"Idempotency-Key": "two"})
    answers = desk.settings.home / "api" / "answers"
    an_hour_ago = time.time() - 3600
    for file in answers.glob("*.json"):
        os.utime(file, (an_hour_ago, an_hour_ago))
    (answers / "bent.json").write_text("{")
    assert answers_reworded(desk.settings, ANNA, dry=True) == 2
    assert (answers / "bent.json").exists()

    assert answers_reworded(desk.settings, ANNA, dry=False) == 2
    assert not (answers / "bent.json").exists()
    again = ann.post("/api/v1/cases", json=NOTE, headers=key)
    assert again.headers["idempotency-replayed"] == "true"
    assert again.json()["case_id"] == made.json()["case_id"]
    assert again.json()["title"] == "Who is corp\\[erased]"
    assert "anna" not in again.text
    assert {round(file.stat().st_mtime) for file in answers.glob("*.json")} == {round(an_hour_ago)}
    same = ann.post("/api/v1/cases", json={"title": "bob"}, headers={"Idempotency-Key": "two"})
    assert same.json() == other.json()
    assert answers_reworded(desk.settings, ANNA, dry=False) == 0


def test_what_people_saved_is_named_and_results_are_not(desk: PlainDesk) -> None:
    home = desk.settings.home
    for name in ("proposals/p.json", "searches/x/job.json", "answers/a.json"):
        file = home / "api" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text('{"text": "anna"}')
    assert left(desk.settings, ANNA) == ["api/proposals/p.json"]


def test_every_kind_of_job_that_keeps_results_is_reached(desk: PlainDesk) -> None:
    services = desk.app.state.services
    stores = [services.searches, services.rule_jobs, services.evidence]
    kinds = {kind for kind in JobStore.__subclasses__() if kind.__module__.startswith("api.")}
    assert {type(store) for store in stores} == kinds
    assert sorted(store._folder.name for store in stores) == sorted(RESULTS)
    job = searched(desk.client("bob", "analyst"), "SELECT 1 AS one")
    assert (desk.settings.home / "api" / "searches" / job["id"] / STATE).is_file()


def test_a_home_without_an_api_has_nothing_to_remove(tmp_path: Path) -> None:
    settings = load(home=tmp_path)
    assert results_removed(settings, dry=False) == 0
    assert answers_reworded(settings, ANNA, dry=False) == 0
