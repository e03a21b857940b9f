"""Indicator lists on the wire."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from pydantic import Field

from api.wire.base import WireModel
from api.wire.moment import Moment

Kind = Literal["ip", "network", "domain", "hash", "url", "email"]


class IndicatorValue(WireModel):
    """One entry, as it is given."""

    value: str = Field(
        min_length=1,
        max_length=2_048,
        description="address, network, name, hash, URL or mail address; `1[.]2[.]3[.]4` is mended",
        examples=["198.51.100.7"],
    )
    kind: Kind | None = Field(None, description="what it is; left out: by how it looks")
    label: str | None = Field(None, max_length=500, description="what is known of it")
    valid_until: Moment | None = Field(
        None, description="events from then on no longer meet it; left out: for good"
    )


class IndicatorValues(WireModel):
    """Entries; all are taken or none."""

    entries: list[IndicatorValue] = Field(min_length=1, max_length=10_000)


class IndicatorExpiry(WireModel):
    """Entries that are to end."""

    values: list[str] = Field(
        min_length=1, max_length=10_000, description="values, as the list or as people write them"
    )
    at: Moment | None = Field(
        None, description="events from then on no longer meet them; left out: from now on"
    )


class IndicatorItem(WireModel):
    """One entry in force."""

    kind: str = Field(description="ip, network, domain, hash, url or email")
    value: str = Field(description="in the one spelling in which it is compared")
    label: str | None = Field(description="what is known of it")
    valid_until: datetime | None = Field(
        description="events from then on no longer meet it, UTC; null: for good"
    )
    score: int | None = Field(description="0 to 100, how sure its feed is; null where none says so")
    source: str | None = Field(description="the feed that brought it, and its id there")


class IndicatorPage(WireModel):
    """Part of a list, by kind and value."""

    items: list[IndicatorItem]
    total: int = Field(description="entries that fit, all of them")
    next: str | None = Field(description="cursor of the page after; null: this is the last")


class IndicatorListItem(WireModel):
    """A list in force."""

    name: str = Field(description="as rules name it")
    entries: int = Field(description="how many it has")
    kinds: dict[str, int] = Field(description="entries by kind")
    refused: int = Field(description="lines of its file that could not be used")
    source: str = Field(description="name of its file, or who changed it over REST")
    loaded_at: datetime = Field(description="since when it is so, UTC")
    rules: list[str] = Field(description="rules in force that ask it")
    hash: str = Field(description="names its content")


class IndicatorLists(WireModel):
    """Lists in force."""

    items: list[IndicatorListItem] = Field(description="by name")


class IndicatorListChanged(WireModel):
    """A list that was changed."""

    list: IndicatorListItem
    before: int = Field(description="entries that it had")
    changed: int = Field(description="entries that are new, other or gone now")
    refused_rules: dict[str, str] = Field(
        description="rules that ask it and cannot run, each with its reason; "
        "*: no rule at all can, and those in force stay"
    )
    visible: str = Field(
        description="when rules ask the new one", examples=["from the next batch on"]
    )


class IndicatorListRemoved(WireModel):
    """A list that is no more."""

    name: str = Field(description="its name")
    refused_rules: dict[str, str] = Field(
        description="rules that asked it and no longer run, each with its reason; "
        "*: no rule at all can"
    )
    visible: str = Field(description="when rules no longer ask it")
