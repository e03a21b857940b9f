"""What a batch of job `ingest` takes from Kafka, by its checkpoint and by what the broker says."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime

from confluent_kafka import TIMESTAMP_LOG_APPEND_TIME, Consumer, TopicPartition

from infra.config.settings import Settings
from infra.errors import Fatal, Retryable
from infra.kafka.client import client_options, source_of, tenant_of
from infra.kafka.range_reader import OffsetRange, moment_of, reader_options
from infra.streaming.batch import Batch
from infra.streaming.kafka_offsets import (
    Checkpoint,
    OffsetReader,
    TopicPartitionKey,
    kafka_checkpoint,
)
from ingest.completeness.gaps import LOOK, cuts, own_id
from ingest.pipeline.kafka_fetch import Fetch, TopicNames, shared_out

Taken = dict[tuple[str, str], tuple[int, int]]
"""By topic and partition: the offset after the batch's last message, and how many it took."""


def taken_by(run: Batch) -> Taken:
    """What the batch takes from each partition, from the checkpoint's offsets."""
    spark = run.folder / "spark" / "offsets"
    now = _offsets((spark / str(run.batch_id)).read_text("utf-8"))
    before: dict[tuple[str, str], int] = {}
    if run.batch_id > 0:
        before = _offsets((spark / str(run.batch_id - 1)).read_text("utf-8"))
    return {place: (end, end - before.get(place, 0)) for place, end in now.items()}


def _offsets(text: str) -> dict[tuple[str, str], int]:
    """`{(topic, partition): offset}` of a Kafka source's line in an offsets file."""
    # Spark's offset log: a version line, the batch's metadata, then a line for each source.
    return _by_partition(text.splitlines()[2])


def _by_partition(text: str) -> dict[tuple[str, str], int]:
    decoded: dict[str, dict[str, int]] = json.loads(text)
    return {
        (topic, partition): offset
        for topic, partitions in decoded.items()
        for partition, offset in partitions.items()
    }


def fetch_of(
    run: Batch, taken: Taken, ids: Mapping[str, str], settings: Settings, tasks: int
) -> Fetch | None:
    """What workers read of a batch themselves; None where Spark's reader has to say what is wrong:
    a partition that is gone, or has fewer messages than were read."""
    starts = _starts(run)
    if starts is None or starts.keys() - taken.keys():
        return None
    ranges = [
        # One that came since begins at 0, or messages of it were lost.
        OffsetRange(topic, int(partition), starts.get((topic, partition), 0), end)
        for (topic, partition), (end, _) in taken.items()
        if topic in ids
    ]
    if any(each.start > each.end for each in ranges):
        return None
    names = {
        topic: TopicNames(
            topic_id, source_of(topic, settings.kafka), tenant_of(topic, settings.kafka)
        )
        for topic, topic_id in ids.items()
    }
    some = [each for each in ranges if each.start < each.end]
    return Fetch(shared_out(some, tasks), names, reader_options(settings.kafka)) if some else None


def _starts(run: Batch) -> dict[tuple[str, str], int] | None:
    """From where on the batch takes each partition; None where the checkpoint does not say it."""
    spark = run.folder / "spark"
    if run.batch_id > 0:
        return _offsets((spark / "offsets" / str(run.batch_id - 1)).read_text("utf-8"))
    # Where the first batch begins Spark's source notes once, in a form of its own.
    first = spark / "sources" / "0" / "0"
    return _by_partition(first.read_text("utf-8").splitlines()[1]) if first.exists() else None


class Topics:
    """What the broker says of topics: their own ids, and the time of a message.

    A topic made anew under an old name has another id, so its records have other ids too.
    """

    def __init__(self, settings: Settings) -> None:
        """Ask for the partitions' leaders before it is looked whether anything is missing."""
        self._settings = settings
        self._kafka = settings.kafka
        self._broker = OffsetReader(self._kafka)
        position = self._at()
        self._known = dict(position.ids)
        self._epochs = self._broker.epochs(position.offsets)
        self._reader: Consumer | None = None

    def ids(self, taken: Taken) -> dict[str, str]:
        """What records of the topics that hold logs are named by.

        Asked for each batch: a topic may be made anew at any time, and a broker begin anew.
        Raises `Fatal` for a topic that is not the one it was, and for one whose log lost its end:
        what was in it is gone, and a person has to know.
        """
        topics = {topic for topic, _ in taken} - {self._kafka.tick_topic}
        topic_ids = self._broker.ids(topics)
        for topic in sorted(topics):
            if topic not in topic_ids:
                raise Retryable(f"topic {topic}: the broker does not know it at the moment")
            if own_id(self._known.setdefault(topic, topic_ids[topic])) != topic_ids[topic]:
                raise Fatal(f"topic {topic} was made anew; {LOOK}")
        self._same({(topic, int(part)) for topic, part in taken if topic in topics})
        return {topic: self._known[topic] for topic in topics}

    def _same(self, places: set[TopicPartitionKey]) -> None:
        """Raises `Fatal` where a broker that began anew has another log than the one read."""
        now = self._broker.epochs(places)
        anew = [place for place in now if self._epochs.get(place, now[place]) != now[place]]
        if anew and (lost := cuts(self._settings, self._at(), self._broker.held(anew))):
            raise Fatal(f"{next(iter(lost.values())).sentence()}; {LOOK}")
        self._epochs |= now

    def _at(self) -> Checkpoint:
        return kafka_checkpoint(self._settings.checkpoint_root / "ingest")

    def time_of(
        self, topic: str, partition: int, offset: int, *, of_broker: bool = False
    ) -> datetime | None:
        """When the broker took a message; None when it does not say within seconds.

        `of_broker`: None also where the time is the sender's, which may be any.
        """
        reader = self._reader = self._reader or Consumer(
            {
                **client_options(self._kafka),
                "group.id": "headgate-ticks",
                "enable.auto.commit": False,
                # It asks ahead, and what is asked next waits for that answer.
                "fetch.wait.max.ms": 10,
                # Behind a transaction's mark, which is no message, none may come for long.
                "enable.partition.eof": True,
                "log_level": 3,
            }
        )
        # Assigned and not subscribed: a consumer group would rebalance each time.
        reader.assign([TopicPartition(topic, partition, offset)])
        message = reader.poll(5.0)
        reader.unassign()
        # Of an offset that retention took the broker gives the next message, with another time.
        if message is None or message.error() is not None or message.offset() != offset:
            return None
        kind, millis = message.timestamp()
        if of_broker and kind != TIMESTAMP_LOG_APPEND_TIME:
            return None
        return moment_of(millis)
