"""Committing files to a Delta table that Spark did not write, through Delta's own transaction."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import replace as replace_fields

from pyspark.sql import SparkSession

from infra.delta.data_files import ActiveFile
from infra.delta.parquet_writer import DataFile
from infra.process.bell import COMMITTED
from infra.spark.internals import DeltaTransaction, files_at
from infra.spark.sql_text import sql_text


class Moved(Exception):
    """A file that was to be replaced is no longer part of the table as it was read."""


def as_old(file: DataFile, others: Sequence[ActiveFile]) -> DataFile:
    """A file with rows of others only, as old as the newest of these.

    Where a table tells no arrival, retention goes by that; nothing else of Delta's does: VACUUM
    goes by the files' own times and by when they left, time travel by the commits'.
    """
    written = max(int(other.entry["modificationTime"]) for other in others)
    return replace_fields(file, written_at=written)


def active_files(spark: SparkSession, path: str, version: int | None = None) -> list[ActiveFile]:
    """The files of the table's newest version, or of an older one."""
    if version is None:
        return _active(DeltaTransaction(spark, path).active_files())
    return _active(files_at(spark, path, version))


def replace(
    spark: SparkSession,
    path: str,
    removed: Sequence[ActiveFile],
    added: Sequence[DataFile],
    user_metadata: str,
    *,
    data_change: bool = True,
) -> int:
    """Take files out of a table and put others in, in one commit; its version.

    `data_change`: False where the rows stay the same, as when small files become a large one.
    Streams with `skipChangeCommits` pass over it. Raises `Moved`, and changes nothing, when
    one of `removed` is not in the newest version as it was read; what others appended
    since then stays. The caller is alone with the table (`Lake.alone`).
    """
    transaction = DeltaTransaction(spark, path)
    # These alone: all files of a large table would come as JSON out of the JVM.
    there = transaction.active_files(_among(file.entry["path"] for file in removed))
    # By identity, not by path: a file that lost rows since then keeps its path.
    now = {file.identity for file in _active(there)}
    gone = [file.name for file in removed if file.identity not in now]
    if gone:
        # To go on would bring back rows that were deleted after they were read.
        raise Moved(gone[0])
    actions = [file.removal(data_change=data_change) for file in removed]
    actions += [file.action(data_change=data_change) for file in added]
    return transaction.commit(actions, user_metadata, overwrite=True)


def _active(entries: Iterable[str]) -> list[ActiveFile]:
    return [ActiveFile(json.loads(text)) for text in entries]


def _among(paths: Iterable[str]) -> str:
    # Paths become a text of SQL, where both characters would end or change it.
    quoted = ", ".join(map(sql_text, paths))
    return f"path IN ({quoted})" if quoted else "false"


def commit_files(
    spark: SparkSession, path: str, files: Sequence[DataFile], user_metadata: str
) -> int:
    """Append `files` to the table at `path` in one commit; its version.

    Delta checks concurrent changes of the table's schema and protocol, and writes its checkpoints,
    as after a write of its own.
    """
    actions = [file.action() for file in files]
    version = DeltaTransaction(spark, path).commit(actions, user_metadata, overwrite=False)
    # After the commit only: whoever is woken looks at once for what is new.
    COMMITTED.ring()
    return version
