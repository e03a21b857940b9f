"""Alerts as they are now, to be changed: the newest revision, and what waits behind it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from alerts.delivery.action_request import waiting_requests
from alerts.delivery.triage_request import (
    TRIAGE_ACTIONS,
    TriageState,
    in_words,
    still_waiting,
    triage_state,
)
from alerts.domain.alert_body import readable_body
from alerts.domain.short_ids import SHORTEST_ID, several_ids
from api.services.reader import Reader, ReaderRow
from api.services.visibility import last_alert_batch
from infra.config.settings import Settings
from infra.errors import Usage

DECIDED_AFTER = timedelta(minutes=2)
"""A batch of job `alert` that ends so long after a request has taken or refused it."""

_NEEDS = ("gold.alert", "gold.alert_action")
_NEWEST = """
SELECT alert_id, rule_id, revision, level, body FROM gold.alert
WHERE list_contains($ids, alert_id)
QUALIFY row_number() OVER (PARTITION BY alert_id ORDER BY revision DESC) = 1
"""
_ACTIONS = """
SELECT action_id, alert_id, action, value, comment, who, "at" FROM gold.alert_action
WHERE list_contains($ids, alert_id) AND list_contains($actions, action) ORDER BY "at", action_id
"""


class NoSuchAlert(Usage):
    """No alert has that id."""


@dataclass(frozen=True)
class AlertNow:
    """An alert, and the requests about it that its newest revision does not show yet."""

    alert_id: str
    rule_id: str
    revision: int
    level: str
    body: ReaderRow
    waiting: Sequence[Mapping[str, Any]]

    @property
    def etag(self) -> str:
        """Differs once a revision came, or somebody asked for something."""
        # Requests count, too: two people who close at once must not both have the same etag.
        behind = f".{len(self.waiting)}" if self.waiting else ""
        return f'"{self.revision}{behind}"'

    @property
    def state(self) -> TriageState:
        """Where people stand with it, what waits included."""
        return triage_state(self.body, self.waiting)


def whole_alert_id(reader: Reader, alert_id: str) -> str:
    """The id that begins so; raises `NoSuchAlert`, or `Usage` where it may be several."""
    rows = reader.rows(
        "SELECT DISTINCT alert_id FROM gold.alert WHERE alert_id = $id"
        " OR ($short AND starts_with(alert_id, $id))"
        " ORDER BY alert_id = $id DESC, alert_id LIMIT 4",
        {"id": alert_id, "short": len(alert_id) >= SHORTEST_ID},
        needs=("gold.alert",),
    )
    names = [str(row["alert_id"]) for row in rows]
    if not names:
        raise NoSuchAlert(f"no alert '{alert_id}'; list them with GET /api/v1/alerts")
    if names[0] != alert_id and len(names) > 1:
        raise several_ids("alert", alert_id, names)
    return names[0]


def alerts_now(reader: Reader, settings: Settings, ids: Iterable[str]) -> dict[str, AlertNow]:
    """These alerts as they are now, by whole id; those that are not there are left out."""
    wanted = list(dict.fromkeys(ids))
    # The files before the table: what a driver folds meanwhile is then seen twice, not missed.
    alone = wanted[0] if len(wanted) == 1 else None
    files = waiting_requests(settings, alone)
    actions = reader.rows(_ACTIONS, {"ids": wanted, "actions": list(TRIAGE_ACTIONS)}, needs=_NEEDS)
    by_alert: dict[str, list[Mapping[str, Any]]] = {}
    for request in [*files, *_undecided(settings, actions)]:
        by_alert.setdefault(request["alert_id"], []).append(request)
    rows = reader.rows(_NEWEST, {"ids": wanted}, needs=_NEEDS)
    alerts = {}
    for row in rows:
        body = readable_body(row["body"])
        # Requests that the revision shows already are left out; file and table may both have one.
        waiting = still_waiting(body, by_alert.get(row["alert_id"], ()))
        alerts[row["alert_id"]] = AlertNow(**(row | {"body": body}), waiting=waiting)
    return alerts


def alert_now(reader: Reader, settings: Settings, alert_id: str) -> AlertNow:
    """One alert by its id, or by the beginning of it."""
    name = whole_alert_id(reader, alert_id)
    return alerts_now(reader, settings, [name])[name]


def changed_since(reader: Reader, alert: AlertNow, etag: str) -> str:
    """Who changed an alert to what since it had `etag`, as a sentence."""
    # The part behind the dot counts requests; what changed is told by revisions.
    revision = int(etag.strip('"').partition(".")[0] or 0)
    known = reader.rows(
        "SELECT revision, reason, body FROM gold.alert WHERE alert_id = $id AND revision >= $since"
        " ORDER BY revision",
        {"id": alert.alert_id, "since": revision},
        needs=_NEEDS,
    )
    seen: ReaderRow = next(
        (readable_body(row["body"]) for row in known if row["revision"] == revision), {}
    )
    upto = seen.get("changed_at")
    actions = reader.rows(
        _ACTIONS, {"ids": [alert.alert_id], "actions": list(TRIAGE_ACTIONS)}, needs=_NEEDS
    )
    asked = still_waiting({"changed_at": upto}, [*alert.waiting, *actions])
    sentences = [
        f"{change['who']} {in_words(change)} at {_instant(change['at'])}" for change in asked[-3:]
    ]
    if not sentences:
        sentences = [
            f"job alert made revision {row['revision']} ({row['reason']})"
            for row in known
            if row["revision"] > revision
        ][-3:]
    return "; ".join(sentences) or "it has another revision"


def _undecided(settings: Settings, actions: Iterable[ReaderRow]) -> list[ReaderRow]:
    """Requests in the table that job `alert` may still have before it."""
    batch_at = last_alert_batch(settings)
    # Job `alert` has not run yet, so everything in the table is still before it.
    if batch_at is None:
        return list(actions)
    # A batch reads its input when it begins, and a request may come while it runs.
    limit = batch_at - DECIDED_AFTER.total_seconds()
    return [row for row in actions if row["at"].timestamp() > limit]


def _instant(asked: datetime | str) -> str:
    time = asked if isinstance(asked, datetime) else datetime.fromisoformat(asked)
    return time.strftime("%Y-%m-%dT%H:%M:%SZ")
