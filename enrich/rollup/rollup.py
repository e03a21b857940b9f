"""Events counted by windows of time: one function for the stream and for history.

Three grains at once, so that the events are read and shuffled once: the hour of the event with
its device, the minute of the event, and the minute of its arrival. Minutes have no device: most
devices send less than one event of a class a minute, and counting them would compress nothing.
All windows are kept by hour, a minute being part of its key: so one watermark closes them.

Distinct destinations are a HyperLogLog sketch. Streams refuse count(DISTINCT) and aggregates
written in pandas; a set of addresses would let one scanner grow the state without bound; and of
sketches, those of a day or of a group of devices can be merged later, which no number can.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from enrich.attribution.scopes import in_networks
from enrich.tables_rollup import ARRIVAL, GRAINS, HOUR, ROLLUP
from infra.config.settings import ScopeSettings
from ingest.parsing.source import LIVE_MODES
from ingest.reparse.recount import AHEAD as FAR
from ingest.tables import HEARTBEAT

ROLLUP_AHEAD = f"INTERVAL {FAR // timedelta(minutes=1)} MINUTES"
"""A clock that is further ahead than this moves no watermark: its events count where they came."""

SKETCH_LOG = 10
"""log2 of the sketch's registers: at most 1 KB a device and hour, some 3 % off."""

DIMENSIONS = ("source", "mode", "class_uid", "activity_id", "status_id")
_AUTHENTICATION, _LOGON, _LOGOFF = 3002, 1, 2
MOST_HOSTS = 20


def happened() -> Column:
    """When an event counts as having happened."""
    return F.least("time", F.col("received_at") + F.expr(ROLLUP_AHEAD))


def rolled(
    events: DataFrame, scopes: Sequence[ScopeSettings], allowed_lateness_seconds: int | None = None
) -> DataFrame:
    """Rows of silver.event, heartbeats included, as rows of gold.rollup.

    A stream needs `allowed_lateness_seconds`: a window is closed when that has passed since its
    end. Late rows are dropped by Spark; `enrich.rollup.reconcile` finds and counts them. A
    heartbeat counts as a dead letter of its own source, in arrival_minute alone.
    """
    rows = _by_grain(events, scopes)
    if allowed_lateness_seconds is not None:
        rows = rows.withWatermark("at", f"{allowed_lateness_seconds} seconds")
    keys = ("grain", "minute", *DIMENSIONS, "scope", "device_type", "device")
    counted = rows.groupBy(F.window("at", "1 hour").alias("hour"), *keys).agg(*_measures())
    by_hour, sketch = F.col("grain") == HOUR, F.col("destination_sketch")
    named = {
        "window_start": F.coalesce("minute", "hour.start"),
        "window_end": F.coalesce(F.col("minute") + F.expr("INTERVAL 1 MINUTE"), "hour.end"),
        "destinations": F.when(by_hour, F.hll_sketch_estimate(sketch)),
        "destination_sketch": F.when(by_hour, sketch),
    }
    return counted.select(*[named.get(c.name, F.col(c.name)).alias(c.name) for c in ROLLUP.columns])


def _by_grain(events: DataFrame, scopes: Sequence[ScopeSettings]) -> DataFrame:
    """An event as a row of each grain; dead letters and second deliveries only by arrival."""
    dead = (F.col("source") == HEARTBEAT) | F.col("dead_letter_reason").isNotNull()
    repeated = ~dead & F.col("duplicate_of").isNotNull()
    every = F.array(*[F.lit(grain) for grain in GRAINS])
    grains = F.when(dead | repeated, F.array(F.lit(ARRIVAL))).otherwise(every)
    # `try_`: in ANSI mode a sum beyond a long ends the batch, and logs may name any number.
    volume = F.coalesce("traffic.bytes", F.try_add("traffic.bytes_in", F.col("traffic.bytes_out")))
    rows = events.select(
        "*",
        F.explode(grains).alias("grain"),
        dead.alias("dead"),
        repeated.alias("repeated"),
        volume.alias("bytes"),
        _device(scopes).alias("of"),
    )
    arrived, by_hour = F.col("grain") == ARRIVAL, F.col("grain") == HOUR
    otherwise = F.when(arrived, F.col("received_at")).otherwise(happened())
    alias = [F.when(~arrived, F.col(name)).alias(name) for name in DIMENSIONS[2:]]
    own = [F.when(by_hour, F.col(f"of.{n}")).alias(n) for n in ("scope", "device_type", "device")]
    return rows.select(
        F.col("grain"),
        otherwise.alias("at"),
        F.when(~by_hour, F.date_trunc("minute", otherwise)).alias("minute"),
        *[F.col(name) for name in DIMENSIONS[:2]],
        *alias,
        *own,
        F.when(~arrived, F.col("bytes")).alias("bytes"),
        *[F.col(name) for name in ("received_at", "dead", "repeated")],
        F.when(by_hour, F.col("dst_ip")).alias("destination"),
    )


def _measures() -> list[Column]:
    return [
        F.count_if(~F.col("dead") & ~F.col("repeated")).alias("events"),
        F.count_if("dead").alias("dead"),
        F.count_if("repeated").alias("repeated"),
        # What a log says of bytes may be any number; a sum beyond all numbers is null.
        F.try_sum("bytes").alias("bytes"),
        F.min("received_at").alias("first_at"),
        F.max("received_at").alias("last_at"),
        F.hll_sketch_agg("destination", SKETCH_LOG).alias("destination_sketch"),
    ]


def _device(scopes: Sequence[ScopeSettings]) -> Column:
    """The device of ours that an event is about, as the event itself tells it; null for none.

    `scope`, `device_type`, `device`: its source address if a site has it, else its hardware
    address, else the host that logged it. Addresses of others are not counted one by one: whoever
    scans us from outside would choose how many rows there are.
    """
    # Addresses that are set by hand are ours as well, though no lease names them.
    sites = [s.model_copy(update={"networks": (*s.networks, *s.static)}) for s in scopes]
    ours = F.coalesce(in_networks(F.col("scope"), F.col("src_ip"), sites), F.lit(False))
    return F.coalesce(
        F.when(ours, _named("ip", "src_ip")),
        F.when(F.col("mac").isNotNull(), _named("mac", "mac")),
        F.when(F.col("host_name").isNotNull(), _named("host", "host_name")),
    )


def _named(kind: str, column: str) -> Column:
    return F.struct(F.col("scope"), F.lit(kind).alias("device_type"), F.col(column).alias("device"))


def login_sessions(
    events: DataFrame,
    scopes: Sequence[ScopeSettings],
    gap_minutes: int,
    allowed_lateness_seconds: int | None = None,
) -> DataFrame:
    """Logins of rows of silver.event in sessions: columns of gold.login_session up to `hosts`.

    Heartbeats, which move a stream's watermark, become a session without a user: whoever writes
    the rows leaves it out, since a filter up here would be pushed below the watermark.
    """
    beat = F.col("source") == HEARTBEAT
    login = (
        (F.col("class_uid") == _AUTHENTICATION)
        & F.col("user_name").isNotNull()
        & F.col("dead_letter_reason").isNull()
        & F.col("duplicate_of").isNull()
        & F.col("mode").isin(*LIVE_MODES)
    )
    rows = events.where(beat | login).select(
        happened().alias("at"),
        F.when(~beat, F.col("user_name")).alias("user_name"),
        *[F.when(~beat, _device(scopes).getField(n)).alias(n) for n in _OF_A_DEVICE],
        "source",
        "host_name",
        "activity_id",
        "status_id",
    )
    if allowed_lateness_seconds is not None:
        rows = rows.withWatermark("at", f"{allowed_lateness_seconds} seconds")
    session = F.session_window("at", f"{gap_minutes} minutes")
    agg = rows.groupBy(session.alias("session"), "user_name", *_OF_A_DEVICE).agg(
        F.min("at").alias("started_at"),
        F.max("at").alias("ended_at"),
        F.count_if((F.col("activity_id") == _LOGON) & (F.col("status_id") == 1)).alias("logins"),
        F.count_if((F.col("activity_id") == _LOGON) & (F.col("status_id") == 2)).alias("failures"),
        F.count_if(F.col("activity_id") == _LOGOFF).alias("logoffs"),
        F.count("*").alias("events"),
        F.sort_array(F.collect_set("source")).alias("sources"),
        # Sorted before it is cut: a set has no order, and a retry must write the same rows.
        F.slice(F.sort_array(F.collect_set("host_name")), 1, MOST_HOSTS).alias("hosts"),
    )
    return agg.drop("session")


_OF_A_DEVICE = ("scope", "device_type", "device")
