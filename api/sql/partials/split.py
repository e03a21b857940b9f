"""A statement over one table, as partial aggregates of some files and what makes the answer of
partial aggregates of all files."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError, UnsupportedError

from api.sql.duckdb_sql import duckdb_text
from infra.delta.duckdb_views import Definition

FILES = "hg files"
"""What the partial aggregates are of."""
PARTIALS = "hg partials"
"""What they are called where they are brought together. No table has a name with a blank."""

_TIME = "TIMESTAMPTZ"
_SIGNS: Mapping[type[exp.Expr], str] = {exp.GTE: ">=", exp.GT: ">", exp.LTE: "<=", exp.LT: "<"}
_MIRRORED = {">=": "<=", ">": "<", "<=": ">=", "<": ">"}
_COUNTS = (exp.Count, exp.CountIf)
_MERGED: Mapping[type[exp.Expr], str] = {
    exp.Count: "sum", exp.CountIf: "sum", exp.Sum: "sum", exp.Min: "min", exp.Max: "max",
    exp.LogicalAnd: "bool_and", exp.LogicalOr: "bool_or",
}  # fmt: skip
"""Aggregates, and what makes one of several."""
_NOT_ALWAYS_ALIKE = (exp.CurrentTimestamp, exp.Query, exp.Window, exp.Lateral)
_OF_AGGREGATES = (
    exp.Alias, exp.Paren, exp.Literal, exp.Boolean, exp.Null, exp.Identifier, exp.Add, exp.Sub,
    exp.Mul, exp.Neg, exp.EQ, exp.NEQ, exp.GT, exp.GTE, exp.LT, exp.LTE, exp.Is, exp.In,
    exp.Between, exp.And, exp.Or, exp.Not, exp.Cast, exp.DataType, exp.Ordered, exp.Order,
    exp.Having, exp.Interval, exp.Var,
)  # fmt: skip
"""What may stand around aggregates and keys, beside our own macros."""
_OF_VIEWS = (
    exp.And, exp.Or, exp.Not, exp.Paren, exp.EQ, exp.NEQ, exp.GT, exp.GTE, exp.LT, exp.LTE, exp.Is,
    exp.In, exp.Null, exp.Literal, exp.Boolean, exp.Column, exp.Identifier,
)  # fmt: skip
"""What the condition of a view may be of: no functions, since these are DuckDB's own."""
_CLAUSES = frozenset(
    {"expressions", "from_", "where", "group", "having", "order", "limit", "offset"}
)


@dataclass(frozen=True)
class TimeBound:
    """Rows that are asked for have such a time alone. `value`: SQL of an instant."""

    column: str
    sign: str
    value: str


@dataclass(frozen=True)
class Split:
    """One statement in two steps."""

    table: str
    bounds: tuple[TimeBound, ...]
    """What `partial` leaves out of the condition: of most files all rows lie within."""
    partial: str
    """Of `FILES` the partial aggregates, with all other conditions."""
    merged: str
    """Of `PARTIALS` the same with each key once."""
    final: str
    """Of `PARTIALS` the answer."""
    sums: frozenset[str]
    """Columns of `partial` that must be whole numbers: of others the sum depends on the order."""


class _NotSplit(Exception):
    """This statement is answered in one step."""


def split(tree: exp.Query, known: Sequence[Definition]) -> Split | None:
    """The two steps of a statement as `api.sql.duckdb_sql.to_duckdb` left it.

    None for one that does not group and count one table, or whose aggregates cannot be made of
    partial ones. `tree` is not changed.
    """
    try:
        return _Splitter(tree, {definition.name: definition for definition in known}).done()
    except (_NotSplit, UnsupportedError):
        return None


@dataclass(frozen=True)
class _Aggregate:
    """A partial aggregate by its name, what makes one of several, and whether it counts."""

    name: str
    merge: str
    counts: bool


class _Splitter:
    def __init__(self, tree: exp.Query, known: Mapping[str, Definition]) -> None:
        if not isinstance(tree, exp.Select):
            raise _NotSplit
        if any(value and name not in _CLAUSES for name, value in tree.args.items()):
            raise _NotSplit
        self._tree = tree
        self._table, self._name, self._of_views = self._read_table(known)
        self._columns = {name.lower(): (name, kind) for name, kind in known[self._table].columns}
        self._aliases = {column.alias for column in tree.expressions if column.alias}
        self._keys: dict[str, exp.Expr] = {}
        """What is grouped by as it was written, and the same over partial aggregates."""
        self._columns_of_keys: dict[str, str] = {}
        """What partial aggregates are grouped by, and what that is called there."""
        self._distinct: dict[str, str] = {}
        self._aggregates: dict[str, _Aggregate] = {}

    def done(self) -> Split:
        bounds, others = self._conditions()
        for key in self._grouped():
            self._require_alike(key)
            self._add_key(key)
        outer = exp.Select(
            expressions=[self._projected(column) for column in self._tree.expressions]
        )
        for clause in ("having", "order"):
            if (written := self._tree.args.get(clause)) is not None:
                outer.set(clause, self._over(written, clause))
        for clause in ("limit", "offset"):
            if (written := self._tree.args.get(clause)) is not None:
                outer.set(clause, written.copy())
        if not self._keys and not self._aggregates and not self._distinct:
            raise _NotSplit
        source = exp.Table(this=exp.to_identifier(PARTIALS, quoted=True))
        outer.set("from_", exp.From(this=source))
        if self._keys:
            outer.set("group", exp.Group(expressions=[k.copy() for k in self._keys.values()]))
        sums = frozenset(of.name for of in self._aggregates.values() if of.merge == "sum")
        partial = self._partial(others)
        return Split(self._table, bounds, partial, self._merged(), duckdb_text(outer), sums)

    def _read_table(self, known: Mapping[str, Definition]) -> tuple[str, str, list[exp.Expr]]:
        """The one table that is read, what its columns are called by before the dot, and what the
        views between show of it."""
        named = _one_table(self._tree)
        called = named.alias or named.name
        conditions: list[exp.Expr] = []
        while (definition := known.get(_lower(named))) is not None and definition.folder is None:
            view = _parsed(definition.sql)
            # A view that shows rows of a table as they are.
            clauses = {name for name, value in view.args.items() if value}
            if clauses != {"expressions", "from_", "where"} or view.expressions != [exp.Star()]:
                raise _NotSplit
            condition = view.args["where"].this
            if any(type(node) not in _OF_VIEWS for node in condition.walk()):
                raise _NotSplit
            conditions.append(condition)
            named = _one_table(view)
        if definition is None or definition.rows:
            raise _NotSplit
        return definition.name, called, conditions

    def _conditions(self) -> tuple[tuple[TimeBound, ...], list[exp.Expr]]:
        where = self._tree.args.get("where")
        bounds: list[TimeBound] = []
        others: list[exp.Expr] = list(self._of_views)
        for condition in _conjuncts(where.this) if where is not None else ():
            within = list(self._bounds(condition))
            bounds += within
            if not within:
                self._require_alike(condition)
                if condition.find(exp.AggFunc):
                    raise _NotSplit
                others.append(condition)
        return tuple(bounds), others

    def _bounds(self, condition: exp.Expr) -> Iterator[TimeBound]:
        if isinstance(condition, exp.Between):
            low, high = condition.args["low"], condition.args["high"]
            if self._is_time(condition.this) and _constant(low) and _constant(high):
                yield self._bound(condition.this, ">=", low)
                yield self._bound(condition.this, "<=", high)
            return
        sign = _SIGNS.get(type(condition))
        if sign is None:
            return
        left, right = condition.this, condition.expression
        if self._is_time(left) and _constant(right):
            yield self._bound(left, sign, right)
        elif self._is_time(right) and _constant(left):
            yield self._bound(right, _MIRRORED[sign], left)

    def _bound(self, column: exp.Expr, sign: str, value: exp.Expr) -> TimeBound:
        name, _ = self._columns[column.name.lower()]
        return TimeBound(name, sign, duckdb_text(value))

    def _is_time(self, node: exp.Expr) -> bool:
        return self._is_column(node) and self._columns[node.name.lower()][1] == _TIME

    def _is_column(self, node: exp.Expr) -> bool:
        """Whether it is a column of the table and not a field within one."""
        return (
            isinstance(node, exp.Column)
            and node.name.lower() in self._columns
            and node.table.lower() in ("", self._name.lower())
        )

    def _grouped(self) -> list[exp.Expr]:
        group = self._tree.args.get("group")
        if group is None:
            return []
        if any(value and name != "expressions" for name, value in group.args.items()):
            raise _NotSplit
        return [self._key(written) for written in group.expressions]

    def _key(self, written: exp.Expr) -> exp.Expr:
        key = written
        if isinstance(written, exp.Literal):
            position = int(written.name) if written.name.isdigit() else 0
            if not 1 <= position <= len(self._tree.expressions):
                raise _NotSplit
            key = self._tree.expressions[position - 1].unalias()
        elif isinstance(written, exp.Column) and not written.table:
            named = [c for c in self._tree.expressions if c.alias == written.name]
            if named and written.name.lower() in self._columns:
                raise _NotSplit  # which of the two is meant differs between engines
            key = named[0].unalias() if named else written
        if key.find(exp.AggFunc, exp.Star) or isinstance(key, exp.Literal):
            raise _NotSplit
        return key

    def _add_key(self, key: exp.Expr) -> None:
        """Group by a key, and parts of files by what its text or number is made of: that is made
        once a group then, and not once a row."""
        inner, around = key, []
        while _is_call(inner, "hg_string") or (
            _is_call(inner, "hg_unix") and _is_call(inner.expressions[0], "hg_trunc")
        ):
            around.append(inner.name)
            inner = inner.expressions[0]
        columns = self._columns_of_keys
        name = columns.setdefault(duckdb_text(inner), f"hg k{len(columns)}")
        value: exp.Expr = _named(name)
        for function in reversed(around):
            value = exp.Anonymous(this=function, expressions=[value])
        self._keys.setdefault(duckdb_text(key), value)

    def _require_alike(self, node: exp.Expr) -> None:
        """It gives for the same row the same value, whenever it is asked."""
        if node.find(*_NOT_ALWAYS_ALIKE) or any(
            c.args.get("db") for c in node.find_all(exp.Column)
        ):
            raise _NotSplit

    def _projected(self, column: exp.Expr) -> exp.Expr:
        if isinstance(column, exp.Alias):
            return exp.alias_(self._over(column.this, "projection"), column.alias, quoted=True)
        if not self._is_column(column):
            raise _NotSplit
        return exp.alias_(self._over(column, "projection"), column.name, quoted=True)

    def _over(self, node: exp.Expr, clause: str) -> exp.Expr:
        """An expression of the statement as one over partial aggregates."""
        if (key := self._keys.get(duckdb_text(node))) is not None:
            return key.copy()
        if isinstance(node, (exp.AggFunc, exp.Filter)):
            return self._aggregate(node)
        if clause != "projection" and isinstance(node, exp.Column):
            return self._called(node, clause)
        ours = isinstance(node, exp.Anonymous) and node.name.startswith("hg_")
        # Exactly these types: what is derived of one may mean something else.
        if not ours and type(node) not in _OF_AGGREGATES:
            raise _NotSplit
        copy = node.copy()
        for name, value in node.args.items():
            if isinstance(value, exp.Expr):
                copy.set(name, self._over(value, clause))
            elif isinstance(value, list):
                copy.set(
                    name,
                    [self._over(v, clause) if isinstance(v, exp.Expr) else v for v in value],
                )
        return copy

    def _called(self, column: exp.Column, clause: str) -> exp.Expr:
        """A result by its name."""
        if column.table or column.name not in self._aliases:
            raise _NotSplit
        # In ORDER BY alone, and standing there by itself, a result goes before a column.
        if column.name.lower() in self._columns and (
            clause != "order" or not isinstance(column.parent, exp.Ordered)
        ):
            raise _NotSplit
        return column.copy()

    def _aggregate(self, node: exp.Expr) -> exp.Expr:
        self._require_alike(node)
        function = node.this if isinstance(node, exp.Filter) else node
        if type(function) not in _MERGED or list(function.find_all(exp.AggFunc)) != [function]:
            raise _NotSplit
        if isinstance(function.this, exp.Distinct):
            return self._count_distinct(node, function)
        name = f"hg a{len(self._aggregates)}"
        new = _Aggregate(name, _MERGED[type(function)], isinstance(function, _COUNTS))
        known = self._aggregates.setdefault(duckdb_text(node), new)
        merged = exp.Anonymous(this=known.merge, expressions=[_named(known.name)])
        return _whole(merged) if known.counts else merged

    def _count_distinct(self, node: exp.Expr, function: exp.Expr) -> exp.Expr:
        values = function.this.expressions
        if node is not function or not isinstance(function, exp.Count) or len(values) != 1:
            raise _NotSplit
        # Each value once, so that the same of two files is not counted twice.
        written = duckdb_text(values[0])
        key = self._columns_of_keys.get(written) or self._distinct.setdefault(
            written, f"hg d{len(self._distinct)}"
        )
        return exp.Count(this=exp.Distinct(expressions=[_named(key)]))

    def _partial(self, conditions: Sequence[exp.Expr]) -> str:
        keys = {**self._columns_of_keys, **self._distinct}
        selected = [f'{written} AS "{name}"' for written, name in keys.items()]
        selected += [f'{written} AS "{of.name}"' for written, of in self._aggregates.items()]
        where = " AND ".join(f"({duckdb_text(condition)})" for condition in conditions)
        return (
            f'SELECT {", ".join(selected)} FROM "{FILES}" AS "{self._name}"'
            f"{' WHERE ' + where if where else ''}{_grouped_by(len(keys))}"
        )

    def _merged(self) -> str:
        keys = [*self._columns_of_keys.values(), *self._distinct.values()]
        selected = [f'"{name}"' for name in keys]
        for of in self._aggregates.values():
            value = f'{of.merge}("{of.name}")'
            selected.append(f'{f"CAST({value} AS BIGINT)" if of.counts else value} AS "{of.name}"')
        return f'SELECT {", ".join(selected)} FROM "{PARTIALS}"{_grouped_by(len(keys))}'


def _is_call(node: exp.Expr, name: str) -> bool:
    return isinstance(node, exp.Anonymous) and node.name == name


def _one_table(select: exp.Expr) -> exp.Table:
    source = select.args.get("from_")
    table = source.this if source is not None else None
    if not isinstance(table, exp.Table) or any(
        value and name not in ("this", "db", "alias") for name, value in table.args.items()
    ):
        raise _NotSplit
    return table


def _lower(table: exp.Table) -> str:
    return f"{table.db}.{table.name}".lower()


@lru_cache(maxsize=64)
def _parsed(sql: str) -> exp.Expr:
    try:
        return sqlglot.parse_one(sql, dialect="duckdb")
    except SqlglotError:
        raise _NotSplit from None


def _conjuncts(condition: exp.Expr) -> Iterator[exp.Expr]:
    if isinstance(condition, exp.Paren):
        yield from _conjuncts(condition.this)
    elif isinstance(condition, exp.And):
        yield from _conjuncts(condition.this)
        yield from _conjuncts(condition.expression)
    else:
        yield condition


def _constant(value: exp.Expr) -> bool:
    return not value.find(exp.Column, exp.Query, exp.AggFunc, exp.Window)


def _whole(total: exp.Expr) -> exp.Expr:
    """A count of counts: of none at all it is 0."""
    counted = exp.Coalesce(this=total, expressions=[exp.Literal.number(0)])
    return exp.Cast(this=counted, to=exp.DataType.build("BIGINT", dialect="duckdb"))


def _named(name: str) -> exp.Column:
    return exp.column(exp.to_identifier(name, quoted=True))


def _grouped_by(keys: int) -> str:
    return f" GROUP BY {', '.join(str(n + 1) for n in range(keys))}" if keys else ""
