"""Counts by minute and hour, what of them was compared with the events, and logins in sessions."""

from __future__ import annotations

from datetime import timedelta

from infra.delta.schema import BYTES, STRINGS, TS, Column, L, N, S, Table, View
from ingest.tables import HEARTBEAT

HOUR, MINUTE, ARRIVAL = "hour", "minute", "arrival_minute"
GRAINS = (HOUR, MINUTE, ARRIVAL)
"""By hour of the event with its device, by minute of the event, by minute of its arrival."""

ROLLUP = Table(
    name="gold.rollup",
    doc="Events counted by a window of time, absolute numbers. Ask the views gold.rollup_hour, "
    "gold.rollup_minute and gold.arrival_minute: each has one grain of it.",
    columns=(
        Column("grain", S, "hour and minute: of the event's time; arrival_minute: of its arrival"),
        Column("window_start", TS, "first instant of the window, UTC"),
        Column("window_end", TS, "first instant after it, UTC"),
        Column("source", S, "source of the events; '_heartbeat' rows are hidden by the views"),
        Column("mode", S, "live, replay or import"),
        Column("class_uid", N, "OCSF class; null in arrival_minute", False),
        Column("activity_id", N, "OCSF activity; null in arrival_minute", False),
        Column("status_id", N, "1 success, 2 failure, 0 unknown; null in arrival_minute", False),
        Column("scope", S, "site of the device; only in hour", False),
        Column("device_type", S, "what `device` is: ip, mac or host; only in hour", False),
        Column(
            "device",
            S,
            "source address if it is one of ours, else hardware address, else host; only in hour",
            False,
        ),
        Column("events", L, "events that could be read, each once"),
        Column("dead", L, "dead letters; only in arrival_minute"),
        Column("repeated", L, "second deliveries; only in arrival_minute"),
        Column("bytes", L, "bytes of traffic that the events tell of, both ways", False),
        Column("first_at", TS, "arrival of the first of them, UTC"),
        Column("last_at", TS, "arrival of the last of them, UTC"),
        Column("destinations", L, "different dst_ip, within some 3 %; only in hour", False),
        Column(
            "destination_sketch",
            BYTES,
            "the same as HyperLogLog sketch, to be merged with hll_union_agg; only in hour",
            False,
        ),
    ),
    event_time="window_start",
    key=(
        "grain",
        "window_start",
        "source",
        "mode",
        "class_uid",
        "activity_id",
        "status_id",
        "scope",
        "device_type",
        "device",
    ),
    cluster_by=("window_start", "grain"),
    stats=("grain", "window_start", "source", "class_uid", "device"),
    # Each batch writes the newest windows anew, so files of former versions pile up fast.
    rewritten=timedelta(hours=6),
)

ROLLUP_CHECK = Table(
    name="ops.rollup_check",
    doc="An hour of arrivals whose counts in gold.rollup were compared with silver.event.",
    columns=(
        Column("hour", TS, "the hour, by arrival, UTC"),
        Column("checked_at", TS, "when its comparison began, UTC"),
        Column("events", L, "rows of silver.event that arrived in it"),
        Column("missing", L, "events that the counts were short of, or had too many"),
        Column("recounted", L, "hours that were counted anew, of arrival and of events"),
        Column("unmended", L, "hours that differ and lie beyond retention, so stay as they are"),
    ),
    event_time="hour",
    key=("hour", "checked_at"),
    cluster_by=("hour",),
    stats=("hour", "checked_at"),
)

LOGIN_SESSION = Table(
    name="gold.login_session",
    doc="Logins (class 3002) of one user at one device with no longer pause between them than "
    "jobs.login_gap_minutes.",
    columns=(
        Column("started_at", TS, "time of the first login event, UTC"),
        Column("ended_at", TS, "time of the last one, UTC"),
        Column("user_name", S, "the user"),
        Column("scope", S, "site of the device", False),
        Column("device_type", S, "what `device` is: ip, mac or host", False),
        Column("device", S, "as in gold.rollup", False),
        Column("logins", L, "logins that succeeded"),
        Column("failures", L, "logins that failed"),
        Column("logoffs", L, "logoffs"),
        Column("events", L, "all of the session's events"),
        Column("sources", STRINGS, "sources that reported them, sorted"),
        Column("hosts", STRINGS, "some of the hosts that were logged in to, sorted: at most 20"),
        Column("mac", S, "who held the address when the session began, if it was leased", False),
        Column("hostname", S, "the name that device gave", False),
        Column("session_id", S, "its DHCP session", False),
    ),
    event_time="started_at",
    key=("user_name", "scope", "device_type", "device", "started_at"),
    cluster_by=("started_at", "user_name"),
    stats=("started_at", "ended_at", "user_name", "device", "mac"),
    expires="gold_days",
)

ROLLUP_TABLES = (ROLLUP, ROLLUP_CHECK, LOGIN_SESSION)
ROLLUP_VIEWS = (
    View(
        "gold.rollup_hour",
        "Events by hour, source, class and device",
        "SELECT window_start, window_end, source, mode, class_uid, activity_id, status_id, scope, "
        "device_type, device, events, bytes, destinations, destination_sketch, first_at, last_at "
        f"FROM gold.rollup WHERE grain = '{HOUR}'",
    ),
    View(
        "gold.rollup_minute",
        "Events by minute, source and class",
        "SELECT window_start, window_end, source, mode, class_uid, activity_id, status_id, "
        f"events, bytes, first_at, last_at FROM gold.rollup WHERE grain = '{MINUTE}'",
    ),
    View(
        "gold.arrival_minute",
        "What arrived by minute and source, dead letters and second deliveries too",
        "SELECT window_start, window_end, source, mode, events, dead, repeated, first_at, last_at "
        f"FROM gold.rollup WHERE grain = '{ARRIVAL}' AND source <> '{HEARTBEAT}'",
    ),
    View(
        "gold.rollup_device",
        "Events by hour of addresses that were leased, with the device: mac is null where the "
        "address had several holders within the hour (holders)",
        f"""
        WITH held AS (
          SELECT r.window_start, r.scope, r.device, count(DISTINCT s.mac) AS holders,
                 min(s.mac) AS mac
          FROM (SELECT DISTINCT window_start, window_end, scope, device FROM gold.rollup
                WHERE grain = '{HOUR}' AND device_type = 'ip') r
          JOIN silver.dhcp_session s ON s.scope = r.scope AND s.ip = r.device
            AND s.lease_start < r.window_end AND s.lease_end > r.window_start
          GROUP BY r.window_start, r.scope, r.device
        )
        SELECT r.window_start, r.source, r.mode, r.class_uid, r.activity_id, r.status_id, r.scope,
               r.device AS ip, CASE WHEN h.holders = 1 THEN h.mac END AS mac, h.holders,
               r.events, r.bytes, r.destinations
        FROM gold.rollup r JOIN held h ON h.window_start = r.window_start
         AND h.scope = r.scope AND h.device = r.device
        WHERE r.grain = '{HOUR}' AND r.device_type = 'ip'
        """,
    ),
    View(
        # Without imports: history that comes all at once is no habit.
        "gold.rollup_usual",
        "A source's events of a class by hour, beside what was usual: the median of the same hour "
        "of the four weeks before, and how many of these weeks have a count",
        f"""
        WITH by_hour AS (
          SELECT window_start, source, class_uid, sum(events) AS events
          FROM gold.rollup WHERE grain = '{HOUR}' AND mode <> 'import'
          GROUP BY window_start, source, class_uid
        )
        SELECT n.window_start, n.source, n.class_uid, min(n.events) AS events,
               median(p.events) AS usual, count(p.events) AS weeks
        FROM by_hour n LEFT JOIN by_hour p
          ON p.source = n.source AND p.class_uid = n.class_uid
         AND p.window_start IN (n.window_start - INTERVAL 7 DAY, n.window_start - INTERVAL 14 DAY,
                                n.window_start - INTERVAL 21 DAY, n.window_start - INTERVAL 28 DAY)
        GROUP BY n.window_start, n.source, n.class_uid
        """,
    ),
)
