"""A job that cannot work has an alert on the topic, which job `alert` had no hand in."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from pyspark.sql import SparkSession

from alerts.delivery.platform_alert import PlatformAlerts
from infra.config.settings import Settings, load
from infra.kafka.client import Broker, ensure_topics
from infra.kafka.transactions import read_all
from infra.runtime.alarm import Alarm, Stuck
from infra.runtime.driver import Driver
from infra.runtime.ingest_rate import Governor
from infra.runtime.job_supervisor import JobSupervisor, WatchedJob
from infra.runtime.lag import LagReader
from infra.runtime.monitor import Watch
from infra.streaming.lake import Lake

pytestmark = pytest.mark.full

SCHEMA = json.loads(Path("alerts/alert.schema.json").read_text("utf-8"))


@pytest.fixture
def settings(tmp_path: Path, broker: Broker) -> Settings:
    prefix = f"{tmp_path.name}."
    kafka = {
        "bootstrap": broker.address,
        "alerts_topic": f"{prefix}alerts",
        "progress_topic": f"{prefix}progress",
        "state_topic": f"{prefix}state",
    }
    made = load(home=tmp_path / "home", kafka=kafka, alerts={"tenant": tmp_path.name})
    ensure_topics(made, jobs=("alert",))
    return made


def heard(settings: Settings) -> list[dict[str, Any]]:
    """What a consumer has by now in the order of sending, each sound by the contract."""
    messages = list(read_all(settings, settings.kafka.alerts_topic))
    # Two alerts may lie on two partitions, between which a reader has no order.
    messages.sort(key=lambda message: message.timestamp())
    values = [message.value() for message in messages]
    bodies = [json.loads(value) for value in values if value is not None]
    for body in bodies:
        jsonschema.validate(body, SCHEMA)
    return bodies


def test_each_is_told_once_through_restarts_and_closed_when_it_works_again(
    settings: Settings,
) -> None:
    stuck = [Stuck("alert", 1_790_000_000.0, "stopped for good: its checkpoint is damaged")]
    tell: Callable[[list[Stuck]], None] = PlatformAlerts(settings)
    for again in (tell, tell, PlatformAlerts(settings)):
        again(stuck)
    (body,) = heard(settings)
    assert body["entity"] == {"type": "rule", "value": "job alert"}
    assert body["severity"] == "Critical"
    assert "its checkpoint is damaged" in body["summary"]
    last = PlatformAlerts(settings)
    for _ in range(2):
        last([])
    first, closed = heard(settings)
    assert (closed["alert_id"], closed["revision"]) == (first["alert_id"], 2)
    assert (closed["activity"], closed["state"]) == ("close", "closed")
    assert closed["comment"] == "job alert makes progress again"
    assert first["rule"]["name"] == "A job of the platform makes no progress"
    # What happens later is another alert; one whose job works is not said to make no progress.
    last([Stuck("alert", 1_790_000_900.0, "alert a, revision 1, is damaged", held_back=True)])
    PlatformAlerts(settings)([])
    bodies = heard(settings)
    ids = [body["alert_id"] for body in bodies]
    assert ids[:2] == [first["alert_id"]] * 2
    assert ids[2] == ids[3] != first["alert_id"]
    assert bodies[2]["rule"]["name"] == "What a job of the platform wrote is held back"
    assert "progress" not in json.dumps(bodies[2:])
    assert bodies[3]["comment"] == "what job alert wrote is handed on again"


def test_a_transaction_of_more_alerts_than_the_clients_queue_holds_goes_out_whole(
    settings: Settings,
) -> None:
    kafka = settings.kafka.model_copy(update={"options": {"queue.buffering.max.messages": "3"}})
    small = settings.model_copy(update={"kafka": kafka})
    names = [f"job{number}" for number in range(40)]
    PlatformAlerts(small)([Stuck(name, 1_790_000_000.0, "no progress") for name in names])
    assert sorted(body["entity"]["value"] for body in heard(settings)) == sorted(
        f"job {name}" for name in names
    )


def test_a_checkpoint_that_is_broken_keeps_job_alert_from_starting_and_is_told(
    settings: Settings, spark: SparkSession
) -> None:
    lake = Lake(spark, settings).ensure()
    spark_folder = settings.checkpoint_root / "alert" / "spark"
    # A batch was committed, so nothing here may be set aside; a disk lost the metadata beside it.
    for folder, text in (("offsets", "v1\n{"), ("commits", "v1\n{}")):
        (spark_folder / folder).mkdir(parents=True)
        (spark_folder / folder / "0").write_text(text)
    driver = Driver(settings, ("alert",), tell=lambda _: None)
    watch = Watch(settings, spark, LagReader(settings))
    one = WatchedJob("alert")
    assert JobSupervisor(driver, lake, [one], watch, Governor(settings)).run() == 1
    Alarm(settings, lambda: ("alert",), lambda _: None).look()
    (body,) = heard(settings)
    assert body["fields"]["job"] == "alert"
    assert f"{spark_folder / 'metadata'} is missing or damaged" in body["summary"]
