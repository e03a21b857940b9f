"""gold.alert to its topics: each revision once, in order for an alert, through any crash.

The table is the outbox. What one commit of it added goes out in one Kafka
transaction together with the publisher's place (a version of the table, and what is held back
behind damaged revisions), so a `read_committed` consumer sees both or neither, and a successor
goes on exactly there. Where the broker was lost, a file has the place
(`alerts.delivery.publish_offset`); where the lake was, and comes from a backup, what goes out is
compared with what was heard (`alerts.lifecycle.republish_guard`). Sources: KIP-98 (transactions),
CloudEvents 1.0 Kafka binding.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import fields, replace
from itertools import chain
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from confluent_kafka import KafkaError, KafkaException, Producer

from alerts.delivery import publish_offset
from alerts.delivery.alert_message import Revision, revision_headers
from alerts.delivery.held_back import (
    Held,
    OutgoingRevision,
    held_sentence,
    left_out,
    let_go,
    looked_at,
    sort_out,
    within,
)
from alerts.delivery.publish_offset import SET, AlertOffset
from alerts.domain.alert_body import PUT_BACK
from alerts.lifecycle import republish_guard
from alerts.tables import ALERT
from infra.config.settings import Settings
from infra.delta.duckdb_views import AskedViews
from infra.delta.log_reader import (
    Commit,
    commit,
    newest_version,
    oldest_version,
    table_id,
    versions,
)
from infra.errors import Fatal, HeadgateError, Retryable
from infra.kafka.auth import denied, lacking
from infra.kafka.client import produce, require_broker
from infra.kafka.transactions import TRANSACTION_SECONDS, fenced_producer, read_all, transaction
from infra.process.log import News, say
from infra.storage.checksums import json_object
from infra.storage.paths import Location, to_read

LOOK_SECONDS = 30.0
"""How often it is looked whether a damaged revision was repaired or left out, while nothing comes;
with a batch it is looked at once what was left out."""


class Publisher:
    """Publishes commits of gold.alert in order. One lives at a time: a successor fences it."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._table = settings.lake_root / ALERT.path
        self._client: Producer | None = None
        self._place = AlertOffset(-1)
        self._kept: AlertOffset | None = None
        self._published: republish_guard.PublishedRevision | None = None
        self._began: int | None = None
        self._left: frozenset[str] | None = None
        """What was left out when it was last looked what is held back no longer."""
        self._look_at = 0.0
        self._unread = News()

    def begin(self) -> None:
        """Look at table and broker before the first batch writes; a second call does nothing.

        Of a new table it is noted that nothing was published: later nobody could tell. That the
        lake came from a backup is noticed here where the broker answers, else when it does; what
        batches make from then on has numbers behind those that were heard. Raises `Fatal` when
        our place is known nowhere.
        """
        if self._began is not None:
            return
        self._began = newest_version(self._table)
        if self._began < 0:
            return
        known = publish_offset.publish_offset_file(self._settings).exists()
        # Only while the table has told nothing: else a lost file would look like a fresh start.
        if not known and not publish_offset.has_rows(self._table, self._began):
            self._keep(AlertOffset(-1))
        try:
            require_broker(self._settings.kafka)
        except HeadgateError:
            return  # publishing will say so
        # Batches must not wait for the broker; `publish` opens it again and says what is wrong.
        with suppress(KafkaException, Retryable):
            self._open()

    def published_before_restore(self) -> str | None:
        """Name of the file with what consumers had before the restore; None where none was."""
        known = self._kept or self._by_file()
        if known is None or not known.compared:
            return None
        file = republish_guard.guard_file(self._settings)
        return file.name if file.exists() else None

    def publish(self) -> int:
        """Send what the table holds beyond our place; returns how many revisions.

        A revision whose body is damaged is held back, with all later ones of its alert
        (`held_back`), until it can go out or a person leaves it out. Raises `Retryable` when the
        broker does not take it now (call again), `Fatal` when our place is known nowhere, when
        the table's log no longer reaches back to it, or when another publisher has taken over,
        `DamagedAlert` when too much would be held back.
        """
        self.begin()
        try:
            client = self._client or self._open()
            sent = self._let_go(client)
            for version in self._pending():
                sent += self._send(client, version)
            if self._place != self._kept and self._place.compared:
                # Of what was heard already others, too, must see that it waits no more.
                self._set(client, self._place)
        except KafkaException as error:
            # A producer whose transaction failed may be fenced; the next call makes a new one.
            self._client = None
            raise named_error(error.args[0], self._settings) from None
        if self._place != self._kept:
            self._keep(self._place)  # versions that told nothing
        return sent

    def held_back(self) -> str:
        """What is held back behind damaged revisions, as a person is told; empty: nothing is."""
        return held_sentence(self._place.held)

    def places(self) -> tuple[AlertOffset | None, AlertOffset | None]:
        """Our place by the topic and by the file; None: it is not there, or cannot be read."""
        return self._noted(), self._by_file()

    def move(self, version: int) -> None:
        """Let what the table has up to a version count as published, on a person's word.

        In a lake from a backup that no driver has seen yet, what goes out behind it is compared
        with what was heard, as it is otherwise. What is held back up to it stays so: it is there.
        """
        try:
            client = self._fence()
            was = [place for place in self.places() if place is not None]
            restored = not all(place.is_of(self._table) for place in was)
            compared = restored or any(place.compared for place in was)
            ours = [place for place in was if place.is_of(self._table)] or was
            held = self._still_held(ours[0].held, version) if ours else {}
            there = publish_offset.alerts_up_to(self._table, version, held, compared=compared)
            if restored:
                self._note_published(there)
            self._set(client, there)
        except KafkaException as error:
            raise named_error(error.args[0], self._settings) from None

    def _fence(self) -> Producer:
        """From here on no predecessor can move its place."""
        return fenced_producer(self._settings, "alerts")

    def _open(self) -> Producer:
        """Fence the predecessor first, then read its place: nobody can move it any more."""
        client = self._fence()
        # Read after the fence. Before it, the predecessor could still move its place.
        noted = self._noted()
        known = self._known(noted)
        if known.compared:
            self._compare(known)
        if known != noted and known.version >= 0:
            self._set(client, known)
        self._keep(known)
        self._place = known
        self._client = client
        return client

    def _noted(self) -> AlertOffset | None:
        """What our predecessor published, as the broker has it."""
        content = None
        for message in read_all(self._settings, self._settings.kafka.progress_topic):
            value = message.value()
            if message.key() == self._key and value is not None:
                content = publish_offset.read_marker(json_object(value.decode()))
        return content

    def _by_file(self) -> AlertOffset | None:
        with suppress(Fatal):
            return publish_offset.read_publish_offset(self._settings, self._table)
        return None

    def _known(self, noted: AlertOffset | None) -> AlertOffset:
        """Where to go on: behind what the broker names; where it does not, behind what the file
        does. Where the lake has not what was published there, behind what both have."""
        table, settings = self._table, self._settings
        kept = self._by_file() if noted else publish_offset.read_publish_offset(settings, table)
        known = noted or kept
        if known is None:
            return self._first()
        if not known.is_of(table):
            return self._restored(known, kept)
        if noted is None and publish_offset.has_rows(table, known.version):
            say(
                f"job alert: topic {settings.kafka.progress_topic} does not say up to where "
                f"gold.alert is published; {publish_offset.publish_offset_file(settings)} does: "
                "up to version "
                f"{known.version}; alerts go on behind it"
            )
        # What was between had nothing to tell, or went out by a broker that has lost it since.
        if kept and known.version + 1 < oldest_version(table) <= kept.version + 1:
            return kept
        return known

    def _first(self) -> AlertOffset:
        if not publish_offset.has_rows(self._table, newest_version(self._table)):
            return AlertOffset(-1)
        raise Fatal(
            f"gold.alert has alerts, and neither topic {self._settings.kafka.progress_topic} nor "
            f"{publish_offset.publish_offset_file(self._settings)} says up to which version they "
            "were "
            f"published, as with a broker made anew; {SET}"
        )

    def _restored(self, known: AlertOffset, kept: AlertOffset | None) -> AlertOffset:
        """The place in a lake from a backup, and what consumers had beyond it, written down."""
        if kept is not None and kept.version < known.version and kept.is_of(self._table):
            since, held = kept.version, kept.held
        else:  # a backup of an earlier release, which kept no file
            since, held = min(known.version, self._began or 0), known.held
        held = self._still_held(held, since)
        result = publish_offset.alerts_up_to(self._table, since, held, compared=True)
        alerts = self._note_published(result)
        say(
            f"job alert: gold.alert was published up to version {known.version}, which this lake "
            f"has not: an older lake was restored; after version {since} only what was not "
            f"published before goes out ({alerts:,} alerts were published beyond it)"
        )
        return result

    def _still_held(self, held: Held, version: int) -> Held:
        """Of what is held back that which commits up to a version brought."""
        if not held:
            return held
        with AskedViews(self._settings.lake_root) as views:
            later = ((each.alert_id, each.revision) for each in self._behind(version))
            return within(views.rows, held, later)

    def _behind(self, version: int) -> Iterator[Revision]:
        later = versions(self._table, version + 1)
        return chain.from_iterable(
            revisions_of(self._table, commit(self._table, each)) for each in later
        )

    def _note_published(self, since: AlertOffset) -> int:
        states = read_all(self._settings, self._settings.kafka.state_topic)
        # What is held back, too, is compared when it goes out.
        behind = (revision.alert_id for revision in self._behind(since.version))
        waiting = chain(since.held, behind)
        return republish_guard.note_published(self._settings, states, waiting)

    def _compare(self, since: AlertOffset) -> None:
        if not republish_guard.guard_file(self._settings).exists():
            self._note_published(since)
        if self._published is not None:
            self._published.close()
        self._published = republish_guard.PublishedRevision(
            republish_guard.guard_file(self._settings)
        )

    def _set(self, client: Producer, where: AlertOffset) -> None:
        """Note a place in a transaction of its own, and in the file."""
        client.begin_transaction()
        self._mark(client, where)
        client.commit_transaction(TRANSACTION_SECONDS)
        self._keep(where)

    def _keep(self, where: AlertOffset) -> None:
        publish_offset.write_publish_offset(self._settings, self._table, where)
        self._kept = where

    @property
    def _key(self) -> bytes:
        # By the table's id: a lake made anew has a place of its own on the same broker.
        return f"gold.alert/{table_id(self._table)}".encode()

    def _pending(self) -> list[int]:
        published = self._place.version
        pending = versions(self._table, published + 1)
        # A hole means that log entries were cleaned away before they were published.
        if pending and len(pending) != pending[-1] - published:
            raise Fatal(
                f"gold.alert was published up to version {published}, but its log now begins "
                f"at {pending[0]}: versions between were never published; read them from the "
                f"table, and 'headgate alerts published --up-to {pending[0] - 1}' goes on behind"
            )
        return pending

    def _send(self, client: Producer, version: int) -> int:
        table_commit = commit(self._table, version)
        new_revisions = [
            each for each in revisions_of(self._table, table_commit) if self._is_news(each)
        ]
        held = self._place.held
        # Looked up with each commit: a person may leave one out while the driver runs.
        going, held_then = sort_out(new_revisions, held, left_out(self._settings), version)
        there = AlertOffset(version, table_commit.digest, self._place.compared, held_then)
        if going or held_then != held:
            self._transact(client, going, there)
        else:
            # A commit without news needs no transaction; its place is noted with the next one.
            self._place = there
        for alert_id in held_then.keys() - held.keys():
            say(f"job alert: {held_sentence({alert_id: held_then[alert_id]})}")
        return len(going)

    def _transact(
        self, client: Producer, going: Sequence[OutgoingRevision], there: AlertOffset
    ) -> None:
        # Alerts, their states and the place in one transaction: none of them is seen without
        # the others.
        with transaction(client):
            for each in going:
                self._produce(client, each)
            self._mark(client, there)
        # Only behind the commit: what failed is sent again from the former place.
        self._place = there
        self._keep(there)

    def _let_go(self, client: Producer) -> int:
        """Send what a damaged revision held back that is repaired or left out now."""
        if not self._place.held:
            return 0
        left = left_out(self._settings)
        if left == self._left and time.monotonic() < self._look_at:
            return 0
        import duckdb

        try:
            with AskedViews(self._settings.lake_root) as views:
                sent = sum(
                    self._let_go_of(client, views, alert_id, left)
                    for alert_id in looked_at(views.rows, self._place.held, left, self._is_news)
                )
        except (Retryable, duckdb.Error) as error:
            # Other alerts do not wait for it.
            self._unread.tell(f"job alert: what is held back cannot be looked at now: {error}")
            return 0
        self._left, self._look_at = left, time.monotonic() + LOOK_SECONDS
        return sent

    def _let_go_of(
        self, client: Producer, views: AskedViews, alert_id: str, left: frozenset[str]
    ) -> int:
        sent = 0
        while (hold := self._place.held.get(alert_id)) is not None:
            going, then = let_go(views.rows, alert_id, hold, left, self._is_news)
            if then == hold:
                break
            others = {key: each for key, each in self._place.held.items() if key != alert_id}
            there = replace(self._place, held=others if then is None else others | {alert_id: then})
            self._transact(client, going, there)
            sent += len(going)
        return sent

    def _is_news(self, revision: Revision) -> bool:
        return self._published is None or not self._published.has(
            revision.alert_id, revision.revision
        )

    def _produce(self, client: Producer, going: OutgoingRevision) -> None:
        revision = going.revision
        # The alert's id as key keeps its revisions in one partition, so in order.
        key, kafka = revision.alert_id.encode(), self._settings.kafka
        headers = revision_headers(
            self._settings.alerts.tenant,
            (revision.alert_id, revision.revision),
            revision.activity,
            going.published_at,
            revision.sequence,
        )
        produce(client, kafka.alerts_topic, going.body, key=key, headers=headers)
        produce(client, kafka.state_topic, going.state, key=key)

    def _mark(self, client: Producer, where: AlertOffset) -> None:
        topic = self._settings.kafka.progress_topic
        produce(client, topic, where.text().encode(), key=self._key)


def revisions_of(table: Location, table_commit: Commit) -> Iterator[Revision]:
    """What a commit tells, in order for an alert; raises `Retryable` where it cannot be read."""
    names = [*(field.name for field in fields(Revision)), "suppressed_by"]
    rows: list[dict[str, Any]] = []
    # What puts files in others' place, as an erasure does, tells nothing new.
    # Read straight from the commit's files: Spark would plan a job for a few rows.
    for name in table_commit.adds if table_commit.appends else ():
        try:
            rows += pq.read_table(to_read(table / name), columns=names).to_pylist()
        except (OSError, pa.ArrowException, UnicodeDecodeError) as error:
            # Not fatal: batches go on meanwhile, and what a person puts back is read.
            raise Retryable(
                f"gold.alert, version {table_commit.version}: {table / name} cannot "
                f"be read ({str(error)[:200]}), and alerts from it on wait. Put it back from "
                f"a backup: {PUT_BACK}"
            ) from None
    revisions = [row for row in rows if row.pop("suppressed_by", None) is None]
    # Files of a commit come in any order; consumers are promised revisions in order.
    revisions.sort(key=lambda row: (row["alert_id"], row["revision"]))
    return (Revision(**row) for row in revisions)


def published(settings: Settings) -> int:
    """Newest version of gold.alert that went out, -1 for none; a publisher is not disturbed."""
    noted, kept = Publisher(settings).places()
    # One that this lake has not is of the lake that was there before a restore.
    ours = noted is not None and noted.is_of(settings.lake_root / ALERT.path)
    known = noted if ours else kept or noted
    return -1 if known is None else known.version


def named_error(error: KafkaError, settings: Settings) -> Exception:
    """What kept alerts from being published, as an error of ours."""
    if error.code() in (KafkaError._FENCED, KafkaError.PRODUCER_FENCED):
        return Fatal("another publisher of this tenant has taken over; stop one of the two drivers")
    if denied(error):
        # A right that is given later lets the job go on by itself.
        return Retryable(str(lacking(settings.kafka, f"publish alerts ({error.str()})")))
    return Retryable(f"alerts could not be published now: {error.str()}")
