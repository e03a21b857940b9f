"""A Spark standalone cluster on this machine, and our wheel."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from bench.standalone import Cluster, standalone
from infra.spark.auth import page_key
from infra.spark.session import project_root

SECRET = "shared-by-drivers-and-workers-0123456789"


@pytest.fixture
def secret_file(tmp_path: Path) -> Path:
    """What `spark.secret_file` names."""
    file = tmp_path / "secret"
    file.touch(0o600)
    file.write_text(f"{SECRET}\n")
    return file


@pytest.fixture
def conf(tmp_path: Path) -> Path:
    """Settings of master and workers, with a secret and a key in the form we bring; the token of
    their pages lies beside them."""
    folder = tmp_path / "conf"
    folder.mkdir(mode=0o700)
    form = project_root() / "infra" / "deploy" / "standalone" / "spark-defaults.conf"
    told = re.sub(r"\bSECRET$", SECRET, form.read_text("utf-8"), flags=re.M)
    told = re.sub(r"\bKEY$", page_key(folder / "pages.token"), told, flags=re.M)
    (folder / "spark-defaults.conf").write_text(told)
    return folder


@pytest.fixture
def cluster(tmp_path: Path, conf: Path) -> Iterator[Cluster]:
    """A master with two workers of three cores each, not on the address of the pages."""
    with standalone(tmp_path, workers=2, cores=3, conf=conf, host="127.0.0.2") as running:
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
