"""Sigma files -> rule pack. A rule that cannot run is refused by itself, with reason and remedy."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import yaml
from sigma.correlations import SigmaCorrelationRule
from sigma.filters import SigmaFilter
from sigma.rule import SigmaRule, SigmaRuleBase

from alerts.compiler.compile_cache import CachedRule, CompileCache
from alerts.compiler.correlation_rules import carried_fields, correlation_of
from alerts.compiler.drafts import BUNDLED as BUNDLED
from alerts.compiler.drafts import REFUSALS as REFUSALS
from alerts.compiler.drafts import Draft, Own, read_drafts, refusal_of, roles_of
from alerts.compiler.drafts import RefusedRule as RefusedRule
from alerts.compiler.enrichment_predicates import split_predicate
from alerts.compiler.indicator_lists import INDICATOR, listed_test
from alerts.compiler.rule_files import (
    EVERY,
    Filter,
    Placeholders,
    files_of,
    placeholder_files,
    read_placeholders,
)
from alerts.compiler.rule_header import NO_HEADER, RuleHeader
from alerts.compiler.sigma_to_predicate import (
    Meaning,
    Untranslatable,
    all_of,
    predicate_of,
    where_of,
)
from alerts.compiler.spark_rule_files import (
    FUNCTION,
    Asked,
    imported,
    sees_of,
)
from alerts.domain.attack import techniques_of
from alerts.rulepack.field_mapping import mapping
from alerts.rulepack.log_source import LogSource
from alerts.rulepack.predicate import All, Node, literals_of
from alerts.rulepack.rule_pack import Correlation, Query, Rule, RulePack, content_version
from infra.process.gc_pause import no_collection

COUNTS_MISSING = "it counts rules that do not run"
"""How the reason begins for which a correlation is refused when one of its rules is not there."""


@dataclass(frozen=True)
class RuleSource:
    """Where a compiled rule came from, with its own tests, and whether it is switched on."""

    rule: Rule | Correlation | Query
    path: Path
    enabled: bool
    match: tuple[Any, ...] = ()
    no_match: tuple[Any, ...] = ()
    header: RuleHeader = NO_HEADER


@dataclass(frozen=True)
class Compiled:
    """What became of the folders: the pack, what was refused, and each rule's source by id."""

    pack: RulePack
    refused: tuple[RefusedRule, ...]
    sources: Mapping[str, RuleSource] = field(default_factory=dict)


@dataclass(frozen=True)
class TranslatedRules:
    """The rules of some folders by id, each by itself; which are on is not yet decided."""

    drafts: Mapping[str, Draft]
    refused: tuple[RefusedRule, ...]

    def put_together(
        self,
        disabled: Collection[str] = (),
        levels: Collection[str] = ("medium", "high", "critical"),
        shadow: Collection[str] = (),
    ) -> Compiled:
        """The rules as one pack, as `compile_rules` says; those of `shadow` by id alert nobody."""
        return _assemble(self.drafts, self.refused, set(disabled), set(levels), set(shadow))


@no_collection()
def translate_rules(folders: Sequence[Path], store: Path | None = None) -> TranslatedRules:
    """The first, longer half of `compile_rules`: what does not depend on switches and levels."""
    refused: list[RefusedRule] = []
    drafts: dict[str, Draft] = {}
    cache = CompileCache(store)
    # A team's own files first: they stand above what was imported under the same id.
    for path in (*files_of(folders), *imported(store)):
        for draft in read_drafts(path, cache, refused):
            taken = drafts.setdefault(draft.id, draft)
            if taken is not draft:
                # Ids go into findings and alerts: two rules under one would be one rule to
                # every reader.
                reason = f"its id is taken by {taken.path}"
                refused.append(RefusedRule(draft.id, reason, "give it a new uuid", str(path)))
    _translate(drafts, refused, _placeholders(folders, refused), store)
    _remember(drafts, cache)
    return TranslatedRules(drafts, tuple(refused))


def compile_rules(
    folders: Sequence[Path],
    *,
    disabled: Collection[str] = (),
    levels: Collection[str] = ("medium", "high", "critical"),
    store: Path | None = None,
) -> Compiled:
    """Compile every `*.yml` and `*.yaml` below the folders, of which some may be single files.

    Of two rules with one id the first is taken, the second refused.
    `disabled` are rule ids to leave out of the pack, `levels` those that become
    alerts; `store` is the folder beside whose packs lists of indicators lie (none: rules
    that ask one are refused). Raises `Fatal` when a folder cannot be read; a bad rule is only
    refused.
    """
    return translate_rules(folders, store).put_together(disabled, levels)


def _remember(drafts: Mapping[str, Draft], cache: CompileCache) -> None:
    """Keep the rules of each file that is whole and whose rules follow from its text alone."""
    files: defaultdict[str, list[Draft]] = defaultdict(list)
    for draft in drafts.values():
        if draft.key:
            files[draft.key].append(draft)
    for key, made in files.items():
        if len(made) == made[0].documents and all(draft.plain for draft in made):
            cache.keep(key, [_kept(draft) for draft in made])
    cache.save()


def _kept(draft: Draft) -> CachedRule:
    assert isinstance(draft.rule, Rule)
    tests = draft.own.tests
    return CachedRule(draft.rule, tests.get("match", []), tests.get("no_match", []), draft.header)


def _filters(drafts: dict[str, Draft]) -> dict[str, Filter]:
    """The filters, taken out of the drafts."""
    return {
        filter_id: Filter(parsed, drafts.pop(filter_id).path)
        for filter_id, draft in list(drafts.items())
        if draft.kept is None and isinstance(parsed := draft.parsed, SigmaFilter)
    }


def _placeholders(folders: Sequence[Path], refused: list[RefusedRule]) -> Placeholders:
    """The values of all folders; a later file adds to what an earlier one says of a name."""
    placeholders: dict[str, tuple[str, ...]] = {}
    for path in placeholder_files(folders):
        try:
            for name, values in read_placeholders(path).items():
                placeholders[name] = tuple(dict.fromkeys((*placeholders.get(name, ()), *values)))
        except (ValueError, OSError, yaml.YAMLError) as error:
            refused.append(refusal_of(path.stem, error, path))
    return placeholders


def _translate(
    drafts: dict[str, Draft],
    refused: list[RefusedRule],
    placeholders: Placeholders,
    store: Path | None,
) -> None:
    """Fill in each draft's rule; drop and refuse those that cannot be translated."""
    filters = _filters(drafts)
    # A correlation may name its rules by name or by id, as the Sigma specification allows.
    by_name = {draft.name: rule_id for rule_id, draft in drafts.items() if draft.name}
    for rule_id, draft in list(drafts.items()):
        if draft.kept is not None and not any(f.may_concern(draft.kept) for f in filters.values()):
            draft.rule = draft.kept
            continue
        try:
            if isinstance(draft.parsed, SigmaCorrelationRule):
                draft.rule = _correlation(draft, draft.parsed, by_name, drafts)
            elif isinstance(draft.parsed, SigmaRule):
                meaning = Meaning(_source(draft.parsed), mapping().keywords, placeholders)
                if draft.asked is not None:
                    draft.rule = _query(draft, draft.asked, draft.parsed, meaning)
                    continue
                # A Sigma filter is written apart from the rules; each rule it concerns demands it
                # as well.
                filtered = list(_filtered(draft, draft.parsed, filters, meaning, refused))
                draft.rule = _rule(draft, draft.parsed, meaning, [*_lists(draft, store), *filtered])
        except REFUSALS as error:
            refused.append(refusal_of(rule_id, error, draft.path))
            del drafts[rule_id]
    for filter_id, filter_rule in filters.items():
        if not filter_rule.used:
            remedy = "name rules that are there, with their log source, or `rules: any`"
            refused.append(
                RefusedRule(filter_id, "it filters no rule", remedy, str(filter_rule.path))
            )
    _drop_orphans(drafts, refused)


def _filtered(
    draft: Draft,
    rule: SigmaRule,
    filters: Mapping[str, Filter],
    meaning: Meaning,
    refused: list[RefusedRule],
) -> Iterator[Node]:
    """What the filters that concern a rule demand besides; a broken filter is refused, once."""
    for filter_id, filter_rule in filters.items():
        if not filter_rule.concerns(rule):
            continue
        filter_rule.used = draft.filtered = True
        try:
            yield predicate_of(filter_rule.parsed.filter, meaning)
        except REFUSALS as error:
            # The rule runs without it: it then says too much, which is seen, and not too little.
            filter_rule.broken = True
            refused.append(refusal_of(filter_id, error, filter_rule.path))


def _drop_orphans(drafts: dict[str, Draft], refused: list[RefusedRule]) -> None:
    """Refuse correlations whose rules were refused, and those that count these, and so on."""
    # Until nothing changes: a correlation may count correlations that go in the same pass.
    while True:
        orphans = {
            rule_id: missing
            for rule_id, draft in drafts.items()
            if isinstance(draft.rule, Correlation)
            and (missing := [r for r in draft.rule.rules if r not in drafts])
        }
        if not orphans:
            return
        for rule_id, missing in orphans.items():
            refused.append(
                RefusedRule(
                    rule_id,
                    f"{COUNTS_MISSING}: {', '.join(missing)}",
                    "correct those rules, or the names under correlation.rules",
                    str(drafts.pop(rule_id).path),
                )
            )


def _described(parsed: SigmaRuleBase, own: Own) -> dict[str, Any]:
    tags = tuple(str(tag) for tag in parsed.tags)
    tactics, techniques = techniques_of(tags)
    level = parsed.level.name.lower() if parsed.level else "medium"
    return {
        "id": str(parsed.id),
        "title": parsed.title,
        "name": parsed.name or "",
        "level": level,
        "description": parsed.description or "",
        "author": parsed.author or "",
        "license": parsed.license or "",
        "tags": tags,
        "tactics": tactics,
        "techniques": techniques,
        "references": tuple(parsed.references),
        "falsepositives": tuple(parsed.falsepositives),
        "runbook": own.runbook,
    }


def _source(parsed: SigmaRule) -> LogSource:
    named = parsed.logsource
    return mapping().logsource(named.category, named.product, named.service)


def _lists(draft: Draft, store: Path | None) -> Iterator[Node]:
    """The list that a rule of kind indicator asks besides."""
    own = draft.own
    if own.type == INDICATOR:
        yield listed_test(store, own.asked, own.observables)
    elif own.type:
        raise Untranslatable(
            f"headgate.type: '{own.type}'", f"{INDICATOR}, or a correlation of that type"
        )
    elif own.asked or own.observables:
        raise Untranslatable("a list without a type", f"add `type: {INDICATOR}`")


def _rule(draft: Draft, parsed: SigmaRule, meaning: Meaning, filtered: Sequence[Node]) -> Rule:
    predicate = predicate_of(parsed.detection, meaning)
    if filtered:
        predicate = All((predicate, *filtered)) if predicate != EVERY else all_of(filtered)
    predicate, confirm = split_predicate(predicate)
    # Several log sources may share a class; these conditions tell them apart.
    where = where_of(meaning.source)
    return Rule(
        **_described(parsed, draft.own),
        classes=meaning.source.classes,
        sources=meaning.source.sources,
        roles=roles_of(draft.own) or ("src_endpoint", "device"),
        predicate=predicate if where is None else All((where, predicate)),
        # What marks a log source is long and in each of its events, so it comes second.
        literals=literals_of(predicate) or (literals_of(where) if where else None),
        confirm=msgspec.UNSET if confirm is None else confirm,
    )


def _query(draft: Draft, declared: Asked, parsed: SigmaRule, meaning: Meaning) -> Query:
    rest, confirm = split_predicate(predicate_of(parsed.detection, meaning))
    if rest != EVERY:
        raise Untranslatable("`confirm` asks of the event", "ask that in the query")
    return Query(
        **_described(draft.parsed, draft.own),
        type=declared.type,
        text=declared.query,
        window_seconds=declared.window_seconds,
        slide_seconds=declared.slide_seconds,
        group_by=declared.group_by,
        roles=roles_of(draft.own) or ("src_endpoint", "device"),
        confirm=msgspec.UNSET if confirm is None else confirm,
        sees=(declared.type == FUNCTION and sees_of(draft.path)) or msgspec.UNSET,
    )


class _ParsedRules(Mapping[str, SigmaRuleBase]):
    """The drafts as pySigma reads them; one that is known is parsed only where it is asked for."""

    def __init__(self, drafts: Mapping[str, Draft]) -> None:
        self._drafts = drafts

    def __getitem__(self, rule_id: str) -> SigmaRuleBase:
        return self._drafts[rule_id].parsed

    def __iter__(self) -> Iterator[str]:
        return iter(self._drafts)

    def __len__(self) -> int:
        return len(self._drafts)


def _correlation(
    draft: Draft,
    parsed: SigmaCorrelationRule,
    by_name: Mapping[str, str],
    drafts: Mapping[str, Draft],
) -> Correlation:
    every = _ParsedRules(drafts)
    own = draft.own
    made = correlation_of(
        parsed, _described(parsed, own), by_name, every, own.type, own.learn, draft.upper
    )
    generate = made.generate if own.generate is None else own.generate
    return msgspec.structs.replace(made, generate=generate)


@no_collection()
def _assemble(
    drafts: Mapping[str, Draft],
    refused: Sequence[RefusedRule],
    disabled: set[str],
    levels: set[str],
    shadow: set[str],
) -> Compiled:
    made = {rule_id: draft.rule for rule_id, draft in drafts.items() if draft.rule is not None}
    on = {rule_id: rule for rule_id, rule in made.items() if rule_id not in disabled}
    correlations = [rule for rule in on.values() if isinstance(rule, Correlation)]
    # Sigma: the rules a correlation counts raise no alerts of their own unless it says `generate`.
    # One in shadow must not change what others do, so it silences nobody.
    muted = {r for c in correlations if not c.generate and c.id not in shadow for r in c.rules}

    counted = {r for c in correlations for r in c.rules}
    finished: dict[str, Rule | Correlation | Query] = {}
    # Sorted, so that the same folders give the same pack and the same hash.
    for rule_id, rule in sorted(made.items()):
        extra: dict[str, Any] = {
            "alerting": rule.level in levels and rule_id not in muted | shadow,
            "feeds": (),
            "shadow": rule_id in shadow or msgspec.UNSET,
        }
        if rule_id in counted:
            extra["feeds"] = tuple(
                sorted(
                    c.id
                    for c in correlations
                    # What a rule in shadow says counts only in shadow.
                    if rule_id in c.rules and (c.id in shadow or rule_id not in shadow)
                )
            )
            if isinstance(rule, Rule | Query):
                extra["carry"] = carried_fields(rule_id, correlations)
        # The version comes before `extra`: what other rules make of this one does not change what
        # it is.
        extra["version"] = content_version(rule)
        finished[rule_id] = msgspec.structs.replace(rule, **extra)
    pack = RulePack(
        rules=tuple(r for i, r in finished.items() if i in on and isinstance(r, Rule)),
        correlations=tuple(
            r for i, r in finished.items() if i in on and isinstance(r, Correlation)
        ),
        queries=tuple(r for i, r in finished.items() if i in on and isinstance(r, Query)),
    )
    sources = {
        i: RuleSource(
            rule,
            drafts[i].path,
            i in on,
            tuple(drafts[i].own.tests.get("match", ())),
            tuple(drafts[i].own.tests.get("no_match", ())),
            drafts[i].header,
        )
        for i, rule in finished.items()
    }
    return Compiled(pack, tuple(refused), sources)
