"""Whether the broker's log is still the one that was read.

A broker writes to its disk when it pleases. When its machine loses power, messages that were read
already may be gone, and new ones get their offsets; offsets tell of that only for as long as the
log is shorter than what was read. So messages as bronze has them are compared with those that the
broker has at their offsets now.
"""

from __future__ import annotations

import json
import time
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from infra.checkpoint.batch_decisions import decided, decisions_file
from infra.checkpoint.offset_log import numbers
from infra.config.settings import KafkaSettings
from infra.delta.log_reader import newest_first
from infra.errors import Retryable
from infra.kafka.client import client_options
from infra.storage.paths import Location, to_read
from infra.streaming.kafka_offsets import BrokerRange, Checkpoint, TopicPartitionKey, offsets_of

_SECONDS = 20.0
"""A broker that gives none of its messages for so long does not answer."""
NEAR = 1_000
"""Messages that are read through in about the time that it takes to go to another place."""
_END = 2**63 - 1
"""Behind all messages."""


def first_new(
    bronze: Location,
    at: Checkpoint,
    held: Mapping[TopicPartitionKey, BrokerRange],
    kafka: KafkaSettings,
) -> dict[TopicPartitionKey, int]:
    """By partition whose log is not the one that was read: its first message that is another.

    `bronze`: the table's folder. Looks as far back as the checkpoint keeps batches; messages of
    which bronze no longer has the file that a batch wrote count as the same. Raises `Retryable`
    when the broker gives no messages.
    """
    bronze_log = _Bronze(bronze, at)
    taken = {place: runs for place, runs in _taken(at).items() if place in held}
    sought = {place: bronze_log.newest(place, runs, held[place]) for place, runs in taken.items()}
    newest = {place: place_row for place, place_row in sought.items() if place_row is not None}
    if not newest:
        return {}
    with closing(PartitionLog(kafka)) as log:
        now = log.messages({place: offset for place, (_, offset) in newest.items()})
        others = [entry for entry in now if bronze_log.differs(entry, *newest[entry], now[entry])]
        return {
            place: _first(place, taken[place], held[place], bronze_log, log) for place in others
        }


@dataclass(frozen=True)
class _Run:
    """What one batch took from a partition: `[begin, end)`."""

    batch: int
    begin: int
    end: int


def _taken(at: Checkpoint) -> dict[TopicPartitionKey, list[_Run]]:
    """What batches took, the newest first, as far back as the checkpoint keeps them.

    Not beyond one that went on behind a gap: what lies before it may rightly be gone.
    """
    folder = at.folder / "spark" / "offsets"
    kept = sorted(number for number in numbers(folder) if number <= (at.done or 0))
    ends = {number: offsets_of(folder / str(number)) for number in kept}
    results: dict[TopicPartitionKey, list[_Run]] = {}
    closed: set[TopicPartitionKey] = set()
    for number in reversed(kept):
        # Spark keeps only so many batches; of the oldest it is not known where it began.
        if number and number - 1 not in ends:
            break
        before = ends.get(number - 1, {})
        moved = {place for place, end in ends[number].items() if end != before.get(place, 0)}
        if "gaps" in _decided(at, number):
            closed |= moved
        for place in moved - closed:
            run = _Run(number, before.get(place, 0), ends[number][place])
            results.setdefault(place, []).append(run)
    return results


def _decided(at: Checkpoint, number: int) -> Mapping[str, Any]:
    there = decisions_file(at.folder, number).exists()
    return decided(at.folder, number) if there else {}


def _first(
    place: TopicPartitionKey,
    runs: Sequence[_Run],
    held: BrokerRange,
    bronze_log: _Bronze,
    log: PartitionLog,
) -> int:
    """The first message that is another, by halving: all after it are others too."""

    def other(run: _Run, offset: int) -> bool:
        now = log.messages({place: offset})
        return place in now and bronze_log.differs(place, run, offset, now[place])

    end = held.end
    for run in runs:
        offsets = bronze_log.offsets(place, run, held)
        # A log loses its end, never its middle: so what differs is all behind one place.
        same = bisect_left(offsets, True, key=partial(other, run))
        if same < len(offsets):
            end = offsets[same]
        if same:
            break
    return end


class _Bronze:
    """Records of bronze by their places in Kafka, from the files that batches wrote."""

    def __init__(self, folder: Location, at: Checkpoint) -> None:
        facts = at.folder / "spark" / "metadata"
        self._query = json.loads(facts.read_text("utf-8"))["id"] if facts.exists() else None
        self._folder = folder
        self._commits = newest_first(folder)
        self._files: dict[int, tuple[Location, ...]] = {}

    def newest(
        self, place: TopicPartitionKey, runs: Sequence[_Run], held: BrokerRange
    ) -> tuple[_Run, int] | None:
        """The newest message that the broker could still have, and the run that took it."""
        for run in runs:
            if offsets := self.offsets(place, run, held):
                return run, offsets[-1]
        return None

    def offsets(self, place: TopicPartitionKey, run: _Run, held: BrokerRange) -> list[int]:
        """Messages of a run that the broker could still have, ascending."""
        begin, end = max(run.begin, held.first), min(run.end, held.end)
        within = [("offset", ">=", begin), ("offset", "<", end)]
        return sorted(self._column("offset", place, run, within)) if begin < end else []

    def differs(self, place: TopicPartitionKey, run: _Run, offset: int, raw: bytes | None) -> bool:
        """Whether the record from there has other bytes."""
        return raw not in self._column("raw", place, run, [("offset", "==", offset)])

    def _column(
        self, name: str, place: TopicPartitionKey, run: _Run, within: list[Any]
    ) -> list[Any]:
        filters = [("topic", "==", place[0]), ("partition", "==", place[1]), *within]
        results: list[Any] = []
        for file in self._of(run.batch):
            # A file that is gone, as after an erasure, or that is damaged says nothing.
            with suppress(FileNotFoundError, pa.ArrowInvalid):
                rows = pq.read_table(to_read(file), columns=[name], filters=filters)
                results += rows.column(name).to_pylist()
        return results

    def _of(self, batch: int) -> tuple[Location, ...]:
        while batch not in self._files:
            commit = next(self._commits, None)
            if commit is None:
                return ()
            marker = commit.marker or {}
            if (marker.get("job"), marker.get("query")) == ("ingest", self._query):
                files = tuple(self._folder / name for name in commit.adds)
                self._files.setdefault(marker["batch"], files)
                # Commits come newest first, so an older one means that this batch wrote no file.
                if marker["batch"] < batch:
                    self._files.setdefault(batch, ())
        return self._files[batch]


class PartitionLog:
    """The broker's messages, one of a partition at a time."""

    def __init__(self, kafka: KafkaSettings) -> None:
        self._reader = Consumer(
            {
                **client_options(kafka),
                "group.id": "headgate-log",
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                # Else the client would go to another place by itself, and compare other messages.
                "auto.offset.reset": "error",
                # As Spark reads: else there is no message behind a transaction that is open.
                "isolation.level": "read_uncommitted",
                # One message of each partition is wanted, not what comes after it.
                "queued.max.messages.kbytes": 1024,
                # Else going to another place waits for an answer about messages to come.
                "fetch.wait.max.ms": 10,
                "log_level": 3,
            }
        )

    def messages(
        self, offsets: Mapping[TopicPartitionKey, int]
    ) -> dict[TopicPartitionKey, bytes | None]:
        """The messages at these offsets; one that is not there is missing in the answer."""
        first = self.first(offsets)
        return {
            place: message.value()
            for place, message in first.items()
            if message.offset() == offsets[place]
        }

    def first(self, offsets: Mapping[TopicPartitionKey, int]) -> dict[TopicPartitionKey, Message]:
        """The first message of each partition from an offset on; one that has none there is
        missing in the answer."""
        messages: dict[TopicPartitionKey, Message] = {}
        waiting = {*offsets}
        end = time.monotonic() + _SECONDS
        try:
            self._reader.assign([TopicPartition(*key, offset) for key, offset in offsets.items()])
            while waiting:
                if time.monotonic() > end:
                    raise Retryable(f"the broker gives no messages of {min(waiting)[0]}")
                message = self._reader.poll(1.0)
                if message is None:
                    continue
                place = str(message.topic()), int(message.partition() or 0)
                # The client may have fetched more of a partition before it was unassigned.
                if place not in waiting:
                    continue
                if message.error() is None:
                    messages[place] = message
                # The end of a partition is an answer too: there is no message from there on.
                waiting.discard(place)
                self._reader.incremental_unassign([TopicPartition(*place)])
        except KafkaException as error:
            raise Retryable(f"the broker gives no messages: {error.args[0].str()}") from None
        return messages

    def walk(self, place: TopicPartitionKey, offsets: Iterable[int], budget: int) -> dict[int, int]:
        """By offset of a partition: that of the first message from there on, `END` if none is.

        Asks for as many, in the order given, as `budget` messages are read for: where the next
        one is not far it reads on, and to go there costs as much as `NEAR` of them. Raises
        `Retryable` when the broker does not say.
        """
        results: dict[int, int] = {}
        before, position, spent = 0, -1, 0
        try:
            for wanted in offsets:
                if spent >= budget:
                    break
                begun = position
                if position < 0 or not before <= wanted <= position + NEAR:
                    self._reader.unassign()
                    self._reader.assign([TopicPartition(*place, wanted)])
                    begun = position = -1
                while position < wanted:
                    position = self._next(place)
                spent += NEAR if begun < 0 else min(position - begun, NEAR)
                results[wanted], before = position, wanted
            self._reader.unassign()
        except KafkaException as error:
            raise Retryable(f"the broker gives no messages: {error.args[0].str()}") from None
        return results

    def _next(self, place: TopicPartitionKey) -> int:
        end = time.monotonic() + _SECONDS
        while time.monotonic() < end:
            message = self._reader.poll(1.0)
            if message is None or (message.topic(), message.partition()) != place:
                continue
            error = message.error()
            if error is None:
                return int(message.offset() or 0)
            if error.code() == KafkaError._PARTITION_EOF:
                return _END
            raise Retryable(f"the broker gives no messages of {place[0]}: {error.str()}")
        raise Retryable(f"the broker gives no messages of {place[0]}")

    def close(self) -> None:
        """End the client."""
        self._reader.close()
