"""Risk by entity: what several rules say of one device, address, host or user within a day.

One alert is a suspicion; several different ones about the same entity are an
incident. Findings of all levels count, also those that never alert alone.

A rule counts once for an entity: with the score of its level, plus one for each
doubling of its findings, at most nine (`score`). It counts whole for 24 hours
after its newest finding and then not at all: a sum that a person can follow.
An incident is told when the sum, the tactics or the rules reach their limits,
once; then the entity rests for 24 hours.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from alerts.domain.alert import evidence_of
from alerts.domain.entity import Entity, Holder, event_instant
from alerts.domain.finding import identity, single_line
from alerts.domain.levels import score_of_level
from infra.config.settings import AlertSettings

INCIDENT = "headgate-incident"
"""Rule id of the finding that says an entity's risk became an incident; it is in no pack."""

LED_TO = f"""
shown.rule_id <> '{INCIDENT}'
AND shown.entity_key = made.entity_key
AND shown.window_start <= made.window_end AND shown.window_end >= made.window_start
"""
"""SQL: whether alert `shown`, raised in no incident, led to incident `made`. An alert names its
incident only if it was raised while that was open; those whose findings made the incident came
before it, and are met by whom they name, and when. `entity_key` of both tells apart what two
tenants or two sites call the same (`alerts.domain.entity.Entity.key`)."""

ENTITY_KEY = "coalesce({group_key}, concat_ws('|', entity_type, entity_value, tenant_uid))"
"""SQL: that key of an alert's row; `group_key`: what its body has under that name."""

INCIDENT_LEVEL = "high"
INCIDENT_TITLE = "Several rules about one entity"
RISK = "~risk"
"""Target of a finding's row for the risk of its entity; no rule's id begins so."""

REACH = 24 * 3600
"""Seconds for which a rule counts after its newest finding."""

INCIDENT_REST = REACH
ENTITIES = ("device", "ip", "host", "user")
_EVIDENCE = 10
_REMEMBERED = 16
"""Findings of a rule that an entity remembers by id, so that a correction can take them away."""

MAX_ENTITIES = 5_000
"""Entities a bucket remembers; those silent for longest go first."""


class _Part(msgspec.Struct, omit_defaults=True, gc=False):
    """What one rule adds to an entity's risk; times are microseconds."""

    level: str
    title: str
    tactics: list[str] = []
    count: int = 0
    last: int = 0
    event_uid: str = ""
    snippet: str = ""
    ids: dict[str, int] = {}


class EntityRisk(msgspec.Struct, omit_defaults=True, gc=False):
    """An entity's parts by rule id. `told_at`: event time of its incident."""

    parts: dict[str, _Part] = {}
    last: int = 0
    told_at: int | None = None


class RiskFinding(msgspec.Struct, frozen=True):
    """A finding as risk sees it."""

    row: Mapping[str, Any]
    entity: Entity
    holder: Holder | None
    time: int
    rev: int
    tactics: tuple[str, ...]


Risk = dict[str, EntityRisk]
"""Entities of a bucket by their key."""


def risk_incidents(
    risk: Risk, risk_findings: Sequence[RiskFinding], settings: AlertSettings
) -> list[dict[str, Any]]:
    """Take findings, in time order, into the risk of their entities; returns rows of gold.finding.

    `risk` is changed in place. What a correction takes from another entity is for `take_away`.
    """
    lines = []
    for risk_finding in risk_findings:
        # A finding comes once for each lease that is known; it adds to the risk once.
        if risk_finding.entity.type in ENTITIES and not _known(risk, risk_finding):
            heat = risk.setdefault(risk_finding.entity.key, EntityRisk())
            _add(heat, risk_finding)
            if _is_incident(heat, settings):
                heat.told_at = heat.last
                lines.append(incident(heat, risk_finding))
    return lines


def take_away(risk: Risk, moved: Mapping[str, tuple[str, int]]) -> None:
    """Findings that belong to another entity now: what they counted for an older one ends.

    `moved`: by finding the key of its entity and the revision that says so. All at once,
    for the entities are many: one look at each serves all corrections of a batch.
    """
    if not moved:
        return
    for key, heat in list(risk.items()):
        for rule_id, part in list(heat.parts.items()):
            for finding_id in part.ids.keys() & moved.keys():
                owner, rev = moved[finding_id]
                # A newer revision may already count here, if it was moved there and back.
                if key != owner and part.ids[finding_id] < rev:
                    del part.ids[finding_id]
                    part.count -= 1
            if part.count <= 0:
                del heat.parts[rule_id]
        if not heat.parts:
            del risk[key]


def forget_risk(risk: Risk, clock: int) -> None:
    """Drop rules and entities that count no more at `clock`, in event time, microseconds."""
    oldest = clock - REACH * 1_000_000
    for key, heat in list(risk.items()):
        heat.parts = {rule: part for rule, part in heat.parts.items() if part.last >= oldest}
        if not heat.parts:
            del risk[key]
    # Scans with made-up addresses would fill the state; the key breaks ties the same on a retry.
    crowd = sorted(risk, key=lambda key: (risk[key].last, key))
    for key in crowd[: max(0, len(crowd) - MAX_ENTITIES)]:
        del risk[key]


def _total(heat: EntityRisk) -> int:
    """The entity's risk: the sum over its rules."""
    return sum(score_of_level(part.level, part.count) for part in heat.parts.values())


def _known(risk: Risk, risk_finding: RiskFinding) -> bool:
    """Whether the finding counts for this entity already; its revision is then noted."""
    heat = risk.get(risk_finding.entity.key)
    part = heat.parts.get(risk_finding.row["rule_id"]) if heat else None
    finding_id = risk_finding.row["finding_id"]
    if part is None or finding_id not in part.ids:
        return False
    part.ids[finding_id] = max(part.ids[finding_id], risk_finding.rev)
    return True


def _add(heat: EntityRisk, risk_finding: RiskFinding) -> None:
    row = risk_finding.row
    heat.last = max(heat.last, risk_finding.time)
    # Event time, not the wall clock: history that is replayed gives the same incidents.
    oldest = heat.last - REACH * 1_000_000
    heat.parts = {rule: part for rule, part in heat.parts.items() if part.last >= oldest}
    part = heat.parts.setdefault(row["rule_id"], _Part(row["level"], row["rule_title"]))
    part.level, part.tactics = row["level"], list(risk_finding.tactics)
    part.count += 1
    # Beyond it a correction cannot take one away; a storm must not grow the state.
    if len(part.ids) < _REMEMBERED:
        part.ids[row["finding_id"]] = risk_finding.rev
    if risk_finding.time >= part.last:
        # Of a correlation the newest event that it counted: its own id names none.
        part.last, part.event_uid = risk_finding.time, evidence_of(row)[-1].event_uid
        part.snippet = single_line(f"{row['rule_title']}: {row.get('snippet') or ''}")
    if part.last < oldest:
        # It came later than a day behind: in order it would have counted no more by now.
        del heat.parts[row["rule_id"]]


def _is_incident(heat: EntityRisk, settings: AlertSettings) -> bool:
    if heat.told_at is not None and heat.last - heat.told_at < INCIDENT_REST * 1_000_000:
        return False
    # Informational rules say what is usual: they add to the sum, but are no suspicion.
    grave = [part for part in heat.parts.values() if part.level != "informational"]
    return (
        _total(heat) >= settings.incident_score
        or len({tactic for part in grave for tactic in part.tactics}) >= settings.incident_tactics
        or len(grave) >= settings.incident_rules
    )


def incident(heat: EntityRisk, risk_finding: RiskFinding) -> dict[str, Any]:
    """The finding that tells of an incident, a row of gold.finding; it rests on each rule's newest.

    It is about the entity of the finding that completed it.
    """
    parts = sorted(heat.parts.items(), key=lambda item: (item[1].last, item[0]))
    tactics = sorted({tactic for _, part in parts for tactic in part.tactics})
    # An entity rests for a day, so the day tells its incidents apart, whatever completed them.
    uid = identity(INCIDENT, risk_finding.entity.key, event_instant(heat.last).date().isoformat())
    copied = (
        *("class_uid", "source", "mode", "role", "scope", "ip", "host_name", "user_name"),
        "tenant_uid",
    )
    fields = {
        "risk": str(_total(heat)),
        "rules": str(len(parts)),
        "tactics": ", ".join(tactics),
    }
    titles = "; ".join(part.title for _, part in parts)
    return {
        **{name: risk_finding.row.get(name) for name in copied},
        "finding_id": identity(INCIDENT, uid),
        "rule_id": INCIDENT,
        # No pack has this rule, so there is no version to name.
        "rule_version": "",
        "rule_title": INCIDENT_TITLE,
        "level": INCIDENT_LEVEL,
        "kind": "correlation",
        "pack": risk_finding.row["pack"],
        "feeds": [],
        "alerting": True,
        "event_uid": uid,
        "event_time": event_instant(heat.last),
        "received_at": risk_finding.row["received_at"],
        "window_start": event_instant(parts[0][1].last),
        "holder": risk_finding.holder and msgspec.structs.asdict(risk_finding.holder),
        "fields": fields,
        "snippet": single_line(f"risk {fields['risk']} from {len(parts)} rules: {titles}"),
        "evidence": [
            {"event_uid": part.event_uid, "time": event_instant(part.last), "snippet": part.snippet}
            for _, part in parts[-_EVIDENCE:]
        ],
        "evidence_total": sum(part.count for _, part in parts),
    }
