"""What is known of one device or one alert, with the lines it rests on and their digests."""

from __future__ import annotations

from typing import Any

from alerts.cases.incident_alerts import OF_INCIDENT
from alerts.domain.alert_body import in_body
from reporting.document.request import ReportRequest

MOST = 200
"""Rows that a part of a dossier shows; how many there are is said beside them."""

_LEASES = """
SELECT ip, mac, hostname, scope, lease_start, lease_end FROM silver.dhcp_session
WHERE (mac = lower($subject) OR ip = $subject OR lower(hostname) = lower($subject))
  AND lease_start < $until AND lease_end > $since
ORDER BY lease_start, ip
"""
_ALERTS = f"""
SELECT alert_id, event_time, level, title, rule_name, rule_id, count, risk_score, incident_id,
       entity_type, entity_value, suppressed_by, {in_body("state")} AS state,
       {in_body("verdict")} AS verdict,
       {in_body("evidence[*].event_uid")} AS evidence
FROM gold.alert_current
"""
_OF_NAMES = (
    _ALERTS
    + f"""
WHERE window_start < $until AND window_end >= $since
  AND list_has_any(list_transform({in_body("entities[*].value")},
                                  lambda name: lower(name)), $names)
ORDER BY event_time, alert_id
"""
)
_OF_INCIDENT = f"{_ALERTS} WHERE {OF_INCIDENT} ORDER BY event_time, alert_id"
_ACTIONS = """
SELECT "at", who, action, value, comment, alert_id FROM gold.alert_action
WHERE alert_id IN (SELECT unnest($ids)) ORDER BY "at"
"""
_EVIDENCE = """
WITH line AS (
  SELECT event_uid, "time", source, unnest(record_ids) AS record_id,
         CASE WHEN message IS NOT NULL THEN message
              WHEN query.hostname IS NOT NULL
              THEN concat_ws(' ', src_ip, 'asked for', query.hostname)
              WHEN http_request.url.path IS NOT NULL
              THEN concat_ws(' ', src_ip, 'asked', http_request.url.hostname, 'for',
                             http_request.url.path)
              WHEN src_ip IS NOT NULL AND dst_ip IS NOT NULL
              THEN src_ip || ' to ' || dst_ip || coalesce(' port ' || dst_endpoint.port, '')
         END AS message
  FROM silver.event WHERE event_uid IN (SELECT unnest($uids))
)
SELECT l."time", l.source, l.message, l.event_uid, l.record_id, r.received_at,
       sha256(r.raw) AS sha256
FROM line l LEFT JOIN bronze.record r USING (record_id) ORDER BY l."time", l.record_id
"""


def leases(request: ReportRequest) -> list[dict[str, Any]]:
    """Leases of the subject, a MAC address, an address or a host name, that touch the interval."""
    return request.ask(_LEASES)


def alerts_naming(request: ReportRequest, names: list[str]) -> list[dict[str, Any]]:
    """Alerts that name one of these, in any case of letters; suppressed ones too."""
    return request.ask(_OF_NAMES, names=sorted({name.lower() for name in names}))


def alerts_of_incident(request: ReportRequest) -> list[dict[str, Any]]:
    """The alert that is the subject; if it is an incident, those that led to it and those raised
    while it was its entity's, as in the console."""
    return request.ask(_OF_INCIDENT)


def actions_on(request: ReportRequest, alerts: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """What people did about these alerts."""
    return request.ask(_ACTIONS, ids=[row["alert_id"] for row in alerts])


def evidence_lines(request: ReportRequest, alerts: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The lines that alerts name as evidence, with SHA-256 of the bytes as received; a digest is
    null where retention or an erasure took the line. `message`: what a program wrote, or, of a
    record of fields, who asked whom for what."""
    uids = sorted({uid for row in alerts for uid in row["evidence"] or () if uid})
    return request.ask(_EVIDENCE, uids=uids)
