"""The messages of a batch as rows of bronze.record, read by the workers that parse them.

They are the rows that `ingest.pipeline.ingest_job.bronze_columns` makes of Spark's (decision 0038).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from confluent_kafka import Message
from pyspark import TaskContext

from infra.delta.parquet_writer import arrow_schema
from infra.errors import Retryable
from infra.kafka.range_reader import LATEST_MILLIS, OffsetRange, headers_of, read
from infra.process.gc_pause import no_collection
from ingest.parsing.arrow_columns import joined
from ingest.parsing.source import mode_of
from ingest.tables import RECORD

_SCHEMA = arrow_schema(RECORD)
_HEADERS: pa.DataType = _SCHEMA.field("headers").type

_Headers = Sequence[tuple[str, bytes | None]] | None


@dataclass(frozen=True)
class _Held:
    """Messages of a range that are not rows yet, each with its headers."""

    range: OffsetRange
    messages: list[Message]
    headers: list[_Headers]


@dataclass(frozen=True)
class TopicNames:
    """What records of a topic are called."""

    topic_id: str
    source: str
    tenant: str | None


@dataclass(frozen=True)
class Fetch:
    """Which messages each task of a batch reads, and what their records are called. Pickles."""

    tasks: tuple[tuple[OffsetRange, ...], ...]
    names: Mapping[str, TopicNames]
    options: Mapping[str, Any] = field(repr=False)
    any_headers: bool = False
    """Whether a message gets in without its headers where these cannot be read."""

    def batches(self, task: int, rows: int, size: int) -> Iterator[pa.RecordBatch]:
        """The records of a task, `rows` or `size` bytes at once; the last may have fewer.

        A retry gets the same batches: what is parsed together may become one event.
        """
        held: list[_Held] = []
        room_rows, room_bytes = rows, size
        for offset_range, messages in read(self.tasks[task], self.options):
            with no_collection():
                start, headers = 0, list(map(self._headers_of, messages))
                sizes = list(map(_size, messages, headers))
            while start < len(messages):
                ends = list(accumulate(sizes[start : start + room_rows]))
                # The one that reaches the bound is among them: a large one must get through.
                taken = min(bisect_left(ends, room_bytes) + 1, len(ends))
                if not held or held[-1].range is not offset_range:
                    held.append(_Held(offset_range, [], []))
                held[-1].messages.extend(messages[start : start + taken])
                held[-1].headers.extend(headers[start : start + taken])
                start, room_rows = start + taken, room_rows - taken
                room_bytes -= ends[taken - 1]
                if room_rows <= 0 or room_bytes <= 0:
                    yield self._together(held)
                    held, room_rows, room_bytes = [], rows, size
        if held:
            yield self._together(held)

    def _headers_of(self, message: Message) -> _Headers:
        try:
            return headers_of(message)
        except Retryable:
            if self.any_headers:
                return None
            raise

    @no_collection()
    def _together(self, held: Sequence[_Held]) -> pa.RecordBatch:
        parts = [self._records(each.range, each.messages, each.headers) for each in held]
        return parts[0] if len(parts) == 1 else pa.concat_batches(parts)

    def _records(
        self, offset_range: OffsetRange, messages: Sequence[Message], headers: Sequence[_Headers]
    ) -> pa.RecordBatch:
        names, count = self.names[offset_range.topic], len(messages)
        offsets = pa.array([message.offset() for message in messages], pa.int64())
        some = any(headers)
        millis = pa.array([message.timestamp()[1] for message in messages], pa.int64())
        columns = {
            "record_id": pc.binary_join_element_wise(
                f"{names.topic_id}:{offset_range.partition}:", offsets.cast(pa.string()), ""
            ),
            "source": pa.repeat(names.source, count),
            "mode": pa.array([mode_of(each or ()) for each in headers])
            if some
            else pa.repeat("live", count),
            "received_at": pc.multiply_checked(_bounded(millis), 1000),
            "topic": pa.repeat(offset_range.topic, count),
            "partition": pa.repeat(pa.scalar(offset_range.partition, pa.int32()), count),
            "offset": offsets,
            "raw": joined([message.value() for message in messages], pa.binary()),
            "headers": pa.array(map(header_rows, headers), _HEADERS)
            if some
            else pa.nulls(count, _HEADERS),
            "tenant_uid": pa.nulls(count, pa.string())
            if names.tenant is None
            else pa.repeat(names.tenant, count),
        }
        return pa.RecordBatch.from_arrays(
            [_as(columns[field.name], field.type) for field in _SCHEMA], schema=_SCHEMA
        )


def _bounded(millis: pa.Array) -> pa.Array:
    """Times as `infra.kafka.range_reader.moment_of` has them; what is not near now is dated when it
    was read (`ingest.pipeline.batch_pass.dated`)."""
    least = pa.scalar(-1, millis.type)
    return pc.max_element_wise(pc.min_element_wise(millis, LATEST_MILLIS), least)


def _as(column: pa.Array, kind: pa.DataType) -> pa.Array:
    return column if column.type == kind else column.cast(kind)


def task() -> int:
    """Which task of the batch this is."""
    context = TaskContext.get()
    return 0 if context is None else context.partitionId()


def shared_out(ranges: Sequence[OffsetRange], tasks: int) -> tuple[tuple[OffsetRange, ...], ...]:
    """Ranges for at most so many tasks of about as many messages; none is cut, as lines that are
    parts of one event must be seen together."""
    shares: list[list[OffsetRange]] = [[] for _ in range(min(tasks, len(ranges)))]
    sizes = [0] * len(shares)
    for each in sorted(ranges, key=lambda one: (one.start - one.end, one.topic, one.partition)):
        least = sizes.index(min(sizes))
        shares[least].append(each)
        sizes[least] += each.end - each.start
    return tuple(map(tuple, shares))


def _size(message: Message, headers: _Headers) -> int:
    """Bytes that a message holds: its headers and its key may be larger than its value."""
    size = len(message) + len(message.key() or b"")
    if headers:
        size += sum(len(key) + len(value or b"") for key, value in headers)
    return size


def header_rows(headers: _Headers) -> list[dict[str, Any]] | None:
    """Headers as bronze.record has them."""
    return [{"key": key, "value": value} for key, value in headers] if headers else None
