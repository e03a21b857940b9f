"""Alerts of several tenants who call different devices the same are told apart."""

from __future__ import annotations

import html
import re
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import pytest
from fastapi.testclient import TestClient

from tests.api.tenant_desk import IP, MAC, TenantDesk, assert_own

pytestmark = pytest.mark.full


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TenantDesk]:
    running = TenantDesk(tmp_path_factory.mktemp("alert-tenants"))
    yield running
    running.close()


def signed_in(desk: TenantDesk, name: str, **limits: Any) -> TestClient:
    browser = TestClient(desk.app, follow_redirects=False)
    key = desk.key(name, "analyst", **limits)
    assert browser.post("/login", data={"key": key, "next": "/"}).status_code == 303
    return browser


@pytest.fixture(scope="module")
def page(desk: TenantDesk) -> TestClient:
    return signed_in(desk, "root")


def rows(text: str) -> set[str]:
    return set(re.findall(r'<article[^>]* data-row="([^"]+)"', text))


def test_a_device_of_two_tenants_is_two_groups(desk: TenantDesk, page: TestClient) -> None:
    text = page.get("/alerts?group=entity").text
    assert "6 alerts" in text
    assert "in 3 groups" in text
    heads = re.findall(r'<header class="group-head">(.*?)</header>', text, re.DOTALL)
    assert all(MAC in head and "2 alerts, 2 open" in head for head in heads)
    named = [re.findall(r'title="tenant">(\w+)<', head) for head in heads]
    assert sorted(named) == [[], ["acme"], ["globex"]]


@pytest.mark.parametrize("tenant", ["acme", "globex", None])
def test_alerts_of_one_tenant_are_a_choice_beside_the_list(
    desk: TenantDesk, page: TestClient, tenant: str | None
) -> None:
    (link,) = [
        link
        for link in re.findall(r'href="(/alerts\?[^"]*)"', page.get("/alerts").text)
        if link.endswith(f"tenant_uid={tenant or ''}")
    ]
    text = page.get(html.unescape(link)).text
    assert rows(text) == {desk.ids[tenant], desk.more[tenant]}
    lines = page.get(html.unescape(link).replace("/alerts?", "/alerts.csv?")).text.splitlines()
    assert len(lines) == 3
    assert lines[0].endswith(",tenant_uid")
    assert all(line.endswith(f",{tenant or ''}") for line in lines[1:])


def test_alerts_that_nobody_took_are_a_choice(desk: TenantDesk, page: TestClient) -> None:
    text = page.get("/alerts?assignee=").text
    assert "6 alerts" in text
    assert 'href="/alerts?" aria-current="true"><span title="">none' in text, (
        "and taken back by a click"
    )


def test_the_overview_counts_a_device_of_two_tenants_twice(page: TestClient) -> None:
    text = page.get("/?since=-30d").text
    _, most = text.split("Most alerted")
    assert most.count("2 alerts") == 3
    assert re.findall(r'title="tenant">(\w+)<', most) == ["acme", "globex"]


def test_the_page_of_a_device_says_that_several_have_it_and_shows_one_tenants(
    desk: TenantDesk, page: TestClient
) -> None:
    whole = page.get(f"/entity/mac/{MAC}").text
    assert "of several tenants, and this page shows all of it" in whole
    assert 'href="?tenant=acme"' in whole
    own = page.get(f"/entity/mac/{MAC}?tenant=acme").text
    assert_own(desk, own)
    assert "this page shows all of it" not in own
    assert f"/entity/ip/{IP}?tenant=acme" in own, "and so do the pages it leads to"
    then = page.get(f"/entity/mac/{MAC}?tenant=acme&since=2025-03-01&until=2025-03-02").text
    assert desk.ids["acme"] in then
    assert page.get(f"/entity/mac/{MAC}?tenant=initech").status_code == 422


@pytest.mark.parametrize("tenant", ["acme", "globex"])
def test_an_alert_leads_to_the_page_of_its_tenants_device(
    desk: TenantDesk, page: TestClient, tenant: str
) -> None:
    for path in (f"/alerts/{desk.ids[tenant]}", f"/alerts?tenant_uid={tenant}", "/"):
        assert f"/entity/mac/{quote(MAC, safe='')}?tenant={tenant}" in page.get(path).text, path


def test_who_is_limited_cannot_ask_for_another_tenants_device(desk: TenantDesk) -> None:
    limited = signed_in(desk, "one-only", tenants=("acme",))
    assert limited.get(f"/entity/mac/{MAC}?tenant=globex").status_code == 422
    assert_own(desk, limited.get(f"/entity/mac/{MAC}?tenant=acme").text, "acme")


def test_who_sees_one_tenant_alone_is_not_told_which(desk: TenantDesk) -> None:
    limited = signed_in(desk, "limited", tenants=("acme",))
    for path in ("/alerts?group=entity", "/", f"/alerts/{desk.ids['acme']}"):
        text = limited.get(path).text
        assert desk.ids["acme"] in text
        assert 'title="tenant"' not in text
        assert "<h3>Tenant</h3>" not in text
