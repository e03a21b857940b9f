"""Completeness by source: what was received, what became of it, and what is unaccounted.

A day of a large site finds no room in memory. So arrivals are counted slice by slice, each of so
many rows at most: an event's row carries the arrival of its first record, so what names a record
is found beside it. The few records that nothing beside them names are looked for further away.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from datetime import datetime, timedelta
from math import ceil
from typing import Any

import duckdb

from infra.errors import Fatal
from infra.expired import Applied
from reporting.ledger_matched import findings, packs

TABLES = (
    "bronze.record", "silver.event", "gold.finding", "gold.attribution", "ops.gap", "ops.ledger",
)  # fmt: skip

SLICE_ROWS = 1_000_000
"""Records and events that are held at once, about: some 300 MB."""
NEAR = timedelta(minutes=5)
"""So far from a record what names it is looked for at first."""
FAR = timedelta(days=1)
"""And so far at most. An event of several lines carries the arrival of the first of them."""


@dataclass(frozen=True)
class Completeness:
    """One source's records in a span of arrival times, or in an hour of it. Numbers are of records
    or findings, those of `events`, `duplicated` and `matched` of events;
    `parsed` + `dead` + `expired` + `unfinished` + `unaccounted` is `received`."""

    source: str
    received: int = 0
    parsed: int = 0
    dead: int = 0
    late: int = 0
    findings: int = 0
    pending: int = 0
    expired: int = 0
    unfinished: int = 0
    unaccounted: int = 0
    events: int = 0
    duplicated: int = 0
    matched: int = 0
    attributed: int = 0
    packs: tuple[str, ...] = ()
    hour: datetime | None = None


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
    "matched": "events in which at least one rule matched",
    "attributed": "findings that have an attribution",
    "packs": "hashes of the rule packs that were in force for these records' batches",
}
"""What each number means, for the command and the report."""

NUMBERS = tuple(
    one.name for one in fields(Completeness) if one.name not in ("source", "packs", "hour")
)

Counts = dict[tuple[datetime, str], dict[str, int]]
"""Numbers by hour and source."""


def completeness(
    connection: duckdb.DuckDBPyConnection,
    since: datetime,
    until: datetime,
    source: str | None = None,
    *,
    most: int = SLICE_ROWS,
) -> list[Completeness]:
    """One row a source for records received in [since, until), by an exact anti-join.

    `connection`: from `infra.duck.connect`, with the tables of `TABLES`. `most`: rows held at
    once. Raises `Fatal` where it finds neither the memory nor the room to spill that it needs.
    """
    found: dict[str, Completeness] = {}
    for row in hourly(connection, since, until, source, most=most):
        found[row.source] = _sum(row.source, [found.get(row.source, Completeness("")), row])
    return [found[name] for name in sorted(found)]


def hourly(
    connection: duckdb.DuckDBPyConnection,
    since: datetime,
    until: datetime,
    source: str | None = None,
    *,
    most: int = SLICE_ROWS,
) -> list[Completeness]:
    """The same by hour of arrival: a row for each hour and source of which there is anything."""
    with roomy():
        counts = _records(connection, since, until, source, most)
        stamps: dict[tuple[datetime, str], set[str]] = {}
        for hour, name, numbers, stamped in findings(connection, since, until, source):
            _add(counts, hour, name, numbers)
            stamps[hour, name] = stamped
        force = packs(connection, since, until)
    return [
        Completeness(
            name,
            **numbers,
            packs=tuple(sorted(stamps.get((hour, name), set()) | force.get(hour, set()))),
            hour=hour,
        )
        for (hour, name), numbers in sorted(counts.items())
    ]


@contextmanager
def roomy() -> Iterator[None]:
    """While inside, DuckDB says in a sentence that it finds no room."""
    try:
        yield
    except duckdb.OutOfMemoryException as error:
        raise Fatal(
            "the ledger finds no room for so many records: raise api.statement_memory, make room "
            f"below the folder 'scratch', or take a shorter span ({str(error).splitlines()[0]})"
        ) from None


# -- records and events ----------------------------------------------------------------------------


@dataclass(frozen=True)
class Slice:
    """Arrivals in `[since, until)`; of more than is held at once, in so many parts by their ids."""

    since: datetime
    until: datetime
    parts: int


def cut(
    weights: Iterable[tuple[datetime, int]], since: datetime, until: datetime, most: int
) -> Iterator[Slice]:
    """[since, until) in slices of `most` rows or a minute; `weights`: rows of minutes, in order."""
    begun, held = since, 0
    for minute, rows in weights:
        if held and held + rows > most:
            yield Slice(begun, max(minute, since), ceil(held / most))
            begun, held = max(minute, since), 0
        held += rows
    yield Slice(begun, until, max(1, ceil(held / most)))


_WEIGHTS = """
SELECT minute, sum(n)::BIGINT FROM (
  SELECT time_bucket(INTERVAL 1 MINUTE, received_at) AS minute, count(*) AS n FROM bronze.record
  WHERE received_at >= {since} AND received_at < {until} GROUP BY 1
  UNION ALL
  SELECT time_bucket(INTERVAL 1 MINUTE, received_at), count(*) FROM silver.event
  WHERE received_at >= {since} AND received_at < {until} GROUP BY 1
) GROUP BY minute ORDER BY minute
"""
_BEGIN = """
CREATE OR REPLACE TEMP TABLE unnamed (
  record_id VARCHAR, source VARCHAR, received_at TIMESTAMPTZ, open BOOLEAN, old BOOLEAN
);
CREATE OR REPLACE TEMP TABLE emptied AS
  SELECT unnest(map_keys(limits)) AS source, unnest(map_values(limits)) AS before
  FROM (SELECT getvariable('expired_of')::MAP(VARCHAR, TIMESTAMPTZ) AS limits);
"""
# Up to here the ingest job has said that all it received is in.
_FINISHED = """
SELECT coalesce(max(time), 'infinity'::TIMESTAMPTZ) FROM silver.event WHERE source = '_heartbeat'
"""
_RECEIVED = """
CREATE OR REPLACE TEMP TABLE received AS
SELECT record_id, source, received_at FROM bronze.record
WHERE received_at >= {since} AND received_at < {until}
  AND ($source IS NULL OR source = $source) AND hash(record_id) % {parts} = {part}
"""
_BESIDE = """
CREATE OR REPLACE TEMP TABLE beside AS
SELECT event_uid, record_ids, dead_letter_reason IS NULL AS parsed FROM silver.event
WHERE source <> '_heartbeat' AND received_at >= {near_since} AND received_at < {near_until}
  AND ({parts} = 1 OR len(list_filter(record_ids, lambda one: hash(one) % {parts} = {part})) > 0)
"""
_JUDGED = """
CREATE OR REPLACE TEMP TABLE judged AS
WITH named AS (
  SELECT record_id, bool_or(parsed) AS parsed
  FROM (SELECT unnest(record_ids) AS record_id, parsed FROM beside) GROUP BY record_id
)
SELECT record_id, received.source, received_at, parsed,
       received_at > getvariable('finished')::TIMESTAMPTZ
         OR coalesce(list_contains(getvariable('under_way'), received_at), false) AS open,
       coalesce(
         received_at < greatest(
           getvariable('expired')::TIMESTAMPTZ, coalesce(own.before, family.before)
         ), false
       ) AS old
FROM received LEFT JOIN named USING (record_id)
  -- What is said of a source, else of its family.
  LEFT JOIN emptied own ON own.source = received.source
  LEFT JOIN emptied family ON family.source = split_part(received.source, ':', 1)
"""
_COUNTED = """
SELECT date_trunc('hour', received_at) AS hour, source, count(*) AS received,
       count(*) FILTER (WHERE parsed) AS parsed, count(*) FILTER (WHERE NOT parsed) AS dead
FROM judged GROUP BY ALL
"""
_LEFT = """
INSERT INTO unnamed SELECT record_id, source, received_at, open, old FROM judged
WHERE parsed IS NULL
"""
_ROWS = """
SELECT hour, source, count(*) FILTER (WHERE is_event) AS events,
       count(*) FILTER (WHERE times > 1) AS duplicated
FROM (
  SELECT date_trunc('hour', r.received_at) AS hour, r.source, e.event_uid, count(*) AS times,
         bool_or(e.parsed) AS is_event
  FROM beside e JOIN received r ON r.record_id = e.record_ids[1]
  GROUP BY ALL
) GROUP BY ALL
"""
# Retention that took the row of a record out took it by the same arrival: nothing is elsewhere.
_SOUGHT = """
SELECT min(received_at), max(received_at) FROM unnamed WHERE open OR NOT old
"""
_ELSEWHERE = """
CREATE OR REPLACE TEMP TABLE elsewhere AS
SELECT record_id, bool_or(parsed) AS parsed FROM (
  SELECT unnest(record_ids) AS record_id, dead_letter_reason IS NULL AS parsed FROM silver.event
  WHERE source <> '_heartbeat' AND received_at >= {since} AND received_at < {until}
) WHERE record_id IN (SELECT record_id FROM unnamed) GROUP BY record_id
"""
_NOWHERE = """
CREATE OR REPLACE TEMP TABLE elsewhere (record_id VARCHAR, parsed BOOLEAN)
"""
_REST = """
SELECT date_trunc('hour', received_at) AS hour, source,
       count(*) FILTER (WHERE parsed) AS parsed,
       count(*) FILTER (WHERE NOT parsed) AS dead,
       count(*) FILTER (WHERE parsed IS NULL AND NOT open AND old) AS expired,
       count(*) FILTER (WHERE parsed IS NULL AND open) AS unfinished,
       count(*) FILTER (WHERE parsed IS NULL AND NOT open AND NOT old) AS unaccounted
FROM unnamed LEFT JOIN elsewhere USING (record_id) GROUP BY ALL
"""


def _records(
    connection: duckdb.DuckDBPyConnection,
    since: datetime,
    until: datetime,
    source: str | None,
    most: int,
) -> Counts:
    """All that records and their events say, by hour and source."""
    counts: Counts = {}
    run = connection.execute
    run(_BEGIN)
    # Asked before the records: of what is in by then the rows are there when they are looked for.
    run("SET VARIABLE finished = $1::TIMESTAMPTZ", [_one(run(_FINISHED))[0]])
    weights = run(_WEIGHTS.format(**_span(since, until))).fetchall()
    for piece in cut(weights, since, until, most):
        span = _span(piece.since, piece.until)
        near = _span(piece.since - NEAR, piece.until + NEAR, "near_")
        for part in range(piece.parts):
            told = {**span, **near, "parts": piece.parts, "part": part}
            run(_RECEIVED.format(**told), {"source": source})
            run(_BESIDE.format(**told))
            run(_JUDGED)
            _take(counts, run(_COUNTED))
            _take(counts, run(_ROWS))
            run(_LEFT)
    for name in ("received", "beside", "judged"):
        run(f"DROP TABLE {name}")
    first, last = _one(run(_SOUGHT))
    run(_NOWHERE if first is None else _ELSEWHERE.format(**_span(first - FAR, last + FAR)))
    _take(counts, run(_REST))
    return counts


def _span(since: datetime, until: datetime, prefix: str = "") -> dict[str, str]:
    """Two instants as SQL, so that files are passed over by what the log says of them."""
    return {
        f"{prefix}since": f"TIMESTAMPTZ '{since.isoformat()}'",
        f"{prefix}until": f"TIMESTAMPTZ '{until.isoformat()}'",
    }


def _one(result: duckdb.DuckDBPyConnection) -> tuple[Any, ...]:
    return result.fetchone() or ()


def _take(counts: Counts, result: duckdb.DuckDBPyConnection) -> None:
    names = [column[0] for column in result.description or ()][2:]
    for hour, source, *numbers in result.fetchall():
        _add(counts, hour, source, dict(zip(names, numbers, strict=True)))


def _add(counts: Counts, hour: datetime, source: str, numbers: Mapping[str, int]) -> None:
    held = counts.setdefault((hour, source), {})
    for name, number in numbers.items():
        held[name] = held.get(name, 0) + number


# -- what is excused -------------------------------------------------------------------------------


def excuse(connection: duckdb.DuckDBPyConnection, under_way: Sequence[datetime]) -> None:
    """Let records that arrived at these instants count as unfinished: those of batches of files
    that are not in yet (`ingest.files.under_way`)."""
    connection.execute("SET VARIABLE under_way = $1::TIMESTAMPTZ[]", [list(under_way)])


def excused(connection: duckdb.DuckDBPyConnection) -> list[datetime]:
    """The instants that `excuse` was told."""
    (found,) = _one(connection.execute("SELECT getvariable('under_way')::TIMESTAMPTZ[]"))
    return list(found or ())


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


# -- sums ------------------------------------------------------------------------------------------


def total(rows: Sequence[Completeness]) -> Completeness:
    """All sources in one row, called `all`."""
    return _sum("all", rows)


def totals(rows: Sequence[Completeness]) -> list[Completeness]:
    """The same by hour, where rows are of hours."""
    hours: dict[datetime | None, list[Completeness]] = {}
    for row in rows:
        hours.setdefault(row.hour, []).append(row)
    return [replace(total(found), hour=hour) for hour, found in hours.items()]


def _sum(source: str, rows: Sequence[Completeness]) -> Completeness:
    sums = {name: sum(getattr(row, name) for row in rows) for name in NUMBERS}
    return Completeness(
        source, **sums, packs=tuple(sorted({pack for row in rows for pack in row.packs}))
    )
