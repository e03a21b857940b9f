"""The machine's clock is stepped by a day, ahead and back, under broker and driver."""

from __future__ import annotations

import random
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from infra.config.settings import Settings, load
from infra.kafka.client import Broker, ensure_topics, free_port
from infra.process.subprocesses import PlatformProcess
from tests.faults.stepped import Hand, stepped
from tests.faults.test_processes import Shuffled, on
from tests.recovery import judge
from tests.recovery.flow import SOURCES, Flow
from tests.recovery.plant import complaints, driver, settle

SEED = 20261122
STEPPED_SECONDS = 70
"""Longer than Spark leaves between two looks at which of its executors still answer."""

pytestmark = [pytest.mark.soak, pytest.mark.timeout(1800)]


def test_a_clock_stepped_by_a_day_costs_nothing(tmp_path: Path) -> None:
    with stepped(tmp_path) as hand:
        broker = Broker(tmp_path / "kafka", free_port()).start()
        try:
            live(load(home=tmp_path / "home", kafka={"bootstrap": broker.address}), hand)
        finally:
            broker.stop()


def live(settings: Settings, hand: Hand) -> None:
    ensure_topics(settings, SOURCES)
    chance = random.Random(SEED)
    flow = Flow(settings, SEED, per_second=30).start()
    with driver(settings) as running:
        on(settings, running)
        step(settings, running, hand, "+1d")
        # Leases that changed hands in the last minutes: too late, were it tomorrow.
        shuffled = Shuffled(datetime.now(UTC))
        flow.send(*shuffled.lines(chance))
        on(settings, running)
        step(settings, running, hand, "-1d")
        flow.stop()
        settle(settings, running, len(flow.accepted))
        said = running.log.read_text("utf-8", "replace")
    assert "stopped for good" not in said
    assert "the clock jumped 24.0 hours ahead" in said
    assert "the clock jumped 24.0 hours back" in said
    assert said.count("the clock is right again") == 2
    assert "started anew, since the clock was set back" in said
    assert complaints(settings, flow.accepted) == []
    assert judge.wrong_holders(settings.lake_root, shuffled.truth()) == []
    arrived = judge.column(settings.lake_root / "bronze" / "record", "received_at")
    assert arrived[-1] < datetime.now(UTC) + timedelta(minutes=2)


def step(settings: Settings, running: PlatformProcess, hand: Hand, by: str) -> None:
    """The clock is wrong for a while, in which batches go through, and is set right."""
    hand.turn(by)
    on(settings, running)
    time.sleep(STEPPED_SECONDS)
    on(settings, running)
    hand.turn("+0")
    on(settings, running)
