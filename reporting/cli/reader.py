"""Opens the lake for reports and the ledger, or says which tables are missing."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial

import duckdb

from alerts.domain.tenant_rows import views_of_report
from infra.config.settings import Settings
from infra.delta.catalog import catalog
from infra.delta.duckdb_views import Definition, connect, definitions, needed, refresh, spill
from infra.delta.log_reader import newest_version
from infra.delta.retention import furthest
from infra.storage.paths import is_table, location
from infra.storage.temp_dirs import scratch
from ingest.pipeline.inflight import batches_under_way
from reporting.ledger.completeness import excuse, forgive


def open_lake(
    settings: Settings, needs: Sequence[str], tenant: str | None = None
) -> duckdb.DuckDBPyConnection:
    """The tables and views of `needs`, and no others, for questions about completeness: with what
    is excused, and room to spill.

    `tenant`: whose rows alone are there; tables that cannot tell whose theirs are are not. None:
    all.
    """
    before = batches_under_way(settings.checkpoint_root)
    memory = settings.api.statement_memory
    connection = connect(
        settings.lake_root, needs=needs, only=(), memory=memory, existing=partial(_shown, tenant)
    )
    with suppress(OSError):  # where nothing may be written it does with its memory
        spill(connection, scratch(settings.scratch_root))
    # One may have begun before the tables were looked at, and one since.
    excuse(connection, [*before, *batches_under_way(settings.checkpoint_root)])
    forgive(connection, furthest(settings, "silver.event"), furthest(settings, "gold.attribution"))
    return connection


def open_pinned(
    settings: Settings, needs: Sequence[str], tenant: str | None = None
) -> tuple[duckdb.DuckDBPyConnection, dict[str, int]]:
    """The same, each table at one version for all questions, with those versions.

    So the figures of one report agree with each other however long it takes.
    """
    connection = open_lake(settings, needs, tenant)
    pinned, versions = [], {}
    for definition in needed(needs, _shown(tenant, definitions(settings.lake_root))):
        if definition.folder is not None and is_table(location(definition.folder)):
            version = newest_version(location(definition.folder))
            versions[definition.name] = version
            # Of a table that each batch writes anew a former version's files soon go.
            if catalog()[definition.name].rewritten is None:
                definition = replace(definition, version=version)
        pinned.append(definition)
    refresh(connection, pinned)
    return connection, versions


def _shown(tenant: str | None, whole: Sequence[Definition]) -> Sequence[Definition]:
    return whole if tenant is None else views_of_report(tenant, whole)
