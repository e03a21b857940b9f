"""What jobs that do not read on hold up: the log of a table, and files that left the table.

A stream goes on where it was, so what it has yet to read stays for it. A job that runs no more has
its checkpoint all the same, and holds what it read for good: its log grows with every commit, and
once that is longer than the log remembers what left the table, nothing of it is deleted either.
So maintenance says who it is and what to do, and leaves it in `<home>/upkeep.json` for the API.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from infra.config.settings import Settings
from infra.delta.log_archive import LOG, single
from infra.delta.log_reader import newest_version, table_id
from infra.delta.time_travel import Committed
from infra.errors import Fatal
from infra.maintenance.idle_checkpoints import ON_DEMAND
from infra.process.log import say
from infra.runtime.job_registry import JOBS, idle_jobs
from infra.runtime.job_status import at_work, read_status
from infra.storage.paths import Location
from infra.storage.state_file import StateFile
from infra.streaming.log_retention import unread_by


@dataclass(frozen=True)
class Behind:
    """A job that has yet to read a version of a table, and when that was committed (epoch
    seconds, by the clock of the table's files)."""

    job: str
    version: int
    since: float


@dataclass(frozen=True)
class RetentionHold:
    """A job that holds up the maintenance of a table, from when on; `off`: why it does not run."""

    table: str
    job: str
    since: float
    off: str | None


def behind(settings: Settings, name: str, table: Location) -> Iterator[Behind]:
    """The jobs that have yet to read commits of a table, which is called `name`.

    Raises `Fatal` where the log no longer has them.
    """
    for job, version in unread_by(settings, table_id(table)):
        # A job whose next version is not there yet has read all.
        if version > newest_version(table):
            continue
        try:
            yield Behind(job, version, _made(table, version))
        except FileNotFoundError:
            raise Fatal(
                f"{name}: job {job} has yet to read version {version}, which the log no "
                "longer has; nothing is deleted: let the job catch up, or restore the table"
            ) from None


def _made(table: Location, version: int) -> float:
    try:
        return single(table / LOG, version).stat().st_mtime  # by the clock of the data files
    except FileNotFoundError:
        return Committed(table).of(version).timestamp()


def holding(
    settings: Settings, name: str, jobs: Collection[Behind], now: float
) -> Iterator[RetentionHold]:
    """Those of the jobs behind that hold a table up.

    One that is switched off does at once; any other when it is behind for longer than former
    versions are kept in any case.
    """
    off, message = idle_jobs(settings), read_status(settings)
    for job in jobs:
        # With settings of its own (`headgate run JOB`) it may run all the same.
        why = None if job.job in message and at_work(message[job.job], now) else off.get(job.job)
        kept = settings.maintenance
        patience = kept.log_minutes * 60 if why else kept.keep_hours * 3600
        if now - job.since > patience:
            yield RetentionHold(name, job.job, job.since, why)


def held_up_sentence(settings: Settings, holds: Sequence[RetentionHold]) -> str:
    """Which jobs hold up what, and what to do. It stays the same until that does."""
    jobs = {held.job: [other for other in holds if other.job == held.job] for held in holds}
    _of_jobs = [_of_job(settings, job, tables) for job, tables in sorted(jobs.items())]
    return f"maintenance is held up: {'; '.join(_of_jobs)}"


def _of_job(settings: Settings, job: str, holds: Sequence[RetentionHold]) -> str:
    since = datetime.fromtimestamp(min(held.since for held in holds), UTC)
    tables = ", ".join(sorted(held.table for held in holds))
    what = f"has not read {tables} since {since:%Y-%m-%d %H:%M} UTC"
    root = settings.checkpoint_root
    away = f"if it never shall again, move its checkpoint {root / job} out of {root}"
    if job in ON_DEMAND:
        command = ON_DEMAND[job][1]
        return f"job {job} {what}: run {command} once more, it takes nothing twice"
    if job not in JOBS:
        return f"{job}, no job of ours, {what}: let it run, or {away}"
    if (why := holds[0].off) is not None:
        return f"job {job} is switched off ({why}) and {what}: let it run, or {away}"
    return f"job {job} {what}: start it, or let it catch up (headgate status)"


# -- what maintenance leaves to the API -----------------------------------------------------------


@dataclass(frozen=True)
class Tended:
    """What the newest maintenance of all tables found; epoch seconds.

    `succeeded_at`: when one last ended that left out no table; None: none did.
    """

    at: float
    succeeded_at: float | None
    refused: int
    held: tuple[RetentionHold, ...]


def _file(settings: Settings) -> Path:
    """Where it lies."""
    return settings.home.absolute() / "upkeep.json"


def leave(settings: Settings, refused: int, holds: Sequence[RetentionHold]) -> None:
    """Note that all tables were tended, but for `refused` of them."""
    before, now = _state(settings).read_or(None, say), time.time()
    succeeded = before.succeeded_at if before else None
    # Where a table was refused, the last success stays: an alert on its age is then heard.
    tended = Tended(now, succeeded if refused else now, refused, tuple(holds))
    _state(settings).write(tended)


def last(settings: Settings) -> Tended | None:
    """What the newest maintenance left; None before the first, and where it cannot be read."""
    with suppress(OSError, Fatal):  # the next maintenance, which replaces it, names a damaged one
        return _state(settings).read()
    return None


def _state(settings: Settings) -> StateFile[Tended]:
    return StateFile(_file(settings), Tended, "the next maintenance writes it anew")
