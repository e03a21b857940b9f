"""The daily report: one self-contained HTML page over an interval."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import duckdb
import jinja2

from reporting.interval import Interval
from reporting.ledger.completeness import COLUMNS
from reporting.reports import charts
from reporting.reports.figures import LEVELS, Figures, figures

NAME = "daily"
DOC = "Alerts, devices, sources, attribution, delays and completeness of an interval."
TABLES = (
    "bronze.record", "silver.event", "gold.finding", "gold.findings", "gold.attribution",
    "gold.attribution_current", "gold.alert", "gold.alert_current", "ops.quality",
    "ops.drift", "ops.gap", "ops.ledger",
)  # fmt: skip
"""What it reads."""

STATUSES = {
    "leased": "a lease proves which device it was",
    "none": "no lease covered the address, as far as the DHCP log is known",
    "outside": "the address is in no DHCP scope",
    "unknown": "the event has no address",
    "pending": "not attributed yet",
}


def render(connection: duckdb.DuckDBPyConnection, interval: Interval, made_at: datetime) -> str:
    """The page. Everything that came from a log is escaped: attackers choose host names."""
    result = figures(connection, interval)
    page = _environment().get_template("daily.html.j2")
    return page.render(
        f=result,
        made_at=made_at,
        levels=LEVELS,
        statuses=STATUSES,
        meanings=COLUMNS,
        charts=_charts(result),
        unit="hour" if result.step < timedelta(days=1) else "day",
    )


def _charts(found: Figures) -> dict[str, Any]:
    spans = [(row["span"], row["p50"], row["p95"]) for row in found.delays if row["n"]]
    return {
        "alerts": charts.alerts_over_time([(b.start, b.counts) for b in found.buckets], found.step)
        if found.alerts
        else None,
        "coverage": charts.shares(found.coverage) if found.coverage else None,
        "delays": charts.ranges(spans) if spans else None,
    }


def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("reporting", "reports"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"number": _number, "clock": _clock, "seconds": _seconds, "cut": _cut}
    return environment


def _number(value: int) -> str:
    """12 345: a thin space every three digits."""
    return f"{value:,}".replace(",", "\u202f")


def _clock(at: datetime | None) -> str:
    return at.strftime("%Y-%m-%d %H:%M:%S") if at else "-"


def _seconds(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f} s"


def _cut(text: str, most: int = 120) -> str:
    """Control characters and overlong text made harmless for the layout."""
    clean = "".join(c if c.isprintable() else "\ufffd" for c in text)
    return clean if len(clean) <= most else clean[: most - 1] + "…"
