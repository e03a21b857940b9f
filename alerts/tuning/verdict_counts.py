"""Alerts of a span counted by rule and verdict: the one calculation of all who show it.

The weekly report, the scorecard, the API and the console put these questions to DuckDB,
each through its own reader; `$since`, `$until` and `$made` are instants.
"""

from __future__ import annotations

from math import sqrt

from alerts.domain.alert_body import in_body
from alerts.domain.verdict import JUDGING_VERDICTS, TRUE_VERDICTS

TRUE_SQL = ", ".join(f"'{verdict}'" for verdict in sorted(TRUE_VERDICTS))
JUDGING_SQL = ", ".join(f"'{verdict}'" for verdict in sorted(JUDGING_VERDICTS))

# An alert belongs to the interval its first revision's event is in; what it says is its newest.
# What was kept from the topic (a suppression, a budget) troubled nobody and is not counted.
ALERTS = """
WITH alert AS (
  SELECT a.*, f.began FROM gold.alert_current a
  JOIN (SELECT alert_id, min_by(event_time, revision) AS began FROM gold.alert GROUP BY alert_id) f
  USING (alert_id)
  WHERE f.began >= $since AND f.began < $until AND a.suppressed_by IS NULL
)
"""
HANDLED = (
    ALERTS
    + f""", act AS (
  SELECT alert_id, min("at") AS acknowledged, min("at") FILTER (action = 'close') AS closed_at
  FROM gold.alert_action
  WHERE action IN ('assign', 'verdict', 'note', 'close') AND "at" < $made GROUP BY alert_id
),
decided AS (
  SELECT alert_id, min(TRY_CAST({in_body("detected_at")} AS TIMESTAMPTZ)) AS at
  FROM gold.alert WHERE revision = 1 GROUP BY alert_id
),
handled AS (
  SELECT a.alert_id, a.rule_id, a.rule_name, a.level, a.risk_score, a.mode,
         {in_body("state", "a.body")} = 'closed' AS closed,
         nullif({in_body("verdict", "a.body")}, '') AS verdict,
         {in_body("assignee", "a.body")} AS assignee,
         a.began, d.at AS detected, act.acknowledged, act.closed_at
  FROM alert a LEFT JOIN decided d USING (alert_id) LEFT JOIN act USING (alert_id)
)
"""
)
COUNTED = f"""count(*) AS alerts,
       count(*) FILTER (verdict IN ({TRUE_SQL})) AS true_positive,
       count(*) FILTER (verdict = 'false_positive') AS false_positive,
       count(*) FILTER (verdict = 'benign') AS benign,
       count(*) FILTER (verdict NOT IN ({JUDGING_SQL})) AS other,
       count(*) FILTER (verdict IS NULL) AS unjudged,
       count(*) FILTER (verdict IN ({JUDGING_SQL})) AS judged,
       count(*) FILTER (NOT closed) AS open,
       quantile_cont(epoch(closed_at) - epoch(detected), 0.5)
         FILTER (closed_at >= detected) AS close"""
"""Columns of a question over `handled`. `other`: verdicts that say nothing of the rule."""

BY_RULE = (
    HANDLED
    + f"""
SELECT rule_id, any_value(rule_name) AS title, any_value(level) AS level, {COUNTED}
FROM handled GROUP BY rule_id ORDER BY alerts DESC, rule_id
"""
)
NEEDS = ("gold.alert", "gold.alert_current", "gold.alert_action")
"""Tables and views that `BY_RULE` reads."""

_Z = 1.96
"""Standard deviations around a share that hold it with 95 % confidence."""


def share_bounds(hits: int, of: int) -> tuple[float, float]:
    """Between which shares the true one lies with 95 % confidence (Wilson 1927); 0 to 1 for none.

    Unlike the plain share it is wide where few were counted.
    """
    if not of:
        return 0.0, 1.0
    share, spread = hits / of, _Z**2 / of
    centre = (share + spread / 2) / (1 + spread)
    half = _Z * sqrt(share * (1 - share) / of + spread / (4 * of)) / (1 + spread)
    # At the ends the formula gives exactly 0 and 1, but for rounding.
    return 0.0 if hits == 0 else centre - half, 1.0 if hits == of else centre + half
