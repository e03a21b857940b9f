"""Keeping tables small and quick beside the running streams.

Small files become large ones in commits that change no data, so streams pass over them;
what is older than its retention is taken out; and files that no version a reader or a
stream may still need are deleted.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from delta.tables import DeltaTable

from infra.config.settings import Settings
from infra.delta import retention as expired
from infra.delta.catalog import catalog
from infra.delta.data_files import ActiveFile
from infra.delta.deleted_file_retention import remembered
from infra.delta.parquet_writer import MERGED, DataFile, FileWriter, Target, whole_schema
from infra.delta.retention import NEVER, Applied
from infra.delta.schema import Table
from infra.delta.schema_evolution import described
from infra.delta.transaction import Moved, active_files, as_old
from infra.maintenance.compaction_plan import SPANS, CompactionPiece, plan, plan_in_spans
from infra.maintenance.retention_holds import Behind, RetentionHold, behind, holding
from infra.process.clock import clock
from infra.storage.paths import Location, delete, file_sizes, to_read
from infra.streaming.lake import Lake
from infra.streaming.log_retention import forget_archived, retire

_RECEIVED = "received_at"
FULL_ROWS = 250_000
"""A file of so many rows is large, whatever its bytes: some 0.6 GB of events while merged."""
_MARGIN = timedelta(hours=1)
"""Kept beyond what a stream needs: the file's clock and ours may differ a little."""

Say = Callable[[str], None]


@dataclass
class Done:
    """What maintenance did to a table, in files; bytes are of files deleted from disk."""

    table: str
    files: int = 0
    """Before."""
    merged: int = 0
    made: int = 0
    expired: int = 0
    deleted: int = 0
    freed: int = 0
    kept_hours: float = 0.0
    """How far back the files of former versions were kept."""
    held: tuple[RetentionHold, ...] = ()
    """Jobs that hold it up."""

    def row(self) -> dict[str, Any]:
        """What is shown of it, under the names of `COLUMNS`."""
        jobs = ", ".join(hold.job for hold in self.held)
        return {name: getattr(self, name) for name in COLUMNS[:-1]} | {COLUMNS[-1]: jobs}


COLUMNS = (*(column.name for column in fields(Done) if column.name != "held"), "held_by")


def tend(lake: Lake, table: Table, say: Say = lambda line: None) -> Done:
    """Everything for one table. What somebody else changes meanwhile is left for the next time.

    After a jump of the clock nothing is done: what was just written would look old.
    """
    done = Done(table.name, files=len(active_files(lake.spark, lake.path(table))))
    if doubt := clock.doubt():
        say(f"{table.name}: left as it is, {doubt}")
        return done
    # Before merging: rows that go are not written once more.
    done.expired = expire(lake, table, datetime.now(UTC), say)
    done.merged, done.made = merge_small_files(lake, table, say)
    jobs = list(behind(lake.settings, table.name, lake.folder(table)))
    done.held = tuple(holding(lake.settings, table.name, jobs, time.time()))
    kept = needed_interval(lake.settings, table, jobs)
    done.kept_hours = kept.total_seconds() / 3600
    done.deleted, done.freed = _vacuumed(lake, table, kept, jobs, say)
    with lake.alone(table):
        retire(lake.settings, lake.folder(table))
    forget_archived(lake.folder(table), time.time())
    return done


# -- small files -----------------------------------------------------------------------------------


def merge_small_files(lake: Lake, table: Table, say: Say = lambda line: None) -> tuple[int, int]:
    """Make large files of small ones; how many were merged, and into how many."""
    active = {file.name: file for file in active_files(lake.spark, lake.path(table))}
    merged = made = 0
    for group in merge_groups(lake.settings, table, list(active.values())):
        files = [active[piece.name] for piece in group]
        if _rewritten(lake, table, files, data_change=False):
            merged, made = merged + len(files), made + 1
        else:
            say(f"{table.name}: {len(files)} files were changed by somebody else; next time")
    return merged, made


def merge_groups(
    settings: Settings, table: Table, files: Sequence[ActiveFile]
) -> list[tuple[CompactionPiece, ...]]:
    """Which of a table's files become one, by their names."""
    target = settings.maintenance.file_mb * 2**20
    pieces = [
        CompactionPiece(file.name, weight(file, target), _millis(file.newest(_RECEIVED)))
        for file in files
        if not file.has_deletions  # the file alone does not tell which rows are true
    ]
    days = getattr(settings.retention, table.expires) if table.expires else 0
    if not days:
        return plan(pieces, target)
    span = max(1, int(days * 86_400_000 / SPANS))
    return plan_in_spans(pieces, target, span, _millis(datetime.now(UTC)))


def _millis(at: datetime) -> int:
    return int(at.timestamp() * 1000)


def weight(file: ActiveFile, target: int) -> int:
    """How large a file counts: by its bytes, or by its rows where these are the most it may have.

    What is merged lies in memory as a whole, and an event takes there twenty times its bytes.
    """
    return max(int(file.entry["size"]), file.rows * target // FULL_ROWS)


def _rewritten(
    lake: Lake,
    table: Table,
    files: Sequence[ActiveFile],
    *,
    data_change: bool,
    keeps: Callable[[pa.Table], pa.Table] = lambda rows: rows,
) -> bool:
    """Put one file with the rows that `keeps` leaves in the place of `files`; False if `Moved`.

    It is as old as they were: rows that are kept for so many days do not begin anew.
    """
    target = Target.of(table, lake.folder(table), f"upkeep-{uuid.uuid4().hex[:8]}-")
    file = write_merged(keeps(_rows(lake, table, files)), table, target)
    try:
        added = [as_old(file, files)] if file else []
        lake.replace(
            table, files, added, json.dumps({"upkeep": "rewrite"}), data_change=data_change
        )
    except Moved:
        _unlink(lake.folder(table), added)
        return False
    return True


def write_merged(rows: pa.Table, table: Table, target: Target) -> DataFile | None:
    """Write all `rows` as one file in the table's order; None where there are none.

    Of the columns of `rows`, not the declared ones: those of a newer release stay.
    """
    if table.cluster_by:
        rows = _sorted(rows, table.cluster_by)
    # Written once and kept for long: zstd takes half of the disk for the same CPU (decision 0043).
    whole = replace(target, schema=rows.schema, groups=MERGED, codec="zstd", zstd=())
    writer = FileWriter(whole)
    try:
        for batch in rows.combine_chunks().to_batches(max_chunksize=MERGED.rows):
            writer.write(batch)
        return writer.close()
    except BaseException:
        writer.discard()
        raise


def _rows(lake: Lake, table: Table, files: Sequence[ActiveFile]) -> pa.Table:
    """All rows of some files, in the table's columns; one a file lacks is null."""
    read = [pq.ParquetFile(to_read(lake.folder(table) / file.name)).read() for file in files]
    schema = whole_schema(table, [held.schema for held in read])
    parts = []
    for held in read:
        columns = [
            held.column(field.name).cast(field.type)
            if field.name in held.column_names
            else pa.nulls(held.num_rows, field.type)
            for field in schema
        ]
        parts.append(pa.Table.from_arrays(columns, schema=schema))
    return pa.concat_tables(parts)


def _sorted(rows: pa.Table, names: Sequence[str]) -> pa.Table:
    order = pc.sort_indices(rows, [(name, "ascending") for name in names])
    # Of an event most columns are null, and to put nulls in order took a quarter of a merge.
    columns = [
        column if column.null_count == len(column) else column.take(order)
        for column in rows.columns
    ]
    return pa.Table.from_arrays(columns, schema=rows.schema)


def _unlink(folder: Location, files: Sequence[DataFile]) -> None:
    delete(folder / file.name for file in files)


# -- retention -------------------------------------------------------------------------------------


def expire(lake: Lake, table: Table, now: datetime, say: Say = lambda line: None) -> int:
    """Take out what is older than its retention; how many files went or were written anew."""
    limits = expired.retention_limits(lake.settings.retention, table, now)
    if limits == Applied():
        return 0
    gone, mixed = [], []
    for file in active_files(lake.spark, lake.path(table)):
        if is_old(file, limits):
            gone.append(file)
        elif may_be_mixed(file, limits):
            mixed.append(file)
    if gone or mixed:
        # Before: who comes upon the rows' absence must find why.
        expired.note_retention(lake.folder(table), limits)
    done = 0
    if gone:
        try:
            lake.replace(table, gone, [], json.dumps({"upkeep": "retention"}))
            done += len(gone)
        except Moved:
            say(f"{table.name}: files were changed by somebody else; next time")
    for file in mixed:
        done += _without_old(lake, table, file, limits)
    return done


def _without_old(lake: Lake, table: Table, file: ActiveFile, limits: Applied) -> bool:
    held = pq.ParquetFile(to_read(lake.folder(table) / file.name)).read(["source", _RECEIVED])
    if not pc.any(_old(held, limits)).as_py():
        return False
    return _rewritten(
        lake,
        table,
        [file],
        data_change=True,
        keeps=lambda rows: rows.filter(pc.invert(_old(rows, limits))),
    )


def is_old(file: ActiveFile, limits: Applied) -> bool:
    """Whether all rows of a file go. Where the log tells no arrival, it was written later."""
    return limits.every is not None and file.newest(_RECEIVED) < limits.every


def may_be_mixed(file: ActiveFile, limits: Applied) -> bool:
    """Whether a file may have old rows of a source, or family, with a retention of its own."""
    return not file.has_deletions and any(
        # Sources of a family lie between its name and the last text that begins with `name:`.
        file.may_hold("source", name, name if ":" in name else f"{name}:\U0010ffff")
        and file.may_hold(_RECEIVED, NEVER, limit)
        for name, limit in limits.sources.items()
    )


def _old(rows: pa.Table, limits: Applied) -> pa.Array:
    """Which rows are older than their own source's retention."""
    array = pa.array([False] * rows.num_rows)
    cast = rows[_RECEIVED].cast(pa.timestamp("us", "UTC"))  # files of Spark itself say neither
    for source in pc.unique(rows["source"]).drop_null().to_pylist():
        if (limit := limits.own(source)) is not None:
            ours = pc.fill_null(pc.equal(rows["source"], source), False)
            before = pc.fill_null(pc.less(cast, pa.scalar(limit)), False)
            array = pc.or_(array, pc.and_(ours, before))
    return array


# -- files of former versions ----------------------------------------------------------------------


def retention_interval(settings: Settings, table: Table, folder: Location) -> timedelta:
    """How far back the files of former versions are needed.

    By readers, as long as the settings promise; by each stream, as far as it is behind: its
    next batch reads files that were added then, also those that were merged since.
    """
    return needed_interval(settings, table, list(behind(settings, table.name, folder)))


def needed_interval(settings: Settings, table: Table, jobs: Sequence[Behind]) -> timedelta:
    """The same, where it is known which jobs are behind."""
    promised = timedelta(hours=settings.maintenance.keep_hours)
    promised = min(promised, table.rewritten or promised)
    # After `rewritten`: what a table must keep outranks what it may drop early.
    promised = max(promised, table.kept)
    return max([promised, *(timedelta(seconds=time.time() - job.since) + _MARGIN for job in jobs)])


def _vacuumed(
    lake: Lake, table: Table, kept: timedelta, jobs: Sequence[Behind], say: Say
) -> tuple[int, int]:
    """VACUUM, unless the log has forgotten files that are still needed."""
    span = remembered(described(lake.folder(table)))
    if kept <= span:
        return vacuum(lake, table, kept)
    first = time.time() - (span - _MARGIN).total_seconds()
    late = ", ".join(job.job for job in jobs if job.since < first)
    until = (
        f"of these jobs has caught up: {late}"
        if late
        else "job was started once with maintenance.keep_hours as it is now"
    )
    say(
        f"{table.name}: what left it in the last {kept.days} days is still needed, and its log "
        f"tells that for {span.days} days only: nothing is deleted until each {until}"
    )
    return 0, 0


def vacuum(lake: Lake, table: Table, kept: timedelta) -> tuple[int, int]:
    """Delete files that left the table longer ago than `kept`; how many, and their bytes."""
    folder = lake.folder(table)
    # Counted before and after, as VACUUM itself does not return what it deleted.
    before = file_sizes(folder, ".parquet")
    spark = lake.spark
    # Our own rule stands in for Delta's floor of a week; and its notes in the log would be
    # commits of a second writer, which a local file system does not keep apart from ours.
    with _conf(lake, "retentionDurationCheck.enabled"), _conf(lake, "vacuum.logging.enabled"):
        DeltaTable.forPath(spark, str(folder)).vacuum(kept.total_seconds() / 3600)
    after = file_sizes(folder, ".parquet")
    gone = [size for name, size in before.items() if name not in after]
    return len(gone), sum(gone)


@contextmanager
def _conf(lake: Lake, name: str) -> Iterator[None]:
    """Delta's switch `name` off, while inside."""
    key, conf = f"spark.databricks.delta.{name}", lake.spark.conf
    before = conf.get(key, None)
    conf.set(key, "false")
    try:
        yield
    finally:
        if before is None:
            conf.unset(key)
        else:
            conf.set(key, before)


def _tables() -> tuple[Table, ...]:
    """All tables that are tended."""
    return tuple(catalog().values())
