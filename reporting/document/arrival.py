"""Which data had arrived when a report was made: a late one has more than an early one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

import duckdb

from reporting.interval import Interval

_LATE = """
SELECT count(*) AS late, max(received_at) AS last, count(DISTINCT source) AS sources
FROM silver.event
WHERE "time" >= $since AND "time" < $until AND received_at >= $until AND source <> '_heartbeat'
"""
_NEWEST = "SELECT max(received_at) FROM silver.event WHERE received_at >= $since"
_EVER = "SELECT max(received_at) FROM silver.event"


@dataclass(frozen=True)
class Arrival:
    """`newest`: arrival of the newest line in the tables; `late`: events of the interval that
    arrived when it was over, the last at `last_late`; `versions`: the tables as they were read."""

    interval: Interval
    newest: datetime | None
    late: int = 0
    late_sources: int = 0
    last_late: datetime | None = None
    versions: Mapping[str, int] = field(default_factory=dict)

    @property
    def whole(self) -> bool:
        """Whether all of the interval had arrived, as far as anybody can tell."""
        return self.newest is not None and self.newest >= self.interval.end

    def sentences(self) -> Iterator[str]:
        """What a reader has to know before the figures."""
        end = self.interval.end
        if self.newest is None:
            yield "No log line had arrived when this was made."
            return
        yield f"It rests on what had arrived by {_clock(self.interval, self.newest)}."
        if self.newest < end:
            lacking = span_words(end - self.newest)
            yield f"The interval was not all there: what arrives in its last {lacking} is missing."
        if self.late:
            many = "1 event" if self.late == 1 else f"{self.late:,} events"
            yield (
                f"{many} of the interval, from {self.late_sources} "
                f"{'source' if self.late_sources == 1 else 'sources'}, arrived after its end, the "
                f"last at {_clock(self.interval, self.last_late)}; a report made before that had "
                "fewer."
            )


def arrival(
    connection: duckdb.DuckDBPyConnection, interval: Interval, versions: Mapping[str, int]
) -> Arrival:
    """Ask it of silver.event; without that table nothing is known to have arrived."""
    try:
        (newest,) = _row(connection, _NEWEST, since=interval.start)
        if newest is None:
            (newest,) = _row(connection, _EVER)
        late, last, sources = _row(connection, _LATE, since=interval.start, until=interval.end)
    except duckdb.CatalogException:
        return Arrival(interval, None, versions=versions)
    return Arrival(interval, newest, late, sources, last, versions)


def _row(connection: duckdb.DuckDBPyConnection, sql: str, **values: datetime) -> tuple[Any, ...]:
    row: tuple[Any, ...] | None = connection.execute(sql, values).fetchone()
    assert row is not None, "an aggregate always has a row"
    return row


def span_words(span: timedelta) -> str:
    """`3 days`, `5 hours` or `12 minutes`: a span as one number."""
    seconds = span.total_seconds()
    for unit, size in (("day", 86_400), ("hour", 3_600), ("minute", 60)):
        if seconds >= 2 * size or (unit == "minute" and seconds >= 60):
            many = round(seconds / size)
            return f"{many} {unit}{'' if many == 1 else 's'}"
    many = max(1, round(seconds))
    return f"{many} second{'' if many == 1 else 's'}"


def _clock(interval: Interval, at: datetime | None) -> str:
    return f"{interval.local(at):%Y-%m-%d %H:%M:%S} {interval.zone}" if at else "-"
