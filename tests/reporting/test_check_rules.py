"""What a check of the ledger looks at again, over plain tables, and what excuses a hole."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import duckdb
import pytest

from infra.duck import open_engine
from infra.expired import Applied
from ingest.check_state import State
from reporting.ledger import excuse, forgive
from reporting.ledger_check import _sources

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
    lake: duckdb.DuckDBPyConnection, before: State, minute: int
) -> tuple[list[tuple[int, int, int]], State]:
    """Records, missing and repeated of each source, and what is left to the next check."""
    rows, hours = _sources(lake, before, at(minute))
    found = [(row["records"], row["missing"], row["repeated"]) for row in rows]
    return found, State(finished=at(minute).isoformat(), hours=hours)


# arrived     55 (under way)
# checks         57                 117
def test_what_a_batch_under_way_at_the_check_lost_is_told_by_the_next(
    lake: duckdb.DuckDBPyConnection,
) -> None:
    excuse(lake, [at(55)])
    _, left = counted(lake, State(finished=at(0).isoformat()), 57)
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
    found, left = counted(lake, State(finished=at(0).isoformat()), 57)
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
    found, left = counted(lake, State(finished=at(0).isoformat()), 57)
    assert found == [(1, 0, 0)]
    name(lake, "a", 56)
    assert counted(lake, left, 117)[0] == [(1, 0, 1)]
