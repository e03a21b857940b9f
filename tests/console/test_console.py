"""The console as HTTP: who comes in, what a page carries, and what it weighs."""

from __future__ import annotations

import gzip
import re
from collections.abc import Iterator
from datetime import UTC, datetime

import pytest
from fastapi.testclient import TestClient

from api.app import create_app
from api.console.assets import assets
from api.console.page import pages
from api.console.render import templates
from api.console.session import new_link
from api.console.time_words import earliest
from api.credentials import Credentials
from infra.config.settings import Settings, load
from infra.errors import Usage

TOKEN = "a-token-of-the-tests"


@pytest.fixture
def console_settings(tmp_path) -> Settings:
    return load(home=tmp_path, api={"token": TOKEN})


@pytest.fixture
def browser(console_settings: Settings) -> Iterator[TestClient]:
    with TestClient(create_app(console_settings), follow_redirects=False) as client:
        yield client


def sign_in(browser: TestClient) -> None:
    assert browser.post("/login", data={"key": TOKEN, "next": "/alerts"}).status_code == 303


@pytest.mark.parametrize("path", [page.path for page in pages() if page.path])
def test_each_page_sends_strangers_to_the_login_and_back_again(browser, path):
    answer = browser.get(path, headers={"accept": "text/html"})
    assert answer.status_code == 303
    assert answer.headers["location"].startswith("/login?next=%2F")


def test_a_wrong_key_is_refused_and_noted(browser, console_settings):
    answer = browser.post("/login", data={"key": "guess"})
    assert answer.status_code == 403
    assert "headgate_session" not in answer.cookies
    noted = list((console_settings.home / "spool" / "audit").iterdir())
    assert any(b'"console.login"' in file.read_bytes() for file in noted)


def test_the_cookie_is_for_this_site_and_for_no_script(browser):
    answer = browser.post("/login", data={"key": TOKEN})
    cookie = answer.headers["set-cookie"].lower()
    assert "httponly" in cookie
    assert "samesite=strict" in cookie


@pytest.mark.parametrize(
    "target", ["//evil.example", "https://evil.example/", "/\\evil.example", "x"]
)
def test_the_login_goes_on_to_this_site_only(browser, target):
    answer = browser.post("/login", data={"key": TOKEN, "next": target})
    assert answer.headers["location"] == "/"


def test_a_login_link_serves_once(browser, console_settings):
    link = new_link(console_settings)
    assert browser.get(link).status_code == 200
    browser.cookies.clear()
    second = browser.get(link)
    assert second.status_code == 403
    assert "headgate_session" not in second.cookies


def test_a_form_without_the_sessions_token_is_refused(browser):
    sign_in(browser)
    assert browser.post("/logout", data={"csrf": "guess"}).status_code == 403
    assert browser.get("/alerts").status_code != 303


def test_a_session_ends_where_its_owner_signs_out(browser):
    sign_in(browser)
    page = browser.get("/nowhere-to-be-seen-alert", headers={"accept": "text/html"})
    assert page.status_code == 404
    csrf = re.search(r'name="csrf" value="([^"]+)"', browser.get("/alerts").text)
    assert csrf is not None
    assert browser.post("/logout", data={"csrf": csrf[1]}).status_code == 303
    assert browser.get("/alerts").status_code == 303


def test_a_session_outlives_a_restart_and_ends_with_its_key(console_settings):
    credentials = Credentials(console_settings)
    _, key = credentials.add_key("ann", "viewer")
    with TestClient(create_app(console_settings), follow_redirects=False) as first:
        cookie = first.post("/login", data={"key": key}).cookies["headgate_session"]
    headers = {"Cookie": f"headgate_session={cookie}"}
    with TestClient(create_app(console_settings), follow_redirects=False) as second:
        assert second.get("/rules", headers=headers).status_code != 303
        credentials.rotate_key("ann")
        ended = second.get("/alerts?status=new", headers=headers)
        assert ended.headers["location"] == "/login?next=%2Falerts%3Fstatus%3Dnew"
    kept = console_settings.home / "api" / "sessions"
    assert all(cookie not in file.read_text() for file in kept.glob("*.json"))


def test_every_answer_of_a_page_forbids_scripts_of_others_and_inline_ones(browser):
    for path in ("/login", "/alerts", "/login/guess"):
        policy = browser.get(path).headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "script-src 'self';" in policy
        assert "unsafe" not in policy


def test_no_template_has_an_inline_script_style_or_handler(browser):
    sign_in(browser)
    for path in ("/login", "/alerts"):
        text = browser.get(path).text
        assert not re.search(r"<script(?![^>]*\bsrc=)", text)
        assert not re.search(r"\sstyle=", text)
        assert not re.search(r"\son[a-z]+=", text)


def test_an_unknown_parameter_is_refused_by_name(browser):
    sign_in(browser)
    answer = browser.get("/alerts?colour=red")
    assert answer.status_code == 422
    assert "colour" in answer.text


def test_the_console_is_off_where_the_settings_say_so(tmp_path):
    settings = load(home=tmp_path, api={"token": TOKEN, "console": False})
    with TestClient(create_app(settings)) as client:
        assert client.get("/login").status_code == 404
        assert client.get("/healthz").status_code == 200


def test_pages_are_no_part_of_the_apis_description(browser):
    headers = {"Authorization": f"Bearer {TOKEN}"}
    paths = browser.get("/api/v1/openapi.json", headers=headers).json()["paths"]
    assert all(
        path.startswith("/api/") or path in ("/metrics", "/healthz", "/readyz") for path in paths
    )


def test_scripts_styles_and_fonts_of_a_first_page_weigh_at_most_150_kilobytes():
    loader = templates().loader
    assert loader is not None
    texts = [loader.get_source(templates(), name)[0] for name in ("base.html", "overview.html")]
    linked = {name for text in texts for name in re.findall(r"asset\('([^']+)'\)", text)}
    # What styles load by themselves.
    linked |= {name for name in assets() if name.endswith(".woff2")}
    assert {"console.js", "console.css", "vendor/uplot/uPlot.iife.min.js"} <= linked
    weights = {
        name: len(asset.compressed if asset.compressed is not None else asset.content)
        for name, asset in assets().items()
        if name in linked
    }
    page = len(gzip.compress(b"x" * 60_000)) + 14_000
    assert sum(weights.values()) + page <= 150_000, weights


NOW = datetime(2026, 11, 24, 12, 30, tzinfo=UTC)


@pytest.mark.parametrize(
    ("word", "instant"),
    [
        ("-24h", datetime(2026, 11, 23, 12, 30, tzinfo=UTC)),
        ("-90m", datetime(2026, 11, 24, 11, 0, tzinfo=UTC)),
        ("now", NOW),
        ("today", datetime(2026, 11, 24, tzinfo=UTC)),
        ("yesterday", datetime(2026, 11, 23, tzinfo=UTC)),
        ("2026-11-20", datetime(2026, 11, 20, tzinfo=UTC)),
        ("2026-11-20T14:05:07+02:00", datetime(2026, 11, 20, 12, 5, 7, tzinfo=UTC)),
        ("yesterday Europe/Berlin", datetime(2026, 11, 22, 23, tzinfo=UTC)),
        ("2026-11-20 14:05", datetime(2026, 11, 20, 14, 5, tzinfo=UTC)),
        ("", None),
    ],
)
def test_times_are_taken_as_people_type_them(word, instant):
    assert earliest("since", word, NOW) == instant


def test_a_word_that_is_no_time_is_refused_with_what_to_write():
    with pytest.raises(Usage, match=r"since soon: write an instant .* -24h"):
        earliest("since", "soon", NOW)
