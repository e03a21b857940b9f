"""Views asked of one lake in Spark, without naming them in the session that all tests share."""

from __future__ import annotations

import re
from typing import Any

from infra.delta.catalog import catalog, views
from infra.streaming.lake import Lake


def ask(lake: Lake, sql: str) -> list[tuple[Any, ...]]:
    """Rows of a statement over tables and views by name."""
    return [tuple(row) for row in lake.spark.sql(_by_path(lake, sql)).collect()]


def columns_of(lake: Lake, sql: str) -> list[str]:
    """Names of the columns of a statement that Spark has analysed and not run."""
    return lake.spark.sql(_by_path(lake, sql)).columns


def _by_path(lake: Lake, sql: str) -> str:
    def place(match: re.Match[str]) -> str:
        name = match[0]
        if name in catalog():
            return f"delta.`{lake.path(catalog()[name])}`"
        return f"({_by_path(lake, views()[name].sql)})"

    return re.sub(r"\b(?:silver|gold|ops)\.\w+", place, sql)
