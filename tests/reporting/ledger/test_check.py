"""The check of the ledger: what was read against bronze, the broker and the tables."""
# ruff: noqa: F811  # fixtures of another file are arguments here

from __future__ import annotations

import json
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.cimpl import NewTopic
from delta.tables import DeltaTable
from fastapi.testclient import TestClient

from api.app import create_app
from api.auth import token_of
from headgate.cli import main
from infra.config.settings import Settings, load
from infra.delta import retention
from infra.delta.duckdb_views import connect
from infra.delta.ops_tables import GAP, LEDGER_CHECK
from infra.delta.retention import Applied
from infra.kafka.client import admin, client_options, topic_of
from infra.runtime.driver import Driver
from infra.runtime.outbox_flusher import flush_outbox
from infra.streaming.lake import Lake
from ingest.completeness import log_truncation
from ingest.completeness.gaps import accept, find_gaps, gap_statement
from ingest.completeness.ledger_state import LedgerCheckState, ledger_check_folder
from ingest.tables import EVENT, RECORD
from reporting.cli.ledger_check import accept_holes as accept_holes
from reporting.cli.reader import open_lake
from reporting.ledger import missing_offsets
from reporting.ledger.check import TABLES, LedgerCheckResult, check_ledger
from reporting.ledger.gaps import missed
from tests.api.story import DEAD, event, insert, record
from tests.ingest.completeness.test_gaps import drain, expire, home, remake, send, source  # noqa: F401  # fixtures

Drain = Callable[[], list[str]]


def checked(settings: Settings, *, everything: bool = False) -> LedgerCheckResult:
    lake = open_lake(settings, TABLES)
    try:
        return check_ledger(settings, lake, everything=everything)
    finally:
        lake.close()


def looked(found: LedgerCheckResult) -> list[tuple[int, int, int, int, int]]:
    """Of each partition: from, to, and how many records, missing and repeated."""
    names = ("from_offset", "to_offset", "records", "missing", "repeated")
    return [tuple(row[name] for name in names) for row in found.rows if row["topic"]]  # type: ignore[misc]


def lose(lake: Lake, where: str, told: str = "") -> None:
    """Take records out of bronze behind everybody's back; `told`: what the commit says."""
    name = "spark.databricks.delta.commitInfo.userMetadata"
    lake.spark.conf.set(name, told)
    try:
        DeltaTable.forPath(lake.spark, lake.path(RECORD)).delete(where)
    finally:
        lake.spark.conf.unset(name)


@pytest.mark.full
def test_a_check_looks_at_what_is_new_and_says_how_far_the_broker_is(
    lake: Lake,
    source: Settings,
    drain: Drain,
) -> None:
    send(source, "m0", "m1")
    drain()
    first = checked(source)
    assert (looked(first), first.failures) == ([(0, 2, 2, 0, 0)], [])
    send(source, "m2", "m3", "m4")
    drain()
    send(source, "m5")
    second = checked(source)
    assert (looked(second), second.failures) == ([(2, 5, 3, 0, 0)], [])
    (row,) = second.rows
    assert (row["broker_first"], row["broker_end"], row["unread"], row["expiring"]) == (0, 6, 1, 0)
    assert looked(checked(source)) == [(5, 5, 0, 0, 0)]
    assert looked(checked(source, everything=True)) == [(0, 5, 5, 0, 0)]
    assert flush_outbox(lake, LEDGER_CHECK, lake.spool / "ledger_check") == 4
    assert lake.read(LEDGER_CHECK).where("passed").count() == 4


@pytest.mark.full
def test_a_record_that_is_not_in_bronze_is_told_until_a_person_accepts_it(
    lake: Lake,
    source: Settings,
    drain: Drain,
) -> None:
    send(source, "m0", "m1")
    drain()
    checked(source)
    send(source, "m2", "m3", "m4")
    drain()
    lose(lake, "offset = 3")
    found = checked(source)
    (said,) = found.failures
    assert said.endswith("1 messages that were read are not in bronze (3 to 3)")
    assert looked(found) == [(2, 5, 2, 1, 0)]
    send(source, "m5")
    drain()
    assert looked(checked(source)) == [(3, 6, 1, 1, 0)], "what is new, and what was missing"

    found = checked(source)
    connection = open_lake(source, TABLES)
    accept_holes(source, connection, found.holes, "me", "ticket 7")
    after = checked(source)
    assert (after.failures, after.rows[0]["gaps"]) == ([], 1)
    assert flush_outbox(lake, GAP, lake.spool / "gap") == 1
    assert checked(source, everything=True).failures == []
    now = datetime.now(UTC)
    (gap,) = missed(connect(source.lake_root), now - timedelta(hours=1), now)
    assert (gap.kind, gap.first, gap.end, gap.reason) == ("hole", 3, 4, "ticket 7")


@pytest.mark.full
def test_a_record_that_stands_twice_is_told_until_it_does_not(
    lake: Lake,
    source: Settings,
    drain: Drain,
) -> None:
    send(source, "m0", "m1", "m2")
    drain()
    insert(lake, EVENT, [event("b", "12:00", **DEAD) | beat(datetime.now(UTC))])
    checked(source)
    again = lake.read(RECORD).where("offset = 1")
    again.write.format("delta").mode("append").save(lake.path(RECORD))
    for _ in range(2):
        found = checked(source)
        assert looked(found)[0][4] == 1
        assert found.failures[0].endswith("1 rows of bronze stand there again")
    lose(lake, "offset = 1")
    assert checked(source).failures == []


def transactions(settings: Settings, many: int) -> None:
    """Send three messages in each, behind which it leaves a mark."""
    client = transactional(settings)
    for number in range(many):
        client.begin_transaction()
        for line in "abc":
            client.produce(topic_of("sshd", settings.kafka), f"{line}{number}".encode())
        client.commit_transaction(20)


def transactional(settings: Settings) -> Producer:
    name = {"transactional.id": f"t{time.time_ns()}"}
    client = Producer(client_options(settings.kafka) | name)
    client.init_transactions(20)
    return client


@pytest.mark.full
def test_marks_of_transactions_are_no_messages(
    lake: Lake, source: Settings, drain: Drain, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(missing_offsets, "MOST_ASKED", 4)
    transactions(source, 7)
    send(source, "last")
    assert len(drain()) == 22
    found = checked(source)
    assert (looked(found), found.failures) == ([(0, 29, 22, 0, 0)], [])
    assert (found.rows[0]["empty"], found.rows[0]["unasked"]) == (7, 0)
    lose(lake, "offset = 25")
    found = checked(source, everything=True)
    assert looked(found) == [(0, 29, 21, 1, 0)], "a single one behind many marks"
    assert json.loads(found.rows[0]["examples"]) == [[25, 26]]
    monkeypatch.setattr(missing_offsets, "NEAR", 1)
    monkeypatch.setattr(log_truncation, "NEAR", 1)
    row = checked(source, everything=True).rows[0]
    counts = row["empty"], row["unasked"], row["missing"]
    assert counts in {(4, 4, 0), (3, 0, 5)}, "four were asked about, from a random one on"


@pytest.mark.full
def test_what_is_lost_behind_an_open_transaction_is_missing(
    lake: Lake, source: Settings, drain: Drain
) -> None:
    client = transactional(source)
    client.begin_transaction()
    client.produce(topic_of("sshd", source.kafka), b"open")
    client.flush(20)
    send(source, "m1", "m2")
    assert len(drain()) == 3
    lose(lake, "offset = 1")
    assert looked(checked(source)) == [(0, 3, 2, 1, 0)]
    client.abort_transaction(20)


@pytest.mark.full
def test_what_retention_and_erasures_took_is_not_missing(
    lake: Lake,
    source: Settings,
    drain: Drain,
) -> None:
    send(source, "m0", "m1")
    time.sleep(0.1)  # the broker stamps what comes together alike
    send(source, "m2", "m3", "m4")
    drain()
    lose(lake, "offset = 1")
    assert looked(checked(source))[0][3] == 1
    (edge,) = lake.read(RECORD).where("offset = 2").select("received_at").first()
    retention.note_retention(lake.folder(RECORD), Applied(every=edge.astimezone(UTC)))
    after = checked(source)
    assert (after.failures, after.rows[0]["expired"]) == ([], 1)

    send(source, "m5", "m6", "m7")
    drain()
    lose(lake, "offset = 6", json.dumps({"erase": "e1", "removed": 1, "replaced": 0}))
    after = checked(source)
    assert (after.failures, after.rows[0]["erased"]) == ([], 1)


@pytest.mark.full
def test_unread_messages_that_the_broker_soon_deletes_are_told(
    source: Settings,
    drain: Drain,
) -> None:
    topic = topic_of("fast", source.kafka)
    client = admin(source.kafka)
    config = {"message.timestamp.type": "LogAppendTime", "retention.ms": "8000"}
    client.create_topics([NewTopic(topic, 1, config=config)])[topic].result(20)
    send(source, "m0", topic=topic)
    drain()
    send(source, "m1", "m2", topic=topic)
    time.sleep(6.2)  # beyond three quarters of it
    send(source, "m3", topic=topic)
    found = checked(source)
    assert [one.rpartition(": ")[2] for one in found.failures] == [
        "2 unread messages are soon deleted by the broker's retention"
    ]
    (row,) = (row for row in found.rows if row["topic"] == topic)
    assert (row["unread"], row["expiring"]) == (3, 2)


@pytest.mark.full
def test_a_gap_that_nobody_has_accepted_fails_and_an_accepted_one_does_not(
    source: Settings,
    drain: Drain,
) -> None:
    send(source, "m0")
    drain()
    send(source, "m1", "m2")
    expire(source, 2)
    assert "messages 1 to 1 (1) were deleted" in checked(source).failures[0]
    assert LedgerCheckState.load(ledger_check_folder(source)).lost == 1
    accept(source, gap_statement(find_gaps(source)), "me", "a test")
    drain()
    found = checked(source)
    assert (looked(found), found.failures) == ([(1, 3, 1, 0, 0)], [])
    assert found.rows[0]["gaps"] == 1


@pytest.mark.full
def test_a_topic_made_anew_is_looked_at_from_its_beginning(
    lake: Lake,
    source: Settings,
    drain: Drain,
) -> None:
    topic = topic_of("sshd", source.kafka)
    send(source, "old0", "old1", "old2")
    drain()
    checked(source)
    client = admin(source.kafka)
    client.delete_topics([topic])[topic].result(20)
    remake(source, topic)
    send(source, "new0", "new1", "new2", "new3")
    accept(source, gap_statement(find_gaps(source)), "me", "moved")
    drain()
    lose(lake, "offset = 0 AND string(raw) = 'new0'")
    assert looked(checked(source)) == [(0, 4, 3, 1, 0)]


@pytest.mark.full
def test_a_record_that_no_row_names_fails_the_check_each_time(
    lake: Lake,
    source: Settings,
) -> None:
    now = datetime.now(UTC)
    lost = record("lost", "12:00") | {"received_at": now - timedelta(minutes=9)}
    insert(lake, RECORD, [lost])
    insert(lake, EVENT, [event("b", "12:00", **DEAD) | beat(now - timedelta(minutes=5))])
    (said,) = checked(source).failures
    assert said.startswith("source sshd: 1 records unaccounted and 0 event ids")
    insert(lake, EVENT, [event("c", "12:00", **DEAD) | beat(now)])
    assert len(checked(source).failures) == 1
    named = event("lost", "12:00") | {"received_at": lost["received_at"]}
    insert(lake, EVENT, [named])
    assert checked(source).failures == []


def beat(at: datetime) -> dict[str, object]:
    return {"source": "_heartbeat", "record_ids": [], "time": at, "received_at": at}


@pytest.mark.full
def test_the_command_and_the_metrics_tell_loudly(
    lake: Lake,
    source: Settings,
    drain: Drain,
    capsys: pytest.CaptureFixture[str],
    home: list[str],
) -> None:
    ledger = [*home, "ledger"]
    client = TestClient(create_app(source))
    client.headers["Authorization"] = f"Bearer {token_of(source)}"
    assert "\nheadgate_ledger_passed " not in client.get("/metrics").text
    send(source, "m0", "m1", "m2")
    drain()
    assert main([*ledger, "--check", "--output", "json"]) == 0
    assert json.loads(capsys.readouterr().out)[0]["records"] == 3
    assert "\nheadgate_ledger_passed 1.0" in client.get("/metrics").text
    lose(lake, "offset = 1")
    assert main([*ledger, "--check", "--all"]) == 1
    said = capsys.readouterr().err.splitlines()[-1]
    assert said.startswith("headgate: the ledger's check failed: topic ")
    text = client.get("/metrics").text
    assert "\nheadgate_ledger_passed 0.0" in text
    assert "\nheadgate_ledger_missing 1.0" in text
    assert main([*ledger, "--check", "--accept", " "]) == 2
    assert main([*ledger, "--accept", "known"]) == 2
    assert main([*ledger, "--check", "--accept", "known"]) == 0
    assert main([*ledger, "--check", "--accept", "again"]) == 2


@pytest.mark.full
def test_what_was_lost_since_it_was_told_is_not_accepted_unseen(
    lake: Lake,
    source: Settings,
    drain: Drain,
    capsys: pytest.CaptureFixture[str],
    home: list[str],
) -> None:
    command = [*home, "ledger", "--check", "--all"]
    send(source, "m0", "m1", "m2", "m3", "m4")
    drain()
    lose(lake, "offset = 1")
    assert main(command) == 1
    lose(lake, "offset = 3")
    capsys.readouterr()
    assert main([*command, "--accept", "ticket 8"]) == 1
    accepted, new, failed = capsys.readouterr().err.splitlines()
    assert accepted.endswith("partition 0: 1 to 1")
    assert new.startswith("headgate: new since the check before, and not accepted: topic ")
    assert new.endswith("partition 0: 3 to 3")
    assert "1 messages that were read are not in bronze (3 to 3)" in failed
    assert main([*command, "--accept", "that too"]) == 0


def test_up_checks_the_ledger_on_a_schedule(tmp_path: Path) -> None:
    scheduled = {one.name: one for one in Driver(load(home=tmp_path), ("ingest",))._scheduled()}
    assert scheduled["ledger"]._command == ("ledger", "--check")
    assert scheduled["ledger"]._seconds == 3600
    never = Driver(load(home=tmp_path, jobs={"ledger_minutes": 0}), ("ingest",))._scheduled()
    assert "ledger" not in {one.name for one in never}
