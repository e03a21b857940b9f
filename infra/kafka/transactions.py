"""Kafka's transactions: one producer for a purpose, and what a topic holds of those that committed.

Source: KIP-98 (transactions).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)

from infra.config.settings import Settings
from infra.errors import HeadgateError, Retryable
from infra.kafka.acls import READER
from infra.kafka.client import client_options, producer

TRANSACTION_SECONDS = 30
"""So long a transaction that a crash left open may hold `read_committed` consumers up, before the
broker aborts it."""


def fenced_producer(settings: Settings, purpose: str) -> Producer:
    """A producer of transactions; an earlier one for the same purpose can commit none any more."""
    options: dict[str, str | int | bool] = {
        "transactional.id": f"headgate-{settings.alerts.tenant}-{purpose}",
        "transaction.timeout.ms": TRANSACTION_SECONDS * 1000,
    }
    client = producer(settings.kafka, **options)
    # Raises the epoch at the broker: a predecessor that still lives fails at its next commit.
    client.init_transactions(TRANSACTION_SECONDS)
    return client


@contextmanager
def transaction(client: Producer) -> Iterator[None]:
    """One transaction of a `fenced_producer`: none of what is produced in it is seen without the
    rest. Raises `KafkaException` where it could not be committed."""
    client.begin_transaction()
    try:
        yield
        client.commit_transaction(TRANSACTION_SECONDS)
    except KafkaException as error:
        # One that a successor fenced cannot abort; others must before they begin again.
        if error.args[0].txn_requires_abort():
            client.abort_transaction(TRANSACTION_SECONDS)
        raise
    except HeadgateError:
        # What was produced of it so far is seen by nobody.
        client.abort_transaction(TRANSACTION_SECONDS)
        raise


def read_all(
    settings: Settings, topic: str, seconds: float = 20.0, *, since: Mapping[int, int] | None = None
) -> Iterator[Message]:
    """What a topic holds now, as a `read_committed` consumer without a group sees it.

    `since`: offsets to begin at, by partition; of the others, and where these are gone, all.
    """
    consumer = Consumer(
        {
            **client_options(settings.kafka),
            # The client demands a group; nothing is ever committed under it.
            "group.id": READER,
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            # Without it the end of a partition looks like silence, and only a timeout would end the
            # read.
            "enable.partition.eof": True,
            "auto.offset.reset": "earliest",
            # Errors alone, by syslog's numbers: else librdkafka writes of each broker it loses to
            # stderr.
            "log_level": 3,
        }
    )
    try:
        known = consumer.list_topics(topic, timeout=seconds).topics[topic]
        if known.error is not None:
            raise Retryable(f"topic {topic}: {known.error.str()}")
        open_partitions = set(known.partitions)
        first = since or {}
        consumer.assign(
            [TopicPartition(topic, p, first.get(p, OFFSET_BEGINNING)) for p in open_partitions]
        )
        while open_partitions:
            message = consumer.poll(seconds)
            if message is None:
                raise Retryable(f"topic {topic} could not be read to its end in {seconds:.0f} s")
            problem = message.error()
            if problem is None:
                yield message
            elif problem.code() == KafkaError._PARTITION_EOF:
                # Transaction markers take offsets, so the last message's offset does not tell the
                # end.
                open_partitions.discard(message.partition())
            else:
                raise Retryable(f"topic {topic}: {problem.str()}")
    finally:
        consumer.close()
