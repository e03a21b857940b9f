"""Sessions and attributions: who held an address, as we learned it."""

from __future__ import annotations

from enrich.tables_assets import ASSET_TABLES, ASSET_VIEWS
from enrich.tables_rollup import ROLLUP_TABLES, ROLLUP_VIEWS
from enrich.tables_user_evidence import WITNESS_VIEWS
from infra.delta.column_types import ListOf
from infra.delta.schema import STRINGS, TS, Column, L, N, S, Table, View, struct

DHCP_SEGMENT = Table(
    name="silver.dhcp_segment",
    doc="A span of time an address belonged to a client. The highest rev that covers an instant "
    "is true.",
    columns=(
        Column("scope", S, "site or server the address belongs to"),
        Column("ip", S, "address leased"),
        Column("seg_start", TS, "first instant of the span, UTC"),
        Column("seg_end", TS, "first instant after it, UTC"),
        Column(
            "mac",
            S,
            "holder: hardware address, lower case, colons; else duid: or id: and what the client "
            "calls itself; null: the address is free",
            False,
        ),
        Column("hostname", S, "name the client gave, if any", False),
        Column("session_id", S, "the lease this span is part of", False),
        Column("session_start", TS, "when that lease was granted, UTC", False),
        Column("session_end", TS, "when that lease ends, as far as is known, UTC", False),
        Column("known_at", TS, "stream time at which we learned this, never running back, UTC"),
        Column("learned_at", TS, "arrival time of the line we learned it from, UTC"),
        Column("rev", L, "grows with every statement about this address"),
        Column("kind", S, "lease, extend, free, repair, too_late or heartbeat"),
        Column(
            "evidence",
            struct(event_uids=STRINGS, ended=S),
            "log lines it rests on; why the span ends",
            False,
        ),
    ),
    # Rows come in this order; the span of a correction may lie days back.
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
    evidence=STRINGS,
    ended=S,
    confidence=N,
    certainty=S,
    reason=S,
    rivals=ListOf(
        struct(
            kind=S,
            scope=S,
            mac=S,
            session_id=S,
            lease_start=TS,
            lease_end=TS,
            known_at=TS,
            rev=L,
        )
    ),
    servers=ListOf(struct(server=S, last_line_at=TS)),
)
"""Who an address belonged to. `status`: leased, none (no lease covered it), outside (no DHCP
scope has it), static (configured as set by hand; with a session: DHCP gave it away all the same)
or unknown (the event has no address).
`evidence`: event uids of DHCP lines. `ended`: why the lease ends, as far as it was known.
`complete_up_to`: how far the DHCP log was known when it was said; `servers`: each DHCP server's
last line before. `rivals`: who else could be meant, at most 50; `reason` says of how many.
`confidence` (0 to 100), `certainty` (its word) and `reason` are those of
`enrich.attribution.confidence.judge`."""

ATTRIBUTION = Table(
    name="gold.attribution",
    doc="Who a finding's address belonged to, as of a revision. The highest rev is true.",
    columns=(
        Column("finding_id", S, "the finding"),
        Column("role", S, "which address: src_endpoint, device, ..."),
        Column("rev", L, "rev of the segment it rests on; -1 when no lease covered the address"),
        Column("event_time", TS, "when the finding's event happened, UTC"),
        Column("holder", HOLDER, "who had the address, with the lease that proves it"),
        Column(
            "via",
            S,
            "join, correction, late, repair, outside or heartbeat; disproved: what a correlation "
            "had found was not there",
        ),
        Column("attributed_at", TS, "stream time at which it was said, UTC"),
        Column(
            "finding",
            S,
            "the finding as JSON, where job `alert` did not say this itself and has to learn of it",
            False,
        ),
    ),
    event_time="event_time",
    # Jobs `alert` and `repair` may both say it of one segment, each once: neither waits.
    key=("finding_id", "role", "rev", "via"),
    cluster_by=("event_time",),
    stats=("finding_id", "role", "rev", "event_time", "via"),
    expires="gold_days",
)
DEVICE = struct(
    mac=S,
    hostname=S,
    session_id=S,
    lease_start=TS,
    lease_end=TS,
    known_at=TS,
    status=S,
    complete_up_to=TS,
    evidence=STRINGS,
)
"""The device that held an event's address. `status`: leased, none, static, outside or unknown, as
in `HOLDER`; static with a session: DHCP gave the address away all the same, and whose event it was
is in doubt. `complete_up_to`: how far the DHCP log was known when it was said."""

ATTRIBUTED_EVENT = Table(
    name="gold.attributed_event",
    doc="An event of the classes in jobs.attributed_classes that names an address, with the device "
    "that held it then. The highest rev is true.",
    columns=(
        Column("event_uid", S, "the event"),
        Column("event_time", TS, "when it happened, UTC"),
        Column("received_at", TS, "when we got it, UTC"),
        Column("class_uid", N, "OCSF class of the event"),
        Column("source", S, "source of the event"),
        Column("scope", S, "site or server the address belongs to", False),
        Column("ip", S, "the address"),
        Column("role", S, "which address: src_endpoint, or device where it has no other"),
        Column("user_name", S, "user of the event", False),
        Column("host_name", S, "host of the event", False),
        Column("holder", DEVICE, "the device that had the address, with its lease"),
        Column("rev", L, "rev of the segment it rests on; -1 when no lease covered the address"),
        Column(
            "via", S, "join; outside: the address lies in no DHCP network; repair: corrected later"
        ),
    ),
    event_time="event_time",
    key=("event_uid", "role", "rev"),
    cluster_by=("event_time", "ip"),
    stats=(
        *("event_uid", "event_time", "received_at", "class_uid", "source", "ip", "user_name"),
        *("rev", "via"),
    ),
    expires="silver_days",
)

TABLES = (DHCP_SEGMENT, ATTRIBUTION, ATTRIBUTED_EVENT, *ASSET_TABLES, *ROLLUP_TABLES)
VIEWS = (
    View(
        # A row that frees the address names no client, hence the filters. A lease that was
        # withdrawn ends where it starts, and is none.
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
    View(
        # Of the statements about an instant the newest is true, so no newer one may cover it.
        "silver.leased_event",
        "Events whose address was leased, with the device that held it then, as known now: any "
        "slice of silver.event. Narrow it by event_time, and by ip or mac.",
        """
        SELECT e.event_uid, e.time AS event_time, e.class_uid, e.source, e.scope, e.src_ip AS ip,
               e.user_name, e.host_name, e.message, s.mac, s.hostname, s.session_id,
               l.lease_start, l.lease_end, s.rev
        FROM silver.events e JOIN silver.dhcp_segment s
          ON s.scope = e.scope AND s.ip = e.src_ip
         AND s.seg_start <= e.time AND s.seg_end > e.time AND s.mac IS NOT NULL
        JOIN (
          SELECT scope, ip, session_id, max_by(session_start, rev) AS lease_start,
                 max_by(session_end, rev) AS lease_end
          FROM silver.dhcp_segment WHERE session_id IS NOT NULL
          GROUP BY scope, ip, session_id
        ) l ON l.scope = s.scope AND l.ip = s.ip AND l.session_id = s.session_id
        WHERE NOT EXISTS (
          SELECT 1 FROM silver.dhcp_segment n
          WHERE n.scope = s.scope AND n.ip = s.ip AND n.rev > s.rev
            AND n.seg_start <= e.time AND n.seg_end > e.time)
        """,
    ),
    View(
        "gold.attributed_event_current",
        "The newest word on each event of gold.attributed_event",
        "SELECT * FROM (SELECT *, row_number() OVER (PARTITION BY event_uid, role, event_time, ip "
        "ORDER BY rev DESC) AS nth FROM gold.attributed_event) newest WHERE nth = 1",
    ),
    *ASSET_VIEWS,
    *WITNESS_VIEWS,
    *ROLLUP_VIEWS,
)
