"""osquery's results and status lines."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from ingest.parsing.source import lookup
from tests.ingest.conforms import faults, misfits
from tests.ingest.logs import good, lines, reason, rows

ASKED = datetime(2018, 9, 11, 16, 14, 21, tzinfo=UTC)


def result(name: str, columns: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {
        "name": name,
        "hostIdentifier": "b1",
        "calendarTime": "Tue Sep 11 16:14:21 2018 UTC",
        "unixTime": 1536682461,
        "counter": 5,
        "action": "added",
        "columns": columns,
    } | more


def event(fields: dict[str, Any]) -> dict[str, Any]:
    found = good("osquery", json.dumps(fields))
    assert faults(found) == []
    assert misfits(found) == []
    return found


CASES: tuple[tuple[str, dict[str, Any], tuple[int, int], tuple[int, int]], ...] = (
    (
        "listening_ports",
        {"address": "0.0.0.0", "port": "22", "protocol": "6", "pid": "3"},
        (4001, 7),
        (4001, 2),
    ),
    (
        "process_open_sockets",
        {
            "pid": "3",
            "local_address": "10.0.0.5",
            "local_port": "7",
            "remote_address": "10.0.0.6",
            "remote_port": "22",
            "protocol": "6",
        },
        (4001, 1),
        (4001, 2),
    ),
    (
        "users",
        {"uid": "7", "gid": "7", "username": "ann", "shell": "/bin/sh"},
        (3001, 1),
        (3001, 6),
    ),
    ("groups", {"gid": "7", "groupname": "g"}, (3006, 6), (3006, 5)),
    ("user_groups", {"uid": "7", "gid": "8"}, (3006, 3), (3006, 4)),
    (
        "logged_in_users",
        {"user": "ann", "tty": "pts/0", "host": "10.0.0.5", "pid": "3"},
        (3002, 1),
        (3002, 2),
    ),
    ("processes", {"pid": "3", "name": "x", "path": "/x", "cmdline": "x -v"}, (1007, 1), (1007, 2)),
    (
        "pack_ir_crontab",
        {"minute": "17", "command": "nc -e", "path": "/etc/crontab"},
        (1006, 1),
        (1006, 3),
    ),
    (
        "launchd",
        {"label": "com.x", "program_arguments": "/x -d", "path": "/L/x.plist"},
        (1006, 1),
        (1006, 3),
    ),
    ("kernel_modules", {"name": "x", "size": "1"}, (1002, 1), (1002, 2)),
    ("usb_devices", {"vendor": "v", "model": "m", "serial": "s"}, (1010, 1), (1010, 2)),
    ("deb_packages", {"name": "a", "version": "1"}, (5020, 1), (5020, 1)),
    ("pack/x/mounts", {"device": "/dev/sda", "path": "/"}, (5001, 1), (5001, 1)),
    ("etc_hosts", {"address": "10.0.0.5", "hostnames": "x"}, (5001, 1), (5001, 1)),
)


@pytest.mark.parametrize(("name", "columns", "added", "removed"), CASES)
def test_tables_and_their_changes(
    name: str, columns: dict[str, Any], added: tuple[int, int], removed: tuple[int, int]
) -> None:
    found = event(result(name, columns))
    assert (found["class_uid"], found["activity_id"]) == added
    assert (found["time"], found["host_name"]) == (ASKED, "b1")
    assert found["metadata"]["log_name"] == name
    gone = event(result(name, columns, action="removed"))
    assert (gone["class_uid"], gone["activity_id"]) == removed
    kept = json.dumps({k: v for k, v in found.items() if k != "time"}, default=str)
    assert [value for value in columns.values() if value not in kept and value != "6"] == []


def test_the_first_answer_tells_what_is_there() -> None:
    account = {"uid": "7", "gid": "7", "username": "ann"}
    assert event(result("users", account, counter=0))["class_uid"] == 5003
    listed = event(result("processes", {"pid": "3", "name": "x"}, counter=0))
    assert (listed["activity_id"], listed["activity_name"]) == (99, "Seen")


def test_process_events() -> None:
    found = event(
        result(
            "pack_x_process_events",
            {
                "auid": "1000",
                "cmdline": "ls -l",
                "cwd": "/tmp",
                "parent": "12",
                "path": "/bin/ls",
                "pid": "13",
                "time": "1536682400",
                "uid": "0",
                "mode": "0100755",
            },
        )
    )
    assert (found["class_uid"], found["activity_id"]) == (1007, 1)
    assert found["time"] == datetime(2018, 9, 11, 16, 13, 20, tzinfo=UTC)
    assert found["process"] == {
        "pid": 13,
        "name": "ls",
        "path": "/bin/ls",
        "cmd_line": "ls -l",
        "cwd": "/tmp",
        "parent": {"pid": 12},
        "user": {"uid": "0"},
    }
    assert found["actor"]["user"]["uid"] == "1000"
    assert json.loads(found["unmapped"])["columns"] == {"mode": "0100755"}


@pytest.mark.parametrize(
    ("action", "activity", "end"),
    [("connect", 1, "dst_endpoint"), ("accept", 1, "src_endpoint"), ("bind", 7, "dst_endpoint")],
)
def test_socket_events(action: str, activity: int, end: str) -> None:
    columns = {
        "action": action,
        "auid": "7",
        "path": "/curl",
        "pid": "9",
        "local_address": "",
        "local_port": "0",
        "remote_address": "10.0.0.6",
        "remote_port": "443",
        "success": "1",
        "protocol": "6",
    }
    found = event(result("socket_events", columns))
    assert (found["class_uid"], found["activity_id"], found["status_id"]) == (4001, activity, 1)
    assert (found[end]["ip"], found[end]["port"]) == ("10.0.0.6", 443)
    assert found["actor"]["process"]["path"] == "/curl"


@pytest.mark.parametrize(
    ("action", "activity"),
    [
        ("CREATED", 1),
        ("UPDATED", 3),
        ("DELETED", 4),
        ("MOVED_TO", 5),
        ("ATTRIBUTES_MODIFIED", 6),
        ("OPENED", 14),
        ("ODD", 99),
    ],
)
def test_file_events(action: str, activity: int) -> None:
    columns = {"action": action, "target_path": "/etc/x", "sha256": "ab", "time": "1536682400"}
    found = event(result("file_events", columns))
    assert (found["class_uid"], found["activity_id"]) == (1001, activity)
    assert found["file"]["path"] == "/etc/x"
    assert found["file"]["hashes"] == [{"algorithm": "SHA-256", "value": "ab"}]


def test_user_events_are_those_of_auditd() -> None:
    columns = {
        "type": "1112",
        "message": "op=login id=0 res=failed",
        "address": "10.0.0.5",
        "uid": "0",
        "auid": "4294967295",
        "pid": "3",
        "path": "/usr/sbin/sshd",
    }
    found = event(result("user_events", columns))
    assert (found["class_uid"], found["activity_id"], found["status_id"]) == (3002, 1, 2)
    assert (found["src_ip"], found["service"]["name"]) == ("10.0.0.5", "sshd")


@pytest.mark.parametrize(
    ("name", "columns", "class_uid"),
    [
        ("yara_events", {"target_path": "/x", "matches": "evil", "count": "1"}, 2004),
        ("powershell_events", {"script_text": "iex", "script_block_id": "1"}, 1009),
        ("dns_lookup_events", {"query": "a.example", "pid": "3"}, 4003),
        ("shell_history", {"uid": "0", "command": "id", "history_file": "/root/.h"}, 1007),
    ],
)
def test_other_tables(name: str, columns: dict[str, str], class_uid: int) -> None:
    assert event(result(name, columns))["class_uid"] == class_uid


def test_a_snapshot_and_a_batch_are_many_events() -> None:
    snapshot = {
        "name": "processes",
        "action": "snapshot",
        "hostIdentifier": "8ac2b9a5-0000-1111-2222-333344445555",
        "unixTime": "1536682461",
        "decorations": {"hostname": "b2"},
        "snapshot": [{"pid": "1", "name": "x"}, {"pid": "2", "name": "y"}],
    }
    found = rows("osquery", json.dumps(snapshot).encode())
    assert [one["process"]["pid"] for one in found] == [1, 2]
    assert {one["host_name"] for one in found} == {"b2"}
    assert found[0]["device"]["uid"] == snapshot["hostIdentifier"]
    batch = {
        "name": "users",
        "hostIdentifier": "b1",
        "unixTime": 1536682461,
        "counter": 3,
        "diffResults": {
            "added": [{"uid": "7", "username": "ann"}],
            "removed": [{"uid": "8", "username": "bob"}],
        },
    }
    found = rows("osquery", json.dumps(batch).encode())
    assert [(one["class_uid"], one["activity_id"]) for one in found] == [(3001, 6), (3001, 1)]


def test_what_the_tls_logger_sends_is_unpacked() -> None:
    sent = {
        "node_key": "k",
        "log_type": "result",
        "data": [result("users", {"uid": "7", "username": "ann"}), result("x", {"a": "1"})],
    }
    found = rows("osquery", json.dumps(sent).encode())
    assert [one["class_uid"] for one in found] == [3001, 5001]


@pytest.mark.parametrize(("level", "severity"), [("0", 1), ("1", 3), ("2", 4)])
def test_status_lines(level: str, severity: int) -> None:
    found = event(
        {
            "hostIdentifier": "b1",
            "calendarTime": "Tue Sep 11 16:14:21 2018 UTC",
            "severity": level,
            "filename": "x.cpp",
            "line": "12",
            "message": "m",
        }
    )
    assert (found["class_uid"], found["message"], found["severity_id"]) == (0, "m", severity)
    assert found["time"] == ASKED


def test_no_real_result_is_a_dead_letter_and_all_fit() -> None:
    raws = lines("osquery/results.jsonl")
    found = rows("osquery", *raws)
    assert [one for one in found if one.get("dead_letter_reason")] == []
    assert [faults(one) + misfits(one) for one in found] == [[]] * len(found)
    assert {one["class_uid"] for one in found} == {1006, 1007, 4001, 5001, 5020}
    assert found == rows("osquery", *raws)


@pytest.mark.parametrize(
    "fields",
    [
        {"columns": 5, "name": []},
        {"columns": {"pid": {"a": 1}, "path": [1]}, "name": "process_events"},
        {"columns": {"port": "99999", "address": "x"}, "name": "listening_ports"},
        {"snapshot": [1, None, {}], "name": "x"},
        {"snapshot": [], "name": "x", "action": "snapshot"},
        {"diffResults": {"added": "", "removed": 5}, "name": "x"},
        {"columns": {"uid": -1, "gid": 2**60, "username": None}, "name": "users", "unixTime": {}},
        {"message": 5, "severity": [], "hostIdentifier": 3},
    ],
)
def test_odd_values_are_events_all_the_same(fields: dict[str, Any]) -> None:
    for found in rows("osquery", json.dumps(fields).encode()):
        assert found.get("dead_letter_reason") is None
        assert faults(found) == []
        assert misfits(found) == []


def test_what_is_no_result_is_refused() -> None:
    assert "no 'columns', 'snapshot', 'diffResults' or 'message'" in reason("osquery", b'{"a":1}')


def test_the_time_is_rewritten() -> None:
    when = datetime(2031, 7, 9, 5, 4, 3, tzinfo=UTC)
    raw = json.dumps(result("x", {"a": "1"})).encode()
    moved = lookup("osquery").restamp(raw, when, ZoneInfo("UTC"))
    assert good("osquery", moved)["time"] == when
