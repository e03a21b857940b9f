"""What came from sources, and which fell silent."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from ingest.completeness.rollup_coverage import span
from reporting.document.request import ReportRequest

_ARRIVED = """
WITH part AS (
  SELECT source, {bucket} AS start, count(*) FILTER (dead_letter_reason IS NULL
           AND duplicate_of IS NULL) AS events,
         count(*) FILTER (dead_letter_reason IS NOT NULL) AS dead, max(received_at) AS newest
  FROM silver.event
  WHERE source <> '_heartbeat' AND ((received_at >= $since AND received_at < $start)
                                    OR (received_at >= $end AND received_at < $until))
  GROUP BY ALL
  {counted}
)
SELECT source, start, sum(events)::BIGINT AS events, sum(dead)::BIGINT AS dead,
       max(newest) AS newest
FROM part GROUP BY ALL ORDER BY start, events DESC, source
"""
_COUNTED = """
  UNION ALL
  SELECT source, {counted_bucket}, sum(events), sum(dead), max(last_at)
  FROM gold.arrival_minute WHERE window_start >= $start AND window_start < $end GROUP BY ALL
"""
_SILENCES = """
WITH told AS (
  SELECT finding_info.uid AS uid, activity_name = 'Close' AS closed, "time" AS noticed,
         finding_info.title AS title, message
  FROM silver.event
  WHERE source = 'headgate' AND metadata.event_code = $code AND "time" < $until
    AND dead_letter_reason IS NULL AND duplicate_of IS NULL
)
SELECT min(noticed) AS began, max(noticed) FILTER (WHERE closed) AS ended,
       arg_min(title, noticed) FILTER (WHERE NOT closed) AS title,
       arg_min(message, noticed) FILTER (WHERE NOT closed) AS message
FROM told GROUP BY uid
HAVING title IS NOT NULL AND (ended IS NULL OR ended >= $since)
ORDER BY began, title
"""


def arrived(
    request: ReportRequest, unit: str = "", since: datetime | None = None
) -> list[dict[str, Any]]:
    """Events and dead letters by source of the arrivals in the interval.

    `unit`: day or month; `start` is then the wall clock of the zone. From the counts of hours that
    were compared with the events, and from the events for the rest.
    """
    begin = since or request.interval.start
    start, end = span(request.connection, begin, request.interval.end)
    local = "date_trunc('" + unit + "', timezone($zone, {0}))" if unit else "NULL::TIMESTAMP"
    counted = _COUNTED.format(counted_bucket=local.format("window_start")) if start < end else ""
    sql = _ARRIVED.format(bucket=local.format("received_at"), counted=counted)
    return request.ask(sql, start=start, end=end, since=begin)


def silences(request: ReportRequest) -> list[dict[str, Any]]:
    """Sources that fell silent for longer than they ever did, and were so in the interval."""
    return request.ask(_SILENCES, code="source_silent")


def blindness(request: ReportRequest) -> list[dict[str, Any]]:
    """Rules that could see nothing in the interval, and why."""
    return request.ask(_SILENCES, code="rule_blind")
