"""Statements as jobs, with all their rows, and saved queries with what their runs came to."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import partial
from typing import Any
from urllib.parse import quote, urlencode

from fastapi import Request
from fastapi.responses import RedirectResponse, Response
from pydantic import ValidationError
from starlette.exceptions import HTTPException

from api.console.event_files import FORMS
from api.console.page import Page, console_router
from api.console.pages.act import Analyst
from api.console.pages.rule_tries import HistoryViewer
from api.console.pages.search import PAGE as SEARCH
from api.console.render import iso_time, respond
from api.console.request import CheckedForm, Here, form_field
from api.console.time_words import earliest
from api.console.wrong_values import wrong_value
from api.observability.audit_log import audit_request
from api.routes.access import Services
from api.services.searches.saved_queries import span_params
from api.services.searches.search_results import first_rows, whole
from api.services.triage import NoSuchAct
from api.wire.jobs import NewSearchJob, QueryContent, SavedQuery, SearchJob
from infra.errors import Usage

router = console_router()
PAGE = Page("search-runs", "Search runs", router, role="viewer")
MOST_SHOWN = 500
"""Rows on a page; the files have all."""
_MOST_BYTES = 2_000_000
_KEPT_SECONDS = 86_400
"""A day: who asked for all rows may come back for them after lunch."""


@router.post("/search/runs")
def begin_run(services: Here, session: HistoryViewer, form: CheckedForm) -> Response:
    """Ask a statement as a job, whose result is whole."""
    now = datetime.now(UTC)
    since = earliest("since", form_field(form, "since") or "-24h", now) or now
    until = earliest("until", form_field(form, "until"), now) or now
    sql = form_field(form, "sql")
    try:
        asked = NewSearchJob(
            sql=sql, params=span_params(sql, since, until), ttl_seconds=_KEPT_SECONDS
        )
    except ValidationError as error:
        raise Usage(wrong_value(error)) from None
    return _to(services.searches.submit(session.caller, asked, wait=1.0))


@router.get("/search/runs/{job_id}")
def search_run(request: Request, services: Here, session: HistoryViewer, job_id: str) -> Response:
    """How far it is, or what it came to."""
    job = services.searches.get(session.caller, job_id)
    answer: dict[str, Any] = {"rows": []}
    if job.state == "done":
        _, file = services.searches.result(session.caller, job_id)
        answer = first_rows(file, MOST_SHOWN, _MOST_BYTES)
    return respond(
        request,
        "search_run.html",
        page=SEARCH,
        job=job,
        rows=answer["rows"],
        columns=job.columns or [],
        forms={form: each.label for form, each in FORMS.items()},
        saved=job.query in services.queries.names(),
    )


@router.get("/search/runs/{job_id}/rows.{form}")
def run_rows(services: Here, session: HistoryViewer, job_id: str, form: str) -> Response:
    """All rows as a file."""
    if form not in FORMS:
        raise HTTPException(404, f"no form '{form}'; there are {', '.join(FORMS)}")
    job, file = services.searches.result(session.caller, job_id)
    response = whole(job, file, FORMS[form].media_type)
    name = f"{job.query or 'search'}-{job.made_at:%Y%m%d-%H%M%S}.{form}"
    response.headers["Content-Disposition"] = f'attachment; filename="{name}"'
    return response


@router.post("/search/runs/{job_id}/end")
def end_run(services: Here, session: HistoryViewer, job_id: str, form: CheckedForm) -> Response:
    """End it, or put its result away before its time."""
    job = services.searches.remove(session.caller, job_id)
    # Results of a query that was removed stay, and it has no page.
    if job.query and job.query in services.queries.names():
        return RedirectResponse(_page_of(job.query), 303)
    return RedirectResponse(f"/search?{urlencode({'sql': job.sql})}", 303)


@router.get("/search/queries/{name}")
def saved_query(request: Request, services: Here, session: HistoryViewer, name: str) -> Response:
    """One saved query, its schedule, and its runs."""
    query = _query(services, name)
    return respond(
        request,
        "search_query.html",
        page=SEARCH,
        query=query,
        # As who saved it may no longer ask, the schedule leaves it out; here is where one looks.
        owner_may=services.queries.asker(query.who) is not None,
        runs=services.searches.listed(session.caller, name),
        everybodys=session.caller.may("admin"),
    )


@router.post("/search/queries/{name}/run")
def run_query(services: Here, session: HistoryViewer, name: str, form: CheckedForm) -> Response:
    """Ask it now."""
    _query(services, name)
    return _to(services.queries.run(session.caller, name, wait=1.0))


@router.post("/search/queries")
def save_statement(services: Here, session: Analyst, form: CheckedForm) -> Response:
    """Keep a statement under a name, with a schedule; one of that name only as it was edited."""
    name = form_field(form, "name")
    try:
        wanted = QueryContent(
            sql=form_field(form, "sql"),
            doc=form_field(form, "doc"),
            every_minutes=_whole(form, "every", 0),
            keep_days=_whole(form, "keep_days", 7),
        )
    except ValidationError as error:
        raise Usage(wrong_value(error)) from None
    who = session.caller.name
    services.queries.put(who, name, wanted, partial(_require_edited, form))
    audit_request(services.settings, "query.save", "ok", who=who, target=name,
                  detail=wanted.model_dump())  # fmt: skip
    return RedirectResponse(_page_of(name), 303)


def _require_edited(form: dict[str, list[str]], known: SavedQuery) -> None:
    """Raises `Usage` where another query would be lost by this: one of the name, or what somebody
    made of it since it was looked at."""
    if form_field(form, "edits") != known.name:
        raise Usage(
            f"'{known.name}' is there already, saved by {known.who}: take another name, or open it "
            "under Saved queries and choose Edit"
        )
    if form_field(form, "looked_at") != iso_time(known.saved_at):
        raise Usage(
            f"'{known.name}' was changed by {known.who} meanwhile: open it under Saved queries and "
            "look; yours can be saved under another name"
        )


@router.post("/search/queries/{name}/remove")
def remove_statement(services: Here, session: Analyst, name: str, form: CheckedForm) -> Response:
    """Forget a saved query; its statement stays in the box."""
    removed = services.queries.remove(name)
    audit_request(services.settings, "query.remove", "ok", who=session.caller.name, target=name)
    return RedirectResponse(f"/search?{urlencode({'sql': removed.sql})}", 303)


def _query(services: Services, name: str) -> SavedQuery:
    try:
        return services.queries.get(name)
    except NoSuchAct:
        raise HTTPException(404, f"no saved query '{name}'; the SQL search lists them") from None


def _to(job: SearchJob) -> Response:
    return RedirectResponse(f"/search/runs/{job.id}", 303)


def _page_of(name: str) -> str:
    return f"/search/queries/{quote(name, safe='')}"


def _whole(form: dict[str, list[str]], name: str, unsaid: int) -> int:
    text = form_field(form, name) or str(unsaid)
    if not (text.isdecimal() and len(text) < 10):
        raise Usage(f"{name}: '{text[:20]}' is no whole number")
    return int(text)
