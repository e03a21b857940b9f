"""What is delivered twice is kept, marked, and passed over, through restarts."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame

from alerts.matching.detection import detect
from alerts.rulebook.rule_store import rule_store
from alerts.tables import FINDING
from infra.config.settings import load
from infra.delta.duckdb_views import connect
from infra.delta.schema import Table
from infra.streaming.batch import Batch
from infra.streaming.job import Job
from infra.streaming.lake import Lake
from ingest.parsing.source import ParseSettings
from ingest.pipeline.batch_pass import Reach
from ingest.pipeline.deduplication import Redelivery
from ingest.pipeline.files_job import files
from ingest.pipeline.ingest_job import through
from ingest.tables import EVENT, RECORD

NOW = datetime(2026, 11, 21, 4, 0, tzinfo=UTC)
INBOX = Table("bronze.inbox", "records that arrive", RECORD.columns)


def call(number: int, at: int = 0, name: str = "StopLogging") -> dict[str, object]:
    """A CloudTrail record that a bundled rule finds."""
    return {
        "eventVersion": "1.08",
        "eventID": f"id-{number}",
        "eventTime": f"2026-11-21T03:00:{at:02d}Z",
        "eventName": name,
        "eventSource": "cloudtrail.amazonaws.com",
        "awsRegion": "eu-west-1",
        "sourceIPAddress": "203.0.113.9",
        "userIdentity": {"type": "IAMUser", "userName": "mallory"},
        "requestParameters": None,
        "responseElements": None,
    }


def trail(*calls: dict[str, object]) -> bytes:
    return gzip.compress(json.dumps({"Records": list(calls)}).encode(), mtime=0)


@pytest.fixture
def deliver(lake: Lake) -> Callable[..., None]:
    """Work off records `(id, raw)` or `(id, raw, tenant)`, all in one batch, as a job would."""
    lake.ensure(INBOX)

    def work(*records: tuple[Any, ...], mode: str = "live", job: str = "ingest") -> None:
        rows = [
            (record[0], "aws_cloudtrail", mode, NOW, None, None, None, record[1], None,
             record[2] if len(record) > 2 else None)
            for record in records
        ]  # fmt: skip
        frame = lake.spark.createDataFrame(rows, RECORD.schema)
        frame.write.format("delta").mode("append").save(lake.path(INBOX))
        run_on(lake, job).wait()

    return work


def run_on(lake: Lake, job: str = "ingest") -> Job:
    parsing = ParseSettings.of(lake.settings)
    steps = [detect(lake, rule_store(lake.settings))]

    def batch(arrived: DataFrame, run: Batch) -> None:
        through(lake, arrived.coalesce(1), parsing, Reach(), [step(run) for step in steps], run)

    return lake.each_batch(job, lake.stream(INBOX), batch, trigger_seconds=None)


def marks(lake: Lake) -> dict[str, str | None]:
    return {row["event_uid"]: row["duplicate_of"] for row in lake.read(EVENT).collect()}


def found(lake: Lake) -> list[str]:
    rows = lake.read(FINDING).where("rule_title LIKE 'AWS audit logging%'").collect()
    return sorted(row["event_uid"] for row in rows)


def test_a_trail_delivered_twice_in_one_batch_and_again_later(lake, deliver):
    file = trail(call(1), call(2, name="GetUser"))
    deliver(("a", file), ("b", file))
    deliver(("c", trail(call(2, name="GetUser"), call(3, name="GetUser"))))
    assert marks(lake) == {
        "a#0": None,
        "a#1": None,
        "b#0": "a#0",
        "b#1": "a#1",
        "c#0": "a#1",
        "c#1": None,
    }
    assert found(lake) == ["a#0"]
    connection = connect(lake.settings.lake_root, needs=("silver.event",))
    assert connection.execute("SELECT count(*) FROM silver.events").fetchone() == (3,)
    connection.close()


@pytest.mark.full
def test_rows_are_of_their_records_tenant_and_no_tenant_hides_anothers(lake, deliver):
    file = trail(call(1))
    deliver(("a", file, "acme"), ("b", file, "globex"), ("c", file), ("d", file, "acme"))
    assert marks(lake) == {"a#0": None, "b#0": None, "c#0": None, "d#0": "a#0"}
    for table, name in ((RECORD, "record_id"), (EVENT, "event_uid"), (FINDING, "event_uid")):
        rows = lake.read(table).select(name, "tenant_uid").collect()
        tenants = {row[0].removesuffix("#0"): row[1] for row in rows}
        first = {uid: tenants[uid] for uid in ("a", "b", "c")}
        assert first == {"a": "acme", "b": "globex", "c": None}, table.name


@pytest.mark.full
def test_a_crash_after_silver_marks_the_same_again(lake, deliver, monkeypatch):
    deliver(("a", trail(call(1))))
    commit = Lake.commit

    def dies(self: Lake, table, run, files) -> None:
        commit(self, table, run, files)
        if table is EVENT:
            raise RuntimeError("the driver dies")

    monkeypatch.setattr(Lake, "commit", dies)
    with pytest.raises(Exception, match="the driver dies"):
        deliver(("b", trail(call(1), call(4))))
    monkeypatch.setattr(Lake, "commit", commit)
    run_on(lake).wait()
    deliver(("c", trail(call(4))))
    assert marks(lake) == {"a#0": None, "b#0": "a#0", "b#1": None, "c#0": "b#1"}
    assert found(lake) == ["a#0", "b#1"]


@pytest.mark.full
def test_a_batch_that_came_to_no_commit_hides_nothing(lake, deliver, monkeypatch):
    commit = Lake.commit

    def dies(self: Lake, table, run, files) -> None:
        raise RuntimeError("the driver dies")

    monkeypatch.setattr(Lake, "commit", dies)
    with pytest.raises(Exception, match="the driver dies"):
        deliver(("a", trail(call(1))))
    monkeypatch.setattr(Lake, "commit", commit)
    # What another job delivers meanwhile is the first that counts.
    run_on(lake, "files").wait()
    run_on(lake, "ingest").wait()
    rows = [(row["event_uid"], row["duplicate_of"]) for row in lake.read(EVENT).collect()]
    assert rows == [("a#0", None), ("a#0", None)]


@pytest.mark.full
def test_an_import_hides_no_live_event_but_knows_what_was_live(lake, deliver):
    deliver(("old", trail(call(1), call(2, at=7))), mode="import")
    deliver(("live", trail(call(1))))
    deliver(("again", trail(call(1), call(2, at=7))), mode="import")
    assert marks(lake) == {
        "old#0": None,
        "old#1": None,
        "live#0": None,
        "again#0": "live#0",
        "again#1": "old#1",
    }
    assert found(lake) == ["live#0"]


@pytest.mark.full
def test_the_same_id_at_another_time_is_another_event(lake, deliver):
    deliver(("a", trail(call(1, at=1), call(1, at=2))))
    assert marks(lake) == {"a#0": None, "a#1": None}


@pytest.mark.full
def test_the_memory_is_bounded(lake, deliver, monkeypatch):
    monkeypatch.setattr("ingest.pipeline.deduplication.KEPT_KEYS", 4)
    for name, first in (("a", 0), ("b", 2), ("c", 4)):
        deliver((name, trail(call(first), call(first + 1))))
    deliver(("d", trail(call(0), call(3), call(5))))
    assert marks(lake)["d#0"] is None  # the oldest generation is gone
    assert marks(lake)["d#1"] == "b#1"
    assert marks(lake)["d#2"] == "c#1"


@pytest.mark.full
def test_a_file_delivered_again_under_another_name(lake: Lake, tmp_path: Path):
    drop = tmp_path / "drop"
    drop.mkdir()
    folder = {"paths": [str(drop)], "source": "aws_cloudtrail", "min_file_age_seconds": 0}
    told = Lake(lake.spark, load(home=lake.settings.home, folders={"trail": folder}))
    for name in ("1.json.gz", "2.json.gz"):
        (drop / name).write_bytes(trail(call(1), call(2)))
        files(told, once=True).wait()
    assert sorted(uid is None for uid in marks(told).values()) == [False, False, True, True]


@pytest.mark.full
def test_sources_without_a_key_cost_no_memory(lake: Lake, tmp_path: Path):
    drop = tmp_path / "drop"
    drop.mkdir()
    (drop / "a.log").write_bytes(b"Nov 21 04:00:00 b1 sshd[1]: Server listening.\n" * 2)
    folder = {"paths": [str(drop)], "source": "sshd", "min_file_age_seconds": 0}
    files(
        Lake(lake.spark, load(home=lake.settings.home, folders={"ssh": folder})), once=True
    ).wait()
    assert set(marks(lake).values()) == {None}
    assert not (lake.settings.home / "redelivery.sqlite").exists()
    assert Redelivery.__doc__
