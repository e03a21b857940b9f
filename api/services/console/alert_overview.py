"""Alerts at a glance: by hour and level, the gravest that are open, whom most are about."""

from __future__ import annotations

from datetime import datetime, timedelta

from alerts.domain.levels import LEVELS
from api.services.alert_index import INDEX
from api.services.reader import Reader, ReaderRow

_NEEDS = (INDEX,)
_BY_TIME = f"""
SELECT time_bucket($step, event_time) AS bucket, level, count(*) AS n FROM {INDEX}
WHERE event_time >= $since AND suppressed_by IS NULL GROUP BY ALL ORDER BY bucket
"""
_GRAVEST = f"""
SELECT alert_id, rule_name, level, entity_type, entity_value, event_time, status, count,
       hostname, previous_entity, lifecycle, tenant_uid
FROM {INDEX}
WHERE suppressed_by IS NULL AND lifecycle <> 'closed'
ORDER BY severity_id DESC, event_time DESC LIMIT $most
"""
_OPEN = f"""
SELECT level, count(*) AS n, count(*) FILTER (assignee IS NOT NULL) AS taken
FROM {INDEX}
WHERE suppressed_by IS NULL AND lifecycle <> 'closed' GROUP BY level
"""
_MOST_ALERTED = f"""
SELECT entity_type, entity_value, tenant_uid, count(*) AS n, max(severity_id) AS severity_id
FROM {INDEX} WHERE suppressed_by IS NULL AND lifecycle <> 'closed'
GROUP BY entity_type, entity_value, tenant_uid
ORDER BY severity_id DESC, n DESC, entity_type, entity_value, tenant_uid LIMIT $most
"""
_OF_ENTITIES = f"""
SELECT entity_type, entity_value, tenant_uid, any_value(hostname) AS hostname,
       count(DISTINCT rule_id) AS rules, arg_max(level, severity_id) AS level
FROM {INDEX}
WHERE entity_value IN ({{named}}) AND suppressed_by IS NULL AND lifecycle <> 'closed'
GROUP BY entity_type, entity_value, tenant_uid
"""
_DELAYS = f"""
SELECT quantile_cont(delay, 0.5) AS p50, quantile_cont(delay, 0.95) AS p95, count(*) AS n
FROM {INDEX} WHERE delay IS NOT NULL AND first_event_time >= $since
"""


def alerts_by_time(
    reader: Reader, since: datetime, until: datetime, step: timedelta
) -> tuple[list[datetime], dict[str, list[int]]]:
    """Alerts by time and level; every bucket is there, also one without an alert."""
    rows = reader.rows(_BY_TIME, {"since": since, "step": step}, needs=_NEEDS, kept=True)
    seconds = int(step.total_seconds())
    first = datetime.fromtimestamp(int(since.timestamp()) // seconds * seconds, since.tzinfo)
    buckets = [first + number * step for number in range(int((until - first) / step) + 1)]
    place = {bucket: number for number, bucket in enumerate(buckets)}
    series = {level: [0] * len(buckets) for level in LEVELS}
    for row in rows:
        if row["bucket"] in place and row["level"] in series:
            series[row["level"]][place[row["bucket"]]] = row["n"]
    return buckets, series


def gravest(reader: Reader, most: int) -> list[ReaderRow]:
    """Open alerts, the gravest and newest first."""
    return reader.rows(_GRAVEST, {"most": most}, needs=_NEEDS, kept=True)


def open_by_level(reader: Reader) -> dict[str, ReaderRow]:
    """How many are open, and how many of these somebody took."""
    return {row["level"]: row for row in reader.rows(_OPEN, {}, needs=_NEEDS, kept=True)}


def most_alerted(reader: Reader, most: int) -> list[ReaderRow]:
    """Devices and others that open alerts are about."""
    rows = reader.rows(_MOST_ALERTED, {"most": most}, needs=_NEEDS, kept=True)
    # In a second question: counted of all entities, what is told of a few would cost most.
    named = {f"e{number}": row["entity_value"] for number, row in enumerate(rows)}
    sql = _OF_ENTITIES.format(named=", ".join(f"${name}" for name in named) or "NULL")
    more = {_whose(row): row for row in reader.rows(sql, named, needs=_NEEDS, kept=True)}
    known = [(row, more.get(_whose(row))) for row in rows]
    # What a commit between the two took away is left out.
    return [row | of_it for row, of_it in known if of_it is not None]


def _whose(row: ReaderRow) -> tuple[str, str, str | None]:
    # Two tenants may call different devices the same.
    return row["entity_type"], row["entity_value"], row["tenant_uid"]


def alert_delays(reader: Reader, since: datetime) -> ReaderRow:
    """Seconds from a line's arrival to its alert: half and 95 % of them within; how many."""
    return reader.rows(_DELAYS, {"since": since}, needs=_NEEDS, kept=True)[0]
