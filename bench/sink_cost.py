"""What a micro-batch costs: our sink beside Delta's own, as the table grows."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from bench.measure import Report, cpu_seconds
from infra.config.settings import load
from infra.delta.log_reader import commit, newest_version
from infra.delta.schema import Column, Table
from infra.spark.session import session
from infra.streaming.batch import Batch
from infra.streaming.lake import Lake

ROWS = 500
SIZES = (100, 1_000, 10_000)
SOURCE = Table(
    "silver.arriving",
    "rows that arrive",
    (
        Column("n", T.LongType(), "a number"),
        Column("at", T.TimestampType(), "an instant"),
        Column("text", T.StringType(), "a text"),
    ),
)


def run(quick: bool = False) -> Report:
    """Batches of 500 rows, Delta to Delta, into a table of 100, 1,000 and 10,000 files."""
    report = Report("sink_cost", "make bench ONLY=sink_cost")
    batches = 8 if quick else 25
    home = Path(tempfile.mkdtemp(prefix="headgate-bench-"))
    spark = session(load(home=home, spark={"small": False}), "sink_cost")
    lake = Lake(spark, load(home=home))
    try:
        lake.ensure(SOURCE)
        _arrive(lake, batches + 3)
        for files in SIZES[:2] if quick else SIZES:
            _compare(report, lake, files)
    finally:
        spark.stop()
        shutil.rmtree(home, ignore_errors=True)
    return report


def _compare(report: Report, lake: Lake, files: int) -> None:
    sinks: dict[str, Callable[..., Any]] = {"ours": _ours, "delta": _delta}
    walls: dict[str, list[float]] = {}
    cpus: dict[str, float] = {}
    totals: dict[str, Any] = {}
    for name, sink in sinks.items():
        target = Table(f"gold.{name}_{files}", "target", SOURCE.columns)
        lake.ensure(target)
        _fill(lake, target, files)
        before = cpu_seconds()
        query = sink(lake, target)
        query.awaitTermination()
        steady = [
            p["durationMs"]["triggerExecution"] / 1000
            for p in query.recentProgress
            if p["numInputRows"]
        ][3:]
        walls[name], cpus[name] = steady, (cpu_seconds() - before) / (len(steady) + 3)
        totals[name] = _digest(lake, target)
    if totals["ours"] != totals["delta"]:
        raise AssertionError(f"outputs differ: {totals}")
    ours = report.add(f"batch, ours, {files} files", walls["ours"], "s")
    delta = report.add(f"batch, Delta's sink, {files} files", walls["delta"], "s")
    if ours.value and delta.value:
        ours.compared_with, ours.ratio = f"Delta's sink, {files} files", ours.value / delta.value
        ours.bar, ours.met = "<= 0.7", ours.ratio <= 0.7
    report.add(f"CPU a batch, ours, {files} files", [cpus["ours"]], "CPU-s")
    report.add(f"CPU a batch, Delta's sink, {files} files", [cpus["delta"]], "CPU-s")


def _arrive(lake: Lake, batches: int) -> None:
    for number in range(batches):
        rows = lake.spark.range(number * ROWS, (number + 1) * ROWS, 1, 1).select(
            F.col("id").alias("n"),
            F.timestamp_seconds(F.col("id")).alias("at"),
            F.sha2(F.col("id").cast("string"), 256).alias("text"),
        )
        rows.write.format("delta").mode("append").save(lake.path(SOURCE))


def _fill(lake: Lake, table: Table, files: int) -> None:
    """Give the table many small files in one commit: hard links of one file."""
    folder = Path(lake.path(table))
    rows = lake.spark.range(-ROWS, 0, 1, 1).select(
        F.col("id").alias("n"), F.timestamp_seconds("id").alias("at"), F.lit("x").alias("text")
    )
    rows.write.format("delta").mode("append").save(str(folder))
    version = newest_version(folder)
    name = commit(folder, version).adds[0]
    lines = (folder / "_delta_log" / f"{version:020d}.json").read_text().splitlines()
    add = next(json.loads(line) for line in lines if '"add"' in line)
    info = next(line for line in lines if '"commitInfo"' in line)
    actions = [info]
    for number in range(files - 1):
        link = f"link-{number:05d}.parquet"
        os.link(folder / name, folder / link)
        add["add"]["path"] = link
        actions.append(json.dumps(add))
    (folder / "_delta_log" / f"{version + 1:020d}.json").write_text("\n".join(actions) + "\n")


def _ours(lake: Lake, target: Table) -> Any:
    def batch(rows: DataFrame, run: Batch) -> None:
        lake.append(rows, target, run)

    rows = lake.stream(SOURCE, files_per_batch=1)
    job = lake.each_batch(target.name, rows, batch, trigger_seconds=None)
    return job.query


def _delta(lake: Lake, target: Table) -> Any:
    checkpoint = lake.settings.checkpoint_root / target.name
    return (
        lake.stream(SOURCE, files_per_batch=1)
        .writeStream.format("delta")
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start(lake.path(target))
    )


def _digest(lake: Lake, table: Table) -> tuple[int, int]:
    spark: SparkSession = lake.spark
    row = (
        spark.read.format("delta")
        .load(lake.path(table))
        .where("n >= 0")
        .agg(F.count("*"), F.sum(F.xxhash64("n", "at", "text").cast("decimal(38,0)")))
        .first()
    )
    return (int(row[0]), int(row[1])) if row else (0, 0)
