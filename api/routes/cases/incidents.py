"""Incidents: the alerts of one attack, as rules brought them together."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Path, Query

from api import models
from api.problems import responses
from api.routes.access import Here
from api.services.alert_snapshot import NoSuchAlert, whole_alert_id
from api.services.attack_alerts import MOST, alerts_of_incident, incident, incidents
from api.services.reader import ReaderRow
from api.wire import incidents as wire

router = APIRouter(prefix="/api/v1/incidents", tags=["incidents"])


@router.get("", summary="List incidents", responses=responses(422, 503))
def list_incidents(
    services: Here,
    status: Annotated[
        Literal["open", "closed"] | None, Query(description="triage status; none: all")
    ] = None,
    limit: Annotated[int, Query(ge=1, le=500, description="incidents a page")] = 100,
    cursor: Annotated[str | None, Query(description="'next' of the page before")] = None,
) -> wire.IncidentList:
    """Newest first, by the time of the first revision: a later revision moves no incident.

    An incident is an alert as well: it is judged with PATCH /api/v1/alerts/{alert_id}, linked to a
    case with POST /api/v1/cases, and exported by its stix and evidence.
    """
    rows, after = incidents(services.reader, status, limit=limit, cursor=cursor)
    items = [wire.IncidentItem(**_item(row)) for row in rows]
    return wire.IncidentList(items=items, more=after is not None, next=after)


@router.get("/{incident_id}", summary="One incident", responses=responses(404, 422, 503))
def read_incident(
    services: Here,
    incident_id: Annotated[
        str, Path(description="incident_id, or its first characters where they are unique")
    ],
) -> wire.IncidentDetail:
    """With the alerts that led to it, and those since."""
    try:
        whole = whole_alert_id(services.reader, incident_id)
    except NoSuchAlert:
        raise _no_incident(incident_id) from None
    known = incident(services.reader, whole)
    if known is None:
        raise _no_incident(incident_id)
    alerts = alerts_of_incident(services.reader, whole)[1:]
    return wire.IncidentDetail(
        **_item(known),
        alerts=[_alert(row) for row in alerts[:MOST]],
        more=len(alerts) > MOST,
    )


def _no_incident(incident_id: str) -> NoSuchAlert:
    return NoSuchAlert(f"no incident '{incident_id}'; list them with GET /api/v1/incidents")


def _item(row: ReaderRow) -> dict[str, Any]:
    same = ("summary", "level", "hostname", "risk_score", "tactics", "verdict", "tenant_uid")
    return {
        **{name: row[name] for name in same},
        **_span(row),
        "incident_id": row["alert_id"],
        "entity": models.Entity(type=row["entity_type"], value=row["entity_value"]),
        "alert_status": row["lifecycle"],
        "alert_count": row["alerts"],
        "rule_count": row["rules"],
    }


def _alert(row: ReaderRow) -> wire.IncidentAlert:
    same = ("alert_id", "rule_id", "rule_name", "level", "tactics", "led")
    return wire.IncidentAlert(**{name: row[name] for name in same}, **_span(row))


def _span(row: ReaderRow) -> dict[str, Any]:
    return {
        "first_seen": row["window_start"] or row["event_time"],
        "last_seen": row["window_end"] or row["event_time"],
    }
