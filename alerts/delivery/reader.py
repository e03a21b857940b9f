"""Alerts as people read them: from gold.alert, without Spark.

A close is a request: it waits as a file until the driver folds it into
gold.alert_action, and job `alert` makes it a revision.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from alerts.delivery.action_request import request_action
from alerts.delivery.alert_id import ALERTS_NEED, alert_id_of
from alerts.domain.alert_body import damage, in_body, readable_body, require_whole
from infra.config.settings import Settings
from infra.delta.duckdb_views import AskedViews
from infra.errors import Usage

_Row = dict[str, Any]
_Ask = Callable[[str, dict[str, Any]], list[_Row]]

REMEMBERED = timedelta(hours=1)
"""Job `alert` knows an alert for longer than that after its newest revision."""

_LISTED = f"""
SELECT event_time, level, activity, status, entity_type, entity_value, title, "count", revision,
       rule_id, alert_id, body
FROM gold.alert_current
WHERE ($levels IS NULL OR list_contains($levels, level))
  AND ($since IS NULL OR event_time >= $since)
  AND ($muted OR suppressed_by IS NULL)
  AND ($rule IS NULL OR rule_id = $rule)
  AND ($entity IS NULL OR lower(entity_value) = lower($entity) OR src_ip = $entity
       OR list_contains(list_transform({in_body("entities[*].value")},
                                       value -> lower(value)), lower($entity)))
ORDER BY event_time DESC, alert_id LIMIT $most
"""
_NEWEST = "SELECT alert_id, rule_id, body FROM gold.alert_current WHERE alert_id = $id"
_REVISIONS = """
SELECT revision, activity, reason, event_time, entity_type, entity_value, previous_entity, status,
       "count"
FROM gold.alert WHERE alert_id = $id ORDER BY revision
"""


@dataclass(frozen=True)
class Wanted:
    """Which alerts to list; an empty field wants all. `entity` is whom they name, `rule` an id.

    `muted`: also those that a suppression or a budget keeps from the topic.
    """

    levels: tuple[str, ...] = ()
    since: datetime | None = None
    entity: str | None = None
    limit: int = 50
    muted: bool = False
    rule: str | None = None


@dataclass(frozen=True)
class Detail:
    """One alert: the body of its newest revision as published, and all revisions in short."""

    alert_id: str
    rule_id: str
    body: _Row
    revisions: list[_Row]

    @property
    def damage(self) -> str | None:
        """What to tell of a body that is damaged; None: it is whole."""
        return damage(self.body, self.alert_id, self.revisions[-1]["revision"])


def newest_revisions(settings: Settings, wanted: Wanted) -> tuple[list[_Row], bool]:
    """Alerts in their newest revision, newest event first, and whether there are more."""
    params = {
        "levels": list(wanted.levels) or None,
        "since": wanted.since,
        "entity": wanted.entity,
        "muted": wanted.muted,
        "rule": wanted.rule,
        # One more than asked tells whether there are more.
        "most": wanted.limit + 1,
    }
    with _asking(settings) as ask:
        answer = ask(_LISTED, params)
    return [_short(row) for row in answer[: wanted.limit]], len(answer) > wanted.limit


def detail(settings: Settings, alert_id: str) -> Detail:
    """One alert by its id or by the first characters of it; raises `Usage` unless it is one."""
    return details(settings, (alert_id,))[0]


def details(settings: Settings, alert_ids: Iterable[str]) -> list[Detail]:
    """Several of them, each once, in the order in which they are named first."""
    with _asking(settings) as ask:
        names = dict.fromkeys(alert_id_of(ask, alert_id) for alert_id in alert_ids)
        return [_detail(ask, name) for name in names]


def whole_details(settings: Settings, alert_ids: Iterable[str]) -> list[Detail]:
    """The same, to be changed or passed on: raises `DamagedAlert` where a body is damaged."""
    alerts = details(settings, alert_ids)
    for alert in alerts:
        require_whole(alert.body, alert.alert_id, alert.revisions[-1]["revision"])
    return alerts


def _detail(ask: _Ask, alert_id: str) -> Detail:
    (newest_row,) = ask(_NEWEST, {"id": alert_id})
    return Detail(
        alert_id=newest_row["alert_id"],
        rule_id=newest_row["rule_id"],
        body=readable_body(newest_row["body"]),
        revisions=[_plain(row) for row in ask(_REVISIONS, {"id": alert_id})],
    )


def close(
    settings: Settings, alert_ids: Iterable[str], verdict: str | None, comment: str | None
) -> list[_Row]:
    """Ask that alerts be closed, all or none; returns the requests, rows of gold.alert_action.

    Raises `Usage` for an alert that is not known, or closed already.
    """
    alerts = whole_details(settings, alert_ids)
    for alert in alerts:
        if alert.body.get("state") == "closed":
            why = _why_closed(alert.body)
            raise Usage(f"alert {alert.alert_id} is closed already ({why}); nothing was asked")
    return [ask_about(settings, "close", each, value=verdict, comment=comment) for each in alerts]


def ask_about(
    settings: Settings, action: str, detail: Detail, *, value: str | None, comment: str | None
) -> _Row:
    """Ask something of an alert, also of one that job `alert` may have forgotten."""
    instant = datetime.fromisoformat(detail.body["detected_at"])
    old = datetime.now(UTC) - instant > REMEMBERED
    # The job may have forgotten it; with its body the state can take it back.
    alert: _Row = {"alert": msgspec.json.encode(detail.body).decode()} if old else {}
    return request_action(
        settings, action, detail.alert_id, detail.rule_id, value=value, comment=comment, **alert
    )


@contextmanager
def _asking(settings: Settings) -> Iterator[_Ask]:
    """Questions about alerts, by one connection: to open it takes longer than to answer."""
    with AskedViews(settings.lake_root, needs=ALERTS_NEED) as views:
        yield views.rows


def _short(row: _Row) -> _Row:
    """A listed alert: its own columns, and its state from the body."""
    body = readable_body(row.pop("body"))
    plain = _plain(row)
    alert_id = plain.pop("alert_id")
    return {**plain, "state": body.get("state"), "alert_id": alert_id}


def _plain(row: _Row) -> _Row:
    """Times as RFC 3339 in UTC, so that every output format can print them."""
    return {
        name: value.astimezone(UTC).isoformat().replace("+00:00", "Z")
        if isinstance(value, datetime)
        else value
        for name, value in row.items()
    }


def _why_closed(body: _Row) -> str:
    if body.get("superseded_by"):
        return f"superseded by {body['superseded_by']}"
    if body["reason"] == "attribution":
        return "its findings turned out to be of several devices"
    return f"verdict: {body.get('verdict') or 'none given'}"
