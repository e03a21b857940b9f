"""The rule store of a lake: compiled packs, and which one is in force."""

from __future__ import annotations

from pathlib import Path

from alerts.compile import Compiled, compile_rules
from alerts.pack import PackStore
from infra.errors import Fatal
from infra.settings import Settings

BUNDLED = Path(__file__).with_name("rules")


def store_folder(settings: Settings) -> Path:
    """Where packs and switches lie: beside the tables, so that workers reach them."""
    return settings.lake_root / "_rules"


def rule_folders(settings: Settings) -> tuple[Path, ...]:
    """Folders with rules, the bundled ones first."""
    return (*((BUNDLED,) if settings.alerts.bundled else ()), *settings.alerts.rules)


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
    store.set_current(store.put(compiled.pack))
    return compiled


def rule_store(settings: Settings) -> PackStore:
    """The store, with a pack in force made from the rules as they are now."""
    recompile(settings)
    return PackStore(store_folder(settings))
