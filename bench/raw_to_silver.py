"""Raw Zeek JSON to bronze.record and silver.event: our parser beside stock `from_json`."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from bench.measure import Report, cpu_seconds
from bench.stock_zeek import NOT_DONE
from bench.stock_zeek import events as stock_events
from bench.zeek_records import KINDS, PLANTED_EVERY, planted, store
from infra.lake import Lake
from infra.settings import load
from infra.spark import session
from infra.tables import Table
from ingest.events import arrow_parser
from ingest.source import ParseSettings
from ingest.tables import EVENT, RECORD

RECORDS = 200_000
COMPARED = (
    "event_uid", "record_ids", "source", "class_uid", "activity_id", "type_uid", "status_id",
    "time", "received_at", "src_ip", "dst_ip", "mac", "host_name", "duration", "src_endpoint.port",
    "dst_endpoint.port", "dst_endpoint.mac", "query.hostname", "answers", "rcode_id",
    "http_request.url.url_string", "http_request.url.path", "http_request.user_agent",
    "http_response.code", "traffic.bytes", "connection_info.protocol_num",
    "connection_info.flag_history", "observables",
)  # fmt: skip
"""Columns in which both sides must agree for every good record."""

Parse = Callable[[DataFrame], DataFrame]


@dataclass
class Side:
    """One way from raw to silver, and what it took each time."""

    name: str
    parse: Parse
    cpu: list[float] = field(default_factory=list)
    wall: list[float] = field(default_factory=list)


def run(quick: bool = False) -> Report:
    """Both sides read the same bronze-shaped files and append to two Delta tables each."""
    report = Report("raw_to_silver", "make bench ONLY=raw_to_silver")
    count, repetitions = (20_000, 1) if quick else (RECORDS, 5)
    home = Path(tempfile.mkdtemp(prefix="headgate-bench-"))
    settings = load(home=home, spark={"small": False})
    store(home / "raw", count)
    spark = session(settings, "raw_to_silver")
    parser = arrow_parser(ParseSettings.of(settings))
    sides = (
        Side("ours", lambda records: records.mapInArrow(parser, EVENT.schema)),
        Side("stock from_json", stock_events),
    )
    try:
        found = [_checked(spark, home, side, count) for side in sides]
        _agree(found, count)
        for repetition in range(repetitions):
            # In turns, so that a machine that slows down slows both.
            for side in sides if repetition % 2 == 0 else reversed(sides):
                _through(spark, home, side)
    finally:
        spark.stop()
        shutil.rmtree(home, ignore_errors=True)
    _tell(report, sides, found, count)
    return report


@dataclass(frozen=True)
class Found:
    """What a side made of the records: of the good ones, and of the planted bad ones by kind."""

    rows: int
    good: int
    digest: int
    bad: dict[str, int]


def _through(spark: SparkSession, home: Path, side: Side, *, timed: bool = True) -> Lake:
    """Once from the raw files into two fresh tables."""
    shutil.rmtree(home / "lake", ignore_errors=True)
    lake = Lake(spark, load(home=home)).ensure(RECORD, EVENT)
    cpu, wall = cpu_seconds(), time.monotonic()
    records = spark.read.schema(RECORD.schema).parquet(str(home / "raw"))
    _append(lake, records, RECORD)
    _append(lake, side.parse(records), EVENT)
    if timed:
        side.cpu.append(cpu_seconds() - cpu)
        side.wall.append(time.monotonic() - wall)
    return lake


def _append(lake: Lake, rows: DataFrame, table: Table) -> None:
    """As `Lake.append` writes a batch, without the marker that only a restart needs."""
    rows.select(*[column.name for column in table.columns]).write.format("delta").mode(
        "append"
    ).save(lake.path(table))


def _checked(spark: SparkSession, home: Path, side: Side, count: int) -> Found:
    """The warm-up round, whose tables are looked at."""
    lake = _through(spark, home, side, timed=False)
    records = lake.read(RECORD).count()
    if records != count:
        raise AssertionError(f"{side.name}: {records} of {count} records in bronze")
    number = F.substring_index(F.get("record_ids", F.lit(0)), ":", -1).cast("long")
    events = lake.read(EVENT).withColumn("number", number)
    is_planted = F.col("number") % PLANTED_EVERY == PLANTED_EVERY // 2
    alive = F.col("dead_letter_reason").isNull()
    row = events.where(~is_planted).agg(F.count_if(alive), _digest()).first()
    dead = events.where(is_planted & ~alive).select("number").collect()
    bad = dict.fromkeys(KINDS, 0)
    for one in dead:
        bad[planted(one["number"]) or ""] += 1
    return Found(events.count(), row[0] if row else 0, int(row[1] or 0) if row else 0, bad)


def _digest() -> Column:
    """A sum over the compared columns that does not depend on the order of rows."""
    whole = F.to_json(F.struct(*[F.col(name).alias(name) for name in COMPARED]))
    return F.sum(F.xxhash64(whole).cast("decimal(38,0)"))


def _agree(found: list[Found], count: int) -> None:
    ours, stock = found
    expected = sum(planted(number) is None for number in range(count))
    for name, one in (("ours", ours), ("stock", stock)):
        if one.rows != count or one.good != expected:
            raise AssertionError(
                f"{name}: {one.rows} rows of {count} records, {one.good} good of {expected}"
            )
    if ours.digest != stock.digest:
        raise AssertionError("the good events of the two sides differ")


def _tell(report: Report, sides: tuple[Side, Side], found: list[Found], count: int) -> None:
    ours, stock = (
        report.add(f"raw to bronze + silver, {side.name}", _rate(count, side.cpu), "events/CPU-s")
        for side in sides
    )
    if ours.value and stock.value:
        ours.compared_with, ours.ratio = stock.name, ours.value / stock.value
        ours.bar, ours.met = ">= 2x (aim of the next step)", ours.ratio >= 2
    walls = [
        report.add(f"the same by the clock, {side.name}", _rate(count, side.wall), "events/s")
        for side in sides
    ]
    if walls[0].value and walls[1].value:
        walls[0].compared_with, walls[0].ratio = walls[1].name, walls[0].value / walls[1].value
    bad = sum(planted(number) is not None for number in range(count))
    for side, one in zip(sides, found, strict=True):
        measure = report.add(
            f"planted bad records found, {side.name}", [sum(one.bad.values())], f"of {bad}"
        )
        measure.bar, measure.met = "all", sum(one.bad.values()) == bad
        missed = [f"{kind}: {_missed(one, kind, count)}" for kind in KINDS
                  if _missed(one, kind, count)]  # fmt: skip
        report.notes.append(f"{side.name} took for good: {'; '.join(missed) or 'none'}")
    report.notes.append(
        f"{count} Zeek records (conn, dns, http), the same Parquet files for both sides; "
        f"each record is read twice (bronze, silver), as in job ingest; all good events "
        f"agree in {len(COMPARED)} columns"
    )
    report.notes.append(f"what stock does not do: {NOT_DONE}")


def _missed(found: Found, kind: str, count: int) -> int:
    return sum(planted(number) == kind for number in range(count)) - found.bad[kind]


def _rate(count: int, seconds: list[float]) -> list[float]:
    return [count / one for one in seconds]
