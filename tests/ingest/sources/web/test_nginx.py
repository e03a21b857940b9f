"""nginx: access log in many formats, error log, and what clients write into them."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from ingest.parsing.source import lookup
from tests.ingest.logs import ZONES, lines, reason, row, rows
from tests.ingest.weblogs import at, check, only

T = 1795255200000  # 2026-11-21 10:00:00 UTC
HEAD = "1.2.3.4 - - [21/Nov/2026:10:00:00 +0000] "

ACCESS: list[tuple[str, dict[str, Any]]] = [
    (
        HEAD + r'"GET /a%20b?q=1 HTTP/1.1" 404 153 "-" "Mozilla/5.0 \x22quoted\x22"',
        {
            "class_uid": 4002,
            "activity_id": 3,
            "type_uid": 400203,
            "time": T,
            "severity_id": 2,
            "status_id": 2,
            "status_code": "404",
            "src_endpoint": {"ip": "1.2.3.4"},
            "http_request.http_method": "GET",
            "http_request.version": "1.1",
            "http_request.url.path": "/a%20b",
            "http_request.url.query_string": "q=1",
            "http_request.user_agent": 'Mozilla/5.0 "quoted"',
            "http_request.referrer": None,
            "http_response": {"code": 404, "length": 153},
            "traffic": {"bytes_in": 153, "bytes": 153},
        },
    ),
    (
        '2001:db8::1 - ann smith [21/Nov/2026:11:00:00.5 +0100] "POST /x HTTP/2.0" 201 0',
        {
            "time": T + 500,
            "src_endpoint.ip": "2001:db8::1",
            "actor.user.name": "ann smith",
            "activity_id": 6,
            "http_request.version": "2.0",
        },
    ),
    (
        HEAD + '"GET / HTTP/1.1" 200 5 "http://a.example/" "ua" "5.5.5.5, 2001:db8::2"',
        {
            "src_endpoint": {"ip": "1.2.3.4"},
            "http_request.referrer": "http://a.example/",
            "http_request.x_forwarded_for": ["5.5.5.5", "2001:db8::2"],
        },
    ),
    (
        HEAD + '"GET / HTTP/1.1" 200 5 "-" "ua" "unknown, 5.5.5.5" 0.120 0.118 .',
        {"http_request.x_forwarded_for": None, "src_endpoint.ip": "1.2.3.4", "duration": 120},
    ),
    (
        "www.example.com 1.2.3.4 - - [21/Nov/2026:10:00:00 +0000] "
        '"GET /p HTTP/1.1" 200 5 "-" "ua" rt=0.005 uct="0.000" us="200"',
        {
            "dst_endpoint.hostname": "www.example.com",
            "http_request.url.hostname": "www.example.com",
            "duration": 5,
            "unmapped": {"uct": "0.000", "us": "200"},
        },
    ),
    (
        "10.42.0.1 - - [21/Nov/2026:10:00:00 +0000] "
        '"POST /login HTTP/1.1" 502 560 "-" "curl" 210 0.003 [default-web-80] [] '
        "10.42.0.9:80, 10.42.0.8:80 0, 0 0.001, 0.002 502, 502 5f1c2d",
        {
            "duration": 3,
            "severity_id": 3,
            "traffic": {"bytes_in": 560, "bytes_out": 210, "bytes": 770},
            "metadata.uid": "5f1c2d",
            "unmapped.upstream_addr": "10.42.0.9:80, 10.42.0.8:80",
            "unmapped.upstream_status": "502, 502",
        },
    ),
    (
        HEAD + r'"\x16\x03\x01\x00\xA5" 400 150 "-" "-" "-"',
        {
            "class_uid": 4002,
            "activity_id": 0,
            "http_request": None,
            "http_response.code": 400,
            "unmapped.request": r"\x16\x03\x01\x00\xA5",
        },
    ),
    (HEAD + '"" 400 0 "-" "-"', {"http_response.code": 400, "src_endpoint.ip": "1.2.3.4"}),
    (HEAD + '"-" 000 0 "-" "-"', {"class_uid": 4001, "unmapped.status": "000"}),
    (
        "<190>Nov 21 10:00:05 web1 nginx: " + HEAD + '"PROPFIND / HTTP/1.1" 405 1 "-" "x"',
        {
            "time": T,
            "activity_id": 99,
            "device.hostname": "web1",
            "dst_endpoint.hostname": "web1",
            "unmapped.http_method": "PROPFIND",
        },
    ),
    (
        HEAD + '"CONNECT evil.example:443 HTTP/1.1" 400 1 "-" "-"',
        {
            "activity_id": 1,
            "http_request.url.hostname": "evil.example",
            "http_request.url.port": 443,
            "src_endpoint.ip": "1.2.3.4",
        },
    ),
    (
        "unix: - - [21/Nov/2026:10:00:00 +0000] " + '"GET / HTTP/1.0" 200 1',
        {"src_endpoint": {"name": "unix:"}},
    ),
    (
        "1.2.3.4 - ann [21/Nov/2026:10:00:00 +0000] www.example.com "
        '"GET /x HTTP/1.1" 200 5 0.017 "-" "ua"',
        {
            "http_request.url.hostname": "www.example.com",
            "http_request.user_agent": "ua",
            "duration": 17,
            "actor.user.name": "ann",
        },
    ),
    (
        HEAD + '"GET /x HTTP/1.1" 200 5 "-" "ua" "-" "www.example.com" sn="_" rt=0.1 ua="-"',
        {"http_request.url.hostname": "www.example.com", "duration": 100},
    ),
    (
        "2026-11-21T10:00:07.5Z stdout F " + HEAD + '"GET /x HTTP/1.1" 200 5 "-" "ua"',
        {"time": T, "src_endpoint.ip": "1.2.3.4"},
    ),
    (
        "<190>Nov 21 10:00:05 web1 myapp: " + HEAD + '"GET / HTTP/1.1" 200 1 "-" "x"',
        {"time": T, "src_endpoint.ip": "1.2.3.4", "metadata.log_provider": "myapp"},
    ),
]


@pytest.mark.parametrize(("line", "expected"), ACCESS)
def test_access_lines(line: str, expected: dict[str, Any]) -> None:
    check("nginx", line, expected)


JSON_LINE = {
    "time_iso8601": "2026-11-21T11:00:00+01:00",
    "remote_addr": "1.2.3.4",
    "remote_port": "5555",
    "remote_user": "",
    "request": "GET /x?y=1 HTTP/1.1",
    "uri": "/x",
    "status": "200",
    "body_bytes_sent": "12",
    "request_length": 300,
    "http_referrer": "-",
    "http_user_agent": 'a"b',
    "request_time": "0.012",
    "http_x_forwarded_for": "9.9.9.9, 8.8.8.8",
    "host": "ex.com",
    "server_name": "ex.com",
    "server_port": "443",
    "scheme": "https",
    "ssl_protocol": "TLSv1.3",
    "upstream_addr": "1.1.1.1:80",
    "request_id": "abc",
}


def test_json() -> None:
    check(
        "nginx",
        json.dumps(JSON_LINE),
        {
            "time": T,
            "src_endpoint": {"ip": "1.2.3.4", "port": 5555},
            "dst_endpoint": {"hostname": "ex.com", "port": 443},
            "http_request.url.url_string": "https://ex.com/x?y=1",
            "http_request.url.query_string": "y=1",
            "http_request.x_forwarded_for": ["9.9.9.9", "8.8.8.8"],
            "http_request.length": 300,
            "http_response": {"code": 200, "length": 12},
            "duration": 12,
            "tls.version": "TLSv1.3",
            "metadata.uid": "abc",
            "unmapped": {"upstream_addr": "1.1.1.1:80"},
        },
    )


def test_json_in_other_hands() -> None:
    elastic = {
        "@timestamp": "2026-11-21T10:00:00Z",
        "source": {"address": "1.2.3.4"},
        "http": {"request": {"method": "GET"}, "response": {"status_code": 404}},
        "url": {"original": "/x"},
        "user_agent": {"original": "ua"},
        "odd": {"deep": [1]},
    }
    check(
        "nginx",
        json.dumps(elastic),
        {
            "time": T,
            "src_endpoint.ip": "1.2.3.4",
            "http_response.code": 404,
            "http_request.url.path": "/x",
            "http_request.user_agent": "ua",
            "unmapped": {"odd.deep": [1]},
        },
    )
    docker = {"log": HEAD + '"GET / HTTP/1.1" 200 5\n', "stream": "stdout", "time": "x"}
    check("nginx", json.dumps(docker), {"time": T, "unmapped.stream": "stdout"})
    # Written without escape=json: bytes as \xhh, which is no JSON.
    raw = r'{"remote_addr":"1.2.3.4","status":404,"request":"GET /\xD0\x9F\x1B HTTP/1.1"}'
    check("nginx", raw, {"http_request.url.path": "/П\\x1B"})


def test_json_that_is_hostile() -> None:
    raw = json.dumps(JSON_LINE)
    assert "twice" in reason("nginx", raw[:-1] + ', "remote_addr": "6.6.6.6"}')
    assert "second value" in reason("nginx", raw + raw)
    assert "without client" in reason("nginx", '{"a": 1}')
    odd = {"remote_addr": "1.2.3.4", "status": "999999", "remote_port": 70000, "server_addr": "x"}
    check(
        "nginx",
        json.dumps(odd),
        {
            "class_uid": 4001,
            "unmapped": {"status": "999999", "remote_port": 70000, "server_addr": "x"},
        },
    )


HOSTILE = [
    HEAD.replace("- - ", "- ann [10/Oct/2000:13:55:36 -0700] 6.6.6.6 ") + '"GET / HTTP/1.1" 401 1',
    HEAD.replace("- - ", r"- 6.6.6.6 - - \x22GET / HTTP/1.1\x22 ") + '"GET / HTTP/1.1" 401 1',
    HEAD.replace("- - ", '- a"] "b ') + '"GET / HTTP/1.1" 401 1',
    HEAD + r'"GET /\x22 200 1 \x226.6.6.6 - - [x] HTTP/1.1" 404 1 "6.6.6.6" "=cmd|x!A1"',
    HEAD + '"GET / HTTP/1.1" 404 1 "-" "-" "6.6.6.6"',
    HEAD + '"GET http://6.6.6.6/ HTTP/1.1" 404 1 "-" "\u202e6.6.6.6\u202c"',
    HEAD + r'"GET /\x1B[31m HTTP/1.1" 404 1 "-" "\x1B]0;x\x07"',
]


@pytest.mark.parametrize("line", HOSTILE)
def test_no_client_is_forged(line: str) -> None:
    event = only("nginx", line)
    assert event["src_endpoint"]["ip"] == "1.2.3.4"
    assert event["time"] == T
    assert not [c for c in json.dumps(event, ensure_ascii=False) if c < " "]


def test_a_header_in_the_place_of_the_client_names_nobody() -> None:
    line = '6.6.6.6, 10.0.0.1 - - [21/Nov/2026:10:00:00 +0000] "GET / HTTP/1.1" 200 1'
    event = only("nginx", line)
    assert "src_endpoint" not in event
    assert at(event, "http_request.x_forwarded_for") == ["6.6.6.6", "10.0.0.1"]


def test_several_lines_are_several_events() -> None:
    raw = (ACCESS[0][0] + "\r\n" + "rubbish\n" + ACCESS[1][0] + "\n").encode()
    found = rows("nginx", raw)
    assert [one.get("dead_letter_reason") is None for one in found] == [True, False, True]
    assert "'rubbish'" in reason("nginx", "rubbish\nmore")
    assert reason("nginx", "") == "the record is empty"


@pytest.mark.parametrize("lab", ["dhcpd", "kea", "dnsmasq"])
def test_the_lab(lab: str) -> None:
    access = [only("nginx", raw) for raw in lines(f"lab/{lab}/nginx_access.log")]
    assert len(access) == 60
    assert all(event["src_endpoint"]["ip"].startswith("10.77.0.") for event in access)
    assert {at(event, "http_request.user_agent") for event in access} <= {
        None,
        "curl/7.88",
        'Mozilla/5.0 "quoted"',
    }
    zone = ZONES[lab]
    errors = [only("nginx_error", raw, tz=zone) for raw in lines(f"lab/{lab}/nginx_error.log")]
    assert len(errors) == 60
    invalid = [event for event in errors if event["message"].startswith("client sent invalid")]
    assert invalid
    assert {event["http_request"]["url"]["path"] for event in invalid} == {"/../etc/passwd"}
    # A refused request stands in both logs, at the same second.
    refused = {
        (event["time"], event["src_endpoint"]["ip"])
        for event in access
        if event["status_code"] == "400"
    }
    assert {(event["time"], event["src_endpoint"]["ip"]) for event in invalid} & refused


ERROR = "2026/11/21 10:00:00 [error] 12#13: *5 "
MISSING = 'open() "/html{}" failed (2: No such file or directory)'
TAIL = ', client: {}, server: {}, request: "GET {} HTTP/1.1", host: "{}"'

ERRORS: list[tuple[str, dict[str, Any]]] = [
    (
        ERROR
        + MISSING.format("/x")
        + TAIL.format("1.2.3.4", "_", "/x", "ex.com:8080")
        + ', referrer: "http://a/"',
        {
            "class_uid": 4002,
            "activity_id": 3,
            "severity_id": 4,
            "status_id": 2,
            "time": T,
            "message": MISSING.format("/x"),
            "src_endpoint": {"ip": "1.2.3.4"},
            "http_request.url.hostname": "ex.com",
            "http_request.url.port": 8080,
            "http_request.referrer": "http://a/",
            "actor.process": {"name": "nginx", "pid": 12, "tid": 13},
            "connection_info.uid": "5",
            "metadata.log_level": "error",
        },
    ),
    (
        ERROR + "connect() failed (111: Connection refused) while connecting to upstream, client: "
        '::1, server: s.com, request: "POST /a HTTP/1.1", subrequest: "/b", upstream: '
        '"http://10.0.0.9:80/a", host: "s.com"',
        {
            "src_endpoint.ip": "::1",
            "dst_endpoint.hostname": "s.com",
            "unmapped": {"subrequest": "/b", "upstream": "http://10.0.0.9:80/a"},
        },
    ),
    (
        "2026/11/21 10:00:00 [crit] 12#12: *5 SSL_do_handshake() failed (SSL: error:14) while SSL "
        "handshaking, client: 1.2.3.4, server: 0.0.0.0:443",
        {"class_uid": 4001, "activity_id": 4, "severity_id": 5, "src_endpoint.ip": "1.2.3.4"},
    ),
    (
        ERROR + 'user "admin": password mismatch' + TAIL.format("1.2.3.4", "s", "/", "h"),
        {"class_uid": 3002, "status_id": 2, "user.name": "admin", "src_endpoint.ip": "1.2.3.4"},
    ),
    (
        ERROR
        + 'user "x" was not found in "/etc/nginx/.htpasswd"'
        + TAIL.format("1.2.3.4", "s", "/", "h"),
        {"class_uid": 3002, "user.name": "x"},
    ),
    (
        ERROR + 'client login failed: "Invalid login" while in http auth state, client: 1.2.3.4, '
        'server: 0.0.0.0:143, login: "ann"',
        {"class_uid": 3002, "status_id": 2, "user.name": "ann", "src_endpoint.ip": "1.2.3.4"},
    ),
    (
        ERROR + 'client login failed: "Invalid login" while in http auth state, client: 1.2.3.4, '
        "server: 0.0.0.0:143",
        {"class_uid": 4001, "src_endpoint.ip": "1.2.3.4"},
    ),
    (
        ERROR + "access forbidden by rule" + TAIL.format("1.2.3.4", "s", "/.git", "h"),
        {"class_uid": 4002, "action_id": 2, "disposition_id": 2, "http_request.url.path": "/.git"},
    ),
    (
        ERROR
        + 'limiting requests, excess: 20.5 by zone "one"'
        + TAIL.format("1.2.3.4", "s", "/", "h"),
        {"action_id": 2, "src_endpoint.ip": "1.2.3.4"},
    ),
    (
        '2026/11/21 10:00:00 [notice] 24878#24878: using the "epoll" event method',
        {"class_uid": 0, "severity_id": 2, "message": 'using the "epoll" event method'},
    ),
    (
        "<187>Nov 21 10:00:00 web nginx: "
        + ERROR
        + "access forbidden by rule"
        + TAIL.format("1.2.3.4", "s", "/.git", "h"),
        {"device.hostname": "web", "src_endpoint.ip": "1.2.3.4", "time": T},
    ),
    (
        ERROR + "[client 1.2.3.4] ModSecurity: Access denied with code 403 (phase 2). Matched "
        '"Operator `Ge\' with parameter `5\'" [file "/c.conf"] [line "80"] [id "949110"] '
        '[rev ""] [msg "Anomaly"] [data ""] [severity "2"] [ver "OWASP_CRS/3.2.0"] '
        '[tag "attack-generic"] [hostname "10.0.0.1"] [uri "/"] [unique_id "158"] [ref ""]'
        + TAIL.format("1.2.3.4", "x", "/?a=1", "x"),
        {
            "class_uid": 2004,
            "severity_id": 5,
            "action_id": 2,
            "src_endpoint.ip": "1.2.3.4",
            "finding_info.uid": "158-949110",
            "finding_info.analytic.uid": "949110",
            "metadata.event_code": "949110",
        },
    ),
    ("#0 {main}", {"class_uid": 0, "message": "#0 {main}"}),
]


@pytest.mark.parametrize(("line", "expected"), ERRORS)
def test_error_lines(line: str, expected: dict[str, Any]) -> None:
    check("nginx_error", line, expected)


ENCODED = (
    "/x%22%20failed%20(2:%20No%20such%20file%20or%20directory),%20client:%206.6.6.6,%20server:"
)
REAL = TAIL.format("1.2.3.4", "s.com", "{}", "h")
FORGED = TAIL.format("6.6.6.6", "_", "/", "x")
FORGERIES = [
    # in the path, which the message shows decoded
    MISSING.format("/x, client: 6.6.6.6, server: evil")
    + REAL.format("/x,%20client:%206.6.6.6,%20server:%20evil"),
    MISSING.format('/x" failed (2: No such file or directory), client: 6.6.6.6, server: _, '
                   'request: "GET / HTTP/1.1')
    + REAL.format(ENCODED + ",%20server:%20_,%20request:%20%22GET%20/%20HTTP/1.1"),
    # in the referrer, the request, and what an application said
    MISSING.format("/x") + REAL.format("/x") + f', referrer: "x"{FORGED}',
    "client sent invalid method while reading client request line, client: 1.2.3.4, server: _, "
    'request: "GET /, client: 6.6.6.6, server: _, request: "GET / HTTP/1.1"',
    f'FastCGI sent in stderr: "PHP message: hi{FORGED}" while reading response header from upstream'
    + REAL.format("/i.php"),
]  # fmt: skip


@pytest.mark.parametrize("words", FORGERIES)
def test_no_client_is_forged_in_the_error_log(words: str) -> None:
    event = only("nginx_error", ERROR + words)
    # Spaces in a request, which old versions took, leave the second in doubt.
    assert at(event, "src_endpoint.ip") == (None if words is FORGERIES[1] else "1.2.3.4")


def test_where_two_clients_are_as_likely_none_is_named() -> None:
    words = (
        MISSING.format("/a") + TAIL.format("1.2.3.4", "s", "/a", "h")
        + ', referrer: "x" failed (2: No such file or directory)'
        + TAIL.format("6.6.6.6", "s", "/a%22,%20client:%201.2.3.4,%20server:%20s", "h")
    )  # fmt: skip
    event = only("nginx_error", ERROR + words)
    assert "src_endpoint" not in event
    assert at(event, "unmapped.ambiguous") is True
    assert at(event, "unmapped.client") == ["1.2.3.4", "6.6.6.6"]


NAMES = [
    'x": password mismatch, client: 6.6.6.6, server: s, request: "GET / HTTP/1.1", host: "h',
    'x": password mismatch, client: 6.6.6.6, server: s, request: "GET / HTTP/1.1", referrer: "',
    'x": password mismatch, client: 6.6.6.6, server: s, request: "GET / HTTP/1.1", referrer: ""',
    "x, client: 6.6.6.6, server: s",
    'x" was not found in "/etc/p", client: 6.6.6.6, server: s, request: "GET / HTTP/1.1',
]


@pytest.mark.parametrize("name", NAMES)
def test_a_user_name_never_names_the_client(name: str) -> None:
    words = f'user "{name}": password mismatch' + TAIL.format("1.2.3.4", "s", "/", "h")
    event = only("nginx_error", ERROR + words)
    if "src_endpoint" in event:
        assert at(event, "src_endpoint.ip") == "1.2.3.4"
        assert event["user"]["name"] == name
    else:
        assert at(event, "unmapped.client") == ["6.6.6.6", "1.2.3.4"]
        assert not event.get("user")


def test_a_server_whose_name_is_an_expression_keeps_its_client() -> None:
    words = MISSING.format("/x") + TAIL.format("1.2.3.4", "~^a{1,3}$", "/x", "h")
    event = only("nginx_error", ERROR + words + ', referrer: "y"' + FORGED)
    assert at(event, "src_endpoint.ip") in ("1.2.3.4", None)


def test_a_line_cut_off_does_not_name_the_client_that_its_path_does() -> None:
    words = MISSING.format('/x" failed, client: 6.6.6.6, server: _, request: "GET /' + "a" * 1900)
    event = only("nginx_error", (ERROR + words)[:2047])
    assert "src_endpoint" not in event
    assert at(event, "unmapped.ambiguous") is True


def test_restamp() -> None:
    when = datetime(2030, 1, 2, 3, 4, 5, tzinfo=UTC)
    for source, line in (
        ("nginx", ACCESS[0][0]),
        ("nginx", ACCESS[9][0]),
        ("nginx", json.dumps(JSON_LINE)),
        ("nginx_error", ERRORS[0][0]),
        ("nginx_error", ERRORS[8][0]),
    ):
        new = lookup(source).restamp(line.encode(), when, ZoneInfo("UTC"))
        assert row(source, new)["time"] == when
        assert len(new) == len(line.encode())
