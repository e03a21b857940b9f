"""Job `alert` in a lake from a backup, beside a broker that has heard more of an alert.

          first world                 restored
finding   0  1  2                     0, 1 and 2 in one batch     a person closes it
lake      1  2  3                     1                           4
topic     1  2  3                                                 4, so alerts.state says closed
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from alerts.delivery import publish_offset
from alerts.delivery.action_request import request_action
from alerts.delivery.publisher import Publisher
from alerts.lifecycle.alert_job import alert
from alerts.tables import ALERT, ALERT_ACTION, FINDING
from infra.config.settings import Settings
from infra.kafka.client import Broker
from infra.kafka.transactions import read_all
from infra.runtime.outbox_flusher import flush_outbox
from infra.streaming.lake import Lake
from tests.alerts.delivery.test_delivery import found, told_by
from tests.api.story import insert
from tests.faults.test_restored import beside
from tests.wait import until

ADDRESS = "203.0.113.7"
BATCH = 400
"""Seconds between findings: longer than `alerts.count_every_seconds`."""


def revisions(settings: Settings, topic: str) -> list[tuple[int, str]]:
    bodies = [json.loads(message.value() or b"") for message in read_all(settings, topic)]
    return [(body["revision"], body["state"]) for body in bodies]


def in_lake(lake: Lake) -> list[int]:
    return sorted(row[0] for row in lake.read(ALERT).select("revision").collect())


@pytest.mark.full
def test_what_happens_to_an_alert_after_a_restore_is_told(
    spark: SparkSession, broker: Broker, tmp_path: Path, empty_tables: Path
) -> None:
    settings = beside(broker, tmp_path, "restored-job")
    shutil.copytree(empty_tables, settings.lake_root)
    Publisher(settings).begin()  # as job `alert` does before its first batch
    backed_up = publish_offset.publish_offset_file(settings).read_text()
    lake = Lake(spark, settings)
    job = alert(lake)
    try:
        for number in range(3):
            insert(lake, FINDING, [found(number * BATCH, ADDRESS)])
            told_by(lake, job, number + 1)
        heard = [(1, "open"), (2, "open"), (3, "open")]
        topic, states = settings.kafka.alerts_topic, settings.kafka.state_topic
        until(lambda: revisions(settings, topic) == heard, what="alerts", seconds=30)
    finally:
        job.stop()

    for folder in (settings.lake_root, settings.checkpoint_root):
        shutil.rmtree(folder)
    shutil.copytree(empty_tables, settings.lake_root)
    publish_offset.publish_offset_file(settings).parent.mkdir(parents=True)
    publish_offset.publish_offset_file(settings).write_text(backed_up)
    restored = Lake(spark, settings)
    insert(restored, FINDING, [found(number * BATCH, ADDRESS) for number in range(3)])
    job = alert(restored)
    try:
        told_by(restored, job, 1)
        assert in_lake(restored) == [1]
        (row,) = restored.read(ALERT).select("alert_id", "rule_id", "count").collect()
        assert row["count"] == 3
        request_action(settings, "close", row["alert_id"], row["rule_id"])
        assert flush_outbox(restored, ALERT_ACTION, settings.home / "spool" / "alert_action") == 1
        told_by(restored, job, 2)
        closed = (4, "closed")
        until(lambda: revisions(settings, states)[-1] == closed, what="its end", seconds=30)
    finally:
        job.stop()
    assert revisions(settings, topic) == [*heard, closed]
    assert in_lake(restored) == [1, 4]
