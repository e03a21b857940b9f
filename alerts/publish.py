"""gold.alert to its topics: each revision once, in order for an alert, through any crash.

The table is the outbox. What one commit of it added goes out in one Kafka
transaction together with the publisher's place (a version of the table), so a
`read_committed` consumer sees both or neither, and a successor goes on exactly
there. Sources: KIP-98 (transactions), CloudEvents 1.0 Kafka binding.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import msgspec
import pyarrow.parquet as pq
from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)

from alerts.feed import sequence_of
from alerts.tables import ALERT
from infra.clock import clock
from infra.commits import commit, newest_version, table_id, versions
from infra.errors import Fatal, Retryable
from infra.kafka import client_options, producer
from infra.kafka_auth import denied, lacking
from infra.location import to_read
from infra.log import say
from infra.settings import Settings

CE_TYPE = "org.headgate.alert"
TRANSACTION_SECONDS = 30


@dataclass(frozen=True)
class Revision:
    """One revision as it lies in the table."""

    alert_id: str
    revision: int
    activity: str
    body: str
    sequence: int | None = None


class Publisher:
    """Publishes commits of gold.alert in order. One lives at a time: a successor fences it."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._table = settings.lake_root / ALERT.path
        self._client: Producer | None = None
        self._published = -1
        self._told_older = False

    def publish(self) -> int:
        """Send what the table holds beyond our place; returns how many revisions.

        Raises `Retryable` when the broker does not take it now (call again),
        `Fatal` when the table's log no longer reaches back to our place, or
        when another publisher has taken over.
        """
        try:
            client = self._client or self._open()
            sent = 0
            for version in self._pending():
                sent += self._send(client, version)
            return sent
        except KafkaException as error:
            self._client = None
            raise _named(error.args[0], self._settings) from None

    def _open(self) -> Producer:
        """Fence the predecessor first, then read its place: nobody can move it any more."""
        options: dict[str, str | int | bool] = {
            "transactional.id": f"headgate-{self._settings.alerts.tenant}-alerts",
            "transaction.timeout.ms": TRANSACTION_SECONDS * 1000,
        }
        client = producer(self._settings.kafka, **options)
        client.init_transactions(TRANSACTION_SECONDS)
        self._published = self._place()
        self._client = client
        return client

    def _place(self) -> int:
        """Newest version our predecessor published, -1 for none."""
        place = -1
        for message in read_all(self._settings, self._settings.kafka.progress_topic):
            value = message.value()
            if message.key() == self._key and value is not None:
                place = int(json.loads(value)["version"])
        return place

    @property
    def _key(self) -> bytes:
        return f"gold.alert/{table_id(self._table)}".encode()

    def _pending(self) -> list[int]:
        newest = newest_version(self._table)
        if 0 <= newest < self._published:
            self._say_older(newest)
            return []
        pending = versions(self._table, self._published + 1)
        if pending and len(pending) != pending[-1] - self._published:
            raise Fatal(
                f"gold.alert was published up to version {self._published}, but its log now begins "
                f"at {pending[0]}: versions between were never published; read them from the table "
                "and set the place on by hand"
            )
        return pending

    def _say_older(self, newest: int) -> None:
        """A lake was restored that is older than what went out. What it tells anew must not go out
        twice, and a batch that failed for it would fail for ever."""
        if not self._told_older:
            say(
                f"job alert: gold.alert is at version {newest}, but was published up to "
                f"{self._published}: an older lake was restored; alerts stay in the table until "
                "it is beyond that"
            )
        self._told_older = True

    def _send(self, client: Producer, version: int) -> int:
        revisions = list(self._revisions(version))
        if revisions:
            client.begin_transaction()
            try:
                for revision in revisions:
                    self._produce(client, revision)
                self._mark(client, version)
                client.commit_transaction(TRANSACTION_SECONDS)
            except KafkaException as error:
                if error.args[0].txn_requires_abort():
                    client.abort_transaction(TRANSACTION_SECONDS)
                raise
        self._published = version
        return len(revisions)

    def _revisions(self, version: int) -> Iterator[Revision]:
        found = commit(self._table, version)
        names = [*Revision.__dataclass_fields__, "suppressed_by"]
        rows: list[dict[str, Any]] = []
        # What puts files in others' place, as an erasure does, tells nothing new.
        for name in found.adds if found.appends else ():
            rows += pq.read_table(to_read(self._table / name), columns=names).to_pylist()
        told = [row for row in rows if row.pop("suppressed_by", None) is None]
        told.sort(key=lambda row: (row["alert_id"], row["revision"]))
        return (Revision(**row) for row in told)

    def _produce(self, client: Producer, revision: Revision) -> None:
        now = clock.now().isoformat(timespec="milliseconds").replace("+00:00", "Z")
        body = msgspec.json.decode(revision.body)
        body["published_at"] = now
        client.produce(
            self._settings.kafka.alerts_topic,
            key=revision.alert_id.encode(),
            value=msgspec.json.encode(body),
            headers=[
                ("ce_specversion", b"1.0"),
                ("ce_id", f"{revision.alert_id}:{revision.revision}".encode()),
                ("ce_type", f"{CE_TYPE}.{revision.activity}".encode()),
                ("ce_source", f"/headgate/{self._settings.alerts.tenant}".encode()),
                ("ce_time", now.encode()),
                ("ce_sequence", sequence_of(revision.sequence).encode()),
                ("content-type", b"application/json"),
            ],
        )
        client.produce(
            self._settings.kafka.state_topic,
            key=revision.alert_id.encode(),
            value=msgspec.json.encode(state_of(body)),
        )
        client.poll(0)

    def _mark(self, client: Producer, version: int) -> None:
        place = json.dumps({"version": version}).encode()
        client.produce(self._settings.kafka.progress_topic, key=self._key, value=place)


def place(settings: Settings) -> int:
    """Newest version of gold.alert that went out, -1 for none; a publisher is not disturbed."""
    return Publisher(settings)._place()


STATE_FIELDS = (
    *("schema", "alert_id", "tenant", "revision", "state", "lifecycle", "assignee", "verdict"),
    *("comment", "superseded_by", "severity", "severity_id", "risk_score", "event_time", "entity"),
    *("title", "count", "group_key", "incident_id", "published_at"),
)
"""Fields of an alert that its present state keeps, as in the body; `rule` becomes its id."""


def state_of(body: dict[str, Any]) -> dict[str, Any]:
    """The state of an alert, as the compacted topic keeps it under the alert's id."""
    return {name: body.get(name) for name in STATE_FIELDS} | {"rule_id": body["rule"]["id"]}


def read_all(settings: Settings, topic: str, seconds: float = 20.0) -> Iterator[Message]:
    """What a topic holds now, as a `read_committed` consumer without a group sees it."""
    consumer = Consumer(
        {
            **client_options(settings.kafka),
            "group.id": "headgate-reader",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "auto.offset.reset": "earliest",
            "log_level": 3,
        }
    )
    try:
        known = consumer.list_topics(topic, timeout=seconds).topics[topic]
        if known.error is not None:
            raise Retryable(f"topic {topic}: {known.error.str()}")
        open_partitions = set(known.partitions)
        consumer.assign([TopicPartition(topic, p, OFFSET_BEGINNING) for p in open_partitions])
        while open_partitions:
            message = consumer.poll(seconds)
            if message is None:
                raise Retryable(f"topic {topic} could not be read to its end in {seconds:.0f} s")
            problem = message.error()
            if problem is None:
                yield message
            elif problem.code() == KafkaError._PARTITION_EOF:
                open_partitions.discard(message.partition())
            else:
                raise Retryable(f"topic {topic}: {problem.str()}")
    finally:
        consumer.close()


def _named(error: KafkaError, settings: Settings) -> Exception:
    if error.code() in (KafkaError._FENCED, KafkaError.PRODUCER_FENCED):
        return Fatal("another publisher of this tenant has taken over; stop one of the two drivers")
    if denied(error):
        # A right that is given later lets the job go on by itself.
        return Retryable(str(lacking(settings.kafka, f"publish alerts ({error.str()})")))
    return Retryable(f"alerts could not be published now: {error.str()}")
