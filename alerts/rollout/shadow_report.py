"""What rules in shadow would have alerted: their findings folded as job `alert` folds live ones."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

import msgspec

from alerts.backtest.fold import Brief, Refold
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


@dataclass(frozen=True)
class ShadowFold:
    """The findings of a rule in shadow, and the alerts that they would have been.

    `rows` and `alerts` are None beyond `_MOST_FINDINGS`; `count` is all of them then too.
    """

    count: int
    rows: list[RerunRow] | None
    alerts: list[Brief] | None


def shadow_fold(
    ask: Ask,
    source: RuleSource | ModelSource,
    mark: ShadowMark,
    settings: Settings,
    now: datetime,
) -> ShadowFold:
    """What a rule found since it was put in shadow, folded as if it were live.

    `source`: as it would be then.
    """
    rule = source.rule
    bounds = {"rules": [rule.id], "since": mark.since, "until": now}
    count = ask(_COUNT, bounds, needs=("gold.finding",))[0]["n"]
    if count > _MOST_FINDINGS:
        return ShadowFold(count, None, None)
    pack = _alone(rule)
    rows = ask(FINDINGS_SQL, bounds, needs=FINDINGS_NEED)
    refold = Refold(lambda _: pack, settings, [rule.id], index=inventories(settings))
    refold.run(_counted(rows))
    return ShadowFold(count, rows, list(refold.alerts.values()) if rule.alerting else [])


def shadow_outcome(
    fold: ShadowFold, source: RuleSource | ModelSource, mark: ShadowMark, now: datetime
) -> ShadowOutcome:
    """What a fold comes to."""
    entities = Counter(alert.entity_value for alert in fold.alerts or ())
    days = max((now - mark.since) / timedelta(days=1), 1.0)
    return ShadowOutcome(
        rule_id=source.rule.id,
        findings=fold.count,
        alerts=None if fold.alerts is None else len(fold.alerts),
        per_day=None if fold.alerts is None else round(len(fold.alerts) / days, 2),
        busiest=", ".join(f"{name} ({count})" for name, count in entities.most_common(3)),
        muted=not source.rule.alerting,
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
    marks = ShadowMarks(store_folder(settings)).all()
    if not marks:
        return []
    every = as_if_live(settings)
    lines = []
    for rule_id, mark in sorted(marks.items()):
        source, outcome = every.get(rule_id), None
        if ask and source:
            fold = shadow_fold(ask, source, mark, settings, now)
            outcome = shadow_outcome(fold, source, mark, now)
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


def as_if_live(settings: Settings) -> dict[str, AnySource]:
    """Every rule as it would be without marks: only then is it known whether it would alert."""
    files = read_rule_files(settings)
    disabled = PackStore(store_folder(settings)).disabled()
    live = files.translated.put_together(disabled, settings.alerts.levels)
    return {**live.sources, **files.models.sources}


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
