"""Events with the device that held their address when they happened.

Two ways, one answer. For the classes in `jobs.attributed_classes` job `alert` says it as they
come, in the join that attributes findings, into gold.attributed_event. For any slice of
silver.event it is said when it is asked: here with Spark (`attributed`), over DuckDB and Spark SQL
by the view silver.leased_event, and a page at a time by the API.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from enrich.attribution.asof_join import newest_cover, newest_cover_of_few, statements
from enrich.attribution.scopes import in_networks, set_by_hand
from enrich.attribution.stream_join import fields_of, segment_holder
from enrich.tables import ATTRIBUTED_EVENT, DEVICE
from infra.config.settings import ScopeSettings
from ingest.tables import HEARTBEAT

EVENT_ROW = "_event"
"""`rule_id` of an event that goes through the findings' join."""

_LIVE_MODES = ("live", "replay")

CARRIED = ("mac", "hostname", "session_id", "session_start", "session_end", "known_at", "rev")
"""What `attributed` needs of a segment. Its evidence is found under the session."""


def _address() -> Column:
    """The address an event is about: where it came from, else the machine that logged it."""
    return F.coalesce("src_ip", "device.ip")


def role() -> Column:
    """Which of an event's addresses `address` is."""
    return F.when(F.col("src_ip").isNotNull(), "src_endpoint").otherwise("device")


def waiting_events(events: DataFrame, classes: Sequence[int], like: T.StructType) -> DataFrame:
    """Events of these classes that name an address, in the shape of findings, for the join.

    And ingest's heartbeats, which move their watermark. `like`: columns of gold.finding. No
    class is fine: the heartbeats still come, so the setting can change under a checkpoint.
    """
    beat = F.col("source") == HEARTBEAT
    usable = F.col("dead_letter_reason").isNull() & F.col("duplicate_of").isNull()
    wanted = F.col("class_uid").isin(*classes) & usable & _address().isNotNull()
    named = {
        "finding_id": F.col("event_uid"),
        "rule_id": F.when(beat, HEARTBEAT).otherwise(EVENT_ROW),
        # Heartbeats need `rule_id` for themselves; by the kind they, too, are told apart later.
        "kind": F.lit(EVENT_ROW),
        "event_time": F.col("time"),
        "role": role(),
        "ip": F.when(~beat, _address()),
    }
    same = ("event_uid", "received_at", "class_uid", "source", "mode", "scope")
    named |= {name: F.col(name) for name in (*same, "host_name", "user_name")}
    kept = events.where(F.col("mode").isin(*_LIVE_MODES) & (beat | wanted))
    return kept.select(
        *[named.get(f.name, F.lit(None)).cast(f.dataType).alias(f.name) for f in like.fields]
    )


def is_event() -> Column:
    """Whether a row that left the join is one of `waiting`, heartbeats included."""
    return F.col("kind").eqNullSafe(EVENT_ROW)


def with_event(rows: DataFrame, schema: T.StructType) -> DataFrame:
    """Rows that left the join with what `event_row` needs of an event; null in a finding's.

    `schema`: of gold.finding.
    """
    names = ("finding_id", "role", "event_time", "received_at", "class_uid", "source")
    # Of a null nothing is decoded: a finding's text goes on as it is.
    event = fields_of(F.when(is_event(), F.col("finding")), schema, names)
    both = rows.withColumn("_event", event)
    return both.select("*", *[F.col(f"_event.{name}") for name in names])


def event_row(scopes: Sequence[ScopeSettings]) -> list[Column]:
    """A row of `with_event` as the columns of gold.attributed_event.

    An address that no DHCP network has waited like all others, and is only now said to be so: a
    branch of its own would read every file of silver.event twice.
    """
    status = _status(F.col("holder.status") == "leased", scopes)
    known = {name: F.col(f"holder.{name}") for name in DEVICE.fieldNames()} | {"status": status}
    known |= {name: _if_leased(status, known[name]) for name in ("mac", "hostname")}
    columns = {
        "event_uid": F.col("finding_id"),
        "holder": F.struct(*[column.alias(name) for name, column in known.items()]),
        "rev": F.col("attr_rev"),
        "via": F.when(status == "outside", "outside").otherwise(F.col("via")),
    }
    names = [column.name for column in ATTRIBUTED_EVENT.columns]
    return [columns.get(name, F.col(name)).alias(name) for name in names]


def attributed(
    events: DataFrame,
    segments: DataFrame | pa.Table,
    scopes: Sequence[ScopeSettings] = (),
    at: datetime | None = None,
    *,
    buckets: int = 16,
) -> DataFrame:
    """Events of silver.event with who held their address then. Batch only.

    All columns of `events` (give it few; time, scope, src_ip and device are looked at), and `ip`,
    `role`, `holder` (its `complete_up_to` and `evidence` stay null) and `rev` of the segment, -1
    for none. `segments`: silver.dhcp_segment, or, where they are few enough to go to every
    worker, what `asof.collected(asof.statements(segments, whole=True), CARRIED)` gave: that spares
    a shuffle of the events.

    `at`: as it was known then, only with segments as a DataFrame; none: as it is known now.
    """
    shaped = events.select(
        "*", F.col("time").alias("event_time"), _address().alias("ip"), role().alias("role")
    )
    if isinstance(segments, pa.Table):
        joined = newest_cover_of_few(shaped, segments)
    else:
        joined = newest_cover(shaped, statements(segments, at, whole=True), buckets, CARRIED)
    nothing = F.lit(None)  # neither is carried through the join (`CARRIED`)
    holder = device(scopes, complete_up_to=nothing, evidence=nothing)
    rev = F.coalesce("s_rev", F.lit(-1).cast("long"))
    return joined.select(*events.columns, "ip", "role", holder.alias("holder"), rev.alias("rev"))


def device(scopes: Sequence[ScopeSettings], **otherwise: Column) -> Column:
    """`DEVICE` of a row with `scope`, `ip` and the segment that covers its time, if any (`s_...`).

    `otherwise`: fields that are not taken from the segment.
    """
    status = _status(F.col("s_mac").isNotNull(), scopes)
    named = {name: _if_leased(status, F.col(f"s_{name}")) for name in ("mac", "hostname")}
    return segment_holder(DEVICE, status=status, **named, **otherwise)


def _if_leased(status: Column, name: Column) -> Column:
    """A device's name. An address that is set by hand has none, also where DHCP gave it away: then
    the session stays, as the mark of what speaks against it."""
    return F.when(status == "leased", name)


def _status(leased: Column, scopes: Sequence[ScopeSettings]) -> Column:
    """unknown without an address; static; leased; else none (in a DHCP network) or outside."""
    scope, ip = F.col("scope"), F.col("ip")
    static = set_by_hand(scope, ip, scopes)
    inside = F.coalesce(in_networks(scope, ip, scopes), F.lit(False))
    return (
        F.when(F.col("ip").isNull(), "unknown")
        # Before `leased`: what a person configured outranks a server that leased it all the same.
        .when(static, "static")
        .when(leased, "leased")
        .when(inside, "none")
        .otherwise("outside")
    )
