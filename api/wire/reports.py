"""Reports on the wire."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from pydantic import Field

from api.wire.base import WireModel


class ReportFile(WireModel):
    """One file of a report that is kept."""

    name: str = Field(
        description="its file's name, by which it is fetched",
        examples=["weekly-2026-11-16_2026-11-23.html"],
    )
    report: str = Field(
        description="what the files of one report in several forms share",
        examples=["weekly-2026-11-16_2026-11-23"],
    )
    tenant: str | None = Field(description="over whose rows alone it was made; null: over all")
    form: Literal["html", "pdf", "json", "csv"] = Field(description="csv: a ZIP of CSV files")
    size: int = Field(description="bytes")
    made_at: datetime = Field(description="when it was written, UTC")


class ReportFiles(WireModel):
    """Every file that is kept, the newest first."""

    items: list[ReportFile]


class FailedReport(WireModel):
    """A report of a schedule that is missing."""

    name: str = Field(
        description="by which it is dismissed", examples=["weekly-2026-11-16_2026-11-23"]
    )
    interval: str = Field(description="of what time it is")
    tried_at: datetime = Field(description="when it was tried last, UTC")
    problem: str = Field(description="why it was not made, or made and not sent")


class ScheduledReport(WireModel):
    """A report that is made by itself, and what is wrong with it."""

    report: str = Field(description="its name", examples=["weekly"])
    subject: str = Field(description="of a dossier: what it is about; of query: its name")
    tenant: str | None = Field(description="over whose rows alone it is made; null: over all")
    every: Literal["day", "week", "month"] = Field(description="how long its interval is")
    after_hours: float = Field(description="how long after the interval's end it is made")
    addresses: int = Field(description="how many get it by mail")
    webhook: str | None = Field(description="the webhook that is notified")
    interval: str | None = Field(description="of what time the one was that failed; null: none")
    tried_at: datetime | None = Field(description="when that was tried last, UTC")
    problem: str | None = Field(
        description="why it was not made, or made and not sent; null: nothing is known to be wrong"
    )
    failures: list[FailedReport] = Field(
        description="all that is missing, the newest first, whose fields are those above: each is "
        "here until it was made and sent, or dismissed"
    )


class ScheduledReports(WireModel):
    """Reports that are made by themselves."""

    items: list[ScheduledReport] = Field(description="as the settings have them")
