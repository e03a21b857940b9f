"""Which rows and views of the lake are whose: one place for all that limits somebody to tenants."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from infra.config.tenants import scope_of
from infra.delta.duckdb_views import Definition, needed

TENANT = "tenant_uid"
"""By name: `infra.delta.schema`, which declares it, brings Spark along. Not `tenant` of gold.alert,
which says whose platform it is."""

EVENT = "silver.event"
_HEARTBEAT = f"(source = '_heartbeat' AND {TENANT} IS NULL)"
LEASES, ATTRIBUTION, ACTION = "silver.dhcp_segment", "gold.attribution", "gold.alert_action"


def rows_of(tenants: Sequence[str]) -> str:
    """The condition that a row of a table with `tenant_uid` is of one of these tenants."""
    return one_of(TENANT, tenants)


def one_of(column: str, values: Sequence[str]) -> str:
    """The condition that a column has one of these values; as all of them for both engines."""
    # Null is in no list: what is nobody's is not seen.
    return f"{column} IN ({', '.join(map(_text, values))})" if values else "FALSE"


def _text(value: str) -> str:
    """A text for DuckDB and Spark alike, which differ in what they make of these characters."""
    parts = re.split(r"(['\\$])", value)
    written = [f"chr({ord(part)})" if part in "'\\$" else f"'{part}'" for part in parts if part]
    return " || ".join(written) or "''"


def _scopes_of(tenants: Sequence[str], column: str) -> str:
    """The condition that a scope is a part of a site that one of these tenants has."""
    # No name of a tenant has a wildcard (`infra.config.tenants`).
    parts = [f"{column} LIKE {_text(scope_of('', name) + '%')}" for name in tenants]
    return f"({' OR '.join(parts)})" if parts else "FALSE"


def tenant_rows(tenants: Sequence[str], columns: Mapping[str, Collection[str]]) -> dict[str, str]:
    """Of each table that can be limited to tenants, which rows it shows them.

    `columns`: of each table. What answers lookups, pages, statements and Flight SQL goes by these
    conditions, in DuckDB and in Spark; a table that one names is meant with its own condition.
    """
    rows = {name: rows_of(tenants) for name, has in columns.items() if TENANT in has}
    # Without `tenant_uid`, these tell all the same whose they are. A heartbeat names no client: it
    # says how far all logs are known, as each alert does.
    by_others = {
        LEASES: f"({_scopes_of(tenants, 'scope')} OR (kind = 'heartbeat' AND mac IS NULL))",
        ATTRIBUTION: "finding_id IN (SELECT finding_id FROM gold.finding)"
        f" AND (holder.scope IS NULL OR {_scopes_of(tenants, 'holder.scope')})",
        ACTION: "alert_id IN (SELECT alert_id FROM gold.alert)",
    }
    return rows | {name: by_others[name] for name in columns if name in by_others}


def views_over(tables: Collection[str], whole: Sequence[Definition]) -> list[str]:
    """Names of the views that rest on these tables alone, as far as those tell whose they are."""
    # What was silenced names no alert, so a view of it would be empty and say that nothing was.
    below = {*tables} - {ACTION}
    return [
        each.name for each in whole if each.folder is None and _tables_below(each, whole) <= below
    ]


def views_of(tenants: Sequence[str], whole: Sequence[Definition]) -> tuple[Definition, ...]:
    """Of all tables and views those that can be limited, each with these tenants' rows alone."""
    columns = {each.name: dict(each.columns) for each in whole if each.folder is not None}
    rows = tenant_rows(tenants, columns)
    by_name = {each.name: each for each in whole}
    views = set(views_over(rows, whole))
    # Those whose conditions name others behind these.
    tables = sorted(rows, key=lambda name: TENANT not in columns[name])
    return (
        *(replace(by_name[name], rows=rows[name]) for name in tables),
        *(each for each in whole if each.name in views),
    )


def views_of_report(tenant: str, whole: Sequence[Definition]) -> tuple[Definition, ...]:
    """The same for a report of one tenant, which has the heartbeats of silver.event, too: without
    them a tenant that sends nothing looks like logs that have not arrived."""
    return tuple(
        replace(each, rows=f"({each.rows} OR {_HEARTBEAT})") if each.name == EVENT else each
        for each in views_of((tenant,), whole)
    )


def _tables_below(view: Definition, whole: Sequence[Definition]) -> set[str]:
    return {below.name for below in needed([view.name], whole) if below.folder is not None}
