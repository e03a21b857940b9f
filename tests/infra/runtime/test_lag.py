"""What waits for a job is told while its query tells nothing, and not when nobody knows."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.cimpl import NewTopic

from infra.config.settings import Settings, load
from infra.kafka.client import Broker, admin, producer
from infra.runtime import lag
from infra.runtime.lag import LagReader, Waits
from tests.wait import until


@pytest.fixture
def own(tmp_path: Path, own_broker: Broker) -> Settings:
    return load(home=tmp_path / "home", kafka={"bootstrap": own_broker.address})


@pytest.fixture
def looking(own: Settings, monkeypatch: pytest.MonkeyPatch) -> Iterator[LagReader]:
    monkeypatch.setattr(lag, "EVERY_SECONDS", 0.1)
    monkeypatch.setattr(lag, "ANSWER_SECONDS", 1.0)
    monkeypatch.setattr(lag, "KEPT_SECONDS", 2.0)
    running = LagReader(own).start()
    yield running
    running.stop()


def made(settings: Settings, topic: str, messages: int) -> None:
    """A topic of two partitions, with so many messages in the second."""
    client = admin(settings.kafka)
    for one in client.create_topics([NewTopic(topic, 2)]).values():
        one.result(20)
    sender = producer(settings.kafka)
    for _ in range(messages):
        sender.produce(topic, b"a line", partition=1)
    assert sender.flush(30) == 0


def read_up_to(settings: Settings, batch: int, *places: dict[str, object]) -> None:
    """Let a batch of job ingest have ended there."""
    spark = settings.checkpoint_root / "ingest" / "spark"
    for name in ("offsets", "commits"):
        (spark / name).mkdir(parents=True, exist_ok=True)
    lines = ["v1", json.dumps({"batchTimestampMs": 5}), *map(json.dumps, places)]
    (spark / "offsets" / str(batch)).write_text("\n".join(lines))
    (spark / "commits" / str(batch)).write_text("v1\n{}")


@pytest.mark.full
def test_messages_are_asked_of_the_broker_and_unknown_while_it_hangs(
    own: Settings, own_broker: Broker, looking: LagReader
) -> None:
    made(own, "logs.sshd", 10)
    made(own, own.kafka.tick_topic, 5)
    assert looking.of("ingest") == Waits()
    until(lambda: looking.of("ingest").messages == 10)
    read_up_to(own, 3, {"logs.sshd": {"1": 4, "0": 0}})
    until(lambda: looking.of("ingest").messages == 6)
    assert looking.of("ingest").commits is None
    # A batch that was planned, and hangs, has taken nothing.
    (own.checkpoint_root / "ingest" / "spark" / "offsets" / "4").write_text("v1\n{}\n{}")

    assert own_broker.pid is not None
    os.kill(own_broker.pid, signal.SIGSTOP)
    try:
        until(lambda: looking.of("ingest").messages is None)
        began = time.monotonic()
        assert looking.of("ingest") == Waits()
        assert time.monotonic() - began < 0.1, "nobody waits for the broker"
    finally:
        os.kill(own_broker.pid, signal.SIGCONT)
    until(lambda: looking.of("ingest").messages == 6)


def test_a_job_that_has_yet_to_begin_has_read_no_table(tmp_path: Path) -> None:
    found = LagReader(load(home=tmp_path)).look("sessions")
    assert (found.messages, found.commits, found.oldest) == (None, None, None)
