"""Searches as jobs: asked, looked after, fetched in any form, cancelled."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Header, Path, Query, Request, Response
from fastapi.responses import StreamingResponse

from api.prefer import Wait, later_answer, waits
from api.problems import responses
from api.routes.access import PROGRESS_ANSWERS, Here, LastEvent, Who, progress_answer, wants
from api.services.searches.search_results import (
    FORMS,
    JSON,
    job_path,
    page,
    wanted_form,
    whole,
    whole_or_later,
)
from api.wire import jobs as wire

router = APIRouter(
    prefix="/api/v1/search/jobs", tags=["searches"], dependencies=[Depends(wants("viewer"))]
)
JobId = Annotated[str, Path(description="id of the job")]
WHOLE: dict[str, Any] = {
    "content": {
        name: {"schema": {"type": "string", "format": "binary"}} for name in FORMS if name != JSON
    }
}
"""The description of a result in its other forms."""

Accepted = Annotated[
    str,
    Header(
        alias="accept",
        description="application/json, or the whole result as application/x-ndjson, text/csv, "
        "application/vnd.apache.arrow.stream or application/vnd.apache.parquet",
    ),
]


@router.post(
    "",
    summary="Ask in Spark SQL, as a job",
    response_model=wire.SearchJob,
    responses={
        200: WHOLE,
        202: later_answer(wire.SearchJob),
        **responses(406, 413, 422, 503),
    },
)
def submit(
    services: Here,
    who: Who,
    asked: wire.NewSearchJob,
    response: Response,
    wait: Annotated[Wait, waits("a second")],
    accept: Accepted = JSON,
) -> Any:
    """200 where it is done or failed by then, else 202. Its result is whole: never cut.

    With another `Accept` than JSON, 200 is the result itself. One job runs at a time, beside
    statements; the others wait.
    """
    form = wanted_form(accept)
    job = services.searches.submit(who, asked, wait=wait.within(1.0))
    if form != JSON:
        return whole_or_later(job, services.searches.file(job.id), form, wait)
    wait.tell(response, job_path(job), job.state)
    return job


@router.get("", summary="List search jobs", responses=responses(422, 503))
def list_jobs(
    services: Here,
    who: Who,
    query: Annotated[str | None, Query(description="those that this saved query asked")] = None,
) -> wire.SearchJobList:
    """One's own; an administrator sees everybody's."""
    return wire.SearchJobList(items=services.searches.listed(who, query))


@router.get("/{job_id}", summary="One search job", responses=responses(404, 503))
def one_job(services: Here, who: Who, job_id: JobId) -> wire.SearchJob:
    """Where it stands, and how far it is."""
    return services.searches.get(who, job_id)


@router.get(
    "/{job_id}/stream",
    summary="Progress of a search job as it comes",
    response_class=StreamingResponse,
    responses=PROGRESS_ANSWERS,
)
async def stream_search_job(
    request: Request,
    services: Here,
    who: Who,
    job_id: JobId,
    last_event_id: LastEvent = None,
) -> Response:
    """Server-sent events: the job each time it changes, `end` when it is over."""
    return await progress_answer(
        request, services, partial(services.searches.get, who, job_id), last_event_id
    )


@router.get(
    "/{job_id}/results",
    summary="The result of a search job",
    response_model=wire.SearchPage,
    responses={
        200: WHOLE,
        **responses(404, 406, 409, 422, 503),
    },
)
def results(
    services: Here,
    who: Who,
    job_id: JobId,
    limit: Annotated[int, Query(ge=1, le=10_000, description="rows a page (JSON)")] = 1_000,
    cursor: Annotated[str | None, Query(description="'next' of the page before (JSON)")] = None,
    accept: Accepted = JSON,
) -> Any:
    """By `Accept`: pages of JSON, or whole as NDJSON, CSV, an Arrow stream or Parquet."""
    form = wanted_form(accept)
    job, file = services.searches.result(who, job_id)
    return page(job, file, limit, cursor) if form == JSON else whole(job, file, form)


@router.delete("/{job_id}", summary="Cancel a search job", responses=responses(404, 503))
def cancel(services: Here, who: Who, job_id: JobId) -> wire.SearchJob:
    """It ends, also in the middle, and its result is removed."""
    return services.searches.remove(who, job_id)
