"""sudo, in words and as JSON."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.ingest.conforms import faults, misfits
from tests.ingest.logs import good

HEAD = "Nov 21 03:00:00 b1 sudo[9]: "


def event(text: str) -> dict[str, Any]:
    found = good("sudo", HEAD + text)
    assert faults(found) == []
    assert misfits(found) == []
    return found


@pytest.mark.parametrize(
    ("text", "expected", "user", "target"),
    [
        (
            "ann : TTY=pts/0 ; PWD=/home/ann ; USER=root ; COMMAND=/bin/ls -l",
            (1007, 1, 1),
            "ann",
            "root",
        ),
        (
            "   ann : TTY=pts/0 ; PWD=/ ; USER=bob ; GROUP=wheel ; ENV=A=1 ; COMMAND=/bin/ls",
            (1007, 1, 1),
            "ann",
            "bob",
        ),
        (
            "CORP\\ann : HOST=b1 ; TTY=unknown ; PWD=/ ; USER=#0 ; COMMAND=list",
            (1007, 1, 1),
            "ann",
            "#0",
        ),
        (
            "ann : user NOT in sudoers ; TTY=pts/1 ; PWD=/ ; USER=root ; COMMAND=/bin/ls",
            (1007, 1, 2),
            "ann",
            "root",
        ),
        (
            "ann : command not allowed ; TTY=pts/1 ; PWD=/ ; USER=root ; COMMAND=/bin/su",
            (1007, 1, 2),
            "ann",
            "root",
        ),
    ],
)
def test_commands(text: str, expected: tuple[int, int, int], user: str, target: str) -> None:
    found = event(text)
    assert (found["class_uid"], found["activity_id"], found["status_id"]) == expected
    assert found["actor"]["user"]["name"] == user
    assert found["process"]["user"]["name"] == target


@pytest.mark.parametrize(
    "why",
    [
        "1 incorrect password attempt",
        "3 incorrect password attempts",
        "a password is required",
        "conversation failed",
    ],
)
def test_a_wrong_password_is_a_switch_that_failed(why: str) -> None:
    found = event(f"ann : {why} ; TTY=pts/0 ; PWD=/ ; USER=root ; COMMAND=/bin/su")
    assert (found["class_uid"], found["activity_id"], found["status_id"]) == (3002, 7, 2)
    assert found["status_detail"] == why
    assert json.loads(found["unmapped"])["COMMAND"] == "/bin/su"


def test_what_pam_says_of_it_does_not_count_again() -> None:
    text = (
        "pam_unix(sudo:auth): authentication failure; logname=ann uid=1000 euid=0 tty=/dev/pts/0 "
        "ruser=ann rhost=  user=ann"
    )
    assert event(text)["class_uid"] == 0
    assert good("syslog", HEAD + text)["class_uid"] == 0
    assert good("pam", HEAD + text)["class_uid"] == 3002


def test_json_is_read() -> None:
    accept = {
        "uuid": "u-1",
        "server_time": {"seconds": 1616461312, "nanoseconds": 5},
        "submituser": "ann",
        "command": "/usr/bin/id",
        "runuser": "root",
        "runcwd": "/root",
        "ttyname": "/dev/pts/1",
        "runuid": 0,
        "runargv": ["id", "-u"],
    }
    found = event("@cee:" + json.dumps({"sudo": {"accept": accept}}))
    assert (found["class_uid"], found["status_id"]) == (1007, 1)
    assert found["process"]["cmd_line"] == "id -u"
    assert found["process"]["path"] == "/usr/bin/id"
    assert found["process"]["user"]["name"] == "root"
    assert json.loads(found["unmapped"])["ttyname"] == "/dev/pts/1"
    refused = event(json.dumps({"sudo": {"reject": accept | {"reason": "user NOT in sudoers"}}}))
    assert (refused["status_id"], refused["status_detail"]) == (2, "user NOT in sudoers")
    wrong = event(json.dumps({"sudo": {"alert": accept | {"reason": "a password is required"}}}))
    assert (wrong["class_uid"], wrong["activity_id"]) == (3002, 7)


@pytest.mark.parametrize(
    "text",
    [
        '{"sudo":5}',
        '{"sudo":{"accept":[]}}',
        '{"sudo":{"accept":{}}}',
        "@cee:{",
        '{"sudo":{"accept":{"runargv":[1],"command":7}}}',
    ],
)
def test_odd_json_is_an_event_all_the_same(text: str) -> None:
    assert event(text)["class_uid"] in (0, 1007)


def test_an_argument_forges_no_field() -> None:
    text = "ann : TTY=pts/0 ; PWD=/tmp ; USER=root ; COMMAND=/bin/sh ; USER=bob ; COMMAND=/bin/true"
    found = event(text)
    assert found["process"]["cmd_line"] == "/bin/sh ; USER=bob ; COMMAND=/bin/true"
    assert json.loads(found["unmapped"])["ambiguous"] is True
