"""Saved queries: kept, run, and run on a schedule."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Path, Response

from api.observability.audit_log import audit_request
from api.prefer import Wait, later_answer, waits
from api.problems import responses
from api.routes.access import Here, Who, wants
from api.services.searches.search_results import job_path
from api.wire import jobs as wire

router = APIRouter(prefix="/api/v1/queries", tags=["searches"])

QueryName = Annotated[str, Path(description="its name", max_length=64)]
_WRITES = [Depends(wants("analyst"))]


@router.get("", summary="List saved queries", responses=responses(503))
def list_queries(services: Here) -> wire.SavedQueryList:
    """By name."""
    return wire.SavedQueryList(items=services.queries.listed())


@router.get("/{name}", summary="One saved query", responses=responses(404, 422, 503))
def one_query(services: Here, name: QueryName) -> wire.SavedQuery:
    """With its schedule, and when that last ran it."""
    return services.queries.get(name)


@router.put("/{name}", summary="Save a query", responses=responses(422, 503), dependencies=_WRITES)
def save_query(
    services: Here, who: Who, name: QueryName, wanted: wire.QueryContent
) -> wire.SavedQuery:
    """In the place of one of that name. With `every_minutes` the API runs it as a search job of
    yours, as long as you may; its results are listed with `GET /search/jobs?query=`."""
    saved = services.queries.put(who.name, name, wanted)
    audit_request(services.settings, "query.save", "ok", who=who.name, target=name,
                  detail=wanted.model_dump())  # fmt: skip
    return saved


@router.delete(
    "/{name}", summary="Remove a saved query", responses=responses(404, 422, 503),
    dependencies=_WRITES,
)  # fmt: skip
def remove_query(services: Here, who: Who, name: QueryName) -> wire.SavedQuery:
    """Results of its runs stay until their time is over."""
    removed = services.queries.remove(name)
    audit_request(services.settings, "query.remove", "ok", who=who.name, target=name)
    return removed


@router.post(
    "/{name}/run",
    summary="Run a saved query",
    responses={
        202: later_answer(wire.SearchJob, "not done yet; look at `Location`"),
        **responses(404, 422, 503),
    },
    dependencies=[Depends(wants("viewer"))],
)
def run_query(
    services: Here,
    who: Who,
    name: QueryName,
    response: Response,
    wait: Annotated[Wait, waits("a second")],
) -> wire.SearchJob:
    """As a search job of yours."""
    job = services.queries.run(who, name, wait.within(1.0))
    wait.tell(response, job_path(job), job.state)
    return job
