"""Slices of events with the device that held their address then."""

from __future__ import annotations

from typing import Any

import pytest
from fastapi.testclient import TestClient

from tests.api.story import IP, A, B
from tests.api.test_app import get, problem

DAY = {"since": "2026-11-20T00:00:00Z", "until": "2026-11-21T00:00:00Z"}

NOON = "2026-11-20T12"


def slice_of(client: TestClient, **asked: Any) -> list[tuple[str, str | None]]:
    items = get(client, "/api/v1/events/attributed", **DAY | asked)["items"]
    return [(item["event_uid"], item["mac"]) for item in items]


@pytest.mark.parametrize(
    ("asked", "answer"),
    [
        ({"ip": IP}, [("e3:0", B), ("e2:0", A), ("e1:0", A), ("dhcp-1:0", A)]),
        ({"mac": A}, [("e2:0", A), ("e1:0", A), ("dhcp-1:0", A)]),
        ({"mac": "0200.0000.000B"}, [("e3:0", B)]),
        ({"host": "laptop-a"}, [("e2:0", A), ("e1:0", A), ("dhcp-1:0", A)]),
        ({"ip": "192.0.2.9"}, [("e4:0", None)]),
        ({"mac": "02:00:00:00:00:99"}, []),
        ({"ip": IP, "since": f"{NOON}:06:00Z", "until": f"{NOON}:45:00Z"}, [("e2:0", A)]),
        ({"mac": A, "since": f"{NOON}:06:00Z"}, [("e2:0", A)]),
        ({"host": "' OR 1=1 --"}, []),
    ],
)  # fmt: skip
def test_events_come_with_whose_they_were(client: TestClient, asked: Any, answer: Any) -> None:
    assert slice_of(client, **asked) == answer


def test_an_event_names_its_lease(client: TestClient) -> None:
    newest, *_, oldest = get(client, "/api/v1/events/attributed", ip=IP, **DAY)["items"]
    assert (newest["status"], newest["hostname"], newest["rev"]) == ("leased", "laptop-b", 3)
    assert (oldest["session_id"], oldest["lease_start"]) == ("session-a", "2026-11-20T12:00:00Z")
    assert oldest["lease_end"] == "2026-11-20T12:30:00Z"  # as was learned at 12:30
    (outside,) = get(client, "/api/v1/events/attributed", ip="192.0.2.9", **DAY)["items"]
    assert (outside["status"], outside["session_id"], outside["rev"]) == ("outside", None, None)


@pytest.mark.parametrize("asked", [{"ip": IP}, {"mac": A}])
def test_pages_hold_every_event_once(client: TestClient, asked: Any) -> None:
    whole = slice_of(client, **asked)
    question = {"since": DAY["since"], "limit": 1} | asked  # up to now, whenever a page is asked
    paged: list[Any] = []
    cursor = None
    for _ in whole:
        page = get(
            client,
            "/api/v1/events/attributed",
            **question,
            **({"cursor": cursor} if cursor else {}),
        )
        paged += [(item["event_uid"], item["mac"]) for item in page["items"]]
        cursor = page["next"]
    assert cursor is None
    assert paged == whole


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({}, "say one of ip=, mac= and host="),
        ({"ip": IP, "mac": A}, "say one of ip=, mac= and host="),
        ({"mac": "nonsense"}, "'nonsense' is not a MAC address"),
        ({"ip": "10.0.0"}, "'10.0.0' is not an IP address"),
        ({"ip": IP, "until": DAY["since"]}, "is not after since"),
        ({"ip": IP, "cursor": "x"}, "cursor: not one of ours"),
        ({"ip": IP, "since": "2026-11-20T00:00:00"}, "since"),
    ],
)
def test_a_wrong_question_is_named(client: TestClient, asked: Any, said: str) -> None:
    answered = client.get("/api/v1/events/attributed", params=DAY | asked)
    assert said in problem(answered, 422)["detail"]


def test_it_wants_the_token(client: TestClient) -> None:
    bare = TestClient(client.app, raise_server_exceptions=False)
    problem(bare.get("/api/v1/events/attributed", params=DAY | {"ip": IP}), 401)
