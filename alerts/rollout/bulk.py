"""Several rules at once: switched, tried in shadow, promoted or dropped; counted before it is done.
"""  # fmt: skip

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from alerts.rollout.shadow import (
    ShadowWish,
    drop_rules,
    promote_rules,
    shadow_ids,
    shadow_rules,
)
from alerts.rulebook.rule_choice import RuleCriteria, chosen_rules, every_source
from alerts.rulebook.rule_store import RuleFiles
from alerts.rulebook.rule_switch import switch_rules
from alerts.rulepack.locations import store_folder
from alerts.rulepack.rule_pack import Described, RulePack
from alerts.rulepack.shadow_marks import ShadowMarks
from infra.errors import Usage

BulkVerb: TypeAlias = Literal["enable", "disable", "shadow", "promote", "drop"]


@dataclass(frozen=True)
class BulkChoice:
    """Rules that are chosen for something: all of them, and those whose state it changes."""

    verb: BulkVerb
    chosen: tuple[Described, ...]
    changing: tuple[Described, ...]


def rules_in_shadow(files: RuleFiles, names: Sequence[str], criteria: RuleCriteria) -> list[str]:
    """Ids of the rules in shadow that are named, and of those that meet the criteria.

    Raises `Usage` where none is meant, or a name is not in shadow.
    """
    ids = shadow_ids(files.settings, names)
    if criteria:
        marks = ShadowMarks(store_folder(files.settings))
        chosen, known = chosen_rules(files, (), criteria), marks.all()
        # A changed text is of the pack and product of the rule that it changes.
        texts = [i for i, mark in known.items() if mark.changes in chosen]
        marked = marks.ids()
        ids = list(dict.fromkeys([*ids, *(i for i in chosen if i in marked), *texts]))
    if not ids:
        raise Usage("no rule in shadow is meant; 'headgate rules shadow' lists them")
    return ids


def chosen_for_bulk(
    files: RuleFiles, verb: BulkVerb, names: Sequence[str], criteria: RuleCriteria
) -> BulkChoice:
    """The rules that are meant; nothing is done. Raises `Usage` where none is."""
    if not names and not criteria:
        raise Usage("name rules, or say which by tag, level, status, product or pack")
    every = every_source(files)
    if verb in ("promote", "drop"):
        left = [every[i].rule for i in rules_in_shadow(files, names, criteria) if i in every]
        return BulkChoice(verb, tuple(left), tuple(left))
    chosen = {i: source.rule for i, source in chosen_rules(files, names, criteria).items()}
    if verb == "shadow":
        marked = ShadowMarks(store_folder(files.settings)).ids()
        changing = [rule for i, rule in chosen.items() if i not in marked]
    else:
        looked = switch_rules(files, list(chosen), "", "", on=verb == "enable", dry=True)
        changing = [chosen[i] for i in looked.changed]
    return BulkChoice(verb, tuple(chosen.values()), tuple(changing))


def do_to_all(files: RuleFiles, choice: BulkChoice, shadow_wish: ShadowWish) -> RulePack | None:
    """Do it to all whose state it changes: the pack that is then in force; None for no rule.

    `shadow_wish` says who and why, and for how many days where rules are put in shadow.
    """
    ids = [rule.id for rule in choice.changing]
    if not ids:
        return None
    if choice.verb == "shadow":
        return shadow_rules(files.settings, ids, shadow_wish)
    if choice.verb in ("promote", "drop"):
        leave = promote_rules if choice.verb == "promote" else drop_rules
        return leave(files.settings, ids, shadow_wish.who, shadow_wish.reason)
    on = choice.verb == "enable"
    return switch_rules(files, ids, shadow_wish.who, shadow_wish.reason, on=on, dry=False).pack
