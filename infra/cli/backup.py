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
from infra.errors import Usage
from infra.maintenance.backup import Show, backup, left_at
from infra.maintenance.damaged_files import PutBack, put_back_damaged
from infra.maintenance.restore import restore
from infra.streaming.outbox import note_audit


def build(commands: Any) -> None:
    """Register the commands."""
    backups = commands.add_parser("backup", help="copy all that is kept, or put a copy back")
    verbs = backups.add_subparsers(dest="verb", required=True)
    made = verbs.add_parser("create", help="copy all that is kept; no job may run")
    made.add_argument("folder", type=Path, help="where the backup's own folder is made")
    made.set_defaults(run=_backup)
    back = verbs.add_parser("restore", help="put a backup back, onto an empty home")
    back.add_argument("backup", type=Path, help="the folder that 'headgate backup create' named")
    back.add_argument(
        "--damaged",
        action="store_true",
        help="put back only files of tables that are damaged or gone, into a home in use",
    )
    back.add_argument(
        "--table",
        action="append",
        metavar="TABLE",
        help="with --damaged: look at this table alone (repeatable)",
    )
    back.set_defaults(run=_restore)


def _backup(arguments: argparse.Namespace, settings: Settings) -> int:
    with _bar() as show:
        made = backup(settings, arguments.folder, show)
    print(made)
    if (left := left_at(made)) is not None:
        print(left, file=sys.stderr)
    return 0


def _restore(arguments: argparse.Namespace, settings: Settings) -> int:
    if arguments.damaged:
        return _put_back(arguments, settings)
    if arguments.table:
        raise Usage("--table: goes with --damaged; a backup is restored as a whole")
    with _bar() as show:
        files = restore(settings, arguments.backup, show)
    print(f"{files} files restored; 'headgate gaps' says what the broker lacks", file=sys.stderr)
    return 0


def _put_back(arguments: argparse.Namespace, settings: Settings) -> int:
    made, tables, done = arguments.backup, arguments.table or (), PutBack()
    try:
        with _bar() as show:
            put_back_damaged(settings, made, tables, show, done)
    finally:
        # Also of those before one that could not be put back.
        _note_put_back(settings, made, done)
    younger = f"; {done.not_in_backup} are not in the backup" if done.not_in_backup else ""
    print(
        f"{done.compared} files of tables compared, {len(done.files)} put back{younger}",
        file=sys.stderr,
    )
    return 0


def _note_put_back(settings: Settings, made: Path, done: PutBack) -> None:
    for name in done.files:
        print(f"{settings.lake_root / name}: put back", file=sys.stderr)
    if done.files:
        spool = settings.home.absolute() / "spool"
        note_audit(spool, "backup.put_back", str(made), {"files": done.files})


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
