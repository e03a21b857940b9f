"""Where each job stands, in `<home>/status/JOB.json`: the driver writes, everybody else reads.

Readers need neither Spark nor the lake, so they answer when those do not.
"""

from __future__ import annotations

import json
import time
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Literal

import psutil

from infra.config.settings import Settings
from infra.streaming.outbox import put_row

SILENT_SECONDS = 15.0
"""The driver writes every two seconds, of a job that waits every five; one that has not for so long
is gone or hangs."""

_State = Literal["starting", "running", "waiting", "backoff", "failed", "stopped"]
"""starting: no batch yet in this run; running: in a batch or between two; waiting: nothing to do;
backoff: failed, will be started again; failed: needs a person; stopped: the driver ended."""

_FORMER_STATES = {"backoff": "pausing", "failed": "given up"}
"""The words of files and of `standing`: drivers and readers of two releases share one home."""
_STATE_OF_FORMER = {former: state for state, former in _FORMER_STATES.items()}


@dataclass
class Memory:
    """Bytes resident, of one driver and its children."""

    driver: int = 0
    jvm: int = 0
    workers: int = 0
    heap_used: int = 0
    heap_after_collection: int = 0
    """What the last full collection left in the JVM's old generation."""


@dataclass
class JobStatus:
    """One job, as its driver last saw it. Times are epoch seconds; None: not known, not so."""

    job: str
    state: _State = "starting"
    at: float = 0.0
    """When this was written."""
    pid: int = 0
    """The driver's process."""
    started_at: float = 0.0
    why: str = ""
    """Why it is in backoff or failed."""
    failures: int = 0
    """Failures in a row."""
    batch: int | None = None
    """The newest batch that is in."""
    batch_at: float | None = None
    """When it was."""
    progressed_at: float | None = None
    """When it last finished a batch or saw that there is nothing to do."""
    rows: int | None = None
    written: dict[str, int] = field(default_factory=dict)
    seconds: float | None = None
    """How long that batch took, planning and commits included."""
    phases: dict[str, float] = field(default_factory=dict)
    unread_messages: int | None = None
    unread_commits: int | None = None
    behind_seconds: float | None = None
    """Age of the oldest commit it has not taken."""
    asked_at: float | None = None
    """When it was last seen that nothing waits for it; None where something does."""
    complete_to: float | None = None
    """Up to when (arrival time) the job takes its input as complete."""
    event_at: float | None = None
    """The event-time watermark of its query, as Spark tells it."""
    state_rows: int = 0
    state_bytes: int = 0
    dropped: int = 0
    """Rows of the newest batch that came later than the watermark."""
    dropped_so_far: int = 0
    """The same of all batches since the driver began."""
    cap: int | None = None
    """Most messages a batch takes now, where that is governed."""
    held_back: str = ""
    """Why what it wrote could not be handed on, as alerts to their topic."""
    held_since: float | None = None
    """Since when."""
    regime: str | None = None
    """steady or behind, where that is governed."""
    memory: Memory = field(default_factory=Memory)

    def current(self, now: float) -> bool:
        """Whether a driver still tells it: one that is gone, or hangs, leaves what was so once."""
        return now - self.at <= SILENT_SECONDS

    def arrival_time_lag(self, now: float) -> float | None:
        """Seconds between now and what the job takes as complete."""
        return None if self.complete_to is None else max(0.0, now - self.complete_to)

    def event_time_lag(self, now: float) -> float | None:
        """Seconds between now and the watermark of its query; None where it has none."""
        return None if self.event_at is None else max(0.0, now - self.event_at)


@dataclass(frozen=True)
class JobVerdict:
    """A job and what is wrong with it; `missed` is None when it is within its target."""

    job: str
    status: JobStatus | None
    target: float
    missed: str | None
    held_back: bool = False
    """It makes progress, and misses its target by what is not handed on alone."""


_TIMES = (
    "at",
    "started_at",
    "batch_at",
    "progressed_at",
    "asked_at",
    "complete_to",
    "event_at",
    "held_since",
)


def _folder(settings: Settings) -> Path:
    """Where the files lie."""
    return settings.home.absolute() / "status"


def write_status(settings: Settings, status: JobStatus) -> None:
    """Leave a job's status for readers; whole or not at all."""
    # Not forced to disk: it is written every few seconds, and anew after a crash.
    row = asdict(status)
    del row["state"]
    put_row(_folder(settings), status.job, {**row, "standing": former_state(status.state)})


def former_state(state: str) -> str:
    """A state in the words of the release before, which files keep."""
    return _FORMER_STATES.get(state, state)


def end_unwanted(settings: Settings, jobs: Collection[str]) -> None:
    """Note as stopped what a process that is gone left of jobs that nobody runs any more."""
    for name, job_status in read_status(settings).items():
        # A driver that lives writes its own state: only what nobody renews any more is put right.
        if (
            name not in jobs
            and job_status.state != "stopped"
            and not psutil.pid_exists(job_status.pid)
        ):
            write_status(settings, replace(job_status, state="stopped", why=""))


def with_ages(status: JobStatus, ahead: float) -> JobStatus:
    """The status by the system's clock, which is `ahead` of the driver's; readers go by that."""
    if not ahead:
        return status
    # All of them, or ages would come out wrong by the jump for some and not for others.
    times = {name: getattr(status, name) for name in _TIMES}
    return replace(
        status, **{name: time + ahead for name, time in times.items() if time is not None}
    )


def read_status(settings: Settings) -> dict[str, JobStatus]:
    """What drivers wrote, by job; a file of another version gives what both know.

    One that a power cut left empty counts as not there: the driver writes it anew.
    """
    job_statuses = {}
    for file in sorted(_folder(settings).glob("*.json")):
        # One damaged file must not hide how the other jobs stand.
        with suppress(OSError, ValueError, TypeError):
            status = _of(json.loads(file.read_bytes()))
            job_statuses[status.job] = status
    return job_statuses


def _of(content: Mapping[str, Any]) -> JobStatus:
    memory = Memory(**_known_fields(Memory, content.get("memory") or {}))
    former = content.get("standing", "starting")
    state = _STATE_OF_FORMER.get(former, former)
    return JobStatus(**_known_fields(JobStatus, content) | {"memory": memory, "state": state})


def _known_fields(kind: type, content: Mapping[str, Any]) -> dict[str, Any]:
    names = {field.name for field in fields(kind)}
    return {name: value for name, value in content.items() if name in names}


def judge_jobs(
    settings: Settings,
    jobs: Iterable[str],
    statuses: Mapping[str, JobStatus],
    now: float | None = None,
) -> list[JobVerdict]:
    """A verdict for each of `jobs`, and for each other job that a driver told of and still runs."""
    moment = time.time() if now is None else now
    others = (name for name, job_status in statuses.items() if job_status.state != "stopped")
    names = list(dict.fromkeys([*jobs, *others]))
    return [verdict(name, statuses.get(name), settings.targets.of(name), moment) for name in names]


def verdict(job: str, status: JobStatus | None, target: float, now: float) -> JobVerdict:
    """Whether a job made progress within its target."""
    moves = status is not None and _moves(status, target, now)
    held_back = moves and status is not None and not _handed_on(status, target, now)
    fine = moves and not held_back
    missed = None if fine else _missed(status, target, now)
    return JobVerdict(job, status, target, missed, held_back)


def at_work(status: JobStatus, now: float) -> bool:
    """Whether a driver runs a job, as it said lately; also one that fails and comes again."""
    alive = status.state in ("starting", "running", "waiting", "backoff")
    return alive and now - status.at <= SILENT_SECONDS


def _moves(status: JobStatus, target: float, now: float) -> bool:
    moved = status.progressed_at
    alive = status.state in ("starting", "running", "waiting", "backoff")
    # A long batch under a loaded machine may keep the driver from writing for a while.
    fresh = now - status.at <= max(SILENT_SECONDS, target)
    return alive and fresh and moved is not None and now - moved <= target


def _handed_on(status: JobStatus, target: float, now: float) -> bool:
    return status.held_since is None or now - status.held_since <= target


def _missed(status: JobStatus | None, target: float, now: float) -> str:
    if status is None:
        return "no driver reports it; is it running (headgate up)?"
    if status.state == "failed":
        return f"stopped for good: {status.why}"
    # Before the silence: a driver that was stopped says nothing any more, too.
    if status.state == "stopped":
        return "its driver was stopped (headgate up starts it)"
    if now - status.at > max(SILENT_SECONDS, target):
        return f"its driver (process {status.pid}) has said nothing for {now - status.at:.0f} s"
    since = f"; it failed {status.failures} times: {status.why}" if status.failures else ""
    if status.progressed_at is None:
        return f"no batch since it was started {now - status.started_at:.0f} s ago{since}"
    if now - status.progressed_at > target:
        return f"no progress for {now - status.progressed_at:.0f} s, target {target:.0f} s{since}"
    waited = now - (status.held_since or now)
    return f"what it wrote is not handed on for {waited:.0f} s: {status.held_back}"
