"""How rules fire: findings by day, alerts, when they last fired."""

from __future__ import annotations

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
