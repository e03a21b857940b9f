"""Why DuckDB does not answer a statement that may be good Spark SQL."""

from __future__ import annotations

from infra.errors import Usage


class Unequal(Usage):
    """DuckDB does not know this, or would answer otherwise than Spark; Spark itself may answer."""
