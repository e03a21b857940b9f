"""A wheel brings what the commands read: the demo's story, the lab's recording, the lessons,
rules, pages, and the figures that `headgate capacity` goes by."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import tomllib
import venv
import zipfile
from fnmatch import fnmatch
from importlib.metadata import version
from pathlib import Path

import pytest

from infra.kafka.client import free_port
from infra.process import java_jars
from infra.spark.session import project_root

FOLDERS = ("samples/demo", "samples/lab/benign_day", "notebooks", "bench/results")
PACKAGES = ("headgate", "infra", "ingest", "enrich", "alerts", "reporting", "api")
FOR_A_CHECKOUT = ("infra/deploy",)
"""Forms to copy from a checkout; of them the wheel has systemd's units and settings."""
LOOK = """
import sys, tomllib
from pathlib import Path
from headgate.demo.demo import STORY
plan = tomllib.loads((STORY / "plan.toml").read_text())
lacking = [each["file"] for each in plan["input"] if not (STORY / each["file"]).exists()]
assert not lacking, lacking
from headgate.lab.windows_logs import RECORDED
from headgate.notebook_command import LESSONS
print(len(list(STORY.glob("*.log"))), RECORDED.exists(), len(list(LESSONS.glob("*.ipynb"))))
from fastapi.testclient import TestClient
import headgate.packages
from api.app import create_app
from infra.config.settings import load
with TestClient(create_app(load(home=Path("home").absolute()))) as client:
    page = client.get("/login")
    style = next(part for part in page.text.split('"') if ".css" in part)
    print(page.status_code, client.get(style).status_code)
print(Path(headgate.__file__).is_relative_to(sys.prefix))
"""


def files_of(folder: str) -> list[Path]:
    """What of a folder is in Git's charge: no cache of Python, no state of an editor."""
    known = (project_root() / folder).iterdir()
    return sorted(file for file in known if file.is_file() and not file.name.startswith("."))


@pytest.mark.parametrize("folder", FOLDERS)
def test_each_file_that_a_command_reads_is_declared_for_the_wheel(folder: str) -> None:
    setup = tomllib.loads((project_root() / "pyproject.toml").read_text())["tool"]["setuptools"]
    package = folder.replace("/", ".")
    assert package in setup["packages"]["find"]["include"]
    patterns = [*setup["package-data"]["*"], *setup["package-data"][package], "*.py"]
    for file in files_of(folder):
        assert any(fnmatch(file.name, pattern) for pattern in patterns), file


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    # Of a copy: a build leaves its own files, and takes those of an earlier one for the newest.
    copy = folder / "checkout"
    left = shutil.ignore_patterns(".*", "__pycache__", "build", "dist", "*.egg-info", "docs")
    shutil.copytree(project_root(), copy, ignore=left)
    build = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(folder)]
    subprocess.run(build, cwd=copy, check=True, capture_output=True, timeout=600)
    return next(folder.glob("headgate-*.whl"))


@pytest.mark.full
def test_the_wheel_has_each_file_of_the_packages(wheel: Path) -> None:
    root = project_root()
    with zipfile.ZipFile(wheel) as packed:
        there = set(packed.namelist())
    kept = [
        str(file.relative_to(root))
        for package in PACKAGES
        for file in (root / package).rglob("*")
        if file.is_file() and "__pycache__" not in file.parts and not file.name.startswith(".")
    ]
    lacking = [name for name in kept if name not in there]
    assert [name for name in lacking if not name.startswith(FOR_A_CHECKOUT)] == []
    assert "infra/deploy/systemd/headgate.service" in there
    assert {"alerts/mapping/base.yml", "tests/conftest.py"} & there == {"alerts/mapping/base.yml"}


@pytest.mark.full
def test_in_an_environment_of_its_own_the_wheel_is_all_that_the_commands_need(
    wheel: Path, tmp_path: Path
) -> None:
    """As `pipx` installs it. Only what it depends on is that of the tests."""
    place = tmp_path / "venv"
    venv.create(place, with_pip=False, symlinks=True)
    pip = [sys.executable, "-m", "pip", "--python", str(place / "bin" / "python"), "install"]
    subprocess.run([*pip, "-q", "--no-index", "--no-deps", str(wheel)], check=True, timeout=120)
    (site,) = (place / "lib").glob("python*/site-packages")
    # A folder that a .pth names comes last, and the .pth of our checkout in it is not read.
    (site / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    ours = {
        "HEADGATE_JARS": str(java_jars.jars_folder()),
        "HEADGATE_KAFKA__BOOTSTRAP": f"127.0.0.1:{free_port()}",
        "HOME": str(tmp_path),
    }
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("HEADGATE_", "PYTHON"))}

    def run(program: str, *words: str, ends: tuple[int, ...] = (0,)) -> str:
        done = subprocess.run(
            [str(place / "bin" / program), *words],
            cwd=tmp_path,
            env=clean | ours,
            capture_output=True,
            text=True,
            timeout=300,
        )
        assert done.returncode in ends, done.stderr
        return done.stdout

    assert run("headgate", "--version").split() == ["headgate", version("headgate")]
    # Ill may be what the machine has free just now.
    examined = json.loads(run("headgate", "doctor", "--output", "json", ends=(0, 1)))
    looked_at = {row["what"]: row for row in examined}
    assert looked_at["java"]["remedy"] is None
    assert looked_at["archives"]["state"].startswith(f"{len(java_jars.locked())} of ")
    assert looked_at["kafka"]["remedy"] is not None
    rules = json.loads(run("headgate", "rules", "list", "--output", "json"))
    assert len(rules) >= len(list((project_root() / "alerts" / "rules").glob("*.yml")))
    assert "cores" in run("headgate", "capacity", "--events-per-second", "1000")
    assert "windows_nxlog" in run("headgate", "lab", "write", "day", "--hours", "1")
    looked = run("python", "-c", LOOK).splitlines()
    logs = len(list((project_root() / "samples/demo").glob("*.log")))
    assert looked == [f"{logs} True 11", "200 200", "True"]
