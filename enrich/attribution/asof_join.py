"""The as-of join over history: Arrow columns and one sorted search for all addresses at once.

A range join in SQL compares each event with every segment of its address; here the segments
are first flattened to what is true (the highest `rev` wins), then searched by address and time.
No step works row by row in Python, however many addresses there are and however many spans one
of them has.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql import types as T
from pyspark.sql.pandas.types import from_arrow_schema

_Numbers = npt.NDArray[np.int64]

SEGMENT = (
    "mac",
    "hostname",
    "session_id",
    "session_start",
    "session_end",
    "known_at",
    "rev",
    "evidence",
)
"""Columns of a segment that come along as `s_...`."""

BLOCK_ROWS = 400_000
WEEK_US = 7 * 86_400_000_000

_KEYS = ("scope", "ip", "start_us", "end_us")


def newest_cover(
    findings: DataFrame, segments: DataFrame, buckets: int = 16, carried: Sequence[str] = SEGMENT
) -> DataFrame:
    """Each finding with the highest-rev segment that covers its `event_time`, or with nulls.

    All columns of the finding (give it few), of which scope, ip and event_time are looked at,
    and those of the segment that are `carried`, prefixed with `s_`; `s_rev` always. Segments
    must have a span; memory is that of the largest of `buckets`, and a week of an address is in
    one: an address busier than all others does not fill one bucket with months.
    """
    bucket = F.pmod(F.hash("scope", "ip", "week"), F.lit(buckets)).alias("bucket")
    happened = _week(F.unix_micros("event_time"))
    left = findings.withColumn("week", happened).select(bucket, "*").drop("week")
    # A span ends before `end_us`: one that ends with a week has no instant in the next.
    weeks = F.sequence(_week(F.col("start_us")), _week(F.col("end_us") - 1))
    right = _narrow(segments, carried).withColumn("week", F.explode(weeks))
    right = right.select(bucket, "*").drop("week")
    schema = _joined(findings.schema, right.drop(*_KEYS, "bucket").schema)

    def search(findings: pa.Table, segments: pa.Table) -> pa.Table:
        return join(findings.drop_columns(["bucket"]), Spans.of(segments.drop_columns(["bucket"])))

    return left.groupBy("bucket").cogroup(right.groupBy("bucket")).applyInArrow(search, schema)


def newest_cover_of_few(findings: DataFrame, segments: pa.Table) -> DataFrame:
    """The same without a shuffle, where all segments find room in every worker's memory.

    `segments`: what `collected` gave; all its columns come along.
    """
    segment_schema = from_arrow_schema(segments.drop_columns(list(_KEYS)).schema)
    schema = _joined(findings.schema, segment_schema)
    # A broadcast is read once by each worker, not once by each task.
    shared = findings.sparkSession.sparkContext.broadcast(Spans.of(segments))

    def search(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for block in _blocks(batches):
            yield from join(block, shared.value).combine_chunks().to_batches()

    return findings.mapInArrow(search, schema)


def _blocks(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.Table]:
    """The same rows in larger tables: each search begins with hashing all addresses."""
    waiting: list[pa.RecordBatch] = []
    for batch in batches:
        waiting.append(batch)
        if sum(record_batch.num_rows for record_batch in waiting) >= BLOCK_ROWS:
            yield pa.Table.from_batches(waiting)
            waiting = []
    if waiting:
        yield pa.Table.from_batches(waiting)


def as_arrow(segments: DataFrame, carried: Sequence[str] = SEGMENT) -> pa.Table:
    """Segments in the driver's memory, as `newest_cover_of_few` wants them: without their evidence
    some 150 bytes each, so a million is fine."""
    return _narrow(segments, carried).toArrow()


def statements(
    segments: DataFrame, at: datetime | None = None, *, whole: bool = False
) -> DataFrame:
    """Segments that say something, as known at `at` or now.

    `whole`: with the lease's start and end as the newest statement about it has them, whatever
    span that covers; else as they were known when each segment was said.
    """
    rows = segments.where("kind <> 'heartbeat'")
    if at is not None:
        rows = rows.where((F.col("known_at") <= F.lit(at)) & (F.col("learned_at") <= F.lit(at)))
    if whole:
        lease = Window.partitionBy("scope", "ip", "session_id")
        newest = {
            name: F.when(F.col("session_id").isNotNull(), F.max_by(name, "rev").over(lease))
            for name in ("session_start", "session_end")
        }
        rows = rows.withColumns(newest)
    return rows.where("seg_end > seg_start")


def _week(micros: Column) -> Column:
    return F.floor(micros / F.lit(WEEK_US))


def _narrow(segments: DataFrame, carried: Sequence[str]) -> DataFrame:
    names = [*carried, *([] if "rev" in carried else ["rev"])]
    return segments.select(
        "scope",
        "ip",
        F.unix_micros("seg_start").alias("start_us"),
        F.unix_micros("seg_end").alias("end_us"),
        *[F.col(name).alias(f"s_{name}") for name in names],
    )


def _joined(findings: T.StructType, segments: T.StructType) -> T.StructType:
    """What a finding without a segment lacks is null, also where segments never have a null."""
    fields = [*findings.fields, *segments.fields]
    return T.StructType([T.StructField(field.name, field.dataType, True) for field in fields])


@dataclass(frozen=True)
class Spans:
    """What is true of many addresses: spans that do not overlap, by address and start.

    `pairs`: the addresses' numbers, ascending, made of the place of the scope in `scopes` and
    of the address in `ips`. `owners`: of each span its row in `segments`. Pickles.
    """

    scopes: pa.Array
    ips: pa.Array
    pairs: _Numbers
    codes: _Numbers
    ends: _Numbers
    instants: _Numbers
    keys: _Numbers
    owners: _Numbers
    segments: pa.Table

    @classmethod
    def of(cls, segments: pa.Table) -> Spans:
        """Of segments with scope, ip, start_us, end_us, s_rev, and what is to be carried."""
        columns = {name: segments.column(name).combine_chunks() for name in ("scope", "ip")}
        scopes, ips = (columns[name].unique() for name in ("scope", "ip"))
        numbers = _numbers(columns["scope"], columns["ip"], scopes, ips)
        pairs, codes = np.unique(numbers, return_inverse=True)
        starts, ends, revs = (
            segments.column(name).to_numpy() for name in ("start_us", "end_us", "s_rev")
        )
        codes, starts, ends, owners = true_spans(codes, starts, ends, revs)
        instants = np.unique(starts)
        combine_chunks = segments.drop_columns(list(_KEYS)).combine_chunks()
        # Places of instants, not times: microseconds times an address's number overflow 64 bits.
        keys = codes * (len(instants) + 1) + np.searchsorted(instants, starts, side="right")
        return cls(scopes, ips, pairs, codes, ends, instants, keys, owners, combine_chunks)

    def rows(self, scope: pa.Array, ip: pa.Array, times: _Numbers) -> _Numbers:
        """Of each address and instant (microseconds since 1970) the row in `segments`, or -1."""
        if not len(self.keys):
            return np.full(len(times), -1, np.int64)
        pair = _numbers(scope, ip, self.scopes, self.ips)
        # By address, the searches walk through memory; in any order, each step would wait for it.
        order = np.argsort(pair, kind="stable")
        pair, times = pair[order], times[order]
        # What lies behind the last address gets that one, and is not `covered` below.
        code = np.minimum(np.searchsorted(self.pairs, pair), len(self.pairs) - 1)
        # An address and an instant as one number, in the order of the spans.
        key = code * (len(self.instants) + 1)
        key += np.searchsorted(self.instants, times, side="right")
        maximum = np.maximum(np.searchsorted(self.keys, key, side="right") - 1, 0)
        covered = self.pairs[code] == pair
        covered &= (
            (self.codes[maximum] == code)
            & (self.keys[maximum] <= key)
            & (times < self.ends[maximum])
        )
        empty = np.empty(len(order), np.int64)
        empty[order] = np.where(covered, self.owners[maximum], -1)
        return empty


def join(findings: pa.Table, spans: Spans) -> pa.Table:
    """Findings with what `spans` say of their scope, ip and event_time, or with nulls."""
    scope, ip, time = (
        findings.column(name).combine_chunks() for name in ("scope", "ip", "event_time")
    )
    micros = pc.cast(pc.cast(time, pa.timestamp("us", "UTC")), pa.int64())
    missing = micros.null_count > 0
    # NumPy's integers have no null: such a row gets any time, and no holder below.
    times = (pc.fill_null(micros, 0) if missing else micros).to_numpy(zero_copy_only=False)
    rows = spans.rows(scope, ip, times)
    if missing:
        rows[micros.is_null().to_numpy(zero_copy_only=False)] = -1
    taken = spans.segments.take(pa.array(rows, mask=rows < 0))
    return pa.table(
        [*findings.columns, *taken.columns], [*findings.column_names, *taken.column_names]
    )


def _numbers(scope: pa.Array, ip: pa.Array, scopes: pa.Array, ips: pa.Array) -> _Numbers:
    """An address as one number; -1 where the scope or the address is not among those given."""
    places = [
        pc.fill_null(pc.index_in(values, value_set=value_set), -1)
        .to_numpy(zero_copy_only=False)
        .astype(np.int64)
        for values, value_set in ((scope, scopes), (ip, ips))
    ]
    number: _Numbers = places[0] * len(ips) + places[1]
    number[(places[0] < 0) | (places[1] < 0)] = -1
    return number


def flatten(
    starts: _Numbers, ends: _Numbers, revs: _Numbers
) -> tuple[_Numbers, _Numbers, _Numbers]:
    """What is true of one address: spans that do not overlap, in order, and whose they are.

    Takes spans `[start, end)` and their revs; the third result holds positions in the input.
    """
    return true_spans(np.zeros(len(starts), np.int64), starts, ends, revs)[1:]


def true_spans(
    codes: _Numbers, starts: _Numbers, ends: _Numbers, revs: _Numbers
) -> tuple[_Numbers, _Numbers, _Numbers, _Numbers]:
    """What is true of many addresses: of spans that overlap, the highest rev counts.

    Takes the address's number, `[start, end)` and the rev of each span; returns address, start,
    end and position in the input of each true span, by address and start.
    """
    # `lexsort` sorts by its last key first.
    order = np.lexsort((starts, codes))
    code, start, end = codes[order], starts[order], ends[order]
    # Often nothing overlaps, and then the sort was all there is to do.
    if np.all((code[1:] != code[:-1]) | (end[:-1] <= start[1:])):
        return code, start, end, order
    # Cells: from one instant at which anything begins or ends to the next.
    code, instant = np.concatenate([codes, codes]), np.concatenate([starts, ends])
    order = np.lexsort((instant, code))
    code, instant = code[order], instant[order]
    first = np.ones(len(order), bool)
    first[1:] = (code[1:] != code[:-1]) | (instant[1:] != instant[:-1])
    cell = np.empty(len(order), np.int64)
    cell[order] = np.cumsum(first) - 1
    code, instant = code[first], instant[first]
    owner = _painted(cell[: len(codes)], cell[len(codes) :], revs, len(code))
    held = np.flatnonzero(owner >= 0)  # the cell before another address's first has no owner
    return code[held], instant[held], instant[held + 1], owner[held]


def _painted(low: _Numbers, high: _Numbers, revs: _Numbers, cells: int) -> _Numbers:
    """Of each cell, which of the spans `[low, high)` over it has the highest rev; -1: none.

    A span is two overlapping blocks, as wide as the largest power of two that fits. From the
    widest down, each block hands its rank to its two halves: so a span that covers many cells
    costs no more than one that covers few.
    """
    # Stable, so that two spans of one rev give the same answer each time.
    by_rev = np.argsort(revs, kind="stable")
    rank = np.empty(len(revs), np.int64)
    rank[by_rev] = np.arange(len(revs))
    # The exponent is the place of the highest bit: a log2 that never rounds to the next one.
    level = np.frexp((high - low).astype(np.float64))[1] - 1
    best = np.full(cells, -1, np.int64)
    for step in range(int(level.max(initial=0)), -1, -1):
        mine, width = np.flatnonzero(level == step), 1 << step
        # `best[low[mine]] = ...` would keep only the last of several spans that begin in a cell.
        np.maximum.at(best, low[mine], rank[mine])
        np.maximum.at(best, high[mine] - width, rank[mine])
        if half := width >> 1:
            best[half:] = np.maximum(best[half:], best[:-half])
    return np.where(best >= 0, by_rev[np.maximum(best, 0)], -1)
