"""The rule editor in a browser: marks at lines, text that survives, and a preview."""

from __future__ import annotations

import sys

import pytest

from api.app import create_app
from infra.config.settings import load
from infra.process import subprocesses
from tests.api.desk import TOKEN
from tests.console.conftest import Watched, serve
from tests.console.test_accessibility import AXE, RUN
from tests.console.test_rule_editor import GOOD, ID, PREVIEW

TEXT = "textarea[name=text]"


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """A site with one rule of one's own; a lake is not needed to write rules."""
    home = tmp_path_factory.mktemp("editor")
    (home / "rules").mkdir()
    (home / "rules" / "odd_tool.yml").write_text(GOOD)
    alerts = {"bundled": False, "rules": [str(home / "rules")]}
    yield from serve(create_app(load(home=home, api={"token": TOKEN}, alerts=alerts)))


def test_a_rule_is_written_checked_lost_found_and_saved(browse, monkeypatch):
    monkeypatch.setattr(subprocesses, "_command_line", [sys.executable, "-c", PREVIEW])
    watched: Watched = browse()
    page = watched.go(f"/rules/{ID}")
    page.click("text=Edit")
    page.wait_for_selector("#check >> text=It loads")
    page.fill(TEXT, GOOD.replace("condition: selection", "condition: selektion"))
    page.wait_for_selector(".gutter .bad")
    assert page.inner_text(".gutter .bad") == "6"
    page.click("[data-jump]")
    assert "selektion" in page.evaluate("getSelection().toString()")
    # The page is left, and what was typed is there when somebody comes back.
    watched.go("/rules")
    watched.go(f"/rule-editor?rule={ID}")
    assert "selektion" not in page.input_value(TEXT)
    page.click("[data-kept-take]")
    assert "selektion" in page.input_value(TEXT)
    page.click("#editor button.primary")
    page.wait_for_selector(".notice.bad >> text=Not saved")
    assert "selektion" in page.input_value(TEXT)
    page.fill(TEXT, GOOD.replace("level: high", "level: low"))
    page.click("text=Difference")
    page.wait_for_selector(".diff .add >> text=level: low")
    page.click("text=Preview: what it finds")
    page.wait_for_selector("[data-state=done] canvas")
    page.focus(TEXT)
    page.keyboard.press("Control+s")
    page.wait_for_selector(".notice >> text=Saved.")
    assert page.evaluate("Object.keys(sessionStorage).filter((k) => /draft/.test(k))") == []
    assert watched.errors == []
    assert watched.violations() == []


@pytest.mark.full
@pytest.mark.parametrize("theme", ["dark", "light"])
def test_the_editor_has_no_serious_finding(browse, theme):
    watched = browse(theme)
    page = watched.go("/rule-editor")
    page.fill(TEXT, GOOD.replace("service: sshd}", "service: sshdd}"))
    page.wait_for_selector(".gutter .bad")
    page.evaluate(AXE.read_text("utf-8"))
    assert page.evaluate(RUN) == []
