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
    form: Literal["html", "pdf", "json", "csv"] = Field(description="csv: a ZIP of CSV files")
    size: int = Field(description="bytes")
    made_at: datetime = Field(description="when it was written, UTC")


class ReportFiles(WireModel):
    """Every file that is kept, the newest first."""

    items: list[ReportFile]
