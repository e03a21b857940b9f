"""A plan as rows for people and programs."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from alerts.rulebook.preview import preview
from alerts.rulepack.rule_pack import Rule
from headgate.as_code.kinds.every import kind_named
from headgate.as_code.kinds.rules import RULES
from headgate.as_code.plan import ConfigPlan
from headgate.as_code.rule_check import PlannedRules
from headgate.as_code.state import ConfigChange, field_changes
from infra.config.settings import Settings
from infra.delta.duckdb_views import connect

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
    """How many findings each new or changed rule over events has since then, before and after.

    Counts findings, not alerts; `note` says where another command has to be asked.
    """
    files = [c.name for c in plan.changes if c.kind == RULES.name and c.after is not None]
    field = f"findings since {since.isoformat(timespec='seconds')}"
    rows = []
    connection = connect(settings.lake_root, needs=("silver.event",), only=())
    try:
        for rule_id in rules.ids_in(files):
            rule = rules.after.sources[rule_id].rule
            known = rules.before.sources.get(rule_id)
            old = None if known is None else known.rule
            if not isinstance(rule, Rule):
                note = "counts or runs on Spark: headgate rules backtest"
                rows.append(_row("preview", RULES.name, rule.name or rule_id, field, note=note))
                continue
            before = preview(connection, old, since, 0)[1] if isinstance(old, Rule) else None
            after = preview(connection, rule, since, 0)[1]
            rows.append(_row("preview", RULES.name, rule.name or rule_id, field, before, after))
    finally:
        connection.close()
    return rows
