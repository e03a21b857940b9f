"""Which tables and views there are: each package registers what it declares.

Every command registers all packages before it does anything, so nothing here imports Spark: that
alone would cost each command a quarter of a second.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from infra.errors import Fatal, Usage

if TYPE_CHECKING:
    from infra.delta.schema import Table, View


@dataclass(frozen=True)
class Declared:
    """The tables and views that one package writes, in an order in which they can be made."""

    tables: tuple[Table, ...]
    views: tuple[View, ...] = ()


_DECLARED: dict[str, Callable[[], Declared]] = {}


def register_tables(package: str, declared: Callable[[], Declared]) -> None:
    """Make a package's tables known; `declared` is called when somebody asks for the catalogue."""
    _DECLARED[package] = declared


def _declared() -> tuple[Callable[[], Declared], ...]:
    # Half a catalogue would leave tables out of backups and erasures without a word.
    if not _DECLARED:
        raise Fatal("no package has registered its tables; import headgate.packages first")
    return tuple(_DECLARED.values())


def catalog() -> dict[str, Table]:
    """Every table of the platform, by name."""
    return {t.name: t for declared in _declared() for t in declared().tables}


def views() -> dict[str, View]:
    """Every view of the platform, by name, in an order in which they can be made."""
    return {v.name: v for declared in _declared() for v in declared().views}


def table(name: str) -> Table:
    """The table called `name`; raises `Usage` with the known names."""
    tables = catalog()
    if name not in tables:
        raise Usage(f"no table '{name}'; there are {', '.join(sorted(tables))}")
    return tables[name]
