"""Which rules a backtest runs: by id or name, from a draft's file, or as a stored pack has them."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import msgspec

from alerts.compiler.compiler import Compiled, compile_rules
from alerts.correlation.negation import looks_ahead, remembers
from alerts.rulepack.locations import rule_folders, store_folder
from alerts.rulepack.rule_pack import Correlation, PackStore, Query, Rule, RulePack
from infra.config.settings import Settings
from infra.errors import Usage

AnyRule: TypeAlias = Rule | Correlation | Query
_Every: TypeAlias = Mapping[str, AnyRule]


@dataclass(frozen=True)
class Chosen:
    """Rules asked for, and a pack of them and of all that they count."""

    ids: tuple[str, ...]
    pack: RulePack


def select_rules(settings: Settings, names: Sequence[str]) -> Chosen:
    """The rules named by id, name, or the file of drafts.

    A draft takes the place of the rule in force that has its id. Rules that are
    switched off are run all the same. Raises `Usage` for what is not a rule, or is refused.
    """
    files = [Path(name).absolute() for name in names if _is_file(name)]
    switched_off = set(PackStore(store_folder(settings)).disabled())
    compiled = _compiled(settings, files, switched_off)
    ids = [rule_id for name in names for rule_id in _ids_of(compiled, name)]
    wanted = _with_counted({i: s.rule for i, s in compiled.sources.items()}, ids)
    # Twice at most: only the first compilation shows what the rules that were asked for count.
    if switched_off & wanted:
        # What a rule carries for others is told by those that are on.
        compiled = _compiled(settings, files, switched_off - wanted)
    return choose_rules(compiled, ids)


def choose_rules(compiled: Compiled, ids: Sequence[str]) -> Chosen:
    """The rules of these ids, with what they count, as they were compiled."""
    return _chosen({i: s.rule for i, s in compiled.sources.items()}, ids)


def choose_against(settings: Settings, name: str, ids: Sequence[str]) -> Chosen:
    """The other version: `current`, a pack's hash (its rules of the same ids), or as for
    `select_rules`."""
    store = PackStore(store_folder(settings))
    if name == "current":
        name = store.current()
    if not re.fullmatch(r"[0-9a-f]{32}", name):
        return select_rules(settings, [name])
    pack = store.get(name)
    described: tuple[AnyRule, ...] = (*pack.rules, *pack.correlations, *pack.queries)
    every = {rule.id: rule for rule in described}
    same_ids = [rule_id for rule_id in ids if rule_id in every]
    if not same_ids:
        raise Usage(f"--against {name}: that pack has none of the rules {', '.join(ids)}")
    return _chosen(every, same_ids)


def _chosen(every: _Every, ids: Sequence[str]) -> Chosen:
    """The rules of these ids with what they count, so that only they alert and only they count."""
    kept = _with_counted(every, ids)
    rules = [every[rule_id] for rule_id in sorted(kept)]
    correlations = [rule for rule in rules if isinstance(rule, Correlation)]

    def fitted(rule: AnyRule) -> AnyRule:
        feeds = tuple(c.id for c in correlations if rule.id in c.rules)
        # Rules that are only counted would fill the result with alerts that nobody asked about.
        alerting = rule.alerting and rule.id in ids
        return msgspec.structs.replace(rule, feeds=feeds, alerting=alerting)

    fit = [fitted(rule) for rule in rules]
    pack = RulePack(
        rules=tuple(rule for rule in fit if isinstance(rule, Rule)),
        correlations=tuple(rule for rule in fit if isinstance(rule, Correlation)),
        queries=tuple(rule for rule in fit if isinstance(rule, Query)),
    )
    return Chosen(tuple(dict.fromkeys(ids)), pack)


def warm_up_seconds(pack: RulePack, dedup_seconds: int) -> int:
    """How long before a span correlations and alerts may remember what counts in it.

    A correlation of correlations remembers for all time spans on its way down.
    """
    spans = {c.id: c for c in pack.correlations}

    def reaches_back(rule_id: str, above: frozenset[str]) -> int:
        joined_spans = spans.get(rule_id)
        # The compiler refuses circles; a stored pack of another release might hold one.
        if joined_spans is None or rule_id in above:
            return 0
        below = max((reaches_back(r, above | {rule_id}) for r in joined_spans.rules), default=0)
        own = remembers(joined_spans) // 1_000_000 + looks_ahead(joined_spans) // 1_000_000
        return own + joined_spans.learn_seconds + below

    return dedup_seconds + max((reaches_back(c, frozenset()) for c in spans), default=0)


def _with_counted(every: _Every, ids: Iterable[str]) -> set[str]:
    """The ids, and those of all rules that they count, however far."""
    reached: set[str] = set()
    waiting = list(ids)
    while waiting:
        rule_id = waiting.pop()
        if rule_id in reached or rule_id not in every:
            continue
        reached.add(rule_id)
        rule = every[rule_id]
        if isinstance(rule, Correlation):
            waiting += rule.rules
    return reached


def _compiled(settings: Settings, files: Sequence[Path], disabled: Collection[str]) -> Compiled:
    return compile_rules(
        [*files, *rule_folders(settings)],
        disabled=disabled,
        levels=settings.alerts.levels,
        store=store_folder(settings),
    )


def _is_file(name: str) -> bool:
    return Path(name).is_file()


def _ids_of(compiled: Compiled, name: str) -> list[str]:
    if _is_file(name):
        path = Path(name).absolute()
        ids = [i for i, source in compiled.sources.items() if source.path == path]
        wrong = [refusal for refusal in compiled.refused if refusal.path == str(path)]
        if wrong:
            raise Usage(f"{name} is refused: {wrong[0].reason}; {wrong[0].remedy}")
        if not ids:
            raise Usage(f"{name}: holds no rule")
        return ids
    for rule_id, source in compiled.sources.items():
        if name in (rule_id, source.rule.name):
            return [rule_id]
    for refused in compiled.refused:
        if refused.rule == name:
            raise Usage(f"rule '{name}' is refused: {refused.reason}; {refused.remedy}")
    raise Usage(f"no rule '{name}', and no such file; 'headgate rules list' shows the rules")
