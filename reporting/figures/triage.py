"""What people did with alerts: how soon, with what verdict, and what a rule earned by it."""

from __future__ import annotations

from typing import Any

from alerts.domain.verdict import TRUE_VERDICTS
from reporting.document.request import ReportRequest
from reporting.figures.alerts import ALERTS

_TRUE = ", ".join(f"'{verdict}'" for verdict in sorted(TRUE_VERDICTS))
_HANDLED = (
    ALERTS
    + """, act AS (
  SELECT alert_id, min("at") AS acknowledged, min("at") FILTER (action = 'close') AS closed_at
  FROM gold.alert_action
  WHERE action IN ('assign', 'verdict', 'note', 'close') AND "at" < $made GROUP BY alert_id
),
decided AS (
  SELECT alert_id, min(TRY_CAST(json_extract_string(body, '$.detected_at') AS TIMESTAMPTZ)) AS at
  FROM gold.alert WHERE revision = 1 GROUP BY alert_id
),
handled AS (
  SELECT a.alert_id, a.rule_id, a.rule_name, a.level, a.risk_score, a.mode,
         json_extract_string(a.body, '$.state') = 'closed' AS closed,
         json_extract_string(a.body, '$.verdict') AS verdict,
         json_extract_string(a.body, '$.assignee') AS assignee,
         a.began, d.at AS detected, act.acknowledged, act.closed_at
  FROM alert a LEFT JOIN decided d USING (alert_id) LEFT JOIN act USING (alert_id)
)
"""
)
_TOTALS = (
    _HANDLED
    + f"""
SELECT count(*) AS alerts, count(*) FILTER (closed) AS closed,
       count(*) FILTER (NOT closed) AS open,
       count(*) FILTER (NOT closed AND level IN ('high', 'critical')) AS open_serious,
       count(*) FILTER (verdict IS NOT NULL) AS judged,
       count(*) FILTER (verdict IN ({_TRUE})) AS true_positive,
       quantile_cont(epoch(detected) - epoch(began), 0.5) FILTER (mode = 'live') AS detect,
       quantile_cont(epoch(acknowledged) - epoch(detected), 0.5)
         FILTER (acknowledged >= detected) AS acknowledge,
       quantile_cont(epoch(closed_at) - epoch(detected), 0.5)
         FILTER (closed_at >= detected) AS close
FROM handled
"""
)
_BY_RULE = (
    _HANDLED
    + f"""
SELECT rule_id, any_value(rule_name) AS title, any_value(level) AS level, count(*) AS alerts,
       count(*) FILTER (verdict IN ({_TRUE})) AS true_positive,
       count(*) FILTER (verdict IS NOT NULL AND verdict NOT IN ({_TRUE})) AS false_positive,
       count(*) FILTER (verdict IS NULL) AS unjudged,
       count(*) FILTER (NOT closed) AS open
FROM handled GROUP BY rule_id ORDER BY alerts DESC, rule_id
"""
)
_KNOWN_RULES = """
SELECT DISTINCT rule_id FROM gold.alert
WHERE event_time < $since AND suppressed_by IS NULL
"""
_MANY = 20
_LEAST_JUDGED = 3


def triage_totals(request: ReportRequest) -> dict[str, Any]:
    """Counts and medians (seconds) over the alerts of the interval; a median is None where nobody
    did it. `rate`: true positives among those judged."""
    (row,) = request.ask(_TOTALS, made=request.made_at)
    row["rate"] = row["true_positive"] / row["judged"] if row["judged"] else None
    return row


def triage_by_rule(request: ReportRequest) -> list[dict[str, Any]]:
    """Each rule's alerts with its true-positive rate and what to do about it, most alerts first."""
    rows = request.ask(_BY_RULE, made=request.made_at)
    earlier = {row["rule_id"] for row in request.ask(_KNOWN_RULES)}
    earlier_rows = request.before.ask(_BY_RULE, made=request.made_at)
    before = {row["rule_id"]: row["alerts"] for row in earlier_rows}
    for row in rows:
        judged = row["true_positive"] + row["false_positive"]
        row["judged"] = judged
        row["rate"] = row["true_positive"] / judged if judged else None
        row["before"] = before.get(row["rule_id"], 0)
        row["advice"] = advice(row, new=row["rule_id"] not in earlier)
    return rows


def advice(row: dict[str, Any], *, new: bool) -> str:
    """What to do about a rule, in a sentence; empty: nothing."""
    judged, alerts = row["judged"], row["alerts"]
    if judged >= _LEAST_JUDGED and row["false_positive"] / judged >= 0.8:
        return f"{row['false_positive']} of {judged} judged were false: narrow it or suppress them"
    if judged >= _LEAST_JUDGED and row["false_positive"] / judged >= 0.5:
        return f"{row['false_positive']} of {judged} judged were false: look at its exceptions"
    if alerts >= _MANY and not judged:
        return f"{alerts} alerts and nobody judged one: judge some, or lower its level"
    if alerts >= _MANY and row["before"] and alerts >= 3 * row["before"]:
        return f"{alerts} alerts after {row['before']} before: see what changed"
    return "alerts for the first time" if new else ""
