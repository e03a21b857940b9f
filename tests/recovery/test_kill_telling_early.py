"""kill -9 of the whole driver while it tells preliminary alerts without waiting for a batch.

raw topic ──> lane ──> topic of preliminary alerts      ✗ driver, and the lane with it
    └──> ingest ──> alert ──┘ answers
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from alerts.preliminary.place import Place, place_file
from infra.config.settings import Settings, load
from infra.kafka.client import Broker, ensure_topics
from infra.kafka.transactions import read_all
from tests.faults.test_consumer_lane import SOURCE, Attacker
from tests.recovery import judge
from tests.recovery.plant import driver, until
from tests.recovery.test_kill import ALERTING

EARLY = {
    **ALERTING,
    "HEADGATE_KAFKA__PRELIMINARY_TOPIC": "early",
    "HEADGATE_ALERTS__PRELIMINARY_BY": "lane",
}


@pytest.mark.full
@pytest.mark.timeout(900)
@pytest.mark.parametrize("kills", [1, pytest.param(8, marks=pytest.mark.soak)])
def test_each_finding_is_told_and_answered_once_though_the_driver_is_killed_while_it_tells(
    own_broker: Broker, tmp_path: Path, kills: int
) -> None:
    plant = load(
        home=tmp_path / "shaken",
        kafka={"bootstrap": own_broker.address, "preliminary_topic": "early"},
        alerts={"preliminary_by": "lane"},
    )
    ensure_topics(plant, [SOURCE])
    attacker = Attacker(plant)
    with attacks(attacker):
        for _ in range(kills):
            before = len(told(plant))
            with driver(plant, EARLY) as running:
                # Some are told and have no answer yet, and the next are on their way.
                until(running, lambda before=before: len(told(plant)) > before + 1)
                running.kill()
    assert any(answers == [] for _, answers in told(plant).values())
    with driver(plant, EARLY) as running:
        until(running, lambda: len(told(plant)) == attacker.sent and not waiting(plant))
    by_alert = told(plant)
    # Each attack under its own address and id, once; and its one answer, that of the alert.
    assert len({address for address, _ in by_alert.values()}) == len(by_alert) == attacker.sent
    assert {tuple(answers) for _, answers in by_alert.values()} == {("confirmed",)}
    alerts = judge.topic(own_broker.address, plant.kafka.alerts_topic)
    assert by_alert.keys() <= {message["alert_id"] for message in alerts}
    assert judge.doubled_findings(plant.lake_root) == []


@contextmanager
def attacks(attacker: Attacker) -> Iterator[None]:
    """One comes every half second; at most so many that no budget holds alerts back."""
    stop = threading.Event()

    def attack() -> None:
        while not stop.wait(0.5) and attacker.sent < 80:
            attacker.attack()

    thread = threading.Thread(target=attack, daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(30)


def told(settings: Settings) -> dict[str, tuple[str, list[str]]]:
    """By alert, in order: the address that it is about, and its answers."""
    by_alert: dict[str, tuple[str, list[str]]] = {}
    for message in read_all(settings, settings.kafka.preliminary_topic):
        body: dict[str, Any] = json.loads(message.value() or b"")
        if "certainty" in body:
            assert body["alert_id"] not in by_alert, "told twice"
            by_alert[body["alert_id"]] = (body["attribution"]["ip"], [])
        else:
            by_alert[body["alert_id"]][1].append(body["answer"])
    time.sleep(0.2)  # `until` asks at once again
    return by_alert


def waiting(settings: Settings) -> int:
    """How many were told and have no answer yet."""
    return len((place_file(settings).read() or Place()).waiting)
