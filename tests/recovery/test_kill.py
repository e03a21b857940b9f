"""kill -9 in every phase while logs flow: nothing lost, nothing doubled, the alerts the same.

         offsets  bronze  silver  findings  done  segments  attribution  alerts  topic
ingest  ────┴───────┴───────┴────────┴───────┘       │           │          │       │
sessions                                      ───────┘           │          │       │
alert                                                 ───────────┴──────────┴───────┘
killed      ✗       ✗       ✗        ✗       ✗       ✗           ✗          ✗       ✗
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from confluent_kafka import Consumer

from infra.children import Part
from infra.kafka import Broker, ensure_topics, free_port
from infra.settings import Settings, load
from infra.tally import tally
from tests.recovery import judge
from tests.recovery.flow import SOURCES, Flow

SEED = 20261121
PACE = {
    "HEADGATE_ALERTS__COUNT_EVERY_SECONDS": "1",
    # What a budget holds back depends on how batches fall, and those differ between the two runs.
    "HEADGATE_ALERTS__HOURLY_BUDGET": "1000000",
    "HEADGATE_JOBS__WAIT_SECONDS": "5",
    "HEADGATE_JOBS__WATERMARK_SECONDS": "2",
    "HEADGATE_JOBS__REPAIR_TRIGGER_SECONDS": "10",
}


@dataclass(frozen=True)
class Phase:
    """A moment to kill at: when a new file appears under a folder of the home, or on the topic."""

    name: str
    folder: str = ""
    pattern: str = ""
    isolation: str = ""


FILES = {
    "a batch is planned": ("checkpoints/ingest/spark/offsets", "[0-9]*"),
    "bronze files written": ("lake/bronze/record", "*.parquet"),
    "bronze committed": ("lake/bronze/record/_delta_log", "*.json"),
    "silver files written": ("lake/silver/event", "*.parquet"),
    "silver committed": ("lake/silver/event/_delta_log", "*.json"),
    "findings committed": ("lake/gold/finding/_delta_log", "*.json"),
    "ingest batch done": ("checkpoints/ingest/spark/commits", "[0-9]*"),
    "segments committed": ("lake/silver/dhcp_segment/_delta_log", "*.json"),
    "attributions committed": ("lake/gold/attribution/_delta_log", "*.json"),
    "alert files written": ("lake/gold/alert", "*.parquet"),
    "alerts committed, not published": ("lake/gold/alert/_delta_log", "*.json"),
}
PHASES = [
    *(Phase(name, folder, pattern) for name, (folder, pattern) in FILES.items()),
    Phase("in the Kafka transaction", isolation="read_uncommitted"),
    Phase("after the Kafka transaction", isolation="read_committed"),
    Phase("at a random moment"),
]


@pytest.fixture
def plant(tmp_path: Path) -> Iterator[Settings]:
    broker = Broker(tmp_path / "kafka", free_port()).start()
    settings = load(home=tmp_path / "shaken", kafka={"bootstrap": broker.address})
    ensure_topics(settings, SOURCES)
    yield settings
    broker.stop()


@pytest.mark.timeout(3000)
def test_alerts_survive_kill_9_in_every_phase(plant: Settings, tmp_path: Path) -> None:
    chance = random.Random(SEED)
    phases = PHASES.copy()
    chance.shuffle(phases)
    flow = Flow(plant, SEED, per_second=40).start()
    for phase in phases:
        with driver(plant) as running:
            await_phase(plant, running, phase, chance)
            running.kill()
    with driver(plant) as running:
        time.sleep(20)
        flow.stop()
        settle(plant, running, len(flow.accepted))

    shaken = judge.topic(plant.kafka.bootstrap, "alerts")
    lake = plant.lake_root
    assert len(flow.accepted) > 1000
    assert judge.lost_or_doubled_records(lake, flow.accepted) == []
    assert judge.nameless_records(lake) == []
    assert judge.doubled_findings(lake) == []
    assert judge.unattributed_findings(lake) == []
    assert judge.wrong_on_topic(lake, shaken) == []
    assert judge.wrong_states(shaken, judge.topic(plant.kafka.bootstrap, "alerts.state")) == []
    assert judge.final_alerts(shaken) == undisturbed(plant, tmp_path, len(flow.accepted))


def undisturbed(plant: Settings, tmp_path: Path, sent: int) -> dict[str, tuple[object, ...]]:
    """The alerts of a second platform that reads the same topics in peace."""
    calm = load(
        home=tmp_path / "calm",
        kafka={"bootstrap": plant.kafka.bootstrap, "alerts_topic": "alerts.calm"},
    )
    with driver(calm, {"HEADGATE_KAFKA__ALERTS_TOPIC": "alerts.calm"}) as running:
        settle(calm, running, sent)
    messages = judge.topic(plant.kafka.bootstrap, "alerts.calm")
    assert judge.wrong_on_topic(calm.lake_root, messages) == []
    return judge.final_alerts(messages)


@contextmanager
def driver(settings: Settings, environment: dict[str, str] | None = None) -> Iterator[Part]:
    part = Part("driver", ("up",), settings, environment={**PACE, **(environment or {})})
    try:
        yield part
    finally:
        if part.ended is None:
            part.stop()


def await_phase(settings: Settings, part: Part, phase: Phase, chance: random.Random) -> None:
    """Return at the moment the phase names, after the driver has done a batch of its own."""
    progress = settings.checkpoint_root / "ingest" / "spark" / "commits"
    before = count(progress, "[0-9]*")
    until(part, lambda: count(progress, "[0-9]*") > before)
    time.sleep(chance.uniform(0, 3))
    if phase.folder:
        folder = settings.home / phase.folder
        seen = count(folder, phase.pattern)
        until(part, lambda: count(folder, phase.pattern) > seen)
        time.sleep(chance.uniform(0, 0.02))
    elif phase.isolation:
        until(part, heard(settings, phase.isolation))


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


def count(folder: Path, pattern: str) -> int:
    """How many files there have been: of numbered ones Spark keeps only the newest."""
    if not folder.is_dir():
        return 0
    names = [path.name for path in folder.glob(pattern)]
    numbers = [int(name) for name in names if name.isdigit()]
    return max(numbers) + 1 if numbers else len(names)


def until(part: Part, true: Callable[[], bool], seconds: float = 150) -> None:
    end = time.monotonic() + seconds
    while not true():
        assert part.ended is None, part.last_words(20)
        assert time.monotonic() < end, f"waited {seconds} s in vain; {part.last_words(20)}"
        time.sleep(0.002)


def settle(settings: Settings, part: Part, sent: int, seconds: float = 240) -> None:
    """Wait until all that was sent is through and the numbers rest."""
    end, done_at, last, quiet = time.monotonic() + seconds, time.time(), None, time.monotonic()
    while True:
        assert part.ended is None, part.last_words(20)
        assert time.monotonic() < end, f"not settled: {last}; {part.last_words(20)}"
        time.sleep(1.5)
        if not (settings.lake_root / "gold" / "alert_action" / "_delta_log").is_dir():
            continue
        now = tally(settings, sent, [], None, done_at)
        if now.moving != last:
            last, quiet = now.moving, time.monotonic()
        if now.through and time.monotonic() - quiet > 8 and last["records"] >= sent:
            return
