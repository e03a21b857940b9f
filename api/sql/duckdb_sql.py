"""Allowed Spark SQL in DuckDB's words, with Spark's meaning.

Where the two differ the node is written by a function of its own here, mostly
as a call of a macro of `api.sql.macros`; the rest is generated as it stands.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from sqlglot import exp
from sqlglot.errors import ErrorLevel, UnsupportedError

from api.sql.java_regex import to_re2
from api.sql.macros import TRUNCATED
from infra.errors import Usage

_UNITS = ("YEAR", "QUARTER", "MONTH", "WEEK", "DAY", "HOUR", "MINUTE", "SECOND")
CHOICES = (exp.Case, exp.If, exp.Coalesce, exp.Greatest, exp.Least)
MOST_WRITTEN = 10_000
"""Nodes of a statement as it is written for DuckDB."""
MOST_COPIED = 100_000
"""Copies of nodes while it is written; a chain of `1/1/1` has them squared."""

_DAY = re.compile(r"\d{4}-\d\d-\d\d")

_PARTS: dict[type[exp.Expr], str] = {
    exp.Year: "year", exp.Month: "month", exp.Day: "day", exp.Hour: "hour",
    exp.Minute: "minute", exp.Second: "second",
}  # fmt: skip


def to_duckdb(tree: exp.Query, max_rows: int) -> str:
    """The statement for DuckDB, giving at most `max_rows` + 1 rows.

    The row beyond tells a reader that the answer was cut. Raises `Usage` for
    what has no equal.
    """
    # First of all: the steps below copy, and a hostile statement would grow while they work.
    _require_small(tree)
    # Before anything is rewritten, as the reader is to see the words that were typed.
    _name_columns(tree)
    _limit(tree, max_rows + 1)
    # Innermost first, so that a node's operands are already DuckDB's when it is written.
    for node in reversed(list(tree.walk(bfs=True))):
        write = WRITERS.get(type(node))
        written = write(node) if write else node
        if written is not node:
            node.replace(written)
    try:
        # Every name in quotes, so that none can be one of DuckDB's words.
        return duckdb_text(tree)
    except UnsupportedError as error:
        raise Usage(f"this cannot be answered here: {error}") from None


def duckdb_text(node: exp.Expr) -> str:
    """What is written for DuckDB, as text; raises `UnsupportedError` for what has no form there."""
    return node.sql(
        "duckdb",
        comments=False,
        identify=True,
        unsupported_level=ErrorLevel.RAISE,
        normalize_functions=False,
    )


def _require_small(tree: exp.Query) -> None:
    """Refuse what would become too long or take too long to write: each choice is written with its
    values twice (`_alike`), so what lies in ten of them would be written a thousand times; and
    each node that is written anew copies all below it."""
    times: dict[int, int] = {}
    copies: dict[int, int] = {}
    for node in tree.walk(bfs=True):
        parent = node.parent
        twice = 2 if isinstance(parent, CHOICES) else 1
        times[id(node)] = twice * times.get(id(parent), 1)
        copies[id(node)] = copies.get(id(parent), 0) + (type(parent) in WRITERS)
    if sum(times.values()) > MOST_WRITTEN:
        raise Usage("CASE, IF, COALESCE, GREATEST and LEAST lie too deep within each other")
    if sum(copies.values()) > MOST_COPIED:
        raise Usage("operators and functions are nested too deeply within each other")


def _name_columns(tree: exp.Query) -> None:
    """Computed columns are called by their Spark text, not by what they become here."""
    first: exp.Expr = tree
    # In a UNION the first SELECT names the columns, in Spark as in DuckDB.
    while isinstance(first, (exp.SetOperation, exp.Subquery)):
        first = first.this
    for column in list(first.expressions):
        if not isinstance(column, (exp.Alias, exp.Column, exp.Star, exp.Dot)):
            column.replace(exp.alias_(column.copy(), column.sql("spark"), quoted=True))


def _limit(tree: exp.Query, most: int) -> None:
    limit = tree.args.get("limit")
    if limit is None:
        tree.set("limit", exp.Limit(expression=exp.Literal.number(most)))
        return
    wanted = limit.expression
    # A computed limit could not be compared with what is allowed.
    if not isinstance(wanted, exp.Literal) or not wanted.name.isdigit():
        raise Usage("LIMIT is a whole number")
    if int(wanted.name) > most:
        limit.set("expression", exp.Literal.number(most))


def _call(name: str, *arguments: exp.Expr | str) -> exp.Anonymous:
    return exp.Anonymous(
        this=name,
        expressions=[exp.Literal.string(a) if isinstance(a, str) else a.copy() for a in arguments],
    )


def _cast(value: exp.Expr, kind: str) -> exp.Cast:
    return exp.Cast(this=value.copy(), to=exp.DataType.build(kind, dialect="duckdb"))


def _write_cast(node: exp.Expr) -> exp.Expr:
    """CAST fails on what it cannot read; the parser calls it TryCast without `safe`."""
    wanted = node.args["to"].sql("spark").upper()
    safe = isinstance(node, exp.TryCast) and node.args.get("safe")
    value = node.this
    if wanted in ("BIGINT", "INT", "LONG", "INTEGER"):
        # DuckDB rounds 1.5 to 2 where Spark cuts it to 1; the macro cuts.
        whole = _call("hg_try_long" if safe else "hg_long", value)
        return _cast(whole, "BIGINT" if wanted in ("BIGINT", "LONG") else "INTEGER")
    if safe:
        raise Usage(f"try_cast to {wanted} cannot be answered here; to int and bigint it can")
    if wanted in ("STRING", "TEXT"):
        return _call("hg_string", value)
    if wanted == "DOUBLE":
        return _call("hg_double", value)
    if wanted == "DATE":
        return _call("hg_date", value)
    if wanted in ("TIMESTAMP", "TIMESTAMPTZ", "TIMESTAMP_LTZ"):
        return _call("hg_timestamp", value)
    raise Usage(
        f"cast to {wanted} cannot be answered here; "
        "to int, bigint, double, string, date and timestamp it can"
    )


def _alike(values: list[exp.Expr], whole: exp.Expr) -> exp.Expr:
    """`whole`, refused when its values differ in type: Spark and DuckDB then choose differently."""
    kinds = [_call("hg_kind", _call("typeof", value)) for value in values]
    return _call("hg_alike", exp.Array(expressions=kinds), whole)


def _write_case(node: exp.Expr) -> exp.Expr:
    values = [branch.args["true"] for branch in node.args["ifs"]]
    default = node.args.get("default")
    return _alike([*values, default] if default else values, node)


def _write_if(node: exp.Expr) -> exp.Expr:
    # The parser gives the branches of a CASE as `If` nodes, too.
    if isinstance(node.parent, exp.Case):
        return node
    values = [node.args["true"]]
    if node.args.get("false"):
        values.append(node.args["false"])
    branch = exp.If(this=node.this.copy(), true=values[0].copy())
    otherwise = values[1].copy() if len(values) > 1 else None
    return _alike(values, exp.Case(ifs=[branch], default=otherwise))


def _write_choice(node: exp.Expr) -> exp.Expr:
    return _alike([node.this, *node.expressions], node)


def _write_like(node: exp.Expr) -> exp.Expr:
    pattern = node.expression
    # A pattern from a column could not be checked for what the two read differently.
    if not isinstance(pattern, exp.Literal) or not pattern.is_string:
        raise Usage("LIKE is answered with a pattern written out")
    rest = pattern.name.replace("\\\\", "").replace("\\%", "").replace("\\_", "")
    if "\\" in rest:
        raise Usage(f"LIKE '{pattern.name}': a backslash stands before %, _ or a backslash")
    value = node.this.copy()
    text = pattern.name
    if isinstance(node, exp.ILike):
        # Spark's ILIKE lowers both sides.
        value, text = _call("lower", value), text.lower()
    like = exp.Like(this=value, expression=exp.Literal.string(text))
    if "\\" not in text:
        # Without ESCAPE the optimizer makes a search for the text alone of it.
        return exp.Paren(this=like)
    # Spark's LIKE escapes with a backslash by default, DuckDB's with nothing.
    return exp.Paren(this=exp.Escape(this=like, expression=exp.Literal.string("\\")))


def _write_regex(node: exp.Expr) -> exp.Expr:
    pattern = node.expression
    if not isinstance(pattern, exp.Literal) or not pattern.is_string or node.args.get("flag"):
        raise Usage("RLIKE is answered with a pattern written out")
    return _call("regexp_matches", node.this, to_re2(pattern.name))


def _write_concat(node: exp.Expr) -> exp.Expr:
    """Spark's concat is null when a part is; DuckDB's passes over nulls, `||` does not."""
    parts = node.expressions if isinstance(node, exp.Concat) else [node.this, node.expression]
    joined = _as_text(parts[0])
    for part in parts[1:]:
        joined = exp.DPipe(this=joined, expression=_as_text(part), safe=False)
    return exp.Paren(this=joined)


def _write_concat_ws(node: exp.Expr) -> exp.Expr:
    separator, *parts = node.expressions
    return _call("concat_ws", separator, *[_as_text(part) for part in parts])


def _as_text(part: exp.Expr) -> exp.Expr:
    if isinstance(part, (exp.DPipe, exp.Paren)) or (
        isinstance(part, exp.Literal) and part.is_string
    ):
        return part.copy()
    return _call("hg_string", part)


def _whole_literal(value: exp.Expr | None, least: int, what: str) -> None:
    if value is not None and not (
        isinstance(value, exp.Literal) and value.name.isdigit() and int(value.name) >= least
    ):
        raise Usage(f"{what} is answered for whole numbers from {least} written out")


def _write_substring(node: exp.Expr) -> exp.Expr:
    _whole_literal(node.args.get("start"), 1, "the start of substring")
    _whole_literal(node.args.get("length"), 0, "the length of substring")
    return node


def _write_side(node: exp.Expr) -> exp.Expr:
    _whole_literal(node.expression, 0, "the length in left and right")
    return node


def _write_trim(node: exp.Expr) -> exp.Expr:
    """Spark trims spaces alone, DuckDB's one-argument form other blanks too."""
    if node.args.get("expression") or node.args.get("position"):
        raise Usage("trim is answered for spaces on both sides alone")
    return _call("trim", node.this, " ")


def _write_replace(node: exp.Expr) -> exp.Expr:
    search = node.expression
    if not (isinstance(search, exp.Literal) and search.name and node.args.get("replacement")):
        raise Usage("replace is answered with a search text written out, and a replacement")
    return node


def _write_position(node: exp.Expr) -> exp.Expr:
    if node.args.get("position") or node.args.get("occurrence"):
        raise Usage("instr and locate are answered from the start of the text alone")
    # Spark gives an INT here; DuckDB's BIGINT would show as another type to the reader.
    return _cast(_call("strpos", node.this, node.args["substr"]), "INTEGER")


def _write_trunc(node: exp.Expr) -> exp.Expr:
    unit = str(node.args["unit"].name).upper()
    if unit not in _UNITS:
        raise Usage(
            f"date_trunc to '{unit}' cannot be answered here; to {', '.join(_UNITS)} it can"
        )
    # Of a date DuckDB would make a timestamp without a zone; those of Spark have one.
    time = _call("hg_timestamp", node.this)
    if unit in TRUNCATED:
        return _call("hg_trunc", time, *(exp.Literal.number(part) for part in TRUNCATED[unit]))
    return _call("hg_trunc_by_date", time, unit.lower())


def _write_interval(node: exp.Expr) -> exp.Expr:
    unit = str(node.args["unit"].name).upper() if node.args.get("unit") else ""
    if unit.removesuffix("S") not in _UNITS or not str(node.this.name).lstrip("-").isdigit():
        raise Usage("an interval is a whole number and a unit: INTERVAL 5 MINUTES")
    return node


def _utc(time: exp.Expr) -> exp.Expr:
    return _call("hg_utc", _call("hg_timestamp", time))


def _write_part(node: exp.Expr) -> exp.Expr:
    return _cast(_call(_PARTS[type(node)], _utc(node.this)), "INTEGER")


def _write_weekday(node: exp.Expr) -> exp.Expr:
    """Sunday is 1 in Spark and 0 in DuckDB."""
    day = exp.Add(this=_call("dayofweek", _utc(node.this)), expression=exp.Literal.number(1))
    return _cast(day, "INTEGER")


def _write_days_between(node: exp.Expr) -> exp.Expr:
    unit = node.args.get("unit")
    if unit is not None and unit.name.upper() != "DAY":
        raise Usage("datediff is answered in days")
    # As dates: of times DuckDB would ask its calendar for both, in a second for 50,000 rows.
    start, end = (
        _call("hg_date", _call("hg_timestamp", time)) for time in (node.expression, node.this)
    )
    return _cast(_call("date_diff", "day", start, end), "INTEGER")


def _write_date_add(node: exp.Expr) -> exp.Expr:
    unit = node.args.get("unit")
    if unit is not None and unit.name.upper() != "DAY":
        raise Usage("date_add is answered in days")
    days = exp.Paren(this=node.expression.copy())
    return exp.Paren(
        this=exp.Add(this=_call("hg_date", node.this), expression=_cast(days, "INTEGER"))
    )


def _write_unix(node: exp.Expr) -> exp.Expr:
    spelled_format = node.args.get("format")
    # The parser notes Spark's default format when none is given.
    if (
        spelled_format is not None
        and spelled_format.name.replace("strict", "") != "%Y-%m-%d %H:%M:%S"
    ):
        raise Usage("unix_timestamp is answered for a timestamp without a format")
    return _call("hg_unix", node.this)


def _write_days(node: exp.Expr) -> exp.Expr:
    """What is compared with a day is a span of time as well, and files of other times are passed
    over by it alone (`api.sql.file_bounds`)."""
    days = node.this
    if not (isinstance(days, exp.Anonymous) and days.name == "hg_date"):
        return node
    time = days.expressions[0]
    low, high = _first_and_last(node)
    if not isinstance(time, exp.Column) or not all(map(_is_day, filter(None, (low, high)))):
        return node
    compared: exp.Expr = node.copy()
    if low is not None:
        compared = exp.And(this=compared, expression=_call("hg_from", time, low))
    if high is not None:
        compared = exp.And(this=compared, expression=_call("hg_until", time, high))
    return exp.Paren(this=compared)


def _first_and_last(node: exp.Expr) -> tuple[exp.Expr | None, exp.Expr | None]:
    """The first and the last day that fulfil a comparison, or with `>` and `<` the one beside."""
    if isinstance(node, exp.Between):
        return node.args["low"], node.args["high"]
    least = isinstance(node, (exp.EQ, exp.GTE, exp.GT))
    most = isinstance(node, (exp.EQ, exp.LTE, exp.LT))
    return node.expression if least else None, node.expression if most else None


def _is_day(value: exp.Expr) -> bool:
    """Whether it is one day for all rows: written out, or reckoned from today."""
    if isinstance(value, exp.Literal):
        return value.is_string and _DAY.fullmatch(value.name) is not None
    if value.find(exp.Column, exp.Query):
        return False
    reckoned = value.this.this if isinstance(value, exp.Paren) else value
    return isinstance(reckoned, exp.Anonymous) and reckoned.name == "hg_date"


def _write_percentile(node: exp.Expr) -> exp.Expr:
    share = node.args.get("quantile")
    if not isinstance(share, exp.Literal) or share.is_string or float(share.name) > 1:
        raise Usage("percentile is answered for one share between 0 and 1 written out")
    return _call("quantile_cont", _call("hg_double", node.this), share)


def _write_set(node: exp.Expr) -> exp.Expr:
    if isinstance(node.parent, (exp.Filter, exp.Window)):
        raise Usage("collect_set is answered without FILTER and OVER")
    distinct = exp.Distinct(expressions=[node.this.copy()])
    present = exp.Not(this=exp.Is(this=node.this.copy(), expression=exp.Null()))
    kept = exp.Filter(
        this=exp.Anonymous(this="list", expressions=[distinct]),
        expression=exp.Where(this=present),
    )
    # Spark leaves nulls out and gives an empty array of no rows; sorted, so that answers repeat.
    return _call("coalesce", _call("list_sort", kept), exp.Array(expressions=[]))


def _write_json(node: exp.Expr) -> exp.Expr:
    path = node.expression
    steps = path.expressions if isinstance(path, exp.JSONPath) else None
    written = "$"
    for step in (steps or [])[1:]:
        if (
            isinstance(step, exp.JSONPathKey)
            and isinstance(step.this, str)
            and '"' not in step.this
        ):
            written += f'."{step.this}"'
        elif isinstance(step, exp.JSONPathSubscript) and isinstance(step.this, int):
            written += f"[{step.this}]"
        else:
            steps = None
    if not steps or len(steps) < 2:
        raise Usage("get_json_object is answered for a path like $.name[0].name written out")
    return _call("hg_json", node.this, written)


def _write_bracket(node: exp.Expr) -> exp.Expr:
    keys = node.expressions
    # Arrays count from 0 in Spark's brackets and from 1 in DuckDB's.
    if len(keys) != 1 or not (isinstance(keys[0], exp.Literal) and keys[0].is_string):
        raise Usage("[ ] is answered for a map and a key written out; use LATERAL VIEW explode")
    return node


def _write_anonymous(node: exp.Expr) -> exp.Expr:
    name = node.name.lower()
    if name == "now":
        return exp.CurrentTimestamp()
    if name in ("isnull", "isnotnull"):
        null = exp.Is(this=exp.Paren(this=node.expressions[0].copy()), expression=exp.Null())
        return exp.Paren(this=exp.Not(this=null) if name == "isnotnull" else null)
    return node


def _macro(name: str) -> Callable[[exp.Expr], exp.Expr]:
    return lambda node: _call(name, node.this, node.expression)


WRITERS: dict[type[exp.Expr], Callable[[exp.Expr], exp.Expr]] = {
    exp.Cast: _write_cast,
    exp.TryCast: _write_cast,
    exp.TsOrDsToDate: lambda node: _call("hg_date", node.this),
    exp.Case: _write_case,
    exp.If: _write_if,
    exp.Coalesce: _write_choice,
    exp.Greatest: _write_choice,
    exp.Least: _write_choice,
    exp.Div: _macro("hg_div"),
    exp.IntDiv: _macro("hg_idiv"),
    exp.Mod: _macro("hg_mod"),
    exp.ArgMax: _macro("arg_max_null"),
    exp.ArgMin: _macro("arg_min_null"),
    exp.ArrayContains: _macro("hg_contains"),
    exp.ArraySize: lambda node: _cast(_call("len", node.this), "INTEGER"),
    exp.Length: lambda node: _cast(_call("length", node.this), "INTEGER"),
    exp.Floor: lambda node: _cast(_call("floor", node.this), "BIGINT"),
    exp.Ceil: lambda node: _cast(_call("ceil", node.this), "BIGINT"),
    exp.Like: _write_like,
    exp.ILike: _write_like,
    exp.RegexpLike: _write_regex,
    exp.Concat: _write_concat,
    exp.DPipe: _write_concat,
    exp.ConcatWs: _write_concat_ws,
    exp.Substring: _write_substring,
    exp.Left: _write_side,
    exp.Right: _write_side,
    exp.Trim: _write_trim,
    exp.Replace: _write_replace,
    exp.StrPosition: _write_position,
    **dict.fromkeys((exp.EQ, exp.GT, exp.GTE, exp.LT, exp.LTE, exp.Between), _write_days),
    exp.TimestampTrunc: _write_trunc,
    exp.Interval: _write_interval,
    exp.Year: _write_part,
    exp.Month: _write_part,
    exp.Day: _write_part,
    exp.Hour: _write_part,
    exp.Minute: _write_part,
    exp.Second: _write_part,
    exp.DayOfWeek: _write_weekday,
    exp.DateDiff: _write_days_between,
    exp.TsOrDsAdd: _write_date_add,
    exp.StrToUnix: _write_unix,
    exp.Quantile: _write_percentile,
    exp.Median: lambda node: _call("median", _call("hg_double", node.this)),
    exp.ArrayUniqueAgg: _write_set,
    exp.JSONExtractScalar: _write_json,
    exp.Bracket: _write_bracket,
    exp.Anonymous: _write_anonymous,
}
"""How each node is written whose meaning or name differs."""
