"""Events counted by spans of equal length, in SQL and in Python alike."""

from __future__ import annotations

from datetime import datetime, timedelta

from alerts.domain.entity import MICROSECOND, event_instant, micros
from api.sql.time_spans import FIRST_MONDAY_US, span_start


def bucket_sql(column: str) -> str:
    """SQL of the instant at which the span of a time begins; `$step` is its microseconds."""
    # From a Monday on whatever the step is, so that spans of a week begin with one.
    return span_start(column, "$step", FIRST_MONDAY_US)


def step_of(step: timedelta) -> int:
    """The parameter `$step` of `bucket_sql`."""
    return step // MICROSECOND


def bucket_start(instant: datetime, step: timedelta) -> datetime:
    """When the span begins that an instant is in, as `bucket_sql` has it."""
    us, width = micros(instant), step_of(step)
    return event_instant((us - FIRST_MONDAY_US) // width * width + FIRST_MONDAY_US)
