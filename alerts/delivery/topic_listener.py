"""Listening to the alerts topic as any consumer would."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Literal

from confluent_kafka import (
    OFFSET_BEGINNING,
    OFFSET_END,
    Consumer,
    KafkaError,
    TopicPartition,
)

from alerts.delivery.alert_message import change_type
from infra.config.settings import Settings
from infra.errors import Retryable
from infra.kafka.client import client_options, require_broker

Begin = Literal["beginning", "now"]

POLL_SECONDS = 0.2

_CLOSED = {
    "attribution": "its findings were of several devices",
    "closed": "by a person",
    "superseded": "another alert has its findings",
}


@dataclass(frozen=True)
class TopicMessage:
    """One alert revision as it came from the topic."""

    key: str
    body: dict[str, Any]
    appended_at: float

    @property
    def identity(self) -> tuple[str, int]:
        """(alert_id, revision)."""
        return self.key, int(self.body["revision"])

    def line(self) -> str:
        """The alert in one line for a terminal, control characters made harmless."""
        body = self.body
        attribution = body.get("attribution") or {}
        previous = attribution.get("previous") or {}
        was = previous.get("hostname") or previous.get("mac") or previous.get("ip")
        changed = f", was {was or 'unknown'}" if previous else ""
        if change_type(body) == "close":
            changed += f", closed: {_CLOSED.get(body['reason'], body['reason'])}"
        text = (
            f"ALERT {body['alert_id'][:8]} r{body['revision']} "
            f"{(body.get('rule') or {}).get('level', ''):<8} {body['title']}{changed} "
            f"[{attribution.get('status', 'unknown')}]"
        )
        # What stands in a log may hold codes that a terminal obeys.
        return "".join(c if c.isprintable() else "?" for c in text)


def tail(
    settings: Settings,
    hear: Callable[[TopicMessage], None],
    begin: Begin = "now",
    stop: threading.Event | None = None,
) -> None:
    """Call `hear` for each revision on the topic as a `read_committed` consumer sees it.

    Leaves no consumer group behind. Ends when `stop` is set. A broker that goes
    away is waited for; one that is not there at the start raises `Retryable`.
    """
    require_broker(settings.kafka)
    topic = settings.kafka.alerts_topic
    consumer = Consumer(
        {
            **client_options(settings.kafka),
            "group.id": "headgate-tail",  # demanded by the client; nothing is committed under it
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            # Critical alone: a broker that is away is waited for, and needs no line for each try.
            "log_level": 2,
        }
    )
    try:
        known = consumer.list_topics(topic, timeout=10).topics[topic]
        if known.error is not None:
            raise Retryable(f"topic {topic}: {known.error.str()}; 'headgate up' makes it")
        start = OFFSET_BEGINNING if begin == "beginning" else OFFSET_END
        consumer.assign([TopicPartition(topic, p, start) for p in known.partitions])
        while stop is None or not stop.is_set():
            message = consumer.poll(POLL_SECONDS)
            if message is None or _passing(message.error(), topic):
                continue
            body = json.loads(message.value() or b"{}")
            hear(TopicMessage((message.key() or b"").decode(), body, message.timestamp()[1] / 1000))
    finally:
        consumer.close()


def _passing(problem: KafkaError | None, topic: str) -> bool:
    """Whether there is no message because of something that passes by itself."""
    if problem is None:
        return False
    if problem.fatal() or problem.code() in (
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.UNKNOWN_TOPIC_OR_PART,
    ):
        raise Retryable(f"topic {topic}: {problem.str()}")
    return True


class Listener:
    """Calls `hear` for each committed message of the alerts topic, from its beginning."""

    def __init__(self, settings: Settings, hear: Callable[[TopicMessage], None]) -> None:
        self._settings = settings
        self._hear = hear
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="listener", daemon=True)

    def __enter__(self) -> Listener:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stop.set()
        self._thread.join(10)

    def _run(self) -> None:
        consumer = Consumer(
            {
                **client_options(self._settings.kafka),
                "group.id": "headgate-demo",
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
                "auto.offset.reset": "earliest",
                "log_level": 2,
            }
        )
        consumer.subscribe([self._settings.kafka.alerts_topic])
        while not self._stop.is_set():
            message = consumer.poll(0.2)
            if message is None or message.error() is not None:
                continue
            self._hear(
                TopicMessage(
                    (message.key() or b"").decode(),
                    json.loads(message.value() or b"{}"),
                    message.timestamp()[1] / 1000,
                )
            )
        consumer.close()
