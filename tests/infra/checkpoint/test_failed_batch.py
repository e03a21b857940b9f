"""A batch that fails, or ends its driver, again and again is remembered beyond the driver."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.sql import DataFrame

from infra.checkpoint import failed_batch
from infra.checkpoint.integrity import unfinished
from infra.errors import Fatal
from infra.runtime.job_registry import resume
from infra.streaming.batch import Batch
from infra.streaming.job import Job
from infra.streaming.job_lock import JobLock
from infra.streaming.lake import Lake
from tests.infra.runtime.test_driver import NUMBER, SQUARE

ATTEMPTS = 2


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return identified(tmp_path / "checkpoints" / "squares", "a")


def identified(folder: Path, identity: str) -> Path:
    (folder / "spark").mkdir(parents=True, exist_ok=True)
    (folder / "spark" / "metadata").write_text(json.dumps({"id": identity}))
    return folder


def killed(folder: Path) -> None:
    """Have a process take a job's lock and die as by kill -9."""
    script = (
        "import os, sys; from pathlib import Path; from infra.streaming.job_lock import JobLock; "
        "held = JobLock(Path(sys.argv[1]), 'squares'); os.kill(os.getpid(), 9)"
    )
    command = [sys.executable, "-c", script, str(folder)]
    root = Path(__file__).resolve().parents[3]
    assert subprocess.run(command, check=False, timeout=240, cwd=root).returncode == -9


def test_a_lock_tells_whether_its_last_holder_was_killed(tmp_path: Path) -> None:
    folder = tmp_path / "squares"
    first = JobLock(folder, "squares")
    assert not first.abandoned
    first.release()
    killed(folder)
    second = JobLock(folder, "squares")
    assert second.abandoned
    second.release()
    second.release()
    third = JobLock(folder, "squares")
    assert not third.abandoned
    third.release()


def test_a_driver_may_end_in_a_batch_twice_as_often_as_that_may_fail(folder: Path, capsys) -> None:
    for _ in range(2 * ATTEMPTS - 1):
        failed_batch.ended("squares", folder, 7, ATTEMPTS)
        assert failed_batch.stands(folder) is None
    failed_batch.ended("squares", folder, 7, ATTEMPTS)
    said = failed_batch.stands(folder) or ""
    assert said.startswith("the driver ended 4 times in a row in the middle of batch 7: ")
    assert "'headgate jobs resume' the job (so since 20" in said
    told = capsys.readouterr().err.splitlines()
    assert told[0] == "job squares: the driver ended 2 times in a row in the middle of batch 7"
    with pytest.raises(Fatal, match="in the middle of batch 7"):
        failed_batch.require_no_failure(folder)


def test_ends_in_other_batches_count_each_for_itself(folder: Path) -> None:
    for batch in (*range(20), 3):
        failed_batch.ended("squares", folder, batch, ATTEMPTS)
    found = failed_batch.read_failures(folder)
    assert found is not None
    assert (found.batch, found.ends, found.stopped) == (3, 1, None)


def test_failures_and_ends_of_one_batch_are_kept_beside_each_other(folder: Path) -> None:
    failed_batch.failed(folder, 7, 1, "KeyError: 'x'", None)
    failed_batch.ended("squares", folder, 7, ATTEMPTS)
    failed_batch.failed(folder, 7, 2, "KeyError: 'x'", "batch 7 failed 2 times in a row", 1)
    found = failed_batch.read_failures(folder)
    assert found is not None
    assert (found.failures, found.starved, found.ends) == (2, 1, 1)
    assert found.why == "KeyError: 'x'"
    assert (failed_batch.stands(folder) or "").startswith(
        "batch 7 failed 2 times in a row (so since"
    )
    failed_batch.forget_failures(folder)
    failed_batch.forget_failures(folder)
    assert failed_batch.read_failures(folder) is None


def test_a_failure_from_outside_parts_those_of_a_batch_and_leaves_the_rest(folder: Path) -> None:
    failed_batch.spared(folder)
    assert failed_batch.read_failures(folder) is None
    failed_batch.ended("squares", folder, 7, ATTEMPTS)
    failed_batch.failed(folder, 7, 5, "KeyError: 'x'", None, 2)
    failed_batch.spared(folder)
    found = failed_batch.read_failures(folder)
    assert found is not None
    assert (found.failures, found.starved, found.ends) == (0, 0, 1)
    failed_batch.failed(folder, 7, 6, "KeyError: 'x'", "batch 7 failed 6 times in a row")
    failed_batch.spared(folder)
    assert failed_batch.stands(folder)


def test_what_another_checkpoint_s_batch_did_is_no_fault_of_this_one_s(folder: Path) -> None:
    failed_batch.failed(folder, 7, 2, "a bug", "batch 7 failed 2 times in a row")
    identified(folder, "b")
    assert failed_batch.stands(folder) is None


@pytest.mark.parametrize(
    "content", [b"", b"\0" * 9, b"[]", b"{}", b'{"query": "a", "batch": "7"}', b'{"query": "a"']
)
def test_a_damaged_file_is_named_with_the_way_out(folder: Path, content: bytes) -> None:
    (folder / "poison.json").write_bytes(content)
    with pytest.raises(Fatal, match=r"poison.json is damaged .*'headgate jobs resume' the job"):
        failed_batch.require_no_failure(folder)
    assert failed_batch.suspected(folder) is None


def squares(lake: Lake, *, well: bool) -> Job:
    def batch(rows: DataFrame, run: Batch) -> None:
        if not well:
            raise RuntimeError("the driver dies")
        lake.append(rows.selectExpr("n * n AS n"), SQUARE, run)

    return lake.each_batch("squares", lake.stream(NUMBER), batch, trigger_seconds=None)


@pytest.mark.full
def test_a_batch_in_which_drivers_end_is_given_up_in_the_end_until_a_person_says_otherwise(
    lake: Lake,
) -> None:
    jobs = lake.settings.jobs.model_copy(update={"max_batch_failures": ATTEMPTS})
    lake = Lake(lake.spark, lake.settings.model_copy(update={"jobs": jobs}))
    lake.ensure(NUMBER, SQUARE)
    lake.add(NUMBER, [{"n": 2}], "test")
    folder = lake.settings.checkpoint_root / "squares"
    for _ in range(2 * ATTEMPTS):
        with pytest.raises(Exception, match="the driver dies"):
            squares(lake, well=False).wait()
        assert unfinished(folder) == 0
        killed(folder)
    with pytest.raises(Fatal, match="the driver ended 4 times in a row in the middle of batch 0"):
        squares(lake, well=True)
    resume(lake.settings, "squares")
    squares(lake, well=True).wait()
    assert [row["n"] for row in lake.read(SQUARE).collect()] == [4]


@pytest.mark.full
def test_a_batch_that_is_in_clears_its_name(lake: Lake) -> None:
    lake.ensure(NUMBER, SQUARE)
    lake.add(NUMBER, [{"n": 2}], "test")
    folder = lake.settings.checkpoint_root / "squares"
    with pytest.raises(Exception, match="the driver dies"):
        squares(lake, well=False).wait()
    killed(folder)
    squares(lake, well=True).wait()
    assert not (folder / "poison.json").exists()
    # Killed before Spark has noted it as done: it was not this batch.
    for name in ("0", ".0.crc"):
        (folder / "spark" / "commits" / name).unlink(missing_ok=True)
    killed(folder)
    assert unfinished(folder) is None
    squares(lake, well=True).wait()
    assert not (folder / "poison.json").exists()
