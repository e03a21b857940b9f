"""Command `compact`: maintenance of the tables beside the jobs that run."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any

from infra.config.settings import Settings
from infra.delta.catalog import catalog, table
from infra.delta.log_reader import newest_version
from infra.delta.retention import require_sources
from infra.delta.schema import Table as Declared
from infra.delta.table_locations import TableLocations
from infra.errors import Fatal, HeadgateError, NoLakeHere
from infra.maintenance.idle_checkpoints import move_on
from infra.maintenance.idle_tables import tend_idle
from infra.maintenance.maintenance import COLUMNS, Done, tend
from infra.maintenance.retention_holds import held_up_sentence, leave
from infra.process.table_output import add_output_option, print_rows
from infra.spark.session import session
from infra.streaming.job_lock import JobLock
from infra.streaming.lake import Lake

_NICE = 10
"""Other processes of the machine go first, as the live jobs are among them."""
_MEMORY = "1g"
"""Heap of the JVM, which only reads and writes the tables' logs here."""


def build(commands: Any) -> None:
    """Register `compact`."""
    compact = commands.add_parser(
        "compact",
        help="merge small files, apply retention, delete files nobody needs any more; exit 1 when "
        "a table could not be tended, or a job that does not read on holds one up",
    )
    compact.add_argument("table", nargs="*", help="only these (default: all)")
    compact.add_argument(
        "--due",
        action="store_true",
        help="what runs on a schedule: where so little is to be done that it may wait for hours, "
        "let it, and begin no Spark",
    )
    add_output_option(compact)
    compact.set_defaults(run=_compact)


def _compact(arguments: argparse.Namespace, settings: Settings) -> int:
    tables = [table(name) for name in arguments.table] or list(catalog().values())
    there = [
        declared for declared in tables if newest_version(settings.lake_root / declared.path) >= 0
    ]
    if not there:
        raise NoLakeHere(
            f"{settings.lake_root}: there is no lake here; start the jobs or set 'lake'"
        )
    require_sources(settings)
    os.nice(_NICE)
    with ExitStack() as stack:
        lock = JobLock(settings.checkpoint_root / "upkeep", "upkeep")
        stack.callback(lock.release)
        # Before anything is deleted by our own checkpoints that another home's jobs need.
        TableLocations(settings).claim()
        for line in move_on(settings):
            print(line, file=sys.stderr)
        done = tend_idle_tables(settings, there) if arguments.due else []
        rests = {tended.table for tended in done}
        due = [declared for declared in there if declared.name not in rests]
        tended, refused = _with_spark(settings, due) if due else ([], [])
        done += tended
    _show(done, arguments.output)
    return report(settings, done, refused, whole=not arguments.table)


def tend_idle_tables(settings: Settings, tables: Sequence[Declared]) -> list[Done]:
    """Tend what takes no Spark, and say so."""
    each = (tend_idle(settings, declared) for declared in tables)
    done = [tended for tended in each if tended is not None]
    print(
        f"{len(done)} of {len(tables)} tables have little or nothing to be done: not looked at "
        f"with Spark{', which is not begun' if len(done) == len(tables) else ''}",
        file=sys.stderr,
    )
    return done


def _with_spark(
    settings: Settings, tables: Sequence[Declared]
) -> tuple[list[Done], list[HeadgateError]]:
    small = settings.spark.model_copy(update={"driver_memory": _MEMORY})
    spark = session(settings.model_copy(update={"spark": small}), "headgate-maintenance")
    try:
        return tend_all(Lake(spark, settings), tables)
    finally:
        spark.stop()


def report(
    settings: Settings,
    done: Sequence[Done],
    refused: Sequence[HeadgateError],
    *,
    whole: bool,
) -> int:
    """Say what was not done and what is held up; 1 where there is any. `whole`: of all tables."""
    held = [result for tended in done for result in tended.held]
    if whole:
        leave(settings, len(refused), held)
    sys.stdout.flush()  # the driver passes on how the log ends
    strs = [str(refusal) for refusal in refused]
    strs += [held_up_sentence(settings, held)] if held else []
    for line in strs:
        print(f"headgate: {line}", file=sys.stderr)
    return 1 if strs else 0


def tend_all(lake: Lake, tables: Sequence[Declared]) -> tuple[list[Done], list[HeadgateError]]:
    """Tend one table after the other; what was done, and why some could not be tended."""
    done: list[Done] = []
    refused: list[HeadgateError] = []
    for number, declared in enumerate(tables, 1):
        if sys.stderr.isatty():
            print(f"{number} of {len(tables)}: {declared.name}", file=sys.stderr)
        try:
            done.append(tend(lake, declared, lambda line: print(line, file=sys.stderr)))
        except HeadgateError as error:
            refused.append(error)
        except (
            Exception
        ) as error:  # one damaged file must not end the maintenance of all that follow
            lines = str(error).strip().splitlines() or ["no more is known"]
            why = f"{type(error).__name__}: {lines[0]}"
            refused.append(Fatal(f"{declared.name}: could not be tended, others were: {why}"))
    return done, refused


def _show(done: Sequence[Done], form: str) -> None:
    """Write what was done, a row a table."""
    print_rows(
        [tended.row() for tended in done],
        form,
        COLUMNS,
        shown={name: _number for name in COLUMNS if name not in ("table", "held_by")},
    )


def _number(value: float) -> str:
    return f"{value:,.1f}" if isinstance(value, float) else f"{value}"
