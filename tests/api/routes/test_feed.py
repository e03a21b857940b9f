"""The feed of alerts: every revision once, in the order of commits, from any place on."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from typing import Any

import pytest
from fastapi.testclient import TestClient

from alerts.cli import webhooks
from alerts.delivery.feed import FeedCursor, cursor_place
from alerts.tables import ALERT
from api.app import create_app
from api.auth import token_of
from infra.config.settings import Settings
from infra.delta.log_reader import table_id
from infra.errors import Usage
from infra.streaming.lake import Lake
from tests.api.story import alert, insert


@pytest.fixture
def reader(lake: Lake) -> Iterator[TestClient]:
    with TestClient(create_app(lake.settings), raise_server_exceptions=False) as running:
        running.headers["Authorization"] = f"Bearer {token_of(lake.settings)}"
        yield running


def page(client: TestClient, after: str, **params: Any) -> dict[str, Any]:
    answered = client.get("/api/v1/alerts", params={"after": after, **params})
    assert answered.status_code == 200, answered.text
    found: dict[str, Any] = answered.json()
    return found


def told(items: list[dict[str, Any]]) -> list[tuple[str, int]]:
    return [(item["alert_id"], item["revision"]) for item in items]


#   batch 4: b1 a1 (x1 silenced)   batch 5: a2   batch 6, later: b2 c1
def test_every_revision_comes_once_in_the_order_of_commits_and_the_cursor_waits_for_more(
    lake: Lake, reader: TestClient
) -> None:
    first = [
        alert("b", "12:00", sequence=4),
        alert("a", "12:30", sequence=4),
        alert("x", "12:10", sequence=4, suppressed_by="s"),
        alert("a", "12:31", revision=2, sequence=5),
    ]
    insert(lake, ALERT, first)
    seen, after = [], "start"
    for _ in range(4):
        found = page(reader, after, limit=1)
        seen += found["items"]
        after = found["next"]
    assert told(seen) == [("a", 1), ("b", 1), ("a", 2)]
    assert page(reader, after) == {"items": [], "next": after, "more": False}
    insert(
        lake, ALERT, [alert("b", "11:00", revision=2, sequence=6), alert("c", "10:00", sequence=6)]
    )
    assert told(page(reader, after)["items"]) == [("b", 2), ("c", 1)]


@pytest.mark.full
def test_what_compaction_rewrites_comes_no_second_time(lake: Lake, reader: TestClient) -> None:
    insert(lake, ALERT, [alert("a", "12:00", sequence=1)])
    insert(lake, ALERT, [alert("b", "12:00", sequence=2)])
    after = page(reader, "start", limit=1)["next"]
    lake.spark.sql(f"OPTIMIZE delta.`{lake.path(ALERT)}`")
    insert(lake, ALERT, [alert("c", "12:00", sequence=3)])
    assert told(page(reader, after)["items"]) == [("b", 1), ("c", 1)]


def test_a_sequence_of_the_topic_is_a_place_before_its_batch(client: TestClient) -> None:
    everything = page(client, "start")["items"]
    assert [item["sequence"][-1] for item in everything] == ["4", "4", "6", "7", "7"]
    assert everything[0]["body"]["alert_id"] == "alert-1"
    after = page(client, everything[3]["sequence"])
    assert told(after["items"]) == [("alert-3", 2), ("alert-4", 1)]
    assert page(client, "0" * 16, limit=2)["more"]


@pytest.mark.parametrize(
    "cursor",
    [
        *("x", "é", "W10", "WyJhIl0", "bnVsbA", "MQ", "A" * 9000, "9" * 5000),
        base64.urlsafe_b64encode(b"[" * 4500).decode(),
        base64.urlsafe_b64encode(b'["", 1' + b"0" * 30 + b', "a", 1]').decode(),
        base64.urlsafe_b64encode(b'["", 1, "\\ud800", 1]').decode(),
    ],
)
def test_a_cursor_that_is_none_is_refused(client: TestClient, cursor: str) -> None:
    answered = client.get("/api/v1/alerts", params={"after": cursor})
    assert answered.status_code == 422
    assert "after: not a cursor of ours" in answered.json()["detail"]


def test_a_cursor_of_another_lake_is_refused(client: TestClient, lake: Lake) -> None:
    foreign = FeedCursor(3, "a", 1).cursor("another")
    answered = client.get("/api/v1/alerts", params={"after": foreign})
    assert answered.status_code == 422
    assert "another lake" in answered.json()["detail"]
    own = table_id(lake.folder(ALERT))
    assert cursor_place(FeedCursor(3, "a", 1).cursor(own), own) == FeedCursor(3, "a", 1)
    with pytest.raises(Usage, match="another lake"):
        cursor_place(foreign, own)


@pytest.mark.full
def test_webhooks_catch_up_with_the_same_revisions(
    client: TestClient, day_settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(webhooks, "PAGE", 2)
    everything = page(client, "start")["items"]
    table = webhooks.TableFeed(day_settings)
    found = [(one.alert_id, one.revision, one.sequence) for one in table.feed("start")]
    assert found == [(one["alert_id"], one["revision"], one["sequence"]) for one in everything]
    last = everything[-1]["sequence"]
    assert [one.sequence for one in table.feed(last)] == [last, last]


def test_the_feed_is_whole(client: TestClient) -> None:
    answered = client.get("/api/v1/alerts", params={"after": "start", "level": "high"})
    assert answered.status_code == 422
    assert "only limit" in answered.json()["detail"]


def test_what_is_kept_from_the_topic_is_listed_only_when_asked_for(
    lake: Lake, reader: TestClient
) -> None:
    rows = [
        alert("a", "12:00", incident_id="i"),
        alert("i", "12:01"),
        alert("x", "12:02", suppressed_by="budget", incident_id="i"),
    ]
    insert(lake, ALERT, rows)

    def listed(**params: Any) -> list[str]:
        items = reader.get("/api/v1/alerts", params=params).json()["items"]
        return sorted(item["alert_id"] for item in items)

    assert listed() == ["a", "i"]
    assert listed(muted=True) == ["a", "i", "x"]
    assert listed(incident_id="i") == ["a", "i"]
    assert 'headgate_alerts{level="high"} 2.0' in reader.get("/metrics").text
    detail = reader.get("/api/v1/alerts/x").json()["alert"]
    assert (detail["suppressed_by"], detail["incident_id"]) == ("budget", "i")
