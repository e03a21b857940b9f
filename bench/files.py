"""What a micro-batch costs while its table grows: by files, and by commits.

A table that is new is the measure of both. The grown ones are filled with hard links of one
file, in one commit or in as many commits as files, as if there had been one every two seconds;
they get the checkpoints that Delta would have written on the way, and commits leave the log as
they would have (`infra.streaming.log_retention`). Then the same batches are written into each by
our sink. How it would be if none left the log is shown beside it.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
import time
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from bench.measure import Report
from infra.config.settings import load
from infra.delta.log_reader import commit, newest_version
from infra.delta.schema import Column, Table
from infra.spark.internals import checkpoint_table, delta_listing_begins, forget_tables
from infra.spark.session import session
from infra.streaming.batch import Batch
from infra.streaming.lake import Lake
from infra.streaming.log_retention import retire

ROWS = 500
FILES = (1_000, 10_000, 100_000)
COMMITS = (1_000, 10_000)
LINKS = 60_000
"""A file system allows so many names of one file (ext4: 65,000)."""
LISTED = (100, 1_000, 10_000, 50_000)
"""A day has 43,200 commits, one every two seconds."""
BAR = 1.1
COMMIT_SECONDS = 2
KEPT = 350
"""So many of the newest commits follow the checkpoint that the log goes on from."""
SOURCE = Table(
    "silver.arriving",
    "rows that arrive",
    (Column("n", T.LongType(), "a number"), Column("text", T.StringType(), "a text")),
)


def run(quick: bool = False) -> Report:
    """Batches of 500 rows into tables of up to 100,000 files, or 10,000 commits."""
    report = Report("files", "make bench ONLY=files")
    batches = 10 if quick else 60
    home = Path(tempfile.mkdtemp(prefix="headgate-bench-"))
    spark = session(load(home=home, spark={"small": False}), "files")
    lake = Lake(spark, load(home=home))
    try:
        lake.ensure(SOURCE)
        for number in range(batches + 3):
            _arrive(lake, number)
        _batches(lake, "warm", 1, 1)  # the first query of a session pays for all of them
        for commits in LISTED[:2] if quick else LISTED:
            report.add(f"listing a log of {commits} commits", _listings(lake, home, commits), "s")
        new = report.add("batch, new table", _batches(lake, "new", 1, 1), "s")
        for files in FILES[:1] if quick else FILES:
            _compare(report, new, f"{files} files", _batches(lake, f"files_{files}", files + 1, 1))
        for commits in COMMITS[:1] if quick else COMMITS:
            walls = _batches(lake, f"commits_{commits}", commits + 1, commits)
            _compare(report, new, f"{commits} commits", walls)
            walls = _batches(lake, f"kept_{commits}", commits + 1, commits, leave=False)
            report.add(f"batch, {commits} commits, all of them in the log", walls, "s")
    finally:
        spark.stop()
        shutil.rmtree(home, ignore_errors=True)
    return report


def _compare(report: Report, new: Any, name: str, walls: list[float]) -> None:
    grown = report.add(f"batch, {name}", walls, "s")
    if grown.value and new.value:
        grown.compared_with, grown.ratio = new.name, grown.value / new.value
        grown.bar, grown.met = f"<= {BAR}", grown.ratio <= BAR


def _listings(lake: Lake, home: Path, commits: int) -> list[float]:
    """Seconds that Delta takes to see what is new in a log, as each commit and query does."""
    log = home / f"log_{commits}"
    log.mkdir()
    for version in range(commits):
        (log / f"{version:020d}.json").write_text("{}", "utf-8")
    newest = log / f"{commits - 5:020d}.json"
    spent = []
    for _ in range(6):
        began = time.perf_counter()
        delta_listing_begins(lake.spark, lake.path(SOURCE), str(newest))
        spent.append(time.perf_counter() - began)
    shutil.rmtree(log)
    return spent[1:]


def _arrive(lake: Lake, number: int) -> None:
    rows = [{"n": number * ROWS + at, "text": f"{at:064d}"} for at in range(ROWS)]
    lake.add(SOURCE, rows, "bench")


def _batches(lake: Lake, name: str, files: int, commits: int, *, leave: bool = True) -> list[float]:
    """Seconds of each batch into a table that has so many files of so many commits."""
    target = Table(f"gold.{name}", "target", SOURCE.columns)
    lake.ensure(target)
    _fill(lake, target, files, commits)
    while leave and retire(lake.settings, lake.folder(target)):
        pass

    def batch(rows: DataFrame, run: Batch) -> None:
        lake.append(rows, target, run)

    rows = lake.stream(SOURCE, files_per_batch=1)
    job = lake.each_batch(name, rows, batch, trigger_seconds=None)
    job.wait()
    walls = [
        p["durationMs"]["triggerExecution"] / 1000
        for p in job.query.recentProgress
        if p["numInputRows"]
    ]
    _judge(lake, target, len(walls), files)
    return walls[3:]


def _judge(lake: Lake, target: Table, batches: int, files: int) -> None:
    found = lake.read(target).agg(F.count("*"), F.count_distinct("n")).first()
    wanted = (batches * ROWS + files * ROWS, batches * ROWS + ROWS)
    if found is None or (found[0], found[1]) != wanted:
        raise AssertionError(f"{target.name}: rows and numbers {found}, not {wanted}")


def _fill(lake: Lake, table: Table, files: int, commits: int) -> None:
    """Give a table files that all hold the same rows, and Delta's checkpoint of them."""
    folder = Path(lake.path(table))
    lake.add(table, [{"n": -at - 1, "text": "x"} for at in range(ROWS)], "bench")
    version = newest_version(folder)
    name = commit(folder, version).adds[0]
    lines = (folder / "_delta_log" / f"{version:020d}.json").read_text("utf-8").splitlines()
    add = next(json.loads(line) for line in lines if line.startswith('{"add"'))
    info = next(line for line in lines if line.startswith('{"commitInfo"'))
    more = files - 1
    each = more // commits
    now = time.time()
    for number in range(commits if more else 0):
        actions = [info]
        for at in range(each):
            add["add"]["path"] = f"link-{number}-{at}.parquet"
            if at % LINKS == LINKS - 1:
                shutil.copy2(folder / name, folder / f"copy-{at}.parquet")
                name = f"copy-{at}.parquet"
            os.link(folder / name, folder / add["add"]["path"])
            actions.append(json.dumps(add))
        log = folder / "_delta_log" / f"{version + 1 + number:020d}.json"
        log.write_text("\n".join(actions) + "\n", "utf-8")
        made = now - COMMIT_SECONDS * (commits - number)
        os.utime(log, (made, made))
        if number in (commits - KEPT, commits - 1):
            _checkpoint(lake, table)


def _checkpoint(lake: Lake, table: Table) -> None:
    forget_tables(lake.spark)
    checkpoint_table(lake.spark, lake.path(table))
