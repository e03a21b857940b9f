"""Changes that an assistant proposes, for a person to confirm."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal

from pydantic import Field

from alerts.delivery.triage_request import LONGEST_NOTE
from alerts.domain.verdict import Verdict
from api.wire.base import WireModel
from api.wire.suppressions import SuppressionPatterns
from api.wire.triage import TriageStanding

ProposalKind = Literal["verdict", "note", "suppression"]
WhyField = Annotated[
    str,
    Field(
        min_length=1,
        max_length=2_000,
        description="what the person who decides should know: the evidence, and where it stands",
    ),
]
_AlertId = Annotated[
    str,
    Field(
        min_length=1,
        max_length=200,
        description="alert_id, or its first characters where they are unique",
    ),
]


class ProposedVerdict(WireModel):
    """A verdict on an alert, which may be closed with it."""

    kind: Literal["verdict"] = Field(description="verdict")
    alert_id: _AlertId
    verdict: Verdict = Field(description="as PATCH /api/v1/alerts/{alert_id} takes it")
    close: bool = Field(False, description="whether the alert is to be closed as well")
    why: WhyField


class ProposedNote(WireModel):
    """A note on an alert."""

    kind: Literal["note"] = Field(description="note")
    alert_id: _AlertId
    text: str = Field(min_length=1, max_length=LONGEST_NOTE, description="what is to be noted")
    why: WhyField


class ProposedSuppression(SuppressionPatterns):
    """A suppression."""

    kind: Literal["suppression"] = Field(description="suppression")
    until: str = Field(
        max_length=100,
        description="its end: an instant with its zone, a date, or a span from now",
        examples=["+7d"],
    )
    why: WhyField


NewProposal = Annotated[
    ProposedVerdict | ProposedNote | ProposedSuppression, Field(discriminator="kind")
]
"""What may be proposed, told apart by `kind`."""


class ProposedHiding(WireModel):
    """What a proposed suppression would have hidden of the 30 days before it was proposed."""

    alerts: int = Field(description="alerts")
    true_positives: int = Field(description="those among them that people judged true positive")


class ProposedChange(WireModel):
    """A change that waits for a person."""

    proposal_id: str = Field(description="its id")
    proposed_by: str = Field(description="name of the key or user")
    proposed_at: datetime = Field(description="when, UTC")
    expires_at: datetime = Field(description="it is gone then, and nothing was changed, UTC")
    change: NewProposal = Field(description="what is wanted; an id is whole, a span an instant")
    etag: str | None = Field(description="ETag of the alert when it was proposed")
    before: TriageStanding | None = Field(description="triage status of the alert then")
    after: TriageStanding | None = Field(description="where they would stand")
    hides: ProposedHiding | None = Field(description="what the suppression would have hidden")


class Proposals(WireModel):
    """Proposals that wait, oldest first."""

    items: list[ProposedChange] = Field(description="all of them")
