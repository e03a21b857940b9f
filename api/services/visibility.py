"""When an act can be seen: requests wait for job `alert`, and only a driver runs it."""

from __future__ import annotations

import time

from api.wire.base import Visible
from infra.config.settings import Settings
from infra.runtime import job_status

JOB_OF_ALERTS = "alert"


def visible(settings: Settings) -> Visible:
    """What to tell whoever asked for something; reads the driver's own word, not the lake."""
    now = time.time()
    status = job_status.read_status(settings).get(JOB_OF_ALERTS)
    # By the driver's own word: in the lake a quiet job looks like one that stands still.
    runs = status is not None and job_status.at_work(status, now)
    # A driver on another machine may have a clock that is ahead.
    age = None if status is None or status.batch_at is None else max(0.0, now - status.batch_at)
    when = "when job alert has had its next batch"
    if not runs:
        when = (
            "no driver runs job alert: when one is started (headgate up) and job alert has had "
            "its next batch"
        )
    return Visible(
        when=when,
        driver_runs=runs,
        last_batch_seconds=None if age is None else round(age, 1),
    )


def in_force_when(settings: Settings) -> str:
    """When a rule that was changed takes effect, in words."""
    now = time.time()
    status = job_status.read_status(settings).values()
    if any(job_status.at_work(job, now) for job in status):
        return "from the next batch of each job on"
    return "no driver runs: from the first batch on after one is started (headgate up)"


def last_alert_batch(settings: Settings) -> float | None:
    """When job `alert` last finished a batch, epoch seconds; None where no driver told of one."""
    status = job_status.read_status(settings).get(JOB_OF_ALERTS)
    return None if status is None else status.batch_at
