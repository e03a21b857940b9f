"""The columns of views, which declare none: bound over empty tables, so no lake is needed."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import duckdb

from api.sql.worker import spark_type
from infra.delta.catalog import catalog
from infra.delta.duckdb_views import Definition, definitions


@cache
def view_columns() -> dict[str, list[tuple[str, str, str]]]:
    """By view: name, Spark type and meaning of each column; no meaning where no table has it."""
    docs: dict[str, str] = {}
    for table in catalog().values():
        for column in table.columns:
            docs.setdefault(column.name, column.doc)
    columns: dict[str, list[tuple[str, str, str]]] = {}
    with duckdb.connect(":memory:") as engine:
        for name, definition in empty_views(engine, Path("/")).items():
            if definition.folder is None:
                described = engine.execute(f"DESCRIBE {name}").fetchall()
                columns[name] = [
                    (str(column), spark_type(str(kind)), docs.get(str(column), ""))
                    for column, kind, *_ in described
                ]
    return columns


def empty_views(engine: duckdb.DuckDBPyConnection, lake: Path) -> dict[str, Definition]:
    """Make each table and view without rows, by its name, so that their columns can be asked."""
    known = definitions(lake)
    for definition in known:
        engine.execute(f'CREATE SCHEMA IF NOT EXISTS "{definition.name.partition(".")[0]}"')
        engine.execute(f"CREATE VIEW {definition.name} AS {_without_rows(definition)}")
    return {definition.name: definition for definition in known}


def _without_rows(definition: Definition) -> str:
    if definition.folder is None:
        return definition.sql
    nulls = ", ".join(f'NULL::{kind} AS "{name}"' for name, kind in definition.columns)
    return f"SELECT {nulls} WHERE false"
