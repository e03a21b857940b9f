"""A finding that made no alert explained: what its rule wants confirmed, and whom it is about."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from alerts.backtest.rerun import Ask, RerunRow
from alerts.compiler.enrichment_predicates import Confirming, inventories, who
from alerts.domain.finding import DISPROVED
from alerts.matching.match_reasons import reason_text, reasons
from alerts.rulepack.locations import store_folder
from alerts.rulepack.predicate import holds
from alerts.rulepack.rule_pack import PackStore
from infra.config.settings import Settings

_FINDING = """
SELECT f.*, a.holder AS told_holder, a.via FROM gold.finding f
LEFT JOIN gold.attribution_current a USING (finding_id)
WHERE f.finding_id = $id LIMIT 1
"""
_NEEDS = ("gold.finding", "gold.attribution", "gold.attribution_current")


def explain_finding(ask: Ask, settings: Settings, finding_id: str) -> RerunRow | None:
    """Why a finding counts or does not, ready for JSON; None when there is no such finding.

    `state`: confirmed, not confirmed, "counts" for a rule that wants nothing confirmed, or, of a
    correlation's finding, disproved. By its newest attribution and the inventories as they are
    now, of the time of its event.
    """
    rows = ask(_FINDING, {"id": finding_id}, needs=_NEEDS)
    if not rows:
        return None
    row = rows[0] | {"holder": rows[0]["told_holder"] or rows[0]["holder"]}
    condition = Confirming(PackStore(store_folder(settings)).get).asked(row)
    about = who(row, inventories(settings))
    shown = ("finding_id", "rule_id", "rule_title", "event_uid", "event_time", "ip", "user_name")
    lines: RerunRow = {
        "finding": {name: row[name] for name in shown},
        "state": "counts",
        "asked": None,
        "because": [],
        "about": about,
    }
    # Before what the rule asks: a window that was not there has nothing to be confirmed.
    if row["via"] == DISPROVED:
        lines["state"] = "disproved: what it counted was of several devices"
    elif condition is not None:
        confirmed = holds(condition, about)
        lines["state"] = "confirmed" if confirmed else "not confirmed"
        lines["asked"] = reason_text(condition)
        lines["because"] = reasons(condition, about) if confirmed else []
    plain: RerunRow = msgspec.to_builtins(lines)
    return plain


def finding_text(explanation: RerunRow) -> Iterator[str]:
    """The same for a terminal."""
    finding = explanation["finding"]
    yield f"finding {finding['finding_id']}: {finding['rule_title']} (event {finding['event_uid']})"
    yield f"state: {explanation['state']}"
    if explanation["asked"]:
        yield f"asked: {explanation['asked']}"
    for name, known in explanation["about"].items():
        yield f"{name}: {_brief(known)}"


def _brief(known: dict[str, Any] | None) -> str:
    if not known:
        return "not known"
    return ", ".join(f"{name} {value}" for name, value in known.items() if value not in (None, []))
