"""The rule store of a lake: compiled packs, and which one is in force."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import msgspec

from alerts.anomaly.store import ModelStore
from alerts.compiler.compiler import Compiled, compile_rules
from alerts.compiler.model_rule_files import BUNDLED_MODELS, Models, read_models
from alerts.rulepack.locations import store_folder
from alerts.rulepack.rule_pack import PackStore
from infra.config.settings import Settings
from infra.errors import Fatal

_BUNDLED = Path(__file__).parents[1] / "rules"


def rule_folders(settings: Settings) -> tuple[Path, ...]:
    """Folders with rules, the bundled ones first."""
    return (*((_BUNDLED,) if settings.alerts.bundled else ()), *settings.alerts.rules)


def recompile(settings: Settings) -> Compiled:
    """Compile the rules as they are now and put the pack in force at the next micro-batch.

    Raises `Fatal`, and leaves the pack in force alone, when no rule at all can be read.
    """
    store = PackStore(store_folder(settings))
    compiled = compile_rules(
        rule_folders(settings),
        disabled=store.disabled(),
        levels=settings.alerts.levels,
        store=store.folder,
    )
    if not compiled.sources:
        folders = ", ".join(str(folder) for folder in rule_folders(settings))
        raise Fatal(
            f"no rule could be read in {folders or 'any folder'}; the rules in force stay: "
            + "; ".join(f"{refused.rule}: {refused.reason}" for refused in compiled.refused[:3])
        )
    # Models are no Sigma and are read apart, but a batch must find all rules under one hash.
    pack = msgspec.structs.replace(compiled.pack, models=model_rules(settings).running)
    # Kept before it is named: a worker that reads the name finds the pack.
    store.set_current(store.put(pack))
    return replace(compiled, pack=pack)


def model_rules(settings: Settings, files: Sequence[Path] = ()) -> Models:
    """The rules of kind model as they are now, those of single `files` before all others."""
    store = store_folder(settings)
    bundled = (BUNDLED_MODELS,) if settings.alerts.bundled else ()
    return read_models(
        (*files, *bundled, *settings.alerts.rules),
        ModelStore(store).current(),
        disabled=PackStore(store).disabled(),
        levels=settings.alerts.levels,
    )


def rule_store(settings: Settings) -> PackStore:
    """The store, with a pack in force made from the rules as they are now."""
    recompile(settings)
    return PackStore(store_folder(settings))
