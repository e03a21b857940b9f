"""Evidence bundles as jobs."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from api.wire.base import WireModel
from api.wire.jobs import StoredJob

EvidenceKind = Literal["case", "incident", "alerts"]


class NewEvidence(WireModel):
    """What the evidence is of: one of `case`, `incident` and `alerts`."""

    case: str | None = Field(None, max_length=64, description="case_id, or its first characters")
    incident: str | None = Field(
        None,
        max_length=64,
        description="alert_id of an incident, or its first characters: it and all its alerts",
    )
    alerts: list[str] = Field(
        default_factory=list,
        max_length=5_000,
        description="alert_id, or its first characters where they are unique",
    )
    ttl_seconds: int = Field(
        3600, ge=60, le=7 * 86_400, description="for so long the bundle is kept"
    )


class EvidenceJob(StoredJob):
    """An evidence bundle being made."""

    kind: EvidenceKind = Field(description="what it is of")
    subject: str = Field(description="the case, the incident, or the first of the alerts")
    title: str = Field(description="what that is called; empty: it has no title")
    alerts: int = Field(description="alerts in it")
    etag: str | None = Field(
        description="of a case: its ETag when it was asked; another one now: somebody changed it"
    )
    once: bool = Field(description="whether it is removed once it was fetched")
    step: str | None = Field(description="what is being done")
    elapsed_ms: float | None = Field(description="time it took")
    size: int | None = Field(description="bytes of the file")
    digest: str | None = Field(description="SHA-256 of the file, as ops.audit has it")
    rows: dict[str, int] = Field(description="rows by file of the bundle")
    missing: dict[str, int] = Field(description="what no table has any more, by kind")
    damaged: list[str] = Field(description="alerts whose body cannot be read, and what is lost")
    problem_type: Literal["unavailable", "internal-error"] | None = Field(
        None, description="what kind of problem it failed with: the end of `type` in errors"
    )


class EvidenceJobList(WireModel):
    """Evidence bundles."""

    items: list[EvidenceJob] = Field(description="newest first")
