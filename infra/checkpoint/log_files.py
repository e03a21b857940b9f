"""Entries of a checkpoint's logs of offsets and commits that we write while its job does not run.

Spark reads and writes them through Hadoop's local file system, which keeps a checksum beside each
file and reads none that another one belongs to.

Source of the form: Spark's offset log (`v1`, a line of metadata, a line for each source).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from infra.checkpoint.batch_decisions import write_decision
from infra.storage.atomic_files import write_whole
from infra.storage.checksums import sums_beside

_FIRST = 'v1\n{"nextBatchWatermarkMs":0}'
"""An entry of the commit log of a job that has had none."""


def write_entry(file: Path, text: str) -> None:
    """Write an entry, in the place of one that is there."""
    # First, as Hadoop would refuse the new entry by the checksum of the old one.
    forget_checksum(file)
    write_whole(file, text)


def forget_checksum(file: Path) -> None:
    """Before an entry is written anew, or goes."""
    sums_beside(file).unlink(missing_ok=True)


def note_done(spark: Path, before: int | None, number: int) -> None:
    """Note a batch as done, with the watermark of the one before; None: there was none."""
    commits = spark / "commits"
    text = _FIRST if before is None else (commits / str(before)).read_text("utf-8")
    write_entry(commits / str(number), text)


def pass_over(folder: Path, done: int, places: Sequence[str], decisions: Mapping[str, Any]) -> None:
    """Add a batch behind `done` that moves the inputs to `places`, a line for each source, and
    reads nothing.

    Killed before its last step, the batch counts as planned.
    """
    spark = folder / "spark"
    # The line of metadata has the watermark, which must not go back.
    head = (spark / "offsets" / str(done)).read_text("utf-8").splitlines()[:2]
    # In Spark's own order, planned before done: a kill between the two leaves a planned batch.
    write_entry(spark / "offsets" / str(done + 1), "\n".join([*head, *places]))
    write_decision(folder, done + 1, {**decisions, "in_ledger": True})
    note_done(spark, done, done + 1)
