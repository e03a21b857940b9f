"""Bounded Spark SQL: check, translate, run in a process that can be killed."""

from __future__ import annotations

import base64
import logging
import threading
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from api.sql.spark_engine import SPARK, SparkEngine
from api.sql.worker_line import Ended, WorkerLine
from api.sql.worker_process import DUCKDB, Program, Worker
from infra.config.settings import ApiSettings, Settings
from infra.delta.duckdb_views import definitions
from infra.errors import Fatal, Retryable, Usage
from infra.storage.temp_dirs import scratch

if TYPE_CHECKING:  # what reads statements is imported by the processes that do
    from api.sql.allowlist import Scalar
    from api.sql.translation import RowLimits

_log = logging.getLogger("headgate.api")

WORKERS = 2
"""Statements that run at the same time; more would take the cores from the stream."""

_BLOCKED_SECONDS = 15.0
"""A worker that works so much longer than all its limits together is not coming back."""


Engine = Literal["auto", "duckdb", "spark"]
"""What answers: DuckDB at once, or Spark, which knows all of Spark SQL; `auto`: DuckDB where its
answer is Spark's, else Spark."""

_EQUAL = "it answers this as Spark does"
_ASKED = "it was asked for"


class Refused(Usage):
    """The statement is not one this engine answers; the text says why."""


class LeftToSpark(Fatal):
    """The statement is one for Spark, and who asked wants to know that first."""


class Failed(Fatal):
    """The statement was run and failed on the data (a division by zero, a bad cast)."""


class Limit(Fatal):
    """The statement used up its time or memory and was stopped."""


class Fault(Fatal):
    """Neither the statement nor its limits are to blame, but us or the lake; the log says more."""


@dataclass(frozen=True)
class Answer:
    """What a statement gave. `truncated_by`: rows, bytes or None when it is whole.

    `engine`: what answered, `engine_reason`: why that. `versions`: of a statement about the past,
    the version at which each table was read.
    """

    columns: list[dict[str, str]]
    rows: list[list[Any]]
    truncated_by: str | None
    elapsed_ms: float
    engine: str
    engine_reason: str
    versions: dict[str, int] = field(default_factory=dict)

    @property
    def truncated(self) -> bool:
        """Whether rows are missing at the end."""
        return self.truncated_by is not None


@dataclass(frozen=True)
class ArrowAnswer:
    """What a statement gave as an Arrow stream (IPC), `truncated_by` as of `Answer`."""

    stream: bytes
    columns: list[dict[str, str]]
    rows: int
    truncated_by: str | None
    elapsed_ms: float
    engine: str


@dataclass(frozen=True)
class Written:
    """What a statement wrote into a file; `engine` and its reason as of `Answer`."""

    columns: list[dict[str, str]]
    rows: int
    elapsed_ms: float
    engine: str
    engine_reason: str
    versions: dict[str, int]


class Statements:
    """Runs statements over one lake; `close` ends its processes."""

    def __init__(
        self,
        settings: Settings,
        *,
        workers: int = WORKERS,
        results: Path | None = None,
        once: bool = False,
    ) -> None:
        """`results`: a folder that `write` may write into. `once`: for a single statement; its
        process makes ready the tables that it names, not the whole lake."""
        self._limits = settings.api
        # Handed over as data: a worker that starts quickly does not import the packages that
        # declare them.
        known = definitions(settings.lake_root)
        room = _room(settings)
        self._all = [
            Worker(
                {
                    "lake_root": str(settings.lake_root),
                    "home": str(settings.home.absolute()),
                    "definitions": [asdict(definition) for definition in known],
                    "memory": settings.api.statement_memory,
                    "results": None if results is None else str(results.absolute()),
                    "once": once,
                },
                room,
                DUCKDB,
            )
            for _ in range(workers)
        ]
        self._line = WorkerLine(self._all, wait_seconds=settings.api.wait_seconds)
        self._spark = SparkEngine(settings, room) if settings.api.spark_engine else None

    def run(
        self,
        sql: str,
        params: Mapping[str, Scalar] | None = None,
        max_rows: int | None = None,
        as_of: datetime | None = None,
        cancelled: Ended | None = None,
        tables: Sequence[str] | None = None,
        rows: RowLimits | None = None,
        who: str | None = None,
        engine: Engine = "duckdb",
        spark: bool = True,
    ) -> Answer:
        """Answer one statement, `as_of` an instant with a zone over the tables as they were then.

        Raises `Refused`, `Failed`, `Limit`, `Fault` or `Retryable`, each with a
        sentence for the user. `max_rows` may lower the limit of the settings, not raise it.
        `cancelled`: once it is set the statement ends, with `Cancelled`. `tables`: all that it
        may name; `rows`: of each table which rows it shows (`api.sql.translation.RowLimits`).
        `who`: for whom; where several wait, a worker goes to the one with the fewest at work.
        `spark` false: what only Spark answers is not run; it raises `LeftToSpark`.
        """
        asked = self._asked(sql, params or {}, as_of, tables, rows)
        # A caller may ask for less; the settings are what protects the machine.
        asked["max_rows"] = min(max_rows or asked["max_rows"], asked["max_rows"])
        reply, ran, reason = self._reply(
            asked, self._limits.statement_seconds, engine, who, cancelled, spark=spark
        )
        return Answer(
            reply["columns"],
            reply["rows"],
            reply["truncated_by"],
            reply["elapsed_ms"],
            ran,
            reason,
            reply.get("versions", {}),
        )

    def arrow(
        self,
        sql: str,
        *,
        shape: bool = False,
        cancelled: threading.Event | None = None,
        tables: Sequence[str] | None = None,
        rows: RowLimits | None = None,
        who: str | None = None,
        engine: Engine = "duckdb",
    ) -> ArrowAnswer:
        """Answer one statement without parameters in Arrow, by the limits and errors of `run`.

        `shape`: its columns alone; no row is read.
        """
        asked = self._asked(sql, None, None, tables, rows) | {"arrow": True}
        if shape:
            asked["max_rows"] = 0
        done, ran, _ = self._reply(asked, self._limits.statement_seconds, engine, who, cancelled)
        return ArrowAnswer(
            base64.b64decode(done["arrow"]),
            done["columns"],
            int(done["rows"]),
            done["truncated_by"],
            done["elapsed_ms"],
            ran,
        )

    def _reply(
        self,
        asked: dict[str, Any],
        seconds: float,
        engine: Engine,
        who: str | None,
        cancelled: Ended | None,
        tell: Callable[[float], None] = lambda _: None,
        *,
        spark: bool = True,
    ) -> tuple[dict[str, Any], str, str]:
        """The answer of an engine, which one it was, and why that; raises as `run` does."""
        # For the sentence of an error, which names the limit that was reached.
        limits = self._limits.model_copy(update={"statement_seconds": seconds})
        reason = _ASKED
        if engine != "spark":
            with self._line.worker(who, cancelled) as worker:
                reply = worker.ask(asked, seconds, cancelled, tell)
            left_to_spark = (
                engine == "auto"
                and self._spark is not None
                and reply is not None
                and reply.get("unequal")
                # Versions of then are read by DuckDB's views alone.
                and not asked["as_of"]
            )
            if reply is None or not left_to_spark:
                reason = _EQUAL if engine == "auto" else _ASKED
                return _raise_error(reply, limits, DUCKDB), "duckdb", reason
            # Up to what it could do instead.
            why = str(reply["refused"]).partition("; ")[0]
            reason = f"DuckDB may answer otherwise than Spark: {why}"
        if self._spark is None:
            raise Refused("there is no engine 'spark' here: api.spark_engine is false")
        if asked["as_of"]:
            raise Refused("tables as they were are read by engine 'duckdb' alone; leave out as_of")
        if not spark:
            raise LeftToSpark(reason)
        reply = self._spark.ask(asked, seconds, who, cancelled, tell)
        limits = limits.model_copy(update={"statement_memory": limits.spark_engine_memory})
        return _raise_error(reply, limits, SPARK), "spark", reason

    def _asked(
        self,
        sql: str,
        params: Mapping[str, Scalar] | None,
        as_of: datetime | None,
        tables: Sequence[str] | None,
        rows: RowLimits | None,
    ) -> dict[str, Any]:
        """A statement as a worker is asked it; `params` None: it may have none."""
        return {
            "sql": sql,
            "params": None if params is None else dict(params),
            "max_rows": self._limits.statement_rows,
            "max_bytes": self._limits.statement_bytes,
            "as_of": as_of.isoformat() if as_of else None,
            "only_tables": None if tables is None else list(tables),
            "only_rows": None if rows is None else dict(rows),
        }

    def write(
        self,
        sql: str,
        params: Mapping[str, Scalar],
        into: Path,
        *,
        as_of: datetime | None = None,
        cancelled: threading.Event | None = None,
        tell: Callable[[float], None] = lambda _: None,
        tables: Sequence[str] | None = None,
        rows: RowLimits | None = None,
        engine: Engine = "duckdb",
    ) -> Written:
        """Answer one statement into a Parquet file, whole, by the limits of search jobs.

        `tell` is called with the progress, 0 to 100. Raises as `run` does.
        """
        asked = self._asked(sql, params, as_of, tables, rows)
        asked |= {"max_rows": self._limits.job_rows, "into": str(into.absolute())}
        done, ran, reason = self._reply(
            asked, self._limits.job_seconds, engine, None, cancelled, tell
        )
        return Written(
            done["columns"],
            int(done["rows"]),
            done["elapsed_ms"],
            ran,
            reason,
            done.get("versions", {}),
        )

    @property
    def processes(self) -> list[int]:
        """Process ids of the workers that run."""
        return [worker.pid for worker in self._workers() if worker.pid is not None]

    @property
    def blocked(self) -> list[float]:
        """Of each worker that does not come back, for how many seconds it has been at work."""
        # One that starts, reads and works up to each of its limits is slow, not blocked.
        bounds = [(worker, DUCKDB) for worker in self._all]
        if self._spark is not None:
            bounds.append((self._spark.worker, SPARK))
        longest = self._limits.statement_seconds + _BLOCKED_SECONDS
        return [
            worker.busy_seconds
            for worker, program in bounds
            if worker.busy_seconds > program.starting + program.reading + longest
        ]

    def _workers(self) -> list[Worker]:
        return [*self._all, *([] if self._spark is None else [self._spark.worker])]

    def close(self) -> None:
        """End the worker processes, and the statements in them."""
        for worker in self._workers():
            worker.stop()


def _raise_error(
    reply: dict[str, Any] | None, limits: ApiSettings, program: Program
) -> dict[str, Any]:
    """A worker's reply where it is an answer; else raises what it says."""
    if reply is None:
        raise Limit(
            f"the statement was stopped after {limits.statement_seconds:g} s; "
            "narrow it by time or address"
        )
    if "unread" in reply:
        raise Refused(
            f"the statement could not be read in {program.reading:g} s: it is nested too deeply, "
            "or lacks the ON of its joins; write it shorter"
        )
    if reply.get("limit") == "memory":
        raise Limit(
            f"the statement needed more than {limits.statement_memory} of memory; "
            "narrow it by time or address"
        )
    if "refused" in reply:
        raise Refused(reply["refused"])
    if "failed" in reply:
        raise Failed(reply["failed"])
    if "later" in reply:
        raise Retryable(reply["later"])
    if "fault" in reply:
        # The caller gets a name only: paths and traces in the answer would tell of the machine.
        name = uuid.uuid4().hex[:8]
        _log.error("fault %s in a statement: %s", name, reply["fault"])
        raise Fault(f"this is no fault of the statement; the log says more of it (fault {name})")
    return reply


def _room(settings: Settings) -> Path | None:
    """Where the folders of workers lie: they go with this process, or with the next one where it
    was killed. None, the system's own place, where nothing may be written there."""
    try:
        return scratch(settings.scratch_root)
    except OSError:
        return None
