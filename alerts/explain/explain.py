"""An alert explained: the rule, the values that matched, the evidence, and what it ran on.

Everything is read from the tables and evaluated anew; nothing is told from memory.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec

from alerts.backtest.rerun import (
    FINDINGS_NEED,
    FINDINGS_SQL,
    Ask,
    RerunRow,
    counted_by,
    found_by,
    holder_again,
    rerun_verdict,
)
from alerts.domain.entity import fields_of
from alerts.domain.finding import RULE_FAILED
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
    RulePack,
)
from infra.config.settings import Settings
from infra.errors import Fatal
from infra.spark.sql_text import sql_text
from ingest.tables import EVENT

MOST_EVENTS = 20
LEASE_REACH = timedelta(days=7)
"""How long before a lease its lines are sought."""

_OURS = {
    INCIDENT: "several rules tell of one entity within a day",
    RULE_FAILED: "a rule threw and was set aside",
}
"""Rules that are in no pack, and what they say."""

# Names of files that a batch wrote; what compaction or a rewrite wrote names no batch any more.
_BATCH = re.compile(r"([a-z]+)-(\d+)-[0-9a-f]{16}-[^/]*$")


@dataclass(frozen=True)
class Subject:
    """An alert to explain: its newest revision."""

    row: RerunRow
    body: RerunRow

    @property
    def span(self) -> tuple[datetime, datetime]:
        """First and newest event, those of the evidence included."""
        instants = (
            str(evidence_row.get("time") or "") for evidence_row in self.body.get("evidence") or ()
        )
        times = [datetime.fromisoformat(time) for time in instants if time]
        # Evidence is a sample; the alert's own window may reach further.
        times += [self.row["window_start"], self.row["window_end"]]
        return min(times), max(times)

    @property
    def evidence(self) -> list[str]:
        """Event uids that the alert shows."""
        return [str(evidence_row["event_uid"]) for evidence_row in self.body.get("evidence") or ()]


def _subject(ask: Ask, alert_id: str) -> Subject | None:
    """The alert of that id; None when there is none."""
    rows = ask(
        "SELECT * FROM gold.alert_current WHERE alert_id = $id",
        {"id": alert_id},
        needs=("gold.alert", "gold.alert_current"),
    )
    return Subject(rows[0], msgspec.json.decode(rows[0]["body"])) if rows else None


def explain(
    ask: Ask, settings: Settings, alert_id: str, *, again: bool = False, limited: bool = False
) -> RerunRow | None:
    """All that is behind an alert, ready for JSON; None when there is no such alert.

    `again`: the rule is run on its events as they are now, and the address looked up anew.
    `limited`: for who is limited to tenants. Batches are everybody's, and what the operator wrote
    into rules and filters may name others: it is without both.
    """
    subject_row = _subject(ask, alert_id)
    if subject_row is None:
        return None
    store = PackStore(store_folder(settings))
    # The pack that ran, not the one in force: the rule may have been changed since.
    pack = _pack(store, subject_row.row["pack"])
    rule = pack.described(subject_row.row["rule_id"]) if pack else None
    findings = _findings(ask, subject_row, rule)
    events = _events(ask, subject_row, findings)
    lines: RerunRow = {
        "alert": {
            name: subject_row.row[name]
            for name in ("alert_id", "revision", "activity", "title", "level", "count", "status")
        },
        "rule": _rule(settings, store, subject_row, rule, limited),
        "matched": _matched(settings, store, pack, findings, events, limited),
        "attribution": _attribution(ask, subject_row),
        "lineage": _lineage(ask, settings, subject_row, findings, events, limited),
        "evidence_sql": evidence_sql(subject_row, findings, limited),
    }
    if again:
        lines["again"] = _again(ask, settings, store, subject_row, rule, findings, events)
    # Times and nested structs become plain values, ready for JSON.
    plain: RerunRow = msgspec.to_builtins(lines)
    return plain


def _pack(store: PackStore, pack_hash: str) -> RulePack | None:
    try:
        return store.get(pack_hash)
    except Fatal:
        return None


def _current(store: PackStore, rule_id: str) -> Described | None:
    try:
        return store.get(store.current()).described(rule_id)
    except Fatal:
        return None


# -- what it rests on --------------------------------------------------------------------------


def _findings(ask: Ask, one: Subject, rule: Described | None) -> list[RerunRow]:
    """The alert's findings that it shows, and for a correlation those that it counts."""
    counted = list(rule.rules) if isinstance(rule, Correlation) else []
    since, until = one.span
    asked = {"rules": [one.row["rule_id"], *counted], "since": since, "until": until}
    within = {"gold.finding": ("event_time", since, until)}
    rows = ask(FINDINGS_SQL, asked, needs=FINDINGS_NEED, within=within)
    shown = set(one.evidence)
    return [row for row in rows if shown & {row["event_uid"], *_uids(row)}]


def findings_behind(
    ask: Ask, settings: Settings, alert_id: str
) -> tuple[datetime, datetime, list[RerunRow]]:
    """First and newest event of an alert, and the findings behind it; none where none is left."""
    subject_row = _subject(ask, alert_id)
    if subject_row is None:
        raise Fatal(f"no alert '{alert_id}'")
    pack = _pack(PackStore(store_folder(settings)), subject_row.row["pack"])
    rule = pack.described(subject_row.row["rule_id"]) if pack else None
    return *subject_row.span, _findings(ask, subject_row, rule)


def _uids(row: Mapping[str, Any]) -> list[str]:
    return [str(each["event_uid"]) for each in row.get("evidence") or ()]


def _events(ask: Ask, one: Subject, findings: Sequence[RerunRow]) -> list[RerunRow]:
    """The events as they are now in silver.event, oldest first, with the file they lie in."""
    uids = sorted({*one.evidence, *(f["event_uid"] for f in findings if f["kind"] == "event")})
    since, until = one.span
    return ask(
        "SELECT * FROM silver.event WHERE list_contains($uids, event_uid) "
        f"AND time >= $since AND time <= $until ORDER BY time, event_uid LIMIT {MOST_EVENTS}",
        {"uids": uids, "since": since, "until": until},
        needs=("silver.event",),
        within={"silver.event": ("time", since, until)},
    )


def evidence_sql(one: Subject, findings: Sequence[RerunRow], limited: bool = False) -> str:
    """Spark SQL that shows the events behind an alert, for `headgate sql` or POST /statements.

    `limited`: for who is limited to tenants, whose statements name no views.
    """
    uids = sorted({*one.evidence, *(f["event_uid"] for f in findings if f["kind"] == "event")})
    # Written out, since a person copies it: parameters would be lost.
    listed = ", ".join(map(sql_text, uids))
    since, until = one.span
    table = "silver.event" if limited else "silver.events"
    return (
        "SELECT time, source, class_name, src_ip, dst_ip, user_name, host_name, message, event_uid"
        f" FROM {table} WHERE time >= TIMESTAMP '{_sql(since)}'"
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
        return " or ".join(f"({' and '.join(rules)})" for rules in rule.any_of)
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
    settings: Settings,
    store: PackStore,
    pack: RulePack | None,
    findings: Sequence[RerunRow],
    events: Sequence[RerunRow],
    limited: bool,
) -> list[RerunRow]:
    """Event by event: which rule, which selections, which values.

    `limited`: without selections and what they ask: a filter may list what is of others.
    """
    by_uid = {event["event_uid"]: event for event in events}
    named: dict[str, Mapping[str, Any]] = {}
    out = []
    for finding in findings:
        event = by_uid.get(finding["event_uid"])
        own = pack.described(finding["rule_id"]) if pack else None
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


def _attribution(ask: Ask, one: Subject) -> RerunRow:
    """The attribution as told, with the DHCP lines it rests on."""
    merged: RerunRow = dict(one.body.get("attribution") or {})
    uids = [str(uid) for uid in merged.get("evidence") or ()]
    if uids:
        start = merged.get("lease_start")
        since = (datetime.fromisoformat(start) if start else one.span[0]) - LEASE_REACH
        merged["lines"] = ask(
            "SELECT time, source, message, event_uid FROM silver.event "
            "WHERE list_contains($uids, event_uid) AND time >= $since ORDER BY time",
            {"uids": uids, "since": since},
            needs=("silver.event",),
            within={"silver.event": ("time", since, datetime.max.replace(tzinfo=UTC))},
        )
    return merged


def _lineage(
    ask: Ask,
    settings: Settings,
    one: Subject,
    findings: Sequence[RerunRow],
    events: Sequence[RerunRow],
    limited: bool,
) -> RerunRow:
    """The rule packs and batches it came from, with the versions of tables they wrote."""
    rows = [] if limited else _batches(ask, settings, one, events)
    return {
        "pack": one.row["pack"],
        "packs": sorted({row["pack"] for row in findings}),
        "batches": [row | {"versions": dict(row["versions"] or {})} for row in rows],
        "missing": [event for event in one.evidence if event not in _known(events, findings)],
    }


def _batches(
    ask: Ask, settings: Settings, one: Subject, events: Sequence[RerunRow]
) -> list[RerunRow]:
    wanted = _batches_of(ask, settings, [event["event_uid"] for event in events], one.span)
    if one.row.get("batch") is not None:
        wanted.add(("alert", int(one.row["batch"])))
    return ask(
        "SELECT job, batch_id, started_at, finished_at, pack, versions FROM ops.ledger "
        "WHERE list_contains($batches, job || ' ' || batch_id) ORDER BY started_at",
        {"batches": [f"{job} {number}" for job, number in sorted(wanted)]},
        needs=("ops.ledger",),
    )


def _known(events: Sequence[RerunRow], findings: Sequence[RerunRow]) -> set[str]:
    return {row["event_uid"] for row in (*events, *findings)}


def _batches_of(
    ask: Ask, settings: Settings, uids: Sequence[str], span: tuple[datetime, datetime]
) -> set[tuple[str, int]]:
    """The batches that wrote these events, as far as the names of files still tell."""
    path = str(settings.lake_root / EVENT.path).replace("'", "''")
    files = ask(
        f"SELECT DISTINCT filename FROM delta_scan('{path}') "
        "WHERE list_contains($uids, event_uid) AND time >= $since AND time <= $until",
        {"uids": list(uids), "since": span[0], "until": span[1]},
        needs=("silver.event",),
        within={"silver.event": ("time", *span)},
    )
    named = (_BATCH.search(Path(row["filename"]).name) for row in files)
    return {(match_parts[1], int(match_parts[2])) for match_parts in named if match_parts}


def _again(
    ask: Ask,
    settings: Settings,
    store: PackStore,
    one: Subject,
    rule: Described | None,
    findings: Sequence[RerunRow],
    events: Sequence[RerunRow],
) -> RerunRow:
    """The rule that ran, and the one in force, on what is there now; and the address anew."""
    own = [row for row in findings if row["rule_id"] == one.row["rule_id"]]
    then = {str(row["finding_id"]) for row in own}

    def says(which: Described | None, without: str) -> str:
        if one.row["rule_id"] in _OURS:
            return "not a rule of a pack"
        if isinstance(which, Rule):
            return rerun_verdict(then, found_by(which, events))
        if isinstance(which, Correlation):
            return rerun_verdict(then, counted_by(ask, which, one.row["pack"], *one.span))
        if isinstance(which, Query):
            return f"headgate rules backtest {which.id} asks it again"
        if isinstance(which, ModelRule):
            return f"headgate models backtest {which.id} judges its hours again"
        return without

    return {
        "findings": len(then),
        "by_its_rule": says(rule, "its pack is lost"),
        "by_todays_rule": says(_current(store, one.row["rule_id"]), "not in force"),
        "attribution": holder_again(ask, own, timedelta(seconds=settings.jobs.wait_seconds)),
    }
