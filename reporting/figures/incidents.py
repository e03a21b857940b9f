"""Incidents: an entity whose findings together passed a limit, each told in a sentence."""

from __future__ import annotations

from typing import Any

from alerts.domain.alert_body import in_body
from alerts.domain.attack import TACTICS
from alerts.domain.verdict import TRUE_VERDICTS
from alerts.lifecycle.risk_score import INCIDENT
from reporting.document.request import ReportRequest
from reporting.document.text import harmless_text
from reporting.figures.alerts import ALERTS

PLAIN = {
    "reconnaissance": "looking for a way in",
    "resource-development": "preparing an attack",
    "initial-access": "getting in",
    "execution": "running hostile programs",
    "persistence": "staying inside",
    "privilege-escalation": "gaining more rights",
    "defense-evasion": "hiding",
    "credential-access": "guessing or stealing passwords",
    "discovery": "looking around inside",
    "lateral-movement": "moving between machines",
    "collection": "gathering data",
    "command-and-control": "remote control of a machine",
    "exfiltration": "taking data out",
    "impact": "damage or disruption",
}
"""ATT&CK's tactics for people outside the team."""

_INCIDENTS = (
    ALERTS
    + f"""
SELECT alert_id, began, entity_type, entity_value, risk_score,
       {in_body("attribution.hostname")} AS hostname,
       {in_body("fields.tactics")} AS tactics,
       {in_body("fields.rules")} AS rules,
       {in_body("state")} AS state,
       {in_body("verdict")} AS verdict,
       {in_body("assignee")} AS assignee, title
FROM alert WHERE rule_id = $incident ORDER BY began
"""
)
_TACTICS = (
    ALERTS
    + f""", named AS (
  SELECT alert_id, unnest(list_distinct({in_body("attack[*].tactics[*].name")}))
         AS tactic
  FROM alert
)
SELECT tactic, count(*) AS alerts FROM named GROUP BY tactic ORDER BY alerts DESC, tactic
"""
)
_BY_NAME = {name: tag for tag, (_, name) in TACTICS.items()}


def incidents(request: ReportRequest) -> list[dict[str, Any]]:
    """Each incident that began in the interval, with `incident_sentence`."""
    rows = request.ask(_INCIDENTS, incident=INCIDENT)
    for row in rows:
        row["sentence"] = incident_sentence(row, request)
    return rows


def incident_sentence(row: dict[str, Any], request: ReportRequest) -> str:
    """`On 7 October at 20:00, laptop-7 showed signs of ...; nobody has taken it yet.`"""
    began = request.interval.local(row["began"])
    who = harmless_text(row["hostname"] or row["entity_value"] or "an unnamed device", 60)
    tactics = [PLAIN[tag] for tag in (row["tactics"] or "").split(", ") if tag in PLAIN]
    signs = _joined(tactics) if tactics else "several kinds of suspicious behaviour"
    return (
        f"On {began.day} {began:%B} at {began:%H:%M}, {who} showed signs of {signs}; {_stand(row)}."
    )


def _stand(row: dict[str, Any]) -> str:
    if row["verdict"] in TRUE_VERDICTS:
        judged = "an analyst confirmed it"
    elif row["verdict"]:
        judged = "an analyst found no attack in it"
    elif row["assignee"]:
        judged = "an analyst is looking at it"
    else:
        judged = "nobody has taken it yet"
    return judged + (", and it is closed" if row["state"] == "closed" else "")


def by_tactic(request: ReportRequest) -> list[dict[str, Any]]:
    """Alerts by what an attacker would want, in plain words, most first; one may count in two."""
    rows = request.ask(_TACTICS)
    return [
        row | {"plain": PLAIN.get(_BY_NAME.get(row["tactic"], ""), row["tactic"])} for row in rows
    ]


def _joined(words: list[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"
