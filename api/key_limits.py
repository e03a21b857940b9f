"""What a limited key may read: some tables, and of those some sources' or tenants' rows."""

from __future__ import annotations

from collections.abc import Sequence

from api.auth import Caller
from api.tenant_views import TENANT
from infra.config.settings import Settings
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


def known_tenants(names: Sequence[str] | None, settings: Settings) -> tuple[str, ...] | None:
    """These tenants of the settings; raises `Usage` for an unknown one, and for none."""
    if names is None:
        return None
    if not names:
        raise Usage("tenants: name at least one, or leave it out for all")
    for name in names:
        # A slip would make a key that sees nothing, now and for good.
        if name not in settings.tenants:
            known = ", ".join(settings.tenants) or "none; list them in tenants of the settings"
            raise Usage(f"tenants: no tenant '{name}'; there are {known}")
    return tuple(names)


def readable_tables(caller: Caller) -> list[str] | None:
    """Tables that the caller's statements may name; None: all.

    With a limit on rows those alone that have the columns that it goes by, and no view: a view may
    hold rows of others that do not say whose they are.
    """
    limits = caller.limits
    if limits is None:
        return None
    names = {*catalog(), *views()} if limits.tables is None else set(limits.tables)
    if rows := row_limits(caller):
        names &= {
            table.name
            for table in catalog().values()
            if rows.keys() <= {column.name for column in table.columns}
        }
    return sorted(names)


def row_limits(caller: Caller) -> dict[str, tuple[str, ...]] | None:
    """By column the values of the rows that the caller's statements see; None: every row."""
    limits = caller.limits
    if limits is None:
        return None
    rows = {SOURCE: limits.sources, TENANT: limits.tenants}
    return {column: held for column, held in rows.items() if held is not None} or None
