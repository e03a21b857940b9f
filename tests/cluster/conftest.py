"""A Spark standalone cluster on this machine, and our wheel."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from bench.standalone import Cluster, standalone
from infra.spark import project_root


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    """A master with two workers of three cores each."""
    with standalone(tmp_path, workers=2, cores=3) as running:
        yield running


@pytest.fixture
def wheel(tmp_path: Path) -> Path:
    """The project's wheel, built from the checkout and from nothing an earlier build left."""
    shutil.rmtree(project_root() / "build", ignore_errors=True)
    subprocess.run(
        [
            *(sys.executable, "-m", "build", "--wheel", "--no-isolation"),
            *("--outdir", str(tmp_path), str(project_root())),
        ],
        check=True,
        capture_output=True,
    )
    return next(tmp_path.glob("headgate-*.whl"))
