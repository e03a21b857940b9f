"""Suppressions: what is silenced, for how long, and what that would hide."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from pydantic import Field

from api.wire.base import Visible, WireModel
from api.wire.triage import Grouped


class SuppressionPatterns(WireModel):
    """What is silenced; all that are given must fit. Patterns know `*` and `?`, and no case."""

    rule: str | None = Field(
        None, description="id, name or title of a rule", max_length=500, examples=["web_scan"]
    )
    entity: str | None = Field(
        None,
        description="MAC address, address, network, host or user",
        max_length=500,
        examples=["10.4.0.0/16"],
    )
    fields: dict[str, str] = Field(
        default_factory=dict,
        description="pattern by name of a value that matched",
        max_length=20,
        examples=[{"user.name": "svc-*"}],
    )


class NewSuppression(SuppressionPatterns):
    """A suppression, with its reason and its end."""

    reason: str = Field(
        min_length=1, max_length=2_000, description="why, for those who wonder later"
    )
    owner: str | None = Field(
        None, max_length=200, description="who answers for it; left out: the caller"
    )
    until: str = Field(
        max_length=100,
        description="its end, within a year: an instant with its zone, a date, or a span from now",
        examples=["+7d", "2026-12-01T00:00:00Z"],
    )


class SuppressionPreview(WireModel):
    """What a suppression would have kept from the topic."""

    since: datetime = Field(description="from here on, UTC: 30 days back")
    until: datetime = Field(description="up to here, UTC: now")
    alerts: int = Field(description="alerts it would have hidden")
    findings: int = Field(description="findings folded into them")
    hidden_already: int = Field(description="alerts that it covers and that were hidden anyway")
    true_positives: int = Field(description="alerts among them that people judged true positive")
    checked: int = Field(description="alerts of that time that were looked at: all of them")
    damaged: int = Field(
        description="alerts among these whose body is damaged: whether it covers them is not known"
    )
    by_level: list[Grouped] = Field(description="those it would have hidden, by level")
    by_rule: list[Grouped] = Field(description="by rule, the ten with most")
    by_entity: list[Grouped] = Field(description="by entity, the ten with most")
    by_day: list[Grouped] = Field(description="by day of the first event, UTC, in order of days")
    sample: list[str] = Field(description="ids of the newest, at most ten")


class SuppressionItem(WireModel):
    """A suppression, and what it did so far."""

    suppression_id: str = Field(description="its id")
    state: Literal["active", "expired", "ended", "waiting"] = Field(
        description="waiting: asked for, and not taken by job `alert` yet; ended: before its time"
    )
    rule: str = Field(description="pattern of the rule; * any")
    entity: str | None = Field(description="pattern of the entity, or network")
    fields: dict[str, str] = Field(description="pattern by field")
    owner: str | None = Field(description="who answers for it")
    reason: str | None = Field(description="why")
    who: str = Field(description="who asked for it")
    asked_at: datetime = Field(description="when, UTC")
    expires_at: datetime = Field(description="findings that arrive later raise alerts again, UTC")
    ended_at: datetime | None = Field(description="when somebody asked to end it, UTC")
    ended_by: str | None = Field(description="who did")
    silenced: int = Field(description="alerts that it kept from the topic so far")


class SuppressionList(WireModel):
    """Suppressions, the longest lasting first."""

    items: list[SuppressionItem] = Field(description="all of them, also what waits")


class SuppressionTaken(WireModel):
    """A suppression that was asked for, or asked to end."""

    suppression: SuppressionItem = Field(description="as it is listed")
    visible: Visible = Field(description="when it takes effect")
