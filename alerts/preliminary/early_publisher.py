"""Tells findings before job `ingest` has them, beside what its tables hold, each once.

A record that ingest's tables have, as far as we have read them, is never told: what of it is
to be told, the table says. One beyond is told at once and noted as waiting, with its place
on the raw topic, in the same transaction. So when its finding comes in the table it is known, and
when the table has passed the record without it, it is withdrawn. Whoever restarts reads the raw
topics from where the table ends, and what was told beyond that is known.

A batch that runs again marks what it once chose. Where that is less than we would tell, as behind
a change of `alerts.preliminary_by`, its records are left to the table as if it had them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from confluent_kafka import KafkaException, Producer

from alerts.delivery.publisher import named_error
from alerts.domain.entity import entity_of, micros
from alerts.domain.finding import identity
from alerts.lifecycle.suppression import Suppression, covering
from alerts.preliminary.answer import preliminary_id
from alerts.preliminary.known_holders import KnownHolders
from alerts.preliminary.place import Place, Waiting
from alerts.preliminary.publisher import (
    INGEST,
    MOST_WAITING,
    PreliminaryPublisher,
    TablesReached,
    TopicEntry,
    is_before,
)
from alerts.preliminary.selection import marks_all
from alerts.rulepack.rule_pack import PackStore
from infra.checkpoint.batch_decisions import decided, decisions_file
from infra.checkpoint.offset_log import numbers
from infra.config.settings import Settings
from infra.delta.log_reader import newest_version
from infra.errors import Retryable
from infra.process.log import say
from infra.streaming.kafka_offsets import TopicPartitionKey, offsets_of


class EarlyFinding(NamedTuple):
    """A finding of a raw record: a row of gold.finding with `answer_by`, and where it was read."""

    row: Mapping[str, Any]
    record: tuple[str, int, int]


class EarlyPublisher(PreliminaryPublisher):
    """`PreliminaryPublisher` for a process that reads raw records itself. One lives at a time.

    `suppressions`: gives those in force; None where they cannot be read, and then none is told.
    """

    def __init__(
        self,
        settings: Settings,
        packs: PackStore,
        holders: KnownHolders,
        suppressions: Callable[[], Sequence[Suppression] | None],
    ) -> None:
        super().__init__(settings, packs, holders)
        self._suppressions = suppressions

    def _left_to_tables(self) -> TablesReached:
        """Up to where batches under way will not mark all that we would tell."""
        folder = self._settings.checkpoint_root / INGEST
        left: dict[TopicPartitionKey, int] = {}
        since = -1 if self._batch is None else self._batch
        for number in sorted(numbers(folder / "spark" / "offsets")):
            if number <= since or not decisions_file(folder, number).exists():
                continue
            decision = decided(folder, number)
            # One without the key decides it when it runs again, by the settings of now.
            if "preliminary" in decision and not marks_all(decision["preliminary"], self._settings):
                left |= offsets_of(folder / "spark" / "offsets" / str(number))
        return left

    def tell(self, early: Iterable[EarlyFinding]) -> int:
        """Tell those that nobody knows yet; how many. Raises as `publish`."""
        try:
            client = self._client or self._open()
            return self._send_new(client, early)
        except KafkaException as error:
            # Whether it was committed is not known: the next call reads our place again.
            self._client = None
            raise named_error(error.args[0], self._settings) from None

    def _send_new(self, client: Producer, early: Iterable[EarlyFinding]) -> int:
        place = self._place
        assert place is not None
        waiting = dict(place.waiting)
        new = [each for each in early if not self._in_tables(each.record)]
        if new:
            left = self._left_to_tables()
            new = [each for each in new if not is_before(left, each.record)]
        records = {each.row["finding_id"]: each.record for each in new}
        messages = list(self._new([each.row for each in new], waiting, records))
        if messages:
            after = Place(place.findings, place.answers, waiting)
            self._transact(client, messages, after)
            self._keep(after)
        return len(messages)

    def _open(self) -> Producer:
        if newest_version(self._findings) < 0:
            raise Retryable("the lake has no gold.finding yet, which job ingest makes")
        return super()._open()

    def _new_alerts(
        self, commits: list[tuple[int, list[dict[str, Any]]]], waiting: dict[str, Waiting]
    ) -> Iterator[TopicEntry]:
        rows = []
        for row in (row for _, committed in commits for row in committed):
            known = waiting.get(row["finding_id"])
            if known is None:
                rows.append(row)
            else:  # told already; from now on job `alert` answers it
                waiting[row["finding_id"]] = Waiting(
                    known.alert_id, known.rule_id, known.answer_by, None, known.about
                )
        # Of a joined event, of a record that came while we were away: the table tells it.
        rows.sort(key=lambda row: (micros(row["event_time"]), row["finding_id"]))
        yield from self._new(rows, waiting, {})

    def _new(
        self,
        rows: Sequence[Mapping[str, Any]],
        waiting: dict[str, Waiting],
        records: Mapping[str, tuple[str, int, int]],
    ) -> Iterator[TopicEntry]:
        """Of these findings those worth telling: of a rule and entity one as long as it waits."""
        suppressions = self._suppressions() if rows else ()
        if suppressions is None:
            return
        if rows:
            self._holders.refresh()
        tenant = self._settings.alerts.tenant
        open_ones = {each.about for each in waiting.values()}
        for row in rows:
            entity = entity_of(row, None)
            about = identity(row["rule_id"], entity.key)
            silenced = covering(suppressions, row, entity, None) is not None
            if row["finding_id"] in waiting or about in open_ones or silenced:
                continue
            if len(waiting) >= MOST_WAITING:
                say(
                    f"preliminary alerts: {MOST_WAITING:,} wait for their answer, so no more are "
                    "made; look at job alert (headgate status)"
                )
                return
            open_ones.add(about)
            waiting[row["finding_id"]] = Waiting(
                preliminary_id(row, tenant),
                row["rule_id"],
                micros(row["answer_by"]),
                records.get(row["finding_id"]),
                about,
            )
            yield self._entry(row)
