"""A plan as rows for people and programs."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from alerts.backtest.correlation_preview import preview_over_events
from alerts.rulepack.rule_pack import Correlation, Query, Rule
from headgate.as_code.kinds.every import kind_named
from headgate.as_code.kinds.rules import RULES
from headgate.as_code.plan import ConfigPlan
from headgate.as_code.rule_check import PlannedRules
from headgate.as_code.state import ConfigChange, field_changes
from infra.config.settings import Settings

COLUMNS = ("action", "kind", "name", "field", "before", "after", "note")
NO_TITLES: Mapping[str, str] = {}
_MOST_FIELDS = 40
"""Fields of one object that are named one by one; the others are counted."""


def plan_rows(plan: ConfigPlan, titles: Mapping[str, str] = NO_TITLES) -> list[dict[str, Any]]:
    """Problems first, then a row for each field that differs; an object that goes has one row.

    `titles` of rules by id: an id alone tells nobody which rule is switched.
    """
    rows = [_row("problem", p.kind, p.name, note=p.sentence) for p in plan.problems]
    for change in plan.changes:
        title = titles.get((change.after or change.before or {}).get("rule", change.name), "")
        rows += _rows_of(change, change.action, title)
    for change in plan.by_hand:
        rows += _rows_of(change, "by hand", kind_named(change.kind).by_hand)
    rows += [
        _row("left", change.kind, change.name, note="not in the folder, left (--prune removes)")
        for change in plan.left
    ]
    return rows


def _rows_of(change: ConfigChange, action: str, note: str) -> list[dict[str, Any]]:
    if change.after is None:
        return [_row(action, change.kind, change.name, note=note)]
    fields = field_changes(change, kind_named(change.kind).described)
    rows = [
        _row(action, change.kind, change.name, f.field, f.before, f.after, note)
        for f in fields[:_MOST_FIELDS]
    ]
    if len(fields) > _MOST_FIELDS:
        more = f"{len(fields) - _MOST_FIELDS} more fields differ"
        rows.append(_row(action, change.kind, change.name, note=more))
    return rows


def _row(
    action: str,
    kind: str,
    name: str,
    field: str = "",
    before: Any = None,
    after: Any = None,
    note: str = "",
) -> dict[str, Any]:
    values = (action, kind, name, field, before, after, note)
    return dict(zip(COLUMNS, values, strict=True))


def preview_rows(
    settings: Settings, plan: ConfigPlan, rules: PlannedRules, since: datetime
) -> list[dict[str, Any]]:
    """How many findings each new or changed rule has since then, before and after.

    Counts findings, not alerts; `note` says what was left out, or where another command has to be
    asked.
    """
    files = [c.name for c in plan.changes if c.kind == RULES.name and c.after is not None]
    field = f"findings since {since.isoformat(timespec='seconds')}"
    rows = []
    for rule_id in rules.ids_in(files):
        rule = rules.after.sources[rule_id].rule
        known = rules.before.sources.get(rule_id)
        old = None if known is None else known.rule
        name = rule.name or rule_id
        if isinstance(rule, Query):
            note = "runs on Spark: headgate rules backtest"
            rows.append(_row("preview", RULES.name, name, field, note=note))
            continue
        after = preview_over_events(settings, rule, since, 0, rules.after)
        before, notes = None, after.notes
        if isinstance(old, Rule | Correlation):
            counts = preview_over_events(settings, old, since, 0)
            before, notes = counts.findings, (*counts.notes, *notes)
        note = "; ".join(dict.fromkeys(notes))
        rows.append(_row("preview", RULES.name, name, field, before, after.findings, note))
    return rows
