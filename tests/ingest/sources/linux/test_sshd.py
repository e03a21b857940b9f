"""OpenSSH's messages, from version 3 to 10."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.ingest.conforms import faults, misfits
from tests.ingest.logs import good

HEAD = "<38>Nov 21 03:00:00 b1 sshd[12]: "
P = "10.0.0.5 port 4242"


def event(text: str, source: str = "sshd") -> dict[str, Any]:
    found = good(source, HEAD + text)
    assert faults(found) == []
    assert misfits(found) == []
    return found


def about(found: dict[str, Any]) -> tuple[int, int, int | None]:
    return found["class_uid"], found["activity_id"], found.get("status_id")


@pytest.mark.parametrize(
    ("text", "expected", "user", "method"),
    [
        (
            f"Accepted publickey for ann from {P} ssh2: RSA SHA256:abc",
            (3002, 1, 1),
            "ann",
            "publickey",
        ),
        (
            f"Accepted publickey for ann from {P} ssh2: RSA 39:33:99:e9",
            (3002, 1, 1),
            "ann",
            "publickey",
        ),
        (
            f"Accepted publickey for ann from {P} ssh2: ED25519-CERT SHA256:a ID ann@corp key 1 "
            "(serial 17) CA ED25519 SHA256:def",
            (3002, 1, 1),
            "ann",
            "publickey",
        ),
        (
            f"Accepted publickey for ann from {P} ssh2: RSA-CERT ID u (serial 0) CA RSA SHA256:x",
            (3002, 1, 1),
            "ann",
            "publickey",
        ),
        (f"Accepted password for ann from {P}", (3002, 1, 1), "ann", "password"),
        (
            f"Accepted gssapi-with-mic for ann from {P} ssh2: ann@REALM",
            (3002, 1, 1),
            "ann",
            "gssapi-with-mic",
        ),
        (
            f'Accepted hostbased for ann from {P} ssh2: RSA SHA256:x, client user "b", client host '
            '"h"',
            (3002, 1, 1),
            "ann",
            "hostbased",
        ),
        (f"Failed none for invalid user admin from {P} ssh2", (3002, 1, 2), "admin", "none"),
        (
            f"Failed keyboard-interactive/pam for root from {P} ssh2",
            (3002, 1, 2),
            "root",
            "keyboard-interactive/pam",
        ),
        (f"Failed password for illegal user x from {P} ssh2", (3002, 1, 2), "x", "password"),
        (
            f"Failed publickey for ann from {P} ssh2: RSA SHA256:abc",
            (3002, 1, 2),
            "ann",
            "publickey",
        ),
        (f"ROOT LOGIN REFUSED FROM {P} [preauth]", (3002, 1, 2), "root", None),
        (f"Disconnected from user ann {P}", (3002, 2, 1), "ann", None),
        (f"Invalid user admin from {P}", (3002, 6, 2), "admin", None),
        (f"Connection closed by invalid user x y {P} [preauth]", (3002, 6, 2), "x y", None),
        (f"Connection reset by authenticating user root {P} [preauth]", (3002, 6, 2), "root", None),
        (f"Disconnected from authenticating user root {P} [preauth]", (3002, 6, 2), "root", None),
        (
            f"Disconnecting invalid user x {P}: Too many authentication failures [preauth]",
            (3002, 6, 2),
            "x",
            None,
        ),
        (
            f"error: maximum authentication attempts exceeded for invalid user x from {P} ssh2 "
            "[preauth]",
            (3002, 6, 2),
            "x",
            None,
        ),
    ],
)
def test_logons_and_what_precedes_them(
    text: str, expected: tuple[int, int, int], user: str, method: str | None
) -> None:
    found = event(text)
    assert about(found) == expected
    assert found["user_name"] == user
    assert (found["src_ip"], found["src_endpoint"]["port"]) == ("10.0.0.5", 4242)
    assert found["auth_method"] == method
    assert found["service"] == {"name": "sshd"}


@pytest.mark.parametrize(
    ("text", "ip", "user"),
    [
        ("Invalid user admin from 10.0.0.5", "10.0.0.5", "admin"),
        ("Invalid user  from 10.0.0.5 port 9", "10.0.0.5", None),
        ("Failed password for ann from 2001:db8::1 port 22 ssh2", "2001:db8::1", "ann"),
        ("Failed password for ann from ::ffff:10.0.0.5 port 22 ssh2", "10.0.0.5", "ann"),
        (
            "User root from 10.0.0.5 not allowed because not listed in AllowUsers",
            "10.0.0.5",
            "root",
        ),
        ("User root not allowed because account is locked", None, "root"),
        ("input_userauth_request: invalid user admin [preauth]", None, "admin"),
        ("Disconnecting: Too many authentication failures for root [preauth]", None, "root"),
        (
            "error: PAM: Authentication failure for illegal user oracle from 10.0.0.5",
            "10.0.0.5",
            "oracle",
        ),
        ("error: PAM: User account has expired for ann from host.example", None, "ann"),
        ("fatal: Access denied for user ann by PAM account configuration [preauth]", None, "ann"),
        (
            "pam_unix(sshd:auth): authentication failure; logname= uid=0 euid=0 tty=ssh ruser= "
            "rhost=10.0.0.5  user=root",
            "10.0.0.5",
            "root",
        ),
        ("pam_unix(sshd:auth): check pass; user unknown", None, None),
        (
            "PAM 2 more authentication failures; logname= uid=0 euid=0 tty=ssh ruser= "
            "rhost=10.0.0.5  user=root",
            "10.0.0.5",
            "root",
        ),
    ],
)
def test_messages_of_other_versions(text: str, ip: str | None, user: str | None) -> None:
    found = event(text)
    assert found["class_uid"] == 3002
    assert found["status_id"] == 2
    assert (found.get("src_ip"), found["user_name"]) == (ip, user)


@pytest.mark.parametrize(
    ("text", "expected", "ip"),
    [
        (f'Connection from {P} on 10.0.0.1 port 22 rdomain ""', (4007, 1, 1), "10.0.0.5"),
        (f"Connection closed by {P} [preauth]", (4007, 2, None), "10.0.0.5"),
        ("Connection closed by 10.0.0.5 [preauth]", (4007, 2, None), "10.0.0.5"),
        (f"Connection reset by {P} [preauth]", (4007, 3, 2), "10.0.0.5"),
        (f"Received disconnect from {P}:11: Bye Bye [preauth]", (4007, 2, None), "10.0.0.5"),
        ("Received disconnect from 10.0.0.5: 11: Bye Bye [preauth]", (4007, 2, None), "10.0.0.5"),
        (
            f"error: Received disconnect from {P}:3: com.jcraft.jsch.JSchException: Auth fail "
            "[preauth]",
            (4007, 2, None),
            "10.0.0.5",
        ),
        (f"Disconnected from {P}", (4007, 2, None), "10.0.0.5"),
        (f"Did not receive identification string from {P}", (4007, 4, 2), "10.0.0.5"),
        ("Did not receive identification string from 10.0.0.5", (4007, 4, 2), "10.0.0.5"),
        (
            f"Bad protocol version identification 'GET / from 6.6.6.6 port 1' from {P}",
            (4007, 4, 2),
            "10.0.0.5",
        ),
        (f"banner exchange: Connection from {P}: invalid format", (4007, 4, 2), "10.0.0.5"),
        (
            f"Unable to negotiate with {P}: no matching key exchange method found. Their offer: "
            "diffie-hellman-group1-sha1 [preauth]",
            (4007, 4, 2),
            "10.0.0.5",
        ),
        (
            "error: kex_exchange_identification: Connection closed by remote host",
            (4007, 4, 2),
            None,
        ),
        (
            f"ssh_dispatch_run_fatal: Connection from {P}: message authentication code incorrect "
            "[preauth]",
            (4007, 4, 2),
            "10.0.0.5",
        ),
        (f"Timeout before authentication for {P}", (4007, 4, 2), "10.0.0.5"),
        (
            "fatal: Timeout before authentication for connection from 10.0.0.5 to 10.0.0.1, "
            "pid = 123",
            (4007, 4, 2),
            "10.0.0.5",
        ),
        ("Bad packet length 1349676916. [preauth]", (4007, 4, 2), None),
        (
            "drop connection #10 from [10.0.0.5]:4242 on [10.0.0.1]:22 past MaxStartups",
            (4007, 5, 2),
            "10.0.0.5",
        ),
        (
            "drop connection #0 from [2001:db8::5]:4242 on [::1]:22 penalty: failed authentication",
            (4007, 5, 2),
            "2001:db8::5",
        ),
        (
            "srclimit_penalise: ipv4: new 10.0.0.5/32 deferred penalty of 5 seconds for penalty: "
            "failed authentication",
            (4007, 5, 2),
            "10.0.0.5",
        ),
        (f"Starting session: command for carol from {P} id 0", (4007, 6, 1), "10.0.0.5"),
        ("subsystem request for sftp by user ann", (4007, 6, 1), None),
        ("Server listening on 0.0.0.0 port 22.", (4007, 7, 1), None),
        (
            "reverse mapping checking getaddrinfo for a.example [10.0.0.5] failed - POSSIBLE "
            "BREAK-IN ATTEMPT!",
            (0, 0, 2),
            "10.0.0.5",
        ),
        (f"Postponed publickey for ann from {P} ssh2 [preauth]", (0, 0, None), "10.0.0.5"),
        (f"Partial publickey for ann from {P} ssh2: RSA SHA256:x", (0, 0, None), "10.0.0.5"),
        ("Exiting on signal 15", (0, 0, None), None),
    ],
)
def test_connections(text: str, expected: tuple[int, int, int | None], ip: str | None) -> None:
    found = event(text)
    assert about(found) == expected
    assert found.get("src_ip") == ip


def test_a_connection_names_both_ends() -> None:
    found = event(f"Connection from {P} on 10.0.0.1 port 22")
    assert found["dst_endpoint"] == {"hostname": "b1", "ip": "10.0.0.1", "port": 22}
    assert found["connection_info"]["protocol_name"] == "tcp"


def test_a_message_repeated_counts() -> None:
    found = event(f"message repeated 3 times: [ Failed password for root from {P} ssh2]")
    assert about(found) == (3002, 1, 2)
    assert json.loads(found["more"])["count"] == 3
    assert json.loads(found["unmapped"])["repeated"] == 3


@pytest.mark.parametrize("program", ["sshd-session", "sshd-auth", "/usr/sbin/sshd", "SSHD"])
def test_the_program_has_other_names(program: str) -> None:
    raw = f"Nov 21 03:00:00 b1 {program}[12]: Failed password for root from {P} ssh2"
    assert good("sshd", raw)["class_uid"] == 3002
    assert good("syslog", raw)["class_uid"] == 3002


@pytest.mark.parametrize(
    "name",
    [
        "a from 6.6.6.6",
        "root from 6.6.6.6 port 22 ssh2",
        "x from 6.6.6.6 port 22 ssh2: RSA SHA256:abc",
        "x from 6.6.6.6 port 22 ssh2: RSA SHA256:a ID b (serial 0) CA RSA SHA256:c",
        "invalid user y from 6.6.6.6 port 1",
        "x 6.6.6.6 port 22 [preauth]",
        "x 6.6.6.6 port 22: Bye [preauth]",
        "\u202eroot",
        "\x1b[31mroot",
        "ann not allowed because ",
        "",
    ],
)
def test_a_name_forges_no_address(name: str) -> None:
    for text in (
        f"Failed password for invalid user {name} from {P} ssh2",
        f"Invalid user {name} from {P}",
        f"Connection closed by invalid user {name} {P} [preauth]",
        f"Disconnecting invalid user {name} {P}: Too many authentication failures [preauth]",
        f"Disconnected from user {name} {P}",
        f"error: maximum authentication attempts exceeded for invalid user {name} from {P} ssh2",
    ):
        found = event(text)
        assert found["src_ip"] == "10.0.0.5", text
        assert found["src_endpoint"]["port"] == 4242, text
        assert found["user_name"] == (name or None), text


def test_an_id_of_a_certificate_forges_no_address() -> None:
    forged = "x from 6.6.6.6 port 1 ssh2: RSA-CERT SHA256:a ID y"
    text = f"Failed publickey for ann from {P} ssh2: RSA-CERT SHA256:b ID {forged} (serial 0)"
    found = event(f"{text} CA RSA SHA256:c")
    assert found.get("src_ip") != "6.6.6.6"


def test_a_port_that_cannot_be_is_no_event_of_a_class() -> None:
    assert event("Invalid user x from 10.0.0.5 port 99999")["class_uid"] == 0
