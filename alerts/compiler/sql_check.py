"""The text of a rule in Spark SQL: one SELECT that reads the view of events alone."""

from __future__ import annotations

import logging
import re

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from alerts.compiler.sigma_to_predicate import Untranslatable

# What the parser cannot read is refused with a sentence; its own warning would go to stderr.
logging.getLogger("sqlglot").setLevel(logging.ERROR)

VIEW = "event"
"""The one table a rule in SQL reads: rows of silver.event."""

_MOST_CHARS = 100_000

_WINDOW = re.compile(r"\bwindow\b(?!\s+\w+\s+AS\s*\()", re.IGNORECASE)


def check_sql(text: str) -> None:
    """Raise `Untranslatable` unless the text is one SELECT that reads the view alone.

    Sources: sqlglot's parser for Spark SQL. What it lets pass Spark still has to understand.
    """
    if not text.strip():
        raise Untranslatable("it has no query", f"add `query:` with a SELECT over {VIEW}")
    if len(text) > _MOST_CHARS:
        raise Untranslatable(f"its query has {len(text)} characters", f"at most {_MOST_CHARS}")
    try:
        parsed_tree = parsed_sql(text)
    except (SqlglotError, RecursionError) as error:
        lines = re.sub(r"\x1b\[\d+m", "", str(error)).splitlines()[0]
        raise Untranslatable(f"not Spark SQL: {lines}", "correct the query") from None
    if len(parsed_tree) != 1 or not isinstance(parsed_tree[0], exp.Select | exp.SetOperation):
        named = parsed_tree[0].key.upper() if parsed_tree else "nothing"
        raise Untranslatable(
            f"its query is {named if len(parsed_tree) < 2 else f'{len(parsed_tree)} statements'}",
            "a rule is one SELECT, or WITH ... SELECT, without a semicolon",
        )
    _check_tables(parsed_tree[0])


def parsed_sql(text: str) -> list[exp.Expr]:
    """The statements of a text; raises what sqlglot raises."""
    # The parser takes Spark's function and column `window` for SQL's clause of that name.
    known = _WINDOW.sub("event_window", text)
    return [tree for tree in sqlglot.parse(known, dialect="spark") if tree is not None]


def _check_tables(tree: exp.Expr) -> None:
    for node in tree.walk():
        if isinstance(node, exp.Command | exp.QueryTransform | exp.Into):
            named = node.key.removeprefix("query").upper()
            raise Untranslatable(f"{named} in a rule", "a rule only selects")
    given = {cte.alias.lower() for cte in tree.find_all(exp.CTE)}
    for table in tree.find_all(exp.Table):
        plain = isinstance(table.this, exp.Identifier) and not table.db and not table.catalog
        if not plain or table.name.lower() not in given | {VIEW}:
            raise Untranslatable(f"it reads {table.sql('spark')}", f"a rule reads {VIEW} alone")
