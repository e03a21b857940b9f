"""Searches as jobs: asked, looked after, fetched in any form, cancelled."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Header, Path, Query, Request, Response
from fastapi.responses import FileResponse, StreamingResponse
from starlette.exceptions import HTTPException

from api.problems import responses
from api.routes.access import PROGRESS_ANSWERS, Here, LastEvent, Who, progress_answer, wants
from api.services.searches.search_results import FORMS, JSON, PARQUET, form_of, lines, page
from api.wire import jobs as wire

router = APIRouter(
    prefix="/api/v1/search/jobs", tags=["searches"], dependencies=[Depends(wants("viewer"))]
)
JobId = Annotated[str, Path(description="id of the job")]
_BINARY = {"schema": {"type": "string", "format": "binary"}}


@router.post(
    "",
    summary="Ask in Spark SQL, as a job",
    responses={
        202: {
            "model": wire.SearchJob,
            "description": "not done yet; `Location` says where to look",
        },
        **responses(413, 422, 503),
    },
)
def submit(
    services: Here,
    who: Who,
    asked: wire.NewSearchJob,
    response: Response,
    wait_seconds: Annotated[
        float, Query(ge=0, le=20, description="answer at once what is done in so long")
    ] = 1.0,
) -> wire.SearchJob:
    """200 where it is done or failed by then, else 202. Its result is whole: never cut.

    One job runs at a time, beside statements; the others wait.
    """
    job = services.searches.submit(who, asked, wait=wait_seconds)
    if job.state in ("queued", "running"):
        response.status_code = 202
    response.headers["Location"] = f"/api/v1/search/jobs/{job.id}"
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
        200: {"content": {name: _BINARY for name in FORMS if name != JSON}},
        **responses(404, 406, 409, 422, 503),
    },
)
def results(
    services: Here,
    who: Who,
    job_id: JobId,
    limit: Annotated[int, Query(ge=1, le=10_000, description="rows a page (JSON)")] = 1_000,
    cursor: Annotated[str | None, Query(description="'next' of the page before (JSON)")] = None,
    accept: Annotated[
        str, Header(description="application/json for pages; all others are the whole result")
    ] = JSON,
) -> Any:
    """By `Accept`: pages of JSON, or whole as NDJSON, CSV, an Arrow stream or Parquet."""
    form = form_of(accept)
    if form is None:
        raise HTTPException(406, f"Accept: there are {', '.join(FORMS)}")
    job, file = services.searches.result(who, job_id)
    if form == JSON:
        return page(job, file, limit, cursor)
    headers = {"Headgate-Rows": str(job.rows)}
    if form == PARQUET:
        return FileResponse(file, media_type=form, filename=f"{job.id}.parquet", headers=headers)
    return StreamingResponse(lines(job, file, form), media_type=form, headers=headers)


@router.delete("/{job_id}", summary="Cancel a search job", responses=responses(404, 503))
def cancel(services: Here, who: Who, job_id: JobId) -> wire.SearchJob:
    """It ends, also in the middle, and its result is removed."""
    return services.searches.remove(who, job_id)
