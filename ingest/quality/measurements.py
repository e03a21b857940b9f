"""What ingest wrote, as frames that suites check: asked from the tables by DuckDB."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from infra.delta.duckdb_views import connect
from ingest.completeness.rollup_coverage import span as compared
from ingest.quality.required_columns import ONE_OF, REQUIRED
from ingest.quality.silence_rules import OURS, finished
from ingest.quality.source_silence import Silence, silences
from ingest.tables import EVENT

if TYPE_CHECKING:
    import duckdb
    import pandas as pd

    from infra.config.settings import Settings

_MOST_ROWS = 500_000
_WEEK = timedelta(days=7)
HOUR = timedelta(hours=1)
_ENOUGH = 100
"""Events an hour from which a source's volume is compared with last week's."""

_COLUMNS = {column.name for column in EVENT.columns}
_OF_A_CLASS = (
    "activity_id",
    "category_uid",
    "severity_id",
    "status_id",
    "action_id",
    "disposition_id",
    "duration",
)
RANGES = {
    "src_port": "src_endpoint.port",
    "dst_port": "dst_endpoint.port",
    "http_code": "http_response.code",
    "bytes_in": "traffic.bytes_in",
    "bytes_out": "traffic.bytes_out",
}
"""Columns of the frame that have a range, and where silver.event has them."""

_WHICH = """
WHERE source <> '_heartbeat' AND ($since IS NULL OR received_at >= $since)
  AND ($until IS NULL OR received_at < $until)
"""
_SHARES = f"""
SELECT source, count(*) AS rows, count(dead_letter_reason) AS dead,
       count(dead_letter_reason) / count(*) AS dead_share,
       (median(epoch(received_at) - epoch("time"))
         FILTER (WHERE mode = 'live' AND dead_letter_reason IS NULL)) AS lag_seconds
FROM silver.event {_WHICH}
GROUP BY source ORDER BY source
"""
_DAMAGED_JSON = """
CASE WHEN NOT json_valid(more) THEN event_uid || ': more'
     WHEN NOT json_valid(unmapped) THEN event_uid || ': unmapped' END AS damaged_json
"""
_VOLUME = """
SELECT source, count(*) FROM silver.event
WHERE source NOT IN (SELECT unnest($ours)) AND mode <> 'import' AND duplicate_of IS NULL
  AND received_at >= $start AND received_at < $end
GROUP BY source
"""
_VOLUME_COUNTED = """
SELECT source, sum(events + dead)::BIGINT AS n FROM gold.arrival_minute
WHERE source NOT IN (SELECT unnest($ours)) AND mode <> 'import'
  AND window_start >= $start AND window_start < $end
GROUP BY source HAVING n > 0
"""
"""The same of an hour whose counts were compared with the events: an hour a week ago is one."""


@dataclass(frozen=True)
class Written:
    """What ingest wrote in an interval: its newest rows, and all of it counted by source.

    `rows`: event_uid, source, class_uid, activity_id, type_uid, type_uid_of_class, src_ip,
    lag_seconds (arrival minus event time), dead, damaged_json (of a row whose JSON is none its uid
    and column, else null), and what suites of classes look at.
    `shares`: source, rows, dead, dead_share, lag_seconds (the median of live events).
    `volumes`: source, now, before: events of the last full hour, and of that hour a week ago.
    """

    rows: pd.DataFrame
    shares: pd.DataFrame
    volumes: pd.DataFrame | None = None
    silences: tuple[Silence, ...] = ()
    since: datetime | None = None
    until: datetime | None = None
    hour: datetime | None = field(default=None)

    @property
    def total(self) -> int:
        """Rows of the interval, looked at or not."""
        return int(self.shares["rows"].sum())


def measure_written(
    settings: Settings,
    since: datetime | None,
    until: datetime | None,
    most: int = _MOST_ROWS,
    now: datetime | None = None,
) -> Written:
    """Rows received in `[since, until)`, at most the newest `most`, without heartbeats.

    Volume and silence are told as of `until`, else of `now`, but never of an instant up to
    which ingest has not got yet: a source is not silent because ingest is behind. Of files all
    that was read until `now`, else `until`, was heard.
    """
    connection = connect(
        settings.lake_root, needs=("silver.event",), memory=settings.api.statement_memory
    )
    try:
        reached = finished(connection)
        instant = until or now or datetime.now(UTC)
        instant = min(instant, reached) if reached else instant
        interval = {"since": since, "until": until}
        rows = connection.execute(_rows(), {**interval, "most": most}).df()
        shares = connection.execute(_SHARES, interval).df()
        hour = instant.replace(minute=0, second=0, microsecond=0) - HOUR
        volumes = _volumes(connection, hour)
        there = _has_records(connection)
        quiet = silences(connection, settings, instant, now=now or until) if there else ()
    finally:
        connection.close()
    return Written(rows, shares, volumes, tuple(quiet), since, until, hour)


def _volumes(connection: duckdb.DuckDBPyConnection, hour: datetime) -> pd.DataFrame:
    import pandas as pd

    now, before = (_volume(connection, instant) for instant in (hour, hour - _WEEK))
    astype = pd.DataFrame(
        [(name, now.get(name, 0), before.get(name, 0)) for name in sorted({*now, *before})],
        columns=["source", "now", "before"],
    ).astype({"now": "int64", "before": "int64"})
    # Of a handful of events a ratio says nothing.
    astype["ratio"] = (astype["now"] / astype["before"]).where(astype["before"] >= _ENOUGH)
    return astype


def _volume(connection: duckdb.DuckDBPyConnection, hour: datetime) -> dict[str, int]:
    """Events of each source that arrived in an hour."""
    start, end = compared(connection, hour, hour + HOUR)
    bounds = {"start": hour, "end": hour + HOUR, "ours": list(OURS)}
    sql = _VOLUME_COUNTED if start < end else _VOLUME
    return dict(connection.execute(sql, bounds).fetchall())


def _has_records(connection: duckdb.DuckDBPyConnection) -> bool:
    sql = "SELECT 1 FROM duckdb_views() WHERE schema_name = 'bronze' AND view_name = 'record'"
    return connection.execute(sql).fetchone() is not None


def _rows() -> str:
    columns = [
        "event_uid",
        "source",
        "class_uid",
        "type_uid",
        "class_uid * 100 + activity_id AS type_uid_of_class",
        "src_ip",
        'epoch(received_at) - epoch("time") AS lag_seconds',
        "dead_letter_reason IS NOT NULL AS dead",
        _DAMAGED_JSON,
        *_OF_A_CLASS,
        *(f"{path} AS {name}" for name, path in RANGES.items()),
        *presences(),
    ]
    return (
        f"SELECT {', '.join(columns)} FROM silver.event {_WHICH} "
        # The newest first: where the limit cuts, what is left out is the oldest.
        "ORDER BY received_at DESC LIMIT $most"
    )


def presences() -> Iterator[str]:
    """For each thing a class requires a column `has_X` that is 1 where a row has it, else null."""
    # A set, as many classes require the same: that is one column of the query, not one a class.
    groups: set[tuple[str, ...]] = {(name,) for names in REQUIRED.values() for name in names}
    groups |= {group for alternatives in ONE_OF.values() for group in alternatives}
    for group in sorted(groups):
        there = " OR ".join(_there(name) for name in group)
        yield f"CASE WHEN {there} THEN 1 END AS {presence(group)}"


def presence(group: tuple[str, ...]) -> str:
    """What the column is called that says whether one of `group` is there."""
    return "has_" + "_or_".join(group)


def _there(name: str) -> str:
    # What OCSF has and silver has no column for is in `more`.
    # In a CASE: what is no JSON would fail the whole question.
    in_more = f"CASE WHEN json_valid(more) THEN json_exists(more, '$.{name}') ELSE FALSE END"
    return f'"{name}" IS NOT NULL OR {in_more}' if name in _COLUMNS else in_more


def is_self_event(frame: pd.DataFrame) -> Any:
    """Which rows of a frame are about the platform itself."""
    return frame["source"].isin(OURS)
