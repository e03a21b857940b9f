"""Keys and users: hashes only, good at once, ended at once, guessed by nobody."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from api.app import create_app
from api.auth import Caller, Limits
from api.credentials import LOCKED_SECONDS, TRIES, Credentials
from api.key_limits import readable_tables, row_limits
from api.services.quotas import Quotas, QuotaUsedUp
from api.sql.translation import translated
from infra.config.settings import Settings, load
from infra.errors import Fatal, Usage

TOKEN = "the-token-of-the-api"


@pytest.fixture
def home(tmp_path: Path) -> Settings:
    return load(home=tmp_path, api={"token": TOKEN})


def test_of_keys_made_at_once_none_is_lost(home: Settings) -> None:
    """By the API and by commands beside it: each has a reader of its own."""
    several = [Credentials(home) for _ in range(4)]
    with ThreadPoolExecutor(16) as threads:
        making = [
            threads.submit(several[number % 4].add_key, f"key-{number}", "viewer")
            for number in range(32)
        ]
        tokens = [made.result()[1] for made in making]
    assert [key.name for token in tokens if (key := Credentials(home).key_of(token))] == [
        f"key-{number}" for number in range(32)
    ]
    assert len(Credentials(home).read().keys) == 32


def test_a_key_is_good_until_it_is_rotated_ended_or_over(home: Settings) -> None:
    mine, others = Credentials(home), Credentials(home)
    _, token = mine.add_key("ann", "analyst")
    key = others.key_of(token)
    assert key is not None
    assert (key.name, key.role) == ("ann", "analyst")
    assert token not in mine.file.read_text()
    assert mine.file.stat().st_mode & 0o777 == 0o600
    _, fresh = others.rotate_key("ann")
    assert mine.key_of(token) is None
    assert mine.key_of(fresh) is not None
    others.remove_key("ann")
    assert mine.key_of(fresh) is None
    _, past = mine.add_key("old", "read", datetime.now(UTC) - timedelta(seconds=1))
    assert mine.key_of(past) is None


@pytest.mark.parametrize("name", ["ann", "api", "cli", "", "a b", "-x", "x" * 65])
def test_a_name_is_given_once_and_is_one(home: Settings, name: str) -> None:
    credentials = Credentials(home)
    credentials.add_key("ann", "read")
    with pytest.raises(Usage, match=r"^name "):
        credentials.add_key(name, "read")


def test_a_password_is_tried_a_few_times_and_then_waited_for(home: Settings) -> None:
    now = [0.0]
    credentials = Credentials(home, clock=lambda: now[0])
    with pytest.raises(Usage, match="at least 12"):
        credentials.put_user("bob", "viewer", "short")
    credentials.put_user("bob", "viewer", "a long enough one")
    assert "long enough" not in credentials.file.read_text()
    assert credentials.user_of("bob", "a long enough one") is not None
    for _ in range(TRIES):
        assert credentials.user_of("bob", "wrong") is None
    assert credentials.user_of("bob", "a long enough one") is None, "locked, however right"
    assert credentials.locked_seconds("bob") == LOCKED_SECONDS
    now[0] = LOCKED_SECONDS + 1
    user = credentials.user_of("bob", "a long enough one")
    assert user is not None
    assert user.role == "viewer"
    assert credentials.user_of("nobody", "a long enough one") is None


def test_a_user_signs_in_with_a_password_and_is_told_when_locked(home: Settings) -> None:
    Credentials(home).put_user("bob", "analyst", "a long enough one")
    client = TestClient(create_app(home), raise_server_exceptions=False)
    assert client.get("/api/v1/tables", auth=("bob", "a long enough one")).status_code == 200
    assert client.get("/api/v1/keys", auth=("bob", "a long enough one")).status_code == 403
    for _ in range(TRIES):
        assert client.get("/api/v1/tables", auth=("bob", "wrong")).status_code == 401
    locked = client.get("/api/v1/tables", auth=("bob", "a long enough one"))
    assert locked.status_code == 401
    assert "locked for" in locked.json()["detail"]


def test_a_file_that_others_may_read_is_refused(home: Settings) -> None:
    Credentials(home).add_key("ann", "read")
    credentials = Credentials(home)
    credentials.file.chmod(0o644)
    with pytest.raises(Fatal, match="chmod 600"):
        credentials.read()


def test_keys_are_made_and_ended_over_rest_without_a_restart(home: Settings) -> None:
    client = TestClient(create_app(home), raise_server_exceptions=False)
    admin = {"Authorization": f"Bearer {TOKEN}"}
    made = client.post("/api/v1/keys", json={"name": "ann", "role": "viewer"}, headers=admin)
    assert made.status_code == 201, made.text
    ann = {"Authorization": f"Bearer {made.json()['token']}"}
    assert client.get("/api/v1/tables", headers=ann).status_code == 200
    assert client.get("/api/v1/keys", headers=ann).status_code == 403
    (listed,) = client.get("/api/v1/keys", headers=admin).json()["items"]
    assert (listed["name"], listed["role"], listed["expired"]) == ("ann", "viewer", False)
    assert "token" not in listed
    fresh = client.post("/api/v1/keys/ann/rotate", headers=admin).json()["token"]
    assert client.get("/api/v1/tables", headers=ann).status_code == 401
    ann = {"Authorization": f"Bearer {fresh}"}
    assert client.get("/api/v1/tables", headers=ann).status_code == 200
    assert client.delete("/api/v1/keys/ann", headers=admin).status_code == 200
    assert client.get("/api/v1/tables", headers=ann).status_code == 401


def test_a_key_that_asks_too_often_is_told_when_to_come_again(home: Settings) -> None:
    client = TestClient(create_app(home), raise_server_exceptions=False)
    _, token = Credentials(home).add_key("bot", "read", requests_per_minute=2)
    bot = {"Authorization": f"Bearer {token}"}
    answers = [client.get("/api/v1/tables", headers=bot) for _ in range(3)]
    assert [answer.status_code for answer in answers] == [200, 200, 429]
    assert 1 <= int(answers[2].headers["retry-after"]) <= 31
    assert "2 requests a minute" in answers[2].json()["detail"]


@pytest.mark.full
def test_the_description_tells_of_quotas_and_of_keys_for_retries(home: Settings) -> None:
    paths = create_app(home).openapi()["paths"]
    operations = [o for path, methods in paths.items() if path.startswith("/api/v1")
                  for o in methods.values()]  # fmt: skip
    assert len(operations) > 90
    for operation in operations:
        assert "Retry-After" in operation["responses"]["429"]["headers"]
    posts = [methods["post"] for methods in paths.values() if "post" in methods]
    for post in posts:
        assert "Idempotency-Key" in [one["name"] for one in post["parameters"]]
        assert {"409", "413" if "requestBody" in post else "409"} <= set(post["responses"])


def test_bytes_that_are_no_text_are_refused_as_any_wrong_body(home: Settings) -> None:
    client = TestClient(create_app(home), raise_server_exceptions=False)
    headers = {"Authorization": f"Bearer {TOKEN}", "Content-Type": "application/json"}
    refused = client.post("/api/v1/statements", content=b'{"sql": "\xff"}', headers=headers)
    assert refused.status_code == 422
    assert refused.json()["detail"] == "the body is not JSON in UTF-8"


def test_a_quota_fills_again_as_time_goes_by() -> None:
    now = [0.0]
    quotas = Quotas(lambda: now[0])
    for _ in range(6):
        quotas.take("bot", 6)
    with pytest.raises(QuotaUsedUp) as refused:
        quotas.take("bot", 6)
    assert refused.value.retry_after == 11
    now[0] = 10.0
    quotas.take("bot", 6)
    quotas.take("other", 6)


def test_a_rotated_key_may_live_on_for_a_while_and_no_longer(home: Settings) -> None:
    credentials = Credentials(home)
    _, old = credentials.add_key("ann", "viewer")
    key, fresh = credentials.rotate_key("ann", timedelta(hours=1))
    assert credentials.key_of(old) == credentials.key_of(fresh) == key
    soon, later = datetime.now(UTC), datetime.now(UTC) + timedelta(hours=2)
    digests = [key.digest, key.former_digest]
    assert [key.has(digest, soon) for digest in digests] == [True, True]
    assert [key.has(digest, later) for digest in digests] == [True, False]
    credentials.rotate_key("ann")
    assert credentials.key_of(old) is credentials.key_of(fresh) is None


def test_a_limited_key_asks_with_statements_and_for_its_tables_alone(home: Settings) -> None:
    client = TestClient(create_app(home), raise_server_exceptions=False)
    admin = {"Authorization": f"Bearer {TOKEN}"}
    wanted = {"name": "bot", "role": "engineer", "tables": ["silver.event"]}
    made = client.post("/api/v1/keys", json=wanted, headers=admin)
    assert made.status_code == 201, made.text
    assert made.json()["key"]["tables"] == ["silver.event"]
    bot = {"Authorization": f"Bearer {made.json()['token']}"}
    assert client.get("/api/v1/alerts", headers=bot).status_code == 403
    sql = {"sql": "SELECT * FROM gold.alert"}
    refused = client.post("/api/v1/statements", json=sql, headers=bot)
    assert refused.status_code == 422
    assert "no table 'gold.alert'; there are silver.event" in refused.json()["detail"]
    unknown = client.post("/api/v1/keys", json=wanted | {"tables": ["x"]}, headers=admin)
    assert unknown.status_code == 422


def test_sources_limit_each_table_of_a_statement_and_refuse_views() -> None:
    key = Caller("bot", "viewer", limits=Limits(None, ("zeek:dns",)))
    tables = readable_tables(key)
    assert tables is not None
    assert "silver.event" in tables
    assert "silver.events" not in tables
    sql = "SELECT * FROM silver.event a JOIN silver.event ON true WHERE a.source = 'sshd'"
    translation = translated(sql, tables, {}, 10, row_limits(key))
    assert translation.tables == ["silver.event"]
    shown = "SELECT * FROM silver.event WHERE source IN ('zeek:dns')"
    assert translation.sql.startswith(f'WITH "limited silver.event" AS NOT MATERIALIZED ({shown}) ')
    assert translation.sql.count('"limited silver.event" AS ') == 3
    # Beside what it is made of, the statement names no table.
    assert translation.sql.count("silver.event WHERE") == 1
