"""The lake as DuckDB sees it: the same tables and views, without Spark.

Each table is a view over `delta_scan` of its folder, so every query reads the
newest snapshot and no reader sees half a commit. The Delta extension is loaded
from the file in its wheel; nothing is fetched from a network.

DuckDB has a thread of its own once it is imported, so it is imported by what is
asked for a connection: `infra.spark.worker_daemon` loads our code and must have none.
"""

from __future__ import annotations

import re
import shutil
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from importlib import import_module
from pathlib import Path
from types import MappingProxyType, ModuleType
from typing import TYPE_CHECKING, Any, Self, cast

from infra.delta.plain_files import FEW_FILES, Bounds, PlainTables, Span, duck_type
from infra.errors import Fatal, NoLakeHere, Retryable
from infra.storage.paths import Location, bucketed, is_table, location, store, there

if TYPE_CHECKING:
    import duckdb

_CONFIG: dict[str, str | bool | int | float | list[str]] = {
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
    "allow_community_extensions": "false",
    "python_enable_replacements": "false",
}
"""No extension but ours, none by itself, and no Python variable read as a table."""

_NOT_MADE = "it is made when its first job starts (headgate up)"
_BELOW_MISSING = "a table it rests on is missing"


@dataclass(frozen=True)
class Definition:
    """How DuckDB makes one table or view. `folder` is None for a view over others.

    `columns`: of a table, each with its type; one that an earlier release did not have yet is
    null. `version`: of a table, which one; None: the newest there is. `plain`: of a table whose
    files alone say what is in it, how they are read (`infra.delta.plain_files`).
    `rows`: a condition; the table then has the rows alone that fulfil it.
    """

    name: str
    sql: str
    folder: str | None
    columns: tuple[tuple[str, str], ...] = ()
    version: int | None = None
    plain: str | None = None
    rows: str = ""

    @property
    def scan(self) -> str:
        """The table as DuckDB's Delta extension reads it, or its files where they are known."""
        if self.plain is not None:
            return self.plain
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
        whole = f"SELECT {', '.join(picked)} FROM {self.scan}"
        # Around it: a column that the table lacks has a name only outside.
        return f"SELECT * FROM ({whole}) WHERE {self.rows}" if self.rows else whole


def definitions(lake_root: Location) -> tuple[Definition, ...]:
    """Every table and view of the catalogue, in an order in which they can be made."""
    # Imported late: a statement's worker process gets its definitions sent and
    # starts without the Spark library, which only declares the column types.
    from infra.delta.catalog import catalog, views

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


def needed(names: Iterable[str], catalogue: Sequence[Definition]) -> tuple[Definition, ...]:
    """The tables and views called so, and those they rest on, in an order to make them in."""
    by_name = {definition.name: definition for definition in catalogue}
    definitions: set[str] = set()
    waiting = [name for name in names if name in by_name]
    while waiting:
        name = waiting.pop()
        if name not in definitions:
            definitions.add(name)
            # Whole words: `silver.event` is also how `silver.events` begins.
            sql = f"{by_name[name].sql} {by_name[name].rows}"
            waiting += [
                definition
                for definition in by_name
                if re.search(rf"\b{re.escape(definition)}\b", sql)
            ]
    return tuple(definition for definition in catalogue if definition.name in definitions)


def connect(
    lake_root: Location,
    *,
    needs: Sequence[str] = (),
    only: Sequence[str] | None = None,
    memory: str = "1GB",
    threads: int = 2,
    existing: Callable[[Sequence[Definition]], Sequence[Definition]] = tuple,
) -> duckdb.DuckDBPyConnection:
    """A DuckDB connection with all tables and views of the lake that exist.

    `only`: with these, where they are there, and `needs` alone: to look at every table takes longer
    than to ask a few. `existing`: of the catalogue's definitions those that are there; else all.
    Each statement reads the newest snapshot, unlike those of `AskedViews`. Raises `NoLakeHere` when
    there is no lake, `Retryable` when one of `needs` cannot be read yet.
    """
    require_lake(lake_root)
    catalogue = tuple(existing(definitions(lake_root)))
    connection = open_engine(memory=memory, threads=threads)
    left = refresh(connection, catalogue if only is None else needed([*needs, *only], catalogue))
    lacking = {name: left[name] for name in needs if name in left}
    if lacking:
        raise Retryable(missing_sentence(lacking))
    return connection


class AskedViews:
    """A connection whose tables and views are made when the first statement names them.

    To look at every table of a lake takes longer than to answer a question about two. Raises
    `NoLakeHere` when there is no lake, `Retryable` when one of `needs` is not there yet. Tables
    are as they were when they were first asked where their files alone say what is in them: these
    are read without the Delta extension, which takes longer to load than most questions to answer.
    """

    def __init__(
        self,
        lake_root: Location,
        *,
        needs: Sequence[str] = (),
        memory: str = "1GB",
        threads: int = 2,
        existing: Callable[[Sequence[Definition]], Sequence[Definition]] = tuple,
    ) -> None:
        """`existing`: of the catalogue's definitions those that are there; else all."""
        require_lake(lake_root)
        self._catalogue = tuple(existing(definitions(lake_root)))
        self.require(needs)
        self.connection = bare_engine(memory=memory, threads=threads)
        # Where files are small, to read what they say of themselves takes longer than their rows,
        # and the next question asks many of them again.
        self.connection.execute("SET parquet_metadata_cache = true")
        self._made: dict[str, Span | None] = {}
        self._plain: PlainTables | None = PlainTables(self.connection)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the engine."""
        self.connection.close()

    def lacking(self, names: Iterable[str]) -> dict[str, str]:
        """Those of these tables and views that cannot be made yet, each with the reason."""
        lacking = {}
        for name in names:
            folders = {d.name: d.folder for d in needed([name], self._catalogue) if d.folder}
            missing = {below for below in folders if not is_table(location(folders[below]))}
            if missing:
                lacking[name] = _NOT_MADE if name in missing else _BELOW_MISSING
        return lacking

    def require(self, names: Iterable[str]) -> None:
        """Raises `Retryable` that names what is lacking of these."""
        if lacking := self.lacking(names):
            raise Retryable(missing_sentence(lacking))

    def rows(
        self,
        sql: str,
        params: Mapping[str, object] = MappingProxyType({}),
        within: Mapping[str, Span] = MappingProxyType({}),
        *,
        needs: Iterable[str] = (),
    ) -> list[dict[str, Any]]:
        """The rows of a statement as dictionaries, run as `execute` does.

        Raises `Retryable` when one of `needs` is not there yet, or files of the lake cannot be
        read.
        """
        import duckdb

        self.require(needs)
        try:
            answer = self.execute(sql, params, within)
            names = [str(column[0]) for column in answer.description or ()]
            return [dict(zip(names, row, strict=True)) for row in answer.fetchall()]
        except duckdb.IOException as error:
            raise Retryable(f"the lake cannot be read: {str(error).splitlines()[0]}") from None

    def execute(
        self,
        sql: str,
        params: Mapping[str, object] = MappingProxyType({}),
        within: Mapping[str, Span] = MappingProxyType({}),
    ) -> duckdb.DuckDBPyConnection:
        """Run a statement; raises what DuckDB raises, `CatalogException` for a missing table.

        `within`: of tables, the column and the two instants between which lies what the statement
        asks of them: files of other times are not opened.
        """
        import duckdb

        while True:
            try:
                with without_pandas():
                    return self.connection.execute(self._viewed(sql, within), dict(params))
            except duckdb.CatalogException:
                raise
            except duckdb.Error:
                # A file that is not as the others: the extension knows what it means, or says
                # what is wrong with it.
                if self._plain is None:
                    raise
                self._plain = None
                self._made.clear()

    def _viewed(self, sql: str, within: Mapping[str, Span]) -> str:
        """Make what a statement needs; the statement as it is to be run."""
        named = [
            d.name
            for d in self._catalogue
            if re.search(rf"\b{re.escape(d.name)}\b", sql) or (d.folder and d.scan in sql)
        ]
        lacking = []
        for table in needed(named, self._catalogue):
            span = within.get(table.name)
            definition = self._plainly(table, span)
            # A statement may name the scan of a table, since its view has no names of files.
            sql = sql.replace(table.scan, definition.scan) if table.folder else sql
            if table.name not in self._made or self._made[table.name] != span:
                lacking.append((definition, span))
        left = refresh(self.connection, [definition for definition, _ in lacking])
        self._made |= {d.name: span for d, span in lacking if d.name not in left}
        return sql

    def _plainly(self, table: Definition, span: Span | None) -> Definition:
        if table.folder is None or not is_table(location(table.folder)):
            return table
        if self._plain is not None:
            asked = None if span is None else lambda: [{span[0]: span[1:]}]
            plain = self._plain.source(location(table.folder), table.columns, asked)
            if plain is not None:
                return replace(table, plain=plain)
        _load_delta(self.connection)
        return table


@contextmanager
def without_pandas() -> Iterator[None]:
    """While inside, DuckDB binds values without pandas; nothing else may be asked for it."""
    # DuckDB imports pandas with the first value that it binds, to know one of its nulls: that takes
    # half as long as to start. What knows pandas already may hand over such a null.
    if "pandas" in sys.modules:
        yield
        return
    sys.modules["pandas"] = cast(ModuleType, None)
    try:
        yield
    finally:
        sys.modules.pop("pandas", None)


def require_lake(lake_root: Location) -> None:
    """Raises `NoLakeHere` where there is none: before what starts Spark, and would make one."""
    if not there(lake_root):
        raise NoLakeHere(f"{lake_root}: there is no lake here; start the jobs or set 'lake'")


def open_engine(*, memory: str, threads: int) -> duckdb.DuckDBPyConnection:
    """An empty in-memory DuckDB in UTC with the Delta extension, which spills to no disk."""
    connection = bare_engine(memory=memory, threads=threads)
    _load_delta(connection)
    return connection


def _load_delta(connection: duckdb.DuckDBPyConnection) -> None:
    # Twice does nothing.
    connection.execute(f"LOAD {_text(str(extension_file()))}")


def as_plain(
    connection: duckdb.DuckDBPyConnection,
    tables: Iterable[Definition],
    asked: Callable[[str], Sequence[Bounds]],
) -> tuple[Definition, ...]:
    """Definitions of now, to be read without the Delta extension where the files of a table alone
    say what is in it; for the others the extension is loaded.

    `asked`: of a table, between which bounds the rows lie that are asked of it.
    """
    plain = PlainTables(connection)
    plain_definitions = []
    for table in tables:
        if table.folder is not None and is_table(location(table.folder)):
            source = plain.source(
                location(table.folder), table.columns, partial(asked, table.name), FEW_FILES
            )
            if source is None:
                _load_delta(connection)
            table = replace(table, plain=source)
        plain_definitions.append(table)
    return tuple(plain_definitions)


def bare_engine(*, memory: str, threads: int) -> duckdb.DuckDBPyConnection:
    """The same without the extension."""
    import duckdb

    connection = duckdb.connect(":memory:", config=dict(_CONFIG))
    connection.execute(f"SET memory_limit = {_text(memory)}")
    connection.execute(f"SET threads = {int(threads)}")
    connection.execute("SET temp_directory = ''")
    # Else midnight would be that of the machine, and two of them would answer differently.
    connection.execute("SET TimeZone = 'UTC'")
    # DuckDB writes its bar to stdout, among the rows that a program reads there. In a notebook it
    # has none without `ipywidgets`, and refuses to be told so.
    with suppress(duckdb.InvalidInputException):
        connection.execute("SET enable_progress_bar = false")
    return connection


def spill(connection: duckdb.DuckDBPyConnection, folder: Path) -> None:
    """Let an engine write down what finds no room in its memory, into a folder that is there and
    goes with the process. It takes half of what is free there at most."""
    most = shutil.disk_usage(folder).free // 2
    connection.execute(f"SET temp_directory = {_text(str(folder))}")
    connection.execute(f"SET max_temp_directory_size = '{most // 2**20}MiB'")
    # What is written down in the order it came in is held for longer.
    connection.execute("SET preserve_insertion_order = false")


def extension_file(name: str = "delta") -> Path:
    """An extension in its wheel `duckdb-extension-NAME`; raises `Fatal` when missing."""
    import duckdb

    try:
        wheel = import_module(f"duckdb_extension_{name}")
    except ImportError as error:
        raise Fatal(
            f"duckdb-extension-{name} is not installed; install version {duckdb.__version__}"
        ) from error
    folder = Path(str(wheel.__file__)).parent / "extensions" / f"v{duckdb.__version__}"
    file = folder / f"{name}.duckdb_extension"
    if not file.exists():
        raise Fatal(
            f"{file}: no such file; DuckDB {duckdb.__version__} needs "
            f"duckdb-extension-{name} {duckdb.__version__}"
        )
    return file


def reach(connection: duckdb.DuckDBPyConnection, *folders: Location | str) -> None:
    """Let an engine read folders that lie in a bucket; where none does, nothing.

    Once for each engine, since its settings may be locked later. Raises `Fatal` when the
    environment has no credentials (`infra.storage.paths`).
    """
    if not any(bucketed(folder) for folder in folders):
        return
    secrets = connection.execute("SELECT count(*) FROM duckdb_secrets()").fetchone()
    if secrets and secrets[0]:
        return
    connection.execute(f"LOAD {_text(str(extension_file('httpfs')))}")
    endpoint = store()
    options = {
        "KEY_ID": endpoint.key,
        "SECRET": endpoint.secret,
        "REGION": endpoint.region,
        "URL_STYLE": "path" if endpoint.own else "vhost",
    }
    options |= {"SESSION_TOKEN": endpoint.token} if endpoint.token else {}
    options |= {"ENDPOINT": endpoint.endpoint} if endpoint.own else {}
    joined_text = ", ".join(f"{name} {_text(value)}" for name, value in options.items())
    connection.execute(
        f"CREATE SECRET lake (TYPE s3, {joined_text}, USE_SSL {str(endpoint.tls).lower()})"
    )


def refresh(
    connection: duckdb.DuckDBPyConnection, needed_views: Iterable[Definition]
) -> dict[str, str]:
    """Make the views that can be made; returns name and reason of those that cannot be yet.

    A table appears when its first job creates it, so a reader calls this again
    until nothing is left.
    """
    import duckdb

    left: dict[str, str] = {}
    needed_views = list(needed_views)
    reach(connection, *(definition_row.folder or "" for definition_row in needed_views))
    for definition in needed_views:
        if definition.folder is not None and not is_table(location(definition.folder)):
            left[definition.name] = _NOT_MADE
            continue
        layer, _, _ = definition.name.partition(".")
        try:
            connection.execute(f"CREATE SCHEMA IF NOT EXISTS {_quoted(layer)}")
            _make(connection, definition)
        except duckdb.CatalogException:
            left[definition.name] = _BELOW_MISSING
        except (duckdb.BinderException, duckdb.IOException) as error:
            left[definition.name] = str(error).splitlines()[0]
    return left


def _make(connection: duckdb.DuckDBPyConnection, definition: Definition) -> None:
    import duckdb

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
