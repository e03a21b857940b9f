"""Keys of the API, which are made and ended while it runs."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from pydantic import Field

from api.wire.base import WireModel
from api.wire.moment import Moment

KeyRole = Literal["metrics", "read", "viewer", "analyst", "engineer", "admin"]


class NewKey(WireModel):
    """A key to be made."""

    name: str = Field(
        min_length=1, max_length=64, description="who has it, as ops.audit names them"
    )
    role: KeyRole = Field(description="what it may; each role may what those before it may")
    expires_at: Moment | None = Field(None, description="when it ends; left out: never")
    requests_per_minute: int | None = Field(
        None, ge=1, le=1_000_000, description="most requests a minute; left out: no limit"
    )
    tables: list[str] | None = Field(
        None,
        max_length=200,
        description="all tables that its statements may read; it may do nothing else then",
        examples=[["silver.event"]],
    )
    sources: list[str] | None = Field(
        None,
        max_length=200,
        description="all sources whose rows its statements see; it may do nothing else then",
        examples=[["zeek:dns"]],
    )
    tenants: list[str] | None = Field(
        None,
        min_length=1,
        max_length=200,
        description="all tenants whose rows its statements and whose alerts it sees; what cannot "
        "be limited so is closed to it then",
    )


class KeyItem(WireModel):
    """A key; its token is nowhere, only the hash of it."""

    name: str = Field(description="who has it")
    role: KeyRole = Field(description="what it may")
    made_at: datetime = Field(description="when its token was made, UTC")
    expires_at: datetime | None = Field(description="when it ends, UTC")
    expired: bool = Field(description="whether it has ended")
    requests_per_minute: int | None = Field(description="most requests a minute")
    tables: list[str] | None = Field(description="all tables that it may read; null: every one")
    sources: list[str] | None = Field(description="all sources that it sees; null: every one")
    tenants: list[str] | None = Field(description="all tenants that it sees; null: every one")


class KeyList(WireModel):
    """Keys that were made while the API runs; those of the settings are not among them."""

    items: list[KeyItem] = Field(description="by name")


class KeyMade(WireModel):
    """A key with its token."""

    key: KeyItem = Field(description="as it is listed")
    token: str = Field(description="the bearer token, shown only once: keep it now")
