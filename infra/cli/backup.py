"""Commands `backup create` and `backup restore`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TimeRemainingColumn

from infra.config.settings import Settings
from infra.maintenance.backup import Show, backup, left_at
from infra.maintenance.restore import restore


def build(commands: Any) -> None:
    """Register the commands."""
    backups = commands.add_parser("backup", help="copy all that is kept, or put a copy back")
    verbs = backups.add_subparsers(dest="verb", required=True)
    made = verbs.add_parser("create", help="copy all that is kept; no job may run")
    made.add_argument("folder", type=Path, help="where the backup's own folder is made")
    made.set_defaults(run=_backup)
    back = verbs.add_parser("restore", help="put a backup back, onto an empty home")
    back.add_argument("backup", type=Path, help="the folder that 'headgate backup create' named")
    back.set_defaults(run=_restore)


def _backup(arguments: argparse.Namespace, settings: Settings) -> int:
    with _bar() as show:
        made = backup(settings, arguments.folder, show)
    print(made)
    if (left := left_at(made)) is not None:
        print(left, file=sys.stderr)
    return 0


def _restore(arguments: argparse.Namespace, settings: Settings) -> int:
    with _bar() as show:
        files = restore(settings, arguments.backup, show)
    print(f"{files} files restored; 'headgate gaps' says what the broker lacks", file=sys.stderr)
    return 0


@contextmanager
def _bar() -> Iterator[Show]:
    """A bar of bytes, where stderr is a terminal."""
    if not sys.stderr.isatty():
        yield lambda done, total: None
        return
    columns = (BarColumn(), DownloadColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)
