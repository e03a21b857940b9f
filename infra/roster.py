"""The jobs there are: where each starts, which have something to do, and which begin later."""

from __future__ import annotations

from dataclasses import dataclass

from infra import poison
from infra.settings import Settings

JOBS = {
    "ingest": "alerts.jobs:ingest_and_detect",
    "files": "alerts.jobs:files_and_detect",
    "sessions": "enrich.jobs:sessions",
    "alert": "alerts.jobs:alert",
    "repair": "alerts.repair:repair",
    "rollup": "enrich.rollup_jobs:rollup",
    "logins": "enrich.rollup_jobs:logins",
    "models": "alerts.model_job:models",
}
"""Jobs by name and where they start; imported only when they run."""

HISTORY = ("repair", "rollup", "logins", "models")
"""What these write is read as history, or mends it: they run where the jobs that alerts wait for
leave room."""


@dataclass(frozen=True)
class Later:
    """A job begins so many seconds after the others, or once `job` has had a batch."""

    seconds: float
    job: str | None = None


LATER = {
    "alert": Later(20.0, "sessions"),
    "repair": Later(60.0, "alert"),
    **dict.fromkeys(("rollup", "logins", "models"), Later(45.0)),
}
"""The first batch of a job costs ten times a later one. Started together, jobs take the cores from
each other while all load their state; so those come first that others and alerts wait for."""


def wanted(settings: Settings) -> tuple[str, ...]:
    """The jobs that these settings give something to do."""
    off = unwanted(settings)
    return tuple(name for name in JOBS if name not in off)


def unwanted(settings: Settings) -> dict[str, str]:
    """The jobs that they give nothing to do, and why."""
    off = {} if settings.folders else {"files": "[folders] names none"}
    if settings.jobs.rollup_trigger_seconds == 0:
        off |= dict.fromkeys(("rollup", "logins"), "jobs.rollup_trigger_seconds = 0")
    # Nothing is to be judged before a first model was trained (`headgate models train`).
    if not (settings.lake_side / "_rules" / "models").is_dir():
        off["models"] = "no model was trained"
    return off


def resume(settings: Settings, job: str) -> None:
    """Let a job go on that was given up: the next driver, or one that runs, which is asked to
    start it again and looks every half second."""
    poison.forget(settings.checkpoint_root / job)
    request = settings.home.absolute() / "spool" / "resume" / job
    request.parent.mkdir(parents=True, exist_ok=True)
    request.touch()
