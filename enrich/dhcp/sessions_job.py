"""Job `sessions`: who holds which address, from DHCP events, as a stream and over history.

One call of a stateful function costs 1 to 2 ms whatever it does, so the key is a bucket of
addresses and never an address (see `enrich.dhcp.stateful_operator`).
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from enrich.dhcp.lease_rules import (
    DECLINE,
    LEASE_ACTIVITIES,
    NAK,
    SECOND_US,
    TALK,
    LeaseEvent,
    replay,
)
from enrich.dhcp.state_layout import INPUT, claim
from enrich.dhcp.stateful_operator import LINE, MICROS, tracked
from enrich.dhcp.tracker_state import TrackerLimits
from enrich.tables import DHCP_SEGMENT
from infra.config.settings import JobSettings
from infra.streaming.batch import Batch
from infra.streaming.job import Job
from infra.streaming.lake import Lake
from ingest.parsing.source import LIVE_MODES
from ingest.tables import EVENT, HEARTBEAT

_DHCP_ACTIVITY, DHCP_FAILURE = 4004, 2
FUTURE_SECONDS = 300
"""A line's time counts at most this far after its arrival: a clock that is ahead moves little."""

ANSWERING = ("ISC DHCP", "dnsmasq", "NIOS")
"""Servers that log each DHCPv4 request they take up and each answer they give, so that a request
without one is a lost line. Kea logs some requests and not its NAKs, Windows no requests; a sensor
may see one direction only. Of DHCPv6 a request's address is that of the packet."""


def sessions(lake: Lake, *, once: bool = False) -> Job:
    """silver.event -> silver.dhcp_segment, through state by bucket of addresses.

    Raises `Fatal` when the checkpoint's state has another shape than the settings ask for.
    """
    claim(lake.settings)
    events = lake.stream(EVENT, job="sessions").where(
        (F.col("source") == HEARTBEAT)
        | (
            (F.col("class_uid") == _DHCP_ACTIVITY)
            & F.col("dead_letter_reason").isNull()
            & F.col("mode").isin(*LIVE_MODES)
        )
    )

    def batch(segments: DataFrame, run: Batch) -> None:
        late = F.count_if(F.col("kind") == "too_late")
        # The last line is that of the one source. In the commit it outlives the checkpoint, which
        # can be made anew from it (`enrich.dhcp.input_offset`).
        run.noted[INPUT] = run.offsets.splitlines()[-1]
        lake.append(segments, DHCP_SEGMENT, run, counts={"late": late})

    trigger = None if once else lake.settings.jobs.sessions_trigger_seconds
    segments = track(events, lake.settings.jobs)
    return lake.each_batch("sessions", segments, batch, trigger_seconds=trigger)


def tracker_limits(jobs: JobSettings) -> TrackerLimits:
    """The tracker's limits as the settings have them."""
    return TrackerLimits(
        late_us=jobs.allowed_lateness_seconds * SECOND_US,
        max_lease_us=jobs.max_lease_seconds * SECOND_US,
    )


def track(events: DataFrame, jobs: JobSettings) -> DataFrame:
    """A stream of silver.event as the stream of rows of silver.dhcp_segment it leads to.

    Uses DHCP lines of modes live and replay, and ingest's heartbeats, of which each bucket
    gets one. Appends only; `known_at` never runs back. A batch with a heartbeat gives one row
    of kind `heartbeat`, which says how far all buckets have come.

    `allowed_lateness_seconds` and `max_lease_seconds` are frozen while a query runs,
    `session_buckets` for the life of a checkpoint (`enrich.dhcp.checkpoint_rebuild` makes another).
    """
    rows = tracked(tracked_rows(events, jobs), tracker_limits(jobs))
    return rows.select(*segment_columns())


def tracked_rows(events: DataFrame, jobs: JobSettings) -> DataFrame:
    """What the state is fed with: lines and, for each bucket, heartbeats (`beat`)."""
    beat = F.col("source") == HEARTBEAT
    buckets = jobs.session_buckets
    # Each bucket has a stream time of its own, which only a heartbeat moves when no line comes.
    everywhere = F.array(*[F.lit(n) for n in range(buckets)])
    return events.where(beat | _is_line(LIVE_MODES)).select(
        F.explode(F.when(beat, everywhere).otherwise(F.array(bucket_of(buckets)))).alias("bucket"),
        beat.alias("beat"),
        *_line_columns(jobs),
    )


def line_rows(events: DataFrame, jobs: JobSettings, since_us: int) -> DataFrame:
    """The lines of `track` in rows of silver.event, since a time: `bucket`, and `LINE`. Batch."""
    # The first filter only spares reading old files; the second one is exact.
    wrong_us = max(map(abs, jobs.clock_ahead_seconds.values()), default=0) * SECOND_US
    recent = F.col("time") >= F.timestamp_micros(F.lit(since_us - round(wrong_us)))
    return (
        events.where(_is_line(LIVE_MODES) & recent)
        .select(bucket_of(jobs.session_buckets).alias("bucket"), *_line_columns(jobs))
        .where(F.col("time_us") >= since_us)
    )


def every_line(events: DataFrame, jobs: JobSettings) -> DataFrame:
    """The lines in rows of silver.event, whatever their mode: `LINE`. Batch or stream."""
    return events.where(_is_line(None)).select(*_line_columns(jobs))


def sessions_of(events: DataFrame, jobs: JobSettings) -> DataFrame:
    """The leases in a history of silver.event, by the same rules, whatever their mode.

    Columns as in the view silver.dhcp_session: session_id, scope, ip, mac, hostname,
    lease_start, lease_end, evidence. Batch only. A line of any age is put in its place.
    """
    rows = events.where(_is_line(None)).select(
        bucket_of(jobs.session_buckets).alias("bucket"), *_line_columns(jobs)
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
    failures by nature. Talk counts only of servers whose silence means something.
    """
    turned_down = (F.col("status_id") == DHCP_FAILURE) & ~F.col("activity_id").isin(NAK, DECLINE)
    telling = F.col("metadata.product.name").isin(*ANSWERING) & ~F.col("src_ip").contains(":")
    idle_talk = F.col("activity_id").isin(*TALK) & ~F.coalesce(telling, F.lit(False))
    usable = (
        (F.col("class_uid") == _DHCP_ACTIVITY)
        & F.col("activity_id").isin(*LEASE_ACTIVITIES)
        & F.col("dead_letter_reason").isNull()
        & F.col("duplicate_of").isNull()
        & F.col("src_ip").isNotNull()
        & F.col("scope").isNotNull()
        # NOT of a null is null, and a filter drops that row: a line without a status must stay.
        & ~F.coalesce(turned_down, F.lit(False))
        & ~idle_talk
    )
    return usable & F.col("mode").isin(*modes) if modes else usable


def bucket_of(buckets: int, address: str = "src_ip") -> Column:
    """The bucket of `scope` and the address in a column."""
    # Fixed for the life of a checkpoint: an address's state lies where this hash has put it.
    return F.pmod(F.hash("scope", address), F.lit(buckets))


def _line_columns(jobs: JobSettings) -> list[Column]:
    """The fields of `LeaseEvent`, times in microseconds and never null."""
    arrival = F.unix_micros("received_at")
    happened = F.unix_micros("time") - _ahead_us(jobs)
    return [
        F.col("event_uid"),
        F.col("scope"),
        F.col("src_ip").alias("ip"),
        _client().alias("mac"),
        F.col("src_endpoint.hostname").alias("hostname"),
        # Null only in heartbeats; a null here would make pandas turn the column into floats.
        F.coalesce("activity_id", F.lit(0)).alias("activity"),
        F.least(happened, arrival + FUTURE_SECONDS * SECOND_US).alias("time_us"),
        F.coalesce(arrival, happened).alias("received_us"),
        # Many logs name no duration (decision 0018).
        F.coalesce("lease_dur", F.lit(jobs.max_lease_seconds)).alias("lease_seconds"),
        F.coalesce("host_name", "dst_ip").alias("server"),
    ]


def _client() -> Column:
    """Whom a line names: a hardware address, else a DUID (DHCPv6) or a client identifier."""
    kind = F.when(F.col("src_ip").contains(":"), "duid:").otherwise("id:")
    named = F.concat(kind, F.col("src_endpoint.uid"))
    return F.lower(F.coalesce("mac", "src_endpoint.mac", named))


def _ahead_us(jobs: JobSettings) -> Column:
    """By how much the clock of a line's server is ahead, as the settings say."""
    ahead = F.lit(0).cast("long")
    for host, seconds in jobs.clock_ahead_seconds.items():
        wrong = F.col("host_name") == host
        ahead = F.when(wrong, F.lit(round(seconds * SECOND_US)).cast("long")).otherwise(ahead)
    return ahead


def segment_columns() -> list[Column]:
    """What leaves Python as columns of silver.dhcp_segment."""
    evidence = F.when(F.col("event_uids").isNotNull(), F.struct("event_uids", "ended"))
    return [
        # Longs up to here: the times of pandas end in 2262, and a lease may have no end.
        F.timestamp_micros(name).alias(name)
        if name in MICROS
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

    groupbys = [
        (s.session_id, *key, s.mac, s.hostname, s.ended, s.start_us, s.end_us, list(s.evidence))
        # Sorted, as `groupby` joins neighbours only.
        for key, mine in groupby(sorted(unique, key=address), key=address)
        for s in replay(mine).sessions
    ]
    # Without a row, `zip` gives no columns either.
    values = list(zip(*groupbys, strict=True)) or [()] * 9
    fields = [("start_us", pa.int64()), ("end_us", pa.int64()), ("evidence", pa.list_(pa.string()))]
    text = [(name, pa.string()) for name in _session_schema().names[:6]]
    schema = pa.schema([*text, *fields])
    return pa.table(
        [pa.array(v, type=f.type) for v, f in zip(values, schema, strict=True)], schema=schema
    )
