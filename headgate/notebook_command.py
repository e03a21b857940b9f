"""`headgate notebook`: Jupyter on the notebooks, with the lake of these settings."""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from headgate.homes import require_lake
from infra.config.settings import Settings
from infra.errors import Usage
from infra.spark.session import project_root

LESSONS = project_root() / "notebooks"


def build(subparsers: Any) -> None:
    """Add the command; it sets `run`, called with the arguments and the settings."""
    command = subparsers.add_parser(
        "notebook",
        help="open the lessons in Jupyter",
        description="Copies the lessons that are missing into a folder and opens Jupyter on it.",
    )
    command.add_argument(
        "--folder", type=Path, help="where the lessons go (default: <home>/notebooks)"
    )
    command.add_argument("--no-browser", action="store_true", help="only print the address")
    command.set_defaults(run=run_notebook)


def run_notebook(args: argparse.Namespace, settings: Settings) -> int:
    """Start Jupyter until Ctrl-C; raises `Usage` where there is no lake, or no Jupyter."""
    require_lake(settings)
    if find_spec("jupyterlab") is None:
        raise Usage("Jupyter is not installed; pip install 'headgate[notebooks]' brings it")
    folder: Path = args.folder or settings.home.absolute() / "notebooks"
    copy_lessons(folder)
    words = [sys.executable, "-m", "jupyterlab", str(folder)]
    done = subprocess.run(
        [*words, "--no-browser"] if args.no_browser else words,
        # By the environment: the kernel is a process of its own and knows nothing of these
        # settings.
        env=os.environ | environment_of(settings),
        check=False,
    )
    return done.returncode


def copy_lessons(folder: Path) -> list[Path]:
    """The lessons that were not there yet: what a person changed stays as it is."""
    if not LESSONS.is_dir():
        raise Usage(
            f"{LESSONS} is not there: this installation is not whole; install headgate again"
        )
    folder.mkdir(parents=True, exist_ok=True)
    new = [path for path in sorted(LESSONS.glob("*.ipynb")) if not (folder / path.name).exists()]
    return [Path(shutil.copy(path, folder / path.name)) for path in new]


def environment_of(settings: Settings) -> dict[str, str]:
    """What makes `headgate.open()` in a notebook open the lake of these settings."""
    config = os.environ.get("HEADGATE_CONFIG")
    # Absolute, since Jupyter's kernels run in the folder of their notebook.
    named = {"HEADGATE_CONFIG": str(Path(config).absolute())} if config else {}
    return {"HEADGATE_HOME": str(settings.home.absolute())} | named
