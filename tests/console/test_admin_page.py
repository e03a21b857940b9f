"""The page of keys and users: wrong values are refused, and nothing is ended or lost by a slip."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Iterator

import pytest
from fastapi.testclient import TestClient

from api.app import create_app
from api.console.session import COOKIE
from infra.config.settings import Settings, load
from tests.api.desk import TOKEN, audited
from tests.console.conftest import Watched, serve
from tests.console.test_rule_tuning import csrf_of
from tests.full import rest_full

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
    "days", rest_full(2, ["abc", "-5", "0", "1.5", "\u00b2", "3651", "9" * 30, "00000036500000"])
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


def test_another_role_leaves_the_password_and_counts_at_once_for_who_is_signed_in(app, admin):
    form = {"csrf": csrf_of(admin.get("/admin").text), "name": "boris", "password": PASSWORD}
    admin.post("/admin/users", data=form | {"role": "analyst"})
    boris = TestClient(app, raise_server_exceptions=False, follow_redirects=False)
    boris.post("/login", data={"name": "boris", "key": PASSWORD})
    assert boris.get("/admin").status_code == 403
    before = stored(app).users[0]
    changed = admin.post(
        "/admin/users", data=form | {"role": "admin", "change": "1", "password": ""}
    )
    assert "the password is as it was" in admin.get(changed.headers["location"]).text
    assert boris.get("/admin").status_code == 200
    assert (stored(app).users[0].digest, stored(app).users[0].role) == (before.digest, "admin")
    short = admin.post("/admin/users", data=form | {"name": "eve", "role": "read", "password": ""})
    assert "at least" in short.text
    gone = form | {"name": "nobody", "role": "read", "change": "1", "password": ""}
    assert "was ended meanwhile" in html.unescape(admin.post("/admin/users", data=gone).text)


def test_what_cannot_be_taken_back_is_asked_about_in_its_row(app, admin):
    app.state.services.access.credentials.add_key("wall", "read")
    page = admin.get("/admin").text
    folds = re.findall(r"<details.*?</details>", page, re.DOTALL)
    for act in ("rotate", "end"):
        action = f'action="/admin/keys/wall/{act}"'
        (fold,) = [fold for fold in folds if action in fold]
        assert fold.index("<summary") < fold.index(action)
        assert page.count(action) == 1


def test_open_sessions_are_listed_and_one_is_ended(app, admin, settings):
    _, key = app.state.services.access.credentials.add_key("boris", "analyst")
    boris = TestClient(app, raise_server_exceptions=False, follow_redirects=False,
                       client=("192.0.2.7", 40_000))  # fmt: skip
    boris.post("/login", data={"key": key})
    _, other = app.state.services.access.credentials.add_key("gone", "read")
    TestClient(app).post("/login", data={"key": other})
    app.state.services.access.credentials.remove_key("gone")
    page = admin.get("/admin?tab=sessions").text
    rows = {re.search(r"<b>(.*?)</b>", row)[1]: row for row in page.split("<tr data-row")[1:]}
    assert rows.keys() == {"api", "boris"}, "with its key its sessions went"
    assert "192.0.2.7" in rows["boris"]
    assert "analyst" in rows["boris"]
    assert "this browser" in rows["api"]
    assert "this browser" not in rows["boris"]
    assert "It is yours" in rows["api"]
    ended = re.search(r'action="(/admin/sessions/[^"]+)"', rows["boris"])[1]
    # What names a session is no cookie: nobody comes in with it.
    thief = TestClient(app, follow_redirects=False, cookies={COOKIE: ended.split("/")[3]})
    assert thief.get("/").status_code == 303
    form = {"csrf": csrf_of(page)}
    assert boris.get("/reports").status_code == 200
    assert boris.post(ended, data=form).status_code == 403
    done = admin.post(ended, data=form)
    shown = admin.get(done.headers["location"]).text
    assert "is signed out there" in shown
    assert "192.0.2.7" not in shown
    assert boris.get("/reports").status_code == 303
    again = admin.post(ended, data=form)
    assert (again.status_code, "is over already" in again.text) == (404, True)
    (row,) = [row for row in audited(settings) if row["act"] == "session.end"]
    assert (row["who"], row["target"]) == ("api", "boris")
    # One of an earlier release says nothing of where it is from.
    for file in (settings.home / "api" / "sessions").glob("*.json"):
        kept = json.loads(file.read_text())
        del kept["address"]
        file.write_text(json.dumps(kept))
    assert "not known" in admin.get("/admin?tab=sessions").text


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
    assert page.locator("text=shown only once").count() == 0
    assert stored(app).keys == (key,)
    assert watched.errors == []
    assert watched.violations() == []
