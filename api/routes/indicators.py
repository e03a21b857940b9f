"""Indicator lists: read, filled, changed entry by entry, removed."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Path, Query

from api.problems import responses
from api.routes.access import Here, Who, wants
from api.services.configuration.indicators import IndicatorDesk
from api.wire import indicators as wire

router = APIRouter(prefix="/api/v1/indicators", tags=["indicators"])

ListName = Annotated[str, Path(description="the list, as rules name it", max_length=64)]
# What a list holds decides what rules match, so it is theirs who write rules.
_WRITES = [Depends(wants("engineer"))]


@router.get("", summary="List indicator lists", responses=responses(503))
def list_indicators(services: Here) -> wire.IndicatorLists:
    """Those in force, and the rules that ask each."""
    return IndicatorDesk(services.settings).all()


@router.get("/{name}", summary="One indicator list", responses=responses(404, 422, 503))
def one_list(services: Here, name: ListName) -> wire.IndicatorListItem:
    """What it holds by kind, since when, and which rules ask it."""
    return IndicatorDesk(services.settings).one(name)


@router.get(
    "/{name}/entries", summary="Entries of an indicator list", responses=responses(404, 422, 503)
)
def list_entries(
    services: Here,
    name: ListName,
    q: Annotated[str, Query(description="text in value or label", max_length=500)] = "",
    kind: Annotated[wire.Kind | None, Query(description="of this kind only")] = None,
    limit: Annotated[int, Query(ge=1, le=10_000, description="entries a page")] = 1_000,
    cursor: Annotated[str | None, Query(description="'next' of the page before")] = None,
) -> wire.IndicatorPage:
    """By kind and value; also those that no longer count, with their end."""
    return IndicatorDesk(services.settings).page(name, q, kind, limit, cursor)


@router.put(
    "/{name}",
    summary="Replace an indicator list",
    responses=responses(413, 422, 503),
    dependencies=_WRITES,
)
def replace_list(
    services: Here, who: Who, name: ListName, given: wire.IndicatorValues
) -> wire.IndicatorListChanged:
    """All that it has, or a new list. Larger ones: `headgate indicators load`."""
    return IndicatorDesk(services.settings).replace(who.name, name, given.entries)


@router.post(
    "/{name}/entries",
    summary="Add entries to an indicator list",
    responses=responses(413, 422, 503),
    dependencies=_WRITES,
)
def add_entries(
    services: Here, who: Who, name: ListName, given: wire.IndicatorValues
) -> wire.IndicatorListChanged:
    """One that is there already gets the new label and end. A list that is not there is made."""
    return IndicatorDesk(services.settings).add(who.name, name, given.entries)


@router.post(
    "/{name}/expire",
    summary="Let entries of an indicator list end",
    responses=responses(404, 413, 422, 503),
    dependencies=_WRITES,
)
def expire_entries(
    services: Here, who: Who, name: ListName, asked: wire.IndicatorExpiry
) -> wire.IndicatorListChanged:
    """Events from then on no longer meet them; earlier ones, also those that come late, do."""
    return IndicatorDesk(services.settings).expire(who.name, name, asked.values, asked.at)


@router.delete(
    "/{name}/entries",
    summary="Remove entries of an indicator list",
    responses=responses(404, 422, 503),
    dependencies=_WRITES,
)
def remove_entries(
    services: Here,
    who: Who,
    name: ListName,
    value: Annotated[list[str], Query(description="one value, or several", max_length=200)],
) -> wire.IndicatorListChanged:
    """Also for events of the past; to keep those, let them expire."""
    return IndicatorDesk(services.settings).take_out(who.name, name, value)


@router.delete(
    "/{name}",
    summary="Remove an indicator list",
    responses=responses(404, 422, 503),
    dependencies=_WRITES,
)
def remove_list(services: Here, who: Who, name: ListName) -> wire.IndicatorListRemoved:
    """Rules that ask it are refused, and named in the answer."""
    return IndicatorDesk(services.settings).remove(who.name, name)
