"""Bounded Spark SQL: check, translate, run in a process that can be killed."""

from __future__ import annotations

import json
import logging
import math
import os
import select
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from api.sql.allowlist import Scalar
from api.sql.worker_line import LOOK_SECONDS, Cancelled, WorkerLine
from infra.config.settings import ApiSettings, Settings
from infra.delta.duckdb_views import definitions
from infra.errors import Fatal, Retryable, Usage
from infra.storage.paths import bucketed, store
from infra.storage.temp_dirs import scratch

_log = logging.getLogger("headgate.api")

WORKERS = 2
"""Statements that run at the same time; more would take the cores from the stream."""

_PROGRAM: tuple[str, ...] = ("-m", "api.sql.worker")
_START_SECONDS = 30.0
_READ_SECONDS = 5.0
"""A statement is parsed and translated in so long; what takes longer is no question of a person."""
_BLOCKED_SECONDS = 15.0
"""A worker that works so much longer than all its limits together is not coming back."""
_RENEWED_SECONDS = 1800.0
"""After so long a worker that was given passing credentials makes room for one with newer ones."""


class Refused(Usage):
    """The statement is not one this engine answers; the text says why."""


class Failed(Fatal):
    """The statement was run and failed on the data (a division by zero, a bad cast)."""


class Limit(Fatal):
    """The statement used up its time or memory and was stopped."""


class Fault(Fatal):
    """Neither the statement nor its limits are to blame, but us or the lake; the log says more."""


@dataclass(frozen=True)
class Answer:
    """What a statement gave. `truncated_by`: rows, bytes or None when it is whole.

    `versions`: of a statement about the past, the version at which each table was read.
    """

    columns: list[dict[str, str]]
    rows: list[list[Any]]
    truncated_by: str | None
    elapsed_ms: float
    engine: str = "duckdb"
    versions: dict[str, int] = field(default_factory=dict)

    @property
    def truncated(self) -> bool:
        """Whether rows are missing at the end."""
        return self.truncated_by is not None


@dataclass(frozen=True)
class Written:
    """What a statement wrote into a file."""

    columns: list[dict[str, str]]
    rows: int
    elapsed_ms: float
    versions: dict[str, int]


class Statements:
    """Runs statements over one lake; `close` ends its processes."""

    def __init__(
        self, settings: Settings, *, workers: int = WORKERS, results: Path | None = None
    ) -> None:
        """`results`: a folder that `write` may write into."""
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
                },
                room,
            )
            for _ in range(workers)
        ]
        self._line = WorkerLine(self._all)

    def run(
        self,
        sql: str,
        params: Mapping[str, Scalar] | None = None,
        max_rows: int | None = None,
        as_of: datetime | None = None,
        cancelled: threading.Event | None = None,
        tables: Sequence[str] | None = None,
        sources: Sequence[str] | None = None,
        who: str | None = None,
    ) -> Answer:
        """Answer one statement, `as_of` an instant with a zone over the tables as they were then.

        Raises `Refused`, `Failed`, `Limit`, `Fault` or `Retryable`, each with a
        sentence for the user. `max_rows` may lower the limit of the settings, not raise it.
        `cancelled`: once it is set the statement ends, with `Cancelled`. `tables`: all that it
        may name; `sources`: of each table the rows of these alone (every table must have them).
        `who`: for whom; where several wait, a worker goes to the one with the fewest at work.
        """
        # A caller may ask for less; the settings are what protects the machine.
        most = min(max_rows or self._limits.statement_rows, self._limits.statement_rows)
        asked = {
            "sql": sql,
            "params": dict(params or {}),
            "max_rows": most,
            "max_bytes": self._limits.statement_bytes,
            "as_of": as_of.isoformat() if as_of else None,
            "only_tables": None if tables is None else list(tables),
            "only_sources": None if sources is None else list(sources),
        }
        with self._line.worker(who, cancelled) as worker:
            reply = worker.ask(asked, self._limits.statement_seconds, cancelled)
            return _answer(reply, self._limits)

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
        sources: Sequence[str] | None = None,
    ) -> Written:
        """Answer one statement into a Parquet file, whole, by the limits of search jobs.

        `tell` is called with the progress, 0 to 100. Raises as `run` does.
        """
        asked = {
            "sql": sql,
            "params": dict(params),
            "max_rows": self._limits.job_rows,
            "into": str(into.absolute()),
            "as_of": as_of.isoformat() if as_of else None,
            "only_tables": None if tables is None else list(tables),
            "only_sources": None if sources is None else list(sources),
        }
        with self._line.worker(None, cancelled) as worker:
            reply = worker.ask(asked, self._limits.job_seconds, cancelled, tell)
        # For the sentence of an error, which names the limit that was reached.
        limits = self._limits.model_copy(update={"statement_seconds": self._limits.job_seconds})
        done = _raise_error(reply, limits)
        return Written(
            done["columns"], int(done["rows"]), done["elapsed_ms"], done.get("versions", {})
        )

    @property
    def processes(self) -> list[int]:
        """Process ids of the workers that run."""
        return [worker.pid for worker in self._all if worker.pid is not None]

    @property
    def blocked(self) -> list[float]:
        """Of each worker that does not come back, for how many seconds it has been at work."""
        # One that starts, reads and works up to each of its limits is slow, not blocked.
        longest = _START_SECONDS + _READ_SECONDS + self._limits.statement_seconds
        busy = (worker.busy_seconds for worker in self._all)
        return [seconds for seconds in busy if seconds > longest + _BLOCKED_SECONDS]

    def close(self) -> None:
        """End the worker processes, and the statements in them."""
        for worker in self._all:
            worker.stop()


def _answer(found: dict[str, Any] | None, limits: ApiSettings) -> Answer:
    reply = _raise_error(found, limits)
    return Answer(
        reply["columns"],
        reply["rows"],
        reply["truncated_by"],
        reply["elapsed_ms"],
        versions=reply.get("versions", {}),
    )


def _raise_error(found: dict[str, Any] | None, limits: ApiSettings) -> dict[str, Any]:
    """A worker's reply where it is an answer; else raises what it says."""
    if found is None:
        raise Limit(
            f"the statement was stopped after {limits.statement_seconds:g} s; "
            "narrow it by time or address"
        )
    if "unread" in found:
        raise Refused(
            f"the statement could not be read in {_READ_SECONDS:g} s: it is nested too deeply, or "
            "lacks the ON of its joins; write it shorter"
        )
    if found.get("limit") == "memory":
        raise Limit(
            f"the statement needed more than {limits.statement_memory} of memory; "
            "narrow it by time or address"
        )
    if "refused" in found:
        raise Refused(found["refused"])
    if "failed" in found:
        raise Failed(found["failed"])
    if "later" in found:
        raise Retryable(found["later"])
    if "fault" in found:
        # The caller gets a name only: paths and traces in the answer would tell of the machine.
        name = uuid.uuid4().hex[:8]
        _log.error("fault %s in a statement: %s", name, found["fault"])
        raise Fault(f"this is no fault of the statement; the log says more of it (fault {name})")
    return found


def _room(settings: Settings) -> Path | None:
    """Where the folders of workers lie: they go with this process, or with the next one where it
    was killed. None, the system's own place, where nothing may be written there."""
    try:
        return scratch(settings.scratch_root)
    except OSError:
        return None


class Worker:
    """One `api.sql.worker` process, started when first needed and again after a kill."""

    def __init__(self, setup: dict[str, Any], room: Path | None) -> None:
        self._setup = setup
        self._room = room
        self._process: subprocess.Popen[bytes] | None = None
        self._home: tempfile.TemporaryDirectory[str] | None = None
        self._lock = threading.Lock()
        self._renew = math.inf
        self._rest = b""
        self._since: float | None = None
        self._closed = False

    @property
    def pid(self) -> int | None:
        """Its process id while it runs."""
        process = self._process
        return process.pid if process is not None and process.poll() is None else None

    @property
    def busy_seconds(self) -> float:
        """For how long it has worked on what it was asked last; 0 when it has answered."""
        since = self._since
        return 0.0 if since is None else time.monotonic() - since

    def ask(
        self,
        request: dict[str, Any],
        seconds: float,
        cancelled: threading.Event | None = None,
        tell: Callable[[float], None] = lambda _: None,
    ) -> dict[str, Any] | None:
        """The worker's answer; None when the time was up and it was killed."""
        with self._lock:
            self._since = time.monotonic()
            try:
                return self._ask(request, seconds, cancelled or threading.Event(), tell)
            finally:
                self._since = None

    def _ask(
        self,
        request: dict[str, Any],
        seconds: float,
        cancelled: threading.Event,
        tell: Callable[[float], None],
    ) -> dict[str, Any] | None:
        process = self._running()
        try:
            _send(process, request)
            reply = self._line(process, _READ_SECONDS, cancelled)
            if reply is None:
                # Until it says `read` it only parses and translates: no data is to blame.
                reply = {"unread": True}
                self._kill()
            elif reply.get("read"):
                until = time.monotonic() + seconds
                while (
                    reply := self._line(process, until - time.monotonic(), cancelled)
                ) is not None and "progress" in reply:
                    tell(float(reply["progress"]))
                if reply is None:
                    self._kill()
        except (EOFError, OSError, ValueError):
            self._kill()
            # Closing kills the worker too, which is no fault of the statement.
            if self._closed:
                raise Cancelled("the API ends; ask again when it is back") from None
            # A worker that dies in the middle was ended by its memory bound.
            return {"limit": "memory"}
        except Cancelled:
            self._kill()
            raise
        return reply

    def _line(
        self, process: subprocess.Popen[bytes], seconds: float, cancelled: threading.Event
    ) -> dict[str, Any] | None:
        """The next line of a worker; None when it does not come in time."""
        if process.stdout is None:
            raise EOFError
        output = process.stdout.fileno()
        until = time.monotonic() + seconds
        pieces = [self._rest]
        while b"\n" not in pieces[-1]:
            left = until - time.monotonic()
            if left <= 0:
                return None
            if cancelled.is_set():
                raise Cancelled("the caller hung up")
            # In short steps, to notice that the caller hung up.
            ready, _, _ = select.select([output], [], [], min(left, LOOK_SECONDS))
            if ready:
                # The bare descriptor: a buffered reader would block, and hide what it holds from
                # `select`.
                pieces.append(os.read(output, 1 << 20))
                if not pieces[-1]:
                    raise EOFError
        # What came behind the line belongs to the next one: a progress and the answer may arrive as
        # one.
        line, _, self._rest = b"".join(pieces).partition(b"\n")
        reply: dict[str, Any] = json.loads(line)
        return reply

    def stop(self) -> None:
        """End the process for good; a statement that runs in it ends with it."""
        # First, so that who waits for its answer learns why it ended.
        self._closed = True
        self._kill()

    def _running(self) -> subprocess.Popen[bytes]:
        if self._closed:
            raise Cancelled("the API ends; ask again when it is back")
        alive = self._process is not None and self._process.poll() is None
        if self._process is not None and alive and time.monotonic() < self._renew:
            return self._process
        self._kill()
        # An empty folder as home and working directory: there is nothing in reach to be read.
        self._home = tempfile.TemporaryDirectory(prefix="headgate-sql-", dir=self._room)
        root = Path(__file__).resolve().parents[2]
        far = store().environment() if bucketed(self._setup["lake_root"]) else {}
        self._renew = (
            time.monotonic() + _RENEWED_SECONDS if "AWS_SESSION_TOKEN" in far else math.inf
        )
        process = subprocess.Popen(
            [sys.executable, *_PROGRAM],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            # A pipe that nobody reads would fill and block the worker.
            stderr=subprocess.DEVNULL,
            cwd=self._home.name,
            # No token, no password, no proxy: what is not there cannot leak.
            env={"PYTHONPATH": str(root), "HOME": self._home.name, "LC_ALL": "C.UTF-8"} | far,
            # A Ctrl-C at the terminal ends the API, which then ends its workers in order.
            start_new_session=True,
        )
        self._process, self._rest = process, b""
        try:
            _send(process, self._setup)
            ready = self._line(process, _START_SECONDS, threading.Event())
        except (EOFError, OSError, ValueError):
            ready = None
        if ready is None:
            self._kill()
            if self._closed:
                raise Cancelled("the API ends; ask again when it is back")
            raise Fatal("the statement engine did not start; see headgate doctor")
        return process

    def _kill(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            # Reaped at once, or each killed statement would leave a zombie.
            process.wait()
            for pipe in (process.stdin, process.stdout):
                if pipe is not None:
                    pipe.close()
        if self._home is not None:
            self._home.cleanup()
            self._home = None


def _send(process: subprocess.Popen[bytes], request: dict[str, Any]) -> None:
    """Hand a worker one line."""
    if process.stdin is None:
        raise EOFError
    process.stdin.write(json.dumps(request).encode() + b"\n")
    process.stdin.flush()
