"""What is known about one address, device, user, host or domain, in order of time."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from alerts.domain.alert_body import in_body
from alerts.domain.entity import NORMAL
from api import models
from api.services.reader import Reader, ReaderRow, cursor_of, parse_instant, reader_cursor

Kind = Literal["ip", "mac", "user", "host", "domain"]

_NEEDS = (
    "silver.event", "silver.events", "silver.dhcp_segment", "silver.dhcp_session",
    "gold.finding", "gold.findings", "gold.attribution", "gold.attribution_current",
    "gold.alert", "gold.alert_current",
)  # fmt: skip

_EVENT = """
SELECT e.time, 'event' AS kind, e.event_uid AS id, coalesce(e.message, e.class_name) AS title,
       e.src_ip AS ip, e.source, NULL AS level, NULL::TIMESTAMPTZ AS until, {via} AS via
FROM silver.events e {join} WHERE e.time >= $since AND e.time < $until AND ({condition})
"""
_FINDING = """
SELECT f.event_time AS time, 'finding' AS kind, f.finding_id AS id,
       concat_ws(': ', f.rule_title, f.snippet) AS title, f.ip, f.source, f.level,
       NULL::TIMESTAMPTZ AS until, {via} AS via
FROM gold.findings f WHERE f.event_time >= $since AND f.event_time < $until AND ({condition})
"""
_ALERT = """
SELECT a.event_time AS time, 'alert' AS kind, a.alert_id AS id, a.title, a.src_ip AS ip,
       NULL AS source, a.level, NULL::TIMESTAMPTZ AS until, 'own' AS via
FROM gold.alert_current a
WHERE a.event_time >= $since AND a.event_time < $until AND ({condition})
"""
_LEASE = """
SELECT s.lease_start AS time, 'lease' AS kind, s.session_id AS id,
       concat(s.mac, ' (', coalesce(s.hostname, 'no name'), ') held ', s.ip) AS title, s.ip,
       NULL AS source, NULL AS level, s.lease_end AS until, 'own' AS via
FROM silver.dhcp_session s
WHERE s.lease_start < $until AND s.lease_end > $since AND ({condition})
"""
_HELD = """
JOIN (SELECT scope, ip, seg_start, seg_end, rev FROM silver.dhcp_segment WHERE mac = $value) h
ON e.src_ip = h.ip AND e.time >= h.seg_start AND e.time < h.seg_end
   AND (e.scope IS NULL OR e.scope = h.scope)
"""
_STILL_TRUE = """
e.mac IS DISTINCT FROM $value AND NOT EXISTS (
  SELECT 1 FROM silver.dhcp_segment n
  WHERE n.scope = h.scope AND n.ip = h.ip AND n.rev > h.rev
    AND n.seg_start <= e.time AND e.time < n.seg_end)
"""
_NAMED = in_body("entities[*].value", "a.body")
_NAMED_IN = f"list_contains({_NAMED}, $value)"
_NAMED_IN_ANY_CASE = f"list_contains(list_transform({_NAMED}, n -> lower(n)), lower($value))"
_EVIDENCE = in_body("evidence[*].event_uid", "a.body")
_DOMAIN_OF = """
lower({0}.query.hostname) = $value OR ends_with(lower({0}.query.hostname), '.' || $value)
OR lower({0}.http_request.url.hostname) = $value
OR ends_with(lower({0}.http_request.url.hostname), '.' || $value)
"""


def timeline(
    reader: Reader,
    kind: Kind,
    value: str,
    since: datetime,
    until: datetime,
    limit: int,
    cursor: str | None,
) -> models.EntityTimeline:
    """One page, newest first: events, findings, alerts and leases in [since, until).

    A device's timeline also has what its addresses did while they were its own.
    Raises `Usage` for a value that is not of its kind, or a wrong cursor.
    """
    named = NORMAL[kind](value)
    params: ReaderRow = {"value": named, "since": since, "until": until}
    # The cursor is bound to the question: used with another one it would skip rows.
    question = {"kind": kind, **{name: str(param) for name, param in params.items()}}
    after = ""
    if cursor:
        time, last_kind, last_id = reader_cursor(cursor, question, 3)
        params |= {"time": parse_instant(time), "kind": last_kind, "id": last_id}
        # Kind and id break ties, or events of one microsecond could be lost between two pages.
        after = "WHERE (time, kind, id) < ($time, $kind, $id)"
    parts = " UNION ALL ".join(_PARTS[kind])
    param = reader.rows(
        # A device's event may be found by its address and by its own name.
        f"SELECT DISTINCT * FROM ({parts}) {after} "
        f"ORDER BY time DESC, kind DESC, id DESC LIMIT {limit + 1}",
        params,
        needs=_NEEDS,
        within={
            "silver.event": ("time", since, until),
            "gold.finding": ("event_time", since, until),
        },
        narrow=True,
    )
    page = param[:limit]
    last = page[-1] if len(param) > limit else None
    return models.EntityTimeline(
        entity=models.Entity(type=kind, value=named),
        items=[models.TimelineItem(**row) for row in page],
        next=cursor_of(question, last["time"].isoformat(), last["kind"], last["id"])
        if last
        else None,
    )


def _event(condition: str, via: str = "'own'", join: str = "") -> str:
    return _EVENT.format(condition=condition, via=via, join=join)


def _finding(condition: str, via: str = "'own'") -> str:
    return _FINDING.format(condition=condition, via=via)


def _same(*columns: str) -> str:
    """Whether one of these is the name, written in whichever case."""
    return " OR ".join(f"lower({column}) = lower($value)" for column in columns)


def _name_alerts(kind: str) -> str:
    own = f"(a.entity_type = '{kind}' AND {_same('a.entity_value')})"
    return _ALERT.format(condition=f"{own} OR {_NAMED_IN_ANY_CASE}")


_PARTS: dict[str, tuple[str, ...]] = {
    "ip": (
        _event("e.src_ip = $value OR e.dst_ip = $value"),
        _finding("f.ip = $value OR f.dst_ip = $value"),
        _ALERT.format(condition=f"a.src_ip = $value OR a.entity_value = $value OR {_NAMED_IN}"),
        _LEASE.format(condition="s.ip = $value"),
    ),
    "mac": (
        _event("e.mac = $value"),
        # Without what a later statement about the address has taken away from the device.
        _event(_STILL_TRUE, via="'lease'", join=_HELD),
        _finding(
            "f.holder.mac = $value OR f.finding_id IN (SELECT finding_id "
            "FROM gold.attribution_current t WHERE t.holder.mac = $value)",
            via="'lease'",
        ),
        _ALERT.format(
            condition=f"(a.entity_type = 'device' AND a.entity_value = $value) OR {_NAMED_IN}"
        ),
        _LEASE.format(condition="s.mac = $value"),
    ),
    "user": (
        _event(_same("e.user_name", "e.actor.user.name")),
        _finding(_same("f.user_name")),
        _name_alerts("user"),
    ),
    "host": (
        _event(_same("e.host_name", "e.src_endpoint.hostname")),
        _finding(_same("f.host_name")),
        _name_alerts("host"),
        _LEASE.format(condition=_same("s.hostname")),
    ),
    "domain": (
        _event(_DOMAIN_OF.format("e")),
        _finding(
            # A finding names no domain, so its event is asked.
            f"f.event_uid IN (SELECT d.event_uid FROM silver.events d "
            f"WHERE d.time >= $since AND d.time < $until AND ({_DOMAIN_OF.format('d')}))"
        ),
        _ALERT.format(
            condition=f"{_NAMED_IN} OR list_has_any({_EVIDENCE}, (SELECT list(d.event_uid) "
            "FROM silver.events d WHERE d.time >= $since AND d.time < $until "
            f"AND ({_DOMAIN_OF.format('d')})))"
        ),
    ),
}
"""The questions a timeline of each kind is put together from."""
