"""Reports: made on request, listed, looked at in a frame that may do nothing, and downloaded."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from fastapi import Request
from fastapi.responses import RedirectResponse, Response
from pydantic import ValidationError
from starlette.exceptions import HTTPException

from api.console.page import Page, console_router
from api.console.pages.act import Analyst
from api.console.render import respond
from api.console.request import CheckedForm, Here, Signed
from api.console.wrong_values import wrong_value
from api.services.reports import (
    StoredReport,
    dismiss_report,
    scheduled_reports,
    stored_reports,
)
from api.wire.runs import ReportRun, ReportWanted
from infra.errors import Usage

router = console_router()
PAGE = Page("reports", "Reports", router, "/reports", "reports", 60, "p", group="run")
_SHOWN_FAILED = timedelta(days=1)
"""So long a report that failed is told of."""
FRAME_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; sandbox"
"""A report is a page of its own with its own styles; it gets no script and no way out."""


@router.get("/reports")
def reports(
    request: Request,
    services: Here,
    session: Signed,
    show: str = "",
    make: bool = False,
    report: str = "daily",
    interval: str = "yesterday",
    subject: str = "",
    tenant: str = "",
) -> Response:
    """The list, each report once with its forms, and one of the pages.

    `make`: with the form that has one made, of this `report`, `interval`, `subject` and `tenant`;
    which kinds there are takes a command to say.
    """
    may_make = session.caller.may("analyst")
    tenants = services.reports.tenants
    kept = stored_reports(services.settings, tenants)
    if show and show not in [file.name for file in kept if file.form == "html"]:
        raise HTTPException(404, f"no report '{show}'")
    forms: dict[str, list[StoredReport]] = {}
    for file in kept:
        forms.setdefault(file.stem, []).append(file)
    return respond(
        request,
        "reports.html",
        page=PAGE,
        show=show,
        may_make=may_make,
        kinds=services.reports.kinds().items if make and may_make else [],
        wanted={"report": report, "interval": interval, "subject": subject, "tenant": tenant},
        tenants=services.settings.tenants if tenants is None else tenants,
        limited=tenants is not None,
        may_end_all=session.caller.may("admin"),
        runs=unfinished(services.reports.listed().items, datetime.now(UTC)),
        # What else is made by itself and was not; of who is limited there is none.
        queries=services.queries.failing() if tenants is None else [],
        scheduled=scheduled_reports(services.settings, tenants),
        report_zone=services.settings.reports.zone,
        reports=[
            {
                "stem": stem,
                "page": next((file.name for file in files if file.form == "html"), None),
                "files": sorted(files, key=lambda file: file.form),
                "made_at": files[0].made_at,
            }
            for stem, files in forms.items()
        ],
    )


def unfinished(runs: Sequence[ReportRun], now: datetime) -> list[ReportRun]:
    """Those under way, and those that failed lately and were not asked for again; `runs`: newest
    first. Those that are done are in the list of reports."""
    shown: list[ReportRun] = []
    begun_again = set()
    for run in runs:
        wanted = run.report, run.interval, run.subject, run.tenant
        failed = run.state == "failed"
        over = run.state in ("done", "cancelled")
        if not (over or (failed and (wanted in begun_again or now - run.made_at > _SHOWN_FAILED))):
            shown.append(run)
        begun_again.add(wanted)
    return shown


def failed_lately(runs: Sequence[ReportRun], now: datetime) -> list[ReportRun]:
    """Those of `unfinished` that failed."""
    return [run for run in unfinished(runs, now) if run.state == "failed"]


@router.post("/reports")
def make_report(services: Here, session: Analyst, form: CheckedForm) -> Response:
    """Have a report made, as `headgate report run` makes it."""
    given = {name: values[0].strip() for name, values in form.items()}
    try:
        wanted = ReportWanted(
            report=given.get("report", ""),
            interval=given.get("interval", ""),
            subject=given.get("subject", ""),
            tenant=given.get("tenant") or None,
        )
    except ValidationError as error:
        raise Usage(wrong_value(error)) from None
    services.reports.make(session.caller.name, wanted)
    return RedirectResponse("/reports", 303)


@router.post("/reports/runs/{run_id}/end")
def end_report(services: Here, session: Analyst, form: CheckedForm, run_id: str) -> Response:
    """End a report that is being made, or waits for another to end."""
    services.reports.remove(session.caller, run_id)
    return RedirectResponse("/reports", 303)


@router.post("/reports/dismiss")
def dismiss(services: Here, session: Analyst, form: CheckedForm) -> Response:
    """Be told of a scheduled report no more that is missing."""
    name = form.get("name", [""])[0]
    dismiss_report(services.settings, name, session.caller.name, services.reports.tenants)
    return RedirectResponse("/reports", 303)


@router.get("/reports/file/{name}")
def report_file(services: Here, session: Signed, name: str, download: bool = False) -> Response:
    """A report's file as it was made; only a page is shown, the other forms are downloaded."""
    kept = stored_reports(services.settings, services.reports.tenants)
    file = next((file for file in kept if file.name == name), None)
    if file is None:
        raise HTTPException(404, f"no report '{name}'")
    headers = {"Content-Security-Policy": FRAME_POLICY + "; frame-ancestors 'self'"}
    if download or file.form != "html":
        headers["Content-Disposition"] = f'attachment; filename="{name}"'
    return Response(file.path.read_bytes(), media_type=file.media_type, headers=headers)
