"""PAM's modules, and the programs around logins and accounts."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.ingest.conforms import faults, misfits
from tests.ingest.logs import good, lines, rows

AUTH = "logname= uid=0 euid=0 tty=ssh ruser= rhost=10.0.0.5  user=root"


def event(text: str, source: str = "pam") -> dict[str, Any]:
    found = good(source, "Nov 21 03:00:00 b1 " + text)
    assert faults(found) == []
    assert misfits(found) == []
    return found


def about(found: dict[str, Any]) -> tuple[int, int, int | None]:
    return found["class_uid"], found["activity_id"], found.get("status_id")


@pytest.mark.parametrize(
    ("text", "expected", "user", "ip"),
    [
        (
            "sshd[1]: pam_unix(sshd:session): session opened for user root(uid=0) by (uid=0)",
            (3002, 1, 1),
            "root",
            None,
        ),
        (
            "sshd[1]: pam_unix(sshd:session): session opened for user ann by (uid=0)",
            (3002, 1, 1),
            "ann",
            None,
        ),
        ("sshd[1]: pam_unix(sshd:session): session closed for user ann", (3002, 2, 1), "ann", None),
        (
            "su: pam_unix(su-l:session): session opened for user root(uid=0) by ann(uid=1000)",
            (3002, 7, 1),
            "root",
            None,
        ),
        (
            f"sshd[1]: pam_unix(sshd:auth): authentication failure; {AUTH}",
            (3002, 1, 2),
            "root",
            "10.0.0.5",
        ),
        (
            "sshd[1]: pam_unix(sshd:auth): authentication failure; logname= uid=0 euid=0 tty=ssh "
            "ruser= rhost=2001:db8::1 ",
            (3002, 1, 2),
            None,
            "2001:db8::1",
        ),
        (
            "sshd(pam_unix)[19939]: authentication failure; logname= uid=0 euid=0 tty=NODEVssh "
            "ruser= rhost=218.188.2.4 ",
            (3002, 1, 2),
            None,
            "218.188.2.4",
        ),
        ("su(pam_unix)[2]: session opened for user cyrus by (uid=0)", (3002, 7, 1), "cyrus", None),
        (
            "login(pam_unix)[2]: session opened for user root by LOGIN(uid=0)",
            (3002, 1, 1),
            "root",
            None,
        ),
        (
            "gdm-password][12]: pam_unix(gdm-password:auth): authentication failure; logname= "
            "uid=0 euid=0 tty=/dev/tty1 ruser= rhost=  user=ann",
            (3002, 1, 2),
            "ann",
            None,
        ),
        (f"sshd[1]: PAM 5 more authentication failures; {AUTH}", (3002, 1, 2), "root", "10.0.0.5"),
        (
            "sshd[1]: pam_sss(sshd:auth): authentication success; logname= uid=0 euid=0 tty=ssh "
            "ruser= rhost=10.0.0.5 user=ann",
            (3002, 1, 1),
            "ann",
            "10.0.0.5",
        ),
        (
            "sshd[1]: pam_sss(sshd:auth): received for user ann: 7 (Authentication failure)",
            (3002, 6, 2),
            "ann",
            None,
        ),
        (
            "sshd[1]: pam_sss(sshd:account): Access denied for user ann: 6 (Permission denied)",
            (3002, 6, 2),
            "ann",
            None,
        ),
        (
            "sshd[1]: pam_access(sshd:account): access denied for user `ann' from `10.0.0.5'",
            (3002, 6, 2),
            "ann",
            "10.0.0.5",
        ),
        (
            "sshd[1]: pam_faillock(sshd:auth): Consecutive login failures for user root account "
            "temporarily locked",
            (3001, 9, 1),
            "root",
            None,
        ),
        (
            "sshd[1]: pam_tally2(sshd:auth): user root (0) tally 5, deny 3",
            (3002, 6, 2),
            "root",
            None,
        ),
        (
            'sshd[1]: pam_succeed_if(sshd:auth): requirement "uid >= 1000" not met by user "root"',
            (3002, 6, 2),
            "root",
            None,
        ),
        (
            "passwd[1]: pam_unix(passwd:chauthtok): password changed for ann",
            (3001, 3, 1),
            "ann",
            None,
        ),
        ("PAM_unix[12]: (login) session opened for user ann by (uid=0)", (3002, 1, 1), "ann", None),
        (
            "CRON[1]: pam_unix(cron:session): session opened for user root(uid=0) by (uid=0)",
            (3002, 1, 1),
            "root",
            None,
        ),
        (
            "sshd[1]: pam_env(sshd:session): deprecated reading of user environment enabled",
            (0, 0, None),
            None,
            None,
        ),
    ],
)
def test_modules(
    text: str, expected: tuple[int, int, int | None], user: str | None, ip: str | None
) -> None:
    found = event(text)
    assert about(found) == expected
    assert (found.get("user_name") or None, found.get("src_ip")) == (user, ip)
    if not text.startswith("sshd") or expected[:2] != (3002, 1):
        # sshd tells of each logon itself, and there PAM's words must not count.
        assert about(event(text, "syslog")) == expected


@pytest.mark.parametrize(
    ("text", "expected", "user", "actor"),
    [
        ("su[12]: (to root) ann on pts/0", (3002, 7, 1), "root", "ann"),
        ("su[12]: FAILED SU (to root) ann on pts/0", (3002, 7, 2), "root", "ann"),
        ("su[1]: Successful su for root by ann", (3002, 7, 1), "root", "ann"),
        ("su[1]: FAILED su for root by ann", (3002, 7, 2), "root", "ann"),
        ("su[1]: + /dev/pts/0 ann:root", (3002, 7, 1), "root", "ann"),
        ("su[1]: - /dev/pts/0 ann:root", (3002, 7, 2), "root", "ann"),
        ("su: BAD SU ann to root on /dev/ttyp0", (3002, 7, 2), "root", "ann"),
        (
            "su: pam_unix(su:auth): authentication failure; logname=ann uid=1000 euid=0 tty=pts/0 "
            "ruser=ann rhost=  user=root",
            (3002, 7, 2),
            "root",
            "ann",
        ),
        (
            "login[1]: FAILED LOGIN (1) on '/dev/tty1' FOR 'ann', Authentication failure",
            (3002, 1, 2),
            "ann",
            None,
        ),
        (
            "login[1]: FAILED LOGIN 1 FROM tty1 FOR ann, Authentication failure",
            (3002, 1, 2),
            "ann",
            None,
        ),
        ("login[1]: ROOT LOGIN  on '/dev/tty1'", (3002, 1, 1), "root", None),
        ("login: LOGIN ON tty1 BY ann FROM 10.0.0.5", (3002, 1, 1), "ann", None),
        ("systemd-logind[1]: New session 5 of user ann.", (3002, 1, 1), "ann", None),
        (
            "systemd-logind[1]: New session '5' of user 'ann' with class 'user' and type 'tty'.",
            (3002, 1, 1),
            "ann",
            None,
        ),
        ("systemd-logind[1]: Removed session 5.", (3002, 2, 1), None, None),
        (
            "useradd[1]: new user: name=ann, UID=1001, GID=1001, home=/home/ann, shell=/bin/bash, "
            "from=/dev/pts/0",
            (3001, 1, 1),
            "ann",
            None,
        ),
        (
            "useradd[1]: new user: name=ann, UID=48, GID=48, home=/x, shell=/sbin/nologin",
            (3001, 1, 1),
            "ann",
            None,
        ),
        ("useradd[1]: failed adding user 'ann', exit code: 9", (3001, 1, 2), "ann", None),
        ("userdel[1]: delete user 'ann'", (3001, 6, 1), "ann", None),
        ("usermod[1]: lock user 'ann' password", (3001, 9, 1), "ann", None),
        ("usermod[1]: unlock user 'ann' password", (3001, 12, 1), "ann", None),
        (
            "usermod[1]: change user 'ann' shell from '/bin/sh' to '/bin/bash'",
            (3001, 99, 1),
            "ann",
            None,
        ),
        ("passwd[1]: password for 'ann' changed by 'root'", (3001, 3, 1), "ann", "root"),
        ("chage[1]: changed password expiry for ann", (3001, 99, 1), "ann", None),
        ("usermod[1]: add 'ann' to group 'sudo'", (3006, 3, 1), "ann", None),
        ("userdel[1]: delete 'ann' from group 'sudo'", (3006, 4, 1), "ann", None),
        ("gpasswd[1]: user ann added by root to group sudo", (3006, 3, 1), "ann", "root"),
        ("groupadd[1]: group added to /etc/group: name=x, GID=1002", (3006, 6, 1), None, None),
        ("useradd[1]: new group: name=x, GID=1002", (3006, 6, 1), None, None),
        ("groupdel[1]: group 'x' removed", (3006, 5, 1), None, None),
        ("CRON[1]: (ann) CMD (run-parts /etc/cron.hourly)", (1006, 6, 1), "ann", "ann"),
        ("crontab[1]: (ann) REPLACE (ann)", (1006, 2, 1), "ann", "ann"),
        ("crond: USER ann pid  12 cmd run-parts /etc", (1006, 6, 1), "ann", "ann"),
        ("crond[1]: (CRON) INFO (running with inotify support)", (0, 0, None), None, None),
        (
            "pkexec[1]: ann: Executing command [USER=root] [TTY=/dev/pts/0] [CWD=/home/ann] "
            "[COMMAND=/bin/sh -c id]",
            (1007, 1, 1),
            "ann",
            "ann",
        ),
        (
            "pkexec[1]: ann: The value for the SHELL variable was not found in the /etc/shells "
            "file [USER=root] [TTY=/dev/pts/0] [CWD=/home/ann] [COMMAND=/usr/bin/true]",
            (1007, 1, 2),
            "ann",
            "ann",
        ),
        (
            "polkitd[1]: Operator of unix-process:1:2 FAILED to authenticate to gain authorization "
            "for action org.x for unix-process:1:2 [bash] (owned by unix-user:ann)",
            (3002, 7, 2),
            "ann",
            "ann",
        ),
    ],
)
@pytest.mark.parametrize("source", ["pam", "syslog"])
def test_programs(
    text: str,
    expected: tuple[int, int, int | None],
    user: str | None,
    actor: str | None,
    source: str,
) -> None:
    found = event(text, source)
    assert about(found) == expected
    assert (found["user_name"] or None) == user
    if actor:
        assert found["actor"]["user"]["name"] == actor


def test_what_a_job_runs_is_its_command_line() -> None:
    found = event("CRON[1]: (root) CMD (   cd / && run-parts --report /etc/cron.hourly)")
    assert found["job"]["cmd_line"] == "cd / && run-parts --report /etc/cron.hourly"


def test_a_session_names_who_opened_it() -> None:
    found = event("su: pam_unix(su:session): session opened for user root(uid=0) by ann(uid=7)")
    assert found["actor"]["user"] == {"name": "ann", "uid": "7"}
    assert found["user"] == {"name": "root", "uid": "0"}


def test_more_failures_are_counted() -> None:
    found = event(f"sshd[1]: PAM 5 more authentication failures; {AUTH}")
    assert json.loads(found["more"])["count"] == 5


@pytest.mark.parametrize(
    "name",
    [
        "a rhost=6.6.6.6  user=b",
        "root rhost=6.6.6.6",
        "x  user=root",
        "\x1b[0m",
        "=cmd|' /C calc'!A0",
    ],
)
def test_a_name_forges_no_host(name: str) -> None:
    plain = f"logname= uid=0 euid=0 tty=ssh ruser= rhost=10.0.0.5  user={name}"
    found = event(f"sshd[1]: pam_unix(sshd:auth): authentication failure; {plain}")
    assert (found["src_ip"], found["user_name"]) == ("10.0.0.5", name)
    both = f"logname= uid=0 euid=0 tty=ftp ruser={name} rhost=10.0.0.5  user={name}"
    found = event(f"vsftpd: pam_unix(vsftpd:auth): authentication failure; {both}")
    assert found.get("src_ip") in ("10.0.0.5", None)
    if found.get("src_ip") is None:
        assert json.loads(found["unmapped"])["ambiguous"] is True


def test_lines_of_sshd_and_sudo_are_read_as_their_sources_read_them() -> None:
    text = "sshd[1]: Accepted password for ann from 10.0.0.5 port 5 ssh2"
    assert about(event(text)) == (3002, 1, 1)
    text = "sudo: ann : TTY=pts/0 ; PWD=/ ; USER=root ; COMMAND=/bin/ls"
    assert about(event(text)) == (1007, 1, 1)


def test_no_line_of_a_real_log_is_a_dead_letter_and_all_fit() -> None:
    for framing in ("3164", "5424"):
        raws = [raw for raw in lines(f"syslog/syslog_rfc{framing}.log") if b"pam_" in raw]
        found = rows("pam", *raws)
        assert [one for one in found if one.get("dead_letter_reason")] == []
        assert [faults(one) + misfits(one) for one in found] == [[]] * len(found)
        assert found == rows("pam", *raws)


def test_long_hostile_lines_are_read_in_time() -> None:
    for text in ("rhost=1.1.1.1 ", "  user=", "ruser=", "session opened for user "):
        raw = f"sshd[1]: pam_unix(sshd:auth): authentication failure; logname= {text * 100_000}"
        assert event(raw)["class_uid"] == 0
        raw = f"sshd[1]: pam_unix(sshd:auth): authentication failure; logname= {text * 400}"
        assert event(raw)["message"].startswith("pam_unix")
