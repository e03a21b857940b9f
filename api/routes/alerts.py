"""Alerts in their newest revision."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import APIRouter, Path, Query
from pydantic import AwareDatetime
from starlette.exceptions import HTTPException

from api import lookups, models
from api.problems import responses
from api.routes.access import Here

router = APIRouter(prefix="/api/v1/alerts", tags=["alerts"])

Level = Literal["informational", "low", "medium", "high", "critical"]


@router.get("", summary="List alerts", responses=responses(422, 503))
def list_alerts(
    services: Here,
    level: Annotated[list[Level] | None, Query(description="one level, or several")] = None,
    rule_id: Annotated[str | None, Query(description="rule that found it")] = None,
    entity: Annotated[
        str | None,
        Query(description="MAC address, address, host or user", examples=["02:00:00:00:00:07"]),
    ] = None,
    status: Annotated[
        Literal["leased", "none", "outside", "unknown"] | None,
        Query(description="what the attribution rests on"),
    ] = None,
    activity: Annotated[
        Literal["create", "update", "close"] | None, Query(description="of the newest revision")
    ] = None,
    since: Annotated[
        AwareDatetime | None,
        Query(description="newest event at or after", examples=["2026-11-20T00:00:00Z"]),
    ] = None,
    until: Annotated[AwareDatetime | None, Query(description="newest event before")] = None,
    limit: Annotated[int, Query(ge=1, le=500, description="alerts a page")] = 100,
    cursor: Annotated[str | None, Query(description="'next' of the page before")] = None,
) -> models.AlertPage:
    """Newest first, by the time of the first revision: a later revision moves no alert."""
    wanted = lookups.AlertFilter(
        levels=tuple(level or ()),
        rule_id=rule_id,
        entity=entity,
        status=status,
        activity=activity,
        since=since,
        until=until,
    )
    return lookups.alerts(services.reader, wanted, limit, cursor)


@router.get("/{alert_id}", summary="One alert", responses=responses(404, 503))
def one_alert(
    services: Here,
    alert_id: Annotated[str, Path(description="alert_id, as listed and as on the topic")],
) -> models.AlertDetail:
    """The newest revision whole, and all revisions in short."""
    found = lookups.alert(services.reader, alert_id)
    if found is None:
        raise HTTPException(404, f"no alert '{alert_id}'; list them with GET /api/v1/alerts")
    return found
