"""The session state in Spark: one blob for each bucket of addresses.

An `applyInPandasWithState` by bucket: a call of it costs 1 to 2 ms whatever it does, so the key is
never an address. Each heartbeat is a row for every bucket, so every batch reads and writes every
blob; of a blob it unpacks only what its lines touch or what is due (`enrich.dhcp.state_encoding`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import pandas as pd
from pyspark.sql import DataFrame
from pyspark.sql import types as T
from pyspark.sql.streaming.state import GroupState, GroupStateTimeout

from enrich.dhcp.lease_rules import LeaseEvent, Segment
from enrich.dhcp.state_encoding import StoredBucket
from enrich.dhcp.tracker_state import TrackerBucket, TrackerLimits

LINE = LeaseEvent.__struct_fields__
"""Columns of a line, in the order of `LeaseEvent`."""

MICROS = ("seg_start", "seg_end", "session_start", "session_end", "known_at", "learned_at")
_LONGS = (*MICROS, "rev")
_BLOB = T.StructType([T.StructField("state", T.BinaryType())])


def tracked(rows: DataFrame, limits: TrackerLimits) -> DataFrame:
    """Lines and heartbeats (`bucket`, `beat`, `LINE`) to the segments they lead to, unnamed times.

    Times are longs, in microseconds.
    """
    # No timeout: stream time is what ingest has finished, not a watermark or the wall clock.
    return rows.groupBy("bucket").applyInPandasWithState(
        _advancing(limits), row_schema(), _BLOB, "append", GroupStateTimeout.NoTimeout
    )


def _advancing(
    limits: TrackerLimits,
) -> Callable[[tuple[int], Iterable[pd.DataFrame], GroupState], Iterator[pd.DataFrame]]:
    def step(
        key: tuple[int], chunks: Iterable[pd.DataFrame], state: GroupState
    ) -> Iterator[pd.DataFrame]:
        lines, finished = read_state(chunks)
        stored = StoredBucket(limits, bytes(state.get[0]) if state.exists else None)
        bucket = stored.load(lines, finished)
        segments = bucket.advance(lines, finished)
        state.update((stored.save(),))
        yield from _output(key, segments, bucket, finished)

    return step


def _output(
    key: tuple[int], data_frames: list[Segment], state: TrackerBucket, finished: list[int]
) -> Iterator[pd.DataFrame]:
    """The segments of a bucket; the first bucket also says how far all have come."""
    # Heartbeats reach every bucket; written by each, there would be as many rows as buckets a
    # batch.
    if finished and key[0] == 0 and state.finished_us is not None:
        data_frames = [*data_frames, heartbeat(state.finished_us)]
    if data_frames:
        yield frame(data_frames)


def heartbeat(time_us: int) -> Segment:
    """The row that says how far the sessions are known."""
    nothing = (None,) * 9
    return Segment(*nothing, known_at=time_us, learned_at=time_us, rev=time_us, kind="heartbeat")


SEEDED = "bucket int"


def seeded(seeds: DataFrame) -> DataFrame:
    """A stream of whole buckets (`bucket`, `state`: see `enrich.dhcp.state_encoding`) into
    state.

    Gives the buckets. The state is the same operator's as that of `tracked`, so a job can go on
    from the checkpoint.
    """
    return seeds.groupBy("bucket").applyInPandasWithState(
        _seed, SEEDED, _BLOB, "append", GroupStateTimeout.NoTimeout
    )


def _seed(
    key: tuple[int], chunks: Iterable[pd.DataFrame], state: GroupState
) -> Iterator[pd.DataFrame]:
    for chunk in chunks:
        for blob in chunk["state"]:
            state.update((bytes(blob),))
    yield pd.DataFrame({"bucket": [key[0]]})


def read_state(chunks: Iterable[pd.DataFrame]) -> tuple[list[LeaseEvent], list[int]]:
    """Lines and times of heartbeats; column by column, rows of pandas are slow."""
    lines: list[LeaseEvent] = []
    finished: list[int] = []
    for chunk in chunks:
        # NumPy's own booleans, as `~` of a column of objects is no mask.
        is_heartbeat = chunk["beat"].to_numpy(dtype=bool)
        finished += chunk["time_us"][is_heartbeat].tolist()
        columns = [chunk[name][~is_heartbeat].tolist() for name in LINE]
        lines += [LeaseEvent(*row) for row in zip(*columns, strict=True)]
    return lines, finished


def frame(segments: list[Segment]) -> pd.DataFrame:
    """Segments as they leave Python (`row_schema`)."""
    rows = {name: [getattr(s, name) for s in segments] for name in Segment.__struct_fields__}
    rows["event_uids"] = [None if uids is None else list(uids) for uids in rows["event_uids"]]
    return pd.DataFrame(
        {
            # Int64 knows nulls; a plain column of integers with one becomes floats.
            name: pd.Series(values, dtype="Int64" if name in _LONGS else object)
            for name, values in rows.items()
        }
    )


def row_schema() -> T.StructType:
    """Segments as they leave Python: times as longs, which no library rounds or limits."""
    special = {"event_uids": T.ArrayType(T.StringType())}
    return T.StructType(
        [
            T.StructField(
                name, T.LongType() if name in _LONGS else special.get(name, T.StringType())
            )
            for name in Segment.__struct_fields__
        ]
    )
