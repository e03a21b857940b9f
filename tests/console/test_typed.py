"""Nothing that was typed is lost: to a session that ended, to a value that is refused."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from fastapi.testclient import TestClient

from api.app import create_app
from api.console.session import new_link
from infra.config.settings import Settings, load
from tests.api.desk import TOKEN
from tests.console.conftest import Watched, serve

ACCESS = "/admin?tab=access"
KEYS = "form[action='/admin/keys']"


@pytest.fixture(scope="module")
def settings(tmp_path_factory) -> Settings:
    return load(home=tmp_path_factory.mktemp("typed"), api={"token": TOKEN})


@pytest.fixture(scope="module")
def site(settings: Settings) -> Iterator[str]:
    """A site without a lake: accounts and keys need none."""
    yield from serve(create_app(settings))


@pytest.fixture
def plain(settings: Settings) -> Iterator[TestClient]:
    with TestClient(create_app(settings), follow_redirects=False) as client:
        yield client


@pytest.mark.full
def test_what_was_typed_survives_a_session_that_ended(browse):
    watched: Watched = browse()
    page = watched.go(ACCESS)
    page.fill(f"{KEYS} input[name=name]", "ticket-system")
    page.select_option(f"{KEYS} select", "analyst")
    page.context.clear_cookies(name="headgate_session")
    page.click(f"{KEYS} button")
    page.wait_for_url("**/login?ended=1**")
    assert "what you typed is kept" in page.inner_text("main")
    page.fill("#key", TOKEN)
    page.press("#key", "Enter")
    page.wait_for_selector(".notice >> text=What you typed is here again")
    assert page.url.endswith(ACCESS)
    assert page.input_value(f"{KEYS} input[name=name]") == "ticket-system"
    assert page.input_value(f"{KEYS} select") == "analyst"
    assert page.evaluate("document.activeElement.name") == "role"
    page.click(f"{KEYS} button")
    page.wait_for_selector("text=shown only once")
    watched.go(ACCESS)
    assert page.input_value(f"{KEYS} input[name=name]") == ""
    assert watched.errors == []
    assert watched.violations() == []


@pytest.mark.full
def test_a_value_that_is_refused_comes_back_into_its_form_with_the_reason(browse):
    watched: Watched = browse()
    page = watched.go(ACCESS)
    page.fill(f"{KEYS} input[name=name]", "two words")
    page.click(f"{KEYS} button")
    page.wait_for_selector(".notice.bad >> text=two words")
    assert page.url.endswith(ACCESS)
    assert page.input_value(f"{KEYS} input[name=name]") == "two words"
    page.click(".notice.bad [data-dismiss]")
    assert page.locator(".notice.bad").count() == 0
    assert watched.errors == []


@pytest.mark.full
def test_a_word_that_is_no_time_is_told_where_it_was_typed(browse):
    watched: Watched = browse()
    page = watched.go("/admin?tab=audit")
    page.fill("input[name=since]", "sometime")
    page.press("input[name=since]", "Enter")
    page.wait_for_selector(".notice.bad >> text=sometime")
    assert page.input_value("input[name=since]") == "sometime"


def test_a_form_without_a_session_leads_back_to_its_page(plain):
    from_page = {"referer": "http://testserver/admin?tab=access"}
    answer = plain.post("/admin/keys", data={"name": "x"}, headers=from_page)
    assert answer.headers["location"] == "/login?ended=1&next=%2Fadmin%3Ftab%3Daccess"
    elsewhere = {"referer": "http://evil.example/admin?tab=access"}
    answer = plain.post("/admin/keys", data={"name": "x"}, headers=elsewhere)
    assert "evil" not in answer.headers["location"]


def test_a_used_link_lets_in_who_is_signed_in_and_tells_others_what_to_do(plain, settings):
    link = new_link(settings)
    assert plain.get(link).status_code == 200
    again = plain.get(link)
    assert (again.status_code, "Signed in" in again.text) == (200, True)
    plain.cookies.clear()
    refused = plain.get(link)
    assert refused.status_code == 403
    assert "headgate console-link" in refused.text
    assert 'id="key"' in refused.text
