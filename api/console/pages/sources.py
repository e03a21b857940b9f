"""Sources and jobs: what arrives, how far each job is, what could not be read, what was lost.

What the broker lost is looked for when an administrator asks, and accepted by them with a reason.
"""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from typing import Annotated

from fastapi import Depends, Request
from fastapi.responses import RedirectResponse, Response
from starlette.exceptions import HTTPException

from api.console.page import Page, console_router
from api.console.raw_bytes import hex_dump, raw_text
from api.console.render import respond
from api.console.request import CheckedForm, Here, Signed, form_reason, signed_in
from api.console.session import ConsoleSession
from api.console.time_words import earliest
from api.observability.audit_log import audit_request
from api.routes.access import Services
from api.services.console import ledger_view, platform_health
from infra.config.settings import Settings
from infra.errors import HeadgateError, Usage
from infra.runtime.job_registry import JOBS, resume
from infra.runtime.job_status import at_work, read_status
from ingest.completeness.gaps import INGEST_JOB, LOOK, Gap, accept, find_gaps, gap_statement

router = console_router()
PAGE = Page("sources", "Sources", router, "/sources", "sources", 50, "j", group="run")
WINDOWS = {"-1h": timedelta(minutes=1), "-6h": timedelta(minutes=10), "-24h": timedelta(hours=1),
           "-7d": timedelta(hours=6)}  # fmt: skip
_DEAD_WINDOWS = ("-1h", "-24h", "-7d", "-30d")
_LETTERS = 50
_MOST = {"reasons": ledger_view.MOST_REASONS, "hours": 120, "gaps": ledger_view.MOST_NEWEST,
         "fields": ledger_view.MOST_NEWEST}  # fmt: skip
"""Rows that the page has room for, by list."""
_DONE = {
    "resume": "is asked to go on.",
    "gap": "goes on without what is missing; who said so is in the audit, and the gap is kept.",
}
"""What was done to a job, as the page says it afterwards."""


def admin_session(session: Annotated[ConsoleSession, Depends(signed_in)]) -> ConsoleSession:
    """The session of an administrator; raises 403."""
    if not session.caller.may("admin"):
        raise HTTPException(
            403, f"'{session.caller.name}' is {session.caller.role}; this needs admin"
        )
    return session


Admin = Annotated[ConsoleSession, Depends(admin_session)]


@router.get("/sources")
def sources(
    request: Request,
    services: Here,
    session: Signed,
    since: str = "-24h",
    done: str = "",
    job: str = "",
) -> Response:
    """The page; `done`: what was just done to a job."""
    if since not in WINDOWS:
        raise Usage(f"since: '{since}' is none of {', '.join(WINDOWS)}")
    # To the minute: who looks within it is answered the same, at once.
    now = datetime.now(UTC).replace(second=0, microsecond=0)
    start, step = earliest("since", since, now) or now, WINDOWS[since]
    arrived = platform_health.arrivals(services.reader, start, step)
    listed = {
        "reasons": ledger_view.dead_letter_reasons(services.reader, start),
        "hours": ledger_view.ledger_by_hour(services.reader, start),
        "gaps": ledger_view.accepted_gaps(services.reader),
        "fields": ledger_view.new_fields(services.reader, start),
    }
    _, rates = platform_health.rates(arrived, start, now, step)
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
        listed={name: listed[name][:most] for name, most in _MOST.items()},
        # Which of them have more than are shown, and how many these are.
        more={name: most for name, most in _MOST.items() if len(listed[name]) > most},
        may_run=session.caller.may("admin"),
        done=_DONE.get(done),
        job_done=job,
        driven=_driven(services.settings),
        look=LOOK,
    )


@router.get("/sources/dead")
def dead(
    request: Request, services: Here, session: Signed, source: str = "", since: str = "-7d"
) -> Response:
    """Dead letters with the bytes as they came."""
    now = datetime.now(UTC)
    start = earliest("since", since, now)
    if start is None:
        raise Usage("since: from when on?")
    letters = ledger_view.dead_letters(services.reader, start, source or None, _LETTERS)
    return respond(
        request,
        "dead.html",
        page=PAGE,
        letters=[letter | shown(letter["raw"]) for letter in letters],
        # As many as there are to show may not be all.
        total=ledger_view.dead_letter_count(services.reader, start, source or None)
        if len(letters) == _LETTERS
        else len(letters),
        source=source,
        since=since,
        windows=_DEAD_WINDOWS,
        start=start,
        now=now,
    )


def shown(raw: bytes | None) -> dict[str, str]:
    """A record's bytes as text, and in hexadecimal where the text does not have all of them."""
    if raw is None:
        return {"text": "", "hex": ""}
    text = raw_text(raw)
    return {"text": text, "hex": hex_dump(raw) if text.encode() != raw else ""}


@router.post("/jobs/{job}/resume")
def resume_job(services: Here, session: Admin, job: str, form: CheckedForm) -> Response:
    """Let a job go on that was stopped for good."""
    if job not in JOBS:
        raise HTTPException(404, f"no job '{job}'; there are {', '.join(JOBS)}")
    status = read_status(services.settings).get(job)
    # The page is seconds old: somebody may have been quicker, or the job well again by itself.
    if status is None or status.state != "failed":
        state = status.state if status else "not seen"
        raise Usage(f"job {job} is {state}; only one that was stopped for good is resumed")
    resume(services.settings, job)
    audit_request(services.settings, "job.resume", "ok", who=session.caller.name, target=job)
    return RedirectResponse(f"/sources?done=resume&job={job}", status_code=303)


@router.get("/sources/gaps")
def gaps(request: Request, services: Here, session: Admin) -> Response:
    """What the broker no longer has of what was to be read, as it is now."""
    return _gaps(request, services)


@router.post("/sources/gaps")
def accept_gaps(request: Request, services: Here, session: Admin, form: CheckedForm) -> Response:
    """Go on without what was stated; refused where something else is missing by now."""
    given = {name: values[0].strip() for name, values in form.items()}
    try:
        stated, reason = given.get("statement", ""), form_reason(form)
        accept(services.settings, stated, session.caller.name, reason)
    except HeadgateError as error:
        return _gaps(request, services, str(error), given)
    resume(services.settings, INGEST_JOB)
    return RedirectResponse(f"/sources?done=gap&job={INGEST_JOB}", status_code=303)


def _gaps(
    request: Request,
    services: Services,
    problem: str | None = None,
    given: dict[str, str] | None = None,
) -> Response:
    missing: tuple[Gap, ...] = ()
    unknown = None
    try:
        missing = find_gaps(services.settings)
    except HeadgateError as error:
        unknown = str(error)
    return respond(
        request,
        "gaps.html",
        422 if problem else 200,
        page=PAGE,
        gaps=missing,
        statement=gap_statement(missing),
        unknown=unknown,
        problem=problem,
        given=given or {},
        job=INGEST_JOB,
    )


def _driven(settings: Settings) -> bool:
    """Whether a driver tells of any job just now."""
    now = time.time()
    return any(at_work(status, now) for status in read_status(settings).values())


def _spark(values: list[int]) -> list[tuple[float, float]]:
    """Heights of a small picture of bars, 100 wide and 20 high."""
    most, width = max([*values, 1]), 100 / max(len(values), 1)
    return [(round(n * width, 2), round(20 * value / most, 2)) for n, value in enumerate(values)]
