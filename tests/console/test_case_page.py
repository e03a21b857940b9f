"""Two people at one case: the second is told who was first, and nothing that was typed is lost."""

from __future__ import annotations

import html
import re
from collections.abc import Callable, Iterator

import pytest
from fastapi.testclient import TestClient

from alerts.tables import CASE_ACT
from api.console.pages import cases
from api.credentials import Credentials
from tests.api.plain_desk import PlainDesk
from tests.console.conftest import Watched, serve
from tests.headgate.as_code.delta_by_hand import append_rows

TYPED = "the laptop was wiped; ticket 411"


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> PlainDesk:
    made = PlainDesk(tmp_path_factory.mktemp("case-page"), devices=1)
    append_rows(made.settings.lake_root, CASE_ACT, [])
    return made


@pytest.fixture(scope="module")
def site(desk: PlainDesk) -> Iterator[str]:
    yield from serve(desk.app)


@pytest.fixture(scope="module")
def ann(desk: PlainDesk) -> TestClient:
    return desk.browser("ann", "analyst")


@pytest.fixture(scope="module")
def bob(desk: PlainDesk) -> TestClient:
    return desk.browser("bob", "analyst")


def opened(browser: TestClient, title: str) -> str:
    """The address of a new case."""
    csrf = re.search(r'data-csrf="([^"]+)"', browser.get("/cases").text)
    assert csrf is not None
    answer = browser.post("/cases", data={"csrf": csrf[1], "title": title})
    assert answer.status_code == 303, answer.text
    return answer.headers["location"]


def hidden(browser: TestClient, case: str) -> dict[str, str]:
    """What the forms of the page hold unseen."""
    page = browser.get(case).text
    return {
        name: html.unescape(re.search(rf'name="{name}" value="([^"]+)"', page)[1])
        for name in ("csrf", "etag")
    }


@pytest.mark.parametrize(
    "change",
    [
        {"title": "another"},
        {"assignee": "me"},
        {"status": "closed", "outcome": "false_positive", "note": TYPED},
    ],
    ids=["title", "assignee", "close"],
)
def test_who_changes_a_case_that_another_changed_overwrites_nothing_and_is_told(ann, bob, change):
    case = opened(ann, "laptop-b")
    looked = hidden(bob, case)
    first = hidden(ann, case) | {"title": "laptop-b and laptop-c"}
    assert ann.post(f"{case}/change", data=first).status_code == 303
    late = bob.post(f"{case}/change", data=looked | change)
    assert late.status_code == 412
    assert "no longer what you looked at: ann changed it" in late.text
    assert "what still holds, send again" in late.text
    (why,) = re.findall(r"<p data-failed-why>(.+?)</p>", late.text)
    assert "It is" not in why, "nobody sends an ETag by hand"
    now = bob.get(case).text
    assert "laptop-b and laptop-c" in now
    assert TYPED not in now
    # As the page is now, it goes.
    assert bob.post(f"{case}/change", data=hidden(bob, case) | change).status_code == 303


def test_a_case_is_merged_only_as_it_was_looked_at(ann, bob):
    case, target = opened(ann, "to be merged"), opened(ann, "that takes it in")
    into = {"into": target.removeprefix("/cases/")}
    looked = hidden(bob, case)
    first = hidden(ann, case) | {"note": "not yet"}
    assert ann.post(f"{case}/change", data=first).status_code == 303
    assert bob.post(f"{case}/merge", data=looked | into).status_code == 412
    assert "not yet" not in bob.get(target).text
    assert bob.post(f"{case}/merge", data=hidden(bob, case) | into).headers["location"] == target
    noted = ann.post(f"{case}/change", data={"csrf": first["csrf"], "note": TYPED})
    assert noted.status_code == 409
    assert f"was merged into {into['into']}; work on that one" in noted.text


def test_two_notes_stand_side_by_side_and_an_empty_one_is_refused(ann, bob):
    case = opened(ann, "noted by two")
    csrf = {browser: {"csrf": hidden(browser, case)["csrf"]} for browser in (ann, bob)}
    for browser, note in ((ann, "written by ann"), (bob, "written by bob")):
        sent = browser.post(f"{case}/change", data=csrf[browser] | {"note": note})
        assert sent.status_code == 303
    page = ann.get(case).text
    assert page.index("written by ann") < page.index("written by bob")
    empty = ann.post(f"{case}/change", data=csrf[ann] | {"note": "  "})
    assert (empty.status_code, "note: is empty" in empty.text) == (422, True)


@pytest.mark.parametrize("act", [{"title": "x"}, {"status": "closed"}, {"assignee": ""}])
def test_a_form_that_says_no_state_changes_nothing(ann, act):
    case = opened(ann, "whole")
    csrf = {"csrf": hidden(ann, case)["csrf"]}
    refused = ann.post(f"{case}/change", data=csrf | act)
    assert refused.status_code == 422
    assert "which state of the case" in refused.text
    merged = ann.post(f"{case}/merge", data=csrf | {"into": case.removeprefix("/cases/")})
    assert merged.status_code == 422


def test_a_case_that_no_form_offers_is_named_by_its_id(ann, monkeypatch, desk: PlainDesk):
    first, second, third = (opened(ann, f"{name} of three") for name in ("first", "second", "last"))
    known = desk.client("rest", "read").get("/api/v1/alerts").json()["items"]
    alert_id = known[0]["alert_id"]
    asked = {"params": {"id": alert_id}}
    assert "more" not in re.sub(r"<[^>]+>", "", ann.get("/cases/add", **asked).text)
    monkeypatch.setattr(cases, "MOST_OFFERED", 1)
    open_now = ann.get("/cases?tab=open").text.count('data-row="')
    form = ann.get("/cases/add", **asked).text
    assert f"{open_now - 1} more " in form
    assert first.removeprefix("/cases/") not in form
    assert f"{open_now - 2} more " in ann.get(third).text
    csrf = {"csrf": hidden(ann, third)["csrf"]}
    named = {"case": third.removeprefix("/cases/"), "other": first.removeprefix("/cases/")}
    linked = ann.post("/cases", data=csrf | named | {"id": alert_id})
    assert (linked.status_code, linked.headers["location"]) == (303, first)
    into = {"into": third.removeprefix("/cases/"), "other": first.removeprefix("/cases/")}
    merged = ann.post(f"{second}/merge", data=hidden(ann, second) | into)
    assert (merged.status_code, merged.headers["location"]) == (303, first)
    missing = ann.post("/cases", data=csrf | {"other": "case-nothing", "id": alert_id})
    assert missing.status_code == 404


def test_the_list_of_cases_has_pages_and_each_case_is_on_one(ann, monkeypatch):
    for number in range(3):
        opened(ann, f"listed {number}")
    whole = re.findall(r'data-row="([^"]+)"', ann.get("/cases").text)
    assert len(whole) >= 3
    monkeypatch.setattr(cases, "PAGE_CASES", 2)
    seen, address = [], "/cases"
    while address:
        text = ann.get(address).text
        seen += (listed := re.findall(r'data-row="([^"]+)"', text))
        assert len(listed) <= 2
        older = re.search(r'data-next href="([^"]+)"', text)
        address = html.unescape(older[1]) if older else ""
    assert sorted(seen) == sorted(whole)


@pytest.mark.full
@pytest.mark.parametrize("meanwhile", ["closed", "merged"])
def test_a_note_whose_form_is_gone_meanwhile_is_shown_to_be_taken_along(
    desk: PlainDesk, ann, browse: Callable[..., Watched], meanwhile
):
    case, target = opened(ann, "gone meanwhile"), opened(ann, "target")
    _, token = Credentials(desk.settings).add_key(f"carl-{meanwhile}", "analyst")
    watched = browse(signed_in=False).sign_in(token)
    page = watched.go(case)
    closing = "form:has(select[name=outcome])"
    page.fill(f"{closing} textarea", TYPED)
    form = hidden(ann, case)
    if meanwhile == "closed":
        done = ann.post(f"{case}/change", data=form | {"status": "closed"})
    else:
        done = ann.post(f"{case}/merge", data=form | {"into": target.removeprefix("/cases/")})
    assert done.status_code == 303
    page.click(f"{closing} button")
    page.wait_for_selector(".notice.bad >> text=ann changed it")
    assert page.url.endswith(case)
    assert page.input_value(".notice.bad textarea[readonly]") == TYPED
    assert watched.errors == []
    assert watched.violations() == []


@pytest.mark.full
def test_what_was_typed_into_another_form_of_the_page_outlives_a_click(
    desk: PlainDesk, ann, browse: Callable[..., Watched]
):
    case = opened(ann, "two forms")
    _, token = Credentials(desk.settings).add_key("dora", "analyst")
    watched = browse(signed_in=False).sign_in(token)
    page = watched.go(case)
    note = "form:not(:has(select)):has(textarea[name=note])"
    page.fill(f"{note} textarea", TYPED)
    page.fill("input[name=title]", "renamed")
    page.click("form:has(input[name=title]) button")
    page.wait_for_selector("h1 >> text=renamed")
    page.wait_for_selector(".notice >> text=not sent yet")
    assert page.input_value(f"{note} textarea") == TYPED
    assert page.input_value("input[name=title]") == "renamed"
    page.click(f"{note} button")
    page.wait_for_selector(f".prose >> text={TYPED}")
    assert page.input_value(f"{note} textarea") == ""
    assert page.locator(".notice").count() == 0
    assert watched.errors == []
