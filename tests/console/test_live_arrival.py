"""What comes while somebody works on a list or an alert: the place is kept, and it is said."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from infra.delta.catalog import table
from tests.alerts.lifecycle.test_alert_fold import finding, leased
from tests.api.plain_desk import PlainDesk
from tests.console.conftest import Watched, serve
from tests.console.test_alert_open import READ, open_first
from tests.headgate.as_code.delta_by_hand import append_rows

pytestmark = pytest.mark.full

TOKEN = "t" * 32
TOP = "(row) => Math.round(row.getBoundingClientRect().top)"


@pytest.fixture
def busy_desk(tmp_path) -> PlainDesk:
    desk = PlainDesk(tmp_path, devices=30)
    for name in READ:
        append_rows(desk.settings.lake_root, table(name), [])
    return desk


@pytest.fixture
def at_desk(browse, busy_desk: PlainDesk) -> Iterator[Callable[[], Watched]]:
    """A signed-in browser whose list hears of alerts by the stream."""
    serving = serve(busy_desk.app)
    where = next(serving)
    begun = []

    def start() -> Watched:
        begun.append(browse(signed_in=False, where=where).sign_in(TOKEN))
        return begun[-1]

    yield start
    for watched in begun:
        watched.page.context.close()
    next(serving, None)


@pytest.fixture(scope="module")
def site() -> str:
    """Each test has a site of its own."""
    return "http://none.invalid"


def listen(watched: Watched, path: str = "/alerts"):
    """Open a page, and wait until the stream listens."""
    with watched.page.expect_request("**/alerts/live"):
        page = watched.go(path, rest=False)
    page.wait_for_timeout(300)
    return page


def come(desk: PlainDesk, page, number: int) -> str:
    """One more alert, and the list has it."""
    (alert,) = desk.batch(desk.seen(number, number))
    page.wait_for_selector(f"[data-row='{alert}']", state="attached")
    page.wait_for_timeout(200)
    return alert


def test_the_row_one_is_at_stays_where_it_is_while_alerts_come(at_desk, busy_desk):
    watched = at_desk()
    page = listen(watched)
    for _ in range(20):
        page.keyboard.press("j")
    here = page.locator("[data-row].here")
    alert, top = here.get_attribute("data-row"), here.evaluate(TOP)
    came = [come(busy_desk, page, number) for number in (40, 41)]
    assert here.get_attribute("data-row") == alert
    assert here.evaluate(TOP) == top
    assert page.evaluate("document.activeElement.dataset.row") == alert
    assert [page.locator("[data-row]").nth(n).get_attribute("data-row") for n in (1, 0)] == came
    page.keyboard.press("j")
    following = page.locator("[data-row]").nth(22).get_attribute("data-row")
    assert here.get_attribute("data-row") == following, "two came before the twentieth"
    assert page.inner_text("[data-to-fresh]") == "2 new alerts above"
    page.click("[data-to-fresh]")
    page.wait_for_selector("[data-to-fresh]", state="hidden")
    assert page.evaluate("scrollY") == 0
    assert watched.errors == []


def test_a_row_under_the_pointer_does_not_slip_away(at_desk, busy_desk):
    watched = at_desk()
    page = listen(watched)
    row = page.locator("[data-row]").nth(2)
    alert = row.get_attribute("data-row")
    row.hover()
    top = row.evaluate(TOP)
    come(busy_desk, page, 42)
    assert page.locator(f"[data-row='{alert}']").evaluate(TOP) == top
    page.mouse.down()
    page.mouse.up()
    page.wait_for_selector(f"#beside[data-alert='{alert}'] h1")


def test_the_facets_count_what_came(at_desk, busy_desk):
    watched = at_desk()
    page = listen(watched)
    new = page.locator("#facet-values a[href*='lifecycle=triaged'] .n").first
    page.click("#facets .views summary")
    page.fill("#facets .views details input[name=name]", "mine")
    assert new.inner_text() == "30"
    come(busy_desk, page, 43)
    assert new.inner_text() == "31"
    assert page.locator("#facets input[name=name]").input_value() == "mine"


def test_where_the_row_one_is_at_leaves_the_list_one_goes_on_with_the_next(at_desk, busy_desk):
    watched = at_desk()
    page = listen(watched, "/alerts?q=02:00:00:00:00:0")
    for _ in range(5):
        page.keyboard.press("j")
    before = page.locator("[data-row]")
    fifth, sixth = (before.nth(n).get_attribute("data-row") for n in (4, 5))
    assert page.locator(".here").get_attribute("data-row") == fifth
    # A late DHCP line: it is about a device that the list does not ask for.
    real = leased("02:00:00:00:00:99")
    assert busy_desk.batch(finding(5, real, uid="5-5", rev=2)) == [fifth]
    page.wait_for_selector(f"[data-row='{fifth}']", state="detached")
    page.wait_for_selector(f".here[data-row='{sixth}']")
    assert page.evaluate("document.activeElement.dataset.row") == sixth


def test_a_list_that_hears_nothing_does_not_say_that_it_is_live(at_desk, busy_desk):
    watched = at_desk()
    page = listen(watched)
    assert page.inner_text("#list .live") == "live"
    page.context.set_offline(True)
    page.evaluate("window.htmx.trigger('#list', 'headgate:renew')")
    page.wait_for_selector("#list .live.off >> text=not live: no answer since")
    page.context.set_offline(False)
    page.evaluate("window.htmx.trigger('#list', 'headgate:renew')")
    page.wait_for_selector("#list .live:not(.off)")
    assert page.inner_text("#list .live") == "live"


def test_what_is_open_of_an_alert_stays_open_when_a_revision_comes(at_desk, busy_desk):
    watched = at_desk()
    page = watched.page
    open_first(watched, busy_desk)
    fold = page.locator("#beside details", has_text="The alert as JSON")
    fold.locator("summary").click()
    page.eval_on_selector("#beside", "(beside) => { beside.scrollTop = 300; }")
    busy_desk.batch(finding(0, leased("02:00:00:00:00:77"), uid="0-0", rev=2))
    page.wait_for_selector("#beside .notice >> text=Corrected while you looked")
    assert fold.get_attribute("open") is not None
    assert page.eval_on_selector("#beside", "(beside) => beside.scrollTop") > 0
    assert watched.errors == []


def test_a_note_that_is_being_written_outlives_an_act_on_the_alert(at_desk, busy_desk):
    watched = at_desk()
    page = watched.page
    open_first(watched, busy_desk)
    page.fill("#beside input[name=text]", "asked its owner")
    page.click("#beside [data-act=take]")
    page.wait_for_selector("#notices .notice >> text=1 alert taken")
    page.wait_for_selector("#beside >> text=Asked for, and shown with the next batch")
    assert page.input_value("#beside input[name=text]") == "asked its owner"
    page.click("#beside .note-form button")
    page.wait_for_selector("#notices .notice >> text=1 alert noted")
    assert page.input_value("#beside input[name=text]") == ""
