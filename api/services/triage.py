"""Changing alerts: one, many at once, notes, and taking back; all as requests to job `alert`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from alerts.cases.case_store import alerts_there
from alerts.delivery.action_request import request_action
from alerts.delivery.reader import REMEMBERED
from alerts.delivery.triage_request import (
    ChangeRefused,
    TriageChange,
    TriageRequest,
    TriageState,
    state_after,
    triage_requests,
    undoing,
)
from alerts.domain.alert_body import UNREADABLE
from alerts.domain.short_ids import several_ids
from api.observability.audit_log import audit_request
from api.services.act_store import PLAN_FOR, UNDO_FOR, StateFolder, expiry, new_id
from api.services.alert_filter import AlertFilter
from api.services.alert_snapshot import (
    AlertNow,
    alert_now,
    alerts_now,
    changed_since,
    whole_alert_id,
)
from api.services.alerts import selected_ids
from api.services.reader import Reader
from api.services.visibility import visible
from api.wire import triage as wire
from infra.config.settings import Settings
from infra.errors import Fatal, Usage

MOST_AT_ONCE = 10_000
_SAMPLE = 10
ME = "me"
ANY_REVISION = "*"
Row = dict[str, Any]


class Stale(Fatal):
    """An alert or a case is no longer what the caller looked at."""

    def __init__(self, text: str, etag: str, plain: str | None = None) -> None:
        """`etag`: as it is now; `plain`: the sentence for who sends no ETag by hand."""
        super().__init__(text)
        self.etag = etag
        self.plain = plain or text


class NoSuchAct(Usage):
    """No act or plan has that id, or it is over."""


class NotYours(Usage):
    """It is another caller's, whom the caller may not speak for."""


@dataclass(frozen=True)
class AskedOfAlert:
    """The requests left about one alert, and where people stand before and after."""

    alert: AlertNow
    rows: Sequence[Row]
    before: TriageState
    after: TriageState

    @property
    def etag(self) -> str:
        """The alert's etag behind these requests."""
        count = len(self.alert.waiting) + len(self.rows)
        return f'"{self.alert.revision}.{count}"' if count else self.alert.etag


class Triage:
    """Changes alerts for callers by name; safe to share between threads."""

    def __init__(self, reader: Reader, settings: Settings) -> None:
        self._reader = reader
        self._settings = settings
        self._acts = StateFolder(settings, "acts", UNDO_FOR)
        self._plans = StateFolder(settings, "plans", PLAN_FOR)

    def change(
        self, who: str, alert_id: str, asked: wire.AlertChange, if_match: str
    ) -> wire.AlertChanged:
        """Change one alert; raises `Stale` unless it is still what `if_match` names."""
        wanted = _change(asked, who)
        # Look and ask under one lock: another process could otherwise change it in between.
        with self._acts.alone():
            alert = self._matching(alert_id, if_match)
            left = self._ask(who, alert, wanted)
            act_id = self._keep("change", who, [left], change=asked) if left.rows else None
        return wire.AlertChanged(
            act_id=act_id,
            alert_id=alert.alert_id,
            etag=left.etag,
            requests=[_request(row) for row in left.rows],
            standing=wire.TriageStanding(**asdict(left.after)),
            visible=visible(self._settings),
        )

    def preview(self, who: str, plan: wire.BulkPlan) -> wire.BulkCount:
        """What a bulk change would do, and the token that does it."""
        wanted = _change(plan.change, who)
        ids = self._planned_ids(who, plan)
        # All in one question: ten thousand single ones would take minutes.
        alerts = alerts_now(self._reader, self._settings, ids)
        changing: list[AlertNow] = []
        refused: list[str] = []
        for alert in alerts.values():
            try:
                if _requests(alert, wanted):
                    changing.append(alert)
            except ChangeRefused as error:
                # One that cannot change must not keep the others from it; it is counted and named.
                refused.append(f"alert {alert.alert_id}: {error}")
        token, until = new_id(), expiry(PLAN_FOR)
        # With the etags: the act can then tell which alerts people have touched since.
        self._plans.put(
            token,
            {
                "who": who,
                "change": plan.change.model_dump(exclude_unset=True),
                "etags": {alert.alert_id: alert.etag for alert in changing},
            },
        )
        return wire.BulkCount(
            token=token,
            expires_at=until,
            alerts=len(changing),
            unchanged=len(alerts) - len(changing) - len(refused),
            refused=len(refused),
            refused_because=refused[0] if refused else None,
            by_level=_grouped(alert.level for alert in changing),
            by_rule=_grouped(str(alert.body["rule"]["name"]) for alert in changing),
            sample=[alert.alert_id for alert in changing[:_SAMPLE]],
        )

    def bulk(self, who: str, act: wire.BulkAct) -> wire.BulkDone:
        """Do what was counted. An alert that others changed since is left as it is, and named."""
        plan = self._plans.get(act.token)
        if plan is None or plan["who"] != who:
            raise NoSuchAct("token: none of yours that is still good; count again (bulk/preview)")
        # Checked before the plan is taken, so that a slip of the pen does not cost the token.
        if len(plan["etags"]) != act.alerts:
            raise Usage(
                f"alerts: {act.alerts} are named, {len(plan['etags'])} were counted; name that "
                "number, so that nothing more is changed than was looked at"
            )
        # Taking is what makes a token good for one time, also between processes.
        if self._plans.take(act.token) is None:
            raise NoSuchAct("token: it was used already; count again (bulk/preview)")
        asked = wire.AlertChange(**plan["change"])
        wanted = _change(asked, who)
        done: list[AskedOfAlert] = []
        skipped: list[str] = []
        with self._acts.alone():
            alerts = alerts_now(self._reader, self._settings, plan["etags"])
            if plan["etags"] and not self._in_reach(plan["etags"], alerts):
                raise NoSuchAct("token: it is of alerts that you may not see; count again")
            for alert_id, etag in plan["etags"].items():
                alert = alerts.get(alert_id)
                # A new count or attribution is no other opinion; what a person did is.
                if alert is None or touched_by_people(alert, etag):
                    skipped.append(alert_id)
                    continue
                done.append(self._ask(who, alert, wanted))
            act_id = self._keep("bulk", who, done, change=asked) if done else None
        detail = {"act": act_id, "alerts": len(done), "skipped": len(skipped)}
        # One row for the whole act; each alert's own change stands in gold.alert_action.
        audit_request(self._settings, "alerts.bulk", "ok", who=who, detail=detail | plan["change"])
        return wire.BulkDone(
            act_id=act_id,
            alerts=len(done),
            skipped=skipped,
            requests=sum(len(left.rows) for left in done),
            visible=visible(self._settings),
        )

    def undo(self, who: str, act_id: str) -> wire.BulkDone:
        """Ask for the reverse of an act, alert by alert; what others changed since stays."""
        with self._acts.alone():
            act = self._act_called(act_id)
            act_id = str(act["act_id"])
            if act["undone_by"] is not None:
                raise ChangeRefused(f"act {act_id} was undone already by act {act['undone_by']}")
            alerts = alerts_now(self._reader, self._settings, act["alerts"])
            if not self._in_reach(act["alerts"], alerts):
                raise _no_act(act_id)
            done: list[AskedOfAlert] = []
            skipped: list[str] = []
            for alert_id, states in act["alerts"].items():
                alert = alerts.get(alert_id)
                before, after = (TriageState(**state) for state in states)
                # Only what the act changed and nobody has changed since goes back.
                back = None if alert is None else undoing(before, after, alert.state)
                if alert is None or back is None or not back.fields:
                    skipped.append(alert_id)
                    continue
                why = TriageChange(back.fields, f"act {act_id} of {act['who']} was undone")
                done.append(self._ask(who, alert, why))
            undo_id = self._keep("undo", who, done, undoes=act_id) if done else None
            if undo_id is not None:
                # Only once something was undone: else a second try would be refused for nothing.
                self._acts.put(act_id, act | {"undone_by": undo_id})
        audit_request(self._settings, "alerts.undo", "ok", who=who, target=act_id,
             detail={"act": undo_id, "alerts": len(done), "skipped": len(skipped)})  # fmt: skip
        return wire.BulkDone(
            act_id=undo_id,
            alerts=len(done),
            skipped=skipped,
            requests=sum(len(left.rows) for left in done),
            visible=visible(self._settings),
        )

    def acts(self, most: int = 200) -> wire.Acts:
        """Acts of the last days, newest first."""
        acts = list(self._acts.all())
        if self._reader.tenants is not None:
            there = self._there([alert_id for act in acts for alert_id in act["alerts"]])
            acts = [act for act in acts if self._in_reach(act["alerts"], there)]
        newest = sorted(acts, key=lambda act: str(act["asked_at"]), reverse=True)
        return wire.Acts(items=[_act(act) for act in newest[:most]])

    def act(self, act_id: str) -> wire.Act:
        """One act, by its id or the beginning of it; raises `NoSuchAct`."""
        act = self._act_called(act_id)
        if not self._in_reach(act["alerts"], self._there(act["alerts"])):
            raise _no_act(act_id)
        return _act(act)

    def _act_called(self, name: str) -> dict[str, Any]:
        act = self._acts.get(name)
        if act is not None:
            return act
        begun = [known for begin in self._acts.beginning(name) if (known := self._acts.get(begin))]
        if self._reader.tenants is not None:
            # Ids of acts on others' alerts must not be told either.
            there = self._there([alert_id for known in begun for alert_id in known["alerts"]])
            begun = [known for known in begun if self._in_reach(known["alerts"], there)]
        if not begun:
            raise _no_act(name)
        if len(begun) > 1:
            raise several_ids("act", name, [str(known["act_id"]) for known in begun])
        return begun[0]

    def _in_reach(self, ids: Collection[str], there: Collection[str]) -> bool:
        """Whether an act on these alerts may be seen: of who is limited each has to be theirs."""
        return self._reader.tenants is None or (bool(ids) and set(ids) <= set(there))

    def _there(self, ids: Iterable[str]) -> set[str]:
        """Those of these alerts that can be seen."""
        if self._reader.tenants is None:
            return set()
        return alerts_there(self._reader.rows, ids)

    def write_note(self, who: str, alert_id: str, text: str) -> wire.NoteTaken:
        """Leave a note on an alert, whatever its revision."""
        wanted = TriageChange.of({}, text)
        with self._acts.alone():
            alert = alert_now(self._reader, self._settings, alert_id)
            left = self._ask(who, alert, wanted)
        return wire.NoteTaken(
            note=_note(left.rows[0], waiting=True),
            etag=left.etag,
            visible=visible(self._settings),
        )

    def notes(self, alert_id: str) -> wire.AlertNotes:
        """What people wrote on an alert, oldest first, also what waits."""
        alert = alert_now(self._reader, self._settings, alert_id)
        waiting = {row["action_id"] for row in alert.waiting}
        rows = self._reader.rows(
            'SELECT action_id, action, comment, who, "at" FROM gold.alert_action '
            "WHERE alert_id = $id AND comment IS NOT NULL",
            {"id": alert.alert_id},
            needs=("gold.alert_action",),
        )
        # By id: a request may be seen as a file and in the table while the driver folds it.
        written = {row["action_id"]: row for row in [*alert.waiting, *rows] if row.get("comment")}
        notes = [_note(row, waiting=name in waiting) for name, row in written.items()]
        return wire.AlertNotes(items=sorted(notes, key=lambda one: (one.written_at, one.action_id)))

    def _matching(self, alert_id: str, if_match: str) -> AlertNow:
        alert = alert_now(self._reader, self._settings, alert_id)
        # Proxies may weaken an ETag when they compress; revisions are the same for us.
        wanted = if_match.strip().removeprefix("W/")
        if wanted not in (ANY_REVISION, alert.etag):
            if not _is_etag(wanted):
                raise Usage(
                    f"If-Match: {if_match} is no ETag of an alert, such as {alert.etag}; take it "
                    "from GET /api/v1/alerts/{alert_id}, or send *"
                )
            who = changed_since(self._reader, alert, wanted)
            changed = f"alert {alert.alert_id} is no longer what you looked at: {who}."
            raise Stale(
                f"{changed} It is {alert.etag} now; look again and send that as If-Match",
                alert.etag,
                f"{changed} Look at it as it is now; what still holds, send again",
            )
        return alert

    def _planned_ids(self, who: str, plan: wire.BulkPlan) -> list[str]:
        if (plan.ids is None) == (plan.filter is None):
            raise Usage("say which alerts: ids or filter, one of them")
        if plan.ids is not None:
            return [whole_alert_id(self._reader, name) for name in plan.ids]
        assert plan.filter is not None
        wanted = AlertFilter.of(plan.filter.model_dump(), who)
        # A form that was left empty must not change every alert there is.
        if wanted == AlertFilter() or wanted == AlertFilter(muted=True):
            raise Usage("filter: it selects every alert there is; narrow it by at least one field")
        return selected_ids(self._reader, wanted, MOST_AT_ONCE)

    def _ask(self, who: str, alert: AlertNow, wanted: TriageChange) -> AskedOfAlert:
        """Leave the requests of a change about one alert."""
        state = alert.state
        asked = _requests(alert, wanted)
        # Behind what waits, also when another machine's clock is ahead: the job goes by these
        # times.
        began = max([datetime.now(UTC), *(_behind(row) for row in alert.waiting)])
        detected = datetime.fromisoformat(alert.body["detected_at"])
        forgotten = began - detected > REMEMBERED
        # An alert that the job has forgotten comes along with its body, or it would be refused.
        body: Row = {"alert": msgspec.json.encode(alert.body).decode()} if forgotten else {}
        rows = [
            request_action(
                self._settings,
                request.action,
                alert.alert_id,
                alert.rule_id,
                who=who,
                # Of several requests the job takes the earlier first.
                asked_at=began + timedelta(microseconds=place),
                value=request.value,
                comment=request.comment,
                **body,
            )
            for place, request in enumerate(asked)
        ]
        return AskedOfAlert(alert, rows, state, state_after(state, asked))

    def _keep(
        self,
        kind: str,
        who: str,
        done: Sequence[AskedOfAlert],
        *,
        change: wire.AlertChange | None = None,
        undoes: str | None = None,
    ) -> str:
        act_id = new_id()
        self._acts.put(
            act_id,
            {
                "act_id": act_id,
                "kind": kind,
                "who": who,
                "asked_at": datetime.now(UTC).isoformat(),
                "change": None if change is None else change.model_dump(exclude_unset=True),
                "alerts": {
                    left.alert.alert_id: [asdict(left.before), asdict(left.after)]
                    for left in done
                    # An alert that had nothing to change is no part of the act, so undo leaves it
                    # alone.
                    if left.rows
                },
                "undone_by": None,
                "undoes": undoes,
            },
        )
        return act_id


def _no_act(act_id: str) -> NoSuchAct:
    return NoSuchAct(f"no act '{act_id}' of the last {UNDO_FOR.days} days")


def _change(asked: wire.AlertChange, who: str) -> TriageChange:
    given = asked.model_dump(exclude_unset=True)
    text = given.pop("note", None)
    # A null status is no wish; a null assignee or verdict is, it takes it away.
    if given.get("status", "") is None:
        del given["status"]
    if given.get("assignee") == ME:
        given["assignee"] = who
    return TriageChange.of(given, text)


def _requests(alert: AlertNow, wanted: TriageChange) -> list[TriageRequest]:
    if UNREADABLE in alert.body:
        raise ChangeRefused(
            f"its body in gold.alert is no JSON, so job alert cannot change it (alert "
            f"{alert.alert_id}, revision {alert.revision}); bring back its row, or erase it"
        )
    return triage_requests(alert.state, wanted, alert.body.get("superseded_by"))


def touched_by_people(alert: AlertNow, etag: str) -> bool:
    """Whether a person asked something of it since it had that etag."""
    revision, _, waiting = etag.strip('"').partition(".")
    if str(alert.revision) == revision:
        return len(alert.waiting) != int(waiting or 0)
    # These three are the job's own; any other reason is a person's.
    return bool(alert.waiting) or alert.body.get("reason") not in ("first", "count", "attribution")


def _is_etag(text: str) -> bool:
    revision, _, waiting = text.strip('"').partition(".")
    return revision.isascii() and revision.isdigit() and (not waiting or waiting.isdigit())


def _behind(request: Mapping[str, Any]) -> datetime:
    asked = request["at"]
    time = asked if isinstance(asked, datetime) else datetime.fromisoformat(asked)
    return time + timedelta(microseconds=1)


def _grouped(values: Iterable[str]) -> list[wire.Grouped]:
    counted = Counter(values).most_common(10)
    return [wire.Grouped(value=value, alerts=count) for value, count in counted]


def _request(row: Mapping[str, Any]) -> wire.AskedRequest:
    return wire.AskedRequest(
        action_id=row["action_id"], action=row["action"], value=row.get("value")
    )


def _note(row: Mapping[str, Any], *, waiting: bool) -> wire.AlertNote:
    return wire.AlertNote(
        action_id=row["action_id"],
        who=row["who"],
        written_at=row["at"],
        text=row["comment"],
        action=row["action"],
        waiting=waiting,
    )


def _act(act: Mapping[str, Any]) -> wire.Act:
    plain = {name: act[name] for name in wire.Act.model_fields if name != "alerts"}
    return wire.Act(**plain, alerts=len(act["alerts"]))
