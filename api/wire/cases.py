"""Cases: alerts that people work on together."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from pydantic import Field

from alerts.domain.verdict import Verdict
from api.wire.base import WireModel

TITLE = Field(min_length=1, max_length=300, description="what it is about")
_NOTE = Field(None, max_length=20_000, description="what to note with it")
ALERTS = Field(
    max_length=5_000, description="alert_id, or its first characters where they are unique"
)


class NewCase(WireModel):
    """A case to be opened."""

    title: str = TITLE
    alerts: list[str] = Field(
        default_factory=list, max_length=5_000, description="alerts to begin with"
    )
    note: str | None = _NOTE
    assignee: str | None = Field(None, max_length=64, description="who works on it; 'me': you")


class CaseChange(WireModel):
    """What is to be different; what is left out stays."""

    title: str | None = Field(None, min_length=1, max_length=300, description="what it is about")
    assignee: str | None = Field(
        None, max_length=64, description="who works on it; 'me': you; null: nobody"
    )
    status: Literal["open", "closed"] | None = Field(None, description="open or closed")
    outcome: Verdict | None = Field(None, description="as what it is closed")
    note: str | None = _NOTE


class CaseAlerts(WireModel):
    """Alerts of a case."""

    alerts: list[str] = Field(
        min_length=1,
        max_length=5_000,
        description="alert_id, or its first characters where they are unique",
    )


class CaseNoteText(WireModel):
    """A note."""

    text: str = Field(min_length=1, max_length=20_000, description="what to note")


class CaseMerge(WireModel):
    """The case that takes another one in."""

    into: str = Field(
        max_length=64, description="its id; alerts and notes of this one go to that one"
    )


class CaseNoteItem(WireModel):
    """What somebody noted."""

    text: str = Field(description="as it was written")
    who: str = Field(description="who wrote it")
    at: datetime = Field(description="when, UTC")
    act: str = Field(description="the act that it came with")


class CaseItem(WireModel):
    """A case in short."""

    case_id: str = Field(description="its id; GET takes its first characters, too")
    title: str = Field(description="what it is about")
    status: Literal["open", "closed", "merged"] = Field(description="where it stands")
    outcome: str | None = Field(description="as what it was closed")
    assignee: str | None = Field(description="who works on it")
    opened_at: datetime = Field(description="when it was opened, UTC")
    opened_by: str = Field(description="who opened it")
    changed_at: datetime = Field(description="when somebody last did something to it, UTC")
    changed_by: str = Field(description="who did")
    alert_count: int = Field(description="alerts that are linked")
    merged_into: str | None = Field(description="the case that took it in")


class CaseDetail(CaseItem):
    """A case."""

    alerts: list[str] = Field(description="ids of its alerts, in the order they were linked")
    notes: list[CaseNoteItem] = Field(description="oldest first")
    merged_from: list[str] = Field(description="cases that it took in")


class CaseList(WireModel):
    """Cases."""

    items: list[CaseItem] = Field(description="that changed last first")
