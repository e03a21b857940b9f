"""Sources and jobs: what arrives, how far each job is, what could not be read, what was lost."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Annotated

from fastapi import Depends, Request
from fastapi.responses import RedirectResponse, Response
from starlette.exceptions import HTTPException

from api.console.page import Page, console_router
from api.console.render import respond
from api.console.request import CheckedForm, Here, Signed, signed_in
from api.console.session import ConsoleSession
from api.console.time_words import earliest
from api.observability.audit_log import audit_request
from api.services.console import ledger_view, platform_health
from infra.errors import Usage
from infra.runtime.job_registry import JOBS, resume

router = console_router()
PAGE = Page("sources", "Sources", router, "/sources", "sources", 50, "j", group="run")
WINDOWS = {"-1h": timedelta(minutes=1), "-6h": timedelta(minutes=10), "-24h": timedelta(hours=1),
           "-7d": timedelta(hours=6)}  # fmt: skip


def admin(session: Annotated[ConsoleSession, Depends(signed_in)]) -> ConsoleSession:
    """The session of an administrator; raises 403."""
    if not session.caller.may("admin"):
        raise HTTPException(
            403, f"'{session.caller.name}' is {session.caller.role}; this needs admin"
        )
    return session


Admin = Annotated[ConsoleSession, Depends(admin)]


@router.get("/sources")
def sources(request: Request, services: Here, session: Signed, since: str = "-24h") -> Response:
    """The page."""
    if since not in WINDOWS:
        raise Usage(f"since: '{since}' is none of {', '.join(WINDOWS)}")
    # To the minute: who looks within it is answered the same, at once.
    now = datetime.now(UTC).replace(second=0, microsecond=0)
    start, step = earliest("since", since, now) or now, WINDOWS[since]
    arrived = platform_health.arrivals(services.reader, start, step)
    _, rates = platform_health.rates(arrived)
    return respond(
        request,
        "sources.html",
        page=PAGE,
        since=since,
        windows=list(WINDOWS),
        sources=platform_health.source_views(services.reader, services.settings, start, arrived),
        sparks={source: _spark(values) for source, values in rates.items()},
        jobs=platform_health.job_views(services.settings),
        complete=platform_health.complete_up_to(services.settings),
        reasons=ledger_view.dead_letter_reasons(services.reader, start),
        hours=ledger_view.ledger_by_hour(services.reader, start)[:120],
        gaps=ledger_view.accepted_gaps(services.reader),
        may_run=session.caller.may("admin"),
    )


@router.get("/sources/dead")
def dead(
    request: Request, services: Here, session: Signed, source: str = "", since: str = "-7d"
) -> Response:
    """Dead letters with the bytes as they came."""
    start = earliest("since", since, datetime.now(UTC))
    if start is None:
        raise Usage("since: from when on?")
    letters = ledger_view.dead_letters(services.reader, start, source or None, 50)
    return respond(
        request, "dead.html", page=PAGE, letters=letters, source=source, since=since, start=start
    )


@router.post("/jobs/{job}/resume")
def resume_job(services: Here, session: Admin, job: str, form: CheckedForm) -> Response:
    """Let a job go on that was stopped for good."""
    if job not in JOBS:
        raise HTTPException(404, f"no job '{job}'; there are {', '.join(JOBS)}")
    resume(services.settings, job)
    audit_request(services.settings, "job.resume", "ok", who=session.caller.name, target=job)
    return RedirectResponse("/sources", status_code=303)


def _spark(values: list[int]) -> list[tuple[float, float]]:
    """Heights of a small picture of bars, 100 wide and 20 high."""
    most, width = max([*values, 1]), 100 / max(len(values), 1)
    return [(round(n * width, 2), round(20 * value / most, 2)) for n, value in enumerate(values)]
