"""What who is limited to tenants sees of the lake: their rows of some tables, and no other table.

A question that forgets its tenant is the leak nobody sees in a review. So it is no question's to
remember: the engine that answers such callers has other views, under the same names.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Never

from infra.delta.duckdb_views import Definition, needed
from infra.errors import Usage

TENANT = "tenant_uid"
"""By name: `infra.delta.schema`, which declares it, brings Spark along. Not `tenant` of gold.alert,
which says whose platform it is."""

_BY_ALERT = {"gold.alert_action": "alert_id IN (SELECT alert_id FROM gold.alert)"}
"""Tables whose rows are of an alert, and so of whom that is."""


class NotForTenants(Usage):
    """What is asked for shows what is of several tenants."""


def refused(what: str) -> NotForTenants:
    """Why who is limited to tenants does not get something."""
    return NotForTenants(
        f"{what} may show what is of other tenants, and is closed to who is limited to some tenants"
    )


def rows_of(tenants: Sequence[str]) -> str:
    """The condition that a row of a table with `tenant_uid` is of one of these tenants."""
    names = ", ".join("'" + name.replace("'", "''") + "'" for name in tenants)
    return f"{TENANT} IN ({names})" if names else "FALSE"


def views_of(tenants: Sequence[str], whole: Sequence[Definition]) -> tuple[Definition, ...]:
    """Of all tables and views those that can be limited, each with these tenants' rows alone."""
    tables = {table.name for table in whole if TENANT in dict(table.columns)}
    limited = []
    for each in whole:
        if each.name in tables:
            limited.append(replace(each, rows=rows_of(tenants)))
        elif each.name in _BY_ALERT:
            limited.append(replace(each, rows=_BY_ALERT[each.name]))
        elif each.folder is None and _tables_below(each, whole) <= tables:
            limited.append(each)
    return tuple(limited)


def _tables_below(view: Definition, whole: Sequence[Definition]) -> set[str]:
    return {below.name for below in needed([view.name], whole) if below.folder is not None}


class ClosedService:
    """Stands where a service is that cannot be limited to tenants; whatever is asked is refused."""

    def __init__(self, name: str) -> None:
        self._closed = name

    def __getattr__(self, name: str) -> Never:
        raise refused(self._closed)


def closed(name: str) -> Any:
    """A service of any kind that refuses all, called `name` in its sentence."""
    return ClosedService(name)
