"""A disk that is full under lake or checkpoints, then has space again: nothing lost, no poison.

A full disk is not a batch's fault, so its job is tried again for as long as that takes.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from infra.config.settings import load
from infra.runtime.restart_policy import FailureRecord, Retry
from infra.streaming.lake import Lake
from tests.faults.test_damage import BATCHES, FIRST, NUMBER, arrive, first
from tests.recovery import judge

SIZE = 8 * 2**20
LATER = tuple(range(1, 5_000))
SPARE = (0, 1_000, 20_000)
"""Bytes that are left when the disk is full: nothing fits, or a part of what a batch writes."""


@contextmanager
def small_disk(at: Path, size: int = SIZE) -> Iterator[Path]:
    """A file system of its own of `size` bytes; skips where nobody may mount one."""
    at.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(at)],
        capture_output=True,
        text=True,
        check=False,
    )
    if mounted.returncode != 0:
        pytest.skip(f"no small file system can be mounted here: {mounted.stderr.strip()}")
    try:
        yield at
    finally:
        subprocess.run(["umount", "-l", str(at)], check=True)


def fill(disk: Path, spare: int) -> Path:
    """A file that leaves so many bytes, rounded to pages."""
    filler = disk / "filler"
    with filler.open("wb") as file:
        file.write(b"\0" * max(0, shutil.disk_usage(disk).free - spare))
    return filler


@pytest.mark.full
@pytest.mark.skipif(not shutil.which("mount") or os.geteuid() != 0, reason="only root may mount")
@pytest.mark.parametrize("part", ["checkpoints", "lake"])
def test_a_full_disk_is_waited_out(spark: SparkSession, tmp_path: Path, part: str) -> None:
    with small_disk(tmp_path / "disk") as disk:
        settings = load(home=tmp_path / "home", **{part: disk / part})
        lake = Lake(spark, settings).ensure(NUMBER, FIRST)
        for numbers in BATCHES:
            arrive(lake, numbers)
            first(lake)
        arrive(lake, LATER)
        record = FailureRecord()
        for spare in SPARE:
            filler = fill(disk, spare)
            with pytest.raises(Exception, match=r"No space left on device") as failure:
                first(lake)
            said = f"{failure.type.__module__}.{failure.type.__name__}: {failure.value}"
            assert isinstance(record.failed(said, len(BATCHES), 1.0, 1), Retry)
            filler.unlink()
        first(lake)
        arrive(lake, (5_000,))
        first(lake)
        assert judge.column(settings.lake_root / "gold/first", "n") == list(range(1, 5_001))
