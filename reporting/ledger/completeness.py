"""Completeness by source: what was received, what became of it, and what is unaccounted.

A day of a large site finds no room in memory. So arrivals are counted slice by slice, each of so
many rows at most: an event's row carries the arrival of its first record, so what names a record
is found beside it. The few records that nothing beside them names are looked for further away,
all at once. So a row is read a few times, however many come in a second.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from datetime import UTC, datetime, timedelta
from math import ceil
from typing import Any

import duckdb

from infra.delta.retention import Applied
from infra.errors import Fatal
from reporting.ledger.findings import findings, packs_by_hour

TABLES = (
    "bronze.record", "silver.event", "gold.finding", "gold.attribution", "ops.gap", "ops.ledger",
)  # fmt: skip

_SLICE_ROWS = 1_000_000
"""Records and events that are held at once, about: some 300 MB."""
BUSY = 4
"""Minutes that hold more than this part of those rows are counted by seconds."""
BESIDE = timedelta(seconds=5)
"""So far from a slice what names its records is looked for at first."""
FURTHER = (timedelta(minutes=5), timedelta(days=1))
"""And so far then what nothing names, one after the other. An event of several lines carries the
arrival of the first of them."""


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

_NUMBERS = tuple(
    field.name for field in fields(Completeness) if field.name not in ("source", "packs", "hour")
)

_LEDGER = """
SELECT 1 FROM information_schema.tables WHERE table_schema = 'ops' AND table_name = 'ledger'
"""

_EARLIEST, _LATEST = datetime(1970, 1, 1, tzinfo=UTC), datetime(9998, 1, 1, tzinfo=UTC)

_Counts = dict[tuple[datetime, str], dict[str, int]]
"""Numbers by hour and source."""


def completeness(
    connection: duckdb.DuckDBPyConnection,
    since: datetime,
    until: datetime,
    source: str | None = None,
    *,
    most: int = _SLICE_ROWS,
) -> list[Completeness]:
    """One row a source for records received in [since, until), by an exact anti-join.

    `connection`: from `infra.delta.duckdb_views.connect`, with the tables of `TABLES`. `most`: rows
    held at once. Raises `Fatal` where it finds neither the memory nor the room to spill that it
    needs.
    """
    completenesses: dict[str, Completeness] = {}
    for row in hourly(connection, since, until, source, most=most):
        # Hours are summed here and not in SQL: the slices are cut by rows and not by hours.
        completenesses[row.source] = _sum(
            row.source, [completenesses.get(row.source, Completeness("")), row]
        )
    return [completenesses[name] for name in sorted(completenesses)]


def hourly(
    connection: duckdb.DuckDBPyConnection,
    since: datetime,
    until: datetime,
    source: str | None = None,
    *,
    most: int = _SLICE_ROWS,
) -> list[Completeness]:
    """The same by hour of arrival: a row for each hour and source of which there is anything."""
    # Nothing arrived before or after, and what looks beside a span must not leave the calendar.
    since, until = max(since, _EARLIEST), min(until, _LATEST)
    with roomy():
        counts = _records(connection, since, until, source, most)
        stamps: dict[tuple[datetime, str], set[str]] = {}
        for hour, name, numbers, stamped in findings(connection, since, until, source):
            _add(counts, hour, name, numbers)
            stamps[hour, name] = stamped
        hours = {hour for hour, _ in counts}
        noted = _batches_told(connection)
        force = packs_by_hour(connection, since, until, hours) if noted else {}
    return [
        Completeness(
            name,
            **numbers,
            packs=tuple(sorted(stamps.get((hour, name), set()) | force.get(hour, set()))),
            hour=hour,
        )
        for (hour, name), numbers in sorted(counts.items())
    ]


def _batches_told(connection: duckdb.DuckDBPyConnection) -> bool:
    """Whether the ledger is there to be asked: it is not for a report of one tenant."""
    return bool(_one(connection.execute(_LEDGER)))


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


Weight = tuple[datetime, int]
"""A minute, or a second of one with many, and how many rows arrived in it."""


@dataclass(frozen=True)
class LedgerSlice:
    """Arrivals in `[since, until)`; of more than is held at once, in so many parts by their ids.

    `beside`: from when until when what names them is looked for at first.
    """

    since: datetime
    until: datetime
    parts: int
    beside: tuple[datetime, datetime]


def time_slices(
    weights: Sequence[Weight], since: datetime, until: datetime, most: int
) -> Iterator[LedgerSlice]:
    """[since, until) in slices of `most` rows, or of one weight that is more; weights in order.

    On either side of a slice half as many rows are read at most, so none is read many times.
    """
    begun, first, held = since, 0, 0
    for index, (moment, rows) in enumerate(weights):
        if held and held + rows > most:
            end = max(moment, since)
            beside = _beside(weights, first, index, begun, end, most)
            # A single busy second may exceed `most`; it is divided by hash of the record id.
            yield LedgerSlice(begun, end, ceil(held / most), beside)
            begun, first, held = end, index, 0
        held += rows
    beside = _beside(weights, first, len(weights), begun, until, most)
    yield LedgerSlice(begun, until, max(1, ceil(held / most)), beside)


def _beside(
    weights: Sequence[Weight], first: int, last: int, since: datetime, until: datetime, most: int
) -> tuple[datetime, datetime]:
    """`BESIDE` on both sides of weights, or as much of it as holds half of `most` rows."""
    begin, end = since - BESIDE, until + BESIDE
    held = 0
    for index in reversed(range(first)):
        if weights[index + 1][0] <= begin:
            break
        held += weights[index][1]
        if held > most // 2:
            begin = min(since, weights[index + 1][0])
            break
    held = 0
    for index in range(last, len(weights)):
        moment, rows = weights[index]
        if moment >= end:
            break
        held += rows
        if held > most // 2:
            end = moment
            break
    return begin, end


_WEIGHTS = """
SELECT moment, sum(n)::BIGINT FROM (
  SELECT time_bucket(INTERVAL 1 {grain}, received_at) AS moment, count(*) AS n FROM bronze.record
  WHERE received_at >= {since} AND received_at < {until} {which} GROUP BY 1
  UNION ALL
  SELECT time_bucket(INTERVAL 1 {grain}, received_at), count(*) FROM silver.event
  WHERE received_at >= {since} AND received_at < {until} {which} GROUP BY 1
) GROUP BY moment ORDER BY moment
"""
_BUSY = "AND time_bucket(INTERVAL 1 MINUTE, received_at) IN (SELECT unnest($busy::TIMESTAMPTZ[]))"
_BEGIN = """
CREATE OR REPLACE TEMP TABLE unnamed (
  record_id VARCHAR, source VARCHAR, received_at TIMESTAMPTZ, open BOOLEAN, old BOOLEAN
);
CREATE OR REPLACE TEMP TABLE emptied AS
  SELECT unnest(map_keys(limits)) AS source, unnest(map_values(limits)) AS before
  FROM (SELECT getvariable('expired_of')::MAP(VARCHAR, TIMESTAMPTZ) AS limits);
"""
# Up to here the ingest job has said that all it received is in.
# Without any heartbeat all counts as finished, so that no record is passed over.
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
WHERE source <> '_heartbeat' AND received_at >= {beside_since} AND received_at < {beside_until}
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
SELECT min(received_at), max(received_at) FROM unnamed ANTI JOIN elsewhere USING (record_id)
WHERE open OR NOT old
"""
_NOWHERE = """
CREATE OR REPLACE TEMP TABLE elsewhere (record_id VARCHAR, parsed BOOLEAN)
"""
_ELSEWHERE = """
INSERT INTO elsewhere
SELECT record_id, bool_or(parsed) FROM (
  SELECT unnest(record_ids) AS record_id, dead_letter_reason IS NULL AS parsed FROM silver.event
  WHERE source <> '_heartbeat' AND received_at >= {since} AND received_at < {until}
) WHERE record_id IN (SELECT record_id FROM unnamed ANTI JOIN elsewhere USING (record_id))
GROUP BY record_id
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
) -> _Counts:
    """All that records and their events say, by hour and source."""
    counts: _Counts = {}
    run = connection.execute
    run(_BEGIN)
    # Asked before the records: of what is in by then the rows are there when they are looked for.
    run("SET VARIABLE finished = $1::TIMESTAMPTZ", [_one(run(_FINISHED))[0]])
    for piece in time_slices(_weights(connection, since, until, most), since, until, most):
        span = {**_span(piece.since, piece.until), **_span(*piece.beside, "beside_")}
        for part in range(piece.parts):
            records = {**span, "parts": piece.parts, "part": part}
            run(_RECEIVED.format(**records), {"source": source})
            run(_BESIDE.format(**records))
            run(_JUDGED)
            # Counts leave the slice as numbers; its rows are thrown away with the next one.
            _take(counts, run(_COUNTED))
            _take(counts, run(_ROWS))
            run(_LEFT)
    # Given back before the search further away, which needs the memory for itself.
    for name in ("received", "beside", "judged"):
        run(f"DROP TABLE {name}")
    run(_NOWHERE)
    # Only the few that are left, in ever wider circles: a day of events is a lot to read.
    for reach in FURTHER:
        first, last = _one(run(_SOUGHT))
        if first is not None:
            run(_ELSEWHERE.format(**_span(first - reach, last + reach)))
    _take(counts, run(_REST))
    return counts


def _weights(
    connection: duckdb.DuckDBPyConnection, since: datetime, until: datetime, most: int
) -> list[Weight]:
    """The rows of each minute, and of each second of those minutes that hold many."""
    sql = _WEIGHTS.format(grain="MINUTE", which="", **_span(since, until))
    weights: list[Weight] = connection.execute(sql).fetchall()
    # A minute with that many rows would make a slice far larger than wanted.
    many = most // BUSY
    busy = [minute for minute, rows in weights if rows > many]
    if not busy:
        return weights
    # Bounds on arrival, so that Delta's statistics let DuckDB pass over the other files.
    within = max(since, busy[0]), min(until, busy[-1] + timedelta(minutes=1))
    sql = _WEIGHTS.format(grain="SECOND", which=_BUSY, **_span(*within))
    seconds = connection.execute(sql, {"busy": busy}).fetchall()
    return sorted([*(weight for weight in weights if weight[1] <= many), *seconds])


def _span(since: datetime, until: datetime, prefix: str = "") -> dict[str, str]:
    """Two instants as SQL, so that files are passed over by what the log says of them."""
    return {
        f"{prefix}since": f"TIMESTAMPTZ '{since.isoformat()}'",
        f"{prefix}until": f"TIMESTAMPTZ '{until.isoformat()}'",
    }


def _one(result: duckdb.DuckDBPyConnection) -> tuple[Any, ...]:
    return result.fetchone() or ()


def _take(counts: _Counts, result: duckdb.DuckDBPyConnection) -> None:
    names = [column[0] for column in result.description or ()][2:]
    for hour, source, *numbers in result.fetchall():
        _add(counts, hour, source, dict(zip(names, numbers, strict=True)))


def _add(counts: _Counts, hour: datetime, source: str, numbers: Mapping[str, int]) -> None:
    held = counts.setdefault((hour, source), {})
    for name, number in numbers.items():
        held[name] = held.get(name, 0) + number


# -- what is excused -------------------------------------------------------------------------------


def excuse(connection: duckdb.DuckDBPyConnection, under_way: Sequence[datetime]) -> None:
    """Let records that arrived at these instants count as unfinished: those of batches of files
    that are not in yet (`ingest.pipeline.inflight.batches_under_way`)."""
    connection.execute("SET VARIABLE under_way = $1::TIMESTAMPTZ[]", [list(under_way)])


def excused(connection: duckdb.DuckDBPyConnection) -> list[datetime]:
    """The instants that `excuse` was told."""
    (result,) = _one(connection.execute("SELECT getvariable('under_way')::TIMESTAMPTZ[]"))
    return list(result or ())


def forgive(connection: duckdb.DuckDBPyConnection, emptied: Applied, attributed: Applied) -> None:
    """Let records whose rows retention has taken out of silver.event count as expired, and no
    finding wait for an attribution that was taken out.

    `emptied`: the furthest that maintenance ever went there (`infra.delta.retention`); what arrived
    since, and what no retention was applied to, stays unaccounted where no row names it.
    `attributed`: the same of gold.attribution.
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
    return [replace(total(hour_start), hour=hour) for hour, hour_start in hours.items()]


def _sum(source: str, rows: Sequence[Completeness]) -> Completeness:
    sums = {name: sum(getattr(row, name) for row in rows) for name in _NUMBERS}
    return Completeness(
        source, **sums, packs=tuple(sorted({pack for row in rows for pack in row.packs}))
    )
