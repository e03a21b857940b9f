"""Dovecot and Postfix: logins, mail, and what their clients make them write."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.ingest.daemons import TEN, Expected, at, brief, check, events, one, told
from tests.ingest.sources.server.test_daemon_logins import LOGOFF, LOGON, login

ENDS = "rip=1.2.3.4, lip=10.0.0.1"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            f"imap-login: Login: user=<ann@example.com>, method=PLAIN, {ENDS}, mpid=7, TLS, "
            "session=<ab/c+d>",
            login(
                1,
                "1.2.3.4",
                "ann@example.com",
                **{
                    "dst_endpoint.ip": "10.0.0.1",
                    "service.name": "imap",
                    "session.uid": "ab/c+d",
                    "unmapped.auth_method": "PLAIN",
                    "unmapped.mpid": "7",
                    "unmapped.tls": "TLS",
                },
            ),
        ),
        (
            f"pop3-login: Aborted login (auth failed, 3 attempts in 12 secs): user=<bob>, "
            f"method=PLAIN, {ENDS}, session=<s>",
            login(2, "1.2.3.4", "bob", **{"unmapped.attempts": "3", "severity_id": 2}),
        ),
        (
            "imap-login: Disconnected: Inactivity (auth failed, 1 attempts): method=PLAIN, "
            f"{ENDS}, TLS: Disconnected",
            login(2, "1.2.3.4", "", **{"unmapped.tls": "TLS: Disconnected"}),
        ),
        (
            "imap-login: Login aborted: Logged out (auth failed, 1 attempts in 2 secs) "
            f"(auth_failed): user=<bob>, method=PLAIN, {ENDS}",
            login(2, "1.2.3.4", "bob", status_code="auth_failed"),
        ),
        (
            f"pop3-login: Aborted login (tried to use disabled plaintext auth): {ENDS}",
            login(2, "1.2.3.4", ""),
        ),
        (
            f"imap-login: Disconnected (no auth attempts in 0 secs): user=<>, {ENDS}, session=<s>",
            {"type_uid": 400102, "src_endpoint.ip": "1.2.3.4", "app_name": "imap"},
        ),
        (
            f"managesieve-login: Login: user=<ann>, method=SCRAM-SHA-256, {ENDS}, TLS, session=<s>",
            login(1, "1.2.3.4", "ann", **{"service.name": "managesieve"}),
        ),
        (
            "imap-login: Maximum number of connections from user+IP exceeded "
            f"(mail_max_userip_connections=10): user=<ann>, method=PLAIN, {ENDS}",
            login(2, "1.2.3.4", "ann"),
        ),
        (
            "imap(ann)<7><s>: Disconnected: Logged out in=356 out=1042 deleted=0",
            {"type_uid": LOGOFF, "user.name": "ann", "unmapped.in": 356, "session.uid": "s"},
        ),
        (
            "imap(ann): Connection closed (UID FETCH finished 0.1 secs ago) in=356 out=1042",
            {"type_uid": LOGOFF, "user.name": "ann", "unmapped.out": 1042},
        ),
        (
            "pop3(ann)<7><s>: Disconnected: Logged out top=0/0, retr=1/2000, del=1/1, size=1980",
            {"type_uid": LOGOFF, "unmapped.retr": "1/2000", "unmapped.size": 1980},
        ),
        (
            "lmtp(ann@example.com)<7><s>: sieve: msgid=<x@y.z>: stored mail into mailbox 'INBOX'",
            {
                "type_uid": 400902,
                "email.to": ["ann@example.com"],
                "email.message_uid": "x@y.z",
                "direction_id": 1,
            },
        ),
        (
            "lda(ann@example.com)<7><s>: sieve: msgid=<x@y.z>: forwarded to <b@example.org>",
            {
                "type_uid": 400901,
                "email.to": ["b@example.org"],
                "actor.user.name": "ann@example.com",
            },
        ),
        (
            "auth: passwd-file(bob,1.2.3.4,<s>): unknown user",
            login(2, "1.2.3.4", "bob", status_detail="unknown user"),
        ),
        (
            "auth-worker(7): conn unix:auth-worker (pid=1,uid=9): auth-worker<5>: "
            "sql(bob@x.de,1.2.3.4,<s>): Password mismatch",
            login(2, "1.2.3.4", "bob@x.de", **{"unmapped.db": "sql"}),
        ),
        (
            "auth: pam(bob,1.2.3.4): pam_authenticate() failed: Authentication failure",
            login(2, "1.2.3.4", "bob"),
        ),
        ("master: Warning: Killed with signal 15", {"class_uid": 0, "severity_id": 3}),
    ],
)
def test_dovecot(text: str, expected: Expected) -> None:
    check("dovecot", f"Mar  2 10:00:00 mx dovecot: {text}", expected)
    check("dovecot", f"<22>1 2026-03-02T10:00:00Z mx dovecot 7 - - {text}", expected)
    process, _, words = text.partition(": ")
    own = f"{process}: {words}" if ": W" in text[:12] else f"{process}: Info: {words}"
    for time in ("Mar 02 10:00:00", "2026-03-02 10:00:00", "@4000000069a55faa00000000"):
        check("dovecot", f"{time} {own}", expected)
        assert one("dovecot", f"{time} {own}")["time"] == TEN


@pytest.mark.parametrize(
    "name",
    [
        "x>, method=PLAIN, rip=6.6.6.6, lip=1.1.1.1, session=<y",
        "x>, rip=6.6.6.6",
        "): user=<root>, rip=6.6.6.6",
        "\x1b[2Jx",
    ],
)
def test_a_name_forges_no_address_of_dovecot(name: str) -> None:
    line = (
        "Mar  2 10:00:00 mx dovecot: imap-login: Disconnected (auth failed, 1 attempts in 2 "
        f"secs): user=<{name}>, method=PLAIN, {ENDS}, session=<abc>"
    )
    assert brief(one("dovecot", line)) == (LOGON, 2, "1.2.3.4", name)


def test_a_name_that_leaves_the_address_in_doubt_names_none() -> None:
    line = "Mar  2 10:00:00 mx dovecot: auth: sql({},1.2.3.4,<s>): unknown user"
    row = one("dovecot", line.format("a,6.6.6.6): b"))
    assert brief(row)[:3] == (LOGON, 2, None)
    assert json.loads(row["unmapped"])["ambiguous"] is True
    refused = "auth: login(?,1.2.3.4,<s>): Username character disallowed by auth_username_chars"
    row = one("dovecot", f"Mar  2 10:00:00 mx dovecot: {refused}: 0x27 (username: a,6.6.6.6): b)")
    assert brief(row) == (LOGON, 2, "1.2.3.4", None)


def test_pam_under_dovecot() -> None:
    text = "authentication failure; logname= uid=0 euid=0 tty=dovecot ruser=u rhost=1.2.3.4"
    for line in (
        f"Mar  2 10:00:00 mx dovecot-auth: pam_unix(dovecot:auth): {text}",
        f"@4000000069a55faa00000000 dovecot-auth: pam_unix(dovecot:auth): {text}",
        f"Mar  2 10:00:00 mx auth: pam_unix(dovecot:auth): {text}",
    ):
        assert brief(one("dovecot", line)) == (LOGON, 2, "1.2.3.4", "u")


# -- Postfix --------------------------------------------------------------------------------------

CLIENT = "c.example[1.2.3.4]"


def mail(activity: int, status: int | None, **more: Any) -> Expected:
    known = {} if status is None else {"status_id": status}
    return {"type_uid": 400900 + activity, "email.uid": "4ABCD12345"} | known | more


QID = "4ABCD12345: "
POSTFIX: list[tuple[str, str, Expected]] = [
    ("smtpd", f"connect from {CLIENT}", {"type_uid": 400101, "src_endpoint.hostname": "c.example"}),
    (
        "smtpd",
        f"disconnect from {CLIENT} ehlo=1 auth=0/1 quit=1 commands=2/3",
        {"type_uid": 400102, "unmapped.auth": "0/1", "unmapped.commands": "2/3"},
    ),
    ("smtpd", f"lost connection after AUTH from {CLIENT}", {"type_uid": 400102, "status_id": 2}),
    (
        "submission/smtpd",
        "warning: unknown[1.2.3.4]: SASL LOGIN authentication failed: UGFzc3dvcmQ6",
        login(
            2, "1.2.3.4", "", **{"unmapped.auth_method": "LOGIN", "status_detail": "UGFzc3dvcmQ6"}
        ),
    ),
    (
        "smtps/smtpd",
        f"warning: {CLIENT}: SASL PLAIN authentication failed: bad, sasl_username=ann@example.com",
        login(2, "1.2.3.4", "ann@example.com"),
    ),
    (
        "smtpd",
        f"{QID}client={CLIENT}, sasl_method=PLAIN, sasl_username=ann@example.com",
        login(1, "1.2.3.4", "ann@example.com", **{"metadata.correlation_uid": "4ABCD12345"}),
    ),
    (
        "smtpd",
        f"{QID}client={CLIENT}:54321",
        mail(2, 1, **{"src_endpoint.port": 54321, "metadata.correlation_uid": "4ABCD12345"}),
    ),
    (
        "cleanup",
        f"{QID}message-id=<a.b@example.com>",
        mail(4, None) | {"email.message_uid": "a.b@example.com"},
    ),
    (
        "qmgr",
        f"{QID}from=<ann@example.com>, size=1234, nrcpt=2 (queue active)",
        mail(4, 1, **{"email.from": "ann@example.com", "email.size": 1234, "unmapped.nrcpt": 2}),
    ),
    (
        "qmgr",
        f"{QID}from=<ann@example.com>, status=expired, returned to sender",
        mail(4, 2, **{"unmapped.status": "expired"}),
    ),
    ("qmgr", f"{QID}removed", mail(4, None)),
    (
        "smtp",
        f"{QID}to=<bob@example.org>, orig_to=<b>, relay=mx.example.org[5.6.7.8]:25, conn_use=2, "
        "delay=1.2, delays=0.1/0/0.5/0.6, dsn=2.0.0, status=sent (250 Ok: to=<x>, "
        "relay=evil[6.6.6.6]:25, status=sent (x))",
        mail(
            1,
            1,
            **{
                "dst_endpoint.ip": "5.6.7.8",
                "dst_endpoint.port": 25,
                "email.to": ["bob@example.org"],
                "status_code": "2.0.0",
                "duration": 1200,
                "unmapped.orig_to": "b",
                "direction_id": 2,
            },
        ),
    ),
    (
        "smtp",
        f"{QID}to=<bob@example.org>, relay=none, delay=30, delays=0/0/30/0, dsn=4.4.1, "
        "status=deferred (connect to mx.example.org[5.6.7.8]:25: Connection timed out)",
        mail(1, 2, **{"dst_endpoint": None, "unmapped.status": "deferred"}),
    ),
    (
        "local",
        f"{QID}to=<root@mx.example>, relay=local, delay=0.02, delays=0/0/0/0, dsn=5.1.1, "
        'status=bounced (unknown user: "root")',
        mail(2, 2, **{"dst_endpoint.svc_name": "local", "direction_id": 1}),
    ),
    (
        "lmtp",
        f"{QID}to=<ann@mx.example>, relay=mx.example[private/dovecot-lmtp], delay=0.02, "
        "delays=0/0/0/0, dsn=2.0.0, status=sent (250 2.0.0 Saved)",
        mail(2, 1, **{"email.to": ["ann@mx.example"]}),
    ),
    (
        "smtp",
        f"{QID}to=<a@b.cd>, relay=127.0.0.1[127.0.0.1]:10024, delay=1, delays=0/0/0/1, "
        "dsn=2.0.0, status=sent (250 ok)",
        mail(5, 1),
    ),
    (
        "bounce",
        f"{QID}sender non-delivery notification: 5ABCD12346",
        mail(4, None) | {"unmapped.child_queue_id": "5ABCD12346"},
    ),
    ("pickup", f"{QID}uid=0 from=<root>", mail(2, 1) | {"email.from_mailbox": "root"}),
    (
        "smtpd",
        f"NOQUEUE: reject: RCPT from {CLIENT}: 554 5.7.1 <b@example.org>: Relay access denied; "
        "from=<a@example.com> to=<b@example.org> proto=ESMTP helo=<[6.6.6.6]>",
        {
            "type_uid": 400902,
            "status_id": 2,
            "status_code": "554",
            "action_id": 2,
            "disposition_id": 25,
            "src_endpoint.ip": "1.2.3.4",
            "email.from": "a@example.com",
            "email.to": ["b@example.org"],
            "smtp_hello": "[6.6.6.6]",
            "protocol_name": "ESMTP",
            "unmapped.dsn": "5.7.1",
        },
    ),
    (
        "postscreen",
        "NOQUEUE: reject: RCPT from [1.2.3.4]:5000: 550 5.7.1 Service unavailable; client [1.2.3.4]"
        " blocked using zen.spamhaus.org; from=<a@b.cd>, to=<d@e.fg>, proto=ESMTP, helo=<x.y>",
        {
            "type_uid": 400902,
            "src_endpoint.port": 5000,
            "email.from": "a@b.cd",
            "smtp_hello": "x.y",
            "status_detail": "Service unavailable; client [1.2.3.4] blocked using zen.spamhaus.org",
        },
    ),
    (
        "cleanup",
        f"{QID}milter-reject: END-OF-MESSAGE from {CLIENT}: 5.7.1 Spam; from=<a@b.cd> to=<d@e.fg> "
        "proto=ESMTP helo=<x>",
        mail(2, 2, **{"src_endpoint.ip": "1.2.3.4", "unmapped.action": "milter-reject"}),
    ),
    (
        "postscreen",
        "CONNECT from [1.2.3.4]:5000 to [10.0.0.1]:25",
        {"type_uid": 400101, "dst_endpoint.ip": "10.0.0.1", "dst_endpoint.port": 25},
    ),
    (
        "postscreen",
        "PREGREET 14 after 0.06 from [1.2.3.4]:5000: EHLO ylmf-pc\\r\\n",
        {"type_uid": 400105, "action_id": 2, "unmapped.sent": "EHLO ylmf-pc\\r\\n"},
    ),
    ("postscreen", "DNSBL rank 5 for [1.2.3.4]:5000", {"type_uid": 400105, "unmapped.rank": "5"}),
    ("postscreen", "PASS NEW [1.2.3.4]:5000", {"type_uid": 400106, "action_id": 1}),
    (
        "anvil",
        "statistics: max connection rate 1/60s for (smtp:1.2.3.4) at Mar  2 09:56:00",
        {"class_uid": 0, "src_endpoint.ip": "1.2.3.4"},
    ),
    (
        "smtpd",
        "warning: hostname evil.example does not resolve to address 1.2.3.4: not known",
        {"class_uid": 0, "severity_id": 3, "src_endpoint.ip": "1.2.3.4"},
    ),
    (
        "smtp",
        "connect to mx.example.org[5.6.7.8]:25: Connection timed out",
        {"type_uid": 400104, "dst_endpoint.ip": "5.6.7.8", "status_detail": "Connection timed out"},
    ),
    (
        "smtp",
        "Untrusted TLS connection established to mx.example.org[5.6.7.8]:25: TLSv1.3 with cipher "
        "TLS_AES_256_GCM_SHA384 (256/256 bits)",
        {"type_uid": 400101, "tls.version": "TLSv1.3", "dst_endpoint.port": 25},
    ),
    (
        "smtpd",
        "warning: Connection rate limit exceeded: 31 from unknown[1.2.3.4] for service smtp",
        {"type_uid": 400105, "src_endpoint.ip": "1.2.3.4"},
    ),
    ("smtpd", "fatal: no SASL authentication mechanisms", {"class_uid": 0, "severity_id": 5}),
    ("master", "daemon started -- version 3.7.6", {"class_uid": 0, "unmapped.service": "master"}),
]


@pytest.mark.parametrize(("service", "text", "expected"), POSTFIX)
def test_postfix(service: str, text: str, expected: Expected) -> None:
    check("postfix", f"Mar  2 10:00:00 mx postfix/{service}[7]: {text}", expected)
    check("postfix", f"<22>1 2026-03-02T10:00:00Z mx postfix/{service} 7 - - {text}", expected)
    check("postfix", f"2026-03-02T10:00:00.5+01:00 mx postfix-in/{service}[7]: {text}", expected)


def test_long_queue_ids_and_null_senders() -> None:
    found = told(
        "postfix",
        "Mar  2 10:00:00 mx postfix/qmgr[1]: 3XyZ1a2b3Cz4DfG: from=<>, size=1, nrcpt=1 (queue a)",
    )
    assert (found["email"]["uid"], found["email"]["to"]) == ("3XyZ1a2b3Cz4DfG", [])
    assert found["unmapped"]["null_sender"] is True


@pytest.mark.parametrize(
    "text",
    [
        f'NOQUEUE: reject: RCPT from {CLIENT}: 550 5.1.1 <"a from x[6.6.6.6]: "@y.z>: unknown; '
        'from=<"q; from=<u"@v.w> to=<"a from x[6.6.6.6]"@y.z> proto=ESMTP helo=<x[6.6.6.6]>',
        f"warning: {CLIENT}: SASL LOGIN authentication failed: x, sasl_username=y from a[6.6.6.6]",
        f"warning: non-SMTP command from {CLIENT}: GET / from x[6.6.6.6]",
        f"improper command pipelining after DATA from {CLIENT}: from x[6.6.6.6]",
        f"PREGREET 14 after 0.06 from {CLIENT}: EHLO from x[6.6.6.6]",
    ],
)
def test_nothing_a_client_says_forges_its_address_to_postfix(text: str) -> None:
    row = one("postfix", f"Mar  2 10:00:00 mx postfix/smtpd[1]: {text}")
    assert row["src_ip"] == "1.2.3.4"


def test_a_header_that_imitates_the_client_names_none() -> None:
    head = "Mar  2 10:00:00 mx postfix/cleanup[1]: 4ABCD12345: reject: header Subject: "
    tail = f"from {CLIENT}; from=<a@b.cd> to=<d@e.fg> proto=ESMTP helo=<x>: 5.7.1 no"
    plain = told("postfix", f"{head}buy {tail}")
    assert at(plain, "src_endpoint.ip") == "1.2.3.4"
    assert at(plain, "unmapped.content") == "Subject: buy"
    forged = told("postfix", f"{head}from x[6.6.6.6]; from=<b@b.cd> {tail}")
    assert forged["type_uid"] == 400902
    assert "src_endpoint" not in forged
    assert forged["unmapped"]["ambiguous"] is True


def test_lines_of_other_programs_stay_what_they_are() -> None:
    for source in ("dovecot", "postfix"):
        row = one(source, "Mar  2 10:00:00 mx cron[1]: connect from x[1.2.3.4]")
        assert (row["class_uid"], row.get("src_endpoint")) == (0, None)


def test_syslog_knows_the_programs_of_mail() -> None:
    lines = [f"Mar  2 10:00:00 mx postfix/{service}[7]: {text}" for service, text, _ in POSTFIX]
    routed, own = events("syslog", *lines), events("postfix", *lines)
    assert [row["type_uid"] for row in routed] == [row["type_uid"] for row in own]


def test_long_lines_of_mail_take_no_long_time() -> None:
    for source, program, text in (
        (
            "dovecot",
            "dovecot",
            "imap-login: Disconnected (auth failed): user=<" + ">, rip=1.1.1.1" * 600,
        ),
        ("dovecot", "dovecot", "auth: sql(" + ",1.1.1.1): " * 700),
        (
            "postfix",
            "postfix/smtpd",
            "NOQUEUE: reject: RCPT from a[1.1.1.1]: 550 " + "; from=<x> to=<" * 500,
        ),
        ("postfix", "postfix/smtp", "4ABCD12345: to=<" + ">, relay=a[1.1.1.1]:25, " * 300),
        (
            "postfix",
            "postfix/cleanup",
            "4ABCD12345: reject: header " + "from a[1.1.1.1]; from=<" * 300,
        ),
        ("postfix", "postfix/smtpd", '4ABCD12345: from=<"' + '\\"' * 4000),
    ):
        for size in (7900, 500_000):
            line = f"Mar  2 10:00:00 h {program}[1]: {(text * 100)[:size]}"
            assert one(source, line)["class_uid"] in (0, 3002, 4009)
