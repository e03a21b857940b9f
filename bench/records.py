"""Raw records for measuring: real lines, varied, with bad ones planted among them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from infra.delta.parquet_writer import arrow_schema
from ingest.tables import RECORD

PLANTED_EVERY = 100
RECEIVED_AT = datetime(2026, 11, 20, 12, tzinfo=UTC)
LOGGED_AT = datetime(2026, 11, 19, 6, tzinfo=UTC)
"""When the first of the records was written."""
FILES = 4
CLIENTS = 5003
"""So many machines the records speak of, as those of a middling network."""

Spoil = Callable[[bytes], bytes]


@dataclass(frozen=True)
class Family:
    """Records of one kind. `make` gives source and bytes of the n-th."""

    name: str
    make: Callable[[int], tuple[str, bytes]]
    spoiled: Mapping[str, Spoil]
    """Ways in which a record is bad. None of them may pass as an event."""


@dataclass(frozen=True)
class Stored:
    """What `store` wrote: how many bytes of raw data, and what is wrong with which record."""

    count: int
    raw_bytes: int
    planted: Mapping[int, str]


def swap(pattern: bytes, by: bytes) -> Spoil:
    """The first place where `pattern` is found, replaced; it must be there."""

    def spoil(line: bytes) -> bytes:
        spoiled, times = re.subn(pattern, by, line, count=1)
        if not times:
            raise ValueError(f"nothing to spoil in {line!r}")
        return spoiled

    return spoil


NO_JSON: Mapping[str, Spoil] = MappingProxyType(
    {
        "cut short": lambda line: line[: len(line) // 2],
        "bytes after the object": lambda line: line + b" garbage",
        "two objects on a line": lambda line: line + b' {"ts":1588205199.5}',
        "bad UTF-8 in a string": swap(rb'":"', b'":"\xff'),
        "a NUL in a string": swap(rb'":"', b'":"\x00'),
    }
)
"""What no source of JSON may take."""


def store(folder: Path, turns: Sequence[Family], count: int) -> Stored:
    """Write `count` records as Parquet files of the shape of bronze.record.

    Families take turns. One record of a hundred is bad, each family's kinds in turn.
    """
    schema = arrow_schema(RECORD)
    folder.mkdir(parents=True)
    planted: dict[int, str] = {}
    rows = list(_rows(turns, count, planted))
    size = -(-count // FILES)
    for number in range(FILES):
        part = pa.Table.from_pylist(rows[number * size : (number + 1) * size], schema=schema)
        pq.write_table(part, folder / f"part-{number}.parquet")
    return Stored(count, sum(len(row["raw"]) for row in rows), planted)


def _rows(turns: Sequence[Family], count: int, planted: dict[int, str]) -> Iterator[dict[str, Any]]:
    made = {family.name: 0 for family in turns}
    bad = dict(made)
    for number in range(count):
        family = turns[number % len(turns)]
        source, raw = family.make(made[family.name])
        made[family.name] += 1
        # Not always at the same place of a hundred, or only one family would have its turn.
        if number % PLANTED_EVERY == number // PLANTED_EVERY * 7 % PLANTED_EVERY:
            kinds = tuple(family.spoiled)
            kind = kinds[bad[family.name] % len(kinds)]
            bad[family.name] += 1
            raw, planted[number] = family.spoiled[kind](raw), f"{family.name}: {kind}"
        yield {
            "record_id": f"bench:0:{number}",
            "source": source,
            "mode": "live",
            "received_at": RECEIVED_AT + timedelta(milliseconds=number),
            "topic": f"logs.{source.replace(':', '.')}",
            "partition": 0,
            "offset": number,
            "raw": raw,
            "headers": None,
        }


def client(number: int) -> tuple[str, str]:
    """Address and hardware address of the machine that record `number` speaks of."""
    high, low = divmod(number * 7919 % CLIENTS, 256)
    return f"10.80.{high}.{low}", f"02:42:ac:80:{high:02x}:{low:02x}"


def logged_at(number: int) -> datetime:
    """When record `number` was written: four a second, microseconds and all."""
    return LOGGED_AT + timedelta(microseconds=number * 250_013)
