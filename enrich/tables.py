"""Sessions and attributions: who held an address, as we learned it."""

from __future__ import annotations

from pyspark.sql import types as T

from infra.tables import Column, Table, View, struct

S, N, L, B, TS = (
    T.StringType(),
    T.IntegerType(),
    T.LongType(),
    T.BooleanType(),
    T.TimestampType(),
)

DHCP_SEGMENT = Table(
    name="silver.dhcp_segment",
    doc="A span of time an address belonged to a client. The highest rev that covers an instant "
    "is true.",
    columns=(
        Column("scope", S, "site or server the address belongs to"),
        Column("ip", S, "address leased"),
        Column("seg_start", TS, "first instant of the span, UTC"),
        Column("seg_end", TS, "first instant after it, UTC"),
        Column("mac", S, "holder, lower case, colons; null: the address is free", False),
        Column("hostname", S, "name the client gave, if any", False),
        Column("session_id", S, "the lease this span is part of", False),
        Column("session_start", TS, "when that lease was granted, UTC", False),
        Column("session_end", TS, "when that lease ends, as far as is known, UTC", False),
        Column("known_at", TS, "stream time at which we learned this, never running back, UTC"),
        Column("learned_at", TS, "arrival time of the line we learned it from, UTC"),
        Column("rev", L, "grows with every statement about this address"),
        Column("kind", S, "lease, extend, free, too_late or heartbeat"),
        Column(
            "evidence",
            struct(event_uids=T.ArrayType(S), ended=S),
            "log lines it rests on; why the span ends",
            False,
        ),
    ),
    event_time="known_at",
    key=("scope", "ip", "rev"),
    cluster_by=("ip", "seg_start"),
    stats=("scope", "ip", "seg_start", "seg_end", "mac", "session_id", "known_at", "kind", "rev"),
)

HOLDER = struct(
    ip=S,
    scope=S,
    mac=S,
    hostname=S,
    session_id=S,
    lease_start=TS,
    lease_end=TS,
    known_at=TS,
    status=S,
    complete_up_to=TS,
    evidence=T.ArrayType(S),
)
"""Who an address belonged to. `status`: leased, none (no lease covered it), outside (no DHCP
scope has it) or unknown (the event has no address). `evidence`: event uids of DHCP lines.
`complete_up_to`: how far the DHCP log was known when it was said."""

ATTRIBUTION = Table(
    name="gold.attribution",
    doc="Who a finding's address belonged to, as of a revision. The highest rev is true.",
    columns=(
        Column("finding_id", S, "the finding"),
        Column("role", S, "which address: src_endpoint, device, ..."),
        Column("rev", L, "rev of the segment it rests on; -1 when no lease covered the address"),
        Column("event_time", TS, "when the finding's event happened, UTC"),
        Column("holder", HOLDER, "who had the address, with the lease that proves it"),
        Column("via", S, "join, correction, late, repair, outside or heartbeat"),
        Column("attributed_at", TS, "stream time at which it was said, UTC"),
        Column(
            "finding",
            S,
            "the finding as JSON, where job `alert` did not say this itself and has to learn of it",
            False,
        ),
    ),
    event_time="event_time",
    key=("finding_id", "role", "rev"),
    cluster_by=("event_time",),
    stats=("finding_id", "role", "rev", "event_time", "via"),
)

TABLES = (DHCP_SEGMENT, ATTRIBUTION)
VIEWS = (
    View(
        "silver.dhcp_session",
        "A lease as analysts think of it: who held an address, from when to when. Where a later "
        "statement contradicts an earlier one about the same lease, the later one counts.",
        """
        SELECT session_id, scope, ip,
               max_by(mac, rev) FILTER (WHERE mac IS NOT NULL) AS mac,
               max_by(hostname, rev) FILTER (WHERE hostname IS NOT NULL) AS hostname,
               max_by(session_start, rev) AS lease_start,
               max_by(session_end, rev) AS lease_end,
               max_by(evidence, rev) AS evidence,
               min(known_at) AS first_known_at, max(known_at) AS known_at, max(rev) AS rev
        FROM silver.dhcp_segment
        WHERE session_id IS NOT NULL AND kind <> 'heartbeat'
        GROUP BY session_id, scope, ip
        HAVING max_by(session_end, rev) > max_by(session_start, rev)
        """,
    ),
)
