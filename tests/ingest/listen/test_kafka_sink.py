"""Syslog and OpenTelemetry logs reach a real broker, also one that is killed midway."""

from __future__ import annotations

import asyncio
from pathlib import Path

import httpx
import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

from infra.config.settings import Settings, load
from infra.kafka.client import Broker, ensure_topics
from ingest.listen.kafka_sink import KafkaSink
from ingest.listen.service import LogListener
from tests.event_loop import run_apart
from tests.ingest.listen.running import TCP, until

COUNT = 2000
RECORD = b'{"resourceLogs":[{"scopeLogs":[{"logRecords":[{"body":{"stringValue":"a"}}]}]}]}'


def in_topic(settings: Settings, topic: str, count: int) -> list[bytes]:
    """The first `count` messages of a topic, and what follows them within a second."""
    reader = Consumer(
        {
            "bootstrap.servers": settings.kafka.bootstrap,
            "group.id": "listen-test",
            "log_level": 2,
        }
    )
    reader.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
    values: list[bytes] = []
    while batch := reader.consume(1000, timeout=20 if len(values) < count else 1):
        values += [message.value() for message in batch if message.error() is None]
    reader.close()
    return values


@pytest.mark.full
def test_nothing_is_lost_or_doubled_when_the_broker_is_killed_midway(
    tmp_path: Path, own_broker: Broker
) -> None:
    settings = load(
        home=tmp_path,
        kafka={"bootstrap": own_broker.address},
        listen={"syslog": [TCP], "otlp": {"http_port": 0, "answer_seconds": 5}},
    )
    ensure_topics(settings, settings.listen.feeds, jobs=())

    # A broker ends with the thread that started it, so all that asks it again runs in that thread.
    async def run() -> tuple[list[bytes], list[bytes]]:
        sink = KafkaSink(settings.kafka, asyncio.get_running_loop())
        listener = LogListener(settings, sink)
        await listener.start()
        url = f"http://127.0.0.1:{listener.http_port}/v1/logs"
        json = {"content-type": "application/json"}
        _, writer = await asyncio.open_connection("127.0.0.1", listener.tcp[0].port)
        async with httpx.AsyncClient(trust_env=False, timeout=30) as client:
            for i in range(COUNT // 2):
                writer.write(b"<34>line %d\n" % i)
            assert (await client.post(url, content=RECORD, headers=json)).status_code == 200
            await until(lambda: listener.outbox.messages == 0)
            own_broker.kill()
            for i in range(COUNT // 2, COUNT):
                writer.write(b"<34>line %d\n" % i)
            await until(lambda: listener.outbox.messages == COUNT // 2)
            assert (await client.post(url, content=RECORD, headers=json)).status_code == 503
            own_broker.start()
            await until(lambda: listener.outbox.messages == 0, 60)
        writer.close()
        assert await listener.stop() == 0
        await asyncio.to_thread(sink.close)
        return in_topic(settings, "logs.syslog", COUNT), in_topic(settings, "logs.json", 1)

    lines, records = run_apart(run())
    assert sorted(lines) == sorted(b"<34>line %d" % i for i in range(COUNT))
    assert records[0] == RECORD
