"""Suppressions: preview, begin, list, end; as the same requests that the command makes."""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from alerts.delivery.action_request import request_action, waiting_requests
from alerts.delivery.suppress_request import SuppressionWish, require_end, rule_pattern
from alerts.domain.alert_body import UNREADABLE, readable_body
from alerts.domain.entity import Entity, Holder
from alerts.domain.short_ids import id_begun_by
from alerts.domain.tenant_rows import TENANT
from alerts.lifecycle.alert_json import about_in
from alerts.lifecycle.suppression import ANY, SUPPRESS, UNSUPPRESS, Suppression
from api.services.reader import Reader
from api.services.visibility import visible
from api.wire import suppressions as wire
from api.wire.triage import Grouped
from infra.config.settings import Settings
from infra.config.time_args import time_of
from infra.errors import Usage

LOOKED_BACK = timedelta(days=30)
_NEVER = 2**62
SAMPLE = 10
Row = Mapping[str, Any]

_LISTED = """
SELECT s.suppression_id, s.rule, s.entity, s.fields, s.owner, s.reason, s.who, s.at, s.expires_at,
       s.ended_at, s.ended_by, count(a.alert_id) AS silenced
FROM gold.suppression s
LEFT JOIN gold.alert a ON a.suppressed_by = s.suppression_id AND a.revision = 1
GROUP BY ALL ORDER BY s.expires_at DESC, s.suppression_id
"""
_PAGE = 20_000
_ALERTS = f"""
SELECT alert_id, rule_id, level, window_start, received_at, suppressed_by, "count", body
FROM gold.alert_current
WHERE event_time >= $since AND event_time < $until AND ($exact IS NULL OR rule_id = $exact)
  AND alert_id > $after
ORDER BY alert_id LIMIT {_PAGE}
"""


class NoSuchSuppression(Usage):
    """No suppression has that id."""


class Suppressions:
    """Begins, lists and ends suppressions for callers by name."""

    def __init__(self, reader: Reader, settings: Settings) -> None:
        self._reader = reader
        self._settings = settings

    def preview(self, patterns: wire.SuppressionPatterns) -> wire.SuppressionPreview:
        """What the suppression would have hidden of the alerts of the last 30 days.

        By the same rule as job `alert` uses, over the newest finding of each alert.
        """
        scope = self._wish(patterns)
        until = datetime.now(UTC)
        # The end does not matter here: alerts of the past are asked, which arrived before it.
        silencer = Suppression(
            "", _NEVER, scope.rule_pattern, scope.entity or ANY, dict(scope.fields)
        )
        hidden: list[Row] = []
        already = checked = damaged = 0
        for row in self._alerts(until - LOOKED_BACK, until, silencer.rule):
            checked += 1
            covered = _covers(silencer, row, readable_body(row["body"]))
            damaged += covered is None
            if not covered:
                continue
            # Hidden by another one already; it would be no news.
            if row["suppressed_by"] is not None:
                already += 1
            else:
                hidden.append(row)
        return _preview(hidden, until, already, checked, damaged)

    def begin(self, who: str, new: wire.NewSuppression) -> wire.SuppressionTaken:
        """Ask job `alert` to silence what fits."""
        scope, now = self._wish(new), datetime.now(UTC)
        reason = new.reason.strip()
        if not reason:
            raise Usage("reason: say why")
        end = time_of("until", new.until, now)
        # Bounded in time: a suppression that nobody remembers hides alerts for good.
        require_end(end, now)
        asked = request_action(
            self._settings,
            SUPPRESS,
            uuid.uuid4().hex,
            scope.rule_pattern,
            who=who,
            # Somebody has to answer for it, so without an owner it is who asked.
            value=(new.owner or "").strip() or who,
            comment=reason,
            entity=scope.entity,
            fields=dict(scope.fields),
            expires_at=end,
        )
        return wire.SuppressionTaken(suppression=_waits(asked), visible=visible(self._settings))

    def list(self, *, over: bool = False) -> wire.SuppressionList:
        """Suppressions, the longest lasting first; `over`: also those that ended or expired."""
        # With what still waits: who has just asked for one must see it in the list.
        items = self._items().values()
        return wire.SuppressionList(
            items=[item for item in items if over or item.state in ("active", "waiting")]
        )

    def one(self, suppression_id: str) -> wire.SuppressionItem:
        """One by its id or the beginning of it; raises `NoSuchSuppression`."""
        items = self._items()
        name = id_begun_by("suppression", suppression_id, items)
        if name is None:
            raise NoSuchSuppression(
                f"no suppression '{suppression_id}'; list them with GET /api/v1/suppressions"
            )
        return items[name]

    def end(self, who: str, suppression_id: str, reason: str | None) -> wire.SuppressionTaken:
        """Ask job `alert` to end one before its time, found as by `one`."""
        item = self.one(suppression_id)
        if item.state not in ("active", "waiting"):
            raise Usage(f"suppression {item.suppression_id} is {item.state} already")
        asked = request_action(
            self._settings,
            UNSUPPRESS,
            item.suppression_id,
            item.rule,
            who=who,
            comment=(reason or "").strip() or None,
        )
        ended = item.model_copy(
            update={"state": "ended", "ended_by": who, "ended_at": _time(asked["at"])}
        )
        return wire.SuppressionTaken(suppression=ended, visible=visible(self._settings))

    def _wish(self, patterns: wire.SuppressionPatterns) -> SuppressionWish:
        scope = SuppressionWish(
            rule=rule_pattern(self._settings, (patterns.rule or "").strip() or None),
            entity=(patterns.entity or "").strip() or None,
            fields={name: text for name, text in patterns.fields.items() if name and text},
        )
        if len(scope.fields) < len(patterns.fields):
            raise Usage("fields: each wants a name and a pattern, such as user.name: svc-*")
        scope.require_narrow()
        return scope

    def _alerts(self, since: datetime, until: datetime, rule: str) -> Iterator[Row]:
        """Alerts with an event in that time, in pages: their bodies are large."""
        # An id lets DuckDB pass over other rules' alerts; a pattern has to be tried on each.
        exact = rule if self._is_rule_id(rule) else None
        after = ""
        while True:
            rows = self._reader.rows(
                _ALERTS,
                {"since": since, "until": until, "exact": exact, "after": after},
                needs=("gold.alert", "gold.alert_current"),
            )
            yield from rows
            if len(rows) < _PAGE:
                return
            # By the last id and not by OFFSET, which would read all earlier pages again.
            after = rows[-1]["alert_id"]

    def _is_rule_id(self, rule: str) -> bool:
        rows = self._reader.rows(
            "SELECT 1 AS known FROM gold.alert WHERE rule_id = $rule LIMIT 1",
            {"rule": rule},
            needs=("gold.alert",),
        )
        return bool(rows)

    def _items(self) -> dict[str, wire.SuppressionItem]:
        now = datetime.now(UTC)
        # The files before the table: what a driver folds meanwhile is then seen twice, not missed.
        files = waiting_requests(self._settings)
        rows = self._reader.rows(
            _LISTED, needs=("gold.suppression", "gold.alert", "gold.alert_action")
        )
        waiting = {row["alert_id"]: _waits(row) for row in files if row["action"] == SUPPRESS}
        # The table wins: what it has is in force, the file is only a wish.
        items = waiting | {row["suppression_id"]: _item(row, now) for row in rows}
        for row in files:
            item = items.get(row["alert_id"])
            # Shown as ended from the moment somebody asked, as the caller was told.
            if row["action"] == UNSUPPRESS and item is not None and item.ended_at is None:
                items[row["alert_id"]] = item.model_copy(
                    update={"state": "ended", "ended_by": row["who"], "ended_at": _time(row["at"])}
                )
        return items


def _covers(silencer: Suppression, row: Row, body: Row) -> bool | None:
    """Whether an alert would be hidden; None: its body is damaged, or lacks what tells it."""
    if UNREADABLE in body:
        return None
    try:
        about = about_in(body)
        entity = Entity(body["entity"]["type"], body["entity"]["value"], "")
        # The published body nests the former holder; the struct does not know it.
        nested = {name: value for name, value in body["attribution"].items() if name != "previous"}
        holder = msgspec.convert(nested, Holder)
    except (LookupError, TypeError, AttributeError, msgspec.ValidationError):
        return None
    finding = {
        **msgspec.structs.asdict(about),
        "rule_id": row["rule_id"],
        "received_at": row["received_at"],
        # As the findings have it, which job `alert` asks.
        TENANT: body.get(TENANT),
    }
    return silencer.covers(finding, entity, holder)


def _preview(
    hidden: list[Row], until: datetime, already: int, checked: int, damaged: int
) -> wire.SuppressionPreview:
    bodies = [readable_body(row["body"]) for row in hidden]
    days = Counter(f"{row['window_start']:%Y-%m-%d}" for row in hidden)
    newest = sorted(hidden, key=lambda row: (row["window_start"], row["alert_id"]), reverse=True)
    return wire.SuppressionPreview(
        since=until - LOOKED_BACK,
        until=until,
        alerts=len(hidden),
        findings=sum(int(row["count"]) for row in hidden),
        hidden_already=already,
        true_positives=sum(body.get("verdict") == "true_positive" for body in bodies),
        checked=checked,
        damaged=damaged,
        by_level=_most(str(row["level"]) for row in hidden),
        by_rule=_most(str(body["rule"]["name"]) for body in bodies),
        by_entity=_most(str(body["entity"]["value"]) for body in bodies),
        by_day=[Grouped(value=day, alerts=count) for day, count in sorted(days.items())],
        sample=[str(row["alert_id"]) for row in newest[:SAMPLE]],
    )


def _most(values: Iterable[str]) -> list[Grouped]:
    return [Grouped(value=value, alerts=n) for value, n in Counter(values).most_common(10)]


def _item(row: Row, now: datetime) -> wire.SuppressionItem:
    over = "expired" if row["expires_at"] <= now else "active"
    return wire.SuppressionItem(
        **{name: row[name] for name in ("suppression_id", "rule", "entity", "owner", "reason")},
        **{name: row[name] for name in ("who", "expires_at", "ended_at", "ended_by", "silenced")},
        state="ended" if row["ended_at"] else over,
        fields=dict(row["fields"] or {}),
        asked_at=row["at"],
    )


def _waits(row: Row) -> wire.SuppressionItem:
    """A request that no driver has taken, as it is listed."""
    return wire.SuppressionItem(
        suppression_id=row["alert_id"],
        state="waiting",
        rule=row["rule_id"],
        entity=row.get("entity"),
        fields=row.get("fields") or {},
        owner=row.get("value"),
        reason=row.get("comment"),
        who=row["who"],
        asked_at=_time(row["at"]),
        expires_at=_time(row["expires_at"]),
        ended_at=None,
        ended_by=None,
        silenced=0,
    )


def _time(asked: str | datetime) -> datetime:
    return asked if isinstance(asked, datetime) else datetime.fromisoformat(asked)
