"""The topic of alerts as it stands, for notebooks: read to its end, and nothing committed."""

from __future__ import annotations

from datetime import UTC, datetime
from time import monotonic
from typing import Any

import msgspec
from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    TopicPartition,
)

from headgate.result import QueryResult, result_of
from infra.config.settings import Settings
from infra.errors import Retryable
from infra.kafka.client import client_options, require_broker

_COLUMNS = ["written_at", "alert_id", "revision", "activity", "level", "title", "entity_type",
            "entity", "state", "verdict", "count", "rule_id"]  # fmt: skip
_POLL_SECONDS = 0.5
_PATIENCE_SECONDS = 30.0
"""Without a message for so long, a broker is taken for gone."""


def topic_alerts(settings: Settings, limit: int) -> QueryResult:
    """Revisions on the topic of alerts, oldest first, up to its end as it is now.

    As a `read_committed` consumer sees them. Raises `Retryable` where broker or topic are not
    there, or stop answering.
    """
    require_broker(settings.kafka)
    topic = settings.kafka.alerts_topic
    consumer = Consumer(
        {
            **client_options(settings.kafka),
            "group.id": "headgate-notebook",  # demanded by the client; nothing is committed
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": "read_committed",
            "log_level": 2,
        }
    )
    try:
        rows = _read(consumer, topic, limit + 1)
    except KafkaException as error:
        raise Retryable(f"topic {topic}: {error.args[0].str()}") from None
    finally:
        consumer.close()
    rows.sort(key=lambda row: row["written_at"])
    result = result_of(rows[:limit], _COLUMNS)
    return QueryResult(result.arrow(), truncated=len(rows) > limit)


def _read(consumer: Consumer, topic: str, most: int) -> list[dict[str, Any]]:
    """Rows up to the end that each partition has at the beginning, or `most` of them."""
    known = consumer.list_topics(topic, timeout=10).topics[topic]
    if known.error is not None:
        raise Retryable(f"topic {topic}: {known.error.str()}; 'headgate up' makes it")
    # The ends are asked once: a topic that goes on being written to would never be read to its end.
    ends: dict[int, int] = {}
    for number in known.partitions:
        first, end = consumer.get_watermark_offsets(TopicPartition(topic, number), timeout=10)
        # A partition without messages gives none, and would be waited for.
        if end > first:
            ends[number] = end
    consumer.assign([TopicPartition(topic, number, OFFSET_BEGINNING) for number in ends])
    rows: list[dict[str, Any]] = []
    last_message_at = monotonic()
    while ends and len(rows) < most:
        message = consumer.poll(_POLL_SECONDS)
        if message is None:
            if monotonic() - last_message_at > _PATIENCE_SECONDS:
                raise Retryable(f"topic {topic}: nothing came for {_PATIENCE_SECONDS:.0f} s")
            continue
        last_message_at = monotonic()
        problem, number = message.error(), message.partition() or 0
        if problem is None:
            rows.append(_row(message))
        elif problem.code() != KafkaError._PARTITION_EOF:
            raise Retryable(f"topic {topic}: {problem.str()}")
        # The marks of transactions are offsets too: the end may come without a message there.
        if problem is not None or (message.offset() or 0) >= ends.get(number, 0) - 1:
            ends.pop(number, None)
    return rows


def _row(message: Message) -> dict[str, Any]:
    body = msgspec.json.decode(message.value() or b"{}")
    rule, entity = body.get("rule") or {}, body.get("entity") or {}
    return {name: body.get(name) for name in _COLUMNS} | {
        "written_at": datetime.fromtimestamp(message.timestamp()[1] / 1000, UTC),
        "level": rule.get("level"),
        "rule_id": rule.get("id"),
        "entity_type": entity.get("type"),
        "entity": entity.get("value"),
    }
