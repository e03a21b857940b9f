"""Alerts in their newest revision."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import APIRouter, Depends, Header, Path, Query, Request, Response
from fastapi.responses import StreamingResponse
from starlette.concurrency import run_in_threadpool

from alerts.delivery.feed import cursor_place
from alerts.domain.verdict import Verdict
from alerts.tables import ALERT
from api import models
from api.problems import responses
from api.routes.access import STREAM_HEADERS, Here, Services, Who, wants
from api.services import alerts
from api.services.alert_filter import AlertFilter
from api.services.alert_snapshot import NoSuchAlert, alert_now
from api.services.event_stream import STREAM_PAGE, event_stream
from api.wire.stix import StixResponse, stix_responses
from infra.config.sections import AlertLevel
from infra.config.time_args import TIME_FORMS
from infra.delta.log_reader import newest_version, table_id
from infra.errors import Retryable, Usage

router = APIRouter(prefix="/api/v1/alerts", tags=["alerts"])

Attribution = Literal["leased", "none", "outside", "static", "unknown"]


def filter_of(
    who: Who,
    level: Annotated[list[AlertLevel] | None, Query(description="one level, or several")] = None,
    rule: Annotated[str | None, Query(description="id or title of the rule")] = None,
    rule_id: Annotated[str | None, Query(description="rule that found it")] = None,
    entity: Annotated[
        str | None,
        Query(
            description="a device, host, user or address: whom it is about, or whom it names",
            examples=["02:00:00:00:00:07"],
        ),
    ] = None,
    host: Annotated[str | None, Query(description="names this host, whatever it is about")] = None,
    user: Annotated[str | None, Query(description="names this user")] = None,
    ip: Annotated[str | None, Query(description="names this address")] = None,
    alert_status: Annotated[
        Literal["open", "new", "triaged", "closed"] | None,
        Query(description="triage status; open is new or triaged"),
    ] = None,
    attribution_status: Annotated[
        Attribution | None, Query(description="what the attribution rests on")
    ] = None,
    change_type: Annotated[
        Literal["create", "update", "close"] | None,
        Query(description="what the newest revision did"),
    ] = None,
    status: Annotated[
        Literal["open", "closed", "leased", "none", "outside", "static", "unknown"] | None,
        Query(description="the former `alert_status` or `attribution_status`", deprecated=True),
    ] = None,
    attribution: Annotated[
        Attribution | None, Query(description="the former `attribution_status`", deprecated=True)
    ] = None,
    activity: Annotated[
        Literal["create", "update", "close"] | None,
        Query(description="the former `change_type`", deprecated=True),
    ] = None,
    assignee: Annotated[
        str | None, Query(description="who looks at it; 'me' the caller, 'none' nobody")
    ] = None,
    verdict: Annotated[
        Verdict | Literal["none"] | None, Query(description="as judged; 'none': not judged")
    ] = None,
    tag: Annotated[
        str | None,
        Query(description="tag of the rule, an ATT&CK technique or tactic", examples=["t1110.003"]),
    ] = None,
    q: Annotated[
        str | None,
        Query(description="text in title, entity, summary, note or values that matched"),
    ] = None,
    since: Annotated[
        str | None,
        Query(description=f"newest event at or after: {TIME_FORMS}", examples=["-24h"]),
    ] = None,
    until: Annotated[
        str | None, Query(description=f"newest event before: {TIME_FORMS}", examples=["now"])
    ] = None,
    incident_id: Annotated[
        str | None, Query(description="an incident, the alerts that led to it and those since")
    ] = None,
    muted: Annotated[
        bool, Query(description="also alerts that a suppression or a budget kept from the topic")
    ] = False,
) -> AlertFilter:
    """What the parameters select; each route that lists alerts takes the same ones."""
    # `locals` here, as the parameters are the filter: listed again, one would be forgotten some
    # day.
    given = {name: value for name, value in locals().items() if name != "who"}
    return AlertFilter.of(given, who.name)


@router.get("", summary="List alerts", responses=responses(422, 503))
def _list_alerts(
    services: Here,
    wanted: Annotated[AlertFilter, Depends(filter_of)],
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
        if wanted != AlertFilter() or cursor is not None:
            raise Usage("after: the feed is whole; only limit may stand beside it")
        return alerts.feed(services.reader, _lake(services), after, limit)
    return alerts.alerts(services.reader, wanted, limit, cursor)


@router.get(
    "/stream",
    summary="Alerts as they come",
    response_class=StreamingResponse,
    responses={
        200: {
            "description": "server-sent events: each `data` is a FeedItem, each `id` a cursor",
            "content": {"text/event-stream": {"schema": {"type": "string"}}},
        },
        **responses(422, 503),
    },
)
async def stream_alerts(
    request: Request,
    services: Here,
    after: Annotated[
        str | None,
        Query(description="a cursor of the feed, or 'start'; left out: only what comes from now"),
    ] = None,
    last_event_id: Annotated[
        str | None,
        Header(description="`id` of the last event that was seen; browsers send it by themselves"),
    ] = None,
) -> StreamingResponse:
    """Each revision that goes to the topic, once, as it is committed; nothing is left out.

    Events are called `alert`. Who was away sends `Last-Event-ID` and gets what it missed.
    """
    # Before the answer begins: a stream that has begun cannot turn into a 503.
    services.streams.require_room()
    lake = await run_in_threadpool(_lake, services)
    # A browser that reconnects sends the first URL again, with its `after` of then.
    begin = last_event_id or after
    if begin is None:
        begin = await run_in_threadpool(alerts.newest_cursor, services.reader, lake)
    else:
        cursor_place(begin, lake)

    def page(cursor: str) -> models.FeedPage:
        return alerts.feed(services.reader, lake, cursor, STREAM_PAGE)

    events = event_stream(page, begin, lake, request.is_disconnected, services.streams)
    return StreamingResponse(events, media_type="text/event-stream", headers=STREAM_HEADERS)


@router.get("/{alert_id}", summary="One alert", responses=responses(404, 422, 503))
def one_alert(
    services: Here,
    response: Response,
    alert_id: Annotated[
        str, Path(description="alert_id, or its first characters where they are unique")
    ],
) -> models.AlertDetail:
    """The newest revision whole, and all revisions in short.

    The ETag is what PATCH wants as If-Match: it names the revision, and how many requests about
    the alert still wait for job `alert`.
    """
    now = alert_now(services.reader, services.settings, alert_id)
    detail = alerts.alert(services.reader, now.alert_id)
    if detail is None:
        raise NoSuchAlert(f"no alert '{alert_id}'; list them with GET /api/v1/alerts")
    response.headers["ETag"] = now.etag
    return detail


@router.get(
    "/{alert_id}/stix",
    summary="An alert as STIX 2.1",
    response_class=StixResponse,
    responses=stix_responses("a bundle: grouping, sightings, what was observed"),
    dependencies=[Depends(wants("analyst"))],
)
def alert_stix(
    services: Here,
    who: Who,
    alert_id: Annotated[str, Path(description="alert_id, or its first characters")],
) -> Response:
    """To share: marked and named by `[intelligence.stix]`. 422 for one that was judged no attack.
    An incident is it and its alerts, without those that were judged so.

    It changes with the alert's revisions alone: the same revision gives the same ids.
    """
    return StixResponse(services.cases.alert_stix(who.name, alert_id))


def _lake(services: Services) -> str:
    """Identity of gold.alert, so that a cursor is not taken for one of a lake made anew."""
    folder = services.settings.lake_root / ALERT.path
    if newest_version(folder) < 0:
        raise Retryable(f"{ALERT.name} is not there yet; it is made when the jobs start")
    return table_id(folder)
