"""Searches that run as jobs, and queries that are kept."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from pydantic import Field

from api.models import ENGINE, ResultColumn
from api.sql.allowlist import Scalar
from api.sql.runner import Engine
from api.wire.base import WireModel
from api.wire.moment import Moment

State = Literal["queued", "running", "done", "failed", "cancelled"]
UNDER_WAY = ("queued", "running")
ProblemType = Literal[
    "statement-refused", "statement-failed", "statement-limit", "unavailable", "internal-error"
]


class StoredJob(WireModel):
    """What every job has."""

    id: str = Field(description="names the job")
    state: State = Field(description="where it stands")
    progress: float | None = Field(description="0 to 100; null: not known yet")
    who: str = Field(description="who asked")
    made_at: datetime = Field(description="when it was asked, UTC")
    expires_at: datetime = Field(description="until when its result is kept, UTC")
    problem: str | None = Field(description="why it failed")

    @property
    def under_way(self) -> bool:
        """Whether it waits for its turn or runs."""
        return self.state in UNDER_WAY


class NewSearchJob(WireModel):
    """A question that may take long."""

    sql: str = Field(
        min_length=1,
        max_length=100_000,
        description="one SELECT in Spark SQL",
        examples=["SELECT source, count(*) AS n FROM silver.events GROUP BY source"],
    )
    params: dict[str, Scalar] = Field(
        default_factory=dict, max_length=100, description="values of :name in the statement"
    )
    as_of: Moment | None = Field(None, description="over the tables as they were then")
    engine: Engine = Field("auto", description=ENGINE)
    ttl_seconds: int = Field(
        3600, ge=60, le=7 * 86_400, description="for so long the result is kept"
    )


class SearchJob(StoredJob):
    """A search job."""

    sql: str = Field(description="the question")
    query: str | None = Field(description="the saved query that asked it")
    rows: int | None = Field(description="rows of the result, all of them")
    columns: list[ResultColumn] | None = Field(description="columns of the result")
    elapsed_ms: float | None = Field(description="time it took")
    engine: Literal["duckdb", "spark"] | None = Field(
        description="what ran it; null: not known yet"
    )
    engine_reason: str | None = Field(None, description="why that engine")
    versions: dict[str, int] = Field(description="with as_of: version of each table read")
    problem_type: ProblemType | None = Field(
        None, description="what kind of problem it failed with: the end of `type` in errors"
    )


class SearchJobList(WireModel):
    """Search jobs."""

    items: list[SearchJob] = Field(description="newest first")


class SearchPage(WireModel):
    """Part of a result."""

    columns: list[ResultColumn] = Field(description="by place")
    rows: list[list[object]] = Field(description="values by column, in order")
    total: int = Field(description="rows of the whole result")
    next: str | None = Field(description="cursor of the page after; null: this is the last")


class QueryContent(WireModel):
    """What a saved query asks."""

    sql: str = Field(
        min_length=1,
        max_length=100_000,
        description="one SELECT in Spark SQL; :since and :until are the interval of a report, else "
        "the time since the run before (every_minutes), or the last day",
    )
    doc: str = Field("", max_length=2_000, description="what it is for")
    every_minutes: int = Field(
        0, ge=0, le=60 * 24 * 31, description="run it so often; 0: only when asked"
    )
    keep_days: int = Field(7, ge=1, le=7, description="how long results of its runs are kept")


class SavedQuery(QueryContent):
    """A saved query."""

    name: str = Field(description="its name")
    who: str = Field(description="who saved it")
    saved_at: datetime = Field(description="when, UTC")
    ran_at: datetime | None = Field(description="when its schedule last ran it, UTC")
    next_at: datetime | None = Field(
        description="when its schedule runs it next, while the API runs, UTC; null: it has none"
    )
    problem: str | None = Field(
        None,
        description="why its schedule brought nothing last, told in the list of them; null: it "
        "did, or it has none",
    )


class SavedQueryList(WireModel):
    """Saved queries."""

    items: list[SavedQuery] = Field(description="by name")
