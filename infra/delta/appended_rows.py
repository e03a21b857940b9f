"""The rows that a table's commits added, read from its log and files without Spark.

Spark would plan a job for a few rows; a driver that follows a table by its commits reads them
in milliseconds.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from infra.delta.log_reader import Commit, commit, newest_version, versions
from infra.storage.paths import Location, to_read


def added_rows(
    table: Location, table_commit: Commit, columns: Sequence[str], present: str | None = None
) -> list[dict[str, Any]]:
    """The rows that a commit added; none of one that puts files in others' place.

    A column that a file lacks, as an older release wrote it, is missing in its rows. `present`:
    only rows that have a value there. Raises `FileNotFoundError` when a file is gone.
    """
    rows: list[dict[str, Any]] = []
    for name in table_commit.adds if table_commit.appends else ():
        with pq.ParquetFile(to_read(table / name)) as file:
            there = file.schema_arrow.names
            if present is not None and present not in there:
                continue
            read: pa.Table = file.read(columns=[name for name in columns if name in there])
        rows += (read if present is None else read.filter(read[present].is_valid())).to_pylist()
    return rows


class AppendedRows:
    """What is added to a table from now on, call by call."""

    def __init__(self, table: Location, columns: Sequence[str]) -> None:
        self._table = table
        self._columns = columns
        self._version = newest_version(table)

    @property
    def has_rows(self) -> bool:
        """Whether the table may have rows from before: version 0 only makes it."""
        return self._version > 0

    def read(self) -> list[dict[str, Any]]:
        """The rows that were added since the last call. A file that is gone is passed over."""
        rows: list[dict[str, Any]] = []
        known = self._version
        for version in versions(self._table, known + 1):
            # One whose files were cleaned away is so old that nothing current is in it.
            with suppress(FileNotFoundError):
                rows += added_rows(self._table, commit(self._table, version), self._columns)
            known = version
        # Only now: where a file cannot be read, what was read before it comes with the next call.
        self._version = known
        return rows
