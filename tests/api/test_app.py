"""The REST API over a lake with one day in it."""

from __future__ import annotations

import json
import re
import shutil
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient
from openapi_spec_validator import validate

from alerts.tables import ALERT
from api.app import create_app
from api.auth import token_file, token_of
from enrich.tables import DHCP_SEGMENT
from infra.config.settings import Settings, load
from infra.delta.ops_tables import AUDIT
from infra.errors import Fatal
from infra.maintenance.retention_holds import RetentionHold, leave
from infra.runtime.job_registry import wanted_jobs
from infra.runtime.job_status import JobStatus, Memory, write_status
from infra.runtime.outbox_flusher import flush_outbox
from infra.streaming.lake import Lake
from ingest.tables import EVENT
from tests.api.story import EVENTS, A, B, alert, insert, segment


def get(client: TestClient, path: str, **params: Any) -> Any:
    answered = client.get(path, params=params)
    assert answered.status_code == 200, answered.text
    return answered.json()


def problem(answered: Any, status: int) -> dict[str, Any]:
    assert answered.status_code == status, answered.text
    assert answered.headers["content-type"] == "application/problem+json"
    body: dict[str, Any] = answered.json()
    assert body["status"] == status
    assert body["type"].startswith("urn:headgate:problem:")
    assert body["detail"]
    assert "Traceback" not in answered.text
    return body


GUARDED = [
    ("GET", "/api/v1/alerts"),
    ("GET", "/api/v1/alerts/alert-1"),
    ("GET", "/api/v1/leases?ip=10.0.0.1&at=2026-11-20T12:00:00Z"),
    ("GET", "/api/v1/entities/ip/10.0.0.1"),
    ("GET", "/api/v1/tables"),
    ("GET", "/api/v1/openapi.json"),
    ("GET", "/metrics"),
    ("POST", "/api/v1/statements"),
]


@pytest.mark.parametrize(("method", "path"), GUARDED)
@pytest.mark.parametrize("header", [None, "", "Bearer", "Bearer wrong", "Basic x", "Bearer é"])
def test_all_but_health_wants_the_token(
    client: TestClient, method: str, path: str, header: str | None
) -> None:
    headers = {"Authorization": header.encode()} if header is not None else {}
    bare = TestClient(client.app, raise_server_exceptions=False)
    answered = bare.request(method, path, headers=headers, json={"sql": "SELECT 1"})
    assert "Authorization: Bearer" in problem(answered, 401)["detail"]
    assert answered.headers["www-authenticate"].startswith("Bearer")


def test_health_needs_no_token(client: TestClient) -> None:
    assert TestClient(client.app).get("/healthz").json() == {"status": "ok"}


def test_ready_says_why_not(client: TestClient, lake: Lake, tmp_path: Path) -> None:
    assert "job sessions: no driver reports it" in problem(client.get("/readyz"), 503)["detail"]
    empty = TestClient(create_app(load(home=tmp_path / "nothing")))
    answered = empty.get("/readyz")
    assert "there is no lake here" in problem(answered, 503)["detail"]
    assert answered.headers["retry-after"] == "5"
    shutil.rmtree(lake.settings.lake_root / "gold" / "finding")
    lacking = TestClient(create_app(lake.settings))
    assert "gold.finding" in problem(lacking.get("/readyz"), 503)["detail"]


def test_ready_while_every_job_makes_progress_within_its_target(lake: Lake) -> None:
    now = time.time()
    jobs = [
        JobStatus(name, "running", at=now, batch_at=now - 5, progressed_at=now - 1)
        for name in wanted_jobs(lake.settings)
    ]
    for job in jobs:
        write_status(lake.settings, job)
    client = TestClient(create_app(lake.settings))
    found = client.get("/readyz")
    assert found.status_code == 200
    assert 5 <= found.json()["since_batch_seconds"] < 60
    assert found.json()["newest_batch_age_seconds"] == found.json()["since_batch_seconds"]
    assert set(found.json()["jobs"]) == set(wanted_jobs(lake.settings))

    write_status(lake.settings, replace(jobs[2], progressed_at=now - 61))
    detail = problem(client.get("/readyz"), 503)["detail"]
    assert detail.startswith("job alert: no progress for 6")
    assert "ingest" not in detail


def test_metrics_show_where_each_job_stands(lake: Lake) -> None:
    now = time.time()
    memory = Memory(driver=10, jvm=20, workers=30)
    job = JobStatus("ingest", "running", at=now, pid=7, progressed_at=now, memory=memory)
    write_status(
        lake.settings, replace(job, unread_messages=12, phases={"addBatch": 0.5}, cap=4000)
    )
    client = TestClient(create_app(lake.settings))
    client.headers["Authorization"] = f"Bearer {token_of(lake.settings)}"
    text = client.get("/metrics").text
    assert 'headgate_job_up{headgate_job="ingest"} 1.0' in text
    assert 'headgate_job_up{headgate_job="alert"} 0.0' in text
    assert 'headgate_job_unread_messages{headgate_job="ingest"} 12.0' in text
    assert 'headgate_job_batch_cap{headgate_job="ingest"} 4000.0' in text
    assert 'headgate_job_phase_seconds{headgate_job="ingest",phase="addBatch"} 0.5' in text
    assert 'headgate_memory_bytes{part="workers",pid="7"} 30.0' in text
    assert 'headgate_job_unread_messages{headgate_job="alert"}' not in text


@pytest.mark.full
def test_metrics_of_a_driver_that_is_gone_are_only_those_that_grow_on(lake: Lake) -> None:
    now = time.time()
    job = JobStatus("ingest", "running", at=now - 20, progressed_at=now - 30, seconds=1.5)
    told = {"unread_messages": 12, "unread_commits": 0, "behind_seconds": 0.0, "failures": 2}
    write_status(lake.settings, replace(job, memory=Memory(jvm=20), complete_to=now - 50, **told))
    client = TestClient(create_app(lake.settings))
    client.headers["Authorization"] = f"Bearer {token_of(lake.settings)}"
    text = client.get("/metrics").text
    shown = re.findall(r'^headgate_job_(\w+){headgate_job="ingest"', text, re.MULTILINE)
    former = {"progress_age_seconds", "lag_seconds"}
    assert set(shown) == {"up", "since_progress_seconds", "arrival_time_lag_seconds"} | former
    assert "headgate_memory_bytes{" not in text


@pytest.mark.full
def test_metrics_show_how_maintenance_is_getting_on(lake: Lake) -> None:
    client = TestClient(create_app(lake.settings))
    client.headers["Authorization"] = f"Bearer {token_of(lake.settings)}"
    text = client.get("/metrics").text
    assert "headgate_maintenance_age_seconds NaN" in text
    assert "headgate_maintenance_held_seconds{" not in text

    leave(
        lake.settings,
        0,
        [RetentionHold("silver.event", "rollup", time.time() - 3600, "switched off")],
    )
    text = client.get("/metrics").text
    assert re.search(r"^headgate_maintenance_age_seconds \d\.", text, re.M)
    found = (
        r'^headgate_maintenance_held_seconds\{headgate_job="rollup",table="silver.event"\} 36\d\d\.'
    )
    assert re.search(found, text, re.M)
    leave(lake.settings, 1, [])
    text = client.get("/metrics").text
    assert re.search(r"^headgate_maintenance_age_seconds \d", text, re.M)
    assert "headgate_maintenance_held_seconds{" not in text


@pytest.mark.full
def test_methods_that_a_caller_makes_up_make_no_series(lake: Lake) -> None:
    client = TestClient(create_app(lake.settings))
    client.headers["Authorization"] = f"Bearer {token_of(lake.settings)}"
    for number in range(20):
        assert client.request(f"M{number}", "/healthz").status_code == 405
    text = client.get("/metrics").text
    assert 'method="other"' in text
    assert 'method="M1' not in text


def test_alerts_come_in_their_newest_revision(client: TestClient) -> None:
    items = get(client, "/api/v1/alerts")["items"]
    assert [(a["alert_id"], a["revision"]) for a in items] == [
        ("alert-4", 1),
        ("alert-3", 2),
        ("alert-2", 1),
        ("alert-1", 1),
    ]
    corrected = items[1]
    assert corrected["entity"] == {"type": "device", "value": B}
    assert corrected["previous_entity"] == A
    assert corrected["first_event_time"] == "2026-11-20T12:45:00Z"


@pytest.mark.parametrize(
    ("params", "wanted"),
    [
        ({"level": "medium"}, ["alert-2"]),
        ({"level": ["medium", "high"]}, ["alert-4", "alert-3", "alert-2", "alert-1"]),
        ({"rule_id": "odd-dns"}, ["alert-2"]),
        ({"entity": A}, ["alert-2", "alert-1"]),
        ({"entity": B}, ["alert-3"]),
        ({"status": "outside"}, ["alert-4"]),
        ({"activity": "update"}, ["alert-3"]),
        ({"since": "2026-11-20T12:46:00Z"}, ["alert-4", "alert-3"]),
        ({"until": "2026-11-20T13:06:00+01:00"}, ["alert-1"]),
        ({"rule_id": "' OR 1=1 --"}, []),
    ],
)
def test_alerts_can_be_narrowed(
    client: TestClient, params: dict[str, Any], wanted: list[str]
) -> None:
    assert [a["alert_id"] for a in get(client, "/api/v1/alerts", **params)["items"]] == wanted


def test_pages_hold_every_alert_once_also_while_alerts_arrive(lake: Lake) -> None:
    insert(lake, ALERT, [alert(f"alert-{n:02}", "12:00") for n in range(7)])
    client = TestClient(create_app(lake.settings))
    client.headers["Authorization"] = f"Bearer {token_of(lake.settings)}"
    seen: list[str] = []
    page = get(client, "/api/v1/alerts", limit=3)
    while True:
        seen += [a["alert_id"] for a in page["items"]]
        if page["next"] is None:
            break
        # A later revision moves an alert's newest event, not its place.
        insert(lake, ALERT, [alert("alert-06", "18:00", revision=2), alert("new", "19:00")])
        page = get(client, "/api/v1/alerts", limit=3, cursor=page["next"])
    assert seen == [f"alert-{n:02}" for n in range(7)]


def test_a_cursor_of_another_question_or_none_of_ours_is_refused(client: TestClient) -> None:
    cursor = get(client, "/api/v1/alerts", limit=1)["next"]
    wrong = client.get("/api/v1/alerts", params={"cursor": cursor, "level": "high"})
    assert "another question" in problem(wrong, 422)["detail"]
    for forged in ("x", "é", "W10", "WyJhIl0", cursor[:-2], "A" * 9000):
        answered = client.get("/api/v1/alerts", params={"cursor": forged})
        assert "cursor" in problem(answered, 422)["detail"]


def test_one_alert_has_its_body_and_all_revisions(client: TestClient) -> None:
    found = get(client, "/api/v1/alerts/alert-3")
    assert found["alert"]["revision"] == 2
    assert found["body"]["revision"] == 2
    assert [(r["revision"], r["entity"]["value"]) for r in found["revisions"]] == [(1, A), (2, B)]
    missing = problem(client.get("/api/v1/alerts/nope"), 404)
    assert "no alert 'nope'" in missing["detail"]


#   12:00        12:30   12:40        13:00        13:40      14:00
#   A---------------------------------)                        | heartbeat
#                free----------------)
#                        B-------------------------)
@pytest.mark.parametrize(
    ("clock", "status", "mac", "evidence"),
    [
        ("11:59:59.999999", "none", None, None),
        ("12:00:00", "leased", A, ["dhcp-2:0"]),
        ("12:29:59", "leased", A, ["dhcp-2:0"]),
        ("12:30:00", "none", None, None),
        ("12:39:59", "none", None, None),
        ("12:40:00", "leased", B, ["dhcp-3:0"]),
        ("12:59:59", "leased", B, ["dhcp-3:0"]),
        ("13:40:00", "none", None, None),
    ],
)
def test_the_highest_rev_that_covers_the_instant_says_who_held_the_address(
    client: TestClient, clock: str, status: str, mac: str | None, evidence: list[str] | None
) -> None:
    found = get(client, "/api/v1/leases", ip="10.0.0.1", at=f"2026-11-20T{clock}Z")
    assert found["status"] == status
    assert (found["lease"] or {}).get("mac") == mac
    assert (found["lease"] or {}).get("evidence") == evidence
    assert found["complete_up_to"] == "2026-11-20T14:00:00Z"


def test_one_address_in_two_sites_wants_the_site(lake: Lake) -> None:
    rows = [segment(1, "12:00", "13:00", A), segment(1, "12:00", "13:00", B, scope="branch")]
    insert(lake, DHCP_SEGMENT, rows)
    client = TestClient(create_app(lake.settings))
    client.headers["Authorization"] = f"Bearer {token_of(lake.settings)}"
    asked = {"ip": "10.0.0.1", "at": "2026-11-20T12:30:00Z"}
    detail = problem(client.get("/api/v1/leases", params=asked), 422)["detail"]
    assert "branch, default" in detail
    assert get(client, "/api/v1/leases", **asked, scope="branch")["lease"]["mac"] == B
    assert get(client, "/api/v1/leases", **asked, scope="none")["complete_up_to"] is None


def test_a_device_has_what_its_addresses_did_while_they_were_its_own(client: TestClient) -> None:
    found = get(client, f"/api/v1/entities/mac/{A}")
    assert [(i["kind"], i["id"], i["via"]) for i in found["items"]] == [
        ("finding", "f-e2", "lease"),
        ("event", "e2:0", "lease"),
        ("alert", "alert-2", "own"),
        ("finding", "f-e1", "lease"),
        ("event", "e1:0", "lease"),
        ("alert", "alert-1", "own"),
        ("lease", "session-a", "own"),
        ("event", "dhcp-1:0", "own"),
    ]
    other = get(client, f"/api/v1/entities/mac/{B.replace(':', '-').upper()}")
    assert {i["id"] for i in other["items"]} == {"f-e3", "e3:0", "alert-3", "session-b"}


@pytest.mark.parametrize(
    ("path", "wanted"),
    [
        ("ip/192.0.2.9", {"e4:0", "f-e4", "alert-4"}),
        ("user/root", {"e1:0", "e3:0", "f-e1", "f-e3"}),
        ("host/gate", {"e1:0", "e3:0", "e4:0", "f-e1", "f-e3", "f-e4"}),
        ("host/laptop-b", {"session-b"}),
        ("domain/evil.example", {"e2:0", "f-e2", "alert-2"}),
        ("domain/X7.evil.example.", {"e2:0", "f-e2", "alert-2"}),
        ("domain/vil.example", set()),
        ("user/%27%20OR%201%3D1", set()),
    ],
)
def test_a_timeline_names_what_concerns_the_entity(
    client: TestClient, path: str, wanted: set[str]
) -> None:
    assert {i["id"] for i in get(client, f"/api/v1/entities/{path}")["items"]} == wanted


def test_a_timeline_comes_in_pages_newest_first(client: TestClient) -> None:
    whole = get(client, "/api/v1/entities/ip/10.0.0.1")["items"]
    assert [i["time"] for i in whole] == sorted((i["time"] for i in whole), reverse=True)
    paged: list[Any] = []
    cursor = None
    while True:
        params = {"limit": 4} | ({"cursor": cursor} if cursor else {})
        page = get(client, "/api/v1/entities/ip/10.0.0.1", **params)
        paged += page["items"]
        cursor = page["next"]
        if cursor is None:
            break
    assert paged == whole
    narrow = get(
        client,
        "/api/v1/entities/ip/10.0.0.1",
        since="2026-11-20T12:06:00Z",
        until="2026-11-20T12:07:00Z",
    )
    # The lease began before and went on: it concerns these minutes too.
    assert {i["id"] for i in narrow["items"]} == {"e2:0", "f-e2", "alert-2", "session-a"}


@pytest.mark.full
def test_a_statement_is_answered_and_noted(lake: Lake) -> None:
    client = TestClient(create_app(lake.settings))
    client.headers["Authorization"] = f"Bearer {token_of(lake.settings)}"
    insert(lake, EVENT, EVENTS)
    asked = {"sql": "SELECT count(*) AS n FROM silver.event WHERE source = :s",
             "params": {"s": "sshd"}}  # fmt: skip
    body = client.post("/api/v1/statements", json=asked).json()
    assert body["columns"] == [{"name": "n", "type": "bigint"}]
    assert (body["rows"], body["truncated"], body["engine"]) == ([[3]], False, "duckdb")
    # Any engine would refuse it, but Spark takes a while to start.
    away = {"sql": "SELECT getenv('HOME')", "engine": "duckdb"}
    refused = client.post("/api/v1/statements", json=away)
    assert problem(refused, 422)["type"].endswith("statement-refused")
    failed = client.post("/api/v1/statements", json={"sql": "SELECT 1 / 0"})
    assert problem(failed, 422)["type"].endswith("statement-failed")
    client.app.state.services.close()  # type: ignore[attr-defined]  # the app is a FastAPI

    assert flush_outbox(lake, AUDIT, lake.spool / "audit") == 3
    noted = sorted(lake.read(AUDIT).collect(), key=lambda row: row["at"])
    assert [(row["act"], row["outcome"]) for row in noted] == [
        ("statement", "ok"),
        ("statement", "refused"),
        ("statement", "failed"),
    ]
    assert json.loads(noted[0]["detail"])["params"] == {"s": "sshd"}


def test_the_catalogue_lists_what_statements_may_read(client: TestClient) -> None:
    tables = {t["name"]: t for t in get(client, "/api/v1/tables", versions=True)["tables"]}
    assert tables["silver.event"]["kind"] == "table"
    assert tables["gold.alert_current"]["kind"] == "view"
    docs = {c["name"]: c["doc"] for c in tables["silver.event"]["columns"]}
    assert docs["time"] == "when it happened, UTC"
    assert (tables["silver.event"]["version"] >= 0, tables["gold.alert_current"]["version"]) == (
        True,
        None,
    )
    (bare,) = (
        table
        for table in get(client, "/api/v1/tables", columns=False, versions=True)["tables"]
        if table["name"] == "silver.event"
    )
    assert bare == tables["silver.event"] | {"columns": []}


def test_metrics_count_requests_alerts_and_batches(client: TestClient) -> None:
    client.get("/api/v1/alerts/alert-1")
    client.get("/api/v1/alerts/alert-2")
    text = client.get("/metrics").text
    assert 'headgate_alerts{level="high"} 3.0' in text
    assert 'headgate_job_rows_read{headgate_job="ingest"} 5.0' in text
    assert 'headgate_job_rows_written{headgate_job="ingest"} 15.0' in text
    assert 'headgate_job_batch_age_seconds{headgate_job="sessions"}' in text
    work = 'headgate_job_batch_work_seconds_{}{{headgate_job="ingest"{}}} {}'
    assert work.format("bucket", ',le="0.5"', "0.0") in text
    assert work.format("bucket", ',le="1.0"', "1.0") in text
    assert work.format("count", "", "1.0") in text
    assert work.format("sum", "", "1.0") in text
    assert "headgate_dead_letters 2.0" in text
    assert "headgate_lake_up 1.0" in text
    # One series for the route, none for each alert.
    assert 'route="/api/v1/alerts/{alert_id}"' in text
    assert "alert-1" not in text


@pytest.mark.parametrize(
    ("method", "path", "status", "said"),
    [
        ("GET", "/nothing", 404, "there is no /nothing"),
        ("DELETE", "/api/v1/alerts", 405, "DELETE is not for"),
        ("GET", "/api/v1/alerts?limit=501", 422, "query.limit"),
        ("GET", "/api/v1/alerts?limit=0", 422, "query.limit"),
        ("GET", "/api/v1/alerts?since=2026-11-20T00:00:00", 422, "name the zone"),
        ("GET", "/api/v1/alerts?level=loud", 422, "query.level"),
        ("GET", "/api/v1/leases", 422, "query.ip"),
        ("GET", "/api/v1/leases?ip=10.0.0&at=2026-11-20T00:00:00Z", 422, "query.ip"),
        ("GET", "/api/v1/entities/planet/mars", 422, "path.type"),
        ("GET", "/api/v1/entities/mac/xyz", 422, "'xyz' is not a MAC address"),
        ("GET", "/api/v1/entities/ip/300.1.1.1", 422, "'300.1.1.1' is not an IP address"),
        ("POST", "/api/v1/statements", 422, "body"),
    ],
)
def test_every_error_is_a_problem(
    client: TestClient, method: str, path: str, status: int, said: str
) -> None:
    assert said in problem(client.request(method, path), status)["detail"]


@pytest.mark.parametrize(
    "body", [{}, {"sql": ""}, {"sql": 1}, {"sql": "SELECT 1", "x": 1}, {"sql": "x", "max_rows": 0}]
)
def test_a_wrong_body_names_its_field(client: TestClient, body: dict[str, Any]) -> None:
    answered = client.post("/api/v1/statements", json=body)
    assert problem(answered, 422)["errors"][0]["where"].startswith("body.")


def test_a_body_above_the_bound_is_refused(client: TestClient) -> None:
    answered = client.post("/api/v1/statements", json={"sql": "x" * 2_000_000})
    assert "1048576" in problem(answered, 413)["detail"]
    in_pieces = client.post("/api/v1/statements", content=(b"x" * 65536 for _ in range(40)))
    assert "1048576" in problem(in_pieces, 413)["detail"]


def test_a_fault_of_the_server_shows_no_trace(lake: Lake) -> None:
    app = create_app(lake.settings)

    def fault() -> None:
        raise RuntimeError("what only the log may say")

    app.add_api_route("/api/v1/fault", fault)
    # Before the console's pages, which take every other path.
    app.router.routes.insert(0, app.router.routes.pop())
    answered = TestClient(app, raise_server_exceptions=False).get("/api/v1/fault")
    assert problem(answered, 500)["detail"] == "this is a fault of the server; its log says more"
    assert "may say" not in answered.text
    assert "RuntimeError" not in answered.text


def test_the_description_is_valid_and_complete(client: TestClient) -> None:
    spec = get(client, "/api/v1/openapi.json")
    validate(spec)
    for path, operations in spec["paths"].items():
        for operation in operations.values():
            assert operation["summary"], path
            assert operation.get("description"), path
            open_to_all = path in ("/healthz", "/readyz")
            assert ("security" in operation) is not open_to_all, path
            assert ("401" in operation["responses"]) is not open_to_all, path
            for status, response in operation["responses"].items():
                if status.startswith(("4", "5")):
                    assert list(response["content"]) == ["application/problem+json"], path
            for parameter in operation.get("parameters", []):
                assert parameter.get("description"), (path, parameter["name"])
    assert spec["components"]["securitySchemes"]["token"]["scheme"] == "bearer"


def test_a_token_is_made_once_and_is_its_owners_alone(tmp_path: Path) -> None:
    settings: Settings = load(home=tmp_path / "home")
    token = token_of(settings)
    assert len(token) >= 32
    assert token_of(settings) == token
    assert token_file(settings).stat().st_mode & 0o777 == 0o600
    assert list((tmp_path / "home").iterdir()) == [token_file(settings)]
    assert token_of(load(home=tmp_path, api={"token": "mine"})) == "mine"
    token_file(settings).chmod(0o644)
    with pytest.raises(Fatal, match="others may read it"):
        token_of(settings)
