"""Jobs that run when somebody asks: their place moves on past what is not for them.

A stream goes on where it was, so what it has yet to read stays for it. `headgate import` runs for
an hour in a year, and reads a table into which job `files` writes each day: its place would hold up
that table's log until the next import. So maintenance moves it, over commits without a row for it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

from infra.checkpoint.log_files import pass_over
from infra.checkpoint.offset_log import numbers, offset_lines
from infra.config.settings import Settings
from infra.delta.log_reader import Commit, commit, newest_version, table_id
from infra.errors import HeadgateError
from infra.storage.paths import Location, path_of
from infra.streaming.admission import place
from infra.streaming.job_lock import JobLock

ON_DEMAND = {"import": ("ops.file", "headgate import")}
"""Such a job, the table it reads, of which rows are its own whose column `job` says so, and what
makes it read on."""


def move_on(settings: Settings) -> Iterator[str]:
    """Move each such job that does not run; yields why one could not be, as a sentence."""
    for job, (name, _) in ON_DEMAND.items():
        folder = settings.checkpoint_root / job
        if not (folder / "spark" / "commits").is_dir():
            continue
        try:
            lock = JobLock(folder, job)
        except HeadgateError:
            continue  # it runs
        try:
            _move(folder, job, settings.lake_root / path_of(name))
        except (HeadgateError, OSError, ValueError, LookupError) as error:
            yield f"job {job}: its place in {name} could not be moved on: {error}"
        finally:
            lock.release()


def _move(folder: Path, job: str, table: Location) -> None:
    spark = folder / "spark"
    done = max(numbers(spark / "offsets"), default=None)
    if done is None or done not in numbers(spark / "commits"):
        return  # a batch of it is under way
    # One line: such a job reads one table.
    (line,) = offset_lines(spark / "offsets" / str(done))
    position = place(line)
    if position is None or position[0] != table_id(table) or position[1].index >= 0:
        return  # it reads what was there before it began, or has read a commit in part
    first, newest = position[1].version, newest_version(table)
    upto = first
    while upto <= newest and not _names(job, commit(table, upto)):
        upto += 1
    if upto > first:
        moved = json.dumps(json.loads(line) | {"reservoirVersion": upto})
        pass_over(folder, done, [moved], {})


def _names(job: str, commit: Commit) -> bool:
    """Whether a stream gets rows for the job from a commit, or it cannot be told."""
    if not commit.appends:
        return False
    for stat in commit.stats:
        low, high = (stat.get(name, {}).get("job") for name in ("minValues", "maxValues"))
        if low is None or high is None or low <= job <= high:
            return True
    return False
