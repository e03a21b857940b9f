"""Evidence bundles: asked for as jobs, looked after, fetched, cancelled."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Path, Request, Response
from fastapi.responses import FileResponse, StreamingResponse
from starlette.background import BackgroundTask
from starlette.types import Receive, Scope, Send

from api.asking import current_request
from api.auth import Caller
from api.prefer import Wait, later_answer, waits
from api.problems import responses
from api.routes.access import (
    PROGRESS_ANSWERS,
    Here,
    LastEvent,
    Services,
    Who,
    progress_answer,
    wants,
)
from api.routes.cases.work import CaseId
from api.services.runs.evidence_jobs import problem_of
from api.wire import evidence as wire

router = APIRouter(prefix="/api/v1", dependencies=[Depends(wants("analyst"))], tags=["cases"])
JobId = Annotated[str, Path(description="id of the job")]
USUAL_WAIT = 20.0
"""Seconds for which a file is waited for: it is rather had at once than fetched."""

_ZIP: dict[str, Any] = {
    "description": "a zip; `headgate evidence verify` checks it without a lake",
    "content": {"application/zip": {"schema": {"type": "string", "format": "binary"}}},
    "headers": {
        "Headgate-Digest": {
            "description": "SHA-256 of the file, as ops.audit has it",
            "schema": {"type": "string"},
        }
    },
}
_LATER = later_answer(wire.EvidenceJob)


@router.post(
    "/evidence/jobs",
    summary="Gather the evidence of a case, an incident or alerts",
    responses={202: _LATER, **responses(404, 413, 422, 503)},
)
def submit_evidence_job(
    services: Here,
    who: Who,
    asked: wire.NewEvidence,
    answer: Response,
    wait: Annotated[Wait, waits("a second")],
) -> wire.EvidenceJob:
    """200 where it is done or failed by then, else 202. Two are made at a time; others wait.

    Alerts, findings, events, raw records, leases, rules, versions and hashes, in one file.
    """
    job = services.evidence.submit(who, services.cases, asked, wait=wait.within(1.0))
    wait.tell(answer, job_path(job), job.state)
    return job


@router.get("/evidence/jobs", summary="List evidence bundles", responses=responses(503))
def list_evidence_jobs(services: Here, who: Who) -> wire.EvidenceJobList:
    """One's own; an administrator sees everybody's."""
    return wire.EvidenceJobList(items=services.evidence.listed(who))


@router.get("/evidence/jobs/{job_id}", summary="One evidence bundle", responses=responses(404, 503))
def one_evidence_job(services: Here, who: Who, job_id: JobId) -> wire.EvidenceJob:
    """Where it stands, how far it is, and what is in it when it is done."""
    return services.evidence.get(who, job_id)


@router.get(
    "/evidence/jobs/{job_id}/stream",
    summary="Progress of an evidence bundle as it comes",
    response_class=StreamingResponse,
    responses=PROGRESS_ANSWERS,
)
async def stream_evidence_job(
    request: Request,
    services: Here,
    who: Who,
    job_id: JobId,
    last_event_id: LastEvent = None,
) -> Response:
    """Server-sent events: the job each time it changes, `end` when it is over."""
    return await progress_answer(
        request, services, partial(services.evidence.get, who, job_id), last_event_id
    )


@router.get(
    "/evidence/jobs/{job_id}/results",
    summary="The file of an evidence bundle",
    response_class=FileResponse,
    responses={200: _ZIP, **responses(404, 409, 503)},
)
def evidence_results(services: Here, who: Who, job_id: JobId) -> Response:
    """The whole bundle. Its SHA-256 is in the header `Headgate-Digest` and in ops.audit."""
    return bundle_file(services, who, job_id)


@router.delete(
    "/evidence/jobs/{job_id}", summary="Cancel an evidence bundle", responses=responses(404, 503)
)
def cancel_evidence_job(services: Here, who: Who, job_id: JobId) -> wire.EvidenceJob:
    """It ends, also in the middle, and its file is removed."""
    return services.evidence.remove(who, job_id)


@router.get(
    "/cases/{case_id}/evidence",
    summary="The evidence of a case, as a file",
    response_class=FileResponse,
    responses={200: _ZIP, 202: _LATER, **responses(404, 409, 422, 503)},
)
def evidence(
    services: Here,
    who: Who,
    case_id: CaseId,
    wait: Annotated[Wait, waits("20 s")],
) -> Response:
    """The file where it is whole by then, else 202 with the job that goes on making it.

    Asked again, it is waited for further; once it was sent it is removed.
    """
    seconds, gone = wait.within(USUAL_WAIT), current_request().gone
    job = services.evidence.of_case(who, services.cases, case_id, seconds, gone)
    if going := wait.later(job, job_path(job)):
        return going
    if job.state != "done":
        raise problem_of(job)
    answer = bundle_file(services, who, job.id)
    answer.headers.update(wait.applied(200))
    return answer


def job_path(job: wire.EvidenceJob) -> str:
    """The path of a job."""
    return f"/api/v1/evidence/jobs/{job.id}"


class _WholeFile(FileResponse):
    """A file that is sent as a whole, whatever part of it was asked for (RFC 9110, 14.2)."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        kept = [pair for pair in scope["headers"] if pair[0].lower() != b"range"]
        await super().__call__({**scope, "headers": kept}, receive, send)


def bundle_file(services: Services, who: Caller, job_id: str) -> Response:
    """The bundle of a job as an answer; of one that was asked for `once` it is gone then."""
    job, file = services.evidence.result(who, job_id)
    after = BackgroundTask(services.evidence.remove, who, job.id) if job.once else None
    headers = {"Headgate-Digest": str(job.digest)}
    sent = FileResponse
    if job.once:
        # A part would take the rest with it, which another bundle does not continue.
        sent, headers["Accept-Ranges"] = _WholeFile, "none"
    name = f"{job.subject}.zip" if job.kind == "case" else f"{job.kind}-{job.subject[:12]}.zip"
    return sent(file, media_type="application/zip", filename=name, headers=headers,
                        background=after)  # fmt: skip
