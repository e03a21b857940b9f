"""The session state in Spark: by bucket of addresses, as one blob or in cells.

One blob a bucket (version 1) is an `applyInPandasWithState`: the cheaper way as long as the
leases are some tens of thousands, since a batch reads and writes all of a bucket it has a row of.
Cells (version 2, `enrich.dhcp.state_cells`) are a `transformWithState`: what a batch costs grows
with the lines it has, not with the leases there are. They need Spark's RocksDB store, which a query
takes from its session when it starts; what the store forgets between two batches it reads back from
the checkpoint. `jobs.session_state` chooses; `enrich.dhcp.checkpoint_rebuild` goes from one to the
other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import pandas as pd
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as T
from pyspark.sql.streaming.state import GroupState, GroupStateTimeout
from pyspark.sql.streaming.stateful_processor import (
    MapState,
    StatefulProcessor,
    StatefulProcessorHandle,
    TimerValues,
    ValueState,
)

from enrich.dhcp.lease_rules import LeaseEvent, Segment
from enrich.dhcp.state_cells import VERSION, Kept
from enrich.dhcp.state_encoding import WHOLE, decode_bucket, encode_bucket
from enrich.dhcp.tracker_state import TrackerBucket, TrackerLimits

LINE = LeaseEvent.__struct_fields__
"""Columns of a line, in the order of `LeaseEvent`."""

MICROS = ("seg_start", "seg_end", "session_start", "session_end", "known_at", "learned_at")
_LONGS = (*MICROS, "rev")
_BLOB = T.StructType([T.StructField("state", T.BinaryType())])
_NAME = T.StructType([T.StructField("name", T.StringType())])

_STORE = "spark.sql.streaming.stateStore"
_CONF = {
    f"{_STORE}.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
    # A batch leaves a file with its changes, not a copy of the store.
    f"{_STORE}.rocksdb.changelogCheckpointing.enabled": "true",
    # A start plays those files since the last snapshot: at the default of 10 the few large batches
    # of a backlog all came again with each start. A snapshot is cheap here: only what is new.
    f"{_STORE}.minDeltasForSnapshot": "3",
}


def with_store(spark: SparkSession, version: int) -> SparkSession:
    """A session whose queries keep their state as this version needs it."""
    return spark if version == WHOLE else with_rocksdb(spark)


def with_rocksdb(spark: SparkSession) -> SparkSession:
    """A session whose queries keep their state in RocksDB."""
    # The state store provider is a setting of the session: the other jobs keep theirs.
    own = spark.newSession()
    for key, value in _CONF.items():
        own.conf.set(key, value)
    return own


def tracked(rows: DataFrame, limits: TrackerLimits, version: int) -> DataFrame:
    """Lines and heartbeats (`bucket`, `beat`, `LINE`) to the segments they lead to, unnamed times.

    A stream of a session of `with_store`. Times are longs, in microseconds.
    """
    buckets = rows.groupBy("bucket")
    # Time mode "none": stream time is what ingest has finished, not a watermark or the wall clock.
    if version == VERSION:
        return buckets.transformWithStateInPandas(Tracker(limits), row_schema(), "append", "none")
    return buckets.applyInPandasWithState(
        _in_one_blob(limits), row_schema(), _BLOB, "append", GroupStateTimeout.NoTimeout
    )


def _in_one_blob(
    limits: TrackerLimits,
) -> Callable[[tuple[int], Iterable[pd.DataFrame], GroupState], Iterator[pd.DataFrame]]:
    def step(
        key: tuple[int], chunks: Iterable[pd.DataFrame], state: GroupState
    ) -> Iterator[pd.DataFrame]:
        lines, finished = read_state(chunks)
        held = decode_bucket(bytes(state.get[0]), limits) if state.exists else TrackerBucket(limits)
        advance = held.advance(lines, finished)
        state.update((encode_bucket(held),))
        yield from _told(key, advance, held, finished)

    return step


def _told(
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


class _Map:
    """Cells in a map of Spark's."""

    def __init__(self, state: MapState) -> None:
        self._state = state

    def get(self, name: str) -> bytes | None:
        getValue = self._state.getValue((name,))
        return None if getValue is None else bytes(getValue[0])

    def put(self, name: str, blob: bytes) -> None:
        self._state.updateValue((name,), (blob,))

    def drop(self, name: str) -> None:
        self._state.removeKey((name,))


class _Value:
    """The one cell of a value of Spark's, whatever its name."""

    def __init__(self, state: ValueState) -> None:
        self._state = state

    def get(self, name: str) -> bytes | None:
        _state = self._state.get()
        return None if _state is None else bytes(_state[0])

    def put(self, name: str, blob: bytes) -> None:
        self._state.update((blob,))

    def drop(self, name: str) -> None:
        self._state.clear()


class _InCells(StatefulProcessor):
    """State of version 2: what a bucket's cells are called and hold."""

    def __init__(self, limits: TrackerLimits) -> None:
        self.limits = limits

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Name the cells, in each task and once on the driver."""
        self._header = _Value(handle.getValueState("header", _BLOB))
        self._addresses = _Map(handle.getMapState("addresses", _NAME, _BLOB))
        self._wheel = _Map(handle.getMapState("wheel", _NAME, _BLOB))

    def kept(self) -> Kept:
        """The bucket whose rows are being handled."""
        return Kept(self.limits, self._header, self._addresses, self._wheel)


class Tracker(_InCells):
    """Lines and heartbeats of a bucket to its segments."""

    def handleInputRows(  # type: ignore[override]  # Spark's own frame type has no rows
        self, key: tuple[int], rows: Iterator[pd.DataFrame], timerValues: TimerValues
    ) -> Iterator[pd.DataFrame]:
        """Take in one batch's rows of a bucket."""
        lines, finished = read_state(rows)
        kept = self.kept()
        # Only cells of addresses that have lines or are due: each costs a call over a socket.
        state = kept.load(lines, finished)
        advance = state.advance(lines, finished)
        kept.save()
        yield from _told(key, advance, state, finished)


class _Sower(_InCells):
    """Whole buckets into cells, in the only batch of a new checkpoint."""

    def handleInputRows(  # type: ignore[override]  # Spark's own frame type has no rows
        self, key: tuple[int], rows: Iterator[pd.DataFrame], timerValues: TimerValues
    ) -> Iterator[pd.DataFrame]:
        """One row: a bucket's whole state."""
        for chunk in rows:
            for blob in chunk["state"]:
                self.kept().sow(decode_bucket(bytes(blob), self.limits))
        yield pd.DataFrame({"bucket": [key[0]]})


SOWN = "bucket int"


def sown(seeds: DataFrame, limits: TrackerLimits, version: int) -> DataFrame:
    """A stream of whole buckets (`bucket`, `state`: see `enrich.dhcp.state_encoding`) into
    state.

    Gives the buckets. The state is the same operator's as that of `tracked`, so a job can go on
    from the checkpoint.
    """
    if version == VERSION:
        return seeds.groupBy("bucket").transformWithStateInPandas(
            _Sower(limits), SOWN, "append", "none"
        )
    return seeds.groupBy("bucket").applyInPandasWithState(
        _sow_whole, SOWN, _BLOB, "append", GroupStateTimeout.NoTimeout
    )


def _sow_whole(
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
        beats = chunk["beat"].to_numpy(dtype=bool)
        finished += chunk["time_us"][beats].tolist()
        columns = [chunk[name][~beats].tolist() for name in LINE]
        lines += [LeaseEvent(*row) for row in zip(*columns, strict=True)]
    return lines, finished


def frame(said: list[Segment]) -> pd.DataFrame:
    """Segments as they leave Python (`row_schema`)."""
    rows = {name: [getattr(s, name) for s in said] for name in Segment.__struct_fields__}
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
