"""From the first page to the verdict: by mouse, by keyboard alone, and two at one time."""

from __future__ import annotations

import pytest

from alerts.cases.evidence_check import check_bundle
from tests.api.desk import alert_of
from tests.console.places import alert_id
from tests.console.story import SECRET

SUCCEEDED = "SSH login succeeded after guessing"


@pytest.mark.full
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


@pytest.mark.full
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


@pytest.mark.full
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
    page.check("[data-pick] >> nth=0")
    page.click("[data-bulk] >> text=Take")
    page.wait_for_selector(".notice >> text=1 alert taken")
    page.wait_for_selector("[data-bulk]", state="hidden")
    page.check("[data-pick-all]")
    number = int(page.inner_text("[data-bulk-count]"))
    page.click("[data-bulk] >> text=Close")
    page.wait_for_selector("dialog[open]")
    assert f"Close {number} alert" in page.inner_text("#close-title")
    page.click("dialog button.primary")
    page.wait_for_selector(".notice >> text=/alerts? closed/")
    assert page.locator("#notices > .notice").count() == 2, "each act is told once"
    page.keyboard.press("z")
    page.wait_for_selector(".notice >> text=as before")


@pytest.mark.full
def test_the_list_as_csv_has_just_what_is_filtered(browse):
    watched = browse()
    answer = watched.page.request.get(f"{watched.site}/alerts.csv?q=scan&lifecycle=new")
    lines = answer.text().strip().splitlines()
    assert len(lines) == 2
    assert "Web scan" in lines[1]


@pytest.mark.full
def test_as_known_then_shows_the_holder_of_before_the_late_line(browse):
    watched = browse()
    now = watched.go("/entity/ip/10.0.0.5").text_content(".lanes")
    then = watched.go("/entity/ip/10.0.0.5?known_by=2025-03-01T12:30:00Z").text_content(".lanes")
    assert "laptop-b" in now
    assert "laptop-b" not in then
    assert "laptop-a" in then


@pytest.mark.full
def test_an_event_is_opened_in_its_row_with_its_bytes(browse):
    page = browse().go("/search?since=2025-03-01T11:00:00Z&until=2025-03-01T14:00:00Z&q=Accepted")
    page.click("table.events tbody a[data-open] >> nth=0")
    page.wait_for_selector(".opened-event")
    assert "<38>gate sshd[7]: Accepted password for root" in page.inner_text(".opened-event")


@pytest.mark.full
def test_a_session_that_ended_leads_to_the_login(browse):
    watched = browse()
    page = watched.go("/alerts")
    page.context.clear_cookies()
    page.click("[data-row] a[data-open] >> nth=0")
    page.wait_for_url("**/login**")


@pytest.mark.full
@pytest.mark.parametrize("switch", ["theme", "zone"])
def test_theme_and_zone_stay_as_chosen(browse, switch):
    watched = browse()
    page = watched.go("/alerts")
    before = page.evaluate(f"document.documentElement.dataset.{switch}")
    page.click(f"[data-switch={switch}]")
    watched.go("/rules")
    assert page.evaluate(f"document.documentElement.dataset.{switch}") != before


@pytest.mark.full
def test_a_new_alert_appears_by_itself_and_goes_into_a_case(browse, desk):
    watched = browse()
    page = watched.go("/alerts")
    # Longer than the list waits to renew itself without a stream.
    page.evaluate("document.body.dataset.renew = 600")
    page.wait_for_timeout(2000)
    desk.batch(alert_of("02:00:00:00:00:1c", 3000, rule_title="New on the desk"))
    page.wait_for_selector("#list >> text=New on the desk", timeout=8000)
    page.click("text=New on the desk")
    page.wait_for_selector("#beside[data-alert] h1")
    page.keyboard.press("c")
    page.fill("dialog input[name=title]", "A laptop that is new")
    page.click("dialog >> text=Open the case")
    page.wait_for_url("**/cases/case-*")
    assert "A laptop that is new" in page.inner_text("h1")
    assert page.locator("svg.lanes .mark").count() == 1
    page.click(".acts >> text=Evidence bundle")
    page.wait_for_selector("#evidence[data-state=done]")
    with page.expect_download() as sent:
        page.click("#evidence >> text=Download")
    assert check_bundle(sent.value.path()).problems == []
    assert watched.errors == []
    assert watched.violations() == []
