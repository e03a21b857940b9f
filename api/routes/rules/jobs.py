"""Rules tried on history, as jobs: previews and backtests."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Path, Request, Response
from fastapi.responses import StreamingResponse
from starlette.exceptions import HTTPException

from api.auth import Caller
from api.prefer import Wait, later_answer, waits
from api.problems import responses
from api.routes.access import PROGRESS_ANSWERS, Here, LastEvent, Who, progress_answer, wants
from api.wire import rules as wire

router = APIRouter(
    prefix="/api/v1/rule-jobs", tags=["rules"], dependencies=[Depends(wants("viewer"))]
)
RuleJobId = Annotated[str, Path(description="id of the job")]


@router.post(
    "",
    summary="Try a rule or a draft on history",
    responses={
        202: later_answer(wire.RuleJob),
        **responses(404, 413, 422, 503),
    },
)
def submit_rule_job(
    services: Here,
    who: Who,
    asked: wire.NewRuleJob,
    answer: Response,
    wait: Annotated[Wait, waits("not at all")],
) -> wire.RuleJob:
    """200 where it is done or failed by then, else 202. A draft or a backtest needs `engineer`.

    One runs at a time, in a process of its own: a backtest takes a Spark session and an hour at
    most. Nothing is kept of it but its result, and no alert is made.
    """
    require_may_try(who, asked)
    job = services.rule_jobs.submit(who, asked, wait=wait.within(0.0))
    wait.tell(answer, f"/api/v1/rule-jobs/{job.id}", job.state)
    return job


def require_may_try(who: Caller, asked: wire.NewRuleJob) -> None:
    """Raises 403 for who may only look at what rules in force find."""
    if (asked.text is not None or asked.kind == "backtest") and not who.may("engineer"):
        raise HTTPException(
            403, f"key '{who.name}' has role '{who.role}'; drafts and backtests need 'engineer'"
        )


@router.get("", summary="List previews and backtests", responses=responses(503))
def list_rule_jobs(services: Here, who: Who) -> wire.RuleJobList:
    """One's own; an administrator sees everybody's."""
    return wire.RuleJobList(items=services.rule_jobs.listed(who))


@router.get("/{job_id}", summary="One preview or backtest", responses=responses(404, 503))
def one_rule_job(services: Here, who: Who, job_id: RuleJobId) -> wire.RuleJob:
    """Where it stands, and how far it is."""
    return services.rule_jobs.get(who, job_id)


@router.get(
    "/{job_id}/stream",
    summary="Progress of a preview or backtest as it comes",
    response_class=StreamingResponse,
    responses=PROGRESS_ANSWERS,
)
async def stream_rule_job(
    request: Request,
    services: Here,
    who: Who,
    job_id: RuleJobId,
    last_event_id: LastEvent = None,
) -> Response:
    """Server-sent events: the job each time it changes, `end` when it is over."""
    return await progress_answer(
        request, services, partial(services.rule_jobs.get, who, job_id), last_event_id
    )


@router.get(
    "/{job_id}/results",
    summary="What a preview or backtest came to",
    responses=responses(404, 409, 503),
)
def rule_job_results(services: Here, who: Who, job_id: RuleJobId) -> dict[str, Any]:
    """As `headgate rules preview --summary`, or `headgate rules backtest --output json`."""
    return services.rule_jobs.result(who, job_id)


@router.delete("/{job_id}", summary="Cancel a preview or backtest", responses=responses(404, 503))
def cancel_rule_job(services: Here, who: Who, job_id: RuleJobId) -> wire.RuleJob:
    """Its process ends, also in the middle, and its result is removed."""
    return services.rule_jobs.remove(who, job_id)
