"""The page of keys and users: wrong values are refused, and nothing is ended or lost by a slip."""

from __future__ import annotations

import html
import re
from collections.abc import Iterator

import pytest
from fastapi.testclient import TestClient

from api.app import create_app
from infra.config.settings import Settings, load
from tests.api.desk import TOKEN
from tests.console.conftest import Watched, serve
from tests.console.test_rule_tuning import csrf_of

PASSWORD = "the password of boris"


@pytest.fixture
def settings(tmp_path) -> Settings:
    return load(home=tmp_path, api={"token": TOKEN})


@pytest.fixture
def app(settings: Settings):
    return create_app(settings)


@pytest.fixture
def site(app) -> Iterator[str]:
    """A site without a lake: keys and users need none."""
    yield from serve(app)


@pytest.fixture
def admin(app) -> TestClient:
    browser = TestClient(app, raise_server_exceptions=False, follow_redirects=False)
    assert browser.post("/login", data={"key": TOKEN}).status_code == 303
    return browser


def stored(app):
    return app.state.services.access.credentials.read()


@pytest.mark.parametrize(
    "days", ["abc", "-5", "0", "1.5", "\u00b2", "3651", "9" * 30, "00000036500000"]
)
def test_days_that_are_none_make_no_key_that_never_ends(app, admin, days):
    form = {"csrf": csrf_of(admin.get("/admin").text), "name": "wall", "role": "read"}
    refused = admin.post("/admin/keys", data=form | {"days": days})
    assert refused.status_code == 422
    assert "from 1 to 3650, or empty for a key without end" in refused.text
    assert stored(app).keys == ()


def test_a_key_has_the_end_that_was_given_and_a_reload_of_its_token_is_a_look(app, admin):
    form = {"csrf": csrf_of(admin.get("/admin").text), "name": "wall", "role": "read"}
    made = admin.post("/admin/keys", data=form | {"days": "30"}).text
    (key,) = stored(app).keys
    assert key.expires_at is not None
    # Where the browser goes when the page is loaded anew: not to the form.
    assert re.search(r'data-address="/admin"[^<]*<span>The token of <b>wall', made)
    rotated = admin.post("/admin/keys/wall/rotate", data=form).text
    assert 'data-address="/admin"' in rotated
    assert "The one before is refused from now on." in rotated


def test_a_user_who_is_there_is_changed_in_their_row_and_never_by_making_another(app, admin):
    form = {"csrf": csrf_of(admin.get("/admin").text), "name": "boris", "password": PASSWORD}
    made = admin.post("/admin/users", data=form | {"role": "admin"})
    assert "can sign in with that password" in admin.get(made.headers["location"]).text
    twice = admin.post("/admin/users", data=form | {"role": "analyst"})
    assert twice.status_code == 422
    assert "its row has Change" in twice.text
    assert [user.role for user in stored(app).users] == ["admin"]
    page = admin.get("/admin").text
    row = page[page.index("<b>boris</b>") :]
    assert re.search(r"<select[^>]*>.*?<option selected>(\w+)", row)[1] == "admin"
    changed = admin.post("/admin/users", data=form | {"role": "engineer", "change": "1"})
    assert "has the role and the password" in admin.get(changed.headers["location"]).text
    assert [user.role for user in stored(app).users] == ["engineer"]
    ended = admin.post("/admin/users/boris/end", data=form)
    assert "is ended, and signed out" in admin.get(ended.headers["location"]).text
    gone = admin.post("/admin/users", data=form | {"role": "engineer", "change": "1"})
    assert "was ended meanwhile" in html.unescape(gone.text)


def test_what_cannot_be_taken_back_is_asked_about_in_its_row(app, admin):
    app.state.services.access.credentials.add_key("wall", "read")
    page = admin.get("/admin").text
    folds = re.findall(r"<details.*?</details>", page, re.DOTALL)
    for act in ("rotate", "end"):
        action = f'action="/admin/keys/wall/{act}"'
        (fold,) = [fold for fold in folds if action in fold]
        assert fold.index("<summary") < fold.index(action)
        assert page.count(action) == 1


@pytest.mark.full
def test_two_clicks_make_one_key_and_a_reload_rotates_none(browse, app):
    watched: Watched = browse()
    page = watched.go("/admin")
    page.fill("form[action='/admin/keys'] [name=name]", "wall")
    page.dblclick("form[action='/admin/keys'] button")
    page.wait_for_selector("text=The token of wall")
    page.click("tr:has-text('wall') summary:has-text('Rotate')")
    page.click("tr:has-text('wall') details[open] button")
    page.wait_for_selector("text=The one before is refused")
    (key,) = stored(app).keys
    page.reload()
    assert page.url.endswith("/admin")
    assert page.locator("text=told this once").count() == 0
    assert stored(app).keys == (key,)
    assert watched.errors == []
    assert watched.violations() == []
