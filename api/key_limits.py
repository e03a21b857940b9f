"""What a limited key may read: some tables, and of those some sources' or tenants' rows."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

from alerts.domain.tenant_rows import one_of, tenant_rows, views_over
from api.auth import Caller
from infra.config.settings import Settings
from infra.config.tenants import listed_tenants
from infra.delta.catalog import catalog, views
from infra.delta.duckdb_views import Definition
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
    return listed_tenants(names, settings.tenants, "tenants")


def readable_tables(caller: Caller) -> list[str] | None:
    """Tables and views that the caller's statements may name; None: all.

    With a limit on rows those tables alone that tell whose their rows are. Views that rest on such
    tables are there for who is limited to tenants; a source's rows say less of what a view makes of
    them.
    """
    limits, rows = caller.limits, row_limits(caller)
    if limits is None:
        return None
    names = {*catalog(), *views()} if limits.tables is None else set(limits.tables)
    if rows is not None:
        names &= {*rows, *(_views_over(frozenset(rows)) if limits.sources is None else ())}
    return sorted(names)


def row_limits(caller: Caller) -> dict[str, str] | None:
    """Of each table the condition of the rows that the caller's statements see; None: every row.

    What is not named shows none.
    """
    limits = caller.limits
    if limits is None or (limits.sources is None and limits.tenants is None):
        return None
    columns = {name: {column.name for column in table.columns} for name, table in catalog().items()}
    by_tenant = None if limits.tenants is None else tenant_rows(limits.tenants, columns)
    if limits.sources is None:
        return by_tenant
    of_source = one_of(SOURCE, limits.sources)
    by_source = {name: of_source for name, has in columns.items() if SOURCE in has}
    if by_tenant is None:
        return by_source
    return {name: f"{of_source} AND {by_tenant[name]}" for name in by_source if name in by_tenant}


@cache
def _views_over(tables: frozenset[str]) -> list[str]:
    # The catalogue as far as it says what rests on what.
    known = [
        *(Definition(name, "", table.path) for name, table in catalog().items()),
        *(Definition(name, view.sql, None) for name, view in views().items()),
    ]
    return views_over(tables, known)
