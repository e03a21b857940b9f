"""What every model of the wire shares."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field


class WireModel(BaseModel):
    """A body that refuses fields it does not know."""

    model_config = ConfigDict(extra="forbid")


class Visible(WireModel):
    """When what was asked can be seen: requests wait until job `alert` has taken them."""

    when: str = Field(
        description="in words",
        examples=["when job alert has had its next batch"],
    )
    driver_runs: bool = Field(
        description="whether a driver runs job `alert` now; without one requests wait for its start"
    )
    last_batch_seconds: float | None = Field(
        description="age of the newest batch of job `alert`; null: no driver reported one",
        examples=[2.4],
    )
