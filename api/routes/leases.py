"""Who held an address at an instant."""

from __future__ import annotations

from ipaddress import ip_address
from typing import Annotated

from fastapi import APIRouter, Query
from pydantic import IPvAnyAddress

from api import models
from api.problems import responses
from api.routes.access import Here
from api.services.entities import leases
from api.wire.moment import Moment

router = APIRouter(prefix="/api/v1/leases", tags=["leases"])


@router.get("", summary="Who held this address then?", responses=responses(422, 503))
def _lease(
    services: Here,
    ip: Annotated[IPvAnyAddress, Query(description="address", examples=["10.0.0.7"])],
    at: Annotated[
        Moment,
        Query(description="instant, with a zone", examples=["2026-11-20T14:05:07Z"]),
    ],
    scope: Annotated[
        str | None, Query(description="site; needed where several use the same address")
    ] = None,
    known_by: Annotated[
        Moment | None,
        Query(description="as it was known then, for a case file; left out: as it is known now"),
    ] = None,
) -> models.AddressHolder:
    """The holder with the lease that proves it, or why there is none; and how sure that is."""
    scopes = services.settings.scopes
    return leases.holder(services.reader, scopes, str(ip_address(str(ip))), at, scope, known_by)
