"""Rules in shadow: put there, promoted, dropped.

A rule in shadow is in the pack and its findings are in gold.finding, once each as of any rule. It
alerts nobody, adds to no risk and is counted by no live correlation. A changed text of a rule that
is in force runs beside it, under an id of its own; promoted, it takes that rule's place.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from alerts.compiler.compiler import RuleSource
from alerts.rulebook.own_rules import add_own_rule, change_own_rules, is_own
from alerts.rulebook.rule_choice import AnySource
from alerts.rulebook.rule_store import read_rule_files, recompile
from alerts.rulebook.rule_switch import compiled_rules
from alerts.rulebook.rule_texts import check_text, require_good
from alerts.rulepack.locations import store_folder
from alerts.rulepack.rule_pack import Described, PackStore, RulePack
from alerts.rulepack.shadow_marks import MOST_DAYS, ShadowMark, ShadowMarks
from infra.config.settings import Settings
from infra.errors import Usage
from infra.storage.atomic_files import write_whole

_ID = re.compile(r"^id:.*$", re.M)
_NAME = re.compile(r"^name:.*$", re.M)


@dataclass(frozen=True)
class ShadowWish:
    """Who wants something tried, why and for how many days."""

    who: str
    reason: str
    days: int

    def __post_init__(self) -> None:
        if not 1 <= self.days <= MOST_DAYS:
            raise Usage(f"--days {self.days}: from 1 to {MOST_DAYS}")

    def mark(self, changes: str = "", text: str = "") -> ShadowMark:
        """The mark that notes it."""
        now = datetime.now(UTC).replace(microsecond=0)
        until = now + timedelta(days=self.days)
        return ShadowMark(self.who, self.reason, now, until, changes, text)


def shadow_rules(
    settings: Settings, rule_ids: Collection[str], shadow_wish: ShadowWish
) -> RulePack:
    """Put rules that are in force in shadow; the pack that is then in force."""
    marks = ShadowMarks(store_folder(settings))
    known = marks.all()
    # A changed rule that is put there again keeps what it is a change of.
    marks.put(
        {
            i: shadow_wish.mark(known[i].changes, known[i].text)
            if i in known
            else shadow_wish.mark()
            for i in rule_ids
        }
    )
    return recompile(settings).pack


def shadow_file(settings: Settings, path: Path, shadow_wish: ShadowWish) -> tuple[str, RulePack]:
    """Try the rule of a file in shadow: its id there, and the pack that is then in force.

    A new rule is kept as one of the team's own. Of one that is in force the text is tried beside
    it. Raises `Usage`, and keeps nothing, for a text that does not compile or fails its tests.
    """
    compiled = compiled_rules(settings)
    here = path.absolute()
    inside = [i for i, source in compiled.sources.items() if source.path.absolute() == here]
    if inside:
        return inside[0], shadow_rules(settings, inside, shadow_wish)
    try:
        text = path.read_bytes().decode("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise Usage(f"{path}: cannot be read: {error}") from None
    checked = check_text(settings, text)
    require_good(checked)
    if len(checked.ids) != 1:
        raise Usage(f"{path}: holds {len(checked.ids)} rules; put one to a file to try it")
    (rule_id,) = checked.ids
    marks = ShadowMarks(store_folder(settings))
    if rule_id in compiled.sources:
        return _try_change(settings, marks, compiled.sources[rule_id], text, shadow_wish)
    # Marked first: the rule must not alert in between.
    marks.put({rule_id: shadow_wish.mark()})
    try:
        return rule_id, add_own_rule(settings, text, shadow_wish.who, shadow_wish.reason).pack
    except BaseException:
        marks.lift([rule_id])
        raise


def _try_change(
    settings: Settings, marks: ShadowMarks, source: RuleSource, text: str, shadow_wish: ShadowWish
) -> tuple[str, RulePack]:
    rule = source.rule
    if not is_own(settings, source.path):
        raise Usage(
            f"'{rule.title}' comes with Headgate and is not changed: give the text an id of its "
            "own, and switch that one off when you promote it"
        )
    if not can_be_tried(text):
        raise Usage(f"{rule.id}: write `id:` at the beginning of a line of its own")
    (shadow_id,) = try_texts(marks, [(rule, text)], shadow_wish)
    return shadow_id, recompile(settings).pack


def can_be_tried(text: str) -> bool:
    """Whether a text holds one rule, whose id stands on a line of its own."""
    return len(_ID.findall(text)) == 1


def shadow_id_of(rule: Described, text: str) -> str:
    """The id of a rule's changed text in shadow: who asks twice gets one."""
    return str(uuid.uuid5(uuid.NAMESPACE_URL, f"headgate:{rule.id}:{text}"))


def try_texts(
    marks: ShadowMarks, texts: Sequence[tuple[Described, str]], shadow_wish: ShadowWish
) -> list[str]:
    """Have changed texts of rules tried beside them once the rules are compiled: their ids there.

    Each is one that `can_be_tried`.
    """
    ids = [shadow_id_of(rule, text) for rule, text in texts]
    marks.put(
        {i: shadow_wish.mark(rule.id, text) for i, (rule, text) in zip(ids, texts, strict=True)}
    )
    for shadow_id, (rule, text) in zip(ids, texts, strict=True):
        # Correlations and people call rules by name, which must go on meaning the live one.
        changed = _NAME.sub(f"name: {rule.name or 'rule'}_{shadow_id[:8]}", text)
        changed = _ID.sub(f"id: {shadow_id}", changed)
        write_whole(marks.candidate(shadow_id), changed.encode("utf-8"))
    return ids


def promote_rules(settings: Settings, rule_ids: Sequence[str], who: str, reason: str) -> RulePack:
    """Let rules in shadow alert; a changed text takes its rule's place. Raises `Usage` for a rule
    that is not in shadow, before anything is done."""
    marks = ShadowMarks(store_folder(settings))
    known = _marked(marks, rule_ids)
    changes = {i: mark for i, mark in known.items() if mark.changes}
    sources = compiled_rules(settings).sources if changes else {}
    for rule_id, mark in changes.items():
        if mark.changes not in sources:
            raise Usage(f"{rule_id}: the rule that it changes, {mark.changes}, is gone; drop it")
    if changes:
        texts = [(m.changes, sources[m.changes].path, m.text) for m in changes.values()]
        change_own_rules(settings, texts, who, reason)
    _forget(marks, known)
    return recompile(settings).pack


def drop_rules(settings: Settings, rule_ids: Sequence[str], who: str, reason: str) -> RulePack:
    """Give up rules in shadow: they are switched off, and a changed text is taken away while its
    rule stays as it is. Raises `Usage` for a rule that is not in shadow."""
    marks = ShadowMarks(store_folder(settings))
    known = _marked(marks, rule_ids)
    off = [i for i, mark in known.items() if not mark.changes]
    # Off before the mark goes: a rule that is dropped must not alert in between.
    if off:
        PackStore(store_folder(settings)).disable_all(off, who, reason or "dropped from shadow")
    _forget(marks, known)
    return recompile(settings).pack


def shadow_ids(settings: Settings, names: Sequence[str]) -> list[str]:
    """The ids of rules in shadow by id or name; raises `Usage` for one that is not there."""
    marks = ShadowMarks(store_folder(settings))
    files, ids = read_rule_files(settings), marks.ids()
    every: dict[str, AnySource] = {**files.compiled().sources, **files.models.sources}
    wanted = []
    for name in names:
        match = [i for i in ids if name in (i, every[i].rule.name if i in every else i)]
        if not match:
            raise Usage(f"no rule '{name}' is in shadow; 'headgate rules shadow' lists them")
        wanted += match
    return wanted


def _marked(marks: ShadowMarks, rule_ids: Sequence[str]) -> Mapping[str, ShadowMark]:
    known, unmarked = marks.all(), ShadowMark("", "", datetime.min, datetime.min, changes="?")
    for rule_id in rule_ids:
        if rule_id not in known and not marks.candidate(rule_id).is_file():
            raise Usage(f"no rule '{rule_id}' is in shadow; 'headgate rules shadow' lists them")
    return {i: known.get(i, unmarked) for i in rule_ids}


def _forget(marks: ShadowMarks, known: Mapping[str, ShadowMark]) -> None:
    for rule_id in known:
        marks.candidate(rule_id).unlink(missing_ok=True)
    marks.lift(known)
