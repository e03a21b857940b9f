"""The lane that waits for no batch: each preliminary alert once, and its one answer behind it.

raw topic ──> lane ──> topic          ✗ lane, ✗ broker
    └──> ingest ──> alert ──┘
"""

from __future__ import annotations

import json
import random
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaException

from alerts.preliminary.consumer_lane import ConsumerLane
from alerts.preliminary.lane import PreliminaryLane
from alerts.preliminary.place import Place, place_file
from alerts.rulebook.rule_store import recompile
from alerts.rulepack.locations import store_folder
from alerts.rulepack.rule_pack import PackStore
from infra.config.settings import Settings, load
from infra.errors import Fatal, Retryable
from infra.kafka.client import Broker, ensure_topics, producer, topic_of
from infra.kafka.transactions import read_all
from infra.streaming.batch import Batch
from tests.e2e.conftest import http
from tests.faults.early_ingest import Jobs
from tests.faults.early_outbox import topics
from tests.faults.test_publishing import Process
from tests.faults.test_telling_early import heard
from tests.wait import until

pytestmark = pytest.mark.full

SOURCE = "zeek:http"
RULE = "http_path_traversal"
SEED = 20261126


def settings_of(broker: Broker, home: Path) -> Settings:
    own = {"topic_prefix": f"{home.name}.raw.", "tick_topic": f"{home.name}.tick"}
    settings = load(
        home=home,
        kafka={"bootstrap": broker.address, **topics(home.name), **own},
        alerts={"preliminary_by": "lane"},
    )
    ensure_topics(settings, [SOURCE])
    return settings


class Attacker:
    """Sends attacks, each by an address of its own, and lines that no rule looks for."""

    def __init__(self, settings: Settings) -> None:
        self._client = producer(settings.kafka)
        self._topic = topic_of(SOURCE, settings.kafka)
        self.sent = 0

    def attack(self, count: int = 1, address: str = "") -> None:
        for _ in range(count):
            self.sent += 1
            own = f"203.0.{self.sent // 250}.{self.sent % 250 + 1}"
            self._client.produce(self._topic, http(address or own, "/../../etc/passwd"))
            self._client.produce(self._topic, http("10.9.9.9", "/"))
        assert self._client.flush(60) == 0


def told(settings: Settings) -> dict[str, list[str]]:
    """By address what the topic says, in order."""
    by_alert: dict[str, str] = {}
    words: dict[str, list[str]] = {}
    for message in read_all(settings, settings.kafka.preliminary_topic):
        body: dict[str, Any] = json.loads(message.value() or b"")
        if "certainty" in body:
            by_alert[body["alert_id"]] = body["attribution"]["ip"]
        about = by_alert[body["alert_id"]]
        words.setdefault(about, []).append("told" if "certainty" in body else body["answer"])
    return words


def turns(lane: ConsumerLane, count: int = 1, seconds: float = 20) -> None:
    """Let it take turns until it has sent so many messages, and none more."""
    sent, end = 0, time.monotonic() + seconds
    while sent < count and time.monotonic() < end:
        sent += lane.turn(0.2)
    assert sent == count


def look(lane: ConsumerLane) -> None:
    """Let it look at the tables again at its next turn."""
    lane._looked = float("-inf")


def test_a_finding_is_told_before_ingest_has_it_and_what_ingest_makes_of_it_is_told_once(
    broker: Broker, tmp_path: Path
) -> None:
    settings = settings_of(broker, tmp_path)
    # Of a home that is new neither rules nor tables are there.
    lane = ConsumerLane(settings)
    with pytest.raises(Retryable, match="no current rule pack"):
        lane.turn()
    recompile(settings)
    with pytest.raises(Retryable, match=r"no gold\.finding yet"):
        lane.turn()
    jobs, attacker = Jobs(settings, topic_of(SOURCE, settings.kafka)), Attacker(settings)
    attacker.attack(2)
    turns(lane, 2)
    assert jobs.marked == {}
    # The same entity while the first waits, and one that job `ingest` drops.
    attacker.attack(address="203.0.0.2")
    attacker.attack(address="198.51.100.7")
    jobs.dropped = {6}
    turns(lane, 1)
    jobs.ingest()
    look(lane)
    # Ingest has passed the record and made no finding of it.
    turns(lane, 1)
    jobs.answer()
    look(lane)
    turns(lane, 2)
    assert told(settings) == {
        "203.0.0.2": ["told", "confirmed"],
        "203.0.0.3": ["told", "confirmed"],
        "198.51.100.7": ["told", "withdrawn"],
    }
    assert heard(settings).keys() & jobs.marked.values() == {
        alert for alert, words in heard(settings).items() if words == ["told", "confirmed"]
    }
    place = place_file(settings).read()
    assert place is not None
    assert place.waiting == {}


def settled(jobs: Jobs, lane: ConsumerLane) -> None:
    """The batch under way is committed, and what of it was told is answered."""
    jobs.ingest()
    look(lane)
    lane.turn(0.2)
    jobs.answer()
    look(lane)
    lane.turn(0.2)


def test_what_a_batch_of_other_settings_finds_is_told_by_its_marks_alone_and_never_withdrawn(
    broker: Broker, tmp_path: Path
) -> None:
    settings = settings_of(broker, tmp_path)
    jobs, attacker = Jobs(settings, topic_of(SOURCE, settings.kafka)), Attacker(settings)
    jobs.ingest()
    # Job `ingest` told behind its batches, and was killed in one: of an entity it marks the first,
    # by the time of its events, while its records came in another order.
    entity = "198.51.100.7"
    attacker.attack(address=entity)
    attacker.attack()
    by_batch = PreliminaryLane(settings, PackStore(store_folder(settings)))
    jobs.plan(by_batch.choose)
    lane = ConsumerLane(settings)
    assert [lane.turn(0.2) for _ in range(3)] == [0, 0, 0]
    # What comes behind that batch is told at once.
    attacker.attack()
    turns(lane, 1)
    settled(jobs, lane)
    jobs.ingest()
    # A batch that chose nothing, as when too many waited.
    attacker.attack()
    jobs.plan(lambda: None)
    lane = ConsumerLane(settings)
    assert [lane.turn(0.2) for _ in range(3)] == [0, 0, 0]
    settled(jobs, lane)
    attacker.attack()
    turns(lane, 1)
    settled(jobs, lane)
    assert told(settings) == {
        address: ["told", "confirmed"] for address in (entity, *(f"203.0.0.{n}" for n in (3, 4, 6)))
    }
    assert (place_file(settings).read() or Place()).waiting == {}


def test_what_was_told_before_its_batch_is_told_once_and_answered_when_batches_tell_again(
    broker: Broker, tmp_path: Path
) -> None:
    settings = settings_of(broker, tmp_path)
    jobs, attacker = Jobs(settings, topic_of(SOURCE, settings.kafka)), Attacker(settings)
    jobs.ingest()
    lane = ConsumerLane(settings)
    # The lane tells the first that comes; the batch would choose by the time of the events.
    attacker.attack()
    attacker.attack(address="198.51.100.7")
    turns(lane, 2)
    attacker.attack(address="198.51.100.7")
    attacker.attack(address="198.51.100.8")
    jobs.dropped = {6}
    batches = PreliminaryLane(settings, PackStore(store_folder(settings)))
    batches.begun()
    jobs.plan(batches.choose)
    jobs.ingest()
    folder = settings.checkpoint_root / "ingest"
    run = Batch("ingest", "q", 1, "", folder, False, datetime.now(UTC), "")
    for _ in range(2):
        batches.committed(run)
        jobs.answer()
    batches.committed(run)
    words = told(settings)
    assert words.keys() == {"203.0.0.2", "198.51.100.7"}
    assert set(map(tuple, words.values())) == {("told", "confirmed")}
    assert (place_file(settings).read() or Place()).waiting == {}


def test_a_successor_fences_tells_nothing_again_and_tells_what_came_meanwhile(
    broker: Broker, tmp_path: Path
) -> None:
    settings = settings_of(broker, tmp_path)
    jobs, attacker = Jobs(settings, topic_of(SOURCE, settings.kafka)), Attacker(settings)
    lane = ConsumerLane(settings)
    attacker.attack()
    turns(lane, 1)
    # While nobody told, ingest found the second, which nobody reads as a record any more.
    attacker.attack()
    jobs.ingest()
    attacker.attack()
    successor = ConsumerLane(settings)
    turns(successor, 2)
    attacker.attack()
    with pytest.raises(Fatal, match="another publisher"):
        turns(lane, 1)
    turns(successor, 1)
    jobs.ingest()
    jobs.answer()
    look(successor)
    turns(successor, 4)
    assert told(settings) == {f"203.0.0.{n}": ["told", "confirmed"] for n in range(2, 6)}


def test_a_rule_that_is_switched_off_is_told_no_more(broker: Broker, tmp_path: Path) -> None:
    settings = settings_of(broker, tmp_path)
    jobs, attacker = Jobs(settings, topic_of(SOURCE, settings.kafka)), Attacker(settings)
    lane = ConsumerLane(settings)
    attacker.attack()
    turns(lane, 1)
    store = PackStore(store_folder(settings))
    (rule,) = {w.rule_id for w in (place_file(settings).read() or Place()).waiting.values()}
    store.disable(rule, "ann", "too loud")
    recompile(settings)
    look(lane)
    # The batch has the rules of now: what was told is withdrawn.
    attacker.attack()
    jobs.ingest()
    turns(lane, 1)
    assert told(settings) == {"203.0.0.2": ["told", "withdrawn"]}
    assert [lane.turn(0.2) for _ in range(5)] == [0] * 5


@pytest.mark.parametrize("kills", [6, pytest.param(50, marks=pytest.mark.soak)])
def test_each_is_told_and_answered_once_though_lane_and_broker_are_killed(
    own_broker: Broker, tmp_path: Path, kills: int
) -> None:
    settings = settings_of(own_broker, tmp_path)
    jobs, attacker = Jobs(settings, topic_of(SOURCE, settings.kafka)), Attacker(settings)
    chance = random.Random(SEED + kills)
    lane = Process(
        tmp_path / "log", "tests.faults.run_lane", str(tmp_path), own_broker.address
    )  # fmt: skip
    with at_work(jobs, attacker, chance) as pause:
        for number in range(kills):
            before = len(heard(settings))
            lane.start()
            until(lambda before=before: len(heard(settings)) > before, seconds=60)
            time.sleep(chance.random() * 0.5)
            if number % 3 == 2:
                with pause:
                    own_broker.kill()
                    own_broker.start()
            if number % 3 != 2:
                lane.kill()
    lane.start()
    jobs.ingest()
    jobs.answer()
    until(lambda: not (place_file(settings).read() or Place()).waiting, seconds=60)
    time.sleep(2)
    lane.kill()
    words = heard(settings)
    assert set(map(tuple, words.values())) <= {("told", "confirmed"), ("told", "withdrawn")}
    confirmed = {alert for alert, each in words.items() if each[1] == "confirmed"}
    assert confirmed == set(jobs.marked.values())
    assert len(confirmed) > 5 * kills
    assert len(words) - len(confirmed) == len(jobs.dropped)


@contextmanager
def at_work(jobs: Jobs, attacker: Attacker, chance: random.Random) -> Iterator[threading.Lock]:
    """Attacks come, batches and answers behind them; the lock given keeps them off."""
    stop, lock = threading.Event(), threading.Lock()

    def work() -> None:
        while not stop.wait(0.05):
            try:
                with lock:
                    attacker.attack(chance.randint(1, 3))
                    if chance.random() < 0.3:
                        jobs.ingest()
                    if chance.random() < 0.3:
                        jobs.answer(chance.randint(1, 9))
            except (KafkaException, Retryable):
                continue

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    try:
        yield lock
    finally:
        stop.set()
        thread.join(30)
