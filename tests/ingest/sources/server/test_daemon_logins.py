"""dropbear, vsftpd, ProFTPD and xrdp: logins and transfers."""

from __future__ import annotations

from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest

from ingest.parsing.source import lookup
from tests.ingest.daemons import TEN, Expected, brief, check, events, one, told

LOGON, LOGOFF, PREAUTH = 300201, 300202, 300206


def login(status: int, ip: str | None, user: str | None, **more: object) -> Expected:
    named = {} if user is None else {"user.name": user}
    return {"type_uid": LOGON, "status_id": status, "src_endpoint.ip": ip} | named | more


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "Bad password attempt for 'root' from 1.2.3.4:60588",
            login(2, "1.2.3.4", "root", **{"src_endpoint.port": 60588, "severity_id": 2}),
        ),
        (
            "login attempt for nonexistent user from ::ffff:198.51.100.215:60495",
            login(2, "198.51.100.215", "", status_detail="for nonexistent user"),
        ),
        ("Password auth succeeded for 'ann' from 1.2.3.4:5", login(1, "1.2.3.4", "ann")),
        ("PAM password auth succeeded for 'ann' from [fe80::1]:5", login(1, "fe80::1", "ann")),
        (
            "Pubkey auth succeeded for 'ann' with ssh-ed25519 key SHA256:ab from 1.2.3.4:5",
            login(1, "1.2.3.4", "ann", **{"unmapped.key": "SHA256:ab"}),
        ),
        (
            "Pubkey auth succeeded for 'ann' with key sha1!! ab:cd from 1.2.3.4:5",
            login(1, "1.2.3.4", "ann", **{"unmapped.key": "sha1!! ab:cd"}),
        ),
        (
            "Exit before auth (user 'root', 10 fails): Max auth tries reached - user 'root' "
            "from 1.2.3.4:60588",
            {"type_uid": PREAUTH, "status_id": 2, "src_endpoint.ip": "1.2.3.4"},
        ),
        (
            "Exit before auth from <1.2.3.4:60588>: (user 'root', 0 fails): Exited normally",
            {"type_uid": PREAUTH, "user.name": "root", "unmapped.fails": "0"},
        ),
        (
            "Exit before auth from <1.2.3.4:60588>: Exited normally",
            {"type_uid": 400702, "src_endpoint.port": 60588},
        ),
        ("Child connection from 1.2.3.4:60588", {"type_uid": 400701, "src_endpoint.port": 60588}),
        (
            "Exit (root) from <1.2.3.4:60588>: Disconnect received",
            {"type_uid": LOGOFF, "user.name": "root", "src_endpoint.ip": "1.2.3.4"},
        ),
        ("User 'x' has invalid shell, rejected", login(2, None, "x")),
        ("Running in background", {"class_uid": 0, "message": "Running in background"}),
    ],
)
def test_dropbear(text: str, expected: Expected) -> None:
    for frame in (
        "<86>Mar  2 10:00:00 gw dropbear[7]: ",
        "<86>1 2026-03-02T10:00:00Z gw dropbear 7 - - ",
        "Mar  2 10:00:00 gw dropbear[7]: [7] Mar 02 10:00:00 ",
    ):
        check("dropbear", frame + text, expected | {"device.hostname": "gw"})
        assert one("dropbear", frame + text)["time"] == TEN
    check("dropbear", f"[7] Mar  2 10:00:00 {text}", expected)


def test_dropbear_under_the_headers_of_small_systems() -> None:
    text = "Bad password attempt for 'root' from 1.2.3.4:5"
    for header in (
        "Mon Mar  2 10:00:00 2026 authpriv.warn dropbear[7]: ",
        "Mar  2 10:00:00 OpenWrt authpriv.warn dropbear[7]: ",
        "Mar 2 10:00:00 OpenWrt dropbear[7]: ",
        "Mar  2 10:00:00 dropbear[7]: ",
        "dropbear[7]: ",
    ):
        row = one("dropbear", header + text)
        assert brief(row) == (LOGON, 2, "1.2.3.4", "root"), header


@pytest.mark.parametrize("name", ["x' from 6.6.6.6:1", "' from 6.6.6.6:22", "a\x1b[31mb", "=cmd|x"])
def test_a_name_forges_no_address_of_dropbear(name: str) -> None:
    row = one(
        "dropbear",
        f"Mar  2 10:00:00 h dropbear[1]: Bad password attempt for '{name}' from 1.2.3.4:5",
    )
    assert brief(row) == (LOGON, 2, "1.2.3.4", name)


def test_a_port_that_cannot_be_is_kept_elsewhere() -> None:
    found = told("dropbear", "Mar  2 10:00:00 h dropbear[1]: Child connection from 1.2.3.4:99999")
    assert found["src_endpoint"] == {"ip": "1.2.3.4"}
    assert found["unmapped"] == {"peer_port": "99999"}


# -- vsftpd ---------------------------------------------------------------------------------------

AT = "Mon Mar  2 10:00:00 2026 "


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('[pid 3] CONNECT: Client "1.2.3.4"', {"type_uid": 400101, "src_endpoint.ip": "1.2.3.4"}),
        ('[pid 3] [ann] OK LOGIN: Client "1.2.3.4"', login(1, "1.2.3.4", "ann")),
        (
            '[pid 3] [ftp] OK LOGIN: Client "1.2.3.4", anon password "a@b.de"',
            login(1, "1.2.3.4", "ftp", **{"unmapped.anon_password": "a@b.de"}),
        ),
        (
            '[pid 15] [guest] FAIL LOGIN: Client "::ffff:192.0.2.1", "User is not allowed."',
            login(2, "192.0.2.1", "guest", status_detail="User is not allowed."),
        ),
        (
            '[pid 3] [ann] OK UPLOAD: Client "1.2.3.4", "/home/a, b.txt", 12345 bytes, '
            "44.23Kbyte/sec",
            {
                "type_uid": 400801,
                "status_id": 1,
                "actor.user.name": "ann",
                "file.path": "/home/a, b.txt",
                "file.name": "a, b.txt",
                "file.size": 12345,
                "traffic.bytes_out": 12345,
                "unmapped.rate_kbyte": "44.23",
            },
        ),
        (
            '[pid 3] [ann] FAIL DOWNLOAD: Client "1.2.3.4", "/etc/shadow", 0.00Kbyte/sec',
            {"type_uid": 400802, "status_id": 2, "file.path": "/etc/shadow"},
        ),
        (
            '[pid 3] [ann] OK DELETE: Client "1.2.3.4", "/x"',
            {"type_uid": 400804, "command": "DELETE"},
        ),
        (
            '[pid 3] [ann] OK MKDIR: Client "1.2.3.4", "/x"',
            {"type_uid": 400899, "activity_name": "Mkdir", "file.path": "/x"},
        ),
        (
            '[pid 3] [ann] OK RENAME: Client "1.2.3.4", "/a /b"',
            {"type_uid": 400805, "file.path": "/a", "unmapped.renamed_to": "/b"},
        ),
        (
            '[pid 3] [ann] OK CHMOD: Client "1.2.3.4", "/a b 644"',
            {"file.path": "/a b", "unmapped.mode": "644"},
        ),
        (
            '[pid 3] [ann] FTP command: Client "1.2.3.4", "RETR x"',
            {"type_uid": 400802, "command": "RETR", "unmapped.text": "RETR x"},
        ),
        (
            '[pid 3] FTP response: Client "1.2.3.4", "530 Login incorrect."',
            {"type_uid": 400899, "status_code": "530"},
        ),
    ],
)
def test_vsftpd(text: str, expected: Expected) -> None:
    check("vsftpd", AT + text, expected)
    check("vsftpd", f"Mar  2 10:00:00 ftp1 vsftpd[9]: {text}", expected)
    check("vsftpd", f"<30>1 2026-03-02T10:00:00Z ftp1 vsftpd 9 - - {text}", expected)
    check("vsftpd", text, expected)


def test_transfers_in_the_log_of_wu_ftpd() -> None:
    line = f"{AT}1 ::ffff:1.2.3.4 100 /srv/a b.txt b _ i r ann ftp 0 * c"
    for source in ("vsftpd", "proftpd"):
        found = told(source, line)
        assert (found["type_uid"], found["status_id"], found["time"]) == (400801, 1, 1772445600000)
        assert found["src_endpoint"] == {"ip": "1.2.3.4"}
        assert found["actor"]["user"]["name"] == "ann"
        assert (found["file"]["path"], found["traffic"]["bytes_out"]) == ("/srv/a b.txt", 100)
        assert found["duration"] == 1000
    broken = told("proftpd", line.replace("_ i r", "_ o g").replace("* c", "x i"))
    assert (broken["type_uid"], broken["status_id"]) == (400802, 2)
    assert broken["unmapped"]["authenticated_user"] == "x"
    assert told("proftpd", line.replace("_ i r", "_ d r"))["type_uid"] == 400804


@pytest.mark.parametrize(
    "name",
    [
        'x] OK LOGIN: Client "6.6.6.6"',
        'x] OK LOGIN: Client "6.6.6.6',
        "x] FAIL LOGIN",
        '"',
        "] [root",
        "\u202eann",
    ],
)
def test_a_name_forges_no_address_of_vsftpd(name: str) -> None:
    row = one("vsftpd", f'{AT}[pid 3] [{name}] FAIL LOGIN: Client "1.2.3.4"')
    assert brief(row) == (LOGON, 2, "1.2.3.4", name)


def test_a_line_of_vsftpd_that_reads_two_ways_names_no_address() -> None:
    for text in (
        '[ftp] OK LOGIN: Client "1.2.3.4", anon password "x] FAIL LOGIN: Client "6.6.6.6", "y"',
        '[x] OK LOGIN: Client "6.6.6.6", anon password "] FAIL LOGIN: Client "1.2.3.4", "y"',
    ):
        found = told("vsftpd", f"{AT}[pid 3] {text}")
        assert found["class_uid"] == 0
        assert "src_endpoint" not in found
        assert found["unmapped"]["ambiguous"] is True


# -- PAM under a daemon's name --------------------------------------------------------------------

PAM = "authentication failure; logname= uid=0 euid=0 tty=ftp "


@pytest.mark.parametrize(
    ("text", "ip", "user"),
    [
        ("ruser=test rhost=58.254.172.161", "58.254.172.161", "test"),
        ("ruser=root rhost=1.2.3.4  user=root", "1.2.3.4", "root"),
        ("ruser=rhost=6.6.6.6 rhost=1.2.3.4", "1.2.3.4", "rhost=6.6.6.6"),
        ("ruser=x rhost=6.6.6.6 y rhost=1.2.3.4  user=x rhost=6.6.6.6 y", "1.2.3.4", None),
        ("ruser=x rhost=6.6.6.6  user=y rhost=1.2.3.4", None, None),
        ("ruser= rhost=host.example", None, None),
    ],
)
def test_a_failure_that_pam_logged(text: str, ip: str | None, user: str | None) -> None:
    found = told("vsftpd", f"Mar  2 10:00:00 h vsftpd: pam_unix(vsftpd:auth): {PAM}{text}")
    assert (found["type_uid"], found["status_id"]) == (LOGON, 2)
    assert found.get("src_endpoint", {}).get("ip") == ip
    if user:
        assert found["user"]["name"] == user


def test_the_tag_of_an_old_pam() -> None:
    row = one("vsftpd", f"Mar  2 10:00:00 h vsftpd(pam_unix)[3]: {PAM}ruser= rhost=1.2.3.4 user=u")
    assert brief(row) == (LOGON, 2, "1.2.3.4", "u")
    row = one(
        "vsftpd", "Mar  2 10:00:00 h vsftpd: pam_unix(vsftpd:session): session closed for user ann"
    )
    assert brief(row) == (LOGOFF, 1, None, "ann")


# -- ProFTPD --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("USER ann: Login successful.", login(1, "1.2.3.4", "ann")),
        ("ANON ftp: Login successful.", login(1, "1.2.3.4", "ftp")),
        (
            "USER x y: no such user found from c.example [1.2.3.4] to 5.6.7.8:2121",
            login(2, "1.2.3.4", "x y", **{"dst_endpoint.ip": "5.6.7.8", "dst_endpoint.port": 2121}),
        ),
        (
            "USER ann (Login failed): Incorrect password.",
            login(2, "1.2.3.4", "ann", status_detail="Incorrect password."),
        ),
        ("SECURITY VIOLATION: root login attempted.", login(2, "1.2.3.4", "root")),
        ("Maximum login attempts (3) exceeded", {"type_uid": PREAUTH, "status_id": 2}),
        ("FTP session opened.", {"type_uid": 400101, "app_name": "ftp"}),
        ("FTP session closed.", {"type_uid": 400102, "src_endpoint.ip": "1.2.3.4"}),
        ("FTP session idle timeout, disconnected", {"type_uid": 400102}),
        ("SSH2 session opened.", {"type_uid": 400701}),
        (
            "mod_sftp/1.0.0: user 'ann' authenticated via 'publickey' method",
            login(1, "1.2.3.4", "ann", **{"unmapped.auth_method": "publickey"}),
        ),
        (
            "Refused PORT 127,0,0,1,0,22 (bounce attack)",
            {"class_uid": 0, "severity_id": 3, "src_endpoint.ip": "1.2.3.4"},
        ),
        ("Preparing to chroot to directory '/home'", {"class_uid": 0}),
    ],
)
def test_proftpd(text: str, expected: Expected) -> None:
    for head in (
        "2026-03-02 10:00:00,000 ftp1 proftpd[9] ftp.example (c.example[1.2.3.4]): ",
        "Mar 02 10:00:00 ftp1 proftpd[9] ftp.example (c.example[1.2.3.4]): ",
        "Mar  2 10:00:00 ftp1 proftpd[9]: ftp.example (c.example[::ffff:1.2.3.4]) - ",
    ):
        check("proftpd", head + text, expected)
        assert one("proftpd", head + text)["time"] == TEN


def test_the_extended_log_of_proftpd() -> None:
    head = "1.2.3.4 UNKNOWN {} [02/Mar/2026:11:00:00 +0100] "
    got = told("proftpd", head.format("ann") + '"RETR /a b.txt" 226 1234')
    assert (got["type_uid"], got["status_id"], got["time"]) == (400802, 1, 1772445600000)
    assert got["file"]["path"] == "/a b.txt"
    assert got["traffic"] == {"bytes": 1234, "bytes_in": 1234}
    failed = one("proftpd", head.format("-") + '"PASS (hidden)" 530 -')
    assert brief(failed) == (LOGON, 2, "1.2.3.4", None)
    good = one("proftpd", head.format("ann") + '"PASS (hidden)" 230 -')
    assert brief(good) == (LOGON, 1, "1.2.3.4", "ann")
    assert told("proftpd", head.format("ann") + '"CWD /tmp" 250 -')["command"] == "CWD"


@pytest.mark.parametrize(
    "name",
    [
        "h proftpd[1] h (evil[6.6.6.6])",
        "x: no such user found from e [6.6.6.6] to 6.6.6.6:21",
        "x: Login successful.",
    ],
)
def test_a_name_forges_no_address_of_proftpd(name: str) -> None:
    row = one(
        "proftpd",
        f"Mar  2 10:00:00 h proftpd[1]: h (c[1.2.3.4]) - USER {name}: no such user found "
        "from c [1.2.3.4] to 5.6.7.8:21",
    )
    assert brief(row) == (LOGON, 2, "1.2.3.4", name)


# -- xrdp -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "[INFO ] A connection received from ::ffff:10.1.1.90 port 44552",
            {"type_uid": 400501, "src_endpoint.ip": "10.1.1.90", "src_endpoint.port": 44552},
        ),
        (
            "[INFO ] Socket 8: AF_INET6 connection received from ::1 port 58224",
            {"type_uid": 400101, "src_endpoint.ip": "::1"},
        ),
        (
            "[INFO ] ++ created session (access granted): username ann, ip ::ffff:1.2.3.4:5000 - "
            "socket: 12",
            login(1, "1.2.3.4", "ann", **{"src_endpoint.port": 5000, "logon_type_id": 10}),
        ),
        (
            "[INFO ] AUTHFAIL: user=ann ip=::ffff:1.2.3.4 time=1649351466",
            login(2, "1.2.3.4", "ann"),
        ),
        (
            "[INFO ] AUTHFAIL: user=x ip=6.6.6.6 time=1 ip=1.2.3.4 time=1649351484",
            login(2, "1.2.3.4", "x ip=6.6.6.6 time=1"),
        ),
        ("[INFO ] login failed for user bob", login(2, None, "bob")),
        (
            "[INFO ] ++ terminated session:  username ann, display :10.0, session_pid 13, "
            "ip ::ffff:1.2.3.4:7548 - socket: 12",
            {"type_uid": LOGOFF, "user.name": "ann", "src_endpoint.port": 7548},
        ),
        (
            "[INFO ] ++ reconnected session: username ann, display :10.0, session_pid 13, "
            "ip 1.2.3.4:7548 - socket: 12",
            {"type_uid": 400508, "user.name": "ann", "src_endpoint.ip": "1.2.3.4"},
        ),
        (
            "[INFO ] TLS connection established from 1.2.3.4 port 7548: TLSv1.2 with cipher AES",
            {"type_uid": 400505, "tls.version": "TLSv1.2", "tls.cipher": "AES"},
        ),
        (
            "[INFO ] An established connection closed to endpoint: 1.2.3.4:7548 - socket: 12",
            {"type_uid": 400507, "src_endpoint.port": 7548},
        ),
        (
            "[INFO ] An established connection closed to endpoint: NULL:NULL - socket: 9",
            {"unmapped.endpoint": "NULL:NULL"},
        ),
        ("[ERROR] pam_authenticate failed: Authentication failure", {"type_uid": PREAUTH}),
        ("[WARN ] local keymap file not found", {"class_uid": 0, "severity_id": 3}),
    ],
)
def test_xrdp(text: str, expected: Expected) -> None:
    check("xrdp", f"[20260302-10:00:00] {text}", expected)
    check("xrdp", f"[2026-03-02T10:00:00.065+0100] {text}", expected)
    check("xrdp", f"Mar  2 10:00:00 h xrdp[9]: (9)(140145709626688){text}", expected)


def test_the_time_of_a_line_is_replaced_in_its_own_form() -> None:
    when = datetime(2026, 5, 6, 7, 8, 9, tzinfo=UTC)
    zone = ZoneInfo("UTC")
    for source, old, new in (
        ("vsftpd", 'Mon Mar  2 10:00:00 2026 [pid 3] CONNECT: Client "1.2.3.4"', "Wed May  6 07"),
        ("xrdp", "[20260302-10:00:00] [INFO ] x", "[20260506-07:08:09] "),
        ("dropbear", "[825] Jul 10 23:53:52 Exit (x): y", "[825] May  6 07:08:09 "),
        ("proftpd", '1.2.3.4 U a [02/Mar/2026:11:00:00 +0100] "CWD /" 250 -', "1.2.3.4 U a [06/M"),
        ("dropbear", "Mar  2 10:00:00 h dropbear[1]: x", "May  6 07:08:09 h"),
    ):
        assert lookup(source).restamp(old.encode(), when, zone).decode().startswith(new)


def test_lines_of_a_file_in_one_record_are_events_of_their_own() -> None:
    raw = (
        'Mon Mar  2 10:00:00 2026 [pid 3] CONNECT: Client "1.2.3.4"\n\nnonsense\n'
        'Mon Mar  2 10:00:01 2026 [pid 3] [x] FAIL LOGIN: Client "1.2.3.4"\n'
    )
    found = events("vsftpd", raw)
    assert [row.get("dead_letter_reason") is None for row in found] == [True, False, True]


def test_long_lines_take_no_long_time() -> None:
    for source, text in (
        ("dropbear", "Bad password attempt for '" + "' from 1.1.1.1:1" * 200_000),
        ("vsftpd", "[" + '] OK LOGIN: Client "' * 200_000),
        ("proftpd", "h (c[1.2.3.4]) - USER " + ": no such user found from" * 200_000),
        ("xrdp", "[INFO ] AUTHFAIL: user=" + " ip=1.1.1.1 time=1" * 200_000),
    ):
        assert one(source, f"Mar  2 10:00:00 h {source}[1]: {text}!")["class_uid"] == 0
        short = text[:8000]
        assert one(source, f"Mar  2 10:00:00 h {source}[1]: {short}!")["class_uid"] in (0, 3002)
