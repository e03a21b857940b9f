"""The jobs there are: each package registers its own; which have something to do, and when."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from infra.checkpoint import failed_batch
from infra.config.settings import Settings

if TYPE_CHECKING:
    from infra.streaming.job import Job
    from infra.streaming.lake import Lake


class Starter(Protocol):
    """Starts a job on a lake; `once`: work off what is there, then end."""

    def __call__(self, lake: Lake, *, once: bool = False) -> Job: ...


@dataclass(frozen=True)
class Later:
    """A job begins so many seconds after the others, or once `job` has had a batch.

    `rest`: that batch is so many seconds old by then; what follows it is not to share the cores.
    `state_bytes`: with less state than this of its own it begins with the others, as that is
    loaded in no time; 0: it waits always.
    """

    seconds: float
    job: str | None = None
    rest: float = 0.0
    state_bytes: int = 0


def _always(_settings: Settings) -> str | None:
    return None


@dataclass(frozen=True)
class JobSpec:
    """A job: its name is its checkpoint, for good."""

    name: str
    order: int
    """Jobs are begun and listed from the smallest on."""
    load: Callable[[], Starter]
    """Imports the module that starts it; called when the job runs."""
    later: Later | None = None
    """The first batch of a job costs ten times a later one. Started together, jobs take the cores
    from each other while all load their state; so those come first that others and alerts wait
    for."""
    history: bool = False
    """What it writes is read as history: it runs where jobs that alerts wait for leave room."""
    idle_because: Callable[[Settings], str | None] = _always
    """Why these settings give it nothing to do; None where they do."""


JOBS: dict[str, JobSpec] = {}


def register_jobs(*jobs: JobSpec) -> None:
    """Make jobs known, whichever package they are of."""
    ordered = sorted((JOBS | {job.name: job for job in jobs}).values(), key=lambda job: job.order)
    # In place, since other modules have imported this very dictionary.
    JOBS.clear()
    JOBS.update({job.name: job for job in ordered})


def wanted_jobs(settings: Settings) -> tuple[str, ...]:
    """The jobs that these settings give something to do."""
    off = idle_jobs(settings)
    return tuple(name for name in JOBS if name not in off)


def idle_jobs(settings: Settings) -> dict[str, str]:
    """The jobs that they give nothing to do, and why."""
    reasons = ((name, job.idle_because(settings)) for name, job in JOBS.items())
    return {name: reason for name, reason in reasons if reason is not None}


def resume(settings: Settings, job: str) -> None:
    """Let a job go on that was given up: the next driver, or one that runs, which is asked to
    start it again and looks every half second."""
    failed_batch.forget_failures(settings.checkpoint_root / job)
    request = settings.home.absolute() / "spool" / "resume" / job
    request.parent.mkdir(parents=True, exist_ok=True)
    request.touch()
