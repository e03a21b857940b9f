"""What batches take of the cores: nothing is lost, nothing is charged twice.

Seconds that the processes have used, from left to right; `ingest` and `alert` are checkpoints:

    used     0    3        7             13     14
    ingest        |---------------------|
    alert                  |------------|
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from infra.streaming.cpu_meter import (
    CPU_COLUMNS,
    DRIVER_METER,
    UNMETERED,
    CpuMeter,
    _ticks,
    cpu_meter_of,
)

INGEST, ALERT = Path("ingest"), Path("alert")


class Used:
    """CPU seconds of processes, as a test sets them."""

    def __init__(self) -> None:
        self.seconds: float | None = 0.0

    def __call__(self) -> float | None:
        return self.seconds


def row(used: float, shared: float, between: float) -> dict[str, float | None]:
    return dict(zip(CPU_COLUMNS, (used, shared, between), strict=True))


def test_what_two_batches_use_at_once_is_split_and_told_as_such() -> None:
    used = Used()
    cpu = CpuMeter(used)
    used.seconds = 3.0
    cpu.begin(INGEST)
    used.seconds = 7.0
    cpu.begin(ALERT)
    used.seconds = 13.0
    alert = cpu.end(ALERT)
    ingest = cpu.end(INGEST)
    assert alert == row(3.0, 3.0, 3.0), "3 s before the first batch: what the start took"
    assert ingest == row(7.0, 3.0, 0.0)
    used.seconds = 14.0
    cpu.begin(INGEST)
    assert cpu.end(INGEST) == row(0.0, 0.0, 1.0)


def test_a_batch_that_failed_is_paid_for_by_the_one_that_is_in() -> None:
    used = Used()
    cpu = CpuMeter(used)
    cpu.begin(INGEST)
    used.seconds = 5.0
    cpu.fail(INGEST)
    used.seconds = 6.0
    cpu.begin(INGEST)
    used.seconds = 8.0
    assert cpu.end(INGEST) == row(7.0, 0.0, 1.0)


def test_a_worker_that_just_ended_takes_nothing_back() -> None:
    used = Used()
    cpu = CpuMeter(used)
    for begin, end, charged in ((0.0, 5.0, 5.0), (4.0, 4.5, 0.0), (4.5, 6.0, 1.0)):
        used.seconds = begin
        cpu.begin(INGEST)
        used.seconds = end
        assert cpu.end(INGEST)["cpu_seconds"] == charged


def test_what_nobody_knows_is_not_told_as_nothing() -> None:
    used = Used()
    cpu = CpuMeter(used)
    cpu.begin(INGEST)
    used.seconds = None
    assert cpu.end(INGEST) == dict.fromkeys(CPU_COLUMNS)
    assert cpu_meter_of("local[2]") is DRIVER_METER
    for elsewhere in ("spark://host:7077", "k8s://host", "local-cluster[2,1,1024]"):
        assert cpu_meter_of(elsewhere) is UNMETERED


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="Linux tells it in /proc")
def test_a_process_is_charged_for_its_children_that_have_ended() -> None:
    before, own = _ticks(os.getpid()), sum(os.times()[:2])
    subprocess.run([sys.executable, "-c", "sum(range(6_000_000))"], check=True)
    children = sum(os.times()[2:4])
    ticks = os.sysconf("SC_CLK_TCK")
    assert _ticks(os.getpid()) > before
    assert _ticks(os.getpid()) / ticks >= own + children - 4 / ticks
