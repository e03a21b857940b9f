"""The session tracker at 100,000 and a million devices, beside Spark's usual way.

Ours is one blob a bucket of addresses. The usual way is `applyInPandasWithState` keyed by address:
the same rules, the same lines in, the same segments out (compared first), one key an address, one
blob a key. Nobody tells its keys how far time has come, so it never forgets nor paints on; at a
million devices filling it alone would take most of an hour, so it is measured over 100,000, which
favours it.
"""

from __future__ import annotations

import re
import shutil
import tempfile
import warnings
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as T
from pyspark.sql.streaming.state import GroupState, GroupStateTimeout

from bench.leases import Network, Run, Way, arrive, through
from bench.measure import Report
from bench.plot import bars, panel
from enrich.dhcp.sessions_job import tracked_rows, tracker_limits
from enrich.dhcp.state_encoding import decode_bucket, encode_bucket
from enrich.dhcp.stateful_operator import frame, read_state, row_schema, tracked
from enrich.dhcp.tracker_state import TrackerBucket
from infra.config.settings import JobSettings, load
from infra.spark.session import session

JOBS = JobSettings()
LIMITS = tracker_limits(JOBS)
SIZES = (100_000, 1_000_000)
BATCH_SECONDS = 5
FILL_LINES = 50_000
BUSY_LINES, USUAL_BUSY_LINES, STEADY_LINES = 50_000, 10_000, 345
"""Lines of a batch of a catch-up (the usual way takes minutes for one of ours; what a line costs
it does not depend on how many there are), and of one of five seconds at 69 ACK/s."""
RATIO = 10.0
STATE = T.StructType([T.StructField("state", T.BinaryType())])
COMPARED = (
    "scope",
    "ip",
    "seg_start",
    "seg_end",
    "mac",
    "session_id",
    "session_start",
    "session_end",
    "learned_at",
    "kind",
    "event_uids",
    "ended",
)


def run(quick: bool = False) -> Report:
    """Compare, then fill, renew at 69 ACK/s and catch up; each batch measured."""
    report = Report("tracker", "make bench ONLY=tracker")
    home = Path(tempfile.mkdtemp(prefix="headgate-bench-"))
    settings = load(home=home, spark={"small": False, "driver_memory": "6g"})
    spark = session(settings, "tracker")
    sizes = SIZES[:1] if quick else SIZES
    try:
        _agree(spark, home / "compared")
        usual = _measure(report, spark, home, "keyed by address", sizes[0], keyed, quick=quick)
        for size in sizes:
            own = _measure(report, spark, home, "ours", size, ours, quick=quick)
            own.compared_with, own.ratio = usual.name, (own.value or 0) / (usual.value or 1)
            own.bar, own.met = f">= {RATIO:g}x", own.ratio >= RATIO
    finally:
        spark.stop()
        shutil.rmtree(home, ignore_errors=True)
    if not quick:
        panels = {
            "catching up: lines a CPU-second": panel(report, "lines/CPU-s", ": catching up"),
            f"steady, a batch each {BATCH_SECONDS} s: cores": panel(
                report, "cores", f": steady, a batch each {BATCH_SECONDS} s"
            ),
        }
        bars(report, panels)
    report.notes.append(__doc__.split("\n\n")[1].replace("\n", " ").strip())
    return report


# -- the sides -----------------------------------------------------------------------------------


def ours(events: DataFrame) -> DataFrame:
    """As job `sessions` does it."""
    return tracked(tracked_rows(events, JOBS), LIMITS)


def keyed(events: DataFrame) -> DataFrame:
    """The usual way."""
    rows = tracked_rows(events, JOBS).where("NOT beat")
    return rows.groupBy("scope", "ip").applyInPandasWithState(
        _one_address, row_schema(), STATE, "append", GroupStateTimeout.NoTimeout
    )


def _one_address(
    key: tuple[Any, ...], chunks: Iterable[pd.DataFrame], state: GroupState
) -> Iterator[pd.DataFrame]:
    # Spark's own code warns once a key of a coming pandas; that is no part of what is measured.
    warnings.simplefilter("ignore", FutureWarning)
    lines, _ = read_state(chunks)
    held = decode_bucket(bytes(state.get[0]), LIMITS) if state.exists else TrackerBucket(LIMITS)
    said = held.advance(lines)
    state.update((encode_bucket(held),))
    if said:
        yield frame(said)


# -- the comparison ------------------------------------------------------------------------------


def _agree(spark: SparkSession, home: Path) -> None:
    """Raises `AssertionError` unless both ways say the same of a small network."""
    network = Network(300)
    tables = [network.leases(0, 300, 60), *(network.traffic(120, 1800) for _ in range(12))]
    arrive(home / "lines", tables)
    said = [
        sorted(
            through(spark, home / "lines", home / name, _compared(way), keep=True).outputs, key=str
        )
        for name, way in (("ours", ours), ("keyed", keyed))
    ]
    own, other = said
    if len(own) < 12 * 100 or own != other:
        differing = [two for two in zip(own, other, strict=False) if two[0] != two[1]][:2]
        raise AssertionError(f"{len(own)} rows against {len(other)}, such as {differing}")


def _compared(way: Way) -> Way:
    """All that does not depend on who else shares a key: without stream time and revision."""
    return lambda events: way(events).where("kind <> 'heartbeat'").select(*COMPARED)


# -- the measurement -----------------------------------------------------------------------------


def _measure(
    report: Report,
    spark: SparkSession,
    home: Path,
    name: str,
    devices: int,
    way: Way,
    *,
    quick: bool,
) -> Any:
    """One way over one network: filled, then steady, then busy; the measure of busy batches."""
    steady, busy = (10, 3) if quick else (40, 6)
    network = Network(devices)
    step = min(FILL_LINES, devices)
    fill = [
        network.leases(n, min(n + step, devices), 7200 * step / devices)
        for n in range(0, devices, step)
    ]
    steady_lines = max(10, STEADY_LINES * devices // 1_000_000)
    plan: list[tuple[str, pa.Table]] = [("start", network.traffic(1, 1))]
    plan += [("fill", table) for table in fill]
    plan += [("steady", network.traffic(steady_lines, BATCH_SECONDS)) for _ in range(steady)]
    busy_lines = USUAL_BUSY_LINES if way is keyed else BUSY_LINES
    plan += [("busy", network.traffic(busy_lines, 300)) for _ in range(busy)]
    folder = home / f"{'-'.join(re.findall('[a-z]+', name))}-{devices}"
    arrive(folder / "lines", (table for _, table in plan))
    done = through(spark, folder / "lines", folder / "checkpoint", way)
    shutil.rmtree(folder)
    kinds = [kind for kind, _ in plan[1:]]
    lines = [table.num_rows - 1 for _, table in plan[1:]]
    return _tell(report, f"{name}, {devices:,} devices", done, kinds, lines)


def _tell(report: Report, name: str, done: Run, kinds: list[str], lines: list[int]) -> Any:
    def of(kind: str, values: list[Any]) -> list[Any]:
        # The first batch of a kind still compiles what the others run.
        return [v for v, k in zip(values, kinds, strict=True) if k == kind][1:]

    rates = [n / cpu for n, cpu in zip(of("busy", lines), of("busy", done.cpu), strict=True)]
    busy = report.add(f"{name}: catching up", rates, "lines/CPU-s")
    cores = [cpu / BATCH_SECONDS for cpu in of("steady", done.cpu)]
    load_ = report.add(f"{name}: steady, a batch each {BATCH_SECONDS} s", cores, "cores")
    if name.startswith("ours"):
        load_.bar, load_.met = "< 0.5", (load_.value or 1.0) < 0.5
    report.add(f"{name}: steady batch", of("steady", done.wall), "s")
    for what, values in (("state", done.state), ("checkpoint", done.checkpoint)):
        report.add(f"{name}: {what} a steady batch", [v / 1e3 for v in of("steady", values)], "kB")
        report.add(f"{name}: {what} a busy batch", [v / 1e3 for v in of("busy", values)], "kB")
    for operator in done.progress.get("stateOperators", [])[:1]:
        report.notes.append(
            f"{name}: {operator['numRowsTotal']} state rows, "
            f"{operator['memoryUsedBytes'] / 1e6:.0f} MB of memory for them"
        )
    return busy
