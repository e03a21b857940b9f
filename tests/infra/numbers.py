"""A table of numbers that arrive, and one of their squares."""

from __future__ import annotations

from pyspark.sql import types as T

from infra.delta.duckdb_views import open_engine
from infra.delta.schema import Column, Table
from infra.streaming.lake import Lake

NUMBER = Table(
    "silver.number",
    "numbers that arrive",
    (Column("n", T.LongType(), "a number"), Column("note", T.StringType(), "a text", False)),
    cluster_by=("n",),
    stats=("n",),
)
SQUARE = Table("gold.square", "their squares", (Column("n", T.LongType(), "a square"),))


def rows(lake: Lake, one: Table) -> list[int]:
    """As a reader outside Spark sees them."""
    engine = open_engine(memory="500MB", threads=1)
    found = engine.execute(f"SELECT n FROM delta_scan('{lake.path(one)}') ORDER BY n").fetchall()
    return [n for (n,) in found]
