"""A statement as it was typed, as the DuckDB SQL that answers it."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from sqlglot import exp

from api.sql.allowlist import Scalar, parse
from api.sql.duckdb_sql import to_duckdb
from infra.errors import Usage


@dataclass(frozen=True)
class Translated:
    """What DuckDB is asked, and which tables of the catalogue it reads for it."""

    sql: str
    tables: list[str]


def translated(
    sql: str, names: Collection[str], params: Mapping[str, Scalar], max_rows: int
) -> Translated:
    """Check and translate a statement; raises `Usage` with a sentence for who typed it.

    It may take long, or for ever, for texts that no bound foresaw: to be called where it can be
    ended.
    """
    try:
        tree = parse(sql, names, params)
        # Before it is rewritten; names that WITH gives have no layer.
        tables = sorted({f"{t.db}.{t.name}".lower() for t in tree.find_all(exp.Table) if t.db})
        return Translated(to_duckdb(tree, max_rows), tables)
    except RecursionError:
        raise Usage("the statement is nested too deeply") from None
    except (AttributeError, IndexError, TypeError, ValueError):
        # The parser reads a function without its arguments, too.
        raise Usage("a function lacks an argument, or has one that it does not take") from None
