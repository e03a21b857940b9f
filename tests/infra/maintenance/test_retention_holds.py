"""A job that does not read on holds its tables up: maintenance says which, and what to do."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import replace

import pytest
from pyspark.sql import DataFrame

from infra.cli import maintenance as maintenance_command
from infra.config.settings import load
from infra.errors import Fatal
from infra.maintenance import maintenance
from infra.maintenance.retention_holds import held_up_sentence, last
from infra.runtime.job_status import JobStatus, write_status
from infra.streaming.batch import Batch
from infra.streaming.lake import Lake
from tests.infra.numbers import NUMBER, SQUARE


def switched_off(lake: Lake, arrive: Callable[..., None]) -> None:
    """A job `rollup` that has read one number of two, and is wanted no more."""

    def batch(rows: DataFrame, run: Batch) -> None:
        lake.append(rows.selectExpr("n * n AS n"), SQUARE, run)

    arrive(1)
    lake.each_batch("rollup", lake.stream(NUMBER), batch, trigger_seconds=None).wait()
    arrive(2)
    lake.settings = load(
        home=lake.settings.home,
        lake=lake.settings.lake_root,
        jobs={"rollup_trigger_seconds": 0},
    )


def aged(lake: Lake, seconds: float) -> None:
    log = lake.folder(NUMBER) / "_delta_log"
    for file in log.iterdir():
        at = time.time() - seconds
        os.utime(file, (at, at))


@pytest.mark.full
def test_a_job_that_is_switched_off_is_named_with_what_to_do(
    lake: Lake, arrive: Callable[..., None], capsys: pytest.CaptureFixture[str]
) -> None:
    switched_off(lake, arrive)
    assert maintenance.tend(lake, NUMBER).held == ()
    aged(lake, 3600)
    done = maintenance.tend(lake, NUMBER)
    assert [(one.table, one.job) for one in done.held] == [("silver.number", "rollup")]
    assert done.row()["held_by"] == "rollup"

    assert maintenance_command.report(lake.settings, [done], [], whole=True) == 1
    (line,) = capsys.readouterr().err.splitlines()
    root = lake.settings.checkpoint_root
    assert line.startswith(
        "headgate: maintenance is held up: job rollup is switched off (jobs.rollup_"
    )
    assert "has not read silver.number since 2" in line
    assert line.endswith(f"move its checkpoint {root / 'rollup'} out of {root}")
    left = last(lake.settings)
    assert left is not None
    assert (left.refused, left.held) == (0, done.held)
    assert left.succeeded_at == left.at
    # The same again, until the job reads on.
    again = maintenance.tend(lake, NUMBER)
    assert held_up_sentence(lake.settings, again.held) in line

    (root / "rollup").rename(root.parent / "rollup")
    assert maintenance.tend(lake, NUMBER).held == ()


@pytest.mark.full
def test_a_job_holds_nothing_up_while_it_runs_or_is_not_far_behind(
    lake: Lake, arrive: Callable[..., None]
) -> None:
    switched_off(lake, arrive)
    aged(lake, 3600)
    status = JobStatus("rollup", "running", at=time.time())
    write_status(lake.settings, status)  # as `headgate run rollup` does
    assert maintenance.tend(lake, NUMBER).held == ()
    write_status(lake.settings, replace(status, state="stopped"))
    assert len(maintenance.tend(lake, NUMBER).held) == 1

    lake.settings = load(home=lake.settings.home, lake=lake.settings.lake_root)
    assert maintenance.tend(lake, NUMBER).held == ()
    aged(lake, 169 * 3600)
    told: list[str] = []
    done = maintenance.tend(lake, NUMBER, told.append)
    assert [one.off for one in done.held] == [None]
    assert "job rollup has not read silver.number" in held_up_sentence(lake.settings, done.held)
    assert told[-1].endswith("nothing is deleted until each of these jobs has caught up: rollup")


def test_what_maintenance_could_not_tend_is_no_success(
    lake: Lake, capsys: pytest.CaptureFixture[str]
) -> None:
    done = [maintenance.Done("gold.square")]
    assert maintenance_command.report(lake.settings, done, [], whole=True) == 0
    before = last(lake.settings)
    refused = [Fatal("silver.number: is damaged")]
    assert maintenance_command.report(lake.settings, done, refused, whole=False) == 1
    assert last(lake.settings) == before
    assert maintenance_command.report(lake.settings, done, refused, whole=True) == 1
    after = last(lake.settings)
    assert before is not None
    assert after is not None
    assert (after.refused, after.succeeded_at) == (1, before.at)
    assert capsys.readouterr().err == "headgate: silver.number: is damaged\n" * 2
