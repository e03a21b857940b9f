"""Exim and Courier: arrivals, deliveries, decisions, connections and logins, of several versions.

Forms of lines as in chapter 53 of Exim's specification and in Courier's sources; names made up.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.ingest.daemons import at, one, told

IP, MX = "203.0.113.9", "203.0.113.25"
OLD, NEW = "1wAbCd-0001Ab-9Z", "1wAbCd-00000001Ab9-0ZzY"
DAY = "2026-03-02 10:00:00"
Brief = tuple[int, int | None, str | None, str | None, str | None]
"""Type, status, source and destination address, user."""
EXIM: tuple[tuple[str, Brief, dict[str, Any]], ...] = (
    (
        f'{OLD} <= ann@example.com H=mail.example.com (mx1) [{IP}]:40522 I=[10.0.0.1]:25 P=esmtps '
        'X=TLS1.3:TLS_AES_256_GCM_SHA384:256 CV=no SNI="mx.example.net" S=2345 DKIM=example.com '
        'id=abc@example.com T="say \\"hi\\"" from <ann@example.com> for bob@example.net e@f.org',
        (400902, 1, IP, "10.0.0.1", None),
        {
            "email.from": "ann@example.com",
            "email.to": ["bob@example.net", "e@f.org"],
            "email.subject": 'say "hi"',
            "email.size": 2345,
            "email.message_uid": "abc@example.com",
            "metadata.correlation_uid": OLD,
            "smtp_hello": "mx1",
            "src_endpoint.hostname": "mail.example.com",
            "unmapped.SNI": "mx.example.net",
        },
    ),
    (
        f"{NEW} <= ann@example.com H=(pc5) [{IP}] P=esmtpsa X=TLS1.2:ECDHE:256 "
        "A=dovecot_login:ann@example.com S=99 id=x",
        (400902, 1, IP, None, "ann@example.com"),
        {"unmapped.auth_method": "dovecot_login", "direction_id": 1},
    ),
    (f"{OLD} <= root@example.net U=root P=local S=512", (400902, 1, None, None, "root"),
     {"direction_id": 3}),
    (f"{OLD} <= <> R=1wAbCc-0001Aa-Aa U=mail P=local S=1600", (400902, 1, None, None, "mail"),
     {"unmapped.null_sender": True, "unmapped.R": "1wAbCc-0001Aa-Aa"}),
    (
        f"{OLD} => bob@example.net <postmaster@example.net> F=<ann@example.com> R=dnslookup "
        f"T=remote_smtp S=2400 H=mx.example.net [{MX}]:25 X=TLS1.3:A:256 CV=yes K "
        'C="250 2.0.0 OK" QT=1s DT=0s',
        (400901, 1, None, MX, None),
        {"email.to": ["bob@example.net"], "status_detail": "250 2.0.0 OK",
         "dst_endpoint.hostname": "mx.example.net", "unmapped.tail": "QT=1s DT=0s"},
    ),
    (f"{OLD} => bob <bob@example.net> R=local_user T=maildir_home", (400902, 1, None, None, None),
     {"email.to_mailboxes": ["bob"], "unmapped.aliases": "<bob@example.net>"}),
    (f'{OLD} -> eve@example.net R=dnslookup T=remote_smtp H=mx.example.net [{MX}]* C="250 OK"',
     (400901, 1, None, MX, None), {"unmapped.mark": "->"}),
    (f"{OLD} >> eve@example.net R=dnslookup T=remote_smtp H=mx.example.net [{MX}]",
     (400901, 1, None, MX, None), {"unmapped.mark": ">>"}),
    (
        f"{OLD} ** no@example.net F=<ann@example.com> R=dnslookup T=remote_smtp H=mx.example.net "
        f"[{MX}]: SMTP error from remote mail server after RCPT TO:<no@example.net>: 550 unknown",
        (400901, 2, None, MX, None),
        {"email.to": ["no@example.net"]},
    ),
    (f"{OLD} ** no@example.net: Unrouteable address", (400901, 2, None, None, None),
     {"email.to": ["no@example.net"], "status_detail": "failed: Unrouteable address"}),
    (f"{OLD} == bob@example.net R=dnslookup T=remote_smtp defer (110): Connection timed out",
     (400901, 2, None, None, None), {"status_code": "110"}),
    (f"{OLD} == bob@example.net R=dnslookup T=remote_smtp defer (-44) H=mx.example.net [{MX}]: "
     "SMTP error 451", (400901, 2, None, MX, None), {"status_detail": "deferred: SMTP error 451"}),
    (f"{NEW} Completed QT=2s", (400904, 1, None, None, None), {"email.uid": NEW}),
    (f"{OLD} Message is frozen", (400904, None, None, None, None), {}),
    (f"{OLD} DKIM: d=example.com s=a c=relaxed/relaxed a=rsa-sha256 b=2048 [verification failed]",
     (400904, None, None, None, None), {}),
    (f"dovecot_login authenticator failed for (User) [{IP}]:5555 I=[10.0.0.1]:465: 535 Incorrect "
     "authentication data (set_id=info@example.com)",
     (300201, 2, IP, "10.0.0.1", "info@example.com"), {"status_code": "535"}),
    (f"plain authenticator failed for h.example ([192.168.0.14]) [{IP}]: 435 Unable to "
     "authenticate at present (set_id=ann): cannot connect", (300201, 2, IP, None, "ann"),
     {"unmapped.helo": "[192.168.0.14]"}),
    (f"login authenticator failed for H=(b) [{IP}]: 535 Incorrect authentication data",
     (300201, 2, IP, None, ""), {}),
    (f"H=h.example (x) [{IP}]:4000 X=TLS1.2:A:256 CV=no F=<spam@example.com> rejected RCPT "
     "<bob@example.net>: relay not permitted", (400902, 2, IP, None, None),
     {"email.to": ["bob@example.net"], "action_id": 2, "disposition_id": 25, "command": "RCPT",
      "status_detail": "relay not permitted"}),
    (f"H=([{IP}]) [{IP}] F=<> temporarily rejected RCPT <bob@example.net>: greylisted",
     (400902, 2, IP, None, None), {"unmapped.decision": "temporarily rejected"}),
    (f"{OLD} H=(x) [{IP}] F=<a@example.com> rejected after DATA: spam score 22",
     (400902, 2, IP, None, None), {"email.uid": OLD, "status_detail": "spam score 22"}),
    (f"H=[{IP}] rejected EHLO or HELO friend: no", (400902, 2, IP, None, None), {}),
    (f'H=[{IP}] rejected connection in "connect" ACL: listed', (400105, 2, IP, None, None),
     {"action_id": 2}),
    (f"H=(x) [{IP}] sender verify fail for <a@example.com>: no such host",
     (400902, 2, IP, None, None), {"unmapped.decision": "sender verify fail"}),
    (f"H=(x) [{IP}] Warning: listed", (400902, 1, IP, None, None), {"action_id": 1}),
    (f"SMTP connection from [{IP}]:4000 I=[10.0.0.1]:25 (TCP/IP connection count = 1)",
     (400101, 1, IP, "10.0.0.1", None), {"dst_endpoint.port": 25}),
    (f"SMTP connection from (x) [{IP}]:4000 closed by QUIT", (400102, 1, IP, None, None), {}),
    (f"SMTP connection from (x) [{IP}]:4000 lost D=5s", (400102, 2, IP, None, None), {}),
    (f"unexpected disconnection while reading SMTP command from (x) [{IP}]:4000 D=1s",
     (400102, 2, IP, None, None), {}),
    (f"SMTP command timeout on connection from (x) [{IP}]:4000", (400102, 2, IP, None, None), {}),
    (f"no MAIL in SMTP connection from (x) [{IP}] D=0s C=EHLO,QUIT", (400102, 2, IP, None, None),
     {}),
    (f'SMTP call from (x) [{IP}] dropped: too many nonmail commands (last was "NOOP")',
     (400105, 2, IP, None, None), {}),
    ("SMTP protocol synchronization error (input sent without waiting for greeting): rejected "
     f'connection from H=[{IP}] input="GET / HTTP/1.1"', (400105, 2, IP, None, None), {}),
    (f"TLS error on connection from (x) [{IP}]:4000 (SSL_accept): error:1408F10B",
     (400104, 2, IP, None, None), {}),
    (f"no host name found for IP address {IP}", (400106, None, IP, None, None), {}),
    (f"no IP address found for host h.example (during SMTP connection from [{IP}])",
     (400106, None, IP, None, None), {}),
    ("Start queue run: pid=4711", (0, None, None, None, None), {}),
)  # fmt: skip
COURIER: tuple[tuple[str, Brief, dict[str, Any]], ...] = (
    (f"imapd: LOGIN FAILED, user=info@example.com, ip=[::ffff:{IP}]",
     (300201, 2, IP, None, "info@example.com"), {"service.name": "imap"}),
    (f"imapd-ssl: LOGIN, user=ann, ip=[::ffff:{IP}], port=[51234], protocol=IMAP",
     (300201, 1, IP, None, "ann"), {"src_endpoint.port": 51234}),
    (f"pop3d: INFO: LOGIN FAILED, method=PLAIN, ip=[{IP}]", (300201, 2, IP, None, ""),
     {"service.name": "pop3", "unmapped.auth_method": "PLAIN"}),
    (f"pop3d: LOGOUT, user=ann, ip=[::ffff:{IP}], port=[5], top=0, retr=10, rcvd=24, sent=36, "
     "time=1", (300202, 1, IP, None, "ann"), {"unmapped.retr": 10}),
    (f"pop3d-ssl: DISCONNECTED, user=ann, ip=[::ffff:{IP}], headers=0, body=0, rcvd=1, sent=3, "
     "time=5, starttls=1", (300202, 1, IP, None, "ann"), {}),
    (f"imapd: TIMEOUT, user=ann, ip=[::ffff:{IP}], headers=0, body=0, time=1800",
     (300202, 1, IP, None, "ann"), {}),
    (f"courier-imapd: LOGOUT, ip=[::ffff:{IP}], rcvd=100, sent=524", (400102, 1, IP, None, None),
     {}),
    (f"imapd: Connection, ip=[::ffff:{IP}]", (400101, 1, IP, None, None), {}),
    ("imapd: authentication error: Input/output error", (0, None, None, None, None), {}),
    (f"courieresmtpd: started,ip=[::ffff:{IP}]", (400101, 1, IP, None, None), {}),
    (f"courieresmtpd: started,ip=[::ffff:{IP}],port=[51234]", (400101, 1, IP, None, None),
     {"src_endpoint.port": 51234}),
    (f"courieresmtpd: error,relay=::ffff:{IP},ident=tmf,from=<tmf@example.com>,"
     "to=<list@example.com>: 550 User unknown.", (400902, 2, IP, None, None),
     {"email.from": "tmf@example.com", "email.to": ["list@example.com"], "status_code": "550",
      "action_id": 2}),
    (f"courieresmtpd: error,relay=::ffff:{IP},from=<a@b.example>: 517 SPF fail",
     (400902, 2, IP, None, None), {"status_detail": "517 SPF fail"}),
    (f'courieresmtpd: error,relay=::ffff:{IP},msg="535 Authentication failed.",cmd: YWRvYmU=',
     (300201, 2, IP, None, ""), {"service.name": "smtp", "status_code": "535"}),
    (f'courieresmtpd: error,relay=::ffff:{IP},port=58412,msg="535 Authentication failed.",'
     "cmd: AUTH LOGIN YWRvYmU=", (300201, 2, IP, None, ""), {"src_endpoint.port": 58412}),
    (f'courieresmtpd: error,relay=::ffff:{IP},msg="502 ESMTP command error",cmd: GET / HTTP/1.0',
     (400104, 2, IP, None, None), {}),
    # What a client sends imitates the rest of the line.
    (f'courieresmtpd: error,relay=::ffff:{IP},msg="502 ESMTP command error",cmd: x,relay=6.6.6.6,'
     'msg="535 Authentication failed.",cmd: y', (400104, 2, IP, None, None), {}),
    (f"courieresmtpd: error,relay=::ffff:{IP},from=<a@b.example>: 250 ok,relay=6.6.6.6,to=<x>: "
     "550 no> >,to=<c@d.example>: 550 User unknown.", (400902, 2, IP, None, None), {}),
)  # fmt: skip


def same(source: str, raw: str, brief: Brief, more: dict[str, Any]) -> None:
    row = told(source, raw)
    names = ("type_uid", "status_id", "src_endpoint.ip", "dst_endpoint.ip")
    user = at(row, "user.name") if row["class_uid"] == 3002 else at(row, "actor.user.name")
    assert (*(at(row, name) for name in names), user) == brief
    assert {path: at(row, path) for path in more} == more


@pytest.mark.parametrize(("text", "brief", "more"), EXIM, ids=range(len(EXIM)))
def test_each_line_of_exim(text: str, brief: Brief, more: dict[str, Any]) -> None:
    # A file of its own, with milliseconds, zone and pid where the configuration asks for them.
    same("exim", f"{DAY} {text}", brief, more)
    row = one("exim", f"{DAY}.250 +0100 [4711] {text}")
    assert row["time"].isoformat() == "2026-03-02T09:00:00.250000+00:00"
    # Through syslog, with or without Exim's own time and count of parts.
    for mark in ("", f"{DAY} ", f"[1\\2] {DAY} "):
        one_syslog = one("exim", f"<22>Mar  2 10:00:00 mx1 exim[4711]: {mark}{text}")
        assert (one_syslog["type_uid"], one_syslog.get("status_id")) == brief[:2]


@pytest.mark.parametrize(("text", "brief", "more"), COURIER, ids=range(len(COURIER)))
def test_each_line_of_courier(text: str, brief: Brief, more: dict[str, Any]) -> None:
    same("courier", f"<22>Mar  2 10:00:00 mx1 {text}", brief, more)


@pytest.mark.parametrize(
    "text",
    [
        f'{OLD} <= "x H=evil [6.6.6.6] A=login:mallory"@a.b H=(h) [{IP}] P=esmtp S=1 id=x',
        f"{OLD} <= a@b.c H=(h) [{IP}] P=esmtp S=1 id=x A=login:mallory H=evil [6.6.6.6]",
        f'{OLD} <= a@b.c H=(h) [{IP}] P=esmtp SNI="x\\" A=login:mallory" S=1 id=x',
        f'{OLD} <= a@b.c H=([6.6.6.6]) [{IP}] P=esmtp S=1 id=x T="a\\" for mallory"',
        f"{OLD} <= a@b.c H=(h) [{IP}] U=mallory P=esmtp S=1 id=x",
        f"H=([6.6.6.6]) [{IP}] F=<a@b.c> rejected RCPT <x> H=[6.6.6.6] A=login:mallory>: no",
        f"login authenticator failed for ([6.6.6.6]) [{IP}]: 535 Incorrect authentication data "
        "(set_id=x) [6.6.6.6]: 535 x (set_id=mallory)",
    ],
)
def test_a_client_of_exim_names_nobody_else(text: str) -> None:
    row = one("exim", f"{DAY} {text}")
    assert row["src_ip"] == IP
    assert row.get("user_name") in (None, "x) [6.6.6.6]: 535 x (set_id=mallory")
    assert (row.get("actor") or {}).get("user") is None


def test_a_long_or_broken_line_is_read_at_once_and_kept() -> None:
    for text in (
        "H=" * 4000,
        f"{OLD} <= " + '"\\' * 4000,
        f"{OLD} ** " + "a: " * 2000,
        f"{OLD} =>",
    ):
        assert one("exim", f"{DAY} {text}")["message"].endswith(text.strip()[-10:])
