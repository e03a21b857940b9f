"""Commands `jobs list` and `jobs resume`: where jobs stand, and letting one go on."""

from __future__ import annotations

import argparse
import sys
import time
import uuid
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from infra.checkpoint import failed_batch
from infra.cli.status import print_status
from infra.config.settings import Settings
from infra.errors import Usage
from infra.process.os_user import acting_user
from infra.process.table_output import WIDE, add_output_option
from infra.runtime import job_status
from infra.runtime.job_registry import JOBS, resume
from infra.streaming.outbox import put_row


def build(commands: Any) -> None:
    """Register the commands."""
    jobs = commands.add_parser("jobs", help="list the jobs; let one go on that was stopped")
    verbs = jobs.add_subparsers(dest="verb", required=True)
    listed = verbs.add_parser(
        "list", help="where each job stands; exit 1 when one misses its target"
    )
    add_output_option(listed, WIDE)
    listed.set_defaults(run=_list)
    again = verbs.add_parser("resume", help="let a job go on that was stopped for good")
    again.add_argument("job", help=", ".join(JOBS))
    again.set_defaults(run=_resume)


def _list(arguments: argparse.Namespace, settings: Settings) -> int:
    return print_status(settings, arguments.output)


def _resume(arguments: argparse.Namespace, settings: Settings) -> int:
    job = arguments.job
    if job not in JOBS:
        raise Usage(f"no job '{job}'; there are {', '.join(JOBS)}")
    job_state = job_status.read_status(settings).get(job)
    why = failed_batch.stands(settings.checkpoint_root / job)
    if why is None and (job_state is None or job_state.state != "failed"):
        state = job_state.state if job_state else "not known here"
        raise Usage(f"job {job} was not stopped for good (it is {state}); nothing to resume")
    note_act(settings, "job.resume", job, why or (job_state.why if job_state else ""))
    resume(settings, job)
    if job_state is not None and time.time() - job_state.at <= job_status.SILENT_SECONDS:
        print(f"job {job}: its driver starts it again", file=sys.stderr)
        return 0
    if job_state is not None:
        job_status.write_status(settings, replace(job_state, state="stopped", why=""))
    print(f"job {job}: goes on with the next driver (headgate up)", file=sys.stderr)
    return 0


def note_act(settings: Settings, act: str, target: str, detail: str) -> None:
    """Leave a row of ops.audit about something this command's user does."""
    instant = datetime.now(UTC)
    row = {
        "at": instant.isoformat(),
        "who": acting_user(),
        "act": act,
        "target": target,
        "detail": detail,
        "outcome": "ok",
    }
    spool = settings.home.absolute() / "spool" / "audit"
    put_row(spool, f"{instant:%Y%m%dT%H%M%S%f}-{uuid.uuid4().hex}", row)
