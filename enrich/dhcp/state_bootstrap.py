"""The state of job `sessions` made from the tables: each bucket as a whole, in a Parquet file."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from enrich.dhcp.lease_rules import EXCHANGE_US, FREE, SECOND_US, TOO_LATE, LeaseEvent, Segment
from enrich.dhcp.sessions_job import FUTURE_SECONDS, bucket_of, line_rows, tracker_limits
from enrich.dhcp.state_encoding import encode_bucket
from enrich.dhcp.state_reconstruction import Cut, recall
from enrich.dhcp.stateful_operator import LINE, MICROS
from enrich.dhcp.tracker_state import Key, TrackerBucket, TrackerLimits
from enrich.tables import DHCP_SEGMENT
from infra.streaming.lake import Lake

SEED = "bucket int, state binary, addresses long, unplayed long"


@dataclass(frozen=True)
class _Known:
    """Stream time and heartbeat at the end of the table, microseconds; None before the first."""

    at_us: int | None
    finished_us: int | None


@dataclass(frozen=True)
class SeededState:
    """How many addresses are remembered, and of how many the lines do not give what was said."""

    known: _Known
    addresses: int
    unplayed: int


def _known_up_to(lake: Lake) -> _Known:
    """How far time has come: every bucket knows of the newest heartbeat, once there was one."""
    beat = F.max(F.when(F.col("kind") == "heartbeat", F.unix_micros("known_at")))
    row = lake.read(DHCP_SEGMENT).agg(beat, F.max(F.unix_micros("known_at"))).first()
    finished, newest = (row[0], row[1]) if row is not None else (None, None)
    return _Known(newest if finished is None else finished, finished)


def cut_of(known_us: int, bounds: TrackerLimits) -> Cut:
    """What a state that has come to `known_us` still must know line by line."""
    horizon = known_us // SECOND_US * SECOND_US - bounds.late_us - EXCHANGE_US
    early = bounds.late_us + FUTURE_SECONDS * SECOND_US + EXCHANGE_US
    return Cut(horizon - early, horizon, bounds.ahead_us)


def write(lake: Lake, events: DataFrame, seeds: Path) -> SeededState:
    """Write each bucket of the state after `events` (rows of silver.event) as a row of `SEED`.

    Every bucket has one, also where it remembers nothing: how far time has come.
    """
    jobs = lake.settings.jobs
    bounds, now = tracker_limits(jobs), _known_up_to(lake)
    cut = cut_of(now.at_us or 0, bounds)
    # What bears the newest revisions, and what `Cut.wants`: no more need leave the table.
    newest = F.col("rev") >= (now.at_us or 0)
    runs = F.col("seg_end") >= F.timestamp_micros(F.lit(cut.since_us))
    over = (F.col("kind") == FREE) & (F.col("known_at") >= F.timestamp_micros(F.lit(cut.said_us)))
    where = lake.read(DHCP_SEGMENT).where((newest | runs | over) & F.col("ip").isNotNull())
    rows = where.select(bucket_of(jobs.session_buckets, "ip").alias("bucket"), *_row_columns())
    lines = line_rows(events, jobs, cut.since_us)
    (
        rows.groupBy("bucket")
        # A cogroup also comes upon buckets that have only rows, or only lines.
        .cogroup(lines.groupBy("bucket"))
        .applyInArrow(_maker(bounds, now, cut), SEED)
        .write.parquet(str(seeds))
    )
    # Without the states themselves, which together may not fit into the driver.
    made = lake.spark.read.schema(SEED).parquet(str(seeds)).drop("state").collect()
    missing = sorted(set(range(jobs.session_buckets)) - {row["bucket"] for row in made})
    if missing:
        nothing = bytearray(encode_bucket(_empty(bounds, now)))
        rest = lake.spark.createDataFrame([(n, nothing, 0, 0) for n in missing], SEED)
        rest.write.mode("append").parquet(str(seeds))
    return SeededState(
        now, sum(row["addresses"] for row in made), sum(row["unplayed"] for row in made)
    )


def _row_columns() -> list[Column]:
    """Rows of silver.dhcp_segment with the fields of `Segment`, times in microseconds."""
    inner = {"event_uids": F.col("evidence.event_uids"), "ended": F.col("evidence.ended")}
    return [
        (F.unix_micros(name) if name in MICROS else inner.get(name, F.col(name))).alias(name)
        for name in Segment.__struct_fields__
    ]


def _empty(bounds: TrackerLimits, now: _Known) -> TrackerBucket:
    state = TrackerBucket(bounds)
    state.known_at_us, state.finished_us = now.at_us, now.finished_us
    state.swept_us = now.at_us or 0
    return state


def _maker(
    bounds: TrackerLimits, now: _Known, cut: Cut
) -> Callable[[tuple[pa.Scalar, ...], pa.Table, pa.Table], pa.Table]:
    """One bucket: what was said of its addresses and their lines, to a row of `SEED`."""

    def make(key: tuple[pa.Scalar, ...], rows: pa.Table, lines: pa.Table) -> pa.Table:
        state = _empty(bounds, now)
        segments = [Segment(*row) for row in _rows(rows, Segment.__struct_fields__)]
        state.last_rev = max((row.rev for row in segments), default=0)
        # A line that came too late was never part of the state.
        late = {uid for row in segments if row.kind == TOO_LATE for uid in row.event_uids or ()}
        events = [LeaseEvent(*row) for row in _rows(lines, LINE)]
        unplayed = _recall(state, segments, [e for e in events if e.event_uid not in late], cut)
        values = (key[0].as_py(), encode_bucket(state), len(state.addresses), unplayed)
        types = (pa.int32(), pa.binary(), pa.int64(), pa.int64())
        arrays = [pa.array([value], kind) for value, kind in zip(values, types, strict=True)]
        return pa.table(arrays, names=["bucket", "state", "addresses", "unplayed"])

    return make


def _recall(
    state: TrackerBucket, segments: Sequence[Segment], lines: Sequence[LeaseEvent], cut: Cut
) -> int:
    """Fill a bucket's addresses; how many of them are taken as they were said."""
    rows, events = _by_address(segments), _by_address(lines)
    unplayed = 0
    for key in sorted(rows.keys() | events.keys()):
        recalled = recall(*key, rows.get(key, []), events.get(key, []), cut)
        unplayed += not recalled.played
        if not recalled.address.empty:
            state.addresses[key] = recalled.address
    return unplayed


def _by_address(rows: Iterable[Any]) -> dict[Key, list[Any]]:
    by_address: dict[Key, list[Any]] = {}
    for row in rows:
        by_address.setdefault((row.scope, row.ip), []).append(row)
    return by_address


def _rows(table: pa.Table, names: Sequence[str]) -> Iterable[tuple[Any, ...]]:
    return zip(*(table.column(name).to_pylist() for name in names), strict=True)
