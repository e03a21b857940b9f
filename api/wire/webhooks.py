"""Webhooks on the wire, without their secrets."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from pydantic import Field

from api.wire.base import WireModel


class WebhookItem(WireModel):
    """A webhook of the settings, and what waits for it."""

    name: str = Field(description="its name")
    form: str = Field(description="whose body it gets: headgate, slack, teams, ...")
    url: str | None = Field(
        description="where it goes, without its query; null: the address is the secret"
    )
    secret: Literal["secret", "secret_env", "secret_file"] = Field(
        description="setting that its secret comes from; the secret is never shown"
    )
    levels: list[str] = Field(description="levels of alerts that it gets")
    rules: list[str] = Field(description="rules whose alerts it gets; none: all")
    entities: list[str] = Field(description="types of entities that its alerts name; none: all")
    tenant: str | None = Field(
        None, description="tenant whose it is, and whose alerts alone it gets; null: all"
    )
    allow_private: bool = Field(description="whether it may be in a private network")
    timeout_seconds: float = Field(description="longest wait for its answer")
    waiting: int = Field(description="revisions that wait for it")
    dead: int = Field(description="revisions that were given up after a day")
    problem: str | None = Field(description="why the last attempt of what waits failed")


class Webhooks(WireModel):
    """Webhooks of the settings."""

    items: list[WebhookItem] = Field(description="in the order of the settings")
    changed_by: str = Field(description="how one is added, changed or removed")


class Delivery(WireModel):
    """A revision that a webhook has not taken."""

    hook: str = Field(description="name of the webhook")
    state: Literal["waiting", "dead"] = Field(description="dead: given up after a day")
    alert_id: str = Field(description="of the alert")
    revision: int = Field(description="of the alert")
    attempts: int = Field(description="how often it was tried")
    queued_at: datetime = Field(description="when it came, UTC")
    next_at: datetime | None = Field(description="when it is tried again, UTC")
    problem: str | None = Field(description="why the last attempt failed")
    title: str = Field(description="of the alert")


class Deliveries(WireModel):
    """What webhooks have not taken."""

    items: list[Delivery] = Field(description="oldest first, at most 1,000")
    total: int = Field(description="all of them")


class WebhookTried(WireModel):
    """A made-up alert that was sent to a webhook."""

    name: str = Field(description="of the webhook")
    taken: bool = Field(description="whether it took it")
    problem: str | None = Field(description="why it did not")


class WebhookRetried(WireModel):
    """What was given up and gets another day."""

    name: str = Field(description="of the webhook")
    again: int = Field(description="revisions that are tried again")
    visible: str = Field(description="when they are tried")
