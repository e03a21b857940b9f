"""Alerts in their newest revision."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import APIRouter, Path, Query
from pydantic import AwareDatetime
from starlette.exceptions import HTTPException

from alerts.tables import ALERT
from api import models
from api.problems import responses
from api.routes.access import Here, Services
from api.services import alerts
from infra.delta.log_reader import newest_version, table_id
from infra.errors import Retryable, Usage

router = APIRouter(prefix="/api/v1/alerts", tags=["alerts"])

Level = Literal["informational", "low", "medium", "high", "critical"]


@router.get("", summary="List alerts", responses=responses(422, 503))
def _list_alerts(
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
    incident_id: Annotated[
        str | None, Query(description="alerts of an incident, and the incident itself")
    ] = None,
    muted: Annotated[
        bool, Query(description="also alerts that a suppression or a budget kept from the topic")
    ] = False,
    limit: Annotated[int, Query(ge=1, le=500, description="alerts a page")] = 100,
    cursor: Annotated[str | None, Query(description="'next' of the page before")] = None,
    after: Annotated[
        str | None,
        Query(
            description="the feed: every revision behind this cursor, in the order of the topic; "
            "'start', 'next' of a page of the feed, or ce_sequence of a message",
            examples=["start"],
        ),
    ] = None,
) -> models.AlertPage | models.FeedPage:
    """Newest first, by the time of the first revision: a later revision moves no alert.

    With `after` the feed: each revision that went to the topic, once, for a consumer that was
    away for longer than the topic keeps messages.
    """
    if after is not None:
        narrowed = (level, rule_id, entity, status, activity, since, until, incident_id, cursor)
        if muted or any(given is not None for given in narrowed):
            raise Usage("after: the feed is whole; only limit may stand beside it")
        return alerts.feed(services.reader, _lake(services), after, limit)
    wanted = alerts.AlertFilter(
        levels=tuple(level or ()),
        rule_id=rule_id,
        entity=entity,
        status=status,
        activity=activity,
        since=since,
        until=until,
        incident_id=incident_id,
        muted=muted,
    )
    return alerts.alerts(services.reader, wanted, limit, cursor)


@router.get("/{alert_id}", summary="One alert", responses=responses(404, 503))
def one_alert(
    services: Here,
    alert_id: Annotated[str, Path(description="alert_id, as listed and as on the topic")],
) -> models.AlertDetail:
    """The newest revision whole, and all revisions in short."""
    alert = alerts.alert(services.reader, alert_id)
    if alert is None:
        raise HTTPException(404, f"no alert '{alert_id}'; list them with GET /api/v1/alerts")
    return alert


def _lake(services: Services) -> str:
    """Identity of gold.alert, so that a cursor is not taken for one of a lake made anew."""
    folder = services.settings.lake_root / ALERT.path
    if newest_version(folder) < 0:
        raise Retryable(f"{ALERT.name} is not there yet; it is made when the jobs start")
    return table_id(folder)
