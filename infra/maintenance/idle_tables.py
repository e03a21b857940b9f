"""Tables that maintenance need not begin Spark for: most of them, while hardly anything comes.

A JVM that looks at all tables takes half a minute of CPU. What there is to do for a table its log
and its folder tell without one; what is done for all tables alike, as the short log, is done here.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta

from infra.config.settings import Settings
from infra.delta.data_files import ActiveFile, listed_files
from infra.delta.deleted_file_retention import remembered
from infra.delta.log_reader import newest_version
from infra.delta.retention import retention_limits
from infra.delta.schema import Table
from infra.delta.schema_evolution import described
from infra.delta.table_locations import TableLocations
from infra.errors import HeadgateError
from infra.maintenance.maintenance import Done, is_old, may_be_mixed, merge_groups, needed_interval
from infra.maintenance.retention_holds import behind, holding
from infra.process.clock import clock
from infra.storage.paths import Location, file_sizes
from infra.streaming.log_retention import forget_archived, retire

WAITING_FILES = 256
"""So many small files do not wait to be merged: a busy hour has ten times as many."""

LONGEST_UNMERGED = timedelta(hours=6)
"""For how long they may."""


def tend_idle(settings: Settings, table: Table) -> Done | None:
    """All that there is to do for a table, where that takes no Spark; None where it does.

    Also None where it cannot be told, as of a damaged log: who tends the table then names it.
    """
    places = TableLocations(settings)
    folder = places.folder(table)
    if clock.doubt():
        return None
    try:
        files = listed_files(folder, newest_version(folder))
        jobs = list(behind(settings, table.name, folder))
        kept = needed_interval(settings, table, jobs)
        if spark_work(settings, table, folder, files, kept):
            return None
        held = tuple(holding(settings, table.name, jobs, time.time()))
        with places.alone(table):
            retire(settings, folder)
        forget_archived(folder, time.time())
    except (HeadgateError, OSError, ValueError, LookupError, TypeError):
        return None
    hours = kept.total_seconds() / 3600
    return Done(table.name, files=len(files), kept_hours=hours, held=held)


def spark_work(
    settings: Settings,
    table: Table,
    folder: Location,
    files: Sequence[ActiveFile],
    kept: timedelta,
) -> str:
    """What is due for a table with these files that takes Spark; empty where nothing is.

    `kept`: how far back the files of former versions are needed.
    """
    now = datetime.now(UTC)
    applied = retention_limits(settings.retention, table, now)
    if any(is_old(file, applied) or may_be_mixed(file, applied) for file in files):
        return "rows that are older than their retention"
    if _merges(settings, table, files, now):
        return "small files"
    if kept > remembered(described(folder)):
        return "files that are needed for longer than the log remembers"
    return "files of former versions" if _strays(folder, files, now - kept) else ""


def _merges(settings: Settings, table: Table, files: Sequence[ActiveFile], now: datetime) -> bool:
    groups = merge_groups(settings, table, files)
    names = {piece.name for group in groups for piece in group}
    written = (file.written for file in files if file.name in names)
    return len(names) >= WAITING_FILES or min(written, default=now) <= now - LONGEST_UNMERGED


def _strays(folder: Location, files: Sequence[ActiveFile], before: datetime) -> bool:
    """Whether a file that is no part of the table was written before a time.

    VACUUM deletes no other; those among them that left the table later it keeps.
    """
    active = {file.name for file in files}
    names = [name for suffix in (".parquet", ".bin") for name in file_sizes(folder, suffix)]
    for name in names:
        if name in active:
            continue
        with suppress(FileNotFoundError):
            if (folder / name).stat().st_mtime < before.timestamp():
                return True
    return False
