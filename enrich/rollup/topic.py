"""gold.rollup on a topic: the newest count of each window under its key.

A message says the whole count, not what was added, so one that comes twice changes nothing; the
topic is compacted. The contract is in docs/reference/counts.md.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

from confluent_kafka import KafkaError, Message, Producer
from pyspark.sql import DataFrame, Row

from enrich.tables_rollup import ROLLUP
from infra.config.settings import Settings
from infra.errors import Retryable
from infra.kafka.client import produce, producer
from ingest.tables import HEARTBEAT

LEFT_OUT = ("destination_sketch",)
_PATIENCE = 30.0
"""Seconds for the broker to take a batch's last counts."""


class Topic:
    """Sends rows of gold.rollup to `kafka.rollups_topic`, which the driver has made."""

    def __init__(self, settings: Settings) -> None:
        self._name = settings.kafka.rollups_topic
        self._kafka = settings.kafka
        self._client: Producer | None = None
        self._refused: list[str] = []

    def send(self, rows: DataFrame) -> int:
        """Send rows, heartbeats left out; how many.

        Raises `Retryable` when the broker does not take all of them: the batch is then done again.
        """
        client = self._client = self._client or producer(self._kafka)
        self._refused.clear()
        sent = 0
        # Not `collect`: the first batch of a long history has very many counts.
        for row in rows.drop(*LEFT_OUT).where(f"source <> '{HEARTBEAT}'").toLocalIterator():
            self._produce(client, row)
            sent += 1
        left = client.flush(_PATIENCE)
        if left or self._refused:
            # With it goes what waits in its queue: the batch is done again and sends all of it.
            self._client = None
            why = self._refused[0] if self._refused else f"no answer in {_PATIENCE:.0f} s"
            missing = max(left, len(self._refused))
            raise Retryable(f"topic {self._name}: {missing} of {sent} counts were not taken: {why}")
        return sent

    def _produce(self, client: Producer, row: Row) -> None:
        key, value = _message(row)
        produce(client, self._name, value, key=key, on_delivery=self._delivered)

    def _delivered(self, error: KafkaError | None, _: Message) -> None:
        if error is not None:
            self._refused.append(error.str())


def _message(row: Row) -> tuple[bytes, bytes]:
    """Key and value of a row: JSON objects, the key with what the count is of."""
    lines = {name: _plain(value) for name, value in row.asDict().items()}
    key = {name: lines[name] for name in ROLLUP.key}
    return _json(key), _json(lines)


def _json(content: dict[str, Any]) -> bytes:
    return json.dumps(content, separators=(",", ":")).encode()


def _plain(value: Any) -> Any:
    """Times in UTC: Spark hands them over in the zone of this machine, without saying so."""
    if not isinstance(value, datetime):
        return value
    return value.astimezone(UTC).isoformat().replace("+00:00", "Z")
