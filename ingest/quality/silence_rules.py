"""Which sources are judged for silence, and up to when job ingest has finished."""

from __future__ import annotations

from datetime import datetime

import duckdb

from ingest.tables import HEARTBEAT

OURS = (HEARTBEAT, "headgate")
"""Sources that are the platform itself; it has no habit of failing."""


_FINISHED = f"SELECT max(time) FROM silver.event WHERE source = '{HEARTBEAT}'"


def finished(connection: duckdb.DuckDBPyConnection) -> datetime | None:
    """Up to where ingest says that all it received is in silver; None: it never said."""
    row = connection.execute(_FINISHED).fetchone()
    return row[0] if row else None
