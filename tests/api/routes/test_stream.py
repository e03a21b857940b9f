"""Alerts as they come, over a real server: each revision once, also for who was away."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
import uvicorn

from alerts.tables import ALERT
from api.app import create_app
from api.auth import token_of
from api.cli import listen_on
from infra.streaming.lake import Lake
from tests.api.story import alert, insert

pytestmark = pytest.mark.full


@pytest.fixture
def address(lake: Lake) -> Iterator[str]:
    """A server over the lake, on a port of its own."""
    listening = listen_on("127.0.0.1", 0)
    config = uvicorn.Config(
        create_app(lake.settings), log_level="error", timeout_graceful_shutdown=3
    )
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
    thread.start()
    yield f"http://127.0.0.1:{listening.getsockname()[1]}/api/v1/alerts/stream"
    server.should_exit = True
    thread.join()


def events(response: httpx.Response) -> Iterator[tuple[str, dict[str, Any]]]:
    """(id, item) of each event, as a browser reads them."""
    name = ""
    for line in response.iter_lines():
        field, _, value = line.partition(": ")
        if field == "id":
            name = value
        elif field == "data":
            yield name, json.loads(value)


def test_revisions_come_as_they_are_committed_and_who_was_away_misses_none(
    lake: Lake, address: str
) -> None:
    headers = {"Authorization": f"Bearer {token_of(lake.settings)}"}
    insert(lake, ALERT, [alert("old", "12:00", sequence=1)])
    with httpx.stream("GET", address, headers=headers, timeout=60) as response:
        assert response.headers["content-type"].startswith("text/event-stream")
        coming = events(response)
        insert(lake, ALERT, [alert("a", "12:01", sequence=2), alert("b", "12:02", sequence=2)])
        seen = [next(coming), next(coming)]
    assert [item["alert_id"] for _, item in seen] == ["a", "b"], "what was before is not sent"
    insert(lake, ALERT, [alert("a", "12:03", revision=2, sequence=3)])

    # Away after the first of the two: the rest of its batch comes, and what was committed since.
    resumed = headers | {"Last-Event-ID": seen[0][0]}
    with httpx.stream("GET", address, headers=resumed, timeout=60) as response:
        coming = events(response)
        again = [next(coming)[1] for _ in range(2)]
    assert [(item["alert_id"], item["revision"]) for item in again] == [("b", 1), ("a", 2)]

    with httpx.stream("GET", f"{address}?after=start", headers=headers, timeout=60) as response:
        coming = events(response)
        whole = [next(coming)[1]["alert_id"] for _ in range(4)]
    assert whole == ["old", "a", "b", "a"]
    refused = httpx.get(f"{address}?after=rubbish", headers=headers)
    assert refused.status_code == 422
    assert httpx.get(address).status_code == 401
