"""An alert explained: the rule, the values that matched, the evidence, and what it ran on.

Everything is read from the tables and evaluated anew; nothing is told from memory.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from alerts.backtest.rerun import (
    Ask,
    RerunRow,
    counted_by,
    found_by,
    holder_again,
    rerun_verdict,
)
from alerts.domain.alert_body import damage
from alerts.domain.entity import fields_of
from alerts.domain.finding import RULE_FAILED
from alerts.explain.provenance import Provenance, Subject, provenance_of, shown_uids
from alerts.lifecycle.risk_score import INCIDENT
from alerts.matching.match_reasons import reason_text, reasons, rule_text, selections
from alerts.rulepack.locations import is_bundled, rule_folders, store_folder
from alerts.rulepack.predicate import holds
from alerts.rulepack.rule_pack import (
    Correlation,
    Described,
    ModelRule,
    PackStore,
    Query,
    Rule,
)
from infra.config.settings import Settings
from infra.errors import Fatal
from infra.spark.sql_text import sql_text

_OURS = {
    INCIDENT: "several rules fired for one entity within a day",
    RULE_FAILED: "a rule threw and was set aside",
}
"""Rules that are in no pack, and what they say."""


def explain(
    ask: Ask, settings: Settings, alert_id: str, *, again: bool = False, limited: bool = False
) -> RerunRow | None:
    """All that is behind an alert, ready for JSON; None when there is no such alert.

    `again`: the rule is run on its events as they are now, and the address looked up anew.
    Of an alert whose body is damaged it has what columns and other tables tell, and says so.

    `limited`: for who is limited to tenants. Batches are everybody's, and what the operator wrote
    into rules and filters may name others: it is without both.
    """
    provenance = next(iter(provenance_of(ask, settings, [alert_id], limited=limited)), None)
    if provenance is None:
        return None
    lines = explanation(settings, provenance, limited=limited)
    if again:
        told_again = _again(ask, settings, PackStore(store_folder(settings)), provenance)
        lines["again"] = msgspec.to_builtins(told_again)
    return lines


def explanation(settings: Settings, provenance: Provenance, *, limited: bool = False) -> RerunRow:
    """What `explain` tells of an alert, of what lies behind it."""
    subject, store = provenance.subject, PackStore(store_folder(settings))
    lines: RerunRow = {
        "alert": {
            name: subject.row[name]
            for name in ("alert_id", "revision", "activity", "title", "level", "count", "status")
        },
        "rule": _rule(settings, store, subject, provenance.rule, limited),
        "matched": _matched(settings, store, provenance, limited),
        "attribution": _attribution(provenance),
        "lineage": _lineage(provenance),
        "evidence_sql": evidence_sql(subject, provenance.findings),
        "damaged": damage(subject.body, subject.row["alert_id"], subject.row["revision"]),
    }
    # Times and nested structs become plain values, ready for JSON.
    plain: RerunRow = msgspec.to_builtins(lines)
    return plain


def _current(store: PackStore, rule_id: str) -> Described | None:
    try:
        return store.get(store.current()).described(rule_id)
    except Fatal:
        return None


def evidence_sql(one: Subject, findings: Sequence[RerunRow]) -> str:
    """Spark SQL that shows the events behind an alert, for `headgate sql` or POST /statements."""
    uids = sorted(shown_uids(one, findings))
    # Written out, since a person copies it: parameters would be lost.
    # Of a damaged alert no event is known, and Spark reads no empty list.
    listed = ", ".join(map(sql_text, uids)) or "NULL"
    since, until = one.span
    return (
        "SELECT time, source, class_name, src_ip, dst_ip, user_name, host_name, message, event_uid"
        f" FROM silver.events WHERE time >= TIMESTAMP '{_sql(since)}'"
        f" AND time <= TIMESTAMP '{_sql(until)}' AND event_uid IN ({listed}) ORDER BY time"
    )


def _sql(at: datetime) -> str:
    return at.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S.%f")


# -- the rule, and what of it matched ----------------------------------------------------------


def _rule(
    settings: Settings, store: PackStore, one: Subject, rule: Described | None, limited: bool
) -> RerunRow:
    version = (one.body.get("rule") or {}).get("version")
    now = _current(store, one.row["rule_id"])
    text_of_rule = rule_text(rule_folders(settings), one.row["rule_id"])
    if limited and text_of_rule and not is_bundled(text_of_rule[0]):
        text_of_rule = None
    return {
        "id": one.row["rule_id"],
        "title": one.row["rule_name"],
        "version": version,
        "condition": _OURS.get(one.row["rule_id"]) or (None if limited else _condition(rule)),
        "unchanged": one.row["rule_id"] in _OURS or (now is not None and now.version == version),
        "file": str(text_of_rule[0]) if text_of_rule else None,
        "text": text_of_rule[1] if text_of_rule else None,
    }


def _confirmed(rule: Rule | Query) -> str:
    """What the rule asks besides of whom the event is about, in words."""
    return "" if rule.confirm is msgspec.UNSET else f"; confirmed by {reason_text(rule.confirm)}"


def _asked_of(rule: Correlation) -> str:
    """What a correlation's condition demands of its window."""
    if rule.any_of is not msgspec.UNSET:
        return " or ".join(
            f"({' and '.join([*fire, *(f'not {name}' for name in never)])})"
            for fire, never in rule.alternatives
        )
    upper = "" if rule.upper is msgspec.UNSET else f" and {rule.upper[0]} {rule.upper[1]}"
    return f"{rule.op} {rule.count}{upper}"


def _condition(rule: Described | None) -> str | None:
    """The rule that ran, from its pack, in words."""
    if isinstance(rule, Rule):
        return reason_text(rule.predicate) + _confirmed(rule)
    if isinstance(rule, Query):
        return rule.text + _confirmed(rule)
    if isinstance(rule, Correlation):
        field = f" of {' with '.join(rule.every_field)}" if rule.field else ""
        group = f" by {', '.join(rule.group_by)}" if rule.group_by else ""
        return (
            f"{rule.type}{field}{group} {_asked_of(rule)} within {rule.timespan_seconds} s"
            f" of {', '.join(rule.rules)}"
        )
    if isinstance(rule, ModelRule):
        return (
            f"an hour of a device with {' or '.join(rule.features)} that model {rule.model} "
            f"scores {rule.threshold:g} or more (headgate models show {rule.id})"
        )
    return None


def _matched(
    settings: Settings, store: PackStore, provenance: Provenance, limited: bool
) -> list[RerunRow]:
    """Event by event: which rule, which selections, which values.

    `limited`: without selections and what they ask: a filter may list what is of others.
    """
    by_uid = {event["event_uid"]: event for event in provenance.events}
    named: dict[str, Mapping[str, Any]] = {}
    out = []
    for finding in provenance.findings:
        event = by_uid.get(finding["event_uid"])
        own = provenance.pack.described(finding["rule_id"]) if provenance.pack else None
        row: RerunRow = {
            "event_uid": finding["event_uid"],
            "time": finding["event_time"],
            "rule_id": finding["rule_id"],
            "rule_title": finding["rule_title"],
            "kind": finding["kind"],
            "fields": fields_of(finding),
        }
        if event is not None and limited:
            row["message"] = event["message"]
        elif event is not None and isinstance(own, Rule):
            if own.id not in named:
                named[own.id] = _selections(settings, store, own)
            row["selections"] = [n for n, node in named[own.id].items() if holds(node, event)]
            row["because"] = reasons(own.predicate, event)
            row["message"] = event["message"]
        out.append(row)
    return out


def _selections(settings: Settings, store: PackStore, rule: Rule) -> Mapping[str, Any]:
    """The rule's named selections, when its file still says what ran; else none."""
    # Late: pySigma is loaded only where the findings are of a rule that it reads.
    from alerts.compiler.sigma_to_predicate import REFUSALS

    now = _current(store, rule.id)
    text_of_rule = rule_text(rule_folders(settings), rule.id)
    # Names from a file that was changed would be put on what an older rule matched.
    if now is None or now.version != rule.version or text_of_rule is None:
        return {}
    try:
        return selections(rule_folders(settings), text_of_rule[1])
    except REFUSALS:
        return {}


# -- who, and on what --------------------------------------------------------------------------


def _attribution(provenance: Provenance) -> RerunRow:
    """The attribution as told, with the DHCP lines it rests on."""
    merged: RerunRow = dict(provenance.subject.body.get("attribution") or {})
    if provenance.subject.proof:
        merged["lines"] = provenance.proof
    return merged


def _lineage(provenance: Provenance) -> RerunRow:
    """The rule packs and batches it came from, with the versions of tables they wrote."""
    known = _known(provenance.events, provenance.findings)
    return {
        "pack": provenance.subject.row["pack"],
        "packs": sorted({row["pack"] for row in provenance.findings if row["pack"]}),
        "batches": [row | {"versions": dict(row["versions"] or {})} for row in provenance.batches],
        "missing": [event for event in provenance.subject.evidence if event not in known],
    }


def _known(events: Sequence[RerunRow], findings: Sequence[RerunRow]) -> set[str]:
    return {row["event_uid"] for row in (*events, *findings)}


def _again(ask: Ask, settings: Settings, store: PackStore, provenance: Provenance) -> RerunRow:
    """The rule that ran, and the one in force, on what is there now; and the address anew."""
    subject = provenance.subject
    own = [row for row in provenance.findings if row["rule_id"] == subject.row["rule_id"]]
    then = {str(row["finding_id"]) for row in own}
    pack = subject.row["pack"] or ""

    def says(which: Described | None, without: str) -> str:
        if subject.row["rule_id"] in _OURS:
            return "not a rule of a pack"
        if isinstance(which, Rule):
            return rerun_verdict(then, found_by(which, provenance.events))
        if isinstance(which, Correlation):
            return rerun_verdict(then, counted_by(ask, which, pack, *subject.span))
        if isinstance(which, Query):
            return f"headgate rules backtest {which.id} asks it again"
        if isinstance(which, ModelRule):
            return f"headgate models backtest {which.id} judges its hours again"
        return without

    return {
        "findings": len(then),
        "by_its_rule": says(provenance.rule, "its pack is lost"),
        "by_todays_rule": says(_current(store, subject.row["rule_id"]), "not in force"),
        "attribution": holder_again(ask, own, timedelta(seconds=settings.jobs.wait_seconds)),
    }
