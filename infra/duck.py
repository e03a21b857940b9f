"""The lake as DuckDB sees it: the same tables and views, without Spark.

Each table is a view over `delta_scan` of its folder, so every query reads the
newest snapshot and no reader sees half a commit. The Delta extension is loaded
from the file in its wheel; nothing is fetched from a network.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import duckdb

from infra.errors import Fatal, Retryable

CONFIG: dict[str, str | bool | int | float | list[str]] = {
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
    "allow_community_extensions": "false",
    "python_enable_replacements": "false",
}
"""No extension but ours, none by itself, and no Python variable read as a table."""


@dataclass(frozen=True)
class Definition:
    """How DuckDB makes one table or view. `folder` is None for a view over others.

    `columns`: of a table, each with its type; one that an earlier release did not have yet is
    null. `version`: of a table, which one; None: the newest there is.
    """

    name: str
    sql: str
    folder: str | None
    columns: tuple[tuple[str, str], ...] = ()
    version: int | None = None

    @property
    def scan(self) -> str:
        """The table as DuckDB's Delta extension reads it."""
        which = "" if self.version is None else f", version => {self.version}"
        return f"delta_scan({_text(str(self.folder))}{which})"

    def select(self, there: Collection[str] | None = None) -> str:
        """The query that the view is; `there`: names of columns, if the table lacks some."""
        if self.folder is None:
            return self.sql
        picked = [
            _quoted(name) if there is None or name in there else f"NULL::{kind} AS {_quoted(name)}"
            for name, kind in self.columns
        ]
        return f"SELECT {', '.join(picked)} FROM {self.scan}"


def definitions(lake_root: Path) -> tuple[Definition, ...]:
    """Every table and view of the catalogue, in an order in which they can be made."""
    # Imported late: a statement's worker process gets its definitions sent and
    # starts without the Spark library, which only declares the column types.
    from infra.schema import duck_type
    from infra.tables import catalog, views

    tables = [
        Definition(
            table.name,
            "",
            str(lake_root / table.path),
            tuple((column.name, duck_type(column.type)) for column in table.columns),
        )
        for table in catalog().values()
    ]
    return (*tables, *(Definition(v.name, _null_keeping(v.sql), None) for v in views().values()))


def needed(names: Iterable[str], known: Sequence[Definition]) -> tuple[Definition, ...]:
    """The tables and views called so, and those they rest on, in an order to make them in."""
    by_name = {one.name: one for one in known}
    found: set[str] = set()
    waiting = [name for name in names if name in by_name]
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.add(name)
            sql = by_name[name].sql
            waiting += [one for one in by_name if re.search(rf"\b{re.escape(one)}\b", sql)]
    return tuple(one for one in known if one.name in found)


def connect(
    lake_root: Path, *, needs: Sequence[str] = (), memory: str = "1GB", threads: int = 2
) -> duckdb.DuckDBPyConnection:
    """A DuckDB connection with all tables and views of the lake that exist.

    Raises `Fatal` when there is no lake, `Retryable` when one of `needs` cannot
    be read yet.
    """
    if not lake_root.is_dir():
        raise Fatal(f"{lake_root}: there is no lake here; start the jobs or set 'lake'")
    connection = open_engine(memory=memory, threads=threads)
    left = refresh(connection, definitions(lake_root))
    lacking = {name: left[name] for name in needs if name in left}
    if lacking:
        raise Retryable(missing_sentence(lacking))
    return connection


def open_engine(*, memory: str, threads: int) -> duckdb.DuckDBPyConnection:
    """An empty in-memory DuckDB in UTC with the Delta extension, which spills to no disk."""
    connection = duckdb.connect(":memory:", config=dict(CONFIG))
    connection.execute(f"LOAD {_text(str(extension_file()))}")
    connection.execute(f"SET memory_limit = {_text(memory)}")
    connection.execute(f"SET threads = {int(threads)}")
    connection.execute("SET temp_directory = ''")
    connection.execute("SET TimeZone = 'UTC'")
    return connection


def extension_file() -> Path:
    """The Delta extension in the wheel `duckdb-extension-delta`; raises `Fatal` when missing."""
    try:
        import duckdb_extension_delta
    except ImportError as error:
        raise Fatal(
            f"duckdb-extension-delta is not installed; install version {duckdb.__version__}"
        ) from error
    folder = Path(duckdb_extension_delta.__file__).parent / "extensions" / f"v{duckdb.__version__}"
    file = folder / "delta.duckdb_extension"
    if not file.exists():
        raise Fatal(
            f"{file}: no such file; DuckDB {duckdb.__version__} needs "
            f"duckdb-extension-delta {duckdb.__version__}"
        )
    return file


def refresh(connection: duckdb.DuckDBPyConnection, wanted: Iterable[Definition]) -> dict[str, str]:
    """Make the views that can be made; returns name and reason of those that cannot be yet.

    A table appears when its first job creates it, so a reader calls this again
    until nothing is left.
    """
    left: dict[str, str] = {}
    for definition in wanted:
        if definition.folder is not None and not (Path(definition.folder) / "_delta_log").is_dir():
            left[definition.name] = "it is made when its first job starts (headgate up)"
            continue
        layer, _, _ = definition.name.partition(".")
        try:
            connection.execute(f"CREATE SCHEMA IF NOT EXISTS {_quoted(layer)}")
            _make(connection, definition)
        except duckdb.CatalogException:
            left[definition.name] = "a table it rests on is missing"
        except (duckdb.BinderException, duckdb.IOException) as error:
            left[definition.name] = str(error).splitlines()[0]
    return left


def _make(connection: duckdb.DuckDBPyConnection, definition: Definition) -> None:
    create = f"CREATE OR REPLACE VIEW {definition.name} AS"
    try:
        connection.execute(f"{create} {definition.select()}")
    except duckdb.BinderException:
        if definition.folder is None:
            raise
        # Of an earlier release: `headgate up` gives it what it lacks.
        described = connection.execute(f"DESCRIBE SELECT * FROM {definition.scan}").fetchall()
        connection.execute(f"{create} {definition.select({row[0] for row in described})}")


def missing_sentence(left: Mapping[str, str]) -> str:
    """What to say about tables that a reader needs and the lake does not have."""
    return "not in the lake: " + "; ".join(f"{name} ({why})" for name, why in sorted(left.items()))


def _null_keeping(sql: str) -> str:
    """Spark's max_by returns the value of the highest row even when that is null.

    DuckDB's passes over nulls; its name for Spark's meaning is arg_max_null.
    """
    return re.sub(r"\bmax_by\(", "arg_max_null(", sql)


def _text(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
