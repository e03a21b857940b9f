"""Where rule packs of a home lie, and the lists of indicators that their rules ask."""

from __future__ import annotations

from pathlib import Path

from infra.config.settings import Settings

BUNDLED = Path(__file__).parents[1] / "rules"
"""Folder of the rules that come with Headgate; each of them must bring tests."""

BUNDLED_MODELS = Path(__file__).parents[1] / "model_rules"

FOLDER = "indicators"
"""Folder of the lists beside the packs."""

MODELS = "models"
"""Folder of what was trained, beside the packs."""

_folders: dict[Path, None] = {}


def store_folder(settings: Settings) -> Path:
    """Where packs and switches lie: beside the tables, so that workers reach them."""
    return settings.lake_side / "_rules"


def is_bundled(path: Path) -> bool:
    """Whether a rule's file is one that comes with Headgate."""
    here = path.absolute()
    return any(here.is_relative_to(folder.absolute()) for folder in (BUNDLED, BUNDLED_MODELS))


def rule_folders(settings: Settings) -> tuple[Path, ...]:
    """Folders with rules, the bundled ones first."""
    return (*((BUNDLED,) if settings.alerts.bundled else ()), *settings.alerts.rules)


def look_in(store: Path) -> None:
    """Let lists be found beside the packs of a store. A list's hash says what is in it, so it
    does not matter in which store it is found."""
    # A dict as an ordered set: folders are asked in the order in which they became known.
    _folders.setdefault(store / FOLDER)


def indicator_file(list_hash: str) -> Path:
    """The file of a list; raises `ValueError` where no known store has it."""
    for folder in _folders:
        path = folder / f"{list_hash}.arrow"
        if path.exists():
            return path
    raise ValueError(f"the indicator list {list_hash} is gone; load it again")
