"""One day of one host through the API's own question: events with whose they were."""

from __future__ import annotations

import random
import shutil
import tempfile
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from api.services.entities.attributed_events import By, slice_of
from api.services.reader import Reader
from bench.asof_history import START, Shape, mac_of, write
from bench.measure import Report, cut
from bench.plot import bars, panel
from enrich.tables import DHCP_SEGMENT
from infra.config.settings import load
from infra.delta.parquet_writer import DataFile, FileWriter, Target, arrow_schema
from infra.delta.schema import Table
from infra.delta.transaction import commit_files
from infra.spark.session import session
from infra.streaming.lake import Lake
from ingest.tables import EVENT

FILE_ROWS = 100_000
SEED = 7
QUESTIONS = 30
PAGE = 500
BAR = 1.0


def run(quick: bool = False) -> Report:
    """30 hosts a way (address, device, name), a day each, in a history of twenty days."""
    report = Report("event_slice", "make bench ONLY=event_slice")
    shape = Shape(
        "", *((1_000_000, 100_000, 10_000) if quick else (10_000_000, 1_000_000, 100_000))
    )
    home = Path(tempfile.mkdtemp(prefix="headgate-bench-"))
    settings = load(home=home)
    spark = session(settings, "event_slice")
    try:
        _fill(Lake(spark, settings).ensure(), home / "made", shape)
    finally:
        spark.stop()
    reader = Reader(settings)
    try:
        for by in ("ip", "mac", "host"):
            _ask(report, reader, by, shape)
    finally:
        reader.close()
        shutil.rmtree(home, ignore_errors=True)
    if not quick:
        bars(report, {"one day of one host, seconds": panel(report, "s")})
    report.notes += [
        f"{shape.events:,} events of twenty days in files of {FILE_ROWS:,}, {shape.sessions:,} "
        f"sessions of {shape.addresses:,} addresses; {QUESTIONS} questions a way, each for the "
        f"first page of at most {PAGE} events of a day, after one to open the tables",
        "asked in this process as the API asks, without HTTP",
    ]
    return report


def _ask(report: Report, reader: Reader, by: By, shape: Shape) -> None:
    chance = random.Random(SEED)
    seconds, found = [], 0
    for question in range(QUESTIONS + 1):
        value = _named(by, chance.randrange(shape.addresses))
        day = _moment(START) + timedelta(days=chance.randrange(20))
        began = time.monotonic()
        page = slice_of(reader, (), by, value, day, day + timedelta(days=1), PAGE, None)
        if question:
            seconds.append(time.monotonic() - began)
        found += len(page.items)
    if not found:
        raise AssertionError(f"by {by}: no events in any answer")
    p95 = cut(seconds, 95)
    report.add(f"one day by {by}, p50", [cut(seconds, 50)], "s")
    report.add(f"one day by {by}, p95", [p95], "s", bar=f"< {BAR:.0f} s", met=p95 < BAR)
    report.add(f"one day by {by}, events an answer", [found / (QUESTIONS + 1)], "events")


def _named(by: By, device: int) -> str:
    if by == "ip":
        return ".".join(["10", *(str(device // 256**place % 256) for place in (2, 1, 0))])
    return f"host-{device}" if by == "host" else mac_of(device)


def _moment(us: int) -> datetime:
    return datetime.fromtimestamp(us / 1e6, UTC)


def _fill(lake: Lake, made: Path, shape: Shape) -> None:
    write(made, shape)
    segments = pq.read_table(made / "segments.parquet")
    size = len(segments)
    append_rows(
        lake,
        DHCP_SEGMENT,
        segments.append_column("known_at", segments["seg_start"])
        .append_column("learned_at", segments["seg_start"])
        .append_column("kind", pa.repeat("lease", size)),
    )
    for part in sorted((made / "events").iterdir()):
        events = pq.read_table(part)
        size = len(events)
        said = pc.binary_join_element_wise("A www.example.com asked by", events["ip"], " ")
        columns = {
            "event_uid": events["event_uid"],
            "source": pa.repeat("zeek:dns", size),
            "mode": pa.repeat("live", size),
            "time": events["event_time"],
            "received_at": events["event_time"],
            "scope": events["scope"],
            "src_ip": events["ip"],
            "class_uid": pa.repeat(4003, size),
            "class_name": pa.repeat("DNS Activity", size),
            "message": said,
        }
        append_rows(lake, EVENT, pa.table(columns))


def append_rows(lake: Lake, table: Table, rows: pa.Table) -> None:
    """One commit with these columns, the others null, in files of `FILE_ROWS`."""
    schema = arrow_schema(table)
    files: list[DataFile] = []
    for start in range(0, len(rows), FILE_ROWS):
        part = rows.slice(start, FILE_ROWS).combine_chunks()
        arrays = [
            part[field.name].combine_chunks().cast(field.type)
            if field.name in part.column_names
            else pa.nulls(len(part), field.type)
            for field in schema
        ]
        writer = FileWriter(Target.of(table, lake.folder(table), "bench-"))
        writer.write(pa.RecordBatch.from_arrays(arrays, schema=schema))
        files += [file for file in (writer.close(),) if file]
    commit_files(lake.spark, lake.path(table), files, "{}")
