"""Command `status`: where each job stands."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any

from rich.live import Live

from infra.config.settings import Settings
from infra.errors import Usage
from infra.process.table_output import WIDE, add_output_option, print_rows, terminal_table
from infra.process.text_output import printable
from infra.runtime import job_status
from infra.runtime.check_registry import registered_findings
from infra.runtime.job_registry import wanted_jobs
from infra.runtime.job_status import JobVerdict
from infra.runtime.nearby_homes import require_home

_COLUMNS = {
    "job": "name",
    "state": "what it does now",
    "batch": "newest batch that is in",
    "rows": "rows it read",
    "seconds": "how long it took",
    "since_progress_seconds": "seconds since it last made progress",
    "target": "seconds within which it must",
    "unread": "Kafka messages or Delta commits not taken yet",
    "oldest_unread_commit_seconds": "age of the oldest of them (commits)",
    "nothing_waits_seconds": "seconds since it was last seen that nothing waits for it",
    "arrival_time_lag_seconds": "seconds between now and what it takes as complete",
    "event_time_lag_seconds": "seconds between now and the event-time watermark of its query",
    "state_rows": "rows of state",
    "state_mb": "memory of that state",
    "cap": "most messages (ingest) or rows (what reads tables) a batch takes now",
    "regime": "steady or behind, which says how large that is",
    "memory_mb": "driver, JVM and workers together",
    "missed": "why it misses its target",
}

_BRIEF = ("job", "state", "batch", "rows", "seconds", "unread", "regime", "missed")
"""What a person looks at first."""

_FORMER_COLUMNS = {
    "progress_age": "since_progress_seconds",
    "behind": "oldest_unread_commit_seconds",
    "lag": "arrival_time_lag_seconds",
    "event_lag": "event_time_lag_seconds",
}
"""Deprecated: programs that read the output find these, and `standing`, for one release more."""


def build(commands: Any) -> None:
    """Register the commands."""
    status_parser = commands.add_parser(
        "status",
        help="where each job stands; exit 1 when one misses its target",
    )
    status_parser.add_argument(
        "--watch", action="store_true", help="look each second, until Ctrl-C"
    )
    # What `status` does anyway; for one release more.
    status_parser.add_argument("--once", action="store_true", help=argparse.SUPPRESS)
    add_output_option(status_parser, WIDE)
    status_parser.set_defaults(run=_status)


def rows(verdicts: Sequence[JobVerdict], now: float) -> list[dict[str, Any]]:
    """One row a job, under the names of `_COLUMNS` and those of the release before."""
    return [_with_former(_row(verdict, now)) for verdict in verdicts]


def _with_former(row: dict[str, Any]) -> dict[str, Any]:
    former = {name: row[column] for name, column in _FORMER_COLUMNS.items()}
    return row | former | {"standing": job_status.former_state(row["state"])}


def _row(job_verdict: JobVerdict, now: float) -> dict[str, Any]:
    status = job_verdict.status or job_status.JobStatus(job_verdict.job)
    moved = status.progressed_at
    used = status.memory
    current = status.current(now)
    unread = status.unread_messages if status.unread_messages is not None else status.unread_commits
    oldest = None if status.behind_seconds is None else round(status.behind_seconds, 1)
    lag, event_lag = status.arrival_time_lag(now), status.event_time_lag(now)
    return {
        "job": job_verdict.job,
        "state": status.state if job_verdict.status else "unknown",
        "batch": status.batch,
        "rows": status.rows,
        "seconds": status.seconds,
        "since_progress_seconds": None if moved is None else round(now - moved, 1),
        "target": job_verdict.target,
        # What a driver that is gone said last is not shown as if it were so still.
        "unread": unread if current else None,
        "oldest_unread_commit_seconds": oldest if current else None,
        "nothing_waits_seconds": None
        if status.asked_at is None or not current
        else round(now - status.asked_at, 1),
        "arrival_time_lag_seconds": None if lag is None else round(lag, 1),
        "event_time_lag_seconds": None if event_lag is None else round(event_lag, 1),
        "state_rows": status.state_rows,
        "state_mb": round(status.state_bytes / 2**20, 1),
        "cap": status.cap if current else None,
        "regime": status.regime if current else None,
        "memory_mb": round((used.driver + used.jvm + used.workers) / 2**20) if current else None,
        "missed": job_verdict.missed,
    }


def _look(settings: Settings) -> tuple[list[dict[str, Any]], bool]:
    now = time.time()
    verdicts = job_status.judge_jobs(
        settings, wanted_jobs(settings), job_status.read_status(settings), now
    )
    return rows(verdicts, now), any(verdict.missed for verdict in verdicts)


def _status(arguments: argparse.Namespace, settings: Settings) -> int:
    if arguments.watch:
        if arguments.output not in ("table", WIDE) or not sys.stdout.isatty():
            raise Usage("--watch needs a terminal, and --output table or wide")
        require_home(settings, "status")
        return _follow(settings, _BRIEF if arguments.output == "table" else tuple(_COLUMNS))
    return print_status(settings, arguments.output)


def print_status(settings: Settings, form: str) -> int:
    """One look at all jobs; 1 when one misses its target."""
    require_home(settings, "status")
    status_rows, missed = _look(settings)
    former = () if form in ("table", WIDE) else (*_FORMER_COLUMNS, "standing")
    columns = [*_COLUMNS, *former]
    print_rows(status_rows, form, columns, brief=_BRIEF, shown=_SHOWN, style=_style)
    for finding in registered_findings(settings):
        if finding.remedy is not None:
            print(printable(f"{finding.what} {finding.found}"), file=sys.stderr)
    return 1 if missed else 0


def _follow(settings: Settings, columns: Sequence[str]) -> int:
    """Show it anew each second until Ctrl-C; 1 when the last look had a job that missed."""
    message, missed = _look(settings)
    with Live(_table(message, columns), refresh_per_second=2) as live:
        try:
            while True:
                time.sleep(1.0)
                message, missed = _look(settings)
                live.update(_table(message, columns))
        except KeyboardInterrupt:
            return 1 if missed else 0


_SHOWN = {name: lambda value: f"{value:,}" for name in ("rows", "unread", "state_rows", "cap")}


def _style(row: Mapping[str, Any]) -> str:
    return "red" if row["missed"] else ""


def _table(rows: Sequence[Mapping[str, Any]], columns: Sequence[str]) -> Any:
    """The rows for a terminal; what misses its target in red, with the reason."""
    return terminal_table(rows, columns, shown=_SHOWN, style=_style)
