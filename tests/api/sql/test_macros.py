"""The macros that DuckDB answers with in Spark's stead: quick, and still the same."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, date, datetime

import duckdb
import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.sql.macros import TRUNCATED, macro_statements

VALUES = ("1", "TRUE", "[1]", "{'a': 1}", "MAP {'a': 1}", "1.5", "INTERVAL 1 DAY", "'a'::BLOB")
"""One of each type that is no time."""


@pytest.fixture(scope="module")
def connection() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect() as opened:
        opened.execute("SET TimeZone = 'UTC'")
        for statement in macro_statements():
            opened.execute(statement)
        yield opened


@pytest.mark.parametrize("unit", TRUNCATED)
@given(st.datetimes(datetime(1, 1, 8), datetime(9999, 12, 31), timezones=st.just(UTC)))
def test_a_time_is_truncated_as_by_the_calendar(
    connection: duckdb.DuckDBPyConnection, unit: str, instant: datetime
) -> None:
    us, first = TRUNCATED[unit]
    # As text: Python's own times end where a week may begin earlier.
    sql = f"SELECT hg_trunc($1, {us}, {first})::VARCHAR, date_trunc('{unit}', $1)::VARCHAR"
    reckoned, asked = connection.execute(sql, [instant]).fetchall()[0]
    assert reckoned == asked


@given(st.datetimes(datetime(1, 1, 8), datetime(9999, 12, 31), timezones=st.just(UTC)))
def test_dates_parts_and_texts_are_as_by_the_calendar(
    connection: duckdb.DuckDBPyConnection, instant: datetime
) -> None:
    parts = ("year", "month", "day", "hour", "minute", "second", "dayofweek")
    units = ("month", "quarter", "year")
    reckoned = connection.execute(
        f"SELECT hg_date($1), hg_string($1), {', '.join(f'{part}(hg_utc($1))' for part in parts)}, "
        + ", ".join(f"hg_trunc_by_date($1, '{unit}')::VARCHAR" for unit in units),
        [instant],
    ).fetchall()
    asked = connection.execute(
        f"SELECT $1::DATE, regexp_replace($1::VARCHAR, '\\+00$', ''), "
        f"{', '.join(f'{part}($1)' for part in parts)}, "
        + ", ".join(f"date_trunc('{unit}', $1)::VARCHAR" for unit in units),
        [instant],
    ).fetchall()
    assert reckoned == asked


@pytest.mark.parametrize("macro", ["hg_timestamp", "hg_date", "hg_unix"])
@pytest.mark.parametrize("value", VALUES)
def test_what_is_no_time_is_refused_and_not_cast(
    connection: duckdb.DuckDBPyConnection, macro: str, value: str
) -> None:
    with pytest.raises(duckdb.Error, match="refused: "):
        connection.execute(f"SELECT {macro}(x) FROM (SELECT {value} AS x)").fetchall()


def test_times_and_numbers_are_cast_without_a_way_through_text(
    connection: duckdb.DuckDBPyConnection,
) -> None:
    plan = connection.execute(
        "EXPLAIN SELECT hg_timestamp(t), hg_date(t), hg_unix(t), hg_long(n), hg_double(n) "
        "FROM (SELECT now() + INTERVAL (n) DAY AS t, n FROM range(9) r(n))"
    ).fetchall()[0][1]
    assert "VARCHAR" not in plan


def test_each_type_has_its_value(connection: duckdb.DuckDBPyConnection) -> None:
    row = connection.execute(
        "SELECT hg_timestamp(DATE '2025-03-01'), hg_timestamp('2025-03-01 10:00:00+02:00'), "
        "hg_date(TIMESTAMPTZ '2025-03-01 23:59:59+00'), "
        "hg_unix(TIMESTAMPTZ '1969-12-31 23:59:58.5+00'), "
        "hg_long(7::HUGEINT), hg_long(-2.9::DOUBLE), hg_long(' 12 '), hg_double(3), "
        "hg_double(0.1::DECIMAL(3, 1))"
    ).fetchall()[0]
    assert row == (
        datetime(2025, 3, 1, tzinfo=UTC),
        datetime(2025, 3, 1, 8, tzinfo=UTC),
        date(2025, 3, 1),
        -2,
        *(7, -2, 12, 3.0, 0.1),
    )
