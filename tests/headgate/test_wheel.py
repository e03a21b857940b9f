"""A wheel brings what the commands read: the demo's story, the lab's recording, the lessons."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tomllib
import zipfile
from fnmatch import fnmatch
from pathlib import Path

import pytest

from infra.spark.session import project_root

FOLDERS = ("samples/demo", "samples/lab/benign_day", "notebooks")
LOOK = """
from headgate.demo.demo import STORY
import tomllib
plan = tomllib.loads((STORY / "plan.toml").read_text())
lacking = [each["file"] for each in plan["input"] if not (STORY / each["file"]).exists()]
assert not lacking, lacking
from headgate.lab.windows_logs import RECORDED
from headgate.notebook_command import LESSONS
print(len(list(STORY.glob("*.log"))), RECORDED.exists(), len(list(LESSONS.glob("*.ipynb"))))
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


@pytest.mark.full
def test_an_installed_wheel_finds_them_beside_its_code(tmp_path: Path) -> None:
    # Of a copy: a build leaves its own files, and takes those of an earlier one for the newest.
    copy = tmp_path / "checkout"
    left = shutil.ignore_patterns(".*", "__pycache__", "build", "dist", "*.egg-info", "docs")
    shutil.copytree(project_root(), copy, ignore=left)
    build = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(tmp_path)]
    subprocess.run(build, cwd=copy, check=True, capture_output=True, timeout=600)
    with zipfile.ZipFile(next(tmp_path.glob("headgate-*.whl"))) as wheel:
        wheel.extractall(tmp_path / "site")
    done = subprocess.run(
        [sys.executable, "-c", LOOK],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(tmp_path / "site")},
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    logs, lessons = len(list((project_root() / "samples/demo").glob("*.log"))), 11
    assert done.stdout.split() == [str(logs), "True", str(lessons)]
