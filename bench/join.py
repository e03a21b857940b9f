"""The attribution join with many live leases: what a batch costs, and whether it keeps up.

Two forms. `one join`: job `alert`'s own, every lease in the join's state. `recent and table`:
leases that became known lately join as a stream, the others are looked up in a snapshot of the
table that every worker holds.
"""

from __future__ import annotations

import shutil
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import numpy.typing as npt
import psutil
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from alerts.tables import FINDING
from alerts.tables import HEARTBEAT as DETECTED
from bench.measure import Report, cpu_by_process, cpu_since
from bench.plot import bars, panel
from enrich.attribution.asof_join import as_arrow, newest_cover_of_few, statements
from enrich.attribution.attributed_events import CARRIED
from enrich.attribution.stream_join import attribute
from enrich.tables import DHCP_SEGMENT
from infra.config.settings import JobSettings, load
from infra.delta.log_reader import newest_version
from infra.delta.parquet_writer import FileWriter, Target, arrow_schema
from infra.delta.schema import Table
from infra.delta.transaction import commit_files
from infra.spark.internals import collect_garbage, heap_use
from infra.spark.session import session
from infra.streaming.lake import Lake

TRIGGER = 10
START = datetime(2026, 11, 20, 12, tzinfo=UTC)
FREE_EVERY = 50
"""One finding in so many is by an address that nobody leased."""
RENEWAL_SECONDS = 4 * 3600
COLLECT_EVERY = 3
RECENT = JobSettings(max_lease_seconds=600, correct_seconds=600)
SCOPE = "default"

Form = Callable[[Lake, int], DataFrame]


@dataclass(frozen=True)
class Load:
    """`leases` are live; `per_second` findings come, in so many `batches`."""

    leases: int
    per_second: int
    batches: int


@dataclass
class Run:
    """What the batches of one form took."""

    cpu: dict[int, float] = field(default_factory=dict)
    memory: dict[int, float] = field(default_factory=dict)
    """By batch: CPU since the one before, and megabytes that the processes have of the system."""
    held: dict[int, float] = field(default_factory=dict)
    """By some batches: megabytes that are in use, the heap's after a collection."""
    progress: list[Any] = field(default_factory=list)


def run(quick: bool = False) -> Report:
    """1M leases and 1,000 findings a second in batches of ten seconds, for two minutes a form."""
    report = Report("join", "make bench ONLY=join")
    load_ = Load(100_000, 1_000, 5) if quick else Load(1_000_000, 1_000, 12)
    for name, form in (("one join", _one_join), ("recent and table", _recent_and_table)):
        _tell(report, name, _measured(load_, form), load_)
    if not quick:
        panels = {
            "CPU seconds a batch": panel(report, "CPU-s", ", CPU a batch"),
            "findings a CPU-second": panel(report, "findings/CPU-s", ", findings"),
            "memory, MB": panel(report, "MB", ", memory"),
        }
        bars(report, panels)
    report.notes += [
        f"{load_.leases:,} leases live, renewed every {RENEWAL_SECONDS // 3600} h; "
        f"{load_.per_second:,} findings/s, one in {FREE_EVERY} by an address without a lease; "
        f"a batch every {TRIGGER} s, fed at that pace, tables in and Parquet out",
        "every finding whose wait was over is compared with who held its address, in both forms",
        "first batch: all leases into the state, or the snapshot into the workers",
        "memory: what this process, Spark and its Python workers have of the system, largest after "
        f"any batch; in use: the same without what the heap holds no more, every {COLLECT_EVERY} "
        "batches after a collection",
    ]
    return report


def _measured(load_: Load, form: Form) -> Run:
    home = Path(tempfile.mkdtemp(prefix="headgate-bench-"))
    settings = load(home=home, spark={"small": False, "driver_memory": "6g"})
    spark = session(settings, "join")
    lake = Lake(spark, settings).ensure(FINDING, DHCP_SEGMENT)
    done = Run()
    try:
        numbers = np.arange(load_.leases)
        _append(lake, DHCP_SEGMENT, _segments(numbers, START - timedelta(hours=1), 0))
        version = newest_version(lake.folder(DHCP_SEGMENT))
        # A stream can only begin with a commit that is there.
        _append(lake, DHCP_SEGMENT, _beat(DHCP_SEGMENT, START))
        rows = form(lake, version)
        _run(lake, rows, home, load_, done)
        _require_right(home / "out", load_)
    finally:
        spark.stop()
        shutil.rmtree(home, ignore_errors=True)
    return done


def _one_join(lake: Lake, _: int) -> DataFrame:
    findings, segments = lake.stream(FINDING), lake.stream(DHCP_SEGMENT)
    return _said(attribute(findings, segments, lake.settings.jobs, lake.settings.scopes))


def _recent_and_table(lake: Lake, version: int) -> DataFrame:
    """What the snapshot knows comes at once; the join adds what became known since, and `none`
    for what neither knows."""
    known = as_arrow(statements(lake.read(DHCP_SEGMENT, version)), CARRIED)
    later = lake.spark.readStream.format("delta").option("startingVersion", version + 1)
    recent = later.load(lake.path(DHCP_SEGMENT))
    findings = lake.stream(FINDING)
    found = newest_cover_of_few(findings.where(F.col("rule_id") != DETECTED), known)
    at_once = found.where("s_mac IS NOT NULL").select(
        "finding_id", "ip", F.col("s_mac").alias("mac"), F.col("s_rev").alias("rev")
    )
    attributed = attribute(findings, recent, RECENT, lake.settings.scopes)
    joined = _said(attributed, "scope", "event_time")
    again = newest_cover_of_few(joined, known)
    unknown = again.where("rev >= 0 OR s_mac IS NULL").select("finding_id", "ip", "mac", "rev")
    return at_once.unionByName(unknown)


def _said(attributed: DataFrame, *more: str) -> DataFrame:
    uid = F.get_json_object("finding", "$.finding_id").alias("finding_id")
    time = F.get_json_object("finding", "$.event_time").cast("timestamp").alias("event_time")
    segment = F.substring_index("said", "\n", -1)
    rev = F.coalesce(F.get_json_object(segment, "$.rev").cast("long"), F.lit(-1).cast("long"))
    return attributed.withColumns({"finding_id": uid, "event_time": time}).select(
        "finding_id", "ip", *more, "mac", rev.alias("rev")
    )


def _run(lake: Lake, rows: DataFrame, home: Path, load_: Load, done: Run) -> None:
    before: dict[tuple[int, float], float] = {}

    def batch(said: DataFrame, number: int) -> None:
        nonlocal before
        # Left out of the stream's own plan: a filter there would be pushed below the watermark, and
        # take away the heartbeats that move it.
        said.where("ip IS NOT NULL").write.mode("append").parquet(str(home / "out"))
        done.cpu[number] = cpu_since(before) if before else 0.0
        before = cpu_by_process()
        done.memory[number] = _resident()
        if number % COLLECT_EVERY == 0:
            done.held[number] = _held(lake)
            before = cpu_by_process()  # a collection is not the join's work

    stop = threading.Event()
    feeder = threading.Thread(target=_feed, args=(lake, load_, stop), daemon=True)
    query = (
        rows.writeStream.foreachBatch(batch)
        .option("checkpointLocation", str(home / "checkpoint"))
        .trigger(processingTime=f"{TRIGGER} seconds")
        .start()
    )
    try:
        _until(lambda: bool(query.recentProgress), query, 600)  # the leases are in
        feeder.start()
        _until(lambda: not feeder.is_alive(), query, 1200)
        query.processAllAvailable()
    finally:
        stop.set()
        query.stop()
    done.progress = [p for p in query.recentProgress if p["numInputRows"]]


def _feed(lake: Lake, load_: Load, stop: threading.Event) -> None:
    """Ten seconds of findings and of renewals, every ten seconds; then only time goes on."""
    chance = np.random.default_rng(7)
    renewed = load_.leases * TRIGGER // RENEWAL_SECONDS
    began = time.monotonic()
    for step in range(load_.batches + 5):
        at = START + timedelta(seconds=TRIGGER * step)
        who = chance.integers(0, load_.leases, load_.per_second * TRIGGER)
        who[::FREE_EVERY] += load_.leases
        if step < load_.batches:
            _append(lake, FINDING, _findings(who, at, step))
        _append(lake, FINDING, _beat(FINDING, at + timedelta(seconds=TRIGGER)))
        if renewed:
            _append(
                lake, DHCP_SEGMENT, _segments(chance.choice(load_.leases, renewed), at, step + 1)
            )
        _append(lake, DHCP_SEGMENT, _beat(DHCP_SEGMENT, at + timedelta(seconds=TRIGGER)))
        if stop.wait(max(0.0, began + TRIGGER * (step + 1) - time.monotonic())):
            return


def _segments(who: npt.NDArray[np.int64], at: datetime, step: int) -> dict[str, Any]:
    size = len(who)
    return {
        "scope": pa.repeat(SCOPE, size),
        "ip": _addresses(who),
        "seg_start": _times(at, size),
        "seg_end": _times(at + timedelta(hours=20), size),
        "mac": _macs(who),
        "session_id": pc.binary_join_element_wise("session", pa.array(who).cast(pa.string()), "-"),
        "session_start": _times(at, size),
        "session_end": _times(at + timedelta(hours=20), size),
        "known_at": _times(at, size),
        "learned_at": _times(at, size),
        "rev": pa.array(np.full(size, step + 1)),
        "kind": pa.repeat("lease", size),
    }


def _findings(who: npt.NDArray[np.int64], at: datetime, step: int) -> dict[str, Any]:
    size = len(who)
    numbers = pa.array(np.arange(size) + step * size).cast(pa.string())
    spread = pa.array(np.arange(size) * (TRIGGER * 1_000_000 // size)).cast(pa.duration("us"))
    times = pc.add(_times(at, size), spread)
    return {
        "finding_id": numbers,
        "rule_id": pa.repeat("rule", size),
        "level": pa.repeat("high", size),
        "event_uid": numbers,
        "event_time": times,
        "received_at": times,
        "mode": pa.repeat("live", size),
        "role": pa.repeat("src_endpoint", size),
        "scope": pa.repeat(SCOPE, size),
        "ip": _addresses(who),
        "snippet": pa.repeat("Failed password for root from somewhere port 4022 ssh2", size),
    }


def _beat(table: Table, at: datetime) -> dict[str, Any]:
    """How far a job has finished its input."""
    when = _times(at, 1)
    if table is FINDING:
        return {"rule_id": pa.array([DETECTED]), "event_time": when, "received_at": when}
    return {"kind": pa.array(["heartbeat"]), "known_at": when, "learned_at": when}


def _append(lake: Lake, table: Table, columns: dict[str, Any]) -> None:
    """One commit with these columns, the others null."""
    schema = arrow_schema(table)
    size = len(next(iter(columns.values())))
    arrays = [
        columns[name].cast(kind) if name in columns else pa.nulls(size, kind)
        for name, kind in zip(schema.names, schema.types, strict=True)
    ]
    writer = FileWriter(Target.of(table, lake.folder(table), "bench-"))
    writer.write(pa.RecordBatch.from_arrays(arrays, schema=schema))
    file = writer.close()
    commit_files(lake.spark, lake.path(table), [file] if file else [], "{}")


def _times(at: datetime, size: int) -> pa.Array:
    return pa.repeat(pa.scalar(at, pa.timestamp("us", "UTC")), size)


def _addresses(who: npt.NDArray[np.int64]) -> pa.Array:
    octets = [pa.array(who // 256**place % 256).cast(pa.string()) for place in (2, 1, 0)]
    return pc.binary_join_element_wise("10", *octets, ".")


def _macs(who: npt.NDArray[np.int64]) -> pa.Array:
    """The holder of 10.a.b.c is called mac-10.a.b.c, so an answer can be told right or wrong."""
    return pc.binary_join_element_wise("mac", _addresses(who), "-")


def _require_right(out: Path, load_: Load) -> None:
    """Raises `AssertionError` unless every finding was said to be its holder's, or nobody's."""
    with duckdb.connect() as engine:
        row = engine.execute(
            "WITH said AS (SELECT finding_id, any_value(ip) AS ip, arg_max_null(mac, rev) AS mac "
            f"FROM '{out}/*.parquet' GROUP BY finding_id) "
            "SELECT count(*), count_if(mac IS NULL), count_if(mac <> 'mac-' || ip), "
            f"count_if((mac IS NULL) <> (finding_id::BIGINT % {FREE_EVERY} = 0)) FROM said"
        ).fetchone()
    wanted = load_.per_second * TRIGGER * load_.batches
    if row is None or row[0] != wanted or row[1] != wanted // FREE_EVERY or row[2] or row[3]:
        raise AssertionError(f"of {wanted} findings: said, without holder, wrong, wrong: {row}")


def _resident() -> float:
    """Megabytes this process and its children hold."""
    top = psutil.Process()
    total = 0
    for process in (top, *top.children(recursive=True)):
        try:
            total += process.memory_info().rss
        except psutil.Error:
            continue
    return total / 2**20


def _held(lake: Lake) -> float:
    """Megabytes in use: the heap after a collection, and all else that the processes hold."""
    collect_garbage(lake.spark)
    heap = heap_use(lake.spark)
    free = heap.committed - heap.used
    return float(_resident() - free / 2**20)


def _until(true: Callable[[], bool], query: Any, seconds: float) -> None:
    end = time.monotonic() + seconds
    while not true():
        if not query.isActive:
            raise AssertionError(f"the query ended: {query.exception()}")
        if time.monotonic() > end:
            raise AssertionError(f"not done after {seconds:.0f} s: {query.lastProgress}")
        time.sleep(0.5)


def _tell(report: Report, name: str, done: Run, load_: Load) -> None:
    # Those with their share of findings, after two to warm up.
    full = load_.per_second * TRIGGER // 2
    steady = [p for p in done.progress[1:] if p["numInputRows"] >= full][2:]
    seconds = [p["durationMs"]["triggerExecution"] / 1000 for p in steady]
    cpu = [done.cpu[p["batchId"]] for p in steady]
    state = [sum(o["memoryUsedBytes"] for o in p["stateOperators"]) for p in done.progress]
    begun = done.progress[0]["durationMs"]["triggerExecution"] / 1000
    report.add(f"{name}, first batch", [begun], "s")
    report.add(f"{name}, batch", seconds, "s")
    slowest = max(seconds)
    report.add(
        f"{name}, slowest batch", [slowest], "s", bar=f"<= {TRIGGER} s", met=slowest <= TRIGGER
    )
    report.add(f"{name}, CPU a batch", cpu, "CPU-s")
    report.add(f"{name}, findings", [full * 2 / used for used in cpu], "findings/CPU-s")
    report.add(f"{name}, state", [max(state) / 2**20], "MB")
    report.add(f"{name}, memory", [max(done.memory.values())], "MB")
    held = list(done.held.values())
    report.add(f"{name}, memory in use", held, "MB")
    growth = held[-1] / held[len(held) // 2]
    report.add(
        f"{name}, memory in use at the end against half way", [growth], "x",
        bar="<= 1.2", met=growth <= 1.2,
    )  # fmt: skip
