"""A worker that is given much at once: `python -m tests.ingest.memory_worker KIND FOLDER`.

Prints its resident memory before the work and at its highest, in megabytes.
"""

from __future__ import annotations

import gzip
import io
import json
import sys
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa

from infra.delta.parquet_writer import Target, arrow_schema
from ingest.parsing.source import ParseSettings
from ingest.pipeline.batch_pass import Pass, Reach
from ingest.tables import EVENT, RECORD

MB = 1024 * 1024
AT = datetime(2026, 11, 21, tzinfo=UTC)
CALL = {
    "eventTime": "2026-11-21T03:00:00Z",
    "eventSource": "s3.amazonaws.com",
    "eventName": "GetObject",
    "awsRegion": "us-east-1",
    "sourceIPAddress": "10.0.0.9",
    "userIdentity": {"type": "IAMUser", "userName": "bob"},
    "requestParameters": {"k": "v" * 300},
}
Given = tuple[str, list[bytes]]


def packed(start: bytes, piece: bytes, count: int, end: bytes) -> bytes:
    """Gzip of `start`, `count` pieces and `end`, never whole in memory."""
    made = io.BytesIO()
    with gzip.GzipFile(fileobj=made, mode="wb", compresslevel=1) as file:
        file.write(start)
        for _ in range(count):
            file.write(piece)
        file.write(end)
    return made.getvalue()


def trail() -> bytes:
    one = json.dumps(CALL).encode()
    return packed(b'{"Records":[' + one, b"," + one, 60 * MB // len(one), b"]}")


def eve() -> bytes:
    line = b'{"event_type":"stats","timestamp":"2026-11-21T03:00:00Z","a":"' + b"x" * 600 + b'"}\n'
    return packed(b"", line, 60 * MB // len(line), b"")


def deep() -> bytes:
    return b'{"a":[' + b",".join([b'{"b":{"c":[1,2,3]}}'] * 40_000) + b"]}"


KINDS: dict[str, Callable[[], Given]] = {
    "many small lines": lambda: ("sshd", [b"Mar  2 09:00:00 h sshd[1]: x"] * 100_000),
    "lines of nine megabytes": lambda: (
        "zeek:weird",
        [b'{"ts":1,"name":"' + b"x" * 9 * MB + b'"}'] * 24,
    ),
    "deep and wide objects": lambda: ("json", [deep()] * 12),
    "files of sixty megabytes": lambda: ("aws_cloudtrail", [trail()] * 2),
    "sixty megabytes of lines": lambda: ("suricata", [eve()]),
    "packed a thousand times": lambda: (
        "aws_cloudtrail",
        [packed(b'{"Records":[', b" " * MB, 900, b"]}")] * 2,
    ),
}


def batches(source: str, raws: list[bytes]) -> Iterator[pa.RecordBatch]:
    """As the JVM sends them: at most 10,000 rows or 16 MB."""
    held: list[dict[str, object]] = []
    size = 0
    for at, raw in enumerate(raws):
        row = {"record_id": f"m:0:{at}", "source": source, "mode": "live", "raw": raw}
        held.append(row | {"received_at": AT})
        size += len(raw)
        if len(held) == 10_000 or size > 16 * MB:
            yield pa.RecordBatch.from_pylist(held, schema=arrow_schema(RECORD))
            held, size = [], 0
    if held:
        yield pa.RecordBatch.from_pylist(held, schema=arrow_schema(RECORD))


def resident() -> int:
    """The highest so far, of this program alone: what `getrusage` says includes its parent's."""
    status = Path("/proc/self/status").read_text("ascii")
    return next(int(line.split()[1]) for line in status.splitlines() if "VmHWM" in line) // 1024


def main(kind: str, folder: Path) -> None:
    source, raws = KINDS[kind]()
    before = resident()
    targets = {table.name: Target.of(table, folder, "m-") for table in (RECORD, EVENT)}
    (told,) = Pass(ParseSettings(), targets, (), Reach())(batches(source, raws))
    written = {row["table"]: row["rows"] for row in told.to_pylist()}
    if written[RECORD.name] != len(raws) or written[EVENT.name] < len(raws):
        raise SystemExit(f"{len(raws)} records became {written}")
    print(before, resident())


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
