"""How rules fire: findings by day, alerts, when they last fired, and alerts by their ids."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from api.services.reader import Reader, ReaderRow

_FINDINGS = """
SELECT rule_id, count(*) AS findings, max(event_time) AS newest
FROM gold.findings WHERE event_time >= $since AND ($rule IS NULL OR rule_id = $rule)
GROUP BY rule_id
"""
_ALERTS = """
SELECT rule_id, count(*) AS alerts, count(*) FILTER (suppressed_by IS NOT NULL) AS muted
FROM gold.alert_current WHERE event_time >= $since AND ($rule IS NULL OR rule_id = $rule)
GROUP BY rule_id
"""
_BY_DAY = """
SELECT time_bucket($step, event_time) AS bucket, count(*) AS n
FROM gold.findings WHERE rule_id = $rule AND event_time >= $since GROUP BY ALL ORDER BY bucket
"""
_NAMED = """
SELECT c.alert_id, c.event_time, c.entity_type, c.entity_value, first_entity
FROM gold.alert_current AS c JOIN (
  SELECT alert_id, arg_min(entity_value, revision) AS first_entity
  FROM gold.alert WHERE list_contains($ids, alert_id) GROUP BY alert_id
) USING (alert_id) WHERE list_contains($ids, c.alert_id)
"""


def rule_stats(reader: Reader, since: datetime, rule_id: str | None = None) -> dict[str, ReaderRow]:
    """By rule, or of one alone: findings, newest, alerts and muted; a rule at rest is absent."""
    asked = {"since": since, "rule": rule_id}
    stats: dict[str, ReaderRow] = {}
    for row in reader.rows(_FINDINGS, asked, needs=("gold.finding", "gold.findings")):
        stats[row["rule_id"]] = row
    for row in reader.rows(_ALERTS, asked, needs=("gold.alert", "gold.alert_current")):
        stats.setdefault(row["rule_id"], {"findings": 0, "newest": None}).update(row)
    return stats


def findings_over_time(
    reader: Reader, rule_id: str, since: datetime, until: datetime, step: timedelta
) -> tuple[list[datetime], list[int]]:
    """A rule's findings by time; every bucket is there."""
    rows = reader.rows(
        _BY_DAY,
        {"rule": rule_id, "since": since, "step": step},
        needs=("gold.finding", "gold.findings"),
    )
    width = int(step.total_seconds())
    first = datetime.fromtimestamp(int(since.timestamp()) // width * width, since.tzinfo)
    buckets = [first + n * step for n in range(int((until - first) / step) + 1)]
    known = {row["bucket"]: row["n"] for row in rows}
    return buckets, [known.get(bucket, 0) for bucket in buckets]


def alerts_named(reader: Reader, ids: Sequence[str]) -> dict[str, ReaderRow]:
    """Alerts by id, with whom they name now and whom their first revision named."""
    needs = ("gold.alert", "gold.alert_current")
    rows = reader.rows(_NAMED, {"ids": list(ids)}, needs=needs) if ids else []
    return {row["alert_id"]: row for row in rows}
