"""One pass over a batch in a Python worker: records in, the files of all tables out.

Bronze, silver and what is found among the events are written where the bytes are,
so that no row crosses to Spark's own writer. See decision 0006.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from infra.delta.parquet_writer import (
    DataFile,
    FileWriter,
    Target,
    collected,
    files_written,
    writing,
)
from infra.delta.schema import Table
from infra.process.clock import TOLERANCE
from infra.spark.session import at_once
from infra.streaming.batch import Batch
from ingest.parsing.arrow_parser import Parser, to_arrow
from ingest.parsing.source import ParseSettings
from ingest.pipeline.kafka_fetch import Fetch, task
from ingest.pipeline.record_owners import RecordOwners
from ingest.tables import EVENT, HEARTBEAT, RECORD

_Batches = Iterator[pa.RecordBatch]

SLICE_BYTES = 16 * 1024 * 1024
"""Raw bytes parsed at once: what a worker holds grows with this, not with the batch."""

SLICE_ROWS = 10_000

Find = Callable[[pa.RecordBatch], Sequence[pa.RecordBatch]]
"""Events, heartbeats included, to rows of a table."""


@dataclass(frozen=True)
class Stage:
    """What becomes of a batch's events besides: rows of `table`. Pickles."""

    table: Table
    begin: Callable[[], Find]
    """Called where it runs, once a task."""
    more: Callable[[Batch], Sequence[DataFile]] | None = None
    """Called in the driver once the events are committed: further files of the table."""
    due_after: tuple[float, ...] = ()
    """Where there are rows: in how many seconds what waits on them needs time to have moved on."""
    events_wait: bool = False
    """Whether events themselves wait in the same way, as those that are to be attributed."""


@dataclass(frozen=True)
class Reach:
    """How far a batch reaches in time. Pickles."""

    finished: str | None = None
    """How far the input is in, as ISO text; None when that cannot be told."""
    read_at: datetime | None = None
    """When the batch was read. A record that the broker dates later, beyond what clocks differ by,
    counts as arrived then: stream time never runs back, so it must not run ahead."""


class Pass:
    """What `mapInArrow` takes: rows of bronze.record in, the files written out.

    A table that is missing in `targets` has the batch already and is not written.
    How far the input is in, the first task writes as a heartbeat row among the
    events. `repeats`: events that are second deliveries.
    """

    def __init__(
        self,
        parsing: ParseSettings,
        targets: Mapping[str, Target],
        stages: Sequence[Stage],
        reach: Reach,
        repeats: Mapping[str, str] | None = None,
    ) -> None:
        self._parsing = parsing
        self._targets = dict(targets)
        # Only names travel: a table's declaration holds what does not pickle.
        self._stages = tuple((stage.table.name, stage.begin) for stage in stages)
        self._reach = reach
        self._repeats = dict(repeats or {})

    def __call__(self, batches: _Batches) -> _Batches:
        context = TaskContext.get()
        first = context is None or context.partitionId() == 0
        yield files_written(self._files(batches, beat=first))

    def over(self, spark: SparkSession, records: DataFrame | Fetch) -> list[DataFile]:
        """Run over rows of bronze.record on Spark; the files that were written."""
        if isinstance(records, Fetch):
            tasks = len(records.tasks)
            return collected(spark.range(0, tasks, 1, tasks), partial(self._fetched, records))
        # A record may have megabytes, so Spark must look after each row how large its Arrow batch
        # has become. A list vector then walks over all nulls since its last list: without empty
        # ones for the messages that have no headers, which are most, that is four fifths of the
        # JVM's work.
        named = records.withColumn("headers", F.coalesce("headers", F.array()))
        # Bounded in bytes, as a bound in rows says nothing of a worker's memory.
        with at_once(spark, SLICE_BYTES):
            return collected(named, self)

    def _fetched(self, fetch: Fetch, batches: _Batches) -> _Batches:
        # Of the range that Spark counts off, one number a task.
        for _ in batches:
            yield from self(fetch.batches(task(), SLICE_ROWS, SLICE_BYTES))

    def alone(self) -> list[DataFile]:
        """The files of a batch that is a heartbeat and nothing else, written right here."""
        # A job on Spark for one row would cost more than the row.
        return self._files(iter(()), beat=True)

    def _files(self, batches: _Batches, *, beat: bool) -> list[DataFile]:
        # Files of an attempt that fails are taken away again: no commit names them.
        with writing(self._targets) as writers:
            data_files = [(name, begin()) for name, begin in self._stages if name in writers]
            # One for the whole task: compiled formats and registries are read once.
            parser = Parser(self._parsing)
            for records in slices(map(self._arrived, batches)):
                owners = RecordOwners(self._parsing)
                for events in parser(records):
                    owners.note(events)
                    _write(mark_duplicates(events, self._repeats), writers, data_files)
                # A retry may have the records in already: then only the other tables are written.
                # Behind their events, which tell of some whose they are.
                if RECORD.name in writers:
                    writers[RECORD.name].write(owners.named(records))
            # Behind the rows that it vouches for; one row a batch is enough.
            if beat and self._reach.finished is not None:
                _write(_heartbeat(self._reach.finished), writers, data_files)
            files = [writer.close() for writer in writers.values()]
        return [file for file in files if file is not None]

    def _arrived(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        return dated(_without_empty(batch), self._reach.read_at)


def latest(read_at: datetime) -> datetime:
    """What is dated later than this has a date that cannot be."""
    return read_at + timedelta(seconds=TOLERANCE)


def dated(records: pa.RecordBatch, read_at: datetime | None) -> pa.RecordBatch:
    """The records, those from after `read_at`, or from before 1970, dated then. Clocks may differ
    by `TOLERANCE`."""
    if read_at is None:
        return records
    place = records.schema.get_field_index("received_at")
    # A date in the future would move every watermark behind it, and make true times late.
    arrived = records.column(place)
    limit = pa.scalar(latest(read_at), arrived.type)
    ahead = pc.greater(arrived, limit)
    # Kafka's own time for none is just before; a sender's may be older than Python's years.
    never = pc.less(arrived, pa.scalar(0, pa.int64()).cast(arrived.type))
    wrong = pc.fill_null(pc.or_(ahead, never), False)
    # Nearly always: then the column is not copied.
    if not pc.any(wrong).as_py():
        return records
    right = pc.if_else(wrong, pa.scalar(read_at, arrived.type), arrived)
    return records.set_column(place, records.schema.field(place), right)


def mark_duplicates(events: pa.RecordBatch, repeats: Mapping[str, str]) -> pa.RecordBatch:
    """The events, those of `repeats` marked as second deliveries."""
    if not repeats:
        return events
    marks = [repeats.get(uid) for uid in events.column("event_uid").to_pylist()]
    if not any(marks):
        return events
    field_index = events.schema.get_field_index("duplicate_of")
    return events.set_column(
        field_index, events.schema.field(field_index), pa.array(marks, pa.string())
    )


def _write(
    events: pa.RecordBatch,
    writers: Mapping[str, FileWriter],
    stages: Sequence[tuple[str, Find]],
) -> None:
    if EVENT.name in writers:
        writers[EVENT.name].write(events)
    # The steps see the very batch that was written, so a finding names only events that exist.
    for name, find in stages:
        for rows in find(events):
            writers[name].write(rows)


def slices(batches: _Batches) -> _Batches:
    """The same rows in batches of at most `SLICE_BYTES` of raw data, or of one row."""
    for batch in batches:
        lengths = pc.fill_null(pc.binary_length(batch.column("raw")), 0)
        sizes = np.cumsum(np.asarray(lengths), dtype=np.int64)
        start, taken = 0, 0
        while start < batch.num_rows:
            fitting = int(np.searchsorted(sizes, taken + SLICE_BYTES, side="right"))
            # At least one row: a record larger than a slice must still get through.
            end = min(max(fitting, start + 1), start + SLICE_ROWS)
            yield batch.slice(start, end - start)
            start, taken = end, int(sizes[min(end, batch.num_rows) - 1])


def _without_empty(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The records with null for no headers, as they were before `Pass.over`."""
    field_index = batch.schema.get_field_index("headers")
    headers = batch.column(field_index)
    none = pc.equal(pc.list_value_length(headers), 0)
    if not pc.any(none).as_py():
        return batch
    kept = pc.if_else(none, pa.scalar(None, headers.type), headers)
    return batch.set_column(field_index, batch.schema.field(field_index), kept)


def _heartbeat(finished: str) -> pa.RecordBatch:
    """The row that says how far the input is in."""
    instant = datetime.fromisoformat(finished)
    return to_arrow(
        [
            {
                # Named by its instant: the same batch, run again, writes the same row.
                "event_uid": f"heartbeat:{finished}",
                "record_ids": [],
                "source": HEARTBEAT,
                "mode": "live",
                "time": instant,
                "received_at": instant,
                "class_uid": 0,
            }
        ]
    )
