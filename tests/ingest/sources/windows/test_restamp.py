"""A line rewritten to another time is the same line at that time."""

from __future__ import annotations

import gzip
import json
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ingest.parsing.source import Unreadable, lookup
from tests.examples import examples
from tests.ingest.logs import FILES, lines, row, rows, trails

WHEN = datetime(2031, 7, 9, 5, 4, 3, 210987, UTC)
RESOLUTION = {"lab/kea/kea-dhcp4.log": 1000, "lab/windows/DhcpSrvLog-Fri.log": 1_000_000}
TIMED = ("time", "received_at", "start_time", "end_time", "metadata", "scope", "event_uid")


def rest(event: dict[str, Any]) -> dict[str, Any]:
    timeless = {k: v for k, v in event.items() if k not in TIMED}
    if event["class_uid"] == 6003:
        # Logstash's copy of the time is what moves where there is no eventTime.
        unmapped = json.loads(event["unmapped"])
        timeless["unmapped"] = {k: v for k, v in unmapped.items() if k != "@timestamp"}
    return timeless | {"product": event["metadata"]["product"]}


@pytest.mark.parametrize(("source", "path", "zone"), FILES)
def test_a_restamped_line_is_the_same_line_at_the_new_time(
    source: str, path: str, zone: str
) -> None:
    raws = lines(path)
    first = [row(source, raw, tz=zone) for raw in raws]
    chosen = [
        (raw, old)
        for at, (raw, old) in enumerate(zip(raws, first, strict=True))
        if old["time_quality"] != "received" and (at % 7 == 0 or old["class_uid"] == 3002)
    ]
    known = ZoneInfo(zone)
    moved = [lookup(source).restamp(raw, WHEN, known) for raw, _ in chosen]
    again = [row(source, raw, tz=zone, now=WHEN + timedelta(seconds=1)) for raw in moved]
    step = 1_000_000 if "rfc3164" in path else RESOLUTION.get(path, 1)
    for (_, old), new in zip(chosen, again, strict=True):
        steps = {1, 1000, 1_000_000} if source == "aws_cloudtrail" else {step}
        floors = {WHEN - timedelta(microseconds=WHEN.microsecond % one) for one in steps}
        assert new["time"] in floors
        assert rest(new) == rest(old)
    assert moved


def test_all_other_bytes_stay() -> None:
    raw = "<86>1 2026-03-02T09:00:00.25+01:00 h\u00e4 sshd 1 - - x  \t y \r\n".encode()
    moved = lookup("sshd").restamp(raw, WHEN, ZoneInfo("UTC"))
    assert moved == "<86>1 2031-07-09T06:04:03.21+01:00 h\u00e4 sshd 1 - - x  \t y \r\n".encode()
    raw = b' { "a":"\\"ts\\":1", "n":{"ts":5}, "ts" : 1.5 ,"b":[ ]}\n'
    raw = raw.replace(b"{ ", b'{ "id.orig_h":"::1","id.resp_h":"::2",', 1)
    moved = lookup("zeek:conn").restamp(raw, WHEN, ZoneInfo("UTC"))
    assert moved == raw.replace(b'"ts" : 1.5', b'"ts" : 1941339843.210987')
    raw = b"10,03/02/26,09:00:00,Assign,10.7.0.1,lt,0242AC770B10,\r\n"
    moved = lookup("windows_dhcp").restamp(raw, WHEN, ZoneInfo("America/Los_Angeles"))
    assert moved == b"10,07/08/31,22:04:03,Assign,10.7.0.1,lt,0242AC770B10,\r\n"


def test_the_earliest_record_of_a_file_gets_the_time_the_others_follow() -> None:
    raw = trails()[0]
    old = rows("aws_cloudtrail", raw)
    moved = lookup("aws_cloudtrail").restamp(raw, WHEN, ZoneInfo("UTC"))
    assert moved[:2] == b"\x1f\x8b"
    assert len(gzip.decompress(moved)) == len(gzip.decompress(raw))
    new = rows("aws_cloudtrail", moved)
    by = WHEN.replace(microsecond=0) - min(one["time"] for one in old)
    assert [one["time"] for one in new] == [one["time"] + by for one in old]
    assert [rest(one) for one in new] == [rest(one) for one in old]


@pytest.mark.parametrize(
    ("source", "raw"),
    [
        ("sshd", b"no header"),
        ("sshd", b"<86>1 - h sshd 1 - - x"),
        ("zeek:conn", b'{"n":{"ts":1}}'),
        ("zeek:conn", b'{"ts":null}'),
        ("zeek:conn", b'{"t\\u0073":1.5}'),
        ("zeek:conn", b'{"ts":"soon"}'),
        ("zeek:conn", b"{"),
        ("windows_dhcp", b"ID,Date,Time,Description"),
        ("aws_cloudtrail", b'{"Records":[{"eventName":"x"}]}'),
        ("aws_cloudtrail", b'{"Records":5}'),
        ("kea_dhcp4", b""),
    ],
)
def test_what_has_no_time_to_replace_says_so(source: str, raw: bytes) -> None:
    with pytest.raises(Unreadable):
        lookup(source).restamp(raw, WHEN, ZoneInfo("UTC"))


@examples(50)
@given(
    when=st.datetimes(datetime(1971, 1, 1), datetime(2200, 1, 1), timezones=st.just(UTC)),
    raw=st.sampled_from(
        [
            ("zeek:conn", b'{"ts":1588205199.82437,"id_orig_h":"::1","id_resp_h":"::2"}'),
            (
                "zeek:dns",
                b'{"ts":"2018-03-24T17:15:20.865716Z","id":{"orig_h":"::1","resp_h":"::2"}}',
            ),
            ("sshd", b"<86>1 2026-03-02T09:00:00.250000-05:00 b1 sshd 7 - - x"),
        ]
    ),
)
def test_any_time_survives_the_round_trip(when: datetime, raw: tuple[str, bytes]) -> None:
    source, line = raw
    moved = lookup(source).restamp(line, when, ZoneInfo("UTC"))
    assert rows(source, moved)[0]["time"] == when
