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

pytestmark = pytest.mark.full

TEXT = "textarea[name=text]"
INK = "(area) => getComputedStyle(area).color"
CLEAR = "rgba(0, 0, 0, 0)"


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


@pytest.mark.parametrize("theme", ["dark", "light"])
def test_the_editor_has_no_serious_finding(browse, theme):
    watched = browse(theme)
    page = watched.go("/rule-editor")
    page.fill(TEXT, GOOD.replace("service: sshd}", "service: sshdd}"))
    page.wait_for_selector(".gutter .bad")
    page.evaluate(AXE.read_text("utf-8"))
    assert page.evaluate(RUN) == []


def parts(page, kind):
    """The texts that have a colour of that kind."""
    return page.eval_on_selector_all(f".tok-{kind}", "all => all.map((each) => each.textContent)")


def test_text_has_colours_that_follow_what_is_written_and_undone(browse):
    watched: Watched = browse()
    page = watched.go(f"/rule-editor?rule={ID}")
    before = page.input_value(TEXT)
    assert "detection" in parts(page, "key")
    page.focus(TEXT)
    page.keyboard.press("Control+Home")
    page.keyboard.type("# <img src=x onerror=alert(1)>\n")
    assert page.eval_on_selector(TEXT, INK) == CLEAR
    assert parts(page, "comment") == ["# <img src=x onerror=alert(1)>"]
    assert page.locator(".below").text_content() == page.input_value(TEXT)
    for _ in range(50):
        page.keyboard.press("Control+z")
    assert page.input_value(TEXT) == before
    assert page.locator(".below").text_content() == before
    page.fill(TEXT, GOOD + "# " + "long " * 12_000)
    assert parts(page, "key") == []
    assert page.eval_on_selector(TEXT, INK) != CLEAR
    assert watched.dialogs == watched.outside == watched.errors == watched.violations() == []


def test_colours_lie_under_their_letters(browse):
    watched: Watched = browse()
    page = watched.go("/search?sql=SELECT+count(*)+FROM+silver.events")
    assert parts(page, "keyword") == ["SELECT", "FROM"]
    box = "textarea[name=sql]"
    page.fill(box, "SELECT 'a', " + "class_uid, " * 300 + "\n1")
    page.eval_on_selector(box, "box => { box.scrollTop = box.scrollHeight; }")
    page.wait_for_timeout(100)
    sizes = "(box) => [box.clientWidth, box.scrollHeight, getComputedStyle(box).font]"
    assert page.eval_on_selector(".below", sizes) == page.eval_on_selector(box, sizes)
    moved = "(code) => new DOMMatrix(getComputedStyle(code).transform).f"
    scrolled = page.eval_on_selector(box, "(box) => box.scrollTop")
    assert scrolled > 0
    assert page.eval_on_selector(".below code", moved) == -scrolled
    page.evaluate(AXE.read_text("utf-8"))
    assert page.evaluate(RUN) == []
    assert watched.errors == watched.violations() == []
