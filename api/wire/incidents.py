"""Incidents: what rules made of the alerts of one attack."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from pydantic import Field

from api import models
from api.wire.base import WireModel


class IncidentItem(WireModel):
    """An incident in short."""

    incident_id: str = Field(description="its id, which is that of an alert, too")
    summary: str | None = Field(description="what was seen, in a sentence")
    level: str = Field(description="informational, low, medium, high or critical")
    entity: models.Entity = Field(description="whose attack it is, as far as is known")
    hostname: str | None = Field(description="how that device called itself")
    first_seen: datetime = Field(description="the oldest event that it was made of, UTC")
    last_seen: datetime = Field(description="the newest event that it was made of, UTC")
    risk_score: int | None = Field(description="0 to 100")
    tactics: list[str] = Field(description="ATT&CK tactics that it was made of")
    alert_status: Literal["new", "triaged", "closed"] = Field(description="triage status")
    verdict: str | None = Field(description="how it was judged")
    alert_count: int = Field(description="alerts that led to it, and those since")
    rule_count: int = Field(description="rules whose alerts these are")
    tenant_uid: str | None = Field(description="whose it is, where there are tenants")


class IncidentList(WireModel):
    """Incidents."""

    items: list[IncidentItem] = Field(description="newest first")
    more: bool = Field(description="there are older ones, which `next` leads to")
    next: str | None = Field(description="cursor of the next page; null on the last")


class IncidentAlert(WireModel):
    """An alert of an incident."""

    alert_id: str = Field(description="GET /api/v1/alerts/{alert_id} has it whole")
    rule_id: str = Field(description="rule that found it")
    rule_name: str = Field(description="its title")
    level: str = Field(description="informational, low, medium, high or critical")
    first_seen: datetime = Field(description="its oldest event, UTC")
    last_seen: datetime = Field(description="its newest event, UTC")
    tactics: list[str] = Field(description="ATT&CK tactics of its rule")
    led: bool = Field(description="it led to the incident; else it came since")


class IncidentDetail(IncidentItem):
    """An incident and its alerts."""

    alerts: list[IncidentAlert] = Field(description="oldest first")
    more: bool = Field(description="it has more alerts than are shown")
