"""Events with the device that held their address when they happened.

Two ways, one answer. For the classes in `jobs.attributed_classes` job `alert` says it as they
come, in the join that attributes findings, into gold.attributed_event. For any slice of
silver.event it is said when it is asked: here with Spark (`attributed`), over DuckDB and Spark SQL
by the view silver.leased_event, and a page at a time by the API.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from enrich.attribution.asof_join import newest_cover, newest_cover_of_few, statements
from enrich.attribution.scopes import in_networks, set_by_hand
from enrich.attribution.stream_join import joining_rows, segment_holder, with_routing
from enrich.tables import DEVICE
from infra.config.settings import ScopeSettings
from ingest.parsing.source import LIVE_MODES
from ingest.tables import HEARTBEAT

EVENT_ROW = "_event"
"""`rule_id` of an event that goes through the findings' join."""


CARRIED = ("mac", "hostname", "session_id", "session_start", "session_end", "known_at", "rev")
"""What `attributed` needs of a segment. Its evidence is found under the session."""


def _address() -> Column:
    """The address an event is about: where it came from, else the machine that logged it."""
    return F.coalesce("src_ip", "device.ip")


def role() -> Column:
    """Which of an event's addresses `address` is."""
    return F.when(F.col("src_ip").isNotNull(), "src_endpoint").otherwise("device")


def joining_events(events: DataFrame, classes: Sequence[int]) -> DataFrame:
    """Events of these classes that name an address, as the join's left side takes them
    (`stream_join.joining_rows`), and ingest's heartbeats, which move their watermark.

    No class is fine: the heartbeats still come, so the setting can change under a checkpoint.
    """
    beat, live = F.col("source") == HEARTBEAT, F.col("mode").isin(*LIVE_MODES)
    # A heartbeat has done its work with its watermark: it waits for nothing and is told nobody.
    passing = F.lit(json.dumps({"rule_id": HEARTBEAT, "kind": EVENT_ROW}))
    never = F.lit(None).cast("timestamp")
    if not classes:
        # By a plan of its own: planning is most of what a batch costs.
        return joining_rows(
            events.where(live & beat), F.lit(HEARTBEAT), F.lit(""), never, F.col("time"), passing
        )
    usable = F.col("dead_letter_reason").isNull() & F.col("duplicate_of").isNull()
    joins = F.col("class_uid").isin(*classes) & usable & _address().isNotNull()
    named = {
        "finding_id": F.col("event_uid"),
        "rule_id": F.lit(EVENT_ROW),
        "kind": F.lit(EVENT_ROW),
        "event_time": F.col("time"),
        "role": role(),
        "ip": _address(),
    }
    same = ("event_uid", "received_at", "class_uid", "source", "mode", "scope")
    named |= {name: F.col(name) for name in (*same, "host_name", "user_name")}
    text = with_routing(named)
    return joining_rows(
        events.where(live & (beat | joins)),
        F.when(beat, HEARTBEAT).otherwise(F.col("scope")),
        F.when(~beat, _address()),
        F.when(~beat, F.coalesce("time", "received_at")),
        F.when(beat, F.col("time")).otherwise(F.coalesce("received_at", "time")),
        F.when(beat, passing).otherwise(text),
    )


def is_event() -> Column:
    """Whether a row that left the join is one of `joining_events`, heartbeats included."""
    return F.col("kind").eqNullSafe(EVENT_ROW)


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
    worker, what `asof_join.as_arrow(statements(segments, whole=True), CARRIED)` gave: that spares a
    shuffle of the events.

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
