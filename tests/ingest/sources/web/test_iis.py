"""IIS: W3C logs with and without their header, HTTPERR, FTP, and others of the form."""

from __future__ import annotations

import io
from datetime import UTC, datetime
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from ingest.parsing.record_reader import pieces
from ingest.parsing.source import lookup
from tests.ingest.logs import reason, row, rows
from tests.ingest.weblogs import at, check, events, only

T = 1795255200000  # 2026-11-21 10:00:00 UTC
HEADER = (
    b"#Software: Microsoft Internet Information Services 10.0\n#Version: 1.0\n"
    b"#Date: 2026-11-21 09:00:00\n#Fields: date time s-ip cs-method cs-uri-stem cs-uri-query "
    b"s-port cs-username c-ip cs(User-Agent) cs(Referer) sc-status sc-substatus "
    b"sc-win32-status time-taken X-Forwarded-For"
)
LINE = (
    "2026-11-21 10:00:00 10.0.0.1 GET /a.aspx id=1 443 DOM\\ann 1.2.3.4 Mozilla/5.0+(Win) "
    "http://r/ 404 2 2 15 5.5.5.5,+6.6.6.6"
)


def test_with_its_header() -> None:
    check(
        "iis",
        LINE,
        {
            "class_uid": 4002,
            "activity_id": 3,
            "time": T,
            "status_code": "404",
            "status_detail": "404.2",
            "src_endpoint": {"ip": "1.2.3.4"},
            "dst_endpoint": {"ip": "10.0.0.1", "port": 443},
            "actor.user": {"name": "ann", "domain": "DOM"},
            "http_request.user_agent": "Mozilla/5.0 (Win)",
            "http_request.referrer": "http://r/",
            "http_request.x_forwarded_for": ["5.5.5.5", "6.6.6.6"],
            "http_request.url.path": "/a.aspx",
            "http_request.url.query_string": "id=1",
            "http_request.url.scheme": "https",
            "duration": 15,
            "unmapped": {"sc-substatus": "2", "sc-win32-status": "2"},
            "metadata.product": {"name": "IIS", "vendor_name": "Microsoft", "version": "10.0"},
        },
        headers={"header": HEADER},
        tz="America/New_York",
    )


BARE: list[tuple[str, dict[str, Any]]] = [
    (
        "2026-11-21 10:00:00 10.0.0.1 GET / - 80 - 1.2.3.4 Mozilla/5.0 - 200 0 0 15",
        {"src_endpoint.ip": "1.2.3.4", "http_response.code": 200, "duration": 15},
    ),
    (
        "2026-11-21 10:00:00 fe80::1 GET / - 80 - ::1 Mozilla/5.0 200 0 0 15",
        {"src_endpoint.ip": "::1", "dst_endpoint.ip": "fe80::1", "duration": 15},
    ),
    (
        "2026-11-21 10:00:00 W3SVC1 10.0.0.1 GET / - 80 - 1.2.3.4 Mozilla/5.0 200 0 0",
        {"src_endpoint.ip": "1.2.3.4", "unmapped.s-sitename": "W3SVC1"},
    ),
    (
        "2026-11-21 10:00:00 SITE GET / X=1 443 - 1.2.3.4 Mozilla/5.0 a=b - site.example 200 0 0 "
        "500 300 15",
        {
            "http_request.url.url_string": "https://site.example/?X=1",
            "traffic": {"bytes_in": 500, "bytes_out": 300, "bytes": 800},
            "unmapped.cs(Cookie)": "a=b",
        },
    ),
    (
        "2026-11-21 10:00:00 1.2.3.4 5555 10.0.0.1 80 HTTP/1.1 GET /x 400 - BadRequest -",
        {
            "class_uid": 4002,
            "src_endpoint": {"ip": "1.2.3.4", "port": 5555},
            "status_detail": "BadRequest",
            "metadata.log_name": "HTTPERR",
        },
    ),
    (
        "2026-11-21 10:00:00 1.2.3.4 5555 10.0.0.1 80 - - - - - Timer_ConnectionIdle -",
        {"class_uid": 4001, "activity_id": 2, "message": "Timer_ConnectionIdle"},
    ),
]


@pytest.mark.parametrize(("line", "expected"), BARE)
def test_without_a_header(line: str, expected: dict[str, Any]) -> None:
    check("iis", line, {"time": T} | expected)


def test_a_whole_file() -> None:
    found = rows("iis", b"\xef\xbb\xbf" + HEADER + b"\r\n" + LINE.encode() + b"\r\n" + b"a b\r\n")
    assert [one.get("dead_letter_reason") for one in found] == [
        None,
        "2 columns where #Fields names 16: 'a b'",
    ]
    assert found[0]["src_ip"] == "1.2.3.4"


def test_a_file_whose_columns_change_midway() -> None:
    other = b"#Fields: time c-ip cs-method cs-uri-stem sc-status\n10:00:01 4.3.2.1 PUT /y 201\n"
    raw = HEADER + b"\n" + LINE.encode() + b"\n" + other
    source = lookup("iis")
    found = [
        row("iis", piece.raw, headers={"header": piece.header})
        for piece in pieces(io.BytesIO(raw), source)
    ]
    assert [one["src_ip"] for one in found] == ["1.2.3.4", "4.3.2.1"]
    first, second = events("iis", raw)
    assert (first["time"], second["time"]) == (T, T + 1000)
    assert at(second, "http_request.http_method") == "PUT"


def test_a_header_alone_is_an_event() -> None:
    event = only("iis", "#Version: 1.0")
    assert (event["class_uid"], event["message"]) == (0, "#Version: 1.0")


def test_ftp() -> None:
    raw = (
        "#Fields: date time c-ip cs-username s-ip s-port cs-method cs-uri-stem sc-status "
        "sc-win32-status sc-substatus x-session x-fullpath\n"
        "2026-11-21 10:00:00 1.2.3.4 - 10.0.0.1 21 USER admin 331 0 0 abc -\n"
        "2026-11-21 10:00:00 1.2.3.4 bob 10.0.0.1 21 RETR x.txt 226 0 0 abc /x.txt\n"
    )
    asked, fetched = events("iis", raw)
    assert (asked["class_uid"], asked["command"], asked["status_code"]) == (4008, "USER", "331")
    assert (fetched["activity_id"], fetched["file"]["path"]) == (2, "x.txt")
    assert fetched["actor"]["user"]["name"] == "bob"
    assert fetched["dst_endpoint"] == {"ip": "10.0.0.1", "port": 21}


def test_columns_between_commas() -> None:
    raw = (
        "#Software: Microsoft Exchange Server\n#Fields: date-time,client-ip,event-id,subject\n"
        '2026-11-21T10:00:00.123Z,1.2.3.4,RECEIVE,"a, b"'
    )
    event = only("iis", raw)
    assert (event["time"], event["src_endpoint"]["ip"]) == (T + 123, "1.2.3.4")
    assert at(event, "unmapped.subject") == "a, b"
    assert at(event, "metadata.product.name") == "Microsoft Exchange Server"


def test_hostile_lines() -> None:
    moved = LINE.replace("Mozilla/5.0+(Win)", "x - 6.6.6.6")
    assert "18 columns where #Fields names 16" in reason("iis", moved, headers={"header": HEADER})
    assert "none of IIS' default sets fits" in reason("iis", "a b c")
    forged = only("iis", LINE.replace("5.5.5.5,+6.6.6.6", "x;6.6.6.6"), headers={"header": HEADER})
    assert at(forged, "http_request.x_forwarded_for") is None
    assert at(forged, "unmapped.X-Forwarded-For") == "x;6.6.6.6"
    assert forged["src_endpoint"] == {"ip": "1.2.3.4"}


def test_restamp() -> None:
    when = datetime(2030, 1, 2, 3, 4, 5, tzinfo=UTC)
    new = lookup("iis").restamp(BARE[0][0].encode() + b"\r\n", when, ZoneInfo("Asia/Tokyo"))
    assert new.startswith(b"2030-01-02 03:04:05 10.0.0.1 ")
    assert row("iis", new)["time"] == when
