"""Changing alerts: one, many at once, notes, and undoing."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal

from pydantic import Field

from alerts.delivery.triage_request import LONGEST_NOTE
from alerts.domain.verdict import VERDICTS, Verdict
from api.wire.base import Visible, WireModel
from infra.config.sections import AlertLevel

_MEANINGS = "; ".join(f"{name}: {meaning}" for name, (_, meaning) in VERDICTS.items())

StatusField = Annotated[
    Literal["open", "closed"] | None,
    Field(description="open reopens a closed alert, closed closes it; left out: as it is"),
]
AssigneeField = Annotated[
    str | None,
    Field(
        description="who looks at it; 'me' is the caller, null nobody; left out: as it is",
        max_length=200,
        examples=["me"],
    ),
]
VerdictField = Annotated[
    Verdict | None,
    Field(description=f"null takes it back; left out: as it is. {_MEANINGS}"),
]
NoteField = Annotated[
    str | None,
    Field(
        description="why, for those who wonder later",
        max_length=LONGEST_NOTE,
        examples=["the scanner of ticket 4711"],
    ),
]


class AlertChange(WireModel):
    """What is to be different; a field that is left out stays as it is."""

    status: StatusField = None
    assignee: AssigneeField = None
    verdict: VerdictField = None
    note: NoteField = None


class AskedRequest(WireModel):
    """One request to job `alert`, as gold.alert_action has it."""

    action_id: str = Field(description="identity of the request")
    action: str = Field(description="close, reopen, assign, verdict or note")
    value: str | None = Field(description="assignee or verdict")


class TriageStanding(WireModel):
    """Where people stand with an alert, what still waits for job `alert` included."""

    status: Literal["open", "closed"] = Field(description="open or closed")
    assignee: str | None = Field(description="who looks at it")
    verdict: str | None = Field(description="what it was judged to be")


class AlertChanged(WireModel):
    """A change that was asked for."""

    act_id: str | None = Field(
        description="to undo it: POST /api/v1/acts/{act_id}/undo; null: all was so already"
    )
    alert_id: str = Field(description="the whole id of the alert")
    etag: str = Field(description="If-Match of the next change", examples=['"2.1"'])
    requests: list[AskedRequest] = Field(description="what job `alert` was asked, in this order")
    standing: TriageStanding = Field(description="as it will be once they are taken")
    visible: Visible = Field(description="when the new revision can be seen")


class AlertSelection(WireModel):
    """Which alerts a filter means; all that are given must hold. As in GET /api/v1/alerts."""

    level: list[AlertLevel] | None = Field(None, description="one level, or several")
    rule: str | None = Field(None, description="id or title of the rule")
    entity: str | None = Field(None, description="MAC address, address, host or user")
    incident_id: str | None = Field(
        None, description="an incident, the alerts that led to it and those since"
    )
    alert_status: Literal["open", "new", "triaged", "closed"] | None = Field(
        None, description="triage status; open is new or triaged"
    )
    status: Literal["open", "closed"] | None = Field(
        None, description="the former name of `alert_status`", deprecated=True
    )
    assignee: str | None = Field(
        None, description="who looks at it; 'me' the caller, 'none' nobody"
    )
    verdict: str | None = Field(None, description="as judged; 'none': not judged")
    since: str | None = Field(
        None, description="newest event at or after: an instant, -24h, yesterday"
    )
    until: str | None = Field(None, description="newest event before: an instant, now")
    q: str | None = Field(None, description="text in title, entity, summary or values")
    muted: bool = Field(False, description="also those kept from the topic")


class BulkPlan(WireModel):
    """A change of many alerts, to be counted first. Name the alerts by `ids` or by `filter`."""

    ids: list[str] | None = Field(None, description="ids, whole or shortened", max_length=10_000)
    filter: AlertSelection | None = Field(None, description="the alerts that it selects now")
    change: AlertChange = Field(description="what is to be different on each")


class Grouped(WireModel):
    """How many of them have this value."""

    value: str = Field(description="the value")
    alerts: int = Field(description="how many")


class BulkCount(WireModel):
    """What a bulk change would do; nothing is done yet."""

    token: str = Field(description="for POST /api/v1/alerts/bulk, once, within 15 minutes")
    expires_at: datetime = Field(description="until when the token is good, UTC")
    alerts: int = Field(description="alerts that would change")
    unchanged: int = Field(description="alerts that are so already")
    refused: int = Field(description="alerts that cannot become so")
    refused_because: str | None = Field(description="why, of the first of these")
    by_level: list[Grouped] = Field(description="those that would change, by level")
    by_rule: list[Grouped] = Field(description="the same by rule, the ten with most")
    sample: list[str] = Field(description="the first ids, at most ten")


class BulkAct(WireModel):
    """Does what was counted."""

    token: str = Field(description="of POST /api/v1/alerts/bulk/preview")
    alerts: int = Field(ge=0, description="how many: the number that the preview named")


class BulkDone(WireModel):
    """A bulk change that was asked for."""

    act_id: str | None = Field(
        description="to undo it: POST /api/v1/acts/{act_id}/undo; null: nothing was to change"
    )
    alerts: int = Field(description="alerts that change")
    skipped: list[str] = Field(description="alerts that others changed since they were counted")
    requests: int = Field(description="requests that job `alert` was asked")
    visible: Visible = Field(description="when the new revisions can be seen")


class Act(WireModel):
    """A change of one alert or of many, as it was asked for."""

    act_id: str = Field(description="its id")
    kind: Literal["change", "bulk", "undo"] = Field(description="how it was asked")
    who: str = Field(description="name of the key or user")
    asked_at: datetime = Field(description="when, UTC")
    change: AlertChange | None = Field(description="what was wanted; null for an undo")
    alerts: int = Field(description="how many alerts changed")
    undone_by: str | None = Field(description="the act that took it back")
    undoes: str | None = Field(description="the act that this one takes back")


class Acts(WireModel):
    """Acts that can still be undone, newest first."""

    items: list[Act] = Field(description="of the last seven days, at most 200")


class NewNote(WireModel):
    """A note on an alert."""

    text: str = Field(min_length=1, max_length=LONGEST_NOTE, description="what is to be noted")


class AlertNote(WireModel):
    """What a person wrote on an alert."""

    action_id: str = Field(description="the request it came with")
    who: str = Field(description="name of the key or user")
    written_at: datetime = Field(description="when, UTC")
    text: str = Field(description="as it was written")
    action: str = Field(description="note, or the act it explains: close, assign, ...")
    waiting: bool = Field(description="whether job `alert` has still to take it")


class AlertNotes(WireModel):
    """All notes on an alert, oldest first."""

    items: list[AlertNote] = Field(description="oldest first")


class NoteTaken(WireModel):
    """A note that was left."""

    note: AlertNote = Field(description="as it is listed")
    etag: str = Field(description="If-Match of the next change")
    visible: Visible = Field(description="when the new revision shows it")
