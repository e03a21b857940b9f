"""Where a span of equal length begins, as SQL of DuckDB's that asks no calendar.

`date_trunc` and `time_bucket` ask one for each row that has a zone, which is most of what counting
by spans costs. In UTC, which is how sessions are set, whole units up to a week are whole
microseconds: that is reckoned instead.
"""

from __future__ import annotations

DAY_US = 86_400_000_000
FIRST_MONDAY_US = 4 * DAY_US
"""Microseconds from 1970-01-01, a Thursday, to the Monday after it, on which weeks begin."""
SHIFT_US = 10**18 // 2
"""Whole seconds: more than from any year that Spark's timestamps can be of to 1970."""


def span_start(time: str, length: str | int, first: str | int) -> str:
    """SQL of the instant at which the span of a time begins, of type TIMESTAMPTZ.

    `time`, `length` and `first` are SQL: an instant, and in microseconds the length of a span and
    where one of them begins after 1970.
    """
    # Shifted by whole spans before it is divided, which goes toward zero: a time before `first`
    # would otherwise be put into the span after its own.
    shift = f"({first} - {SHIFT_US} // {length} * {length})"
    return f"make_timestamptz((epoch_us({time}) - {shift}) // {length} * {length} + {shift})"
