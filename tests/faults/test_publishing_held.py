"""Damaged revisions, repairs and kill -9 of the publisher, again and again: each revision once.

gold.alert ──> publisher ──> topic            a torn, b whole: b goes on, a waits
    ^             ✗ kill -9                   a repaired or left out: a goes out, in order
torn, repaired, left out, restored
"""

from __future__ import annotations

import json
import random
import time
from functools import partial
from pathlib import Path

import pytest

from alerts.delivery import publish_offset
from alerts.delivery.held_back import leave_out
from alerts.delivery.publisher import Publisher
from alerts.delivery.publisher import published as up_to
from infra.config.settings import Settings, load
from infra.delta.duckdb_views import AskedViews
from infra.errors import Fatal
from infra.kafka.client import Broker, ensure_topics
from tests.faults.outbox import Outbox, begun
from tests.faults.test_publishing import Process, Watch
from tests.faults.test_restored import beside, told
from tests.recovery import judge
from tests.wait import until

pytestmark = pytest.mark.full

SEED = 20261128
ALERTS = 6
soon = partial(until, seconds=60, pause=0.02)


@pytest.mark.parametrize("kills", [3, 25])
def test_each_revision_goes_out_once_though_bodies_are_damaged_and_the_publisher_is_killed(
    own_broker: Broker, tmp_path: Path, kills: int
) -> None:
    chance = random.Random(SEED + kills)
    settings = load(home=tmp_path, kafka={"bootstrap": own_broker.address})
    ensure_topics(settings)
    outbox = begun(settings)
    publisher = Process(
        tmp_path / "publisher.log", "tests.faults.outbox", str(tmp_path), own_broker.address
    )
    watch, plant = Watch(settings), Plant(settings, outbox, chance)
    try:
        for _ in range(kills):
            publisher.start()
            for _ in range(12):
                plant.step()
                time.sleep(chance.uniform(0, 0.1))
            unheld = plant.unheld()
            soon(lambda wanted=unheld: wanted <= watch.seen, what="alerts that wait for none")
            plant.step()
            time.sleep(chance.uniform(0, 0.2))
            publisher.kill()
        while outbox.torn:
            plant.mend()
        publisher.start()
        wanted = set(outbox.wanted)
        # Committed: the watch hears also what a transaction that nobody ended has.
        soon(lambda: wanted <= committed(settings), what="all is published")
        publisher.kill()
    finally:
        watch.stop()
    messages = judge.topic(settings.kafka.bootstrap, settings.kafka.alerts_topic)
    states = judge.topic(settings.kafka.bootstrap, settings.kafka.state_topic)
    assert plant.repaired
    assert plant.left
    assert judge.wrong_order(messages, outbox.wanted) == []
    assert judge.wrong_states(messages, states) == []
    place = Publisher(settings).places()[0]
    assert place is not None
    assert place.held == {}


def committed(settings: Settings) -> set[tuple[str, int]]:
    """What consumers of the topic have."""
    messages = judge.topic(settings.kafka.bootstrap, settings.kafka.alerts_topic)
    return {(body["alert_id"], body["revision"]) for body in messages}


class Plant:
    """Makes batches of alerts, damages some, and puts these right one way or the other."""

    def __init__(self, settings: Settings, outbox: Outbox, chance: random.Random) -> None:
        self._settings, self._outbox, self._chance = settings, outbox, chance
        self._newest = dict.fromkeys((f"a{number}" for number in range(ALERTS)), 0)
        self.repaired: list[tuple[str, int]] = []
        self.left: list[tuple[str, int]] = []

    def step(self) -> None:
        """A batch; or one that was damaged is put right."""
        if self._outbox.torn and self._chance.random() < 0.3:
            self.mend()
            return
        alerts = self._chance.sample(sorted(self._newest), self._chance.randint(1, 3))
        for alert in alerts:
            self._newest[alert] += 1
        rows = [(alert, self._newest[alert]) for alert in alerts]
        if self._chance.random() < 0.3:
            self._outbox.tear(*rows)
        else:
            self._outbox.append(*((*row, False) for row in rows))

    def mend(self) -> None:
        """Put one right: its file comes back from a backup, or consumers do without it."""
        name = self._chance.choice(sorted(self._outbox.torn))
        if self._chance.random() < 0.5:
            file = self._outbox.torn[name]
            self.repaired += [row for row, other in self._outbox.torn.items() if other == file]
            self._outbox.repair(*name)
            return
        let_out(self._settings, f"{name[0]}:{name[1]}")
        del self._outbox.torn[name]
        self._outbox.wanted.remove(name)
        self.left.append(name)

    def unheld(self) -> set[tuple[str, int]]:
        """Revisions that wait for no damaged one, nor ever did."""
        ever = {alert for alert, _ in [*self._outbox.torn, *self.repaired, *self.left]}
        return {row for row in self._outbox.wanted if row[0] not in ever}


@pytest.fixture
def settings(broker: Broker, tmp_path: Path) -> Settings:
    return beside(broker, tmp_path, tmp_path.name[:40])


@pytest.fixture
def outbox(settings: Settings) -> Outbox:
    return begun(settings)


def let_out(settings: Settings, *names: str) -> None:
    with AskedViews(settings.lake_root) as views:
        leave_out(settings, views.rows, list(names))


def test_a_predecessor_that_was_fenced_lets_nothing_go_twice(
    settings: Settings, outbox: Outbox
) -> None:
    before = Publisher(settings)
    outbox.tear(("a", 1))
    outbox.append(("a", 2, False), ("b", 1, False))
    assert before.publish() == 1
    after = Publisher(settings)
    assert after.publish() == 0
    let_out(settings, "a:1")
    with pytest.raises(Fatal, match="another publisher of this tenant has taken over"):
        before.publish()
    assert after.publish() == 1
    assert told(settings) == [("a", 2), ("b", 1)]


def test_a_new_broker_gets_what_the_lost_one_was_to_get_later(
    settings: Settings, outbox: Outbox, broker: Broker
) -> None:
    outbox.tear(("a", 1))
    outbox.append(("a", 2, False), ("b", 1, False))
    assert Publisher(settings).publish() == 1
    new = beside(broker, settings.home, f"{settings.kafka.alerts_topic[:40]}.new")
    assert Publisher(new).publish() == 0
    outbox.repair("a", 1)
    assert Publisher(new).publish() == 2
    assert told(new) == [("a", 1), ("a", 2)]


@pytest.mark.parametrize("then", ["went out", "waited"])
@pytest.mark.parametrize("kept", ["in the backup", "by no release yet"])
def test_in_a_restored_lake_what_was_held_back_goes_out_if_consumers_had_it_not(
    settings: Settings, outbox: Outbox, then: str, kept: str
) -> None:
    outbox.tear(("a", 1))
    outbox.append(("a", 2, False), ("b", 1, False))  # version 2: the backup
    Publisher(settings).publish()
    file = publish_offset.publish_offset_file(settings)
    backed_up, left = file.read_text(), settings.checkpoint_root / "alert" / "left-out.json"
    outbox.append(("a", 3, False), ("b", 2, False))
    Publisher(settings).publish()
    if then == "went out":
        let_out(settings, "a:1")
        assert Publisher(settings).publish() == 2
        left.unlink()
    outbox.back(2)
    if kept == "in the backup":
        file.write_text(backed_up)
    else:
        file.unlink()
    publisher = Publisher(settings)
    publisher.begin()
    outbox.append(("b", 2, False))
    outbox.append(("a", 3, False), ("c", 1, False))  # the jobs make them again
    assert publisher.publish() == 1
    let_out(settings, "a:1")
    outbox.append(("a", 4, False))
    publisher.publish()
    Publisher(settings).publish()
    wanted = [("a", 2), ("a", 3), ("a", 4), ("b", 1), ("b", 2), ("c", 1)]
    assert told(settings) == wanted
    assert up_to(settings) == outbox.version


def test_a_release_without_held_revisions_does_not_pass_over_them(
    settings: Settings, outbox: Outbox
) -> None:
    """Its type of the file knows no such key, and refuses it; without one the file is as ever."""
    outbox.append(("b", 1, False))
    Publisher(settings).publish()
    file = publish_offset.publish_offset_file(settings)
    assert json.loads(file.read_text()).keys() == {"table", "version", "commit"}
    outbox.tear(("a", 1))
    Publisher(settings).publish()
    assert json.loads(file.read_text())["held"]["a"]["first"] == 1
