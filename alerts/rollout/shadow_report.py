"""What rules in shadow would have alerted: their findings folded as job `alert` folds live ones."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

import msgspec

from alerts.backtest.fold import Refold
from alerts.backtest.rerun import FINDINGS_NEED, FINDINGS_SQL, Ask, RerunRow
from alerts.compiler.compiler import RuleSource
from alerts.compiler.enrichment_predicates import inventories
from alerts.compiler.model_rule_files import ModelSource
from alerts.domain.entity import micros
from alerts.domain.finding import DISPROVED
from alerts.rulebook.rule_choice import AnySource
from alerts.rulebook.rule_store import read_rule_files
from alerts.rulepack.locations import store_folder
from alerts.rulepack.rule_pack import Correlation, ModelRule, PackStore, Query, Rule, RulePack
from alerts.rulepack.shadow_marks import ShadowMark, ShadowMarks
from infra.config.settings import Settings
from infra.errors import Usage

_MOST_FINDINGS = 200_000
"""Findings of one rule that are folded; beyond it nobody needs the number of alerts."""

_COUNT = (
    "SELECT count(*) AS n FROM gold.finding "
    "WHERE list_contains($rules, rule_id) AND event_time >= $since AND event_time <= $until"
)


@dataclass(frozen=True)
class ShadowOutcome:
    """What a rule in shadow found, and the alerts that it would have raised.

    `alerts` and `busiest` (most on one entity) are None beyond `_MOST_FINDINGS`. `muted`: live it
    would raise none by itself, by its level or since a correlation counts it. `over`: its time is.
    """

    rule_id: str
    findings: int
    alerts: int | None
    per_day: float | None
    busiest: str
    muted: bool
    over: bool


def shadow_outcome(
    ask: Ask,
    source: RuleSource | ModelSource,
    mark: ShadowMark,
    settings: Settings,
    now: datetime,
) -> ShadowOutcome:
    """What a rule found since it was put in shadow. `source`: as it would be if it were live."""
    rule = source.rule
    asked = {"rules": [rule.id], "since": mark.since, "until": now}
    findings = ask(_COUNT, asked, needs=("gold.finding",))[0]["n"]
    days = max((now - mark.since) / timedelta(days=1), 1.0)
    if findings > _MOST_FINDINGS:
        return ShadowOutcome(rule.id, findings, None, None, "", not rule.alerting, now > mark.until)
    pack = _alone(rule)
    refold = Refold(lambda _: pack, settings, [rule.id], index=inventories(settings))
    refold.run(_counted(ask(FINDINGS_SQL, asked, needs=FINDINGS_NEED)))
    alerts = refold.alerts.values() if rule.alerting else ()
    entities = Counter(alert.entity_value for alert in alerts)
    busiest = ", ".join(f"{name} ({count})" for name, count in entities.most_common(3))
    return ShadowOutcome(
        rule_id=rule.id,
        findings=findings,
        alerts=len(alerts),
        per_day=round(len(alerts) / days, 2),
        busiest=busiest,
        muted=not rule.alerting,
        over=now > mark.until,
    )


@dataclass(frozen=True)
class ShadowLine:
    """A rule in shadow with its mark. `outcome`: None where the lake or the rule's file is gone;
    `muted`: live it alerts not by itself; `over`: its time is."""

    rule_id: str
    name: str
    title: str
    mark: ShadowMark
    outcome: ShadowOutcome | None
    muted: bool
    over: bool


def shadow_lines(settings: Settings, ask: Ask | None, now: datetime) -> list[ShadowLine]:
    """Every rule in shadow, by id; without `ask` what it found is not told."""
    store = store_folder(settings)
    marks = ShadowMarks(store).all()
    if not marks:
        return []
    files = read_rule_files(settings)
    # As if live: only then is it known whether they would alert.
    live = files.translated.put_together(PackStore(store).disabled(), settings.alerts.levels)
    every: dict[str, AnySource] = {**live.sources, **files.models.sources}
    lines = []
    for rule_id, mark in sorted(marks.items()):
        source = every.get(rule_id)
        outcome = shadow_outcome(ask, source, mark, settings, now) if ask and source else None
        lines.append(
            ShadowLine(
                rule_id=rule_id,
                name=source.rule.name if source else "",
                title=source.rule.title if source else "",
                mark=mark,
                outcome=outcome,
                muted=source is not None and not source.rule.alerting,
                over=now > mark.until,
            )
        )
    return lines


def _counted(rows: list[RerunRow]) -> Iterator[Mapping[str, object]]:
    """Findings as if their rule were live, in the order in which they came."""
    for row in sorted(rows, key=lambda row: (micros(row["received_at"]), row["finding_id"])):
        if row["via"] != DISPROVED:
            yield row | {
                "holder": row["told_holder"] or row["holder"],
                "attr_rev": -1 if row["attr_rev"] is None else row["attr_rev"],
                "via": row["via"] or "outside",
                "alerting": True,
                "feeds": [],
                "available_at": row["received_at"],
            }


def _alone(rule: Rule | Correlation | Query | ModelRule) -> RulePack:
    live = msgspec.structs.replace(rule, alerting=True, shadow=msgspec.UNSET, feeds=())
    if isinstance(live, Rule):
        return RulePack(rules=(live,))
    if isinstance(live, Correlation):
        return RulePack(correlations=(live,))
    if isinstance(live, Query):
        return RulePack(queries=(live,))
    if isinstance(live, ModelRule):
        return RulePack(models=(live,))
    raise Usage(f"{rule.id}: no kind of rule")
