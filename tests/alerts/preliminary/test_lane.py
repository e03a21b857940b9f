"""Jobs `ingest` and `alert` with preliminary alerts: told when committed, answered once."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from alerts.lifecycle.alert_job import alert
from alerts.matching.detection import ingest_and_detect
from alerts.preliminary.alarm import preliminary_findings
from alerts.preliminary.consumer_lane import ConsumerLane
from alerts.preliminary.place import place_file
from alerts.rulebook.rule_store import rule_store
from infra.config.settings import Settings, load
from infra.delta.duckdb_views import connect
from infra.kafka.client import Broker, ensure_topics, producer, topic_of
from infra.streaming.lake import Lake
from tests.e2e.conftest import http
from tests.faults.test_telling_early import heard
from tests.wait import until

OUTSIDE = "203.0.113.9"


@pytest.fixture
def settings_here(settings: Settings, broker: Broker, tmp_path: Path) -> Settings:
    """A lake that reads and tells topics of its own."""
    name = f"lane{time.monotonic_ns()}"
    own = {"topic_prefix": f"{name}.", "tick_topic": f"{name}.tick"}
    own |= {which: f"of.{name}.{which}" for which in (
        "alerts_topic", "state_topic", "progress_topic", "preliminary_topic"
    )}  # fmt: skip
    made = load(home=tmp_path, kafka={"bootstrap": broker.address, **own})
    ensure_topics(made, ["zeek:http"])
    return made


def send(settings: Settings, *lines: bytes) -> None:
    client = producer(settings.kafka)
    for line in lines:
        client.produce(topic_of("zeek:http", settings.kafka), line)
    assert client.flush(60) == 0


@pytest.mark.full
def test_what_ingest_finds_is_told_at_once_and_answered_when_its_alert_is_made(
    spark: Any, settings_here: Settings
) -> None:
    lake = Lake(spark, settings_here)
    rule_store(settings_here)
    attack = "/../../etc/passwd"
    send(settings_here, http(OUTSIDE, attack), http(OUTSIDE, attack), http("10.9.9.9", "/"))
    ingest_and_detect(lake, once=True).wait()
    (told,) = heard(settings_here).items()
    assert told[1] == ["told"]
    (waiting,) = preliminary_findings(settings_here)
    assert (waiting.remedy, waiting.found[:1]) == (None, "1")

    alert(lake, once=True).wait()
    rows = connect(settings_here.lake_root).execute(
        "SELECT a.alert_id, a.revision, p.answer FROM gold.preliminary_answer p "
        "JOIN gold.alert a ON a.alert_id = p.alert_id"
    )
    assert rows.fetchall() == [(told[0], 1, "confirmed")]

    # The next run hands on what is answered meanwhile, also where nothing has come.
    ingest_and_detect(lake, once=True).wait()
    until(lambda: heard(settings_here) == {told[0]: ["told", "confirmed"]}, seconds=60)
    place = place_file(settings_here).read()
    assert place is not None
    assert place.waiting == {}


@pytest.mark.full
def test_what_is_told_before_ingest_has_it_is_the_finding_that_ingest_makes(
    spark: Any, settings_here: Settings
) -> None:
    alerts = settings_here.alerts.model_copy(update={"preliminary_by": "lane"})
    settings = settings_here.model_copy(update={"alerts": alerts})
    lake = Lake(spark, settings)
    rule_store(settings)
    # As a driver does: what is there before the first batch is not told.
    ingest_and_detect(lake, once=True).wait()
    lane = ConsumerLane(settings)
    attack = "/../../etc/passwd"
    send(settings, http(OUTSIDE, attack), http(OUTSIDE, attack), http("10.9.9.9", "/"))
    until(lambda: lane.turn() == 1, seconds=60)
    (told,) = heard(settings)
    ingest_and_detect(lake, once=True).wait()
    alert(lake, once=True).wait()
    until(lambda: lane.turn() == 1, seconds=60)
    assert heard(settings) == {told: ["told", "confirmed"]}
    rows = connect(settings.lake_root).execute("SELECT alert_id, revision FROM gold.alert")
    assert rows.fetchall() == [(told, 1)]
    assert [lane.turn() for _ in range(3)] == [0, 0, 0]
