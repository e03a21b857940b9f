"""Makes a report over the tables as they are."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime

from infra.config.settings import Settings
from infra.config.tenants import listed_tenants
from infra.errors import Usage
from reporting.cli.reader import open_pinned
from reporting.document.content import Report
from reporting.document.request import ReportRequest
from reporting.interval import Interval
from reporting.ledger.completeness import roomy
from reporting.reports import ListedReport, reports


def make_report(
    settings: Settings,
    name: str,
    interval: Interval,
    subject: str = "",
    at: datetime | None = None,
    tenant: str | None = None,
    *,
    asks: Callable[[], None] = lambda: None,
) -> Report:
    """A report over the tables as they are now, each read at one version.

    `tenant`: over whose rows alone, as if nobody else had any; None: over all. `asks` is called
    with each question.
    """
    listed = reports().get(name)
    if listed is None:
        raise Usage(f"no report '{name}'; 'headgate report list' shows them")
    listed.check_subject(subject)
    check_tenant(settings, listed, tenant)
    module = listed.load()
    with roomy():
        connection, versions = open_pinned(settings, module.TABLES, tenant)
        request = ReportRequest(
            settings, connection, interval, at or datetime.now(UTC), subject, versions, tenant, asks
        )
        made: Report = module.compose(request)
    if tenant is None:
        return made
    return of_tenant(made, tenant, f"{listed.of_tenant or ''} {_of_accounts(settings, tenant)}")


def check_tenant(settings: Settings, listed: ListedReport, tenant: str | None) -> None:
    """Raises `Usage` where the report cannot be made for this tenant."""
    if tenant is None:
        return
    listed_tenants((tenant,), settings.tenants, "--tenant")
    if listed.of_tenant is None:
        able = ", ".join(name for name, report in reports().items() if report.of_tenant is not None)
        raise Usage(
            f"report {listed.name}: it covers the whole platform and cannot be made for tenant "
            f"{tenant}; these can: {able}"
        )


def of_tenant(report: Report, tenant: str, left_out: str) -> Report:
    """A report that says whose it is and what is not in it: figures of all would be believed."""
    counted = f"Made for tenant {tenant}: counted over that tenant's rows alone."
    lead = " ".join(f"{counted} {left_out}".split())
    return replace(report, tenant=tenant, lead=[lead, *report.lead])


def _of_accounts(settings: Settings, tenant: str) -> str:
    """What a tenant's report lacks of sources that tell their tenants by cloud account: a record is
    nobody's before it is read, and one that cannot be read stays so."""
    of_sources = settings.sources.items()
    names = sorted(name for name, source in of_sources if tenant in source.accounts.values())
    if not names:
        return ""
    return (
        f"Events of {', '.join(names)} that are this tenant's by their cloud account alone are in "
        "here without their records, and what could not be read there is not."
    )
