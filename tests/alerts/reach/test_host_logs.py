"""Rules about what hosts and their servers write as text, on lines as the programs write them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.alerts.reach.fired import fired


def linux(service: str) -> dict[str, str]:
    return {"product": "linux", "service": service}


def words(*phrases: str) -> dict[str, Any]:
    return {"keywords": list(phrases), "condition": "keywords"}


def line(program: str, text: str) -> str:
    return f"<38>Mar  5 12:00:00 host1 {program}: {text}"


SUDO = line("sudo", "ann : TTY=pts/0 ; PWD=/home/ann ; USER=#-1 ; COMMAND=/bin/bash -p")
PKEXEC = line("pkexec[7]", "ann: The value for environment variable SHELL is odd [USER=root]")
MODSECURITY = (
    "[Tue Mar 05 12:00:00.123456 2024] [:error] [pid 3] [client 10.0.0.5:44] [client 10.0.0.5] "
    'ModSecurity: Access denied with code 403 (phase 2). Match at ARGS. [file "/etc/x.conf"] '
    '[line "1"] [id "9"] [msg "Odd"] [hostname "h"] [uri "/"] [unique_id "u"]'
)
IIS = (
    "#Fields: date time s-sitename s-computername s-ip cs-method cs-uri-stem cs-uri-query s-port "
    "cs-username c-ip cs-version cs(User-Agent) cs(Cookie) cs(Referer) cs-host sc-status "
    "sc-substatus sc-win32-status sc-bytes cs-bytes time-taken\n"
    "2024-03-05 12:00:00 W3SVC1 WEB1 10.0.0.1 GET /a.aspx x=/../ 443 - 10.0.0.5 HTTP/1.1 curl a=1 "
    "- h 200 0 64 5 6 3"
)
SQUID = (
    "1741176000.123    120 10.0.0.5 TCP_MISS/200 1234 GET http://evil.example/x.exe ann "
    "HIER_DIRECT/203.0.113.9 application/octet-stream"
)
WEB, PROXY = {"category": "webserver"}, {"category": "proxy"}
APPLICATION = json.dumps({"@timestamp": "2025-03-05T12:00:00Z", "message": "x.OddError: at org.a"})

CASES: list[tuple[dict[str, str], dict[str, Any], str, str, bool]] = [
    # What no parser knows more of than its text is in the log of logins all the same.
    (linux("auth"), words("for environment variable SHELL"), "syslog", PKEXEC, True),
    # In capitals it is sudo's own name, of who the command runs as.
    (linux("sudo"), {"USER": "#-1", "TTY": "pts/0", "PWD": "/home/ann"}, "syslog", SUDO, True),
    (linux("sudo"), {"USER": "ann"}, "syslog", SUDO, False),
    (linux("sudo"), {"User": "ann", "COMMAND|endswith": " -p"}, "syslog", SUDO, True),
    # Without a service a name means what it does in the log of the line.
    ({"product": "linux"}, {"USER": "#-1"}, "syslog", SUDO, True),
    ({"product": "linux"}, {"USER": "ann"}, "syslog", SUDO, False),
    ({"product": "linux"}, {"USER": ["ann", "bob"]}, "syslog", SUDO, False),
    ({"product": "linux"}, {"User": "ann", "COMMAND|endswith": " -p"}, "syslog", SUDO, True),
    (linux("cron"), words("REPLACE"), "syslog", line("crontab[3]", "(root) REPLACE (root)"), True),
    (linux("clamav"), words("Trojan*FOUND"), "syslog", line("clamd[3]", "/x: Trojan FOUND"), True),
    (linux("guacamole"), words("2 users"), "syslog", line("guacd[3]", "(2 users present)"), True),
    (linux("vsftpd"), words("OOPS: weird"), "vsftpd",
     "Tue Mar  5 12:00:00 2024 [pid 1] OOPS: weird status: 3", True),
    (linux("syslog"), words("promiscuous mode"), "syslog",
     line("kernel", "[  10.0] device eth0 entered promiscuous mode"), True),
    # A blank before a word is, at the start of a message, the one behind the head of the line.
    (linux("syslog"), words(" giving up (odd state)"), "syslog",
     line("named[7]", "giving up (odd state)"), True),
    (linux("syslog"), words(" giving up (odd state)"), "syslog",
     line("named[7]", "not giving up (odd state)"), True),
    (linux("syslog"), words(" giving up (odd state)"), "syslog",
     line("named[7]", "misgiving up (odd state)"), False),
    (linux("syslog"), words(" up*odd "), "syslog", line("named[7]", "up and odd again"), True),
    (linux("syslog"), words(" up*odd "), "syslog", line("named[7]", "up and odds"), False),
    (linux("modsecurity"), words("ModSecurity: Access denied"), "apache_error", MODSECURITY, True),
    ({"service": "apache"}, words("exit signal"), "apache_error",
     "[Tue Mar 05 12:00:00.123456 2024] [core:notice] [pid 3] child pid 7 exit signal 11", True),
    (WEB, {"cs-cookie": "a=1", "s-sitename": "W3SVC1", "s-computername": "WEB1"}, "iis", IIS, True),
    (WEB, {"sc-win32-status": 64, "time-taken|gte": 3, "cs-uri-scheme": "https"}, "iis", IIS, True),
    (WEB, {"cs-uri-query|contains": "/../", "cs-uri-port": 443}, "iis", IIS, True),
    (PROXY, {"c-uri|endswith": "/x.exe", "cs-dns": "evil.example"}, "squid", SQUID, True),
    (PROXY, {"sc-content-type|contains": "octet", "cs-username": "ann"}, "squid", SQUID, True),
    ({"service": "netflow"}, {"destination.port": 23}, "zeek:conn", json.dumps(
        {"ts": 1741176000.1, "uid": "C1", "id.orig_h": "10.0.0.5", "id.orig_p": 5,
         "id.resp_h": "203.0.113.9", "id.resp_p": 23, "proto": "tcp"}), True),
    # In the rest of an event an address stands as it was written, in a column as others' do.
    ({"category": "application"}, {"unmapped:odd.pool.ip": "::ffff:10.0.0.5"}, "json",
     json.dumps({"message": "x", "odd": {"pool": {"ip": "::ffff:10.0.0.5"}}}), True),
    *(({"category": "application", "product": product}, words("OddError"), source, raw, True)
      for product in ("django", "jvm", "nodejs", "python", "ruby_on_rails", "spring", "sql")
      for source, raw in (("json", APPLICATION), ("syslog", line("app", "x.OddError: at org.a")))),
]  # fmt: skip


@pytest.mark.parametrize(
    ("logsource", "detection", "source", "raw", "expected"), CASES, ids=range(len(CASES))
)
def test_a_rule_fires_on_the_program_s_own_line(
    logsource: dict[str, str], detection: dict[str, Any], source: str, raw: str, expected: bool
) -> None:
    assert fired(logsource, detection, source, raw.encode()) is expected
