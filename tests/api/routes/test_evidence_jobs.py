"""Evidence bundles as jobs: quick ones at once, others with progress and an end by DELETE."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from alerts.cases.evidence_check import check_bundle
from alerts.cases.incident_alerts import with_alerts_of_incidents
from alerts.lifecycle.risk_score import INCIDENT
from alerts.tables import ALERT
from api.services.runs import evidence_jobs
from headgate.cli import main
from infra.delta.duckdb_views import AskedViews
from tests.alerts.lifecycle.test_alert_fold import NOON
from tests.api.desk import audited
from tests.api.plain_desk import PlainDesk
from tests.api.test_app import problem
from tests.console.test_incident_alerts import row
from tests.headgate.as_code.delta_by_hand import append_rows
from tests.wait import until

JOBS = "/api/v1/evidence/jobs"
OF_INCIDENT = ["guessed", "made", "since"]


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PlainDesk]:
    # A place in the line is given up after a second, as on a busy machine after a minute.
    made = PlainDesk(tmp_path_factory.mktemp("evidence"), searches_at_once=1, wait_seconds=1.0)
    made.all_tables()
    alerts = (row("guessed", 0, 40), row("made", 38, 45, rule_id=INCIDENT),
              row("since", 60, 61, incident_id="made"))  # fmt: skip
    append_rows(made.settings.lake_root, ALERT, list(alerts))
    yield made
    made.app.state.services.close()


@pytest.fixture
def ann(desk: PlainDesk) -> Iterator[TestClient]:
    client = desk.client(f"ann-{datetime.now(UTC).timestamp()}", "analyst")
    yield client
    for job in client.get(JOBS).json()["items"]:
        client.delete(f"{JOBS}/{job['id']}")


@contextmanager
def held(desk: PlainDesk) -> Iterator[None]:
    """While inside, another search has the only turn."""
    threads, begun, over = (
        desk.app.state.services.reader.threads,
        threading.Event(),
        threading.Event(),
    )

    def search() -> None:
        begun.set()
        over.wait(300)

    other = threading.Thread(target=threads.run, args=(search,))
    other.start()
    assert begun.wait(60)
    try:
        yield
    finally:
        over.set()
        other.join()


def ask(client: TestClient, wait: float = 20.0, **asked: Any) -> dict[str, Any]:
    answered = client.post(JOBS, json=asked, params={"wait_seconds": wait})
    assert answered.status_code in (200, 202), answered.text
    job: dict[str, Any] = answered.json()
    assert answered.headers["location"] == f"{JOBS}/{job['id']}"
    assert (answered.status_code == 202) is (job["state"] in ("queued", "running"))
    return job


def state_of(client: TestClient, job: dict[str, Any]) -> str:
    return str(client.get(f"{JOBS}/{job['id']}").json()["state"])


def opened(client: TestClient, *alerts: str) -> str:
    case = client.post("/api/v1/cases", json={"title": "laptop-b", "alerts": list(alerts)})
    assert case.status_code == 201, case.text
    return str(case.json()["case_id"])


def test_a_quick_bundle_is_there_at_once_and_its_digest_is_in_the_audit(
    desk: PlainDesk, ann: TestClient, tmp_path: Path
) -> None:
    job = ask(ann, incident="made")
    assert (job["state"], job["progress"], job["step"], job["problem"]) == ("done", 100, None, None)
    assert (job["kind"], job["subject"], job["title"]) == ("incident", "made", "made")
    assert job["alerts"] == job["rows"]["alerts.ndjson"] == 3
    sent = ann.get(f"{JOBS}/{job['id']}/results")
    assert sent.headers["content-type"] == "application/zip"
    assert 'filename="incident-made.zip"' in sent.headers["content-disposition"]
    file = tmp_path / "incident.zip"
    file.write_bytes(sent.content)
    assert (len(sent.content), sent.headers["headgate-digest"]) == (job["size"], job["digest"])
    checked = check_bundle(file, job["digest"])
    assert checked.problems == []
    assert checked.manifest["alerts"] == OF_INCIDENT
    noted = [line for line in audited(desk.settings) if line["act"] == "evidence.export"]
    assert json.loads(noted[-1]["detail"])["digest"] == job["digest"]
    assert [each["id"] for each in ann.get(JOBS).json()["items"]] == [job["id"]]
    assert ann.get(f"{JOBS}/{job['id']}/results").content == sent.content, "until its time is over"
    kept = desk.settings.home / "api" / "evidence" / job["id"] / evidence_jobs.RESULT
    assert kept.stat().st_mode & 0o077 == 0, "its owner's alone: it holds logs of people"
    assert ann.delete(f"{JOBS}/{job['id']}").json()["state"] == "done"
    assert not kept.parent.exists()
    assert ann.get(f"{JOBS}/{job['id']}/results").status_code == 404


def test_the_command_takes_the_same_alerts_of_an_incident(desk: PlainDesk) -> None:
    with AskedViews(desk.settings.lake_root) as views:
        assert with_alerts_of_incidents(views.rows, ["made"]) == ["made", "guessed", "since"]
        assert with_alerts_of_incidents(views.rows, ["since", "guessed"]) == ["since", "guessed"]


def test_an_incident_is_shared_as_stix_with_its_alerts_as_the_command_does(tmp_path: Path) -> None:
    desk = PlainDesk(tmp_path / "home", devices=0)

    def whole(alert: Mapping[str, Any], **more: str) -> Mapping[str, Any]:
        facts = {name: alert[name] for name in ("alert_id", "title", "count")}
        times = ("event_time", "window_start", "window_end")
        facts |= {name: alert[name].isoformat() for name in times}
        facts |= {"detected_at": NOON.isoformat()} | more
        return {**alert, "body": json.dumps(facts)}

    alerts = [
        whole(row("guessed", 0, 40)),
        whole(row("made", 38, 45, rule_id=INCIDENT)),
        whole(row("since", 60, 61, incident_id="made")),
        whole(row("noise", 62, 63, incident_id="made"), verdict="benign"),
    ]
    append_rows(desk.settings.lake_root, ALERT, alerts)
    client = desk.client("ann", "analyst")

    def shared(alert: str) -> dict[str, Any]:
        answered = client.get(f"/api/v1/alerts/{alert}/stix")
        assert answered.status_code == 200, answered.text
        bundle: dict[str, Any] = answered.json()
        return bundle

    def named(bundle: dict[str, Any]) -> list[str]:
        groupings = [each for each in bundle["objects"] if each["type"] == "grouping"]
        return sorted(each["external_references"][0]["external_id"] for each in groupings)

    bundle = shared("made")
    assert named(bundle) == OF_INCIDENT
    assert named(shared("guessed")) == ["guessed"]
    refused = client.get("/api/v1/alerts/noise/stix")
    assert "was judged benign: it is no sighting" in problem(refused, 422)["detail"]
    file = tmp_path / "shared.json"
    export = ["evidence", "export", "made", "--format", "stix", "--file", str(file)]
    assert main(["--home", str(desk.settings.home), *export]) == 0
    assert json.loads(file.read_text()) == bundle
    desk.app.state.services.close()


def test_a_long_one_is_told_of_and_ends_when_it_is_cancelled(
    desk: PlainDesk, ann: TestClient
) -> None:
    with held(desk):
        job = ask(ann, wait=0, alerts=["guessed", "since"])
        path = f"{JOBS}/{job['id']}"

        def step() -> str | None:
            told: str | None = ann.get(path).json()["step"]
            return told

        until(lambda: step() == "findings", what="it is not begun")
        going = ann.get(path).json()
        assert (going["state"], 0 < going["progress"] < 100) == ("running", True)
        refused = problem(ann.get(f"{path}/results"), 409)["detail"]
        assert "is running; ask again when it is done" in refused
        assert ann.delete(path).json()["state"] == "cancelled"
        assert ann.get(path).status_code == 404
        store = desk.app.state.services.evidence
        until(lambda: not store._under_way, what="it goes on")
    assert not (store._folder / job["id"]).exists()


def test_its_progress_comes_as_events_and_the_last_one_is_its_end(ann: TestClient) -> None:
    job = ask(ann, alerts=["guessed"])
    answered = ann.get(f"{JOBS}/{job['id']}/stream")
    assert answered.headers["content-type"].startswith("text/event-stream")
    event = next(part for part in answered.text.split("\n\n") if part.startswith("event: end"))
    assert json.loads(event.split("data: ")[1]) == job
    seen = event.split("id: ")[1].split("\n")[0]
    again = ann.get(f"{JOBS}/{job['id']}/stream", headers={"Last-Event-ID": seen})
    assert again.status_code == 204


@pytest.mark.full
def test_a_job_stands_in_line_for_longer_than_a_request(desk: PlainDesk, ann: TestClient) -> None:
    with held(desk):
        job = ask(ann, wait=0, alerts=["guessed"])
        # As long as a search waits for its turn, and longer.
        assert ann.get("/api/v1/alerts/guessed/explain").status_code == 503
        assert state_of(ann, job) == "running"
    until(lambda: state_of(ann, job) == "done", what="it is not done")


def test_who_asks_for_the_file_itself_gets_it_or_is_told_to_ask_again(
    desk: PlainDesk, ann: TestClient, tmp_path: Path
) -> None:
    path = f"/api/v1/cases/{opened(ann, 'guessed', 'since')}/evidence"
    with held(desk):
        later = ann.get(path, params={"wait_seconds": 0})
        assert (later.status_code, later.headers["retry-after"]) == (202, "2")
        job = later.json()
        assert later.headers["location"] == f"{JOBS}/{job['id']}"
        assert (job["kind"], job["once"]) == ("case", True)
        again = ann.get(path, headers={"Prefer": "wait=1"})
        assert (again.status_code, again.json()["id"]) == (202, job["id"]), "it is gone on with"
        assert again.headers["preference-applied"] == "wait=1"
    sent = ann.get(path)
    assert sent.status_code == 200, sent.text
    assert 'filename="case-' in sent.headers["content-disposition"]
    file = tmp_path / "case.zip"
    file.write_bytes(sent.content)
    assert check_bundle(file, sent.headers["headgate-digest"]).problems == []
    assert ann.get(JOBS).json()["items"] == [], "once sent it is gone, as ever"


def test_of_a_file_that_is_gone_once_it_was_sent_no_part_is_sent_alone(
    desk: PlainDesk, ann: TestClient, tmp_path: Path
) -> None:
    path = f"/api/v1/cases/{opened(ann, 'guessed', 'since')}/evidence"
    for part in ("bytes=0-9", "bytes=-5", "bytes=999999999-", "bytes=0-1,4-5", "nonsense"):
        sent = ann.get(path, headers={"Range": part})
        assert (sent.status_code, sent.headers["accept-ranges"]) == (200, "none"), part
        file = tmp_path / "case.zip"
        file.write_bytes(sent.content)
        assert check_bundle(file, sent.headers["headgate-digest"]).problems == []
        assert ann.get(JOBS).json()["items"] == []
    job = ask(ann, alerts=["guessed"])
    kept = f"{JOBS}/{job['id']}/results"
    whole = ann.get(kept)
    assert whole.headers["accept-ranges"] == "bytes"
    halves = [ann.get(kept, headers={"Range": part}) for part in ("bytes=0-9", "bytes=10-")]
    assert [half.status_code for half in halves] == [206, 206]
    assert b"".join(half.content for half in halves) == whole.content


def test_a_bundle_of_a_case_that_was_changed_meanwhile_is_made_anew(
    desk: PlainDesk, ann: TestClient
) -> None:
    case = opened(ann, "guessed")
    path = f"/api/v1/cases/{case}/evidence"
    with held(desk):
        before = ann.get(path, params={"wait_seconds": 0}).json()
        ann.post(f"/api/v1/cases/{case}/alerts", json={"alerts": ["since"]})
        after = ann.get(path, params={"wait_seconds": 0}).json()
    assert (before["alerts"], after["alerts"]) == (1, 2)
    assert before["etag"] != after["etag"] == ann.get(f"/api/v1/cases/{case}").headers["etag"]


@pytest.mark.full
def test_what_is_not_gathered_in_its_time_says_so(
    desk: PlainDesk, ann: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = desk.app.state.services.evidence
    short = store._settings.api.model_copy(update={"job_seconds": 1.5})
    monkeypatch.setattr(store, "_settings", store._settings.model_copy(update={"api": short}))
    path = f"/api/v1/cases/{opened(ann, 'guessed')}/evidence"
    with held(desk):
        job = ask(ann, alerts=["guessed"])
        late = problem(ann.get(path), 503)
    assert (job["state"], job["problem_type"]) == ("failed", "unavailable")
    assert "not gathered in 1.5 s (api.job_seconds)" in job["problem"]
    assert "headgate evidence export" in late["detail"]
    refused = problem(ann.get(f"{JOBS}/{job['id']}/results"), 409)
    assert "not gathered in 1.5 s" in refused["detail"]


@pytest.mark.parametrize(
    ("asked", "status", "sentence"),
    [
        ({}, 422, "say one of case, incident and alerts"),
        ({"case": "case-1", "alerts": ["guessed"]}, 422, "say one of case, incident and alerts"),
        ({"incident": "guessed"}, 422, "is no incident"),
        ({"incident": "../../etc"}, 404, "no alert"),
        ({"case": "case-' OR 1=1"}, 404, "no case"),
        ({"alerts": ["guessed", "\u202egnissim"]}, 404, "no alert"),
        ({"alerts": ["guessed"], "ttl_seconds": 1}, 422, "ttl_seconds"),
        ({"alerts": ["guessed"], "who": "root"}, 422, "who"),
        ({"alerts": ["x"] * 5_001}, 422, "alerts"),
    ],
    ids=["nothing", "two", "no-incident", "path", "quote", "bidi", "time", "unknown", "many"],
)
def test_what_is_no_subject_is_refused_before_a_job_is_begun(
    ann: TestClient, asked: dict[str, Any], status: int, sentence: str
) -> None:
    assert sentence in problem(ann.post(JOBS, json=asked), status)["detail"]
    assert ann.get(JOBS).json()["items"] == []
    for name in ("..%2F..%2Fkeys", "x", "%00"):
        assert ann.get(f"{JOBS}/{name}/results").status_code == 404


def test_a_bundle_is_its_owners_and_an_administrators(desk: PlainDesk, ann: TestClient) -> None:
    path = f"{JOBS}/{ask(ann, alerts=['guessed'])['id']}"
    bob, root = desk.client("bob", "analyst"), desk.client("root", "admin")
    for part in ("", "/results", "/stream"):
        assert bob.get(path + part).status_code == 404
        assert root.get(path + part).status_code == 200
    assert bob.delete(path).status_code == 404
    eve = desk.client("eve", "viewer")
    assert eve.post(JOBS, json={"alerts": ["guessed"]}).status_code == 403
    assert eve.get(f"{path}/results").status_code == 403


def test_files_whose_time_is_over_go_though_nobody_asks(desk: PlainDesk, ann: TestClient) -> None:
    store = desk.app.state.services.evidence
    job = store.get(*_own(desk, ann))
    store._keep(job.model_copy(update={"expires_at": datetime.now(UTC) - timedelta(seconds=1)}))
    with pytest.MonkeyPatch.context() as soon:
        soon.setattr("api.services.searches.job_store._SWEEP_SECONDS", 0.05)
        store.start()
        until(lambda: not (store._folder / job.id).exists(), what="it is still there")
        store._ended.set()
    store._ended.clear()


def _own(desk: PlainDesk, client: TestClient) -> tuple[Any, str]:
    token = client.headers["Authorization"].removeprefix("Bearer ")
    return desk.app.state.services.access.caller(token), ask(client, alerts=["guessed"])["id"]
