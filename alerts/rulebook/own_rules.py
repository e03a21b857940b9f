"""A team's own rules: kept in files below `alerts.rules`, changed, taken away, put in force.

Whoever calls lets one at a time in: a file is looked at, compiled with all others, and left or put
back as it was.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from alerts.compiler.compiler import Compiled, RuleSource
from alerts.compiler.model_rule_files import ModelSource
from alerts.rulebook.new_rule_files import RULE_FILE_ENDINGS, folder_for_rules
from alerts.rulebook.rule_store import model_rules, recompile
from alerts.rulebook.rule_switch import compiled_rules
from alerts.rulebook.rule_texts import CheckedText, check_text, require_good
from alerts.rulebook.rule_versions import file_version, new_version, note_version
from alerts.rulepack.rule_pack import RulePack
from infra.config.settings import Settings
from infra.errors import Fatal, Usage
from infra.storage.atomic_files import write_whole

_FILE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,79}")
_PLACEHOLDERS = "placeholders"
"""A file of this name holds values and no rules."""


@dataclass(frozen=True)
class OwnRule:
    """A rule that was saved or taken away: its file, the pack in force, what its text was found to
    be (None: it was taken away)."""

    path: Path
    pack: RulePack
    checked: CheckedText | None


def is_own(settings: Settings, path: Path) -> bool:
    """Whether a rule's file is one of the team's, which may be changed here."""
    roots = [folder.absolute() for folder in settings.alerts.rules]
    here = path.absolute()
    return path.suffix in RULE_FILE_ENDINGS and any(here.is_relative_to(root) for root in roots)


def add_own_rule(settings: Settings, text: str, who: str, reason: str) -> OwnRule:
    """Keep a new rule in the first folder of `alerts.rules`; raises `Usage`, and keeps nothing,
    for one that does not compile, fails its tests, or has the id or name of another."""
    checked = check_text(settings, text)
    require_good(checked)
    # Before the rules in force are read: a folder that is not there would stop that.
    folder = folder_for_rules(settings, "rule")
    before = compiled_rules(settings)
    _require_free(_sources(settings, before), checked)
    path = _new_file(folder, checked)
    pack = _put(settings, {path: text.encode("utf-8")}, before)
    for rule_id in checked.ids:
        saved = new_version(text.encode("utf-8"), who, "created", reason)
        note_version(settings, rule_id, None, saved)
    return OwnRule(path, pack, checked)


def change_own_rule(
    settings: Settings, rule_id: str, path: Path, text: str, who: str, reason: str
) -> OwnRule:
    """Give the file of a rule another text, in which that rule still is; raises as above."""
    (changed,) = change_own_rules(settings, [(rule_id, path, text)], who, reason)
    return changed


def change_own_rules(
    settings: Settings, texts: Sequence[tuple[str, Path, str]], who: str, reason: str
) -> list[OwnRule]:
    """Give the files of several rules (id, file, text) other texts: all of them, or none.

    The rules are compiled once for all. Raises as above.
    """
    before = compiled_rules(settings)
    others = _sources(settings, before)
    checks: list[CheckedText] = []
    for rule_id, path, text in texts:
        _require_own(settings, path)
        checked = check_text(settings, text)
        require_good(checked)
        if rule_id not in checked.ids:
            raise Usage(
                f"the text holds no rule {rule_id}; a rule keeps its id, a new one is created"
            )
        _require_free(others, checked, path)
        checks.append(checked)
    was = [file_version(path) for _, path, _ in texts]
    pack = _put(settings, {path: text.encode("utf-8") for _, path, text in texts}, before)
    for former, checked, (_, _, text) in zip(was, checks, texts, strict=True):
        saved = new_version(text.encode("utf-8"), who, "changed", reason)
        for each in checked.ids:
            note_version(settings, each, former, saved)
    return [
        OwnRule(path, pack, checked) for checked, (_, path, _) in zip(checks, texts, strict=True)
    ]


def remove_own_rule(settings: Settings, rule_id: str, path: Path, who: str, reason: str) -> OwnRule:
    """Take a rule's file away; raises `Usage`, and leaves it, where other rules need it."""
    _require_own(settings, path)
    before, was = compiled_rules(settings), file_version(path)
    others = [
        source.rule.title
        for source in _sources(settings, before)
        if source.path == path and source.rule.id != rule_id
    ]
    if others:
        raise Usage(
            f"{path.name} holds {len(others)} other rules ({others[0]}, ...); save its text "
            "without this one instead"
        )
    pack = _put(settings, {path: None}, before)
    note_version(settings, rule_id, was, new_version(b"", who, "removed", reason))
    return OwnRule(path, pack, None)


def _require_own(settings: Settings, path: Path) -> None:
    if not is_own(settings, path):
        raise Usage(
            f"{path.name} is no file of alerts.rules: a rule that comes with Headgate is switched "
            "off, or copied with an id of its own; one in Python is imported (headgate rules "
            "import)"
        )


def _require_free(
    others: Iterable[RuleSource | ModelSource], checked: CheckedText, path: Path | None = None
) -> None:
    """Ids and names are what rules are called by, so each is one rule's alone."""
    for other in others:
        if other.path == path:
            continue
        for rule in checked.rules:
            if rule.id == other.rule.id:
                raise Usage(f"its id is taken by '{other.rule.title}'; give it a new uuid")
            if rule.name and rule.name in (other.rule.name, other.rule.id):
                raise Usage(f"its name '{rule.name}' is taken by '{other.rule.title}'")


def _sources(settings: Settings, compiled: Compiled) -> list[RuleSource | ModelSource]:
    return [*compiled.sources.values(), *model_rules(settings).sources.values()]


def _new_file(folder: Path, checked: CheckedText) -> Path:
    rule = checked.rules[0]
    for name in (rule.name, rule.id):
        free = not any((folder / f"{name}{ending}").exists() for ending in RULE_FILE_ENDINGS)
        if _FILE_NAME.fullmatch(name) and name != _PLACEHOLDERS and free:
            return folder / f"{name}.yml"
    raise Usage(f"{folder}: a file for {rule.id} is there already; move it, or take it away")


def _put(settings: Settings, files: Mapping[Path, bytes | None], before: Compiled) -> RulePack:
    """Write files, or take them away (None), and put the rules in force; or leave all as it was."""
    with _or_back(files):
        for path, content in files.items():
            if content is None:
                path.unlink()
            else:
                write_whole(path, content)
        known = {(refused.rule, refused.reason) for refused in before.refused}
        for refused in compiled_rules(settings).refused:
            if (refused.rule, refused.reason) not in known:
                raise Usage(f"rule {refused.rule} would not load then: {refused.reason}")
        try:
            return recompile(settings).pack
        except Fatal as error:
            raise Usage(f"{error}; the last rule stays") from None


@contextmanager
def _or_back(paths: Iterable[Path]) -> Iterator[None]:
    """The files as they were, should what is done with them fail."""
    contents = {path: path.read_bytes() if path.is_file() else None for path in paths}
    try:
        yield
    except BaseException:
        for path, content in contents.items():
            if content is None:
                path.unlink(missing_ok=True)
            else:
                write_whole(path, content)
        raise
