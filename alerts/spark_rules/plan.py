"""What Spark makes of a rule's query: may it run on events as they come?

A rule must say the same of a micro-batch as of a year. So it may look at each event by itself, or
at whole windows; whatever else makes its answer hang on which events come together is refused,
and so is what asks the clock, chance, or another table.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql import types as T
from sqlglot.errors import SqlglotError

from alerts.compiler.sigma_to_predicate import Untranslatable
from alerts.compiler.sql_check import VIEW, parsed_sql
from alerts.rulepack.rule_pack import Query
from infra.spark.internals import PlanNode, analyzed_plan

# What Spark cannot understand is told in a sentence; its own record of it would go to stderr.
logging.getLogger("SQLQueryContextLogger").setLevel(logging.CRITICAL)

EVENT_BY_EVENT = frozenset(
    {
        "Project", "Filter", "Generate", "Union", "Sort", "SubqueryAlias", "View", "WithCTE",
        "CTERelationDef", "CTERelationRef", "LogicalRDD", "LocalRelation", "OneRowRelation",
        "ResolvedHint", "MapInArrow", "MapInPandas",
    }
)  # fmt: skip
"""Operators of Spark that say of an event what they say of it alone, and rows made in place."""

BY_WINDOW = EVENT_BY_EVENT | {"Aggregate", "Expand", "Distinct", "Deduplicate"}

_CALLED = {
    "Aggregate": "an aggregate",
    "Join": "a join",
    "Window": "a function OVER other rows",
    "GlobalLimit": "LIMIT",
    "LocalLimit": "LIMIT",
    "Distinct": "DISTINCT",
    "Deduplicate": "a removal of duplicates",
    "Except": "EXCEPT",
    "Intersect": "INTERSECT",
}
_TABLES = ("LogicalRelation", "Relation", "HiveTable", "InMemoryRelation")
_OWN = "org.apache.spark.sql.catalyst.expressions."
_IN_ANY_ORDER = frozenset({"CollectList", "CollectSet", "First", "Last"})
"""Spark says their answer hangs on the order of rows; of one window they show examples."""

_CLOCK = frozenset({"Now", "LocalTimestamp", "SessionWindow"})
_NOISE = re.compile(r"^\[[A-Z_.]+\]\s*|;?\s*(SQLSTATE: \w+)?;?\s*(line \d+ pos \d+)?;?\s*$")


def refuse_unfit(query: Query, rows: DataFrame) -> None:
    """Raise `Untranslatable` unless `rows`, which the query made of no events, may go live."""
    allowed = BY_WINDOW if query.window_seconds else EVENT_BY_EVENT
    for node in analyzed_plan(rows).walk():
        if node.name not in allowed:
            raise _unfit(node.name, query)
        if node.has_subqueries:
            raise _unfit("a subquery", query)
        if node.name == "Aggregate" and not _by_window(node):
            raise Untranslatable("an aggregate over all windows", "group by `window` as well")
        for expression in _expressions(node):
            _refuse_expression(expression)
    _refuse_columns(query, rows.schema)


def seen_by(rows: DataFrame) -> list[str]:
    """What a function asks of the events that it made `rows` of, a SELECT for each way to them.

    A condition counts as far as it is about the events' own columns: of one that the function
    made it cannot be told what it needs.
    """
    return [
        f"SELECT * FROM {VIEW}" + (f" WHERE {' AND '.join(asked)}" if asked else "")
        for asked in _asked(analyzed_plan(rows), [])
    ]


def _asked(node: PlanNode, above: list[PlanNode]) -> Iterator[list[str]]:
    """The conditions on each way from the top of a plan down to the events."""
    if node.name == "Filter":
        above = [*_conjuncts(node.condition), *above]
    if not node.children:
        own = node.output_ids
        conditions = [each.sql for each in above if each.referenced_ids <= own]
        # A condition that is left out widens what is shown; it never hides an input.
        yield [text for text in conditions if _is_read(text)]
    for child in node.children:
        yield from _asked(child, above)


def _conjuncts(condition: PlanNode) -> Iterator[PlanNode]:
    if condition.name == "And":
        for part in condition.children:
            yield from _conjuncts(part)
    else:
        yield condition


def _is_read(condition: str) -> bool:
    """Whether a condition, as Spark writes it, is one that `query_text.parsed` reads."""
    try:
        return bool(parsed_sql(f"SELECT * FROM {VIEW} WHERE {condition}"))
    except (SqlglotError, RecursionError):
        return False


def _unfit(name: str, query: Query) -> Untranslatable:
    # The query was given made-up rows, so any relation in the plan is one it names itself.
    if any(table in name for table in _TABLES):
        return Untranslatable("it reads another table or file", "a rule reads events alone")
    called = _CALLED.get(name, name)
    if query.window_seconds:
        return Untranslatable(
            f"it has {called}", "a window is grouped, filtered and shown, no more"
        )
    return Untranslatable(
        f"it has {called}, so what it says of an event hangs on which others come with it",
        "ask of each event by itself, or add `window: 10m` and group by window(time, '10 minutes')",
    )


def _expressions(node: PlanNode) -> Iterator[PlanNode]:
    for expression in node.expressions:
        # A plain column asks nothing; walking each of them would be most of the work.
        if expression.name != "AttributeReference":
            yield from expression.walk()


def _by_window(aggregate: PlanNode) -> bool:
    return any(
        node.name == "AttributeReference" and node.column == "window"
        for expression in aggregate.grouping
        for node in expression.walk()
    )


def _refuse_expression(expression: PlanNode) -> None:
    kind = expression.class_name
    short = kind.rpartition(".")[2].rstrip("$")
    # By its class: a UDF or a function of a catalogue may have the name of a built-in.
    if not kind.startswith(_OWN):
        raise Untranslatable(f"it calls {expression.name}", "use functions that come with Spark")
    if short.startswith("Current") or short in _CLOCK:
        raise Untranslatable(
            f"it asks {expression.function}, which is another one each time",
            "compare with `time` or `received_at`",
        )
    if expression.deterministic or short in _IN_ANY_ORDER:
        return
    # Spark calls a parent of such an expression so, too; only the one that brings it in is named.
    if all(child.deterministic for child in expression.children):
        raise Untranslatable(
            f"it calls {expression.function}, whose answer is another one each time",
            "use functions of the event alone",
        )


def _refuse_columns(query: Query, schema: T.StructType) -> None:
    names = schema.fieldNames()
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise Untranslatable(f"two of its columns are called {twice[0]}", "name one AS something")
    if not query.window_seconds:
        if "event_uid" not in names:
            raise Untranslatable("it does not select event_uid", "select the event's `event_uid`")
        return
    missing = [name for name in ("window", *query.group_by) if name not in names]
    if missing:
        raise Untranslatable(f"it does not select {missing[0]}", "add it to what it selects")
    kind = schema["window"].dataType
    if not isinstance(kind, T.StructType) or kind.fieldNames() != ["start", "end"]:
        raise Untranslatable("its `window` is no window", "take Spark's window(time, '10 minutes')")
    # Private networks overlap between sites; an address alone names no device.
    if "scope" not in names and {"ip", "src_ip", "dst_ip"} & set(names):
        raise Untranslatable(
            "it selects an address without `scope`",
            "group by scope and select it: two sites may have one address",
        )


def failure_sentence(error: Exception) -> str:
    """What went wrong, in one sentence of Spark or Python."""
    if not isinstance(error, PySparkException):
        return " ".join(f"{type(error).__name__}: {error}".split())[:300]
    lines = [line.strip() for line in str(error).splitlines()]
    raised = [line for line in lines if re.match(r"[A-Za-z_.]*(Error|Exception): ", line)]
    reason = raised[-1] if "Traceback" in str(error) and raised else next(filter(None, lines), "")
    # Spark nests its tags and positions, so they are taken off until none is left.
    while (shorter := _NOISE.sub("", reason)) != reason:
        reason = shorter
    return reason[:300]
