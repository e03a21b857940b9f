"""The data files of a table as its log has them, and their rows as Arrow: without Spark."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from infra.delta.log_archive import ARCHIVE, LOG, checkpoint_file
from infra.delta.log_reader import checkpoints, commit_text
from infra.delta.plain_files import stats_allow
from infra.storage.paths import Location, to_read

_Batches = Iterator[pa.RecordBatch]

_BATCH_ROWS = 10_000
_MICROS = pa.timestamp("us", "UTC")


@dataclass(frozen=True)
class ActiveFile:
    """A file of one version of a table, as Delta's log has it."""

    entry: dict[str, Any]

    @property
    def name(self) -> str:
        """Its path below the table's folder."""
        return unquote(self.entry["path"])

    @property
    def _stats(self) -> dict[str, Any]:
        stats: dict[str, Any] = json.loads(self.entry.get("stats") or "{}")
        return stats

    @property
    def rows(self) -> int:
        """How many it holds, by its statistics; 0 where it has none."""
        return int(self._stats.get("numRecords", 0))

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
        most = self._stats.get("maxValues", {}).get(column)
        # Statistics cut times to the millisecond.
        return datetime.fromisoformat(most) + timedelta(milliseconds=1) if most else None

    def newest(self, column: str) -> datetime:
        """When its newest row came: before this by `column`, else as old as the file says."""
        return self.most(column) or self.written

    def may_hold(self, column: str, low: Any, high: Any) -> bool:
        """Whether a value of `[low, high]` may be in it, by its statistics. Times are aware."""
        return stats_allow(self._stats, column, low, high)

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


@dataclass(frozen=True)
class Reading:
    """What to read of each file. Pickles.

    `leaves`: columns, or leaves of structs such as `process.cmd_line`; of what lies in a list,
    the list. What a file lacks is missing in its batches. Of `time` only [since, until).
    """

    folder: Location
    leaves: tuple[str, ...]
    time: str
    since: datetime
    until: datetime

    def batches(self, name: str) -> _Batches:
        """The rows of a file of the table's folder."""
        low, high = (
            pa.scalar(instant.astimezone(UTC), _MICROS) for instant in (self.since, self.until)
        )
        # In parts: a whole file in memory, for each worker at once, has no bound.
        with pq.ParquetFile(to_read(self.folder / name)) as file:
            for batch in file.iter_batches(_BATCH_ROWS, columns=sorted({*self.leaves, self.time})):
                times = batch.column(self.time).cast(_MICROS)
                inside = pc.and_(pc.greater_equal(times, low), pc.less(times, high))
                # No copy where all rows are inside, as in most files of a long span.
                yield batch if pc.all(inside).as_py() else batch.filter(inside)


def listed_files(table: Location, version: int) -> list[ActiveFile]:
    """The files of a version of a table, from the checkpoint before it and the commits since.

    Raises `FileNotFoundError` where the log no longer tells that version.
    """
    places = {number: place for place in (ARCHIVE, LOG) for number in checkpoints(table / place)}
    start = max((number for number in places if number <= version), default=-1)
    entries: dict[tuple[str, str], dict[str, Any]] = {}
    if start >= 0:
        file = to_read(checkpoint_file(table / places[start], start))
        for row in pq.read_table(file, columns=["add"])["add"].to_pylist():
            if row is not None:
                entries[_key(row)] = row
    for number in range(start + 1, version + 1):
        for line in commit_text(table, number).splitlines():
            # One action a line with its name in front: others are not parsed.
            if line.startswith('{"add"'):
                entry = json.loads(line)["add"]
                entries[_key(entry)] = entry
            elif line.startswith('{"remove"'):
                entries.pop(_key(json.loads(line)["remove"]), None)
    return [ActiveFile(entry) for entry in entries.values()]


def _key(entry: dict[str, Any]) -> tuple[str, str]:
    """By the protocol path and deletion vector together name a file."""
    vector = entry.get("deletionVector") or {}
    # A checkpoint has fields that a commit leaves out: what is null names nothing.
    return entry["path"], json.dumps({n: v for n, v in vector.items() if v is not None},
                                     sort_keys=True)  # fmt: skip
