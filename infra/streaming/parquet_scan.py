"""A table's data files as a Python worker reads them: the leaves that are asked for, as Arrow.

To hand rows to a worker Spark makes rows of what Parquet has in columns, and columns of the
rows again: of events, which have hundreds of leaves, that costs more than what is then done
with them. A worker that reads the files itself has the columns at once, and of a struct
only the leaves it needs. The files, and which of them can hold a time, are known from Delta's
log; a file of which Delta has deleted rows is left to Spark.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import types as T

from infra.delta.data_files import ActiveFile, Reading
from infra.delta.schema import Table
from infra.delta.transaction import active_files
from infra.streaming.lake import Lake

_Batches = Iterator[pa.RecordBatch]
_Work = Callable[[_Batches], _Batches]

_NAMES = T.StructType([T.StructField("name", T.StringType())])


def files_between(
    lake: Lake,
    table: Table,
    time: str,
    since: datetime,
    until: datetime,
    version: int | None = None,
) -> list[ActiveFile]:
    """The files that may hold rows whose column `time` is in [since, until)."""
    files = _files(lake, table, version)
    return [file for file in files if file.may_hold(time, since, until)]


def _files(lake: Lake, table: Table, version: int | None) -> list[ActiveFile]:
    path = lake.path(table) if version is None else lake.path_at(table, version)
    return active_files(lake.spark, path, version)


def over_files(
    lake: Lake, files: Sequence[ActiveFile], reading: Reading, work: _Work, schema: T.StructType
) -> DataFrame:
    """`work` over the rows of files, on Spark's workers: rows of `schema`. Files must be whole."""
    # The largest first: a large file that is begun last keeps all cores but one waiting.
    names = [(file.name,) for file in sorted(files, key=lambda file: -int(file.entry["size"]))]
    # Some tasks a core: files differ in size, and one task a file would cost more to plan than
    # small files to read.
    tasks = max(1, min(len(names), 4 * lake.spark.sparkContext.defaultParallelism))
    rows = lake.spark.createDataFrame(names, _NAMES).repartition(tasks)
    return rows.mapInArrow(_Through(reading, work), schema)


@dataclass(frozen=True)
class _Through:
    """What `mapInArrow` takes: names of files in, what `work` makes of their rows out."""

    reading: Reading
    work: _Work

    def __call__(self, names: _Batches) -> _Batches:
        yield from self.work(self._rows(names))

    def _rows(self, names: _Batches) -> _Batches:
        for batch in names:
            for name in batch.column("name").to_pylist():
                yield from self.reading.batches(name)
