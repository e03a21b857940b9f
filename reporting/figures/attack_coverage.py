"""ATT&CK as the rules in force cover it: rules, whether their data comes, and what alerted."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from alerts.cli.coverage import known_blindness
from alerts.domain.attack import TACTICS
from alerts.domain.attack_techniques import placed
from alerts.rulepack.locations import store_folder
from alerts.rulepack.rule_pack import Described, PackStore
from infra.config.settings import Settings
from reporting.document.request import ReportRequest
from reporting.figures.alerts import ALERTS

_BY_RULE = ALERTS + "SELECT rule_id, count(*) AS alerts FROM alert GROUP BY rule_id"
_FINDINGS = """
SELECT rule_id, count(*) AS findings FROM gold.findings
WHERE event_time >= $since AND event_time < $until GROUP BY rule_id
"""


@dataclass
class Technique:
    """One technique: its rules by title, those that are blind, and what they gave."""

    uid: str
    tactics: set[str] = field(default_factory=set)
    rules: list[str] = field(default_factory=list)
    blind: list[str] = field(default_factory=list)
    findings: int = 0
    alerts: int = 0

    @property
    def state(self) -> str:
        """`fired`, `watched`, or `blind` when no rule for it can see anything."""
        if self.alerts or self.findings:
            return "fired"
        return "blind" if self.rules and len(self.blind) == len(self.rules) else "watched"


def rules_in_force(settings: Settings) -> Sequence[Described]:
    """Every rule of the pack in force; without a pack, none."""
    store = PackStore(store_folder(settings))
    if not (store.folder / "current").exists():
        return ()
    pack = store.get(store.current())
    return (*pack.rules, *pack.correlations, *pack.models, *pack.queries)


def techniques(request: ReportRequest) -> list[Technique]:
    """Techniques that rules in force name, by uid, with what they gave in the interval."""
    alerts = _counts(request.ask(_BY_RULE), "alerts")
    findings = _counts(request.ask(_FINDINGS), "findings")
    blind = known_blindness(request.settings)
    named: dict[str, Technique] = {}
    for rule in rules_in_force(request.settings):
        for uid in dict.fromkeys(rule.techniques):
            technique = named.setdefault(uid, Technique(uid))
            technique.tactics |= placed(uid, [t for t in rule.tactics if t in TACTICS])
            technique.rules.append(rule.title)
            if blind.get(rule.id, "").startswith("blind"):
                technique.blind.append(rule.title)
            technique.findings += findings.get(rule.id, 0)
            technique.alerts += alerts.get(rule.id, 0)
    return [named[uid] for uid in sorted(named)]


def by_tactic(techniques: Sequence[Technique]) -> dict[str, list[Technique]]:
    """Techniques by tactic, in ATT&CK's order; one stands under each of its tactics."""
    columns: dict[str, list[Technique]] = defaultdict(list)
    for technique in techniques:
        for tactic in technique.tactics:
            columns[tactic].append(technique)
    return {tactic: columns.get(tactic, []) for tactic in TACTICS}


def _counts(rows: Sequence[Mapping[str, Any]], name: str) -> dict[str, int]:
    return {str(row["rule_id"]): int(row[name]) for row in rows}
