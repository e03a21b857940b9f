"""A POST that is sent again with its key is answered as before, and done once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient

from api.auth import Access
from api.idempotency import IdempotentPosts
from infra.config.settings import load

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


@pytest.mark.parametrize("key", ["x" * 256, "a\tb"])
def test_a_key_that_is_none_is_refused(counted: tuple[TestClient, list[Any]], key: str) -> None:
    client, done = counted
    assert send(client, key, {}).status_code == 422
    assert done == []
