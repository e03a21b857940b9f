"""Whether gold.rollup has what silver.event has, and hours counted anew where it has not.

A stream drops what comes later than its watermark. So hours of arrivals, once they are closed, are
compared: how many rows of each source arrived in them, and how many events there are of each
hour that these belong to, however old. What differs is counted anew from the events. Windows
that are closed have no state any more, so nothing writes over what was mended. An hour that was
compared stands in ops.rollup_check: for those, readers may take the counts for the events.

Hours whose events a reparse or an erasure changed in place (`ingest.reparse.recount`) are counted
anew, whether their numbers of rows differ or not, once no such run is under way.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import reduce
from operator import or_
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from enrich.rollup.rollup import ROLLUP_AHEAD, happened, rolled
from enrich.rollup.unpublished import RollupHour, UnpublishedHours
from enrich.tables_rollup import ARRIVAL, HOUR, MINUTE, ROLLUP, ROLLUP_CHECK
from infra.delta.retention import complete_since
from infra.errors import Retryable, Usage
from infra.streaming.lake import Lake
from infra.streaming.merge import overwrite
from ingest.pipeline.inflight import batches_under_way
from ingest.reparse.recount import changing
from ingest.tables import EVENT, HEARTBEAT
from ingest.tables_quality import RECOUNT

HOURS = timedelta(hours=1)
_MOST = 48
"""Hours of arrivals that are compared at once: a lake with a long history takes several rounds."""
RUNS = 50
"""Spans of hours that are counted anew in one commit."""
MOST_RUNS = 20 * RUNS
"""More spans than this are left as they are: who writes random times must not choose our work."""

_Counts = dict[tuple[datetime, str], int]
"""Rows by hour and source."""
_Run = tuple[datetime, datetime]
"""Hours that follow each other: `[start, end)`."""
_Requests = Mapping[datetime, Collection[datetime]]
"""Hours of arrival to be counted anew, with the hours in which events of them count."""


@dataclass(frozen=True)
class CountClock:
    """One of the two clocks that events are counted by."""

    name: str
    grains: tuple[str, ...]
    counted: str
    """The grain whose counts are compared; the others come of the same rows."""


ARRIVED = CountClock("arrival", (ARRIVAL,), ARRIVAL)
HAPPENED = CountClock("event", (HOUR, MINUTE), HOUR)


@dataclass
class RollupComparison:
    """What a comparison came to. `missing`: events that counts were short of, or had too many.

    `recounted`: the hours that were counted anew, by `Part.name`. `more`: closed hours are left
    for another round.
    """

    hours: int = 0
    missing: int = 0
    recounted: list[RollupHour] = field(default_factory=list)
    unmended: int = 0
    more: bool = False
    waits_for: datetime | None = None
    """When a batch of files began that is not in, where hours are left for that."""

    def add(self, other: RollupComparison) -> None:
        """Count what another comparison came to as well.

        It was of hours whose events were changed: what their counts lacked did not come late.
        """
        self.hours += other.hours
        self.recounted += other.recounted
        self.unmended += other.unmended


def counted_in(lake: Lake, hours: Collection[RollupHour]) -> DataFrame:
    """The rows of gold.rollup of some hours."""
    lit = F.lit(False)
    for part in (ARRIVED, HAPPENED):
        runs = _runs(instant for name, instant in hours if name == part.name)
        lit = lit | (_in_part(part) & _within("window_start", runs))
    return lake.read(ROLLUP).where(lit)


def check_rollup(lake: Lake, closed: datetime, most: int = _MOST) -> RollupComparison:
    """Compare the hours of arrivals that are closed and were not compared yet, and mend them.

    `closed`: windows that end by then have no state any more. Up to `most` hours at once. What
    a batch of files or an import reads has arrived when that began, so its hour, and all since,
    wait until it is in; no heartbeat waits for an import. Hours whose events were changed in
    place since they were compared are counted anew, up to `most` of them.
    """
    # Before anything is read: what is asked for meanwhile is later, and stays asked for.
    begun = datetime.now(UTC)
    requests, first = waiting(lake), _first(lake)
    busy = changing(lake.settings) if requests else None
    checked = RollupComparison()
    if first is not None and first < closed:
        checked = _compare_new(lake, first, closed, most, requests, begun, busy=busy is not None)
    stale = sorted(hour for hour in requests if first is not None and hour < min(first, closed))
    if stale and not busy:
        checked.add(_compare(lake, stale[:most], closed, begun, requests))
        checked.more |= len(stale) > most
    return checked


def _compare_new(
    lake: Lake,
    first: datetime,
    closed: datetime,
    most: int,
    requests: _Requests,
    begun: datetime,
    *,
    busy: bool,
) -> RollupComparison:
    """The part of `check` that is about hours never compared. `busy`: some of them may change."""
    filed = min(batches_under_way(lake.settings.checkpoint_root), default=closed)
    end = _whole(min(closed, _complete(lake, first), filed))
    waits_for = filed if end == _whole(filed) < _whole(closed) else None
    # All later hours wait as well: the newest compared one says where to go on (`_first`).
    end = min([end, *(hour for hour in requests if busy and hour >= first)])
    if first >= end:
        return RollupComparison(waits_for=waits_for)
    until = min(end, first + most * HOURS)
    comparison = _compare(lake, _hours(first, until), closed, begun, requests)
    comparison.more, comparison.waits_for = until < end, waits_for
    return comparison


def waiting(lake: Lake) -> _Requests:
    """Hours of arrival that are to be counted anew, with the hours in which their events count."""
    # Version 0 is the empty table.
    if lake.version(RECOUNT) < 1:  # nothing was ever asked for
        return {}
    checks = lake.read(ROLLUP_CHECK).groupBy("hour").agg(F.max("checked_at").alias("checked_at"))
    rows = (
        lake.read(RECOUNT)
        .join(checks, "hour", "left")
        .where("checked_at IS NULL OR checked_at <= asked_at")
        # `outer`: an hour may be asked for without any hour of events.
        .select(_micros(F.col("hour")).alias("hour"), F.explode_outer("happened").alias("counted"))
        .groupBy("hour")
        .agg(F.collect_set(_micros(F.col("counted"))).alias("counted"))
        .collect()
    )
    return {
        _moment(row["hour"]): {_moment(counted_hour) for counted_hour in row["counted"]}
        for row in rows
    }


def recount_hours(lake: Lake, since: datetime, until: datetime) -> RollupComparison:
    """Count anew what arrived in `[since, until)`, whole hours, and the hours of these events.

    Raises `Usage` where an hour of it was not compared yet: it is in due time. Raises `Retryable`
    while events of it are being changed.
    """
    begun = datetime.now(UTC)
    (done,) = lake.read(ROLLUP_CHECK).agg(_micros(F.max("hour"))).collect()
    reached = None if done[0] is None else _moment(done[0]) + HOURS
    # Upwards: of an hour that is asked for in part all is counted.
    start, end = _whole(since), _whole(until + HOURS - timedelta(microseconds=1))
    if reached is None or end > reached:
        raise Usage(
            f"counts are compared up to {reached.isoformat() if reached else 'nowhere yet'}; what "
            "came later is by job rollup, in due time: ask for a span that ends before"
        )
    hours, requests = _hours(start, end), waiting(lake)
    busy = changing(lake.settings) if requests.keys() & hours else None
    if busy:
        raise Retryable(f"headgate {busy} is changing events of these hours; count when it is done")
    return _compare(lake, hours, reached, begun, requests, all_of_them=True)


def _compare(
    lake: Lake,
    hours: Sequence[datetime],
    closed: datetime,
    begun: datetime,
    requests: _Requests,
    *,
    all_of_them: bool = False,
) -> RollupComparison:
    """Compare some hours of arrivals and the hours of their events.

    `begun`: before anything was read that it rests on. `requests`: hours to be counted anew whether
    they differ or not; `all_of_them`: all are.
    """
    by_arrival, touched = _arrivals(lake.read(EVENT).where(_within("received_at", _runs(hours))))
    # `_within` reads more than these hours where there are very many.
    by_arrival = {key: n for key, n in by_arrival.items() if key[0] in set(hours)}
    anew = {hour_row for hour in hours for hour_row in requests.get(hour, ())}
    # A clock that is ahead puts an event into the hour after its arrival, which was not closed.
    near = {hour_row for hour in hours for hour_row in (hour - HOURS, hour)}
    # A window that is still open has state, which would write over what is counted anew.
    mine = {hour_row for hour_row in {*touched, *near, *anew} if hour_row + HOURS <= closed}
    differing = {
        ARRIVED: _differing(by_arrival, _rolled_up(lake, ARRIVED, hours)),
        HAPPENED: _differing(_events(lake, mine), _rolled_up(lake, HAPPENED, mine)),
    }
    checked = RollupComparison(len(hours), sum(sum(each.values()) for each in differing.values()))
    kept = _kept_since(lake)
    wanted: dict[CountClock, Collection[datetime]] = {
        ARRIVED: hours if all_of_them else requests.keys() & set(hours),
        HAPPENED: mine if all_of_them else anew & mine,
    }
    for part, each in differing.items():
        wrong = {*each, *wanted[part]}
        # The newest, where there are more than are mended.
        runs = _runs(hour_row for hour_row in wrong if hour_row >= kept)[-MOST_RUNS:]
        mended = [hour_row for run in runs for hour_row in _hours(*run)]
        untold = UnpublishedHours(lake.settings, [(part.name, hour_row) for hour_row in mended])
        for hour_row in range(0, len(runs), RUNS):
            # Before the commit and after it: a job that looks in between sends the former counts.
            untold.note()
            recount(lake, part, runs[hour_row : hour_row + RUNS])
            untold.note()
        checked.recounted += [(part.name, hour_row) for hour_row in mended]
        checked.unmended += len(wrong) - len(mended)
    _note(lake, hours, by_arrival, differing, checked, begun)
    return checked


def recount(lake: Lake, part: CountClock, runs: Sequence[_Run]) -> None:
    """Count spans of hours anew from the events, in one commit."""
    rows = rolled(_rows_of(lake, part, runs), lake.settings.scopes)
    grains = ", ".join(f"'{grain}'" for grain in part.grains)
    spans = " OR ".join(
        f"window_start >= TIMESTAMP '{start.isoformat()}' "
        f"AND window_start < TIMESTAMP '{end.isoformat()}'"
        for start, end in runs
    )
    overwrite(
        lake,
        # Delta refuses rows that lie outside of what they replace, and `_rows_of` may give some.
        rows.where(_in_part(part) & _within("window_start", runs)),
        ROLLUP,
        f"grain IN ({grains}) AND ({spans})",
        json.dumps({"rollup": "recount", "of": part.name, "since": runs[0][0].isoformat()}),
    )


def _whole(at: datetime) -> datetime:
    """The beginning of its hour."""
    return at.replace(minute=0, second=0, microsecond=0)


def _first(lake: Lake) -> datetime | None:
    """The first hour of arrivals that was not compared yet; None where nothing has arrived."""
    (done,) = lake.read(ROLLUP_CHECK).agg(_micros(F.max("hour"))).collect()
    if done[0] is not None:
        return _moment(done[0]) + HOURS
    (began,) = lake.read(EVENT).agg(_micros(F.min("received_at"))).collect()
    if began[0] is None:
        return None
    return _whole(_moment(began[0]))


def _complete(lake: Lake, since: datetime) -> datetime:
    """Up to when all arrivals are in silver and were read by the job, by the newest heartbeat.

    Only heartbeats since then are looked at: the table is long.
    """
    beat = (F.col("grain") == ARRIVAL) & (F.col("source") == HEARTBEAT)
    heartbeats = lake.read(ROLLUP).where(beat & (F.col("window_start") >= F.lit(since)))
    (newest,) = heartbeats.agg(_micros(F.max("last_at"))).collect()
    return _moment(newest[0] or 0)


def _arrivals(rows: DataFrame) -> tuple[_Counts, set[datetime]]:
    """Rows by hour of arrival and source, and the hours of the events among them."""
    readable = F.col("dead_letter_reason").isNull() & F.col("duplicate_of").isNull()
    collect = (
        rows.where(F.col("source") != HEARTBEAT)
        .groupBy(
            _micros(F.date_trunc("hour", "received_at")).alias("arrived"),
            "source",
            F.when(readable, _micros(F.date_trunc("hour", happened()))).alias("happened"),
        )
        .count()
        .collect()
    )
    counts: _Counts = {}
    for row in collect:
        key = _moment(row["arrived"]), row["source"]
        counts[key] = counts.get(key, 0) + row["count"]
    return counts, {_moment(row["happened"]) for row in collect if row["happened"] is not None}


def _events(lake: Lake, hours: Collection[datetime]) -> _Counts:
    """Events that could be read, each once, by the hour they count in and their source."""
    rows = _rows_of(lake, HAPPENED, _runs(hours)).where(
        (F.col("source") != HEARTBEAT)
        & F.col("dead_letter_reason").isNull()
        & F.col("duplicate_of").isNull()
    )
    return _counted(rows, F.date_trunc("hour", happened()), F.count("*"), hours)


def _rolled_up(lake: Lake, part: CountClock, hours: Collection[datetime]) -> _Counts:
    """What gold.rollup says of the same."""
    rows = lake.read(ROLLUP).where(
        (F.col("grain") == part.counted)
        & (F.col("source") != HEARTBEAT)
        & _within("window_start", _runs(hours))
    )
    # By arrival each row that came counts, whether it could be read or not.
    every = F.sum(F.col("events") + F.col("dead") + F.col("repeated"))
    return _counted(rows, F.date_trunc("hour", "window_start"), every, hours)


def _counted(
    rows: DataFrame, hour: Column, how_many: Column, hours: Collection[datetime]
) -> _Counts:
    collect = rows.groupBy(_micros(hour).alias("hour"), "source").agg(how_many.alias("n")).collect()
    counts = {(_moment(row["hour"]), row["source"]): row["n"] for row in collect}
    return {key: n for key, n in counts.items() if key[0] in hours}


def _differing(
    counted: _Counts, rolled_up: Mapping[tuple[datetime, str], int]
) -> dict[datetime, int]:
    """Hours whose counts are not those of the events, with by how many."""
    wrong: dict[datetime, int] = {}
    for key in {*counted, *rolled_up}:
        by = abs(counted.get(key, 0) - rolled_up.get(key, 0))
        if by:
            wrong[key[0]] = wrong.get(key[0], 0) + by
    return wrong


def _rows_of(lake: Lake, part: CountClock, runs: Sequence[_Run]) -> DataFrame:
    """Rows of silver.event that count in these spans, and maybe some beside them."""
    rows = lake.read(EVENT)
    if part is ARRIVED:
        return rows.where(_within("received_at", runs))
    # A clock that is ahead: such an event counts five minutes after its arrival.
    early = [(start - timedelta(minutes=5), end - timedelta(minutes=5)) for start, end in runs]
    ahead = F.col("time") > F.col("received_at") + F.expr(ROLLUP_AHEAD)
    return rows.where(_within("time", runs) | (ahead & _within("received_at", early)))


def _in_part(part: CountClock) -> Column:
    return F.col("grain").isin(*part.grains)


def _within(column: str, runs: Sequence[_Run]) -> Column:
    """Whether a time lies in one of some spans; of very many, between the first and the last."""
    if len(runs) > RUNS:
        runs = [(runs[0][0], runs[-1][1])]
    return reduce(or_, [_between(column, start, end) for start, end in runs], F.lit(False))


def _between(column: str, start: datetime, end: datetime) -> Column:
    return (F.col(column) >= F.lit(start)) & (F.col(column) < F.lit(end))


def _hours(since: datetime, until: datetime) -> list[datetime]:
    return [since + n * HOURS for n in range(int((until - since) / HOURS))]


def _runs(hours: Iterable[datetime]) -> list[_Run]:
    """Hours as spans `[start, end)`, those that follow each other in one."""
    return list(_joined(sorted(set(hours))))


def _joined(hours: Sequence[datetime]) -> Iterator[_Run]:
    start: datetime | None = None
    for nth, hour in enumerate(hours):
        start = hour if start is None else start
        if nth + 1 == len(hours) or hours[nth + 1] != hour + HOURS:
            yield start, hour + HOURS
            start = None


def _kept_since(lake: Lake) -> datetime:
    """Since when every event is in silver.event; a day more, for what came late."""
    since = complete_since(lake.settings, EVENT, datetime.now(UTC))
    return since + timedelta(days=1) if since else datetime.fromtimestamp(0, UTC)


def _note(
    lake: Lake,
    hours: Sequence[datetime],
    arrived: _Counts,
    differing: Mapping[CountClock, Mapping[datetime, int]],
    comparison: RollupComparison,
    begun: datetime,
) -> None:
    """A row of ops.rollup_check for each hour; what events' own hours lacked stands in the last."""
    rows: list[dict[str, Any]] = [
        {
            "hour": hour_start,
            "checked_at": begun,
            "events": sum(n for (hour, _), n in arrived.items() if hour == hour_start),
            "missing": differing[ARRIVED].get(hour_start, 0),
            "recounted": sum(each == (ARRIVED.name, hour_start) for each in comparison.recounted),
            "unmended": 0,
        }
        for hour_start in hours
    ]
    if rows:
        rows[-1]["missing"] += sum(differing[HAPPENED].values())
        rows[-1]["recounted"] += sum(name == HAPPENED.name for name, _ in comparison.recounted)
        rows[-1]["unmended"] = comparison.unmended
        lake.add(ROLLUP_CHECK, rows, json.dumps({"rollup": "check"}))


def _micros(column: Column) -> Column:
    return F.unix_micros(column)


def _moment(micros: int) -> datetime:
    return datetime.fromtimestamp(0, UTC) + timedelta(microseconds=micros)
