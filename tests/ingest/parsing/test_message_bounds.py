"""One message becomes few rows, whatever it holds, and others are read beside it."""

from __future__ import annotations

import gzip
import json
import random
from collections.abc import Callable
from typing import Any

import pytest

from ingest.parsing import message_bounds
from ingest.parsing.event_rows import _rows_of, rows_in_parts
from ingest.parsing.json_source import gunzip
from ingest.parsing.message_bounds import MAX_UNREADABLE, bounded_time
from ingest.parsing.source import Record, Unreadable
from ingest.sources.aws import cloudtrail
from tests.full import rest_full
from tests.ingest.logs import NOW, SETTINGS

SOURCES = ["zeek:conn", "windows_xml", "aws_cloudtrail", "sshd", "json"]

EMPTY = b"[" + b"{}," * 2_000_000 + b"{}]"

POISON: dict[str, Callable[[], bytes]] = {
    "an array of empty objects": lambda: EMPTY,
    "the same in gzip": lambda: gzip.compress(EMPTY * 10, 9),
    "an array of numbers": lambda: b"[" + b"1," * 4_500_000 + b"1]",
    "records": lambda: b'{"Records":[' + b"{}," * 600_000 + b"{}]}",
    "records of records": lambda: b'{"Records":[' + b"[]," * 900_000 + b"[]]}",
    "lines": lambda: b"{}\n" * 2_100_000,
    "words": lambda: b"a\n" * 2_100_000,
    "blank lines": lambda: b"\n" * 9_000_000,
    "arrays in arrays": lambda: b'{"a":[' + b"[0,0]," * 1_000_000 + b"0]}",
    "a long object": lambda: ("{" + ",".join(f'"{n}":0' for n in range(250_000)) + "}").encode(),
    "XML": lambda: b"<Event></Event>" * 250_000,
}


def record(source: str, raw: bytes) -> Record:
    return Record("r0", source, "live", NOW, raw)


@pytest.mark.parametrize("name", POISON)
@pytest.mark.parametrize("source", rest_full(1, SOURCES))
def test_poison_is_one_dead_letter(name: str, source: str) -> None:
    poison = record(source, POISON[name]())
    rows = [row for part in rows_in_parts(poison, SETTINGS) for row in part]
    assert len(rows) <= MAX_UNREADABLE + 1
    assert all(row["dead_letter_reason"] for row in rows) or len(rows) == 1
    assert len({row["event_uid"] for row in rows}) == len(rows)


def test_a_message_that_is_too_much_says_how_much_it_holds() -> None:
    (row,) = _rows_of(record("aws_cloudtrail", EMPTY), SETTINGS)
    assert "about 4000002 JSON values; at most 4000000 are read" in row["dead_letter_reason"]
    assert "stay in bronze.record" in row["dead_letter_reason"]


def test_a_packed_bomb_is_unpacked_only_until_it_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    unpacked: list[int] = []

    def counted() -> Callable[[bytes], None]:
        bound = message_bounds.few_values()

        def look(piece: bytes) -> None:
            unpacked.append(len(piece))
            bound(piece)

        return look

    monkeypatch.setattr(cloudtrail, "few_values", counted)
    packed = gzip.compress(b'{"Records":[' + b"{}," * 15_000_000 + b"{}]}", 1)
    (row,) = _rows_of(record("aws_cloudtrail", packed), SETTINGS)
    assert "more than 4000000 JSON values" in row["dead_letter_reason"]
    assert "stay in bronze.record" in row["dead_letter_reason"]
    assert 6_000_000 < sum(unpacked) < 8_000_000


@pytest.mark.parametrize("cut", [65_535, 65_536, 65_537, -8, -1])
def test_gzip_is_read_whole_wherever_its_steps_fall(cut: int) -> None:
    content = random.Random(5).randbytes(150_000)
    packed = gzip.compress(content)
    assert gunzip(packed) == content
    with pytest.raises(Unreadable, match=f"ends early, at byte {len(packed[:cut])}"):
        gunzip(packed[:cut])
    padding = b"\0" * 70_000
    assert gunzip(packed + padding, padded=True) == content
    for padded in (False, True):
        with pytest.raises(Unreadable, match=f"trailing bytes .* at byte {len(packed)} of"):
            gunzip(packed + padding + b"x", padded=padded)


@pytest.mark.parametrize("size", [10, 3_000])
def test_dead_letters_among_events_are_counted_beyond_a_thousand(size: int) -> None:
    call = {"eventTime": "2026-11-21T03:00:00Z", "eventSource": "s3.amazonaws.com",
            "eventName": "Get", "note": "x" * size}  # fmt: skip
    lines = [json.dumps(call), *["{]"] * (MAX_UNREADABLE + 500), json.dumps(call)]
    rows = [
        row
        for part in rows_in_parts(record("aws_cloudtrail", "\n".join(lines).encode()), SETTINGS)
        for row in part
    ]
    dead = [row for row in rows if row.get("dead_letter_reason")]
    assert len(rows) - len(dead) == 2
    assert len(dead) == MAX_UNREADABLE + 1
    assert dead[-1]["dead_letter_reason"].startswith("500 more parts")
    assert len({row["event_uid"] for row in rows}) == len(rows)


def test_what_takes_too_long_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(message_bounds, "CPU_SECONDS", 0.05)

    def forever() -> None:
        with bounded_time(b"x" * 100_000):
            while True:
                pass

    with pytest.raises(Unreadable, match="was not read in"):
        forever()


def test_as_many_events_as_products_write_are_read() -> None:
    call = {"eventTime": "2026-11-21T03:00:00Z", "eventSource": "s3.amazonaws.com",
            "eventName": "Get"}  # fmt: skip
    raw = json.dumps([call] * 20_000).encode()
    rows = [row for part in rows_in_parts(record("aws_cloudtrail", raw), SETTINGS) for row in part]
    assert len(rows) == 20_000
    assert not any(row.get("dead_letter_reason") for row in rows)


def _azure(events: int) -> object:
    flow = "1772442000,203.0.113.9,10.0.0.4,44931,22,T,I,D"
    flows = {"rule": "r", "flows": [{"mac": "000D3AF8801A", "flowTuples": [flow] * events}]}
    return {"category": "c", "properties": {"Version": 1, "flows": [flows]}}


def _osquery(events: int) -> object:
    return {
        "name": "q",
        "hostIdentifier": "h",
        "unixTime": 1_772_442_000,
        "snapshot": [{}] * events,
    }


def _osquery_request(events: int) -> object:
    result = {"name": "q", "unixTime": 1_772_442_000, "columns": {"pid": "1"}, "action": "added"}
    return {"log_type": "result", "data": [result] * events}


def _google(events: int) -> object:
    about = {"id": {"applicationName": "drive", "time": "2026-03-02T09:00:00Z"}, "actor": {}}
    return about | {"events": [{"name": "view"}] * events}


def _enveloped(events: int) -> object:
    return {"records": [_azure(1)] * events}


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("azure_flow", _azure),
        ("osquery", _osquery),
        ("osquery", _osquery_request),
        ("google_workspace", _google),
        ("azure_flow", _enveloped),
    ],
)
def test_what_events_of_one_message_repeat_of_it_is_bounded(
    source: str, message: Callable[[int], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A megabyte that is half events and half what each of them repeats would be gigabytes."""
    monkeypatch.setattr(message_bounds, "MAX_REPEATED_BYTES", 20_000)

    def rows(events: int) -> list[dict[str, Any]]:
        content = message(events)
        assert isinstance(content, dict)
        raw = json.dumps(content | {"note": "x" * 1_000}).encode()
        return _rows_of(record(source, raw), SETTINGS)

    read = rows(10)
    assert len(read) == 10
    assert not any(row.get("dead_letter_reason") for row in read)
    (refused,) = rows(20)
    assert "20 events that each repeat 1" in refused["dead_letter_reason"]
    assert "at most 20000 bytes" in refused["dead_letter_reason"]
