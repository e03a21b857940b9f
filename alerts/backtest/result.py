"""What a backtest came to, as it is kept and shown."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from alerts.backtest.compare import compare_alerts, compare_findings
from alerts.backtest.fold import Brief, Refold
from alerts.backtest.run import Backtest, Run
from alerts.domain.entity import event_instant, micros
from alerts.matching.routing import LogSource, looks_at
from alerts.rulepack.rule_pack import Correlation, PackStore, Query, Rule, RulePack
from infra.delta.duckdb_views import open_engine, reach
from infra.storage.atomic_files import write_whole
from infra.storage.checksums import json_lines
from infra.storage.state_file import JsonLayout, StateFile
from ingest.tables import EVENT, HEARTBEAT

_EXAMPLES = 5
_ENTITIES = 10

_COUNTED = """
SELECT pack, rule_id, count(*) AS findings,
       count(*) FILTER (WHERE mode = 'import') AS imported
FROM read_parquet($files)
WHERE event_time >= $since AND event_time < $until GROUP BY ALL
"""
_EVENTS = """
SELECT class_uid, source, count(*) FROM delta_scan($folder, version => $version)
WHERE time >= $since AND time < $until AND source <> $heartbeat
  AND dead_letter_reason IS NULL AND duplicate_of IS NULL
GROUP BY ALL
"""


def summarise(work: Backtest, refolds: Mapping[str, Refold], packs: PackStore) -> dict[str, Any]:
    """The result of a run that is through; kept beside it as `result.json` and `alerts-*.json`."""
    run = work.run
    since, until = (micros(time) for time in run.span())
    alerts = {
        side: [alert for alert in refold.alerts.values() if since <= alert.raised < until]
        for side, refold in refolds.items()
    }
    events = _events(work)
    result: dict[str, Any] = {
        "id": run.id,
        "since": run.since,
        "until": run.until,
        "versions": run.versions,
        "packs": run.packs,
        "sides": {
            side: _side(work, side, alerts[side], refolds[side], packs.get(run.packs[side]), events)
            for side in refolds
        },
    }
    rows = [(alert, "") for alert in alerts["new"]]
    if "old" in refolds:
        by_rule = set(run.ids["new"]) == set(run.ids["old"])
        comparison = compare_alerts(alerts["new"], alerts["old"], by_rule)
        named = {"gained": comparison.gained, "lost": comparison.lost, "same": comparison.same}
        result["difference"] = {
            "alerts": {name: len(each) for name, each in named.items()},
            "findings": _findings(work),
            "examples": {
                name: [row_of(alert) for alert in _newest(each)] for name, each in named.items()
            },
        }
        rows = [(alert, name) for name, each in named.items() for alert in each]
    keep_result(work.folder, result, rows)
    return result


def keep_result(folder: Path, result: Mapping[str, Any], rows: Iterable[tuple[Brief, str]]) -> None:
    """Write the result, and its alerts as one JSON object a line, in their order."""
    # In a fixed order, so that two results can be compared line by line.
    ordered = sorted(rows, key=lambda pair: (pair[0].raised, pair[0].alert_id))
    lines = [json.dumps(row_of(alert, change)) for alert, change in ordered]
    # Before the result: who sees a result may read its alerts.
    write_whole(folder / "alerts.ndjson", "\n".join([*lines, ""]))
    _file(folder).write(dict(result))


def kept_alerts(folder: Path) -> list[dict[str, Any]]:
    """The alerts that were kept with a result."""
    text = (folder / "alerts.ndjson").read_text("utf-8")
    return [json.loads(line) for line in json_lines(text)]


def row_of(one: Brief, change: str = "") -> dict[str, Any]:
    """An alert as it is shown; `change`: gained, lost or same, where there are two versions."""
    return {
        **({"change": change} if change else {}),
        "raised": _stamp(one.raised),
        "first": _stamp(one.first),
        "last": _stamp(one.last),
        "rule_id": one.rule_id,
        "level": one.level,
        "entity_type": one.entity_type,
        "entity": one.entity_value,
        "attribution": one.status,
        "count": one.count,
        "title": one.title,
        "snippet": one.snippet,
        "evidence": one.evidence,
        "alert_id": one.alert_id,
    }


def _side(
    work: Backtest,
    side: str,
    alerts: Sequence[Brief],
    refold: Refold,
    pack: RulePack,
    events: Mapping[LogSource, int],
) -> dict[str, Any]:
    run = work.run
    since, until = run.span()
    findings, imported = _counted(work, pack.hash)
    for row in refold.findings:
        if since <= row["event_time"] < until:
            findings[row["rule_id"]] += 1
    raised = Counter(alert.rule_id for alert in alerts)
    days = Counter(f"{event_instant(alert.raised):%Y-%m-%d}" for alert in alerts)
    entities = Counter((alert.entity_type, alert.entity_value) for alert in alerts)
    return {
        "alerts": len(alerts),
        "rules": [
            {
                "id": rule_id,
                "title": rule.title,
                "level": rule.level,
                "findings": findings[rule_id],
                "alerts": raised[rule_id],
                # Nothing found says little of a rule whose events were not there.
                "events": events_of(rule_id, pack, events),
                "note": "" if rule.alerting else "makes no alerts by itself (level, or counted)",
            }
            for rule_id in run.ids[side]
            if (rule := pack.described(rule_id)) is not None
        ],
        "counted": {r: n for r, n in sorted(findings.items()) if r not in run.ids[side]},
        "imported_findings": imported,
        "by_day": dict(sorted(days.items())),
        "by_entity": [
            {"type": kind, "value": value, "alerts": number}
            for (kind, value), number in entities.most_common(_ENTITIES)
        ],
        "by_attribution": dict(sorted(Counter(alert.status for alert in alerts).items())),
        "examples": [row_of(alert) for alert in _newest(alerts)],
    }


def _events(work: Backtest) -> dict[LogSource, int]:
    """Events in the span by log source, of the version that was matched."""
    since, until = work.run.span()
    folder = work.settings.lake_root / EVENT.path
    bounds = {"folder": str(folder), "version": work.run.versions[EVENT.name], "since": since,
             "until": until, "heartbeat": HEARTBEAT}  # fmt: skip
    with closing(open_engine(memory="1GB", threads=2)) as engine:
        reach(engine, folder)
        rows = engine.execute(_EVENTS, bounds).fetchall()
    return {(class_uid, source): int(many) for class_uid, source, many in rows}


def events_of(rule_id: str, pack: RulePack, events: Mapping[LogSource, int]) -> int:
    """How many events a rule looked at; of a correlation, the rules that it counts."""
    rules: list[Rule | Query] = []
    waiting, seen_rules = [rule_id], set[str]()
    while waiting:
        rule = pack.described(waiting.pop())
        if isinstance(rule, Correlation):
            waiting += [each for each in rule.rules if each not in seen_rules]
            seen_rules |= set(rule.rules)
        elif isinstance(rule, Rule | Query):
            rules.append(rule)
    # A query says itself what it reads, so all may be its own.
    return sum(
        many
        for source, many in events.items()
        if any(isinstance(rule, Query) or looks_at(rule, source) for rule in rules)
    )


def _counted(work: Backtest, pack: str) -> tuple[Counter[str], int]:
    """Findings in the span by rule, and how many of them are imported events'."""
    files = [str(file) for file in work.finding_files()]
    counters: Counter[str] = Counter()
    imported = 0
    if files:
        since, until = work.run.span()
        connection = open_engine(memory="1GB", threads=2)
        bounds = {"files": files, "since": since, "until": until}
        for name, rule_id, many, old in connection.execute(_COUNTED, bounds).fetchall():
            if name == pack:
                counters[rule_id] += many
                imported += old
        connection.close()
    return counters, imported


def _findings(work: Backtest) -> dict[str, int]:
    run = work.run
    connection = open_engine(memory="1GB", threads=2)
    try:
        counted = compare_findings(
            connection,
            work.finding_files(),
            (run.packs["new"], run.packs["old"]),
            (run.ids["new"], run.ids["old"]),
            run.span(),
        )
    finally:
        connection.close()
    return {"gained": counted.gained, "lost": counted.lost, "same": counted.same}


def _newest(alerts: Sequence[Brief]) -> list[Brief]:
    return sorted(alerts, key=lambda one: (-one.raised, one.alert_id))[:_EXAMPLES]


def _stamp(us: int) -> str:
    return event_instant(us).astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def loaded(folder: Path) -> dict[str, Any]:
    """A result that was kept."""
    result = _file(folder).read()
    if result is None:
        raise FileNotFoundError(folder / "result.json")
    return result


def _file(folder: Path) -> StateFile[dict[str, Any]]:
    remedy = f"remove {folder}; the backtest can be run again"
    return StateFile(folder / "result.json", dict[str, Any], remedy, layout=JsonLayout.INDENTED)


def took(run: Run) -> float:
    """Seconds from the begin of a run to its end."""
    end = datetime.fromisoformat(run.finished) if run.finished else datetime.now(UTC)
    return (end - datetime.fromisoformat(run.began)).total_seconds()
