"""Packs: the folders of `alerts.rules`, and those below them that rules were imported into, each by
a name."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from alerts.rollout.pack_versions import PackVersions
from alerts.rulepack.locations import BUNDLED
from infra.config.settings import Settings

BUNDLED_PACK = "bundled"
"""The rules that come with Headgate."""


def pack_folders(settings: Settings) -> dict[str, Path]:
    """The folders, and single files, of `alerts.rules` by the name they have in an export."""
    packs: dict[str, Path] = {}
    for path in settings.alerts.rules:
        packs[_free_name(path.absolute(), packs)] = path.absolute()
    return packs


def every_pack(settings: Settings) -> dict[str, Path]:
    """Those, and the folders below them that `headgate rules import` put rules into."""
    packs = pack_folders(settings)
    roots = tuple(packs.values())
    for folder in PackVersions(settings).folders():
        below = any(folder.is_relative_to(root) for root in roots)
        if below and folder not in roots and folder.is_dir():
            packs[_free_name(folder, packs)] = folder
    return packs


def _free_name(folder: Path, packs: Mapping[str, Path]) -> str:
    """What a folder is called; two may end alike (`a/rules`, `b/rules`), and the first has that."""
    name, number = folder.name, 2
    while name in packs:
        name, number = f"{folder.name}-{number}", number + 1
    return name


def pack_of(packs: Mapping[str, Path], path: Path) -> str:
    """The innermost of `packs` that a rule's file lies in; empty for one outside of all."""
    here = path.absolute()
    around = [name for name, root in packs.items() if here.is_relative_to(root)]
    if around:
        return max(around, key=lambda name: len(packs[name].parts))
    return BUNDLED_PACK if here.is_relative_to(BUNDLED.parent) else ""
