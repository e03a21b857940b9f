"""Spans of a histogram: the same in SQL and in Python, and as DuckDB's own where it is exact."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import duckdb
from hypothesis import given
from hypothesis import strategies as st

from api.services.console.time_buckets import bucket_sql, bucket_start, step_of

INSTANTS = st.datetimes(datetime(1960, 1, 1), datetime(2100, 1, 1), timezones=st.just(UTC))
STEPS = st.sampled_from((1, 5, 30, 60, 900, 3600, 21_600, 86_400, 604_800, 1_209_600, 7_777))


@given(INSTANTS, STEPS)
def test_both_say_where_a_span_begins(instant: datetime, seconds: int) -> None:
    step = timedelta(seconds=seconds)
    start = bucket_start(instant, step)
    assert start <= instant < start + step
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        rows = connection.execute(
            f"SELECT {bucket_sql('t')} FROM (SELECT $time::TIMESTAMPTZ AS t)",
            {"time": instant, "step": step_of(step)},
        ).fetchall()
        if seconds <= 604_800 and 604_800 % seconds == 0:
            whole = connection.execute("SELECT time_bucket($2, $1)", [instant, step]).fetchall()
            assert rows == whole
    assert rows == [(start,)]
