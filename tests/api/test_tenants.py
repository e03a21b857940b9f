"""A key of one tenant sees no row of another's, whatever it asks and wherever."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest
from fastapi.testclient import TestClient

from api.auth import Access
from api.credentials import Credentials, StoredKey, StoredUser
from api.people import Person
from api.routes.access import FOR_TENANTS
from infra.config.settings import load
from infra.delta.catalog import catalog, views
from infra.delta.schema import TENANT, Table
from infra.errors import Fatal, Usage
from tests.api.flight.flight_desk import FlightDesk
from tests.headgate.as_code.delta_by_hand import append_rows
from tests.wait import until

OWN, OTHER, NOBODY = "acme-secret", "globex-secret", "nobody-secret"
NOW = datetime(2026, 11, 20, tzinfo=UTC)


def says_whose(table: Table) -> bool:
    return any(column.name == TENANT.name for column in table.columns)


LIMITED = sorted(name for name, table in catalog().items() if says_whose(table))
"""The tables whose rows say whose they are."""

CLOSED = {
    "gold.arrival_minute", "gold.attributed_event", "gold.attributed_event_current",
    "gold.device_hour", "gold.login_session", "gold.preliminary_answer", "gold.rollup",
    "gold.rollup_device", "gold.rollup_hour", "gold.rollup_minute", "gold.rollup_usual",
    "gold.suppression", "ops.audit", "ops.case_act", "ops.drift", "ops.gap", "ops.ledger",
    "ops.ledger_check", "ops.quality", "ops.recount", "ops.rollup_check", "ops.rule_cost",
    "silver.asset", "silver.asset_history", "silver.asset_version", "silver.user",
    "silver.user_history", "silver.user_version",
}  # fmt: skip
"""Tables and views that cannot tell whose their rows are. Each new one has to be judged: it is
listed here, or shown to tenants by `alerts.domain.tenant_rows`."""
OPEN = sorted({*catalog(), *views()} - CLOSED)


def row(table: Table, text: str, tenant: str | None) -> dict[str, Any]:
    """A row whose every text is `text`."""
    by_type = {
        "string": text, "timestamp": NOW, "binary": text.encode(), "array<string>": [text]
    }  # fmt: skip
    values = {
        column.name: by_type[kind]
        for column in table.columns
        if (kind := column.type.simpleString()) in by_type
    }
    # Without texts no row could be told from another's, and every test here would pass.
    assert text in values.values() or not says_whose(table), table.name
    return values | {TENANT.name: tenant}


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FlightDesk]:
    running = FlightDesk(
        tmp_path_factory.mktemp("tenants"), general={"tenants": ["acme", "globex"]}
    )
    lake = running.settings.lake_root
    assert isinstance(lake, Path)
    for table in catalog().values():
        rows = [row(table, OTHER, "globex"), row(table, NOBODY, None)]
        append_rows(lake, table, [row(table, OWN, "acme"), *rows] if says_whose(table) else rows)
    yield running
    running.close()


@pytest.fixture(scope="module")
def acme(desk: FlightDesk) -> TestClient:
    """The highest role there is, limited to one tenant."""
    return limited(desk, "acme", ["acme"])


def limited(desk: FlightDesk, name: str, tenants: list[str]) -> TestClient:
    wanted = {"name": name, "role": "admin", "tenants": tenants}
    made = admin(desk).post("/api/v1/keys", json=wanted)
    assert made.status_code == 201, made.text
    assert made.json()["key"]["tenants"] == tenants
    client = TestClient(desk.app, raise_server_exceptions=False)
    client.headers["Authorization"] = f"Bearer {made.json()['token']}"
    return client


def admin(desk: FlightDesk) -> TestClient:
    client = TestClient(desk.app, raise_server_exceptions=False)
    client.headers["Authorization"] = "Bearer " + "t" * 32
    return client


def operations(desk: FlightDesk) -> list[tuple[str, str]]:
    """Every method and path of the OpenAPI document."""
    paths = admin(desk).get("/api/v1/openapi.json").json()["paths"]
    methods = ("get", "post", "put", "patch", "delete")
    return [(m.upper(), path) for path, item in paths.items() for m in methods if m in item]


def test_no_route_answers_a_key_of_a_tenant_but_those_that_limit(
    desk: FlightDesk, acme: TestClient
) -> None:
    asked = operations(desk)
    assert len(asked) > 60
    stranger = TestClient(desk.app, raise_server_exceptions=False)
    for method, path in asked:
        # These say again what was asked for.
        echoed = r"{(job_id|alert_id|act_id|case_id|incident_id|rule|run_id|name)}"
        filled = re.sub(echoed, "0" * 26, path)
        filled = re.sub(r"{[a-z_]+}", OTHER, filled)
        # A stream has no end: see `test_tenant_alerts`.
        filled = filled.replace("alerts/stream", "alerts/stream?after=none")
        body = None if method in ("GET", "DELETE") else {}
        answer = acme.request(method, filled, json=body)
        assert OTHER not in answer.text.replace(filled, ""), (method, path)
        assert NOBODY not in answer.text, (method, path)
        # What a stranger may ask, such as whether the API lives, shows nobody's rows.
        if stranger.request(method, filled, json=body).status_code != 401:
            assert path in ("/healthz", "/readyz"), path
        elif path not in FOR_TENANTS:
            assert answer.status_code == 403, (method, path, answer.text[:200])
            assert "limited to some tenants" in answer.text


def test_pages_that_cannot_be_limited_are_closed_to_a_key_of_a_tenant(
    desk: FlightDesk, acme: TestClient
) -> None:
    token = acme.headers["Authorization"].removeprefix("Bearer ")
    browser = TestClient(desk.app, follow_redirects=False, raise_server_exceptions=False)
    browser.post("/login", data={"key": token, "next": "/"})
    for page in ("/sources", "/admin", "/rule-editor"):
        answer = browser.get(page)
        assert answer.status_code == 403, page
        assert "is limited to some tenants, and this page shows what is of others" in answer.text
        assert OTHER not in answer.text


def ask(client: TestClient, sql: str, **more: Any) -> Any:
    """The answer to a statement, or to the search job that it became while Spark started."""
    answer = client.post("/api/v1/statements", json={"sql": sql} | more)
    if answer.status_code != 202:
        return answer
    job = answer.headers["Location"]
    ended = until(lambda: _ended(client, job), what=f"the job of {sql}")
    return client.get(f"{job}/results") if ended.json()["state"] == "done" else ended


def _ended(client: TestClient, job: str) -> Any:
    answer = client.get(job)
    return None if answer.json()["state"] in ("queued", "running") else answer


@pytest.mark.parametrize("name", LIMITED)
def test_a_table_shows_the_rows_of_the_tenant_alone(
    desk: FlightDesk, acme: TestClient, name: str
) -> None:
    answer = ask(acme, f"SELECT * FROM {name}")
    assert answer.status_code == 200, answer.text
    assert len(answer.json()["rows"]) == 1
    assert "acme-secret" in answer.text
    assert OTHER not in answer.text
    assert NOBODY not in answer.text
    whole = ask(admin(desk), f"SELECT * FROM {name}").text
    assert OTHER in whole
    assert NOBODY in whole


def test_what_does_not_say_whose_it_is_is_refused_by_name(acme: TestClient) -> None:
    assert {*catalog(), *views()} > CLOSED
    for name in sorted(CLOSED):
        answer = ask(acme, f"SELECT * FROM {name}")
        assert answer.status_code == 422, name
        assert f"no table '{name}'; there are {', '.join(OPEN)}" in answer.json()["detail"]


def test_every_table_and_view_that_is_open_shows_nothing_of_others(acme: TestClient) -> None:
    assert {"silver.dhcp_segment", "silver.witness", "gold.attribution", "silver.events"} <= {*OPEN}
    listed = acme.get("/api/v1/tables").json()
    assert [table["name"] for table in listed["tables"]] == OPEN
    for name in OPEN:
        answer = ask(acme, f"SELECT * FROM {name}")
        assert answer.status_code == 200, (name, answer.text)
        assert_own_alone(answer, "")


TRICKS = [
    "SELECT * FROM (SELECT * FROM silver.event) x",
    "SELECT * FROM (SELECT * FROM silver.event) UNION ALL SELECT * FROM silver.event",
    "WITH a AS (SELECT * FROM silver.event) SELECT * FROM a",
    "WITH event AS (SELECT * FROM silver.event) SELECT user_name FROM event WHERE true OR 1 = 1",
    "WITH limited AS (SELECT 'globex' AS tenant_uid) SELECT e.* FROM silver.event e, limited",
    "SELECT e.* FROM silver.event AS limited, silver.event AS e",
    "SELECT * FROM silver.event WHERE tenant_uid = 'globex'",
    "SELECT * FROM silver.event WHERE tenant_uid IS NULL OR true",
    "SELECT * FROM silver.event a FULL OUTER JOIN silver.event b ON a.tenant_uid <> b.tenant_uid",
    "SELECT b.* FROM silver.event a RIGHT JOIN silver.event b ON false",
    "SELECT * FROM silver.event a WHERE EXISTS (SELECT 1 FROM silver.event b WHERE true)",
    "SELECT (SELECT max(user_name) FROM silver.event), (SELECT min(mac) FROM silver.event)",
    "SELECT * FROM silver.event WHERE user_name NOT IN (SELECT user_name FROM gold.finding)",
    "SELECT * FROM silver.event EXCEPT SELECT * FROM silver.event WHERE tenant_uid = 'acme'",
    "SELECT max(user_name), min(user_name), collect_set(tenant_uid) FROM silver.event",
    "SELECT lag(user_name) OVER (ORDER BY user_name DESC) FROM silver.event",
    "SELECT r FROM silver.event LATERAL VIEW explode(record_ids) x AS r",
    "SELECT count(*) FROM silver.event HAVING count(*) > 1",
    "SELECT CAST(raw AS STRING), topic FROM bronze.record",
    "SELECT path, hash FROM ops.file",
    "SELECT * FROM silver.event TIMESTAMP AS OF '2026-11-25'",
    "SELECT * FROM silver.event VERSION AS OF 0",
    "SELECT * FROM silver.events",
    "SELECT * FROM gold.alert",
    "SELECT * FROM silver.event@v0",
    "SELECT * FROM `silver`.`EVENT`",
    "SELECT * FROM SILVER.Event",
    "SELECT * FROM main.silver.event",
    "SELECT * FROM delta.`/silver/event`",
    "SELECT * FROM parquet.`silver/event/*.parquet`",
    "SELECT * FROM 'silver/event/part-0.parquet'",
    "SELECT * FROM read_parquet('silver/event/*.parquet')",
    "SELECT * FROM delta_scan('silver/event')",
    "SELECT * FROM read_text('/etc/passwd')",
    "SELECT * FROM information_schema.tables",
    "SELECT * FROM duckdb_views()",
    "SELECT * FROM duckdb_views",
    "SELECT * FROM sqlite_master",
    "SELECT * FROM pragma_storage_info('event')",
    "SELECT getenv('HOME')",
    "SELECT input_file_name() FROM silver.event",
    "SELECT filename FROM silver.event",
    "SELECT _metadata.file_path FROM silver.event",
    "DESCRIBE HISTORY silver.event",
    "DESCRIBE DETAIL silver.event",
    "DESCRIBE EXTENDED silver.event user_name",
    "SHOW TABLES",
    "SHOW CREATE TABLE silver.events",
    "EXPLAIN ANALYZE SELECT * FROM silver.event",
    "SUMMARIZE silver.event",
    "FROM silver.event",
    "TABLE silver.event",
    "VALUES ((SELECT max(user_name) FROM silver.event))",
    "PIVOT silver.event ON tenant_uid USING count(*)",
    "COPY silver.event TO '/tmp/x'",
    "CREATE VIEW v AS SELECT * FROM silver.event",
    "ATTACH 'x.db'",
    "SELECT * FROM silver.event; SELECT * FROM silver.event",
    "SELECT * FROM silver.event -- limited",
    "SELECT * FROM silver.event TABLESAMPLE (100 PERCENT)",
    "SELECT 1 / (CASE WHEN user_name = 'acme-secret' THEN 1 ELSE 0 END) FROM silver.event",
    "SELECT * FROM silver.event WHERE CAST(user_name AS INT) = 1",
    "SELECT * FROM silver.event WHERE 1 % instr(user_name, 'acme') = 0",
]


@pytest.mark.parametrize("sql", TRICKS[:6])
def test_no_trick_shows_what_is_anothers(acme: TestClient, sql: str) -> None:
    assert_own_alone(ask(acme, sql), sql)


@pytest.mark.full
@pytest.mark.parametrize("sql", TRICKS[6:])
def test_none_of_many_tricks_shows_what_is_anothers(acme: TestClient, sql: str) -> None:
    assert_own_alone(ask(acme, sql), sql)


def test_the_past_shows_what_is_anothers_no_more_than_today(acme: TestClient) -> None:
    sql = "SELECT * FROM silver.event"
    answer = ask(acme, sql, as_of=datetime.now(UTC).isoformat())
    assert answer.status_code == 200, answer.text
    assert len(answer.json()["rows"]) == 1
    assert_own_alone(answer, sql)


def assert_own_alone(answer: Any, sql: str) -> None:
    assert answer.status_code in (200, 422), answer.text
    # What was asked may be told again; no more.
    told = answer.text.replace(json.dumps(sql)[1:-1], "")
    assert OTHER not in told
    assert NOBODY not in told
    for held in answer.json().get("rows") or ():
        assert "globex" not in str(held) or "'globex'" in sql


def test_a_statement_that_fails_does_not_tell_on_what(desk: FlightDesk, acme: TestClient) -> None:
    sql = "SELECT 1 % (length(user_name) - 11) FROM silver.event"
    assert ask(admin(desk), sql).json()["detail"] == "division by zero"
    assert "what it failed on is not told to keys" in ask(acme, sql).json()["detail"]


def test_jobs_and_flight_sql_show_the_rows_of_the_tenant_alone(
    desk: FlightDesk, acme: TestClient
) -> None:
    wanted = {"sql": "SELECT user_name, tenant_uid FROM silver.event"}
    theirs = admin(desk).post("/api/v1/search/jobs?wait_seconds=20", json=wanted).json()
    done = acme.post("/api/v1/search/jobs?wait_seconds=20", json=wanted).json()
    assert done["rows"] == 1, done
    for accept in ("application/json", "application/x-ndjson", "text/csv"):
        answer = acme.get(f"/api/v1/search/jobs/{done['id']}/results", headers={"accept": accept})
        assert OWN in answer.text
        assert OTHER not in answer.text
    # An administrator with a limit is no administrator of others' results.
    listed = [job["id"] for job in acme.get("/api/v1/search/jobs").json()["items"]]
    assert done["id"] in listed
    assert theirs["id"] not in listed
    assert acme.get(f"/api/v1/search/jobs/{theirs['id']}/results").status_code == 404
    token = acme.headers["Authorization"].removeprefix("Bearer ")
    assert desk.rows(wanted["sql"], token) == [{"user_name": OWN, "tenant_uid": "acme"}]
    with pytest.raises(Exception, match=r"no table 'gold\.rollup'"):
        desk.rows("SELECT * FROM gold.rollup", token)
    tables = desk.bare("CommandGetTables", token).to_pylist()
    assert [f"{each['db_schema_name']}.{each['table_name']}" for each in tables] == OPEN


def test_a_key_made_anew_with_a_limit_meets_no_answer_of_the_one_before(desk: FlightDesk) -> None:
    first = desk.client("again", "viewer")
    wanted = {"sql": "SELECT user_name FROM silver.event"}
    headers = {"Idempotency-Key": "one"}
    assert OTHER in first.post("/api/v1/statements", json=wanted, headers=headers).text
    job = first.post("/api/v1/search/jobs?wait_seconds=20", json=wanted).json()
    assert job["rows"] == 3, job
    Credentials(desk.settings).remove_key("again")
    second = limited(desk, "again", ["globex", "acme"])
    answer = second.post("/api/v1/statements", json=wanted, headers=headers)
    assert sorted(held for (held,) in answer.json()["rows"]) == [OWN, OTHER]
    assert second.get(f"/api/v1/search/jobs/{job['id']}").status_code == 404


def test_a_user_of_a_tenant_is_limited_and_stays_so(desk: FlightDesk) -> None:
    credentials = desk.access.credentials
    credentials.put_user("ann", "analyst", "long enough words", ("acme",))
    client = TestClient(desk.app, raise_server_exceptions=False)
    client.auth = ("ann", "long enough words")
    assert client.get("/api/v1/suppressions").status_code == 403
    assert ask(client, "SELECT user_name FROM silver.event").json()["rows"] == [[OWN]]
    credentials.put_user("ann", "viewer", "another few words")
    client.auth = ("ann", "another few words")
    assert ask(client, "SELECT user_name FROM silver.event").json()["rows"] == [[OWN]]


def test_unknown_tenants_and_none_are_refused_when_a_key_is_made(desk: FlightDesk) -> None:
    wanted: dict[str, Any] = {"name": "slip", "role": "viewer"}
    unknown = admin(desk).post("/api/v1/keys", json=wanted | {"tenants": ["acmee"]})
    assert unknown.status_code == 422
    assert "no tenant 'acmee'; there are acme, globex" in unknown.json()["detail"]
    none: dict[str, Any] = {"tenants": []}
    assert admin(desk).post("/api/v1/keys", json=wanted | none).status_code == 422


def test_the_console_makes_keys_of_a_tenant_and_shows_whose_they_are(desk: FlightDesk) -> None:
    browser = desk.browser("root", "admin")
    page = browser.get("/admin").text
    form = {"csrf": page.split('name="csrf" value="')[1].split('"')[0], "tenant": "globex"}
    made = browser.post("/admin/keys", data=form | {"name": "theirs", "role": "viewer"})
    assert made.status_code == 200, made.text
    assert "viewer, tenant globex" in made.text
    secret = {"password": "long enough words"}
    put = browser.post("/admin/users", data=form | {"name": "gus", "role": "viewer"} | secret)
    assert put.status_code == 303, put.text
    content = desk.access.credentials.read()
    assert {key.name: key.tenants for key in content.keys}["theirs"] == ("globex",)
    assert {user.name: user.tenants for user in content.users}["gus"] == ("globex",)
    noted = [file.read_text() for file in (desk.settings.home / "spool" / "audit").iterdir()]
    assert any("key.make" in text and "theirs" in text and "globex" in text for text in noted)


class _Former(msgspec.Struct):
    """What a release that knew no tenants read."""

    keys: tuple[StoredKey, ...] = ()
    users: tuple[StoredUser, ...] = ()


def test_a_release_that_knows_no_tenants_does_not_know_their_keys(tmp_path: Path) -> None:
    credentials = Credentials(load(home=tmp_path, tenants=["acme"]))
    _, token = credentials.add_key("acme", "viewer", tenants=("acme",))
    credentials.add_key("all", "viewer")
    credentials.put_user("ann", "viewer", "long enough words", ("acme",))
    former = msgspec.json.decode(credentials.file.read_bytes(), type=_Former)
    assert [key.name for key in former.keys] == ["all"]
    assert former.users == ()
    known = credentials.key_of(token)
    assert known is not None
    assert known.tenants == ("acme",)
    damaged = credentials.file.read_text().replace('"tenants":["acme"]', '"tenants":null')
    credentials.file.unlink()
    credentials.file.write_text(damaged)
    credentials.file.chmod(0o600)
    with pytest.raises(Fatal, match="names no tenant"):
        credentials.read()


def test_one_group_of_a_tenant_limits_a_person_whatever_their_other_groups(tmp_path: Path) -> None:
    oidc = {
        "issuer": "https://idp.example.org", "client_id": "c",
        "roles": {"soc": "admin", "acme-soc": "viewer"}, "tenants": {"acme-soc": ["acme"]},
    }  # fmt: skip
    settings = load(home=tmp_path, tenants=["acme"], api={"oidc": oidc, "token": "t" * 32})
    access = Access(settings)
    many = tuple(f"g{number}" for number in range(2000))
    for groups, tenants in (
        (("soc",), None),
        (("soc", "acme-soc"), ("acme",)),
        (("soc", *many, "acme-soc"), ("acme",)),
    ):
        access.people.keep(Person("oidc:ann", "ann", groups))
        caller = access.named("oidc:ann")
        assert caller is not None
        assert caller.role == "admin"
        assert (caller.limits.tenants if caller.limits else None) == tenants
    with pytest.raises(Usage, match=r"api\.oidc\.tenants\.acme-soc: no tenant 'acme'"):
        load(home=tmp_path, api={"oidc": oidc})
