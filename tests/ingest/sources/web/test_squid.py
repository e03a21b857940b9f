"""Squid: native format and its extensions, web servers' formats, cache.log."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from ingest.parsing.source import lookup
from tests.ingest.logs import reason, row
from tests.ingest.weblogs import check, only

T = 1700000000123
START = "1700000000.123    456 10.0.0.5 "

LINES: list[tuple[str, dict[str, Any]]] = [
    (
        START + "TCP_MISS/200 1234 GET http://example.com:8080/x?y=1 ann "
        "HIER_DIRECT/93.184.216.34 text/html",
        {
            "class_uid": 4002,
            "activity_id": 3,
            "time": T,
            "start_time": T - 456,
            "end_time": T,
            "duration": 456,
            "action_id": 1,
            "src_endpoint": {"ip": "10.0.0.5"},
            "dst_endpoint": {"hostname": "example.com", "ip": "93.184.216.34", "port": 8080},
            "actor.user.name": "ann",
            "http_request.url": {
                "url_string": "http://example.com:8080/x?y=1",
                "hostname": "example.com",
                "path": "/x",
                "query_string": "y=1",
                "port": 8080,
                "scheme": "http",
            },
            "http_response": {"code": 200, "length": 1234, "content_type": "text/html"},
            "traffic.bytes_in": 1234,
            "unmapped": {"result": "TCP_MISS", "hierarchy": "HIER_DIRECT"},
        },
    ),
    (
        START + "TCP_DENIED/407 4012 CONNECT evil.com:443 - HIER_NONE/- text/html",
        {
            "activity_id": 1,
            "action_id": 2,
            "disposition_id": 2,
            "status_id": 2,
            "dst_endpoint": {"hostname": "evil.com", "port": 443},
            "http_request.url.hostname": "evil.com",
            "http_request.url.scheme": "https",
        },
    ),
    (
        START + "TCP_TUNNEL/200 5000 CONNECT ex.com:443 - FIRSTUP_PARENT/10.0.0.9 -",
        {"dst_endpoint": {"hostname": "ex.com", "port": 443}, "unmapped.peer": "10.0.0.9"},
    ),
    (
        "1700000000.123    456 10.0.0.5:5123 TCP_MISS/304 1 GET http://e.com/ - DIRECT/1.1.1.1 "
        'text/html "http://ref/" "Mozilla/5.0"',
        {
            "src_endpoint": {"ip": "10.0.0.5", "port": 5123},
            "http_request.referrer": "http://ref/",
            "http_request.user_agent": "Mozilla/5.0",
        },
    ),
    (
        START + "NONE/400 1234 NONE error:invalid-request - NONE/- text/html",
        {
            "action_id": None,
            "http_request": None,
            "http_response.code": 400,
            "unmapped.url": "error:invalid-request",
        },
    ),
    (
        START + "TCP_MISS_ABORTED/000 0 GET http://e.com/ - HIER_DIRECT/2001:db8::1 -",
        {"http_response": None, "unmapped.status": "000", "dst_endpoint.ip": "2001:db8::1"},
    ),
    (
        START + "TCP_HIT/200 9 GET http://e.com/ - HIER_NONE/- text/html [Host: e.com] [x]",
        {"unmapped.extra": ["[Host: e.com]", "[x]"]},
    ),
    (
        '10.0.0.5 - ann [14/Nov/2023:22:13:20 +0000] "GET http://example.com/ HTTP/1.1" 200 1234 '
        '"-" "ua" TCP_MISS:HIER_DIRECT',
        {
            "class_uid": 4002,
            "time": 1700000000000,
            "dst_endpoint.hostname": "example.com",
            "action_id": 1,
            "unmapped": {"result": "TCP_MISS", "hierarchy": "HIER_DIRECT"},
        },
    ),
    (
        "<134>Nov 14 22:13:21 px (squid-1)[9]: " + START
        + "TCP_MISS/200 1 GET http://e.com/ - HIER_DIRECT/1.1.1.1 -",
        {"time": T, "device.hostname": "px", "src_endpoint.ip": "10.0.0.5"},
    ),
    (
        "2026/11/21 10:00:00 kid1| WARNING: Forwarding loop",
        {"class_uid": 0, "severity_id": 3, "time": 1795255200000},
    ),
]  # fmt: skip


@pytest.mark.parametrize(("line", "expected"), LINES)
def test_lines(line: str, expected: dict[str, Any]) -> None:
    check("squid", line, expected)


def test_a_url_with_spaces_does_not_move_the_fields() -> None:
    line = START + (
        "TCP_MISS/200 9 GET http://e.com/ bob HIER_DIRECT/6.6.6.6 text/plain ann "
        "HIER_DIRECT/1.1.1.1 text/html"
    )
    event = only("squid", line)
    assert event["actor"]["user"]["name"] == "ann"
    assert event["dst_endpoint"] == {"hostname": "e.com", "ip": "1.1.1.1"}
    assert event["src_endpoint"] == {"ip": "10.0.0.5"}


def test_what_is_no_line_of_squid() -> None:
    assert "no line of Squid" in reason("squid", "1700000000.123 hello")


@pytest.mark.parametrize("line", [LINES[0][0], LINES[7][0], LINES[8][0], LINES[9][0]])
def test_restamp(line: str) -> None:
    when = datetime(2030, 1, 2, 3, 4, 5, tzinfo=UTC)
    new = lookup("squid").restamp(line.encode(), when, ZoneInfo("UTC"))
    assert row("squid", new, now=datetime(2030, 2, 1, tzinfo=UTC))["time"] == when
