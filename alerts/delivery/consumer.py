"""A consumer of alerts whose work takes effect once for each revision, through any crash.

    with AlertConsumer({"bootstrap.servers": "127.0.0.1:9092"}, Path("pager.sqlite")) as alerts:
        alerts.run(lambda revision, db: page(revision.body, revision.key))

It keeps its place and the revisions it handled in one SQLite file, in the same
transaction as what the handler writes there. So a handler that works through the
connection it is given takes effect exactly once. One that acts elsewhere (a pager,
a ticket) can be called again for a revision after a crash: let it pass
`Revision.key` on as the idempotency key.

A consumer that was away for longer than the topic keeps messages, or finds the topic made
anew as with a new broker, reads the missing revisions from the API's feed, then goes on with
the topic. Nothing of the platform
is imported here: this file, with confluent_kafka, can be copied into another project.
"""

from __future__ import annotations

import json
import sqlite3
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Protocol

from confluent_kafka import (
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient

_PAGE = 500
TIMEOUT = 30.0
_LOOK_BACK = 200
"""Offsets before the end among which there is a message; the others mark transactions."""

LOOK_SECONDS = 10.0
_FIRST = "0" * 16
"""The sequence before all others; also that of a message without the header."""

FORGET_EVERY = 1_000
"""Messages between two looks for what need not be remembered any more."""

_TABLES = """
CREATE TABLE IF NOT EXISTS alert_place (
  topic TEXT, number INTEGER, next INTEGER, sequence TEXT, PRIMARY KEY (topic, number));
CREATE TABLE IF NOT EXISTS alert_seen (
  alert_id TEXT PRIMARY KEY, revision INTEGER, sequence TEXT);
CREATE INDEX IF NOT EXISTS alert_seen_sequence ON alert_seen (sequence);
CREATE TABLE IF NOT EXISTS alert_topic (topic TEXT PRIMARY KEY, id TEXT);
"""


class _Feed(Protocol):
    """Where revisions come from that the topic has no longer."""

    def feed(self, after: str) -> Iterator[AlertRevision]:
        """All revisions behind a place, in the order of their commits."""


class FeedGap(Exception):
    """The topic no longer has, or never had, what follows our place, and there is no API to ask."""


@dataclass(frozen=True)
class AlertRevision:
    """One revision of an alert. `sequence`: tells the batch that made it (`ce_sequence`)."""

    alert_id: str
    revision: int
    sequence: str
    body: dict[str, Any]

    @property
    def key(self) -> str:
        """What tells this revision from all others, the same whenever it comes again."""
        return f"{self.alert_id}:{self.revision}"


Handle = Callable[[AlertRevision, sqlite3.Connection], None]


@dataclass(frozen=True)
class Api:
    """The platform's REST API: `url` such as http://127.0.0.1:8765."""

    url: str
    token: str

    def feed(self, after: str) -> Iterator[AlertRevision]:
        """All revisions behind a place, in commit order (docs/how-to/consume-alerts.md).

        Raises `OSError` when the API does not answer, or answers with an error.
        """
        while True:
            page = self._page(after)
            for item in page["items"]:
                yield AlertRevision(
                    item["alert_id"], item["revision"], item["sequence"], item["body"]
                )
            after = page["next"]
            if not page["more"]:
                return

    def _page(self, after: str) -> dict[str, Any]:
        query = urllib.parse.urlencode({"after": after, "limit": _PAGE})
        request = urllib.request.Request(
            f"{self.url.rstrip('/')}/api/v1/alerts?{query}",
            headers={"Authorization": f"Bearer {self.token}"},
        )
        try:
            with urllib.request.urlopen(request, timeout=TIMEOUT) as answer:
                page: dict[str, Any] = json.load(answer)
                return page
        except urllib.error.HTTPError as error:
            decoded = error.read(2000).decode("utf-8", "replace")
            raise OSError(f"{self.url}: answered {error.code}: {decoded}") from None


class AlertConsumer:
    """Reads the topic from where its SQLite file says; one process at a time uses a file."""

    def __init__(
        self,
        options: Mapping[str, str],
        place: Path,
        *,
        topic: str = "alerts",
        api: _Feed | None = None,
        begin: Literal["beginning", "now"] = "beginning",
    ) -> None:
        """`begin`: where to read from when the file is new; later its place counts."""
        self._topic = topic
        self._api = api
        self._begins = begin
        self._taken = 0
        self._asked: dict[str, str | int | float | bool] = {
            name: option for name, option in options.items() if name != "group.id"
        }
        self._db = sqlite3.connect(place, isolation_level=None, timeout=TIMEOUT)
        # Readers of the handler's own tables are then not blocked while a revision is taken.
        self._db.execute("PRAGMA journal_mode = WAL")
        self._db.executescript(_TABLES)
        self._consumer = Consumer(
            {
                **options,
                "group.id": options.get("group.id", "headgate-kit"),  # nothing is committed there
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
                # Any other choice would silently skip what the topic has lost, or read it all
                # again.
                "auto.offset.reset": "error",
            }
        )

    def __enter__(self) -> AlertConsumer:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._consumer.close()
        self._db.close()

    def run(self, handle: Handle, stop: threading.Event | None = None) -> None:
        """Call `handle` for each revision that was not handled yet, until `stop` is set.

        What `handle` raises ends the run, and that revision comes again at the next one.
        Raises `Gap` when messages are gone and there is no API, `KafkaException` for what
        the client cannot pass over, `OSError` when the API is needed and does not answer.
        """
        self._begin(handle)
        while stop is None or not stop.is_set():
            message = self._consumer.poll(0.2)
            if message is None:
                continue
            problem = message.error()
            if problem is None:
                self._take(message, handle)
            # Our place is gone from the topic: retention, or a topic made anew.
            elif problem.code() == KafkaError._AUTO_OFFSET_RESET:
                self._begin(handle)
            elif problem.fatal() or not problem.retriable():
                raise KafkaException(problem)

    def _begin(self, handle: Handle) -> None:
        """Assign every partition at our place; what the topic lost meanwhile comes from the API."""
        bounds, own = self._bounds(), self._id()
        # A new topic of the same name has offsets that mean something else.
        anew = self._known_id() not in (None, own)
        kept = self._places_in(bounds)
        lost = {
            number: f"partition {number} has {low} to {high}, our place is {kept[number][0]}"
            + (" of a topic that is gone" if anew else "")
            for number, (low, high) in bounds.items()
            if anew or not low <= kept[number][0] <= high
        }
        if lost:
            # From the lowest place of all partitions: the feed knows none, and `_once` passes over
            # doubles.
            self._catch_up(min(sequence for _, sequence in kept.values()), handle, lost.values())
            with self._transaction():
                for number in lost:
                    self._note(number, bounds[number][0], kept[number][1])
                # With the places: killed in between, these would be taken for the old topic's.
                self._note_id(own)
            kept = self._places()
        self._note_id(own)
        self._forget()
        # Assigned and not subscribed: a rebalance would move partitions away from our places.
        self._consumer.assign(
            [TopicPartition(self._topic, number, kept[number][0]) for number in bounds]
        )

    def _places_in(self, bounds: Mapping[int, tuple[int, int]]) -> dict[int, tuple[int, str]]:
        """Our place in each partition; one that we have none in gets it now."""
        kept = self._places()
        now = not kept and self._begins == "now"
        sequence = self._newest(bounds) if now else _FIRST
        with self._transaction():
            for number, (_, high) in bounds.items():
                if number not in kept:
                    self._note(number, high if now else 0, sequence)
        return self._places()

    def _id(self) -> str:
        """What tells the topic from one of its name that was there before."""
        client = AdminClient(self._asked)  # kept: what it was asked ends with it
        describe_topics = client.describe_topics(TopicCollection([self._topic]))
        return str(describe_topics[self._topic].result(TIMEOUT).topic_id)

    def _known_id(self) -> str | None:
        """That of the topic that our places are of; None: not noted yet."""
        asked = "SELECT id FROM alert_topic WHERE topic = ?"
        row = self._db.execute(asked, (self._topic,)).fetchone()
        return None if row is None else str(row[0])

    def _note_id(self, own: str) -> None:
        self._db.execute("INSERT OR REPLACE INTO alert_topic VALUES (?, ?)", (self._topic, own))

    def _bounds(self) -> dict[int, tuple[int, int]]:
        """First and next offset of each partition."""
        known = self._consumer.list_topics(self._topic, timeout=TIMEOUT).topics[self._topic]
        if known.error is not None:
            raise KafkaException(known.error)
        return {
            number: self._consumer.get_watermark_offsets(
                TopicPartition(self._topic, number), timeout=TIMEOUT
            )
            for number in sorted(known.partitions)
        }

    def _places(self) -> dict[int, tuple[int, str]]:
        """By partition: the offset that follows, and the sequence of what we handled last."""
        execute = self._db.execute(
            "SELECT number, next, sequence FROM alert_place WHERE topic = ?", (self._topic,)
        )
        return {number: (following, sequence) for number, following, sequence in execute}

    def _newest(self, bounds: Mapping[int, tuple[int, int]]) -> str:
        """The newest sequence on the topic; where it is empty, the first there can be."""
        newest = _FIRST
        ends = [
            TopicPartition(self._topic, number, max(low, high - _LOOK_BACK))
            for number, (low, high) in bounds.items()
            if high > low
        ]
        self._consumer.assign(ends)
        end = time.monotonic() + LOOK_SECONDS  # a busy topic is never silent
        while ends and time.monotonic() < end:
            message = self._consumer.poll(1.0)
            if message is None:
                break
            if message.error() is None:
                newest = max(newest, _sequence(message))
        return newest

    def _catch_up(self, after: str, handle: Handle, lost: Iterable[str]) -> None:
        if self._api is None:
            raise FeedGap(
                f"topic {self._topic}: {'; '.join(lost)}; give the API to read what is missing"
            )
        for revision in self._api.feed(after):
            with self._transaction():
                self._once(revision, handle)

    def _take(self, message: Message, handle: Handle) -> None:
        sequence = _sequence(message)
        body = json.loads(message.value() or b"{}")
        revision = AlertRevision(body["alert_id"], body["revision"], sequence, body)
        partition = int(message.partition() or 0)
        with self._transaction():
            self._once(revision, handle)
            if sequence == _FIRST:
                # An alert about the platform is in no batch, and says nothing of the feed: with it
                # as our place all of the feed would be read again, also what is forgotten as done.
                sequence = self._places().get(partition, (0, _FIRST))[1]
            # Place and effect in one transaction: a crash undoes both or neither.
            self._note(partition, int(message.offset() or 0) + 1, sequence)
        self._taken += 1
        if self._taken % FORGET_EVERY == 0:
            self._forget()

    def _forget(self) -> None:
        """Drop what can come no more: neither the feed nor a partition begins before our places."""
        self._db.execute(
            "DELETE FROM alert_seen WHERE sequence < "
            "(SELECT min(sequence) FROM alert_place WHERE topic = ?)",
            (self._topic,),
        )

    def _note(self, partition: int, following: int, sequence: str) -> None:
        self._db.execute(
            "INSERT OR REPLACE INTO alert_place VALUES (?, ?, ?, ?)",
            (self._topic, partition, following, sequence),
        )

    def _once(self, revision: AlertRevision, handle: Handle) -> None:
        """Revisions of an alert come in order, here and there: one number tells what is done."""
        done = self._db.execute(
            "SELECT revision FROM alert_seen WHERE alert_id = ?", (revision.alert_id,)
        ).fetchone()
        # A feed and a topic may both bring a revision; the number says whether it was handled.
        if done is not None and revision.revision <= done[0]:
            return
        handle(revision, self._db)
        self._db.execute(
            "INSERT OR REPLACE INTO alert_seen VALUES (?, ?, ?)",
            (revision.alert_id, revision.revision, revision.sequence),
        )

    def _transaction(self) -> _Transaction:
        return _Transaction(self._db)


def _sequence(message: Message) -> str:
    ce_sequence = dict(message.headers() or ()).get("ce_sequence") or _FIRST
    return ce_sequence if isinstance(ce_sequence, str) else ce_sequence.decode()


class _Transaction:
    """All or nothing of what happens inside."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db

    def __enter__(self) -> None:
        # Takes the write lock now; a plain BEGIN could fail half way through when another has it.
        self._db.execute("BEGIN IMMEDIATE")

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._db.execute("COMMIT" if kind is None else "ROLLBACK")
