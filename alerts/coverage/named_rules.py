"""Rules that the settings name by id: one that there is not is a slip, and said."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from difflib import get_close_matches

from alerts.domain.finding import RULE_FAILED
from alerts.lifecycle.risk_score import INCIDENT
from alerts.rulebook.rule_store import read_rule_files
from infra.config.settings import Settings
from infra.process.log import say
from infra.runtime.machine_checks import Finding

_OURS = {INCIDENT: "incident", RULE_FAILED: "rule failed"}
"""Ids of alerts that no rule makes, which a budget may name."""


def unknown_rules(settings: Settings) -> dict[str, str]:
    """What the settings name and no rule has, such as `alerts.budgets 'r1'`, with what may have
    been meant."""
    alerts = settings.alerts
    named = [
        (f"alerts.{setting} '{rule_id}'", rule_id)
        for setting, rules in (
            ("preliminary_rules", alerts.preliminary_rules),
            ("budgets", alerts.budgets),
        )
        for rule_id in rules
    ]
    if not named:
        return {}
    files = read_rule_files(settings)
    compiled = files.compiled()
    name_of = _OURS | {s.rule.id: s.rule.name for s in compiled.sources.values()}
    name_of |= {s.rule.id: s.rule.name for s in files.models.sources.values()}
    refused = len(compiled.refused) + len(files.models.refused)
    return {
        where: _meant(rule_id, name_of, refused)
        for where, rule_id in named
        if rule_id not in name_of
    }


def say_unknown_rules(settings: Settings) -> None:
    """Tell a driver's log of them: rules may come later, so nothing is held up."""
    for where, meant in unknown_rules(settings).items():
        say(f"{where}: no rule has this id, so it is without effect; {meant}")


def unknown_rule_findings(settings: Settings) -> Iterator[Finding]:
    """A line of `headgate doctor` and `headgate status` for each."""
    for where, meant in unknown_rules(settings).items():
        yield Finding("rules", f"{where}: no rule has this id, so it is without effect", meant)


def _meant(text: str, name_of: Mapping[str, str], refused: int) -> str:
    ids = {name: rule_id for rule_id, name in name_of.items() if name} | {
        rule_id: rule_id for rule_id in name_of
    }
    near = [text] if text in ids else get_close_matches(text, ids, 1, 0.6)
    if near:
        rule_id = ids[near[0]]
        return f"write '{rule_id}' for rule {name_of[rule_id]}, if that is meant"
    more = f", and {refused} that are refused" if refused else ""
    return f"'headgate rules list' shows their ids{more}"
