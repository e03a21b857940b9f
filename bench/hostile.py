"""The same stream with and without one hostile message in a hundred: rate and memory of a worker.

One worker, as Spark would run it, reads the messages and writes bronze and silver. Each side has
a process of its own, whose CPU time and highest memory are measured.
"""

from __future__ import annotations

import gzip
import io
import multiprocessing
import os
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import pyarrow as pa

from bench.cloudtrail_records import cloudtrail
from bench.edge_records import nginx, suricata
from bench.measure import Report
from bench.records import RECEIVED_AT
from bench.syslog_records import syslog
from bench.zeek_records import zeek
from infra.delta.parquet_writer import Target, arrow_schema
from ingest.parsing.source import ParseSettings
from ingest.pipeline.batch_pass import Pass, Reach
from ingest.tables import EVENT, RECORD

RECORDS = 60_000
REPETITIONS = 7
EVERY = 100
"""A hostile message follows so many good ones."""
BATCH_ROWS, BATCH_BYTES = 10_000, 16 << 20
BOMB_EVERY = 200
"""One of so many hostile messages is a bomb: a topic takes a megabyte, which may hold gigabytes."""

_Sent = tuple[str, bytes]

SMALL: Mapping[str, Callable[[], _Sent]] = {
    "cut short": lambda: ("aws_cloudtrail", b'{"eventTime":"2026-11-20T12:00:00Z","eventNa'),
    "a thousand levels": lambda: ("suricata", b'{"a":' + b"[" * 1_000),
    "a number beyond all": lambda: ("zeek:conn", b'{"ts":1e999,"uid":"C1"}'),
    "thousands of digits": lambda: ("zeek:conn", b'{"ts":' + b"9" * 5_000 + b"}"),
    "no text": lambda: ("nginx", bytes(range(128, 256)) * 8),
    "half a character": lambda: ("suricata", b'{"event_type":"dns","host":"\\ud800"}'),
    "NULs": lambda: ("sshd", b"\0" * 1_000),
    "a long line": lambda: ("sshd", b"Mar  2 09:00:00 h sshd[1]: " + b"Failed password for " * 500),
    "control characters": lambda: ("nginx", b'1.2.3.4 - - [\x1b[2J] "GET /\r\n\r\n HTTP/1.1" 200'),
    "a key a thousand times": lambda: ("suricata", b"{" + b'"a":1,' * 1_000 + b'"b":1}'),
}
BOMBS: Mapping[str, Callable[[], _Sent]] = {
    "333,000 empty objects": lambda: ("aws_cloudtrail", b"[" + b"{}," * 333_000 + b"{}]"),
    "half a gigabyte of gzip": lambda: (
        "aws_cloudtrail",
        _packed(b'{"Records":[', b"{}," * (1 << 20), 180, b"{}]}"),
    ),
}


def _packed(start: bytes, piece: bytes, count: int, end: bytes) -> bytes:
    """Gzip that is never whole in memory: the highest memory is to be the reader's own."""
    made = io.BytesIO()
    with gzip.GzipFile(fileobj=made, mode="wb", compresslevel=1) as file:
        file.write(start)
        for _ in range(count):
            file.write(piece)
        file.write(end)
    return made.getvalue()


def run(quick: bool = False) -> Report:
    """Both sides in turns, and what each kind of hostile message costs by itself."""
    report, before = Report("hostile", "make bench ONLY=hostile"), os.getloadavg()
    count = 20_000 if quick else RECORDS
    sides: dict[bool, list[tuple[float, float]]] = {False: [], True: []}
    for repetition in range(1 if quick else REPETITIONS):
        # In turns, so that a machine that slows down slows both.
        for hostile in (False, True) if repetition % 2 == 0 else (True, False):
            sides[hostile].append(_apart(_stream, count, hostile))
    rates = {side: [count / cpu for cpu, _ in sides[side]] for side in sides}
    peaks = {side: [peak for _, peak in sides[side]] for side in sides}
    report.add("good records, clean stream", rates[False], "per CPU second")
    dirty = report.add(
        "good records, 1 % hostile", rates[True], "per CPU second", compared_with="clean"
    )
    report.add("largest memory, clean stream", peaks[False], "MB")
    most = report.add("largest memory, 1 % hostile", peaks[True], "MB", compared_with="clean")
    # Two runs one after the other had the same machine: their ratio holds where the speed does not.
    dirty.ratio, dirty.bar = _paired(rates), "0.9 of the clean rate"
    dirty.met = dirty.ratio >= 0.9
    most.ratio, most.bar = _paired(peaks), "1.2 of the clean memory"
    most.met = most.ratio <= 1.2
    for name in (*SMALL, *BOMBS):
        times = 3 if name in BOMBS else 2_000
        cpu, _ = _apart(_alone, name, times)
        report.add(f"one message: {name}", [cpu / times * 1_000], "CPU ms")
    report.notes.append(
        f"one message of {EVERY} is hostile, and one of {BOMB_EVERY} of those a bomb: "
        + ", ".join(BOMBS)
    )
    report.notes.append(
        "ratios are medians of pairs, each of a clean and a hostile run in a row; load average of "
        f"the machine meanwhile: {before[0]:.1f} at the start, {os.getloadavg()[0]:.1f} at the end"
    )
    return report


def _paired(sides: Mapping[bool, Sequence[float]]) -> float:
    return median(dirty / clean for clean, dirty in zip(sides[False], sides[True], strict=True))


def _apart(work: Callable[..., Iterator[pa.RecordBatch]], *arguments: Any) -> tuple[float, float]:
    """CPU seconds and highest memory (MB) of reading what `work` makes, in a fresh process."""
    context = multiprocessing.get_context("spawn")
    with context.Pool(1) as pool:
        return pool.apply(_read, (work, arguments))


def _read(
    work: Callable[..., Iterator[pa.RecordBatch]], arguments: Sequence[Any]
) -> tuple[float, float]:
    made = list(work(*arguments))
    with tempfile.TemporaryDirectory(prefix="headgate-bench-") as folder:
        targets = {table.name: Target.of(table, Path(folder), "b-") for table in (RECORD, EVENT)}
        # A worker lives for long: what it does once at its start is not counted.
        for _ in Pass(ParseSettings(), targets, (), Reach())(_stream(200, hostile=False)):
            pass
        began = time.process_time()
        for _ in Pass(ParseSettings(), targets, (), Reach())(iter(made)):
            pass
        return time.process_time() - began, _highest_mb()


def _highest_mb() -> float:
    # Not `getrusage`, whose highest begins with that of the parent.
    status = Path("/proc/self/status").read_text("ascii")
    return next(int(line.split()[1]) for line in status.splitlines() if "VmHWM" in line) / 1024


def _stream(count: int, hostile: bool) -> Iterator[pa.RecordBatch]:
    families = (zeek(), syslog(), zeek(), nginx(), syslog(), suricata(), zeek(), cloudtrail())
    small, bombs = list(SMALL.values()), list(BOMBS.values())
    sent: list[_Sent] = []
    for number in range(count):
        family = families[number % len(families)]
        sent.append(family.make(number // len(families)))
        if hostile and number % EVERY == EVERY // 2:
            nth = number // EVERY
            kind = (bombs, nth // BOMB_EVERY) if nth % BOMB_EVERY == 0 else (small, nth)
            sent.append(kind[0][kind[1] % len(kind[0])]())
    return _batches(sent)


def _alone(name: str, times: int) -> Iterator[pa.RecordBatch]:
    return _batches([(SMALL.get(name) or BOMBS[name])()] * times)


def _batches(sent: Sequence[_Sent]) -> Iterator[pa.RecordBatch]:
    """As the JVM sends them: at most so many rows or bytes."""
    rows: list[dict[str, Any]] = []
    size = 0
    for number, (source, raw) in enumerate(sent):
        rows.append(
            {
                "record_id": f"bench:0:{number}",
                "source": source,
                "mode": "live",
                "received_at": RECEIVED_AT,
                "raw": raw,
            }
        )
        size += len(raw)
        if len(rows) == BATCH_ROWS or size > BATCH_BYTES:
            yield pa.RecordBatch.from_pylist(rows, schema=arrow_schema(RECORD))
            rows, size = [], 0
    if rows:
        yield pa.RecordBatch.from_pylist(rows, schema=arrow_schema(RECORD))
