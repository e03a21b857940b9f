"""`headgate import`: archived logs into bronze and silver, beside the jobs that run.

Its files are decided and read as those of job `files` are (`ingest.pipeline.file_scanner`,
`ingest.pipeline.files_job`), as a job of its own: killed at any point, the same command goes
on where it was. Its events are of mode `import`, which alerts and sessions pass over.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError
from pyspark.sql import functions as F
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

from infra.config.settings import FolderSettings, Settings
from infra.errors import Usage
from infra.process.log import say
from infra.process.priority import stand_back
from infra.spark.session import session
from infra.storage.state_file import StateFile
from infra.streaming.batch import Batch
from infra.streaming.job_lock import JobLock, hold_off_backups
from infra.streaming.lake import Lake
from ingest.parsing.source import lookup
from ingest.pipeline.file_scanner import Scanner, require_some
from ingest.pipeline.files_job import FileEntry, Refusals, flow
from ingest.tables import EVENT, RECORD
from ingest.tables_quality import LANDED

IMPORT_JOB = "import"
_NICE = 10
"""Other processes of the machine go first, as the live jobs are among them."""

_Show = Callable[[str, int, int], None]
"""Hears how far a part of the work is: its name, bytes done, bytes in all (0: not known)."""


@dataclass
class Imported:
    """What an import came to."""

    files: int = 0
    known: int = 0
    refused: int = 0
    records: int = 0
    dead: int = 0
    bytes: int = 0


def take_in(
    lake: Lake,
    folder: FolderSettings,
    *,
    tell: Callable[[str], None],
    show: _Show = lambda part, done, total: None,
) -> Imported:
    """Import the files of `folder` that were not taken before, and what an earlier import left.

    Raises `Usage` when a pattern matches nothing, `Fatal` when another import runs.
    """
    checkpoint = lake.settings.checkpoint_root / IMPORT_JOB
    JobLock(checkpoint, IMPORT_JOB).release()  # says so before any file is looked at
    folders = {" ".join(folder.paths)[:200]: folder}
    require_some(lake, folders)
    result, looked = Imported(), 0

    def step(size: int) -> None:
        nonlocal looked
        looked += size
        show("looking", looked, 0)

    look = Scanner(lake, IMPORT_JOB, folders, tell).look(step)
    for path in look.waiting:
        tell(f"{path}: was written to while it was looked at; not taken, import it when it rests")
    result.known, result.refused = look.known, look.refused + len(look.waiting)
    total = lake.read(LANDED).where((F.col("job") == IMPORT_JOB) & (F.col("state") == "taken"))
    whole = int((total.agg(F.sum("size")).first() or [0])[0] or 0)
    mark = _Mark(checkpoint / "done.json")
    # Of an import that was cut off only what is left is shown.
    before = mark.bytes

    def done(run: Batch, entries: Sequence[FileEntry], refused: Refusals) -> None:
        taken = [entry for entry in entries if entry["state"] == "taken"]
        size = sum(entry["size"] for entry in taken)
        mark.put(run.batch_id, size)
        result.files += len(taken) - len(refused.unread)
        result.refused += refused.files - (len(entries) - len(taken))
        result.bytes += size
        result.records += run.rows.get(RECORD.name, 0)
        result.dead += run.counts.get("dead", 0)
        show("importing", mark.bytes - before, whole - before)

    flow(lake, IMPORT_JOB, trigger_seconds=None, done=done).wait()
    return result


@dataclass(frozen=True)
class _Taken:
    """The newest batch, and the bytes of all."""

    batch: int
    bytes: int


class _Mark:
    """How many bytes earlier batches took: for the progress shown, nothing else."""

    def __init__(self, file: Path) -> None:
        remedy = "it only says how far the import is; what is in stays in"
        self._file = StateFile(file, _Taken, remedy)
        earlier = self._file.read_or(_Taken(-1, 0), say)
        self._batch, self.bytes = earlier.batch, earlier.bytes

    def put(self, batch: int, size: int) -> None:
        """A batch is in; one that is known counts once."""
        if batch > self._batch:
            self._batch, self.bytes = batch, self.bytes + size
            self._file.write(_Taken(batch, self.bytes))


# -- command -----------------------------------------------------------------------------------


def build(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add `import` to the command."""
    parser = subparsers.add_parser(
        "import",
        help="take archived logs into the tables, without alerts",
        description="Reads archived logs, also .gz, into bronze and silver beside the running "
        "jobs. Killed or interrupted, the same command goes on where it was; a file that was "
        "taken before is not taken again.",
    )
    parser.add_argument(
        "paths", nargs="+", metavar="FILE", help="file, folder, or pattern with * and **"
    )
    parser.add_argument("--source", required=True, help="what they are: zeek:conn, sshd, ...")
    parser.add_argument("--tz", help="zone of times that name none; else that of the settings")
    parser.add_argument("--host", help="who wrote them, where the lines do not say")
    parser.add_argument("--tenant", help="whose logs they are, one of `tenants` of the settings")
    parser.set_defaults(run=import_command)


def import_command(args: argparse.Namespace, settings: Settings) -> int:
    """`headgate import`: 0 when all is in, 1 when a file was refused."""
    lookup(args.source)
    if args.tenant is not None and args.tenant not in settings.tenants:
        raise Usage(f"--tenant {args.tenant}: no such tenant; list it in tenants of the settings")
    try:
        folder = FolderSettings(
            paths=tuple(args.paths),
            source=args.source,
            tz=args.tz,
            host=args.host,
            mode="import",
            # An archive is finished; what still grows is noticed by its hash.
            min_file_age_seconds=0,
            tenant=args.tenant,
        )
    except ValidationError as error:
        raise Usage(f"--tz {args.tz}: {error.errors()[0]['msg']}") from None
    # What is no pattern can be looked for before Spark starts.
    for path in args.paths:
        if "://" not in path and not set(path) & set("*?[{") and not os.path.exists(path):
            raise Usage(f"{path}: there is no such file or folder; name one, or a pattern")
    with ExitStack() as stack:
        # Files are looked at, and noted in a table, before the job has its lock.
        stack.callback(hold_off_backups(settings.checkpoint_root, f"job {IMPORT_JOB}").release)
        stand_back(_NICE)
        spark = session(settings, "headgate import")
        stack.callback(spark.stop)
        lake = Lake(spark, settings).ensure(RECORD, EVENT, LANDED)
        with _progress() as show:
            take = take_in(lake, folder, tell=_say, show=show)
    _say(
        f"{take.files} files, {take.bytes:,} bytes, {take.records:,} records, {take.dead:,} "
        f"dead letters; {take.known} files were in already, {take.refused} refused"
    )
    return 1 if take.refused else 0


def _say(sentence: str) -> None:
    print(sentence, file=sys.stderr, flush=True)


@contextmanager
def _progress() -> Iterator[_Show]:
    """A bar on stderr where a person looks at it."""
    if not sys.stderr.isatty():
        yield lambda part, done, total: None
        return
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn())
    with Progress(*columns, TimeRemainingColumn(), console=Console(stderr=True)) as bar:
        task = bar.add_task("looking", total=None)

        def show(part: str, done: int, total: int) -> None:
            bar.update(task, description=part, completed=done, total=total or None)

        yield show
