"""Raw records to bronze.record and silver.event: the real path beside stock Spark, and DuckDB.

Both Spark sides read the same Parquet files of bronze's shape and write two Delta tables.
Their events are compared before anything is timed. DuckDB stands beside them twice: with the
same columns of both tables in Parquet files (`bench.duck_zeek`), compared too, and reading the
same JSON to Parquet and no more: no columns of OCSF, nothing refused, no bronze.

The same records are then read from Kafka (`bench.from_kafka`), without the broker's CPU.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import duckdb
import pyarrow.parquet as pq
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from bench.from_kafka import Fed
from bench.measure import Report, WorkerMemory, cpu_by_process, cpu_seconds, cpu_since, settle
from bench.mixes import MIXES, Kind, Mix, Write
from bench.records import Stored, store
from infra.config.settings import load
from infra.delta.schema import Table
from infra.kafka.client import Broker, free_port
from infra.spark.session import session
from infra.streaming.batch import Batch
from infra.streaming.lake import Lake
from ingest.parsing.source import ParseSettings
from ingest.pipeline.batch_pass import Pass, Reach
from ingest.pipeline.kafka_fetch import Fetch
from ingest.tables import EVENT, RECORD

WORKER_MB = 600
REPETITIONS = 3
WARM_UPS = 2
"""Rounds before the timed ones, the compared one included: the JVM compiles as it goes."""
EXAMPLES = 3
"""Rows shown of each column in which the sides differ."""

JIT = ("spark.sql.codegen.hugeMethodLimit", "8000")
"""HotSpot compiles no longer method, and rows of so many columns make some: stock Spark takes
up to half as much time again without it."""

Through = Callable[[Lake, Any], None]
"""Records into both tables: rows of bronze.record; for ours also where workers read them."""


@dataclass
class Side:
    """One way from raw to silver, and what it took each time."""

    name: str
    through: Through
    cpu: list[float] = field(default_factory=list)


def run(quick: bool = False) -> Report:
    """All mixes, one after the other, in one session."""
    report = Report("sources", "make bench ONLY=sources")
    home = Path(tempfile.mkdtemp(prefix="headgate-bench-"))
    spark = session(load(home=home, spark={"small": False}), "sources")
    broker = Broker(home / "kafka", free_port()).start()
    try:
        with WorkerMemory() as memory:
            for mix in MIXES:
                count = min(20_000, mix.records) if quick else mix.records
                repetitions = 1 if quick else REPETITIONS
                _measure(report, spark, broker, home / mix.name, mix, count, repetitions)
                shutil.rmtree(home / mix.name)
    finally:
        broker.stop()
        spark.stop()
        shutil.rmtree(home, ignore_errors=True)
    peak = report.add("largest Python worker", [memory.peak / 1e6], "MB")
    peak.bar, peak.met = f"< {WORKER_MB} MB", 0 < memory.peak < WORKER_MB * 1_000_000
    for words in dict.fromkeys(kind.not_done for mix in MIXES for kind in mix.kinds):
        report.notes.append(f"what stock does not do: {words}")
    return report


def _measure(
    report: Report,
    spark: SparkSession,
    broker: Broker,
    home: Path,
    mix: Mix,
    count: int,
    repetitions: int,
) -> None:
    """One mix: compared first, then timed, the sides in turns."""
    stored = store(home / "raw", mix.families(), count)
    sides = (Side("ours", _ours), Side("stock Spark", _stock(mix)))
    found = [_checked(spark, home, side, stored) for side in sides]
    _agree(mix, stored, *found)
    if mix.duck is not None:
        _agree(mix, stored, found[0], _checked_duck(spark, home, mix.duck, stored))
    limit: list[float] = []
    duck: list[float] = []
    for _ in range(WARM_UPS - 1 if repetitions > 1 else 0):
        for side in sides:
            _once(spark, home, side)
            side.cpu.clear()
    if mix.limit is not None:
        _as_lines(home)
        _limit(home, mix.limit)
    for repetition in range(repetitions):
        # In turns, so that a machine that slows down slows all.
        for side in sides if repetition % 2 == 0 else reversed(sides):
            _once(spark, home, side)
        if mix.limit is not None:
            limit.append(_limit(home, mix.limit))
        if mix.duck is not None:
            duck.append(_duck(home, mix.duck))
    _tell(report, mix, stored, sides)
    _tell_duck(report, mix, stored, sides[0], duck, limit)
    _tell_bad(report, mix, stored, sides, found)
    _from_kafka(report, spark, broker, home, mix, stored, repetitions)


# -- the sides -----------------------------------------------------------------------------------


def _ours(lake: Lake, records: DataFrame | Fetch) -> None:
    """As job `ingest` writes a batch: workers write the files, the driver commits them."""
    run = Batch(
        job="ingest",
        query_id="bench",
        batch_id=0,
        digest="0",
        folder=lake.settings.home,
        look_back=False,
        started_at=datetime.now(UTC),
        offsets="",
    )
    targets = {table.name: lake.target(table, run) for table in (RECORD, EVENT)}
    work = Pass(ParseSettings.of(lake.settings), targets, (), Reach())
    files = work.over(lake.spark, records)
    for table in (RECORD, EVENT):
        lake.commit(table, run, [file for file in files if file.table == table.name])


def _stock(mix: Mix) -> Through:
    def through(lake: Lake, records: DataFrame) -> None:
        lake.spark.conf.set(*JIT)
        _append(lake, records, RECORD)
        _append(lake, mix.stock(records), EVENT)

    return through


def _append(lake: Lake, rows: DataFrame, table: Table) -> None:
    rows.write.format("delta").mode("append").save(lake.path(table))


def _as_lines(home: Path) -> None:
    """The raw bytes as lines of a file, which is how DuckDB reads JSON."""
    with (home / "raw.ndjson").open("wb") as file:
        for part in sorted((home / "raw").glob("*.parquet")):
            for raw in pq.read_table(part, columns=["raw"]).column("raw").to_pylist():
                file.write(raw + b"\n")


def _limit(home: Path, columns: Mapping[str, str]) -> float:
    """CPU seconds in which DuckDB reads the lines and writes the fields to Parquet."""
    target = home / "duckdb.parquet"
    target.unlink(missing_ok=True)
    with duckdb.connect(config={"threads": 2}) as connection:
        begun = time.process_time()
        connection.execute(
            "COPY (SELECT * FROM read_json($lines, format = 'newline_delimited', "
            f"columns = {dict(columns)}, ignore_errors = true)) TO '{target}' (FORMAT parquet)",
            {"lines": str(home / "raw.ndjson")},
        )
        return time.process_time() - begun


def _duck(home: Path, write: Write) -> float:
    """CPU seconds in which DuckDB makes files of both tables."""
    with duckdb.connect(config={"threads": 2}) as connection:
        begun = time.process_time()
        write(connection, home / "raw", home / "duckdb")
        return time.process_time() - begun


# -- once through --------------------------------------------------------------------------------


def _lake(spark: SparkSession, home: Path, side: Side) -> Lake:
    """Two fresh tables."""
    own = _own(home, side)
    shutil.rmtree(own, ignore_errors=True)
    return Lake(spark, load(home=own)).ensure(RECORD, EVENT)


def _own(home: Path, side: Side) -> Path:
    return home / side.name.replace(" ", "_")


def _once(spark: SparkSession, home: Path, side: Side) -> Lake:
    """Once from the raw files into two fresh tables, timed."""
    lake = _lake(spark, home, side)
    settle()
    before = cpu_by_process()
    side.through(lake, spark.read.schema(RECORD.schema).parquet(str(home / "raw")))
    side.cpu.append(cpu_since(before))
    return lake


def _from_kafka(
    report: Report,
    spark: SparkSession,
    broker: Broker,
    home: Path,
    mix: Mix,
    stored: Stored,
    repetitions: int,
) -> None:
    """The same out of Kafka. Raises `AssertionError` where it gives other rows than the files."""
    fed = Fed(home, broker, mix.name, home / "raw")
    tasks = spark.sparkContext.defaultParallelism
    inputs: tuple[tuple[Side, Callable[[], Any]], ...] = (
        (Side("ours", _ours), lambda: fed.by_workers(tasks)),
        (Side("stock Spark", _stock(mix)), lambda: fed.by_spark(spark)),
    )
    of_files = {side.name: _counts(Lake(spark, load(home=_own(home, side)))) for side, _ in inputs}
    for repetition in range(repetitions + (WARM_UPS if repetitions > 1 else 0)):
        for side, records in inputs if repetition % 2 == 0 else reversed(inputs):
            lake = _lake(spark, home, side)
            settle()
            before, others = cpu_by_process(), cpu_seconds(broker.pid)
            side.through(lake, records())
            side.cpu.append(cpu_since(before) - (cpu_seconds(broker.pid) - others))
            if (counts := _counts(lake)) != of_files[side.name]:
                raise AssertionError(
                    f"{mix.name}, {side.name}: {counts} from Kafka, {of_files[side.name]} of files"
                )
    ours, stock = (
        report.add(
            f"{mix.name}: {side.name}, from Kafka",
            _rate(stored.count, side.cpu[-repetitions:]),
            "events/CPU-s",
        )
        for side, _ in inputs
    )
    if ours.value and stock.value:
        ours.compared_with, ours.ratio = stock.name, ours.value / stock.value


def _counts(lake: Lake) -> tuple[int, int, int]:
    """Records, events and dead letters."""
    events = lake.read(EVENT)
    dead = events.where("dead_letter_reason IS NOT NULL").count()
    return lake.read(RECORD).count(), events.count() - dead, dead


@dataclass(frozen=True)
class Found:
    """What a side made of the records: of good ones events, of bad ones dead letters."""

    name: str
    good: DataFrame
    missing: int
    """Good records of which it made no event."""
    bad: frozenset[int]
    """The planted records it refused."""


def _checked(spark: SparkSession, home: Path, side: Side, stored: Stored) -> Found:
    """The warm-up round, whose tables are looked at."""
    lake = _once(spark, home, side)
    side.cpu.clear()
    return _found(side.name, lake.read(RECORD), lake.read(EVENT), stored)


def _found(name: str, records: DataFrame, events: DataFrame, stored: Stored) -> Found:
    """What two tables hold. Raises `AssertionError` for records lost, or good ones refused."""
    if (count := records.count()) != stored.count:
        raise AssertionError(f"{name}: {count} of {stored.count} records in bronze")
    number = F.substring_index(F.get("record_ids", F.lit(0)), ":", -1).cast("long")
    events = events.withColumn("number", number)
    dead = events.where("dead_letter_reason IS NOT NULL")
    refused = {row["number"] for row in dead.select("number").distinct().collect()}
    wrong = refused - stored.planted.keys()
    if wrong:
        example = dead.where(F.col("number") == min(wrong)).first()
        raise AssertionError(f"{name} refused {len(wrong)} good records, such as {example}")
    planted = events.sparkSession.createDataFrame([(n,) for n in stored.planted], "number bigint")
    good = events.join(F.broadcast(planted), "number", "left_anti")
    missing = stored.count - len(stored.planted) - good.select("number").distinct().count()
    return Found(name, good, missing, frozenset(refused))


def _checked_duck(spark: SparkSession, home: Path, write: Write, stored: Stored) -> Found:
    """The same of DuckDB."""
    _duck(home, write)
    bronze, silver = (
        spark.read.parquet(str(home / "duckdb" / f"{name}.parquet"))
        for name in ("bronze", "silver")
    )
    return _found("DuckDB", bronze, silver, stored)


# -- the comparison ------------------------------------------------------------------------------


def _agree(mix: Mix, stored: Stored, ours: Found, other: Found) -> None:
    """Raises `AssertionError` unless all good events agree in all compared columns."""
    for one in (ours, other):
        events = one.good.count()
        if one.missing or events != stored.count - len(stored.planted):
            raise AssertionError(
                f"{mix.name}, {one.name}: {events} events of {stored.count - len(stored.planted)} "
                f"good records, none of {one.missing}"
            )
    for kind in mix.kinds:
        differing = _differing(kind, ours.good, other.good)
        if differing:
            shown = "\n".join(_example(kind, name, ours, other) for name in differing)
            raise AssertionError(f"{mix.name}: the events of {kind.name} differ in\n{shown}")


def _differing(kind: Kind, ours: DataFrame, stock: DataFrame) -> list[str]:
    digests = [_digest(name).alias(str(at)) for at, name in enumerate(kind.compared)]
    one, other = (side.where(kind.where).agg(*digests).first() for side in (ours, stock))
    if one is None or other is None or one[0] is None:
        raise AssertionError(f"no events of {kind.name} to compare")
    return [name for at, name in enumerate(kind.compared) if one[at] != other[at]]


def _digest(name: str) -> Column:
    """A sum over a column that does not depend on the order of rows."""
    whole = F.xxhash64("number", F.to_json(F.struct(F.expr(name).alias("v"))))
    return F.sum(whole.cast("decimal(38,0)"))


def _example(kind: Kind, name: str, ours: Found, other: Found) -> str:
    value = F.to_json(F.struct(F.expr(name).alias("v")))
    left, right = (
        side.good.where(kind.where).select("number", value.alias(f"v{at}"))
        for at, side in enumerate((ours, other))
    )
    rows = left.join(right, "number").where("v0 != v1").orderBy("number").limit(EXAMPLES).collect()
    shown = [f"    {row['number']}: ours {row['v0']}, {other.name} {row['v1']}" for row in rows]
    return "\n".join([f"  {name}:", *shown])


# -- the report ----------------------------------------------------------------------------------


def _tell(report: Report, mix: Mix, stored: Stored, sides: tuple[Side, Side]) -> None:
    ours, stock = (
        report.add(f"{mix.name}: {side.name}", _rate(stored.count, side.cpu), "events/CPU-s")
        for side in sides
    )
    if ours.value and stock.value:
        ours.compared_with, ours.ratio = stock.name, ours.value / stock.value
        if mix.bar is not None:
            ours.bar, ours.met = f">= {mix.bar}x", ours.ratio >= mix.bar
    for side in sides:
        rates = _rate(stored.raw_bytes / 1e6, side.cpu)
        report.add(f"{mix.name}: {side.name}, raw data", rates, "MB/CPU-s")


def _tell_duck(
    report: Report,
    mix: Mix,
    stored: Stored,
    ours: Side,
    same: list[float],
    read: list[float],
) -> None:
    """What DuckDB took, and ours against it: to the same columns, and to the bare fields."""
    for what, seconds in (("the same columns", same), ("the bare fields", read)):
        if not seconds:
            continue
        name = f"{mix.name}: DuckDB, JSON to Parquet, {what}"
        duck = report.add(name, _rate(stored.count, seconds), "events/CPU-s")
        rates = _rate(stored.raw_bytes / 1e6, seconds)
        report.add(f"{mix.name}: DuckDB, {what}, raw data", rates, "MB/CPU-s")
        again = report.add(
            f"{mix.name}: ours against DuckDB, {what}",
            _rate(stored.count, ours.cpu),
            "events/CPU-s",
        )
        if again.value and duck.value:
            again.compared_with, again.ratio = duck.name, again.value / duck.value
            if mix.limit_bar is not None:
                again.bar = f">= {mix.limit_bar} of it"
                again.met = again.ratio >= mix.limit_bar


def _tell_bad(
    report: Report, mix: Mix, stored: Stored, sides: tuple[Side, Side], found: list[Found]
) -> None:
    for side, one in zip(sides, found, strict=True):
        caught = len(one.bad & stored.planted.keys())
        measure = report.add(
            f"{mix.name}: planted bad records found, {side.name}",
            [caught],
            f"of {len(stored.planted)}",
        )
        if side is sides[0]:
            measure.bar, measure.met = "all", caught == len(stored.planted)
        missed = Counter(kind for n, kind in stored.planted.items() if n not in one.bad)
        told = "; ".join(f"{kind}: {times}" for kind, times in sorted(missed.items()))
        report.notes.append(f"{mix.name}: {side.name} took for good: {told or 'none'}")
    report.notes.append(
        f"{mix.name}: {stored.count} records, {stored.raw_bytes / 1e6:.1f} MB, read from the same "
        "Parquet files; all good events agree in "
        + ", ".join(f"{len(kind.compared)} columns ({kind.name})" for kind in mix.kinds)
    )


def _rate(amount: float, seconds: list[float]) -> list[float]:
    return [amount / one for one in seconds]
