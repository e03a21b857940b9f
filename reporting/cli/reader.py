"""Opens the lake for reports and the ledger, or says which tables are missing."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

import duckdb

from infra.config.settings import Settings
from infra.delta.duckdb_views import connect, spill
from infra.delta.retention import furthest
from infra.storage.temp_dirs import scratch
from ingest.pipeline.files_job import under_way
from reporting.ledger.completeness import excuse, forgive


def open_lake(settings: Settings, needs: Sequence[str]) -> duckdb.DuckDBPyConnection:
    """The lake for questions about completeness: with what is excused, and room to spill."""
    before = under_way(settings.checkpoint_root)
    connection = connect(settings.lake_root, needs=needs, memory=settings.api.statement_memory)
    with suppress(OSError):  # where nothing may be written it does with its memory
        spill(connection, scratch(settings.scratch_root))
    # One may have begun before the tables were looked at, and one since.
    excuse(connection, [*before, *under_way(settings.checkpoint_root)])
    forgive(connection, furthest(settings, "silver.event"), furthest(settings, "gold.attribution"))
    return connection
