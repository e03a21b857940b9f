"""A new rule from events that somebody chose: in the search by keyboard, or on an event's page."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from urllib.parse import quote

import pytest

from alerts.rulebook.raw_lines import rows_of_line
from infra.delta.catalog import table
from tests.api.plain_desk import PlainDesk
from tests.console.conftest import Watched, serve
from tests.headgate.as_code.delta_by_hand import append_rows

pytestmark = pytest.mark.full

TOKEN = "t" * 32
NOW = datetime.now(UTC).replace(microsecond=0)
LINE = (
    "<38>Jan  1 00:00:01 gate sshd[812]: Failed password for root from 203.0.113.{} port 50122 ssh2"
)
TEXT = "textarea[name=text]"


@pytest.fixture(scope="module")
def desk(tmp_path_factory) -> PlainDesk:
    """Three failed logins, of which the record of the last is gone."""
    running = PlainDesk(tmp_path_factory.mktemp("events"), devices=0)
    lake = running.settings.lake_root
    for number in range(3):
        (event,) = rows_of_line("sshd", LINE.format(number).encode())
        time = NOW - timedelta(minutes=number)
        append_rows(lake, table("silver.event"), [event | {
            "event_uid": f"login-{number}", "record_ids": [f"r{number}"], "time": time,
            "received_at": time, "duplicate_of": None,
        }])  # fmt: skip
        if number < 2:
            append_rows(lake, table("bronze.record"), [{
                "record_id": f"r{number}", "source": "sshd", "received_at": time,
                "raw": LINE.format(number).encode(),
            }])  # fmt: skip
    for name in ("gold.finding", "gold.attribution", "silver.dhcp_segment"):
        append_rows(lake, table(name), [])
    return running


@pytest.fixture(scope="module")
def site(desk: PlainDesk) -> Iterator[str]:
    yield from serve(desk.app)


def test_events_are_chosen_by_keyboard_and_become_a_rule_whose_tests_pass(browse):
    watched: Watched = browse(signed_in=False).sign_in(TOKEN)
    page = watched.go("/search?since=-1h", rest=False)
    page.keyboard.press("j")
    page.keyboard.press("x")
    page.keyboard.press("j")
    page.keyboard.press("x")
    assert page.inner_text("[data-bulk-count]") == "2"
    page.keyboard.press("n")
    page.wait_for_url("**/rule-editor?event=**")
    text = page.input_value(TEXT)
    assert text.count("Failed password for root from 203.0.113.") >= 2
    page.wait_for_selector("#check >> text=It loads")
    page.wait_for_selector("#check >> text=2 passed")
    assert watched.errors == []
    assert watched.violations() == []


def test_an_event_leads_to_a_rule_and_says_what_stands_against_it(browse):
    watched: Watched = browse(signed_in=False).sign_in(TOKEN)
    page = watched.go("/events/login-0", rest=False)
    page.click("text=New rule from it")
    page.wait_for_selector("#check >> text=1 passed")
    page = watched.go(
        "/rule-editor?event=login-2&since=" + quote(str(NOW - timedelta(hours=1))), False
    )
    assert "the raw record of event login-2 is not kept any more" in page.inner_text("main")
    page = watched.go("/rule-editor?" + "&".join(f"event=e{n}" for n in range(21)), rest=False)
    assert "21 events; a rule is made from at most 20" in page.inner_text("main")


def test_who_may_write_no_rule_is_offered_none(desk):
    viewer = desk.browser("vera", "viewer")
    assert "data-pick" not in viewer.get("/search?since=-1h").text
    assert "New rule from it" not in viewer.get("/events/login-0").text
    assert viewer.get("/rule-editor?event=login-0").status_code == 403
