"""Committing files to a Delta table that Spark did not write, through Delta's own transaction."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from dataclasses import replace as replace_fields
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import unquote

from pyspark.sql import SparkSession

from infra.delta.parquet_writer import DataFile
from infra.process.bell import COMMITTED
from infra.spark.internals import DeltaTransaction, files_at
from infra.spark.sql_text import sql_text


class Moved(Exception):
    """A file that was to be replaced is no longer part of the table as it was read."""


@dataclass(frozen=True)
class ActiveFile:
    """A file of a table's newest version, as Delta's log has it."""

    entry: dict[str, Any]

    @property
    def name(self) -> str:
        """Its path below the table's folder."""
        return unquote(self.entry["path"])

    @property
    def rows(self) -> int:
        """How many it holds, by its statistics; 0 where it has none."""
        return int(json.loads(self.entry.get("stats") or "{}").get("numRecords", 0))

    @property
    def has_deletions(self) -> bool:
        """Whether rows of it are deleted that the file itself still holds."""
        return self.entry.get("deletionVector") is not None

    @property
    def identity(self) -> tuple[str, str]:
        """What changes when the file, or the set of its deleted rows, is another one."""
        vector = self.entry.get("deletionVector")
        return self.entry["path"], json.dumps(vector, sort_keys=True)

    @property
    def written(self) -> datetime:
        """When its newest row was written, by the clock of who wrote it."""
        return datetime.fromtimestamp(int(self.entry["modificationTime"]) / 1000, UTC)

    def most(self, column: str) -> datetime | None:
        """Before this is the newest time in a column; None where its statistics do not say."""
        stats = json.loads(self.entry.get("stats") or "{}")
        most = stats.get("maxValues", {}).get(column)
        # Statistics cut times to the millisecond.
        return datetime.fromisoformat(most) + timedelta(milliseconds=1) if most else None

    def newest(self, column: str) -> datetime:
        """When its newest row came: before this by `column`, else as old as the file says."""
        return self.most(column) or self.written

    def may_hold(self, column: str, low: Any, high: Any) -> bool:
        """Whether a value of `[low, high]` may be in it, by its statistics. Times are aware."""
        stats = json.loads(self.entry.get("stats") or "{}")
        least = stats.get("minValues", {}).get(column)
        most = stats.get("maxValues", {}).get(column)
        if isinstance(low, datetime):
            cut = timedelta(milliseconds=1)  # statistics cut times to the millisecond
            least = least and datetime.fromisoformat(least)
            most = most and datetime.fromisoformat(most) + cut
        return (least is None or least <= high) and (most is None or most >= low)

    def removal(self, *, data_change: bool = True) -> str:
        """The action that takes the file out of the table."""
        # With its deletion vector: by the protocol path and vector together name a file.
        kept = ("path", "partitionValues", "size", "tags", "deletionVector", "baseRowId")
        fields = {name: self.entry[name] for name in kept if self.entry.get(name) is not None}
        if self.entry.get("defaultRowCommitVersion") is not None:
            fields["defaultRowCommitVersion"] = self.entry["defaultRowCommitVersion"]
        # The protocol wants the time of deletion: VACUUM counts from it how long readers of a
        # former version may still need the file.
        now = int(time.time() * 1000)
        # `extendedFileMetadata`, by the protocol: size and partition values are among the fields.
        lines = {"deletionTimestamp": now, "dataChange": data_change, "extendedFileMetadata": True}
        return json.dumps({"remove": fields | lines})


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
