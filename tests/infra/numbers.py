"""A table of numbers that arrive, and one of their squares."""

from __future__ import annotations

from pyspark.sql import types as T

from infra.duck import open_engine
from infra.lake import Lake
from infra.tables import Column, Table

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
