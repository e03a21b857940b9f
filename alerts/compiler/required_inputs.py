"""What a rule must be given to see: which sources and classes, and which fields of their events.

A Sigma rule says so itself. Of a query in SQL it is read from the WHERE of each SELECT over
the view: where nothing can be told, nothing is asked for, so a rule is never called blind by
mistake. Of a Python function Spark says the same when it is imported (`query_plan.seen_by`).
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple, TypeAlias

from sqlglot import exp

from alerts.compiler.spark_rule_files import SQL
from alerts.compiler.sql_check import VIEW, parsed_sql
from alerts.rulepack.predicate import All, Either, Node, Test
from alerts.rulepack.rule_pack import ModelRule, Query, Rule


class RequiredInput(NamedTuple):
    """Events of these classes and sources (empty: of all), of which the predicate must hold.

    `predicate` None: any event will do.
    """

    classes: tuple[int, ...]
    sources: tuple[str, ...]
    predicate: Node | None

    def fed_by(self, source: str, class_uid: int) -> bool:
        """Whether events of a source and class come before it."""
        return (not self.classes or class_uid in self.classes) and (
            not self.sources or source in self.sources
        )


Seeing: TypeAlias = Rule | ModelRule | Query
"""A rule that looks at events itself."""


def required_inputs(rule: Seeing) -> tuple[RequiredInput, ...]:
    """The ways in which a rule sees events; none: it cannot be told."""
    if isinstance(rule, Query):
        if rule.type == SQL:
            return _of_sql(rule.text)
        return tuple(needed for text in rule.sees or () for needed in _of_sql(text))
    return (
        RequiredInput(
            rule.classes, rule.sources, rule.predicate if isinstance(rule, Rule) else None
        ),
    )


@lru_cache(maxsize=1000)
def _of_sql(text: str) -> tuple[RequiredInput, ...]:
    return tuple(
        _input_of(select)
        for tree in parsed_sql(text)
        for select in tree.find_all(exp.Select)
        if (source := select.args.get("from_")) is not None and source.this.name.lower() == VIEW
    )


def _input_of(select: exp.Select) -> RequiredInput:
    where = select.args.get("where")
    if where is None:
        return RequiredInput((), (), None)
    table = select.args["from_"].this.alias_or_name.lower()
    conjuncts = list(_conjuncts(where.this))
    classes = [_listed(conjunct, "class_uid", table) for conjunct in conjuncts]
    sources = [_listed(conjunct, "source", table) for conjunct in conjuncts]
    return RequiredInput(
        next((tuple(map(int, class_name)) for class_name in classes if class_name), ()),
        next((class_name for class_name in sources if class_name), ()),
        All(tuple(_node(conjunct, table) for conjunct in conjuncts)),
    )


def _conjuncts(node: exp.Expr) -> Iterator[exp.Expr]:
    if isinstance(node, exp.And):
        yield from _conjuncts(node.left)
        yield from _conjuncts(node.right)
    elif isinstance(node, exp.Paren):
        yield from _conjuncts(node.this)
    else:
        yield node


def _listed(node: exp.Expr, column: str, table: str) -> tuple[str, ...]:
    """The values that a conjunct allows for a column; none where it says nothing of it."""
    if not isinstance(node, exp.EQ | exp.In) or _path(node.this, table) != column:
        return ()
    values = node.expressions if isinstance(node, exp.In) else [node.expression]
    if not values or not all(isinstance(value, exp.Literal) for value in values):
        return ()
    return tuple(value.name for value in values)


ANYTHING = All(())
"""True of every event."""

_NEED_ALL = (
    exp.EQ, exp.NEQ, exp.GT, exp.GTE, exp.LT, exp.LTE, exp.In, exp.Between, exp.Like, exp.ILike,
    exp.RegexpLike, exp.StartsWith, exp.EndsWith,
)  # fmt: skip
_PASS_NULL = (
    exp.Column, exp.Identifier, exp.Dot, exp.Literal, exp.Boolean, exp.Paren, exp.Neg, exp.Lower,
    exp.Upper, exp.Trim, exp.Length, exp.Substring, exp.Cast, exp.DataType, exp.Add, exp.Sub,
    exp.Mul, exp.Div, exp.Mod,
)  # fmt: skip
"""What is null as soon as something in it is."""


def _node(node: exp.Expr, table: str) -> Node:
    """A condition as a predicate that asks only whether fields are there."""
    if isinstance(node, exp.Paren):
        return _node(node.this, table)
    if isinstance(node, exp.And):
        return All((_node(node.left, table), _node(node.right, table)))
    if isinstance(node, exp.Or):
        return Either((_node(node.left, table), _node(node.right, table)))
    if isinstance(node, exp.Not):
        inner = node.this.unnest()
        if isinstance(inner, exp.Is) and isinstance(inner.expression, exp.Null):
            return _filled(inner.this, table)
        # SQL's NOT of a condition without a value has none either; comparisons need theirs.
        return _node(inner, table) if isinstance(inner, _NEED_ALL) else ANYTHING
    return _filled(node, table) if isinstance(node, _NEED_ALL) else ANYTHING


def _filled(node: exp.Expr, table: str) -> Node:
    """That all columns of a comparison are there; anything, where it may do without."""
    inside = list(node.walk())
    if not all(isinstance(operand, (*_NEED_ALL, *_PASS_NULL)) for operand in inside):
        return ANYTHING
    outermost = [
        operand
        for operand in inside
        if isinstance(operand, exp.Column | exp.Dot) and not isinstance(operand.parent, exp.Dot)
    ]
    return All(tuple(Test(_path(operand, table), "exists", True) for operand in outermost))


def _path(node: exp.Expr, table: str) -> str:
    """A column as silver.event names it, without the table's name before it."""
    if not isinstance(node, exp.Column | exp.Dot):
        return ""
    names = [part.name.lower() for part in node.parts]
    if len(names) > 1 and names[0] == table:
        names = names[1:]
    return ".".join(names)
