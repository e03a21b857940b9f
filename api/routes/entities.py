"""The timeline of an address, a device, a user, a host or a domain."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated

from fastapi import APIRouter, Path, Query
from pydantic import AwareDatetime

from api import models
from api.problems import responses
from api.routes.access import Here
from api.timeline import Kind, timeline

router = APIRouter(prefix="/api/v1/entities", tags=["entities"])

FIRST = datetime(1970, 1, 1, tzinfo=UTC)
LAST = datetime(9999, 12, 31, tzinfo=UTC)


@router.get("/{type}/{value}", summary="What is known about it?", responses=responses(422, 503))
def entity(
    services: Here,
    type: Annotated[Kind, Path(description="what the value is")],
    value: Annotated[
        str,
        Path(description="the value", max_length=253, examples=["02:00:00:00:00:07", "10.0.0.7"]),
    ],
    since: Annotated[AwareDatetime | None, Query(description="at or after")] = None,
    until: Annotated[AwareDatetime | None, Query(description="before")] = None,
    limit: Annotated[int, Query(ge=1, le=500, description="items a page")] = 100,
    cursor: Annotated[str | None, Query(description="'next' of the page before")] = None,
) -> models.Timeline:
    """Events, findings, alerts and leases, newest first.

    For a MAC address also what was done from its addresses while it held them.
    """
    return timeline(services.reader, type, value, since or FIRST, until or LAST, limit, cursor)
