"""What a first batch that came to nothing left in a checkpoint, put aside before the query starts.

Spark begins a checkpoint only in folders that are empty. A disk that fills up while the first
batch is planned leaves `offsets/.0.<uuid>.tmp` there, a power cut an `offsets/0` without a byte;
each later start then fails, when there is room again, too. A checkpoint of which no batch was ever
worked on can begin anew, as nothing was written by it: what lies in the way is moved to
`<checkpoints>/<job>/leftovers-<when>/`, never deleted. A checkpoint that has done anything is left
as it is, for `infra.checkpoint.integrity.check` to judge.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from infra.checkpoint.offset_log import numbers
from infra.errors import Fatal
from infra.process.clock import clock
from infra.process.log import say
from infra.storage.checksums import Damaged, json_object, logged, read_checked

_LOGS = {"offsets": 3, "commits": 2}
"""Spark's logs of a checkpoint, and how many lines an entry has at least."""

_PLACES = ("metadata", *_LOGS, "state", "sources")

_STATE_VERSION = re.compile(r"(\d+)(?:_[\w-]+)?\.(?:delta|snapshot|changelog|zip)")


def put_aside(job: str, folder: Path) -> Path | None:
    """Clear the way for a checkpoint's first batch; where what lay in it is now, if anything did.

    The caller has the job's lock. Raises `Fatal` for a state that batches were committed to,
    though neither log names one: then the logs are lost, and to begin anew would lose the state.
    """
    spark = folder / "spark"
    begun = numbers(folder / "batches", ".json")
    logs = {name: numbers(spark / name) for name in _LOGS}
    # Any later number shows that the first batch was once in.
    if any(number > 0 for number in (*begun, *logs["offsets"], *logs["commits"])):
        return None
    # The first batch is committed, so the checkpoint has done its work and is not begun anew.
    if _readable(spark, "commits"):
        return None
    if _readable(spark, "offsets") and _is_metadata(spark / "metadata"):
        in_the_way = _of_a_planned_batch(spark)
    elif not begun:
        in_the_way = _of_no_batch(spark)
        # Before anything is moved: a state of later batches must stay where a person can see it.
        _require_no_state(job, folder)
    else:
        return None
    return _move(job, folder, in_the_way) if in_the_way else None


def _move(job: str, folder: Path, files: Sequence[Path]) -> Path:
    spark = folder / "spark"
    aside = folder / f"leftovers-{clock.now():%Y%m%dT%H%M%S%f}"
    for file in files:
        target = aside / "spark" / file.relative_to(spark)
        target.parent.mkdir(parents=True, exist_ok=True)
        # Renamed, not copied: a disk that was full is a reason for leftovers, and may still be so.
        file.replace(target)
    # A state can have many files; three are enough to know what was moved.
    names = ", ".join(str(file.relative_to(spark)) for file in files[:3])
    more = f" and {len(files) - 3} more" if len(files) > 3 else ""
    say(
        f"job {job}: its first batch came to no end and left {names}{more} in {spark}, with which "
        f"Spark would not begin: moved to {aside}; the batch is done from its beginning"
    )
    return aside


def _readable(spark: Path, log: str) -> bool:
    """Whether a log has an entry of the first batch that can be read."""
    try:
        logged(spark / log / "0", _LOGS[log])
    except (Damaged, OSError):
        return False
    return True


def _is_metadata(file: Path) -> bool:
    try:
        return "id" in json_object(read_checked(file))
    except (Damaged, OSError):
        return False


def _of_no_batch(spark: Path) -> list[Path]:
    """All that lies where Spark wants nothing, and what cannot be read beside it."""
    places = [spark / name for name in (*_LOGS, "state")]
    # A file that has the name of a folder is in Spark's way as a whole.
    blocked = [place for place in places if place.is_file()]
    inside = [file for place in places if place.is_dir() for file in sorted(place.iterdir())]
    metadata = spark / "metadata"
    if metadata.exists() and not _is_metadata(metadata):
        # Hadoop reads no file that the checksum beside it does not fit, so both go together.
        sums = metadata.with_name(".metadata.crc")
        inside += [metadata, *([sums] if sums.exists() else [])]
    return [*blocked, *inside, *_unfinished(spark, inside)]


def _of_a_planned_batch(spark: Path) -> list[Path]:
    """It begins with no state, so what it left of one is not needed; nor is half an entry that
    it is done."""
    state = [part for part in sorted((spark / "state").glob("*")) if _has_empty(part)]
    done = spark / "commits" / "0"
    return [*state, *([done] if done.exists() else []), *_unfinished(spark, state)]


def _unfinished(spark: Path, others: Sequence[Path]) -> list[Path]:
    """Files that were not written to their end, beside Spark's own and in its sources' folders."""
    beside = [file for file in sorted(spark.glob("*")) if file.name not in _PLACES]
    below = sorted((spark / "sources").rglob("*"))
    return [
        file
        for file in [*beside, *(file_below for file_below in below if _is_cut(file_below))]
        if file.is_file() and file not in others and not _sums_of_one_there(file)
    ]


def _is_cut(file: Path) -> bool:
    return file.is_file() and (file.name.endswith(".tmp") or file.stat().st_size == 0)


def _sums_of_one_there(file: Path) -> bool:
    """Whether it is the checksum that Hadoop keeps beside a file."""
    name = file.name
    owner = name.removeprefix(".").removesuffix(".crc")
    return name == f".{owner}.crc" and file.with_name(owner).exists()


def _has_empty(place: Path) -> bool:
    # Hidden files are Hadoop's checksums, which say nothing of the state.
    files = [place] if place.is_file() else place.rglob("[!.]*")
    return any(file.is_file() and file.stat().st_size == 0 for file in files)


def _require_no_state(job: str, folder: Path) -> None:
    """The first batch writes version 1 of each part of the state; the rest is of later ones."""
    for file in sorted((folder / "spark" / "state").rglob("[0-9]*")):
        match = _STATE_VERSION.fullmatch(file.name)
        if match is not None and int(match.group(1)) > 1:
            raise Fatal(
                f"checkpoint of job {job}: {file} is of batch {int(match.group(1)) - 1}, but no "
                f"offsets of it are there; restore {folder} from a backup that is not older than "
                "the tables"
            )
