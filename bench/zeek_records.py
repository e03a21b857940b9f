"""Zeek's logs of connections, questions and HTTP requests as JSON, one record a message."""

from __future__ import annotations

from typing import Any

import msgspec

from bench.records import NO_JSON, Family, swap
from infra.spark.session import project_root

SAMPLES = project_root() / "samples" / "zeek" / "json_corelight"
LOGS = ("conn", "conn", "conn", "dns", "conn", "http", "conn", "dns", "conn", "conn")
"""Which log each record is of, over and over: seven of ten connections, as on a quiet network."""
SPOILED = {
    **NO_JSON,
    "bad UTF-8 where nobody looks": swap(rb'"@proc":"zeek"', b'"@proc":"z\xffek"'),
    "a key twice": lambda line: line[:-1] + b',"id_orig_h":"10.99.99.99"}',
    "text for a number": swap(rb'"id_orig_p":\d+', b'"id_orig_p":"http"'),
    "a port beyond 65535": swap(rb'"id_orig_p":\d+', b'"id_orig_p":70000'),
    "a number beyond 64 bits": swap(rb'"id_orig_p":\d+', b'"id_orig_p":99999999999999999999'),
    "no source address": swap(rb'"id_orig_h"', b'"id_orig_x"'),
    "a source address that is none": swap(rb'"id_orig_h":"[^"]*"', b'"id_orig_h":"nowhere"'),
}


def zeek() -> Family:
    """Corelight's spelling, as its samples have it."""
    lines = {log: _lines(log) for log in set(LOGS)}
    encode = msgspec.json.Encoder().encode

    def make(number: int) -> tuple[str, bytes]:
        log = LOGS[number % len(LOGS)]
        fields = lines[log][number % len(lines[log])]
        return f"zeek:{log}", encode(_varied(fields, number))

    return Family("zeek", make, SPOILED)


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
