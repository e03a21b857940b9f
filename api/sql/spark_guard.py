"""What a statement may read in the Spark session: known tables by their names, nothing else.

Three bounds, each by itself enough for most: a text is only ever run inside `SELECT * FROM (...)`,
where Spark's grammar has questions and no commands; functions that reach further are not there
(`api.sql.spark_functions`); and of the plan that Spark makes of it, each leaf is a view of the lake
that the caller may name, or holds no data from outside.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any

from py4j.java_gateway import JavaObject
from pyspark.sql import DataFrame, SparkSession

from api.sql.spark_functions import FUNCTIONS, TABLE_FUNCTIONS
from api.sql.spark_lake import hidden
from infra.errors import Usage

_VIEW = "View"
_HARMLESS = frozenset(
    {"OneRowRelation", "LocalRelation", "Range", "CTERelationRef", "UnionLoopRef"}
)
"""Leaves that hold what the statement itself says."""


def only_listed_functions(spark: SparkSession) -> None:
    """Take from a session all functions that statements may not call."""
    state = spark._jsparkSession.sessionState()  # no public way leads to the registries
    identifier = spark._jvm.org.apache.spark.sql.catalyst.FunctionIdentifier  # type: ignore[union-attr]
    option = spark._jvm.scala.Option.apply  # type: ignore[union-attr]
    for registry, listed in (
        (state.functionRegistry(), FUNCTIONS),
        (state.tableFunctionRegistry(), TABLE_FUNCTIONS),
    ):
        for function in _each(registry.listFunction()):
            name = function.funcName()
            if name not in listed:
                registry.dropFunction(identifier(name, option("builtin"), option("system")))


def as_question(sql: str) -> str:
    """A text where Spark reads a question or refuses it: commands have no place there."""
    # On lines of its own: a comment at its end must not take the bracket with it.
    return f"SELECT * FROM (\n{sql.strip().rstrip(';')}\n)"


def require_readable(answer: DataFrame, tables: Collection[str] | None) -> None:
    """Raises `Usage` where an analysed statement reads what its caller may not.

    `tables`: names that may be read; None: all that the lake has.
    """
    plan = answer._jdf.queryExecution().analyzed()  # what is read is not told in public
    if plan.isStreaming():
        raise Usage("STREAM is not allowed in a statement; it reads tables as they are")
    for name in set(_read(plan)):
        layer = name.partition(".")[0]
        if hidden(layer) or (tables is not None and name not in tables):
            raise Usage(f"no table '{name}' that you may read")


def _read(plan: JavaObject) -> Iterator[str]:
    """Names of the views that a plan reads itself; what lies below them is ours."""
    kind = plan.getClass().getSimpleName()
    if kind == _VIEW:
        named = plan.desc().identifier()
        yield f"{named.database().get()}.{named.table()}".lower()
        return
    below = [*_each(plan.children()), *_each(plan.subqueries())]
    if not below and kind not in _HARMLESS:
        raise Usage(f"a statement reads tables by name; {kind} is not one")
    for each in below:
        yield from _read(each)


def _each(items: Any) -> Iterator[Any]:
    """The elements of a sequence of Scala's."""
    return (items.apply(number) for number in range(items.size()))
