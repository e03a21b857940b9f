"""What a batch of job `sessions` costs as leases pile up that nobody touches.

The same batches over 10,000 to a million idle leases, with both forms of `jobs.session_state`:
cells, and one blob a bucket up to where that takes too long. The slope is the least-squares line
of the batches' medians.
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from statistics import median

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from bench.leases import Network, Run, Way, arrive, through
from bench.measure import Measure, Report
from bench.plot import save
from enrich.dhcp.sessions_job import limits, tracked_rows
from enrich.dhcp.state_layout import VERSIONS
from enrich.dhcp.stateful_operator import tracked, with_store
from infra.config.settings import JobSettings, load
from infra.spark.session import session

JOBS = JobSettings()
LIMITS = limits(JOBS)
SIZES = (10_000, 30_000, 100_000, 300_000, 1_000_000)
BLOB_LIMIT = 300_000
FILL_LINES = 50_000
BATCH_LINES = 345
"""What a million devices say in five seconds."""
WARM = 5_000
FLAT = 0.5
"""The bar: a batch over the most leases may cost so much more than one over the fewest."""


def run(quick: bool = False) -> Report:
    """Each size, each way; then the slopes and the plot."""
    report = Report("lease_growth", "make bench ONLY=lease_growth")
    sizes = SIZES[:3] if quick else SIZES
    batches = 8 if quick else 20
    home = Path(tempfile.mkdtemp(prefix="headgate-bench-"))
    settings = load(home=home, spark={"small": False, "driver_memory": "6g"})
    spark = session(settings, "lease_growth")
    own = {form: with_store(spark, version) for form, version in VERSIONS.items()}
    found: dict[str, dict[int, Measure]] = {"cells": {}, "blob": {}}
    try:
        for form in own:
            # What runs first pays for the compiling of what all run.
            _measure(Report("warm", ""), own[form], home, form, WARM, batches)
        for size in sizes:
            for form in ("cells", "blob") if size <= BLOB_LIMIT else ("cells",):
                found[form][size] = _measure(report, own[form], home, form, size, batches)
    finally:
        spark.stop()
        shutil.rmtree(home, ignore_errors=True)
    for name, measures in found.items():
        _slope(report, name, measures)
    _judge(found["cells"])
    if not quick:
        _plot(report, found)
    report.notes.append(
        "cause: a blob is read, decoded, encoded and written whole whenever its bucket has a row, "
        "and a heartbeat is a row for each; of cells a batch touches those of its lines and those "
        "that are due. What grows with them is the store's own work: compaction and snapshots."
    )
    return report


def way_of(form: str) -> Way:
    """As job `sessions` does it."""

    def way(events: DataFrame) -> DataFrame:
        return tracked(tracked_rows(events, JOBS), LIMITS, VERSIONS[form])

    return way


def _measure(
    report: Report, spark: SparkSession, home: Path, name: str, leases: int, batches: int
) -> Measure:
    """The CPU of a batch over so many idle leases."""
    network = Network(leases)
    step = min(FILL_LINES, leases)
    plan: list[tuple[str, pa.Table]] = [
        ("fill", network.leases(n, min(n + step, leases), 600)) for n in range(0, leases, step)
    ]
    plan += [("batch", network.traffic(BATCH_LINES, 5)) for _ in range(batches + 2)]
    folder = home / f"{name}-{leases}"
    arrive(folder / "lines", (table for _, table in plan))
    done: Run = through(spark, folder / "lines", folder / "checkpoint", way_of(name))
    shutil.rmtree(folder)
    first = len(plan) - 1 - batches  # the batches before still warm up
    where = f"{name}, {leases:,} idle leases"
    report.add(f"{where}: state a batch", [v / 1e3 for v in done.state[first:]], "kB")
    return report.add(f"{where}: a batch", done.cpu[first:], "CPU-s")


def _slope(report: Report, name: str, measures: dict[int, Measure]) -> None:
    """CPU seconds a batch gains for each million leases."""
    points = [(size / 1e6, m.value) for size, m in measures.items() if m.value is not None]
    across = sum(x for x, _ in points) / len(points)
    up = sum(y for _, y in points) / len(points)
    spread = sum((x - across) ** 2 for x, _ in points)
    slope = sum((x - across) * (y - up) for x, y in points) / spread
    report.add(f"{name}: slope", [slope], "CPU-s a million leases")


def _judge(measures: dict[int, Measure]) -> None:
    """The bar, on the largest size."""
    fewest, most = (measures[size] for size in (min(measures), max(measures)))
    base = median(fewest.repetitions)
    most.compared_with, most.ratio = fewest.name, median(most.repetitions) / base
    most.bar, most.met = f"<= {1 + FLAT:g}x", most.ratio <= 1 + FLAT


def _plot(report: Report, found: dict[str, dict[int, Measure]]) -> None:
    """The figures as a picture for the documentation."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(7, 4), layout="constrained")
    for name, measures in found.items():
        axes.plot(
            list(measures), [m.value or 0.0 for m in measures.values()], marker="o", label=name
        )
    axes.set(xscale="log", xlabel="idle leases", ylabel="CPU seconds a batch", ylim=(0, None))
    axes.set_title(f"Job sessions: a batch of {BATCH_LINES} lines and a heartbeat")
    axes.legend()
    axes.grid(alpha=0.3)
    save(figure, report)
    pyplot.close(figure)
