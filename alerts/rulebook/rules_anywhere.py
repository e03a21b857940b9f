"""The rules of any file or folder, in force or not, with what they need of their surroundings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from alerts.compiler.compiler import COUNTS_MISSING, Compiled, RefusedRule, compile_rules
from alerts.compiler.model_rule_files import Models, read_models
from alerts.rulepack.locations import rule_folders, store_folder
from infra.config.settings import Settings


@dataclass(frozen=True)
class RulesAt:
    """What stands at a path: `ids` are its rules among those of `compiled`, `refused` its own."""

    compiled: Compiled
    ids: frozenset[str]
    refused: tuple[RefusedRule, ...]
    models: Models


def rules_at(path: Path, settings: Settings) -> RulesAt:
    """The rules in a file, or below a folder.

    A file is read alone first. Where that does not do, since a correlation counts rules of other
    files or a value stands in `placeholders.yml`, its folder is read too, then the rules in force.
    """
    models = read_models([path], {})
    rules = _within(path, [path], settings, models)
    if rules.refused and path.is_file():
        rules = _within(path, [path.parent], settings, models)
    if any(refused.reason.startswith(COUNTS_MISSING) for refused in rules.refused):
        around = path.parent if path.is_file() else path
        rules = _within(path, [around, *rule_folders(settings)], settings, models)
    return rules


def _within(path: Path, folders: Sequence[Path], settings: Settings, models: Models) -> RulesAt:
    compiled = compile_rules(folders, store=store_folder(settings))
    here = path.resolve()

    def stands_here(other: Path) -> bool:
        return other.resolve().is_relative_to(here)

    ids = {rule_id for rule_id, source in compiled.sources.items() if stands_here(source.path)}
    refused = tuple(
        refused
        for refused in compiled.refused
        # A folder that is in force as well is read twice; its second reading is no news.
        if stands_here(Path(refused.path)) and refused.rule not in ids
    )
    return RulesAt(compiled, frozenset(ids), refused, models)
