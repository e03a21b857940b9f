"""The rule store of a lake: compiled packs, and which one is in force."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import msgspec

from alerts.compiler.compiler import Compiled, TranslatedRules, translate_rules
from alerts.compiler.model_rule_files import Models, read_models
from alerts.rulepack.locations import BUNDLED_MODELS, MODELS, rule_folders, store_folder
from alerts.rulepack.rule_pack import PackStore
from alerts.rulepack.shadow_marks import ShadowMarks
from infra.config.settings import Settings
from infra.errors import Fatal
from infra.process.gc_pause import no_collection


@dataclass(frozen=True)
class RuleFiles:
    """What the rules' files hold, read once: for several looks at it, and to put it in force."""

    settings: Settings
    translated: TranslatedRules

    @cached_property
    def models(self) -> Models:
        """The rules of kind model, all as if live."""
        return model_rules(self.settings)

    def compiled(self) -> Compiled:
        """The rules with the switches as they are now; models are not in the pack."""
        store = store_folder(self.settings)
        disabled, shadow = PackStore(store).disabled(), ShadowMarks(store).ids()
        return self.translated.put_together(disabled, self.settings.alerts.levels, shadow)

    @no_collection()
    def put_in_force(self) -> Compiled:
        """Put the rules, with the switches as they are now, in force at the next micro-batch.

        Raises `Fatal`, and leaves the pack in force alone, when no rule at all can be read.
        """
        compiled = self.compiled()
        if not compiled.sources:
            folders = ", ".join(str(folder) for folder in rule_folders(self.settings))
            raise Fatal(
                f"no rule could be read in {folders or 'any folder'}; the rules in force stay: "
                + "; ".join(f"{r.rule}: {r.reason}" for r in compiled.refused[:3])
            )
        store = PackStore(store_folder(self.settings))
        # Models are no Sigma and are read apart, but a batch must find all rules under one hash.
        models = self.models.switched(store.disabled(), ShadowMarks(store.folder).ids()).running
        pack = msgspec.structs.replace(compiled.pack, models=models)
        # Kept before it is named: a worker that reads the name finds the pack.
        store.set_current(store.put(pack))
        return replace(compiled, pack=pack)


def read_rule_files(settings: Settings) -> RuleFiles:
    """The rules' files as they are now."""
    store = store_folder(settings)
    folders = (*rule_folders(settings), *ShadowMarks(store).candidates())
    return RuleFiles(settings, translate_rules(folders, store))


def recompile(settings: Settings) -> Compiled:
    """Compile the rules as they are now and put the pack in force at the next micro-batch.

    Raises `Fatal`, and leaves the pack in force alone, when no rule at all can be read.
    """
    return read_rule_files(settings).put_in_force()


def model_rules(settings: Settings, files: Sequence[Path] = ()) -> Models:
    """The rules of kind model as they are now, those of single `files` before all others."""
    store = store_folder(settings)
    bundled = (BUNDLED_MODELS,) if settings.alerts.bundled else ()
    return read_models(
        (*files, *bundled, *settings.alerts.rules),
        _in_use(store),
        disabled=PackStore(store).disabled(),
        levels=settings.alerts.levels,
    )


def _in_use(store: Path) -> Mapping[str, str]:
    """Hash of the model that each rule runs with; none where nothing was trained."""
    if not (store / MODELS).is_dir():
        return {}
    # Late: most homes have no models, and reading one takes numpy and Arrow.
    from alerts.anomaly.store import ModelStore

    return ModelStore(store).current()


def rule_store(settings: Settings) -> PackStore:
    """The store, with a pack in force made from the rules as they are now."""
    recompile(settings)
    return PackStore(store_folder(settings))
