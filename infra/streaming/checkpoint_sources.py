"""Whether a job's checkpoint is one of what the job reads now.

Spark tells the inputs of a query apart by their order alone, so a release in which a job reads
one more would take the place in one input for the place in another, or refuse with a count.
Here they are told apart by the id of the table: an input that was added begins at its table's
beginning, and every other one goes on where it was. One that is gone is an error, but where its
table is read on by another that was at the same place.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from pyspark.sql import DataFrame

from infra.checkpoint.batch_decisions import forget_digest
from infra.checkpoint.log_files import write_entry
from infra.checkpoint.offset_log import (
    NO_PLACE,
    Input,
    _table_of,
    digest_of,
    numbers,
    offset_lines,
)
from infra.delta.log_reader import table_id
from infra.errors import Fatal
from infra.spark.internals import streamed_paths
from infra.storage.checksums import Damaged
from infra.storage.paths import location


def adopt(job: str, rows: DataFrame, folder: Path) -> None:
    """Give each input of `rows` its own place in the checkpoint in `folder`.

    Raises `Fatal` when an input that the checkpoint has is gone or cannot be told from
    another one, and when there is a new one while a batch is under way.
    """
    spark = folder / "spark"
    batches = sorted(numbers(spark / "offsets"))
    if not batches:
        return
    newest = spark / "offsets" / str(batches[-1])
    try:
        have = offset_lines(newest)
    except Damaged as error:
        raise Fatal(
            f"job {job}: {error}; restore {folder} from a backup that is not older than the tables"
        ) from None
    want = _inputs(rows)
    matched = match(have, want) or without_twins(have, want)
    if matched is None:
        raise Fatal(
            f"job {job}: its checkpoint {folder} is of a release in which it read "
            f"{len(have)} inputs, now it reads {len(want)}, and which is which is not known: "
            "go back to the release that wrote it"
        )
    # Else the entry fits, and stays as Spark wrote it, byte for byte.
    if None in matched or len(matched) < len(have):
        _extend(job, spark, batches, matched)


def _extend(job: str, spark: Path, batches: Sequence[int], matched: Sequence[int | None]) -> None:
    """Write the newest places anew, with one for each input."""
    # A batch under way has a place in what is left: a release reads a table once in place of twice
    # where one look gives what two gave.
    if None in matched and batches[-1] not in numbers(spark / "commits"):
        raise Fatal(
            f"job {job}: batch {batches[-1]} was under way when the driver ended, and this release "
            "reads more than that batch was planned with: let the release before end it "
            f"(headgate run {job} --once), then start this one"
        )
    # Spark reads the newest and the one before.
    for number in batches[-2:]:
        file = spark / "offsets" / str(number)
        lines = file.read_text("utf-8").splitlines()
        head, old = lines[:2], lines[2:]
        if len(old) == len(matched):
            continue  # done before, by a driver that was killed before it came to the other
        fresh = [NO_PLACE if place is None else old[place] for place in matched]
        if not set(old) <= {*fresh, NO_PLACE}:
            raise Fatal(
                f"job {job}: {file} has two places of one table, which this release reads once: "
                f"let the release before end a batch (headgate run {job} --once), then start this"
            )
        # Else they would be taken for damaged: they are no longer those it was worked on with.
        done = number in numbers(spark / "commits")
        forget_digest(spark.parent, number, None if done else digest_of(file.read_bytes()))
        write_entry(file, "\n".join([*head, *fresh]))


def _inputs(rows: DataFrame) -> list[Input]:
    """What a streaming query over `rows` reads, in the order in which Spark writes it down.

    A stream that is used twice stands there twice, as it does in Spark's files.
    """
    paths = streamed_paths(rows)
    return [None if path is None else table_id(location(path)) for path in paths]


def match(have: Sequence[str], want: Sequence[Input]) -> list[int | None] | None:
    """For each input that is wanted its place among those there are, None for a new one.

    `have`: lines of an offsets file. Both are in the same order. None where there is no way to
    do it, or more than one and it makes a difference.
    """
    read = [None if line == NO_PLACE else index for index, line in enumerate(have)]
    different: dict[tuple[int | None, ...], list[int | None]] = {}
    for way in _ways(tuple(have), tuple(want), 0):
        # One that was never read is as good as a new one.
        different.setdefault(tuple(None if index is None else read[index] for index in way), way)
    return next(iter(different.values())) if len(different) == 1 else None


def without_twins(have: Sequence[str], want: Sequence[Input]) -> list[int | None] | None:
    """As `match`, where a table that was read twice, up to one place, is read once now.

    None where the two were not at the same place: what only one of them had read would be lost.
    """
    first = [
        index for index, line in enumerate(have) if line == NO_PLACE or line not in have[:index]
    ]
    if len(first) != len(want) or len(first) == len(have):
        return None
    matched = match([have[index] for index in first], want)
    if matched is None or None in matched:
        return None
    return [None if place is None else first[place] for place in matched]


def _ways(have: tuple[str, ...], want: tuple[Input, ...], at: int) -> list[list[int | None]]:
    """At most a few, since jobs read a handful of inputs."""
    # An input less is never a way: its place would be lost without a word.
    if len(want) < len(have):
        return []
    if not want:
        return [[]]
    # In order alone: releases add inputs, and never let two change places.
    ways: list[list[int | None]] = []
    if have and (have[0] == NO_PLACE or _table_of(have[0]) == want[0]):
        ways += [[at, *rest] for rest in _ways(have[1:], want[1:], at + 1)]
    ways += [[None, *rest] for rest in _ways(have, want[1:], at)]
    return ways
