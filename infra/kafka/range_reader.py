"""Ranges of offsets, read where the messages are worked on.

Spark plans which offsets a batch takes and keeps them; its own reader makes a row of the JVM of
each message and hands that to a Python worker, which costs more than the reading (decision 0038).
What is read here is what Spark's reader gives: a range with messages that retention took fails, and
one where transactions left marks has fewer messages than offsets.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from operator import methodcaller
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from infra.config.settings import KafkaSettings
from infra.errors import Retryable
from infra.kafka.auth import QUOTED_PASSWORD, unquoted
from infra.kafka.client import client_options
from infra.process.gc_pause import no_collection

_PASSWORD = "sasl.password"

AT_ONCE = 1_000
"""Messages taken from the client at once."""

QUEUED_KB = 16_384
"""What the client holds ahead of who reads: a worker's memory is bounded (decision 0006)."""

QUEUED_MESSAGES = 64
"""Messages held ahead from which on the client asks for no more."""

PATIENCE = 120.0
"""Seconds without a message of a range that is there, as Spark waits for one."""

UNREADABLE_HEADERS = "a message has a header whose name is no UTF-8"
"""What an error says that `headers_of` raised in a worker."""

LATEST_MILLIS = 253_402_300_799_999
"""The end of the year 9999, milliseconds since 1970: what is later no time of Python's can hold."""

_ASKED_HEADERS = methodcaller("headers")
"""Where the interpreter calls it itself and often, it does not look whether the call failed."""

_WAIT = 0.1

_ANSWER_SECONDS = 20.0


@dataclass(frozen=True)
class OffsetRange:
    """Messages of a partition from `start` up to, and without, `end`."""

    topic: str
    partition: int
    start: int
    end: int

    def __str__(self) -> str:
        return f"topic {self.topic}, partition {self.partition}, offsets {self.start}-{self.end}"


def reader_options(kafka: KafkaSettings) -> dict[str, Any]:
    """Options of a reader, to be sent to workers: without the password, which they have in their
    environment (`infra.kafka.auth.environment`)."""
    options: dict[str, Any] = {
        # As Spark's reader has it, unless `kafka.options` says otherwise.
        "isolation.level": "read_uncommitted",
        **client_options(kafka),
        "group.id": "headgate-ingest-workers",
        "enable.auto.commit": False,
        "auto.offset.reset": "error",
        "enable.partition.eof": True,
        "check.crcs": True,
        "queued.max.messages.kbytes": QUEUED_KB,
        # That counts values alone, and a message may be all headers: so few are asked for ahead. A
        # fetch brings a megabyte of each partition anyway.
        "queued.min.messages": QUEUED_MESSAGES,
        # Else the client rests for a second whenever it holds enough.
        "fetch.queue.backoff.ms": 1,
        "message.max.bytes": kafka.max_message_bytes + 65536,
        # At the end of a partition the client asks ahead, and the next range waits for the answer.
        "fetch.wait.max.ms": 10,
        # Who works on a batch for minutes has not left.
        "max.poll.interval.ms": 86_400_000,
        "log_level": 2,
    }
    options.pop(_PASSWORD, None)
    return options


def read(
    ranges: Sequence[OffsetRange], options: Mapping[str, Any], patience: float = PATIENCE
) -> Iterator[tuple[OffsetRange, list[Message]]]:
    """The messages of each range, one range after the other, each in some lists.

    `options`: of `reader_options`. Raises `Retryable` where messages are gone or do not come: by
    any other error the batch would count as one that nobody can read.
    """
    errors: list[KafkaError] = []
    consumer = Consumer({**options, **_password(options), "error_cb": errors.append})
    try:
        _know_leaders(consumer, ranges)
        for offset_range in ranges:
            try:
                for messages in _messages(consumer, offset_range, errors, patience):
                    yield offset_range, messages
            except KafkaException as error:
                raise Retryable(f"{offset_range}: {error.args[0].str()}") from None
    finally:
        consumer.close()


def _know_leaders(consumer: Consumer, ranges: Sequence[OffsetRange]) -> None:
    """Ask for all topics at once: of one that it does not know the client asks once a second only,
    and each range of a new topic would wait that long."""
    if len({offset_range.topic for offset_range in ranges}) > 1:
        # A broker that does not answer now is waited for where the messages are.
        with suppress(KafkaException):
            consumer.list_topics(timeout=_ANSWER_SECONDS)


def headers_of(message: Message) -> list[tuple[str, bytes | None]] | None:
    """The headers of a message; None where it has none.

    Raises `Retryable` for a name that is no UTF-8. The client gives none for it, also when it is
    asked again, which must not be: what it then gives ends the process that looks at it.
    """
    try:
        headers: Any = _ASKED_HEADERS(message)
    except SystemError:
        where = f"topic {message.topic()}, partition {message.partition()}"
        raise Retryable(f"{UNREADABLE_HEADERS}: {where}, offset {message.offset()}") from None
    return headers or None


def moment_of(millis: int) -> datetime:
    """The time of a message: where a sender chooses it, it may be any number of 64 bits. Before
    1970 it is none, as Kafka's own -1; later than the year 9999 it is the end of that year."""
    return datetime.fromtimestamp(max(-1, min(millis, LATEST_MILLIS)) / 1000, UTC)


def _password(options: Mapping[str, Any]) -> dict[str, str]:
    quoted = os.environ.get(QUOTED_PASSWORD)
    return {_PASSWORD: unquoted(quoted)} if quoted and "sasl.username" in options else {}


def _messages(
    consumer: Consumer, offset_range: OffsetRange, errors: list[KafkaError], patience: float
) -> Iterator[list[Message]]:
    # Assigned and not subscribed: there is no group whose other members it would wait for.
    consumer.assign(
        [TopicPartition(offset_range.topic, offset_range.partition, offset_range.start)]
    )
    due, until = offset_range.start, time.monotonic() + patience
    while due < offset_range.end:
        messages, before, hole = [], due, None
        for message in _several(consumer, min(AT_ONCE, offset_range.end - due)):
            offset = message.offset()
            error = message.error()
            if error is None and offset == due:
                messages.append(message)
                due += 1
            else:
                reached = _reached(message, offset_range)
                if reached <= due:
                    continue  # the end of a copy that had not got so far yet
                hole = due if hole is None else hole
                if error is None and reached <= offset_range.end:
                    messages.append(message)
                due = min(offset_range.end, reached)
            if due == offset_range.end:
                break
        if hole is not None:
            _require_held(consumer, offset_range, hole, min(_ANSWER_SECONDS, patience))
        if due > before:
            until = time.monotonic() + patience
        elif time.monotonic() > until:
            why = f": {errors[-1].str()}" if errors else ""
            raise Retryable(
                f"{offset_range}: no message from {due} on came in {patience:.0f} s{why}"
            )
        if messages:
            yield messages
            # Who works on them for long has not waited for the next.
            until = time.monotonic() + patience


def _several(consumer: Consumer, most: int) -> list[Message]:
    """What is there, or what comes next: so what is held is bounded by the client's queue, however
    large messages are."""
    with no_collection():
        several: list[Message] = consumer.consume(most, 0)
    if several:
        return several
    message = consumer.poll(_WAIT)
    return [] if message is None else [message]


def _reached(message: Message, offset_range: OffsetRange) -> int:
    """The offset behind a message, or at which the partition ends; raises `Retryable` for any other
    event."""
    error, offset = message.error(), message.offset()
    if error is not None and error.code() != KafkaError._PARTITION_EOF:
        raise Retryable(f"{offset_range}: {error.str()}")
    return (-1 if offset is None else offset) + (error is None)


def _require_held(consumer: Consumer, offset_range: OffsetRange, due: int, seconds: float) -> None:
    """Raises `Retryable` where the broker has not what is due: then it is gone, and what comes next
    is no hole that a transaction or a compaction left."""
    place = TopicPartition(offset_range.topic, offset_range.partition)
    watermarks = consumer.get_watermark_offsets(place, timeout=seconds, cached=False)
    if watermarks is None:
        raise Retryable(f"{offset_range}: the broker does not say whether it has message {due}")
    if watermarks[0] > due:
        first = watermarks[0]
        raise Retryable(
            f"{offset_range}: message {due} is gone; the first that is there is {first}"
        )
