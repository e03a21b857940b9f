"""A revision as a row of gold.alert, with its body (docs/reference/alert.md)."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import msgspec

from alerts.domain.alert import About, Alert, Revised
from alerts.domain.attack import attack_entries
from alerts.domain.entity import Holder, event_instant, micros
from alerts.domain.finding import identity, named
from alerts.domain.levels import SEVERITY_BY_LEVEL, score_of_level
from alerts.domain.rate_limit import HELD_BACK
from alerts.rulepack.rule_pack import Described, RulePack
from enrich.attribution.confidence import Claim
from enrich.dhcp.lease_rules import ended_so_far

_SCHEMA = "urn:headgate:alert:1"
"""`$id` of the JSON Schema that bodies follow (`alert.schema.json`)."""
SCHEMA_VERSION = "1.1"
"""Raised with each release that adds fields: 1.1 has words that cannot be taken for each other."""

LARGEST_BODY = 256 * 1024
"""Bytes. The topic takes 10 MB, but one message that it refuses would hold up all behind it."""
LONGEST_TEXT = 1024
"""Characters of a text in a body that is larger."""

_ACTIVITY = {"create": 1, "update": 2, "close": 3}
DETECTION_FINDING = 2004
"""OCSF class_uid of an alert."""

NOBODY_DID = "What it counted turned out to be of several devices: none of them did it."
NOT_MEANT = "By that its rule does not hold."
"""Last words of an alert whose findings count no more: of a correlation, and of any other rule."""


def alert_row(
    revised: Revised,
    pack: RulePack | None,
    tenant: str,
    detected_at: int,
    lineage: Mapping[str, Any],
) -> dict[str, Any]:
    """The revision as a row of gold.alert, its body still a mapping (see `with_text`).

    `pack` is the one that found the newest finding (None when it is lost: the
    alert then tells what the finding knows). `detected_at`: microseconds.
    """
    alert, about = revised.alert, revised.alert.about
    severity_id, _, _ = SEVERITY_BY_LEVEL[about.level]
    body = _body(revised, pack, tenant, detected_at, lineage)
    return {
        "alert_id": alert.alert_id,
        "revision": alert.revision,
        "activity": revised.activity,
        "reason": revised.reason,
        "tenant": tenant,
        "mode": body["mode"],
        "rule_id": alert.rule_id,
        "rule_name": about.rule_title,
        "level": about.level,
        "severity_id": severity_id,
        "risk_score": body["risk_score"],
        "entity_type": alert.entity_type,
        "entity_value": alert.entity_value,
        "src_ip": about.ip,
        "event_time": event_instant(alert.last),
        "window_start": event_instant(alert.window_start),
        "window_end": event_instant(alert.last),
        "received_at": event_instant(alert.received),
        "status": body["attribution_status"],
        "count": alert.count,
        "dedup_key": body["dedup_key"],
        "title": body["title"],
        "previous_entity": alert.previous_entity,
        "body": body,
        "pack": about.pack,
        "suppressed_by": alert.suppressed_by,
        "incident_id": alert.incident_id,
        "summary": body["summary"],
        "tenant_uid": alert.tenant_uid,
        "batch": None,  # this and the next are known where the row is written
        "sequence": None,
    }


def with_text(row: Mapping[str, Any]) -> dict[str, Any]:
    """A row whose body has all that belongs to it, with the body as JSON."""
    # As text: publishing, the feed and the API all give out the same document.
    return {**row, "body": bounded(row["body"]).decode()}


def bounded(body: Mapping[str, Any]) -> bytes:
    """The body as JSON; of one that is too large each long text is cut, and marked so.

    What is in there of a rule, a lease or a person's comment is as long as who wrote it liked.
    """
    whole = msgspec.json.encode(body)
    # Texts are cut and no fields left out: consumers rely on the shape.
    return whole if len(whole) <= LARGEST_BODY else msgspec.json.encode(_cut(body))


def _cut(value: Any) -> Any:
    if isinstance(value, str):
        return named(value, LONGEST_TEXT)
    if isinstance(value, Mapping):
        return {key: _cut(inner) for key, inner in value.items()}
    return [_cut(inner) for inner in value] if isinstance(value, (list, tuple)) else value


def _body(
    revised: Revised,
    pack: RulePack | None,
    tenant: str,
    detected_at: int,
    lineage: Mapping[str, Any],
) -> dict[str, Any]:
    alert, about = revised.alert, revised.alert.about
    rule = pack.described(alert.rule_id) if pack else None
    severity_id, severity, _ = SEVERITY_BY_LEVEL[about.level]
    attribution = _attribution(alert)
    return {
        "schema": _SCHEMA,
        "schema_version": SCHEMA_VERSION,
        "class_uid": DETECTION_FINDING,
        "type_uid": DETECTION_FINDING * 100 + _ACTIVITY[revised.activity],
        "alert_id": alert.alert_id,
        "tenant": tenant,
        "tenant_uid": alert.tenant_uid,
        "revision": alert.revision,
        "change_type": revised.activity,
        "reason": revised.reason,
        "mode": "backfill" if about.mode == "import" else "live",
        **_triage(alert),
        "superseded_by": alert.superseded_by,
        "rule": _rule(alert, rule),
        "attack": _attack(about, rule),
        "severity": severity,
        "severity_id": severity_id,
        "risk_score": score_of_level(about.level, alert.count),
        **_times(alert, detected_at),
        "entity": {"type": alert.entity_type, "value": alert.entity_value},
        "previous_entity": alert.previous_entity,
        "entities": _entities(alert, about),
        "attribution_status": attribution["status"],
        "attribution": attribution,
        "title": _title(alert),
        "summary": _summary(alert),
        "count": alert.count,
        "dedup_key": f"{alert.rule_id}|{alert.entity_key}",
        "group_key": identity(tenant, alert.entity_key),
        "incident_id": alert.incident_id,
        "suppressed_by": alert.suppressed_by,
        "fields": about.fields,
        "evidence": [
            {"event_uid": e.event_uid, "time": rfc3339(e.time), "snippet": e.snippet}
            for e in alert.evidence
        ],
        "evidence_total": alert.total,
        "lineage": {"pack": about.pack, **lineage},
        # The former words, good for one release more.
        "activity": revised.activity,
        "state": alert.state,
        "lifecycle": alert.lifecycle,
    }


def _triage(alert: Alert) -> dict[str, Any]:
    """What people did with it."""
    return {
        "alert_status": alert.lifecycle,
        "assignee": alert.assignee,
        "verdict": alert.verdict,
        "comment": alert.comment,
        "changed_by": alert.changed_by,
        "changed_at": None if alert.changed_at is None else rfc3339(alert.changed_at),
    }


def _times(alert: Alert, detected_at: int) -> dict[str, Any]:
    """When its events were, came, and were found."""
    return {
        "event_time": rfc3339(alert.last),
        "window_start": rfc3339(alert.window_start),
        "window_end": rfc3339(alert.last),
        "received_at": rfc3339(alert.received),
        "detected_at": rfc3339(detected_at),
    }


def about_in(body: Mapping[str, Any]) -> About:
    """What the newest finding said of itself, as far as the body of a revision has it.

    Its own words are not in there: see `words_in`.
    """
    named: dict[str, list[str]] = {"ip": [], "host": [], "user": []}
    for entity in body["entities"]:
        named.setdefault(entity["type"], []).append(entity["value"])
    rule, ip = body["rule"], body["attribution"]["ip"]
    return About(
        rule_version=rule["version"],
        rule_title=rule["name"],
        level=rule["level"],
        pack=body["lineage"]["pack"],
        kind=rule["kind"],
        mode="import" if body["mode"] == "backfill" else "live",
        source="",
        role="",
        scope=body["attribution"]["scope"],
        ip=ip,
        # The name that a lease told stands before the event's own (`_entities`).
        host_name=named["host"][-1] if named["host"] else None,
        user_name=named["user"][0] if named["user"] else None,
        dst_ip=next((other for other in named["ip"] if other != ip), None),
        snippet="",
        fields=body["fields"],
    )


def is_disproved(body: Mapping[str, Any]) -> bool:
    """Whether the alert of a body has no findings left that count; its last words say so."""
    return bool(body["state"] == "closed" and body["summary"].endswith((NOBODY_DID, NOT_MEANT)))


def words_in(summary: str, alert: Alert) -> str:
    """What the newest finding said, out of the summary of a revision of this alert.

    Empty where the summary does not read as one of ours.
    """
    # The summary is built with a mark in the words' place, which shows what stands around them.
    mark = "\0"
    about = msgspec.structs.replace(alert.about, snippet=mark)
    before, _, after = _summary(msgspec.structs.replace(alert, about=about)).partition(mark)
    ours = summary.startswith(before) and summary.endswith(after)
    return summary[len(before) : len(summary) - len(after)] if ours else ""


def rfc3339(us: int | datetime) -> str:
    """RFC 3339 in UTC with microseconds and a Z."""
    time = event_instant(us) if isinstance(us, int) else us.astimezone(UTC)
    # `strftime` does not pad years below 1000 on every platform.
    return time.strftime("%Y-%m-%dT%H:%M:%S.%fZ") if time.year >= 1000 else time.isoformat()


def _attack(about: About, rule: Described | None) -> list[dict[str, Any]]:
    """Of the rule; of an incident, which has none, the tactics that its rules have."""
    if rule is not None:
        return attack_entries(rule.tactics, rule.techniques)
    tactics = about.fields.get("tactics", "")
    return attack_entries(tuple(t for t in tactics.split(", ") if t), ())


def _rule(alert: Alert, rule: Described | None) -> dict[str, Any]:
    about = alert.about
    return {
        "id": alert.rule_id,
        "version": about.rule_version,
        "name": about.rule_title,
        "level": about.level,
        # The contract knows two kinds: of one event, and of many.
        "kind": "event" if about.kind == "event" else "correlation",
        "tags": list(rule.tags) if rule else [],
        "runbook": rule.runbook if rule else "",
        "falsepositives": list(rule.falsepositives) if rule else [],
        "author": rule.author if rule else "",
        "license": rule.license if rule else "",
    }


def _entities(alert: Alert, about: About) -> list[dict[str, str]]:
    """Everything the alert names, the entity it is about first."""
    holder = alert.holder
    named = [
        (alert.entity_type, alert.entity_value),
        ("ip", about.ip),
        ("host", holder.hostname if holder and holder.status == "leased" else None),
        ("host", about.host_name),
        ("user", about.user_name),
        ("ip", about.dst_ip),
    ]
    return [{"type": kind, "value": value} for kind, value in dict.fromkeys(named) if value]


def _attribution(alert: Alert) -> dict[str, Any]:
    holder = _holder(alert.holder, alert.about.ip)
    if alert.previous_entity is not None:
        # Given also when nobody held it, as that is what the alert said.
        holder["previous"] = _holder(alert.previous, alert.about.ip)
    return holder


def _holder(holder: Holder | None, ip: str | None) -> dict[str, Any]:
    known = holder or Holder(ip=ip, status="unknown")
    names = ("lease_start", "lease_end", "known_at", "complete_up_to")
    times = {name: getattr(known, name) for name in names}
    return {
        "ip": known.ip or ip,
        "scope": known.scope,
        "mac": known.mac,
        "hostname": known.hostname,
        "session_id": known.session_id,
        **{name: time and rfc3339(time) for name, time in times.items()},
        "status": known.status or "unknown",
        "evidence": known.evidence or [],
        "ended": _ended(known),
        "confidence": known.confidence,
        "certainty": known.certainty,
        "reason": known.reason,
        "rivals": [_rival(rival) for rival in known.rivals or ()],
        "servers": [
            {"server": server.server, "last_line_at": rfc3339(server.last_line_at)}
            for server in known.servers or ()
        ],
    }


def _ended(known: Holder) -> str | None:
    # In microseconds: of one time the zone may be written and of the other not.
    end, complete = (
        None if time is None else micros(time) for time in (known.lease_end, known.complete_up_to)
    )
    return ended_so_far(known.ended, end, complete)


def _rival(rival: Claim) -> dict[str, Any]:
    asdict = msgspec.structs.asdict(rival)
    return {
        name: rfc3339(value) if isinstance(value, datetime) else value
        for name, value in asdict.items()
    }


def _title(alert: Alert) -> str:
    if alert.entity_key.startswith(f"{HELD_BACK}|"):
        return f"{alert.about.rule_title}: {alert.count} alerts{_whose(alert)} held back"
    holder = alert.holder
    who = alert.entity_value
    if alert.entity_type == "device" and holder:
        also = ", ".join(v for v in (who if holder.hostname else None, holder.ip) if v)
        who = f"{holder.hostname or who} ({also})" if also else who
    return f"{alert.about.rule_title}: {who}"


def _whose(alert: Alert) -> str:
    """Of a summary, whose alerts the budget held back."""
    return f" of tenant {alert.tenant_uid}" if alert.tenant_uid else ""


def _summary(alert: Alert) -> str:
    """One paragraph for a person: what was seen, and what the attribution rests on."""
    span = f"at {rfc3339(alert.last)}"
    if alert.window_start != alert.last:
        span = f"between {rfc3339(alert.window_start)} and {rfc3339(alert.last)}"
    if alert.entity_key.startswith(f"{HELD_BACK}|"):
        budget = alert.about.fields["hourly_budget"]
        return (
            f"The rule goes beyond its budget of {budget} alerts an hour{_whose(alert)}. Since "
            f"{rfc3339(alert.window_start)} {alert.count} were held back; they are in gold.alert."
        )
    times = "once" if alert.count == 1 else f"{alert.count} times"
    parts = [f"Seen {times} {span}."]
    if alert.about.snippet:
        parts.append(f"Last: {alert.about.snippet}.")
    parts.append(_basis(alert.holder, alert.about.ip))
    if alert.disproved and alert.about.kind == "correlation":
        parts.append(NOBODY_DID)
    elif alert.disproved:
        parts.append(NOT_MEANT)
    elif alert.superseded_by:
        parts.append(f"Its findings belong to alert {alert.superseded_by} now.")
    elif alert.previous_entity is not None:
        parts.append(f"It named {alert.previous_entity} before.")
    return " ".join(part for part in parts if part)


def _basis(holder: Holder | None, ip: str | None) -> str:
    if holder is None or not ip:
        return ""
    if holder.status == "leased":
        until = f" to {rfc3339(holder.lease_end)}" if holder.lease_end else ""
        since = f" from {rfc3339(holder.lease_start)}" if holder.lease_start else ""
        return f"{ip} was leased to {holder.mac}{since}{until}{_sure(holder)}."
    if holder.status == "none":
        known = holder.complete_up_to
        upto = f"; the DHCP log is complete up to {rfc3339(known)}" if known else ""
        return f"No lease covered {ip}{upto}{_sure(holder)}."
    if holder.status == "outside":
        return f"{ip} lies outside every DHCP scope."
    if holder.status == "static":
        return f"{ip} is configured as static."
    return ""


def _sure(holder: Holder) -> str:
    """Named only where there is doubt."""
    if holder.confidence is None or holder.certainty == "certain":
        return ""
    return f" ({holder.certainty}, {holder.confidence} of 100)"
