"""For which hours of arrivals the counts of job `rollup` may stand in for the rows themselves.

Only for hours that were compared with silver.event (ops.rollup_check): of all others the rows are
asked. So an answer is the same with counts and without, and a lake without them is fine.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import duckdb

HOUR = timedelta(hours=1)

TABLES = ("gold.arrival_minute", "ops.rollup_check")
"""What is asked, where it is there."""

_THERE = """
SELECT count(*) FROM information_schema.tables
WHERE table_schema || '.' || table_name IN (SELECT unnest($names))
"""
_COMPARED = """
SELECT DISTINCT hour FROM ops.rollup_check WHERE hour >= $since AND hour < $until ORDER BY hour DESC
"""


def span(
    connection: duckdb.DuckDBPyConnection, since: datetime, until: datetime
) -> tuple[datetime, datetime]:
    """The newest hours inside `[since, until)` that follow each other and were all compared.

    As `[start, end)`; where there are none, both are `until`.
    """
    (there,) = connection.execute(_THERE, {"names": list(TABLES)}).fetchone() or (0,)
    if there < len(TABLES):
        return until, until
    bounds = {"since": since, "until": until - HOUR + timedelta(microseconds=1)}
    hours = [row[0] for row in connection.execute(_COMPARED, bounds).fetchall()]
    if not hours:
        return until, until
    start = end = hours[0] + HOUR
    for hour in hours:
        if hour != start - HOUR:
            break
        start = hour
    return start, end
