"""Searches as jobs: one runs at a time, its whole result lies in a file until its time is over."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

from api.auth import Caller
from api.key_limits import readable_tables, row_limits
from api.observability.audit_log import audit_request
from api.services.act_store import new_id
from api.services.searches.job_store import JobStore
from api.sql.runner import Failed, Fault, Limit, Refused, Statements
from api.sql.worker_line import Cancelled
from api.wire.jobs import NewSearchJob, ProblemType, SearchJob
from infra.config.settings import Settings
from infra.errors import HeadgateError, Retryable

RESULT = "result.parquet"
MOST_WAITING = 20

_PROBLEMS: dict[ProblemType, type[HeadgateError]] = {
    "statement-refused": Refused, "statement-failed": Failed, "statement-limit": Limit,
    "unavailable": Retryable, "internal-error": Fault,
}  # fmt: skip


def problem_type(error: HeadgateError) -> ProblemType:
    """What kind of problem a job failed with, as answers to statements name it."""
    names = (name for name, kind in _PROBLEMS.items() if isinstance(error, kind))
    return next(names, "internal-error")


def problem_of(job: SearchJob) -> HeadgateError:
    """The error that a job ended with, as a statement would have raised it."""
    if job.state == "cancelled":  # the API ends: no fault of the statement
        return Cancelled("the statement was ended before its answer; ask again")
    kind = _PROBLEMS[job.problem_type or "statement-failed"]
    return kind(job.problem or f"search job {job.id} {job.state}")


class SearchJobs(JobStore[SearchJob]):
    """The search jobs of a home; results of before a restart are still there."""

    def __init__(self, settings: Settings) -> None:
        super().__init__(
            settings,
            SearchJob,
            "searches",
            noun="search job",
            most_waiting=MOST_WAITING,
            longest=settings.api.job_seconds,
        )
        self._settings = settings
        self._statements: Statements | None = None

    def submit(
        self,
        caller: Caller,
        asked: NewSearchJob,
        *,
        wait: float = 0.0,
        query: str | None = None,
        gone: threading.Event | None = None,
    ) -> SearchJob:
        """Ask; returns once it is done, or after `wait` seconds as far as it is then.

        `gone`: once it is set meanwhile the job ends and is removed, with `HungUp`.
        """
        now = datetime.now(UTC)
        job = SearchJob(
            id=new_id(), state="queued", progress=None, sql=asked.sql, query=query,
            who=caller.name, made_at=now, expires_at=now + timedelta(seconds=asked.ttl_seconds),
            rows=None, columns=None, elapsed_ms=None, engine=None, versions={}, problem=None,
        )  # fmt: skip
        return self._begin(caller, job, partial(self._run, caller, asked), wait, gone)

    def listed(self, caller: Caller, query: str | None = None) -> list[SearchJob]:
        """The caller's jobs, newest first; an administrator sees everybody's."""
        return [job for job in self._mine(caller) if query in (None, job.query)]

    def newest_ends(self) -> dict[tuple[str, str], SearchJob]:
        """Of each saved query and caller the newest run that is over."""
        ends: dict[tuple[str, str], SearchJob] = {}
        for job in sorted(self._all(), key=lambda job: job.made_at):
            if job.query is not None and not job.under_way:
                ends[job.query, job.who] = job
        return ends

    def result(self, caller: Caller, name: str) -> tuple[SearchJob, Path]:
        """A job that is done, and the Parquet file with its result."""
        return self._done(caller, name, RESULT)

    def file(self, name: str) -> Path:
        """Where the result of a job lies once it is done."""
        return self._folder / name / RESULT

    def close(self) -> None:
        """Cancel what runs."""
        super().close()
        if self._statements is not None:
            self._statements.close()

    def _run(
        self, caller: Caller, asked: NewSearchJob, job: SearchJob, cancelled: threading.Event
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
                rows=row_limits(caller),
                engine=asked.engine,
            )
        except HeadgateError as error:
            # Who cancels a job takes its folder away, and what fails for that is no failure.
            if isinstance(error, Cancelled) or cancelled.is_set():
                self._keep(job.model_copy(update={"state": "cancelled", "problem": "cancelled"}))
                return
            outcome = "refused" if isinstance(error, Refused) else "failed"
            detail |= {"said": str(error)}
            audit_request(self._settings, "search.job", outcome, who=caller.name, detail=detail)
            failed = {"state": "failed", "problem": str(error), "problem_type": problem_type(error)}
            self._keep(job.model_copy(update=failed))
        else:
            done = {"state": "done", "progress": 100.0, "rows": written.rows,
                    "columns": written.columns, "elapsed_ms": written.elapsed_ms,
                    "engine": written.engine, "engine_reason": written.engine_reason,
                    "versions": written.versions}  # fmt: skip
            self._keep(SearchJob.model_validate(job.model_dump() | done))

    def _telling(self, job: SearchJob) -> Callable[[float], None]:
        def tell(progress: float) -> None:
            self._keep(job.model_copy(update={"progress": round(progress, 1)}))

        return tell
