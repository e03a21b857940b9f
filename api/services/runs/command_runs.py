"""Commands that a caller asks for over REST and that run as processes of their own.

One at a time: each may take a JVM or gigabytes beside the jobs. What they came to is kept for a
week, in files that every process of the API reads.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import Any

import psutil

from api.observability.audit_log import audit_request
from api.services.act_store import StateFolder, new_id
from api.services.triage import NoSuchAct
from api.sql.worker_line import Busy
from infra.config.settings import Settings
from infra.errors import HeadgateError
from infra.process.subprocesses import CommandResult, run_command

RUNS_KEPT = timedelta(days=7)
MOST_RUNS_WAITING = 20
_CLOCK_SECONDS = 2.0
"""So far two looks at when a process began may be apart."""
RunDocument = dict[str, Any]


class CommandRuns:
    """Runs commands for callers, in the order in which they asked."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._pool = ThreadPoolExecutor(1, "command-run")
        self._stop = threading.Event()
        self._waiting = 0
        self._lock = threading.Lock()

    def submit(
        self,
        kind: str,
        who: str,
        about: Mapping[str, Any],
        command: tuple[str, ...],
        outcome: Callable[[CommandResult], Mapping[str, Any]],
        clean: Callable[[], None] = lambda: None,
    ) -> RunDocument:
        """Ask for a run, of a `kind` that names its folder; raises `Busy` when too many wait.

        `about` stands in its document from the start, what `outcome` makes of the result from
        its end; it raises `HeadgateError` for a failure. `clean` is called after it.
        """
        with self._lock:
            if self._waiting >= MOST_RUNS_WAITING:
                raise Busy(f"{MOST_RUNS_WAITING} runs wait already; try again later")
            self._waiting += 1
        run = {
            "id": new_id(), "state": "queued", "who": who, "made_at": _now(), "ended_at": None,
            "problem": None, "pid": os.getpid(), "pid_since": _began(os.getpid()), **about,
        }  # fmt: skip
        try:
            # Noted before it runs: what kills the process is in the audit all the same.
            audit_request(self._settings, f"{kind}.run", "ok", who=who, target=run["id"],
                          detail={**about, "command": " ".join(command[:2])})  # fmt: skip
            self._folder(kind).put(run["id"], run)
        except HeadgateError:
            self._over(clean)
            raise
        self._pool.submit(self._run, kind, run, command, outcome, clean)
        return run

    def get(self, kind: str, name: str) -> RunDocument:
        """A run; raises `NoSuchAct`."""
        run = self._folder(kind).get(name)
        if run is None:
            raise NoSuchAct(f"no run '{name}'; runs are kept for {RUNS_KEPT.days} days")
        return _as_it_is(run)

    def listed(self, kind: str) -> list[RunDocument]:
        """Runs of a kind, the newest first."""
        runs = [_as_it_is(run) for run in self._folder(kind).all()]
        return sorted(runs, key=lambda run: str(run["made_at"]), reverse=True)

    def close(self) -> None:
        """End what runs; what waits is never begun."""
        self._stop.set()
        self._pool.shutdown(wait=True, cancel_futures=True)

    def _run(
        self,
        kind: str,
        run: RunDocument,
        command: tuple[str, ...],
        outcome: Callable[[CommandResult], Mapping[str, Any]],
        clean: Callable[[], None],
    ) -> None:
        run = {**run, "state": "running"}
        folder = self._folder(kind)
        try:
            folder.put(run["id"], run)
            result = run_command(
                command, self._settings, self._stop, self._settings.api.job_seconds
            )
            run |= {**outcome(result), "state": "done"}
        except Exception as error:
            # Whatever it is, as what a command printed that nobody can read: the run is over.
            known = isinstance(error, HeadgateError | OSError)
            problem = str(error) if known else f"{type(error).__name__}: {error}"
            run |= {"state": "failed", "problem": problem}
            audit_request(self._settings, f"{kind}.run", "failed", who=run["who"],
                          target=run["id"], detail={"said": problem})  # fmt: skip
        finally:
            self._over(clean)
            folder.put(run["id"], {**run, "ended_at": _now()})

    def _over(self, clean: Callable[[], None]) -> None:
        with self._lock:
            self._waiting -= 1
        clean()

    def _folder(self, kind: str) -> StateFolder:
        return StateFolder(self._settings, f"runs-{kind}", RUNS_KEPT)


def _as_it_is(run: RunDocument) -> RunDocument:
    """A run as it is answered; one whose process is gone has failed."""
    pid, since = int(run.pop("pid", 0)), run.pop("pid_since", None)
    if run["state"] in ("queued", "running") and not _lives(pid, since):
        problem = "the process that ran it ended; ask again"
        run |= {"state": "failed", "problem": problem}
    return run


def _lives(pid: int, since: float | None) -> bool:
    """Whether a process is still the one of that number; `since`: when it began, if it is known.

    In a container the one after a restart has the same number.
    """
    began = _began(pid)
    # The system tells its own start anew whenever its clock is set.
    return began is not None and (since is None or abs(began - since) < _CLOCK_SECONDS)


def _began(pid: int) -> float | None:
    """When a process began, seconds since 1970; None: there is none of that number."""
    try:
        return psutil.Process(pid).create_time()
    except psutil.Error:
        return None


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")
