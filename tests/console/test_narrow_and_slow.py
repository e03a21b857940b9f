"""What a small window, a large zoom and a slow answer must not take away."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from fastapi import FastAPI

from api.services.console import alert_list
from tests.api.desk import audited
from tests.api.plain_desk import PlainDesk
from tests.api.routes.test_statements import LONG
from tests.console.conftest import Watched, serve
from tests.console.test_accessibility import AXE, RUN
from tests.wait import until

pytestmark = pytest.mark.full

TOKEN = "t" * 32
ASK_AND_LOOK = """() => {
  document.querySelector("[data-search]").form.requestSubmit();
  const { dataset } = document.documentElement;
  return new Promise((say) => setTimeout(() => say("going" in dataset), 900));
}"""
"""The page that asks is there until the answer comes; whether it has a sign by then."""

ASK_AND_STOP = """() => {
  document.querySelector("[data-search]").form.requestSubmit();
  const stop = document.querySelector("[data-stop]");
  return new Promise((say) => {
    const look = setInterval(() => {
      if (stop.closest("[hidden]")) return;
      clearInterval(look);
      stop.click();
      say(true);
    }, 50);
  });
}"""
"""In the page itself: the driver does nothing while a page is awaited."""


@pytest.fixture(scope="module")
def app(tmp_path_factory) -> FastAPI:
    return PlainDesk(tmp_path_factory.mktemp("narrow")).app


@pytest.fixture(scope="module")
def site(app: FastAPI) -> Iterator[str]:
    yield from serve(app)


def narrow(browse) -> Watched:
    """A window as wide as 1280 pixels are at a zoom of 150 %."""
    watched: Watched = browse(signed_in=False)
    watched.page.set_viewport_size({"width": 853, "height": 480})
    return watched.sign_in(TOKEN)


def test_filters_views_and_keys_are_reached_in_a_narrow_window(browse):
    watched = narrow(browse)
    page = watched.go("/alerts", rest=False)
    assert not page.is_visible("#facets")
    page.click("[data-facets]")
    assert page.get_attribute("[data-facets]", "aria-expanded") == "true"
    assert page.is_visible("#facets >> text=Keep this view")
    assert page.is_visible("[data-help]")
    page.evaluate(AXE.read_text("utf-8"))
    assert page.evaluate(RUN) == []
    page.click("#facets a[href*='lifecycle=new'] >> nth=0")
    page.wait_for_url("**lifecycle=**")
    assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0
    assert watched.errors == []


def test_a_slow_answer_has_a_sign_that_goes_when_it_comes(browse, monkeypatch):
    watched: Watched = browse(signed_in=False).sign_in(TOKEN)
    page = watched.go("/alerts", rest=False)
    counts = alert_list.facet_counts

    def slowly(*given):
        time.sleep(2)
        return counts(*given)

    monkeypatch.setattr(alert_list, "facet_counts", slowly)
    page.fill("[data-search]", "guessing")
    assert page.evaluate(ASK_AND_LOOK)
    page.wait_for_url("**q=guessing**")
    page.wait_for_selector("html:not([data-going])")


def test_a_statement_that_is_stopped_ends_at_the_server_too(browse, app):
    watched: Watched = browse(signed_in=False).sign_in(TOKEN)
    page = watched.go("/search?sql=SELECT+1", rest=False)
    page.fill("[data-search]", LONG)
    assert page.evaluate(ASK_AND_STOP)
    page.wait_for_selector("[data-long]", state="hidden")
    assert page.input_value("[data-search]") == LONG
    settings = app.state.services.settings
    spool = settings.home / "spool" / "audit"
    until(lambda: not list(spool.glob(".*.begun")), what="it still runs")
    (stopped,) = [row for row in audited(settings) if "hung up" in (row["detail"] or "")]
    assert (stopped["act"], stopped["outcome"]) == ("statement", "failed")
    assert watched.errors == []


def test_an_address_that_does_not_fit_says_why_and_leads_on(browse):
    watched: Watched = browse(signed_in=False).sign_in(TOKEN)
    page = watched.go("/search?f=foo", rest=False)
    assert "write column=value" in page.inner_text("main")
    assert page.title() == "That does not fit (422) · Headgate"
    assert page.get_attribute("text=Open the page without it", "href") == "/search"
