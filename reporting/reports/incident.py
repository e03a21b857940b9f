"""A dossier of one incident: its alerts in order, what people did, who had which address, and the
lines it rests on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from infra.errors import Usage
from reporting.document.content import Report, Tile
from reporting.document.request import ReportRequest
from reporting.document.text import harmless_text
from reporting.figures.dossier import alerts_of_incident, evidence_lines, leases
from reporting.reports.device import alert_section, evidence_section, lease_section

NAME = "incident"
QUESTIONS = 4
DOC = (
    "A dossier of one incident or alert: its alerts, what people did, leases, the evidence with "
    "digests."
)
SUBJECT = "an alert's id, best of an incident"
TABLES = (
    "bronze.record", "silver.event", "silver.dhcp_segment", "silver.dhcp_session", "gold.alert",
    "gold.alert_current", "gold.alert_action",
)  # fmt: skip
OF_TENANT = ""
"""It is of things that have rows: nothing of it is left out."""


def compose(request: ReportRequest) -> Report:
    """The dossier; of the interval are only the leases, and what is said of late logs. Raises
    `Usage` for an alert that there is not."""
    alerts = alerts_of_incident(request)
    own = next((row for row in alerts if row["alert_id"] == request.subject), None)
    if own is None:
        raise Usage(f"--subject {harmless_text(request.subject)}: there is no such alert")
    evidence = evidence_lines(request, alerts)
    return Report(
        NAME,
        "Dossier of an incident",
        request.interval,
        request.made_at,
        subject=request.subject,
        headline=_headline(request, own, len(alerts)),
        tiles=[
            Tile("Alerts", len(alerts)),
            Tile("Rules", len({row["rule_id"] for row in alerts})),
            Tile("Highest risk", max(row["risk_score"] or 0 for row in alerts)),
            Tile("Lines of evidence", len(evidence)),
        ],
        sections=[
            alert_section(request, alerts),
            lease_section(request, leases(replace(request, subject=own["entity_value"]))),
            evidence_section(request, evidence),
        ],
        arrival=request.arrived(),
    )


def _headline(request: ReportRequest, own: Mapping[str, Any], many: int) -> str:
    """What happened, to whom and when: an id tells nobody anything."""
    began = request.interval.local(own["event_time"])
    more = f", and {many - 1} more alert{'s' if many > 2 else ''}" if many > 1 else ""
    title = harmless_text(str(own["title"]), 160)
    return f"{title}, {began.day} {began:%B %Y at %H:%M} {request.interval.zone}{more}"
