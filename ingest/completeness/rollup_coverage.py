"""For which hours of arrivals the counts of job `rollup` may stand in for the rows themselves.

Only for hours that were compared with silver.event (ops.rollup_check): of all others the rows are
asked. So an answer is the same with counts and without, and a lake without them is fine.

Nor for hours whose events were changed in place since (ops.recount, see `ingest.reparse.recount`).
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from ingest.tables_quality import RECOUNT

if TYPE_CHECKING:
    import duckdb

HOUR = timedelta(hours=1)

TABLES = ("gold.arrival_minute", "ops.rollup_check")
"""What is asked, where it is there."""
ASKED = (*TABLES, RECOUNT.name)
"""The same with what says that events were changed since."""

_THERE = """
SELECT table_schema || '.' || table_name FROM information_schema.tables
WHERE table_schema || '.' || table_name IN (SELECT unnest($names))
"""
_COMPARED = """
SELECT DISTINCT hour FROM ops.rollup_check WHERE hour >= $since AND hour < $until {still}
ORDER BY hour DESC
"""
_CHANGED = f"SELECT 1 FROM {RECOUNT.name} WHERE hour >= $since AND hour < $until LIMIT 1"
_STILL = f"""
AND hour NOT IN (
  SELECT r.hour FROM {RECOUNT.name} r JOIN ops.rollup_check c ON c.hour = r.hour
  WHERE r.hour >= $since AND r.hour < $until
  GROUP BY r.hour HAVING max(r.asked_at) >= max(c.checked_at)
)
"""
"""Without the hours whose events were changed since they were compared."""


def span(
    connection: duckdb.DuckDBPyConnection, since: datetime, until: datetime
) -> tuple[datetime, datetime]:
    """The newest hours inside `[since, until)` that follow each other and whose counts are right.

    As `[start, end)`; where there are none, both are `until`.
    """
    there = {row[0] for row in connection.execute(_THERE, {"names": list(ASKED)}).fetchall()}
    # A lake whose job rollup never ran has no counts, and the rows answer for all.
    if not there.issuperset(TABLES):
        return until, until
    # Only whole hours: one that ends behind `until` would count too much.
    bounds = {"since": since, "until": until - HOUR + timedelta(microseconds=1)}
    changed = RECOUNT.name in there and connection.execute(_CHANGED, bounds).fetchone()
    sql = _COMPARED.format(still=_STILL if changed else "")
    hours = [row[0] for row in connection.execute(sql, bounds).fetchall()]
    if not hours:
        return until, until
    start = end = hours[0] + HOUR
    # One gap ends it: counts and rows can only be put together at one border.
    for hour in hours:
        if hour != start - HOUR:
            break
        start = hour
    return start, end
