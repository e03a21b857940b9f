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

from alerts.domain.alert import (
    MAX_REFS,
    Alert,
    FoldState,
    Ref,
    Revised,
    about_of,
    evidence_of,
    new_alert,
    rev_of,
    sampled,
)
from alerts.domain.entity import Entity, Holder, entity_of, holder_of, key_of, micros
from alerts.domain.finding import DISPROVED, counts, identity
from alerts.domain.rate_limit import HELD_BACK, limit_of
from alerts.lifecycle.alert_changes import by_publication, hand_over, show_finding, summarise_storm
from alerts.lifecycle.republish_guard import RepublishQuestion, guard_key, nothing_published
from alerts.lifecycle.risk_score import INCIDENT
from alerts.lifecycle.suppression import Suppression, covering
from alerts.preliminary.answer import answer_of, is_told_early, preliminary_id
from infra.config.settings import AlertSettings

RANK = ("count", "verdict", "assigned", "reopened", "attribution", "superseded", "closed", "first")
"""Reasons for a revision; of several in one batch the last in this list is named."""


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

    def __init__(
        self,
        state: FoldState,
        settings: AlertSettings,
        suppressions: Iterable[Suppression] = (),
        incidents: Mapping[str, str] | None = None,
        published: RepublishQuestion = nothing_published,
    ) -> None:
        """`incidents`: the incident that is open for an entity, by the entity's key. `published`:
        what consumers had of an alert before the lake was restored."""
        self.state = state
        self.settings = settings
        self._suppressions = tuple(suppressions)
        self._incidents = incidents or {}
        self._published = published
        self.answers: list[dict[str, Any]] = []
        """What the last `apply` answered to preliminary alerts."""
        # Both indexes follow from the state, so they are built anew and not encoded with it.
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
        # By alert and new owner: findings that go the same way stay together on one alert.
        moves: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
        fresh = []
        for row in findings:
            known = self._of.get(row["finding_id"])
            if known is None:
                fresh.append(row)
            # A finding comes once for each lease that is known; only a newer word changes anything.
            elif rev_of(row) <= known.refs[row["finding_id"]].rev:
                continue
            elif counts(row):
                self._again(known, row, moves, batch)
            else:
                self._disprove(known, row, batch)
        # Corrections first: what is new then counts on the alert of the right device.
        # Sorted, since a retry of the batch must give the same revisions under the same numbers.
        for (alert_id, _), rows in sorted(moves.items()):
            self._move(self.state.alerts[alert_id], rows, batch)
        to_answer: list[tuple[Mapping[str, Any], Alert | None]] = []
        for row in fresh:
            # Corrections were looked at above whatever their level; only an alerting rule opens an
            # alert.
            alert = self._fold(row, batch) if row["alerting"] and counts(row) else None
            if is_told_early(row):
                to_answer.append((row, alert))
        unknown = [action for action in actions if not self._act(action, batch)]
        revisions = self._revisions(batch)
        # Behind them: an answer names the revision that tells of the finding.
        self.answers = [answer_of(row, alert, self.settings.tenant) for row, alert in to_answer]
        return revisions, unknown

    def _again(
        self,
        alert: Alert,
        row: Mapping[str, Any],
        moves: dict[tuple[str, str], list[Mapping[str, Any]]],
        batch: _Batch,
    ) -> None:
        """A known finding with a newer attribution."""
        ref = alert.refs[row["finding_id"]]
        holder = holder_of(row)
        entity = entity_of(row, holder)
        if entity.key != ref.entity_key:
            moves.setdefault((alert.alert_id, entity.key), []).append(row)
            return
        ref.rev = rev_of(row)
        # The alert shows the holder of its newest finding.
        if ref.time == alert.last:
            alert.holder = holder
        if show_finding(alert, row):
            batch.note(alert, "attribution")

    def _disprove(self, alert: Alert, row: Mapping[str, Any], batch: _Batch) -> None:
        """A finding counts no more; an alert of which nothing is left ends."""
        del self._of[row["finding_id"]]
        self._take_out(alert, {row["finding_id"]})
        if not alert.refs:
            # Closed at event time: the wall clock would differ when the batch is tried again.
            alert.state, alert.closed_at, alert.disproved = "closed", alert.last, True
            # A disproved finding says nothing of the holder, so the one that was shown stays.
            if row.get("via") != DISPROVED:
                alert.previous, alert.previous_entity = alert.holder, alert.entity_value
                alert.holder = holder_of(row)
        batch.note(alert, "attribution")

    def _silencer(
        self, row: Mapping[str, Any], entity: Entity, holder: Holder | None
    ) -> str | None:
        return covering(self._suppressions, row, entity, holder)

    def _fold(self, row: Mapping[str, Any], batch: _Batch) -> Alert:
        """Count the finding on its entity's open alert, or make one."""
        holder = holder_of(row)
        entity = entity_of(row, holder)
        silencer = self._silencer(row, entity, holder)
        alert = self._open(entity.key, micros(row["event_time"]), silenced=silencer is not None)
        if alert is None:
            alert = self._create(row, entity, holder)
            batch.note(alert, "first")
            self._add(alert, row, entity, holder)
            self._keep_back(alert, silencer, batch)
            return alert
        batch.note(alert, "count")
        # Only marked: a revision for each repeat would flood the topic (`count_every_seconds`).
        alert.pending = True
        self._add(alert, row, entity, holder)
        return alert

    def _keep_back(self, alert: Alert, silencer: str | None, batch: _Batch) -> None:
        """Keep a new alert from the topic when it is silenced, or beyond its rule's budget."""
        if silencer is not None:
            alert.suppressed_by = silencer
            return
        budget = self.state.budget_of(alert.tenant_uid)
        limit = limit_of(alert.rule_id, self.settings)
        # By the stream's clock: by the wall's a batch that is tried again would hold back other
        # alerts.
        if budget.take(limit, batch.clock):
            return
        # It is recorded like any other alert; only the topic does not get it.
        alert.suppressed_by = HELD_BACK
        summary = self.state.alerts.get(budget.summary or "")
        # One summary a storm, not one an alert that is held back.
        if budget.hold(batch.clock) or summary is None:
            summary = self._begin_summary(alert)
            budget.summary, budget.held = summary.alert_id, 1
            batch.note(summary, "first")
        else:
            summary.pending = True
            batch.note(summary, "count")
        summarise_storm(summary, alert, budget.held, limit)

    def _begin_summary(self, held: Alert) -> Alert:
        """The alert that tells of a rule's storm; it begins with the first one held back."""
        summary = msgspec.structs.replace(
            held,
            # Made from the alert that began the storm: a retry then makes the same id.
            alert_id=identity(self.settings.tenant, held.rule_id, HELD_BACK, held.alert_id),
            entity_type="rule",
            entity_value=held.rule_id,
            # A key that no entity has, so no finding is ever folded on the summary.
            entity_key=key_of(held.tenant_uid, f"{HELD_BACK}|{held.rule_id}"),
            holder=None,
            refs={},
            evidence=[],
            suppressed_by=None,
        )
        self.state.alerts[summary.alert_id] = summary
        return summary

    def _open(self, key: str, time: int, but: str = "", *, silenced: bool = False) -> Alert | None:
        """The alert of an entity on which a finding at `time` counts.

        What a suppression covers counts only on alerts that are silenced, and nothing
        else does: so an alert is on the topic with all its revisions or with none.
        """
        span = self.settings.dedup_seconds * 1_000_000
        fitting = [
            a
            for a in self._by_key.get(key, ())
            if a.alert_id != but
            and a.silenced == silenced
            # A late finding from before the close counts on the closed alert; a later one opens
            # anew.
            and (a.closed_at is None or (time <= a.closed_at and a.holds_findings))
            # The whole alert must fit the window, or steady repeats would stretch it without end.
            and max(a.last, time) - min(a.first, time) <= span
        ]
        # The one that people know already, so that they are not told of another.
        return min(fitting, key=by_publication, default=None)

    def _create(self, row: Mapping[str, Any], entity: Entity, holder: Holder | None) -> Alert:
        alert_id = preliminary_id(row, self.settings.tenant)
        if alert_id in self.state.alerts:
            # The finding made that one, and was moved since. It may come here more than once.
            again = (entity.key, str(rev_of(row)))
            alert_id = identity(self.settings.tenant, row["rule_id"], row["event_uid"], *again)
        alert = new_alert(alert_id, row, entity, holder)
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
        # Beyond it a finding only counts; it can no longer be taken out by a correction.
        if len(alert.refs) < MAX_REFS:
            ref = Ref(row["finding_id"], rev_of(row), entity.key, time, total)
            alert.refs[ref.finding_id] = ref
            self._of[ref.finding_id] = alert
        # Findings arrive out of order; what an alert shows is of its newest one.
        if time >= alert.last:
            alert.about, alert.holder = about_of(row), holder
        alert.first = min(alert.first, time)
        alert.last = max(alert.last, time)
        alert.window_start = min(alert.window_start, micros(row.get("window_start") or time))
        alert.received = max(alert.received, micros(row["received_at"]))
        # First and last ones stay: the state must not grow with a storm.
        alert.evidence = sampled([*alert.evidence, *evidence_of(row)])

    def _move(self, alert: Alert, rows: Sequence[Mapping[str, Any]], batch: _Batch) -> None:
        """Some or all of an alert's findings belong to another entity."""
        moved = {row["finding_id"] for row in rows}
        holder = holder_of(rows[-1])
        entity = entity_of(rows[-1], holder)
        silenced = self._silencer(rows[-1], entity, holder) is not None
        other = self._open(entity.key, alert.first, alert.alert_id, silenced=silenced)
        if other is not None and other.suppressed_by == HELD_BACK and alert.suppressed_by is None:
            other = None  # nobody was told of that one, and this one's readers are to be told more
        # One that was silenced in another's name is told under an id of its own.
        renamed = silenced or not alert.silenced
        # Same id under a new name: who works on the alert keeps it, and sees both holders.
        if moved >= set(alert.refs) and other is None and renamed:
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
            hand_over(alert, target)
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
        # Under the new key at once: what follows in this batch must find it there.
        self._by_key[alert.entity_key].remove(alert)
        self._by_key.setdefault(entity.key, []).append(alert)
        alert.entity_type, alert.entity_value, alert.entity_key = entity
        alert.holder = holder
        for row in rows:
            ref = alert.refs[row["finding_id"]]
            ref.rev, ref.entity_key = rev_of(row), entity.key
            show_finding(alert, row)

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
            snippet = alert.evidence[-1].snippet if alert.evidence else ""
            alert.about = msgspec.structs.replace(
                alert.about, snippet=snippet, user_name=None, dst_ip=None, fields={}
            )
        # Of counted findings without a reference the times are not known, so the span stays.
        if alert.count == len(alert.refs):
            alert.first = min(ref.time for ref in alert.refs.values())
            alert.last = max(ref.time for ref in alert.refs.values())

    def _act(self, action: Mapping[str, Any], batch: _Batch) -> bool:
        alert = self.state.alerts.get(action["alert_id"])
        kind, value = action["action"], action.get("value")
        # A superseded alert has no findings left that could be looked at again.
        if alert is None or (kind == "reopen" and alert.superseded_by is not None):
            return False
        if kind == "close":
            alert.state, alert.closed_at = "closed", micros(action["at"])
            alert.verdict = value or alert.verdict
        elif kind == "reopen":
            alert.state, alert.closed_at, alert.disproved = "open", None, False
            alert.verdict = None  # whoever reopens it doubts the verdict
            # Disproving wrote down the same entity; an alert that counts again has no former one.
            if alert.previous_entity == alert.entity_value:
                alert.previous = alert.previous_entity = None
        elif kind == "assign":
            alert.assignee = value
        elif kind == "verdict":
            alert.verdict = value
        elif kind != "note":
            return False
        alert.changed_by = action.get("who")
        # Actions come from several writers, so a batch may hold them in any order of time.
        alert.changed_at = max(alert.changed_at or 0, micros(action["at"]))
        alert.comment = action.get("comment") or alert.comment
        reasons = {"close": "closed", "reopen": "reopened", "assign": "assigned"}
        batch.note(alert, reasons.get(kind, "verdict"))
        return True

    def _revisions(self, batch: _Batch) -> list[Revised]:
        """At most one revision an alert; what only counted waits for `count_every_seconds`."""
        wait = self.settings.count_every_seconds * 1_000_000
        out = []
        # In an order that the rows alone decide, whatever order the state was decoded in.
        for alert in sorted(self.state.alerts.values(), key=lambda a: (a.first, a.alert_id)):
            reason = batch.why.get(alert.alert_id)
            if (
                alert.revision == 0
                and reason == "superseded"
                and not self._published(alert.alert_id)
            ):
                # Made and superseded in one batch: a close of an alert that nobody knows would
                # confuse.
                del self.state.alerts[alert.alert_id]
                continue
            if reason in (None, "count"):
                if not alert.pending or batch.clock - alert.told_at < wait:
                    continue
                reason = "count"
            alert.revision = self._number(alert, str(reason))
            # The alert that tells of an incident is in none itself.
            if alert.rule_id != INCIDENT:
                alert.incident_id = self._incidents.get(alert.entity_key, alert.incident_id)
            alert.pending, alert.told_at = False, batch.clock
            ends = alert.disproved and reason == "attribution"
            closes = ends or reason in ("closed", "superseded")
            activity = "create" if alert.revision == 1 else "close" if closes else "update"
            out.append(Revised(alert, activity, str(reason)))
        return out

    def _number(self, alert: Alert, reason: str) -> int:
        """The number of an alert's next revision: one more, also than consumers had.

        What a lake from a backup only counts again has the number that follows in the lake, and
        does not go out (`alerts.delivery.publisher`): consumers had at least as much.
        """
        newest_published = self._published(alert.alert_id)
        if newest_published is None:
            return alert.revision + 1
        whom = guard_key(alert.alert_id, alert.entity_type, alert.entity_value)
        if reason in ("first", "count") and newest_published.says(alert.count, whom):
            return alert.revision + 1
        return max(alert.revision, newest_published.revision) + 1
