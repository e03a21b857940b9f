"""The process that runs statements: a warm DuckDB that can be killed at any moment.

It reads what was typed, too, as that may take for ever (`api.sql.text_bounds`), and runs what
`api.sql.allowlist` allowed of it. It is shut in all the same: no file but the lake's, no settings,
no spilling to disk, bounded memory, an empty environment. One JSON line comes in per statement;
one goes out when it was read, one with the answer.
"""

from __future__ import annotations

import base64
import json
import math
import os
import resource
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import date, datetime, timedelta
from decimal import Decimal
from functools import cache, partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TextIO

import duckdb

from api.sql.arrow_answer import within_bigint
from api.sql.file_bounds import Planner
from api.sql.macros import macro_statements as macros
from api.sql.partials.kept import KeptAggregates
from api.sql.translation import translated
from api.sql.unequal import Unequal
from infra.delta.duckdb_views import (
    Definition,
    as_plain,
    bare_engine,
    missing_sentence,
    needed,
    open_engine,
)
from infra.delta.plain_files import Bounds
from infra.delta.view_refresh import Views
from infra.errors import Retryable, Usage
from infra.process.priority import stand_back

_CHUNK = 256
_LONG = 2**63
_OVERHEAD = 1 << 30
"""Bytes the process may hold beside DuckDB's own limit: libraries, stacks, the answer."""
_UNCOUNTED = 2
"""What DuckDB keeps of files takes twice what it counts (measured: 228 MB, counted as 122)."""


AskedOf = Callable[[str], Sequence[Bounds]]


class StatementRefused(Exception):
    """What this engine cannot answer; its text is the sentence for the user."""


def engine(
    lake_root: str,
    definitions: Iterable[Definition],
    memory: str,
    *also: Path,
    asked: AskedOf | None = None,
) -> tuple[duckdb.DuckDBPyConnection, Views]:
    """A locked DuckDB over the lake, and what it has of it.

    `also`: folders beside the lake's that it may read. `asked`: of a table, the bounds of the rows
    that are asked for; with it tables are read as they are now, without the Delta extension where
    that can be (`infra.delta.plain_files`).
    """
    known = tuple(definitions)
    if asked is not None:
        connection = bare_engine(memory=memory, threads=2)
        known = as_plain(connection, known, asked)
    else:
        connection = open_engine(memory=memory, threads=2)
    # What files say of themselves takes longer to read than most of what is asked of them.
    connection.execute("SET parquet_metadata_cache = true")
    # Before the lock as well; statements themselves may create nothing.
    for macro in macros():
        connection.execute(macro)
    views = Views(connection, known)
    views.lacking([definition.name for definition in known])
    folders = [str(folder).replace("'", "''") for folder in (lake_root, *also)]
    quoted = ", ".join(f"'{folder}/'" for folder in folders)
    # Before access is shut off, as DuckDB refuses to change it after that.
    connection.execute(f"SET allowed_directories = [{quoted}]")
    connection.execute("SET enable_external_access = false")
    # Last of all: from here on no statement can loosen a setting.
    connection.execute("SET lock_configuration = true")
    return connection, views


def answer(
    connection: duckdb.DuckDBPyConnection, sql: str, max_rows: int, max_bytes: int
) -> dict[str, Any]:
    """Run one SELECT; its rows as JSON values, cut at either limit and marked so."""
    parsed = connection.extract_statements(sql)
    # Checked again by DuckDB's own parser, should the translation have let something through.
    if len(parsed) != 1 or parsed[0].type != duckdb.StatementType.SELECT:
        raise StatementRefused("only one SELECT is run here")
    result = connection.execute(parsed[0])
    columns = [
        {"name": str(column[0]), "type": spark_type(str(column[1]))}
        for column in result.description or []
    ]
    # In small pieces, so that the limit on bytes holds before all rows are in memory.
    chunks = iter(lambda: result.fetchmany(_CHUNK), [])
    rows = ([plain(value) for value in raw] for chunk in chunks for raw in chunk)
    return {"columns": columns, **cut_rows(rows, max_rows, max_bytes)}


def cut_rows(rows: Iterable[list[Any]], max_rows: int, max_bytes: int) -> dict[str, Any]:
    """Rows as JSON values, cut at either limit and marked so."""
    kept: list[list[Any]] = []
    size = 0
    for row in rows:
        # As it goes over the wire; Python's size of a row says little about that.
        size += len(json.dumps(row, ensure_ascii=False).encode("utf-8", "replace"))
        cut = "rows" if len(kept) >= max_rows else "bytes" if size > max_bytes else None
        if cut is not None:
            return {"rows": kept, "truncated_by": cut}
        kept.append(row)
    return {"rows": kept, "truncated_by": None}


def require_few(rows: int, max_rows: int) -> None:
    """Raises `StatementRefused` for an answer too long to be kept whole."""
    if rows > max_rows:
        raise StatementRefused(
            f"the answer has more than {max_rows:,} rows; narrow it, or raise api.job_rows"
        )


@contextmanager
def told_meanwhile(tell: Callable[[float], None], progress: Callable[[], float]) -> Iterator[None]:
    """What is done within tells its progress, 0 to 100, as long as it lasts."""
    over = threading.Event()

    def watch() -> None:
        while not over.wait(_PROGRESS_SECONDS):
            tell(progress())

    thread = threading.Thread(target=watch, name="progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        # Behind the answer a progress would be taken for that of the next statement.
        thread.join()


def written(
    connection: duckdb.DuckDBPyConnection,
    sql: str,
    max_rows: int,
    into: str,
    tell: Callable[[float], None],
) -> dict[str, Any]:
    """Run one SELECT into a Parquet file; refused, not cut, where it has more than `max_rows`."""
    parsed = connection.extract_statements(sql)
    if len(parsed) != 1 or parsed[0].type != duckdb.StatementType.SELECT:
        raise StatementRefused("only one SELECT is run here")
    columns, sql = _shaped(connection, sql)
    target = into.replace("'", "''")
    # DuckDB answers -1 for as long as it cannot tell.
    with told_meanwhile(tell, lambda: max(0.0, connection.query_progress())):
        copied = connection.execute(f"COPY ({sql}) TO '{target}' (FORMAT parquet)").fetchone()
    rows = int(copied[0]) if copied else 0
    if rows > max_rows:
        Path(into).unlink(missing_ok=True)
    require_few(rows, max_rows)
    return {"columns": columns, "rows": rows, "truncated_by": None}


def as_arrow(
    connection: duckdb.DuckDBPyConnection, sql: str, max_rows: int, max_bytes: int
) -> dict[str, Any]:
    """Run one SELECT as `arrow_answer` does; `max_rows` 0 asks for its columns alone."""
    from api.sql.arrow_answer import arrow_answer  # late: other answers need no Arrow

    parsed = connection.extract_statements(sql)
    if len(parsed) != 1 or parsed[0].type != duckdb.StatementType.SELECT:
        raise StatementRefused("only one SELECT is run here")
    columns, sql = _shaped(connection, sql)
    return {"columns": columns} | arrow_answer(connection, sql, max_rows, max_bytes)


def _shaped(connection: duckdb.DuckDBPyConnection, sql: str) -> tuple[list[dict[str, str]], str]:
    """The columns of a statement, and the statement with sums as wide as Spark's."""
    shape = connection.execute(f"SELECT * FROM ({sql}) LIMIT 0").description or []
    described = [(str(name), str(kind)) for name, kind, *_ in shape]
    columns = [{"name": name, "type": spark_type(kind)} for name, kind in described]
    # Neither Parquet nor Arrow has 128 bits: DuckDB would write doubles or decimals.
    return columns, within_bigint(sql, described)


_PROGRESS_SECONDS = 0.5


def spark_type(name: str) -> str:
    """DuckDB's name of a type as Spark says it; raises `Refused` for one Spark does not have."""
    text = name.upper()
    if text.endswith("[]"):
        return f"array<{spark_type(name[:-2])}>"
    for head in ("STRUCT", "MAP"):
        if text.startswith(f"{head}("):
            return head.lower()
    if text.startswith("DECIMAL"):
        return text.lower()
    if text not in _TYPES:
        raise StatementRefused(f"a column of type {text.lower()} cannot be answered here; cast it")
    return _TYPES[text]


_TYPES = {
    "BOOLEAN": "boolean", "TINYINT": "tinyint", "SMALLINT": "smallint", "INTEGER": "int",
    # DuckDB sums in 128 bits; `plain` refuses a sum that Spark could not hold.
    "BIGINT": "bigint", "HUGEINT": "bigint", "UBIGINT": "bigint", "FLOAT": "float",
    "DOUBLE": "double", "VARCHAR": "string", "BLOB": "binary", "DATE": "date",
    "TIMESTAMP WITH TIME ZONE": "timestamp", "TIMESTAMP_NTZ": "timestamp_ntz", "NULL": "void",
    '"NULL"': "void",
}  # fmt: skip


def plain(value: Any) -> Any:
    """A value as JSON has it: times in ISO 8601 UTC, bytes in base64, NaN as text."""
    if value is None or isinstance(value, (str, bool)):
        return value
    if isinstance(value, int):
        # DuckDB sums in 128 bits where Spark would fail on overflow.
        if not -_LONG <= value < _LONG:
            raise StatementRefused("a sum is outside bigint")
        return value
    if isinstance(value, float):
        # JSON has no such numbers; Spark writes them by these names.
        return value if math.isfinite(value) else {"nan": "NaN"}.get(str(value), _infinity(value))
    if isinstance(value, datetime):
        return value.isoformat().replace("+00:00", "Z")
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (bytes, bytearray)):
        return base64.b64encode(value).decode()
    if isinstance(value, timedelta):
        raise StatementRefused("an interval cannot be answered here; compare unix_timestamp values")
    return value.isoformat() if isinstance(value, date) else _other(value)


def _infinity(value: float) -> str:
    return "Infinity" if value > 0 else "-Infinity"


def _other(value: Any) -> str:
    # Decimals as text: a float in JSON would lose digits, and `str` may write an exponent.
    return format(value, "f") if isinstance(value, Decimal) else str(value)


def bound_memory(memory: str) -> None:
    """Let the process die rather than the machine, should DuckDB overshoot its own limit."""
    limit = _UNCOUNTED * size_of(memory) + _OVERHEAD
    # Not RLIMIT_AS: allocators and DuckDB reserve addresses that they never touch.
    resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
    # A core file would put what was read from the lake on disk.
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def leave_with_parent(parent: int) -> None:
    """End this process when the one that started it is gone, also in mid-statement."""

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(0.5)
        # Not `sys.exit`: DuckDB may be deep in a query on another thread.
        os._exit(1)

    threading.Thread(target=watch, name="parent", daemon=True).start()


def size_of(memory: str) -> int:
    """Bytes of a size such as '512MB' or '1GiB'."""
    units = {"KB": 10**3, "MB": 10**6, "GB": 10**9, "KIB": 2**10, "MIB": 2**20, "GIB": 2**30}
    text = memory.strip().upper()
    # Longest first, since GIB ends with B as KB does.
    for unit in sorted(units, key=len, reverse=True):
        if text.endswith(unit):
            return int(float(text.removesuffix(unit)) * units[unit])
    raise ValueError(f"'{memory}' is no size; write 512MB or 1GB")


def serve(requests: TextIO, answers: TextIO) -> None:
    """Answer until the input ends. The first line sets the worker up."""
    # Progress is told from a thread of its own, and a line must not begin inside another.
    turn = threading.Lock()

    def tell(progress: float) -> None:
        with turn:
            say(answers, {"progress": progress})

    leave_with_parent(os.getppid())
    setup = json.loads(requests.readline())
    # Its session is its own, and would have a share of the cores as large as that of all jobs.
    stand_back(setup["nice"])
    bound_memory(setup["memory"])
    definitions = [Definition(**definition) for definition in setup["definitions"]]
    beside = _beside(setup)
    # A process for one statement learns first which tables that names.
    lasting = None if setup.get("once") else LastingEngine(setup, definitions, beside)
    say(answers, {"ready": True})
    for line in requests:
        asked = json.loads(line)
        read = _answered(partial(_read, asked, definitions))
        # Told apart from the answer, since reading and running have time limits of their own.
        say(answers, read if "tables" not in read else {"read": True})
        if "tables" not in read:
            continue
        asked |= read
        if asked.get("as_of"):
            work = partial(_back_then, setup, definitions, asked, tell)
        elif lasting is None:
            work = partial(_once, setup, definitions, asked, tell)
        else:
            work = partial(lasting.answer, asked, tell)
        reply = for_caller(_answered(work), asked)
        with turn:
            say(answers, reply)
        if lasting is not None:
            lasting.tidy()


_FAILED_LIMITED = (
    "the statement failed on the data, such as a division by zero or a text that is no number; "
    "what it failed on is not told to keys that see some rows only: use try_cast, nullif"
)


def for_caller(reply: dict[str, Any], asked: dict[str, Any]) -> dict[str, Any]:
    """A reply as who asked may see it.

    Engines quote the value that failed, and may have tried it on a row that is not shown.
    """
    if "failed" in reply and asked.get("only_rows") is not None:
        return {"failed": _FAILED_LIMITED}
    return reply


def _read(asked: dict[str, Any], known: Sequence[Definition]) -> dict[str, Any]:
    only = asked.get("only_tables")
    names = frozenset(definition.name for definition in known)
    readable = names if only is None else names & set(only)
    translation = translated(
        asked["sql"], readable, asked["params"], asked["max_rows"], asked.get("only_rows"), known
    )
    return {"sql": translation.sql, "tables": translation.tables, "split": translation.split}


def _answered(work: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """What a piece of work gives, or what its error is to the user. It ends no process."""
    try:
        return work()
    except Unequal as error:
        return {"refused": str(error), "unequal": True}
    except (StatementRefused, Usage) as error:
        return {"refused": str(error)}
    except Retryable as error:
        return {"later": str(error)}
    except (duckdb.OutOfMemoryException, MemoryError):
        return {"limit": "memory"}
    except duckdb.Error as error:
        return _failure(str(error))
    except Exception as error:
        return fault_of(error)


def fault_of(error: Exception) -> dict[str, Any]:
    """The reply where an error is no fault of the statement, in a line for the log."""
    place = traceback.extract_tb(error.__traceback__)[-1]
    changed = f"{type(error).__name__}: {error}".replace("\n", " ")
    return {"fault": f"{changed} ({place.filename}, line {place.lineno})"}


class LastingEngine:
    """The engine of a process that answers one statement after another."""

    def __init__(
        self, setup: Mapping[str, Any], known: Sequence[Definition], beside: Sequence[Path]
    ) -> None:
        self._open = partial(engine, setup["lake_root"], known, setup["memory"], *beside)
        self.most_cached = size_of(setup["memory"]) // 4
        self.connection, self._views = self._open()
        self.kept = KeptAggregates(self.connection, self.most_cached)
        self._planner = Planner(known)

    def answer(self, asked: dict[str, Any], tell: Callable[[float], None]) -> Any:
        """Answer from those files alone in which rows that are asked for may be."""
        began = time.monotonic()
        _require(self._views, asked)
        asked_of = _asked_of(lambda: self._planner, asked)
        reply = self._from_kept(asked, asked_of, tell) or self._from_files(asked, asked_of, tell)
        return {**reply, "elapsed_ms": _since(began)}

    def _from_files(
        self, asked: dict[str, Any], asked_of: AskedOf, tell: Callable[[float], None]
    ) -> dict[str, Any]:
        try:
            self._views.narrow(asked["tables"], asked_of)
            return _run(self.connection, asked, tell)
        except duckdb.OutOfMemoryException:
            # What is kept for other statements must not be what this one lacks.
            if not self.kept.clear():
                raise
        except duckdb.Error:
            # A file that is not as the others: the extension knows what it means, or says what is
            # wrong with it, as it does with a statement that fails on the data.
            if not self._views.widen():
                raise
        return _run(self.connection, asked, tell)

    def _from_kept(
        self, asked: dict[str, Any], asked_of: AskedOf, tell: Callable[[float], None]
    ) -> dict[str, Any] | None:
        """The answer made of partial aggregates; None where there is none."""
        split = asked.get("split")
        table = self._views.whole(split.table) if split is not None else None
        if split is None or table is None:
            return None
        sql = self.kept.answering(split, table, asked_of(split.table))
        if sql is None:
            return None
        try:
            return _run(self.connection, asked | {"sql": sql}, tell)
        except duckdb.Error:
            return None  # what is wrong with it is said when it is answered as it stands

    def tidy(self) -> None:
        """Begin anew once what is kept of files takes too much, since it lies there in idle times
        too. Between two answers nobody waits for it."""
        kept = self.connection.execute(
            "SELECT memory_usage_bytes FROM duckdb_memory() WHERE tag = 'OBJECT_CACHE'"
        ).fetchone()
        if kept and kept[0] > self.most_cached:
            self.connection.close()
            self.connection, self._views = self._open()
            self.kept = KeptAggregates(self.connection, self.most_cached)


def _asked_of(planner: Callable[[], Planner], asked: Mapping[str, Any]) -> AskedOf:
    """Between which bounds rows are asked of a table; planned once, and only if that is asked."""
    plan = cache(lambda: planner().bounds(asked["sql"], asked["tables"]))
    return lambda table: plan().get(table, [{}])


def _require(views: Views, asked: Mapping[str, Any]) -> None:
    if lacking := views.lacking(asked["tables"]):
        raise StatementRefused(missing_sentence(lacking))


def _now(
    connection: duckdb.DuckDBPyConnection,
    views: Views,
    asked: dict[str, Any],
    tell: Callable[[float], None],
) -> Any:
    began = time.monotonic()
    _require(views, asked)
    return {**_run(connection, asked, tell), "elapsed_ms": _since(began)}


def _since(began: float) -> float:
    return round((time.monotonic() - began) * 1000, 1)


def _run(
    connection: duckdb.DuckDBPyConnection, asked: dict[str, Any], tell: Callable[[float], None]
) -> dict[str, Any]:
    if asked.get("into"):
        return written(connection, asked["sql"], asked["max_rows"], asked["into"], tell)
    if asked.get("arrow"):
        return as_arrow(connection, asked["sql"], asked["max_rows"], asked["max_bytes"])
    return answer(connection, asked["sql"], asked["max_rows"], asked["max_bytes"])


def _beside(setup: Mapping[str, Any]) -> list[Path]:
    """Folders beside the lake's that statements may write results into."""
    return [Path(setup["results"])] if setup.get("results") else []


def _once(
    setup: dict[str, Any],
    known: Sequence[Definition],
    asked: dict[str, Any],
    tell: Callable[[float], None],
) -> Any:
    """Answer over the tables that the statement names: the whole lake takes longer to make ready
    than most questions to answer."""
    wanted = needed(asked["tables"], known)
    beside = _beside(setup)
    asked_of = _asked_of(lambda: Planner(wanted), asked)
    for narrow in (asked_of, None):
        connection, views = engine(
            setup["lake_root"], wanted, setup["memory"], *beside, asked=narrow
        )
        try:
            return _now(connection, views, asked, tell)
        except duckdb.Error:
            # As of `LastingEngine.answer`.
            if narrow is None:
                raise
        finally:
            connection.close()
    raise AssertionError  # the second engine answers or raises


def _back_then(
    setup: dict[str, Any],
    known: Sequence[Definition],
    asked: dict[str, Any],
    tell: Callable[[float], None],
) -> Any:
    """Answer over the tables as they were: in an engine of its own, with these views alone."""
    from api.sql.as_of import as_of, snapshot_of  # late: most workers do without what reads logs

    instant = datetime.fromisoformat(asked["as_of"])
    lock = partial(snapshot_of, setup["home"], setup["lake_root"])
    # In this process's own folder, which goes with it, also when it is killed.
    with TemporaryDirectory(prefix="as-of-", dir=Path.home()) as beside:
        then, versions = as_of(known, asked["tables"], instant, Path(beside), lock)
        also = _beside(setup)
        connection, views = engine(setup["lake_root"], then, setup["memory"], Path(beside), *also)
        try:
            return {**_now(connection, views, asked, tell), "versions": versions}
        finally:
            connection.close()


def _failure(output: str) -> dict[str, Any]:
    first = output.splitlines()[0] if output else "the engine gave no reason"
    _, marked, sentence = first.partition("refused: ")
    if marked:  # by a macro, for arguments of which DuckDB would make something else
        return {"refused": sentence, "unequal": True}
    kind, named, rest = first.partition(" Error: ")
    return {"failed": rest if named and " " not in kind.replace("Invalid Input", "") else first}


def say(answers: TextIO, answer: dict[str, Any]) -> None:
    # ASCII, so that no text in the data can hold what looks like the end of the line.
    answers.write(json.dumps(answer, ensure_ascii=True) + "\n")
    answers.flush()


if __name__ == "__main__":
    serve(sys.stdin, sys.stdout)
