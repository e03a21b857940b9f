"""Which sources are silent for longer than they ever were.

Minutes in which a source was heard are its habit, the longest pause between two of them is what
it may stay silent; what counts as a pause, `ingest.quality.silence_baseline` says. They are asked
from the counts of job `rollup` where these were compared with the events, and from bronze.record
else. How long it is silent now is counted up to where ingest has got, so that a job that stands
still makes no source silent. What job `files` reads arrives when it is read, so that may lie ahead
of where ingest has got while that works off an outage: it was heard all the same.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from types import MappingProxyType
from typing import TYPE_CHECKING

from ingest.completeness.rollup_coverage import ASKED as COUNTS
from ingest.completeness.rollup_coverage import span as compared
from ingest.quality.outcome_store import QualityState, quality_folder
from ingest.quality.silence_baseline import (
    OUTAGE,
    SilenceHabit,
    SilentInterval,
    SourceActivity,
    Unknown,
    habit,
    outages,
    without_ticks,
)
from ingest.quality.silence_rules import OURS
from ingest.tables import HEARTBEAT

if TYPE_CHECKING:
    import duckdb

    from infra.config.settings import Settings


NEEDS = ("bronze.record", "silver.event")
ASKED = (*NEEDS, *COUNTS, "ops.file", "ops.ledger", "ops.gap")
"""What is asked; of what is not in `NEEDS`, where it is there."""

LOOK_BACK = timedelta(days=30)
"""A habit older than this counts no more, and a source not heard for so long is forgotten."""

LEAST_MINUTES = 10
"""Minutes in which a source must have been heard before it has a habit."""

_NAMED = 3
"""Pauses left out that are named."""


# What has no topic was read from a file, and may lie ahead of where ingest has got.
_ACTIVITIES = """
WITH minute AS (
  SELECT source, time_bucket(INTERVAL 1 MINUTE, received_at) AS minute,
         min(received_at) AS first, max(received_at) AS last
  FROM bronze.record
  WHERE mode = 'live' AND source NOT IN (SELECT unnest($ours))
    AND ((received_at >= $since AND received_at < $start)
         OR (received_at >= $end AND (received_at <= $at OR topic IS NULL)
             AND ($now IS NULL OR received_at <= $now)))
  GROUP BY ALL
  {counted}
),
pause AS (
  SELECT source, first, last, lag(last) OVER (PARTITION BY source ORDER BY minute) AS before
  FROM minute
),
lasting AS (SELECT *, epoch(first) - epoch(before) AS seconds FROM pause)
SELECT source, min(first) AS first, max(last) AS newest, count(*) AS minutes,
       coalesce(max(seconds) FILTER (seconds <= $short), 0) AS short,
       list([before, first] ORDER BY first) FILTER (seconds > $short) AS long
FROM lasting GROUP BY source ORDER BY source
"""
_COUNTED = """
  UNION ALL
  SELECT source, window_start, first_at, last_at FROM gold.arrival_minute
  WHERE mode = 'live' AND source NOT IN (SELECT unnest($ours))
    AND window_start >= $start AND window_start < $end
"""
_TICKS = f"""
SELECT min("time") AS tick FROM silver.event
WHERE source = '{HEARTBEAT}' AND "time" >= $since AND "time" <= $at
GROUP BY time_bucket(INTERVAL 1 MINUTE, "time") ORDER BY tick
"""
"""One a minute: they come each second."""
_FILED = """
SELECT DISTINCT source FROM ops.file
WHERE job = 'files' AND mode = 'live' AND found_at >= $since
"""
_STOPS = """
WITH minute AS (
  SELECT min(started_at) AS first, max(finished_at) AS last FROM ops.ledger
  WHERE job IN ('ingest', 'files') AND finished_at >= $since
  GROUP BY time_bucket(INTERVAL 1 MINUTE, finished_at)
),
ran AS (
  SELECT first, max(last) OVER (
    ORDER BY first ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
  ) AS before FROM minute
)
SELECT before, first FROM ran WHERE epoch(first) - epoch(before) > $short ORDER BY first
"""
"""Times without a batch: while its driver runs, job `ingest` has one each second or so, of ticks if
of nothing else, and one that takes long has begun before."""
_THERE = """
SELECT count(*) FROM information_schema.tables
WHERE table_schema || '.' || table_name IN (SELECT unnest($names))
"""
_GAPS = """
SELECT DISTINCT topic, partition, from_offset, accepted_at, source, lost_after, lost_before
FROM ops.gap WHERE accepted_at >= $since
"""
# Of gaps that a release before noted, which kept no times.
_BEFORE = """
SELECT min(received_at) FROM bronze.record
WHERE topic = $topic AND partition = $partition AND "offset" = $last
"""
_AFTER = """
SELECT min(received_at) FROM bronze.record
WHERE topic = $topic AND partition = $partition AND received_at > $before
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
    unknown: float = 0.0
    """So many of the seconds nobody can tell whether it sent anything
    (`ingest.quality.silence_baseline`)."""

    @property
    def broken(self) -> bool:
        """Whether the source is silent for longer than it may be."""
        return self.allowed is not None and self.known > self.allowed

    @property
    def known(self) -> float:
        """For how many seconds it is known that it sent nothing."""
        return self.seconds - self.unknown

    def sentence(self) -> str:
        """What there is to say of it."""
        besides = f", {span_text(self.unknown)} of it unknown" if self.unknown else ""
        return (
            f"{self.source}: nothing since {self.newest:%Y-%m-%d %H:%M:%S} UTC, for "
            f"{span_text(self.seconds)}{besides}; {self.why}"
        )


def silences(
    connection: duckdb.DuckDBPyConnection,
    settings: Settings,
    at: datetime,
    silent_since: Mapping[str, datetime] = MappingProxyType({}),
    now: datetime | None = None,
) -> list[Silence]:
    """Every source that was heard live lately, as of `at`, up to where ingest has got.

    `silent_since`: sources called silent until now. Such a silence lasts until the source
    is heard again, also once its habit, or the source itself, is too old to be looked at.
    `now`: files that were read until then count, though it is after `at`; None: all.
    """
    since = at - LOOK_BACK
    activities = _activities(connection, since, at, now)
    out = _outages(connection, activities, since, at)
    lost = _lost(connection, settings, since)
    filed, stops = _unread(connection, since)
    silent = QualityState.load(quality_folder(settings)).told
    result = []
    for activity in activities:
        gaps = [gap for topic, gap in lost if _feeds(topic, activity.source)]
        unread = stops if any(_feeds(name, activity.source) for name in filed) else ()
        unknown = Unknown(out, gaps, unread)
        instants = map(datetime.fromisoformat, silent.get(activity.source, ()))
        result.append(
            _judged(
                activity, unknown, habit(activity, unknown, instants), at, settings, silent_since
            )
        )
    # Whoever is silent for longer than the look back is in no count, and must still be named.
    known = {activity.source for activity in activities}
    result += [
        _forgotten(source, newest, at, settings)
        for source, newest in silent_since.items()
        if source not in known
    ]
    return sorted(result, key=lambda activity: activity.source)


def _activities(
    connection: duckdb.DuckDBPyConnection, since: datetime, at: datetime, now: datetime | None
) -> list[SourceActivity]:
    start, end = compared(connection, since, at)
    sql = _ACTIVITIES.format(counted=_COUNTED if start < end else "")
    bounds: dict[str, object] = {"since": since, "start": start, "end": end, "at": at, "now": now}
    bounds |= {"ours": list(OURS), "short": OUTAGE.total_seconds()}
    rows = connection.execute(sql, bounds).fetchall()
    return [
        SourceActivity(
            source, first, newest, minutes, short, [(began, ended) for began, ended in long or ()]
        )
        for source, first, newest, minutes, short, long in rows
    ]


def _outages(
    connection: duckdb.DuckDBPyConnection,
    activities: Sequence[SourceActivity],
    since: datetime,
    at: datetime,
) -> list[SilentInterval]:
    """Times in which nothing arrived at all, no source and no tick."""
    quiet = outages(activities, since, at)
    if not quiet:
        return []
    ticks = [row[0] for row in connection.execute(_TICKS, {"since": since, "at": at}).fetchall()]
    return list(without_ticks(quiet, ticks))


def _there(connection: duckdb.DuckDBPyConnection, *names: str) -> bool:
    return connection.execute(_THERE, {"names": list(names)}).fetchone() == (len(names),)


def _unread(
    connection: duckdb.DuckDBPyConnection, since: datetime
) -> tuple[list[str], list[SilentInterval]]:
    """Sources whose files job `files` reads, and times in which no driver ran that could.

    A driver of job `files` alone that stops beside one of job `ingest` is not noticed.
    """
    if not _there(connection, "ops.file", "ops.ledger"):
        return [], []
    filed = [row[0] for row in connection.execute(_FILED, {"since": since}).fetchall()]
    if not filed:
        return [], []
    bounds = {"since": since, "short": OUTAGE.total_seconds()}
    rows = connection.execute(_STOPS, bounds).fetchall()
    return filed, [(before, first) for before, first in rows]


def _lost(
    connection: duckdb.DuckDBPyConnection, settings: Settings, since: datetime
) -> list[tuple[str, SilentInterval]]:
    """Sources of topics that lost messages (gaps a person accepted), and when these had come."""
    there = _there(connection, "ops.gap")
    gaps = connection.execute(_GAPS, {"since": since}).fetchall() if there else []
    if not gaps:
        return []
    from infra.kafka.client import source_of

    results = []
    for topic, partition, first, accepted_at, source, lost_after, lost_before in gaps:
        if source is not None:
            if lost_after is not None:  # else nothing came before it that a pause could begin with
                results.append((source, (lost_after, lost_before or accepted_at)))
            continue
        place = {"topic": topic, "partition": partition}
        (before,) = connection.execute(_BEFORE, place | {"last": first - 1}).fetchone() or (None,)
        # Bronze has nothing before the gap: there is no pause that it could explain.
        if before is None:
            continue
        (after,) = connection.execute(_AFTER, place | {"before": before}).fetchone() or (None,)
        results.append((source_of(topic, settings.kafka), (before, after or accepted_at)))
    return results


def _feeds(named: str, source: str) -> bool:
    """Whether a source's records come by the topic of that name, its own or its family's."""
    return named in (source, source.partition(":")[0])


def _own(source: str, settings: Settings) -> int | None:
    """What the settings say for a source, else for its family."""
    for name in (source, source.partition(":")[0]):
        if name in settings.sources and settings.sources[name].silent_minutes is not None:
            return settings.sources[name].silent_minutes
    return None


def _judged(
    activity: SourceActivity,
    unknown: Unknown,
    usual: SilenceHabit,
    at: datetime,
    settings: Settings,
    silent_since: Mapping[str, datetime],
) -> Silence:
    allowed: float | None
    own, least = _own(activity.source, settings), settings.jobs.silent_minutes
    if own is not None:
        allowed, why = _by_settings(own)
    # One that was called silent stays judged, though its habit goes out of the look-back.
    elif activity.minutes < LEAST_MINUTES and silent_since.get(activity.source) != activity.newest:
        allowed, why = None, f"heard in {activity.minutes} minutes only, which is no habit yet"
    else:
        # A source that sends each second would else be called silent after two.
        allowed = max(usual.longest, least * 60.0)
        why = f"its longest pause was {span_text(usual.longest)}, at least {least} min are allowed"
        why += _left_out(usual)
    # Files are dated when they are read, which may be after `at`.
    seconds = max(0.0, (at - activity.newest).total_seconds())
    missed = unknown.within((activity.newest, at))
    return Silence(activity.source, activity.newest, seconds, usual.longest, allowed, why, missed)


def _by_settings(minutes: int) -> tuple[float | None, str]:
    if minutes == 0:
        return None, "the settings say that it is never called silent"
    return minutes * 60.0, f"the settings allow {minutes} min"


def _left_out(usual: SilenceHabit) -> str:
    """What would have been a longer pause, and why it is none."""
    if not usual.left:
        return ""
    longest = sorted(usual.left, key=lambda one: -one.seconds)
    named = [f"{span_text(o.seconds)} since {o.since:%Y-%m-%d %H:%M} ({o.why})" for o in longest]
    more = f" and {len(named) - _NAMED} more" if len(named) > _NAMED else ""
    return f"; not counted: {', '.join(named[:_NAMED])}{more}"


def _forgotten(source: str, newest: datetime, at: datetime, settings: Settings) -> Silence:
    """A source that was reported as silent and not heard since for so long that it has no habit."""
    own, least = _own(source, settings), settings.jobs.silent_minutes
    allowed, why = _by_settings(own) if own is not None else (
        least * 60.0, f"it was not heard for {LOOK_BACK.days} days"
    )  # fmt: skip
    return Silence(source, newest, (at - newest).total_seconds(), 0.0, allowed, why)


def span_text(seconds: float) -> str:
    """A length of time as people say it."""
    for unit, size in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds:.0f} s"
