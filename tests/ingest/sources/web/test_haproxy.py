"""HAProxy: HTTP, HTTPS, TCP and default formats, errors, states of servers."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from ingest.parsing.source import lookup
from tests.ingest.logs import reason, row
from tests.ingest.weblogs import check, only

T = 1795255200655  # 2026-11-21 10:00:00.655 UTC
SYSLOG = "<134>Nov 21 10:00:01 lb haproxy[14389]: "
START = "10.0.1.2:33317 [21/Nov/2026:10:00:00.655] "
COUNTS = "1/1/1/1/0 0/0 "

LINES: list[tuple[str, dict[str, Any]]] = [
    (
        SYSLOG + START + "http-in static/srv1 10/0/30/69/109 200 2750 - - ---- "
        + COUNTS + '{1wt.eu|ua x} {} "GET /index.html?a=b HTTP/1.1"',
        {
            "class_uid": 4002,
            "activity_id": 3,
            "time": T,
            "status_id": 1,
            "device.hostname": "lb",
            "src_endpoint": {"ip": "10.0.1.2", "port": 33317},
            "dst_endpoint": {"svc_name": "static", "name": "srv1"},
            "app_name": "http-in",
            "duration": 109,
            "traffic.bytes_in": 2750,
            "http_request.url.query_string": "a=b",
            "load_balancer.name": "http-in",
            "unmapped.termination_state": "----",
            "unmapped.captured_request_headers": ["1wt.eu", "ua x"],
            "actor.process.pid": 14389,
        },
    ),
    (
        START + "https-in~ static/srv1 10/0/30/69/109 200 2750 - - ---- " + COUNTS
        + '"GET / HTTP/2.0" 0/0/0/0/0 1wt.eu/TLSv1.3/TLS_AES_256_GCM_SHA384',
        {
            "tls": {"version": "TLSv1.3", "sni": "1wt.eu", "cipher": "TLS_AES_256_GCM_SHA384"},
            "http_request.url.scheme": "https",
            "app_name": "https-in",
        },
    ),
    (
        "haproxy[14387]: " + START + "fnt bck/srv1 0/0/5007 212 -- 0/0/0/0/3 0/0",
        {
            "class_uid": 4001,
            "activity_id": 2,
            "status_id": 1,
            "duration": 5007,
            "connection_info.protocol_name": "tcp",
            "src_endpoint.port": 33317,
        },
    ),
    (
        START + "fnt bck/<NOSRV> -1/-1/0 0 SC 0/0/0/0/3 0/0",
        {"class_uid": 4001, "activity_id": 4, "status_id": 2, "status_code": "SC"},
    ),
    (
        SYSLOG + "Connect from 10.0.1.2:33312 to 10.0.3.31:8012 (www/HTTP)",
        {
            "class_uid": 4001,
            "activity_id": 1,
            "src_endpoint": {"ip": "10.0.1.2", "port": 33312},
            "dst_endpoint": {"ip": "10.0.3.31", "port": 8012},
        },
    ),
    (
        SYSLOG + "2001:db8::5:34549 [21/Nov/2026:10:00:00.655] foo foo/<NOSRV> -1/-1/-1/-1/0 400 "
        '187 - - PR-- 1/1/0/0/0 0/0 "<BADREQ>"',
        {
            "src_endpoint": {"ip": "2001:db8::5", "port": 34549},
            "http_response.code": 400,
            "action_id": 2,
            "disposition_id": 2,
            "status_detail": "PR--",
            "unmapped.request": "<BADREQ>",
        },
    ),
    (
        START + "fe be/s -1/1/-1/-1/+5 -1 +0 - - CD-- " + COUNTS + '"GET /x',
        {"class_uid": 4002, "http_request.url.path": "/x", "duration": 5, "unmapped.status": "-1"},
    ),
    (
        SYSLOG + START + "foo/1: SSL handshake failure",
        {
            "class_uid": 4001,
            "activity_id": 4,
            "status_id": 2,
            "time": T,
            "src_endpoint.ip": "10.0.1.2",
            "message": "SSL handshake failure",
        },
    ),
    (
        SYSLOG + "Server bck/web1 is DOWN, reason: Layer4 connection problem, info: "
        '"Connection refused", check duration: 0ms. 1 active and 0 backup servers left.',
        {
            "class_uid": 0,
            "severity_id": 3,
            "status_id": 2,
            "unmapped.backend": "bck",
            "unmapped.server": "web1",
        },
    ),
    (SYSLOG + "backend bck has no server available!", {"class_uid": 0, "severity_id": 4}),
    (SYSLOG + "Proxy http-in started.", {"class_uid": 0, "message": "Proxy http-in started."}),
    (SYSLOG + "whatever else", {"class_uid": 0, "message": "whatever else"}),
    (
        '10.0.1.2 - - [21/Nov/2026:10:00:00 +0000] "GET / HTTP/1.1" 200 2750 "" "" 33317 655',
        {"class_uid": 4002, "src_endpoint.ip": "10.0.1.2"},
    ),
]  # fmt: skip


@pytest.mark.parametrize(("line", "expected"), LINES)
def test_lines(line: str, expected: dict[str, Any]) -> None:
    check("haproxy", line, expected)


@pytest.mark.parametrize(
    "asked",
    [
        "GET /#22 6.6.6.6:1 [21/Nov/2026:10:00:00.655] x y/z HTTP/1.1",
        "GET /%22{6.6.6.6}[31m HTTP/1.1",
        "<134>Nov 21 10:00:01 lb haproxy[1]: 6.6.6.6:1 HTTP/1.1",
    ],
)
def test_no_client_is_forged(asked: str) -> None:
    line = SYSLOG + START + "a b/c 1/1/1/1/1 200 1 - - ---- " + COUNTS
    event = only("haproxy", f'{line}{{6.6.6.6}} {{x y|}} "{asked}"')
    assert event["src_endpoint"] == {"ip": "10.0.1.2", "port": 33317}
    assert event["time"] == T


def test_naive_times_are_in_the_zone_configured() -> None:
    event = only("haproxy", LINES[1][0], tz="Europe/Berlin")
    assert event["time"] == T - 3600_000


def test_what_is_no_line_of_haproxy() -> None:
    assert "no line of HAProxy at byte 0: 'hello'" in reason("haproxy", "hello")


@pytest.mark.parametrize("line", [LINES[0][0], LINES[1][0], LINES[4][0]])
def test_restamp(line: str) -> None:
    when = datetime(2030, 1, 2, 3, 4, 5, tzinfo=UTC)
    new = lookup("haproxy").restamp(line.encode(), when, ZoneInfo("UTC"))
    assert row("haproxy", new, now=datetime(2030, 2, 1, tzinfo=UTC))["time"] == when
