"""Reports: made on request, listed and fetched."""

from __future__ import annotations

from functools import partial
from typing import Annotated

from fastapi import APIRouter, Depends, Request
from fastapi import Path as InPath
from fastapi.responses import Response, StreamingResponse
from starlette.exceptions import HTTPException

from api.problems import responses
from api.routes.access import PROGRESS_ANSWERS, Here, LastEvent, Who, progress_answer, wants
from api.services.reports import dismiss_report, scheduled_reports, stored_reports
from api.wire import runs as wire
from api.wire.reports import ReportFile, ReportFiles, ScheduledReports

router = APIRouter(prefix="/api/v1/reports", tags=["reports"])
_CONTENT = {kind: {"schema": {"type": "string", "format": "binary"}} for kind in
            ("text/html", "application/pdf", "application/json", "application/zip")}  # fmt: skip
RunId = Annotated[str, InPath(description="`id` of the run", max_length=64)]


@router.get("", summary="Reports that are kept")
def reports(services: Here) -> ReportFiles:
    """Each file that `headgate report` made and retention has left, the newest first."""
    return ReportFiles(
        items=[
            ReportFile.model_validate(
                {
                    "name": file.name,
                    "report": file.stem,
                    "tenant": file.tenant,
                    "form": file.form,
                    "size": file.size,
                    "made_at": file.made_at,
                }
            )
            for file in stored_reports(services.settings, services.reports.tenants)
        ]
    )


@router.post(
    "",
    status_code=202,
    summary="Make a report",
    responses=responses(422, 503),
    dependencies=[Depends(wants("analyst"))],
)
def make_report(
    services: Here, who: Who, wanted: wire.ReportWanted, response: Response
) -> wire.ReportRun:
    """As `headgate report run` makes it; its files are listed when it is done (`Location`)."""
    run = services.reports.make(who.name, wanted)
    response.headers["Location"] = f"/api/v1/reports/runs/{run.id}"
    return run


@router.get("/kinds", summary="Reports that can be made", responses=responses(503))
def report_kinds(services: Here) -> wire.ReportKinds:
    """By name, with what each shows."""
    return services.reports.kinds()


@router.get("/scheduled", summary="Reports that are made by themselves")
def report_schedules(services: Here) -> ScheduledReports:
    """What `reports.scheduled` wants, each with what of it is missing, and why."""
    return ScheduledReports(items=scheduled_reports(services.settings, services.reports.tenants))


@router.delete(
    "/scheduled/failures/{name}",
    status_code=204,
    summary="Dismiss a scheduled report that is missing",
    responses=responses(404, 503),
    dependencies=[Depends(wants("analyst"))],
)
def dismiss_failed_report(
    services: Here,
    who: Who,
    name: Annotated[str, InPath(description="`name` of the failure", max_length=300)],
) -> None:
    """Nobody is told of it any more, and it is not tried again once another is due."""
    dismiss_report(services.settings, name, who.name, services.reports.tenants)


@router.get("/runs", summary="Reports that were asked for", responses=responses(503))
def report_runs(services: Here) -> wire.ReportRuns:
    """Over REST, the newest first, for seven days."""
    return services.reports.listed()


@router.get("/runs/{run_id}", summary="One report being made", responses=responses(404, 503))
def report_run(services: Here, run_id: RunId) -> wire.ReportRun:
    """Where it stands, and its files when it is done."""
    return services.reports.get(run_id)


@router.delete(
    "/runs/{run_id}",
    summary="End a report that is being made",
    responses=responses(403, 404, 503),
    dependencies=[Depends(wants("analyst"))],
)
def end_report_run(services: Here, who: Who, run_id: RunId) -> wire.ReportRun:
    """Its process ends and nothing of it is kept. A run that is over leaves the list; its files
    stay. Of others' runs an administrator's alone."""
    return services.reports.remove(who, run_id)


@router.get(
    "/runs/{run_id}/stream",
    summary="A report being made, as it goes on",
    response_class=StreamingResponse,
    responses=PROGRESS_ANSWERS,
)
async def stream_report_run(
    request: Request,
    services: Here,
    run_id: RunId,
    last_event_id: LastEvent = None,
) -> Response:
    """Server-sent events: the run each time it changes, `end` when it is over."""
    return await progress_answer(
        request, services, partial(services.reports.get, run_id), last_event_id
    )


@router.get(
    "/{name}",
    summary="One file of a report",
    response_class=Response,
    responses={
        200: {"description": "the file as it was made", "content": _CONTENT},
        **responses(404),
    },
)
def report_file(
    services: Here,
    name: Annotated[str, InPath(description="the file's name, as the list has it")],
) -> Response:
    """The bytes of the file. HTML is given as an attachment: it is not part of the console."""
    kept = stored_reports(services.settings, services.reports.tenants)
    file = next((file for file in kept if file.name == name), None)
    if file is None:
        raise HTTPException(404, f"no report '{name}'")
    headers = {"Content-Disposition": f'attachment; filename="{file.name}"'}
    return Response(file.path.read_bytes(), media_type=file.media_type, headers=headers)
