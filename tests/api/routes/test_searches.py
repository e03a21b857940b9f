"""A search as a job: whole in every form, its owner's alone, ended when that is asked for."""

from __future__ import annotations

import csv
import io
import json
from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from fastapi.testclient import TestClient

from api.credentials import Credentials
from api.services.searches.search_jobs import SearchJobs
from tests.wait import until

JOBS = "/api/v1/search/jobs"
SQL = "SELECT event_uid, time, src_ip, 1 + class_uid AS n FROM silver.event ORDER BY event_uid"
# More pairs than any limit of time allows.
ENDLESS = "SELECT count(*) AS n FROM " + ", ".join(f"silver.event e{n}" for n in range(16))


def ask(client: TestClient, sql: str, wait: float = 20) -> dict:
    answered = client.post(JOBS, json={"sql": sql}, params={"wait_seconds": wait})
    assert answered.status_code in (200, 202), answered.text
    job: dict = answered.json()
    assert answered.headers["location"] == f"{JOBS}/{job['id']}"
    return job


def test_a_result_is_whole_in_every_form_and_in_pages(client: TestClient, day_settings) -> None:
    job = ask(client, SQL)
    assert (job["state"], job["progress"], job["problem"]) == ("done", 100.0, None)
    assert [column["name"] for column in job["columns"]] == ["event_uid", "time", "src_ip", "n"]
    results = f"{JOBS}/{job['id']}/results"
    rows, cursor = [], None
    while True:
        page = client.get(results, params={"limit": 3} | ({"cursor": cursor} if cursor else {}))
        assert page.status_code == 200, page.text
        rows += page.json()["rows"]
        cursor = page.json()["next"]
        if cursor is None:
            break
    assert len(rows) == job["rows"] == 8
    assert rows[0] == ["bad1:0", "2026-11-20T13:00:00Z", None, 1]

    def whole(form: str) -> bytes:
        answered = client.get(results, headers={"Accept": form})
        assert (answered.status_code, answered.headers["headgate-rows"]) == (200, "8")
        return answered.content

    lines = [json.loads(line) for line in whole("application/x-ndjson").splitlines()]
    assert [list(line.values()) for line in lines] == rows
    cells = list(csv.reader(io.StringIO(whole("text/csv").decode())))
    assert [row[0] for row in cells] == ["event_uid", *(row[0] for row in rows)]
    arrow = pa.ipc.open_stream(whole("application/vnd.apache.arrow.stream")).read_all()
    parquet = pq.read_table(io.BytesIO(whole("application/vnd.apache.parquet")))
    assert arrow.equals(parquet)
    assert arrow.column("event_uid").to_pylist() == [row[0] for row in rows]
    assert client.get(results, headers={"Accept": "text/html"}).status_code == 406
    # It outlives the process: another one reads the same files.
    admin = client.app.state.services.access.caller_of_header(client.headers["authorization"])
    assert SearchJobs(day_settings).get(admin, job["id"]).rows == 8


def test_what_is_too_much_is_refused_and_not_cut(client: TestClient, monkeypatch) -> None:
    searches = client.app.state.services.searches
    ask(client, "SELECT 1 AS n FROM silver.event")
    few = searches._statements._limits.model_copy(update={"job_rows": 5})
    monkeypatch.setattr(searches._statements, "_limits", few)
    job = ask(client, SQL)
    assert job["state"] == "failed"
    assert "more than 5 rows" in job["problem"]
    assert client.get(f"{JOBS}/{job['id']}/results").status_code == 409


def test_a_job_that_runs_is_cancelled_and_the_next_one_is_answered(client: TestClient) -> None:
    job = ask(client, ENDLESS, wait=0)
    assert job["state"] in ("queued", "running")
    path = f"{JOBS}/{job['id']}"

    def state(of: str) -> str:
        named: str = client.get(of).json()["state"]
        return named

    until(lambda: state(path) != "queued", what="it runs")
    assert state(path) == "running"
    assert client.get(f"{path}/results").status_code == 409
    ended = client.delete(path).json()
    assert ended["state"] == "cancelled", ended["problem"]
    assert client.get(path).status_code == 404
    # A worker that was ended for it begins anew, which a busy machine takes its time for.
    after = f"{JOBS}/{ask(client, 'SELECT count(*) AS n FROM silver.event')['id']}"
    until(lambda: state(after) not in ("queued", "running"), what="the next one is answered")
    assert state(after) == "done"


def events(text: str) -> list[tuple[str, str, str]]:
    """(event, id, data) of each server-sent event."""
    blocks = [dict(line.split(": ", 1) for line in block.splitlines() if not line.startswith(":"))
              for block in text.strip().split("\n\n")]  # fmt: skip
    return [(block["event"], block["id"], block["data"]) for block in blocks if "event" in block]


def test_a_jobs_progress_comes_as_events_and_its_end_once(client: TestClient) -> None:
    path = f"{JOBS}/{ask(client, SQL, wait=0)['id']}"
    answered = client.get(f"{path}/stream")
    assert answered.headers["content-type"].startswith("text/event-stream")
    *before, (kind, name, data) = events(answered.text)
    assert all(event == "progress" for event, _, _ in before)
    assert (kind, json.loads(data)) == ("end", client.get(path).json())
    seen = client.get(f"{path}/stream", headers={"Last-Event-ID": name})
    assert seen.status_code == 204, "a browser that reconnects would ask for ever"
    missed = client.get(f"{path}/stream", headers={"Last-Event-ID": "another"})
    assert [event for event, _, _ in events(missed.text)] == ["end"]
    assert client.delete(path).status_code == 200
    assert client.get(f"{path}/stream").status_code == 404


def test_a_job_is_its_owners_and_an_administrators(client: TestClient, day_settings) -> None:
    credentials = Credentials(day_settings)
    tokens = [credentials.add_key(name, "viewer")[1] for name in ("job-ann", "job-bob")]
    ann, bob = ({"Authorization": f"Bearer {token}"} for token in tokens)
    asked = client.post(JOBS, json={"sql": SQL}, params={"wait_seconds": 20}, headers=ann).json()
    path = f"{JOBS}/{asked['id']}"
    assert client.get(path, headers=ann).status_code == 200
    assert client.get(path, headers=bob).status_code == 404
    assert client.get(path).status_code == 200
    for name in ("job-ann", "job-bob"):
        credentials.remove_key(name)


@pytest.mark.parametrize("sql", ["DELETE FROM silver.event", "SELECT * FROM read_parquet('x')"])
def test_a_job_may_say_no_more_than_a_statement(client: TestClient, sql: str) -> None:
    job = ask(client, sql)
    assert job["state"] == "failed"
    assert job["problem"]


def test_a_saved_query_runs_when_it_is_due_as_who_saved_it_and_for_nobody_else(
    client: TestClient, day_settings
) -> None:
    credentials = Credentials(day_settings)
    _, token = credentials.add_key("query-ann", "analyst")
    ann = {"Authorization": f"Bearer {token}"}
    path = "/api/v1/queries/by-source"
    wanted = {"sql": "SELECT source, count(*) AS n FROM silver.event GROUP BY source",
              "every_minutes": 60, "doc": "what arrives"}  # fmt: skip
    saved = client.put(path, json=wanted, headers=ann)
    assert saved.status_code == 200, saved.text
    assert client.get("/api/v1/queries").json()["items"] == [saved.json()]
    queries = client.app.state.services.queries
    now = datetime.now(UTC)
    assert queries.run_due(now) == []
    later = now + timedelta(minutes=61)
    (job,) = queries.run_due(later)
    assert (job.who, job.query) == ("query-ann", "by-source")
    assert queries.run_due(later) == [], "once each time"
    assert client.get(path).json()["ran_at"] is not None
    run = client.post(f"{path}/run", params={"wait_seconds": 20}, headers=ann).json()
    assert run["state"] == "done"
    listed = client.get(JOBS, params={"query": "by-source"}, headers=ann).json()["items"]
    assert [item["id"] for item in listed] == [run["id"], job.id]
    credentials.remove_key("query-ann")
    assert queries.run_due(later + timedelta(hours=2)) == [], "nobody of that name may ask"
    assert client.delete(path).status_code == 200
    assert client.get(path).status_code == 404
