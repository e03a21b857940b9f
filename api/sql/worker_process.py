"""A process that runs statements, from outside: started, asked, and ended when its time is up."""

from __future__ import annotations

import json
import math
import os
import select
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from api.sql.worker_line import LOOK_SECONDS, Cancelled, Ended, HungUp
from infra.errors import Fatal
from infra.process.priority import stands_at
from infra.storage.paths import bucketed, store


@dataclass(frozen=True)
class Program:
    """What Python runs as a worker, and the seconds that it may take to start and to read.

    `environment`: names of variables that it is given beside what each worker has.
    """

    command: tuple[str, ...]
    starting: float
    reading: float
    environment: tuple[str, ...] = ()


DUCKDB = Program(("-m", "api.sql.worker"), starting=30.0, reading=5.0)
"""A statement is parsed and translated in so long; what takes longer is no question of a person."""
_RENEWED_SECONDS = 1800.0
"""After so long a worker that was given passing credentials makes room for one with newer ones."""


class Worker:
    """One process of a program, started when first needed and again after a kill."""

    def __init__(self, setup: dict[str, Any], room: Path | None, program: Program = DUCKDB) -> None:
        self._setup = setup
        self._room = room
        self._program = program
        self._asked_at = 0.0
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
        cancelled: Ended | None = None,
        tell: Callable[[float], None] = lambda _: None,
    ) -> dict[str, Any] | None:
        """The worker's answer; None when the time was up and it was killed."""
        with self._lock:
            self._since = time.monotonic()
            try:
                return self._ask(request, seconds, cancelled or threading.Event(), tell)
            finally:
                self._since, self._asked_at = None, time.monotonic()

    def rest(self, idle: float) -> None:
        """End the process where nobody asked for so many seconds; the next question starts it."""
        with self._lock:
            if time.monotonic() - self._asked_at >= idle:
                self._kill()

    def _ask(
        self,
        request: dict[str, Any],
        seconds: float,
        cancelled: Ended,
        tell: Callable[[float], None],
    ) -> dict[str, Any] | None:
        process = self._running()
        try:
            _send(process, request)
            reply = self._line(process, self._program.reading, cancelled)
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
        self, process: subprocess.Popen[bytes], seconds: float, cancelled: Ended
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
                raise HungUp
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
            [sys.executable, *self._program.command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            # A pipe that nobody reads would fill and block the worker.
            stderr=subprocess.DEVNULL,
            cwd=self._home.name,
            # No token, no password, no proxy: what is not there cannot leak.
            env={"PYTHONPATH": str(root), "HOME": self._home.name, "LC_ALL": "C.UTF-8"}
            | {name: os.environ[name] for name in self._program.environment if name in os.environ}
            | far,
            # A Ctrl-C at the terminal ends the API, which then ends its workers in order.
            start_new_session=True,
        )
        self._process, self._rest = process, b""
        try:
            _send(process, self._setup | {"nice": stands_at()})
            ready = self._line(process, self._program.starting, threading.Event())
        except (EOFError, OSError, ValueError):
            ready = None
        if ready is None:
            self._kill()
            if self._closed:
                raise Cancelled("the API ends; ask again when it is back")
            raise Fatal("the statement engine did not start; see headgate doctor")
        if "unready" in ready:
            self._kill()
            raise Fatal(f"the statement engine did not start: {ready['unready']}")
        return process

    def _kill(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            # With all that it started; it leads a session of its own.
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
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
