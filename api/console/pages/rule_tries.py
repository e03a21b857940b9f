"""A rule or a draft tried on history: asked for as a job, looked at until it is done."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Any

from fastapi import Depends, Request
from fastapi.responses import Response
from pydantic import ValidationError
from starlette.exceptions import HTTPException

from api.console.page import Page, console_router
from api.console.pages.rule_editor import form_text
from api.console.render import respond
from api.console.request import CheckedForm, Here, signed_in
from api.console.session import ConsoleSession
from api.console.time_words import earliest
from api.console.wrong_values import wrong_value
from api.routes.access import Services
from api.routes.rules.jobs import require_may_try
from api.services.triage import NoSuchAct
from api.wire.rules import NewRuleJob, RuleJob
from infra.errors import Usage

router = console_router()
PAGE = Page("rule-tries", "Rules on history", router, role="viewer")
_MOST_BARS = 400
_DAY = 86_400


def history_viewer(session: Annotated[ConsoleSession, Depends(signed_in)]) -> ConsoleSession:
    """The session of somebody who may look into history; raises 403."""
    if not session.caller.may("viewer"):
        raise HTTPException(
            403, f"'{session.caller.name}' is {session.caller.role}; history needs viewer"
        )
    return session


HistoryViewer = Annotated[ConsoleSession, Depends(history_viewer)]


@router.post("/rule-tries")
def begin_try(
    request: Request, services: Here, session: HistoryViewer, form: CheckedForm
) -> Response:
    """Begin a preview, a backtest or another count, of the text that was sent or of a rule."""
    given = {name: values[0] for name, values in form.items()}
    draft = "text" in given
    asked: dict[str, Any] = {
        "kind": given.get("kind", ""),
        "since": earliest("since", given.get("since", "-7d"), datetime.now(UTC)),
        "text": form_text(form) if draft else None,
        "rule": None if draft else given.get("rule"),
    }
    if draft and asked["kind"] == "backtest":
        # What the draft gains and loses against the rule that it is to replace.
        asked["against"] = given.get("rule") or given.get("copy") or None
    try:
        wanted = NewRuleJob(**asked)
    except ValidationError as error:
        raise Usage(wrong_value(error)) from None
    require_may_try(session.caller, wanted)
    job = services.rule_jobs.submit(session.caller, wanted, wait=1.0)
    return _shown(request, services, session, job)


@router.get("/rule-tries/{job_id}")
def look_at_try(
    request: Request, services: Here, session: HistoryViewer, job_id: str, again: bool = False
) -> Response:
    """How far it is, or what it came to; `again`: for a page that is loaded anew."""
    try:
        job = services.rule_jobs.get(session.caller, job_id)
        return _shown(request, services, session, job)
    except NoSuchAct:
        if again:
            return Response(status_code=204)
        # In its place: a notice alone would leave a bar that never ends.
        return respond(request, "rule_try.html", job=None)


@router.post("/rule-tries/{job_id}/end")
def end_try(
    request: Request, services: Here, session: HistoryViewer, job_id: str, form: CheckedForm
) -> Response:
    """End it, also in the middle."""
    job = services.rule_jobs.remove(session.caller, job_id)
    return _shown(request, services, session, job.model_copy(update={"state": "cancelled"}))


def _shown(request: Request, services: Services, session: ConsoleSession, job: RuleJob) -> Response:
    result = services.rule_jobs.result(session.caller, job.id) if job.state == "done" else None
    return respond(
        request,
        "rule_try.html",
        job=job,
        result=result,
        charts=_charts(job, result),
        # What other rules count is not replaced by a copy, which they would not see.
        may_keep=session.caller.may("engineer") and not services.rules.counted_by(job.rule_id),
    )


def _charts(job: RuleJob, result: dict[str, Any] | None) -> dict[str, Any]:
    """Bars of what was found over time, by a name for each chart."""
    until = job.until or job.made_at
    if result is None or job.kind == "thresholds":
        return {}
    if job.kind == "preview":
        counts = {_instant(begin): many for begin, many in result["by_time"].items()}
        step = int(result["step_seconds"])
        return {"findings": _chart(counts, step, job.since, until, "findings")} if step else {}
    return {
        side: _chart(
            {_instant(day): many for day, many in of_side["by_day"].items()},
            _DAY, job.since, until, "alerts",
        )
        for side, of_side in result["sides"].items()
    }  # fmt: skip


def _chart(
    counts: dict[int, int], step: int, since: datetime, until: datetime, name: str
) -> dict[str, Any]:
    first = int(since.timestamp()) // step * step
    # The newest bars where there are too many; a page shows a few hundred at most.
    last = int(until.timestamp())
    times = list(range(first, last + 1, step))[-_MOST_BARS:]
    values = [counts.get(time, 0) for time in times]
    return {"times": times, "step": step, "series": [{"name": name, "values": values}]}


def _instant(text: str) -> int:
    """Seconds since 1970 of a date or an instant."""
    instant = datetime.fromisoformat(text)
    return int(instant.replace(tzinfo=instant.tzinfo or UTC).timestamp())
