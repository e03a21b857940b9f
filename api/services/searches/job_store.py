"""Work that outlives a request: a job or two run at a time, state and result lie in files."""

from __future__ import annotations

import logging
import shutil
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import wait as wait_for
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Generic, NamedTuple, TypeVar

import msgspec

from alerts.delivery.triage_request import ChangeRefused
from api.auth import Caller
from api.services.triage import NoSuchAct
from api.sql.worker_line import LOOK_SECONDS, Busy, HungUp
from api.wire.jobs import StoredJob
from infra.config.settings import Settings
from infra.errors import Fatal, HeadgateError, Retryable
from infra.storage.atomic_files import write_private

_STATE = "job.json"
_LIMITS = "limits"
"""File beside it: what its owner was limited to when it was asked."""
LEAST_FREE = 1 << 30
"""Bytes: with less room on the disk no job begins, so that the jobs of the lake keep theirs."""
_SHARE = 5
"""Jobs that one caller may have waiting, however few places there are."""
_OVER = ("done", "failed", "cancelled")
_SWEEP_SECONDS = 60.0
_log = logging.getLogger("headgate.api")

AnyJob = TypeVar("AnyJob", bound=StoredJob)


def result_gone() -> NoSuchAct:
    """Why a result that was there a moment ago cannot be read."""
    return NoSuchAct("the result was removed just now, or its time is over; ask again")


class _UnderWay(NamedTuple):
    """A job of this process that waits or runs."""

    who: str
    running: Future[None]
    cancelled: threading.Event

    def cancel(self) -> None:
        """End it, begun or not."""
        self.cancelled.set()
        self.running.cancel()


class JobStore(Generic[AnyJob]):
    """The jobs of one kind of a home, each its owner's; those of before a restart are still there.

    `noun`: what a job is called in sentences. `longest`: seconds without a word after which a job
    of another process counts as lost. `at_once`: jobs that run side by side.
    """

    def __init__(
        self,
        settings: Settings,
        kind: type[AnyJob],
        folder: str,
        *,
        noun: str,
        most_waiting: int,
        longest: float,
        at_once: int = 1,
    ) -> None:
        self._folder = settings.home.absolute() / "api" / folder
        self._kind = kind
        self._noun = noun
        self._most_waiting = most_waiting
        self._longest = longest
        self._pool = ThreadPoolExecutor(at_once, folder)
        self._ended = threading.Event()
        self._under_way: dict[str, _UnderWay] = {}
        self._lock = threading.Lock()
        # What of a job may still be written when it is cancelled, and after.
        self._files = threading.Lock()
        self._removed: set[str] = set()

    def _begin(
        self,
        caller: Caller,
        job: AnyJob,
        work: Callable[[AnyJob, threading.Event], None],
        wait: float,
        gone: threading.Event | None = None,
    ) -> AnyJob:
        """Keep a job and run it in its turn; as far as it is after `wait` seconds at most.

        `gone`: once it is set meanwhile the job is removed, with `HungUp`: nobody knows its id.
        Raises what `work` raises in that time; afterwards the job alone says that it failed.
        """
        self.sweep()
        self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        if shutil.disk_usage(self._folder).free < LEAST_FREE:
            raise Retryable(f"{self._folder}: less than 1 GiB is free; remove results (DELETE)")
        cancelled = threading.Event()
        with self._lock:
            if len(self._under_way) >= self._most_waiting:
                raise Busy(f"{self._most_waiting} {self._noun}s wait already; try again later")
            # One caller must leave places to the others.
            share = max(_SHARE, self._most_waiting // 2)
            if [each.who for each in list(self._under_way.values())].count(caller.name) >= share:
                raise Busy(f"{share} {self._noun}s of yours wait already; try again later")
            (self._folder / job.id).mkdir(mode=0o700)
            # Before the job is known by its state.
            (self._folder / job.id / _LIMITS).write_text(str(caller.limits), "utf-8")
            self._keep(job, first=True)
            running = self._pool.submit(self._guarded, work, job, cancelled)
            self._under_way[job.id] = _UnderWay(caller.name, running, cancelled)
        running.add_done_callback(lambda _: self._over(job.id))
        try:
            return self._waited(caller, job.id, running, wait, gone)
        except HungUp:
            self.remove(caller, job.id)
            raise

    def _waited(
        self,
        caller: Caller,
        name: str,
        running: Future[None],
        wait: float,
        gone: threading.Event | None,
    ) -> AnyJob:
        until = time.monotonic() + wait
        while not wait_for([running], min(LOOK_SECONDS, max(0.0, until - time.monotonic()))).done:
            if gone is not None and gone.is_set():
                raise HungUp
            if time.monotonic() >= until:
                break
        if running.done() and not running.cancelled():
            running.result()
        return self.get(caller, name)

    def _waited_for(self, caller: Caller, name: str, wait: float, gone: threading.Event) -> AnyJob:
        """A job that was begun before, as far as it is after `wait` seconds at most; raises
        `HungUp` once its caller is `gone`, and goes on."""
        under_way = self._under_way.get(name)
        if under_way is None:
            return self.get(caller, name)
        return self._waited(caller, name, under_way.running, wait, gone)

    def _guarded(
        self,
        work: Callable[[AnyJob, threading.Event], None],
        job: AnyJob,
        cancelled: threading.Event,
    ) -> None:
        try:
            work(job, cancelled)
        except Exception as error:
            # Else it would be running until its time is over.
            problem = f"{type(error).__name__}: {error}"
            self._keep(job.model_copy(update={"state": "failed", "problem": problem}))
            raise

    def _mine(self, caller: Caller) -> list[AnyJob]:
        """The caller's jobs, newest first; an administrator without limits sees everybody's."""
        mine = [job for job in self._all() if self._is_of(caller, job)]
        return sorted(mine, key=lambda job: job.made_at, reverse=True)

    def _all(self) -> list[AnyJob]:
        """Everybody's, as far as their time is not over."""
        self.sweep()
        return [job for file in self._folder.glob(f"*/{_STATE}") if (job := self._read(file))]

    def _is_of(self, caller: Caller, job: AnyJob) -> bool:
        if caller.limits is None:
            return job.who == caller.name or caller.may("admin")
        # Whatever the role: another's result may hold what this caller may not see, and so may
        # that of a key of the same name that was ended.
        file = self._folder / job.id / _LIMITS
        with suppress(OSError):
            return job.who == caller.name and file.read_text("utf-8") == str(caller.limits)
        return False

    def get(self, caller: Caller, name: str) -> AnyJob:
        """A job; raises `NoSuchAct` for another's, as for none."""
        job = next((job for job in self._mine(caller) if job.id == name), None)
        if job is None:
            raise NoSuchAct(f"no {self._noun} '{name}' of yours; its time may be over")
        return job

    def _done(self, caller: Caller, name: str, result: str) -> tuple[AnyJob, Path]:
        """A job that is done, and the file of its result by that name."""
        job = self.get(caller, name)
        if job.under_way:
            raise ChangeRefused(f"{self._noun} {name} is {job.state}; ask again when it is done")
        if job.state != "done":
            raise ChangeRefused(f"{self._noun} {name} {job.state}: {job.problem}")
        return job, self._folder / name / result

    def remove(self, caller: Caller, name: str) -> AnyJob:
        """Cancel a job, and remove its result."""
        job = self.get(caller, name)
        under_way = self._under_way.get(name)
        with self._files:
            if under_way is not None:
                self._removed.add(name)
            # Its state first: from then on nobody meets the job, however long the rest takes to go.
            (self._folder / name / _STATE).unlink(missing_ok=True)
        if under_way is not None:
            under_way.cancel()
        shutil.rmtree(self._folder / name, ignore_errors=True)
        return job if job.state in _OVER else job.model_copy(update={"state": "cancelled"})

    def _over(self, name: str) -> None:
        self._under_way.pop(name, None)
        # What was being written while its folder went, here or by an erasure.
        if name in self._removed or not (self._folder / name / _STATE).exists():
            shutil.rmtree(self._folder / name, ignore_errors=True)
            self._removed.discard(name)

    def sweep(self) -> None:
        """Remove results whose time is over; jobs of a process that is gone have failed."""
        now = datetime.now(UTC)
        for file in list(self._folder.glob(f"*/{_STATE}")):
            job = self._read(file)
            if job is None or job.expires_at <= now:
                shutil.rmtree(file.parent, ignore_errors=True)
            elif job.state not in _OVER and job.id not in self._under_way and self._is_lost(file):
                problem = "the process that ran it ended; ask again"
                self._keep(job.model_copy(update={"state": "failed", "problem": problem}))

    def _is_lost(self, file: Path) -> bool:
        # It may be another process's, which writes its progress about once a second.
        with suppress(OSError):
            return time.time() - file.stat().st_mtime > self._longest + 60
        return False

    def start(self) -> None:
        """Begin to remove results in time, whether or not somebody asks."""
        threading.Thread(target=self._look, name=f"{self._noun} sweep", daemon=True).start()

    def _look(self) -> None:
        while not self._ended.wait(_SWEEP_SECONDS):
            try:
                self.sweep()
            except (HeadgateError, OSError) as error:
                _log.warning("%ss: results whose time is over stay (%s)", self._noun, error)

    def close(self) -> None:
        """Cancel what runs."""
        self._ended.set()
        for each in list(self._under_way.values()):
            each.cancel()
        self._pool.shutdown(wait=True, cancel_futures=True)

    def _keep(self, job: AnyJob, *, first: bool = False) -> None:
        folder = self._folder / job.id
        with self._files:
            # Removed meanwhile: what was cancelled must not come back, nor what an erasure took
            # (`reporting.erasure.kept_results`), though its work may make the folder anew.
            if job.id in self._removed or not (first or (folder / _STATE).exists()):
                return
            try:
                write_private(folder / _STATE, job.model_dump_json())
            except OSError as error:
                raise Fatal(f"{folder}: cannot be written ({error.strerror})") from error

    def _read(self, file: Path) -> AnyJob | None:
        try:
            return self._kind.model_validate(msgspec.json.decode(file.read_bytes()))
        except (OSError, ValueError):
            return None
