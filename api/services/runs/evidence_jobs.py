"""Evidence bundles as jobs: what lies behind many alerts takes longer to gather than a request may.

They are made in this process, by the reader of who asked: who is limited to tenants gets what is
theirs, and no second engine takes memory.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

from alerts.cases.evidence import Ask
from api.asking import begin_request
from api.auth import Caller
from api.observability.audit_log import audit_request
from api.services.act_store import new_id
from api.services.cases import Cases, EvidenceSubject
from api.services.searches.job_store import JobStore, result_gone
from api.services.triage import NoSuchAct
from api.sql.worker_line import Busy, Cancelled, HungUp
from api.wire.evidence import EvidenceJob, EvidenceKind, NewEvidence
from infra.config.settings import Settings
from infra.errors import Fatal, HeadgateError, Retryable

RESULT = "evidence.zip"
ONCE_SECONDS = 600
"""So long a bundle waits for who asked for the file itself and was told to come again."""
_AT_ONCE = 2
"""So that a short one seldom waits for the end of a long one."""
_MOST_WAITING = 20


class EvidenceJobs(JobStore[EvidenceJob]):
    """The evidence bundles of a home; those of before a restart are still there."""

    def __init__(self, settings: Settings) -> None:
        super().__init__(
            settings,
            EvidenceJob,
            "evidence",
            noun="evidence job",
            most_waiting=_MOST_WAITING,
            longest=settings.api.job_seconds,
            at_once=_AT_ONCE,
        )
        self._settings = settings

    def submit(
        self, caller: Caller, cases: Cases, asked: NewEvidence, *, wait: float, join: bool = False
    ) -> EvidenceJob:
        """Ask; as far as it is after `wait` seconds. Raises what is wrong with the subject before
        anything is begun.

        `cases`: those of the caller. `join`: one of theirs of the same subject that is not over yet
        is the answer at once.
        """
        subject = cases.evidence_subject(asked)
        going = self.newest(caller, subject.kind, subject.name) if join else None
        if going is not None and going.under_way:
            return going
        return self._submit(caller, cases, subject, asked.ttl_seconds, wait, once=False)

    def of_case(
        self, caller: Caller, cases: Cases, name: str, wait: float, gone: threading.Event
    ) -> EvidenceJob:
        """The bundle of a case for who asks for the file itself, and asks again while it is made.

        One that was begun so is gone on with: it is that of the case as it is now. Where the caller
        is `gone` it goes on as well, for who asks again.
        """
        subject = cases.evidence_subject(NewEvidence(case=name))
        for job in self._mine(caller):
            same = job.once and job.who == caller.name and job.subject == subject.name
            if same and job.etag == subject.etag and (job.under_way or job.state == "done"):
                try:
                    return self._waited_for(caller, job.id, wait, gone)
                except NoSuchAct:  # fetched meanwhile by another request
                    break
        begun = self._submit(caller, cases, subject, ONCE_SECONDS, 0.0, once=True)
        return self._waited_for(caller, begun.id, wait, gone)

    def newest(self, caller: Caller, kind: EvidenceKind, subject: str) -> EvidenceJob | None:
        """The caller's own newest bundle of a subject, made or being made."""
        own = (job for job in self._mine(caller) if job.who == caller.name and not job.once)
        return next((job for job in own if (job.kind, job.subject) == (kind, subject)), None)

    def listed(self, caller: Caller) -> list[EvidenceJob]:
        """The caller's jobs, newest first; an administrator sees everybody's."""
        return self._mine(caller)

    def result(self, caller: Caller, name: str) -> tuple[EvidenceJob, Path]:
        """A job that is done, and its file."""
        job, file = self._done(caller, name, RESULT)
        if not file.is_file():
            raise result_gone()
        return job, file

    def _submit(
        self,
        caller: Caller,
        cases: Cases,
        subject: EvidenceSubject,
        ttl_seconds: int,
        wait: float,
        *,
        once: bool,
    ) -> EvidenceJob:
        """`once`: it is removed when it was fetched."""
        now = datetime.now(UTC)
        job = EvidenceJob(
            id=new_id(), state="queued", progress=None, who=caller.name, made_at=now,
            expires_at=now + timedelta(seconds=ttl_seconds), problem=None, kind=subject.kind,
            subject=subject.name, title=subject.title, alerts=len(subject.alerts),
            etag=subject.etag, once=once, step=None, elapsed_ms=None, size=None, digest=None,
            rows={}, missing={}, damaged=[],
        )  # fmt: skip
        return self._begin(caller, job, partial(self._run, caller, cases, subject), wait)

    def _run(
        self,
        caller: Caller,
        cases: Cases,
        subject: EvidenceSubject,
        job: EvidenceJob,
        cancelled: threading.Event,
    ) -> None:
        began = time.monotonic()
        # Its questions end with the job, and have their turns among those of the same caller.
        begin_request(caller.name).gone = cancelled
        job = job.model_copy(update={"state": "running"})
        self._keep(job)
        file = self._folder / job.id / RESULT
        ask = _patient(cases.rows, cancelled, self._settings.api.job_seconds)
        try:
            bundle = cases.write_evidence(
                caller.name, subject, file, ask, self._telling(job, cancelled)
            )
            size = file.stat().st_size
        except (HeadgateError, OSError) as error:
            # Who cancels a job takes its folder away, and what fails for that is no failure.
            if isinstance(error, Cancelled) or cancelled.is_set():
                self._keep(job.model_copy(update={"state": "cancelled", "problem": "cancelled"}))
                return
            audit_request(self._settings, "evidence.export", "failed", who=caller.name,
                          target=subject.name, detail={"said": str(error)})  # fmt: skip
            kind = "unavailable" if isinstance(error, Retryable) else "internal-error"
            failed = {"state": "failed", "problem": str(error), "problem_type": kind}
            self._keep(job.model_copy(update=failed))
            return
        done: dict[str, Any] = {
            "state": "done", "progress": 100.0, "step": None, "size": size,
            "elapsed_ms": (time.monotonic() - began) * 1e3, "digest": bundle.digest,
            "rows": dict(bundle.counts), "damaged": list(bundle.damaged),
            "missing": {kind: len(ids) for kind, ids in bundle.missing.items() if ids},
        }  # fmt: skip
        self._keep(EvidenceJob.model_validate(job.model_dump() | done))

    def _telling(
        self, job: EvidenceJob, cancelled: threading.Event
    ) -> Callable[[str, float, float | None], None]:
        def tell(step: str, begun: float, total: float | None) -> None:
            if cancelled.is_set():
                raise HungUp
            progress = round(100 * begun / total, 1) if total else None
            self._keep(job.model_copy(update={"progress": progress, "step": step}))

        return tell


def problem_of(job: EvidenceJob) -> HeadgateError:
    """The error that a job ended with, as a request would have raised it."""
    if job.state == "cancelled":
        return Cancelled("the evidence was ended before it was whole; ask again")
    kind = Retryable if job.problem_type == "unavailable" else Fatal
    return kind(job.problem or f"evidence job {job.id} {job.state}")


def _patient(ask: Ask, cancelled: threading.Event, seconds: float) -> Ask:
    """Questions that stand in line again where it was not their turn in time: a job can wait."""
    until = time.monotonic() + seconds
    late = (
        f"the evidence was not gathered in {seconds:g} s (api.job_seconds); ask again, or run "
        "'headgate evidence export', which has no limit"
    )

    def rows(sql: str, params: Any = None, **how: Any) -> list[dict[str, Any]]:
        while True:
            left = until - time.monotonic()
            if cancelled.is_set():
                raise HungUp
            if left <= 0:
                raise Retryable(late)
            try:
                return ask(sql, params, seconds=left, **how)
            except Busy as error:
                cancelled.wait(min(error.retry_after, left))
            except Retryable:
                # Of a question that had the rest of the time it is no help to know its seconds.
                if time.monotonic() >= until:
                    raise Retryable(late) from None
                raise

    return rows
