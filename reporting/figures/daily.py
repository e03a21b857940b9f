"""The numbers of the daily report, asked from the tables."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from alerts.domain.alert_body import in_body
from ingest.completeness.rollup_coverage import span
from reporting.document.request import ReportRequest
from reporting.figures.alerts import ALERTS as _ALERTS
from reporting.figures.alerts import Bucket, buckets
from reporting.figures.sources import blindness
from reporting.interval import Interval
from reporting.ledger.completeness import Completeness, completeness, total
from reporting.ledger.gaps import Missed, missed

_TOP = 10
_Row = dict[str, Any]


@dataclass(frozen=True)
class Figures:
    """Everything the page shows."""

    interval: Interval
    step: timedelta
    buckets: list[Bucket]
    by_level: dict[str, int]
    revisions: int
    devices: list[_Row]
    device_count: int
    rules: list[_Row]
    sources: list[_Row]
    reasons: list[_Row]
    coverage: dict[str, int]
    delays: list[_Row]
    ledger: list[Completeness]
    ledger_total: Completeness
    gaps: Sequence[Missed]
    quality: list[_Row]
    quality_runs: int
    drift: list[_Row]
    blind: list[_Row]

    @property
    def alerts(self) -> int:
        """Alerts that began in the interval."""
        return sum(self.by_level.values())


def figures(request: ReportRequest) -> Figures:
    """Ask for all of it. An empty lake gives zeros and empty lists, and so does for one tenant what
    is known of the whole platform alone: whoever shows it leaves it out."""
    ask, connection, interval = request.ask, request.connection, request.interval
    # Up to two days by the hour: 48 bars are as many as can be read.
    step = timedelta(hours=1) if interval.days <= 2 else timedelta(days=1)
    ledger = completeness(connection, interval.start, interval.end)
    whole = request.tenant is None
    return Figures(
        interval=interval,
        step=step,
        buckets=buckets(request, step),
        by_level={row["level"]: row["n"] for row in ask(_BY_LEVEL)},
        revisions=ask(_REVISIONS)[0]["n"],
        devices=ask(_DEVICES),
        device_count=ask(_DEVICE_COUNT)[0]["n"],
        rules=ask(_RULES),
        sources=_sources(request),
        reasons=ask(_REASONS),
        coverage=attribution_coverage(request),
        delays=ask(_DELAYS),
        ledger=ledger,
        ledger_total=total(ledger),
        gaps=missed(connection, interval.start, interval.end) if whole else (),
        quality=ask(_QUALITY) if whole else [],
        quality_runs=ask(_QUALITY_RUNS)[0]["n"] if whole else 0,
        drift=ask(_DRIFT) if whole else [],
        blind=blindness(request) if whole else [],
    )


_BY_LEVEL = _ALERTS + "SELECT level, count(*) AS n FROM alert GROUP BY level"
_REVISIONS = """
SELECT count(*) AS n FROM gold.alert
WHERE event_time >= $since AND event_time < $until AND suppressed_by IS NULL
"""
_DEVICES = (
    _ALERTS
    + f"""
SELECT entity_type, entity_value, tenant_uid AS tenant,
       arg_max({in_body("attribution.hostname")}, event_time) AS hostname,
       count(*) AS alerts, sum("count")::BIGINT AS findings, max(risk_score) AS risk,
       list_sort(list(DISTINCT rule_name)) AS rules, max(event_time) AS newest
FROM alert GROUP BY ALL ORDER BY alerts DESC, risk DESC, entity_value, tenant LIMIT {_TOP}
"""
)
_DEVICE_COUNT = (
    _ALERTS + "SELECT count(DISTINCT (entity_value, tenant_uid)) AS n FROM alert "
    "WHERE entity_type = 'device'"
)
_RULES = f"""
WITH shown AS ({_ALERTS} SELECT rule_id, count(*) AS alerts FROM alert GROUP BY rule_id)
SELECT f.rule_id, any_value(rule_title) AS title, any_value(level) AS level,
       count(*) AS findings, coalesce(any_value(s.alerts), 0) AS alerts
FROM gold.findings f LEFT JOIN shown s USING (rule_id)
WHERE event_time >= $since AND event_time < $until
GROUP BY f.rule_id ORDER BY alerts DESC, findings DESC, f.rule_id LIMIT {_TOP}
"""
_SOURCES = """
WITH part AS (
  SELECT source,
         count(*) FILTER (WHERE dead_letter_reason IS NULL AND duplicate_of IS NULL) AS events,
         count(*) FILTER (WHERE dead_letter_reason IS NOT NULL) AS dead,
         count(*) FILTER (WHERE duplicate_of IS NOT NULL) AS repeated,
         max(received_at) AS newest
  FROM silver.event
  WHERE source <> '_heartbeat' AND ((received_at >= $since AND received_at < $start)
                                    OR (received_at >= $end AND received_at < $until))
  GROUP BY source
  {counted}
)
SELECT source, sum(events)::BIGINT AS events, sum(dead)::BIGINT AS dead,
       sum(repeated)::BIGINT AS repeated, max(newest) AS newest
FROM part GROUP BY source ORDER BY events DESC, source
"""
_SOURCES_COUNTED = """
  UNION ALL
  SELECT source, sum(events), sum(dead), sum(repeated), max(last_at)
  FROM gold.arrival_minute WHERE window_start >= $start AND window_start < $end GROUP BY source
"""
_REASONS = f"""
SELECT source, dead_letter_reason AS reason, count(*) AS n, min(event_uid) AS example
FROM silver.event
WHERE dead_letter_reason IS NOT NULL AND received_at >= $since AND received_at < $until
GROUP BY source, reason ORDER BY n DESC, source, reason LIMIT {_TOP}
"""
_COVERAGE = """
SELECT coalesce(CASE WHEN f.ip IS NULL THEN 'unknown' ELSE a.holder.status END, 'pending')
         AS status, count(*) AS n
FROM gold.findings f LEFT JOIN gold.attribution_current a
  ON a.finding_id = f.finding_id AND a.role = f.role
WHERE f.kind = 'event' AND f.event_time >= $since AND f.event_time < $until
GROUP BY 1
"""
_DELAYS = f"""
WITH first AS (
  SELECT event_time, received_at,
         TRY_CAST({in_body("detected_at")} AS TIMESTAMPTZ) AS detected_at
  FROM gold.alert
  WHERE revision = 1 AND mode = 'live' AND event_time >= $since AND event_time < $until
),
span AS (
  SELECT 1 AS nth, 'event to arrival' AS span, epoch(received_at) - epoch(event_time) AS s
  FROM first
  UNION ALL
  SELECT 2, 'arrival to detection', epoch(detected_at) - epoch(received_at) FROM first
  UNION ALL
  SELECT 3, 'event to detection', epoch(detected_at) - epoch(event_time) FROM first
)
SELECT span, count(s) AS n, quantile_cont(s, 0.5) AS p50, quantile_cont(s, 0.95) AS p95,
       max(s) AS worst
FROM span GROUP BY nth, span ORDER BY nth
"""
_QUALITY_RUNS = """
SELECT count(DISTINCT run_at) AS n FROM ops.quality WHERE run_at >= $since AND run_at < $until
"""
_QUALITY = """
SELECT suite, expectation, count(*) AS runs, count(*) FILTER (WHERE NOT passed) AS failed,
       arg_max(unexpected, run_at) FILTER (WHERE NOT passed) AS unexpected,
       arg_max(checked, run_at) FILTER (WHERE NOT passed) AS checked,
       arg_max(examples, run_at) FILTER (WHERE NOT passed) AS examples
FROM ops.quality WHERE run_at >= $since AND run_at < $until
GROUP BY suite, expectation HAVING failed > 0 ORDER BY failed DESC, suite, expectation
"""
_DRIFT = f"""
SELECT source, count(*) AS n, min(first_seen) AS first,
       list_slice(list(field ORDER BY first_seen, field), 1, {_TOP}) AS fields
FROM ops.drift WHERE NOT baseline AND first_seen >= $since AND first_seen < $until
GROUP BY source ORDER BY n DESC, source
"""


def attribution_coverage(request: ReportRequest) -> dict[str, int]:
    """Findings of events by what their attribution rests on."""
    return {row["status"]: row["n"] for row in request.ask(_COVERAGE)}


def _sources(request: ReportRequest) -> list[_Row]:
    """What came of each source: from the counts of hours that were compared, else from the rows."""
    interval = request.interval
    start, end = span(request.connection, interval.start, interval.end)
    asked = _SOURCES.format(counted=_SOURCES_COUNTED if start < end else "")
    return request.ask(asked, start=start, end=end)
