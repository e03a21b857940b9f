"""What a new list of an inventory changes: rows for what is new, other or gone, and no others."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime

from enrich.assets.registers import RegisterEntry, Values


@dataclass(order=True)
class Version:
    """What is said of an entry from `valid_from` on; `values` None: it is listed no more."""

    valid_from: datetime
    values: Values | None = field(compare=False)


VersionHistory = dict[str, list[Version]]
"""Versions of each entry by its id, ascending, one an instant."""


@dataclass(frozen=True)
class _Change:
    """A row to write: `values` None says that the entry is gone."""

    id: str
    version: Version
    file: str | None
    line: int | None


@dataclass
class Changes:
    """What a list changes, and how many of its entries are what."""

    rows: list[_Change] = field(default_factory=list)
    new: int = 0
    changed: int = 0
    gone: int = 0
    unchanged: int = 0


def changes(
    stored: Mapping[str, list[Version]],
    entries: Iterable[tuple[str, RegisterEntry]],
    at: datetime,
    *,
    whole: bool,
) -> Changes:
    """Compare a list, true from `at` on, with what is known of the inventory.

    An entry with an instant of its own is compared with what was true then, so a list of the
    past fills the past in. `whole`: what the list does not name is gone from `at` on.
    """
    history: VersionHistory = {name: list(versions) for name, versions in stored.items()}
    result = Changes()
    named = set()
    # By time: each line is compared with what holds then, earlier lines of the list included.
    for file, entry in sorted(entries, key=lambda one: (one[1].valid_from or at, one[1].id)):
        named.add(entry.id)
        since = entry.valid_from or at
        versions = history.setdefault(entry.id, [])
        before = in_force(versions, since)
        if before == entry.values:
            result.unchanged += 1
            continue
        result.new += before is None
        result.changed += before is not None
        version = Version(since, entry.values)
        _put(versions, version)
        result.rows.append(_Change(entry.id, version, file, entry.line))
    for name in sorted(set(history) - named) if whole else ():
        if in_force(history[name], at) is not None:
            result.gone += 1
            result.rows.append(_Change(name, Version(at, None), None, None))
    return result


def in_force(versions: list[Version], at: datetime) -> Values | None:
    """What is true of an entry at an instant; None for nothing."""
    place = bisect_right(versions, at, key=lambda version: version.valid_from)
    return versions[place - 1].values if place else None


def _put(versions: list[Version], version: Version) -> None:
    place = bisect_left(versions, version.valid_from, key=lambda version: version.valid_from)
    # Of one instant, what is loaded last counts.
    same = place < len(versions) and versions[place].valid_from == version.valid_from
    versions[place : place + same] = [version]
