"""An alert that left the state, made again from its newest revision.

A repair may concern a finding of last month, whose alert nobody remembers: without its number of
revisions, its id would get a second revision 1. So the finding comes with the alert's body as it
was published, and the alert goes on where it ended.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

import msgspec

from alerts.domain.alert import Alert, Evidence, FoldState, Ref, about_of
from alerts.domain.entity import Holder, micros
from alerts.lifecycle.alert_json import about_in, is_disproved, words_in

_REST = "rest"
"""Stands among an alert's findings for those that the repair does not concern."""

_NEVER = 2**63 - 1


def revive(findings: Sequence[Mapping[str, Any]], state: FoldState) -> None:
    """Take back into the state the alerts that findings bring along and that it has forgotten.

    A finding may have `alert`, the body of the newest revision of the alert it counts on, as JSON;
    in it as `made` that of the alert which the finding made and has left.
    """
    lost: dict[str, tuple[dict[str, Any], list[Mapping[str, Any]]]] = {}
    for row in findings:
        if row.get("alert"):
            body = msgspec.json.decode(row["alert"])
            # Its id must be taken, or the finding that made it would make it again with revision 1.
            left = body.pop("made", None)
            if left is not None:
                lost.setdefault(left["alert_id"], (left, []))
            of = lost.setdefault(body["alert_id"], (body, []))[1]
            if holds_findings(body):
                of.append(row)
    for alert_id, (body, rows) in lost.items():
        # What the state has is newer than any body.
        if alert_id not in state.alerts:
            state.alerts[alert_id] = _alert(body, rows)


def holds_findings(body: Mapping[str, Any]) -> bool:
    """As `Alert.holds_findings`, of a body."""
    return body["superseded_by"] is None and not is_disproved(body)


def revive_asked(actions: Iterable[Mapping[str, Any]], state: FoldState) -> None:
    """Take back into the state the alerts that people ask something of and that it has forgotten.

    An action may have `alert` as a finding does.
    """
    for action in actions:
        if action.get("alert") and action["alert_id"] not in state.alerts:
            state.alerts[action["alert_id"]] = _alert(msgspec.json.decode(action["alert"]), [])


def _alert(body: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]) -> Alert:
    key = body["dedup_key"].removeprefix(f"{body['rule']['id']}|")
    last = _micros(body["event_time"])
    refs = {
        row["finding_id"]: Ref(row["finding_id"], -2, key, micros(row["event_time"]), 1)
        for row in rows
    }
    if body["count"] > len(refs):
        rest = body["evidence_total"] - len(refs)
        # The body has a count but no ids; one stand-in keeps the sums right and never moves.
        refs[_REST] = Ref(_REST, _NEVER, key, last, rest)
    named = {row["event_uid"]: row["finding_id"] for row in rows}
    # The published body nests the former holder in the present one; the state has them apart.
    holder = {k: v for k, v in body["attribution"].items() if k != "previous"}
    alert = Alert(
        alert_id=body["alert_id"],
        rule_id=body["rule"]["id"],
        entity_type=body["entity"]["type"],
        entity_value=body["entity"]["value"],
        entity_key=key,
        first=_micros(body["window_start"]),
        last=last,
        window_start=_micros(body["window_start"]),
        received=_micros(body["received_at"]),
        about=about_of(rows[-1]) if rows else about_in(body),
        holder=msgspec.convert(holder, Holder),
        revision=body["revision"],
        count=body["count"],
        total=body["evidence_total"],
        refs=refs,
        evidence=[
            Evidence(
                named.get(event["event_uid"], _REST),
                event["event_uid"],
                _micros(event["time"]),
                event["snippet"],
            )
            for event in body["evidence"]
        ],
        state=body["state"],
        closed_at=last if body["state"] == "closed" else None,
        assignee=body["assignee"],
        verdict=body["verdict"],
        comment=body["comment"],
        superseded_by=body["superseded_by"],
        suppressed_by=body.get("suppressed_by"),
        incident_id=body.get("incident_id"),
        previous=_previous(body),
        previous_entity=body.get("previous_entity"),
        disproved=is_disproved(body),
        changed_by=body.get("changed_by"),
        changed_at=_micros(body["changed_at"]) if body.get("changed_at") else None,
        tenant_uid=body.get("tenant_uid"),
    )
    if not rows:
        # Only the summary has the words then; a revision without them would say less than the last.
        alert.about.snippet = words_in(body["summary"], alert)
    return alert


def _previous(body: Mapping[str, Any]) -> Holder | None:
    previous = body["attribution"].get("previous")
    return None if previous is None else msgspec.convert(previous, Holder)


def _micros(text: str) -> int:
    return micros(datetime.fromisoformat(text))
