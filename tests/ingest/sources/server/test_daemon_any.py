"""Whatever is done to the lines of server programs, they are read or refused, and never forge."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.examples import examples
from tests.ingest.conforms import faults, misfits
from tests.ingest.daemons import NOW
from tests.ingest.logs import rows

DENIED = "Access denied for user 'ann'@'1.2.3.4' (using password: YES)"
LINES = {
    "dropbear": (
        "Mar  2 10:00:00 h dropbear[7]: Bad password attempt for 'root' from 1.2.3.4:5",
        "[7] Mar  2 10:00:00 Exit before auth from <1.2.3.4:5>: (user 'root', 0 fails): Exited",
    ),
    "vsftpd": (
        'Mon Mar  2 10:00:00 2026 [pid 3] [ann] OK UPLOAD: Client "1.2.3.4", "/a b", 1 bytes, '
        "4.2Kbyte/sec",
        "Mon Mar  2 10:00:00 2026 1 1.2.3.4 100 /srv/a b.txt b _ i r ann ftp 0 * c",
        "Mar  2 10:00:00 h vsftpd: pam_unix(vsftpd:auth): authentication failure; logname= uid=0 "
        "euid=0 tty=ftp ruser=u rhost=1.2.3.4  user=u",
    ),
    "proftpd": (
        "2026-03-02 10:00:00,123 h proftpd[9] f (c[1.2.3.4]): USER x: no such user found from c "
        "[1.2.3.4] to 5.6.7.8:21",
        '1.2.3.4 UNKNOWN ann [02/Mar/2026:11:00:00 +0100] "RETR /a b.txt" 226 1234',
    ),
    "dovecot": (
        "Mar  2 10:00:00 mx dovecot: imap-login: Login: user=<ann>, method=PLAIN, rip=1.2.3.4, "
        "lip=10.0.0.1, mpid=7, TLS, session=<ab/c+d>",
        "Mar 02 10:00:00 imap(ann)<7><s>: Info: Disconnected: Logged out in=356 out=1042",
        "Mar  2 10:00:00 mx dovecot: auth: sql(bob@x.de,1.2.3.4,<s>): Password mismatch",
    ),
    "postfix": (
        "Mar  2 10:00:00 mx postfix/smtp[1]: 4ABCD12345: to=<b@example.org>, relay=mx[5.6.7.8]:25, "
        "delay=1.2, delays=0/0/0/1, dsn=2.0.0, status=sent (250 Ok)",
        "Mar  2 10:00:00 mx postfix/smtpd[1]: NOQUEUE: reject: RCPT from c[1.2.3.4]: 554 5.7.1 "
        "<b>: Relay access denied; from=<a@b.cd> to=<c@d.ef> proto=ESMTP helo=<x>",
        "Mar  2 10:00:00 mx postfix/qmgr[1]: 4ABCD12345: from=<a@b.cd>, size=1, nrcpt=2 "
        "(queue active)",
    ),
    "mysql": (
        f"2026-03-02T10:00:00.000000Z 113 [Note] [MY-010926] [Server] {DENIED}",
        "2026-03-02T10:00:00.000000Z\t    8 Connect\troot@1.2.3.4 on shop using TCP/IP",
        "20260302 10:00:00,db1,app,10.0.0.5,12,345,QUERY,shop,'select 1',0",
        '{"prio":3,"err_code":10926,"msg":"x","time":"2026-03-02T10:00:00Z","thread":8}',
        '{"timestamp":"2026-03-02 10:00:00","class":"connection","event":"connect","login":'
        '{"user":"u","ip":"1.2.3.4"},"connection_data":{"status":1045}}',
        "# Time: 260302 10:00:00\n# User@Host: a[a] @ h [1.2.3.4]  Id: 8\n"
        "# Query_time: 1.5\nselect 1;",
    ),
    "xrdp": (
        "[20260302-10:00:00] [INFO ] ++ created session (access granted): username ann, "
        "ip ::ffff:1.2.3.4:5000 - socket: 12",
        "[2026-03-02T10:00:00.065+0100] [INFO ] AUTHFAIL: user=ann ip=1.2.3.4 time=1649351466",
    ),
    "openldap": (
        "Mar  2 10:00:00 l slapd[7]: conn=1 fd=12 ACCEPT from IP=1.2.3.4:54321 (IP=0.0.0.0:389)",
        '69a55fa0.00000000 0x7f1234567890 conn=1 op=0 BIND dn="cn=a,dc=x" method=128',
        "69a55fa0 conn=1 op=0 RESULT tag=97 err=49 qtime=0.1 text=",
        '69a55fa0 conn=1 op=1 SRCH base="dc=x" scope=2 deref=0 filter="(uid=a)"',
    ),
    "freeradius": (
        "Mon Mar  2 10:00:00 2026 : Auth: (5) Login OK: [bob/<via Auth-Type = eap>] "
        "(from client ap1 port 0 cli AA-BB-CC-DD-EE-FF)",
        'Mon Mar  2 10:00:01 2026\n\tUser-Name = "bob"\n\tAcct-Status-Type = Stop\n'
        "\tAcct-Input-Octets = 100\n\tTimestamp = 1772445600",
    ),
    "openvpn": (
        "2026-03-02 10:00:00 ann/1.2.3.4:5000 MULTI: Learn: 10.8.0.6 -> ann/1.2.3.4:5000",
        "Mon Mar  2 10:00:00 2026 1.2.3.4:5000 VERIFY ERROR: depth=0, error=expired: CN=ann",
        "TIME,2026-03-02 10:00:00,1772445600\n"
        "CLIENT_LIST,ann,1.2.3.4:5000,10.8.0.6,,1,2,x,1,u,0,0,A",
    ),
}
PIECE = st.one_of(
    st.sampled_from([b"'", b'"', b"[", b"]", b"<", b">", b": ", b", ", b"=", b"\n", b"9" * 25]),
    st.binary(max_size=4),
    st.text(max_size=4).map(str.encode),
)
CHANGE = st.tuples(st.integers(0, 250), st.integers(0, 12), PIECE)


@examples(150)
@given(at=st.integers(0, 99), changes=st.lists(CHANGE, max_size=4))
@pytest.mark.parametrize("source", sorted(LINES))
def test_changed_lines_are_read_or_refused(
    source: str, at: int, changes: list[tuple[int, int, bytes]]
) -> None:
    raw = LINES[source][at % len(LINES[source])].encode()
    for start, cut, piece in changes:
        raw = raw[:start] + piece + raw[start + cut :]
    found = rows(source, raw, now=NOW)
    assert found == rows(source, raw, now=NOW)
    for row in found:
        reason = row.get("dead_letter_reason")
        if reason is None:
            assert faults(row) == [], raw
            assert misfits(row) == [], raw
        else:
            assert not reason.startswith("parser "), reason


@pytest.mark.parametrize("source", sorted(LINES))
def test_lines_as_they_are_are_events(source: str) -> None:
    for line in LINES[source]:
        found = rows(source, line.encode(), now=NOW)
        assert [row.get("dead_letter_reason") for row in found] == [None] * len(found)
        assert found[0]["time_quality"] != "received"
