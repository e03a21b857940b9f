"""The as-of join over history: cogrouped Arrow and a sorted search.

A range join in SQL compares each finding with every segment of its address; here the segments
of an address are first flattened to what is true (the highest `rev` wins), then searched.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

_SEGMENT = ("mac", "hostname", "session_id", "session_start", "session_end", "known_at", "rev")
"""Columns of a segment that come along as `s_...`, and its evidence."""


def newest_cover(findings: DataFrame, segments: DataFrame, buckets: int) -> DataFrame:
    """Each finding with the highest-rev segment that covers its `event_time`, or with nulls.

    All columns of the finding (give it few), of which scope, ip and event_time are looked at,
    and the segment's as `s_mac`, `s_hostname`, `s_session_id`, `s_session_start`,
    `s_session_end`, `s_known_at`, `s_rev`, `s_evidence`. Segments must have a span; memory is
    that of the largest of `buckets`.
    """
    bucket = F.pmod(F.hash("scope", "ip"), F.lit(buckets)).alias("bucket")
    left = findings.select(bucket, "*")
    right = segments.select(
        bucket,
        "scope",
        "ip",
        F.unix_micros("seg_start").alias("start_us"),
        F.unix_micros("seg_end").alias("end_us"),
        *[F.col(name).alias(f"s_{name}") for name in _SEGMENT],
        F.col("evidence").alias("s_evidence"),
    )
    carried = [f"s_{name}" for name in (*_SEGMENT, "evidence")]
    given = [*left.drop("bucket").schema.fields, *right.select(*carried).schema.fields]
    # What a finding without a segment lacks is null, also where segments never have a null.
    fields = [T.StructField(field.name, field.dataType, True) for field in given]

    def search(found: pa.Table, known: pa.Table) -> pa.Table:
        return _search(found.drop_columns(["bucket"]), known, carried)

    return (
        left.groupBy("bucket")
        .cogroup(right.groupBy("bucket"))
        .applyInArrow(search, T.StructType(fields))
    )


def _search(findings: pa.Table, segments: pa.Table, carried: Sequence[str]) -> pa.Table:
    chosen = np.full(findings.num_rows, -1, dtype=np.int64)
    if findings.num_rows and segments.num_rows:
        times = pc.cast(findings.column("event_time"), pa.timestamp("us", "UTC"))
        happened = pc.cast(times, pa.int64()).to_numpy()
        spans = {name: segments.column(name).to_numpy() for name in ("start_us", "end_us", "s_rev")}
        where = _rows_by_address(segments)
        for address, rows in _rows_by_address(findings).items():
            mine = where.get(address)
            if mine is not None:
                starts, ends, index = flatten(*(spans[name][mine] for name in spans))
                chosen[rows] = _lookup(happened[rows], starts, ends, mine[index])
    taken = segments.select(list(carried)).take(pa.array(chosen, mask=chosen < 0))
    return pa.table([*findings.columns, *taken.columns], [*findings.column_names, *carried])


def _rows_by_address(table: pa.Table) -> dict[tuple[str | None, str | None], np.ndarray]:
    """Numbers of each address's rows."""
    keys = list(zip(table.column("scope").to_pylist(), table.column("ip").to_pylist(), strict=True))
    numbers: dict[tuple[str | None, str | None], int] = {}
    of_row = np.fromiter((numbers.setdefault(k, len(numbers)) for k in keys), np.int64, len(keys))
    order = np.argsort(of_row, kind="stable")
    cuts = np.searchsorted(of_row[order], np.arange(1, len(numbers)))
    return dict(zip(numbers, np.split(order, cuts), strict=True))


def flatten(
    starts: np.ndarray, ends: np.ndarray, revs: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """What is true of one address: spans that do not overlap, in order, and whose they are.

    Takes spans `[start, end)` and their revs; the third result holds positions in the input.
    """
    order = np.argsort(starts, kind="stable")
    if np.all(ends[order][:-1] <= starts[order][1:]):
        return starts[order], ends[order], order
    cuts = np.unique(np.concatenate([starts, ends])).tolist()
    begin, finish, owner = starts.tolist(), ends.tolist(), revs.tolist()
    waiting = [int(n) for n in order[::-1]]
    open_spans: list[tuple[int, int]] = []
    out: list[tuple[int, int, int]] = []
    for low, high in pairwise(cuts):
        while waiting and begin[waiting[-1]] <= low:
            n = waiting.pop()
            heapq.heappush(open_spans, (-owner[n], n))
        while open_spans and finish[open_spans[0][1]] <= low:
            heapq.heappop(open_spans)
        if open_spans:
            out.append((low, high, open_spans[0][1]))
    flat = np.array(out, dtype=np.int64).reshape(-1, 3)
    return flat[:, 0], flat[:, 1], flat[:, 2]


def _lookup(
    times: np.ndarray, starts: np.ndarray, ends: np.ndarray, rows: np.ndarray
) -> np.ndarray:
    at = np.searchsorted(starts, times, side="right") - 1
    covered = (at >= 0) & (times < ends[np.maximum(at, 0)])
    return np.where(covered, rows[np.maximum(at, 0)], -1)
