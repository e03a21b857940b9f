"""A network of DHCP clients for the tracker's benchmarks, and a query run over it file by file.

Every device has a lease of four hours and renews it after two. Of the lines of a steady batch
nine in ten renew; the others roam to an address nobody had, come back to one that was released,
release, or take over an address whose holder vanished. One file of lines is one batch.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession

from bench.measure import cpu_by_process
from enrich.dhcp.lease_rules import ACK, RELEASE, SECOND_US
from ingest.tables import EVENT, HEARTBEAT

LEASE_SECONDS = 4 * 3600
START_US = 1_795_228_800 * SECOND_US
FIELDS = (
    ("event_uid", pa.string()),
    ("source", pa.string()),
    ("mode", pa.string()),
    ("time", pa.timestamp("us", "UTC")),
    ("received_at", pa.timestamp("us", "UTC")),
    ("scope", pa.string()),
    ("src_ip", pa.string()),
    ("mac", pa.string()),
    ("class_uid", pa.int32()),
    ("activity_id", pa.int32()),
    ("status_id", pa.int32()),
    ("lease_dur", pa.int64()),
)
SCHEMA = pa.schema(list(FIELDS))


class Network:
    """Devices and the addresses they hold; gives lines in order of time, without a clock."""

    def __init__(self, devices: int, seed: int = 7) -> None:
        self._chance = np.random.default_rng(seed)
        self._devices = devices
        self._fresh = devices
        self._free: list[int] = []
        self._at = np.arange(devices)
        self.now_us = START_US
        self._lines = 0

    def leases(self, first: int, last: int, seconds: float) -> pa.Table:
        """Each device of a range is given its address, evenly over a time."""
        who = np.arange(first, last)
        return self._table(who, self._at[who], np.full(len(who), ACK), seconds)

    def traffic(self, lines: int, seconds: float) -> pa.Table:
        """What a network in use says in a time; no device twice."""
        who = self._chance.choice(self._devices, size=min(lines, self._devices), replace=False)
        what = self._chance.random(len(who))
        where, activity = self._at[who].copy(), np.full(len(who), ACK)
        for n in np.flatnonzero(what > 0.9).tolist():
            if what[n] > 0.97:
                activity[n] = RELEASE
                self._free.append(int(where[n]))
            elif what[n] > 0.94 and self._free:
                where[n] = self._free.pop()  # given out again
            else:
                where[n] = self._fresh  # roams; its old lease runs on
                self._fresh += 1
        self._at[who] = where
        return self._table(who, where, activity, seconds)

    def _table(
        self,
        who: np.ndarray[Any, Any],
        where: np.ndarray[Any, Any],
        activity: np.ndarray[Any, Any],
        seconds: float,
    ) -> pa.Table:
        count = len(who)
        times = self.now_us + (
            np.arange(1, count + 1) * (seconds * SECOND_US / (count + 1))
        ).astype(np.int64)
        self.now_us += int(seconds * SECOND_US)
        numbers = range(self._lines, self._lines + count)
        self._lines += count
        columns = {
            "event_uid": [f"{n:026x}" for n in numbers] + [f"beat-{self.now_us}"],
            "source": ["isc_dhcpd"] * count + [HEARTBEAT],
            "mode": ["live"] * (count + 1),
            "time": [*times.tolist(), self.now_us],
            "received_at": [*(times + 200_000).tolist(), self.now_us + 300_000],
            "scope": ["default"] * count + [None],
            "src_ip": [f"10.{n >> 16}.{n >> 8 & 255}.{n & 255}" for n in where.tolist()] + [None],
            "mac": [
                f"02:00:{n >> 24 & 255:02x}:{n >> 16 & 255:02x}:{n >> 8 & 255:02x}:{n & 255:02x}"
                for n in who.tolist()
            ]
            + [None],
            "class_uid": [4004] * count + [None],
            "activity_id": [*activity.tolist(), None],
            "status_id": [1] * count + [None],
            "lease_dur": [LEASE_SECONDS if a == ACK else None for a in activity.tolist()] + [None],
        }
        return pa.table({name: pa.array(columns[name], kind) for name, kind in FIELDS})


def arrive(folder: Path, batches: Iterable[pa.Table]) -> int:
    """Write batches of lines as files that a stream takes one by one; how many lines."""
    folder.mkdir(parents=True)
    lines = 0
    for number, table in enumerate(batches):
        file = folder / f"{number:06}.parquet"
        pq.write_table(table, file)
        os.utime(file, (number, number))  # a stream takes files by age
        lines += table.num_rows - 1
    return lines


@dataclass
class Run:
    """What each batch of a query took, the first left out: it bears the start of the query.

    `cpu` in CPU-s, `wall` in s; `state` and `checkpoint`: bytes of files that were new after it,
    in the state's folder and in all of the checkpoint.
    """

    cpu: list[float] = field(default_factory=list)
    wall: list[float] = field(default_factory=list)
    state: list[int] = field(default_factory=list)
    checkpoint: list[int] = field(default_factory=list)
    progress: dict[str, Any] = field(default_factory=dict)
    outputs: list[tuple[Any, ...]] = field(default_factory=list)


Way = Callable[[DataFrame], DataFrame]


def through(
    spark: SparkSession, files: Path, checkpoint: Path, way: Way, *, keep: bool = False
) -> Run:
    """Run a stream over the files, one a batch, and measure each batch.

    `keep`: hold what came out, for a comparison.
    """
    run = Run()
    marks: list[tuple[float, dict[tuple[int, float], float]]] = []
    seen: set[Path] = set()
    grown: list[tuple[int, int]] = []

    def batch(rows: DataFrame, _: int) -> None:
        if keep:
            run.outputs += [tuple(row) for row in rows.collect()]
        else:
            rows.write.format("noop").mode("append").save()
        marks.append((time.monotonic(), cpu_by_process()))
        grown.append(_grown(checkpoint, seen))

    lines = (
        spark.readStream.schema(EVENT.schema).option("maxFilesPerTrigger", 1).parquet(str(files))
    )
    query = (
        way(lines)
        .writeStream.foreachBatch(batch)
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    run.progress = next((p for p in reversed(query.recentProgress) if p["stateOperators"]), {})
    for (before, used), (after, now) in pairwise(marks):
        run.wall.append(after - before)
        run.cpu.append(sum(cpu - used.get(process, 0.0) for process, cpu in now.items()))
    run.state, run.checkpoint = [one for one, _ in grown[1:]], [all_ for _, all_ in grown[1:]]
    return run


def _grown(checkpoint: Path, seen: set[Path]) -> tuple[int, int]:
    """Bytes of files that were not there before: of the state, and in all."""
    state = total = 0
    for file in checkpoint.rglob("*"):
        if file in seen:
            continue
        try:
            size = file.stat().st_size if file.is_file() else 0
        except FileNotFoundError:
            continue  # cleaned up meanwhile
        seen.add(file)
        total += size
        state += size if "state" in file.relative_to(checkpoint).parts[:1] else 0
    return state, total
