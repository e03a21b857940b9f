"""kill -9 of who tells preliminary alerts: each goes out once, and its one answer behind it.

gold.finding, gold.preliminary_answer ──> publisher ──> topic
                                ✗ begin, send, mark, commit ✗
"""

from __future__ import annotations

import json
import random
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from alerts.preliminary.place import overdue_answers, place_file
from infra.config.settings import Settings, load
from infra.errors import Fatal
from infra.kafka.client import Broker, ensure_topics
from infra.kafka.transactions import read_all
from tests.alerts.preliminary.test_answer import ANSWER, EARLY
from tests.faults.early_outbox import Outboxes, alert_id, publisher, topics
from tests.faults.test_publishing import Process
from tests.wait import until

SEED = 20261126
NEVER = 10**18


def settings_of(broker: Broker, home: Path) -> Settings:
    settings = load(home=home, kafka={"bootstrap": broker.address, **topics(home.name)})
    ensure_topics(settings)
    return settings


def heard(settings: Settings) -> dict[str, list[str]]:
    """By alert what the topic says of it, in order; every message follows its schema."""
    by_alert: dict[str, list[str]] = {}
    for message in read_all(settings, settings.kafka.preliminary_topic):
        body: dict[str, Any] = json.loads(message.value() or b"")
        told = "certainty" in body
        (EARLY if told else ANSWER).validate(body)
        headers = dict(message.headers() or ())
        kind = "create" if told else "answer"
        assert headers["ce_type"] == f"org.headgate.preliminary.{kind}".encode()
        assert (message.key() or b"").decode() == body["alert_id"]
        by_alert.setdefault(body["alert_id"], []).append("told" if told else body["answer"])
    return by_alert


def hears(settings: Settings, expected: dict[str, list[str]]) -> None:
    """Wait until the topic says just that: a transaction is seen a moment after its commit."""
    until(lambda: heard(settings) == expected, what=expected, seconds=30)


def test_what_was_there_before_is_not_told_and_what_comes_is_told_and_answered_once(
    broker: Broker, tmp_path: Path
) -> None:
    settings = settings_of(broker, tmp_path)
    boxes = Outboxes(settings)
    boxes.find("old")
    teller = publisher(settings)
    teller.begin()
    assert teller.publish() == 0
    boxes.find("a", "b")
    boxes.find("late", seconds=-5)
    boxes.find("other", job="files")
    boxes.find("plain", seconds=None)
    assert teller.publish() == 3
    assert teller.waiting == 3
    assert {each.alert_id for each in overdue_answers(settings, NEVER).values()} == {
        alert_id(uid) for uid in ("a", "b", "late")
    }
    now = round(time.time() * 1_000_000)
    assert [each.alert_id for each in overdue_answers(settings, now).values()] == [alert_id("late")]
    boxes.answer("a", "plain", "old")
    boxes.answer("late", "a")
    # Also while job `ingest` has not handed the answer on: it is not job `alert` that is late.
    assert overdue_answers(settings, now) == {}
    # A successor goes on where this one stands, and fences it.
    successor = publisher(settings)
    successor.begin()
    assert successor.publish() == 2
    assert successor.publish() == 0
    boxes.answer("b")
    with pytest.raises(Fatal, match="another publisher"):
        teller.publish()
    assert successor.publish() == 1
    hears(settings, {alert_id(uid): ["told", "confirmed"] for uid in ("a", "b", "late")})


def test_one_that_nobody_answers_is_withdrawn_after_a_day(broker: Broker, tmp_path: Path) -> None:
    settings = settings_of(broker, tmp_path)
    boxes = Outboxes(settings)
    teller = publisher(settings)
    teller.begin()
    boxes.find("a", seconds=-86_401.0)
    boxes.find("b", seconds=-86_000.0)
    teller.publish()
    boxes.answer("a", "b")
    teller.publish()
    withdrawn, confirmed = ["told", "withdrawn"], ["told", "confirmed"]
    hears(settings, {alert_id("a"): withdrawn, alert_id("b"): confirmed})
    assert teller.waiting == 0


@pytest.mark.full
def test_behind_a_restored_lake_and_behind_a_lost_file_it_goes_on_with_what_is_new(
    broker: Broker, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = settings_of(broker, tmp_path)
    boxes = Outboxes(settings)
    teller = publisher(settings)
    teller.begin()
    boxes.find("a")
    boxes.find("b")
    assert teller.publish() == 2
    # The broker has the place as well.
    place_file(settings).remove()
    again = publisher(settings)
    assert again.publish() == 0
    assert again.waiting == 2
    boxes.findings.back(1)
    boxes.find("b2")
    restored = publisher(settings)
    restored.begin()
    boxes.answer("a", "b")
    assert restored.publish() == 0
    assert "an older lake was restored" in capsys.readouterr().err
    boxes.answer("a")
    boxes.find("c")
    assert restored.publish() == 2
    until(lambda: heard(settings).get(alert_id("c")) == ["told"], seconds=30)
    assert heard(settings)[alert_id("a")] == ["told", "confirmed"]


@pytest.mark.full
@pytest.mark.parametrize("kills", [4, pytest.param(50, marks=pytest.mark.soak)])
def test_each_is_told_and_answered_once_though_who_tells_it_is_killed(
    broker: Broker, tmp_path: Path, kills: int
) -> None:
    settings = settings_of(broker, tmp_path)
    boxes, chance = Outboxes(settings), random.Random(SEED + kills)
    publisher(settings).begin()  # as job `ingest` does before its first batch
    told = Process(tmp_path / "log", "tests.faults.early_outbox", str(tmp_path), broker.address)
    with fed(boxes, chance):
        for number in range(kills):
            seen = number and place_file(settings).read()
            told.start()
            until(lambda seen=seen: place_file(settings).read() != seen, seconds=60)
            time.sleep(chance.random() * 0.3)
            told.kill()
    told.start()
    expected = {alert_id(uid): ["told", "confirmed"] for uid in boxes.told}
    assert len(expected) > 5 * kills
    until(lambda: not (place_file(settings).read() or 1).waiting, seconds=60)
    told.kill()
    until(lambda: heard(settings) == expected, seconds=60)


@contextmanager
def fed(boxes: Outboxes, chance: random.Random) -> Iterator[None]:
    """Batches of findings and answers come meanwhile; behind it all that was told is answered."""
    stop = threading.Event()

    def feed() -> None:
        number = 0
        while not stop.wait(0.05):
            boxes.find(*[f"f{number}-{n}" for n in range(chance.randint(1, 3))])
            if chance.random() < 0.3:
                boxes.find(f"plain{number}", seconds=None)
            open_ones = [uid for uid in boxes.told if uid not in boxes.answered]
            if taken := chance.sample(open_ones, min(len(open_ones), chance.randint(0, 3))):
                boxes.answer(*taken)
            number += 1

    thread = threading.Thread(target=feed, daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(20)
    boxes.answer(*[uid for uid in boxes.told if uid not in boxes.answered])
