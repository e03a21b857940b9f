"""Which packs there are: version, origin, how many rules run, are tried, or were edited here."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from importlib.metadata import version
from pathlib import Path

from alerts.rollout.pack_plan import edited_here
from alerts.rollout.pack_versions import PackVersions
from alerts.rulebook.rule_choice import AnySource
from alerts.rulebook.rule_packs import BUNDLED_PACK, every_pack, pack_of
from alerts.rulepack.locations import BUNDLED, store_folder
from alerts.rulepack.rule_pack import PackStore
from alerts.rulepack.shadow_marks import ShadowMarks
from infra.config.settings import Settings
from infra.errors import NoSuch, Usage


@dataclass(frozen=True)
class PackItem:
    """One pack. `shadow`: rules, and changed texts, that are tried; `edited`: files that are other
    than they were imported. Without an import `source`, `imported` (UTC) and `by` are empty."""

    pack: str
    version: str
    source: str
    rules: int
    on: int
    off: int
    shadow: int
    edited: int
    imported: datetime | None
    by: str
    only: str
    folder: str


def list_packs(settings: Settings, every: Mapping[str, AnySource]) -> list[PackItem]:
    """The bundled rules, each folder of `alerts.rules`, in the order of the settings, and those
    below them that were imported into.

    `every`: the rules of every kind, by id.
    """
    store = store_folder(settings)
    marks, off = ShadowMarks(store).all(), PackStore(store).disabled()
    folders = _folders(settings)
    packs = {rule_id: pack_of(folders, source.path) for rule_id, source in every.items()}
    meant = [mark.changes or i for i, mark in marks.items()]
    # A changed text that is tried is a rule of its own id, and not one of the pack.
    own = {i: pack for i, pack in packs.items() if i not in marks or not marks[i].changes}
    rules = Counter(own.values())
    shadow = Counter(packs[i] for i in meant if i in packs)
    switched_off = Counter(own[i] for i in off if i in own)
    silent = Counter(own[i] for i, mark in marks.items() if i in own and i not in off)
    versions = PackVersions(settings).of_all(folders.values())
    items = []
    for name, folder in folders.items():
        known = versions[folder]
        last = known[-1] if known else None
        bundled = name == BUNDLED_PACK
        items.append(
            PackItem(
                pack=name,
                version=last.version if last else version("headgate") if bundled else "",
                source=last.source if last else "headgate" if bundled else "",
                rules=rules[name],
                on=rules[name] - switched_off[name] - silent[name],
                off=switched_off[name],
                shadow=shadow[name],
                edited=len(edited_here(folder, known)),
                imported=last.taken if last else None,
                by=last.who if last else "",
                only=last.only if last else "",
                folder=str(folder),
            )
        )
    return items


def _folders(settings: Settings) -> dict[str, Path]:
    bundled = {BUNDLED_PACK: BUNDLED} if settings.alerts.bundled else {}
    return {**bundled, **every_pack(settings)}


def pack_folder(settings: Settings, pack: str) -> Path:
    """The folder of a pack by its name, or by its path; raises `NoSuch`, and `Usage` for
    the bundled one."""
    folders = every_pack(settings)
    if pack in folders:
        return folders[pack]
    # Also one that alerts.rules does not name, or names no more.
    if PackVersions(settings).of(Path(pack)):
        return Path(pack).absolute()
    if pack == BUNDLED_PACK:
        raise Usage(
            f"pack '{pack}' comes with Headgate and has no versions of its own; a release renews "
            "it, and alerts.bundled switches it off"
        )
    raise NoSuch(f"no pack '{pack}' was imported; there are {', '.join(folders) or 'none'}")
