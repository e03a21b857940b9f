"""Rows of a statement in the form that is asked for: whole, or a 202 that says where they are."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from fastapi.testclient import TestClient

from api.routes import statements
from tests.api.desk import audited
from tests.api.plain_desk import PlainDesk
from tests.wait import until

SQL = "SELECT alert_id, level FROM gold.alert ORDER BY alert_id"
ARROW, PARQUET = "application/vnd.apache.arrow.stream", "application/vnd.apache.parquet"
WAYS = ["/api/v1/statements", "/api/v1/search/jobs"]
ENDLESS = "SELECT count(*) AS n FROM " + ", ".join(f"gold.alert e{n}" for n in range(40))


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    # Fewer rows a statement than there are: what is cut must never look whole.
    desk = PlainDesk(tmp_path_factory.mktemp("desk"), statement_rows=2, spark_engine=False)
    running = TestClient(desk.app, raise_server_exceptions=False)
    running.headers["Authorization"] = f"Bearer {'t' * 32}"
    yield running
    desk.app.state.services.close()


@pytest.mark.parametrize("path", WAYS)
def test_rows_come_whole_in_the_form_that_is_accepted(client: TestClient, path: str) -> None:
    asked = client.post("/api/v1/statements", json={"sql": SQL}).json()
    assert (len(asked["rows"]), asked["truncated"]) == (2, True)

    def whole(form: str) -> bytes:
        answered = client.post(
            path, json={"sql": SQL}, params={"wait_seconds": 20}, headers={"Accept": form}
        )
        assert answered.status_code == 200, answered.text
        assert answered.headers["content-type"].partition(";")[0] == form
        assert (answered.headers["headgate-rows"], answered.headers["headgate-engine"]) == (
            "3",
            "duckdb",
        )
        return answered.content

    rows = [list(json.loads(line).values()) for line in whole("application/x-ndjson").splitlines()]
    assert rows[:2] == asked["rows"]
    assert list(csv.reader(io.StringIO(whole("text/csv").decode())))[1:] == rows
    arrow = pa.ipc.open_stream(whole(ARROW)).read_all()
    assert [list(row.values()) for row in arrow.to_pylist()] == rows
    assert pq.read_table(io.BytesIO(whole(PARQUET))).equals(arrow)


@pytest.mark.parametrize("path", WAYS)
def test_a_form_that_there_is_not_is_refused_by_its_name(client: TestClient, path: str) -> None:
    refused = client.post(path, json={"sql": SQL}, headers={"Accept": "text/html"})
    assert refused.status_code == 406
    assert "text/html" in refused.json()["detail"]
    assert "text/csv" in refused.json()["detail"]


@pytest.mark.parametrize("path", WAYS)
def test_what_takes_longer_says_where_it_will_be(client: TestClient, path: str) -> None:
    later = client.post(
        path, json={"sql": ENDLESS}, params={"wait_seconds": 0}, headers={"Accept": "text/csv"}
    )
    assert later.status_code == 202, later.text
    assert later.headers["location"] == f"/api/v1/search/jobs/{later.json()['id']}"
    assert client.delete(later.headers["location"]).json()["state"] == "cancelled"


def test_a_statement_that_is_quick_is_answered_inline_and_leaves_no_job(client: TestClient) -> None:
    before = client.get("/api/v1/search/jobs").json()
    quick = client.post("/api/v1/statements", json={"sql": SQL, "max_rows": 1})
    assert (quick.status_code, len(quick.json()["rows"])) == (200, 1)
    assert quick.json()["truncated_by"] == "rows"
    assert "location" not in quick.headers
    assert client.get("/api/v1/search/jobs").json() == before


@pytest.mark.full
def test_a_statement_that_takes_longer_goes_on_as_a_job_and_its_rows_are_whole(
    client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(statements, "USUAL_WAIT", 0.3)
    slow = client.post("/api/v1/statements", json={"sql": ENDLESS})
    assert slow.status_code == 202, slow.text
    assert slow.json()["state"] in ("queued", "running")
    assert int(slow.headers["retry-after"]) >= 1
    where = slow.headers["location"]
    assert client.get(where).json()["sql"] == ENDLESS
    assert client.delete(where).json()["state"] == "cancelled"
    # Its worker is there for the next one, and what was begun is noted as what it was.
    assert client.post("/api/v1/statements", json={"sql": SQL}, params={"wait_seconds": 20}).json()[
        "truncated"
    ]
    rows = [row for row in audited(client.app.state.services.settings) if ENDLESS in row["detail"]]
    noted = {row["act"]: (row["outcome"], row["detail"]) for row in rows}
    assert "it goes on as a search job" in noted["statement"][1]
    assert [outcome for outcome, _ in noted.values()] == ["ok", "ok"]

    later = client.post(
        "/api/v1/statements", json={"sql": SQL}, headers={"Prefer": "respond-async"}
    )
    job = until(lambda: done(client, later.headers["location"]), what="the job")
    assert job["state"] == "done"
    pages = client.get(f"{later.headers['location']}/results").json()
    assert (pages["total"], len(pages["rows"])) == (3, 3), "more than api.statement_rows"


def done(client: TestClient, where: str) -> dict[str, Any] | None:
    job: dict[str, Any] = client.get(where).json()
    return None if job["state"] in ("queued", "running") else job


@pytest.mark.parametrize("path", WAYS)
@pytest.mark.parametrize(
    ("prefer", "status", "applied"),
    [
        ("respond-async", 202, "respond-async"),
        ("Respond-Async, handling=lenient", 202, "respond-async"),
        ("respond-async, wait=20", 200, "wait=20"),
        ('return=minimal; note="a, wait=0", wait=20', 200, "wait=20"),
        ("wait=3600", 200, "wait=20"),
        ("wait=20, wait=0", 200, "wait=20"),
        ("wait=0", 202, "wait=0"),
        ("handling=strict", 200, None),
    ],
)
def test_preferences_are_followed_and_it_is_said_which(
    client: TestClient, path: str, prefer: str, status: int, applied: str | None
) -> None:
    answered = client.post(path, json={"sql": SQL}, headers={"Prefer": prefer})
    assert (answered.status_code, answered.headers.get("preference-applied")) == (status, applied)
    if "location" in answered.headers:
        client.delete(answered.headers["location"])


@pytest.mark.parametrize("path", WAYS)
@pytest.mark.parametrize(
    ("prefer", "query", "words"),
    [
        ("wait=soon", {}, "wait=soon is no whole number of seconds"),
        ("wait", {}, "is no whole number of seconds"),
        ("respond-async=5", {}, "respond-async has no value"),
        ("wait=5", {"wait_seconds": 5}, "both say how long to wait; send one of them"),
        # Its parts would be sought for seconds, in which no other thread runs.
        ('",' * 8_000 + '"', {}, "Prefer: 16001 characters; 1000 are the most"),
    ],
)
def test_preferences_that_cannot_be_meant_are_refused(
    client: TestClient, path: str, prefer: str, query: dict[str, int], words: str
) -> None:
    refused = client.post(path, json={"sql": SQL}, params=query, headers={"Prefer": prefer})
    assert refused.status_code == 422
    assert words in refused.json()["detail"]


def test_a_statement_that_is_refused_is_a_problem_in_every_form(client: TestClient) -> None:
    wrong = {"sql": "SELECT * FROM nosuch.table"}
    for accept in ("application/json", "text/csv"):
        refused = client.post("/api/v1/statements", json=wrong, headers={"Accept": accept})
        assert refused.status_code == 422
        assert "nosuch" in refused.json()["detail"]
        assert refused.json()["type"] == "urn:headgate:problem:statement-refused"
    failed = {"sql": "SELECT 1 / 0 AS n FROM gold.alert"}
    answered = client.post("/api/v1/statements", json=failed, headers={"Accept": "text/csv"})
    assert answered.json()["type"] == "urn:headgate:problem:statement-failed"
    job = client.get("/api/v1/search/jobs").json()["items"][0]
    assert (job["state"], job["problem_type"]) == ("failed", "statement-failed")


def test_a_whole_result_has_no_max_rows(client: TestClient) -> None:
    wanted = {"sql": SQL, "max_rows": 1}
    refused = client.post("/api/v1/statements", json=wanted, headers={"Accept": "text/csv"})
    assert refused.status_code == 422
    assert "LIMIT 1" in refused.json()["detail"]


def test_a_key_that_comes_again_for_another_form_is_refused(client: TestClient) -> None:
    key = {"Idempotency-Key": "rows"}

    def send(accept: str) -> tuple[int, str, str | None]:
        answered = client.post(
            "/api/v1/statements", json={"sql": SQL}, headers=key | {"Accept": accept}
        )
        return answered.status_code, answered.text, answered.headers.get("headgate-rows")

    first = send("text/csv")
    assert first[0] == 200
    assert send("text/csv") == first
    assert send("application/json")[0] == 422
