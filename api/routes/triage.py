"""Changing alerts: one, many at once, notes on them, and taking an act back."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Header, Path, Response

from api.problems import responses
from api.routes.access import Here, Who, wants
from api.wire import triage as wire

router = APIRouter(
    prefix="/api/v1",
    tags=["triage"],
    dependencies=[Depends(wants("analyst"))],
)

AlertId = Annotated[
    str, Path(description="alert_id, or its first characters where they are unique")
]
ActId = Annotated[
    str,
    Path(description="act_id of the answer that told of the act, or its first characters"),
]


@router.patch(
    "/alerts/{alert_id}",
    summary="Change an alert",
    responses=responses(404, 409, 412, 422, 428, 503),
)
def change_alert(
    services: Here,
    who: Who,
    alert_id: AlertId,
    asked: wire.AlertChange,
    response: Response,
    if_match: Annotated[
        str,
        Header(
            description="ETag of the alert as it was looked at, so that nobody's work is "
            "overwritten; * changes it whatever it is now",
            examples=['"2"'],
        ),
    ],
) -> wire.AlertChanged:
    """Status, assignee, verdict and note in one act, with an id by which it can be undone.

    412 where somebody changed it since, with who changed it to what. Job `alert` makes the
    revision; the answer says when that can be seen.
    """
    changed = services.triage.change(who.name, alert_id, asked, if_match)
    response.headers["ETag"] = changed.etag
    return changed


@router.post(
    "/alerts/bulk/preview",
    summary="Count what a bulk change would change",
    responses=responses(404, 422, 503),
)
def preview_bulk(services: Here, who: Who, plan: wire.BulkPlan) -> wire.BulkCount:
    """Changes nothing. The answer has the number of alerts, and a token for doing it."""
    return services.triage.preview(who.name, plan)


@router.post(
    "/alerts/bulk",
    summary="Change the alerts that were counted",
    responses=responses(404, 422, 503),
)
def bulk(services: Here, who: Who, act: wire.BulkAct) -> wire.BulkDone:
    """Exactly those that the preview counted; one that somebody changed since is left, and named.

    The number has to be named again, so that no script changes more than it looked at.
    """
    return services.triage.bulk(who.name, act)


@router.get("/alerts/{alert_id}/notes", summary="Notes on an alert", responses=responses(404, 503))
def list_notes(services: Here, alert_id: AlertId) -> wire.AlertNotes:
    """What people wrote, with their acts or by itself, oldest first; also what still waits."""
    return services.triage.notes(alert_id)


@router.post(
    "/alerts/{alert_id}/notes",
    status_code=201,
    summary="Note something on an alert",
    responses=responses(404, 422, 503),
)
def write_note(services: Here, who: Who, alert_id: AlertId, new: wire.NewNote) -> wire.NoteTaken:
    """A note overwrites nothing, so it needs no If-Match."""
    return services.triage.write_note(who.name, alert_id, new.text)


@router.get("/acts", summary="Acts that can be undone", responses=responses(503))
def list_acts(services: Here) -> wire.Acts:
    """Changes of the last seven days that were asked for here, newest first."""
    return services.triage.acts()


@router.get("/acts/{act_id}", summary="One act", responses=responses(404, 422, 503))
def one_act(services: Here, act_id: ActId) -> wire.Act:
    """What was asked for, by whom, and whether it was undone."""
    return services.triage.act(act_id)


@router.post(
    "/acts/{act_id}/undo",
    summary="Undo an act",
    responses=responses(404, 409, 422, 503),
)
def undo(services: Here, who: Who, act_id: ActId) -> wire.BulkDone:
    """Asks for the reverse, alert by alert; one that somebody changed since is left, and named.

    A note stays, and the undoing is noted beside it.
    """
    return services.triage.undo(who.name, act_id)
