"""JSON of any product: what is found by its name, and what is kept."""

from __future__ import annotations

import gzip
import json
from datetime import UTC, datetime
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from ingest.parsing.source import Unreadable, lookup
from tests.ingest.conforms import faults, misfits
from tests.ingest.logs import NOW, good, lines, reason, rows

TEN = datetime(2026, 11, 21, 3, 0, tzinfo=UTC)


def event(fields: Any, **more: Any) -> dict[str, Any]:
    found = good("json", fields if isinstance(fields, str) else json.dumps(fields), **more)
    assert faults(found) == []
    assert misfits(found) == []
    return found


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("time", "2026-11-21T03:00:00Z"),
        ("timestamp", "2026-11-21T04:00:00.000+0100"),
        ("@timestamp", "2026-11-21T03:00:00.000Z"),
        ("ts", 1795230000),
        ("ts", 1795230000.0),
        ("eventTime", 1795230000000),
        ("timestamp", "1795230000000000"),
        ("Timestamp", "2026-11-21 03:00:00"),
        ("date", "2026/11/21 03:00:00"),
        ("created_at", "2026-11-21T03:00Z"),
        ("datetime", "Sat, 21 Nov 2026 03:00:00 +0000"),
        ("time_local", "21/Nov/2026:03:00:00 +0000"),
        ("time", "21/Nov/2026:04:00:00 +0100"),
        ("asctime", "2026-11-21 03:00:00,000"),
        ("time", "2026-11-21 03:00:00.000 +0000 UTC"),
        ("date", "Nov 21, 2026 3:00:00 AM"),
        ("time", "Sat Nov 21 03:00:00 2026"),
        ("TimeGenerated", "2026-11-21T03:00:00Z"),
        ("event.created", "2026-11-21T03:00:00Z"),
    ],
)
def test_the_time_is_found_in_many_names_and_forms(name: str, value: object) -> None:
    found = event({name: value, "a": 1})
    if name == "time_local":
        assert found["time"] == NOW  # no name of a time that is common
        return
    assert found["time"] == TEN
    assert json.loads(found["unmapped"]) == {"a": 1}


def test_a_date_and_a_clock_are_one_time() -> None:
    found = event({"date": "2026-11-21", "time": "04:00:00", "a": 1}, tz="Europe/Berlin")
    assert (found["time"], found["time_quality"]) == (TEN, "assumed_zone")


@pytest.mark.parametrize(
    "fields",
    [
        {"src_ip": "10.0.0.5", "src_port": 7, "dst_ip": "::1", "dst_port": "443", "user": "ann"},
        {"srcIp": "10.0.0.5", "srcPort": 7, "dstIp": "::1", "dstPort": 443, "userName": "ann"},
        {
            "source": {"ip": "10.0.0.5", "port": 7},
            "destination": {"ip": "::1", "port": 443},
            "user": {"name": "ann"},
        },
        {
            "source.ip": "10.0.0.5",
            "source.port": 7,
            "destination.ip": "::1",
            "destination.port": 443,
            "user.name": "ann",
        },
        {"client_ip": "10.0.0.5:7", "server_ip": "[::1]:443", "username": "ann"},
        {
            "sourceIPAddress": "10.0.0.5",
            "clientPort": 7,
            "destAddress": "::1",
            "dport": 443,
            "login": "ann",
        },
    ],
)
def test_ends_and_user_are_found_in_many_spellings(fields: dict[str, Any]) -> None:
    found = event(fields | {"time": 1795230000})
    assert found["class_uid"] == 4001
    assert found["src_endpoint"] == {"ip": "10.0.0.5", "port": 7}
    assert found["dst_endpoint"] == {"ip": "::1", "port": 443}
    assert found["user_name"] == "ann"
    assert found["unmapped"] is None


def test_the_elastic_common_schema() -> None:
    found = event(
        {
            "@timestamp": "2026-11-21T03:00:00.000Z",
            "message": "m",
            "log": {"level": "error"},
            "host": {"hostname": "b1", "name": "b1"},
            "user": {"name": "ann", "id": "7", "email": "a@x"},
            "process": {"pid": 9, "name": "p", "executable": "/p", "command_line": "p -v"},
            "event": {"outcome": "failure", "code": "12", "id": "e1"},
        }
    )
    assert (found["message"], found["severity_id"], found["status_id"]) == ("m", 4, 2)
    assert found["host_name"] == "b1"
    assert found["user"] == {"name": "ann", "uid": "7", "email_addr": "a@x"}
    assert found["actor"]["process"] == {
        "pid": 9,
        "name": "p",
        "path": "/p",
        "cmd_line": "p -v",
    }
    assert found["metadata"]["event_code"] == "12"


@pytest.mark.parametrize(
    ("fields", "severity"),
    [
        ({"level": "WARN"}, 3),
        ({"severity": "critical"}, 5),
        ({"levelname": "INFO"}, 1),
        ({"level": 50, "msg": "x"}, 4),
        ({"short_message": "x", "level": 3}, 4),
        ({"level": "what"}, 1),
        ({"level": 77}, 1),
    ],
)
def test_the_level_is_the_severity(fields: dict[str, Any], severity: int) -> None:
    assert event(fields)["severity_id"] == severity


def test_what_does_not_fit_stays_under_its_own_name() -> None:
    fields = {
        "time": "never",
        "src_ip": "999.1.1.1",
        "src_port": 70000,
        "user": ["a", "b"],
        "message": {"a": 1},
        "mac": "x",
    }
    found = event(fields)
    assert json.loads(found["unmapped"]) == fields
    assert (found["time"], found["time_quality"]) == (NOW, "received")
    assert found["metadata"]["original_time"] == "never"


def test_many_objects_in_one_record() -> None:
    one = b'{"time":1795230000,"a":1}'
    assert len(rows("json", one + b"\n" + one + b"\r\n")) == 2
    assert len(rows("json", b"[" + one + b"," + one + b"]")) == 2
    assert len(rows("json", b'{"Records":[' + one + b"," + one + b"]}")) == 2
    assert len(rows("json", b'{"logs":[' + one + b"," + one + b"]}")) == 2
    assert len(rows("json", gzip.compress(one + b"\n" + one))) == 2
    found = rows("json", one + b"\n{broken}\n" + one)
    assert [row.get("dead_letter_reason") is None for row in found] == [True, False, True]


def test_a_second_object_on_the_line_is_refused() -> None:
    assert "a second value" in reason("json", b'{"user":"ann"}{"user":"root"}')
    assert "stands twice" in reason("json", b'{"user":"ann","user":"root"}')
    assert "no 'time'" in reason("json", b"{}")


def test_syslog_from_journald_is_read_as_syslog() -> None:
    found = event(
        {
            "__REALTIME_TIMESTAMP": "1795230000000000",
            "MESSAGE": "Failed password for root from 10.0.0.5 port 5 ssh2",
            "SYSLOG_IDENTIFIER": "sshd",
            "_PID": "12",
            "_HOSTNAME": "b1",
            "PRIORITY": "6",
            "_UID": "0",
        }
    )
    assert (found["class_uid"], found["status_id"]) == (3002, 2)
    assert (found["time"], found["src_ip"], found["host_name"]) == (TEN, "10.0.0.5", "b1")
    assert json.loads(found["unmapped"])["_UID"] == "0"


def test_auoms_and_sysmon_in_wrappers_of_json_are_read() -> None:
    joined = rows("json", *lines("linux/auoms_in_syslog.json"))
    assert {(one["class_uid"], one["activity_id"]) for one in joined} == {(1007, 1)}
    assert joined[0]["process"]["path"] == "/usr/local/sbin/bash"
    assert joined[0]["process"]["user"] == {"uid": "1001", "name": "tomcat"}
    sysmon = rows("json", *lines("linux/sysmon_in_syslog.json"))
    assert {one["class_uid"] for one in sysmon} == {1001, 1007, 4001}
    assert [faults(one) for one in joined] == [[]] * len(joined)


def test_a_name_that_stands_deeper_cannot_hide_one_above() -> None:
    found = event({"src_ip": "10.0.0.5", "details": {"src": {"ip": "6.6.6.6"}, "x": 1}})
    assert found["src_ip"] == "10.0.0.5"
    assert json.loads(found["unmapped"]) == {"details": {"src": {"ip": "6.6.6.6"}, "x": 1}}


def test_the_time_is_rewritten() -> None:
    when = datetime(2031, 7, 9, 5, 4, 3, tzinfo=UTC)
    json_source = lookup("json")
    raw = b'{"a":1, "@timestamp":"2026-11-21T03:00:00Z"}'
    moved = json_source.restamp(raw, when, ZoneInfo("UTC"))
    assert moved == b'{"a":1, "@timestamp":"2031-07-09T05:04:03Z"}'
    moved = json_source.restamp(b'{"ts":1795230000123}', when, ZoneInfo("UTC"))
    assert good("json", moved)["time"] == when
    with pytest.raises(Unreadable, match="no time at the top"):
        json_source.restamp(b'{"a":1}', when, ZoneInfo("UTC"))


def test_a_large_object_is_read_in_time() -> None:
    many = {f"k{at}": {"ip": "10.0.0.5", "user": at} for at in range(50_000)}
    found = event(many | {"time": 1795230000})
    assert found["class_uid"] == 0


OTLP = {
    "resourceLogs": [
        {
            "resource": {
                "attributes": [
                    {"key": "service.name", "value": {"stringValue": "shop"}},
                    {"key": "host.name", "value": {"stringValue": "b1"}},
                ]
            },
            "scopeLogs": [
                {
                    "scope": {"name": "x"},
                    "logRecords": [
                        {
                            "timeUnixNano": "1795230000000000000",
                            "severityNumber": 17,
                            "severityText": "ERROR",
                            "body": {"stringValue": "refused"},
                            "attributes": [
                                {"key": "client.address", "value": {"stringValue": "10.0.0.5"}},
                                {"key": "http.request.method", "value": {"stringValue": "GET"}},
                                {"key": "url.path", "value": {"stringValue": "/a"}},
                                {"key": "http.response.status_code", "value": {"intValue": "403"}},
                            ],
                        },
                        {"timeUnixNano": "0", "observedTimeUnixNano": "1795230000000000000"},
                    ],
                }
            ],
        }
    ]
}


def test_records_of_opentelemetry_are_found_with_what_their_resource_says() -> None:
    first, second = rows("json", json.dumps(OTLP).encode())
    assert (first["class_uid"], first["activity_id"], first["status_id"]) == (4002, 3, 2)
    assert (first["src_ip"], first["host_name"], first["message"]) == ("10.0.0.5", "b1", "refused")
    assert first["http_response"]["code"] == 403
    assert first["time"] == second["time"] == TEN
    assert second["class_uid"] == 0
    assert faults(first) == faults(second) == []


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        (
            {
                "event": {"category": ["authentication"], "outcome": "failure", "type": ["start"]},
                "user": {"name": "ann"},
                "source": {"ip": "10.0.0.5"},
            },
            (3002, 1, 2),
        ),
        ({"action": "logout", "result": "success", "user": "ann"}, (3002, 2, 1)),
        ({"src": "10.0.0.5", "dst": "10.0.0.9", "dpt": 443, "suser": "ann"}, (4001, 6, None)),
        (
            {"source.ip": "10.0.0.5", "dns.question.name": "a.example", "dns.question.type": "A"},
            (4003, 1, None),
        ),
        (
            {"method": "POST", "url": "https://h.example/a?b=c", "status": 200, "ip": "10.0.0.5"},
            (4002, 6, 1),
        ),
        # one sign alone is no proof
        ({"message": "login failed for ann from 10.0.0.5", "user": "ann"}, (0, 0, None)),
        ({"action": "login", "user": "ann"}, (0, 0, None)),
        ({"src": "10.0.0.5", "dst": "10.0.0.9"}, (0, 0, None)),
        ({"method": "card", "url": "/a", "ip": "10.0.0.5"}, (0, 0, None)),
    ],
)
def test_a_class_is_guessed_only_where_it_is_sure(fields: Any, expected: tuple[Any, ...]) -> None:
    found = event(fields | {"time": "2026-11-21T03:00:00Z"})
    names = ("class_uid", "activity_id", "status_id")
    assert tuple(found.get(name) for name in names) == expected
