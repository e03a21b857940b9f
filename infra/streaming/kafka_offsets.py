"""Where a job stands in Kafka: its checkpoint's offsets, and what the broker still has.

Source of the form: Spark's offset log (`v1`, a line of metadata, a line for each source) and
its Kafka source's offsets, `{topic: {partition: next offset}}`.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from confluent_kafka import KafkaError, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # OffsetSpec: public, not listed
    AdminClient,
    ConfigResource,
    OffsetSpec,
)

from infra.checkpoint.batch_decisions import decided
from infra.checkpoint.offset_log import numbers
from infra.config.settings import KafkaSettings
from infra.errors import Retryable
from infra.kafka.client import admin
from infra.storage.checksums import Damaged, damaged, json_object, logged
from infra.streaming.progress import partition_offsets

TopicPartitionKey = tuple[str, int]
"""Topic and partition."""

_SECONDS = 20.0

_ANEW = 5.0
"""So many seconds a partition may take to have a leader after its broker began anew."""

LEADERLESS = (
    *(KafkaError.FENCED_LEADER_EPOCH, KafkaError._NOENT),
    KafkaError.NOT_LEADER_FOR_PARTITION,  # of a topic that was made a moment ago
)

_SPEC: Any = OffsetSpec  # the library gives its methods no types
_NOT_TOLD = (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError.TOPIC_AUTHORIZATION_FAILED)


@dataclass(frozen=True)
class Checkpoint:
    """A job's checkpoint, as far as Kafka is concerned."""

    folder: Path
    """`<checkpoints>/<job>`."""
    done: int | None
    """The newest batch Spark has noted as done; None: none yet."""
    planned: int | None
    """The newest batch that was planned; the same, or one more."""
    offsets: Mapping[TopicPartitionKey, int] = field(default_factory=dict)
    """The next message of each partition after `done`."""
    ids: Mapping[str, str] = field(default_factory=dict)
    """The topics' ids, as the newest batch that knew them decided
    (`ingest.completeness.gaps.own_id`)."""
    planned_ms: int | None = None
    """When `done` was planned, milliseconds since 1970, by the driver's clock; None: not said."""

    @property
    def under_way(self) -> int | None:
        """The batch that was planned and is not noted as done, if there is one."""
        return None if self.planned == self.done else self.planned


def kafka_checkpoint(folder: Path) -> Checkpoint:
    """Read a job's checkpoint folder; one that is not there yet is empty."""
    spark = folder / "spark"
    done = max(numbers(spark / "commits"), default=None)
    # Spark notes offsets before a batch and commits after it: the difference is under way.
    planned = max(numbers(spark / "offsets"), default=None)
    if done is None:
        # Without offsets: those of a batch that is only planned are not what the tables have.
        return Checkpoint(folder, None, planned)
    # Of the batch that is done: what a later one planned may not be in the tables yet.
    file = spark / "offsets" / str(done)
    batchtimestampms = json_object(_entry(file)[1]).get("batchTimestampMs")
    return Checkpoint(folder, done, planned, offsets_of(file), _ids(folder, done), batchtimestampms)


def offsets_of(file: Path) -> dict[TopicPartitionKey, int]:
    """Offsets by topic and partition, from an offsets file with one Kafka source.

    Raises `Fatal` for a damaged one.
    """
    parsed_tree = json_object(_entry(file)[2])
    return {
        (topic, partition): position
        for topic, partition, position in partition_offsets(parsed_tree)
    }


def _entry(file: Path) -> list[str]:
    try:
        lines = logged(file, 3)
        json_object(lines[2])
    except Damaged as error:
        remedy = "restore the checkpoint from a backup that is not older than the tables"
        raise damaged(file, error, remedy) from None
    return lines


def _ids(folder: Path, done: int) -> dict[str, str]:
    # Not every batch knows them, so the newest that does is looked for.
    for number in sorted(numbers(folder / "batches", ".json"), reverse=True):
        if number <= done:
            decision = decided(folder, number)
            if "topic_ids" in decision:
                return dict(decision["topic_ids"])
    return {}


@dataclass(frozen=True)
class BrokerRange:
    """What the broker holds of a partition: `[first, end)`."""

    first: int
    end: int


class OffsetReader:
    """Asks the broker about topics, and waits so long for an answer; one client, kept."""

    def __init__(self, kafka: KafkaSettings, seconds: float = _SECONDS) -> None:
        self._kafka = kafka
        self._seconds = seconds
        self._client: AdminClient | None = None

    def ids(self, topics: Iterable[str]) -> dict[str, str]:
        """The own id of each topic that is there."""
        names = sorted(set(topics))
        if not names:
            return {}
        topic_ids = {}
        for name, answer in self._admin().describe_topics(TopicCollection(names)).items():
            reply = self._answer(answer, "which topics these are", KafkaError.UNKNOWN_TOPIC_OR_PART)
            if reply is not None:
                topic_ids[name] = str(reply.topic_id)
        return topic_ids

    def held(self, places: Iterable[TopicPartitionKey]) -> dict[TopicPartitionKey, BrokerRange]:
        """What is there of each partition; one that is gone is missing in the answer."""
        partitions = [TopicPartition(topic, part) for topic, part in sorted(set(places))]
        # Two requests, between which retention may move the beginning: never the end, so that the
        # range only looks a little longer than it is.
        first = self._ends(partitions, _SPEC.earliest())
        end = self._ends(partitions, _SPEC.latest())
        return {place: BrokerRange(first[place], end[place]) for place in first if place in end}

    def ends(self, places: Iterable[TopicPartitionKey]) -> dict[TopicPartitionKey, int]:
        """The next message of each partition; one that is gone is missing in the answer."""
        partitions = [TopicPartition(topic, part) for topic, part in sorted(set(places))]
        return self._ends(partitions, _SPEC.latest())

    def epochs(self, places: Iterable[TopicPartitionKey]) -> dict[TopicPartitionKey, int]:
        """How often each partition got a leader: another number where its broker began anew."""
        partitions = [TopicPartition(*place) for place in sorted(set(places))]
        previous = self._offsets_at(partitions, _SPEC.latest())
        return {
            # Brokers before KIP-320 tell no epoch. Then it never changes, and only a start of the
            # job compares what the log holds.
            place: -1 if (n := previou.leader_epoch) is None else n
            for place, previou in previous.items()
        }

    def since(self, place: TopicPartitionKey, ms: int) -> int | None:
        """The first message of a partition with that time or a later one; None: there is none."""
        ends = self._ends([TopicPartition(*place)], _SPEC.for_timestamp(ms))
        value = ends.get(place, -1)
        # Kafka answers -1 where no message is that new.
        return value if value >= 0 else None

    def retention_ms(self, topics: Iterable[str]) -> dict[str, int]:
        """How long each topic keeps its messages, in milliseconds; one that keeps them for ever,
        or of which we may not know it, is missing in the answer."""
        resources = [
            ConfigResource(ConfigResource.Type.TOPIC, name) for name in sorted(set(topics))
        ]
        result = {}
        for resource, answer in (
            self._admin().describe_configs(resources).items() if resources else ()
        ):
            reply = self._answer(answer, "how long it keeps messages", *_NOT_TOLD)
            # Kafka writes -1 for a topic that keeps its messages for ever.
            kept = int(reply["retention.ms"].value) if reply else -1
            if kept >= 0:
                result[str(resource.name)] = kept
        return result

    def partitions(self, prefix: str) -> list[TopicPartitionKey]:
        """All partitions of the topics whose names begin with `prefix`."""
        try:
            topics = self._admin().list_topics(timeout=self._seconds).topics
        except KafkaException as error:
            raise _away("its topics", error) from None
        return [
            (name, part)
            for name, topic in topics.items()
            if name.startswith(prefix)
            for part in topic.partitions
        ]

    def _ends(self, partitions: list[TopicPartition], spec: Any) -> dict[TopicPartitionKey, int]:
        return {place: int(end.offset) for place, end in self._offsets_at(partitions, spec).items()}

    def _offsets_at(
        self, partitions: list[TopicPartition], spec: Any
    ) -> dict[TopicPartitionKey, Any]:
        end = time.monotonic() + _ANEW
        while True:
            try:
                return self._asked(partitions, spec)
            except _Anew:
                if time.monotonic() > end:
                    raise
                # A new client, as the old one would ask the leader that it knew for minutes yet.
                self._client = None
                time.sleep(0.1)

    def _asked(self, partitions: list[TopicPartition], spec: Any) -> dict[TopicPartitionKey, Any]:
        if not partitions:
            return {}
        answers = self._admin().list_offsets(dict.fromkeys(partitions, spec))
        results = {}
        for partition, answer in answers.items():
            reply = self._answer(answer, "its offsets", KafkaError.UNKNOWN_TOPIC_OR_PART)
            if reply is not None:
                results[partition.topic, partition.partition] = reply
        return results

    def _answer(self, future: Any, what: str, *gone: int) -> Any:
        """What the broker answers; None where the thing is not there."""
        try:
            return future.result(self._seconds)
        except TimeoutError:
            raise Retryable(
                f"the broker does not say {what} within {self._seconds:.0f} s"
            ) from None
        except KafkaException as error:
            code = error.args[0].code()
            # librdkafka answers with codes of its own what it knows without asking the broker.
            if code in (*gone, KafkaError._UNKNOWN_PARTITION, KafkaError._UNKNOWN_TOPIC):
                return None
            if code in LEADERLESS:
                raise _Anew(_silent(what, error)) from None
            raise _away(what, error) from None

    def _admin(self) -> AdminClient:
        if self._client is None:
            self._client = admin(self._kafka)
        return self._client


class _Anew(Retryable):
    """A partition's leader began anew, or there is none. A client that knew one before learns of
    it by itself within minutes, a new one at once."""


def _away(what: str, error: KafkaException) -> Retryable:
    return Retryable(_silent(what, error))


def _silent(what: str, error: KafkaException) -> str:
    return f"the broker does not say {what}: {error.args[0].str()}"


def backlog(
    at: Checkpoint, broker: OffsetReader, kafka: KafkaSettings, but: Collection[str] = ()
) -> int:
    """Messages that wait for a job reading all raw topics; `but`: those that do not count."""
    # Asked of the broker and not of the checkpoint: topics and partitions that came since count as
    # well.
    raw = broker.partitions(kafka.topic_prefix)
    return untaken(at.offsets, broker.held(place for place in raw if place[0] not in but))


def untaken(
    taken: Mapping[TopicPartitionKey, int], held: Mapping[TopicPartitionKey, BrokerRange]
) -> int:
    """Messages of those the broker holds that come after what was taken."""
    # What Kafka's retention deleted before it was taken waits no more: nobody can read it.
    return sum(
        max(0, there.end - max(there.first, taken.get(place, 0))) for place, there in held.items()
    )
