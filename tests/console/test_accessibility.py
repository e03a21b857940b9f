"""Each page in both themes against axe-core: nothing serious."""

from __future__ import annotations

from pathlib import Path

import pytest

from api.app import create_app
from infra.config.settings import load
from tests.api.desk import TOKEN
from tests.console.conftest import serve
from tests.console.places import places

AXE = Path(__file__).parent / "vendor" / "axe.min.js"
RUN = """
async () => (await axe.run(document, {resultTypes: ["violations"]})).violations
  .filter((v) => ["serious", "critical"].includes(v.impact))
  .map((v) => `${v.id}: ` + v.nodes.slice(0, 3)
    .map((n) => `${n.html.slice(0, 160)} ${n.any[0]?.message ?? ""}`).join(" | "))
"""


@pytest.mark.full
@pytest.mark.parametrize("theme", ["dark", "light"])
def test_no_page_has_a_serious_finding(browse, desk, theme):
    watched = browse(theme)
    wrong = {}
    for name, path in places(desk).items():
        page = watched.go(path)
        # A page of an error has no findings either, and would show nothing of what is meant.
        assert page.locator(".big-number").count() == 0, page.inner_text("main")
        page.wait_for_timeout(100)
        page.evaluate(AXE.read_text("utf-8"))
        if violations := page.evaluate(RUN):
            wrong[name] = violations
    assert wrong == {}
    assert watched.errors == []


@pytest.mark.full
@pytest.mark.parametrize("theme", ["dark", "light"])
def test_the_login_and_the_question_before_a_close_have_none(browse, theme):
    watched = browse(theme, signed_in=False)
    page = watched.go("/login")
    page.evaluate(AXE.read_text("utf-8"))
    assert page.evaluate(RUN) == []
    watched.sign_in()
    watched.go("/alerts")
    page.keyboard.press("j")
    page.keyboard.press("e")
    page.wait_for_selector("dialog[open]")
    page.evaluate(AXE.read_text("utf-8"))
    assert page.evaluate(RUN) == []


@pytest.mark.full
@pytest.mark.parametrize("theme", ["dark", "light"])
def test_the_login_of_an_identity_provider_has_none(browse, theme, tmp_path):
    oidc = {"issuer": "https://id.example.com", "client_id": "headgate", "label": "Example ID"}
    api = {"token": TOKEN, "oidc": oidc | {"roles": {"security": "analyst"}}}
    serving = serve(create_app(load(home=tmp_path, api=api | {"console_url": "https://d.example"})))
    page = browse(theme, signed_in=False, where=next(serving)).go("/login")
    assert page.inner_text("a.primary") == "Sign in with Example ID"
    page.evaluate(AXE.read_text("utf-8"))
    assert page.evaluate(RUN) == []
    next(serving, None)
