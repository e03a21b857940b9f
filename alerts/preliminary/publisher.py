"""gold.finding to the topic of preliminary alerts, and their answers behind them.

gold.finding and gold.preliminary_answer are the outbox, as gold.alert is of alerts
(`alerts.delivery.publisher`): what their commits added goes out in one Kafka transaction together
with the place behind them, so a `read_committed` consumer sees both or neither. Findings are sent
before answers, and an answer once and only for what was told. So each preliminary alert goes out
once, and its one answer behind it, through any crash.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import msgspec
from confluent_kafka import KafkaException, Producer

from alerts.delivery import publish_offset
from alerts.delivery.alert_message import cloud_event_headers
from alerts.delivery.publish_offset import PublishOffset
from alerts.delivery.publisher import named_error
from alerts.domain.entity import micros
from alerts.preliminary.answer import NOT_FOUND, UNANSWERED, preliminary_id
from alerts.preliminary.known_holders import KnownHolders
from alerts.preliminary.message import (
    CE_TYPE,
    answer_message,
    as_published,
    given_up,
    preliminary_message,
)
from alerts.preliminary.place import (
    Place,
    Waiting,
    answers_since,
    place_file,
    read_place,
)
from alerts.rulepack.rule_pack import PackStore, RulePack
from alerts.tables import FINDING, PRELIMINARY_ANSWER
from infra.config.settings import Settings
from infra.delta.appended_rows import added_rows
from infra.delta.log_reader import commit, newest_version, table_id, versions
from infra.errors import Fatal
from infra.kafka.client import produce
from infra.kafka.transactions import fenced_producer, read_all, transaction
from infra.process.clock import clock
from infra.process.log import say
from infra.storage.paths import Location
from infra.streaming.kafka_offsets import TopicPartitionKey, offsets_of

MOST_WAITING = 5_000
"""While so many are unanswered no more are made: nobody is helped by what nobody answers."""

GIVEN_UP = 24 * 3600 * 1_000_000
"""So long behind its time an answer is awaited, microseconds; then it is withdrawn."""

INGEST = "ingest"

TablesReached = Mapping[TopicPartitionKey, int]
"""Of each partition of a raw topic the first record that the tables have not."""


@dataclass(frozen=True)
class TopicEntry:
    """What goes to the topic: a preliminary alert or an answer, its CloudEvents id and type."""

    alert_id: str
    ce_id: str
    kind: str
    body: Mapping[str, Any]


class PreliminaryPublisher:
    """Tells preliminary alerts and answers. One lives at a time: a successor fences it."""

    def __init__(self, settings: Settings, packs: PackStore, holders: KnownHolders) -> None:
        self._settings = settings
        self._packs = packs
        self._holders = holders
        self._findings = settings.lake_root / FINDING.path
        self._answers = settings.lake_root / PRELIMINARY_ANSWER.path
        self._client: Producer | None = None
        self._place: Place | None = None
        self._batch: int | None = None
        self._reached: tuple[int, TablesReached] | None = None

    @property
    def waiting(self) -> int:
        """How many that were told have no answer yet, as far as it is known."""
        return 0 if self._place is None else len(self._place.waiting)

    def told_ahead(self) -> tuple[str, ...]:
        """Findings that were told before job `ingest` had them, as far as it is not known to.

        Such a one must be marked whatever else a batch chooses, or it would have no answer.
        """
        place = self._place
        if place is None:
            # What the broker knows besides is what was told in the last moment before a kill.
            place = place_file(self._settings).read()
        waiting = {} if place is None else place.waiting
        return tuple(sorted(key for key, each in waiting.items() if each.record is not None))

    @property
    def reached(self) -> TablesReached | None:
        """What ingest's tables have, as far as they were read; None: it is not known."""
        if self._batch is None:
            return None
        if self._reached is None or self._reached[0] != self._batch:
            planned = self._settings.checkpoint_root / INGEST / "spark" / "offsets"
            file = planned / str(self._batch)
            # Spark forgets the offsets of batches long ago; a later batch then says more.
            if not file.exists():
                return None
            self._reached = self._batch, offsets_of(file)
        return self._reached[1]

    def begin(self) -> None:
        """Note, before the first batch, that what is there already is not told: it is not new."""
        if self._place is None and place_file(self._settings).read() is None:
            place_file(self._settings).write(self._newest({}))

    def publish(self) -> int:
        """Send what the tables hold beyond our place; how many preliminary alerts and answers.

        Raises `Retryable` when the broker does not take it now (call again), `Fatal` when another
        one has taken over.
        """
        try:
            client = self._client or self._open()
            return self._send(client)
        except KafkaException as error:
            # A producer whose transaction failed may be fenced; the next call makes a new one.
            self._client = None
            raise named_error(error.args[0], self._settings) from None

    def _open(self) -> Producer:
        """Fence the predecessor first, then read its place: nobody can move it any more."""
        client = fenced_producer(self._settings, "preliminary")
        noted = None
        for message in read_all(self._settings, self._settings.kafka.progress_topic):
            value = message.value()
            if message.key() == self._key and value is not None:
                noted = read_place(value)
        kept = place_file(self._settings).read()
        self._place = self._of_this_lake(noted or kept or self._newest({}))
        self._batch = self._batch_of(self._place.findings.version)
        self._client = client
        return client

    def _batch_of(self, version: int) -> int | None:
        """The newest batch of job `ingest` up to a version of gold.finding."""
        for number in reversed([n for n in versions(self._findings) if n <= version]):
            marker = commit(self._findings, number).marker or {}
            if marker.get("job") == INGEST:
                return marker.get("batch")
        return None

    def _of_this_lake(self, place: Place) -> Place:
        """The place, or the newest one of a lake that came from a backup: what it tells is old."""
        tables = ((place.findings, self._findings), (place.answers, self._answers))
        if all(known.is_of(table) for known, table in tables):
            return place
        say(
            "job ingest: preliminary alerts were sent up to a version that this lake has not: an "
            "older lake was restored; they go on with new findings"
        )
        return self._newest(place.waiting)

    def _newest(self, waiting: dict[str, Waiting]) -> Place:
        return Place(_version(self._findings), _version(self._answers), waiting)

    @property
    def _key(self) -> bytes:
        # By the table's id: a lake made anew has a place of its own on the same broker.
        return f"preliminary/{table_id(self._findings)}".encode()

    def _send(self, client: Producer) -> int:
        place = self._place
        assert place is not None
        # Answers are listed before findings: whatever is answered there was found before, so it
        # is among the findings of this transaction or of an earlier one.
        answered = answers_since(self._settings, place.answers.version)
        commits = self._findings_since(place.findings.version)
        waiting = dict(place.waiting)
        messages = [
            *self._new_alerts(commits, waiting),
            *self._closed((row for _, rows in answered for row in rows), waiting),
        ]
        after = Place(
            _version(self._findings, commits[-1][0]) if commits else place.findings,
            _version(self._answers, answered[-1][0]) if answered else place.answers,
            waiting,
        )
        # Commits without news need no transaction; their place is noted with the next one.
        if messages:
            self._transact(client, messages, after)
            self._keep(after)
        self._place = after
        return len(messages)

    def _keep(self, place: Place) -> None:
        place_file(self._settings).write(place)
        self._place = place

    def _findings_since(self, since: int) -> list[tuple[int, list[dict[str, Any]]]]:
        """Findings to be told, by the version of their commit."""
        commits = []
        columns = [column.name for column in FINDING.columns]
        for version in versions(self._findings, since + 1):
            table_commit = commit(self._findings, version)
            rows: list[dict[str, Any]] = []
            with suppress(FileNotFoundError):  # cleaned away: too old to be news
                if (marker := table_commit.marker or {}).get("job") == INGEST:
                    self._batch = marker.get("batch", self._batch)
                    rows = added_rows(self._findings, table_commit, columns, present="answer_by")
            commits.append((version, rows))
        return commits

    def _new_alerts(
        self, commits: list[tuple[int, list[dict[str, Any]]]], waiting: dict[str, Waiting]
    ) -> Iterator[TopicEntry]:
        rows = [row for _, committed in commits for row in committed]
        if rows:
            self._holders.refresh()
        for row in rows:
            # Told already by a process that waited for no batch: it is in the table now.
            known = row["finding_id"] in waiting
            alert_id = preliminary_id(row, self._settings.alerts.tenant)
            waiting[row["finding_id"]] = Waiting(alert_id, row["rule_id"], micros(row["answer_by"]))
            if not known:
                yield self._entry(row)

    def _entry(self, row: Mapping[str, Any]) -> TopicEntry:
        """The preliminary alert of a finding, with the last known holder of its address."""
        tenant = self._settings.alerts.tenant
        holder = self._holders.holder(row["scope"], row["ip"], row["event_time"])
        body = preliminary_message(row, holder, _pack(self._packs.get, row["pack"]), tenant)
        alert_id = preliminary_id(row, tenant)
        return TopicEntry(alert_id, f"{alert_id}:0", "create", body)

    def _closed(
        self, answers: Iterator[Mapping[str, Any]], waiting: dict[str, Waiting]
    ) -> Iterator[TopicEntry]:
        """Answers to what waits, each once; also in place of those that nobody gives any more."""
        now = round(clock.time() * 1_000_000)
        yield from (self._answer(row) for row in answers if waiting.pop(row["finding_id"], None))
        for finding_id, each in list(waiting.items()):
            # Of a record that the tables have passed without a finding of it.
            gone = each.record is not None and self._in_tables(each.record)
            if gone or now > each.answer_by + GIVEN_UP:
                del waiting[finding_id]
                reason = NOT_FOUND if gone else UNANSWERED
                yield self._answer(given_up(each.alert_id, finding_id, each.rule_id, now, reason))

    def _in_tables(self, record: tuple[str, int, int]) -> bool:
        return is_before(self.reached or {}, record)

    def _answer(self, row: Mapping[str, Any]) -> TopicEntry:
        alert_id = row["alert_id"]
        body = answer_message(row, self._settings.alerts.tenant)
        return TopicEntry(alert_id, f"{alert_id}:answer", "answer", body)

    def _transact(self, client: Producer, messages: list[TopicEntry], after: Place) -> None:
        """Messages and the place behind them: none of them is seen without the others."""
        kafka, tenant = self._settings.kafka, self._settings.alerts.tenant
        now = clock.now().isoformat(timespec="milliseconds").replace("+00:00", "Z")
        with transaction(client):
            for each in messages:
                produce(
                    client,
                    kafka.preliminary_topic,
                    as_published(each.body, now),
                    # The alert's id as key keeps its answer in one partition with it, so behind it.
                    key=each.alert_id.encode(),
                    headers=cloud_event_headers(tenant, each.ce_id, f"{CE_TYPE}.{each.kind}", now),
                )
            produce(client, kafka.progress_topic, msgspec.json.encode(after), key=self._key)


def _version(table: Location, version: int | None = None) -> PublishOffset:
    return publish_offset.of(table, newest_version(table) if version is None else version)


def _pack(load: Callable[[str], RulePack], name: str) -> RulePack | None:
    try:
        return load(name)
    except Fatal:
        return None  # removed since: the message then tells what the finding knows


def is_before(ends: TablesReached, record: tuple[str, int, int]) -> bool:
    """Whether a record, by topic, partition and offset, lies before the ends of its topic."""
    topic, partition, offset = record
    return offset < ends.get((topic, partition), 0)
