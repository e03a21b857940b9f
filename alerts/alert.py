"""Findings -> alerts with revisions: the fold of one rule, a pure state machine.

An alert's id never changes. Repeats of a rule for one entity inside the dedup
window count on the alert that the first one made; when an address turns out to
have been another device's, the alert is revised, or closed in favour of the one
that the device has already.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from alerts.entity import Entity, Holder, entity_of, fields_of, holder_of, micros
from alerts.finding import identity
from infra.settings import AlertSettings

MAX_REFS = 1_000
"""Findings remembered by an alert, for corrections; beyond them it only counts."""

EVIDENCE = 10
EXPIRES = 24 * 3600 * 1_000_000
"""An alert without activity for that long, microseconds, leaves the state."""

RANK = ("count", "verdict", "assigned", "reopened", "attribution", "superseded", "closed", "first")
"""Reasons for a revision; of several in one batch the last in this list is named."""


class Ref(msgspec.Struct):
    """A finding that counts on an alert, with the attribution it came with."""

    finding_id: str
    rev: int
    entity_key: str
    time: int
    total: int


class Evidence(msgspec.Struct):
    """One event an alert rests on."""

    finding_id: str
    event_uid: str
    time: int
    snippet: str


class About(msgspec.Struct):
    """What the newest finding says of itself."""

    rule_version: str
    rule_title: str
    level: str
    pack: str
    kind: str
    mode: str
    source: str
    role: str
    scope: str | None
    ip: str | None
    host_name: str | None
    user_name: str | None
    dst_ip: str | None
    snippet: str
    fields: dict[str, str]


class Alert(msgspec.Struct, kw_only=True):
    """An alert as the state keeps it; times are microseconds."""

    alert_id: str
    rule_id: str
    entity_type: str
    entity_value: str
    entity_key: str
    first: int
    last: int
    window_start: int
    received: int
    about: About
    holder: Holder | None
    revision: int = 0
    count: int = 0
    total: int = 0
    refs: dict[str, Ref] = {}
    evidence: list[Evidence] = []
    state: str = "open"
    closed_at: int | None = None
    assignee: str | None = None
    verdict: str | None = None
    comment: str | None = None
    superseded_by: str | None = None
    previous: Holder | None = None
    previous_entity: str | None = None
    pending: bool = False
    told_at: int = 0
    touched: int = 0


class FoldState(msgspec.Struct):
    """All alerts that one rule still remembers, by id."""

    alerts: dict[str, Alert] = {}


@dataclass(frozen=True)
class Revised:
    """An alert that gets a revision now, and why."""

    alert: Alert
    activity: str
    reason: str


@dataclass
class _Batch:
    clock: int
    why: dict[str, str] = field(default_factory=dict)

    def note(self, alert: Alert, reason: str) -> None:
        alert.touched = max(alert.touched, self.clock)
        known = self.why.get(alert.alert_id)
        if known is None or RANK.index(reason) > RANK.index(known):
            self.why[alert.alert_id] = reason


class Fold:
    """The alerts of one rule; `apply` takes a batch of rows and gives at most one revision each."""

    def __init__(self, state: FoldState, settings: AlertSettings) -> None:
        self.state = state
        self.settings = settings
        self._of = {ref: alert for alert in state.alerts.values() for ref in alert.refs}
        self._by_key: dict[str, list[Alert]] = {}
        for alert in state.alerts.values():
            self._by_key.setdefault(alert.entity_key, []).append(alert)

    def apply(
        self,
        findings: Sequence[Mapping[str, Any]],
        actions: Iterable[Mapping[str, Any]],
        clock: int,
    ) -> tuple[list[Revised], list[Mapping[str, Any]]]:
        """(revisions, actions that concern no alert we remember).

        `findings` are attributed findings in time order, each at most once. `clock`
        is how far the stream has come, microseconds.
        """
        batch = _Batch(clock)
        moves: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
        fresh = []
        for row in findings:
            known = self._of.get(row["finding_id"])
            if known is None:
                fresh.append(row)
            elif _rev(row) > known.refs[row["finding_id"]].rev:
                self._again(known, row, moves)
        # Corrections first: what is new then counts on the alert of the right device.
        for (alert_id, _), rows in sorted(moves.items()):
            self._move(self.state.alerts[alert_id], rows, batch)
        for row in fresh:
            if row["alerting"]:
                self._fold(row, batch)
        unknown = [action for action in actions if not self._act(action, batch)]
        return self._revisions(batch), unknown

    def _again(
        self,
        alert: Alert,
        row: Mapping[str, Any],
        moves: dict[tuple[str, str], list[Mapping[str, Any]]],
    ) -> None:
        """A known finding with a newer attribution."""
        ref = alert.refs[row["finding_id"]]
        holder = holder_of(row)
        entity = entity_of(row, holder)
        if entity.key != ref.entity_key:
            moves.setdefault((alert.alert_id, entity.key), []).append(row)
            return
        ref.rev = _rev(row)
        if ref.time == alert.last:
            alert.holder = holder

    def _fold(self, row: Mapping[str, Any], batch: _Batch) -> Alert:
        """Count the finding on its entity's open alert, or make one."""
        holder = holder_of(row)
        entity = entity_of(row, holder)
        alert = self._open(entity.key, micros(row["event_time"]))
        if alert is None:
            alert = self._create(row, entity, holder)
            batch.note(alert, "first")
        else:
            batch.note(alert, "count")
            alert.pending = True
        self._add(alert, row, entity, holder)
        return alert

    def _open(self, key: str, time: int, but: str = "") -> Alert | None:
        """The alert of an entity on which a finding at `time` counts."""
        span = self.settings.dedup_seconds * 1_000_000
        fitting = [
            a
            for a in self._by_key.get(key, ())
            if a.alert_id != but
            and (a.closed_at is None or (time <= a.closed_at and a.superseded_by is None))
            and max(a.last, time) - min(a.first, time) <= span
        ]
        return min(fitting, key=lambda a: (a.first, a.alert_id), default=None)

    def _create(self, row: Mapping[str, Any], entity: Entity, holder: Holder | None) -> Alert:
        time = micros(row["event_time"])
        alert_id = identity(self.settings.tenant, row["rule_id"], row["event_uid"])
        if alert_id in self.state.alerts:
            # The finding moved here from the alert that it once made and that others still hold.
            alert_id = identity(self.settings.tenant, row["rule_id"], row["event_uid"], entity.key)
        alert = Alert(
            alert_id=alert_id,
            rule_id=row["rule_id"],
            entity_type=entity.type,
            entity_value=entity.value,
            entity_key=entity.key,
            first=time,
            last=time,
            window_start=time,
            received=micros(row["received_at"]),
            about=_about(row),
            holder=holder,
            refs={},
            evidence=[],
        )
        self.state.alerts[alert_id] = alert
        self._by_key.setdefault(entity.key, []).append(alert)
        return alert

    def _add(
        self, alert: Alert, row: Mapping[str, Any], entity: Entity, holder: Holder | None
    ) -> None:
        time = micros(row["event_time"])
        total = int(row.get("evidence_total") or 1)
        alert.count += 1
        alert.total += total
        if len(alert.refs) < MAX_REFS:
            ref = Ref(row["finding_id"], _rev(row), entity.key, time, total)
            alert.refs[ref.finding_id] = ref
            self._of[ref.finding_id] = alert
        if time >= alert.last:
            alert.about, alert.holder = _about(row), holder
        alert.first = min(alert.first, time)
        alert.last = max(alert.last, time)
        alert.window_start = min(alert.window_start, micros(row.get("window_start") or time))
        alert.received = max(alert.received, micros(row["received_at"]))
        alert.evidence = _kept([*alert.evidence, *_evidence(row)])

    def _move(self, alert: Alert, rows: Sequence[Mapping[str, Any]], batch: _Batch) -> None:
        """Some or all of an alert's findings belong to another entity."""
        moved = {row["finding_id"] for row in rows}
        holder = holder_of(rows[-1])
        entity = entity_of(rows[-1], holder)
        other = self._open(entity.key, alert.first, but=alert.alert_id)
        if moved >= set(alert.refs) and other is None:
            self._rename(alert, rows, entity, holder)
            batch.note(alert, "attribution")
            return
        self._take_out(alert, moved)
        if alert.refs:
            batch.note(alert, "attribution")
        for row in rows:
            self._of.pop(row["finding_id"], None)
            target = self._fold(row, batch)
            batch.note(target, "attribution")
        if not alert.refs:
            alert.state, alert.closed_at, alert.superseded_by = (
                "closed",
                alert.last,
                target.alert_id,
            )
            alert.previous_entity, alert.previous = alert.entity_value, alert.holder
            batch.note(alert, "superseded")

    def _rename(
        self,
        alert: Alert,
        rows: Sequence[Mapping[str, Any]],
        entity: Entity,
        holder: Holder | None,
    ) -> None:
        """The whole alert is another entity's: same id, old and new holder side by side."""
        alert.previous, alert.previous_entity = alert.holder, alert.entity_value
        self._by_key[alert.entity_key].remove(alert)
        self._by_key.setdefault(entity.key, []).append(alert)
        alert.entity_type, alert.entity_value, alert.entity_key = entity
        alert.holder = holder
        for row in rows:
            ref = alert.refs[row["finding_id"]]
            ref.rev, ref.entity_key = _rev(row), entity.key

    def _take_out(self, alert: Alert, moved: set[str]) -> None:
        """Findings leave; an alert that none is left of keeps its figures for its last word."""
        gone = [alert.refs.pop(finding_id) for finding_id in sorted(moved)]
        if not alert.refs:
            return
        alert.count -= len(gone)
        alert.total -= sum(ref.total for ref in gone)
        alert.evidence = [e for e in alert.evidence if e.finding_id not in moved]
        if any(ref.time == alert.last for ref in gone):
            # What the newest one said may be about the other device: say less rather than that.
            told = alert.evidence[-1].snippet if alert.evidence else ""
            alert.about = msgspec.structs.replace(
                alert.about, snippet=told, user_name=None, dst_ip=None, fields={}
            )
        if alert.count == len(alert.refs):
            alert.first = min(ref.time for ref in alert.refs.values())
            alert.last = max(ref.time for ref in alert.refs.values())

    def _act(self, action: Mapping[str, Any], batch: _Batch) -> bool:
        alert = self.state.alerts.get(action["alert_id"])
        if alert is None:
            return False
        kind, value = action["action"], action.get("value")
        if kind == "close":
            alert.state, alert.closed_at = "closed", micros(action["at"])
            alert.verdict = value or alert.verdict
        elif kind == "reopen":
            alert.state, alert.closed_at, alert.superseded_by = "open", None, None
        elif kind == "assign":
            alert.assignee = value
        elif kind == "verdict":
            alert.verdict = value
        else:
            return False
        alert.comment = action.get("comment") or alert.comment
        reasons = {"close": "closed", "reopen": "reopened", "assign": "assigned"}
        batch.note(alert, reasons.get(kind, "verdict"))
        return True

    def _revisions(self, batch: _Batch) -> list[Revised]:
        """At most one revision an alert; what only counted waits for `count_every_seconds`."""
        wait = self.settings.count_every_seconds * 1_000_000
        out = []
        for alert in sorted(self.state.alerts.values(), key=lambda a: (a.first, a.alert_id)):
            reason = batch.why.get(alert.alert_id)
            if alert.revision == 0 and reason == "superseded":
                del self.state.alerts[alert.alert_id]
                continue
            if reason in (None, "count"):
                if not alert.pending or batch.clock - alert.told_at < wait:
                    continue
                reason = "count"
            alert.revision += 1
            alert.pending, alert.told_at = False, batch.clock
            closes = reason in ("closed", "superseded")
            activity = "create" if alert.revision == 1 else "close" if closes else "update"
            out.append(Revised(alert, activity, str(reason)))
        return out


def forget_alerts(state: FoldState, clock: int) -> None:
    """Drop alerts without activity for a day, unless they have a count still to tell."""
    for alert in list(state.alerts.values()):
        if clock - alert.touched > EXPIRES and not alert.pending:
            del state.alerts[alert.alert_id]


def _rev(row: Mapping[str, Any]) -> int:
    rev = row.get("attr_rev")
    return -1 if rev is None else int(rev)


def _about(row: Mapping[str, Any]) -> About:
    named = {name: row.get(name) for name in About.__struct_fields__}
    return msgspec.convert(
        named | {"fields": fields_of(row), "snippet": row.get("snippet") or ""}, About
    )


def _evidence(row: Mapping[str, Any]) -> list[Evidence]:
    """The finding's own evidence (a correlation), else the event it is about."""
    own = row.get("evidence") or [
        {"event_uid": row["event_uid"], "time": row["event_time"], "snippet": row.get("snippet")}
    ]
    return [
        Evidence(row["finding_id"], e["event_uid"], micros(e["time"]), e["snippet"] or "")
        for e in own
    ]


def _kept(evidence: Sequence[Evidence]) -> list[Evidence]:
    """At most ten, each event once, by time: the first and the last five."""
    once = {e.event_uid: e for e in evidence}
    ordered = sorted(once.values(), key=lambda e: (e.time, e.event_uid))
    if len(ordered) <= EVIDENCE:
        return ordered
    return [*ordered[: EVIDENCE // 2], *ordered[-(EVIDENCE // 2) :]]
