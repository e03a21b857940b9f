"""What people did with alerts: how soon, with what verdict, and what a rule earned by it."""

from __future__ import annotations

from typing import Any

from alerts.tuning.verdict_counts import BY_RULE, COUNTED, HANDLED
from reporting.document.request import ReportRequest

_TOTALS = (
    HANDLED
    + f"""
SELECT {COUNTED}, count(*) FILTER (closed) AS closed,
       count(*) FILTER (NOT closed AND level IN ('high', 'critical')) AS open_serious,
       quantile_cont(epoch(detected) - epoch(began), 0.5) FILTER (mode = 'live') AS detect,
       quantile_cont(epoch(acknowledged) - epoch(detected), 0.5)
         FILTER (acknowledged >= detected) AS acknowledge
FROM handled
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
    rows = request.ask(BY_RULE, made=request.made_at)
    earlier = {row["rule_id"] for row in request.ask(_KNOWN_RULES)}
    earlier_rows = request.before.ask(BY_RULE, made=request.made_at)
    before = {row["rule_id"]: row["alerts"] for row in earlier_rows}
    for row in rows:
        # What was allowed was no alarm either; what no verdict says is as good as not judged.
        row["false_positive"] += row["benign"]
        row["unjudged"] += row["other"]
        row["rate"] = row["true_positive"] / row["judged"] if row["judged"] else None
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
