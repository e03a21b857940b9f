"""Questions to the lake by DuckDB, in the words of Spark SQL, answered as Arrow."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from datetime import datetime
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import duckdb
import pyarrow as pa
from sqlglot import exp

from api.sql import as_of as past
from api.sql.allowlist import Scalar, parse
from api.sql.duckdb_sql import to_duckdb
from api.sql.worker import engine
from headgate.result import QueryResult
from infra.config.settings import Settings
from infra.delta.duckdb_views import definitions, missing_sentence
from infra.delta.view_refresh import Views
from infra.errors import Fatal, Retryable, Usage
from infra.storage.temp_dirs import scratch

_ROWS_AT_ONCE = 10_000


class DuckQueries:
    """Answers one statement at a time over one lake; the engine starts with the first."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._known = definitions(settings.lake_root)
        self._names = frozenset(each.name for each in self._known)
        self._engine: tuple[duckdb.DuckDBPyConnection, Views] | None = None
        self._lock = threading.Lock()

    def ask(
        self,
        text: str,
        params: Mapping[str, Scalar],
        max_rows: int,
        moment: datetime | None,
    ) -> QueryResult:
        """At most `max_rows` rows. `moment`: over the tables as they were then.

        Raises `Usage` for a statement that is not answered here, and `Fatal` for one that fails.
        """
        # The same checks and translation as in the API: a statement means the same in both.
        tree = parse(text, self._names, params)
        tables = sorted({f"{t.db}.{t.name}".lower() for t in tree.find_all(exp.Table) if t.db})
        written = to_duckdb(tree, max_rows)
        if moment is not None:
            return self._then(written, tables, max_rows, moment)
        with self._lock:
            memory = self._settings.api.statement_memory
            # Opening reads the log of each table, so it is done once and kept.
            if self._engine is None:
                self._engine = engine(str(self._settings.lake_root), self._known, memory)
            connection, views = self._engine
            return _answer(connection, views, written, tables, max_rows, memory)

    def _then(
        self, written: str, tables: list[str], max_rows: int, moment: datetime
    ) -> QueryResult:
        """In an engine of its own, which has only these tables, as they were."""
        settings = self._settings
        root = str(settings.lake_root)
        lock = partial(past.snapshot_of, str(settings.home.absolute()), root)
        # Old versions are laid out as files of their own; beside the lake there is room for them.
        with TemporaryDirectory(prefix="as-of-", dir=scratch(settings.scratch_root)) as folder:
            then, versions = past.as_of(self._known, tables, moment, Path(folder), lock)
            memory = settings.api.statement_memory
            connection, views = engine(root, then, memory, Path(folder))
            try:
                result = _answer(connection, views, written, tables, max_rows, memory)
            finally:
                connection.close()
        return QueryResult(result.arrow(), truncated=result.truncated, versions=versions)

    def close(self) -> None:
        """Let go of the engine."""
        with self._lock:
            if self._engine is not None:
                self._engine[0].close()
                self._engine = None


def _answer(
    connection: duckdb.DuckDBPyConnection,
    views: Views,
    written: str,
    tables: list[str],
    max_rows: int,
    limit: str,
) -> QueryResult:
    lacking = views.lacking(tables)
    if lacking:
        # A job may make the table any moment.
        raise Retryable(missing_sentence(lacking))
    try:
        # By itself DuckDB makes room for a million rows at once, however wide they are.
        table: pa.Table = connection.execute(written).to_arrow_table(_ROWS_AT_ONCE)
    except duckdb.OutOfMemoryException:
        raise Fatal(
            f"the statement needs more than api.statement_memory = {limit}; narrow it by time"
        ) from None
    except duckdb.Error as error:
        # The macros refuse by raising an error of DuckDB's with this mark in front.
        _, refused, sentence = str(error).partition("refused: ")
        raise Usage(sentence if refused else str(error).splitlines()[0]) from None
    # One row more than asked for is fetched: only so a reader learns that there were more.
    return QueryResult(table.slice(0, max_rows), truncated=table.num_rows > max_rows)
