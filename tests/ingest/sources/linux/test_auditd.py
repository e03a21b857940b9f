"""auditd: records joined to events, and what they become."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from ingest.parsing.source import Unreadable, lookup
from tests.ingest.conforms import faults, misfits
from tests.ingest.logs import good, lines, reason, row, rows

AT = "msg=audit(1600000000.123:99):"
SYSCALL = (
    f"type=SYSCALL {AT} arch=c000003e syscall={{}} success={{}} exit={{}} a0=0 a1=0 a2=0 a3=0 "
    'items=1 ppid=20 pid=21 auid=1000 uid=0 gid=0 euid=0 tty=pts0 ses=3 comm="x" exe="/bin/x" '
    'key="k"'
)
USER = (
    f"type={{}} {AT} pid=21 uid=0 auid=1000 ses=3 subj=unconfined msg='{{}} "
    'exe="{}" hostname={} addr={} terminal={} res={}\''
)


def event(*records: str) -> dict[str, Any]:
    """The one event of records, which fits silver.event and its class."""
    found = good("auditd", "\n".join(records))
    assert faults(found) == []
    assert misfits(found) == []
    return found


def about(found: dict[str, Any]) -> tuple[int, int, int | None]:
    return found["class_uid"], found["activity_id"], found.get("status_id")


def test_records_of_one_event_are_joined_across_records_and_time() -> None:
    raws = lines("linux/sh_arp_cache_2020-11-10074812.log")
    found = rows("auditd", *raws)
    assert [about(one) for one in found] == [(1007, 1, 1), (1007, 1, 1)]
    assert [len(one["record_ids"]) for one in found] == [6, 6]
    first = found[0]
    assert first["time"] == datetime(2020, 11, 10, 7, 48, 16, 155000, UTC)
    assert first["time_quality"] == "exact"
    assert first["process"] == {
        "pid": 1631,
        "name": "arp",
        "path": "/usr/sbin/arp",
        "cmd_line": "arp -a",
        "cwd": "/home/wardog",
        "session_uid": "104",
        "user": {"uid": "1000", "name": None},
        "parent": {"pid": 29002},
    }
    assert first["actor"]["user"]["uid"] == "1000"
    assert first["correlation_uid"] == ":1604994496.155:92733"
    assert found[1]["process"]["cmd_line"] == "grep -v ^?"
    assert [faults(one) + misfits(one) for one in found] == [[], []]
    assert rows("auditd", *raws) == found


def test_a_whole_file_in_one_record_gives_the_same_events() -> None:
    raws = lines("linux/sh_arp_cache_2020-11-10074812.log")
    apart, whole = rows("auditd", *raws), rows("auditd", b"\n".join([*raws, b"----", b""]))
    for one, other in zip(apart, whole, strict=True):
        assert one["process"] == other["process"]
        assert one["unmapped"] == other["unmapped"]


@pytest.mark.parametrize("at", range(6))
def test_a_record_alone_is_an_event_that_can_be_put_together(at: int) -> None:
    found = good("auditd", lines("linux/sh_arp_cache_2020-11-10074812.log")[at])
    assert found["correlation_uid"] == ":1604994496.155:92733"
    assert faults(found) == []
    assert found["class_uid"] == (1007, 1007, 0, 1001, 1001, 0)[at]


@pytest.mark.parametrize(
    ("number", "paths", "expected", "path"),
    [
        ("2", ["/etc/shadow NORMAL"], (1001, 14), "/etc/shadow"),
        ("257", ["/tmp PARENT", "new CREATE"], (1001, 1), "/home/a/new"),
        ("87", ["/tmp PARENT", "/tmp/x DELETE"], (1001, 4), "/tmp/x"),
        ("263", ["/tmp PARENT", "../x DELETE"], (1001, 4), "/home/x"),
        ("82", ["/tmp PARENT", "a DELETE", "b CREATE"], (1001, 5), "/home/a/a"),
        ("90", ["/etc/passwd NORMAL"], (1001, 7), "/etc/passwd"),
        ("92", ["/etc/passwd NORMAL"], (1001, 7), "/etc/passwd"),
        ("83", ["/t PARENT", "/t/d CREATE"], (1001, 1), "/t/d"),
        ("165", ["/mnt NORMAL"], (1001, 12), "/mnt"),
    ],
)
def test_calls_on_files(
    number: str, paths: list[str], expected: tuple[int, int], path: str
) -> None:
    named = [
        f'type=PATH {AT} item={at} name="{one.split()[0]}" mode=0100644 ouid=0 '
        f"nametype={one.split()[1]}"
        for at, one in enumerate(paths)
    ]
    found = event(SYSCALL.format(number, "yes", 0), f'type=CWD {AT} cwd="/home/a"', *named)
    assert about(found) == (*expected, 1)
    assert found["file"]["path"] == path
    assert found["actor"]["process"]["path"] == "/bin/x"
    if expected[1] == 5:
        assert json.loads(found["more"])["file_result"]["path"] == "/home/a/b"
    assert len(json.loads(found["unmapped"])["PATH"]) == len(paths)


def test_a_refused_open_is_a_failure_with_its_error() -> None:
    path = f'type=PATH {AT} item=0 name="/etc/shadow" nametype=NORMAL'
    found = event(SYSCALL.format(2, "no", -13), path)
    assert about(found) == (1001, 14, 2)
    assert (found["status_code"], found["status_detail"]) == ("EACCES", "Permission denied")
    assert json.loads(found["unmapped"])["key"] == "k"


@pytest.mark.parametrize(
    ("number", "saddr", "activity", "end", "ip", "port"),
    [
        ("42", "020001BB0A0000050000000000000000", 1, "dst_endpoint", "10.0.0.5", 443),
        (
            "42",
            "0A0000160000000020010DB8000000000000000000000001" + "0" * 8,
            1,
            "dst_endpoint",
            "2001:db8::1",
            22,
        ),
        (
            "42",
            "0A00005000000000" + "0" * 20 + "FFFF01020304" + "0" * 8,
            1,
            "dst_endpoint",
            "1.2.3.4",
            80,
        ),
        ("288", "0200C35001020304" + "0" * 16, 1, "src_endpoint", "1.2.3.4", 50000),
        ("49", "02001F9000000000" + "0" * 16, 7, "src_endpoint", "0.0.0.0", 8080),
    ],
)
def test_calls_on_sockets(
    number: str, saddr: str, activity: int, end: str, ip: str, port: int
) -> None:
    found = event(SYSCALL.format(number, "yes", 0), f"type=SOCKADDR {AT} saddr={saddr}")
    assert about(found) == (4001, activity, 1)
    assert (found[end]["ip"], found[end]["port"]) == (ip, port)


@pytest.mark.parametrize(
    ("number", "expected"),
    [
        ("105", (1007, 5)),
        ("231", (1007, 2)),
        ("56", (1007, 1)),
        ("101", (1007, 99)),
        ("62", (1007, 99)),
        ("313", (1002, 1)),
        ("176", (1002, 2)),
        ("321", (1003, 4)),
        ("99999", (1003, 4)),
    ],
)
def test_other_calls(number: str, expected: tuple[int, int]) -> None:
    assert about(event(SYSCALL.format(number, "yes", 0))) == (*expected, 1)


def test_calls_are_named_by_architecture() -> None:
    record = SYSCALL.format(11, "yes", 0)
    assert event(record.replace("c000003e", "40000003"))["class_uid"] == 1007
    assert json.loads(event(record)["unmapped"])["syscall"] == "munmap"
    arm = event(record.replace("c000003e", "c00000b7").replace("=11 ", "=221 "))
    assert json.loads(arm["unmapped"])["arch"] == "aarch64"
    assert arm["class_uid"] == 1007


def test_arguments_in_hexadecimal_and_in_pieces_are_put_together() -> None:
    found = event(
        SYSCALL.format(59, "yes", 0),
        f'type=EXECVE {AT} argc=4 a0="bash" a1="-c" a2=6563686F206869 a3_len=8 a3[0]="ab"',
        f'type=EXECVE {AT} a3[1]="cd"',
        f"type=PROCTITLE {AT} proctitle=62617368002D6300",
    )
    assert found["process"]["cmd_line"] == "bash -c echo hi abcd"
    assert json.loads(found["unmapped"])["arguments"] == ["bash", "-c", "echo hi", "abcd"]


def test_a_program_that_could_not_start_is_the_one_that_was_tried() -> None:
    path = f'type=PATH {AT} item=0 name="/no/such" nametype=UNKNOWN'
    found = event(SYSCALL.format(59, "no", -2), path)
    assert about(found) == (1007, 1, 2)
    assert found["process"]["path"] == "/no/such"
    assert json.loads(found["unmapped"])["exe"] == "/bin/x"


@pytest.mark.parametrize(
    ("kind", "inner", "exe", "expected", "user"),
    [
        ("USER_LOGIN", "op=login id=1000", "/usr/sbin/sshd", (3002, 1, 1), "1000"),
        ("USER_LOGIN", 'op=login acct="ann"', "/usr/sbin/sshd", (3002, 1, 1), "ann"),
        ("USER_AUTH", 'op=PAM:authentication acct="ann"', "/usr/sbin/sshd", (3002, 1, 1), "ann"),
        ("USER_AUTH", "op=PAM:authentication acct=616E6E", "/usr/sbin/sshd", (3002, 1, 1), "ann"),
        ("USER_START", 'op=PAM:session_open acct="root"', "/usr/bin/sudo", (3002, 7, 1), "root"),
        ("USER_END", 'op=PAM:session_close acct="root"', "/usr/bin/su", (3002, 2, 1), "root"),
        ("USER_ACCT", 'op=PAM:accounting acct="ann"', "/usr/sbin/sshd", (3002, 99, 1), "ann"),
        ("CRED_ACQ", 'op=PAM:setcred acct="ann"', "/usr/sbin/sshd", (3002, 99, 1), "ann"),
        ("ADD_USER", 'op=add-user acct="ann"', "/usr/sbin/useradd", (3001, 1, 1), "ann"),
        ("DEL_USER", "op=delete-user id=1000", "/usr/sbin/userdel", (3001, 6, 1), "1000"),
        ("USER_CHAUTHTOK", 'op=PAM:chauthtok acct="ann"', "/usr/bin/passwd", (3001, 3, 1), "ann"),
        ("ACCT_LOCK", 'op=locked-password acct="ann"', "/usr/sbin/usermod", (3001, 9, 1), "ann"),
        (
            "USER_MGMT",
            'op=add-user-to-group grp="wheel" acct="ann"',
            "/usr/sbin/usermod",
            (3006, 3, 1),
            "ann",
        ),
    ],
)
def test_what_programs_report(
    kind: str, inner: str, exe: str, expected: tuple[int, int, int], user: str
) -> None:
    found = event(USER.format(kind, inner, exe, "?", "10.0.0.5", "ssh", "success"))
    assert about(found) == expected
    assert user in (found["user"]["name"], found["user"]["uid"])
    assert found["actor"]["user"]["uid"] == "1000"
    assert found["actor"]["process"]["path"] == exe
    if expected[0] != 3006:
        assert found["src_ip"] == "10.0.0.5"
    failed = event(USER.format(kind, inner, exe, "?", "10.0.0.5", "ssh", "failed"))
    assert failed["status_id"] == 2


@pytest.mark.parametrize(
    ("record", "expected"),
    [
        (
            f"type=ADD_GROUP {AT} pid=1 uid=0 auid=0 ses=1 msg='op=add-group id=1000 "
            'exe="/usr/sbin/groupadd" hostname=? addr=? terminal=? res=success\'',
            (3006, 6, 1),
        ),
        (
            f"type=SERVICE_START {AT} pid=1 uid=0 auid=4294967295 ses=4294967295 msg='unit=sshd "
            'comm="systemd" exe="/usr/lib/systemd/systemd" hostname=? addr=? terminal=? '
            "res=success'",
            (6002, 3, 1),
        ),
        (f"type=SERVICE_STOP {AT} pid=1 uid=0 msg='unit=x res=failed'", (6002, 4, 2)),
        (f"type=CONFIG_CHANGE {AT} audit_enabled=0 old=1 auid=0 ses=1 res=1", (1008, 10, 1)),
        (
            f"type=DAEMON_END {AT} auditd normal halt, sending auid=? pid=? subj=? res=success",
            (1008, 7, 1),
        ),
        (f"type=NETFILTER_CFG {AT} table=filter family=2 entries=4", (5019, 1, None)),
        (
            f"type=ANOM_PROMISCUOUS {AT} dev=eth0 prom=256 old_prom=0 auid=1 uid=0 gid=0 ses=1",
            (2004, 1, None),
        ),
        (f'type=ANOM_ABEND {AT} auid=1 uid=1 gid=1 ses=1 pid=9 comm="x" sig=11', (1007, 2, None)),
        (
            f'type=SECCOMP {AT} auid=1 uid=1 gid=1 ses=2 pid=12 comm="c" exe="/c" sig=31 '
            "arch=c000003e syscall=59 compat=0 ip=0x7f code=0x0",
            (1007, 99, None),
        ),
        (
            f'type=TTY {AT} tty pid=1 uid=0 auid=1 ses=1 major=136 minor=0 comm="bash" data=6C730D',
            (1007, 99, None),
        ),
        (f"type=KERN_MODULE {AT} name=rootkit", (1002, 1, None)),
        (f"type=BPF {AT} prog-id=12 op=LOAD", (1003, 1, None)),
        (
            f"type=LOGIN {AT} pid=1 uid=0 old-auid=4294967295 auid=1000 old-ses=4294967295 ses=2 "
            "res=1",
            (3002, 99, 1),
        ),
        (
            f"type=LOGIN {AT} pid=1 uid=0 old auid=4294967295 new auid=1000 old ses=1 new ses=2",
            (3002, 99, None),
        ),
        (
            f'type=ROLE_ASSIGN {AT} pid=1 uid=0 auid=0 msg=\'op=login-sename acct="ann" '
            'new-role=staff_r exe="/usr/sbin/semanage" res=success\'',
            (3005, 1, 1),
        ),
        (
            f'type=SYSTEM_BOOT {AT} pid=7 uid=0 msg=\' comm="systemd-update-utmp" '
            'exe="/usr/lib/x" hostname=? addr=? terminal=? res=success\'',
            (6002, 3, 1),
        ),
        (f"type=MAC_STATUS {AT} enforcing=0 old_enforcing=1 auid=0 ses=1", (5019, 1, None)),
        (f"type=BPRM_FCAPS {AT} fver=0 fp=0", (0, 0, None)),
        (f"type=NEVER_HEARD_OF {AT} a=1", (0, 0, None)),
        (
            f"type=SOCKADDR {AT} saddr=0100SADDR={{ saddr_fam=local sockaddr len too short }}",
            (0, 0, None),
        ),
        (
            f"type=SOCKADDR {AT} saddr=ZZSADDR={{ saddr_fam=inet laddr=10.0.0.5 lport=22 }}",
            (4001, 0, None),
        ),
    ],
)
def test_records_of_other_types(record: str, expected: tuple[int, int, int | None]) -> None:
    assert about(event(record)) == expected


def test_a_command_of_sudo() -> None:
    record = (
        f'type=USER_CMD {AT} pid=5 uid=1000 auid=1000 ses=2 msg=\'cwd="/home/u" '
        'cmd=636174202F6574632F736861646F77 exe="/usr/bin/sudo" terminal=pts/0 '
        'res=success\'\x1dUID="bob" AUID="bob"'
    )
    found = event(record)
    assert about(found) == (1007, 1, 1)
    assert found["process"]["cmd_line"] == "cat /etc/shadow"
    assert found["process"]["cwd"] == "/home/u"
    assert found["actor"]["user"] == {"uid": "1000", "name": "bob"}
    assert event(record.replace("\x1d", ""))["actor"]["user"]["name"] == "bob"


@pytest.mark.parametrize(
    ("record", "expected", "action"),
    [
        (
            f'type=AVC {AT} avc:  denied  {{ getattr }} for  pid=20 comm="httpd" '
            'path="/var/www/f" dev=dm-0 ino=3 scontext=a tcontext=b tclass=file',
            (1001, 8, 2),
            2,
        ),
        (
            f'type=AVC {AT} avc:  denied  {{ name_connect }} for  pid=9 comm="httpd" dest=3306 '
            "scontext=a tcontext=b tclass=tcp_socket permissive=1",
            (4001, 6, 1),
            1,
        ),
        (
            f'type=AVC {AT} apparmor="DENIED" operation="open" profile="/usr/sbin/cupsd" '
            'name="/etc/shadow" pid=12 comm="cupsd" requested_mask="r" denied_mask="r" fsuid=0',
            (1001, 14, 2),
            2,
        ),
        (
            f'type=AVC {AT} apparmor="ALLOWED" operation="exec" profile="p" name="/bin/sh" pid=1 '
            'comm="c"',
            (1001, 0, 1),
            1,
        ),
        (
            f"type=USER_AVC {AT} pid=1 uid=81 auid=4294967295 ses=4294967295 msg='avc:  denied  "
            "{ send_msg } for msgtype=method_call interface=org.x dest=:1.2 scontext=a tcontext=b "
            'tclass=dbus permissive=0  exe="/usr/bin/dbus-daemon" hostname=? addr=? terminal=?\'',
            (1007, 99, 2),
            2,
        ),
    ],
)
def test_what_security_modules_decided(
    record: str, expected: tuple[int, int, int], action: int
) -> None:
    found = event(record)
    assert about(found) == expected
    assert found["action_id"] == action


def test_a_refusal_beside_its_call_is_the_calls() -> None:
    avc = f'type=AVC {AT} avc:  denied  {{ read }} for  pid=20 comm="x" name="s" tclass=file'
    path = f'type=PATH {AT} item=0 name="/etc/shadow" nametype=NORMAL'
    found = event(avc, SYSCALL.format(2, "no", -13), path)
    assert about(found) == (1001, 14, 2)
    assert (found["action_id"], found["disposition_id"]) == (2, 2)
    assert json.loads(found["unmapped"])["AVC"]["seresult"] == "denied"


@pytest.mark.parametrize(
    "raw",
    [
        "Nov 21 10:00:00 web1 kernel: [ 12.3] audit: type=1112 audit(1600000000.5:7): pid=1 "
        'uid=0 auid=1 ses=1 msg=\'op=login acct="ann" exe="/usr/sbin/sshd" hostname=? '
        "addr=10.0.0.5 terminal=ssh res=failed'",
        "<14>Nov 21 10:00:00 web1 audispd: node=web1 type=USER_LOGIN msg=audit(1600000000.5:7): "
        'pid=1 uid=0 auid=1 ses=1 msg=\'op=login acct="ann" exe="/usr/sbin/sshd" hostname=? '
        "addr=10.0.0.5 terminal=ssh res=failed'",
        "<14>1 2020-09-13T12:26:40.5Z web1 audisp-syslog 7 - - type=USER_LOGIN "
        'msg=audit(1600000000.5:7): pid=1 uid=0 auid=1 ses=1 msg=\'op=login acct="ann" '
        'exe="/usr/sbin/sshd" hostname=? addr=10.0.0.5 terminal=ssh res=failed\'',
        "2020-09-13T12:26:40.5Z web1 audit[1]: USER_LOGIN pid=1 uid=0 auid=1 ses=1 "
        'msg=\'op=login acct="ann" exe="/usr/sbin/sshd" hostname=? addr=10.0.0.5 '
        "terminal=ssh res=failed'",
    ],
)
@pytest.mark.parametrize("source", ["auditd", "syslog"])
def test_records_through_syslog(raw: str, source: str) -> None:
    found = good(source, raw)
    assert faults(found) == []
    assert about(found) == (3002, 1, 2)
    assert (found["src_ip"], found["user_name"], found["host_name"]) == ("10.0.0.5", "ann", "web1")
    assert found["time"] == datetime(2020, 9, 13, 12, 26, 40, 500000, UTC)


def test_records_through_syslog_are_joined() -> None:
    records = [
        "<14>Nov 21 10:00:00 web1 audispd: " + SYSCALL.format(59, "yes", 0),
        f'<14>Nov 21 10:00:00 web1 audispd: type=EXECVE {AT} argc=2 a0="ls" a1="-l"',
        "<14>Nov 21 10:00:00 web2 audispd: " + SYSCALL.format(59, "yes", 0),
    ]
    for source in ("auditd", "syslog"):
        found = rows(source, *(one.encode() for one in records))
        assert [len(one["record_ids"]) for one in found] == [2, 1]
        assert found[0]["process"]["cmd_line"] == "ls -l"


def test_what_ausearch_prints_is_read() -> None:
    at = "msg=audit(09/13/2020 14:26:40.123:99) :"
    found = good(
        "auditd",
        f"----\ntype=PROCTITLE {at} proctitle=cat /etc/passwd -n \n"
        f"type=SYSCALL {at} arch=x86_64 syscall=execve success=no exit=EACCES(Permission denied) "
        "a0=0x1 ppid=2 pid=3 auid=bob uid=root gid=root tty=pts0 ses=1 comm=cat exe=/usr/bin/cat "
        "key=(null)",
        tz="Europe/Berlin",
    )
    assert found["time"] == datetime(2020, 9, 13, 12, 26, 40, 123000, UTC)
    assert found["actor"]["user"]["name"] == "bob"
    assert found["status_code"] == "EACCES"
    assert found["process"]["cmd_line"] == "cat /etc/passwd -n"


def test_a_title_of_auoms_cannot_forge_a_field() -> None:
    raw = (
        "<13>Nov 21 10:00:00 h auoms: type=AUOMS_EXECVE audit(1600000000.5:7): "
        "arch=x86_64 syscall=execve success=yes exit=0 pid=3 uid=1000 user=ann "
        'exe="/bin/sh" proctitle=sh -c uid=0 user=root redactors= pid=9 redactors= containerid='
    )
    found = good("syslog", raw)
    assert found["process"]["user"] == {"uid": "1000", "name": "ann"}
    assert found["process"]["cmd_line"] == "sh -c uid=0 user=root redactors= pid=9"


@pytest.mark.parametrize(
    "name",
    [
        'x" exe="/bin/evil',
        "x' addr=6.6.6.6 res=success'",
        "x addr=6.6.6.6 res=success",
        'x\x1dUID="root"',
        "x\ntype=USER_LOGIN msg=audit(1.1:1): res=success",
    ],
)
def test_a_name_in_hexadecimal_cannot_forge_a_field(name: str) -> None:
    inner = f"op=login acct={name.encode().hex().upper()}"
    found = event(
        USER.format("USER_LOGIN", inner, "/usr/sbin/sshd", "?", "10.0.0.5", "s", "failed")
    )
    assert (found["src_ip"], found["user_name"], found["status_id"]) == ("10.0.0.5", name, 2)
    assert found["actor"]["process"]["path"] == "/usr/sbin/sshd"


def test_a_field_that_stands_twice_is_the_first() -> None:
    inner = 'op=login acct="ann" addr=10.0.0.5'
    found = event(USER.format("USER_LOGIN", inner, "/x", "?", "6.6.6.6", "s", "failed"))
    assert found["src_ip"] == "10.0.0.5"
    assert json.loads(found["unmapped"])["addr'"] == "6.6.6.6"


@pytest.mark.parametrize(
    ("raw", "why"),
    [
        (b"", "the record is empty"),
        (b"type=UNKNOWN[1329] msg=g", "no 'msg=audit(time:serial):' in the line"),
        (b"what is this", "no 'msg=audit(time:serial):' in the line, but 'what is this'"),
        (b"type=PATH msg=audit(1.1:1): name=\xff", "not valid UTF-8 at byte 33"),
        (b"type=PATH msg=audit(1.1:1): name=\x00", "a NUL at byte 33"),
    ],
)
def test_what_is_no_record_is_refused(raw: bytes, why: str) -> None:
    assert why in reason("auditd", raw)


def test_one_bad_line_costs_only_itself() -> None:
    found = rows("auditd", b"\n".join([SYSCALL.format(59, "yes", 0).encode(), b"junk"]))
    assert [one.get("dead_letter_reason") is None for one in found] == [True, False]


def test_long_hostile_records_are_read_in_time() -> None:
    for text in ('a="', "a={", "x=1 ", "op=y z ", "msg='", "(a=", "avc: denied "):
        raw = f"type=USER_LOGIN {AT} {text * 200_000}".encode()
        assert row("auditd", raw)["source"] == "auditd"


def test_time_and_record_are_rewritten() -> None:
    when = datetime(2031, 7, 9, 5, 4, 3, 210987, UTC)
    raw = SYSCALL.format(59, "yes", 0).encode()
    moved = lookup("auditd").restamp(raw, when, ZoneInfo("UTC"))
    assert moved == raw.replace(b"1600000000.123", b"1941339843.210")
    assert good("auditd", moved)["time"] == when.replace(microsecond=210000)
    with pytest.raises(Unreadable, match="no 'audit"):
        lookup("auditd").restamp(b"x", when, ZoneInfo("UTC"))


def test_nothing_of_a_record_is_dropped() -> None:
    record = SYSCALL.format(59, "yes", 0)
    found = event(record)
    kept = json.dumps({k: v for k, v in found.items() if k != "time"}, default=str)
    for field in record.split(" ")[3:]:
        value = field.partition("=")[2].strip('"')
        assert value in kept or value in ("c000003e", "yes"), field
