"""Rows that take the place of others by key: MERGE and overwriting a span, once a batch.

Streams that count in update mode give the absolute values of what has changed. MERGE puts them in
the place of what stands under the same key, and its commit carries the batch's marker like any
other of ours (see `infra.streaming.lake`): a retry passes the table over, and one that did not
would write the same values again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from functools import reduce
from operator import and_

from delta.tables import DeltaTable
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from infra.delta.log_reader import newest_first
from infra.delta.schema import Table
from infra.streaming.batch import Batch
from infra.streaming.lake import Lake


def merge(lake: Lake, rows: DataFrame, table: Table, run: Batch) -> bool:
    """Put a batch's rows in the place of those of the same `key`; False when the table has them.

    `rows`: at most one for a key, persisted, since they are read more than once. Of the table only
    files are read that may hold their `event_time` or a later one. No rows make no commit. Raises
    `Fatal` when the table's log contradicts the checkpoint.
    """
    if lake.has(table, run):
        rows.count()  # works the batch through: only so its state is committed (`Lake.append`)
        return False
    time = table.event_time or table.key[0]
    # One small query for both: `rows` is persisted, but each further action plans a job of its own.
    (result,) = rows.agg(F.count("*").alias("n"), F.min(F.unix_micros(time)).alias("us")).collect()
    run.rows[table.name] = result["n"]
    if not result["n"]:
        return True
    # A literal, for only that is compared with the files' statistics.
    oldest = F.lit(datetime.fromtimestamp(0, UTC) + timedelta(microseconds=result["us"]))
    # Null-safe: with `=` a null in a key never matches, and each batch would insert its row anew.
    same = [F.col(f"t.{name}").eqNullSafe(F.col(f"s.{name}")) for name in table.key]
    spark = rows.sparkSession
    # Delta checks for conflicts only in its log; two processes on one file system could both rename
    # the same version into place, so the lock spans the whole MERGE.
    with lake.alone(table), _carrying(spark, run):
        into = DeltaTable.forPath(spark, lake.path(table)).alias("t")
        reduced = into.merge(rows.alias("s"), reduce(and_, same) & (F.col(f"t.{time}") >= oldest))
        # By name: a table of a newer release has columns that these rows lack. They become null.
        given = {column.name: F.col(f"s.{column.name}") for column in table.columns}
        others = set(into.toDF().columns) - given.keys()
        update = {**given, **{name: F.lit(None) for name in others}}
        reduced.whenMatchedUpdate(set=_quoted(update)).whenNotMatchedInsert(
            values=_quoted(given)
        ).execute()
    # MERGE does not say which version it made; ours is the newest with our marker.
    for commit in newest_first(lake.folder(table)):
        if commit.marker == run.marker:
            run.versions[table.name] = commit.version
            break
    return True


def overwrite(lake: Lake, rows: DataFrame, table: Table, where: str, note: str) -> None:
    """Put rows in the place of all those for which `where` holds, in one commit with `note`.

    `rows` must all be such that `where` holds. Streams that read the table pass over it.
    """
    ordered = rows.select(*[column.name for column in table.columns])
    with lake.alone(table):
        (
            ordered.write.format("delta")
            .mode("overwrite")
            .option("replaceWhere", where)
            .option("userMetadata", note)
            .save(lake.path(table))
        )


def _quoted(values: Mapping[str, Column]) -> dict[str, str | Column]:
    # Delta parses these names: a dot in one would be read as a field of a struct.
    return {f"`{name}`": value for name, value in values.items()}


@contextmanager
def _carrying(spark: SparkSession, run: Batch) -> Iterator[None]:
    """While inside, commits of this session carry the batch's marker.

    The session is the query's own: Spark gives each streaming query a copy.
    """
    # MERGE takes no write options, so its commit gets the marker by way of the session.
    key = "spark.databricks.delta.commitInfo.userMetadata"
    spark.conf.set(key, run.metadata)
    try:
        yield
    finally:
        # Also after a failure: a later commit of this session would carry this batch's marker.
        spark.conf.unset(key)
