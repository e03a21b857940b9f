"""Events counted by spans of equal length, in SQL and in Python alike.

DuckDB's `time_bucket` asks a calendar for each row that has a zone, which is most of what a
histogram of many events costs. Spans are lengths here, so they are reckoned.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_US = timedelta(microseconds=1)
_MONDAY = timedelta(days=4) // _US
"""The first Monday after 1970-01-01, a Thursday: spans of weeks begin on Mondays."""
_SHIFT = 10**18 // 2
"""Microseconds before 1970 from which spans are counted: whole division goes toward zero."""


def bucket_sql(column: str) -> str:
    """SQL of the instant at which the span of a time begins; `$step` is its microseconds."""
    shift = f"({_MONDAY} - {_SHIFT} // $step * $step)"
    return f"make_timestamptz((epoch_us({column}) - {shift}) // $step * $step + {shift})"


def step_of(step: timedelta) -> int:
    """The parameter `$step` of `bucket_sql`."""
    return step // _US


def bucket_start(instant: datetime, step: timedelta) -> datetime:
    """When the span begins that an instant is in, as `bucket_sql` has it."""
    us, width = (instant - _EPOCH) // _US, step // _US
    return _EPOCH + ((us - _MONDAY) // width * width + _MONDAY) * _US
