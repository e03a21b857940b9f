"""An address, a device, a user, a host or a domain: its timeline, who used it, what it is."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Literal

from fastapi import APIRouter, Path, Query

from api import models
from api.problems import responses
from api.routes.access import Here
from api.services.entities.entity_names import LOOKED_BACK, MOST, address_of, entities_named
from api.services.entities.timeline import Kind, timeline
from api.services.entities.user_evidence import DeviceKind, inventory_evidence, witnesses
from api.wire import entities as wire
from api.wire.moment import Moment
from infra.errors import Usage

router = APIRouter(prefix="/api/v1/entities", tags=["entities"])

_FIRST = datetime(1970, 1, 1, tzinfo=UTC)
_LAST = datetime(9999, 12, 31, tzinfo=UTC)


@router.get("", summary="What is called so?", responses=responses(422, 503))
def find_entities(
    services: Here,
    name: Annotated[
        str,
        Query(
            description="name of a user or host, or how it begins; a domain; an address",
            min_length=1,
            max_length=253,
            examples=["ws-3310", "ann"],
        ),
    ],
) -> wire.NamedEntities:
    """Users and hosts by this name, in any case, or beginning so; the domain; an address as the
    tables write it.

    Names are looked for in events of the last seven days, and in all leases and alerts.
    """
    now, typed = datetime.now(UTC), name.strip()
    if not typed:
        raise Usage("name: it is empty; give a name, how one begins, or an address")
    address = address_of(typed)
    if address is not None:
        items = [wire.NamedEntity(type=address[0], value=address[1], last_seen=None, exact=True)]
    else:
        items = [
            wire.NamedEntity(
                type=each.kind, value=each.value, last_seen=each.last, exact=each.whole
            )
            for each in entities_named(services.reader, typed, now)
        ]
    return wire.NamedEntities(
        items=items[:MOST], more=len(items) > MOST, events_since=now - LOOKED_BACK
    )


@router.get("/{type}/{value}", summary="What is known about it?", responses=responses(422, 503))
def _entity(
    services: Here,
    type: Annotated[
        Kind | Literal["device"],
        Path(description="what the value is; device, as in alerts, is mac"),
    ],
    value: Annotated[
        str,
        Path(description="the value", max_length=253, examples=["02:00:00:00:00:07", "10.0.0.7"]),
    ],
    since: Annotated[Moment | None, Query(description="at or after")] = None,
    until: Annotated[Moment | None, Query(description="before")] = None,
    limit: Annotated[int, Query(ge=1, le=500, description="items a page")] = 100,
    cursor: Annotated[str | None, Query(description="'next' of the page before")] = None,
) -> models.EntityTimeline:
    """Events, findings, alerts and leases, newest first.

    For a MAC address also what was done from its addresses while it held them.
    """
    kind: Kind = "mac" if type == "device" else type
    return timeline(services.reader, kind, value, since or _FIRST, until or _LAST, limit, cursor)


@router.get("/{type}/{value}/witnesses", summary="Who used it then?", responses=responses(422, 503))
def used_by(
    services: Here,
    type: Annotated[DeviceKind, Path(description="what the value is")],
    value: Annotated[
        str,
        Path(description="the value", max_length=253, examples=["10.0.0.7", "02:00:00:00:00:07"]),
    ],
    at: Annotated[
        Moment,
        Query(description="instant, with a zone", examples=["2026-11-20T14:05:07Z"]),
    ],
    scope: Annotated[
        str | None, Query(description="site; needed where several use the same address")
    ] = None,
) -> models.Witnesses:
    """Users that VPN, Kerberos, logons and SSH name, ranked, with the events that say so."""
    return witnesses(services.reader, services.settings, type, value, at, scope)


@router.get(
    "/{type}/{value}/inventory", summary="What is it, by the inventories?",
    responses=responses(422, 503),
)  # fmt: skip
def _inventory(
    services: Here,
    type: Annotated[Kind, Path(description="what the value is")],
    value: Annotated[
        str, Path(description="the value", max_length=253, examples=["10.0.0.7", "ann"])
    ],
    at: Annotated[Moment | None, Query(description="instant, with a zone; none: now")] = None,
    scope: Annotated[str | None, Query(description="site the address belongs to")] = None,
) -> models.KnownAccount:
    """The asset or the user as it was then; both null where no inventory knows it."""
    return inventory_evidence(services.settings, type, value, at or datetime.now(UTC), scope)
