"""Which sources are silent for longer than they ever were.

Minutes in which a source was heard are its habit, the longest pause between two of them is what
it may stay silent. They are asked from the counts of job `rollup` where these were compared with
the events, and from bronze.record else. How long it is silent now is counted up to where ingest
has got, so that a job that stands still makes no source silent.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from ingest.rolled import span as compared
from ingest.tables import HEARTBEAT

if TYPE_CHECKING:
    import duckdb

    from infra.settings import Settings

OURS = (HEARTBEAT, "headgate")
"""Sources that are the platform itself; it has no habit of failing."""

LOOK_BACK = timedelta(days=30)
"""A habit older than this counts no more, and a source not heard for so long is forgotten."""

LEAST_MINUTES = 10
"""Minutes in which a source must have been heard before it has a habit."""

_FINISHED = f"SELECT max(time) FROM silver.event WHERE source = '{HEARTBEAT}'"

_HABITS = """
WITH minute AS (
  SELECT source, time_bucket(INTERVAL 1 MINUTE, received_at) AS minute,
         min(received_at) AS first, max(received_at) AS last
  FROM bronze.record
  WHERE mode = 'live' AND source NOT IN (SELECT unnest($ours))
    AND ((received_at >= $since AND received_at < $start)
         OR (received_at >= $end AND received_at <= $at))
  GROUP BY ALL
  {counted}
),
pause AS (
  SELECT source, last,
         epoch(first) - epoch(lag(last) OVER (PARTITION BY source ORDER BY minute)) AS seconds
  FROM minute
)
SELECT source, max(last) AS newest, count(*) AS minutes, coalesce(max(seconds), 0) AS longest
FROM pause GROUP BY source ORDER BY source
"""
_COUNTED = """
  UNION ALL
  SELECT source, window_start, first_at, last_at FROM gold.arrival_minute
  WHERE mode = 'live' AND source NOT IN (SELECT unnest($ours))
    AND window_start >= $start AND window_start < $end
"""


@dataclass(frozen=True)
class Silence:
    """How long a source is silent, and how long it may be; `allowed` None: it is not judged."""

    source: str
    newest: datetime
    seconds: float
    longest: float
    allowed: float | None
    why: str
    """Where `allowed` comes from, or why there is none."""

    @property
    def broken(self) -> bool:
        """Whether the source is silent for longer than it may be."""
        return self.allowed is not None and self.seconds > self.allowed

    def sentence(self) -> str:
        """What there is to say of it."""
        return (
            f"{self.source}: nothing since {self.newest:%Y-%m-%d %H:%M:%S} UTC, for "
            f"{span(self.seconds)}; {self.why}"
        )


def finished(connection: duckdb.DuckDBPyConnection) -> datetime | None:
    """Up to where ingest says that all it received is in silver; None: it never said."""
    row = connection.execute(_FINISHED).fetchone()
    return row[0] if row else None


def silences(
    connection: duckdb.DuckDBPyConnection, settings: Settings, at: datetime
) -> list[Silence]:
    """Every source that was heard live lately, as of `at`."""
    overrides = {name: source.silent_minutes for name, source in settings.sources.items()}
    start, end = compared(connection, at - LOOK_BACK, at)
    asked = _HABITS.format(counted=_COUNTED if start < end else "")
    bounds = {"since": at - LOOK_BACK, "start": start, "end": end, "at": at, "ours": list(OURS)}
    return [
        _judged(source, newest, minutes, longest, at, overrides, settings.jobs.silent_minutes)
        for source, newest, minutes, longest in connection.execute(asked, bounds).fetchall()
    ]


def _judged(
    source: str,
    newest: datetime,
    minutes: int,
    longest: float,
    at: datetime,
    overrides: Mapping[str, int | None],
    least: int,
) -> Silence:
    allowed: float | None
    own = overrides.get(source)
    own = overrides.get(source.partition(":")[0]) if own is None else own
    if own == 0:
        allowed, why = None, "the settings say that it is never called silent"
    elif own is not None:
        allowed, why = own * 60.0, f"the settings allow {own} min"
    elif minutes < LEAST_MINUTES:
        allowed, why = None, f"heard in {minutes} minutes only, which is no habit yet"
    else:
        allowed = max(longest, least * 60.0)
        why = f"its longest pause was {span(longest)}, at least {least} min are allowed"
    return Silence(source, newest, (at - newest).total_seconds(), longest, allowed, why)


def span(seconds: float) -> str:
    """A length of time as people say it."""
    for unit, size in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds:.0f} s"
