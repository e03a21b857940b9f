"""People of an identity provider sign in, with the role of their groups, and nobody else does."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest
from fastapi.testclient import TestClient

from api.app import create_app
from api.auth import Access
from infra.config.settings import Settings, load
from infra.errors import Fatal, Usage
from tests.api.provider import SECRET, provider
from tests.full import rest_full

AUDIENCE = "headgate-api"


@pytest.fixture(scope="module")
def issuer() -> Iterator[str]:
    with provider() as address:
        yield address


@pytest.fixture
def home(tmp_path: Path, issuer: str, monkeypatch: pytest.MonkeyPatch) -> Settings:
    monkeypatch.setenv("CONSOLE_SECRET", SECRET)
    return load(home=tmp_path, api={"oidc": settings_of(issuer)})


def settings_of(issuer: str, **more: Any) -> dict[str, Any]:
    return {
        "issuer": issuer,
        "client_id": "headgate",
        "secret_env": "CONSOLE_SECRET",
        "roles": {"soc": "analyst"},
        "audience": AUDIENCE,
    } | more


def browser(settings: Settings) -> TestClient:
    return TestClient(create_app(settings), follow_redirects=False)


def answer_of(client: TestClient, person: str, next: str = "/") -> str:
    """Where the provider sends the browser of a person who lets themselves be known."""
    begun = client.get("/oidc/begin", params={"next": next})
    assert begun.status_code == 303, begun.text
    answered = httpx.post(begun.headers["location"], data={"sub": f"id-of-{person}"})
    assert answered.status_code == 302, answered.text
    return str(answered.headers["location"])


def audited(settings: Settings) -> list[dict[str, Any]]:
    files = (settings.home / "spool" / "audit").glob("*.json")
    rows = [json.loads(file.read_text()) for file in sorted(files)]
    return [row for row in rows if row["act"] == "console.login"]


def test_somebody_with_a_role_signs_in_and_out(home: Settings, issuer: str) -> None:
    client = browser(home)
    assert "/oidc/begin?next=%2Falerts" in client.get("/login?next=/alerts").text
    back = answer_of(client, "ann", "/alerts?level=high")
    page = client.get(back)
    assert page.status_code == 200
    assert "samesite=strict" in page.headers["set-cookie"].lower()
    assert "url=/alerts?level=high" in page.text
    assert client.get("/reports").status_code == 200
    assert client.get("/admin").status_code == 403, "an analyst"
    (row,) = audited(home)
    assert (row["who"], row["outcome"]) == ("oidc:ann", "ok")
    assert json.loads(row["detail"])["subject"] == "id-of-ann"
    assert client.get(back).status_code == 403, "an answer serves once"
    csrf = client.get("/reports").text.split('name="csrf" value="')[1].split('"')[0]
    left = client.post("/logout", data={"csrf": csrf})
    assert left.headers["location"] == "/login?left=1"
    assert client.get("/reports").status_code == 303
    assert "/oidc/end" in client.get("/login?left=1").text
    there = urlsplit(client.get("/oidc/end").headers["location"])
    assert there.path == "/oauth2/end_session"
    assert parse_qs(there.query)["post_logout_redirect_uri"] == ["http://testserver/login"]
    kept = [file.read_text("latin-1") for file in home.home.rglob("*") if file.is_file()]
    assert not any(SECRET in text for text in kept)


def test_who_has_no_role_is_told_so(home: Settings) -> None:
    client = browser(home)
    page = client.get(answer_of(client, "bob"))
    assert page.status_code == 403
    assert "You are bob, and none of your groups has a role here" in page.text
    assert "headgate_session" not in client.cookies
    (row,) = audited(home)
    assert (row["who"], row["outcome"]) == ("oidc:bob", "refused")


@pytest.mark.parametrize(
    ("change", "reason"),
    rest_full(
        2,
        [
            ({"state": "another"}, "begun elsewhere"),
            ({"code": "another"}, "invalid_grant"),
            ({"iss": "https://elsewhere.example.org"}, "another provider"),
            ({"code": None, "error": "access_denied"}, "access_denied"),
        ],
    ),
)
def test_an_answer_that_is_not_ours_signs_nobody_in(
    home: Settings, change: dict[str, str | None], reason: str
) -> None:
    client = browser(home)
    parts = urlsplit(answer_of(client, "ann"))
    query = {name: values[0] for name, values in parse_qs(parts.query).items()} | change
    page = client.get(parts.path, params={k: v for k, v in query.items() if v is not None})
    assert page.status_code == 403
    assert reason in page.text
    assert "headgate_session" not in client.cookies


@pytest.mark.full
def test_an_answer_serves_the_browser_that_asked_and_with_its_nonce(home: Settings) -> None:
    mine, others = browser(home), browser(home)
    back = answer_of(mine, "ann")
    assert "begun elsewhere" in others.get(back).text
    (waits,) = (home.home / "api" / "sign-ins").glob("*.json")
    waits.write_text(json.dumps(json.loads(waits.read_text()) | {"nonce": "another"}))
    assert "belongs to another sign-in" in mine.get(back).text
    assert mine.get("/reports").status_code == 303


@pytest.mark.full
def test_a_key_that_the_provider_changed_is_learnt(home: Settings, issuer: str) -> None:
    client = browser(home)
    assert client.get(answer_of(client, "ann")).status_code == 200
    httpx.post(f"{issuer}/rotate").raise_for_status()
    assert client.get(answer_of(client, "ann")).status_code == 200


@pytest.mark.full
def test_a_session_goes_by_the_roles_of_now(home: Settings, issuer: str) -> None:
    client = browser(home)
    client.get(answer_of(client, "ann"))
    cookies = dict(client.cookies)
    named = Access(home).named("oidc:ann")
    assert named is not None
    assert named.role == "analyst"
    oidc = settings_of(issuer, roles={"soc": "read", "other": "admin"})
    lower = browser(load(home=home.home, api={"oidc": oidc}))
    lower.cookies.update(cookies)
    assert lower.get("/reports").status_code == 200
    assert lower.get("/cases/add").status_code == 403
    none = browser(load(home=home.home, api={"oidc": oidc | {"roles": {"other": "admin"}}}))
    none.cookies.update(cookies)
    assert none.get("/reports").status_code == 303
    assert Access(load(home=home.home)).named("oidc:ann") is None


def signed(issuer: str, **changes: Any) -> str:
    claims = {
        "iss": issuer,
        "aud": [AUDIENCE, "others"],
        "sub": "id-of-ann",
        "exp": time.time() + 300,
        "groups": ["soc"],
    } | changes
    return httpx.post(f"{issuer}/sign", json=claims).text


def test_its_tokens_are_good_at_the_rest_api_and_forged_ones_are_not(
    home: Settings, issuer: str
) -> None:
    client = browser(home)

    def status(token: str, path: str = "/api/v1/tables") -> int:
        return client.get(path, headers={"Authorization": f"Bearer {token}"}).status_code

    good = signed(issuer)
    assert status(good) == 200
    assert status(good, "/api/v1/keys") == 403
    assert status(signed(issuer, aud="others")) == 401
    assert status(signed(issuer, iss="https://elsewhere.example.org")) == 401
    assert status(signed(issuer, exp=time.time() - 300)) == 401
    assert status(signed(issuer, groups=["everybody"])) == 401
    head, body, signature = good.split(".")
    assert status(f"{head}.{body}.{signature[:-8]}AAAAAAAA") == 401
    # {"alg":"none"}
    assert status(f"eyJhbGciOiJub25lIn0.{body}.") == 401


def test_what_is_wrong_with_the_settings_is_said_at_the_start(
    tmp_path: Path, issuer: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CONSOLE_SECRET", raising=False)
    with pytest.raises(Fatal, match="environment variable CONSOLE_SECRET is not set"):
        create_app(load(home=tmp_path, api={"oidc": settings_of(issuer)}))
    with pytest.raises(Usage, match="http on loopback only"):
        load(api={"oidc": settings_of("http://idp.example.org")})
    with pytest.raises(Usage, match="name at least one"):
        load(api={"oidc": settings_of(issuer, roles={})})


def test_a_provider_that_is_away_or_another_is_said_on_the_page(
    tmp_path: Path, issuer: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CONSOLE_SECRET", SECRET)
    for wrong, reason in ((f"{issuer}/", "write it just so"), ("http://127.0.0.1:1", "not answer")):
        client = browser(load(home=tmp_path, api={"oidc": settings_of(wrong)}))
        page = client.get("/oidc/begin")
        assert page.status_code == 503
        assert reason in page.text
