"""The raw topics as they come, for who waits for no batch; job `ingest` is not disturbed."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Message
from confluent_kafka import TopicPartition as Place

from infra.config.settings import Settings
from infra.errors import Retryable
from infra.kafka.client import client_options, source_of
from infra.process.clock import clock
from infra.streaming.kafka_offsets import TopicPartitionKey

STALE = 60.0
"""Seconds after which a record is no news: its batch is as quick."""

_LOOK_AGAIN = 5.0
"""Seconds until it is asked again which topics and partitions there are."""

_GATHER = 0.03
"""Seconds in which what follows a message is taken with it: each pass has a price of its own."""

_MOST = 2_000
"""Messages that are taken at once."""

_SECONDS = 20.0


class RawTopics:
    """Messages of the raw topics of wanted sources, from where ingest's tables end.

    No consumer group: which records were looked at follows from what the tables have and from
    what was told (`alerts.preliminary.early_publisher`), so nothing else has to be noted.
    """

    def __init__(self, settings: Settings, wanted: Callable[[str], bool]) -> None:
        self._settings = settings
        self._wanted = wanted
        self._consumer: Consumer | None = None
        self._assigned: set[TopicPartitionKey] = set()
        self._looked = float("-inf")

    def take(
        self, reached: Mapping[TopicPartitionKey, int] | None, seconds: float
    ) -> list[Message]:
        """What has come, after at most so many seconds; `reached`: where new partitions begin.

        Raises `Retryable` when the broker cannot be read.
        """
        try:
            consumer = self._consumer or self._open()
            if time.monotonic() - self._looked > _LOOK_AGAIN:
                self._look(consumer, reached or {})
            first = consumer.poll(seconds) if self._assigned else None
            if first is None:
                if not self._assigned:
                    time.sleep(seconds)
                return []
            time.sleep(_GATHER)
            return [each for each in (first, *consumer.consume(_MOST, 0)) if _is_record(each)]
        except KafkaException as error:
            self.close()
            raise Retryable(f"raw topics cannot be read now: {error.args[0].str()}") from None

    def close(self) -> None:
        """Forget where it stands: the next `take` begins where the tables end."""
        if self._consumer is not None:
            self._consumer.close()
        self._consumer, self._assigned, self._looked = None, set(), float("-inf")

    def _open(self) -> Consumer:
        kafka = self._settings.kafka
        self._consumer = Consumer(
            {
                **client_options(kafka),
                # The client demands a group; nothing is ever committed under it.
                "group.id": "headgate-reader",
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                # As job `ingest` reads.
                "isolation.level": "read_uncommitted",
                "fetch.message.max.bytes": kafka.max_message_bytes,
                "log_level": 3,
            }
        )
        return self._consumer

    def _look(self, consumer: Consumer, reached: Mapping[TopicPartitionKey, int]) -> None:
        kafka = self._settings.kafka
        topics = consumer.list_topics(timeout=_SECONDS).topics
        new = [
            (name, partition)
            for name, topic in topics.items()
            if name.startswith(kafka.topic_prefix)
            and name != kafka.tick_topic
            and self._wanted(source_of(name, kafka))
            for partition in topic.partitions
            if (name, partition) not in self._assigned
        ]
        self._looked = time.monotonic()
        if not new:
            return
        since = round((clock.time() - STALE) * 1000)
        # A backlog is not worth reading through: what is in it is told by its batch.
        recent = consumer.offsets_for_times([Place(*key, since) for key in new], _SECONDS)
        consumer.incremental_assign(
            [
                Place(place.topic, place.partition, _begin(place, reached))
                for place in recent
                if place.error is None
            ]
        )
        self._assigned.update((p.topic, p.partition) for p in recent if p.error is None)


def _begin(recent: Place, reached: Mapping[TopicPartitionKey, int]) -> int:
    offset = reached.get((recent.topic, recent.partition))
    # Kafka answers -1 where no message is that new: then the next one, which the end names.
    if recent.offset < 0:
        return recent.offset if offset is None else offset
    return max(recent.offset, offset if offset is not None else OFFSET_BEGINNING)


def _is_record(message: Message) -> bool:
    problem = message.error()
    if problem is None:
        return message.value() is not None
    if problem.code() in (KafkaError._PARTITION_EOF, KafkaError._ALL_BROKERS_DOWN):
        return False
    if problem.retriable() or problem.code() in (
        KafkaError._TRANSPORT, KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError.OFFSET_OUT_OF_RANGE,
    ):  # fmt: skip
        return False
    raise KafkaException(problem)
