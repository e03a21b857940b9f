"""What a person on call sees of a page on a telephone can be read."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.api.tenant_desk import IP, MAC, TenantDesk
from tests.console.conftest import Watched, serve

pytestmark = pytest.mark.full

NARROW = """() => [...document.querySelectorAll("main :is(h1, h2, td, .alert-title, .segments a)")]
  .filter((e) => e.innerText.trim().length > 12)
  .filter((e) => e.getBoundingClientRect().width < 60 && e.getBoundingClientRect().height > 60)
  .map((e) => e.outerHTML.slice(0, 120))"""
"""Texts that stand on end, a few letters a line."""


OUT_OF_REACH = """() => [
  ...[...document.querySelectorAll(".table-wrap")]
    .filter((e) => e.scrollWidth > e.clientWidth && e.tabIndex < 0),
  ...[...document.querySelectorAll(".stacks td, .empty :is(p, button)")]
    .filter((e) => e.innerText.trim() && e.getBoundingClientRect().right > innerWidth),
].map((e) => e.outerHTML.slice(0, 120))"""
"""Tables that no key moves sideways, and what lies beside the page."""


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TenantDesk]:
    running = TenantDesk(tmp_path_factory.mktemp("telephone"))
    yield running
    running.close()


@pytest.fixture(scope="module")
def site(desk: TenantDesk) -> Iterator[str]:
    yield from serve(desk.app)


def test_no_page_is_wider_than_a_telephone_or_sets_its_words_on_end(browse, desk):
    watched: Watched = browse(signed_in=False)
    watched.page.set_viewport_size({"width": 390, "height": 844})
    watched.sign_in(desk.key("on-call", "admin"))
    for path in (
        *("/", "/alerts", "/alerts?group=entity", f"/alerts/{desk.ids['acme']}", "/cases"),
        *("/cases/case-bb00000002", f"/entity/mac/{MAC}", f"/entity/ip/{IP}", "/sources", "/rules"),
        *("/rules/dns_random_label", f"/entity/mac/{MAC}?known_by=2026-11-21T12:30:00Z"),
        *(
            "/admin?tab=suppressions",
            "/search?since=-30d",
            "/admin",
            "/admin?tab=audit",
            "/reports",
        ),
        *("/admin?tab=sessions", "/search?sql=SELECT+1+AS+n"),
    ):
        page = watched.go(path, rest=False)
        assert page.locator(".big-number").count() == 0, page.inner_text("main")
        assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0, path
        assert page.evaluate(NARROW) == [], path
        assert page.evaluate(OUT_OF_REACH) == [], path
    assert watched.errors == []
