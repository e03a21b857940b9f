"""What a limited key may read: some tables, and of those some sources' rows."""

from __future__ import annotations

from collections.abc import Sequence

from api.auth import Caller
from infra.delta.catalog import catalog, views
from infra.errors import Usage

SOURCE = "source"


def known_tables(names: Sequence[str] | None) -> tuple[str, ...] | None:
    """These tables or views by their names in small letters; raises `Usage` for an unknown one."""
    if names is None:
        return None
    known = {*catalog(), *views()}
    wanted = tuple(name.strip().lower() for name in names)
    for name in wanted:
        if name not in known:
            raise Usage(f"tables: no table '{name}'; GET /api/v1/tables lists them")
    return wanted


def readable_tables(caller: Caller) -> list[str] | None:
    """Tables that the caller's statements may name; None: all.

    With `sources` those alone that have a column `source`, and no view: a view may hold rows of
    others that say no source.
    """
    limits = caller.limits
    if limits is None:
        return None
    names = {*catalog(), *views()} if limits.tables is None else set(limits.tables)
    if limits.sources is not None:
        names &= {
            table.name
            for table in catalog().values()
            if any(column.name == SOURCE for column in table.columns)
        }
    return sorted(names)
