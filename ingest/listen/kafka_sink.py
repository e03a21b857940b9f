"""The sink that is Kafka: an idempotent producer, each message acknowledged by all replicas."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from functools import partial
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Producer

from infra.config.settings import KafkaSettings
from infra.kafka.client import producer
from ingest.listen.sink import SendOutcome, Settle, TopicMessage

_NEVER = frozenset({KafkaError.MSG_SIZE_TOO_LARGE, KafkaError._INVALID_ARG})
_POLL_SECONDS = 0.1


class KafkaSink:
    """Messages to topics. Waits for a broker that is away as long as it takes."""

    def __init__(self, kafka: KafkaSettings, loop: asyncio.AbstractEventLoop) -> None:
        self._kafka = kafka
        self._loop = loop
        self._results: deque[tuple[Settle, SendOutcome, str]] = deque()
        self._handed = threading.Event()
        self._renew = threading.Event()
        self._stop = threading.Event()
        self._producer = self._begin()
        self._thread = threading.Thread(target=self._poll, name="acks", daemon=True)
        self._thread.start()

    def send(self, message: TopicMessage, done: Settle) -> None:
        """Put it into the producer's queue."""
        client = self._producer
        try:
            client.produce(
                message.topic,
                value=message.value,
                headers=list(message.headers),
                on_delivery=partial(self._delivered, client, done),
            )
        except BufferError:
            self._loop.call_soon(done, SendOutcome.AGAIN, "the queue to the broker is full")
        except KafkaException as error:
            self._loop.call_soon(done, *self._judge(client, error.args[0]))

    def close(self) -> None:
        """End the thread; what the producer still holds is the caller's to keep."""
        self._stop.set()
        self._thread.join(5)
        # Else its end waits for a broker that may be gone.
        self._producer.purge()
        self._producer.flush(1)

    def _begin(self) -> Producer:
        options: dict[str, str | int | bool] = {
            "acks": "all",
            # For good: a message that the producer gives up on has no other copy.
            "delivery.timeout.ms": 0,
            "queue.buffering.max.messages": 1_000_000,
            "compression.type": "lz4",
        }
        return producer(self._kafka, **options)

    def _poll(self) -> None:
        while not self._stop.is_set():
            self._producer.poll(_POLL_SECONDS)
            if self._renew.is_set():
                # What the old one holds comes back as not kept, and goes to the new one.
                old, self._producer = self._producer, self._begin()
                self._renew.clear()
                old.purge()
                old.flush(5)

    def _delivered(
        self, client: Producer, done: Settle, error: KafkaError | None, _message: Any
    ) -> None:
        """In the thread that polls: hand the result to the event loop, many at once."""
        outcome = (SendOutcome.KEPT, "") if error is None else self._judge(client, error)
        self._results.append((done, *outcome))
        if not self._handed.is_set() and not self._loop.is_closed():
            self._handed.set()
            self._loop.call_soon_threadsafe(self._hand_on)

    def _hand_on(self) -> None:
        self._handed.clear()
        while self._results:
            done, outcome, why = self._results.popleft()
            done(outcome, why)

    def _judge(self, client: Producer, error: KafkaError) -> tuple[SendOutcome, str]:
        if error.fatal() and client is self._producer:
            # Its identity at the broker is lost; another producer has to begin anew.
            self._renew.set()
        return SendOutcome.NEVER if error.code() in _NEVER else SendOutcome.AGAIN, error.str()
