"""A statement as it was typed, as the DuckDB SQL that answers it."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from sqlglot import exp

from api.sql.allowlist import Scalar, parse
from api.sql.duckdb_sql import to_duckdb
from api.sql.unequal import Unequal
from infra.errors import Usage

RowLimits = Mapping[str, Sequence[str]]
"""Of each table the rows alone whose columns have one of these values."""


@dataclass(frozen=True)
class Translated:
    """What DuckDB is asked, and which tables of the catalogue it reads for it."""

    sql: str
    tables: list[str]


def translated(
    sql: str,
    names: Collection[str],
    params: Mapping[str, Scalar] | None,
    max_rows: int,
    rows: RowLimits | None = None,
) -> Translated:
    """Check and translate a statement; raises `Usage` with a sentence for who typed it,
    as `Unequal` where Spark may answer it.

    `rows`: all that each table shows.

    It may take long, or for ever, for texts that no bound foresaw: to be called where it can be
    ended.
    """
    try:
        tree = parse(sql, names, params)
        # Before it is rewritten; names that WITH gives have no layer.
        tables = sorted({f"{t.db}.{t.name}".lower() for t in tree.find_all(exp.Table) if t.db})
        if rows is not None:
            _limit_rows(tree, rows)
        try:
            return Translated(to_duckdb(tree, max_rows), tables)
        except Usage as error:
            raise Unequal(str(error)) from None
    except RecursionError:
        raise Usage("the statement is nested too deeply") from None
    except (AttributeError, IndexError, TypeError, ValueError):
        # The parser reads a function without its arguments, too.
        raise Unequal("a function lacks an argument, or has one that it does not take") from None


def _limit_rows(tree: exp.Query, rows: RowLimits) -> None:
    """Put in the place of each table a question for the rows that may be seen."""
    for table in [node for node in tree.find_all(exp.Table) if node.db]:
        # A name of its own inside, or `source` could mean a column of another table beside it.
        inner = exp.Table(this=table.this.copy(), db=table.args["db"].copy())
        inner.set("alias", exp.TableAlias(this=exp.to_identifier("limited", quoted=True)))
        # Null is in no list: what is nobody's is not seen.
        wanted = exp.and_(
            *[
                exp.In(
                    this=exp.column(column, table="limited", quoted=True),
                    expressions=[exp.Literal.string(value) for value in values],
                )
                for column, values in rows.items()
            ]
        )
        named = table.args.get("alias")
        name = named.this.copy() if named else table.this.copy()
        columns = [column.copy() for column in named.columns] if named else []
        question = exp.select("*").from_(inner).where(wanted).subquery()
        question.set("alias", exp.TableAlias(this=name, columns=columns))
        for part in ("joins", "laterals", "pivots"):
            if table.args.get(part):
                question.set(part, table.args[part])
        table.replace(question)
