"""Keys of the API: list, make, give another token, end."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Annotated

from fastapi import APIRouter, Depends, Path, Query

from api.credentials import StoredKey
from api.key_limits import known_tables, known_tenants
from api.observability.audit_log import audit_request
from api.problems import responses
from api.routes.access import Here, Who, wants
from api.wire import keys as wire

router = APIRouter(prefix="/api/v1/keys", tags=["keys"], dependencies=[Depends(wants("admin"))])

KeyName = Annotated[str, Path(description="name of the key", max_length=64)]


@router.get("", summary="List keys", responses=responses(503))
def list_keys(services: Here) -> wire.KeyList:
    """Without their tokens: only the hash of each is kept."""
    keys = sorted(services.access.credentials.read().keys, key=lambda key: key.name)
    return wire.KeyList(items=[_item(key) for key in keys])


@router.post("", status_code=201, summary="Make a key", responses=responses(422, 503))
def make_key(services: Here, who: Who, new: wire.NewKey) -> wire.KeyMade:
    """It is good at once, without a restart; its token is told in this answer and nowhere else."""
    key, token = services.access.credentials.add_key(
        new.name,
        new.role,
        new.expires_at,
        new.requests_per_minute,
        known_tables(new.tables),
        None if new.sources is None else tuple(new.sources),
        known_tenants(new.tenants, services.settings),
    )
    _audit(services, who.name, "key.make", key)
    return wire.KeyMade(key=_item(key), token=token)


@router.post(
    "/{name}/rotate", summary="Give a key another token", responses=responses(404, 422, 503)
)
def rotate_key(
    services: Here,
    who: Who,
    name: KeyName,
    overlap_seconds: Annotated[
        int, Query(ge=0, le=7 * 86_400, description="for so long the token before is good, too")
    ] = 0,
) -> wire.KeyMade:
    """The token before ends at once, or after `overlap_seconds`."""
    overlap = timedelta(seconds=overlap_seconds)
    key, token = services.access.credentials.rotate_key(name, overlap)
    _audit(services, who.name, "key.rotate", key)
    return wire.KeyMade(key=_item(key), token=token)


@router.delete("/{name}", summary="End a key", responses=responses(404, 422, 503))
def end_key(services: Here, who: Who, name: KeyName) -> wire.KeyItem:
    """It is refused from the next request on."""
    key = services.access.credentials.remove_key(name)
    _audit(services, who.name, "key.end", key)
    return _item(key)


def _audit(services: Here, who: str, act: str, key: StoredKey) -> None:
    detail = {"role": key.role, **key.limits}
    audit_request(services.settings, act, "ok", who=who, target=key.name, detail=detail)


def _item(key: StoredKey) -> wire.KeyItem:
    return wire.KeyItem(
        name=key.name,
        role=key.role,
        made_at=datetime.fromisoformat(key.made_at),
        expires_at=datetime.fromisoformat(key.expires_at) if key.expires_at else None,
        expired=key.is_over(datetime.now(UTC)),
        requests_per_minute=key.requests_per_minute,
        tables=None if key.tables is None else list(key.tables),
        sources=None if key.sources is None else list(key.sources),
        tenants=None if key.tenants is None else list(key.tenants),
    )
