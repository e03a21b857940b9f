"""The rules of a lake by name: what there is of them, and switching them on and off."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from alerts.compiler.compiler import Compiled, RuleSource
from alerts.compiler.indicator_lists import INDICATOR
from alerts.compiler.model_rule_files import MODEL, Models, ModelSource
from alerts.domain.finding import RULE_FAILED
from alerts.domain.short_ids import id_begun_by, several_ids
from alerts.lifecycle.risk_score import INCIDENT
from alerts.rulebook.rule_store import RuleFiles, read_rule_files
from alerts.rulepack.locations import store_folder
from alerts.rulepack.predicate import tests_of
from alerts.rulepack.rule_pack import Correlation, PackStore, Query, Rule, RulePack, Switch
from alerts.rulepack.shadow_marks import ShadowMark, ShadowMarks
from alerts.spark_rules.disabled_rules import DisabledRules, state_of
from infra.config.settings import Settings
from infra.errors import NoSuch, Usage

_WITHOUT_FILE = frozenset({INCIDENT, RULE_FAILED})


def compiled_rules(settings: Settings) -> Compiled:
    """The rules as their files are now, without putting them in force."""
    return read_rule_files(settings).compiled()


def rule_id_of(compiled: Compiled, rule: str) -> str:
    """The id of a rule given by id, name or title, or how its id begins.

    Raises `NoSuch` where there is none, and `Usage` where it is refused or may be several.
    """
    for rule_id, source in compiled.sources.items():
        if rule in (rule_id, source.rule.name):
            return rule_id
    for refused in compiled.refused:
        if rule in (refused.rule, refused.path, Path(refused.path).stem) or _has_name(
            refused.path, rule
        ):
            raise Usage(f"rule '{rule}' is refused: {refused.reason}; {refused.remedy}")
    if begun := id_begun_by("rule", rule, compiled.sources):
        return begun
    # Last, as titles are no names: several rules may have one.
    titled = sorted(i for i, source in compiled.sources.items() if source.rule.title == rule)
    if len(titled) > 1:
        raise several_ids("rule", rule, titled)
    if titled:
        return titled[0]
    raise NoSuch(f"no rule '{rule}'; 'headgate rules list' shows them")


def id_of_any(files: RuleFiles, rule: str) -> str:
    """The id of a rule of any kind, models too; raises `Usage`."""
    model = files.models.named(rule)
    return model.rule.id if model else rule_id_of(files.compiled(), rule)


def id_of_alerts(settings: Settings, rule: str) -> str:
    """The same of whatever may have raised alerts, also what stands in no file; raises `Usage`."""
    return rule if rule in _WITHOUT_FILE else id_of_any(read_rule_files(settings), rule)


def any_source(settings: Settings, rule: str) -> RuleSource | ModelSource:
    """A rule of any kind, by id or name, with its file; raises `Usage`."""
    files = read_rule_files(settings)
    model, compiled = files.models.named(rule), files.compiled()
    return model or compiled.sources[rule_id_of(compiled, rule)]


def switch_on(settings: Settings, rule: str) -> tuple[RulePack, bool]:
    """The pack that is then in force, and whether the rule was off or set aside before."""
    files = read_rule_files(settings)
    rule_id = id_of_any(files, rule)
    store = PackStore(store_folder(settings))
    was_aside = DisabledRules(store.folder).lift(rule_id)
    # `lift` stands before: both have to happen, and `or` would stop at the first.
    changed = store.enable(rule_id) or was_aside
    return files.put_in_force().pack, changed


def switch_off(settings: Settings, rule: str, who: str, reason: str) -> RulePack:
    """The pack that is then in force."""
    files = read_rule_files(settings)
    rule_id = id_of_any(files, rule)
    PackStore(store_folder(settings)).disable(rule_id, who, reason)
    return files.put_in_force().pack


@dataclass(frozen=True)
class SwitchedRules:
    """Rules that were switched, or would be: all that were chosen, and those whose state changes.

    `pack`: what is then in force; None where nothing was to be done, or it was only looked at.
    """

    chosen: tuple[str, ...]
    changed: tuple[str, ...]
    pack: RulePack | None


def switch_rules(
    files: RuleFiles, rule_ids: Collection[str], who: str, reason: str, *, on: bool, dry: bool
) -> SwitchedRules:
    """Switch several rules on or off at once, and put the pack in force once."""
    store = PackStore(store_folder(files.settings))
    aside, off = DisabledRules(store.folder), store.disabled()
    if on:
        set_aside = aside.all()
        changed = tuple(i for i in rule_ids if i in off or i in set_aside)
    else:
        changed = tuple(i for i in rule_ids if i not in off)
    if dry or not changed:
        return SwitchedRules(tuple(rule_ids), changed, None)
    if on:
        for rule_id in changed:
            aside.lift(rule_id)
        store.enable_all(changed)
    else:
        store.disable_all(changed, who, reason)
    return SwitchedRules(tuple(rule_ids), changed, files.put_in_force().pack)


def rule_rows(
    settings: Settings, compiled: Compiled, models: Models, sees: Mapping[str, str]
) -> list[dict[str, Any]]:
    """One row for each rule. `sees`: what the last look at its inputs said, by id."""
    switches = PackStore(store_folder(settings)).disabled()
    marks = ShadowMarks(store_folder(settings)).all()
    aside = DisabledRules(store_folder(settings)).all()
    rows = []
    for rule_id, source in compiled.sources.items():
        rule = source.rule
        off = switches.get(rule_id)
        rows.append(
            {
                "id": rule_id,
                "name": rule.name,
                "level": rule.level,
                "kind": _kind(rule),
                "state": _state(state_of(rule, aside), off, marks.get(rule_id)),
                "alerts": "yes" if rule.alerting else "no",
                "sees": sees.get(rule_id, ""),
                "title": rule.title,
            }
        )
    return rows + [
        _model_row(source, switches.get(rule_id), marks.get(rule_id), sees)
        for rule_id, source in models.sources.items()
    ]


def _state(otherwise: str, off: Switch | None, mark: ShadowMark | None) -> str:
    if off:
        return f"off ({off.who}: {off.reason})"
    if mark and otherwise == "on":
        return f"shadow until {mark.until:%Y-%m-%d} ({mark.who}: {mark.reason})"
    return otherwise


def _model_row(
    source: ModelSource, off: Switch | None, mark: ShadowMark | None, sees: Mapping[str, str]
) -> dict[str, str]:
    rule = source.rule
    trained = "on" if source.runs else f"untrained (headgate models train {rule.name or rule.id})"
    return {
        "id": rule.id,
        "name": rule.name,
        "level": rule.level,
        "kind": MODEL,
        "state": _state(trained, off, mark),
        "alerts": "yes" if rule.alerting and not mark else "no",
        "sees": sees.get(rule.id, ""),
        "title": rule.title,
    }


def _kind(rule: Rule | Correlation | Query) -> str:
    if isinstance(rule, Correlation | Query):
        return rule.type
    return INDICATOR if any(test.op == "listed" for test in tests_of(rule.predicate)) else "rule"


def _has_name(path: str, name: str) -> bool:
    """Whether a file that was refused holds a rule of a name; it may be no YAML at all."""
    try:
        # What was refused may be no text at all.
        text = Path(path).read_text("utf-8", "replace")
    except OSError:
        return False
    return bool(re.search(rf"""^name: *(["']?){re.escape(name)}\1 *$""", text, re.M))
