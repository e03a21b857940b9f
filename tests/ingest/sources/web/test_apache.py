"""Apache httpd: access log in its formats, error log of 2.2 and 2.4, ModSecurity."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from ingest.parsing.source import lookup
from tests.ingest.logs import reason, row
from tests.ingest.weblogs import at, check, only

T = 1795255200000  # 2026-11-21 10:00:00 UTC
HEAD = "1.2.3.4 - - [21/Nov/2026:10:00:00 +0000] "

ACCESS: list[tuple[str, dict[str, Any]]] = [
    (
        '127.0.0.1 - frank [10/Oct/2000:13:55:36 -0700] "GET /apache_pb.gif HTTP/1.0" 200 2326',
        {
            "class_uid": 4002,
            "activity_id": 3,
            "time": 971211336000,
            "status_id": 1,
            "severity_id": 1,
            "src_endpoint": {"ip": "127.0.0.1"},
            "actor.user.name": "frank",
            "http_request.url.path": "/apache_pb.gif",
            "http_request.version": "1.0",
            "http_response": {"code": 200, "length": 2326},
            "message": "GET /apache_pb.gif: 200",
        },
    ),
    (
        r'v.com:80 1.2.3.4 - "" [21/Nov/2026:10:00:00 +0000] "GET /\"x\" HTTP/1.1" 200 - "-" '
        r'"a\"b \\ \xd0\x9f"',
        {
            "dst_endpoint": {"hostname": "v.com", "port": 80},
            "http_request.url.url_string": 'http://v.com/"x"',
            "http_request.user_agent": 'a"b \\ П',
            "http_response.length": None,
            "actor": None,
        },
    ),
    (
        '[2001:db8::9]:443 2001:db8::1 - - [21/Nov/2026:10:00:00 +0000] "GET / HTTP/1.1" 200 5',
        {
            "dst_endpoint": {"ip": "2001:db8::9", "port": 443},
            "src_endpoint.ip": "2001:db8::1",
            "http_request.url.scheme": "https",
        },
    ),
    (HEAD + '"GET / HTTP/1.1" 200 100 "-" "x" 12345', {"duration": 12}),
    (HEAD + '"GET / HTTP/1.1" 200 100 "-" "x" 3', {"duration": 3000}),
    (HEAD + '"GET / HTTP/1.1" 200 100 "-" "x" **1/1234567**', {"duration": 1234}),
    (HEAD + '"GET / HTTP/1.1" 200 100 "-" "x" 2 2500000', {"duration": 2500}),
    (
        HEAD + '"GET / HTTP/1.1" 200 100 "-" "x" 234 500',
        {"traffic": {"bytes_in": 500, "bytes_out": 234, "bytes": 734}, "duration": None},
    ),
    (
        HEAD.replace("1.2.3.4", "pc.example.org") + '"-" 408 -',
        {"src_endpoint": {"hostname": "pc.example.org"}, "http_response.code": 408},
    ),
    (
        "[21/Nov/2026:10:00:00 +0000] 1.2.3.4 TLSv1.2 ECDHE-RSA-AES128-GCM-SHA256 "
        '"GET / HTTP/1.1" 1234',
        {
            "src_endpoint.ip": "1.2.3.4",
            "tls": {"version": "TLSv1.2", "cipher": "ECDHE-RSA-AES128-GCM-SHA256"},
            "traffic.bytes_in": 1234,
            "time": T,
        },
    ),
    (
        '{"time":"[21/Nov/2026:10:00:00 +0000]","remoteIP":"1.2.3.4","host":"h.com","request":'
        r'"/x","query":"?a=1","method":"GET","status":"200","userAgent":"a\xd0\x9f\"q","u":"-"}',
        {
            "time": T,
            "src_endpoint.ip": "1.2.3.4",
            "http_request.url.path": "/x",
            "http_request.url.query_string": "a=1",
            "http_request.url.hostname": "h.com",
            "http_request.user_agent": 'aП"q',
        },
    ),
    (
        "<190>Nov 21 10:00:05 web httpd[77]: " + HEAD + '"HEAD / HTTP/1.1" 500 -',
        {"time": T, "activity_id": 4, "severity_id": 3, "device.hostname": "web"},
    ),
]


@pytest.mark.parametrize(("line", "expected"), ACCESS)
def test_access_lines(line: str, expected: dict[str, Any]) -> None:
    check("apache", line, expected)


HOSTILE = [
    r"1.2.3.4 - a\" 6.6.6.6 - - [10/Oct/2000:13:55:36 -0700] \"GET [21/Nov/2026:10:00:00 +0000] "
    '"GET / HTTP/1.1" 401 1',
    HEAD + r'"GET /\" 200 1 \"6.6.6.6\" HTTP/1.1" 404 1 "6.6.6.6" "6.6.6.6, 7.7.7.7"',
    HEAD + r'"GET /\x1b[31m\n HTTP/1.1" 404 1 "-" "=HYPERLINK(\"http://6.6.6.6\")"',
    HEAD + '"GET / HTTP/1.1" 200 1 "-" "-" "6.6.6.6"',
    HEAD + '"unescaped "quotes" of others" 400 1 "-" "-"',
]


@pytest.mark.parametrize("line", HOSTILE)
def test_no_client_is_forged(line: str) -> None:
    event = only("apache", line)
    assert event["src_endpoint"]["ip"] == "1.2.3.4"
    assert event["time"] == T
    assert at(event, "http_response.code") in (200, 400, 401, 404)


WHEN = "[Sat Nov 21 10:00:00.123456 2026] "
ERRORS: list[tuple[str, dict[str, Any]]] = [
    (
        "[Sat Nov 21 10:00:00 2026] [error] [client 1.2.3.4] File does not exist: /var/www/x, "
        "referer: http://a/",
        {
            "time": T,
            "severity_id": 4,
            "status_id": 2,
            "src_endpoint": {"ip": "1.2.3.4"},
            "http_request.referrer": "http://a/",
            "file.path": "/var/www/x",
            "message": "File does not exist: /var/www/x",
        },
    ),
    (
        WHEN + "[core:error] [pid 1:tid 139] [client 1.2.3.4:5678] AH00126: Invalid URI in "
        "request GET /../../etc/passwd HTTP/1.1",
        {
            "class_uid": 4002,
            "activity_id": 3,
            "time": T + 123,
            "src_endpoint": {"ip": "1.2.3.4", "port": 5678},
            "http_request.url.path": "/../../etc/passwd",
            "http_request.version": "1.1",
            "metadata.event_code": "AH00126",
            "metadata.log_provider": "core",
            "metadata.log_level": "error",
            "actor.process": {"name": "httpd", "pid": 1, "tid": 139},
        },
    ),
    (
        WHEN + "[core:error] [pid 1:tid 139] (13)Permission denied: [client 2001:db8::1:5678] "
        "AH00035: access to /x denied (filesystem path '/x') because search permissions",
        {
            "src_endpoint": {"ip": "2001:db8::1", "port": 5678},
            "action_id": 2,
            "status_detail": "(13)Permission denied",
            "http_request.url.path": "/x",
        },
    ),
    (
        WHEN + "[auth_basic:error] [pid 1] [client 1.2.3.4:5678] AH01617: user admin [client "
        '6.6.6.6]: authentication failure for "/admin": Password Mismatch',
        {
            "class_uid": 3002,
            "status_id": 2,
            "user.name": "admin [client 6.6.6.6]",
            "src_endpoint.ip": "1.2.3.4",
            "http_request.url.path": "/admin",
        },
    ),
    (
        WHEN + "[auth_form:error] [pid 1] [client 1.2.3.4:5678] AH01807: user 'ann': "
        'authentication failure for "/x": password Mismatch',
        {"class_uid": 3002, "user.name": "ann", "http_request.url.path": "/x"},
    ),
    (
        WHEN + "[auth_form:error] [pid 1] [client 1.2.3.4:5678] AH01806: user 'ann' not found: /x",
        {"class_uid": 3002, "user.name": "ann", "http_request.url.path": "/x"},
    ),
    (
        WHEN + "[auth_basic:error] [pid 1] [client 1.2.3.4:5678] AH01618: user 'ann' not found: /",
        {"class_uid": 3002, "user.name": "'ann'"},
    ),
    (
        WHEN + "[authz_core:error] [pid 12] [client 1.2.3.4:5678] AH01631: user ann: "
        r'authorization failure for "/x\": authorization failure for \"/y": , referer: http://b/',
        {
            "class_uid": 4002,
            "status_id": 2,
            "action_id": 2,
            "actor.user": {"name": "ann"},
            "actor.process.pid": 12,
            "http_request.url.path": '/x": authorization failure for "/y',
            "http_request.referrer": "http://b/",
        },
    ),
    (
        WHEN + "[authz_core:error] [pid 12] [client 1.2.3.4:5678] AH01629: authorization failure "
        "(no authenticated user): /x",
        {"class_uid": 4002, "status_id": 2, "action_id": 2, "http_request.url.path": "/x"},
    ),
    (
        "[Mon Mar 02 09:00:00 2026] [error] [client 1.2.3.4] access to /x failed, reason: user "
        "'eve' not allowed access failed, reason: user 'ray' does not meet 'require'ments for "
        "user/valid-user to be allowed access",
        {
            "class_uid": 4002,
            "action_id": 2,
            "actor.user.name": "ray",
            "http_request.url.path": "/x failed, reason: user 'eve' not allowed access",
        },
    ),
    (
        "[Mon Mar 02 09:00:00 2026] [error] [client 1.2.3.4] access to /x failed, reason: user "
        "CORP\\\\ray not allowed access",
        {"class_uid": 4002, "actor.user": {"name": "ray", "domain": "CORP"}},
    ),
    (
        WHEN + "[authz_core:error] [pid 12] [client 1.2.3.4:5678] AH01630: client denied by "
        "server configuration: /var/www/.ht",
        {
            "class_uid": 4001,
            "activity_id": 5,
            "action_id": 2,
            "disposition_id": 2,
            "src_endpoint.ip": "1.2.3.4",
        },
    ),
    (
        WHEN + "[:error] [pid 12:tid 5] [client 1.2.3.4:5678] [client 1.2.3.4] ModSecurity: "
        r'Warning. Pattern match "(?i)x" at ARGS:a. [file "/c.conf"] [line "66"] [id "942100"] '
        r'[msg "SQL Injection"] [data "Matched: \"] [client 6.6.6.6] [id \"1\"]"] '
        '[severity "CRITICAL"] [ver "OWASP_CRS/3.3.2"] [tag "a"] [tag "b"] [hostname "h"] '
        '[uri "/i.php"] [unique_id "Yx"], referer: http://b/',
        {
            "class_uid": 2004,
            "severity_id": 5,
            "action_id": 3,
            "src_endpoint.ip": "1.2.3.4",
            "metadata.event_code": "942100",
            "metadata.correlation_uid": "Yx",
            "finding_info.uid": "Yx-942100",
            "finding_info.title": "SQL Injection",
            "finding_info.types": ["a", "b"],
            "finding_info.desc": 'Matched: "] [client 6.6.6.6] [id "1"]',
            "unmapped": {"file": "/c.conf", "line": "66"},
        },
    ),
    (
        WHEN + "[mpm_event:notice] [pid 1:tid 1] AH00489: Apache/2.4.54 (Debian) configured",
        {"class_uid": 0, "severity_id": 2, "message": "Apache/2.4.54 (Debian) configured"},
    ),
    (
        WHEN + "[ssl:debug] [pid 1:tid 2] ssl_engine_kernel.c(2000): [client 1.2.3.4:5] AH02034: x",
        {"src_endpoint.port": 5, "status_detail": "ssl_engine_kernel.c(2000)"},
    ),
    (
        "<187>Nov 21 10:00:00 web httpd[123]: [core:error] [pid 1:tid 2] [client 1.2.3.4:5678] "
        "AH00037: Symbolic link not allowed",
        {"class_uid": 4001, "device.hostname": "web", "src_endpoint.ip": "1.2.3.4", "time": T},
    ),
    (
        WHEN + "[php7:warn] [pid 1] [client 1.2.3.4:5] PHP Warning:  [client 6.6.6.6] AH00126",
        {"severity_id": 3, "src_endpoint.ip": "1.2.3.4", "metadata.event_code": None},
    ),
]


@pytest.mark.parametrize(("line", "expected"), ERRORS)
def test_error_lines(line: str, expected: dict[str, Any]) -> None:
    check("apache_error", line, expected)


def test_what_is_no_line_of_apache() -> None:
    assert "no line of HTTP Server" in reason("apache", "[error] x")
    assert "no line of HTTP Server" in reason("apache_error", "[loud] x")
    assert "no line of HTTP Server" in reason("apache_error", "[error] [client 6.6.6.6] no time")
    assert "without client" in reason("apache", json.dumps({"x": 1}))


@pytest.mark.parametrize(
    ("source", "line"),
    [
        ("apache", ACCESS[0][0]),
        ("apache", ACCESS[9][0]),
        ("apache", ACCESS[11][0]),
        ("apache_error", ERRORS[0][0]),
        ("apache_error", ERRORS[1][0]),
        ("apache_error", ERRORS[8][0]),
    ],
)
def test_restamp(source: str, line: str) -> None:
    when = datetime(2030, 1, 2, 3, 4, 5, tzinfo=UTC)
    new = lookup(source).restamp(line.encode(), when, ZoneInfo("UTC"))
    later = datetime(2030, 2, 1, tzinfo=UTC)
    assert row(source, new, now=later)["time"] == when
    assert len(new) == len(line.encode())
