"""Alerts and leases, read from the lake."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from api import models
from api.queries import Reader, Row, cursor_of, instant, place_of
from infra.errors import Usage


@dataclass(frozen=True)
class AlertFilter:
    """Which alerts are wanted; an empty field wants all."""

    levels: tuple[str, ...] = ()
    rule_id: str | None = None
    entity: str | None = None
    status: str | None = None
    activity: str | None = None
    since: datetime | None = None
    until: datetime | None = None

    def sql(self) -> tuple[str, Row]:
        """Conditions on the newest revision, and their parameters."""
        wanted = {
            "rule_id = $rule_id": self.rule_id,
            "entity_value = $entity": self.entity,
            "status = $status": self.status,
            "activity = $activity": self.activity,
            "event_time >= $since": self.since,
            "event_time < $until": self.until,
            "list_contains($levels, level)": list(self.levels) or None,
        }
        used = {text: value for text, value in wanted.items() if value is not None}
        names = {text: text.split("$")[1].split(",")[0].rstrip(")") for text in used}
        return " AND ".join(["TRUE", *used]), {names[text]: used[text] for text in used}


_ALERTS = """
WITH first AS (
  SELECT alert_id, min_by(event_time, revision) AS first_event_time
  FROM gold.alert GROUP BY alert_id
)
SELECT a.alert_id, revision, activity, reason, mode, rule_id, rule_name, level, severity_id,
       risk_score, entity_type, entity_value, previous_entity, src_ip, first_event_time,
       event_time, window_start, window_end, status, count, title, body
FROM gold.alert_current a JOIN first USING (alert_id)
"""
# A page is ordered by the first revision's time: no later revision moves an alert across a cursor.


def alerts(reader: Reader, wanted: AlertFilter, limit: int, cursor: str | None) -> models.AlertPage:
    """One page of alerts in their newest revision. Raises `Usage` for a wrong cursor."""
    condition, params = wanted.sql()
    question = {name: str(value) for name, value in params.items()}
    if cursor:
        time, alert_id = place_of(cursor, question, 2)
        params |= {"after": instant(time), "after_id": alert_id}
        condition += (
            " AND (first_event_time < $after"
            " OR (first_event_time = $after AND a.alert_id > $after_id))"
        )
    found = reader.rows(
        f"{_ALERTS} WHERE {condition} ORDER BY first_event_time DESC, a.alert_id LIMIT {limit + 1}",
        params,
        needs=("gold.alert", "gold.alert_current"),
    )
    page = found[:limit]
    more = len(found) > limit
    last = page[-1] if more else None
    return models.AlertPage(
        items=[_alert(row) for row in page],
        next=cursor_of(question, last["first_event_time"].isoformat(), last["alert_id"])
        if last
        else None,
    )


def alert(reader: Reader, alert_id: str) -> models.AlertDetail | None:
    """One alert with all its revisions; None when there is none of that id."""
    needs = ("gold.alert", "gold.alert_current")
    newest = reader.rows(f"{_ALERTS} WHERE a.alert_id = $id", {"id": alert_id}, needs=needs)
    if not newest:
        return None
    revisions = reader.rows(
        "SELECT revision, activity, reason, event_time, entity_type, entity_value, "
        "previous_entity, status, count FROM gold.alert WHERE alert_id = $id ORDER BY revision",
        {"id": alert_id},
        needs=needs,
    )
    return models.AlertDetail(
        alert=_alert(newest[0]),
        body=json.loads(newest[0]["body"]),
        revisions=[models.Revision(**_with_entity(row)) for row in revisions],
    )


def _alert(row: Row) -> models.Alert:
    short = _with_entity(row)
    short.pop("body", None)
    return models.Alert(**short)


def _with_entity(row: Row) -> Row:
    rest = {k: v for k, v in row.items() if k not in ("entity_type", "entity_value")}
    return rest | {"entity": models.Entity(type=row["entity_type"], value=row["entity_value"])}


_HOLDER = """
SELECT scope, mac, hostname, session_id, session_start, session_end, seg_start, seg_end,
       known_at, rev, evidence
FROM silver.dhcp_segment
WHERE ip = $ip AND seg_start <= $at AND $at < seg_end AND ($scope IS NULL OR scope = $scope)
QUALIFY row_number() OVER (PARTITION BY scope ORDER BY rev DESC) = 1
ORDER BY scope
"""


def holder(reader: Reader, ip: str, at: datetime, scope: str | None) -> models.Holder:
    """Who held `ip` at `at`: the statement with the highest rev that covers the instant.

    Raises `Usage` when no scope is given and the address was leased in several.
    """
    needs = ("silver.dhcp_segment",)
    found = reader.rows(_HOLDER, {"ip": ip, "at": at, "scope": scope}, needs=needs)
    complete = reader.rows(
        "SELECT max(known_at) AS known_at FROM silver.dhcp_segment WHERE kind = 'heartbeat'",
        needs=needs,
    )[0]["known_at"]
    leased = [row for row in found if row["mac"] is not None]
    if len(leased) > 1:
        scopes = ", ".join(str(row["scope"]) for row in leased)
        raise Usage(f"{ip} was leased in several scopes then ({scopes}); say which with scope=")
    covering = leased or found
    return models.Holder(
        ip=ip,
        at=at,
        scope=scope or (covering[0]["scope"] if covering else None),
        status="leased" if leased else "none",
        lease=_lease(leased[0]) if leased else None,
        complete_up_to=complete,
    )


def _lease(row: Row) -> models.Lease:
    evidence: dict[str, Any] = row["evidence"] or {}
    return models.Lease(
        mac=row["mac"],
        hostname=row["hostname"],
        session_id=row["session_id"],
        lease_start=row["session_start"],
        lease_end=row["session_end"],
        span_start=row["seg_start"],
        span_end=row["seg_end"],
        known_at=row["known_at"],
        rev=row["rev"],
        evidence=evidence.get("event_uids") or [],
        ended=evidence.get("ended"),
    )
