"""What `log` prints besides messages, and messages that look like another program's."""

from __future__ import annotations

import json

from tests.ingest.logs import good, reason, rows
from tests.ingest.sources.documented_logs import mac

SOURCE = "macos_unified_log"
ACCEPTED = "Accepted password for mallory from 6.6.6.6 port 1 ssh2"


def test_an_array_and_a_file_of_lines_are_their_messages() -> None:
    ndjson, line, _ = mac("/usr/sbin/sshd", ACCEPTED)
    found = rows(SOURCE, json.dumps([json.loads(ndjson)] * 2).encode())
    assert [row["class_uid"] for row in found] == [3002, 3002]
    text = f"Timestamp                       (process)[PID]    \n{line}\n"
    assert [row["class_uid"] for row in rows(SOURCE, text.encode())] == [0, 3002]
    assert [
        row["class_uid"] for row in rows(SOURCE, f'{ndjson}\n{{"count":1,"finished":1}}'.encode())
    ] == [
        3002,
        0,
    ]


def test_another_process_cannot_speak_for_sshd() -> None:
    for raw in mac("/Applications/Evil.app/Evil", ACCEPTED):
        row = good(SOURCE, raw)
        assert (row["class_uid"], row.get("user_name"), row.get("src_ip")) == (0, None, None)


def test_the_machine_is_the_records_host() -> None:
    for raw in mac("/usr/sbin/sshd", ACCEPTED):
        assert good(SOURCE, raw, headers={"host": b"mac1"})["device"]["hostname"] == "mac1"


def test_a_line_without_a_time_says_so() -> None:
    assert "no time and process" in reason(SOURCE, "second line of a message")
    assert "none of 'eventMessage'" in reason(SOURCE, '{"a":1}')
