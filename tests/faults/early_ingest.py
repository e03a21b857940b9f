"""Jobs `ingest` and `alert` as who tells early sees them: raw records to findings, to answers.

Without Spark; the records, their events and their findings are made by the code that runs there.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
from confluent_kafka import Consumer, Message, TopicPartition

from alerts.matching.detection import detection
from alerts.preliminary.answer import preliminary_id
from alerts.preliminary.lane import MarkingLane
from alerts.preliminary.selection import Selection, selection_of
from alerts.rulebook.rule_store import rule_store
from alerts.tables import FINDING, PRELIMINARY_ANSWER
from infra.checkpoint.batch_decisions import write_decision
from infra.config.settings import Settings
from infra.delta.parquet_writer import arrow_schema
from infra.kafka.client import client_options, source_of
from infra.storage.atomic_files import write_whole
from infra.streaming.kafka_offsets import OffsetReader
from ingest.parsing.arrow_parser import Parser
from ingest.parsing.source import ParseSettings
from ingest.tables import RECORD
from tests.faults.early_outbox import ByHand


class Jobs:
    """Both jobs over one topic of one partition.

    `marked`: what ingest had to be told, by finding; `dropped`: offsets that it makes no finding
    of, as of an event that was delivered twice.
    """

    def __init__(self, settings: Settings, topic: str) -> None:
        self.marked: dict[str, str] = {}
        self.dropped: set[int] = set()
        self._settings, self._topic = settings, topic
        self._packs = rule_store(settings)
        self._spool = str(settings.home / "rule_cost")
        self._findings = ByHand(settings, FINDING)
        self._answers = ByHand(settings, PRELIMINARY_ANSWER)
        self._parser = Parser(ParseSettings.of(settings))
        self._next, self._batch = 0, -1
        self._planned: list[Message] | None = None
        self._chosen: Selection | None = None
        self._unanswered: list[dict[str, Any]] = []
        MarkingLane(settings, self._packs).begun()

    def plan(self, choose: Callable[[], dict[str, Any] | None]) -> None:
        """Plan a batch of all there is, and let it decide; `ingest` then runs it again."""
        self._planned = self._arrived()
        self._batch += 1
        if self._planned:
            self._next = self._planned[-1].offset() + 1  # type: ignore[operator]
        folder = self._settings.checkpoint_root / "ingest"
        write_whole(
            folder / "spark" / "offsets" / str(self._batch),
            f'v1\n{{"batchTimestampMs":1}}\n{json.dumps({self._topic: {"0": self._next}})}\n',
        )
        decided = {"pack": self._packs.current(), "preliminary": choose()}
        write_decision(folder, self._batch, decided)
        self._chosen = selection_of(decided["preliminary"])

    def ingest(self) -> int:
        """One batch of all there is: planned, then committed; how many records it has."""
        if self._planned is None:
            self.plan(MarkingLane(self._settings, self._packs).choose)
        messages, self._planned = self._planned or [], None
        rows = self._found(messages)
        self._findings.append("ingest", *rows, batch=self._batch)
        for row in rows:
            if row["answer_by"] is not None:
                self.marked[row["finding_id"]] = preliminary_id(row, "default")
                self._unanswered.append(row)
        return len(messages)

    def answer(self, most: int = 1_000_000) -> None:
        """One batch of job `alert`: each marked finding is confirmed."""
        rows, self._unanswered = self._unanswered[:most], self._unanswered[most:]
        now = datetime.now(UTC)
        self._answers.append("alert", *[
            {"alert_id": self.marked[row["finding_id"]], "answer": "confirmed", "revision": 1,
             "answered_at": now} | {k: row[k] for k in ("finding_id", "rule_id", "answer_by")}
            for row in rows
        ])  # fmt: skip

    def _found(self, messages: list[Message]) -> list[dict[str, Any]]:
        kept = [message for message in messages if message.offset() not in self.dropped]
        topic_id = OffsetReader(self._settings.kafka).ids([self._topic])[self._topic]
        rows = [
            {
                "record_id": f"{topic_id}:0:{message.offset()}",
                "source": source_of(self._topic, self._settings.kafka),
                "mode": "live",
                "received_at": datetime.fromtimestamp(message.timestamp()[1] / 1000, UTC),
                "raw": message.value(),
            }
            for message in kept
        ]
        pack = self._packs.current()
        find = detection(str(self._packs.folder), pack, self._spool, self._chosen)
        records = pa.RecordBatch.from_pylist(rows, schema=arrow_schema(RECORD))
        return [row for events in self._parser(records) for row in find(events)[0].to_pylist()]

    def _arrived(self) -> list[Message]:
        options = {"group.id": "fake", "enable.auto.commit": False, "enable.partition.eof": True}
        consumer = Consumer({**client_options(self._settings.kafka), **options})
        consumer.assign([TopicPartition(self._topic, 0, self._next)])
        messages = []
        while (message := consumer.poll(20)) is not None and message.error() is None:
            messages.append(message)
        consumer.close()
        return messages
