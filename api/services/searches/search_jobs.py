"""Searches as jobs: one runs at a time, its whole result lies in a file until its time is over."""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec

from alerts.delivery.triage_request import ChangeRefused
from api.auth import Caller
from api.key_limits import readable_tables
from api.observability.audit_log import audit_request
from api.services.act_store import new_id
from api.services.triage import NoSuchAct
from api.sql.runner import Busy, Cancelled, Refused, Statements
from api.wire.jobs import NewSearchJob, SearchJob
from infra.config.settings import Settings
from infra.errors import Fatal, HeadgateError, Retryable
from infra.storage.atomic_files import write_private

RESULT, STATE = "result.parquet", "job.json"
MOST_WAITING = 20
LEAST_FREE = 1 << 30
"""Bytes: with less room on the disk no job begins, so that the jobs of the lake keep theirs."""
_OVER = ("done", "failed", "cancelled")


class SearchJobs:
    """The search jobs of a home; results of before a restart are still there."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._folder = settings.home.absolute() / "api" / "searches"
        self._statements: Statements | None = None
        self._pool = ThreadPoolExecutor(1, "search-job")
        self._under_way: dict[str, tuple[Future[None], threading.Event]] = {}
        self._lock = threading.Lock()
        # What of a job may still be written when it is cancelled, and after.
        self._files = threading.Lock()
        self._removed: set[str] = set()

    def submit(
        self, caller: Caller, asked: NewSearchJob, *, wait: float = 0.0, query: str | None = None
    ) -> SearchJob:
        """Ask; returns once it is done, or after `wait` seconds as far as it is then."""
        self.sweep()
        self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        if shutil.disk_usage(self._folder).free < LEAST_FREE:
            raise Retryable(f"{self._folder}: less than 1 GiB is free; remove results (DELETE)")
        now = datetime.now(UTC)
        job = SearchJob(
            id=new_id(), state="queued", progress=None, sql=asked.sql, query=query,
            who=caller.name, made_at=now, expires_at=now + timedelta(seconds=asked.ttl_seconds),
            rows=None, columns=None, elapsed_ms=None, engine="duckdb", versions={}, problem=None,
        )  # fmt: skip
        cancelled = threading.Event()
        with self._lock:
            if len(self._under_way) >= MOST_WAITING:
                raise Busy(f"{MOST_WAITING} search jobs wait already; try again later")
            (self._folder / job.id).mkdir(mode=0o700)
            self._keep(job)
            running = self._pool.submit(self._run, job, caller, asked, cancelled)
            self._under_way[job.id] = (running, cancelled)
        running.add_done_callback(lambda _: self._over(job.id))
        with suppress(TimeoutError):
            running.result(wait)
        return self.get(caller, job.id)

    def listed(self, caller: Caller, query: str | None = None) -> list[SearchJob]:
        """The caller's jobs, newest first; an administrator sees everybody's."""
        self.sweep()
        known = [job for file in self._folder.glob(f"*/{STATE}") if (job := self._read(file))]
        mine = [
            job
            for job in known
            if (job.who == caller.name or caller.may("admin")) and query in (None, job.query)
        ]
        return sorted(mine, key=lambda job: job.made_at, reverse=True)

    def get(self, caller: Caller, name: str) -> SearchJob:
        """A job; raises `NoSuchAct` for another's, as for none."""
        job = next((job for job in self.listed(caller) if job.id == name), None)
        if job is None:
            raise NoSuchAct(f"no search job '{name}' of yours; its time may be over")
        return job

    def result(self, caller: Caller, name: str) -> tuple[SearchJob, Path]:
        """A job that is done, and the Parquet file with its result."""
        job = self.get(caller, name)
        if job.state in ("queued", "running"):
            raise ChangeRefused(f"search job {name} is {job.state}; ask again when it is done")
        if job.state != "done":
            raise ChangeRefused(f"search job {name} {job.state}: {job.problem}")
        return job, self._folder / name / RESULT

    def remove(self, caller: Caller, name: str) -> SearchJob:
        """Cancel a job, and remove its result."""
        job = self.get(caller, name)
        running = self._under_way.get(name)
        with self._files:
            if running is not None:
                self._removed.add(name)
            (self._folder / name / STATE).unlink(missing_ok=True)
        if running is not None:
            running[1].set()
            running[0].cancel()
        shutil.rmtree(self._folder / name, ignore_errors=True)
        return job if job.state in _OVER else job.model_copy(update={"state": "cancelled"})

    def _over(self, name: str) -> None:
        self._under_way.pop(name, None)
        if name in self._removed:  # what was being written while its folder went
            shutil.rmtree(self._folder / name, ignore_errors=True)
            self._removed.discard(name)

    def sweep(self) -> None:
        """Remove results whose time is over; jobs of a process that is gone have failed."""
        now = datetime.now(UTC)
        for file in list(self._folder.glob(f"*/{STATE}")):
            job = self._read(file)
            if job is None or job.expires_at <= now:
                shutil.rmtree(file.parent, ignore_errors=True)
            elif job.state not in _OVER and job.id not in self._under_way and self._is_lost(file):
                problem = "the process that ran it ended; ask again"
                self._keep(job.model_copy(update={"state": "failed", "problem": problem}))

    def _is_lost(self, file: Path) -> bool:
        # It may be another process's, which writes its progress about once a second.
        return time.time() - file.stat().st_mtime > self._settings.api.job_seconds + 60

    def close(self) -> None:
        """Cancel what runs."""
        for running, cancelled in list(self._under_way.values()):
            cancelled.set()
            running.cancel()
        self._pool.shutdown(wait=True, cancel_futures=True)
        if self._statements is not None:
            self._statements.close()

    def _run(
        self, job: SearchJob, caller: Caller, asked: NewSearchJob, cancelled: threading.Event
    ) -> None:
        detail: dict[str, Any] = {"sql": asked.sql, "job": job.id}
        # Noted first: a statement that kills the process is in the audit all the same.
        audit_request(self._settings, "search.job", "ok", who=caller.name, detail=detail)
        job = job.model_copy(update={"state": "running"})
        self._keep(job)
        if self._statements is None:
            self._statements = Statements(self._settings, workers=1, results=self._folder)
        try:
            written = self._statements.write(
                asked.sql,
                asked.params,
                self._folder / job.id / RESULT,
                as_of=asked.as_of,
                cancelled=cancelled,
                tell=self._telling(job),
                tables=readable_tables(caller),
                sources=caller.limits.sources if caller.limits else None,
            )
        except Cancelled:
            self._keep(job.model_copy(update={"state": "cancelled", "problem": "cancelled"}))
        except HeadgateError as error:
            outcome = "refused" if isinstance(error, Refused) else "failed"
            detail |= {"said": str(error)}
            audit_request(self._settings, "search.job", outcome, who=caller.name, detail=detail)
            self._keep(job.model_copy(update={"state": "failed", "problem": str(error)}))
        else:
            done = {"state": "done", "progress": 100.0, "rows": written.rows,
                    "columns": written.columns, "elapsed_ms": written.elapsed_ms,
                    "versions": written.versions}  # fmt: skip
            self._keep(SearchJob.model_validate(job.model_dump() | done))

    def _telling(self, job: SearchJob) -> Callable[[float], None]:
        def tell(progress: float) -> None:
            self._keep(job.model_copy(update={"progress": round(progress, 1)}))

        return tell

    def _keep(self, job: SearchJob) -> None:
        folder = self._folder / job.id
        with self._files:
            # Removed meanwhile: what was cancelled must not come back.
            if job.id in self._removed or not folder.is_dir():
                return
            try:
                write_private(folder / STATE, job.model_dump_json())
            except OSError as error:
                raise Fatal(f"{folder}: cannot be written ({error.strerror})") from error

    def _read(self, file: Path) -> SearchJob | None:
        try:
            return SearchJob.model_validate(msgspec.json.decode(file.read_bytes()))
        except (OSError, ValueError):
            return None
