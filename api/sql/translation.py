"""A statement as it was typed, as the DuckDB SQL that answers it."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from sqlglot import exp

from api.sql.allowlist import Scalar, parse
from api.sql.duckdb_sql import to_duckdb
from api.sql.partials.split import Split, split
from api.sql.unequal import Unequal
from infra.delta.duckdb_views import Definition
from infra.errors import Usage

RowLimits = Mapping[str, str]
"""Of each table the condition of the rows that it shows (`api.key_limits`); others show none. A
table that a condition names is meant with its own one."""


@dataclass(frozen=True)
class Translated:
    """What DuckDB is asked, and which tables of the catalogue it reads for it."""

    sql: str
    tables: list[str]
    split: Split | None = None
    """The same in two steps, where it can be answered so."""


def translated(
    sql: str,
    names: Collection[str],
    params: Mapping[str, Scalar] | None,
    max_rows: int,
    rows: RowLimits | None = None,
    known: Sequence[Definition] = (),
) -> Translated:
    """Check and translate a statement; raises `Usage` with a sentence for who typed it,
    as `Unequal` where Spark may answer it.

    `rows`: all that each table shows, and each view of them; `known` has the texts of these.

    It may take long, or for ever, for texts that no bound foresaw: to be called where it can be
    ended.
    """
    try:
        tree = parse(sql, names, params)
        # Before it is rewritten; names that WITH gives have no layer.
        tables = sorted({f"{t.db}.{t.name}".lower() for t in tree.find_all(exp.Table) if t.db})
        limited = None if rows is None else _Limited(rows, known, tables)
        if limited is not None:
            _name_limited(tree)
        try:
            sql = to_duckdb(tree, max_rows)
        except Usage as error:
            raise Unequal(str(error)) from None
        if limited is not None:
            return limited.with_queries(sql)
        return Translated(sql, tables, split(tree, known))
    except RecursionError:
        raise Usage("the statement is nested too deeply") from None
    except (AttributeError, IndexError, TypeError, ValueError):
        # The parser reads a function without its arguments, too.
        raise Unequal("a function lacks an argument, or has one that it does not take") from None


class _Limited:
    """What a statement's tables and views show, as queries that stand before it."""

    def __init__(self, rows: RowLimits, known: Sequence[Definition], tables: Sequence[str]) -> None:
        """Raises `Usage` for a table or view that shows nothing at all."""
        self._rows, self._known = rows, {each.name: each for each in known}
        # Longest first, as `silver.event` is also how `silver.events` begins.
        names = sorted({*self._known, *rows}, key=len, reverse=True)
        self._names = re.compile(rf"\b({'|'.join(map(re.escape, names))})\b")
        self._queries: dict[str, str] = {}
        for name in tables:
            self._add(name)

    def with_queries(self, sql: str) -> Translated:
        """The statement for DuckDB, its tables taken from these queries."""
        if not self._queries:
            return Translated(sql, [])
        before = ", ".join(
            # Else DuckDB writes down whole what is named twice.
            f"{_limited(name)} AS NOT MATERIALIZED ({query})"
            for name, query in self._queries.items()
        )
        rest = sql.removeprefix("WITH ")
        tables = sorted(self._queries)
        return Translated(f"WITH {before}{' ' if rest == sql else ', '}{rest}", tables)

    def _add(self, name: str) -> None:
        if name in self._queries:
            return
        definition = self._known.get(name)
        if name in self._rows:
            text, start = self._rows[name], f"SELECT * FROM {name} WHERE "
        elif definition is not None and definition.folder is None:
            text, start = definition.sql, ""
        else:
            raise Usage(f"no table '{name}' that shows you some rows alone")
        for below in dict.fromkeys(self._names.findall(text)):
            self._add(below)
        self._queries[name] = start + self._names.sub(lambda named: _limited(named[0]), text)


def _limited(name: str) -> str:
    # No statement can name it: what it gives a name by WITH is called otherwise, and no table has
    # such a one.
    return f'"limited {name}"'


def _name_limited(tree: exp.Query) -> None:
    """Call each table by the name of the query for the rows that may be seen."""
    for table in [node for node in tree.find_all(exp.Table) if node.db]:
        if not table.alias:
            alias = table.args.get("alias") or exp.TableAlias()
            alias.set("this", exp.to_identifier(table.name, quoted=True))
            table.set("alias", alias)
        table.set(
            "this", exp.to_identifier(f"limited {table.db}.{table.name}".lower(), quoted=True)
        )
        table.set("db", None)
