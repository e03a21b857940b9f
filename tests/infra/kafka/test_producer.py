"""What is sent in a row may be more than librdkafka's queue holds."""

from __future__ import annotations

import tokenize
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, Message, TopicPartition

import headgate
from infra.config.settings import load
from infra.kafka.client import Broker, client_options, ensure_topics, produce, producer, topic_of

WAIT_FOR_NOBODY = {
    "infra/kafka/client.py",
    "infra/runtime/ticker.py",
    "ingest/listen/kafka_sink.py",
}
"""The function itself; a tick, which is dropped when it is late; and the receivers' loop, whose
messages stay in the spool until there is room."""

COUNT, ROOM = 200, 5


def test_more_messages_than_the_queue_has_room_for_all_arrive_in_order(
    tmp_path: Path, broker: Broker
) -> None:
    settings = load(home=tmp_path, kafka={"bootstrap": broker.address, "topic_prefix": "room."})
    ensure_topics(settings, ("sshd",), jobs=())
    topic = topic_of("sshd", settings.kafka)
    small: dict[str, str | int | bool] = {"queue.buffering.max.messages": ROOM}
    acknowledged: list[KafkaError | None] = []

    def note(error: KafkaError | None, _: Message) -> None:
        acknowledged.append(error)

    bare = producer(settings.kafka, **small)
    for _ in range(ROOM):
        bare.produce("room.nobody", b"")
    with pytest.raises(BufferError):
        bare.produce("room.nobody", b"")
    bare.purge()

    client = producer(settings.kafka, **small)
    for number in range(COUNT):
        key, headers = b"k%d" % number, [("number", b"%d" % number)]
        produce(client, topic, b"%d" % number, key=key, headers=headers, on_delivery=note)
    produce(client, topic, None, key=b"tombstone")
    assert client.flush(30) == 0
    assert acknowledged == [None] * COUNT

    reader = Consumer({**client_options(settings.kafka), "group.id": "room"})
    reader.assign([TopicPartition(topic, 0, 0)])
    messages = reader.consume(COUNT + 1, timeout=30)
    reader.close()
    assert [(message.key(), message.value(), message.headers()) for message in messages] == [
        *((b"k%d" % n, b"%d" % n, [("number", b"%d" % n)]) for n in range(COUNT)),
        (b"tombstone", None, None),
    ]


def test_all_that_may_wait_send_by_it() -> None:
    root = Path(headgate.__file__).parents[1]
    calls = set()
    for package in ("infra", "ingest", "enrich", "alerts", "reporting", "api", "headgate"):
        for file in (root / package).rglob("*.py"):
            with tokenize.open(file) as text:
                if ".produce(" in text.read():
                    calls.add(str(file.relative_to(root)))
    assert calls == WAIT_FOR_NOBODY
