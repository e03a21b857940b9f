"""Another version of a pack put in place: at once, or its rules first in shadow; and gone back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

from alerts.compiler.compiler import Compiled, RuleSource, compile_rules
from alerts.rollout.pack_plan import ADDED, CHANGED, KEPT, REMOVED, PackPlan, RuleChange, plan_of
from alerts.rollout.pack_versions import PackVersion, PackVersions, new_pack_version
from alerts.rollout.shadow import ShadowWish, can_be_tried, shadow_id_of, try_texts
from alerts.rulebook.rule_store import recompile
from alerts.rulebook.rule_switch import compiled_rules
from alerts.rulebook.rule_versions import file_version, new_version, note_version
from alerts.rulepack.locations import store_folder
from alerts.rulepack.rule_pack import RulePack
from alerts.rulepack.shadow_marks import ShadowMarks
from infra.config.settings import Settings
from infra.errors import Usage
from infra.storage.atomic_files import write_whole


@dataclass(frozen=True)
class PackPut:
    """A version that is in place. `shadowed`: rules that are tried first, and `at_once` those that
    could not be though it was wanted. `pack`: what is then in force; None: no rules of this lake.
    """

    taken: PackVersion
    shadowed: int
    at_once: int
    pack: RulePack | None


def plan_version(
    settings: Settings, folder: Path, files: Mapping[str, bytes], incoming: Compiled, root: Path
) -> PackPlan:
    """What a version would change; nothing is done. `incoming`: the rules of its files, which lie
    below `root`."""
    plan = plan_of(folder, PackVersions(settings).of(folder), files, incoming, root)
    marks = ShadowMarks(store_folder(settings)).all()
    tried = {(mark.changes, mark.text) for mark in marks.values()}
    rules = tuple(
        replace(rule, note="in shadow already")
        if (rule.id, files.get(rule.path, b"").decode("utf-8", "replace")) in tried
        else rule
        for rule in plan.rules
    )
    return replace(plan, rules=rules)


def plan_rollback(settings: Settings, folder: Path, to: PackVersion) -> PackPlan:
    """What going back to a version would change; nothing is done."""
    files = PackVersions(settings).files(to)
    with TemporaryDirectory(prefix="headgate-pack-") as name:
        for path, content in files.items():
            target = Path(name) / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(content)
        return plan_version(settings, folder, files, compile_rules([Path(name)]), Path(name))


def require_new_name(known: Sequence[PackVersion], taken: PackVersion) -> None:
    """Raises `Usage` where a version of that name has other files: one could not go back to it."""
    for version in known:
        if version.version == taken.version and version.content != taken.content:
            raise Usage(
                f"version '{taken.version}' was imported on {version.taken:%Y-%m-%d} with other "
                "files; give this one another name (--version)"
            )


def put_version(
    settings: Settings, plan: PackPlan, taken: PackVersion, shadow_wish: ShadowWish | None = None
) -> PackPut:
    """Put a planned version in its folder and the rules in force, as one.

    With a `shadow_wish` new rules go to shadow, and the changed text of a rule that runs is tried
    beside it; what was edited here stays. What ends midway is finished by the same import again.
    """
    versions, marks = PackVersions(settings), ShadowMarks(store_folder(settings))
    known, runs = versions.of(plan.folder), _of_this_lake(settings, plan.folder)
    require_new_name(known, taken)
    sources = compiled_rules(settings).sources if runs else {}
    _forget_outdated(marks, plan, sources, tried=shadow_wish is not None)
    # Noted first: files of a version that is not on record would count as edited here.
    if not known and (here := _as_it_is(plan)):
        versions.note(plan.folder, new_pack_version(here, "before", "", "", "", "before"), here)
    versions.note(plan.folder, taken, plan.files)
    new = [rule.id for rule in plan.rules if rule.act == ADDED]
    changed = [rule for rule in plan.rules if rule.act == CHANGED and not rule.text_only]
    beside = {
        rule.path: rule for rule in changed if shadow_wish and _goes_beside(plan, rule, sources)
    }
    if shadow_wish:
        # Marked before their files are there: they must not alert in between.
        marks.put({rule_id: shadow_wish.mark() for rule_id in new})
        texts = [(sources[r.id].rule, plan.files[r.path].decode("utf-8")) for r in beside.values()]
        known_ids = marks.all()
        try_texts(marks, [t for t in texts if shadow_id_of(*t) not in known_ids], shadow_wish)
    for change in plan.file_changes:
        if change.path not in beside and change.act != KEPT:
            _put_file(settings, plan, change.path, taken)
    marks.lift(rule.id for rule in plan.rules if rule.act == REMOVED)
    silent = [r for r in changed if r.id not in sources or sources[r.id].rule.in_shadow]
    return PackPut(
        taken=taken,
        shadowed=len(new) + len(beside) if shadow_wish else 0,
        at_once=len(changed) - len(beside) - len(silent) if shadow_wish else 0,
        pack=recompile(settings).pack if runs else None,
    )


def _of_this_lake(settings: Settings, folder: Path) -> bool:
    roots = [root.absolute() for root in settings.alerts.rules]
    return any(folder.absolute().is_relative_to(root) for root in roots)


def _goes_beside(plan: PackPlan, rule: RuleChange, sources: Mapping[str, RuleSource]) -> bool:
    source = sources.get(rule.id)
    # One that is off or in shadow itself alerts nobody: its new text may take its place.
    runs = source is not None and source.enabled and not source.rule.in_shadow
    text = plan.files[rule.path].decode("utf-8", "replace")
    return runs and rule.alone and can_be_tried(text)


def _forget_outdated(
    marks: ShadowMarks, plan: PackPlan, sources: Mapping[str, RuleSource], *, tried: bool
) -> None:
    """Give up changed texts in shadow that are not this version's, or need not be tried any more:
    promoted, they would undo it."""
    folder = plan.folder.absolute()
    paths = {
        rule_id: source.path.absolute().relative_to(folder).as_posix()
        for rule_id, source in sources.items()
        if source.path.absolute().is_relative_to(folder)
    }
    outdated = [
        shadow_id
        for shadow_id, mark in marks.all().items()
        if mark.changes in paths
        and not (tried and plan.files.get(paths[mark.changes]) == mark.text.encode("utf-8"))
    ]
    for shadow_id in outdated:
        marks.candidate(shadow_id).unlink(missing_ok=True)
    marks.lift(outdated)


def _as_it_is(plan: PackPlan) -> dict[str, bytes]:
    """What the folder holds of the files that the version has too."""
    paths = {path: plan.folder / path for path in plan.files}
    return {path: file.read_bytes() for path, file in paths.items() if file.is_file()}


def _put_file(settings: Settings, plan: PackPlan, path: str, taken: PackVersion) -> None:
    target, content = plan.folder / path, plan.files.get(path)
    was = file_version(target)
    if content is None:
        target.unlink(missing_ok=True)
    else:
        write_whole(target, content)
    if was is None:
        return
    act = "removed" if content is None else "changed"
    reason = taken.reason or f"pack {plan.folder.name}, version {taken.version}"
    for rule in plan.rules:
        if rule.path == path:
            note_version(
                settings, rule.id, was, new_version(content or b"", taken.who, act, reason)
            )
