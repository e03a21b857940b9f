"""What another version of a pack would change in its folder: told before anything is done."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from alerts.compiler.compiler import Compiled, compile_rules
from alerts.rollout.pack_versions import PackVersion, file_hash
from alerts.rulepack.rule_pack import Described, content_version

ADDED, CHANGED, REMOVED, KEPT = "added", "changed", "removed", "kept"
"""What becomes of a file or rule; kept: it stays as it is here, which is not as the pack has it."""


@dataclass(frozen=True)
class FileChange:
    """What becomes of one file, by its path below the folder, and why it is kept."""

    path: str
    act: str
    note: str = ""


@dataclass(frozen=True)
class RuleChange:
    """What becomes of one rule. `text_only`: its file changes and not what it finds; `alone`: its
    file holds no other rule, so that a new text can be tried beside it."""

    id: str
    title: str
    level: str
    path: str
    act: str
    note: str = ""
    text_only: bool = False
    alone: bool = False


@dataclass(frozen=True)
class PackPlan:
    """A version that is to be put in a folder: its files, and what that changes.

    `same`: rules that stay as they are.
    """

    folder: Path
    files: Mapping[str, bytes]
    file_changes: tuple[FileChange, ...]
    rules: tuple[RuleChange, ...]
    same: int

    def count(self, act: str) -> int:
        """Rules of which that becomes."""
        return sum(rule.act == act for rule in self.rules)

    @property
    def empty(self) -> bool:
        """Whether nothing is to be done."""
        return all(change.act == KEPT for change in self.file_changes)


def plan_of(
    folder: Path,
    known: Sequence[PackVersion],
    files: Mapping[str, bytes],
    incoming: Compiled,
    root: Path,
) -> PackPlan:
    """What `files` would change in `folder`; nothing is done.

    `known`: the versions that were recorded of it. `incoming`: the rules of the files below `root`.
    A file that was edited here is kept, and so is one whose new text no longer loads.
    """
    refused = {
        Path(r.path).relative_to(root).as_posix(): r.reason
        for r in incoming.refused
        if r.path and Path(r.path).is_relative_to(root)
    }
    changes = _file_changes(folder, known, files, refused)
    present = compile_rules([folder]) if folder.is_dir() else None
    before = _by_path(present, folder) if present else {}
    rules, same = _rule_changes(changes, before, _by_path(incoming, root), files)
    return PackPlan(folder, files, changes, rules, same)


def edited_here(folder: Path, known: Sequence[PackVersion]) -> list[str]:
    """The files of the last version that are other than any version had them, or gone."""
    if not known:
        return []
    hashes = _recorded(known)
    return [path for path in known[-1].files if _hash_of(folder / path) not in hashes[path]]


def _recorded(known: Sequence[PackVersion]) -> Mapping[str, set[str]]:
    """Every hash that a version had of each file."""
    hashes: defaultdict[str, set[str]] = defaultdict(set)
    for version in known:
        for path, digest in version.files.items():
            hashes[path].add(digest)
    return hashes


def _hash_of(path: Path) -> str | None:
    return file_hash(path.read_bytes()) if path.is_file() else None


def _file_changes(
    folder: Path,
    known: Sequence[PackVersion],
    files: Mapping[str, bytes],
    refused: Mapping[str, str],
) -> tuple[FileChange, ...]:
    recorded = _recorded(known)
    last = known[-1].files if known else {}
    changes = []
    for path in sorted({*files, *recorded}):
        here = _hash_of(folder / path)
        wanted = file_hash(files[path]) if path in files else None
        # Without any record nobody knows what was edited; the folder as it is becomes a version.
        own = bool(known) and here is not None and here not in recorded.get(path, ())
        if here == wanted:
            continue
        if own:
            changes.append(FileChange(path, KEPT, _why_kept(path, wanted, last, recorded)))
        elif here is None and path in last:
            changes.append(FileChange(path, KEPT, "taken away here"))
        elif here is None:
            changes.append(FileChange(path, ADDED))
        elif wanted is not None:
            changes.append(FileChange(path, CHANGED))
        elif path in refused:
            changes.append(FileChange(path, KEPT, f"its new text is refused: {refused[path]}"))
        else:
            changes.append(FileChange(path, REMOVED))
    return tuple(changes)


def _why_kept(
    path: str, wanted: str | None, last: Mapping[str, str], recorded: Mapping[str, set[str]]
) -> str:
    if path not in recorded:
        return "a file of your own is there"
    if wanted is None:
        return "edited here; this version has it no more"
    return "edited here" if wanted == last.get(path) else "edited here; this version changes it too"


def _by_path(compiled: Compiled, root: Path) -> dict[str, dict[str, Described]]:
    rules: defaultdict[str, dict[str, Described]] = defaultdict(dict)
    for rule_id, source in compiled.sources.items():
        rules[source.path.relative_to(root).as_posix()][rule_id] = source.rule
    return rules


def _rule_changes(
    changes: Collection[FileChange],
    before: Mapping[str, Mapping[str, Described]],
    after: Mapping[str, Mapping[str, Described]],
    files: Mapping[str, bytes],
) -> tuple[tuple[RuleChange, ...], int]:
    acts = {change.path: change for change in changes}
    was = {i: rule for rules in before.values() for i, rule in rules.items()}
    now = {i: rule for rules in after.values() for i, rule in rules.items()}
    kept = {
        i for path, rules in before.items() for i in rules if _act(acts, path) == KEPT
    }  # fmt: skip
    changed: dict[str, RuleChange] = {}
    for path, change in acts.items():
        old, new = before.get(path, {}), after.get(path, {})
        if change.act == KEPT:
            # A file that was taken away here has its rules in the new version alone.
            for rule in (old or new).values():
                changed[rule.id] = _rule_change(rule, path, KEPT, change.note)
            continue
        for rule in new.values():
            if rule.id in kept:
                continue
            if rule.id not in was:
                changed[rule.id] = _rule_change(rule, path, ADDED)
            else:
                alike = content_version(rule) == content_version(was[rule.id])
                changed[rule.id] = _rule_change(
                    rule, path, CHANGED, "its text only" if alike else "", text_only=alike,
                    alone=len(new) == 1 == len(old) and rule.id in old,
                )  # fmt: skip
        for rule in old.values():
            if rule.id not in now:
                changed[rule.id] = _rule_change(rule, path, REMOVED)
    # Values of placeholders change rules whose files stay.
    for path in files.keys() - acts.keys():
        for rule in after.get(path, {}).values():
            if rule.id in was and content_version(rule) != content_version(was[rule.id]):
                changed[rule.id] = _rule_change(rule, path, CHANGED, "by values of placeholders")
    order = (ADDED, CHANGED, REMOVED, KEPT)
    rules = sorted(changed.values(), key=lambda rule: (order.index(rule.act), rule.path, rule.id))
    return tuple(rules), len(now.keys() - changed.keys())


def _act(acts: Mapping[str, FileChange], path: str) -> str:
    return acts[path].act if path in acts else ""


def _rule_change(
    rule: Described, path: str, act: str, note: str = "", *, text_only: bool = False,
    alone: bool = False,
) -> RuleChange:  # fmt: skip
    return RuleChange(rule.id, rule.title, rule.level, path, act, note, text_only, alone)
