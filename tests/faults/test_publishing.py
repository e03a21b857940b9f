"""kill -9 of publisher, webhooks and broker, again and again: each revision once, none missing.

    gold.alert ──> publisher ──> topic ──> queue ──> hook
                ✗ begin, send, mark, commit ✗     ✗ queued, sent, answered ✗

Neither Spark nor a job is needed for this, so a process starts in a second and a hundred
seeded kills take minutes. `tests/recovery` kills whole drivers.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from functools import partial
from pathlib import Path

import pytest
from confluent_kafka import Consumer

from infra.config.settings import Settings, load
from infra.kafka.client import Broker, ensure_topics
from infra.process.subprocesses import die_with_parent
from tests.alerts.delivery.test_webhook import Receiver
from tests.faults.outbox import Outbox, begun
from tests.full import rest_full
from tests.recovery import judge
from tests.wait import until

SEED = 20261122
QUICK_KILLS = (4, 10)
SOAK_KILLS = int(os.environ.get("HEADGATE_SOAK_RUNS", "100"))
ALERTS = 12
soon = partial(until, seconds=60, pause=0.005)
EVERY_SECONDS = 0.1
"""Between two batches of the outbox, so that a kill at any moment finds one under way."""


class Feeder:
    """Fills the outbox batch by batch until stopped: revisions in order, some of them silenced."""

    def __init__(self, outbox: Outbox, seed: int) -> None:
        self._outbox, self._chance = outbox, random.Random(seed)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._number = 0

    def start(self) -> Feeder:
        """Begin."""
        self._thread.start()
        return self

    def stop(self) -> None:
        """End after the batch under way."""
        self._stop.set()
        self._thread.join(20)

    def _run(self) -> None:
        told: dict[str, int] = {}
        while not self._stop.wait(EVERY_SECONDS):
            rows = []
            for alert in self._chance.sample(range(ALERTS), self._chance.randint(1, 4)):
                name = f"a{self._number // 60}-{alert}"
                told[name] = told.get(name, 0) + 1
                rows.append((name, told[name], False))
            if self._chance.random() < 0.1:
                rows.append((f"silent-{self._number}", 1, True))
            self._outbox.append(*rows)
            self._number += 1


class Process:
    """A Python program that is killed and started again."""

    def __init__(self, log: Path, *command: str, **environment: str) -> None:
        self._log, self._command, self._environment = log, command, environment
        self._running: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it, unless it runs."""
        if self._running is None:
            with self._log.open("ab") as log:
                self._running = subprocess.Popen(
                    [sys.executable, "-m", *self._command],
                    stdout=log,
                    stderr=log,
                    env=os.environ | self._environment,
                    preexec_fn=die_with_parent,
                )

    def kill(self) -> None:
        """kill -9. It must not have ended by itself."""
        if self._running is not None:
            assert self._running.poll() is None, self._log.read_text("utf-8", "replace")[-2000:]
            self._running.send_signal(signal.SIGKILL)
            self._running.wait(20)
            self._running = None


class Watch:
    """Hears the topic as an ordinary consumer: what is in a transaction that nobody ended, too."""

    def __init__(self, settings: Settings) -> None:
        self.seen: set[tuple[str, int]] = set()
        self.fresh = threading.Event()
        self._stop = threading.Event()
        self._consumer = Consumer(
            {
                "bootstrap.servers": settings.kafka.bootstrap,
                "group.id": "ordinary",
                "isolation.level": "read_uncommitted",
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "log_level": 0,
            }
        )
        self._consumer.subscribe([settings.kafka.alerts_topic])
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End."""
        self._stop.set()
        self._thread.join(20)
        self._consumer.close()

    def _run(self) -> None:
        while not self._stop.is_set():
            message = self._consumer.poll(0.1)
            if message is not None and message.error() is None:
                body = json.loads(message.value() or b"{}")
                self.seen.add((body["alert_id"], body["revision"]))
                self.fresh.set()


@pytest.mark.parametrize("kills", rest_full(1, QUICK_KILLS))
def test_each_revision_is_told_once_though_all_that_tell_it_are_killed(
    own_broker: Broker, tmp_path: Path, kills: int
) -> None:
    killed_again_and_again(own_broker, tmp_path, SEED, kills)


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("seed", [SEED + 1])
def test_a_hundred_kills(own_broker: Broker, tmp_path: Path, seed: int) -> None:
    killed_again_and_again(own_broker, tmp_path, seed, SOAK_KILLS)


def killed_again_and_again(broker: Broker, home: Path, seed: int, kills: int) -> None:
    chance = random.Random(seed)
    receiver = Receiver()
    settings = load(home=home, kafka={"bootstrap": broker.address})
    ensure_topics(settings)
    outbox = begun(settings)
    publisher = Process(home / "publisher.log", "tests.faults.outbox", str(home), broker.address)
    hooks = Process(home / "hooks.log", *delivering(home), **environment(broker, receiver))
    hooks.start()
    soon(lambda: judge.has_place(home / "webhooks.sqlite"), what="the hooks begin")
    watch, feeder = Watch(settings), Feeder(outbox, seed).start()
    try:
        for number in range(kills):
            publisher.start()
            hooks.start()
            strike(chance, number, watch, receiver, (publisher, hooks, broker))
        publisher.start()
        hooks.start()
        feeder.stop()
        await_all(settings, outbox, watch, receiver)
        publisher.kill()
        hooks.kill()
    finally:
        feeder.stop()
        watch.stop()
    messages = judge.topic(settings.kafka.bootstrap, settings.kafka.alerts_topic)
    states = judge.topic(settings.kafka.bootstrap, settings.kafka.state_topic)
    assert len(outbox.wanted) > 10 * kills
    assert judge.wrong_order(messages, outbox.wanted) == []
    assert judge.wrong_states(messages, states) == []
    assert set(outbox.wanted) - watch.seen == set()
    assert judge.wrong_deliveries(called(receiver), outbox.wanted) == []


def delivering(home: Path) -> tuple[str, ...]:
    return ("headgate.cli", "--home", str(home), "webhooks", "deliver")


def environment(broker: Broker, receiver: Receiver) -> dict[str, str]:
    hook = receiver.hook()
    told = {"name": hook.name, "url": hook.url, "secret": "of this test", "allow_private": True}
    return {
        "HEADGATE_KAFKA__BOOTSTRAP": broker.address,
        "HEADGATE_WEBHOOKS": json.dumps([told]),
    }


def strike(
    chance: random.Random,
    number: int,
    watch: Watch,
    receiver: Receiver,
    targets: tuple[Process, Process, Broker],
) -> None:
    """Kill one of them, or two, at a moment of its work that the seed chooses."""
    publisher, hooks, broker = targets
    kind = ("sent", "sent", "random", "hook", "hook", "both", "sent", "hook", "random", "broker")
    which = kind[number % len(kind)]
    watch.fresh.clear()
    soon(watch.fresh.is_set, what="something is published")
    time.sleep(chance.uniform(0, 0.3))
    if which == "hook":
        received(receiver, chance)
    elif which != "random":
        watch.fresh.clear()
        watch.fresh.wait(5)
        time.sleep(chance.uniform(0, 0.01))
    if which in ("hook", "both"):
        hooks.kill()
    if which in ("sent", "random", "both"):
        publisher.kill()
    if which == "broker":
        broker.kill()
        time.sleep(chance.uniform(0, 1))
        broker.start()
        hooks.kill()  # it rests half a minute after a failure of the broker


def received(receiver: Receiver, chance: random.Random) -> None:
    """Wait until the hook has the next delivery in hand and has not answered."""
    receiver.wait = 0.2
    before = len(receiver.got)
    soon(lambda: len(receiver.got) > before, what="a hook is called")
    time.sleep(chance.uniform(0, 0.25))
    receiver.wait = 0.0


def await_all(settings: Settings, outbox: Outbox, watch: Watch, receiver: Receiver) -> None:
    wanted, queue = set(outbox.wanted), settings.home / "webhooks.sqlite"
    soon(lambda: wanted <= watch.seen, what="all is published")
    soon(lambda: wanted <= set(called(receiver)), what="all is delivered")
    soon(lambda: judge.waiting_deliveries(queue) == 0, what="all deliveries are noted")


def called(receiver: Receiver) -> list[tuple[str, int]]:
    """What the hook got, in order."""
    bodies = [json.loads(body) for *_, body in list(receiver.got)]
    return [(body["alert_id"], body["revision"]) for body in bodies]
