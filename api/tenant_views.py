"""What who is limited to tenants sees of the lake: their rows of some tables, and no other table.

A question that forgets its tenant is the leak nobody sees in a review. So it is no question's to
remember: the engine that answers such callers has other views, under the same names.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Never, Protocol

from infra.config.tenants import owner_of, scope_of
from infra.delta.duckdb_views import AskedViews, Definition, needed
from infra.delta.plain_files import Span
from infra.errors import Usage

TENANT = "tenant_uid"
"""By name: `infra.delta.schema`, which declares it, brings Spark along. Not `tenant` of gold.alert,
which says whose platform it is."""

LEASES, ATTRIBUTION, ACTION = "silver.dhcp_segment", "gold.attribution", "gold.alert_action"


class LakeReader(Protocol):
    """What answers questions to the lake, and for whom: `api.services.reader`, or `WholeLake`."""

    @property
    def tenants(self) -> Sequence[str] | None:
        """All whose rows are there to be asked; None: every row."""

    def rows(
        self,
        sql: str,
        params: Mapping[str, Any],
        *,
        needs: Sequence[str],
        within: Mapping[str, Span] = ...,
    ) -> list[dict[str, Any]]:
        """The rows of a query; see `api.services.reader.Reader.rows`."""


class WholeLake(AskedViews):
    """What a command asks, which sees every row."""

    tenants = None


class NotForTenants(Usage):
    """What is asked for shows what is of several tenants."""


def refused_to_tenants(what: str) -> NotForTenants:
    """Why who is limited to tenants does not get something."""
    return NotForTenants(
        f"{what} may show what is of other tenants, and is closed to who is limited to some tenants"
    )


def rows_of(tenants: Sequence[str]) -> str:
    """The condition that a row of a table with `tenant_uid` is of one of these tenants."""
    names = ", ".join(map(_text, tenants))
    return f"{TENANT} IN ({names})" if names else "FALSE"


def _text(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"


def _scopes_of(tenants: Sequence[str], column: str) -> str:
    """The condition that a scope is a part of a site that one of these tenants has."""
    parts = [f"starts_with({column}, {_text(scope_of('', name))})" for name in tenants]
    return f"({' OR '.join(parts)})" if parts else "FALSE"


def _rows_by_others(tenants: Sequence[str]) -> dict[str, str]:
    """Of tables without `tenant_uid` whose rows tell all the same whose they are, which to show."""
    return {
        # A heartbeat names no client: it says how far all logs are known, as each alert does.
        LEASES: f"({_scopes_of(tenants, 'scope')} OR (kind = 'heartbeat' AND mac IS NULL))",
        ATTRIBUTION: "finding_id IN (SELECT finding_id FROM gold.finding)"
        f" AND (holder.scope IS NULL OR {_scopes_of(tenants, 'holder.scope')})",
        ACTION: "alert_id IN (SELECT alert_id FROM gold.alert)",
    }


def scope_asked(tenants: Sequence[str] | None, scope: str | None) -> str | None:
    """The scope that is meant by one that was typed: who has one tenant may leave that out.

    Raises `Usage` where it may be that of several.
    """
    if tenants is None or scope is None or owner_of(scope) is not None:
        return scope
    if len(tenants) != 1:
        several = " or ".join(scope_of(scope, name) for name in tenants)
        raise Usage(f"scope: '{scope}' may be that of several tenants; say {several}")
    return scope_of(scope, tenants[0])


def views_of(tenants: Sequence[str], whole: Sequence[Definition]) -> tuple[Definition, ...]:
    """Of all tables and views those that can be limited, each with these tenants' rows alone."""
    own = {each.name for each in whole if TENANT in dict(each.columns)}
    by_others = _rows_by_others(tenants)
    limited = [replace(each, rows=rows_of(tenants)) for each in whole if each.name in own]
    # Behind those that their conditions name.
    limited += [
        replace(each, rows=by_others[each.name]) for each in whole if each.name in by_others
    ]
    below = own | {LEASES, ATTRIBUTION}
    limited += [
        each for each in whole if each.folder is None and _tables_below(each, whole) <= below
    ]
    return tuple(limited)


def _tables_below(view: Definition, whole: Sequence[Definition]) -> set[str]:
    return {below.name for below in needed([view.name], whole) if below.folder is not None}


class ClosedService:
    """Stands where a service is that cannot be limited to tenants; whatever is asked is refused."""

    def __init__(self, name: str) -> None:
        self._closed = name

    def __getattr__(self, name: str) -> Never:
        raise refused_to_tenants(self._closed)


def closed(name: str) -> Any:
    """A service of any kind that refuses all, called `name` in its sentence."""
    return ClosedService(name)
