"""Makes a report over the tables as they are."""

from __future__ import annotations

from datetime import UTC, datetime

from infra.config.settings import Settings
from infra.errors import Usage
from reporting.cli.reader import open_pinned
from reporting.document.content import Report
from reporting.document.request import ReportRequest
from reporting.interval import Interval
from reporting.ledger.completeness import roomy
from reporting.reports import reports


def make_report(
    settings: Settings, name: str, interval: Interval, subject: str = "", at: datetime | None = None
) -> Report:
    """A report over the tables as they are now, each read at one version."""
    listed = reports().get(name)
    if listed is None:
        raise Usage(f"no report '{name}'; 'headgate report list' shows them")
    listed.check_subject(subject)
    module = listed.load()
    with roomy():
        connection, versions = open_pinned(settings, module.TABLES)
        request = ReportRequest(
            settings, connection, interval, at or datetime.now(UTC), subject, versions
        )
        made: Report = module.compose(request)
    return made
