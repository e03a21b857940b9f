"""The consumer kit against a real broker and the real API."""

from __future__ import annotations

import json
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import uvicorn
from confluent_kafka import Message, TopicPartition
from confluent_kafka.cimpl import NewTopic

from alerts.delivery.consumer import AlertConsumer, AlertRevision, Api, FeedGap
from alerts.delivery.feed import sequence_of
from alerts.tables import ALERT
from api.app import create_app
from api.auth import token_of
from infra.config.settings import KafkaSettings, Settings, load
from infra.kafka.client import Broker, admin, free_port, producer
from infra.streaming.lake import Lake
from tests.api.story import alert

Told = list[tuple[str, int]]


class Stand:
    """A topic of its own with two partitions, and a consumer's file."""

    def __init__(self, broker: Broker, folder: Path, name: str) -> None:
        self.kafka = KafkaSettings(bootstrap=broker.address)
        self.topic = f"kit.{name}"
        self.file = folder / "place.sqlite"
        self._admin = admin(self.kafka)
        self._make()

    def _make(self) -> None:
        made = self._admin.create_topics([NewTopic(self.topic, num_partitions=2)])
        made[self.topic].result(20)

    def anew(self) -> None:
        """As beside a new broker."""
        self._admin.delete_topics([self.topic])[self.topic].result(20)
        time.sleep(1)  # until it is gone
        self._make()

    def send(self, *rows: dict[str, Any]) -> None:
        """Revisions as the publisher sends them, by their alert's id to one of the partitions."""
        client = producer(self.kafka)
        for row in rows:
            body = {"alert_id": row["alert_id"], "revision": row["revision"]}
            client.produce(
                self.topic,
                key=row["alert_id"].encode(),
                value=json.dumps(body).encode(),
                partition=ord(row["alert_id"]) % 2,
                headers=[("ce_sequence", sequence_of(row["sequence"]).encode())],
            )
        assert client.flush(20) == 0

    def expire(self, *before: int) -> None:
        """Let retention take what lies before these offsets, one a partition."""
        wanted = [TopicPartition(self.topic, n, offset) for n, offset in enumerate(before)]
        for done in self._admin.delete_records(wanted).values():
            done.result(20)

    def consume(self, count: int, api: Api | None = None, handle: Any = None) -> Told:
        """Run until `count` revisions were handled, and a moment longer."""
        told: Told = []
        stop = threading.Event()

        def note(revision: AlertRevision, db: sqlite3.Connection) -> None:
            if handle is not None:
                handle(revision, db)
            told.append((revision.alert_id, revision.revision))

        def watch() -> None:
            end = time.monotonic() + 20
            while len(told) < count and time.monotonic() < end:
                time.sleep(0.05)
            time.sleep(0.5)
            stop.set()

        threading.Thread(target=watch, daemon=True).start()
        options = {"bootstrap.servers": self.kafka.bootstrap}
        with AlertConsumer(options, self.file, topic=self.topic, api=api) as consumer:
            consumer.run(note, stop)
        return told


@pytest.fixture
def stand(broker: Broker, tmp_path: Path, request: pytest.FixtureRequest) -> Stand:
    return Stand(broker, tmp_path, request.node.name[:60])


@pytest.fixture
def serve() -> Iterator[Callable[[Settings], Api]]:
    """Serves the API of a lake on loopback."""
    servers = []

    def start(settings: Settings) -> Api:
        port = free_port()
        config = uvicorn.Config(create_app(settings), "127.0.0.1", port, log_level="error")
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run, daemon=True)
        thread.start()
        servers.append((server, thread))
        while not server.started:
            assert thread.is_alive()
            time.sleep(0.05)
        return Api(f"http://127.0.0.1:{port}", token_of(settings))

    yield start
    for server, thread in servers:
        server.should_exit = True
        thread.join(20)


@pytest.mark.full
def test_it_goes_on_where_it_was_and_takes_each_revision_once(stand: Stand) -> None:
    stand.send(alert("a", "12:00", sequence=1), alert("b", "12:00", sequence=1))
    assert sorted(stand.consume(2)) == [("a", 1), ("b", 1)]
    again = alert("b", "12:00", sequence=1)
    stand.send(again, alert("a", "12:01", revision=2, sequence=2))
    assert stand.consume(1) == [("a", 2)]
    assert stand.consume(0) == []
    stand.send(alert("c", "12:02", sequence=3), alert("b", "12:02", revision=2, sequence=4))
    assert sorted(stand.consume(2)) == [("b", 2), ("c", 1)]
    assert stand.consume(0) == []
    with sqlite3.connect(stand.file) as db:
        kept = db.execute("SELECT alert_id FROM alert_seen ORDER BY 1").fetchall()
    assert kept == [("b",), ("c",)], "nothing begins before sequence 3 any more"


def test_what_a_handler_writes_and_the_place_are_kept_together_or_not_at_all(stand: Stand) -> None:
    stand.send(alert("a", "12:00", sequence=1), alert("a", "12:01", revision=2, sequence=2))

    def write(revision: AlertRevision, db: sqlite3.Connection) -> None:
        db.execute("CREATE TABLE IF NOT EXISTS ticket (key TEXT)")
        db.execute("INSERT INTO ticket VALUES (?)", (revision.key,))

    def break_down(revision: AlertRevision, db: sqlite3.Connection) -> None:
        write(revision, db)
        if revision.revision == 2:
            raise RuntimeError("the power is gone")

    with pytest.raises(RuntimeError, match="power"):
        stand.consume(2, handle=break_down)
    assert stand.consume(1, handle=write) == [("a", 2)]
    tickets = sqlite3.connect(stand.file).execute("SELECT key FROM ticket").fetchall()
    assert tickets == [("a:1",), ("a:2",)]


#   topic     a1 b1 | away: a2 c1 ── taken by retention ── b2 a3
#   feed      all of it
@pytest.mark.full
def test_what_the_topic_lost_while_it_was_away_comes_from_the_feed_once_and_in_order(
    stand: Stand, lake: Lake, serve: Callable[[Settings], Api]
) -> None:
    first = [alert("a", "12:00", sequence=1), alert("b", "12:00", sequence=1)]
    lost = [
        alert("a", "12:01", revision=2, sequence=2),
        alert("b", "12:01", revision=2, sequence=2),
        alert("c", "12:01", sequence=3),
        alert("s", "12:01", sequence=3, suppressed_by="quiet"),
    ]
    there = [
        alert("a", "12:02", revision=3, sequence=4),
        alert("b", "12:02", revision=3, sequence=4),
    ]
    lake.add(ALERT, [*first, *lost, *there], "told")
    api = serve(lake.settings)
    stand.send(*first)
    assert len(stand.consume(2, api)) == 2
    stand.send(*lost[:3])
    stand.send(*there)
    stand.expire(2, 3)  # b2 of partition 0; a2 and c1 of partition 1
    told = stand.consume(5, api)
    assert sorted(told) == [("a", 2), ("a", 3), ("b", 2), ("b", 3), ("c", 1)]
    for name in "ab":
        assert [revision for alert_id, revision in told if alert_id == name] == [2, 3]
    stand.send(alert("d", "12:03", sequence=5))
    assert stand.consume(1, api) == [("d", 1)]


@pytest.mark.full
#   topic     a1 b1 | made anew: a2 b2 a3: as many as there were, or more
def test_a_topic_made_anew_is_not_taken_for_the_one_that_is_gone(
    stand: Stand, lake: Lake, serve: Callable[[Settings], Api]
) -> None:
    first = [alert("a", "12:00", sequence=1), alert("b", "12:00", sequence=1)]
    there = [
        alert("a", "12:01", revision=2, sequence=2),
        alert("b", "12:01", revision=2, sequence=2),
        alert("a", "12:02", revision=3, sequence=3),
    ]
    lake.add(ALERT, [*first, *there], "told")
    stand.send(*first)
    assert len(stand.consume(2)) == 2
    stand.anew()
    stand.send(*there)
    with pytest.raises(FeedGap, match="our place is 1 of a topic that is gone"):
        stand.consume(1)
    told = stand.consume(3, serve(lake.settings))
    assert sorted(told) == [("a", 2), ("a", 3), ("b", 2)]
    stand.send(alert("b", "12:03", revision=3, sequence=4))
    assert stand.consume(1) == [("b", 3)]


def test_without_the_api_a_gap_is_an_error_and_skips_nothing(stand: Stand) -> None:
    stand.send(alert("a", "12:00", sequence=1))
    stand.consume(1)
    stand.send(
        alert("a", "12:01", revision=2, sequence=2), alert("a", "12:02", revision=3, sequence=3)
    )
    stand.expire(0, 2)
    with pytest.raises(FeedGap, match="partition 1 has 2 to 3, our place is 1"):
        stand.consume(1)


def test_an_api_that_refuses_is_named_with_what_it_said(
    stand: Stand, serve: Callable[[Settings], Api], tmp_path: Path
) -> None:
    (tmp_path / "lake").mkdir()
    api = serve(load(home=tmp_path))
    with pytest.raises(OSError, match="answered 401"):
        list(Api(api.url, "wrong").feed("start"))
    with pytest.raises(OSError, match=r"answered 503.*not there yet"):
        list(api.feed("start"))


def test_an_alert_about_the_platform_does_not_take_the_place_back(tmp_path: Path) -> None:
    """It is in no batch. As our place its number would have the feed begin before all others."""

    def message(alert: str, offset: int, sequence: int) -> Message:
        body = json.dumps({"alert_id": alert, "revision": 1}).encode()
        stamp = ("ce_sequence", f"{sequence:016d}".encode())
        return Message(topic="alerts", partition=0, offset=offset, value=body, headers=[stamp])

    handled: list[str] = []
    # Nobody answers there, and nobody is asked.
    with AlertConsumer({"bootstrap.servers": "127.0.0.1:1"}, tmp_path / "place.sqlite") as alerts:
        for name, offset, sequence in (("a", 0, 7), ("platform", 1, 0)):
            alerts._take(message(name, offset, sequence), lambda r, _: handled.append(r.alert_id))
        assert alerts._places() == {0: (2, f"{7:016d}")}
    assert handled == ["a", "platform"]
