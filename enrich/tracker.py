"""The lease rules on Spark: as a stream through state, and over history in batch.

One call of a stateful function costs about 2 ms whatever it does, so the key is a bucket of
addresses and never an address. State is one binary column: nested state types fail in Spark
4.2, and a blob of our own also survives a change of its shape (see `enrich.bucket`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby
from typing import Any

import pandas as pd
import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T
from pyspark.sql.streaming.state import GroupState, GroupStateTimeout

from enrich.bucket import BucketState, Limits, decode, encode
from enrich.leases import (
    DECLINE,
    LEASE_ACTIVITIES,
    NAK,
    SECOND_US,
    LeaseEvent,
    Segment,
    heartbeat,
    replay,
)
from enrich.tables import DHCP_SEGMENT
from infra.settings import JobSettings
from ingest.tables import HEARTBEAT

DHCP_ACTIVITY, FAILURE = 4004, 2
LIVE_MODES = ("live", "replay")
FUTURE_SECONDS = 300
"""A line's time counts at most this far after its arrival: a clock that is ahead moves little."""

LINE = LeaseEvent.__struct_fields__
"""Columns of a line, in the order of `LeaseEvent`."""

_STATE = T.StructType([T.StructField("state", T.BinaryType())])
_MICROS = ("seg_start", "seg_end", "session_start", "session_end", "known_at", "learned_at")
_LONGS = (*_MICROS, "rev")


def limits(jobs: JobSettings) -> Limits:
    """The tracker's limits as the settings have them."""
    return Limits(
        late_us=jobs.late_seconds * SECOND_US, max_lease_us=jobs.max_lease_seconds * SECOND_US
    )


def track(events: DataFrame, jobs: JobSettings) -> DataFrame:
    """A stream of silver.event as the stream of rows of silver.dhcp_segment it leads to.

    Uses DHCP lines of modes live and replay, and ingest's heartbeats, of which each bucket
    gets one. Appends only; `known_at` never runs back. A batch with a heartbeat gives one row
    of kind `heartbeat`, which says how far all buckets have come.

    `session_buckets`, `late_seconds` and `max_lease_seconds` are frozen while a query runs,
    and the number of buckets for the life of a checkpoint.
    """
    beat = F.col("source") == HEARTBEAT
    buckets = jobs.session_buckets
    everywhere = F.array(*[F.lit(n) for n in range(buckets)])
    rows = events.where(beat | _is_line(LIVE_MODES)).select(
        F.explode(F.when(beat, everywhere).otherwise(F.array(_bucket(buckets)))).alias("bucket"),
        beat.alias("beat"),
        *_line_columns(jobs),
    )
    said = rows.groupBy("bucket").applyInPandasWithState(
        _tracker(limits(jobs)), _row_schema(), _STATE, "append", GroupStateTimeout.NoTimeout
    )
    return said.select(*_segment_columns())


def sessions_of(events: DataFrame, jobs: JobSettings) -> DataFrame:
    """The leases in a history of silver.event, by the same rules, whatever their mode.

    Columns as in the view silver.dhcp_session: session_id, scope, ip, mac, hostname,
    lease_start, lease_end, evidence. Batch only. A line of any age is put in its place.
    """
    rows = events.where(_is_line(None)).select(
        _bucket(jobs.session_buckets).alias("bucket"), *_line_columns(jobs)
    )
    return (
        rows.groupBy("bucket")
        .applyInArrow(_history, _session_schema())
        .select(
            "session_id",
            "scope",
            "ip",
            "mac",
            "hostname",
            F.timestamp_micros("start_us").alias("lease_start"),
            F.timestamp_micros("end_us").alias("lease_end"),
            F.struct(F.col("evidence").alias("event_uids"), "ended").alias("evidence"),
        )
    )


def as_segments(sessions: DataFrame) -> DataFrame:
    """Leases of `sessions_of` as rows of silver.dhcp_segment, for the as-of join over history.

    They never overlap, so one `rev` does for all. `known_at` is the lease's start: over
    history everything is taken as known in time.
    """
    return sessions.select(
        "scope",
        "ip",
        F.col("lease_start").alias("seg_start"),
        F.col("lease_end").alias("seg_end"),
        "mac",
        "hostname",
        "session_id",
        F.col("lease_start").alias("session_start"),
        F.col("lease_end").alias("session_end"),
        F.col("lease_start").alias("known_at"),
        F.col("lease_start").alias("learned_at"),
        F.unix_micros("lease_start").alias("rev"),
        F.lit("lease").alias("kind"),
        "evidence",
    )


def _is_line(modes: Sequence[str] | None) -> Column:
    """DHCP lines the rules can use. Without an address or a site there is nothing to key by.

    A request that the server turned down (status failure) changes no lease; NAK and DECLINE are
    failures by nature.
    """
    turned_down = (F.col("status_id") == FAILURE) & ~F.col("activity_id").isin(NAK, DECLINE)
    usable = (
        (F.col("class_uid") == DHCP_ACTIVITY)
        & F.col("activity_id").isin(*LEASE_ACTIVITIES)
        & F.col("dead_letter_reason").isNull()
        & F.col("duplicate_of").isNull()
        & F.col("src_ip").isNotNull()
        & F.col("scope").isNotNull()
        & ~F.coalesce(turned_down, F.lit(False))
    )
    return usable & F.col("mode").isin(*modes) if modes else usable


def _bucket(buckets: int) -> Column:
    return F.pmod(F.hash("scope", "src_ip"), F.lit(buckets))


def _line_columns(jobs: JobSettings) -> list[Column]:
    """The fields of `LeaseEvent`, times in microseconds and never null."""
    arrival = F.unix_micros("received_at")
    happened = F.unix_micros("time")
    return [
        F.col("event_uid"),
        F.col("scope"),
        F.col("src_ip").alias("ip"),
        F.lower(F.coalesce("mac", "src_endpoint.mac")).alias("mac"),
        F.col("src_endpoint.hostname").alias("hostname"),
        # Null only in heartbeats; a null here would make pandas turn the column into floats.
        F.coalesce("activity_id", F.lit(0)).alias("activity"),
        F.least(happened, arrival + FUTURE_SECONDS * SECOND_US).alias("time_us"),
        F.coalesce(arrival, happened).alias("received_us"),
        F.coalesce("lease_dur", F.lit(jobs.max_lease_seconds)).alias("lease_seconds"),
    ]


def _tracker(
    limits: Limits,
) -> Callable[[Any, Iterable[pd.DataFrame], GroupState], Iterator[pd.DataFrame]]:
    def step(
        key: tuple[int], chunks: Iterable[pd.DataFrame], state: GroupState
    ) -> Iterator[pd.DataFrame]:
        lines, finished = _read(chunks)
        kept = decode(bytes(state.get[0]), limits) if state.exists else BucketState(limits)
        said = kept.advance(lines, finished)
        state.update((encode(kept),))
        if finished and key[0] == 0 and kept.finished_us is not None:
            said.append(heartbeat(kept.finished_us))
        if said:
            yield _frame(said)

    return step


def _read(chunks: Iterable[pd.DataFrame]) -> tuple[list[LeaseEvent], list[int]]:
    """Lines and times of heartbeats; column by column, rows of pandas are slow."""
    lines: list[LeaseEvent] = []
    finished: list[int] = []
    for chunk in chunks:
        beats = chunk["beat"].to_numpy(dtype=bool)
        finished += chunk["time_us"][beats].tolist()
        columns = [chunk[name][~beats].tolist() for name in LINE]
        lines += [LeaseEvent(*row) for row in zip(*columns, strict=True)]
    return lines, finished


def _frame(said: Sequence[Segment]) -> pd.DataFrame:
    rows = {name: [getattr(s, name) for s in said] for name in Segment.__struct_fields__}
    rows["event_uids"] = [None if uids is None else list(uids) for uids in rows["event_uids"]]
    return pd.DataFrame(
        {
            name: pd.Series(values, dtype="Int64" if name in _LONGS else object)
            for name, values in rows.items()
        }
    )


def _row_schema() -> T.StructType:
    """Segments as they leave Python: times as longs, which no library rounds or limits."""
    special = {"event_uids": T.ArrayType(T.StringType())}
    return T.StructType(
        [
            T.StructField(
                name, T.LongType() if name in _LONGS else special.get(name, T.StringType())
            )
            for name in Segment.__struct_fields__
        ]
    )


def _segment_columns() -> list[Column]:
    evidence = F.when(F.col("event_uids").isNotNull(), F.struct("event_uids", "ended"))
    return [
        F.timestamp_micros(name).alias(name)
        if name in _MICROS
        else (evidence.alias(name) if name == "evidence" else F.col(name))
        for name in (column.name for column in DHCP_SEGMENT.columns)
    ]


def _session_schema() -> T.StructType:
    text = ("session_id", "scope", "ip", "mac", "hostname", "ended")
    return T.StructType(
        [
            *(T.StructField(name, T.StringType()) for name in text),
            T.StructField("start_us", T.LongType()),
            T.StructField("end_us", T.LongType()),
            T.StructField("evidence", T.ArrayType(T.StringType())),
        ]
    )


def _history(bucket: pa.Table) -> pa.Table:
    """All lines of a bucket to its leases."""
    columns = [bucket.column(name).to_pylist() for name in LINE]
    lines = [LeaseEvent(*row) for row in zip(*columns, strict=True)]
    unique = {line.event_uid: line for line in lines}.values()

    def address(line: LeaseEvent) -> tuple[str, str]:
        return line.scope, line.ip

    found = [
        (s.session_id, *key, s.mac, s.hostname, s.ended, s.start_us, s.end_us, list(s.evidence))
        for key, mine in groupby(sorted(unique, key=address), key=address)
        for s in replay(mine).sessions
    ]
    values = list(zip(*found, strict=True)) or [()] * 9
    fields = [("start_us", pa.int64()), ("end_us", pa.int64()), ("evidence", pa.list_(pa.string()))]
    text = [(name, pa.string()) for name in _session_schema().names[:6]]
    schema = pa.schema([*text, *fields])
    return pa.table(
        [pa.array(v, type=f.type) for v, f in zip(values, schema, strict=True)], schema=schema
    )
