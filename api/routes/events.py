"""Events with the device that held their address then."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query

from api import models
from api.problems import responses
from api.routes.access import Here
from api.services.entities.attributed_events import By, slice_of
from api.wire.moment import Moment
from infra.errors import Usage

router = APIRouter(prefix="/api/v1/events", tags=["events"])


@router.get(
    "/attributed", summary="Events, and whose they were then", responses=responses(422, 503)
)
def _attributed(
    services: Here,
    since: Annotated[Moment, Query(description="at or after", examples=["2026-11-20T00:00:00Z"])],
    until: Annotated[Moment | None, Query(description="before; none: up to now")] = None,
    ip: Annotated[
        str | None, Query(description="address, whoever held it", examples=["10.0.0.7"])
    ] = None,
    mac: Annotated[str | None, Query(description="device", examples=["02:00:00:00:00:07"])] = None,
    host: Annotated[
        str | None, Query(description="name the device gave the DHCP server", max_length=253)
    ] = None,
    limit: Annotated[int, Query(ge=1, le=500, description="events a page")] = 100,
    cursor: Annotated[str | None, Query(description="'next' of the page before")] = None,
) -> models.AttributedPage:
    """Newest first, each with the device that held its source address, as known now.

    Say one of ip, mac and host. By mac or host: what was done from the addresses of that device
    while they were its own.
    """
    named: dict[By, str | None] = {"ip": ip, "mac": mac, "host": host}
    asked = [(by, value) for by, value in named.items() if value]
    if len(asked) != 1:
        raise Usage("say one of ip=, mac= and host=")
    by, value = asked[0]
    if until is not None and until <= since:
        raise Usage(f"until ({until.isoformat()}) is not after since ({since.isoformat()})")
    scopes = services.settings.scopes
    return slice_of(services.reader, scopes, by, value, since, until, limit, cursor)
