"""What a check of the ledger looks at again, over plain tables, and what excuses a hole."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import duckdb
import pytest
from hypothesis import given
from hypothesis import strategies as st

from infra.config.settings import load
from infra.delta.duckdb_views import open_engine
from infra.delta.retention import Applied
from ingest.completeness.ledger_state import LedgerCheckState
from ingest.completeness.offset_ranges import CountedStretch, Span, Stretch
from reporting.cli.ledger_check import ROWS, accept_holes, parted
from reporting.ledger.check import KEPT, _again, _sources
from reporting.ledger.completeness import excuse, forgive
from reporting.ledger.missing_offsets import AcceptedGap, Explainer, Reasons, hole_id

TEN = datetime(2026, 11, 20, 10, tzinfo=UTC)
DECLARED = {
    "bronze.record": "record_id TEXT, source TEXT, received_at TIMESTAMPTZ",
    "silver.event": "event_uid TEXT, record_ids TEXT[], source TEXT, received_at TIMESTAMPTZ, "
    "time TIMESTAMPTZ, dead_letter_reason TEXT",
    "gold.finding": "finding_id TEXT, rule_id TEXT, kind TEXT, source TEXT, event_uid TEXT, "
    "pack TEXT, ip TEXT, received_at TIMESTAMPTZ",
    "gold.attribution": "finding_id TEXT, via TEXT",
    "ops.ledger": "job TEXT, query_id TEXT, batch_id BIGINT, pack TEXT, decisions TEXT, "
    "started_at TIMESTAMPTZ, finished_at TIMESTAMPTZ",
}


@pytest.fixture
def lake() -> Iterator[duckdb.DuckDBPyConnection]:
    """Empty tables of our own."""
    connection = open_engine(memory="200MB", threads=1)
    for schema in ("bronze", "silver", "gold", "ops"):
        connection.execute(f"CREATE SCHEMA {schema}")
    for name, columns in DECLARED.items():
        connection.execute(f"CREATE TABLE {name} ({columns})")
    forgive(connection, Applied(), Applied())
    excuse(connection, [])
    yield connection
    connection.close()


def at(minute: int) -> datetime:
    return TEN + timedelta(minutes=minute)


def receive(lake: duckdb.DuckDBPyConnection, record: str, minute: int) -> None:
    lake.execute("INSERT INTO bronze.record VALUES (?, 'zeek:conn', ?)", [record, at(minute)])


def name(lake: duckdb.DuckDBPyConnection, record: str, minute: int) -> None:
    row = [f"{record}-0", [record], at(minute), at(minute)]
    lake.execute("INSERT INTO silver.event VALUES (?, ?, 'zeek:conn', ?, ?, NULL)", row)


def counted(
    lake: duckdb.DuckDBPyConnection, before: LedgerCheckState, minute: int
) -> tuple[list[tuple[int, int, int]], LedgerCheckState]:
    """Records, missing and repeated of each source, and what is left to the next check."""
    rows, hours = _sources(lake, before, at(minute))
    found = [(row["records"], row["missing"], row["repeated"]) for row in rows]
    return found, LedgerCheckState(finished=at(minute).isoformat(), hours=hours)


# arrived     55 (under way)
# checks         57                 117
def test_what_a_batch_under_way_at_the_check_lost_is_told_by_the_next(
    lake: duckdb.DuckDBPyConnection,
) -> None:
    excuse(lake, [at(55)])
    _, left = counted(lake, LedgerCheckState(finished=at(0).isoformat()), 57)
    excuse(lake, [])
    for number in range(3):
        receive(lake, f"f:{number}", 55)
    for number in range(2):
        name(lake, f"f:{number}", 55)
    assert counted(lake, left, 117)[0] == [(3, 1, 0)]


# arrived   10 (under way, killed)      100           all is in
# checks      57                           117   237       297   357
def test_a_long_import_is_looked_at_until_it_is_in_and_holds_up_nothing(
    lake: duckdb.DuckDBPyConnection,
) -> None:
    excuse(lake, [at(10)])
    receive(lake, "f:0", 10)
    found, left = counted(lake, LedgerCheckState(finished=at(0).isoformat()), 57)
    assert found == [(1, 0, 0)]
    receive(lake, "live", 100)
    for minute in (117, 237):
        found, left = counted(lake, left, minute)
        assert found == [(2, 1, 0)], "what is lost beside it is told"
    excuse(lake, [])
    name(lake, "live", 100)
    found, left = counted(lake, left, 297)
    assert found == [(2, 1, 0)]
    name(lake, "f:0", 10)
    assert counted(lake, left, 357)[0] == [(1, 0, 0)]


def test_an_event_that_is_written_again_behind_a_check_is_told_by_the_next(
    lake: duckdb.DuckDBPyConnection,
) -> None:
    receive(lake, "a", 56)
    name(lake, "a", 56)
    found, left = counted(lake, LedgerCheckState(finished=at(0).isoformat()), 57)
    assert found == [(1, 0, 0)]
    name(lake, "a", 56)
    assert counted(lake, left, 117)[0] == [(1, 0, 1)]


PLACE = ("logs.sshd", 0)
EXPIRED = AcceptedGap(PLACE, "expired", 0, 1_000_000, 1_000_000, at(0))


def anew(kind: str) -> AcceptedGap:
    """What a person accepted as the partition began to give its offsets once more."""
    return AcceptedGap(PLACE, kind, 5_000_000, None, 0, at(30))


def hole(named: str, span: Span, minute: int) -> AcceptedGap:
    return AcceptedGap(PLACE, "hole", *span, span[1], at(minute), hole_id(named, PLACE, span))


def excused_of(
    lake: duckdb.DuckDBPyConnection, home: Path, named: str, *gaps: AcceptedGap
) -> Reasons:
    """What becomes of a hole of 100 to 109 in the log that is named so; the one of now is `new`."""
    explain = Explainer(load(home=home), lake, gaps, {}, None, {PLACE[0]: "new"})
    stretch = Stretch(*PLACE, named, 0, 50_000)
    return explain(CountedStretch(stretch, 49_990, ((100, 110),), {}), again=True)


@pytest.mark.parametrize("kind", ["recreated", "reset", "removed"])
def test_a_gap_of_the_former_log_excuses_nothing_of_the_one_made_anew(
    lake: duckdb.DuckDBPyConnection, tmp_path: Path, kind: str
) -> None:
    lost, fine = Reasons(missing=((100, 110),)), Reasons(gaps=10)
    assert excused_of(lake, tmp_path, "new", EXPIRED) == fine
    assert excused_of(lake, tmp_path, "new", EXPIRED, anew(kind)) == lost
    assert excused_of(lake, tmp_path, "old", EXPIRED, anew(kind)) == fine
    late = AcceptedGap(PLACE, "expired", 90, 120, 120, at(40))
    assert excused_of(lake, tmp_path, "new", anew(kind), late) == fine
    assert excused_of(lake, tmp_path, "old", anew(kind), late) == lost


@pytest.mark.parametrize("minute", [20, 40])
def test_an_accepted_hole_is_of_the_log_that_it_was_found_in(
    lake: duckdb.DuckDBPyConnection, tmp_path: Path, minute: int
) -> None:
    both = (anew("recreated"), hole("old", (100, 110), minute))
    assert excused_of(lake, tmp_path, "old", *both) == Reasons(gaps=10)
    assert excused_of(lake, tmp_path, "new", *both) == Reasons(missing=((100, 110),))


@given(st.lists(st.tuples(st.integers(0, 40), st.integers(41, 60)), max_size=3))
def test_only_what_the_check_before_told_is_accepted(holes: list[Span]) -> None:
    stretch = Stretch(*PLACE, "new", 0, 60)
    before = LedgerCheckState(
        again=[
            (*PLACE, "new", 5, 20, "all"),
            (*PLACE, "new", 30, 45, "all"),
            (*PLACE, "new", 20, 30, "none"),
            (*PLACE, "old", 45, 60, "all"),
            ("logs.sshd", 1, "new", 45, 60, "all"),
        ]
    )
    known = {*range(5, 20), *range(30, 45)}
    for span in holes:
        told, new = parted([(stretch, span)], before)
        points = {at for _, one in told for at in range(*one)}
        assert points == known & {*range(*span)}
        assert {at for _, one in new for at in range(*one)} == {*range(*span)} - known


def test_what_a_check_leaves_does_not_grow_with_the_holes(
    lake: duckdb.DuckDBPyConnection, tmp_path: Path
) -> None:
    """A producer that commits ten times a second leaves 864,000 marks a day."""
    stretch = Stretch(*PLACE, "new", 0, 50_000)
    marks = [(at, at + 1) for at in range(9, 50_000, 10)]
    judged = [(CountedStretch(stretch, 45_000, tuple(marks), {}), Reasons(missing=tuple(marks)))]
    left = sorted(_again(judged))
    assert len(left) == KEPT
    assert parted([(stretch, one) for one in marks], LedgerCheckState(again=left))[1] == []
    assert sorted(_again([(judged[0][0], Reasons(missing=((3, 4), (9, 10))))])) == [
        (*PLACE, "new", 3, 4, "all"),
        (*PLACE, "new", 9, 10, "all"),
    ]

    lake.execute(
        "ALTER TABLE bronze.record ADD COLUMN topic TEXT; "
        'ALTER TABLE bronze.record ADD COLUMN "partition" INTEGER; '
        'ALTER TABLE bronze.record ADD COLUMN "offset" BIGINT'
    )
    settings = load(home=tmp_path)
    accept_holes(settings, lake, [(stretch, one) for one in marks], "me", "marks")
    rows = [json.loads(file.read_text()) for file in (tmp_path / "spool" / "gap").rglob("*.json")]
    assert (len(rows), sum(row["messages"] for row in rows)) == (ROWS, len(marks))
