"""Completeness by source: what was received, what became of it, and what is unaccounted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from datetime import datetime

import duckdb

from infra.expired import Applied

TABLES = ("bronze.record", "silver.event", "gold.finding", "gold.attribution", "ops.gap")


@dataclass(frozen=True)
class Completeness:
    """One source's records in a span of arrival times. All numbers but `events` are of records
    or findings; `parsed` + `dead` + `expired` + `unfinished` + `unaccounted` is `received`."""

    source: str
    received: int
    parsed: int
    dead: int
    late: int
    findings: int
    pending: int
    expired: int
    unfinished: int
    unaccounted: int
    events: int
    duplicated: int


COLUMNS = {
    "source": "which parser reads it",
    "received": "records in bronze",
    "parsed": "of these, records with at least one event",
    "dead": "of these, records that only gave dead letters",
    "late": "findings that came too late for the join and were attributed from the tables",
    "findings": "findings in events of these records",
    "pending": "of these, findings with an address that has no attribution yet",
    "expired": "records that no row names, so old that retention may have taken the row out",
    "unfinished": "records whose batch is still being written, or was interrupted",
    "unaccounted": "records that no row names although their batch is done; must be 0",
    "events": "events read from these records",
    "duplicated": "event ids that stand on more than one row; must be 0",
}
"""What each number means, for the command and the report."""

_SQL = """
WITH received AS (
  SELECT record_id, source, received_at FROM bronze.record
  WHERE received_at >= $since AND received_at < $until AND ($source IS NULL OR source = $source)
),
emptied AS (
  -- What is said of a source, else of its family.
  SELECT source, coalesce(
           map_extract(limits, source)[1], map_extract(limits, split_part(source, ':', 1))[1]
         ) AS before
  FROM (SELECT DISTINCT source FROM received)
       CROSS JOIN (SELECT getvariable('expired_of')::MAP(VARCHAR, TIMESTAMPTZ) AS limits)
),
finished AS (
  -- Up to here the ingest job has said that all it received is in.
  SELECT coalesce(max(time), 'infinity'::TIMESTAMPTZ) AS at
  FROM silver.event WHERE source = '_heartbeat'
),
event AS (
  -- A row stands within a day of its records: an event of several lines carries one arrival time.
  SELECT event_uid, record_ids, dead_letter_reason FROM silver.event
  WHERE source <> '_heartbeat' AND received_at >= $since - INTERVAL 1 DAY
    AND received_at < $until + INTERVAL 1 DAY
),
named AS (
  SELECT record_id, bool_or(dead_letter_reason IS NULL) AS parsed
  FROM (SELECT unnest(record_ids) AS record_id, dead_letter_reason FROM event)
  GROUP BY record_id
),
record AS (
  SELECT source, count(*) AS received,
         count(*) FILTER (WHERE parsed) AS parsed,
         count(*) FILTER (WHERE NOT parsed) AS dead,
         count(*) FILTER (WHERE parsed IS NULL AND NOT open AND old) AS expired,
         count(*) FILTER (WHERE parsed IS NULL AND open) AS unfinished,
         count(*) FILTER (WHERE parsed IS NULL AND NOT open AND NOT old) AS unaccounted
  FROM (
    SELECT received.source, parsed,
           received_at > finished.at
             OR coalesce(list_contains(getvariable('under_way'), received_at), false) AS open,
           coalesce(
             received_at < greatest(getvariable('expired')::TIMESTAMPTZ, emptied.before), false
           ) AS old
    FROM received LEFT JOIN named USING (record_id) LEFT JOIN emptied USING (source)
         CROSS JOIN finished
  )
  GROUP BY source
),
row_of AS (
  SELECT r.source, e.event_uid, count(*) AS times, bool_or(e.dead_letter_reason IS NULL) AS is_event
  FROM event e JOIN received r ON r.record_id = e.record_ids[1]
  GROUP BY r.source, e.event_uid
),
rows_by_source AS (
  SELECT source, count(*) FILTER (WHERE is_event) AS events,
         count(*) FILTER (WHERE times > 1) AS duplicated
  FROM row_of GROUP BY source
),
attributed AS (
  SELECT finding_id, bool_or(via = 'late') AS late
  FROM gold.attribution WHERE via <> 'heartbeat' GROUP BY finding_id
),
finding AS (
  SELECT f.source, count(*) AS findings,
         count(*) FILTER (
           WHERE f.ip IS NOT NULL AND a.finding_id IS NULL
             AND f.received_at >= coalesce(getvariable('attributed')::TIMESTAMPTZ, '-infinity')
         ) AS pending,
         count(*) FILTER (WHERE a.late) AS late
  FROM gold.finding f LEFT JOIN attributed a USING (finding_id)
  WHERE f.rule_id <> '_heartbeat' AND f.kind = 'event'
    AND f.received_at >= $since AND f.received_at < $until
    AND ($source IS NULL OR f.source = $source)
  GROUP BY f.source
)
SELECT coalesce(record.source, finding.source) AS source,
       coalesce(received, 0) AS received, coalesce(parsed, 0) AS parsed, coalesce(dead, 0) AS dead,
       coalesce(late, 0) AS late, coalesce(findings, 0) AS findings,
       coalesce(pending, 0) AS pending, coalesce(expired, 0) AS expired,
       coalesce(unfinished, 0) AS unfinished, coalesce(unaccounted, 0) AS unaccounted,
       coalesce(events, 0) AS events, coalesce(duplicated, 0) AS duplicated
FROM record LEFT JOIN rows_by_source USING (source) FULL JOIN finding USING (source)
ORDER BY source
"""


def completeness(
    connection: duckdb.DuckDBPyConnection,
    since: datetime,
    until: datetime,
    source: str | None = None,
) -> list[Completeness]:
    """One row a source for records received in [since, until), by an exact anti-join.

    `connection`: from `infra.duck.connect`, with the tables of `TABLES`.
    """
    names = [field.name for field in fields(Completeness)]
    result = connection.execute(_SQL, {"since": since, "until": until, "source": source})
    return [Completeness(**dict(zip(names, row, strict=True))) for row in result.fetchall()]


def excuse(connection: duckdb.DuckDBPyConnection, under_way: Sequence[datetime]) -> None:
    """Let records that arrived at these instants count as unfinished: those of batches of files
    that are not in yet (`ingest.files.under_way`)."""
    connection.execute("SET VARIABLE under_way = $1::TIMESTAMPTZ[]", [list(under_way)])


def forgive(connection: duckdb.DuckDBPyConnection, emptied: Applied, attributed: Applied) -> None:
    """Let records whose rows retention has taken out of silver.event count as expired, and no
    finding wait for an attribution that was taken out.

    `emptied`: the furthest that upkeep ever went there (`infra.expired`); what arrived since, and
    what no retention was applied to, stays unaccounted where no row names it. `attributed`: the
    same of gold.attribution.
    """
    connection.execute("SET VARIABLE attributed = $1::TIMESTAMPTZ", [attributed.latest])
    connection.execute("SET VARIABLE expired = $1::TIMESTAMPTZ", [emptied.every])
    names, limits = list(emptied.sources), list(emptied.sources.values())
    connection.execute(
        "SET VARIABLE expired_of = MAP($1::VARCHAR[], $2::TIMESTAMPTZ[])", [names, limits]
    )


_GAPS = """
SELECT topic, "partition", kind, any_value(from_offset), any_value(to_offset),
       any_value(messages), min(accepted_at), any_value(accepted_by), any_value(reason)
FROM ops.gap GROUP BY gap_id, topic, "partition", kind
HAVING min(accepted_at) >= $since AND min(accepted_at) < $until
ORDER BY min(accepted_at), topic, "partition"
"""


def gaps(connection: duckdb.DuckDBPyConnection, since: datetime, until: datetime) -> list[str]:
    """A sentence for each gap that was accepted in [since, until): what never reached bronze."""
    return [
        _sentence(*row)
        for row in connection.execute(_GAPS, {"since": since, "until": until}).fetchall()
    ]


def _sentence(
    topic: str,
    partition: int,
    kind: str,
    first: int,
    end: int | None,
    messages: int | None,
    at: datetime,
    who: str,
    why: str,
) -> str:
    span = f"from {first} on, how many is not known" if end is None else f"{first} to {end - 1}"
    count = "" if messages is None else f" ({messages} messages)"
    return (
        f"gap in {topic} partition {partition}: {span}{count}, {kind}; "
        f"accepted by {who} at {at:%Y-%m-%dT%H:%M:%SZ}: {why}"
    )


def total(rows: Sequence[Completeness]) -> Completeness:
    """All sources in one row, called `all`."""
    sums = {
        field.name: sum(getattr(row, field.name) for row in rows)
        for field in fields(Completeness)
        if field.name != "source"
    }
    return Completeness(source="all", **sums)
