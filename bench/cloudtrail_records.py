"""CloudTrail's API records as JSON, one a message."""

from __future__ import annotations

import gzip
from typing import Any

import msgspec

from bench.records import NO_JSON, Family, client, logged_at, swap
from infra.spark.session import project_root

SAMPLES = project_root() / "samples" / "cloudtrail"
SPOILED = {
    **NO_JSON,
    "a key twice": lambda line: line[:-1] + b',"eventName":"ListBuckets"}',
    "a number for a name": swap(rb'"eventName":"[^"]*"', b'"eventName":7'),
}


def cloudtrail() -> Family:
    """The records of AWS' files one by one, and those that Logstash passed on."""
    records = _records()
    encode = msgspec.json.Encoder().encode

    def make(number: int) -> tuple[str, bytes]:
        fields = records[number % len(records)]
        return "aws_cloudtrail", encode(_varied(fields, number))

    return Family("cloudtrail", make, SPOILED)


def _records() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for file in sorted(SAMPLES.glob("*.json.gz")):
        found += msgspec.json.decode(gzip.decompress(file.read_bytes()))["Records"]
    for file in sorted(SAMPLES.glob("*.jsonl")):
        found += [msgspec.json.decode(line) for line in file.read_bytes().splitlines()]
    return found


def _varied(fields: dict[str, Any], number: int) -> dict[str, Any]:
    """The record at another time, with an id and, where it has one, an address of its own."""
    time = "eventTime" if "eventTime" in fields else "@timestamp"
    changed = fields | {
        time: f"{logged_at(number):%Y-%m-%dT%H:%M:%SZ}",
        "eventID": f"{number:08x}-5be5-4a26-ab1b-{number * 7919 % 1000003:012x}",
    }
    if fields["sourceIPAddress"][:1].isdigit():
        changed["sourceIPAddress"] = client(number)[0]
    return changed
