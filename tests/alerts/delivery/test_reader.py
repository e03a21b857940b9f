"""`headgate alerts tail|list|show|close`.

11:00 ──── aa01 r1 high ──── 11:05 ──── aa02 r1 medium ──── 11:10 ──── aa01 r2 high, other device
"""

from __future__ import annotations

import argparse
import csv
import io
import json
import shutil
import threading
import time
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.cimpl import NewTopic
from pyspark.sql import SparkSession

from alerts.cli import __main__
from alerts.cli.output import since_when, when_taken
from alerts.delivery import reader
from alerts.delivery.action_request import request_action
from alerts.delivery.topic_listener import Begin, TopicMessage, tail
from alerts.tables import ALERT, ALERT_ACTION
from infra.config.settings import Settings, load
from infra.errors import HeadgateError, Usage
from infra.kafka.client import Broker, admin, free_port, producer
from infra.runtime.job_status import JobStatus, write_status
from infra.runtime.outbox_flusher import flush_outbox
from infra.streaming.lake import Lake

NOON = datetime(2026, 11, 20, 11, tzinfo=UTC)
FIRST, SECOND = "aa01" + "0" * 28, "aa02" + "0" * 28
A, B = "02:00:00:00:00:0a", "02:00:00:00:00:0b"


def revision(alert_id: str, number: int, minutes: int, **more: Any) -> dict[str, Any]:
    at = NOON + timedelta(minutes=minutes)
    body = {
        "alert_id": alert_id, "revision": number, "state": "open", "verdict": None,
        "activity": more.get("activity"), "reason": more.get("reason", "first"),
        "detected_at": at.isoformat(),
    }  # fmt: skip
    row = {
        "alert_id": alert_id, "revision": number, "activity": "create" if number == 1 else "update",
        "reason": "first" if number == 1 else "attribution", "tenant": "default", "mode": "live",
        "rule_id": "rule-1", "rule_name": "Guessing", "level": "high", "severity_id": 4,
        "risk_score": 70, "entity_type": "device", "entity_value": A, "src_ip": "10.0.0.1",
        "event_time": at, "window_start": at, "window_end": at, "received_at": at,
        "status": "leased", "count": 1, "dedup_key": "k", "title": "Guessing: laptop-a",
        "pack": "p",
    }  # fmt: skip
    return {**row, **more, "body": json.dumps({**body, **more.pop("body", {})})}


@pytest.fixture(scope="module")
def day(spark: SparkSession, empty_tables: Path, tmp_path_factory: pytest.TempPathFactory) -> Lake:
    home = tmp_path_factory.mktemp("alerts")
    shutil.copytree(empty_tables, home / "lake")
    lake = Lake(spark, load(home=home))
    hostile = "=HYPERLINK(1)\x1b[2J"
    rows = [
        revision(FIRST, 1, 0),
        revision(SECOND, 1, 5, level="medium", rule_id="rule-2", entity_value=B, title=hostile),
        revision(FIRST, 2, 10, entity_value=B, previous_entity=A),
    ]
    insert(lake, rows)
    return lake


@pytest.fixture
def told(day: Lake) -> Settings:
    return day.settings


def insert(lake: Lake, rows: Sequence[dict[str, Any]]) -> None:
    frame = lake.spark.createDataFrame(list(rows), ALERT.schema)
    frame.coalesce(1).write.format("delta").mode("append").save(lake.path(ALERT))


def run(settings: Settings, *words: str) -> int:
    parser = argparse.ArgumentParser()
    __main__.build(parser.add_subparsers())
    args = parser.parse_args(["alerts", *words])
    code: int = args.run(args, settings)
    return code


def listed(
    settings: Settings, capsys: pytest.CaptureFixture[str], *words: str
) -> Sequence[dict[str, Any]]:
    assert run(settings, "list", "--output", "json", *words) == 0
    found: list[dict[str, Any]] = json.loads(capsys.readouterr().out)
    return found


@pytest.mark.full
def test_list_shows_the_newest_revision_of_each_and_filters(
    told: Settings, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = listed(told, capsys)
    assert [(row["alert_id"], row["revision"], row["state"]) for row in rows] == [
        (FIRST, 2, "open"),
        (SECOND, 1, "open"),
    ]
    assert rows[0]["event_time"] == "2026-11-20T11:10:00Z"
    assert [r["alert_id"] for r in listed(told, capsys, "--level", "medium")] == [SECOND]
    assert len(listed(told, capsys, "--level", "medium", "--level", "high")) == 2
    assert [r["alert_id"] for r in listed(told, capsys, "--since", "2026-11-20T11:06:00Z")] == [
        FIRST
    ]
    assert listed(told, capsys, "--entity", A) == []
    assert len(listed(told, capsys, "--entity", B.upper())) == 2
    assert len(listed(told, capsys, "--entity", "10.0.0.1")) == 2
    # A rule that is in no file any more has its alerts still.
    assert [r["alert_id"] for r in listed(told, capsys, "--rule", "rule-2")] == [SECOND]
    assert listed(told, capsys, "--rule", "ssh_password_guessing") == []
    with pytest.raises(Usage, match="no rule 'rule-3'"):
        run(told, "list", "--rule", "rule-3")


@pytest.mark.full
def test_what_was_kept_from_the_topic_is_listed_only_when_asked_for(
    lake: Lake, capsys: pytest.CaptureFixture[str]
) -> None:
    insert(lake, [revision(FIRST, 1, 0), revision(SECOND, 1, 5, suppressed_by="budget")])
    assert [row["alert_id"] for row in listed(lake.settings, capsys)] == [FIRST]
    assert len(listed(lake.settings, capsys, "--muted")) == 2


def test_list_says_what_its_limit_leaves_out(
    told: Settings, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(told, "list", "--limit", "1", "--output", "ndjson") == 0
    printed = capsys.readouterr()
    assert json.loads(printed.out)["alert_id"] == FIRST
    assert "there are more" in printed.err


def test_what_a_log_says_steers_neither_terminal_nor_spreadsheet(
    told: Settings, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(told, "list") == 0
    table = capsys.readouterr().out
    assert "=HYPERLINK(1)" in table
    assert "\x1b" not in table
    assert run(told, "list", "--output", "csv") == 0
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert rows[1]["title"].startswith("'=HYPERLINK")


def test_show_takes_the_start_of_an_id_if_it_is_one(
    told: Settings, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(told, "show", "aa01", "--output", "json") == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["alert"]["revision"] == 2
    assert [r["entity_value"] for r in shown["revisions"]] == [A, B]
    assert shown["revisions"][1]["previous_entity"] == A
    assert run(told, "show", FIRST) == 0
    assert "attribution" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["show", "aa0"], "at least 4 characters"),
        (["show", "ffff"], "no alert 'ffff'; 'headgate alerts list' shows them"),
        (["close", "ffff", "--verdict", "benign"], "no alert 'ffff'"),
        (["list", "--since", "noon"], "--since noon: write an instant"),
        (["list", "--since", "2026-11-20T11:06:00"], "name the zone"),
    ],
)
def test_a_wrong_call_is_one_sentence(words: list[str], said: str, told: Settings) -> None:
    with pytest.raises(Usage, match=said):
        run(told, *words)


def test_an_ambiguous_start_of_an_id_is_refused_with_the_ids(lake: Lake) -> None:
    rows = [revision("abcd1" + "0" * 27, 1, 0), revision("abcd2" + "0" * 27, 1, 1)]
    insert(lake, rows)
    with pytest.raises(Usage, match=r"may be several \(abcd10+, abcd20+\)"):
        reader.detail(lake.settings, "abcd")


@pytest.mark.parametrize("action", ["close", "verdict"])
def test_a_verdict_that_is_none_leaves_no_request(action: str, tmp_path: Path) -> None:
    settings = load(home=tmp_path / "home")
    with pytest.raises(Usage, match="no verdict 'banana'"):
        request_action(settings, action, FIRST, "rule-1", value="banana")
    assert not settings.home.exists()
    spelled = request_action(settings, action, FIRST, "rule-1", value="False positive")
    assert spelled["value"] == "false_positive"


def test_an_act_says_when_it_is_taken(tmp_path: Path) -> None:
    settings = load(home=tmp_path)
    assert "no driver runs job alert now" in when_taken(settings)
    now = time.time()
    write_status(settings, JobStatus("alert", "running", at=now))
    assert when_taken(settings) == "job alert takes it within seconds"
    write_status(settings, JobStatus("alert", "running", at=now - 60))
    assert "no driver runs job alert now" in when_taken(settings)


@pytest.mark.full
def test_close_leaves_a_request_that_folds_into_the_table_once(told: Settings, day: Lake) -> None:
    comment = 'a test\nof two lines, with "quotes"'
    assert run(told, "close", "aa02", "--verdict", "benign", "--comment", comment) == 0
    (waiting,) = (told.home / "spool" / "alert_action").glob("*.json")
    row = json.loads(waiting.read_text("utf-8"))
    assert waiting.stem == f"{SECOND}.{row['action_id']}"
    assert (row["alert_id"], row["rule_id"]) == (SECOND, "rule-2")
    (audited,) = (told.home / "spool" / "audit").glob("*.json")
    assert json.loads(audited.read_text("utf-8"))["act"] == "alert.close"

    assert flush_outbox(day, ALERT_ACTION, told.home / "spool" / "alert_action") == 1
    assert flush_outbox(day, ALERT_ACTION, told.home / "spool" / "alert_action") == 0
    (folded,) = day.read(ALERT_ACTION).collect()
    assert folded["action_id"] == row["action_id"]
    assert (folded["action"], folded["value"], folded["comment"]) == ("close", "benign", comment)
    assert folded["at"] is not None
    assert folded["who"]


@pytest.mark.full
def test_an_alert_closed_already_is_not_closed_again(lake: Lake) -> None:
    shut = revision(FIRST, 1, 0, body={"state": "closed", "verdict": "benign"})
    insert(lake, [shut])
    with pytest.raises(Usage, match=r"is closed already \(verdict: benign\)"):
        reader.close(lake.settings, [FIRST], None, None)
    assert not (lake.settings.home / "spool").exists()


@pytest.mark.full
def test_a_missing_lake_or_broker_is_one_sentence(tmp_path: Path) -> None:
    nothing = load(home=tmp_path / "x", kafka={"bootstrap": f"127.0.0.1:{free_port()}"})
    with pytest.raises(HeadgateError, match="there is no lake here"):
        run(nothing, "list")
    with pytest.raises(HeadgateError, match="no Kafka broker answers"):
        run(nothing, "tail")


def test_since_takes_instants_and_spans() -> None:
    assert since_when("90m", NOON) == NOON - timedelta(minutes=90)
    assert since_when("7d", NOON) == since_when("-1w", NOON) == NOON - timedelta(days=7)
    assert since_when("yesterday", NOON) == NOON.replace(hour=0) - timedelta(days=1)
    assert since_when("2026-11-20T12:00:00+01:00", NOON) == NOON
    with pytest.raises(Usage, match="write an instant"):
        since_when("99999999999d", NOON)


def test_tail_hears_what_is_committed_from_the_beginning_or_from_now(
    broker: Broker, tmp_path: Path
) -> None:
    settings = load(
        home=tmp_path, kafka={"bootstrap": broker.address, "alerts_topic": "alerts.tailed"}
    )
    client = admin(settings.kafka)  # kept until the answer is in: it ends with it
    client.create_topics([NewTopic("alerts.tailed", num_partitions=2)])["alerts.tailed"].result(20)
    send(settings, "old", commit=True)
    send(settings, "aborted", commit=False)
    everything, fresh = Ear(settings, "beginning"), Ear(settings, "now")
    try:
        everything.wait_for(1)
        assert not fresh.heard
        # What comes before the consumer has found the end is not "from now": send until heard.
        for number in range(50):
            send(settings, f"new-{number}", commit=True)
            if fresh.came.wait(0.3):
                break
        everything.wait_for(2)
    finally:
        everything.end()
        fresh.end()
    keys = {heard.key for heard in everything.heard}
    assert keys >= {"old", "new-0"}
    assert "aborted" not in keys
    assert fresh.heard
    assert all(heard.key.startswith("new-") for heard in fresh.heard)
    assert "ALERT old r1" in everything.heard[0].line()


class Ear:
    """A tail in a thread of its own."""

    def __init__(self, settings: Settings, begin: Begin) -> None:
        self.heard: list[TopicMessage] = []
        self.came = threading.Event()
        self._more = threading.Condition()
        self._stop = threading.Event()
        self._thread = threading.Thread(
            target=tail, args=(settings, self._hear, begin, self._stop), daemon=True
        )
        self._thread.start()

    def _hear(self, heard: TopicMessage) -> None:
        with self._more:
            self.heard.append(heard)
            self.came.set()
            self._more.notify_all()

    def wait_for(self, count: int, seconds: float = 30) -> None:
        with self._more:
            assert self._more.wait_for(lambda: len(self.heard) >= count, seconds), self.heard

    def end(self) -> None:
        self._stop.set()
        self._thread.join(15)
        assert not self._thread.is_alive()


def send(settings: Settings, alert_id: str, *, commit: bool) -> None:
    client = producer(settings.kafka, **{"transactional.id": "tail-test"})
    client.init_transactions(20)
    client.begin_transaction()
    body = {"alert_id": alert_id, "revision": 1, "title": "Guessing", "activity": "create"}
    client.produce(settings.kafka.alerts_topic, json.dumps(body).encode(), alert_id.encode())
    client.flush(10)
    if commit:
        client.commit_transaction(20)
    else:
        client.abort_transaction(20)
