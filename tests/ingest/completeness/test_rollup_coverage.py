"""Counts stand in for rows only for hours that were compared, one after the other."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import duckdb
from hypothesis import given
from hypothesis import strategies as st

from ingest.completeness.rollup_coverage import HOUR, span
from tests.examples import examples

START = datetime(2026, 11, 20, tzinfo=UTC)


def lake(hours: set[int]) -> duckdb.DuckDBPyConnection:
    """Tables with these hours of the day compared, each twice."""
    connection = duckdb.connect(":memory:")
    connection.execute("SET TimeZone = 'UTC'")
    connection.execute("CREATE SCHEMA gold")
    connection.execute("CREATE SCHEMA ops")
    connection.execute("CREATE TABLE gold.arrival_minute (source TEXT)")
    connection.execute("CREATE TABLE ops.rollup_check (hour TIMESTAMPTZ)")
    for hour in sorted(hours) * 2:
        connection.execute("INSERT INTO ops.rollup_check VALUES (?)", [START + hour * HOUR])
    return connection


@examples(40)  # each makes a database
@given(
    hours=st.sets(st.integers(0, 12)),
    first=st.integers(-30, 800),
    minutes=st.integers(0, 800),
)
def test_a_span_is_whole_hours_inside_and_all_of_them_compared(
    hours: set[int], first: int, minutes: int
) -> None:
    since = START + timedelta(minutes=first)
    until = since + timedelta(minutes=minutes)
    start, end = span(lake(hours), since, until)
    inside = [n for n in hours if START + n * HOUR >= since and START + (n + 1) * HOUR <= until]
    if not inside:
        assert (start, end) == (until, until)
        return
    assert end == START + (max(inside) + 1) * HOUR
    taken = range(round((start - START) / HOUR), max(inside) + 1)
    assert set(taken) <= set(inside)
    assert taken[0] - 1 not in inside


def test_a_lake_without_counts_has_no_span() -> None:
    until = START + HOUR
    assert span(duckdb.connect(":memory:"), START, until) == (until, until)


def test_hours_whose_events_were_changed_since_have_no_counts_until_they_are_compared_again() -> (
    None
):
    connection = lake({0, 1, 2, 3})
    connection.execute("ALTER TABLE ops.rollup_check ADD COLUMN checked_at TIMESTAMPTZ")
    day = START + timedelta(days=1)
    connection.execute("UPDATE ops.rollup_check SET checked_at = ?", [day])
    connection.execute("CREATE TABLE ops.recount (hour TIMESTAMPTZ, asked_at TIMESTAMPTZ)")

    def spanned() -> tuple[int, int]:
        start, end = span(connection, START, START + 4 * HOUR)
        return (start - START) // HOUR, (end - START) // HOUR

    def asks(hour: int, at: datetime) -> None:
        connection.execute("INSERT INTO ops.recount VALUES (?, ?)", [START + hour * HOUR, at])

    asks(1, day - HOUR)
    assert spanned() == (0, 4), "it was compared after that"
    asks(1, day + HOUR)
    assert spanned() == (2, 4)
    connection.execute("INSERT INTO ops.rollup_check VALUES (?, ?)", [START + HOUR, day + 2 * HOUR])
    assert spanned() == (0, 4)
