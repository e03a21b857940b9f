"""Facets of the alerts add up, and the page says what the list is limited to."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from starlette.datastructures import QueryParams

from api.console.pages.alerts import AlertsAddress
from tests.alerts.lifecycle.test_alert_fold import finding, leased
from tests.api.plain_desk import PlainDesk
from tests.console.conftest import serve

TOKEN = "t" * 32
RULES = 11
"""More than a facet shows at once."""


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> PlainDesk:
    desk = PlainDesk(tmp_path_factory.mktemp("facets"), devices=1)
    desk.batch(*(
        finding(n * 60.0, leased(f"02:00:00:00:01:{n:02}"), uid=f"of-{n}", rule_id=f"rule-{n:02}",
                target=f"rule-{n:02}", feeds=[], rule_title=f"Rule {n:02}",
                level="low" if n % 2 else "high")
        for n in range(RULES)
    ))  # fmt: skip
    return desk


@pytest.fixture(scope="module")
def site(desk: PlainDesk) -> Iterator[str]:
    yield from serve(desk.app)


@pytest.mark.parametrize(
    ("shown", "value", "then"),
    [
        ("", "closed", ["new", "triaged", "closed"]),
        ("", "triaged", ["new"]),
        ("lifecycle=new", "triaged", []),
        ("lifecycle=new&lifecycle=triaged&lifecycle=closed", "closed", []),
        ("lifecycle=closed", "new", ["closed", "new"]),
    ],
)
def test_a_status_is_added_to_those_that_are_shown_or_taken_from_them(shown, value, then):
    assert AlertsAddress.of(QueryParams(shown)).toggled("lifecycle", value)["lifecycle"] == then


@pytest.mark.full
def test_what_is_chosen_adds_up_and_stands_above_the_list(browse, site):
    watched = browse(signed_in=False).sign_in(TOKEN)
    page = watched.go("/alerts", rest=False)
    assert "Closed alerts are left out" in page.inner_text(".chips")
    assert page.locator(".facet a[aria-current]").all_inner_texts() != []
    page.click(".facet a:has-text('closed')")
    page.wait_for_url("**lifecycle=closed**")
    chips = page.locator(".chips .chip").all_inner_texts()
    assert [chip.split()[-1] for chip in chips] == ["new", "triaged", "closed"]
    page.click(".facet a:has-text('high')")
    page.wait_for_url("**level=high**")
    assert page.locator(".chips .chip:has-text('Level')").inner_text().split() == ["Level", "high"]
    page.click(".chips .chip:has-text('closed')")
    page.wait_for_url(lambda url: "lifecycle" not in url)
    assert "level=high" in page.url, "the others stay"
    page.click("text=show muted ones too")
    page.wait_for_url("**muted=1**")
    assert "muted ones too" in page.inner_text(".chips")
    assert watched.errors == []


@pytest.mark.full
def test_values_beyond_the_first_are_counted_and_can_be_chosen(browse, site):
    page = browse(signed_in=False).sign_in(TOKEN).go("/alerts", rest=False)
    facet = page.locator(".facet", has=page.locator("h3", has_text="Rule"))
    assert facet.locator("summary").inner_text() == f"{RULES + 1 - 8} more"
    facet.locator("summary").click()
    last = facet.locator("details a").last
    name = last.locator("span").first.inner_text()
    last.click()
    page.wait_for_url("**rule_id=**")
    assert name in page.inner_text(".chips")
    assert page.locator("[data-row]").count() == 1
