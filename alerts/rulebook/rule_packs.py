"""Packs: the folders of `alerts.rules`, each by a name."""

from __future__ import annotations

from pathlib import Path

from alerts.rulepack.locations import BUNDLED
from infra.config.settings import Settings

BUNDLED_PACK = "bundled"
"""The rules that come with Headgate."""


def pack_folders(settings: Settings) -> dict[str, Path]:
    """The folders, and single files, of `alerts.rules` by the name they have in an export."""
    packs: dict[str, Path] = {}
    for path in settings.alerts.rules:
        name, number = path.absolute().name, 2
        # Two folders may end alike (`a/rules`, `b/rules`); the order of the settings decides.
        while name in packs:
            name, number = f"{path.absolute().name}-{number}", number + 1
        packs[name] = path.absolute()
    return packs


def pack_of(settings: Settings, path: Path) -> str:
    """The pack that a rule's file lies in; empty for one outside of all."""
    here = path.absolute()
    for name, root in pack_folders(settings).items():
        if here.is_relative_to(root):
            return name
    return BUNDLED_PACK if here.is_relative_to(BUNDLED.parent) else ""
