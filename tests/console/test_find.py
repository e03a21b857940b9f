"""Whatever is typed is found: an address at once, a name by the events and leases that have it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from fastapi.testclient import TestClient

from enrich.tables import DHCP_SEGMENT
from ingest.tables import EVENT
from tests.api.plain_desk import PlainDesk
from tests.console.conftest import serve
from tests.headgate.as_code.delta_by_hand import append_rows

NOW = datetime.now(UTC)
TOKEN = "t" * 32
"""The key that such a desk is made with."""
WHO = [f"clerk-{number:02}" for number in range(25)]


def event(number: int, **fields: Any) -> dict[str, Any]:
    at = NOW - timedelta(minutes=number + 1)
    said = {"source": "sshd", "message": "a login"}
    return {"event_uid": f"e{number}", "time": at, "received_at": at} | said | fields


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> PlainDesk:
    desk = PlainDesk(tmp_path_factory.mktemp("find"), devices=1)
    desk.all_tables()
    lake = desk.settings.home / "lake"
    append_rows(
        lake,
        EVENT,
        [
            event(0, user_name="Ann.Lee", host_name="WS-3310.corp.example"),
            event(1, user_name="twin", host_name="twin"),
            event(2, query={"hostname": "Cdn.Bad.Example"}),
            *(event(3 + place, user_name=name) for place, name in enumerate(WHO)),
            event(60 * 24 * 9, user_name="long-ago"),
            event(60 * 24 * 6, user_name="svc"),
            *(event(100 + place, user_name=f"svc-{place}") for place in range(2_001)),
        ],
    )
    held = {"scope": "default", "ip": "10.0.0.7", "mac": "02:00:00:00:00:07", "kind": "lease"}
    spans = {"seg_start": NOW, "seg_end": NOW, "known_at": NOW, "rev": 1}
    append_rows(lake, DHCP_SEGMENT, [held | spans | {"hostname": "Printer-2"}])
    return desk


@pytest.fixture(scope="module")
def site(desk: PlainDesk) -> Iterator[str]:
    yield from serve(desk.app)


@pytest.fixture(scope="module")
def ann(desk: PlainDesk) -> TestClient:
    return desk.browser("ann", "analyst")


@pytest.mark.parametrize(
    ("typed", "page"),
    [
        (" 10.0.0.7 ", "/entity/ip/10.0.0.7"),
        ("2001:DB8::1", "/entity/ip/2001%3Adb8%3A%3A1"),
        ("02-00-00-00-00-07", "/entity/mac/02%3A00%3A00%3A00%3A00%3A07"),
        # As the tables write it, which is how its page asks for it.
        ("ann.lee", "/entity/user/Ann.Lee"),
        ("ws-3310.CORP.example", "/entity/host/WS-3310.corp.example"),
        ("printer-2", "/entity/host/Printer-2"),
        ("bad.example", "/entity/domain/bad.example"),
    ],
)
def test_what_is_one_thing_alone_leads_to_its_page(typed: str, page: str, ann: TestClient) -> None:
    answer = ann.get("/entity", params={"q": typed})
    assert (answer.status_code, answer.headers["location"]) == (303, page)
    assert ann.get(page).status_code == 200


def test_a_user_and_a_host_of_one_name_are_a_choice(ann: TestClient) -> None:
    text = ann.get("/entity?q=TWIN").text
    assert 'href="/entity/user/twin"' in text
    assert 'href="/entity/host/twin"' in text


def test_the_beginning_of_a_name_lists_who_is_called_so_and_says_when_there_are_more(
    ann: TestClient,
) -> None:
    assert 'href="/entity/host/WS-3310.corp.example"' in ann.get("/entity?q=ws-33").text
    many = ann.get("/entity?q=clerk").text
    assert many.count('href="/entity/user/clerk-') == 20
    assert "the first 20; type more of the name" in many
    few = ann.get("/entity?q=clerk-1").text
    assert few.count('href="/entity/user/clerk-') == 10
    assert "type more" not in few


def test_a_whole_name_is_found_among_very_many_that_begin_so(
    ann: TestClient, desk: PlainDesk
) -> None:
    assert ann.get("/entity?q=SVC").headers["location"] == "/entity/user/svc"
    answer = desk.client("eve", "read").get("/api/v1/entities?name=svc").json()
    assert (answer["items"][0]["value"], answer["more"]) == ("svc", True)


def test_what_nothing_has_says_where_was_looked(ann: TestClient) -> None:
    for typed in ("nobody", "long-ago", "%", "_win"):
        text = ann.get("/entity", params={"q": typed}).text
        assert "No user, host or domain of events of the last 7 days" in text, typed
        assert "/alerts?q=" in text, typed


def test_nothing_and_too_much_are_refused(ann: TestClient) -> None:
    assert ann.get("/entity?q=%20").status_code == 422
    long = ann.get("/entity", params={"q": "x" * 254})
    assert long.status_code == 422
    assert "254 characters, at most 253" in long.text


def test_rest_finds_the_same_by_name_or_address(desk: PlainDesk) -> None:
    rest = desk.client("bob", "read")

    def found(name: str) -> list[tuple[str, str, bool]]:
        answer = rest.get("/api/v1/entities", params={"name": name}).json()
        assert answer["more"] == (name == "clerk")
        return [(each["type"], each["value"], each["exact"]) for each in answer["items"]]

    assert found("02-00-00-00-00-07") == [("mac", "02:00:00:00:00:07", True)]
    assert found("ann.LEE") == [("user", "Ann.Lee", True)]
    assert found("ws-33") == [("host", "WS-3310.corp.example", False)]
    assert found("bad.example") == [("domain", "bad.example", True)]
    assert {kind for kind, _, _ in found("twin")} == {"user", "host"}
    assert len(found("clerk")) == 20
    assert found("long-ago") == []
    assert rest.get("/api/v1/entities?name=%20").status_code == 422
    seen = rest.get("/api/v1/entities?name=Ann.Lee").json()["items"][0]["last_seen"]
    assert datetime.fromisoformat(seen) == NOW - timedelta(minutes=1)


@pytest.mark.full
def test_a_name_is_found_from_any_page_by_keyboard_alone(
    browse: Callable[..., Any], site: str
) -> None:
    for width in (1440, 390):
        page = browse(signed_in=False, where=site).sign_in(TOKEN).page
        page.set_viewport_size({"width": width, "height": 800})
        page.goto(f"{site}/search")
        page.keyboard.press("f")
        page.keyboard.type("ann.lee")
        page.keyboard.press("Enter")
        page.wait_for_url("**/entity/user/Ann.Lee")
        assert "Ann.Lee" in page.locator("h1").inner_text()
