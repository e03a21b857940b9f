"""Commands `status` and `resume`: where each job stands, and letting one go on."""

from __future__ import annotations

import argparse
import sys
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from rich.live import Live

from infra.checkpoint import failed_batch
from infra.config.settings import Settings
from infra.errors import Usage
from infra.process.os_user import person
from infra.process.table_output import add_output_option, print_rows, terminal_table
from infra.runtime import job_status
from infra.runtime.job_registry import JOBS, resume, wanted
from infra.runtime.job_status import Verdict
from infra.streaming.outbox import put

COLUMNS = {
    "job": "name",
    "standing": "what it does now",
    "batch": "newest batch that is in",
    "rows": "rows it read",
    "seconds": "how long it took",
    "progress_age": "seconds since it last made progress",
    "target": "seconds within which it must",
    "unread": "Kafka messages or Delta commits not taken yet",
    "behind": "age of the oldest of them (commits), seconds",
    "lag": "seconds between now and what it takes as complete",
    "event_lag": "seconds between now and the event-time watermark of its query",
    "state_rows": "rows of state",
    "state_mb": "memory of that state",
    "cap": "most messages (ingest) or rows (what reads tables) a batch takes now",
    "regime": "steady or behind, which says how large that is",
    "memory_mb": "driver, JVM and workers together",
    "missed": "why it misses its target",
}


def build(commands: Any) -> None:
    """Register the commands."""
    shown = commands.add_parser(
        "status",
        help="where each job stands; live on a terminal; exit 1 when one misses its target",
    )
    shown.add_argument("--once", action="store_true", help="one look, also on a terminal")
    add_output_option(shown)
    shown.set_defaults(run=_status)
    again = commands.add_parser("resume", help="let a job go on that was stopped for good")
    again.add_argument("job", help=", ".join(JOBS))
    again.set_defaults(run=_resume)


def rows(verdicts: Sequence[Verdict], now: float) -> list[dict[str, Any]]:
    """One row a job, under the names of `COLUMNS`."""
    return [_row(one, now) for one in verdicts]


def _row(one: Verdict, now: float) -> dict[str, Any]:
    found = one.status or job_status.JobStatus(one.job)
    moved = found.progressed_at
    used = found.memory
    current = found.current(now)
    unread = found.unread_messages if found.unread_messages is not None else found.unread_commits
    behind = None if found.behind_seconds is None else round(found.behind_seconds, 1)
    lag, event_lag = found.lag(now), found.event_lag(now)
    return {
        "job": one.job,
        "standing": found.standing if one.status else "unknown",
        "batch": found.batch,
        "rows": found.rows,
        "seconds": found.seconds,
        "progress_age": None if moved is None else round(now - moved, 1),
        "target": one.target,
        "unread": unread if current else None,
        "behind": behind if current else None,
        "lag": None if lag is None else round(lag, 1),
        "event_lag": None if event_lag is None else round(event_lag, 1),
        "state_rows": found.state_rows,
        "state_mb": round(found.state_bytes / 2**20, 1),
        "cap": found.cap if current else None,
        "regime": found.regime if current else None,
        "memory_mb": round((used.driver + used.jvm + used.workers) / 2**20) if current else None,
        "missed": one.missed,
    }


def _look(settings: Settings) -> tuple[list[dict[str, Any]], bool]:
    now = time.time()
    verdicts = job_status.judge(settings, wanted(settings), job_status.read(settings), now)
    return rows(verdicts, now), any(one.missed for one in verdicts)


def _status(arguments: argparse.Namespace, settings: Settings) -> int:
    if arguments.output == "table" and sys.stdout.isatty() and not arguments.once:
        return _follow(settings)
    told, missed = _look(settings)
    print_rows(told, arguments.output, list(COLUMNS), shown=_SHOWN, style=_style)
    return 1 if missed else 0


def _follow(settings: Settings) -> int:
    """Show it anew each second until Ctrl-C; 1 when the last look had a job that missed."""
    told, missed = _look(settings)
    with Live(table(told), refresh_per_second=2) as live:
        try:
            while True:
                time.sleep(1.0)
                told, missed = _look(settings)
                live.update(table(told))
        except KeyboardInterrupt:
            return 1 if missed else 0


_SHOWN = {name: lambda value: f"{value:,}" for name in ("rows", "unread", "state_rows", "cap")}


def _style(row: Mapping[str, Any]) -> str:
    return "red" if row["missed"] else ""


def table(told: Sequence[Mapping[str, Any]]) -> Any:
    """The rows for a terminal; what misses its target in red, with the reason."""
    return terminal_table(told, list(COLUMNS), shown=_SHOWN, style=_style)


def _resume(arguments: argparse.Namespace, settings: Settings) -> int:
    job = arguments.job
    if job not in JOBS:
        raise Usage(f"no job '{job}'; there are {', '.join(JOBS)}")
    found = job_status.read(settings).get(job)
    why = failed_batch.stands(settings.checkpoint_root / job)
    if why is None and (found is None or found.standing != "given up"):
        standing = found.standing if found else "not known here"
        raise Usage(f"job {job} was not stopped for good (it is {standing}); nothing to resume")
    note_act(settings, "job.resume", job, why or (found.why if found else ""))
    resume(settings, job)
    if found is not None and time.time() - found.at <= job_status.SILENT_SECONDS:
        print(f"job {job}: its driver starts it again", file=sys.stderr)
        return 0
    if found is not None:
        job_status.write(settings, replace(found, standing="stopped", why=""))
    print(f"job {job}: goes on with the next driver (headgate up)", file=sys.stderr)
    return 0


def note_act(settings: Settings, act: str, target: str, detail: str) -> None:
    """Leave a row of ops.audit about something this command's user does."""
    at = datetime.now(UTC)
    row = {
        "at": at.isoformat(),
        "who": person(),
        "act": act,
        "target": target,
        "detail": detail,
        "outcome": "ok",
    }
    spool = settings.home.absolute() / "spool" / "audit"
    put(spool, f"{at:%Y%m%dT%H%M%S%f}-{uuid.uuid4().hex}", row)
