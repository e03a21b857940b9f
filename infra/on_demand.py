"""Jobs that run when somebody asks: their place moves on past what is not for them.

A stream goes on where it was, so what it has yet to read stays for it. `headgate import` runs for
an hour in a year, and reads a table into which job `files` writes each day: its place would hold up
that table's log until the next import. So upkeep moves it, over commits without a row for it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from infra.commits import Commit, commit, newest_version, table_id
from infra.damage import logged, parsed
from infra.decisions import keep
from infra.errors import HeadgateError
from infra.files import write_whole
from infra.jobs import Lock, numbers
from infra.location import Location
from infra.settings import Settings
from infra.tables import path_of

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
            lock = Lock(folder, job)
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
    head, place = _offsets(spark / "offsets" / str(done))
    first, newest = int(place["reservoirVersion"]), newest_version(table)
    if place["reservoirId"] != table_id(table) or place.get("isStartingVersion"):
        return
    if place.get("index", -1) >= 0:
        return  # it has read a commit in part
    upto = first
    while upto <= newest and not _names(job, commit(table, upto)):
        upto += 1
    if upto == first:
        return
    # Killed before the last of these, the batch counts as planned: the job reads nothing in it.
    moved = json.dumps(place | {"reservoirVersion": upto})
    _write(spark / "offsets" / str(done + 1), "\n".join([*head, moved]))
    keep(folder, done + 1, {"in_ledger": True})
    _write(spark / "commits" / str(done + 1), (spark / "commits" / str(done)).read_text("utf-8"))


def _offsets(file: Path) -> tuple[list[str], dict[str, Any]]:
    *head, place = logged(file, 3)
    return head, parsed(place)


def _names(job: str, found: Commit) -> bool:
    """Whether a stream gets rows for the job from a commit, or it cannot be told."""
    if not found.appends:
        return False
    for told in found.stats:
        low, high = (told.get(name, {}).get("job") for name in ("minValues", "maxValues"))
        if low is None or high is None or low <= job <= high:
            return True
    return False


def _write(file: Path, text: str) -> None:
    """Write a file of Spark's checkpoint; Hadoop reads none that another checksum belongs to."""
    file.with_name(f".{file.name}.crc").unlink(missing_ok=True)
    write_whole(file, text)
