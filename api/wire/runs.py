"""Commands that the API runs for a caller: they take longer than a request may."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from pydantic import Field

from api.wire.base import WireModel
from api.wire.moment import Moment

RunState = Literal["queued", "running", "done", "failed", "cancelled"]
ReportForm = Literal["html", "pdf", "json", "csv"]
RegisterName = Literal["assets", "users"]


class _Run(WireModel):
    """What all runs have."""

    id: str = Field(description="names the run")
    state: RunState = Field(description="where it stands")
    who: str = Field(description="who asked for it")
    made_at: datetime = Field(description="when it was asked for, UTC")
    ended_at: datetime | None = Field(description="when it ended, UTC")
    problem: str | None = Field(description="why it failed")


class ReportWanted(WireModel):
    """A report to be made."""

    report: str = Field(
        pattern=r"^[a-z][a-z0-9_-]{0,63}$",
        description="its name, of `GET /api/v1/reports/kinds`",
        examples=["weekly"],
    )
    interval: str = Field(
        min_length=1,
        max_length=100,
        description="a day 2026-11-20, a week 2026-W47, a month 2026-11, a span "
        "2026-11-20/2026-11-22, or yesterday, last-week, last-month",
        examples=["last-week"],
    )
    zone: str | None = Field(
        None, max_length=100, description="zone of the days; left out: reports.zone"
    )
    subject: str = Field("", max_length=500, description="of a dossier: the device or incident")
    tenant: str | None = Field(
        None,
        max_length=63,
        description="over whose rows alone; left out: over all, or of the caller's only one",
    )
    formats: list[ReportForm] = Field(
        default_factory=list, max_length=4, description="left out: reports.formats; JSON always"
    )


class ReportKind(WireModel):
    """A report that can be made."""

    name: str = Field(description="by which it is asked for")
    about: str = Field(description="what it shows, and whether it needs a subject")
    of_tenants: bool = Field(description="whether it can be made over one tenant's rows alone")


class ReportKinds(WireModel):
    """Reports that can be made."""

    items: list[ReportKind] = Field(description="by name")


class ReportRun(_Run):
    """A report being made."""

    report: str = Field(description="its name")
    interval: str = Field(description="as asked for")
    subject: str = Field("", description="of a dossier: what it is about, as asked for")
    tenant: str | None = Field(None, description="over whose rows alone; null: over all")
    files: list[str] = Field(description="when done: names for `GET /api/v1/reports/{name}`")
    progress: float | None = Field(
        None, ge=0, le=100, description="percent; null: not begun, or a report that was never made"
    )
    step: str | None = Field(None, description="what is being done, while it is made")


class ReportRuns(WireModel):
    """Reports that were asked for."""

    items: list[ReportRun] = Field(description="newest first, for seven days")


InventoryValue = str | int | float | list[str]


class InventoryEntries(WireModel):
    """What an inventory lists."""

    entries: list[dict[str, InventoryValue]] = Field(
        min_length=1,
        max_length=10_000,
        description="each with columns as a line of a file has them: mac, serial, hostname, ip, "
        "owner, criticality and more; columns of no register are kept beside",
        examples=[[{"asset_id": "laptop-7", "mac": "02:42:ac:77:0b:19", "owner": "anna"}]],
    )
    inventory: str = Field(
        "default", pattern=r"^[A-Za-z0-9][A-Za-z0-9 ._-]{0,63}$", description="which inventory"
    )
    partial: bool = Field(
        False, description="true: only what is new or other, all else stays; false: the whole list"
    )
    valid_from: Moment | None = Field(None, description="since when it is true; left out: now")
    accept_removals: bool = Field(
        False, description="also where most of the inventory would go; refused otherwise"
    )


class RefusedEntry(WireModel):
    """An entry that was not taken."""

    entry: int = Field(description="its place among those given, from 1")
    reason: str = Field(description="why")


class LoadCounts(WireModel):
    """What a load came to."""

    read: int = Field(description="entries given")
    new: int = Field(description="not there before")
    changed: int = Field(description="there before with other values")
    gone: int = Field(description="listed no more")
    unchanged: int = Field(description="as they were")
    held: int = Field(description="not named, and kept since entries were refused")


class InventoryLoad(_Run):
    """Entries being loaded."""

    register_name: RegisterName = Field(description="which register")
    inventory: str = Field(description="which inventory")
    counts: LoadCounts | None = Field(description="when done")
    refused: list[RefusedEntry] = Field(description="entries that were not taken; the others were")
    visible: str = Field(description="when attribution uses it")


class InventoryLoads(WireModel):
    """Loads that were asked for."""

    items: list[InventoryLoad] = Field(description="newest first, for seven days")


class InventoryItem(WireModel):
    """An entry in force."""

    inventory: str = Field(description="of which inventory")
    id: str = Field(description="its id")
    values: dict[str, object] = Field(description="its columns; null: nothing is known")


class InventoryPage(WireModel):
    """Part of a register."""

    items: list[InventoryItem] = Field(description="by inventory and id")
    total: int = Field(description="entries that fit, all of them")
    next: str | None = Field(description="cursor of the page after; null: this is the last")
