"""Sigma files -> rule pack. A rule that cannot run is refused by itself, with reason and remedy."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import yaml
from sigma.correlations import SigmaCorrelationRule
from sigma.exceptions import SigmaError, SigmaRegularExpressionError
from sigma.filters import SigmaFilter
from sigma.rule import SigmaRule, SigmaRuleBase, SigmaYAMLLoader

from alerts.compiler.correlation_conditions import Upper, taken_upper
from alerts.compiler.correlation_rules import carried_fields, correlation_of
from alerts.compiler.enrichment_predicates import split_predicate
from alerts.compiler.filter_expiry import require_unexpired
from alerts.compiler.indicator_lists import INDICATOR, listed_test
from alerts.compiler.model_rule_files import is_model
from alerts.compiler.rule_files import (
    EVERY,
    Filter,
    Placeholders,
    files_of,
    name_of,
    parsed_document,
    placeholder_files,
    read_placeholders,
    require_small,
    whole_document,
)
from alerts.compiler.rule_text_bounds import require_bounded
from alerts.compiler.sigma_to_predicate import (
    NO_LOOK_AROUND,
    Meaning,
    Untranslatable,
    all_of,
    predicate_of,
    where_of,
)
from alerts.compiler.spark_rule_files import (
    FUNCTION,
    Asked,
    document_of,
    imported,
    is_query,
    sees_of,
    taken_fields,
)
from alerts.domain.attack import techniques_of
from alerts.rulepack.field_mapping import LogSource, Unmapped, mapping
from alerts.rulepack.predicate import All, Node, literals_of
from alerts.rulepack.rule_pack import Correlation, Query, Rule, RulePack, content_version
from infra.config.bounded_yaml import yaml_documents

COUNTS_MISSING = "it counts rules that do not run"
"""How the reason begins for which a correlation is refused when one of its rules is not there."""

BUNDLED = Path(__file__).parents[1] / "rules"
"""Folder of the rules that come with Headgate; each of them must bring tests."""

_ROLES = ("src_endpoint", "dst_endpoint", "device")
"""Endpoints a rule may be about."""

REFUSALS = (
    Unmapped,
    Untranslatable,
    SigmaError,
    ValueError,
    TypeError,
    AttributeError,
    KeyError,
    RecursionError,
)
"""What a broken rule may raise, in our code or in pySigma's, without stopping the others."""


@dataclass(frozen=True)
class RefusedRule:
    """A rule that does not run: which (id, else file), why, and what to do about it."""

    rule: str
    reason: str
    remedy: str
    path: str = ""


@dataclass(frozen=True)
class RuleSource:
    """Where a compiled rule came from, with its own tests, and whether it is switched on."""

    rule: Rule | Correlation | Query
    path: Path
    enabled: bool
    match: tuple[Any, ...] = ()
    no_match: tuple[Any, ...] = ()


@dataclass(frozen=True)
class Compiled:
    """What became of the folders: the pack, what was refused, and each rule's source by id."""

    pack: RulePack
    refused: tuple[RefusedRule, ...]
    sources: Mapping[str, RuleSource] = field(default_factory=dict)


class _Own(msgspec.Struct, forbid_unknown_fields=True):
    """The keys under `headgate:` in a rule."""

    role: str | tuple[str, ...] = ()
    tests: dict[str, list[Any]] = {}
    runbook: str = ""
    generate: bool | None = None
    type: str = ""
    learn: str = ""
    asked: str = msgspec.field(default="", name="list")
    observables: tuple[str, ...] = ()
    expires: str = ""


@dataclass
class _Draft:
    path: Path
    parsed: SigmaRule | SigmaCorrelationRule | SigmaFilter
    own: _Own
    asked: Asked | None = None
    upper: Upper | None = None
    rule: Rule | Correlation | Query | None = None


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
    refused: list[RefusedRule] = []
    drafts: dict[str, _Draft] = {}
    for path in (*files_of(folders), *imported(store)):
        for document in _documents(path, refused):
            if is_model(document):
                # Read by `alerts.compiler.model_rule_files`: it asks nothing of single events.
                continue
            try:
                draft = _draft(path, document)
                taken = drafts.setdefault(str(draft.parsed.id), draft)
                if taken is not draft:
                    # Ids go into findings and alerts: two rules under one would be one rule to
                    # every reader.
                    raise Untranslatable(f"its id is taken by {taken.path}", "give it a new uuid")
            except REFUSALS as error:
                refused.append(_refusal(name_of(path, document), error, path))
    _translate(drafts, refused, _placeholders(folders, refused), store)
    return _assemble(drafts, refused, set(disabled), set(levels))


def _refusal(rule: str, error: Exception, path: Path) -> RefusedRule:
    fallback = "see the Sigma specification"
    if isinstance(error, SigmaRegularExpressionError):
        fallback = NO_LOOK_AROUND
    remedy = getattr(error, "remedy", fallback)
    return RefusedRule(rule, " ".join(str(error).split()), remedy, str(path))


def _documents(path: Path, refused: list[RefusedRule]) -> list[Any]:
    try:
        # Before it is read: rule folders are often clones of what strangers publish.
        require_small(path)
        if path.suffix == ".py":
            return [document_of(path)]
        text = path.read_text("utf-8")
        loaded = yaml_documents(text, SigmaYAMLLoader)
        return [document for document in loaded if document is not None]
    except Untranslatable as error:
        refused.append(_refusal(path.stem, error, path))
        return []
    # TypeError: a key that is a list or a mapping; MemoryError: Python nested beyond its parser.
    except (yaml.YAMLError, OSError, ValueError, TypeError, RecursionError, MemoryError) as error:
        reason = " ".join(str(error).split())
        refused.append(RefusedRule(path.stem, f"not YAML: {reason}", "correct the file", str(path)))
        return []


def _draft(path: Path, document: Any) -> _Draft:
    """One document as pySigma reads it; raises one of `REFUSALS`."""
    if not isinstance(document, dict):
        raise Untranslatable("not a mapping", "a rule has keys such as title, id, detection")
    try:
        # Taken out first, since pySigma refuses or ignores keys that Sigma does not know.
        own = msgspec.convert(document.pop("headgate", {}), _Own)
    except msgspec.ValidationError as error:
        raise Untranslatable(
            f"headgate: {error}", f"its keys are {', '.join(_Own.__struct_encode_fields__)}"
        ) from None
    for role in _roles(own):
        if role not in _ROLES:
            raise Untranslatable(f"headgate.role: '{role}'", f"one of {', '.join(_ROLES)}")
    if not set(own.tests) <= {"match", "no_match"}:
        raise Untranslatable(f"headgate.tests: {sorted(own.tests)}", "its keys: match, no_match")
    # What ships with the product is shown to match and to stay quiet; own rules need not be.
    if path.is_relative_to(BUNDLED) and not (own.tests.get("match") and own.tests.get("no_match")):
        raise Untranslatable("it has no tests", "add headgate.tests: match and no_match events")
    require_bounded(document)
    if own.expires:
        require_unexpired(own.expires, document)
    upper = taken_upper(document)
    asked = taken_fields(document, path) if is_query(document) else None
    whole = asked is not None or own.type == INDICATOR
    parsed = parsed_document(whole_document(document) if whole else document)
    if parsed.id is None:
        raise Untranslatable("it has no id", "add `id:` with a fresh uuid")
    return _Draft(path, parsed, own, asked, upper)


def _roles(own: _Own) -> tuple[str, ...]:
    return (own.role,) if isinstance(own.role, str) else own.role


def _filters(drafts: dict[str, _Draft]) -> dict[str, Filter]:
    """The filters, taken out of the drafts."""
    return {
        filter_id: Filter(parsed, drafts.pop(filter_id).path)
        for filter_id, draft in list(drafts.items())
        if isinstance(parsed := draft.parsed, SigmaFilter)
    }


def _placeholders(folders: Sequence[Path], refused: list[RefusedRule]) -> Placeholders:
    """The values of all folders; a later file adds to what an earlier one says of a name."""
    placeholders: dict[str, tuple[str, ...]] = {}
    for path in placeholder_files(folders):
        try:
            for name, values in read_placeholders(path).items():
                placeholders[name] = tuple(dict.fromkeys((*placeholders.get(name, ()), *values)))
        except (ValueError, OSError, yaml.YAMLError) as error:
            refused.append(_refusal(path.stem, error, path))
    return placeholders


def _translate(
    drafts: dict[str, _Draft],
    refused: list[RefusedRule],
    placeholders: Placeholders,
    store: Path | None,
) -> None:
    """Fill in each draft's rule; drop and refuse those that cannot be translated."""
    filters = _filters(drafts)
    # A correlation may name its rules by name or by id, as the Sigma specification allows.
    by_name = {str(d.parsed.name): rule_id for rule_id, d in drafts.items() if d.parsed.name}
    for rule_id, draft in list(drafts.items()):
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
                filtered = list(_filtered(draft.parsed, filters, meaning, refused))
                draft.rule = _rule(draft, draft.parsed, meaning, [*_lists(draft, store), *filtered])
        except REFUSALS as error:
            refused.append(_refusal(rule_id, error, draft.path))
            del drafts[rule_id]
    for filter_id, filter_rule in filters.items():
        if not filter_rule.used:
            remedy = "name rules that are there, with their log source, or `rules: any`"
            refused.append(
                RefusedRule(filter_id, "it filters no rule", remedy, str(filter_rule.path))
            )
    _drop_orphans(drafts, refused)


def _filtered(
    rule: SigmaRule, filters: Mapping[str, Filter], meaning: Meaning, refused: list[RefusedRule]
) -> Iterator[Node]:
    """What the filters that concern a rule demand besides; a broken filter is refused, once."""
    for filter_id, filter_rule in filters.items():
        if not filter_rule.concerns(rule):
            continue
        filter_rule.used = True
        try:
            yield predicate_of(filter_rule.parsed.filter, meaning)
        except REFUSALS as error:
            # The rule runs without it: it then says too much, which is seen, and not too little.
            filter_rule.broken = True
            refused.append(_refusal(filter_id, error, filter_rule.path))


def _drop_orphans(drafts: dict[str, _Draft], refused: list[RefusedRule]) -> None:
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


def _described(parsed: SigmaRuleBase, own: _Own) -> dict[str, Any]:
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


def _lists(draft: _Draft, store: Path | None) -> Iterator[Node]:
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


def _rule(draft: _Draft, parsed: SigmaRule, meaning: Meaning, filtered: Sequence[Node]) -> Rule:
    asked = predicate_of(parsed.detection, meaning)
    if filtered:
        asked = All((asked, *filtered)) if asked != EVERY else all_of(filtered)
    asked, confirm = split_predicate(asked)
    # Several log sources may share a class; these conditions tell them apart.
    where = where_of(meaning.source)
    return Rule(
        **_described(parsed, draft.own),
        classes=meaning.source.classes,
        sources=meaning.source.sources,
        roles=_roles(draft.own) or ("src_endpoint", "device"),
        predicate=asked if where is None else All((where, asked)),
        # What marks a log source is long and in each of its events, so it comes second.
        literals=literals_of(asked) or (literals_of(where) if where else None),
        confirm=msgspec.UNSET if confirm is None else confirm,
    )


def _query(draft: _Draft, asked: Asked, parsed: SigmaRule, meaning: Meaning) -> Query:
    rest, confirm = split_predicate(predicate_of(parsed.detection, meaning))
    if rest != EVERY:
        raise Untranslatable("`confirm` asks of the event", "ask that in the query")
    return Query(
        **_described(draft.parsed, draft.own),
        type=asked.type,
        text=asked.query,
        window_seconds=asked.window_seconds,
        slide_seconds=asked.slide_seconds,
        group_by=asked.group_by,
        roles=_roles(draft.own) or ("src_endpoint", "device"),
        confirm=msgspec.UNSET if confirm is None else confirm,
        sees=(asked.type == FUNCTION and sees_of(draft.path)) or msgspec.UNSET,
    )


def _correlation(
    draft: _Draft,
    parsed: SigmaCorrelationRule,
    by_name: Mapping[str, str],
    drafts: Mapping[str, _Draft],
) -> Correlation:
    every = {rule_id: other.parsed for rule_id, other in drafts.items()}
    own = draft.own
    made = correlation_of(
        parsed, _described(parsed, own), by_name, every, own.type, own.learn, draft.upper
    )
    generate = made.generate if own.generate is None else own.generate
    return msgspec.structs.replace(made, generate=generate)


def _assemble(
    drafts: Mapping[str, _Draft], refused: list[RefusedRule], disabled: set[str], levels: set[str]
) -> Compiled:
    made = {rule_id: draft.rule for rule_id, draft in drafts.items() if draft.rule is not None}
    on = {rule_id: rule for rule_id, rule in made.items() if rule_id not in disabled}
    correlations = [rule for rule in on.values() if isinstance(rule, Correlation)]
    # Sigma: the rules a correlation counts raise no alerts of their own unless it says `generate`.
    muted = {r for c in correlations if not c.generate for r in c.rules}

    finished: dict[str, Rule | Correlation | Query] = {}
    # Sorted, so that the same folders give the same pack and the same hash.
    for rule_id, rule in sorted(made.items()):
        extra: dict[str, Any] = {
            "alerting": rule.level in levels and rule_id not in muted,
            "feeds": tuple(sorted(c.id for c in correlations if rule_id in c.rules)),
        }
        if isinstance(rule, Rule | Query):
            extra["carry"] = carried_fields(rule_id, correlations)
        # The version comes before `extra`: what other rules make of this one does not change what
        # it is.
        rule = msgspec.structs.replace(rule, version=content_version(rule))
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
        )
        for i, rule in finished.items()
    }
    return Compiled(pack, tuple(refused), sources)
