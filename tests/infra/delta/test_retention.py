"""What is older than its retention goes, by layer, source and family, and nothing else does."""

from __future__ import annotations

import time
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame

from headgate.cli import main
from infra.config.settings import load
from infra.delta.catalog import table
from infra.delta.ops_tables import LEDGER
from infra.delta.parquet_writer import FileWriter, Target, arrow_schema
from infra.delta.retention import NEVER, Applied, furthest, require_sources
from infra.delta.schema import Table
from infra.delta.transaction import active_files
from infra.errors import Fatal, Usage
from infra.maintenance import maintenance
from infra.maintenance.compaction_plan import SPANS, CompactionPiece, plan_in_spans
from infra.runtime.driver import Driver
from infra.streaming.batch import Batch
from infra.streaming.job import Job
from infra.streaming.lake import Lake
from infra.streaming.parquet_scan import files_between
from tests.infra.numbers import NUMBER, SQUARE, rows

TARGET = 64 * 2**20


def events(lake: Lake, source: str, *days_ago: float) -> None:
    """One file of bronze rows of a source, received so long ago."""
    record = table("bronze.record")
    now = datetime.now(UTC)
    made = [
        {"record_id": f"{source}-{days}", "source": source, "received_at": now - timedelta(days)}
        for days in days_ago
    ]
    writer = FileWriter(Target.of(record, lake.folder(record), "test-"))
    writer.write(pa.RecordBatch.from_pylist(made, schema=arrow_schema(record)))
    file = writer.close()
    assert file is not None
    lake.replace(record, [], [file], "test")


def kept_records(lake: Lake) -> list[str]:
    found = lake.read(table("bronze.record")).select("record_id").collect()
    return sorted(row["record_id"] for row in found)


def test_retention_takes_whole_files_and_single_sources(lake: Lake) -> None:
    record = table("bronze.record")
    events(lake, "sshd", 40, 35)
    events(lake, "sshd", 31, 5, 1)
    events(lake, "zeek:conn", 20, 2)
    kept = {"bronze_days": 30, "sources": {"zeek:conn": 14}}
    lake.settings = load(home=lake.settings.home, retention=kept)
    # Whole files go by layer: the one that reaches over the limit waits until all of it is older.
    assert maintenance.expire(lake, record, datetime.now(UTC)) == 2
    assert kept_records(lake) == ["sshd-1", "sshd-31", "sshd-5", "zeek:conn-2"]
    assert maintenance.expire(lake, record, datetime.now(UTC)) == 0
    lake.settings = load(home=lake.settings.home)
    assert maintenance.expire(lake, record, datetime.now(UTC) + timedelta(days=9999)) == 0


@pytest.mark.full
def test_a_familys_retention_is_that_of_its_sources_which_have_none_of_their_own(
    lake: Lake,
) -> None:
    record = table("bronze.record")
    for source in ("zeek", "zeek:conn", "zeek:dns", "zeek:http", "zeekr"):
        events(lake, source, 40, 20, 2)
    kept = {"sources": {"zeek": 14, "zeek:dns": 30, "zeek:http": 0}}
    lake.settings = load(home=lake.settings.home, retention=kept)
    assert maintenance.expire(lake, record, datetime.now(UTC)) == 3
    left = [name.rpartition("-") for name in kept_records(lake)]
    assert {source: [int(at) for of, _, at in left if of == source] for source, _, _ in left} == {
        "zeek": [2],
        "zeek:conn": [2],
        "zeek:dns": [2, 20],
        "zeek:http": [2, 20, 40],
        "zeekr": [2, 20, 40],
    }
    assert maintenance.expire(lake, record, datetime.now(UTC)) == 0


def test_what_went_by_a_family_stays_gone_of_a_source_that_gets_days_of_its_own() -> None:
    day = [datetime(2026, 11, day, tzinfo=UTC) for day in range(1, 9)]
    family = Applied(None, {"zeek": day[5]})
    both = family.further(Applied(None, {"zeek": day[2], "zeek:dns": day[3], "sshd": NEVER}))
    assert [both.of(name) for name in ("zeek", "zeek:dns", "zeek:conn")] == [day[5]] * 3
    assert both.of("sshd") is None
    assert Applied(day[1]).further(both).latest == day[5]
    later = both.further(Applied(None, {"zeek:dns": day[7]}))
    assert (later.of("zeek:dns"), later.of("zeek:http")) == (day[7], day[5])


def test_settings_of_what_is_no_source_are_refused(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("zeek", "zeek:conn", "sshd"):
        require_sources(load(retention={"sources": {name: 7}}, sources={name: {}}))
    with pytest.raises(Usage, match=r"^sources: no source 'ssdh'; there are .* sshd"):
        require_sources(load(sources={"sshd": {}, "ssdh": {"tz": "Europe/Berlin"}}))
    wrong = load(home=lake.settings.home, retention={"sources": {"shd": 7}})
    with pytest.raises(Usage, match=r"retention.sources: no source 'shd'; there are .* sshd"):
        Driver(wrong, ("ingest",)).run()
    monkeypatch.setenv("HEADGATE_RETENTION__SOURCES", '{"shd": 7}')
    assert main(["--home", str(lake.settings.home), "compact"]) == 2
    assert "no source 'shd'" in capsys.readouterr().err


@pytest.mark.full
def test_layers_have_a_retention_each(lake: Lake) -> None:
    now = datetime.now(UTC)
    lake.settings = load(
        home=lake.settings.home, retention={"silver_days": 7, "gold_days": 31, "ops_days": 3}
    )
    added = {
        "gold.attributed_event": {"event_uid": "e", "source": "okta", "received_at": now},
        "gold.finding": {"finding_id": "f", "event_time": now - timedelta(days=900)},
        "gold.alert": {"alert_id": "a", "revision": 1},
        "ops.audit": {"at": now, "who": "cli"},
        "silver.dhcp_segment": {"scope": "s", "ip": "10.0.0.1", "rev": 1},
        "ops.ledger": {"job": "ingest", "batch": 1},
    }
    for name, row in added.items():
        lake.add(table(name), [row], "test")

    def left(days: float) -> list[str]:
        for name in added:
            maintenance.expire(lake, table(name), now + timedelta(days=days, minutes=1))
        return [name for name in added if active_files(lake.spark, lake.path(table(name)))]

    # An old event's finding is as old as its arrival.
    assert left(2) == list(added)
    assert left(5) == [name for name in added if name != "ops.audit"]
    assert left(8) == ["gold.finding", "gold.alert", "silver.dhcp_segment", "ops.ledger"]
    assert left(32) == left(399) == ["silver.dhcp_segment", "ops.ledger"]
    assert left(401) == left(9999) == ["silver.dhcp_segment"]


@pytest.mark.full
def test_a_day_of_the_ledger_is_found_without_the_other_days(lake: Lake) -> None:
    day = datetime(2026, 11, 20, 12, tzinfo=UTC)
    for days in range(3):
        at = day + timedelta(days=days)
        lake.add(LEDGER, [{"job": "ingest", "started_at": at, "finished_at": at}], "test")
    span = (day + timedelta(hours=12), day + timedelta(hours=36))
    assert len(files_between(lake, LEDGER, "finished_at", *span)) == 1


def written(lake: Lake, one: Table, *days_ago: float) -> None:
    """A file of one number for each, written so long ago."""
    now = time.time()
    for at in days_ago:
        writer = FileWriter(Target.of(one, lake.folder(one), "test-"))
        writer.write(pa.RecordBatch.from_pylist([{"n": int(at)}], schema=arrow_schema(one)))
        file = writer.close()
        assert file is not None
        old = replace(file, written_at=int((now - at * 86_400) * 1000))
        lake.replace(one, [], [old], "test")


@pytest.mark.full
def test_merging_makes_no_row_younger_and_takes_none_from_readers_or_streams(lake: Lake) -> None:
    source = replace(NUMBER, name="gold.kept", expires="gold_days")
    lake.ensure(source, SQUARE)

    def job() -> Job:
        def batch(rows: DataFrame, run: Batch) -> None:
            lake.append(rows.selectExpr("n * n AS n"), SQUARE, run)

        return lake.each_batch("of-kept", lake.stream(source), batch, trigger_seconds=None)

    written(lake, source, 60)
    job().wait()  # is behind by the next seven
    written(lake, source, 59, 58, 57, 56, 55, 54, 53)
    assert maintenance.merge_small_files(lake, source) == (8, 1)
    (file,) = active_files(lake.spark, lake.path(source))
    assert timedelta(days=53) <= datetime.now(UTC) - file.written < timedelta(days=53, minutes=5)
    job().wait()
    assert rows(lake, SQUARE) == [n * n for n in range(53, 61)]
    # What VACUUM deletes goes by when it left; what was merged is there, however old it is.
    assert maintenance.vacuum(lake, source, timedelta(0))[0] == 8
    assert rows(lake, source) == list(range(53, 61))

    lake.settings = load(home=lake.settings.home, retention={"gold_days": 54})
    assert maintenance.expire(lake, source, datetime.now(UTC)) == 0
    lake.settings = load(home=lake.settings.home, retention={"gold_days": 52})
    assert maintenance.expire(lake, source, datetime.now(UTC)) == 1


@pytest.mark.full
def test_files_of_a_retention_are_merged_in_spans_of_it(lake: Lake) -> None:
    """31 days: spans of 3.9. Of those that are over nothing waits for eight of one size."""
    source = replace(NUMBER, name="gold.kept", expires="gold_days")
    lake.ensure(source)
    lake.settings = load(home=lake.settings.home, retention={"gold_days": 31})
    written(lake, source, 25, 25, 12, 12)
    assert maintenance.merge_small_files(lake, source) == (4, 2)
    assert maintenance.merge_small_files(lake, source) == (0, 0)


@pytest.mark.parametrize("rows_an_hour", [1, 50])
def test_no_row_outlives_its_retention_by_more_than_a_span(rows_an_hour: int) -> None:
    """A year of hours, a file each; what a file holds goes when its newest row is old enough."""
    kept, span = 31 * 24, 31 * 24 // SPANS
    oldest: dict[str, int] = {}
    pieces: list[CompactionPiece] = []
    longest = most = 0
    for now in range(365 * 24):
        pieces.append(CompactionPiece(f"f{now}", 1000 * rows_an_hour, now))
        oldest[f"f{now}"] = now
        for group in plan_in_spans(pieces, TARGET, span, now):
            made = CompactionPiece(
                f"m{now}-{group[0].name}", sum(p.size for p in group), group[-1].order
            )
            oldest[made.name] = min(oldest[one.name] for one in group)
            pieces = [piece for piece in pieces if piece not in group] + [made]
        gone = [piece for piece in pieces if piece.order < now - kept]
        pieces = [piece for piece in pieces if piece not in gone]
        longest = max([longest, *(now - oldest[piece.name] for piece in gone)])
        most = max(most, len(pieces))
    assert longest <= kept + span + 1
    assert most < 60


def test_alerts_are_kept_at_least_as_long_as_they_are_corrected(lake: Lake) -> None:
    with pytest.raises(Usage, match=r"gold_days.*is too short: at least 31"):
        load(home=lake.settings.home, retention={"gold_days": 7})


@pytest.mark.full
def test_what_retention_took_out_is_noted_for_good(lake: Lake) -> None:
    record = table("bronze.record")
    assert furthest(lake.settings, record.name).of("sshd") is None
    events(lake, "sshd", 40, 35)
    events(lake, "zeek:conn", 20, 2)
    now = datetime.now(UTC)
    for kept in ({"bronze_days": 30, "sources": {"zeek:conn": 14}}, {"bronze_days": 60}):
        lake.settings = load(home=lake.settings.home, retention=kept)
        maintenance.expire(lake, record, now)
    applied = furthest(lake.settings, record.name)
    assert applied.of("sshd") == now - timedelta(days=30)
    assert applied.of("zeek:conn") == applied.latest == now - timedelta(days=14)

    (lake.folder(record) / "_expired").write_text("{")
    with pytest.raises(Fatal, match=r"_expired is damaged .* tells what retention took out"):
        furthest(lake.settings, record.name)
