"""The tables of a lake: making, reading and changing them, for one Spark session.

What a streaming query writes into them, once, is added by `infra.streaming.lake`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Self

import pyarrow as pa
from delta.tables import DeltaTable
from pyspark.sql import DataFrame, SparkSession

from infra.config.settings import Settings
from infra.delta import deleted_file_retention as removed
from infra.delta.catalog import catalog, views
from infra.delta.data_files import ActiveFile
from infra.delta.log_reader import (
    commit,
    newest_version,
)
from infra.delta.parquet_writer import (
    DataFile,
    FileWriter,
    Target,
    arrow_schema,
)
from infra.delta.schema import Table
from infra.delta.schema_evolution import additions, described, schema, schema_of, unknown
from infra.delta.table_locations import TableLocations
from infra.delta.transaction import commit_files
from infra.delta.transaction import replace as replace_files
from infra.process.log import say
from infra.storage.paths import Location

# A log is cut at a checkpoint (`infra.streaming.log_retention`): fewer of them, longer logs.
PROPERTIES = {
    "delta.checkpointInterval": "50",
    "delta.logRetentionDuration": "interval 30 days",
}


class DeltaTables(TableLocations):
    """The tables under `settings.lake_root`, for one Spark session."""

    def __init__(self, spark: SparkSession, settings: Settings) -> None:
        super().__init__(settings)
        self.spark = spark

    def read(self, table: Table, version: int | None = None) -> DataFrame:
        """The table as it is now, or as it was at a version."""
        reader = self.spark.read.format("delta")
        if version is None:
            return reader.load(self.path(table))
        return reader.option("versionAsOf", version).load(self.path_at(table, version))

    def files_of(self, table: Table, version: int) -> list[Location]:
        """Data files that one commit added (none for one that puts files in others' place)."""
        table_commit = commit(self.folder(table), version)
        return (
            [self.folder(table) / name for name in table_commit.adds]
            if table_commit.appends
            else []
        )

    def ensure(self, *tables: Table) -> Self:
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
        current = schema(description)
        lacking = additions(table, current)
        self._remember(table, description)
        if unheard := unknown(table, current):
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
            self._upgraded(table, names)

    def _upgraded(self, table: Table, columns: str) -> None:
        """A table got columns; a lake notes it in its audit."""

    def _remember(self, table: Table, properties: Mapping[str, Any]) -> None:
        """Have the log tell files that left the table as long as former versions are promised."""
        interval = removed.wanted_interval(self.settings, table)
        if removed.remembered(properties) >= interval:
            return
        with self.alone(table):
            if removed.remembered(described(self.folder(table))) < interval:
                self.spark.sql(
                    f"ALTER TABLE delta.`{self.path(table)}` "
                    f"SET TBLPROPERTIES ('{removed.PROPERTY}' = "
                    f"'{removed.said_interval(interval)}')"
                )

    def _create(self, table: Table) -> None:
        kept = removed.said_interval(removed.wanted_interval(self.settings, table))
        properties = PROPERTIES | {removed.PROPERTY: kept} | dict(table.properties)
        # By default Delta keeps statistics of the first 32 columns, whichever are asked by.
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

    def register(self) -> Self:
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
