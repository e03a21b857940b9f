"""What a statement may say: one Spark SQL question over the catalogue's tables.

Everything is refused unless listed here: kinds of statement, clauses, tables,
functions. Denylists failed for this purpose. `api.sql.duckdb_sql` turns what passed
into DuckDB's SQL.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Collection, Mapping

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from api.sql.text_bounds import require_bounded
from api.sql.unequal import Unequal
from infra.errors import Usage

# What the parser cannot read is refused below with a sentence; its own warning would go to stderr.
logging.getLogger("sqlglot").setLevel(logging.ERROR)

MAX_NODES = 5_000
"""A statement of more parts is refused: planning alone would take its whole time."""

STRUCTURE: frozenset[type[exp.Expr]] = frozenset(
    {
        exp.Select, exp.Subquery, exp.Union, exp.Except, exp.Intersect, exp.With, exp.CTE,
        exp.From, exp.Join, exp.Where, exp.Group, exp.Having, exp.Order, exp.Ordered, exp.Limit,
        exp.Offset, exp.Distinct, exp.Star, exp.Column, exp.Dot, exp.Identifier, exp.Table,
        exp.TableAlias, exp.Alias, exp.Paren, exp.Tuple, exp.Literal, exp.Boolean, exp.Null,
        exp.And, exp.Or, exp.Not, exp.EQ, exp.NEQ, exp.GT, exp.GTE, exp.LT, exp.LTE, exp.Is,
        exp.In, exp.Between, exp.NullSafeEQ, exp.NullSafeNEQ, exp.Add, exp.Sub, exp.Mul, exp.Neg,
        exp.Div, exp.IntDiv, exp.Mod, exp.Like, exp.ILike, exp.RegexpLike, exp.Case, exp.If,
        exp.Exists, exp.Filter, exp.Window, exp.WindowSpec, exp.Interval, exp.Var, exp.Cast,
        exp.TryCast, exp.DataType, exp.Placeholder, exp.Lateral, exp.Explode, exp.Bracket,
        exp.DPipe, exp.JSONPath, exp.JSONPathRoot, exp.JSONPathKey, exp.JSONPathSubscript,
        exp.Rollup, exp.Cube, exp.GroupingSets, exp.TsOrDsToDate,
    }
)  # fmt: skip
"""Clauses, operators and names."""

_FUNCTIONS: Mapping[str, type[exp.Expr]] = {
    "count": exp.Count, "count_if": exp.CountIf, "sum": exp.Sum, "avg": exp.Avg, "min": exp.Min,
    "max": exp.Max, "max_by": exp.ArgMax, "min_by": exp.ArgMin, "bool_and": exp.LogicalAnd,
    "bool_or": exp.LogicalOr, "collect_set": exp.ArrayUniqueAgg, "percentile": exp.Quantile,
    "median": exp.Median, "row_number": exp.RowNumber, "rank": exp.Rank,
    "dense_rank": exp.DenseRank, "lag": exp.Lag, "lead": exp.Lead, "coalesce": exp.Coalesce,
    "nullif": exp.Nullif, "greatest": exp.Greatest, "least": exp.Least, "lower": exp.Lower,
    "upper": exp.Upper, "length": exp.Length, "trim": exp.Trim, "substring": exp.Substring,
    "left": exp.Left, "right": exp.Right, "concat": exp.Concat, "concat_ws": exp.ConcatWs,
    "startswith": exp.StartsWith, "endswith": exp.EndsWith, "contains": exp.Contains,
    "instr": exp.StrPosition, "replace": exp.Replace, "abs": exp.Abs, "floor": exp.Floor,
    "ceil": exp.Ceil, "date_trunc": exp.TimestampTrunc, "year": exp.Year, "month": exp.Month,
    "day": exp.Day, "dayofweek": exp.DayOfWeek, "hour": exp.Hour, "minute": exp.Minute,
    "second": exp.Second, "date_add": exp.TsOrDsAdd, "datediff": exp.DateDiff,
    "unix_timestamp": exp.StrToUnix, "current_timestamp": exp.CurrentTimestamp,
    "size": exp.ArraySize, "array_contains": exp.ArrayContains,
    "get_json_object": exp.JSONExtractScalar,
}  # fmt: skip
"""Functions by their usual Spark name."""

ANONYMOUS = frozenset({"now", "isnull", "isnotnull"})
"""Functions that the parser has no class for."""

NAMES = frozenset(_FUNCTIONS) | ANONYMOUS | {
    "cast", "date_sub", "if", "ifnull", "like", "nvl", "rlike", "to_date", "try_cast",
}  # fmt: skip
"""All by name; the last come from other clauses and names of `STRUCTURE` and `_FUNCTIONS`."""

_ALLOWED = STRUCTURE | frozenset(_FUNCTIONS.values()) | {exp.Anonymous}
_NO_COLUMNS = frozenset(
    {
        "current_catalog", "current_date", "current_role", "current_schema", "current_time",
        "current_user", "localtime", "localtimestamp", "session_user", "user",
    }
)  # fmt: skip
"""Names that DuckDB takes for functions where no column has them, even in quotes."""
_PARAMETER = re.compile(r"[A-Za-z_]\w{0,63}")

Scalar = str | int | float | bool | None


def parse(sql: str, tables: Collection[str], params: Mapping[str, Scalar] | None) -> exp.Query:
    """The statement as a tree, its parameters filled in; raises `Usage` with the reason,
    as `Unequal` where Spark may answer it.

    `tables`: names that may be read, as `layer.name`. `params` None: there can be none.
    """
    tree = _one_question(sql)
    nodes = list(tree.walk())
    if len(nodes) > MAX_NODES:
        raise Usage(f"the statement has {len(nodes)} parts; {MAX_NODES} are the most")
    for node in nodes:
        _allowed(node, sql)
    _check_tables(tree, tables)
    return _with_params(tree, params)


def _one_question(sql: str) -> exp.Query:
    # Before the parser, whose time some texts double with each level.
    require_bounded(sql)
    try:
        parse = sqlglot.parse(sql, dialect="spark")
    except SqlglotError as error:
        raise Usage(f"not Spark SQL: {_first_line(error)}") from None
    except RecursionError:
        raise Usage("the statement is nested too deeply") from None
    # A semicolon before a comment alone is a node of its own, and no statement.
    parsed = [tree for tree in parse if tree is not None and not isinstance(tree, exp.Semicolon)]
    if len(parsed) != 1:
        raise Usage(f"one statement at a time; this holds {len(parsed)}")
    tree = parsed[0]
    if not isinstance(tree, (exp.Select, exp.SetOperation, exp.Subquery)):
        name = tree.name if isinstance(tree, exp.Command) else tree.key
        raise Usage(f"{name.upper()} is not allowed; a statement is a SELECT, or WITH ... SELECT")
    return tree


def _allowed(node: exp.Expr, sql: str) -> None:
    if isinstance(node, exp.Anonymous):
        if node.name.lower() not in ANONYMOUS:
            raise _no_function(node.name)
        return
    # The exact type: a subclass may mean something else, and is not on the list.
    if type(node) not in _ALLOWED:
        if isinstance(node, exp.Func):
            raise _no_function(_typed(node, sql))
        raise Unequal(f"{_words(node)} is not allowed in a statement")
    if isinstance(node, exp.Column) and not node.table and node.name.lower() in _NO_COLUMNS:
        raise Usage(f"there is no column {node.name}")
    if isinstance(node, exp.With) and node.args.get("recursive"):
        raise Unequal("WITH RECURSIVE is not allowed in a statement")
    if isinstance(node, exp.Lateral) and (
        not node.args.get("view") or node.args.get("outer") or type(node.this) is not exp.Explode
    ):
        raise Unequal("LATERAL is answered as LATERAL VIEW explode(...) alone")
    if isinstance(node, exp.Explode) and not isinstance(node.parent, exp.Lateral):
        raise Unequal("explode is answered as LATERAL VIEW explode(...) alone")
    if isinstance(node, exp.Exists) and not isinstance(node.this, exp.Query):
        raise _no_function("exists")
    if isinstance(node, exp.Literal) and not node.is_string:
        _check_number(node)


def _typed(node: exp.Expr, sql: str) -> str:
    """The name of a function as it was typed: the parser has one class for several names."""
    names = type(node).sql_names() if isinstance(node, exp.Func) else []
    typed = next((name for name in names if re.search(rf"\b{name}\b", sql, re.IGNORECASE)), None)
    begin, end = node.meta.get("start"), node.meta.get("end")
    if begin is not None and end is not None:
        return sql[begin : end + 1].strip("`")
    asked = node.find_ancestor(exp.Func)
    return typed or (_typed(asked, sql) if asked is not None else _words(node))


def _check_number(node: exp.Literal) -> None:
    """Spark computes with decimal literals where DuckDB computes with doubles."""
    if re.fullmatch(r"\d+\.\d*|\.\d+", node.name) and not isinstance(
        node.parent,
        (exp.GT, exp.GTE, exp.LT, exp.LTE, exp.EQ, exp.NEQ, exp.Between, exp.In, exp.Quantile,
         exp.Cast, exp.TryCast),
    ):  # fmt: skip
        raise Unequal(f"{node.name} is a decimal; write {node.name}D for a double")


def _check_tables(tree: exp.Query, tables: Collection[str]) -> None:
    """Every table is one of the catalogue, or a name the statement gives itself.

    Names given by WITH get a prefix: outside their scope they then mean nothing,
    rather than one of DuckDB's own tables.
    """
    # Names of WITH are compared without case, as Spark does.
    given = {cte.alias.lower() for cte in tree.find_all(exp.CTE)}
    for cte in list(tree.find_all(exp.CTE)):
        cte.args["alias"].set("this", exp.to_identifier(f"with_{cte.alias}", quoted=True))
    for table_node in list(tree.find_all(exp.Table)):
        if not isinstance(table_node.this, exp.Identifier) or table_node.args.get("catalog"):
            raise Usage(f"{table_node.sql('spark')} is not a table; {_known(tables)}")
        if not table_node.db:
            if table_node.name.lower() not in given:
                raise Usage(f"no table '{table_node.name}'; {_known(tables)}")
            if not table_node.alias:
                table_node.set(
                    "alias", exp.TableAlias(this=exp.to_identifier(table_node.name, quoted=True))
                )
            table_node.set("this", exp.to_identifier(f"with_{table_node.name}", quoted=True))
        elif f"{table_node.db}.{table_node.name}".lower() not in tables:
            raise Usage(f"no table '{table_node.db}.{table_node.name}'; {_known(tables)}")


def _with_params(tree: exp.Query, params: Mapping[str, Scalar] | None) -> exp.Query:
    used: set[str] = set()
    if params is None and tree.find(exp.Placeholder):
        raise Usage("parameters are not taken here; write the values into the statement")
    params = params or {}
    for placeholder in list(tree.find_all(exp.Placeholder)):
        name = placeholder.name
        if not _PARAMETER.fullmatch(name or ""):
            raise Usage("parameters have names: write :name and give it in params")
        if name not in params:
            raise Usage(f"no value for parameter :{name}; params has {sorted(params)}")
        used.add(name)
        # As a literal of the tree and not as text, so that no value can become SQL.
        placeholder.replace(exp.convert(params[name]))
    # A value that nothing uses is mostly a misspelt name.
    unused = set(params) - used
    if unused:
        raise Usage(f"the statement has no parameter :{min(unused)}; remove it from params")
    return tree


def _known(tables: Collection[str]) -> str:
    return f"there are {', '.join(sorted(tables))}"


def _no_function(name: str) -> Unequal:
    return Unequal(
        f"function {name.lower()} is not known to answer alike; those that do are "
        f"{', '.join(sorted(NAMES))}"
    )


def _words(node: exp.Expr) -> str:
    return re.sub(r"(?<=[a-z])(?=[A-Z])", " ", type(node).__name__).upper()


def _first_line(error: Exception) -> str:
    # sqlglot underlines the place with terminal codes, which have no place in JSON.
    return re.sub(r"\x1b\[\d+m", "", str(error)).splitlines()[0]
