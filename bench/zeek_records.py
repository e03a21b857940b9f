"""Raw Zeek records for measuring: real lines, varied, with bad ones planted among them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql.pandas.types import to_arrow_schema

from infra.spark import project_root
from ingest.tables import RECORD

SAMPLES = project_root() / "samples" / "zeek" / "json_corelight"
MIX = ("conn", "conn", "conn", "dns", "conn", "http", "conn", "dns", "conn", "conn")
"""Which log each record is of, over and over: seven of ten connections, as on a quiet network."""
PLANTED_EVERY = 100
RECEIVED_AT = datetime(2026, 11, 20, 12, tzinfo=UTC)
FILES = 4

Spoil = Callable[[bytes], bytes]


def _swap(pattern: bytes, by: bytes) -> Spoil:
    return lambda line: re.sub(pattern, by, line, count=1)


SPOILED: dict[str, Spoil] = {
    "cut short": lambda line: line[: len(line) // 2],
    "bytes after the object": lambda line: line + b" garbage",
    "two objects on a line": lambda line: line + b' {"ts":1588205199.5}',
    "bad UTF-8 where nobody looks": _swap(rb'"@proc":"zeek"', b'"@proc":"z\xffek"'),
    "a NUL in a string": _swap(rb'"uid":"', b'"uid":"\x00'),
    "an array around it": lambda line: b"[" + line + b"]",
    "a key twice": lambda line: line[:-1] + b',"id_orig_h":"10.99.99.99"}',
    "text for a number": _swap(rb'"id_orig_p":\d+', b'"id_orig_p":"http"'),
    "a port beyond 65535": _swap(rb'"id_orig_p":\d+', b'"id_orig_p":70000'),
    "a number beyond 64 bits": _swap(rb'"id_orig_p":\d+', b'"id_orig_p":99999999999999999999'),
    "no source address": _swap(rb'"id_orig_h"', b'"id_orig_x"'),
    "a source address that is none": _swap(rb'"id_orig_h":"[^"]*"', b'"id_orig_h":"nowhere"'),
}
"""Ways in which a line is bad. Each is a record that must not pass as an event."""
KINDS = tuple(SPOILED)


def planted(number: int) -> str | None:
    """What is wrong with record `number`, None for a good one."""
    if number % PLANTED_EVERY != PLANTED_EVERY // 2:
        return None
    return KINDS[number // PLANTED_EVERY % len(KINDS)]


def store(folder: Path, count: int) -> None:
    """Write `count` records as Parquet files of the shape of bronze.record."""
    schema: pa.Schema = to_arrow_schema(RECORD.schema, timezone="UTC")
    folder.mkdir(parents=True)
    rows = list(_rows(count))
    size = -(-count // FILES)
    for number in range(FILES):
        part = pa.Table.from_pylist(rows[number * size : (number + 1) * size], schema=schema)
        pq.write_table(part, folder / f"part-{number}.parquet")


def _rows(count: int) -> Iterator[dict[str, Any]]:
    lines = {log: _lines(log) for log in set(MIX)}
    encode = msgspec.json.Encoder().encode
    for number in range(count):
        log = MIX[number % len(MIX)]
        fields = lines[log][number % len(lines[log])]
        raw = encode(_varied(fields, number))
        kind = planted(number)
        yield {
            "record_id": f"bench:0:{number}",
            "source": f"zeek:{log}",
            "mode": "live",
            "received_at": RECEIVED_AT + timedelta(milliseconds=number),
            "topic": f"logs.zeek.{log}",
            "partition": 0,
            "offset": number,
            "raw": SPOILED[kind](raw) if kind else raw,
            "headers": None,
        }


def _lines(log: str) -> list[dict[str, Any]]:
    files = sorted(SAMPLES.glob(f"*_{log}.log"))
    return [msgspec.json.decode(line) for file in files for line in file.read_bytes().splitlines()]


def _varied(fields: dict[str, Any], number: int) -> dict[str, Any]:
    """The line at another time, with ids and addresses of its own."""
    return fields | {
        # Whole steps of 1/64 s are exact as binary fractions, so no reader can round otherwise.
        "ts": 1588205199.0 + number / 64,
        "uid": f"C{number:x}zK{number * 7919 % 1000003:x}",
        "id_orig_h": f"10.{number // 65536 % 256}.{number // 256 % 256}.{number % 256}",
    }
