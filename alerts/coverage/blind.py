"""Which rules can see nothing: their source stopped, or fields that they need are no longer filled.

Plain rules over what is known of the sources. A rule is fed by each pair of source and class
that its log source means and that was heard lately. It is **blind** when it can match nothing in
any of them, **partly** blind when only in some. A correlation is blind when the rules it counts
are. A quiet that is usual for a source makes nobody blind (`ingest.quality.source_silence`).
"""

from __future__ import annotations

import hashlib
import json
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

import msgspec

from alerts.compiler.required_inputs import RequiredInput, Seeing, required_inputs
from alerts.coverage.field_baseline import FieldHabit, FieldPlace, can_hold
from alerts.rulepack.rule_pack import Correlation, Described, RulePack
from ingest.quality.source_silence import Silence, span_text

BLIND, PARTLY = "blind", "partly"
ALL_NEEDED = ("temporal", "temporal_ordered")
"""Correlations that need each of their rules, unless an expression says which."""

_Feed = tuple[str, int]
"""A source and a class of its events."""


@dataclass(frozen=True)
class Cause:
    """Why rules are blind: a source without a field is silent, one with it no longer fills it."""

    source: str
    class_uid: int | None
    field: str | None
    since: datetime
    why: str

    @property
    def key(self) -> str:
        """The same as long as it lasts."""
        lines = [self.source, self.class_uid, self.field, self.since.isoformat()]
        return hashlib.sha256(json.dumps(lines).encode()).hexdigest()[:32]


@dataclass
class Blind:
    """A rule that sees nothing, or not all; `causes` in the order they began."""

    rule: Described
    state: str
    causes: list[Cause] = field(default_factory=list)

    @property
    def since(self) -> datetime:
        """Since when it is as blind as it is: the last of its causes made it so."""
        times = [cause.since for cause in self.causes]
        return max(times) if self.state == BLIND else min(times)

    @property
    def reason(self) -> str:
        """All causes in one line."""
        return "; ".join(cause.why for cause in self.causes)


def blind_rules(
    pack: RulePack,
    feeds: Iterable[_Feed],
    silences: Sequence[Silence],
    gone: Mapping[FieldPlace, FieldHabit],
) -> dict[str, Blind]:
    """The rules of a pack that are blind or partly blind, by id.

    `feeds`: pairs heard lately, silent ones included.
    """
    # A pause that is usual for a source makes nobody blind.
    silent = {silence.source: _silent(silence) for silence in silences if silence.broken}
    missing: dict[_Feed, dict[str, Cause]] = defaultdict(dict)
    for (source, class_uid, leaf), habit in gone.items():
        missing[source, class_uid][leaf] = _missing(source, class_uid, leaf, habit)
    feeds_seen = sorted(set(feeds))
    blinds: dict[str, Blind] = {}
    rules: tuple[Seeing, ...] = (*pack.rules, *pack.models, *pack.queries)
    for rule in rules:
        silence = _judged(rule, required_inputs(rule), feeds_seen, silent, missing)
        if silence is not None:
            blinds[rule.id] = silence
    _correlations(pack, blinds)
    return blinds


def _silent(one: Silence) -> Cause:
    return Cause(
        one.source,
        None,
        None,
        one.newest,
        f"source {one.source} is silent since {one.newest:%Y-%m-%d %H:%M} UTC ({one.why})",
    )


def _missing(source: str, class_uid: int, leaf: str, habit: FieldHabit) -> Cause:
    last = datetime.fromtimestamp(habit.last, UTC)
    return Cause(
        source,
        class_uid,
        leaf,
        last,
        f"{source}: {leaf} is empty in {habit.without:,.0f} events of class {class_uid} since "
        f"{last:%Y-%m-%d %H:%M} UTC; usually {habit.share:.0%} have it, and it was never missing "
        f"for longer than {span_text(habit.longest)}",
    )


def _judged(
    rule: Described,
    inputs: Sequence[RequiredInput],
    feeds: Iterable[_Feed],
    silent: Mapping[str, Cause],
    missing: Mapping[_Feed, Mapping[str, Cause]],
) -> Blind | None:
    """What is to be said of a rule with these inputs; None when it sees all it can."""
    causes: dict[str, Cause] = {}
    fed = closed = 0
    for feed in feeds:
        open_to = [needed for needed in inputs if needed.fed_by(*feed)]
        stops = [_stops(needed, silent.get(feed[0]), missing.get(feed, {})) for needed in open_to]
        fed += bool(stops)
        # One input that still comes is enough: a rule may look at several kinds of events.
        if stops and all(stops):
            closed += 1
            causes |= {cause.key: cause for each in stops for cause in each}
    if not closed:
        return None
    ordered = sorted(causes.values(), key=lambda cause: (cause.since, cause.key))
    return Blind(rule, BLIND if closed == fed else PARTLY, ordered)


def _stops(
    needed: RequiredInput, silence: Cause | None, missing: Mapping[str, Cause]
) -> list[Cause]:
    """What keeps an input from bringing anything in a pair of source and class."""
    if silence is not None:
        return [silence]
    if needed.predicate is None or can_hold(needed.predicate, missing):
        return []
    # Of all that is missing, what by itself or together with others closes it.
    alone = [cause for leaf, cause in missing.items() if not can_hold(needed.predicate, {leaf})]
    return alone or list(missing.values())


def _correlations(pack: RulePack, blind_rules_by_id: dict[str, Blind]) -> None:
    """Add correlations of what is blind, and correlations of those."""
    ids = {rule.id for rule in (*pack.rules, *pack.models, *pack.queries, *pack.correlations)}
    grew = True
    # Correlations may count correlations, so it goes on until none is added.
    while grew:
        grew = False
        for correlation in pack.correlations:
            made = _counting(
                correlation, [r for r in correlation.rules if r in ids], blind_rules_by_id
            )
            if made is not None and correlation.id not in blind_rules_by_id:
                blind_rules_by_id[correlation.id] = made
                grew = True


def _counting(
    correlation: Correlation, rules: Sequence[str], blind_by_id: Mapping[str, Blind]
) -> Blind | None:
    blind = {
        rule: blind_by_id[rule]
        for rule in rules
        if rule in blind_by_id and blind_by_id[rule].state == BLIND
    }
    if not blind:
        return None
    causes = {cause.key: cause for each in blind.values() for cause in each.causes}
    ordered = sorted(causes.values(), key=lambda cause: (cause.since, cause.key))
    # What a blind rule would rule out is told as if it had not been: seen in part, not unseen.
    return Blind(
        correlation, BLIND if _needs(correlation, rules, blind.keys()) else PARTLY, ordered
    )


def _needs(one: Correlation, rules: Sequence[str], blind: Collection[str]) -> bool:
    """Whether a correlation can never fire without the rules that are blind."""
    if one.any_of is not msgspec.UNSET:
        return all(any(rule in blind for rule in fire) for fire in one.any_of)
    # A sequence needs each of its rules; a count can be reached by those that still see.
    return one.type in ALL_NEEDED or len(blind) == len(rules)


def causes_told(blind_by_id: Mapping[str, Blind]) -> dict[str, tuple[Cause, list[Described]]]:
    """By key the causes that are worth an alert, with the rules that are blind by them.

    One for each cause, not for each rule: a source that stops blinds all of its rules.
    """
    lines: dict[str, tuple[Cause, list[Described]]] = {}
    for blind in sorted(blind_by_id.values(), key=lambda blind: blind.rule.title):
        for cause in blind.causes if blind.state == BLIND else ():
            lines.setdefault(cause.key, (cause, []))[1].append(blind.rule)
    return lines
