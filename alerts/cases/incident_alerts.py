"""Which alerts are an incident's: those that led to it, and those raised while it was open."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from alerts.domain.alert_body import in_body
from alerts.lifecycle.risk_score import ENTITY_KEY, INCIDENT, LED_TO

_KEY = ENTITY_KEY.format(group_key=in_body("group_key"))
_KEYED = f"(SELECT *, {_KEY} AS entity_key FROM gold.alert_current)"
OF_INCIDENT = f"""(alert_id = $subject OR incident_id = $subject OR alert_id IN (
  SELECT shown.alert_id FROM {_KEYED} shown
  JOIN {_KEYED} made ON made.rule_id = '{INCIDENT}' AND {LED_TO}
  WHERE shown.incident_id IS NULL
  -- Of an alert that two incidents may have come of, the earlier one.
  GROUP BY shown.alert_id HAVING min_by(made.alert_id, (made.window_end, made.alert_id)) = $subject
))"""
"""SQL: whether a row of gold.alert_current is incident `$subject`, or one of its alerts."""
_NEEDS = ("gold.alert", "gold.alert_current")


def with_alerts_of_incidents(
    ask: Callable[..., list[dict[str, Any]]], ids: Sequence[str]
) -> list[str]:
    """These alerts, and behind each that is an incident its own, oldest first; each once."""
    rows = ask(
        "SELECT alert_id FROM gold.alert_current"
        f" WHERE rule_id = '{INCIDENT}' AND list_contains($ids, alert_id)",
        {"ids": list(ids)},
        needs=_NEEDS,
    )
    incidents = {str(row["alert_id"]) for row in rows}
    whole: dict[str, None] = {}
    for alert_id in ids:
        whole[alert_id] = None
        if alert_id in incidents:
            members = ask(
                f"SELECT alert_id FROM gold.alert_current WHERE {OF_INCIDENT}"
                " ORDER BY window_start, alert_id",
                {"subject": alert_id},
                needs=_NEEDS,
            )
            whole |= dict.fromkeys(str(row["alert_id"]) for row in members)
    return list(whole)
