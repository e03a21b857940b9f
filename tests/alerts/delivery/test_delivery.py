"""Job `alert` as a whole: a storm, a silenced entity, an incident, an inventory loaded meanwhile.

One run of the job serves all of these tests: its start is what costs.
"""

from __future__ import annotations

import json
import shutil
import time
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, TopicPartition
from confluent_kafka.admin import ConfigResource, ResourceType
from pyspark.sql import functions as F

from alerts.delivery.action_request import request_action
from alerts.delivery.feed import FEED_SQL
from alerts.delivery.publisher import Publisher
from alerts.domain.entity import entity_of, holder_of
from alerts.lifecycle import alert_job
from alerts.lifecycle.alert_job import Outgoing, alert, risk_target
from alerts.lifecycle.risk_score import ENTITIES, INCIDENT, RISK
from alerts.tables import ALERT, ALERT_ACTION, FINDING
from enrich.assets.index_store import latest_index
from enrich.assets.loader import load_inventory as load_inventory
from enrich.assets.registers import ASSETS
from infra.config.settings import Settings, load
from infra.delta.duckdb_views import connect
from infra.errors import Retryable
from infra.kafka.client import Broker, admin, ensure_topics
from infra.runtime.outbox_flusher import flush_outbox
from infra.streaming.batch import Batch
from infra.streaming.job import Job
from infra.streaming.lake import Lake
from tests.alerts.lifecycle.test_alert_fold import VALIDATOR, finding
from tests.api.story import insert
from tests.wait import until

SCANNER, HOST, SERVER = "203.0.113.200", "203.0.113.250", "203.0.113.251"
LONG_AGO = datetime(2020, 1, 1, tzinfo=UTC)
STORM = 30
LATER = datetime.now(UTC) + timedelta(minutes=2)


def found(number: int, ip: str, **keys: Any) -> dict[str, Any]:
    """A finding about an address outside every DHCP network, as a row of gold.finding."""
    row = finding(number, {"status": "outside"}, uid=f"e{number}", ip=ip, host_name=None)
    row |= {"user_name": None, "pack": "f" * 32, "feeds": []} | keys
    row["finding_id"] = f"{row['rule_id']}-{number}"
    columns = set(FINDING.schema.fieldNames()) - {"holder"}
    return {name: value for name, value in row.items() if name in columns}


class Away(Publisher):
    """One whose broker takes nothing for a while."""

    def publish(self) -> int:
        raise Retryable("alerts could not be published now: no right to write")


def outgoing(monkeypatch: pytest.MonkeyPatch, publisher: Publisher) -> Outgoing:
    """What job `alert` publishes with, by way of that publisher."""
    monkeypatch.setattr(alert_job, "Publisher", lambda _: publisher)
    return Outgoing(load())


def test_a_batch_goes_on_while_its_alerts_stay_and_says_why(
    tmp_path: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    at = datetime.now(UTC)
    run = Batch("alert", "q", 7, "d", tmp_path, False, at, "")
    away = outgoing(monkeypatch, Away(load(home=tmp_path)))
    for _ in range(3):
        away.publish(run)
    assert run.held_back == "alerts could not be published now: no right to write"
    said = capsys.readouterr().err
    assert said.count(f"{run.held_back}; they stay in gold.alert") == 1, "not with each batch"


class Slow(Publisher):
    """One that takes its time, and tells what it does."""

    def __init__(self) -> None:
        self.did: list[str] = []

    def begin(self) -> None:
        self.did.append("begin")

    def publish(self) -> int:
        self.did.append("publishes")
        time.sleep(0.2)
        self.did.append("published")
        return 0


def test_what_lies_ready_at_a_start_goes_out_beside_the_first_batch_and_not_within_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    slow = Slow()
    ours = outgoing(monkeypatch, slow)
    ours.first()
    until(lambda: bool(slow.did))
    ours.begin()
    assert slow.did == ["publishes", "published", "begin"]


@pytest.mark.full
def test_a_finding_goes_to_the_risk_of_the_entity_that_it_is_about(spark: Any) -> None:
    bare = {"ip": None, "host_name": None, "user_name": None, "scope": None}
    shapes: list[tuple[dict[str, Any], str | None, str | None]] = [
        ({"ip": "10.0.0.1", "scope": "a", "host_name": "h"}, "leased", "aa"),
        ({"ip": "10.0.0.1", "scope": "a"}, "none", None),
        ({"ip": "10.0.0.1"}, "outside", None),
        ({"ip": "10.0.0.1"}, None, None),
        ({"ip": "10.0.0.1"}, "none", "aa"),
        ({"ip": "10.0.0.1"}, "leased", ""),
        ({"ip": "", "host_name": "h", "user_name": "u"}, "unknown", None),
        ({"user_name": "u"}, "unknown", None),
        ({"host_name": "", "user_name": ""}, None, None),
        ({"ip": "10.0.0.1", "rule_id": INCIDENT}, None, None),
    ]
    rows = []
    for number, (given, status, mac) in enumerate(shapes):
        row = found(number, "") | bare | given
        row["holder"] = {"status": status, "mac": mac} if status else None
        rows.append(row)
    frame = spark.createDataFrame(rows, FINDING.schema)
    frame = frame.withColumn("mac", F.expr("IF(holder.status = 'leased', holder.mac, NULL)"))
    targets = {r[0]: r[1] for r in frame.select("event_uid", risk_target()).collect()}
    for row in rows:
        entity = entity_of(row, holder_of(row))
        counted = entity.type in ENTITIES and row["rule_id"] != INCIDENT
        expected = f"{RISK}|{entity.key}" if counted else None
        assert targets[row["event_uid"]] == expected, row


@pytest.fixture(scope="module")
def settings(broker: Broker, tmp_path_factory: pytest.TempPathFactory) -> Settings:
    kafka = {"bootstrap": broker.address} | {
        name: f"delivery.{name}" for name in ("alerts_topic", "progress_topic", "state_topic")
    }
    home = tmp_path_factory.mktemp("delivery")
    return load(home=home, kafka=kafka, alerts={"hourly_budget": 5, "incident_rules": 3})


@pytest.fixture(scope="module")
def lake(spark: Any, settings: Settings, empty_tables: Any) -> Lake:
    shutil.copytree(empty_tables, settings.lake_root)
    ensure_topics(settings)
    made = Lake(spark, settings)
    expires = datetime.now(UTC) + timedelta(days=400)
    request_action(
        settings, "suppress", "mute-1", "*", entity=SCANNER, fields={}, expires_at=expires
    )
    assert flush_outbox(made, ALERT_ACTION, settings.home / "spool" / "alert_action") == 1
    low = {"level": "low", "alerting": False}
    rows = [
        *[found(n, f"203.0.113.{n}", answer_by=LATER) for n in range(STORM)],
        found(100, SCANNER, answer_by=LATER),
        *[found(200 + n, HOST, rule_id=f"low{n}", rule_title=f"Low {n}", **low) for n in range(3)],
    ]
    insert(made, FINDING, rows)
    job = alert(made)
    try:
        told_by(made, job, 2)  # the incident that the first batch finds comes back in the second
        file = settings.home / "assets.csv"
        file.write_text(f"ip,owner,criticality\n{SERVER},ann,critical\n", "utf-8")
        load_inventory(settings, ASSETS, str(file), made.add, valid_from=LONG_AGO)
        insert(made, FINDING, [found(300, SERVER, rule_id="late", rule_title="Late")])
        told_by(made, job, 3)
    finally:
        job.stop()
    return made


def told_by(lake: Lake, job: Job, commits: int) -> None:
    """Wait until so many batches told alerts."""

    def enough() -> bool:
        assert job.failure() is None
        return lake.version(ALERT) >= commits

    until(enough, what="batches that tell alerts", seconds=120)


def messages(settings: Settings, topic: str) -> Iterator[Any]:
    """All of a topic, as a `read_committed` consumer gets it."""
    consumer = Consumer(
        {
            "bootstrap.servers": settings.kafka.bootstrap,
            "group.id": "test",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
        }
    )
    left = set(consumer.list_topics(topic, timeout=20).topics[topic].partitions)
    consumer.assign([TopicPartition(topic, p, OFFSET_BEGINNING) for p in left])
    while left:
        message = consumer.poll(20)
        assert message is not None
        if message.error() is None:
            yield message
        else:
            assert message.error().code() == KafkaError._PARTITION_EOF
            left.discard(message.partition())
    consumer.close()


@pytest.fixture(scope="module")
def told(lake: Lake) -> list[tuple[str, dict[str, Any]]]:
    """(ce_sequence, body) of each message on the topic."""
    out = []
    for message in messages(lake.settings, lake.settings.kafka.alerts_topic):
        headers = dict(message.headers())
        body = json.loads(message.value())
        VALIDATOR.validate(body)
        assert headers["ce_id"].decode() == f"{body['alert_id']}:{body['revision']}"
        out.append((headers["ce_sequence"].decode(), body))
    return out


@pytest.mark.full
def test_what_counts_as_out_is_on_the_brokers_disk(lake: Lake) -> None:
    """A power cut of the only broker must not take it: each write is forced there."""
    kafka = lake.settings.kafka
    names = (kafka.alerts_topic, kafka.state_topic, kafka.progress_topic)
    wanted = [ConfigResource(ResourceType.TOPIC, name) for name in names]
    client = admin(kafka)  # kept until the answers are in: they end with it
    told = [answer.result(20) for answer in client.describe_configs(wanted).values()]
    assert [one["flush.messages"].value for one in told] == ["1", "1", "1"]


@pytest.mark.full
def test_a_storm_gives_the_topic_its_budget_and_a_summary_and_the_table_all(
    lake: Lake, told: list[tuple[str, dict[str, Any]]]
) -> None:
    kinds = Counter(body["entity"]["type"] for _, body in told if body["rule"]["id"] == "r")
    assert kinds == {"ip": 5, "rule": 1}
    (summary,) = [body for _, body in told if body["entity"]["type"] == "rule"]
    assert summary["count"] == STORM - 5
    table = connect(lake.settings.lake_root)
    by = dict(
        table.execute(
            "SELECT coalesce(suppressed_by, 'told'), count(*) FROM gold.alert "
            "WHERE rule_id = 'r' GROUP BY 1"
        ).fetchall()
    )
    assert by == {"told": 6, "budget": STORM - 5, "mute-1": 1}
    (listed,) = table.execute("SELECT rule, entity, ended_at FROM gold.suppression").fetchall()
    assert listed == ("*", SCANNER, None)


@pytest.mark.full
def test_what_was_told_early_is_answered_once_and_nothing_else_is(
    lake: Lake, told: list[tuple[str, dict[str, Any]]]
) -> None:
    table = connect(lake.settings.lake_root)
    rows = table.execute(
        "SELECT alert_id, answer, coalesce(reason, ''), revision FROM gold.preliminary_answer"
    ).fetchall()
    answers = Counter((answer, reason) for _, answer, reason, _ in rows)
    assert answers == {
        ("confirmed", ""): 5,
        ("withdrawn", "budget"): STORM - 5,
        ("withdrawn", "suppressed"): 1,
    }
    assert len({alert_id for alert_id, *_ in rows}) == len(rows)
    heard = {(body["alert_id"], body["revision"]) for _, body in told}
    assert {(row[0], row[3]) for row in rows if row[1] == "confirmed"} <= heard


@pytest.mark.full
def test_low_rules_that_never_alert_make_an_incident_about_their_address(
    told: list[tuple[str, dict[str, Any]]],
) -> None:
    (incident,) = [body for _, body in told if body["rule"]["id"] == INCIDENT]
    assert incident["entity"] == {"type": "ip", "value": HOST}
    assert incident["fields"]["risk"] == "75"
    assert [e["snippet"][:5] for e in incident["evidence"]] == ["Low 0", "Low 1", "Low 2"]
    assert not [body for _, body in told if body["rule"]["id"].startswith("low")]


@pytest.mark.full
def test_the_feed_has_what_the_topic_has_under_the_same_sequence(
    lake: Lake, told: list[tuple[str, dict[str, Any]]]
) -> None:
    start = {"sequence": -1, "alert_id": "", "revision": 0, "most": 1000}
    rows = connect(lake.settings.lake_root).execute(FEED_SQL, start).fetchall()
    feed = [(f"{place:016d}", alert_id, revision) for place, alert_id, revision, _ in rows]
    topic = [(sequence, body["alert_id"], body["revision"]) for sequence, body in told]
    assert sorted(feed) == sorted(topic)
    places = {body["rule"]["id"]: int(sequence) for sequence, body in told}
    assert len({sequence for sequence, _ in told}) == 3, "three batches told something"
    assert places["r"] < places[INCIDENT] < places["late"] <= lake.version(ALERT)


@pytest.mark.full
def test_an_alert_is_told_with_an_inventory_that_was_loaded_while_the_job_ran(
    lake: Lake, told: list[tuple[str, dict[str, Any]]]
) -> None:
    first, *_ = [body for _, body in told if body["rule"]["id"] == "r" and body["count"] == 1]
    (late,) = [body for _, body in told if body["rule"]["id"] == "late"]
    assert first["asset"] is None
    assert late["asset"]["owner"] == "ann"
    assert late["risk_score"] == first["risk_score"] + 10
    batches = (lake.settings.checkpoint_root / "alert" / "batches").glob("*.json")
    decided = {json.loads(file.read_text())["inventories"] for file in batches}
    assert decided == {None, latest_index(lake)}


@pytest.mark.full
def test_the_state_of_each_alert_on_the_topic_is_kept_under_its_id(
    lake: Lake, told: list[tuple[str, dict[str, Any]]]
) -> None:
    newest: dict[str, dict[str, Any]] = {}
    for message in messages(lake.settings, lake.settings.kafka.state_topic):
        newest[message.key().decode()] = json.loads(message.value())
    assert set(newest) == {body["alert_id"] for _, body in told}
    for _, body in told:
        state = newest[body["alert_id"]]
        assert state["revision"] == body["revision"]
        assert state["lifecycle"] == "new"
        assert state["rule_id"] == body["rule"]["id"]
        assert state["published_at"] == body["published_at"]


@pytest.mark.full
def test_an_alert_that_was_ready_goes_out_though_no_batch_comes(
    lake: Lake, told: list[tuple[str, dict[str, Any]]]
) -> None:
    newest = lake.read(ALERT).where("suppressed_by IS NULL").limit(1).collect()[0]
    row = newest.asDict(recursive=True)
    body = json.loads(row["body"]) | {"alert_id": "0" * 32, "revision": 1}
    lake.add(ALERT, [row | {"alert_id": "0" * 32, "revision": 1, "body": json.dumps(body)}], "x")
    job = alert(lake)
    try:
        topic = lake.settings.kafka.alerts_topic
        until(lambda: b"0" * 32 in {m.key() for m in messages(lake.settings, topic)})
    finally:
        job.stop()
