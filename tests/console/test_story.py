"""From the first page to the verdict: by mouse, by keyboard alone, and two at one time."""

from __future__ import annotations

import pytest

from tests.console.places import alert_id
from tests.console.story import SECRET

SUCCEEDED = "SSH login succeeded after guessing"


def test_a_correction_is_understood_and_judged_by_mouse(browse, desk):
    watched = browse()
    page = watched.page
    page.click(f"text={SUCCEEDED}")
    page.wait_for_selector("#beside[data-alert] h1")
    assert SECRET in page.inner_text("#beside .alert-head")
    lane = page.inner_text("#beside .revisions")
    assert "laptop-a" in lane
    assert "a DHCP line that came later" in lane
    assert page.locator("#beside svg.lanes .span").count() >= 1
    page.click("#beside >> text=Close …")
    page.click("dialog >> text=True positive")
    page.fill("dialog textarea[name=note]", "guessed from the lab, ticket 4711")
    page.click("dialog button.primary")
    page.wait_for_selector(".notice >> text=1 alert closed")
    desk.batch()
    watched.go("/alerts")
    assert page.locator(f"#list >> text={SUCCEEDED}").count() == 0
    watched.go("/alerts?lifecycle=closed")
    assert "true positive" in page.inner_text("#list")
    assert watched.errors == []


def tab_to(page, selector):
    """Press Tab until the focus is there."""
    for _ in range(40):
        if page.evaluate(f"document.activeElement.matches('{selector}')"):
            return
        page.keyboard.press("Tab")
    raise AssertionError(f"no Tab leads to {selector}")


def test_an_alert_is_opened_taken_and_closed_by_keyboard_alone(browse, desk):
    watched = browse()
    page = watched.page
    page.keyboard.press("g")
    page.keyboard.press("a")
    page.wait_for_url("**/alerts")
    page.keyboard.press("/")
    page.keyboard.type("tunnel")
    page.keyboard.press("Enter")
    page.wait_for_url("**q=tunnel**")
    page.keyboard.press("Escape")
    page.keyboard.press("j")
    page.keyboard.press("Enter")
    page.wait_for_selector("#beside[data-alert] h1")
    page.keyboard.press("a")
    page.wait_for_selector(".notice >> text=1 alert taken")
    page.keyboard.press("e")
    page.wait_for_selector("dialog[open]")
    tab_to(page, "input[name=verdict]")
    while page.evaluate("document.activeElement.value") != "benign":
        page.keyboard.press("ArrowDown")
    tab_to(page, "textarea[name=note]")
    page.keyboard.type("a test of the resolver")
    tab_to(page, "dialog button.primary")
    page.keyboard.press("Enter")
    page.wait_for_selector(".notice >> text=1 alert closed")
    desk.batch()
    body = desk.body(alert_id(desk, "DNS tunnel"))
    assert (body["lifecycle"], body["verdict"]) == ("closed", "benign")
    assert watched.errors == []


def test_the_list_moves_by_j_and_k_and_help_opens_by_a_question_mark(browse):
    page = browse().go("/alerts?lifecycle=new&lifecycle=triaged&lifecycle=closed")
    rows = page.locator("[data-row]").count()
    assert rows >= 3
    for key, place in (("j", 0), ("j", 1), ("k", 0)):
        page.keyboard.press(key)
        here = page.evaluate(
            "[...document.querySelectorAll('[data-row]')].indexOf(document.querySelector('.here'))"
        )
        assert here == place
    page.keyboard.press("?")
    assert page.locator("#help[open]").count() == 1


def test_who_comes_second_is_told_kindly_and_nothing_is_overwritten(browse, desk):
    alert = alert_id(desk, "SSH password guessing")
    first, second = browse(), browse()
    for watched in (first, second):
        watched.go(f"/alerts/{alert}")
        watched.page.keyboard.press("e")
        watched.page.wait_for_selector("dialog[open]")
    for watched, verdict in ((first, "benign"), (second, "true_positive")):
        watched.page.check(f"dialog input[value={verdict}]")
        watched.page.click("dialog button.primary")
        if watched is first:
            watched.page.wait_for_selector(".notice >> text=1 alert closed")
    second.page.wait_for_selector("dialog .notice.bad")
    told = second.page.inner_text("dialog .notice.bad")
    assert "Not done" in told
    assert "closed it as benign" in told
    desk.batch()
    assert desk.body(alert)["verdict"] == "benign"


def test_many_are_counted_before_they_are_closed_and_the_act_can_be_undone(browse, desk):
    watched = browse()
    page = watched.go("/alerts?lifecycle=new&lifecycle=triaged")
    page.check("[data-pick-all]")
    number = int(page.inner_text("[data-bulk-count]"))
    page.click("[data-bulk] >> text=Close")
    page.wait_for_selector("dialog[open]")
    assert f"Close {number} alert" in page.inner_text("#close-title")
    page.click("dialog button.primary")
    page.wait_for_selector(".notice >> text=Undo")
    page.click(".notice >> text=Undo")
    page.wait_for_selector(".notice >> text=as before")


def test_the_list_as_csv_has_just_what_is_filtered(browse):
    watched = browse()
    answer = watched.page.request.get(f"{watched.site}/alerts.csv?q=scan&lifecycle=new")
    lines = answer.text().strip().splitlines()
    assert len(lines) == 2
    assert "Web scan" in lines[1]


def test_as_known_then_shows_the_holder_of_before_the_late_line(browse):
    watched = browse()
    now = watched.go("/entity/ip/10.0.0.5").text_content(".lanes")
    then = watched.go("/entity/ip/10.0.0.5?known_by=2025-03-01T12:30:00Z").text_content(".lanes")
    assert "laptop-b" in now
    assert "laptop-b" not in then
    assert "laptop-a" in then


def test_an_event_is_opened_in_its_row_with_its_bytes(browse):
    page = browse().go("/search?since=2025-03-01T11:00:00Z&until=2025-03-01T14:00:00Z&q=Accepted")
    page.click("table.events tbody a[data-open] >> nth=0")
    page.wait_for_selector(".opened-event")
    assert "<38>gate sshd[7]: Accepted password for root" in page.inner_text(".opened-event")


def test_a_session_that_ended_leads_to_the_login(browse):
    watched = browse()
    page = watched.go("/alerts")
    page.context.clear_cookies()
    page.click("[data-row] a[data-open] >> nth=0")
    page.wait_for_url("**/login**")


@pytest.mark.parametrize("switch", ["theme", "zone"])
def test_theme_and_zone_stay_as_chosen(browse, switch):
    watched = browse()
    page = watched.go("/alerts")
    before = page.evaluate(f"document.documentElement.dataset.{switch}")
    page.click(f"[data-switch={switch}]")
    watched.go("/rules")
    assert page.evaluate(f"document.documentElement.dataset.{switch}") != before
