"""Alerts that began in an interval, as their newest revision has them."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from alerts.tuning import verdict_counts
from reporting.document.request import ReportRequest

ALERTS = verdict_counts.ALERTS
_BUCKETS = (
    ALERTS + "SELECT date_trunc('{unit}', timezone($zone, began)) AS start, level, count(*) AS n "
    "FROM alert GROUP BY 1, 2"
)


@dataclass(frozen=True)
class Bucket:
    """Alerts of one hour, day or month by level; `start` is the wall clock of the zone."""

    start: datetime
    counts: dict[str, int]


def by_level(request: ReportRequest) -> dict[str, int]:
    """Alerts of each level that has any."""
    rows = request.ask(ALERTS + "SELECT level, count(*) AS n FROM alert GROUP BY level")
    return {row["level"]: row["n"] for row in rows}


def buckets(request: ReportRequest, step: timedelta) -> list[Bucket]:
    """One bucket a day or hour of the interval's zone, also where nothing happened."""
    unit = "hour" if step == timedelta(hours=1) else "day"
    counted: dict[datetime, dict[str, int]] = {}
    for row in request.ask(_BUCKETS.format(unit=unit)):
        counted.setdefault(row["start"], {})[row["level"]] = row["n"]
    interval = request.interval
    # On the wall clock, as the rows are: a day on which the clocks change is still one bucket.
    start = interval.local(interval.start).replace(tzinfo=None, minute=0, second=0, microsecond=0)
    end = interval.local(interval.end).replace(tzinfo=None)
    if unit == "day":
        start = start.replace(hour=0)
    result = []
    while start < end:
        result.append(Bucket(start, counted.get(start, {})))
        start += step
    return result


def by_month(request: ReportRequest, months: int) -> list[Bucket]:
    """The last `months` months up to the interval's end, oldest first, by level."""
    interval = request.interval
    last = interval.local(interval.end - timedelta(microseconds=1))
    index = last.year * 12 + last.month - 1
    firsts = [
        datetime(number // 12, number % 12 + 1, 1)
        for number in range(index - months + 1, index + 1)
    ]
    since = firsts[0].replace(tzinfo=last.tzinfo)
    counted: dict[datetime, dict[str, int]] = {}
    for row in request.ask(_BUCKETS.format(unit="month"), since=since):
        counted.setdefault(row["start"], {})[row["level"]] = row["n"]
    return [Bucket(first, counted.get(first, {})) for first in firsts]


def daily_buckets(request: ReportRequest) -> list[Bucket]:
    """The same by day, however short the interval is."""
    return buckets(request, timedelta(days=1))
