"""Every route refuses a query parameter that it does not know: all of them are walked."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from fastapi import APIRouter
from fastapi.routing import APIRoute
from fastapi.testclient import TestClient

from api.app import create_app
from api.console import assets
from api.console.page import pages
from api.console.session import COOKIE
from api.routes import route_modules
from infra.config.settings import load

TOKEN = "a-token-of-the-tests"


def _routes() -> Iterator[tuple[str, str]]:
    routers: list[APIRouter] = [module.router for module in route_modules()]
    routers += [page.router for page in pages()] + [assets.router]
    for router in routers:
        for route in router.routes:
            assert isinstance(route, APIRoute), f"{route}: who refuses its parameters?"
            for method in sorted(route.methods):
                yield method, route.path


ROUTES = list(_routes())
ADDED_BY_OTHERS = {("GET", "/oidc/back")}
"""An identity provider may answer with parameters of its own, such as `session_state`."""


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    home = tmp_path_factory.mktemp("empty")
    app = create_app(load(home=home, api={"token": TOKEN}))
    running = TestClient(app, raise_server_exceptions=False, follow_redirects=False)
    running.headers["Authorization"] = f"Bearer {TOKEN}"
    caller = app.state.services.access.caller(TOKEN)
    running.cookies[COOKIE] = app.state.console.sessions.begin(caller)
    with running:  # one event loop for all requests
        yield running


def test_all_routes_are_walked(client: TestClient) -> None:
    described = {
        (method.upper(), path)
        for path, operations in client.get("/api/v1/openapi.json").json()["paths"].items()
        for method in operations
    }
    assert described <= set(ROUTES)
    assert ("GET", "/alerts.csv") in ROUTES


@pytest.mark.parametrize(
    ("method", "path"), [route for route in ROUTES if route not in ADDED_BY_OTHERS]
)
def test_an_unknown_parameter_is_refused_by_its_name(
    client: TestClient, method: str, path: str
) -> None:
    parts = [part if part[:1] != "{" else "x" for part in path.split("/")]
    # A form of the console is looked at after its session: this one has a session and no form.
    answered = client.request(method, "/".join(parts).replace("{form}", "csv"), params={"zzz": "1"})
    assert answered.status_code == 422, answered.text
    assert "zzz" in answered.text


@pytest.mark.parametrize("path", ["/api/v1/alerts/", "/api/v1/statements/", "/healthz/"])
def test_a_slash_at_the_end_leads_no_stranger_elsewhere(client: TestClient, path: str) -> None:
    answered = client.get(path, headers={"Host": "evil.example"})
    assert answered.status_code in (401, 404)
    assert "location" not in answered.headers
    assert "evil.example" not in answered.text


def test_a_lake_that_is_not_there_tells_no_stranger_where(tmp_path: Path) -> None:
    app = create_app(load(home=tmp_path / "secret-place", api={"token": TOKEN}))
    answered = TestClient(app).get("/readyz")
    assert answered.status_code == 503
    assert "there is no lake here" in answered.json()["detail"]
    assert "secret-place" not in answered.text


def test_workers_that_hang_are_seen(client: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    worker = client.app.state.services.statements._all[0]  # type: ignore[attr-defined]
    assert client.get("/healthz").status_code == 200
    monkeypatch.setattr(type(worker), "busy_seconds", property(lambda _: 1_000.0))
    answered = client.get("/healthz")
    assert answered.status_code == 503
    assert "1000 s" in answered.json()["detail"]
