"""What an entity did over time, in lanes: counts of its events by kind, and its alerts then."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Literal

from alerts.domain.alert_body import in_body
from alerts.domain.entity import micros
from api.services.alert_index import INDEX
from api.services.console.lease_spans import LeaseSpan
from api.services.console.time_buckets import bucket_sql, step_of
from api.services.reader import Reader, ReaderRow

EntityKind = Literal["ip", "mac", "user", "host", "domain"]
BUCKETS = 96
MOST_ALERTS = 200
"""Alerts that a timeline has, the newest."""
_LANES = """CASE
  WHEN class_uid = 3002 THEN 'Logins' WHEN class_uid = 4003 THEN 'DNS'
  WHEN class_uid IN (4001, 4002, 4006, 4007, 4009) THEN 'Network'
  WHEN class_uid = 4004 THEN 'DHCP' ELSE 'Other' END"""
_COUNTS = """
SELECT {lanes} AS lane, {bucket} AS bucket, count(*) AS n,
       count(*) FILTER (e.status_id = 2) AS failed,
       list(DISTINCT coalesce(e.tenant_uid, '')) AS tenants
FROM silver.events e
WHERE e.time >= $since AND e.time < $until AND ({condition}) GROUP BY ALL
"""
_HELD = """
EXISTS (SELECT 1 FROM (SELECT unnest($scopes) AS scope, unnest($ips) AS ip,
  unnest($starts) AS s, unnest($ends) AS f) h
  WHERE h.ip = e.src_ip AND (h.scope = '' OR e.scope IS NULL OR h.scope = e.scope)
    AND epoch_us(e.time) >= h.s AND epoch_us(e.time) < h.f)
"""
_NAMED = {
    "ip": "e.src_ip = $value OR e.dst_ip = $value",
    "mac": "e.mac = $value",
    "user": "e.user_name = $value OR e.actor.user.name = $value",
    "host": "e.host_name = $value OR e.src_endpoint.hostname = $value",
    "domain": "lower(e.query.hostname) = $value"
    " OR ends_with(lower(e.query.hostname), '.' || $value)",
}
_ALERTS = f"""
SELECT alert_id, revision, rule_name, level, severity_id, event_time, entity_type, entity_value,
       previous_entity, tenant_uid, status, count, risk_score,
       {in_body("attribution.hostname")} AS hostname,
       coalesce({in_body("lifecycle")}, 'new') AS lifecycle, {in_body("verdict")} AS verdict{{more}}
FROM gold.alert
WHERE event_time >= $since AND event_time < $until
  AND ($known_by IS NULL
       OR coalesce(TRY_CAST({in_body("detected_at")} AS TIMESTAMPTZ), received_at) <= $known_by)
QUALIFY row_number() OVER (PARTITION BY alert_id ORDER BY revision DESC) = 1
"""


def lane_step(since: datetime, until: datetime) -> timedelta:
    """How wide the counted spans of a lane are."""
    seconds = max(1, round((until - since).total_seconds() / BUCKETS))
    # Whole days, which a person can tell apart.
    return timedelta(seconds=seconds) if seconds < 86_400 else timedelta(days=seconds // 86_400)


def lane_counts(
    reader: Reader,
    kind: EntityKind,
    value: str,
    since: datetime,
    until: datetime,
    spans: Sequence[LeaseSpan],
) -> list[ReaderRow]:
    """Events by lane and time: those that name it, and those of addresses while they were its.

    `tenants`: whose they are; '' is nobody's.
    """
    condition = _NAMED[kind]
    params: ReaderRow = {
        "value": value,
        "since": since,
        "until": until,
        "step": step_of(lane_step(since, until)),
    }
    # DuckDB unnests the lists of one SELECT side by side, so their nth items make up a row.
    if spans and kind in ("mac", "host"):
        condition += f" OR {_HELD}"
        params |= {
            "scopes": [span.scope for span in spans],
            "ips": [span.ip for span in spans],
            "starts": [micros(span.start) for span in spans],
            "ends": [micros(span.end) for span in spans],
        }
    sql = _COUNTS.format(lanes=_LANES, bucket=bucket_sql("e.time"), condition=condition)
    return reader.rows(
        sql,
        params,
        needs=("silver.event", "silver.events"),
        within={"silver.event": ("time", since, until)},
        narrow=True,
    )


def alerts_as_known(
    reader: Reader,
    kind: EntityKind,
    value: str,
    since: datetime,
    until: datetime,
    known_by: datetime | None,
) -> list[ReaderRow]:
    """Alerts about it, in the newest revision that there was at `known_by`; those of a user or
    host also where they only name it."""
    about, more = "entity_value = $value OR previous_entity = $value", ""
    if kind in ("user", "host"):
        about += " OR list_contains(names, $value)"
        more = f", {in_body('entities[*].value')} AS names"
    return reader.rows(
        f"SELECT * FROM ({_ALERTS.format(more=more)}) WHERE {about}"
        f" ORDER BY event_time DESC LIMIT {MOST_ALERTS}",
        {"value": value, "since": since, "until": until, "known_by": known_by},
        needs=("gold.alert",),
    )


def address_alerts(
    reader: Reader, value: str, since: datetime, until: datetime, known_by: datetime | None
) -> list[ReaderRow]:
    """Alerts whose event came from an address, whomever they name."""
    return reader.rows(
        f"SELECT * FROM ({_ALERTS.format(more='')}) JOIN (SELECT DISTINCT alert_id FROM gold.alert"
        " WHERE src_ip = $value OR entity_value = $value) USING (alert_id)"
        f" ORDER BY event_time DESC LIMIT {MOST_ALERTS}",
        {"value": value, "since": since, "until": until, "known_by": known_by},
        needs=("gold.alert",),
    )


def span_of(reader: Reader, kind: EntityKind, value: str) -> tuple[datetime, datetime] | None:
    """From the first to the newest thing that is known of it, where that is quick to say."""
    column = {"ip": "ip", "mac": "mac", "host": "hostname"}.get(kind)
    parts = [
        "SELECT min(event_time) AS low, max(event_time) AS high FROM gold.alert"
        " WHERE entity_value = $value OR src_ip = $value"
    ]
    if column:
        parts.append(
            "SELECT min(seg_start), max(known_at) FROM silver.dhcp_segment"
            f" WHERE {column} = $value AND kind <> 'heartbeat'"
        )
    needs: tuple[str, ...] = ("gold.alert", "silver.dhcp_segment")
    params = {"value": value}
    if kind in ("user", "host"):
        # Alerts name them and are seldom about them.
        parts.append(
            f"SELECT min(first_event_time), max(event_time) FROM {INDEX}"
            " WHERE list_contains(names, $name)"
        )
        needs, params = (*needs, INDEX), params | {"name": f"{kind}|{value}".lower()}
    rows = reader.rows(
        f"SELECT min(low) AS low, max(high) AS high FROM ({' UNION ALL '.join(parts)})",
        params,
        needs=needs,
    )
    low, high = rows[0]["low"], rows[0]["high"]
    return (low, high) if low is not None else None
