"""How many alerts rules raise on a day without an attack, as job `alert` would have made them.

Plain Python: the sources' parsers, the matcher, the lease rules and the fold of the alerts.
"""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from alerts.backtest.fold import Brief, Refold
from alerts.compiler.compiler import Compiled, compile_rules
from alerts.domain.finding import event_schema
from alerts.domain.levels import WORST_FIRST
from alerts.matching.matcher import Matcher
from alerts.rulebook.rules_anywhere import rules_at
from alerts.rulepack.locations import BUNDLED
from alerts.rulepack.rule_pack import RulePack
from enrich.assets.index import AssetIndex, build
from enrich.dhcp.lease_rules import Timeline
from enrich.tables_assets import ASSET_VERSION, USER_VERSION
from headgate.lab.attribution_score import own_timelines
from headgate.lab.record_files import SCOPE, day_events, read_inventory, read_manifest
from infra.config.settings import Settings
from infra.delta.parquet_writer import arrow_schema
from infra.errors import Usage

_BATCH = 4_000
SEVERE = ("high", "critical")
BAR = 0.2
"""What bundled rules may raise of levels high and critical, in alerts a host and day."""


def chosen_rules(path: Path | None, settings: Settings) -> Compiled:
    """The rules at a path, or the bundled ones, all of them on; what is refused is counted.

    Raises `Usage` where there is nothing at the path.
    """
    if path is None:
        return compile_rules([BUNDLED])
    if not path.exists():
        raise Usage(f"{path}: no such file or folder of rules")
    return rules_at(path, settings).compiled


def alerts_of_day(folder: Path, compiled: Compiled, settings: Settings) -> list[Brief]:
    """The alerts of all rules of a pack on a written day, correlations among them.

    Raises `Usage` where the day cannot be read.
    """
    events = day_events(folder)
    timelines = own_timelines(events)
    pack = compiled.pack
    wanted = [rule.id for rule in (*pack.rules, *pack.correlations)]
    with tempfile.TemporaryDirectory() as scratch:
        index = _inventory(folder, Path(scratch))
        refold = Refold(lambda _: pack, settings, wanted, index=index)
        refold.run(_attributed(_findings(events, pack), timelines))
    return [alert for alert in refold.alerts.values() if alert.state != "superseded"]


def by_level(alerts: Iterable[Brief], host_days: int) -> list[dict[str, Any]]:
    """Rows level, alerts, per_host_day, rules: what came of each level, and of high and above."""
    every = list(alerts)
    severe = [alert for alert in every if alert.level in SEVERE]
    return [
        *(_row(level, [a for a in every if a.level == level], host_days) for level in WORST_FIRST),
        _row("high and critical", severe, host_days),
    ]


def by_rule(alerts: Iterable[Brief], compiled: Compiled) -> list[dict[str, Any]]:
    """Rows level, rule, alerts, about: the noisiest first within a level."""
    every = list(alerts)
    rows = []
    for (level, rule_id), count in Counter((a.level, a.rule_id) for a in every).items():
        title = compiled.sources[rule_id].rule.title
        about = sorted({a.entity_value for a in every if a.rule_id == rule_id})
        rows.append({"level": level, "rule": title, "alerts": count, "about": about})
    worst = {level: number for number, level in enumerate(WORST_FIRST)}
    return sorted(rows, key=lambda row: (worst[row["level"]], -row["alerts"], row["rule"]))


def host_days(folder: Path) -> int:
    """How many machines a day has."""
    return len(read_manifest(folder).hosts)


def _row(level: str, alerts: Sequence[Brief], days: int) -> dict[str, Any]:
    rules = len({alert.rule_id for alert in alerts})
    per = round(len(alerts) / days, 3)
    return {"level": level, "alerts": len(alerts), "per_host_day": per, "rules": rules}


def _findings(events: Sequence[Mapping[str, Any]], pack: RulePack) -> list[dict[str, Any]]:
    matcher = Matcher(pack)
    findings: list[dict[str, Any]] = []
    for start in range(0, len(events), _BATCH):
        # Not `event_batch`: parsers make no columns that silver.event lacks, and its check of
        # names takes longer than parsing.
        rows = [dict(event) for event in events[start : start + _BATCH]]
        batch = pa.RecordBatch.from_pylist(rows, schema=event_schema())
        findings += matcher.match(batch).to_pylist()
    return findings


def _attributed(
    findings: Iterable[Mapping[str, Any]], timelines: Mapping[str, Timeline]
) -> list[dict[str, Any]]:
    """Findings with their holder, as the live join gives them, in the order of their time."""
    rows = []
    for finding in findings:
        timeline = timelines.get(finding["ip"] or "")
        instant = round(finding["event_time"].timestamp() * 1_000_000)
        session = timeline.at(instant) if timeline else None
        holder: dict[str, Any] = {"ip": finding["ip"], "scope": SCOPE, "status": "none"}
        if session is not None:
            known = {"mac": session.mac, "hostname": session.hostname}
            holder |= known | {"status": "leased", "session_id": session.session_id}
        more = {"holder": holder, "attr_rev": 0, "via": "join"}
        rows.append({**finding, **more, "available_at": finding["received_at"]})
    return sorted(rows, key=lambda row: (row["available_at"], row["finding_id"]))


def _inventory(folder: Path, scratch: Path) -> AssetIndex:
    """What the site's inventory says of its machines, as the platform looks it up."""
    assets = pa.Table.from_pylist(read_inventory(folder), schema=arrow_schema(ASSET_VERSION))
    users = pa.Table.from_pylist([], schema=arrow_schema(USER_VERSION))
    file = scratch / "index.sqlite"
    build(file, assets, users)
    return AssetIndex(file)
