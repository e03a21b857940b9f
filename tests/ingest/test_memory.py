"""A worker's memory is bounded by what it holds at once, not by what arrives."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.ingest.memory_worker import KINDS

ROOT = Path(__file__).parents[2]


@pytest.mark.full
@pytest.mark.parametrize("kind", KINDS)
def test_a_worker_stays_below_600_megabytes(kind: str, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.ingest.memory_worker", kind, str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    _, highest = map(int, done.stdout.split())
    assert highest < 600
