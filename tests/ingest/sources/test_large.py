"""A large file is read in parts; what comes out is what it is as a whole."""

from __future__ import annotations

import gzip
import json
from typing import Any

import pyarrow as pa
import pytest

from infra.delta.parquet_writer import arrow_schema
from ingest.parsing.arrow_parser import Parser
from ingest.parsing.event_rows import is_large
from ingest.parsing.json_source import parts
from ingest.parsing.source import Record
from ingest.tables import RECORD
from tests.ingest.logs import NOW, SETTINGS, rows

CALL = {
    "eventTime": "2026-11-21T03:00:00Z",
    "eventSource": "s3.amazonaws.com",
    "eventName": "GetX",
    "sourceIPAddress": "10.0.0.9",
}


def trail(count: int) -> list[dict[str, Any]]:
    return [
        CALL | {"eventID": f"e{number}", "note": chr(97 + number % 26) * 100_000}
        for number in range(count)
    ]


def parsed(raw: bytes) -> list[dict[str, Any]]:
    row = {"record_id": "r0", "source": "aws_cloudtrail", "mode": "live", "received_at": NOW}
    batch = pa.RecordBatch.from_pylist([row | {"raw": raw}], schema=arrow_schema(RECORD))
    return [row for events in Parser(SETTINGS)(batch) for row in events.to_pylist()]


WRITTEN = {
    "records": lambda calls: json.dumps({"Records": calls}, separators=(",", ":")).encode(),
    "an array": lambda calls: json.dumps(calls).encode(),
    "lines": lambda calls: b"\n".join(json.dumps(call).encode() for call in calls),
    "pretty": lambda calls: json.dumps({"Records": calls}, indent=2).encode(),
    "gzip": lambda calls: gzip.compress(json.dumps({"Records": calls}).encode(), 0),
}


@pytest.mark.parametrize("form", WRITTEN)
def test_in_parts_and_as_a_whole_are_the_same(form: str) -> None:
    raw = WRITTEN[form](trail(50))
    assert is_large(Record("r0", "aws_cloudtrail", "live", NOW, raw))
    whole = rows("aws_cloudtrail", raw)
    found = parsed(raw)
    assert [row["event_uid"] for row in found] == [f"r0#{at}" for at in range(50)]
    assert [row["metadata"]["uid"] for row in found] == [row["metadata"]["uid"] for row in whole]
    assert [row["src_ip"] for row in found] == ["10.0.0.9"] * 50


def test_one_bad_object_of_a_large_file_takes_no_other_along() -> None:
    calls = [json.dumps(call).encode() for call in trail(40)]
    calls[17] = calls[17][:-1] + b',"eventName":"again"}'
    found = parsed(b"[" + b",".join(calls) + b"]")
    (dead,) = [row for row in found if row["dead_letter_reason"]]
    assert dead["event_uid"] == "r0#17"
    assert "stands twice" in dead["dead_letter_reason"]
    assert len({row["event_uid"] for row in found}) == 40


def test_a_file_that_says_its_records_twice_is_not_read_in_parts() -> None:
    inner = json.dumps(trail(20)).encode()
    raw = b'{"Records":' + inner + b',"Records":' + inner + b"}"
    assert list(parts(raw)) == []
    (row,) = parsed(raw)
    assert "stands twice" in row["dead_letter_reason"]
