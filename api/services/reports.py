"""Reports that were made: the files in <home>/reports."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from api.observability.audit_log import audit_request
from api.services.triage import NoSuchAct
from api.wire.reports import FailedReport, ScheduledReport
from infra.config.settings import Settings
from infra.config.tenants import owner_of
from infra.runtime.report_failures import ReportFailure, dismiss_failure, left_failures

FORMS = {
    ".csv.zip": ("csv", "application/zip"),
    ".html": ("html", "text/html; charset=utf-8"),
    ".json": ("json", "application/json"),
    ".pdf": ("pdf", "application/pdf"),
}
"""The ending of a report's file: its form, and its media type."""


@dataclass(frozen=True)
class StoredReport:
    """One file. `stem`: what the files of one report in several forms have in common. `tenant`:
    over whose rows alone it was made; None: over all."""

    name: str
    stem: str
    tenant: str | None
    form: str
    media_type: str
    size: int
    made_at: datetime
    path: Path


def stored_reports(settings: Settings, tenants: Sequence[str] | None = None) -> list[StoredReport]:
    """Every file of a report, the newest first; `tenants`: of theirs alone."""
    files = []
    for path in settings.reports_folder.glob("*"):
        ending = next((ending for ending in FORMS if path.name.endswith(ending)), None)
        if ending is None or path.name.startswith("."):
            continue
        # The name alone says it: whoever may be limited is not shown a file before it is judged.
        tenant = owner_of(path.name)
        if tenants is not None and tenant not in tenants:
            continue
        try:
            about = path.stat()
        except FileNotFoundError:  # its time was over just now
            continue
        form, media_type = FORMS[ending]
        made_at = datetime.fromtimestamp(about.st_mtime, UTC)
        stem = path.name.removesuffix(ending)
        about_it = (form, media_type, about.st_size, made_at, path)
        files.append(StoredReport(path.name, stem, tenant, *about_it))
    return sorted(files, key=lambda file: (file.made_at, file.name), reverse=True)


def scheduled_reports(
    settings: Settings, tenants: Sequence[str] | None = None
) -> list[ScheduledReport]:
    """What `reports.scheduled` wants, each with why its last try failed; `tenants`: of theirs."""
    failures = left_failures(settings)
    shown = []
    for wanted in settings.reports.scheduled:
        if tenants is not None and wanted.tenant not in tenants:
            continue
        own = [_failed(settings, each) for each in failures if each.is_of(wanted)]
        newest = own[0] if own else None
        shown.append(
            ScheduledReport(
                report=wanted.report,
                subject=wanted.subject,
                tenant=wanted.tenant,
                every=wanted.every,
                after_hours=wanted.after_hours,
                addresses=len(wanted.mail),
                webhook=wanted.webhook,
                interval=newest.interval if newest else None,
                tried_at=newest.tried_at if newest else None,
                problem=newest.problem if newest else None,
                failures=own,
            )
        )
    return shown


def failing_reports(settings: Settings) -> list[ScheduledReport]:
    """Those of which one is missing."""
    return [each for each in scheduled_reports(settings) if each.failures]


def dismiss_report(
    settings: Settings, name: str, who: str, tenants: Sequence[str] | None = None
) -> None:
    """Have nobody told any more that a scheduled report is missing. Raises `NoSuchAct`.

    `tenants`: of theirs alone.
    """
    shown = scheduled_reports(settings, tenants)
    if name not in [failure.name for each in shown for failure in each.failures]:
        raise NoSuchAct(f"no scheduled report '{name}' is missing; it may have been made meanwhile")
    dismissed = dismiss_failure(settings, name)
    detail = {"problem": dismissed[0].problem} if dismissed else {}
    audit_request(settings, "report.dismiss", "ok", who=who, target=name, detail=detail)


def _failed(settings: Settings, failure: ReportFailure) -> FailedReport:
    what = "made and not sent " if failure.made else "not made: "
    minutes = settings.reports.check_minutes
    again = f"tried again every {minutes:g} minutes"
    if not minutes:
        again = "headgate report due tries again"
    # An earlier release noted no interval, and whether it is the newest is not known.
    more = f"; {again}" if failure.span else ""
    return FailedReport(
        name=failure.stem,
        interval=failure.interval,
        tried_at=datetime.fromisoformat(failure.tried_at),
        problem=f"{what}{failure.problem}{more}",
    )
