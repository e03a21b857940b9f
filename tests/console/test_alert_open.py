"""An alert that is open: it is corrected before one's eyes, closes in place, and takes a note."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from infra.delta.catalog import table
from tests.alerts.lifecycle.test_alert_fold import finding, leased
from tests.api.plain_desk import PlainDesk
from tests.console.conftest import Watched, serve
from tests.headgate.as_code.delta_by_hand import append_rows

pytestmark = pytest.mark.full

FORMER, REAL = "02:00:00:00:00:00", "02:00:00:00:00:09"
TOKEN = "t" * 32


READ = ("gold.finding", "gold.attribution", "silver.dhcp_segment", "silver.event",
        "bronze.record", "ops.ledger")  # fmt: skip
"""What the page of an alert looks into beside the alert itself."""


@pytest.fixture
def plain_desk(tmp_path) -> PlainDesk:
    desk = PlainDesk(tmp_path)
    for name in READ:
        append_rows(desk.settings.lake_root, table(name), [])
    return desk


@pytest.fixture
def open_desk(browse, plain_desk: PlainDesk) -> Iterator[Callable[[], Watched]]:
    """A signed-in browser at a desk without Spark."""
    serving = serve(plain_desk.app)
    where = next(serving)
    begun = []

    def start() -> Watched:
        begun.append(browse(signed_in=False, where=where).sign_in(TOKEN))
        return begun[-1]

    yield start
    # Before the site: an open stream would hold it up.
    for watched in begun:
        watched.page.context.close()
    next(serving, None)


@pytest.fixture(scope="module")
def site() -> str:
    """Each test has a site of its own."""
    return "http://none.invalid"


def correct(desk: PlainDesk) -> str:
    """The late DHCP line: the first alert was about another device."""
    real = leased(REAL, hostname="laptop-b")
    return desk.batch(finding(0, real, uid="0-0", rev=2))[0]


def open_first(watched: Watched, desk: PlainDesk) -> str:
    """Open the first device's alert beside the list, and wait until the stream listens."""
    page = watched.go("/alerts?level=high", rest=False)
    row = page.locator("[data-row]", has_text=FORMER)
    alert = str(row.get_attribute("data-row"))
    with page.expect_request("**/alerts/live"):
        row.locator("a[data-open]").click()
    page.wait_for_selector("#beside[data-alert] h1")
    page.wait_for_timeout(300)
    return alert


def test_an_alert_that_is_open_is_corrected_before_ones_eyes(open_desk, plain_desk):
    watched = open_desk()
    page = watched.page
    alert = open_first(watched, plain_desk)
    assert correct(plain_desk) == alert
    page.wait_for_selector("#beside .notice >> text=Corrected while you looked")
    heading = page.inner_text("#beside .alert-head")
    assert FORMER in heading
    assert "laptop-b" in heading
    assert page.get_attribute("#beside", "data-revision") == "2"
    assert watched.errors == []


def test_a_note_that_is_being_written_is_not_lost_to_a_revision(open_desk, plain_desk):
    watched = open_desk()
    page = watched.page
    open_first(watched, plain_desk)
    page.fill("#beside input[name=text]", "asked its owner")
    correct(plain_desk)
    page.wait_for_selector("#notices .notice >> text=it names laptop-b")
    assert page.input_value("#beside input[name=text]") == "asked its owner"


def test_a_close_that_is_being_written_outlives_the_session(open_desk, plain_desk):
    watched = open_desk()
    page = watched.page
    open_first(watched, plain_desk)
    page.keyboard.press("e")
    page.wait_for_selector("dialog[open]")
    page.check("dialog input[value=benign]")
    page.fill("dialog textarea[name=note]", "the nightly scan of the lab")
    page.context.clear_cookies(name="headgate_session")
    page.click("dialog button.primary")
    page.wait_for_url("**/login?ended=1**")
    page.fill("#key", TOKEN)
    page.press("#key", "Enter")
    page.wait_for_selector("dialog .notice >> text=What you typed is here again")
    assert page.input_value("dialog textarea[name=note]") == "the nightly scan of the lab"
    assert page.is_checked("dialog input[value=benign]")
    page.click("dialog button.primary")
    page.wait_for_selector(".notice >> text=1 alert closed")
    assert page.evaluate("sessionStorage.getItem('headgate.typed')") is None
    assert watched.errors == []


def test_closing_the_alert_beside_keeps_the_filter_and_the_row(open_desk, plain_desk):
    watched = open_desk()
    page = watched.page
    alert = open_first(watched, plain_desk)
    page.keyboard.press("Escape")
    page.wait_for_function("!document.querySelector('#beside').children.length")
    assert page.url == f"{watched.site}/alerts?level=high"
    assert page.evaluate("document.activeElement.dataset.row") == alert
    page.go_back()
    page.wait_for_selector("#beside[data-alert] h1")
    assert watched.errors == []
