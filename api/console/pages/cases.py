"""Cases and incidents: the alerts of one attack together, on one axis of time, and evidence."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any
from urllib.parse import quote

from fastapi import Query, Request
from fastapi.responses import RedirectResponse, Response
from pydantic import ValidationError
from starlette.exceptions import HTTPException

from alerts.cases.case import Case
from alerts.domain.verdict import VERDICTS
from alerts.lifecycle.risk_score import INCIDENT
from api.console.attack_picture import attack_picture
from api.console.page import Page, console_router
from api.console.pages.act import Analyst
from api.console.render import respond
from api.console.request import CheckedForm, Here, Signed, form_field
from api.console.wrong_values import wrong_value
from api.routes.access import Services
from api.routes.cases.evidence import bundle_file
from api.services import attack_alerts
from api.services.alert_snapshot import alerts_now
from api.services.reader import ReaderRow, cursor_of, parse_instant, reader_cursor
from api.services.triage import ANY_REVISION, NoSuchAct
from api.wire.cases import CaseChange, NewCase
from api.wire.evidence import EvidenceJob, NewEvidence
from infra.errors import Usage

router = console_router()
PAGE = Page("cases", "Cases", router, "/cases", "cases", 25, "c")
TABS = (("open", "open"), ("closed", "closed"), ("merged", "merged"), ("incidents", "incidents"))
MOST = 500
PAGE_CASES = 200
MOST_OFFERED = 50
"""Open cases that a form offers."""
_BUNDLE_KEPT_SECONDS = 86_400
"""A day: who asked may come back for it after lunch."""


@router.get("/cases")
def cases_page(
    request: Request,
    services: Here,
    session: Signed,
    tab: str = "open",
    cursor: str | None = None,
) -> Response:
    """The list of cases, or of incidents that rules made, a page at a time."""
    if tab not in dict(TABS):
        raise Usage(f"tab: '{tab}' is none of {', '.join(dict(TABS))}")
    incidents: list[ReaderRow] = []
    cases: list[Case] = []
    if tab == "incidents":
        incidents, older = attack_alerts.incidents(services.reader, cursor=cursor)
    else:
        cases, older = _page_of_cases(services, tab, cursor)
    return respond(
        request,
        "cases.html",
        page=PAGE,
        tab=tab,
        tabs=TABS,
        cases=cases,
        incidents=incidents,
        cursor=cursor,
        older=older,
    )


@router.get("/incidents/{incident_id}")
def incident_page(request: Request, services: Here, session: Signed, incident_id: str) -> Response:
    """One incident: what was seen of one attack, by tactic and time."""
    rows = attack_alerts.alerts_of_incident(services.reader, incident_id)
    if not rows or (rows[0]["alert_id"], rows[0]["rule_id"]) != (incident_id, INCIDENT):
        raise HTTPException(404, f"no incident '{incident_id}'; Cases lists incidents")
    incident, alerts = rows[0], rows[1:]
    shown = alerts[: attack_alerts.MOST]
    return respond(
        request,
        "incident.html",
        page=PAGE,
        incident=incident,
        alerts=shown,
        lanes=attack_picture(shown or [incident]),
        cases=services.cases.listed(alert_id=incident_id),
        bundle=services.evidence.newest(session.caller, "incident", incident_id) or False,
        more=len(alerts) > len(shown),
    )


@router.get("/cases/add")
def add_form(
    request: Request,
    services: Here,
    session: Analyst,
    id: Annotated[list[str], Query(min_length=1, max_length=MOST)],
) -> Response:
    """The question which case the alerts go to: one that is open, or a new one."""
    known = alerts_now(services.reader, services.settings, id)
    if not known:
        raise HTTPException(404, "none of these alerts is there")
    first = next(iter(known.values()))
    return respond(
        request,
        "case_add.html",
        ids=list(known),
        # Of a damaged one there is none.
        title=first.body.get("title", ""),
        **_offered(services.cases.listed("open")),
    )


@router.post("/cases")
def add_to_case(request: Request, services: Here, session: Analyst, form: CheckedForm) -> Response:
    """Open a case with these alerts, or link them to one that is there."""
    who, ids = session.caller.name, form.get("id", [])
    case_id = form_field(form, "other") or form_field(form, "case")
    if case_id:
        case = services.cases.link(who, case_id, ids)
    else:
        note = form_field(form, "note") or None
        try:
            new = NewCase(title=form_field(form, "title"), alerts=ids, note=note, assignee="me")
        except ValidationError as error:
            raise Usage(wrong_value(error)) from None
        case = services.cases.open(who, new)
    return _to(request, case.case_id)


@router.get("/cases/{case_id}")
def case_page(request: Request, services: Here, session: Signed, case_id: str) -> Response:
    """One case."""
    case = services.cases.get(case_id)
    known = attack_alerts.alerts_by_id(services.reader, case.alerts)
    alerts = known[: attack_alerts.MOST]
    others = [other for other in services.cases.listed("open") if other.case_id != case.case_id]
    return respond(
        request,
        "case.html",
        page=PAGE,
        case=case,
        alerts=alerts,
        lanes=attack_picture(alerts),
        **_offered(others),
        bundle=services.evidence.newest(session.caller, "case", case.case_id) or False,
        verdicts=[(verdict, meaning) for verdict, (_, meaning) in VERDICTS.items()],
        more=len(known) > len(alerts),
    )


@router.get("/cases/{case_id}/evidence")
def evidence(services: Here, session: Analyst, case_id: str) -> Response:
    """Where the evidence is, for links that gave the file itself."""
    case = services.cases.get(case_id)
    return RedirectResponse(f"/cases/{quote(case.case_id, safe='')}#evidence", status_code=303)


@router.post("/evidence")
def gather_evidence(services: Here, session: Analyst, form: CheckedForm) -> Response:
    """Have a bundle made of a case, an incident or an alert, unless one is being made."""
    given = {name: form_field(form, name) or None for name in ("case", "incident")}
    alerts = [alert_id] if (alert_id := form_field(form, "alert")) else []
    try:
        asked = NewEvidence(**given, alerts=alerts, ttl_seconds=_BUNDLE_KEPT_SECONDS)
    except ValidationError as error:
        raise Usage(wrong_value(error)) from None
    job = services.evidence.submit(session.caller, services.cases, asked, wait=2.0, join=True)
    return RedirectResponse(_page_of(job), status_code=303)


@router.get("/evidence/{job_id}")
def look_at_evidence(request: Request, services: Here, session: Analyst, job_id: str) -> Response:
    """How far it is, or what is in it."""
    try:
        job = services.evidence.get(session.caller, job_id)
    except NoSuchAct:
        # In its place: a notice alone would leave a bar that never ends.
        job = None
    return respond(request, "evidence.html", bundle=job)


@router.get("/evidence/{job_id}/file")
def fetch_evidence(services: Here, session: Analyst, job_id: str) -> Response:
    """The bundle as a file."""
    return bundle_file(services, session.caller, job_id)


@router.post("/evidence/{job_id}/end")
def end_evidence(services: Here, session: Analyst, job_id: str, form: CheckedForm) -> Response:
    """End it, also in the middle, or remove its file before its time."""
    job = services.evidence.remove(session.caller, job_id)
    return RedirectResponse(_page_of(job), status_code=303)


@router.post("/cases/{case_id}/change")
def change(
    request: Request, services: Here, session: Analyst, case_id: str, form: CheckedForm
) -> Response:
    """Change what the form names: title, assignee, status with outcome, note."""
    names = ("title", "assignee", "status", "outcome", "note")
    filled = {name: form_field(form, name) or None for name in names if name in form}
    # Only the assignee may be emptied: an empty text beside another change was left alone.
    given = {name: value for name, value in filled.items() if value or name == "assignee"}
    if not given:
        raise Usage(f"{next(iter(filled), 'note')}: is empty")
    try:
        case_change = CaseChange(**given)
    except ValidationError as error:
        raise Usage(wrong_value(error)) from None
    # A note overwrites nothing, so any state of the case will do.
    seen = ANY_REVISION if set(given) == {"note"} else _seen(form)
    services.cases.change(session.caller.name, case_id, case_change, seen)
    return _to(request, case_id)


@router.post("/cases/{case_id}/merge")
def merge(
    request: Request, services: Here, session: Analyst, case_id: str, form: CheckedForm
) -> Response:
    """Let another case take this one in."""
    into = form_field(form, "other") or form_field(form, "into")
    target = services.cases.merge(session.caller.name, case_id, into, _seen(form))
    return _to(request, target.case_id)


@router.post("/cases/{case_id}/unlink")
def unlink(
    request: Request, services: Here, session: Analyst, case_id: str, form: CheckedForm
) -> Response:
    """Take an alert out of the case."""
    services.cases.unlink(session.caller.name, case_id, form_field(form, "alert"))
    return _to(request, case_id)


def _page_of_cases(
    services: Services, status: str, cursor: str | None
) -> tuple[list[Case], str | None]:
    """That changed last first, and the cursor of the next page."""
    known = services.cases.listed(status)
    known.sort(key=lambda case: (case.changed_at, case.case_id), reverse=True)
    question = {"cases": status}
    if cursor:
        changed, name = reader_cursor(cursor, question, 2)
        after = (parse_instant(changed), name)
        known = [case for case in known if (case.changed_at, case.case_id) < after]
    page = known[:PAGE_CASES]
    if len(known) <= PAGE_CASES:
        return page, None
    return page, cursor_of(question, page[-1].changed_at.isoformat(), page[-1].case_id)


def _offered(cases: Sequence[Case]) -> dict[str, Any]:
    """Cases that a form offers, and how many more there are: one of these is named by its id."""
    return {"cases": cases[:MOST_OFFERED], "more_cases": max(0, len(cases) - MOST_OFFERED)}


def _page_of(job: EvidenceJob) -> str:
    """The page of what a bundle is of."""
    pages = {"case": "cases", "incident": "incidents", "alerts": "alerts"}
    return f"/{pages[job.kind]}/{quote(job.subject, safe='')}#evidence"


def _to(request: Request, case_id: str) -> Response:
    target = f"/cases/{case_id}"
    # A dialog is sent by script, which would follow a redirect and show the page inside it.
    if request.headers.get("HX-Request"):
        return Response(status_code=204, headers={"HX-Redirect": target})
    return RedirectResponse(target, status_code=303)


def _seen(form: dict[str, list[str]]) -> str:
    """Which state of the case the form was made of."""
    etag = form_field(form, "etag")
    if not etag:
        raise Usage("the form does not say which state of the case it was made of; load it again")
    return etag
