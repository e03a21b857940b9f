"""Data files as a Python worker writes them: Parquet, with the statistics Delta keeps of a file.

Spark's own row-based writer costs five times as much a row as pyarrow's. So workers
write their rows themselves, and the driver commits what they say they wrote (see
`Lake.commit`). A file that no commit names is no part of the table: a task that runs
twice, or a driver that dies, leaves such files behind, and nothing more.

Source of the statistics' form: the Delta transaction log protocol, "Per-file Statistics".
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from typing import IO, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import DataFrame
from pyspark.sql import types as T
from pyspark.sql.pandas.types import to_arrow_schema

from infra.delta.schema import Table
from infra.spark.internals import collected_rows
from infra.storage.paths import Location, delete, to_write

_Batches = Iterator[pa.RecordBatch]

STRING_PREFIX = 32
"""Characters of a text that statistics keep, as Delta itself does."""


@dataclass(frozen=True)
class RowGroups:
    """How the row groups of a file are made: rows wait for each other until so many, or so many
    bytes of them, make one. `statistics`: each column's least and greatest value in each group,
    by which readers pass over groups."""

    rows: int
    bytes: int
    statistics: bool


STREAMED = RowGroups(20_000, 64 * 2**20, statistics=False)
"""Of rows as they come. Delta has statistics of its own of a file; those inside it cost a tenth of
writing it."""
MERGED = RowGroups(125_000, 512 * 2**20, statistics=True)
"""Of rows that are in memory anyway, for those who will read them often (decision 0042)."""
_SMALL_BYTES = 256 * 1024

_WRITTEN = T.StructType(
    [
        T.StructField("table", T.StringType()),
        T.StructField("name", T.StringType()),
        T.StructField("size", T.LongType()),
        T.StructField("rows", T.LongType()),
        T.StructField("written_at", T.LongType()),
        T.StructField("stats", T.StringType()),
    ]
)
"""What a worker tells of its files, as Spark rows."""

WRITTEN_ARROW: pa.Schema = to_arrow_schema(_WRITTEN)


@dataclass(frozen=True)
class DataFile:
    """A file that a worker wrote: its table, its name in the table's folder, its statistics."""

    table: str
    name: str
    size: int
    rows: int
    written_at: int
    """When its newest row was written, in milliseconds since 1970."""
    stats: str

    def action(self, *, data_change: bool = True) -> str:
        """The file as an action of Delta's log."""
        return json.dumps(
            {
                "add": {
                    "path": self.name,
                    # The protocol wants it also of tables without partitions, as all of ours are.
                    "partitionValues": {},
                    "size": self.size,
                    "modificationTime": self.written_at,
                    "dataChange": data_change,
                    "stats": self.stats,
                }
            }
        )


@dataclass(frozen=True)
class Target:
    """Where and how files of a table are written. Pickles, so it can go to workers."""

    table: str
    folder: Location
    prefix: str
    schema: pa.Schema
    stats: tuple[str, ...]
    codec: str = "snappy"
    zstd: tuple[str, ...] = ()
    """Columns compressed with zstd, whatever `codec` is for the others."""
    groups: RowGroups = STREAMED

    @classmethod
    def of(cls, table: Table, folder: Location, prefix: str) -> Target:
        """Files of `table` in `folder`, whose names begin with `prefix`."""
        schema = arrow_schema(table)
        return cls(table.name, folder, prefix, schema, table.stats, table.codec, table.zstd)

    def compression(self) -> str | dict[str, str]:
        """As pyarrow takes it: one codec, or that of each leaf of the schema."""
        if not self.zstd:
            return self.codec
        return {
            leaf: "zstd" if leaf.split(".", 1)[0] in self.zstd else self.codec
            for leaf in _leaves(self.schema)
        }


@lru_cache(maxsize=8)
def _leaves(schema: pa.Schema) -> tuple[str, ...]:
    """The leaves of a schema by their paths in a Parquet file, such as `device.ip`."""
    # Of a file without rows: Parquet's names of what is in lists are its own.
    sink = pa.BufferOutputStream()
    pq.ParquetWriter(sink, schema).close()
    columns = pq.ParquetFile(pa.BufferReader(sink.getvalue())).schema
    return tuple(columns.column(place).path for place in range(len(columns)))


@lru_cache(maxsize=8)
def _encoding(schema: pa.Schema) -> dict[str, Any]:
    """How pyarrow is to encode columns: times as differences from row to row, which are small
    (decision 0043), all others by a dictionary."""
    times = [field.name for field in schema if pa.types.is_timestamp(field.type)]
    if not times:
        return {}
    return {
        "use_dictionary": [leaf for leaf in _leaves(schema) if leaf not in times],
        "column_encoding": dict.fromkeys(times, "DELTA_BINARY_PACKED"),
    }


def arrow_schema(table: Table) -> pa.Schema:
    """A table's columns as Arrow: times in microseconds UTC, plain strings and lists."""
    return pa.schema(
        [
            pa.field(field.name, field.type, nullable=True)
            for field in to_arrow_schema(table.schema, timezone="UTC")
        ]
    )


def whole_schema(table: Table, files: Sequence[pa.Schema]) -> pa.Schema:
    """A table's columns, and those that files of it have besides: of a newer release.

    Whoever writes rows anew that others wrote keeps them so, or a step back would lose them.
    """
    whole = pa.struct(list(arrow_schema(table)))
    for schema in files:
        whole = _wider(whole, pa.struct(list(schema)))
    return pa.schema(list(whole))


def _wider(first: pa.DataType, second: pa.DataType) -> pa.DataType:
    """A type with the fields of both; where they differ in anything else, the first."""
    if pa.types.is_struct(first) and pa.types.is_struct(second):
        fields = {field.name: field for field in first}
        for field in second:
            former = fields.get(field.name, field)
            fields[field.name] = former.with_type(_wider(former.type, field.type))
        return pa.struct(list(fields.values()))
    if pa.types.is_list(first) and pa.types.is_list(second):
        return pa.list_(first.value_field.with_type(_wider(first.value_type, second.value_type)))
    return first


class FileWriter:
    """One file of a table, made when its first rows come."""

    def __init__(self, target: Target) -> None:
        self._target = target
        # Each attempt has names of its own: a task that Spark runs twice overwrites nothing
        # (decision 0006).
        self._name = f"{target.prefix}{uuid.uuid4().hex}.parquet"
        self._path = target.folder / self._name
        self._sink: str | IO[bytes] = ""
        self._writer: pq.ParquetWriter | None = None
        self._waiting: list[pa.RecordBatch] = []
        self._rows = self._bytes = 0
        self._stats = _Stats(target.stats)

    def write(self, batch: pa.RecordBatch) -> None:
        """Append rows; their columns are brought into the table's order and types."""
        if batch.num_rows == 0:
            return
        rows = _fitted(batch, self._target.schema)
        self._waiting.append(rows)
        self._rows += rows.num_rows
        self._bytes += _size(rows)
        if self._rows >= self._target.groups.rows or self._bytes >= self._target.groups.bytes:
            self._flush()

    def _flush(self) -> None:
        """Write what waits as one row group."""
        if self._writer is None:
            self._sink = to_write(self._path)
            self._writer = pq.ParquetWriter(
                self._sink,
                self._target.schema,
                compression=self._target.compression(),
                write_statistics=self._target.groups.statistics,
                # Arrow's own schema would stand in each file a second time.
                store_schema=False,
                # A column of texts that hardly repeat gives up its dictionary then, and is written
                # plainly, instead of filling a megabyte first.
                dictionary_pagesize_limit=96 * 1024,
                **_encoding(self._target.schema),
            )
        group = pa.Table.from_batches(self._waiting)
        # Of the whole group at once: batches of a few rows cost as much as large ones.
        self._stats.add(group)
        # Twice the mark, or pyarrow would cut what is above it off into a tiny second group.
        self._writer.write_table(group, row_group_size=self._target.groups.rows * 2)
        self._waiting, self._rows, self._bytes = [], 0, 0

    def close(self) -> DataFile | None:
        """End the file; None where there were no rows."""
        if self._waiting:
            self._flush()
        if self._writer is None:
            return None
        size = self._end(self._writer)
        return DataFile(
            table=self._target.table,
            name=self._name,
            size=size,
            rows=self._stats.rows,
            written_at=int(time.time() * 1000),
            stats=self._stats.as_json(),
        )

    def discard(self) -> None:
        """Take away what was written."""
        if self._writer is not None:
            self._end(self._writer)
            delete([self._path])

    def _end(self, writer: pq.ParquetWriter) -> int:
        """Finish the file; its bytes."""
        writer.close()
        if isinstance(self._sink, str):
            return self._path.stat().st_size
        size = self._sink.tell()
        self._sink.close()
        return size


def _size(batch: pa.RecordBatch) -> int:
    """Bytes of a batch; of a small one those of its buffers, of which it may be a part."""
    # To tell the part's takes six times as long, and most batches of few rows are small.
    buffers: int = batch.get_total_buffer_size()
    return buffers if buffers < _SMALL_BYTES else batch.nbytes


def _fitted(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    if batch.schema.equals(schema):
        return batch
    columns = [
        batch.column(index).cast(field.type) if index >= 0 else pa.nulls(batch.num_rows, field.type)
        for field in schema
        for index in (batch.schema.get_field_index(field.name),)
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


class _Stats:
    """Smallest, largest and missing values of the columns that Delta shall know of."""

    def __init__(self, columns: tuple[str, ...]) -> None:
        self.rows = 0
        self._low: dict[str, Any] = {}
        self._high: dict[str, Any] = {}
        self._nulls = dict.fromkeys(columns, 0)

    def add(self, rows: pa.Table) -> None:
        self.rows += rows.num_rows
        for name in self._nulls:
            column = rows.column(name)
            self._nulls[name] += column.null_count
            if column.null_count == len(column) or not _has_order(column.type):
                continue
            as_py = pc.min_max(column).as_py()
            low, high = as_py["min"], as_py["max"]
            self._low[name] = min(low, self._low.get(name, low))
            self._high[name] = max(high, self._high.get(name, high))

    def as_json(self) -> str:
        low = {name: _plain(value, upper=False) for name, value in self._low.items()}
        high = {name: _plain(value, upper=True) for name, value in self._high.items()}
        return json.dumps(
            {
                "numRecords": self.rows,
                "minValues": low,
                # A text that no bound can be given for has none.
                "maxValues": {name: value for name, value in high.items() if value is not None},
                "nullCount": self._nulls,
            }
        )


def _has_order(kind: pa.DataType) -> bool:
    # Not of floats: NaN has no place in an order, and bounds that leave it out would hide its rows.
    return bool(
        pa.types.is_integer(kind) or pa.types.is_string(kind) or pa.types.is_timestamp(kind)
    )


def _plain(value: Any, *, upper: bool) -> Any:
    """A value as statistics write it: times to the millisecond, texts cut to a bound."""
    if isinstance(value, datetime):
        # Delta's statistics end at milliseconds, and its readers allow for what is cut off.
        utc = value.astimezone(UTC)
        return f"{utc:%Y-%m-%dT%H:%M:%S}.{utc.microsecond // 1000:03d}Z"
    if isinstance(value, str) and len(value) > STRING_PREFIX:
        return upper_bound(value) if upper else value[:STRING_PREFIX]
    return value


def upper_bound(value: str) -> str | None:
    """A short text that lies not below `value`, in the order of UTF-8 bytes, if there is one.

    A bound below it would let a reader pass over the file, and hide the row.
    """
    last = "\U0010ffff"
    # Whoever writes this character into a log could go on behind it, and lie above the bound.
    goes_on_with = value[STRING_PREFIX : STRING_PREFIX + 1]
    return None if goes_on_with == last else value[:STRING_PREFIX] + last


def write_parquet(batches: _Batches, target: Target) -> _Batches:
    """What `mapInArrow` takes to write a DataFrame's rows: in rows, out `WRITTEN`."""
    with writing({target.table: target}) as writers:
        writer = writers[target.table]
        for batch in batches:
            writer.write(batch)
        yield files_written([writer.close()])


@contextmanager
def writing(targets: Mapping[str, Target]) -> Iterator[dict[str, FileWriter]]:
    """A writer for each target, by the same name; what fails leaves no file behind."""
    writers = {name: FileWriter(target) for name, target in targets.items()}
    try:
        yield writers
    except BaseException:
        for writer in writers.values():
            writer.discard()
        raise


def collected(
    rows: DataFrame, work: Callable[[_Batches], _Batches], *, observed: bool = True
) -> list[DataFile]:
    """Run `work`, which gives rows of `WRITTEN`, over a DataFrame; the files it told of.

    `observed`: as a query of its own, of which an `Observation` hears; else at less cost.
    """
    written = rows.mapInArrow(work, _WRITTEN)
    if observed:
        return [DataFile(**row.asDict()) for row in written.collect()]
    return [DataFile(**row) for row in collected_rows(written)]


def files_written(files: Sequence[DataFile | None]) -> pa.RecordBatch:
    """Files as rows of `WRITTEN`."""
    result = [file for file in files if file is not None]
    return pa.RecordBatch.from_arrays(
        [
            pa.array([getattr(file, field.name) for file in result], field.type)
            for field in WRITTEN_ARROW
        ],
        schema=WRITTEN_ARROW,
    )
