"""What is found by a name."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from pydantic import Field

from api.wire.base import WireModel


class NamedEntity(WireModel):
    """What is called so."""

    type: Literal["ip", "mac", "user", "host", "domain"] = Field(
        description="what it is", examples=["user"]
    )
    value: str = Field(description="its name, as the tables write it", examples=["ann.lee"])
    last_seen: datetime | None = Field(
        description="newest event, lease or alert with it, UTC; null: an address, not looked for"
    )
    exact: bool = Field(description="what was asked for, but for case; else it begins so")


class NamedEntities(WireModel):
    """What is called so, or begins so."""

    items: list[NamedEntity] = Field(description="whole names first, then newest first")
    more: bool = Field(description="there are others: ask for more of the name")
    events_since: datetime = Field(
        description="names of older events are not looked at; of leases and alerts all are"
    )
