"""All that a page about one alert shows: its revisions, who held the address, what is like it."""

from __future__ import annotations

from datetime import datetime, timedelta

from alerts.domain.alert_body import in_body, readable_body
from api.services.console.lease_spans import LeaseSpan, lease_spans
from api.services.reader import Reader, ReaderRow

_NEEDS = ("gold.alert", "gold.alert_current")
LEAST_AROUND = timedelta(minutes=2)
MOST_AROUND = timedelta(days=1)
SIMILAR = 8

_REVISIONS = """
SELECT alert_id, revision, activity, reason, event_time, received_at, entity_type, entity_value,
       previous_entity, status, count, body, suppressed_by, batch, rule_id, rule_name, title, level,
       risk_score, window_start, window_end
FROM gold.alert WHERE alert_id = $id ORDER BY revision
"""
_SIMILAR = f"""
SELECT alert_id, title, level, entity_type, entity_value, event_time, count,
       coalesce({in_body("lifecycle")}, 'new') AS lifecycle, {in_body("verdict")} AS verdict,
       rule_id = $rule AND entity_value = $entity AS same_both
FROM gold.alert_current
WHERE alert_id <> $id AND (rule_id = $rule OR entity_value = $entity)
ORDER BY same_both DESC, event_time DESC LIMIT $most
"""
_VERDICTS = f"""
SELECT coalesce({in_body("verdict")}, '') AS verdict, count(*) AS n
FROM gold.alert_current WHERE rule_id = $rule AND alert_id <> $id GROUP BY ALL ORDER BY n DESC
"""
_ACTIONS = """
SELECT action, value, comment, who, "at" FROM gold.alert_action
WHERE alert_id = $id ORDER BY "at"
"""


def revisions(reader: Reader, alert_id: str) -> list[ReaderRow]:
    """All revisions, oldest first, each with its body read; none: there is no such alert."""
    rows = reader.rows(_REVISIONS, {"id": alert_id}, needs=_NEEDS)
    return [row | {"body": readable_body(row["body"])} for row in rows]


def similar(reader: Reader, alert_id: str, rule_id: str, entity: str) -> list[ReaderRow]:
    """Other alerts of the same rule or entity, those of both first."""
    asked = {"id": alert_id, "rule": rule_id, "entity": entity, "most": SIMILAR}
    return reader.rows(_SIMILAR, asked, needs=_NEEDS)


def verdicts(reader: Reader, alert_id: str, rule_id: str) -> dict[str, int]:
    """How people judged the rule's other alerts; '' has none yet."""
    rows = reader.rows(_VERDICTS, {"id": alert_id, "rule": rule_id}, needs=_NEEDS)
    return {row["verdict"]: row["n"] for row in rows}


def actions(reader: Reader, alert_id: str) -> list[ReaderRow]:
    """What people did to it, oldest first."""
    return reader.rows(_ACTIONS, {"id": alert_id}, needs=("gold.alert_action",))


def leases_around(
    reader: Reader, body: ReaderRow
) -> tuple[datetime, datetime, list[LeaseSpan], datetime | None]:
    """Who held the alert's address around its events: from, to, and the spans; as known now.

    Wide enough that the nearest change of hands on either side is in it, where there is one. Last
    the instant between them from which on too much is said of it to be read; None: all is.
    """
    first, last = body_time(body["window_start"]), body_time(body["window_end"])
    proof = body.get("attribution") or {}
    # Widest first: the nearest change of hands decides how much of it is shown.
    since, until = first - MOST_AROUND, last + MOST_AROUND
    address, scope = proof.get("ip"), proof.get("scope")
    spans: list[LeaseSpan] = []
    cut = None
    if address:
        spans, cut = lease_spans(reader, ip=address, since=since, until=until)
        # Without a known site all are shown: a wrong guess would hide the right one.
        spans = [span for span in spans if scope in (None, span.scope)]
    changes = {edge for span in spans for edge in (span.start, span.end)}
    before = [first - edge for edge in changes if edge <= first]
    after = [edge - last for edge in changes if edge >= last]
    nearest = [min(each) for each in (before, after) if each]
    # Twice as far as the nearest change: it stands well inside the picture.
    around = min(max(2 * max(nearest, default=MOST_AROUND), LEAST_AROUND), MOST_AROUND)
    since, until = first - around, last + around
    within = [s for s in spans if s.start < until and s.end > since]
    return since, until, within, cut if cut and cut < until else None


def body_time(text: str) -> datetime:
    """A time of an alert's body."""
    return datetime.fromisoformat(text)
