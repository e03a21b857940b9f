"""Commands that a caller asks for over REST and that run as processes of their own.

One at a time: each may take a JVM or gigabytes beside the jobs. What they came to is kept for a
week, in files that every process of the API reads.
"""

from __future__ import annotations

import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import psutil

from api.observability.audit_log import audit_request
from api.services.act_store import StateFolder, new_id
from api.services.triage import NoSuchAct
from api.sql.worker_line import Busy
from infra.config.settings import Settings
from infra.errors import HeadgateError, Retryable
from infra.process.subprocesses import CommandResult, run_command

RUNS_KEPT = timedelta(days=7)
MOST_RUNS_WAITING = 20
MOST_OF_ONE = MOST_RUNS_WAITING // 2
"""Of these at most so many are one caller's, or for one tenant: others find a place beside."""
_CLOCK_SECONDS = 2.0
"""So far two looks at when a process began may be apart."""
_UNDER_WAY = ("queued", "running")
_CANCELLED = CommandResult(1, "", "cancelled")
_LEFTOVERS = ("*.end", "*.progress")
RunDocument = dict[str, Any]


class CommandRuns:
    """Runs commands for callers, in the order in which they asked."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._pool = ThreadPoolExecutor(1, "command-run")
        self._ends: dict[str, threading.Event] = {}
        """Of each run of this process that waits or runs: set when it is to end."""
        self._unkept: dict[str, RunDocument] = {}
        """What runs of this process came to that could not be written, as on a full disk."""
        self._waiting: Counter[str] = Counter()
        self._lock = threading.Lock()

    def submit(
        self,
        kind: str,
        who: str,
        about: Mapping[str, Any],
        command: tuple[str, ...],
        outcome: Callable[[CommandResult], Mapping[str, Any]],
        clean: Callable[[], None] = lambda: None,
        look: Callable[[], Mapping[str, Any]] = dict,
    ) -> RunDocument:
        """Ask for a run, of a `kind` that names its folder; raises `Busy` when too many wait, of
        all or of who asks: of a tenant, where `about` names one.

        `about` stands in its document from the start, what `outcome` makes of the result from
        its end; it raises `HeadgateError` for a failure. `clean` is called after it; what `look`
        gives, each second while it runs, stands in the document too.
        """
        self._sweep(kind)
        tenant = about.get("tenant")
        owner = f"caller {who}" if tenant is None else f"tenant {tenant}"
        with self._lock:
            if self._waiting.total() >= MOST_RUNS_WAITING:
                raise Busy(f"{MOST_RUNS_WAITING} runs wait already; try again later")
            if self._waiting[owner] >= MOST_OF_ONE:
                raise Busy(f"{MOST_OF_ONE} runs of {owner} wait already; try again later")
            self._waiting[owner] += 1
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
            self._over(owner, run["id"], clean)
            raise
        ended = threading.Event()
        self._ends[run["id"]] = ended
        over = partial(self._over, owner, run["id"], clean)
        self._pool.submit(self._run, kind, run, command, outcome, over, look, ended)
        return run

    def get(self, kind: str, name: str) -> RunDocument:
        """A run; raises `NoSuchAct`."""
        run = self._folder(kind).get(name)
        if run is None:
            raise NoSuchAct(no_run(name))
        return self._as_it_is(kind, run)

    def listed(self, kind: str) -> list[RunDocument]:
        """Runs of a kind, the newest first."""
        runs = [self._as_it_is(kind, run) for run in self._folder(kind).all()]
        return sorted(runs, key=lambda run: str(run["made_at"]), reverse=True)

    def remove(self, kind: str, name: str, who: str) -> RunDocument:
        """End a run that is under way, begun or not, else take it from the list; as it is then.

        Raises `NoSuchAct`, and `Retryable` where it cannot be written that it is to end. One of
        another process ends within a second or two.
        """
        run = self.get(kind, name)
        folder = self._folder(kind)
        if run["state"] not in _UNDER_WAY:
            folder.take(name)
            self._unkept.pop(name, None)
            return run
        audit_request(self._settings, f"{kind}.cancel", "ok", who=who, target=name)
        try:
            self._mark(kind, name).touch(mode=0o600)
        except OSError as error:
            reason = f"{folder.folder}: cannot be written ({error.strerror})"
            raise Retryable(f"{reason}; run {name} goes on") from error
        if (ended := self._ends.get(name)) is not None:
            ended.set()
        return run | {"state": "cancelled"}

    def close(self) -> None:
        """End what runs; what waits is never begun."""
        for ended in list(self._ends.values()):
            ended.set()
        self._pool.shutdown(wait=True, cancel_futures=True)

    def _run(
        self,
        kind: str,
        run: RunDocument,
        command: tuple[str, ...],
        outcome: Callable[[CommandResult], Mapping[str, Any]],
        over: Callable[[], None],
        look: Callable[[], Mapping[str, Any]],
        ended: threading.Event,
    ) -> None:
        run = {**run, "state": "running"}
        folder, mark = self._folder(kind), self._mark(kind, run["id"])

        def each_second() -> None:
            if mark.exists():  # by another process of the API
                ended.set()
            now = look()
            if any(run.get(key) != value for key, value in now.items()):
                run.update(now)
                folder.put(run["id"], run)

        try:
            result = _CANCELLED
            # Somebody may have ended it while it waited.
            if not (ended.is_set() or mark.exists()):
                folder.put(run["id"], run)
                seconds = self._settings.api.job_seconds
                result = run_command(command, self._settings, ended, seconds, each_second)
            if result.code != 0 and mark.exists():
                run |= {"state": "cancelled"}
            else:
                run |= {**outcome(result), "state": "done"}
        except Exception as error:
            # Whatever it is, as what a command printed that nobody can read: the run is over.
            known = isinstance(error, HeadgateError | OSError)
            problem = str(error) if known else f"{type(error).__name__}: {error}"
            run |= {"state": "failed", "problem": problem}
            audit_request(self._settings, f"{kind}.run", "failed", who=run["who"],
                          target=run["id"], detail={"said": problem})  # fmt: skip
        finally:
            over()
            run |= {"ended_at": _now()}
            try:
                folder.put(run["id"], run)
            except Retryable:
                # Else it would seem to run for as long as this process does.
                self._unkept[run["id"]] = run
            mark.unlink(missing_ok=True)

    def _over(self, owner: str, name: str, clean: Callable[[], None]) -> None:
        with self._lock:
            self._waiting[owner] -= 1
        self._ends.pop(name, None)
        clean()

    def _mark(self, kind: str, name: str) -> Path:
        """Is there where somebody wants a run ended."""
        return self._folder(kind).folder / f"{name}.end"

    def _as_it_is(self, kind: str, run: RunDocument) -> RunDocument:
        """A run as it is answered; one whose process is gone has failed."""
        run = dict(self._unkept.get(run["id"], run))
        pid, since = int(run.pop("pid", 0)), run.pop("pid_since", None)
        if run["state"] in _UNDER_WAY:
            if self._mark(kind, run["id"]).exists():
                run |= {"state": "cancelled"}
            elif not _lives(pid, since):
                problem = "the process that ran it ended; ask again"
                run |= {"state": "failed", "problem": problem}
        return run

    def _sweep(self, kind: str) -> None:
        """Remove what runs of processes that were killed left beside their documents."""
        oldest = time.time() - RUNS_KEPT.total_seconds()
        for pattern in _LEFTOVERS:
            for file in self._folder(kind).folder.glob(pattern):
                with suppress(OSError):
                    if file.stat().st_mtime < oldest:
                        file.unlink()

    def _folder(self, kind: str) -> StateFolder:
        return StateFolder(self._settings, f"runs-{kind}", RUNS_KEPT)


def no_run(name: str) -> str:
    """What is said of a run that is not there, or not there for who asks."""
    return f"no run '{name}'; runs are kept for {RUNS_KEPT.days} days"


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
