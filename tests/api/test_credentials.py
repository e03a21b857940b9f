"""Keys and users: hashes only, good at once, ended at once, guessed by nobody."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from api.app import create_app
from api.credentials import LOCKED_SECONDS, TRIES, Credentials
from api.services.quotas import Quotas, QuotaUsedUp
from infra.config.settings import Settings, load
from infra.errors import Fatal, Usage

TOKEN = "the-token-of-the-api"


@pytest.fixture
def home(tmp_path: Path) -> Settings:
    return load(home=tmp_path, api={"token": TOKEN})


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


# Least role of each operation. A route that is not in here fails the test below.
LEAST = {
    "open": {"GET /healthz", "GET /readyz"},
    "metrics": {"GET /metrics", "GET /api/v1/openapi.json"},
    "analyst": {
        "PATCH /api/v1/alerts/{alert_id}",
        "POST /api/v1/alerts/bulk",
        "POST /api/v1/alerts/bulk/preview",
        "GET /api/v1/alerts/{alert_id}/notes",
        "POST /api/v1/alerts/{alert_id}/notes",
        "GET /api/v1/acts",
        "GET /api/v1/acts/{act_id}",
        "POST /api/v1/acts/{act_id}/undo",
        "POST /api/v1/suppressions",
        "DELETE /api/v1/suppressions/{suppression_id}",
    },
    "viewer": {"POST /api/v1/statements", "POST /api/v1/rules/{rule}/preview"},
    "engineer": {"POST /api/v1/rules/{rule}/enable", "POST /api/v1/rules/{rule}/disable"},
    "read": {
        "GET /api/v1/alerts",
        "GET /api/v1/alerts/stream",
        "GET /api/v1/alerts/{alert_id}",
        "GET /api/v1/alerts/{alert_id}/explain",
        "GET /api/v1/suppressions",
        "POST /api/v1/suppressions/preview",
        "GET /api/v1/leases",
        "GET /api/v1/events/attributed",
        "GET /api/v1/entities/{type}/{value}",
        "GET /api/v1/entities/{type}/{value}/witnesses",
        "GET /api/v1/entities/{type}/{value}/inventory",
        "GET /api/v1/tables",
        "GET /api/v1/rules",
        "GET /api/v1/rules/{rule}",
        "POST /api/v1/rules/{rule}/test",
    },
    "admin": {
        "GET /api/v1/keys",
        "POST /api/v1/keys",
        "POST /api/v1/keys/{name}/rotate",
        "DELETE /api/v1/keys/{name}",
    },
}
ROLES = ["metrics", "read", "viewer", "analyst", "engineer", "admin"]


def test_each_role_may_what_is_declared_and_no_more(home: Settings) -> None:
    app = create_app(home)
    client = TestClient(app, raise_server_exceptions=False)
    tokens = {role: Credentials(home).add_key(f"key-{role}", role)[1] for role in ROLES}
    declared = {operation: role for role, names in LEAST.items() for operation in names}
    described = {
        f"{method.upper()} {path}"
        for path, operations in app.openapi()["paths"].items()
        for method in operations
    }
    assert described == set(declared), "each operation has its least role in this test"
    for operation, least in declared.items():
        method, path = operation.split()
        filled = path.format(alert_id="x", act_id="x", suppression_id="x", name="x", rule="x",
                             type="ip", value="10.0.0.1")  # fmt: skip
        assert (client.request(method, filled).status_code == 401) is (least != "open"), operation
        if least == "open":
            continue
        for role in ROLES:
            headers = {"Authorization": f"Bearer {tokens[role]}"}
            refused = client.request(method, filled, headers=headers).status_code == 403
            assert refused is (ROLES.index(role) < ROLES.index(least)), (operation, role)
