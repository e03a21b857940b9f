"""A broker whose disk is full, a driver or workers without memory: then there is more, all is kept.

The kernel's own way, killing a process that takes too much, is the kill -9 of other tests. Here
a write fails, the JVM itself has no memory left, or a worker asks for memory and gets none.
"""

from __future__ import annotations

import json
import os
import random
import re
import resource
import shutil
import time
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
from confluent_kafka import Message

from infra.config.settings import Settings, load
from infra.kafka.client import Broker, ensure_topics, free_port, producer, topic_of
from infra.process.subprocesses import PlatformProcess
from tests.faults.test_disk import fill, small_disk
from tests.faults.test_processes import on, workers
from tests.recovery.flow import SOURCES, Flow
from tests.recovery.judge import Place, messages, place_of
from tests.recovery.plant import batches, complaints, driver, settle, until

SEED = 20261122
MEMORY = "200m"
"""Of heap, half of what the jobs need at least."""
UNASKED = {"spark.testing.memory": str(512 * 2**20)}
"""Spark looks at the heap before it begins; told this much it takes what there is."""
LARGE = 900_000
LINES = 60
DISK = 96 * 2**20
SPARE = 2 * 2**20
"""Bytes that are left to the broker when its disk gets full."""


@pytest.fixture
def settings(own_broker: Broker, tmp_path: Path) -> Settings:
    made = load(home=tmp_path / "home", kafka={"bootstrap": own_broker.address})
    ensure_topics(made, (*SOURCES, "json"))
    return made


@pytest.mark.soak
@pytest.mark.timeout(1800)
def test_a_driver_out_of_memory_ends_by_name_and_the_next_one_goes_on(
    settings: Settings,
) -> None:
    flow = Flow(settings, SEED, per_second=30).start()
    chance = random.Random(SEED)
    flow.send(*(("json", large(chance, number)) for number in range(LINES)))
    little = {
        "HEADGATE_SPARK__DRIVER_MEMORY": MEMORY,
        "HEADGATE_SPARK__CONF": json.dumps(UNASKED),
    }
    with driver(settings, little) as small:
        end = time.monotonic() + 600
        while small.ended is None and time.monotonic() < end:
            time.sleep(0.5)
        assert small.ended == 1, "a driver without memory must not linger"
        assert f"raise spark.driver_memory, which is {MEMORY}" in small.last_words(5)
    with driver(settings) as running:
        before = batches(settings)
        until(running, lambda: batches(settings) > before + 1)
        flow.stop()
        settle(settings, running, len(flow.accepted))
    assert len(flow.accepted) > LINES
    assert complaints(settings, flow.accepted) == []


ROUNDS = 3


@pytest.mark.soak
@pytest.mark.timeout(1800)
def test_workers_out_of_memory_cost_a_batch_s_time_and_nothing_else(
    settings: Settings,
) -> None:
    flow = Flow(settings, SEED, per_second=30).start()
    chance = random.Random(SEED)
    with driver(settings) as running:
        on(settings, running)
        for _ in range(ROUNDS):
            before = failures(running)
            until(running, lambda: deprived(running) > 0)
            flow.send(*(("json", large(chance, number)) for number in range(LINES)))
            until(running, lambda before=before: failures(running) > before)
            on(settings, running)
        flow.stop()
        settle(settings, running, len(flow.accepted))
        said = running.log.read_text("utf-8", "replace")
    assert "stopped for good" not in said
    assert complaints(settings, flow.accepted) == []


def deprived(running: PlatformProcess) -> int:
    """How many workers get no memory beyond what they have from now on."""
    found = 0
    for one in workers(running):
        with suppress(psutil.NoSuchProcess, ProcessLookupError):  # it ended by itself in between
            has = one.memory_info().vms
            resource.prlimit(one.pid, resource.RLIMIT_AS, (has, has))
            found += 1
    return found


def failures(running: PlatformProcess) -> int:
    """How often job ingest has failed."""
    said = running.log.read_text("utf-8", "replace")
    return len(re.findall(r"^job ingest: failed, again in", said, re.MULTILINE))


def large(chance: random.Random, number: int) -> bytes:
    """An event that compresses to half of itself."""
    return b'{"n": %d, "text": "%s"}' % (number, chance.randbytes(LARGE // 2).hex().encode())


@pytest.mark.soak
@pytest.mark.timeout(1800)
@pytest.mark.skipif(not shutil.which("mount") or os.geteuid() != 0, reason="only root may mount")
def test_a_broker_whose_disk_was_full_has_all_that_it_acknowledged(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", DISK) as disk:
        broker = Broker(disk / "kafka", free_port()).start()
        try:
            filled_up(broker, disk, tmp_path / "home")
        finally:
            broker.stop()


def filled_up(broker: Broker, disk: Path, home: Path) -> None:
    settings = load(home=home, kafka={"bootstrap": broker.address})
    ensure_topics(settings, SOURCES)
    flow = Flow(settings, SEED, per_second=30).start()
    with driver(settings) as running:
        before = batches(settings)
        until(running, lambda: batches(settings) > before + 1)
        flow.stop()
        filler = fill(disk, SPARE)
        pushed = push(settings, broker)
        assert pushed, "some are acknowledged while the disk fills up"
        time.sleep(20)
        assert running.ended is None, "the driver waits for the broker"
        filler.unlink()
        broker.start()
        later = Flow(settings, SEED + 1, per_second=30).start()
        time.sleep(10)
        later.stop()
        there = on_topics(settings)
        settle(settings, running, len(there))
    known = flow.accepted | pushed | later.accepted
    assert {place: there.get(place) for place in known} == known
    # What was sent and never acknowledged may be there: it is data like any other.
    assert complaints(settings, there) == []


def push(settings: Settings, broker: Broker) -> dict[Place, bytes]:
    """Lines until the broker ends for want of space; those that it acknowledged."""
    accepted: dict[Place, bytes] = {}

    def delivered(error: object, message: Message) -> None:
        if error is None:
            accepted[place_of(message)] = message.value() or b""

    client, chance = producer(settings.kafka), random.Random(SEED)
    end = time.monotonic() + 120
    while broker.ended is None:
        assert time.monotonic() < end, "the broker goes on with a full disk"
        line = b"no kind of log: %s" % chance.randbytes(20_000).hex().encode()
        client.produce(topic_of("sshd", settings.kafka), line, on_delivery=delivered)
        client.poll(0.05)
    client.poll(1)
    return accepted


def on_topics(settings: Settings) -> dict[Place, bytes]:
    """All that lies in the topics of the sources."""
    topics = [topic_of(source, settings.kafka) for source in SOURCES]
    return {
        place_of(message): message.value() or b""
        for name in topics
        for message in messages(settings.kafka.bootstrap, name)
    }
