"""The alerts of one attack: what a page about an incident or a case shows of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from alerts.domain.alert_body import in_body
from alerts.lifecycle.risk_score import INCIDENT
from api.services.alert_index import INDEX
from api.services.reader import Reader, ReaderRow, cursor_of, parse_instant, reader_cursor

_NEEDS = ("gold.alert_current",)
_OF_INCIDENTS = ("gold.alert_current", INDEX)
_SHOWN = f"""
SELECT alert_id, rule_id, rule_name, level, severity_id, entity_type, entity_value, src_ip,
       event_time, window_start, window_end, status AS attribution, count, incident_id, risk_score,
       previous_entity, tenant_uid, {in_body("summary")} AS summary,
       coalesce({in_body("lifecycle")}, 'new') AS lifecycle, {in_body("verdict")} AS verdict,
       {in_body("attribution.hostname")} AS hostname,
       coalesce(list_distinct({in_body("attack[*].tactics[*].name")}), [])
         AS tactics
FROM gold.alert_current
"""
MOST = 2_000
"""Alerts that a page shows; it says where there are more."""
PAGE_INCIDENTS = 200


def alerts_by_id(reader: Reader, ids: Sequence[str]) -> list[ReaderRow]:
    """These alerts, oldest first; one more than `MOST` where there are more."""
    return reader.rows(
        f"{_SHOWN} WHERE list_contains($ids, alert_id)"
        f" ORDER BY window_start, alert_id LIMIT {MOST + 1}",
        {"ids": list(ids)},
        needs=_NEEDS,
    )


def alerts_of_incident(reader: Reader, incident_id: str) -> list[ReaderRow]:
    """The incident, then the alerts that led to it and those since, oldest first; one more of these
    than `MOST` where there are more."""
    return reader.rows(
        f"""WITH shown AS ({_SHOWN})
        SELECT shown.* REPLACE (i.incident_id AS incident_id),
               i.incident_id IS NOT NULL AND i.raised_in IS NULL AS led
        FROM shown JOIN {INDEX} i USING (alert_id)
        WHERE i.incident_id = $id OR i.alert_id = $id
        ORDER BY shown.alert_id <> $id, shown.window_start, shown.alert_id LIMIT {MOST + 2}""",
        {"id": incident_id},
        needs=_OF_INCIDENTS,
    )


def incidents(
    reader: Reader,
    status: Literal["open", "closed"] | None = None,
    *,
    limit: int = PAGE_INCIDENTS,
    cursor: str | None = None,
) -> tuple[list[ReaderRow], str | None]:
    """A page of incidents, the newest first, and the cursor of the next one.

    By the time of the first revision: no later one moves an incident across a cursor. Raises
    `Usage` for a wrong cursor.
    """
    question = {"incidents": str(status)}
    params: dict[str, Any] = {"status": status, "after": None, "after_id": None}
    if cursor:
        after, params["after_id"] = reader_cursor(cursor, question, 2)
        params["after"] = parse_instant(after)
    rows = _incidents(
        reader,
        "($status IS NULL OR (shown.lifecycle = 'closed') = ($status = 'closed'))"
        " AND ($after IS NULL OR first_event_time < $after"
        " OR (first_event_time = $after AND shown.alert_id > $after_id))"
        f" ORDER BY first_event_time DESC, shown.alert_id LIMIT {limit + 1}",
        params,
    )
    page = rows[:limit]
    if len(rows) <= limit:
        return page, None
    last = page[-1]
    return page, cursor_of(question, last["first_event_time"].isoformat(), last["alert_id"])


def incident(reader: Reader, incident_id: str) -> ReaderRow | None:
    """An incident as `incidents` has it; None where there is none of that id."""
    rows = _incidents(reader, "shown.alert_id = $id", {"id": incident_id})
    return rows[0] if rows else None


def _incidents(reader: Reader, condition: str, params: dict[str, Any]) -> list[ReaderRow]:
    """With how many alerts each has, of how many rules."""
    return reader.rows(
        f"""WITH shown AS ({_SHOWN}),
        parts AS (SELECT incident_id AS of_incident, count(*) AS alerts,
                         count(DISTINCT rule_id) AS rules
                  FROM {INDEX} WHERE incident_id IS NOT NULL GROUP BY ALL)
        SELECT shown.*, first_event_time, coalesce(alerts, 0) AS alerts, coalesce(rules, 0) AS rules
        FROM shown JOIN {INDEX} i USING (alert_id) LEFT JOIN parts ON of_incident = shown.alert_id
        WHERE shown.rule_id = $incident AND {condition}""",
        {"incident": INCIDENT, **params},
        needs=_OF_INCIDENTS,
    )
