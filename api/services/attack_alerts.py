"""The alerts of one attack: what a page about an incident or a case shows of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from alerts.domain.alert_body import in_body
from alerts.lifecycle.risk_score import INCIDENT
from api.services.alert_index import INDEX
from api.services.reader import Reader, ReaderRow

_NEEDS = ("gold.alert_current",)
_OF_INCIDENTS = ("gold.alert_current", INDEX)
_SHOWN = f"""
SELECT alert_id, rule_id, rule_name, level, severity_id, entity_type, entity_value, src_ip,
       event_time, window_start, window_end, status AS attribution, count, incident_id, risk_score,
       previous_entity, tenant_uid, {in_body("summary")} AS summary,
       coalesce({in_body("lifecycle")}, 'new') AS lifecycle, {in_body("verdict")} AS verdict,
       {in_body("attribution.hostname")} AS hostname,
       coalesce(list_distinct({in_body("attack[*].tactics[*].name")}), [])
         AS tactics
FROM gold.alert_current
"""
MOST = 2_000
"""Alerts that a page shows; it says where there are more."""
MOST_INCIDENTS = 200
"""Incidents that a page shows."""


def alerts_by_id(reader: Reader, ids: Sequence[str]) -> list[ReaderRow]:
    """These alerts, oldest first; one more than `MOST` where there are more."""
    return reader.rows(
        f"{_SHOWN} WHERE list_contains($ids, alert_id)"
        f" ORDER BY window_start, alert_id LIMIT {MOST + 1}",
        {"ids": list(ids)},
        needs=_NEEDS,
    )


def alerts_of_incident(reader: Reader, incident_id: str) -> list[ReaderRow]:
    """The incident, then the alerts that led to it and those since, oldest first; one more of these
    than `MOST` where there are more."""
    return reader.rows(
        f"""WITH shown AS ({_SHOWN})
        SELECT shown.* REPLACE (i.incident_id AS incident_id),
               i.incident_id IS NOT NULL AND i.raised_in IS NULL AS led
        FROM shown JOIN {INDEX} i USING (alert_id)
        WHERE i.incident_id = $id OR i.alert_id = $id
        ORDER BY shown.alert_id <> $id, shown.window_start, shown.alert_id LIMIT {MOST + 2}""",
        {"id": incident_id},
        needs=_OF_INCIDENTS,
    )


def incidents(
    reader: Reader,
    status: Literal["open", "closed"] | None = None,
    *,
    incident_id: str | None = None,
    limit: int = MOST_INCIDENTS,
) -> list[ReaderRow]:
    """Incidents, the newest first, with how many alerts each has, of how many rules."""
    return reader.rows(
        f"""WITH shown AS ({_SHOWN}),
        parts AS (SELECT incident_id AS of_incident, count(*) AS alerts,
                         count(DISTINCT rule_id) AS rules
                  FROM {INDEX} WHERE incident_id IS NOT NULL GROUP BY ALL)
        SELECT shown.*, coalesce(alerts, 0) AS alerts, coalesce(rules, 0) AS rules
        FROM shown LEFT JOIN parts ON of_incident = alert_id
        WHERE rule_id = $incident AND ($id IS NULL OR alert_id = $id)
          AND ($status IS NULL OR (lifecycle = 'closed') = ($status = 'closed'))
        ORDER BY event_time DESC, alert_id LIMIT {limit}""",
        {"incident": INCIDENT, "id": incident_id, "status": status},
        needs=_OF_INCIDENTS,
    )
