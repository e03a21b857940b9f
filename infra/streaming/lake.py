"""The lake: tables by path, and the one way a job's batch is written into them, once.

Delta's own `txnAppId` makes each micro-batch rebuild the state of the whole
snapshot, so on one machine a batch is appended plainly and its commit carries a
marker of ours; see decision 0001.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa
from delta.tables import DeltaTable
from pyspark.sql import Column, DataFrame, Observation, Row, SparkSession
from pyspark.sql import functions as F

from infra.config.settings import Settings
from infra.delta import deleted_file_retention as removed
from infra.delta.duckdb_views import open_engine, reach
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
    FileWriter,
    Target,
    arrow_schema,
    collected,
    write_parquet,
)
from infra.delta.schema import Table, catalog, path_of, views
from infra.delta.schema_evolution import additions, described, schema, schema_of, unknown
from infra.delta.table_lock import require_home, table_locked
from infra.delta.time_travel import bring_back, instant_of_version, readable
from infra.delta.transaction import ActiveFile, AlreadyCommitted
from infra.delta.transaction import commit_files as commit_files
from infra.delta.transaction import replace as replace_files
from infra.errors import Fatal, Usage
from infra.process.log import say
from infra.storage.paths import HOME, Location, beginning, delete, tables_below
from infra.streaming.admission import ALL, Intake
from infra.streaming.checkpoint_sources import adopt
from infra.streaming.job import Batch, Job, Work, newest_written, start
from infra.streaming.log_retention import asked_by, retire
from infra.streaming.outbox import note_audit

PROPERTIES = {
    "delta.checkpointInterval": "50",
    "delta.logRetentionDuration": "interval 30 days",
}

_RECENT = 20
"""So many of a table's newest commits are looked at before a job reads it: what a power cut
damages is among them."""

RETIRE_EVERY = 50
"""After so many commits those that everybody has read leave the log."""

_ALL = "all rows"

CLOCK_SECONDS = 3600
"""How far the clock may have been set back between two files whose times are compared."""


class Lake:
    """The tables under `settings.lake_root`, for one Spark session."""

    def __init__(self, spark: SparkSession, settings: Settings) -> None:
        self.spark = spark
        self.settings = settings
        self._ours = isinstance(settings.lake_root, Path)
        self._intakes: dict[str, Intake] = {}

    @property
    def spool(self) -> Path:
        """Where rows wait to be folded into tables (see `infra.streaming.outbox`)."""
        return self.settings.home.absolute() / "spool"

    def folder(self, table: Table) -> Location:
        """The table's folder."""
        return self.settings.lake_root / table.path

    def path(self, table: Table) -> str:
        """The same as Spark wants it."""
        return str(self.folder(table))

    def ensure(self, *tables: Table) -> Lake:
        """Make the tables that are missing (all of the catalogue when none is named).

        A table of an earlier release gets what it lacks: columns, and fields of structs. That is
        noted in ops.audit, and done before any stream reads: Delta ends one that meets another
        schema than it began with. Raises `Fatal` for a column whose type is another one.
        """
        self.claim()
        for table in tables or tuple(catalog().values()):
            if newest_version(self.folder(table)) < 0:
                with self.alone(table):
                    # Another driver of this lake may have been quicker.
                    if newest_version(self.folder(table)) < 0:
                        self._create(table)
                        continue
            self._upgrade(table)
        return self

    def _upgrade(self, table: Table) -> None:
        description = described(self.folder(table))
        schema_result = schema(description)
        lacking = additions(table, schema_result)
        self._remember(table, description)
        if unheard := unknown(table, schema_result):
            say(f"{table.name}: has columns of a newer release, which stay: {', '.join(unheard)}")
        if not lacking:
            return
        with self.alone(table):
            # Another driver of this lake may have been quicker.
            lacking = additions(table, schema_of(self.folder(table)))
            if lacking:
                columns = ", ".join(addition.sql for addition in lacking)
                self.spark.sql(f"ALTER TABLE delta.`{self.path(table)}` ADD COLUMNS ({columns})")
        names = ", ".join(addition.name for addition in lacking)
        if names:
            say(f"{table.name}: new columns: {names}")
            note_audit(self.spool, "table.upgrade", table.name, {"added": names})

    def _remember(self, table: Table, told: Mapping[str, Any]) -> None:
        """Have the log tell files that left the table as long as former versions are promised."""
        wanted = removed.wanted_interval(self.settings, table)
        if removed.remembered(told) >= wanted:
            return
        with self.alone(table):
            if removed.remembered(described(self.folder(table))) < wanted:
                self.spark.sql(
                    f"ALTER TABLE delta.`{self.path(table)}` "
                    f"SET TBLPROPERTIES ('{removed.PROPERTY}' = '{removed.said_interval(wanted)}')"
                )

    def _create(self, table: Table) -> None:
        kept = removed.said_interval(removed.wanted_interval(self.settings, table))
        properties = PROPERTIES | {removed.PROPERTY: kept} | dict(table.properties)
        if table.stats:
            properties["delta.dataSkippingStatsColumns"] = ",".join(table.stats)
        builder = (
            DeltaTable.createIfNotExists(self.spark)
            .location(self.path(table))
            .addColumns(table.schema)
            .comment(table.doc)
        )
        for key, value in properties.items():
            builder = builder.property(key, value)
        if table.cluster_by:
            builder = builder.clusterBy(*table.cluster_by)
        builder.execute()

    def read(self, table: Table, version: int | None = None) -> DataFrame:
        """The table as it is now, or as it was at a version."""
        reader = self.spark.read.format("delta")
        if version is None:
            return reader.load(self.path(table))
        return reader.option("versionAsOf", version).load(self.path_at(table, version))

    def path_at(self, table: Table, version: int) -> str:
        """Where Spark reads a version of the table, also one that left its log.

        Raises `Usage` when that is no longer kept.
        """
        folder = self.folder(table)
        if instant_of_version(folder, version):
            return str(folder)
        with open_engine(memory="256MB", threads=1) as engine:
            reach(engine, folder)
            try:
                return str(readable(engine, folder, version, partial(self.alone, table)))
            except FileNotFoundError:
                raise Usage(f"{table.name}: its version {version} is no longer kept") from None

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
            with suppress(FileNotFoundError):
                commit(self.folder(table), version)
        if job is not None and self.settings.jobs.adaptive:
            intake = self._intakes.setdefault(job, Intake(job, self.settings))
            files_per_batch = intake.first(self.folder(table))
        reader = (
            self.spark.readStream.format("delta")
            .option("skipChangeCommits", "true")
            .option("maxFilesPerTrigger", files_per_batch)
        )
        if only_new:
            reader = reader.option("startingVersion", "latest")
        rows = reader.load(self.path(table))
        # What a newer release added would else get into the state of joins, for good.
        declared = [column.name for column in table.columns]
        return rows if set(rows.columns) <= set(declared) else rows.select(*declared)

    def register(self) -> Lake:
        """Give tables and views their names in the session: `SELECT * FROM silver.event`.

        Names that another lake had in this session are this one's from now on. What the lake does
        not have yet gets no name: reading makes no table.
        """
        for layer in sorted({name.split(".")[0] for name in catalog()}):
            self.spark.sql(f"CREATE SCHEMA IF NOT EXISTS {layer}")
        missing: set[str] = set()
        for table in catalog().values():
            # A table with a location of its own: dropping the name leaves its files.
            self.spark.sql(f"DROP TABLE IF EXISTS {table.name}")
            if newest_version(self.folder(table)) < 0:
                missing.add(table.name)
                continue
            self.spark.sql(f"CREATE TABLE {table.name} USING DELTA LOCATION '{self.path(table)}'")
        for view in views().values():
            if any(re.search(rf"\b{re.escape(name)}\b", view.sql) for name in missing):
                missing.add(view.name)
                self.spark.sql(f"DROP VIEW IF EXISTS {view.name}")
                continue
            self.spark.sql(f"CREATE OR REPLACE VIEW {view.name} AS {view.sql}")
        return self

    def each_batch(
        self,
        job: str,
        rows: DataFrame,
        work: Work,
        *,
        trigger_seconds: float | None,
        output_mode: Literal["append", "update"] = "append",
    ) -> Job:
        """Run `work` on each micro-batch of `rows` as job `job` (see `infra.streaming.job.start`).

        Raises `Fatal` when a table lacks a batch that the checkpoint has as written, or the
        checkpoint is of a job that reads other tables.
        """
        self._require_written(job)
        self._bring_back(job)
        return start(
            job,
            rows,
            work,
            checkpoints=self.settings.checkpoint_root,
            spool=self.spool / "ledger",
            trigger_seconds=trigger_seconds,
            attempts=self.settings.jobs.max_batch_failures,
            before=partial(adopt, job, rows, self.settings.checkpoint_root / job),
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
        wanted = [how.alias(name) for name, how in (counts or {}).items()]
        if self.has(table, run):
            # Also a batch whose rows are there is worked through: only so its state is committed,
            # and Spark refuses a batch of which it was not.
            run.counts |= _whole(rows.agg(*wanted, F.count("*").alias(_ALL)).first())
            del run.counts[_ALL]
            return False
        watch = Observation()
        watched = rows.observe(watch, *wanted) if wanted else rows
        ordered = watched.select(*[column.name for column in table.columns])
        write = partial(write_parquet, target=self.target(table, run))
        self.commit(table, run, collected(ordered, write))
        if wanted:
            run.counts |= _whole(watch.get)
        return True

    def has(self, table: Table, run: Batch) -> bool:
        """Whether a table holds a batch already, as after a crash between two commits.

        Raises `Fatal` when the table's log contradicts the checkpoint or is too short to tell.
        """
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
        marker = json.dumps(run.marker, sort_keys=True)
        txn = None
        if self.settings.sink == "txn":
            txn = (f"{run.job}/{run.query_id}/{table.name}", run.batch_id)
        with self.alone(table), suppress(AlreadyCommitted):
            version = commit_files(self.spark, self.path(table), files, marker, txn)
            run.versions[table.name] = version
            if version % RETIRE_EVERY == 0:
                self._retire(table)
        run.rows[table.name] = sum(file.rows for file in files)

    def _retire(self, table: Table) -> None:
        try:
            retire(self.settings, self.folder(table))
        except (OSError, ValueError) as error:
            # The batch is written; the next one tries again, and so does upkeep.
            say(f"{table.name}: its log was not shortened: {error}")

    def replace(
        self,
        table: Table,
        removed: Sequence[ActiveFile],
        added: Sequence[DataFile],
        note: str,
        *,
        data_change: bool = True,
    ) -> int:
        """Put files in the place of others, in one commit that streams pass over; its version.

        `data_change`: False where the new files hold the same rows as the old ones.
        Jobs may append meanwhile. Raises `Moved` when one of `removed` was replaced by others.
        """
        with self.alone(table):
            return replace_files(
                self.spark, self.path(table), removed, added, note, data_change=data_change
            )

    def add(self, table: Table, rows: Sequence[Mapping[str, Any]], note: str) -> None:
        """Append a few rows that the driver holds itself, in a commit that carries `note`."""
        schema = arrow_schema(table)
        writer = FileWriter(Target.of(table, self.folder(table), "add-"))
        writer.write(pa.RecordBatch.from_pylist(list(rows), schema=schema))
        file = writer.close()
        with self.alone(table):
            commit_files(self.spark, self.path(table), [file] if file else [], note)

    def present(self, table: Table, run: Batch, column: str) -> int:
        """How many rows of a batch's commit have a value in `column`, one with statistics."""
        table_commit = commit(self.folder(table), run.versions[table.name])
        return sum(
            stats["numRecords"] - stats["nullCount"][column]
            for stats in table_commit.stats
            if stats
        )

    @contextmanager
    def alone(self, table: Table) -> Iterator[None]:
        """The only writer of a table, over processes (docs/how-to/run-several-drivers.md).

        A rename on a file system replaces what is there, so two commits of
        one version, made at the same instant by two processes, would leave one.
        """
        self.claim()
        with table_locked(self.settings.lake_side, table.name):
            yield

    def claim(self) -> None:
        """Raises `Fatal` when another home's writers have the lake (`require_home`)."""
        if not self._ours:
            with table_locked(self.settings.lake_side, HOME):
                require_home(self.settings)
            self._ours = True

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
            asked = asked_by(self.settings.checkpoint_root / job)
        except (OSError, ValueError):
            return  # damaged: `start` names it
        for folder in tables_below(self.settings.lake_root) if asked else ():
            name = f"{folder.parent.name}.{folder.name}"
            try:
                version = asked.get(table_id(folder))
            except (OSError, ValueError, Fatal):
                continue  # damaged: named as well, where the job reads it
            if version is not None and version < next(iter(live_versions(folder)), 0):
                self.claim()
                with table_locked(self.settings.lake_side, name):
                    number = bring_back(folder, version)
                say(f"job {job}: {number} commits of {name} are put back into its log")

    def _has(self, table: Table, run: Batch) -> bool:
        """Whether the table holds this batch; refuses by name what cannot be told."""
        folder = self.folder(table)
        for table_commit in newest_first(folder):
            marker = table_commit.marker
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
            if marker["batch"] < run.batch_id:
                return False
            if marker["digest"] != run.digest:
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
                f"of job {run.job}; whether batch {run.batch_id} was written cannot be told"
            )
        return False

    def version(self, table: Table) -> int:
        """Newest version of a table, -1 when it does not exist."""
        return newest_version(self.folder(table))

    def files_of(self, table: Table, version: int) -> list[Location]:
        """Data files that one commit added (none for one that puts files in others' place)."""
        table_commit = commit(self.folder(table), version)
        return (
            [self.folder(table) / name for name in table_commit.adds]
            if table_commit.appends
            else []
        )


def _reaches(folder: Location, oldest: int, run: Batch) -> bool:
    """Whether the log begins before a batch was planned, so that it would show its commit."""
    planned = run.folder / "spark" / "offsets" / str(run.batch_id)
    return planned.stat().st_mtime - modified(folder, oldest) > CLOCK_SECONDS


def _prefix(run: Batch) -> str:
    """How the names of a batch's files begin."""
    return f"{run.job}-{run.batch_id}-{run.digest}-"


def _whole(values: Mapping[str, int] | Row | None) -> dict[str, int]:
    """Aggregates as plain numbers; none over no rows is 0."""
    asDict = values.asDict() if isinstance(values, Row) else dict(values or {})
    return {name: int(value or 0) for name, value in asDict.items()}
