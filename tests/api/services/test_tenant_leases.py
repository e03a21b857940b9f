"""Who is limited to tenants looks up their leases, addresses and devices, and nobody else's."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from api.services.entities.leases import holder
from api.services.reader import Reader
from enrich.tables import DHCP_SEGMENT
from infra.config.settings import ScopeSettings, load
from ingest.tables import EVENT
from tests.api.tenant_desk import BEAT, IP, MAC, TenantDesk, assert_own, held
from tests.api.test_tenants import NOBODY, NOW, OTHER, OWN
from tests.headgate.as_code.delta_by_hand import append_rows

THEN = NOW.isoformat()
DAYS = "since=2026-11-19T00:00:00Z&until=2026-11-22T00:00:00Z"


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TenantDesk]:
    running = TenantDesk(tmp_path_factory.mktemp("tenant-leases"))
    yield running
    running.close()


@pytest.fixture(scope="module")
def ann(desk: TenantDesk) -> TestClient:
    return desk.limited("ann")


def lease(client: TestClient, **more: Any) -> Any:
    return client.get("/api/v1/leases", params={"ip": IP, "at": THEN} | more)


def test_who_held_an_address_is_told_of_the_tenants_own_network(
    desk: TenantDesk, ann: TestClient
) -> None:
    whole = lease(desk.client("root", "admin"))
    assert whole.status_code == 422
    assert "several scopes" in whole.text
    answers = [lease(ann, **more) for more in ({}, {"scope": "default"}, {"known_by": THEN})]
    for answer in answers:
        assert answer.status_code == 200, answer.text
        holder = answer.json()
        assert (holder["status"], holder["lease"]["hostname"]) == ("leased", OWN)
        assert holder["scope"] == "tenant-acme.default"
        assert holder["rivals"] == []
        assert_own(desk, answer.text)
    assert answers[0].json()["complete_up_to"] == "2026-11-20T00:00:00Z"


def test_another_tenants_scope_is_as_if_nothing_was_leased_there(
    desk: TenantDesk, ann: TestClient
) -> None:
    for scope in ("tenant-globex.default", "tenant-globex.elsewhere"):
        answer = lease(ann, scope=scope)
        assert answer.json()["status"] in ("none", "outside")
        assert answer.json()["lease"] is None
        assert answer.json()["servers"] == []
        assert_own(desk, answer.text, scope)


def test_of_several_tenants_the_scope_says_whose_is_meant(desk: TenantDesk) -> None:
    both = TestClient(desk.app, raise_server_exceptions=False)
    both.headers["Authorization"] = f"Bearer {desk.key('both', tenants=('acme', 'globex'))}"
    for answer in (lease(both), lease(both, scope="default")):
        assert answer.status_code == 422
        assert "tenant-acme.default" in answer.text
        assert "tenant-globex.default" in answer.text
    theirs = lease(both, scope="tenant-globex.default").json()
    assert theirs["lease"]["hostname"] == OTHER


def test_what_other_sites_have_set_by_hand_is_not_told(tmp_path: Path) -> None:
    settings = load(home=tmp_path)
    append_rows(settings.lake_root, DHCP_SEGMENT, [BEAT, held("acme"), held("globex")])
    append_rows(settings.lake_root, EVENT, [])
    sites = (
        ScopeSettings(name="default", networks=("10.0.0.0/24",), static=("10.0.0.9",)),
        ScopeSettings(name="lab", networks=(), static=(IP, "10.9.9.9")),
    )

    def status(reader: Reader, ip: str, scope: str | None = None) -> str:
        return holder(reader, sites, ip, NOW, scope).status

    with closing(Reader(settings)) as whole, closing(Reader(settings, ("acme",))) as own:
        assert status(whole, "10.9.9.9") == "static"
        assert status(own, IP) == "leased"
        assert status(own, IP, "default") == "leased"
        assert status(own, "10.9.9.9") == "none"
        assert status(own, "10.9.9.9", "tenant-globex.lab") == "none"
        assert status(own, "10.0.0.9", "default") == "static"
        assert status(own, "10.9.9.9", "default") == "outside"


@pytest.mark.full
def test_timelines_and_witnesses_are_the_tenants(desk: TenantDesk, ann: TestClient) -> None:
    for kind, value in (("ip", IP), ("mac", MAC), ("host", OWN), ("user", OWN)):
        answer = ann.get(f"/api/v1/entities/{kind}/{value}")
        assert answer.status_code == 200, answer.text
        assert OWN in answer.text
        assert_own(desk, answer.text)
    kinds = {item["kind"] for item in ann.get(f"/api/v1/entities/ip/{IP}").json()["items"]}
    assert kinds == {"event", "finding", "lease", "alert"}
    for kind, value in (("host", OTHER), ("user", OTHER), ("user", NOBODY), ("domain", OTHER)):
        assert ann.get(f"/api/v1/entities/{kind}/{value}").json()["items"] == []
    for kind, value in (("ip", IP), ("mac", MAC)):
        used = ann.get(f"/api/v1/entities/{kind}/{value}/witnesses", params={"at": THEN})
        assert [user["name"] for user in used.json()["users"]] == [OWN], used.text
        assert_own(desk, used.text)
    root = desk.client("root-entities", "admin")
    assert OTHER in root.get(f"/api/v1/entities/mac/{MAC}").text
    # Inventories do not say whose they are.
    closed = ann.get(f"/api/v1/entities/ip/{IP}/inventory")
    assert closed.status_code == 403


@pytest.mark.full
def test_pages_of_an_address_and_a_device_and_the_leases_of_an_alert(desk: TenantDesk) -> None:
    browser = TestClient(desk.app, follow_redirects=False, raise_server_exceptions=False)
    key = desk.key("ann-page", "analyst", tenants=("acme",))
    assert browser.post("/login", data={"key": key, "next": "/"}).status_code == 303
    for path in (f"/entity/ip/{IP}", f"/entity/mac/{MAC}", f"/entity/host/{OWN}"):
        for query in (f"?{DAYS}", "", f"?{DAYS}&known_by=2026-11-20T12:00:00Z"):
            answer = browser.get(path + query)
            assert answer.status_code == 200, (path, query, answer.text[:400])
            assert OWN in answer.text, (path, query)
            assert_own(desk, answer.text)
    assert browser.get(f"/entity?q={IP}").headers["location"] == f"/entity/ip/{IP}"
    assert OWN in browser.get(f"/entity?q={OWN}").text
    for name in (OTHER, NOBODY):
        assert "Nothing is called so" in browser.get(f"/entity?q={name}").text
    others = browser.get(f"/entity/host/{OTHER}?{DAYS}")
    assert_own(desk, others.text, OTHER)
    assert OWN not in others.text
    page = browser.get(f"/alerts/{desk.ids['acme']}")
    assert f"{OWN} held {IP}" in page.text
    assert_own(desk, page.text)
