"""Streaming queries over a lake: how tables are read, and a batch is written once.

Delta's own `txnAppId` makes each micro-batch rebuild the state of the whole
snapshot, so on one machine a batch is appended plainly and its commit carries a
marker of ours; see decision 0001.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Literal

from pyspark.sql import Column, DataFrame, Observation, Row, SparkSession
from pyspark.sql import functions as F

from infra.checkpoint.integrity import newest_written
from infra.config.settings import Settings
from infra.delta.log_archive import modified
from infra.delta.log_reader import (
    commit,
    live_versions,
    newest_first,
    newest_version,
    oldest_version,
    table_id,
)
from infra.delta.parquet_writer import (
    DataFile,
    Target,
    collected,
    write_parquet,
)
from infra.delta.schema import Table
from infra.delta.table_lock import table_locked
from infra.delta.tables import DeltaTables
from infra.delta.time_travel import bring_back
from infra.delta.transaction import commit_files
from infra.errors import Fatal
from infra.process.clock import clock
from infra.process.log import say
from infra.process.wake_signal import COMMITTED
from infra.storage.paths import Location, beginning, delete, path_of, tables_below
from infra.streaming.admission import ALL, Intake
from infra.streaming.batch import Batch, Work
from infra.streaming.checkpoint_sources import adopt
from infra.streaming.job import Job, start_job
from infra.streaming.log_retention import first_versions_asked, retire
from infra.streaming.outbox import note_audit

_RECENT = 20
"""So many of a table's newest commits are looked at before a job reads it: what a power cut
damages is among them."""

RETIRE_EVERY = 50
"""After so many commits those that everybody has read leave the log."""

_ALL = "all rows"

CLOCK_SECONDS = 3600
"""How far the clock may have been set back between two files whose times are compared."""


class Lake(DeltaTables):
    """A lake's tables, and the queries that read and write them as they grow."""

    def __init__(self, spark: SparkSession, settings: Settings) -> None:
        super().__init__(spark, settings)
        self._intakes: dict[str, Intake] = {}

    @property
    def spool(self) -> Path:
        """Where rows wait to be folded into tables (see `infra.streaming.outbox`)."""
        return self.settings.home.absolute() / "spool"

    def stream(
        self,
        table: Table,
        files_per_batch: int = ALL,
        *,
        job: str | None = None,
        only_new: bool = False,
    ) -> DataFrame:
        """The table's rows as they are appended, from its beginning.

        `job`: whose batches take whole commits, as many as memory allows
        (`infra.streaming.admission`); none: `files_per_batch` at most. `only_new`: where there is
        no checkpoint, what comes from now on.

        Rewrites (compaction, reparse, erasure) are passed over. A stream that
        lags behind the log's retention fails and says so rather than skip. Raises `Fatal` when
        one of the newest commits is damaged: Delta takes an empty one for a commit without rows.
        """
        for version in live_versions(self.folder(table))[-_RECENT:]:
            # Read for its checks alone; one that leaves for the archive meanwhile was whole.
            with suppress(FileNotFoundError):
                commit(self.folder(table), version)
        if job is not None and self.settings.jobs.adaptive:
            # One for all inputs of a job, as they share what a batch may take.
            intake = self._intakes.setdefault(job, Intake(job, self.settings))
            files_per_batch = intake.first(self.folder(table))
        reader = (
            self.spark.readStream.format("delta")
            # Without it a stream fails at the first commit that rewrites rows, such as an erasure.
            .option("skipChangeCommits", "true")
            .option("maxFilesPerTrigger", files_per_batch)
        )
        if only_new:
            reader = reader.option("startingVersion", "latest")
        rows = reader.load(self.path(table))
        # What a newer release added would else get into the state of joins, for good.
        declared = [column.name for column in table.columns]
        return rows if set(rows.columns) <= set(declared) else rows.select(*declared)

    def each_batch(
        self,
        job: str,
        rows: DataFrame,
        work: Work,
        *,
        trigger_seconds: float | None,
        output_mode: Literal["append", "update"] = "append",
        begun: Callable[[], object] = lambda: None,
    ) -> Job:
        """Run `work` on each micro-batch of `rows` as job `job` (see `start_job`).

        `begun` is called when the job is ours and its checkpoint sound, before its first batch.
        Raises `Fatal` when a table lacks a batch that the checkpoint has as written, or the
        checkpoint is of a job that reads other tables.
        """
        # Before anything runs: once a batch is in, the tables no longer show what they lacked.
        self._require_written(job)
        # Before the query is made: Spark lists the last batch of a checkpoint again as it starts.
        self._bring_back(job)

        def before() -> None:
            adopt(job, rows, self.settings.checkpoint_root / job)
            begun()

        return start_job(
            job,
            rows,
            work,
            checkpoints=self.settings.checkpoint_root,
            spool=self.spool / "ledger",
            trigger_seconds=trigger_seconds,
            attempts=self.settings.jobs.max_batch_failures,
            before=before,
            output_mode=output_mode,
            intake=self._intakes.pop(job, None),
        )

    def append(
        self,
        rows: DataFrame,
        table: Table,
        run: Batch,
        counts: Mapping[str, Column] | None = None,
    ) -> bool:
        """Append a batch's rows to a table, once; False when the table has them already.

        `counts`: aggregates over the rows, measured while they are written and
        kept in the batch's ledger row. Raises `Fatal` when the table's log
        contradicts the checkpoint or is too short to tell.
        """
        aggregates = [how.alias(name) for name, how in (counts or {}).items()]
        if self.has(table, run):
            # Also a batch whose rows are there is worked through: only so its state is committed,
            # and Spark refuses a batch of which it was not.
            run.counts |= _whole(rows.agg(*aggregates, F.count("*").alias(_ALL)).first())
            del run.counts[_ALL]
            return False
        # Counted while it is written: a second action would compute the batch twice.
        watch = Observation()
        watched = rows.observe(watch, *aggregates) if aggregates else rows
        ordered = watched.select(*[column.name for column in table.columns])
        write = partial(write_parquet, target=self.target(table, run))
        self.commit(table, run, collected(ordered, write))
        if aggregates:
            run.counts |= _whole(watch.get)
        return True

    def has(self, table: Table, run: Batch) -> bool:
        """Whether a table holds a batch already, as after a crash between two commits.

        Raises `Fatal` when the table's log contradicts the checkpoint or is too short to tell.
        """
        # Batch numbers repeat only after a restart: the first batch of a run pays for reading
        # the log.
        if not run.look_back:
            return False
        if self._has(table, run):
            run.replayed = True
            return True
        # Of an attempt that came to no commit.
        delete(beginning(self.folder(table), _prefix(run)))
        return False

    def target(self, table: Table, run: Batch) -> Target:
        """How workers write a batch's files of a table, before `commit` makes them part of it."""
        return Target.of(table, self.folder(table), _prefix(run))

    def commit(self, table: Table, run: Batch, files: Sequence[DataFile]) -> None:
        """Make files that workers wrote part of a table, in one commit that names the batch.

        The caller has asked `has` before. A batch without rows is a commit without
        files: only so can a restart tell that it was done.
        """
        with self.alone(table):
            began = clock.time()
            version = commit_files(self.spark, self.path(table), files, run.metadata)
            run.commits.append((table.name, began, clock.time()))
            run.versions[table.name] = version
            # Under the same lock, and seldom: listing a log costs more the longer it is.
            if version % RETIRE_EVERY == 0:
                self._retire(table)
        run.pulse.coming -= {self.path(table)}
        COMMITTED.set()  # again: at the commit's own signal the table was still coming
        run.rows[table.name] = sum(file.rows for file in files)

    def _retire(self, table: Table) -> None:
        try:
            retire(self.settings, self.folder(table))
        except (OSError, ValueError) as error:
            # The batch is written; the next one tries again, and so does maintenance.
            say(f"{table.name}: its log was not shortened: {error}")

    def present(self, table: Table, run: Batch, column: str) -> int:
        """How many rows of a batch's commit have a value in `column`, one with statistics."""
        table_commit = commit(self.folder(table), run.versions[table.name])
        return sum(
            stats["numRecords"] - stats["nullCount"][column]
            for stats in table_commit.stats
            if stats
        )

    def _upgraded(self, table: Table, columns: str) -> None:
        note_audit(self.spool, "table.upgrade", table.name, {"added": columns})

    def _require_written(self, job: str) -> None:
        """Refuse tables older than the job's checkpoint: what they lack would never be read again.

        A version whose log file is cleaned away tells nothing, and is passed over.
        """
        checkpoint = self.settings.checkpoint_root / job
        for name, (batch, version) in newest_written(checkpoint).items():
            folder = self.settings.lake_root / path_of(name)
            try:
                marker = commit(folder, version).marker or {}
                there = (marker.get("job"), marker.get("batch")) == (job, batch)
            except FileNotFoundError:
                there = version < newest_version(folder)
            if not there:
                raise Fatal(
                    f"{name} lacks batch {batch} of job {job}, which {checkpoint} has as written "
                    f"(version {version}): the table is older than the checkpoint; restore lake "
                    "and checkpoints of one backup"
                )

    def _bring_back(self, job: str) -> None:
        """Put what the job has yet to read, and left the log while it was away, into it again."""
        try:
            first_versions = first_versions_asked(self.settings.checkpoint_root / job)
        except (OSError, ValueError):
            return  # damaged: `start` names it
        for folder in tables_below(self.settings.lake_root) if first_versions else ():
            # By its folder: it may be a table that this release does not know.
            name = f"{folder.parent.name}.{folder.name}"
            try:
                version = first_versions.get(table_id(folder))
            except (OSError, ValueError, Fatal):
                continue  # damaged: named as well, where the job reads it
            if version is not None and version < next(iter(live_versions(folder)), 0):
                self.claim()
                with table_locked(self.settings.lake_side, name):
                    number = bring_back(folder, version)
                say(f"job {job}: {number} commits of {name} are put back into its log")

    def _has(self, table: Table, run: Batch) -> bool:
        """Whether the table holds this batch; refuses by name what is not known."""
        folder = self.folder(table)
        for table_commit in newest_first(folder):
            marker = table_commit.marker
            # Maintenance, repairs and other jobs commit between ours.
            if marker is None or marker["job"] != run.job:
                continue
            if marker["query"] != run.query_id:
                raise Fatal(
                    f"{table.name} holds batches of job {run.job} up to {marker['batch']}, written "
                    f"under another checkpoint ({marker['query']}, now {run.query_id}); going on "
                    f"would write them twice: restore {run.folder}, or start with an empty lake"
                )
            if marker["batch"] > run.batch_id:
                raise Fatal(
                    f"{table.name} holds batch {marker['batch']} of job {run.job}, but its "
                    f"checkpoint is at batch {run.batch_id}: {run.folder} is older than the "
                    "table; restore the newest one"
                )
            # Markers of a job only grow, so nothing newer can lie behind this one.
            if marker["batch"] < run.batch_id:
                return False
            if not run.is_of(marker["digest"]):
                raise Fatal(
                    f"{table.name} holds batch {run.batch_id} of job {run.job} made from other "
                    f"offsets than {run.folder} has now; restore the checkpoint it was made with"
                )
            run.versions[table.name], run.rows[table.name] = table_commit.version, table_commit.rows
            return True
        oldest = oldest_version(folder)
        if oldest > 0 and run.batch_id > 0 and not _reaches(folder, oldest, run):
            raise Fatal(
                f"{table.name}: the log reaches back to version {oldest} only and shows no batch "
                f"of job {run.job}; whether batch {run.batch_id} was written is not known"
            )
        return False


def _reaches(folder: Location, oldest: int, run: Batch) -> bool:
    """Whether the log begins before a batch was planned, so that it would show its commit."""
    planned = run.folder / "spark" / "offsets" / str(run.batch_id)
    return planned.stat().st_mtime - modified(folder, oldest) > CLOCK_SECONDS


def _prefix(run: Batch) -> str:
    """How the names of a batch's files begin."""
    # With the digest, by which two batches of one number differ after a restore.
    return f"{run.job}-{run.batch_id}-{run.digest}-"


def _whole(values: Mapping[str, int] | Row | None) -> dict[str, int]:
    """Aggregates as plain numbers; none over no rows is 0."""
    asDict = values.asDict() if isinstance(values, Row) else dict(values or {})
    return {name: int(value or 0) for name, value in asDict.items()}
