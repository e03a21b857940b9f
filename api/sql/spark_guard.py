"""What a statement may read in the Spark session: known tables by their names, nothing else.

Three bounds, each by itself enough for most: a text is only ever run inside `SELECT * FROM (...)`,
where Spark's grammar has questions and no commands; functions that reach further are not there
(`api.sql.spark_functions`); and of the plan that Spark makes of it, each leaf is a view of the lake
that the caller may name, or holds no data from outside.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from pyspark.sql import DataFrame, SparkSession

from api.sql.spark_functions import FUNCTIONS, TABLE_FUNCTIONS
from api.sql.spark_lake import is_hidden_schema
from infra.errors import Usage
from infra.spark.internals import PlanNode, analyzed_plan, keep_functions

_VIEW = "View"
_HARMLESS = frozenset(
    {"OneRowRelation", "LocalRelation", "Range", "CTERelationRef", "UnionLoopRef"}
)
"""Leaves that hold what the statement itself says."""


def only_listed_functions(spark: SparkSession) -> None:
    """Take from a session all functions that statements may not call."""
    keep_functions(spark, FUNCTIONS, TABLE_FUNCTIONS)


def as_question(sql: str) -> str:
    """A text where Spark reads a question or refuses it: commands have no place there."""
    # On lines of its own: a comment at its end must not take the bracket with it.
    return f"SELECT * FROM (\n{sql.strip().rstrip(';')}\n)"


def require_readable(answer: DataFrame, tables: Collection[str] | None) -> None:
    """Raises `Usage` where an analysed statement reads what its caller may not.

    `tables`: names that may be read; None: all that the lake has.
    """
    plan = analyzed_plan(answer)
    if plan.streaming:
        raise Usage("STREAM is not allowed in a statement; it reads tables as they are")
    for name in set(_read(plan)):
        layer = name.partition(".")[0]
        if is_hidden_schema(layer) or (tables is not None and name not in tables):
            raise Usage(f"no table '{name}' that you may read")


def _read(plan: PlanNode) -> Iterator[str]:
    """Names of the views that a plan reads itself; what lies below them is ours."""
    kind = plan.class_name.rpartition(".")[2]
    if kind == _VIEW:
        yield plan.view.lower()
        return
    below = [*plan.children, *plan.subqueries]
    if not below and kind not in _HARMLESS:
        raise Usage(f"a statement reads tables by name; {kind} is not one")
    for node in below:
        yield from _read(node)
