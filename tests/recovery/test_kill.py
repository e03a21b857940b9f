"""kill -9 in every phase while logs flow: nothing lost, nothing doubled, the alerts the same.

         offsets  bronze  silver  findings  done  segments  attribution  alerts  topic
ingest  ────┴───────┴───────┴────────┴───────┘       │           │          │       │
sessions                                      ───────┘           │          │       │
alert                                                 ───────────┴──────────┴───────┘
killed      ✗       ✗       ✗        ✗       ✗       ✗           ✗          ✗       ✗
"""

from __future__ import annotations

import os
import random
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest
from confluent_kafka import Consumer

from infra.config.settings import Settings, load
from infra.kafka.client import Broker, ensure_topics
from infra.process.subprocesses import PlatformProcess
from tests.recovery import judge
from tests.recovery.flow import SOURCES, Flow
from tests.recovery.plant import batches, complaints, driver, settle, until

SEED = 20261121


@dataclass(frozen=True)
class Phase:
    """A moment to kill at: when a new file appears under a folder of the home, or on the topic."""

    name: str
    folder: str = ""
    pattern: str = ""
    isolation: str = ""


FILES = {
    "a batch is planned": ("checkpoints/ingest/spark/offsets", "[0-9]*"),
    "files of all tables written": ("lake/bronze/record", "*.parquet"),
    "bronze committed": ("lake/bronze/record/_delta_log", "*.json"),
    "silver committed": ("lake/silver/event/_delta_log", "*.json"),
    "findings committed": ("lake/gold/finding/_delta_log", "*.json"),
    "ingest batch done": ("checkpoints/ingest/spark/commits", "[0-9]*"),
    "segments committed": ("lake/silver/dhcp_segment/_delta_log", "*.json"),
    "attributions committed": ("lake/gold/attribution/_delta_log", "*.json"),
    "alerts committed, not published": ("lake/gold/alert/_delta_log", "*.json"),
}
JOBS = ("ingest", "sessions", "alert", "repair", "rollup", "logins")
PHASES = [
    *(Phase(name, folder, pattern) for name, (folder, pattern) in FILES.items()),
    Phase("in the Kafka transaction", isolation="read_uncommitted"),
]
RUNS = {
    "in the transaction": PHASES[-1:],
    "up to the commit of findings": PHASES[:5],
    "from the end of ingest's batch to the commit of alerts": PHASES[5:-1],
}
"""What one test kills in: several phases, as its runs to the end cost as much as five kills."""
MORE = {
    "silver files written": ("lake/silver/event", "*.parquet"),
    "alert files written": ("lake/gold/alert", "*.parquet"),
    "attributed events committed": ("lake/gold/attributed_event/_delta_log", "*.json"),
    # The tables have the batch, Spark does not know yet.
    **{f"{job} in the ledger": ("spool/ledger", f"{job}-*.json") for job in JOBS},
}
ALL = [
    *PHASES,
    *(Phase(name, folder, pattern) for name, (folder, pattern) in MORE.items()),
    Phase("after the Kafka transaction", isolation="read_committed"),
    Phase("at a random moment"),
]
ALERTING = {"HEADGATE_JOBS__ROLLUP_TRIGGER_SECONDS": "0"}
"""Only what alerts need."""
EVERY = {
    "HEADGATE_JOBS__ROLLUP_TRIGGER_SECONDS": "5",
    "HEADGATE_JOBS__ATTRIBUTED_CLASSES": "[3002, 4003]",
}
SOAK_SEEDS = int(os.environ.get("HEADGATE_SOAK_SEEDS", "6"))
"""Each is a run of its own, with a kill in every phase: six are more than a hundred kills."""


@pytest.mark.full
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("phases", RUNS.values(), ids=list(RUNS))
def test_alerts_survive_kill_9_in_every_phase(
    own_broker: Broker, tmp_path: Path, phases: list[Phase]
) -> None:
    # The counting jobs cost a third of each start; `make soak` kills in theirs as well.
    killed(own_broker, tmp_path, phases, SEED, broker_too=0.0, jobs=ALERTING)


@pytest.mark.soak
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("seed", range(SEED + 1, SEED + 1 + SOAK_SEEDS))
def test_alerts_survive_kill_9_of_driver_and_broker(
    own_broker: Broker, tmp_path: Path, seed: int
) -> None:
    killed(own_broker, tmp_path, ALL, seed, broker_too=0.2, jobs=EVERY)


def killed(
    broker: Broker,
    home: Path,
    phases: Sequence[Phase],
    seed: int,
    *,
    broker_too: float,
    jobs: Mapping[str, str],
    lake: str | None = None,
) -> None:
    """A driver after the other, each killed in one of the phases, and then the judge.

    `broker_too`: how often the broker is killed with it. `jobs`: what they have to do, as their
    environment. `lake`: where it lies, if not below the home.
    """
    plant = load(home=home / "shaken", lake=lake, kafka={"bootstrap": broker.address})
    ensure_topics(plant, SOURCES)
    chance = random.Random(seed)
    flow = Flow(plant, seed, per_second=40).start()
    for phase in chance.sample(phases, len(phases)):
        with driver(plant, jobs) as running:
            await_phase(plant, running, phase, chance)
            running.kill()
        if chance.random() < broker_too:
            broker.kill()
            broker.start()
    with driver(plant, jobs) as running:
        before = batches(plant)
        until(running, lambda: batches(plant) > before + 1)
        flow.stop()
        settle(plant, running, len(flow.accepted))
        assert left_behind(plant) == []

    assert len(flow.accepted) > 100 * len(phases)
    assert complaints(plant, flow.accepted) == []
    shaken = judge.topic(plant.kafka.bootstrap, "alerts")
    assert judge.final_alerts(shaken) == undisturbed(plant, home, len(flow.accepted), jobs)


def left_behind(settings: Settings) -> list[str]:
    """Folders of processes that are gone: unpacked libraries, working copies of states."""
    folders = settings.scratch_root.glob("*-*")
    return [one.name for one in folders if not psutil.pid_exists(int(one.name.split("-")[-2]))]


def undisturbed(
    plant: Settings, tmp_path: Path, sent: int, jobs: Mapping[str, str]
) -> dict[str, tuple[object, ...]]:
    """The alerts of a second platform that reads the same topics in peace."""
    calm = load(
        home=tmp_path / "calm",
        kafka={"bootstrap": plant.kafka.bootstrap, "alerts_topic": "alerts.calm"},
    )
    environment = {**jobs, "HEADGATE_KAFKA__ALERTS_TOPIC": "alerts.calm"}
    with driver(calm, environment) as running:
        settle(calm, running, sent)
    messages = judge.topic(plant.kafka.bootstrap, "alerts.calm")
    assert judge.wrong_on_topic(calm.lake_root, messages) == []
    return judge.final_alerts(messages)


def await_phase(
    settings: Settings, part: PlatformProcess, phase: Phase, chance: random.Random
) -> None:
    """Return at the moment the phase names: of the first batch of a driver, or of a later one.

    The first is often one that its predecessor had begun.
    """
    folder = settings.home / phase.folder
    seen = names(folder, phase.pattern)
    if chance.random() < 0.5 or phase.isolation or not phase.folder:
        before = batches(settings)
        until(part, lambda: batches(settings) > before)
        time.sleep(chance.uniform(0, 2))
        seen = names(folder, phase.pattern)
    if phase.folder:
        until(part, lambda: bool(names(folder, phase.pattern) - seen))
        time.sleep(chance.uniform(0, 0.02))
    elif phase.isolation:
        until(part, heard(settings, phase.isolation))


def names(folder: Path, pattern: str) -> set[str]:
    """The files of a pattern that are there now."""
    return {path.name for path in folder.glob(pattern)} if folder.is_dir() and pattern else set()


def heard(settings: Settings, isolation: str) -> Callable[[], bool]:
    """Whether something new has come to the alerts topic since the first call."""
    fresh = threading.Event()
    consumer = Consumer(
        {
            "bootstrap.servers": settings.kafka.bootstrap,
            "group.id": f"watch-{time.monotonic_ns()}",
            "isolation.level": isolation,
            "auto.offset.reset": "latest",
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe([settings.kafka.alerts_topic])

    def look() -> bool:
        message = consumer.poll(0.002)
        if message is not None and message.error() is None:
            fresh.set()
            consumer.close()
        return fresh.is_set()

    return look
