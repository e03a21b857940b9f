"""A POST that is sent again with its key is answered as before, and done once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI, HTTPException
from fastapi.testclient import TestClient

from alerts.tables import CASE_ACT
from api.auth import Access
from api.idempotency import IdempotentPosts
from api.problems import HUNG_UP
from infra.config.settings import load
from tests.api.least_body import least
from tests.api.plain_desk import PlainDesk
from tests.event_loop import run_apart
from tests.headgate.as_code.delta_by_hand import append_rows

TOKEN, OTHER = "the-token-of-the-first", "the-token-of-the-other"


@pytest.fixture
def counted(tmp_path: Path) -> tuple[TestClient, list[Any]]:
    """An app that counts what it does; key 'other' belongs to somebody else."""
    file = tmp_path / "other.token"
    file.write_text(OTHER)
    file.chmod(0o600)
    keys = [{"name": "other", "role": "read", "token_file": file}]
    settings = load(home=tmp_path, api={"token": TOKEN, "keys": keys})
    done: list[Any] = []
    app = FastAPI()

    @app.post("/do", status_code=201)
    def do(asked: dict[str, Any]) -> dict[str, Any]:
        done.append(asked)
        if asked.get("fail"):
            raise RuntimeError("a fault")
        if asked.get("leave") and len(done) == 1:
            raise HTTPException(HUNG_UP)
        return {"done": len(done)}

    app.add_middleware(IdempotentPosts, settings=settings, access=Access(settings))
    return TestClient(app, raise_server_exceptions=False), done


def send(client: TestClient, key: str | None, body: Any, token: str = TOKEN) -> Any:
    headers = {"Authorization": f"Bearer {token}"}
    return client.post(
        "/do", json=body, headers=headers | ({"Idempotency-Key": key} if key else {})
    )


def test_the_same_request_is_done_once_and_answered_alike(
    counted: tuple[TestClient, list[Any]],
) -> None:
    client, done = counted
    first, again = send(client, "k1", {"a": 1}), send(client, "k1", {"a": 1})
    assert (
        (first.status_code, first.json())
        == (again.status_code, again.json())
        == (
            201,
            {"done": 1},
        )
    )
    assert "idempotency-replayed" not in first.headers
    assert again.headers["idempotency-replayed"] == "true"
    assert again.headers["content-type"] == first.headers["content-type"]
    assert send(client, "k2", {"a": 1}).json() == {"done": 2}
    assert send(client, None, {"a": 1}).json() == {"done": 3}
    assert len(done) == 3


def test_a_key_with_another_body_is_refused(counted: tuple[TestClient, list[Any]]) -> None:
    client, done = counted
    send(client, "k1", {"a": 1})
    refused = send(client, "k1", {"a": 2})
    assert refused.status_code == 422
    assert "came before with another request" in refused.json()["detail"]
    assert done == [{"a": 1}]


def test_a_key_is_its_callers_own(counted: tuple[TestClient, list[Any]]) -> None:
    client, done = counted
    send(client, "k1", {"a": 1})
    assert send(client, "k1", {"a": 1}, OTHER).json() == {"done": 2}
    assert send(client, "k1", {"a": 1}, "nobody").json() == {"done": 3}, "left to the route"
    assert len(done) == 3


def test_a_fault_is_not_kept_so_the_next_try_may_succeed(
    counted: tuple[TestClient, list[Any]],
) -> None:
    client, done = counted
    assert [send(client, "k1", {"fail": 1}).status_code for _ in range(2)] == [500, 500]
    assert len(done) == 2


@pytest.mark.full
def test_an_answer_that_cannot_be_kept_is_sent_and_that_is_said(
    counted: tuple[TestClient, list[Any]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    client, done = counted
    (tmp_path / "api").mkdir(exist_ok=True)
    (tmp_path / "api" / "answers").write_text("no folder")
    reply = send(client, "k1", {"a": 1})
    assert (reply.status_code, reply.json(), len(done)) == (201, {"done": 1}, 1)
    assert "api: POST /do: the answer is not kept" in capsys.readouterr().err


def test_who_hung_up_and_sends_it_again_is_answered(counted: tuple[TestClient, list[Any]]) -> None:
    client, done = counted
    said = [send(client, "k1", {"leave": 1}).status_code for _ in range(2)]
    assert (said, len(done)) == ([HUNG_UP, 201], 2)


@pytest.mark.full
def test_half_a_body_is_not_the_request_of_its_key(counted: tuple[TestClient, list[Any]]) -> None:
    client, done = counted
    parts = [
        {"type": "http.request", "body": b'{"a"', "more_body": True},
        {"type": "http.disconnect"},
    ]
    headers = {"authorization": f"Bearer {TOKEN}", "idempotency-key": "k1"}
    scope = {
        "type": "http", "method": "POST", "path": "/do", "query_string": b"",
        "headers": [(name.encode(), value.encode()) for name, value in headers.items()],
    }  # fmt: skip
    said: list[Any] = []

    async def receive() -> Any:
        return parts.pop(0)

    async def hear(message: Any) -> None:
        said.append(message)

    run_apart(client.app(scope, receive, hear))
    assert (said[0]["status"], done) == (HUNG_UP, [])
    assert send(client, "k1", {"a": 1}).json() == {"done": 1}


@pytest.mark.parametrize("key", ["x" * 256, "a\tb"])
def test_a_key_that_is_none_is_refused(counted: tuple[TestClient, list[Any]], key: str) -> None:
    client, done = counted
    assert send(client, key, {}).status_code == 422
    assert done == []


SINCE = "2025-03-01T00:00:00Z"
BODIES: dict[str, Any] = {
    "/api/v1/alerts/bulk/preview": {"filter": {"level": ["high"]}, "change": {"status": "closed"}},
    "/api/v1/proposals": {
        "kind": "suppression", "rule": "*", "entity": "10.0.0.1", "until": "+2d", "why": "a scan",
    },
    "/api/v1/suppressions": {"entity": "10.0.0.1", "until": "+2d", "reason": "a scan"},
    "/api/v1/suppressions/preview": {"entity": "10.0.0.1"},
    "/api/v1/statements": {"sql": "SELECT count(*) AS n FROM gold.alert"},
    "/api/v1/search/jobs": {"sql": "SELECT 1 AS n"},
    "/api/v1/keys": {"name": "made", "role": "read"},
}  # fmt: skip
"""Bodies by which something is done; what is sent elsewhere is the least that is taken."""
WHAT_IS_DONE = {
    "/api/v1/keys": 2, "/api/v1/cases": 1, "/api/v1/proposals": 1, "/api/v1/suppressions": 1,
    "/api/v1/search/jobs": 1,
}  # fmt: skip
"""Lists, and how many stand in each when all was done once; one key is the caller's."""


@pytest.mark.full
def test_every_post_takes_a_key_and_is_not_done_again(tmp_path: Path) -> None:
    desk = PlainDesk(tmp_path, requests_per_minute=10_000, spark_engine=False)
    append_rows(desk.settings.lake_root, CASE_ACT, [])
    client = desk.client("ann", "admin")
    spec = desk.app.openapi()
    posts = {path: each["post"] for path, each in spec["paths"].items() if "post" in each}
    wrong = []
    for number, (path, operation) in enumerate(posts.items()):
        names = [parameter["name"] for parameter in operation["parameters"]]
        assert "Idempotency-Key" in names, path
        content = operation.get("requestBody", {}).get("content", {}).get("application/json")
        body = content and BODIES.get(path, least(content["schema"], spec))
        parts = [part if part[:1] != "{" else "x" for part in path.split("/")]
        headers = {"Idempotency-Key": f"key-{number}"}
        first, again = (client.post("/".join(parts), json=body, headers=headers) for _ in range(2))
        if path in BODIES and not first.is_success:
            wrong.append(f"{path}: {first.status_code} {first.text[:200]}")
        if first.status_code >= 500 or "idempotency-replayed" not in again.headers:
            wrong.append(f"{path}: {first.status_code} {first.text[:200]}")
        if (first.status_code, first.content) != (again.status_code, again.content):
            wrong.append(f"{path}: {again.status_code} {again.text[:200]}")
    assert wrong == []
    assert len(posts) > 35
    counts = {path: len(client.get(path).json()["items"]) for path in WHAT_IS_DONE}
    assert counts == WHAT_IS_DONE
