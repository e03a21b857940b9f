"""Assets and users as inventories list them: read, loaded, changed."""

from __future__ import annotations

from functools import partial
from typing import Annotated

from fastapi import APIRouter, Depends, Path, Query, Request, Response
from fastapi.responses import StreamingResponse

from api.problems import responses
from api.routes.access import PROGRESS_ANSWERS, Here, LastEvent, Who, progress_answer, wants
from api.wire import runs as wire

router = APIRouter(prefix="/api/v1/inventories", tags=["inventories"])

Register = Annotated[wire.RegisterName, Path(description="assets or users")]
LoadId = Annotated[str, Path(description="`id` of the load", max_length=64)]


@router.get("/loads", summary="Loads of inventories", responses=responses(503))
def list_loads(services: Here) -> wire.InventoryLoads:
    """Those that were asked for over REST, the newest first, for seven days."""
    return services.inventories.listed()


@router.get("/loads/{load_id}", summary="One load of an inventory", responses=responses(404, 503))
def one_load(services: Here, load_id: LoadId) -> wire.InventoryLoad:
    """Where it stands; when done, what it changed and which entries were refused."""
    return services.inventories.get(load_id)


@router.get(
    "/loads/{load_id}/stream",
    summary="A load of an inventory as it goes on",
    response_class=StreamingResponse,
    responses=PROGRESS_ANSWERS,
)
async def stream_load(
    request: Request,
    services: Here,
    load_id: LoadId,
    last_event_id: LastEvent = None,
) -> Response:
    """Server-sent events: the load each time it changes, `end` when it is over."""
    return await progress_answer(
        request, services, partial(services.inventories.get, load_id), last_event_id
    )


@router.get("/{register}", summary="Entries in force", responses=responses(422, 503))
def list_inventory(
    services: Here,
    register: Register,
    inventory: Annotated[
        str | None, Query(description="of this inventory only", max_length=200)
    ] = None,
    q: Annotated[str, Query(description="text in id or columns", max_length=500)] = "",
    limit: Annotated[int, Query(ge=1, le=10_000, description="entries a page")] = 1_000,
    cursor: Annotated[str | None, Query(description="'next' of the page before")] = None,
) -> wire.InventoryPage:
    """As they are now; `GET /entities/{type}/{value}/inventory` has what was known earlier."""
    return services.inventories.page(register, inventory, q, limit, cursor)


@router.post(
    "/{register}/loads",
    status_code=202,
    summary="Load an inventory",
    responses=responses(413, 422, 503),
    dependencies=[Depends(wants("engineer"))],
)
def load(
    services: Here, who: Who, register: Register, given: wire.InventoryEntries, response: Response
) -> wire.InventoryLoad:
    """The whole list, or with `partial` what is other. `Location` says how it goes on.

    A list above 1 MiB: `headgate assets import FILE`.
    """
    run = services.inventories.load(who.name, register, given)
    response.headers["Location"] = f"/api/v1/inventories/loads/{run.id}"
    return run
