"""Rows of a statement in the form that is asked for: whole, or a 202 that says where they are."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from fastapi.testclient import TestClient

from tests.api.plain_desk import PlainDesk

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


def test_rows_as_json_are_waited_for_as_long_as_it_is_said(client: TestClient) -> None:
    path, wait = "/api/v1/statements", {"wait_seconds": 20}
    plain = client.post(path, json={"sql": SQL}).json()
    quick = client.post(path, json={"sql": SQL}, params=wait)
    assert quick.status_code == 200, quick.text
    names = ("columns", "rows", "truncated", "truncated_by", "engine", "versions")
    assert [quick.json()[name] for name in names] == [plain[name] for name in names]
    first = client.post(path, json={"sql": SQL, "max_rows": 1}, params=wait)
    assert first.json()["rows"] == plain["rows"][:1]
    assert first.json()["truncated_by"] == "rows"
    pages = client.get(f"{first.headers['location']}/results").json()
    assert (pages["total"], pages["rows"][:2]) == (3, plain["rows"]), "whole, whatever was cut"

    slow = client.post(path, json={"sql": ENDLESS}, params={"wait_seconds": 0})
    assert slow.status_code == 202, slow.text
    assert slow.json()["state"] in ("queued", "running")
    assert client.delete(slow.headers["location"]).json()["state"] == "cancelled"
    wrong = client.post(path, json={"sql": "SELECT 1 AS n FROM gold.none"}, params=wait)
    assert wrong.status_code == 422


def test_a_statement_that_is_refused_is_a_problem_in_every_form(client: TestClient) -> None:
    wrong = {"sql": "SELECT * FROM nosuch.table"}
    for accept in ("application/json", "text/csv"):
        refused = client.post("/api/v1/statements", json=wrong, headers={"Accept": accept})
        assert refused.status_code == 422
        assert "nosuch" in refused.json()["detail"]


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
