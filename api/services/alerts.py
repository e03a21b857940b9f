"""Alerts and leases, read from the lake."""

from __future__ import annotations

from dataclasses import asdict

from alerts.delivery.alert_message import alert_status
from alerts.delivery.feed import BEHIND_ALL, FEED_SQL, START, FeedCursor, sequence_of
from alerts.delivery.feed import cursor_place as place_in_feed
from alerts.domain.alert_body import readable_body
from api import models
from api.services.alert_filter import AlertFilter
from api.services.alert_index import INDEX
from api.services.reader import Reader, ReaderRow, cursor_of, parse_instant, reader_cursor
from infra.errors import Usage

_ALERTS = f"""
WITH first AS (
  SELECT alert_id, min_by(event_time, revision) AS first_event_time
  FROM gold.alert GROUP BY alert_id
)
SELECT a.alert_id, revision, activity, reason, mode, rule_id, rule_name, level, severity_id,
       risk_score, entity_type, entity_value, previous_entity, src_ip, first_event_time,
       event_time, window_start, window_end, status, count, title, suppressed_by,
       (SELECT any_value(i.incident_id) FROM {INDEX} i WHERE i.alert_id = a.alert_id)
         AS incident_id, body
FROM gold.alert_current a JOIN first USING (alert_id)
"""
_LISTED = f"""
SELECT alert_id, revision, activity, reason, mode, rule_id, rule_name, level, severity_id,
       risk_score, entity_type, entity_value, previous_entity, src_ip, first_event_time,
       event_time, window_start, window_end, status, count, title, suppressed_by, incident_id,
       lifecycle
FROM {INDEX} a
"""
# A page is ordered by the first revision's time: no later revision moves an alert across a cursor.


def alerts(reader: Reader, wanted: AlertFilter, limit: int, cursor: str | None) -> models.AlertPage:
    """One page of alerts in their newest revision. Raises `Usage` for a wrong cursor."""
    condition, params = wanted.sql()
    # `muted` has no parameter in SQL, but changes the answer, so it belongs to the cursor.
    question = {name: str(value) for name, value in params.items()} | {"muted": str(wanted.muted)}
    if cursor:
        time, alert_id = reader_cursor(cursor, question, 2)
        params |= {"after": parse_instant(time), "after_id": alert_id}
        condition += (
            " AND (first_event_time < $after"
            " OR (first_event_time = $after AND a.alert_id > $after_id))"
        )
    rows = reader.rows(
        f"{_LISTED} WHERE {condition} ORDER BY first_event_time DESC, a.alert_id LIMIT {limit + 1}",
        params,
        needs=(INDEX,),
    )
    page = rows[:limit]
    more = len(rows) > limit
    last = page[-1] if more else None
    return models.AlertPage(
        items=[_alert(row) for row in page],
        next=cursor_of(question, last["first_event_time"].isoformat(), last["alert_id"])
        if last
        else None,
    )


def selected_ids(reader: Reader, wanted: AlertFilter, most: int) -> list[str]:
    """Ids of all alerts that a filter selects; raises `Usage` where they are more than `most`."""
    condition, params = wanted.sql()
    rows = reader.rows(
        f"SELECT alert_id FROM {INDEX} a WHERE {condition} "
        f"ORDER BY event_time DESC, alert_id LIMIT {most + 1}",
        params,
        needs=(INDEX,),
    )
    if len(rows) > most:
        raise Usage(f"filter: it selects more than {most:,} alerts; narrow it, by time say")
    return [str(row["alert_id"]) for row in rows]


def alert(reader: Reader, alert_id: str) -> models.AlertDetail | None:
    """One alert with all its revisions; None when there is none of that id."""
    needs = ("gold.alert", "gold.alert_current", INDEX)
    newest = reader.rows(f"{_ALERTS} WHERE a.alert_id = $id", {"id": alert_id}, needs=needs)
    if not newest:
        return None
    revisions = reader.rows(
        "SELECT revision, activity, reason, event_time, entity_type, entity_value, "
        "previous_entity, status, count, body FROM gold.alert "
        "WHERE alert_id = $id ORDER BY revision",
        {"id": alert_id},
        needs=needs,
    )
    return models.AlertDetail(
        alert=_alert(newest[0]),
        body=readable_body(newest[0]["body"]),
        revisions=[models.Revision(**_in_words(row)) for row in revisions],
    )


def feed(reader: Reader, lake: str, after: str, limit: int) -> models.FeedPage:
    """Revisions behind a cursor, in the order of their commits; `lake`: identity of gold.alert.

    Raises `Usage` for a wrong cursor.
    """
    place = place_in_feed(after, lake)
    params = {**asdict(place), "most": limit + 1}
    # One more than asked tells whether there is more.
    rows = reader.rows(FEED_SQL, params, needs=("gold.alert",))
    page = rows[:limit]
    if page:
        last = page[-1]
        # An empty page keeps its place, so that whoever asks again misses nothing.
        place = FeedCursor(last["sequence"], last["alert_id"], last["revision"])
    return models.FeedPage(
        items=[
            models.FeedItem(
                alert_id=row["alert_id"],
                revision=row["revision"],
                sequence=sequence_of(row["sequence"]),
                body=readable_body(row["body"]),
            )
            for row in page
        ],
        next=place.cursor(lake),
        more=len(rows) > limit,
    )


def newest_cursor(reader: Reader, lake: str) -> str:
    """The feed's cursor behind all that is there now."""
    rows = reader.rows("SELECT max(sequence) AS newest FROM gold.alert", needs=("gold.alert",))
    newest = rows[0]["newest"]
    return START if newest is None else FeedCursor(newest, BEHIND_ALL).cursor(lake)


def _alert(row: ReaderRow) -> models.AlertSummary:
    return models.AlertSummary(**_in_words(row))


def _in_words(row: ReaderRow) -> ReaderRow:
    """A row of the table in the words of the API, without its body.

    The table's `status` is of the attribution, and its `activity` what a revision did: beside the
    alert's own status they have names that cannot be taken for it. The former ones stay for a
    release.
    """
    hidden = ("entity_type", "entity_value", "body", "lifecycle")
    rest = {name: value for name, value in row.items() if name not in hidden}
    return rest | {
        "entity": models.Entity(type=row["entity_type"], value=row["entity_value"]),
        "alert_status": row["lifecycle"] if "lifecycle" in row else _alert_status(row["body"]),
        "attribution_status": row["status"],
        "change_type": row["activity"],
    }


def _alert_status(body: str) -> str:
    return alert_status(readable_body(body))
