"""Rules as a folder would have them: compiled and tested beside those in force."""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from alerts.anomaly.store import ModelStore
from alerts.compiler.compiler import Compiled, compile_rules
from alerts.compiler.model_rule_files import Models, read_models
from alerts.compiler.spark_rule_files import FUNCTIONS
from alerts.lifecycle.risk_score import INCIDENT
from alerts.rulebook.rule_packs import pack_folders
from alerts.rulebook.rule_store import model_rules
from alerts.rulebook.rule_switch import compiled_rules
from alerts.rulebook.rule_tests import check_rules
from alerts.rulepack.locations import BUNDLED_MODELS, rule_folders, store_folder
from alerts.rulepack.rule_pack import Query
from headgate.as_code.kinds.indicators import lists_as_planned
from headgate.as_code.kinds.kind import FolderReading
from headgate.as_code.kinds.rules import RULES, rule_name
from headgate.as_code.state import Objects
from infra.config.settings import Settings
from infra.errors import Fatal
from infra.storage.atomic_files import write_whole


@dataclass(frozen=True)
class PlannedRules:
    """Rules as they would be, beside those in force; `names` are ids by id, name and title."""

    before: Compiled
    after: Compiled
    models: Models
    roots: dict[str, Path]

    @property
    def names(self) -> dict[str, str]:
        """Ids of rules by id, name and title."""
        ids = {INCIDENT: INCIDENT}
        every = [source.rule for source in self.after.sources.values()]
        for rule in (*every, *(source.rule for source in self.models.sources.values())):
            # An id is nobody else's name: where two say the same, the rule that came first has it.
            for word in (rule.id, rule.name, rule.title):
                if word:
                    ids.setdefault(word, rule.id)
        return ids

    @property
    def titles(self) -> dict[str, str]:
        """Titles of rules by id."""
        rules = {rule_id: source.rule.title for rule_id, source in self.after.sources.items()}
        models = self.models.sources.values()
        return rules | {source.rule.id: source.rule.title for source in models}

    def ids_in(self, files: Iterable[str]) -> list[str]:
        """Ids of the rules that these files would hold."""
        wanted = set(files)
        return [
            rule_id
            for rule_id, source in self.after.sources.items()
            if rule_name(self.roots, source.path) in wanted
        ]


def compile_planned(reading: FolderReading, files: Objects) -> PlannedRules:
    """Compile what would be there, `files` being all of `alerts.rules`; refusals that are new are
    problems. The lists of indicators are those of the reading."""
    settings, store = reading.settings, lists_as_planned(reading)
    roots = _written(reading, files)
    real = store_folder(settings) / FUNCTIONS
    if real.is_dir():
        # Functions that were let in stay; without them rules that count them would be refused.
        shutil.copytree(real, store / FUNCTIONS)
    bundled = [folder for folder in rule_folders(settings) if folder not in settings.alerts.rules]
    folders = [*bundled, *(root for root in roots.values() if root.exists())]
    levels = settings.alerts.levels
    after = compile_rules(folders, levels=levels, store=store) if folders else _nothing()
    models = read_models(
        (*((BUNDLED_MODELS,) if settings.alerts.bundled else ()), *roots.values()),
        ModelStore(store_folder(settings)).current(),
        disabled=(),
        levels=levels,
    )
    planned = PlannedRules(_compiled_now(settings), after, models, roots)
    if not after.sources and planned.before.sources:
        reading.refuse(RULES.name, "all", "no rule would be left")
    _note_refused(reading, planned)
    return planned


def _written(reading: FolderReading, files: Objects) -> dict[str, Path]:
    roots = {pack: reading.scratch / "packs" / pack for pack in pack_folders(reading.settings)}
    for root in roots.values():
        if root.suffix not in (".yml", ".yaml"):
            root.mkdir(parents=True)
    for name, values in files.items():
        write_whole(reading.scratch / "packs" / name, values["text"])
    return roots


def _nothing() -> Compiled:
    return compile_rules([])


def _compiled_now(settings: Settings) -> Compiled:
    try:
        return compiled_rules(settings)
    except Fatal:
        # A folder of the settings that is not there: what runs is not known, so all is new.
        return _nothing()


def _note_refused(reading: FolderReading, planned: PlannedRules) -> None:
    """What does not load now and would not then is no problem of this change."""
    now = _refusals(planned.before, pack_folders(reading.settings))
    for (name, reason), remedy in _refusals(planned.after, planned.roots).items():
        if (name, reason) not in now:
            reading.refuse(RULES.name, name, f"does not load: {reason}; {remedy}")
    known = {_plain(str(bad.reason), {}) for bad in model_rules(reading.settings).refused}
    for bad in planned.models.refused:
        if bad.reason not in known:
            name = rule_name(planned.roots, bad.path) or bad.path.name
            reading.refuse(RULES.name, name, f"does not load: {bad.reason}")


def _refusals(compiled: Compiled, roots: dict[str, Path]) -> dict[tuple[str, str], str]:
    return {
        (rule_name(roots, Path(refused.path)) or refused.rule, _plain(refused.reason, roots)):
        _plain(refused.remedy, roots)
        for refused in compiled.refused
    }  # fmt: skip


def _plain(text: str, roots: dict[str, Path]) -> str:
    """A sentence in which files have their names of an export."""
    for pack, root in roots.items():
        text = text.replace(str(root), pack)
    return text


def check_changed_rules(
    reading: FolderReading, planned: PlannedRules, files: Iterable[str]
) -> None:
    """Run the tests that changed rules bring; one that fails is a problem."""
    ids = {
        rule_id
        for rule_id in planned.ids_in(files)
        # These need Spark; 'headgate rules test' runs them.
        if not isinstance(planned.after.sources[rule_id].rule, Query)
    }
    # `check_rules` takes no ids for all rules.
    for outcome in check_rules(planned.after, ids) if ids else ():
        if not outcome.passed:
            name = rule_name(planned.roots, outcome.path) or outcome.title
            must = "match" if outcome.must_match else "not match"
            reading.refuse(
                RULES.name, name, f"test {outcome.number}, must {must}: {outcome.detail}"
            )
