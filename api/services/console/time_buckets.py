"""Events counted by spans of equal length, in SQL and in Python alike."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from api.sql.time_spans import FIRST_MONDAY_US, span_start

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_US = timedelta(microseconds=1)


def bucket_sql(column: str) -> str:
    """SQL of the instant at which the span of a time begins; `$step` is its microseconds."""
    # From a Monday on whatever the step is, so that spans of a week begin with one.
    return span_start(column, "$step", FIRST_MONDAY_US)


def step_of(step: timedelta) -> int:
    """The parameter `$step` of `bucket_sql`."""
    return step // _US


def bucket_start(instant: datetime, step: timedelta) -> datetime:
    """When the span begins that an instant is in, as `bucket_sql` has it."""
    us, width = (instant - _EPOCH) // _US, step // _US
    return _EPOCH + ((us - FIRST_MONDAY_US) // width * width + FIRST_MONDAY_US) * _US
