"""Completeness by source, and the command that shows it."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from alerts.tables import FINDING
from enrich.tables import ATTRIBUTION
from infra.config.settings import Settings, load
from infra.delta.duckdb_views import connect
from infra.delta.retention import Applied
from infra.errors import Fatal, Usage
from infra.maintenance import maintenance
from infra.streaming.lake import Lake
from ingest.tables import EVENT, RECORD
from reporting.cli import ledger, report
from reporting.ledger.completeness import Completeness, completeness, forgive, total
from tests.api.story import DAY, DEAD, attribution, event, finding, insert, record

NEXT = DAY + timedelta(days=1)
BEAT = event("beat", "23:00", source="_heartbeat", **DEAD)


def run(argv: Sequence[str], settings: Settings) -> int:
    parser = argparse.ArgumentParser()
    commands = parser.add_subparsers(required=True)
    for module in (ledger, report):
        module.build(commands)
    args = parser.parse_args(argv)
    code: int = args.run(args, settings)
    return code


def row(lake: Lake, source: str = "sshd") -> Completeness:
    found = completeness(connect(lake.settings.lake_root), DAY, NEXT, source)
    assert [one.source for one in found] == [source]
    return found[0]


@pytest.mark.full
def test_a_whole_day_is_accounted_for(told: Lake) -> None:
    rows = completeness(connect(told.settings.lake_root), DAY, NEXT)
    assert {one.source: (one.received, one.parsed, one.dead) for one in rows} == {
        "dhcpd": (1, 1, 0),
        "sshd": (3, 3, 0),
        "zeek:conn": (2, 0, 2),
        "zeek:dns": (1, 1, 0),
    }
    summed = total(rows)
    assert (summed.unaccounted, summed.duplicated, summed.unfinished) == (0, 0, 0)
    assert (summed.findings, summed.pending) == (4, 0)


@pytest.mark.full
def test_a_record_that_no_row_names_is_unaccounted_once_its_batch_is_done(lake: Lake) -> None:
    insert(lake, RECORD, [record("a", "12:00"), record("lost", "12:01"), record("new", "23:30")])
    insert(lake, EVENT, [event("a", "12:00"), BEAT])
    found = row(lake)
    assert (found.received, found.parsed) == (3, 1)
    assert (found.unaccounted, found.unfinished) == (1, 1)


#  days before:  40    30    29    20    14    10    0
#  sshd          gone  |     lost  lost        there
#  zeek:dns                        gone  |     lost
@pytest.mark.full
@pytest.mark.parametrize("name", ["zeek:dns", "zeek"])
def test_what_retention_took_out_is_expired_and_what_it_never_reached_is_not(
    lake: Lake, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    for source, uid, days in (("sshd", "s1", 40), ("zeek:dns", "z1", 20), ("sshd", "s4", 10)):
        lake.add(RECORD, [arrived(record(uid, "12:00", source), days)], "test")
        lake.add(EVENT, [arrived(event(uid, "12:00", source=source), days)], "test")
    lost = (("sshd", "s2", 29), ("sshd", "s3", 20), ("zeek:dns", "z2", 10))
    lake.add(RECORD, [arrived(record(uid, "12:00", of), days) for of, uid, days in lost], "test")
    lake.add(EVENT, [BEAT], "test")
    home, limits = lake.settings.home, {"silver_days": 30, "sources": {name: 14}}
    lake.settings = load(home=home, retention=limits)
    assert accounted(lake, capsys) == {"sshd": (2, 0, 2), "zeek:dns": (1, 0, 1), "all": (3, 0, 3)}

    assert maintenance.expire(lake, EVENT, NEXT) == 2
    expected = {"sshd": (1, 1, 2), "zeek:dns": (0, 1, 1), "all": (1, 2, 3)}
    assert accounted(lake, capsys) == expected
    lake.settings = load(home=home, retention={"silver_days": 365})
    maintenance.expire(lake, EVENT, NEXT)
    assert accounted(lake, capsys) == expected


def arrived(row: dict[str, Any], days: int) -> dict[str, Any]:
    """The same so many days before `NEXT`."""
    return row | {"received_at": NEXT - timedelta(days=days)}


def accounted(lake: Lake, capsys: pytest.CaptureFixture[str]) -> dict[str, tuple[int, int, int]]:
    """Of each source, as the command tells it: parsed, expired and unaccounted."""
    span = ["--since", f"{NEXT - timedelta(days=60):%F}", "--until", f"{NEXT:%F}"]
    assert run(["ledger", *span, "--output", "json"], lake.settings) == 1
    told = json.loads(capsys.readouterr().out)
    for one in told:
        parts = ("parsed", "dead", "expired", "unfinished", "unaccounted")
        assert one["received"] == sum(one[part] for part in parts)
    return {one["source"]: (one["parsed"], one["expired"], one["unaccounted"]) for one in told}


@pytest.mark.full
def test_without_a_heartbeat_nothing_is_excused(lake: Lake) -> None:
    insert(lake, RECORD, [record("lost", "12:01")])
    assert row(lake).unaccounted == 1


@pytest.mark.full
def test_of_an_import_that_was_interrupted_nothing_is_unaccounted(lake: Lake, capsys) -> None:
    """Killed between bronze and silver, long before the heartbeat."""
    insert(lake, RECORD, [record("a", "12:00"), record("b", "12:00"), record("lost", "12:01")])
    insert(lake, EVENT, [BEAT])
    folder = lake.settings.checkpoint_root / "import" / "batches"
    folder.mkdir(parents=True)
    at = DAY.replace(hour=12, second=2).isoformat()
    (folder / "3.json").write_text(json.dumps({"received_at": at, "in_ledger": True}))
    ledger = ["ledger", "--since", f"{DAY:%F}", "--until", f"{NEXT:%F}", "--output", "ndjson"]
    assert run(ledger, lake.settings) == 1
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["unaccounted"] == 3
    (folder / "4.json").write_text(json.dumps({"received_at": at}))
    assert run(ledger, lake.settings) == 1
    counted = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert (counted["unfinished"], counted["unaccounted"]) == (2, 1)


@pytest.mark.full
def test_a_record_of_many_events_and_an_event_of_many_records_count_right(lake: Lake) -> None:
    insert(lake, RECORD, [record(uid, "12:00") for uid in ("file", "l1", "l2")])
    many = [event("file", "12:00", event_uid=f"file:{n}") for n in range(3)]
    joined = event("l1", "12:00", record_ids=["l1", "l2"])
    half_dead = event("file", "12:00", event_uid="file:3", dead_letter_reason="bad", **DEAD)
    insert(lake, EVENT, [*many, joined, half_dead, BEAT])
    found = row(lake)
    assert (found.received, found.parsed, found.dead, found.events) == (3, 3, 0, 4)
    assert (found.unaccounted, found.duplicated) == (0, 0)


@pytest.mark.full
def test_a_row_written_twice_is_counted(lake: Lake) -> None:
    insert(lake, RECORD, [record("a", "12:00")])
    insert(lake, EVENT, [event("a", "12:00"), event("a", "12:00"), BEAT])
    assert row(lake).duplicated == 1


@pytest.mark.full
def test_findings_are_pending_until_attributed_and_late_when_the_tables_answered(
    lake: Lake,
) -> None:
    insert(lake, FINDING, [finding("a", "12:00"), finding("b", "12:00"),
                           finding("c", "12:00", ip=None)])  # fmt: skip
    insert(lake, ATTRIBUTION, [attribution("b", "12:00", "none") | {"via": "late"}])
    found = row(lake)
    assert (found.findings, found.pending, found.late) == (3, 1, 1)


@pytest.mark.full
def test_a_finding_waits_for_no_attribution_that_retention_took_out(lake: Lake) -> None:
    insert(lake, FINDING, [finding("a", "12:00"), finding("b", "12:02")])
    connection = connect(lake.settings.lake_root)
    forgive(connection, Applied(), Applied(DAY.replace(hour=12, minute=1)))
    (found,) = completeness(connection, DAY, NEXT, "sshd")
    assert (found.findings, found.pending) == (2, 1)


@pytest.mark.full
def test_only_the_span_asked_for_counts(told: Lake) -> None:
    con = connect(told.settings.lake_root)
    assert completeness(con, NEXT, NEXT + timedelta(days=1)) == []
    early = completeness(con, DAY, DAY.replace(hour=12, minute=1), "dhcpd")
    assert [one.received for one in early] == [1]


@given(st.lists(st.tuples(*[st.integers(0, 10**6)] * 11), max_size=5))
def test_the_total_is_the_sum_of_its_sources(numbers: list[tuple[int, ...]]) -> None:
    rows = [Completeness(f"s{at}", *values) for at, values in enumerate(numbers)]
    summed = total(rows)
    assert summed.received == sum(one.received for one in rows)
    assert summed.duplicated == sum(one.duplicated for one in rows)
    assert summed.source == "all"


def test_the_command_prints_each_source_and_the_sum(
    told: Lake, capsys: pytest.CaptureFixture[str]
) -> None:
    span = ["--since", "2026-11-20", "--until", "2026-11-21"]
    assert run(["ledger", *span, "--output", "json"], told.settings) == 0
    printed = json.loads(capsys.readouterr().out)
    assert [one["source"] for one in printed] == ["dhcpd", "sshd", "zeek:conn", "zeek:dns", "all"]
    assert run(["ledger", *span, "--source", "sshd", "--output", "csv"], told.settings) == 0
    assert capsys.readouterr().out.splitlines()[1].startswith("sshd,3,3,0")
    assert run(["ledger", *span], told.settings) == 0
    assert "unaccounted" in capsys.readouterr().out


def test_the_command_fails_when_a_record_is_unaccounted(
    lake: Lake, capsys: pytest.CaptureFixture[str]
) -> None:
    insert(lake, RECORD, [record("lost", "12:01") | {"received_at": datetime.now(UTC)}])
    assert run(["ledger", "--output", "ndjson"], lake.settings) == 1
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["unaccounted"] == 1


def test_wrong_times_and_a_missing_lake_are_named(lake: Lake, tmp_path: Path) -> None:
    with pytest.raises(Usage, match="--since soon"):
        run(["ledger", "--since", "soon"], lake.settings)
    with pytest.raises(Usage, match="not before --until"):
        run(["ledger", "--since", "2026-11-21", "--until", "2026-11-20"], lake.settings)
    with pytest.raises(Fatal, match="there is no lake here"):
        run(["ledger"], load(home=tmp_path / "none"))
