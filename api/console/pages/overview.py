"""The first page: what is open, what came lately, and whether what one sees is all there is."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from typing import Any

from fastapi import Request
from fastapi.responses import Response

from api.console.page import Page, console_router
from api.console.pages.reports import failed_lately
from api.console.render import respond
from api.console.request import Here, Signed
from api.console.time_words import earliest
from api.routes.access import Services
from api.services.console import alert_overview, platform_health
from api.services.console.demo_story import demo_story
from api.services.reports import failing_reports
from infra.errors import Usage

router = console_router()
PAGE = Page("overview", "Overview", router, "/", "overview", 10, "h")

_WINDOWS = {"-6h": timedelta(minutes=10), "-24h": timedelta(hours=1), "-7d": timedelta(hours=6),
           "-30d": timedelta(days=1)}  # fmt: skip


@router.get("/")
def overview(request: Request, services: Here, session: Signed, since: str = "-24h") -> Response:
    """The page."""
    if since not in _WINDOWS:
        raise Usage(f"since: '{since}' is none of {', '.join(_WINDOWS)}")
    # To the minute: who looks within it is answered the same, at once.
    now = datetime.now(UTC).replace(second=0, microsecond=0)
    start, step = earliest("since", since, now) or now, _WINDOWS[since]
    buckets, levels = alert_overview.alerts_by_time(services.reader, start, now, step)
    # Jobs and arrivals are everybody's: who is limited to tenants sees their alerts' figures.
    whole = services.reader.tenants is None
    return respond(
        request,
        "overview.html",
        page=PAGE,
        since=since,
        windows=list(_WINDOWS),
        alerts_chart=_chart(buckets, levels, step, "/alerts?lifecycle=new&lifecycle=triaged"),
        total=sum(map(sum, levels.values())),
        open=alert_overview.open_by_level(services.reader),
        gravest=alert_overview.gravest(services.reader, 8),
        entities=alert_overview.most_alerted(services.reader, 6),
        delays=alert_overview.alert_delays(services.reader, start),
        story=demo_story(services.settings, services.reader, time.time()) if whole else None,
        **(_platform(services, start, now, step) if whole else {}),
    )


def _platform(
    services: Services, start: datetime, now: datetime, step: timedelta
) -> dict[str, Any]:
    """What the page tells of arrivals, sources and jobs."""
    arrived = platform_health.arrivals(services.reader, start, step)
    arrivals, rates = platform_health.rates(arrived, start, now, step)
    jobs = platform_health.job_views(services.settings)
    sources = platform_health.source_views(services.reader, services.settings, start, arrived)
    blind = platform_health.blind_rules(services.settings)
    return {
        "rate_chart": _chart(arrivals, _most(rates), step, ""),
        "records": sum(map(sum, rates.values())),
        "jobs": jobs,
        "broken": [job for job in jobs if job.missed],
        "sources": sources,
        "silent": [source for source in sources if source.silent],
        "blind": blind,
        # Reading all rules takes its time, and mostly none is blind.
        "titles": _titles(services) if blind else {},
        "preliminaries": platform_health.preliminaries(services.settings),
        "complete": platform_health.complete_up_to(services.settings),
        "expectations": platform_health.failed_expectations(services.reader),
        "queries": services.queries.failing(),
        "scheduled": failing_reports(services.settings),
        "reports": failed_lately(services.reports.listed().items, datetime.now(UTC)),
    }


def _titles(services: Services) -> dict[str, str]:
    return {rule_id: source.rule.title for rule_id, source in services.rules.every().items()}


def _most(series: dict[str, list[int]], most: int = 5) -> dict[str, list[int]]:
    """The busiest, and the others together."""
    names = list(series)
    shown = {name: series[name] for name in names[:most]}
    if len(names) > most:
        rest = [series[name] for name in names[most:]]
        shown[f"{len(rest)} others"] = [sum(values) for values in zip(*rest, strict=True)]
    return shown


def _chart(
    buckets: list[datetime], series: dict[str, list[int]], step: timedelta, link: str
) -> dict[str, Any]:
    """What `charts.js` draws: stacked bars over time."""
    return {
        "times": [int(bucket.timestamp()) for bucket in buckets],
        "step": int(step.total_seconds()),
        "series": [{"name": name, "values": values} for name, values in series.items()],
        "link": link,
    }
