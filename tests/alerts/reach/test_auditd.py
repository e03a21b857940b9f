"""auditd's rules name records and fields as auditd writes them; one event has several records."""

from __future__ import annotations

from typing import Any

import pytest

from tests.alerts.raw_records import AUDIT, call, touched
from tests.alerts.reach.fired import fired

AUDITD = {"product": "linux", "service": "auditd"}
SETUID = call(
    59,
    "/usr/bin/chmod",
    f'type=EXECVE {AUDIT} argc=3 a0="chmod" a1="u+s" a2={b"/tmp/a b".hex().upper()}',
    f'type=CWD {AUDIT} cwd="/tmp"',
    f'type=PATH {AUDIT} item=0 name="/usr/bin/chmod" inode=1 mode=0100755 nametype=NORMAL',
    f"type=PROCTITLE {AUDIT} proctitle=63686D6F6400752B73",
)
CONNECTED = call(
    42, "/usr/bin/nc", f"type=SOCKADDR {AUDIT} saddr=02000050CB00710900000000000000000000"
)
LOADED = call(313, "/usr/bin/kmod", f'type=KERN_MODULE {AUDIT} name="odd"')


def program(kind: str, words: str) -> bytes:
    return f"type={kind} {AUDIT} pid=7 uid=0 auid=1000 ses=3 msg='{words}'".encode()


SUDO = program("USER_CMD", 'cwd="/home/ann" cmd=2F62696E2F6964 exe="/usr/bin/sudo" res=success')
SU = program("USER_AUTH", 'op=PAM:authentication acct="root" exe="/usr/bin/su" addr=? res=failed')
ADDED = program("ADD_USER", 'op=adding user id=1001 exe="/usr/sbin/useradd" res=success')
STOPPED = program("SERVICE_STOP", 'unit=auditd comm="systemd" exe="/usr/lib/systemd" res=success')
TYPED = f'type=TTY {AUDIT} tty pid=7 uid=0 auid=1000 major=136 comm="bash" data=6C730D'.encode()

CASES: list[tuple[bytes, dict[str, Any]]] = [
    (SETUID, {"type": "EXECVE", "a0": "chmod", "a1|contains": "+s", "a2": "/tmp/a b"}),
    (SETUID, {"type": "EXECVE", "a1": ["777", "u+s"]}),
    (SETUID, {"type": "CWD", "cwd": "/tmp"}),
    (SETUID, {"type": "PATH", "name": "/usr/bin/chmod", "nametype": "NORMAL"}),
    (SETUID, {"type": "PROCTITLE", "proctitle|contains": "u+s"}),
    (SETUID, {"type": "SYSCALL", "syscall": "execve", "exe|endswith": "/chmod", "success": "yes"}),
    (SETUID, {"type": "SYSCALL", "syscall": 59, "uid": 0, "auid": 1000, "ppid": 20, "pid": 21}),
    (SETUID, {"type": "SYSCALL", "SYSCALL": "execve", "comm": "x", "tty": "pts0", "ses": 3}),
    (touched("/etc/shadow", "/usr/bin/cat"), {"type": "PATH", "name|startswith": "/etc/sha"}),
    (touched("/etc/shadow", "/usr/bin/cat"), {"type": "SYSCALL", "exe": "/usr/bin/cat"}),
    (CONNECTED, {"type": "SOCKADDR", "saddr|startswith": "02000050"}),
    (CONNECTED, {"type": "SYSCALL", "syscall": "connect", "exe|endswith": "/nc"}),
    (LOADED, {"type": "KERN_MODULE", "name": "odd"}),
    (SUDO, {"type": "USER_CMD", "exe": "/usr/bin/sudo", "cmd": "/bin/id", "cwd": "/home/ann"}),
    (SU, {"type": "USER_AUTH", "exe": "/usr/bin/su", "acct": "root", "res": "failed"}),
    (ADDED, {"type": "ADD_USER", "exe|endswith": "/useradd", "id": 1001}),
    (STOPPED, {"type": "SERVICE_STOP", "unit": "auditd"}),
    (TYPED, {"type": "TTY", "data|contains": "ls"}),
]


@pytest.mark.parametrize(("raw", "detection"), CASES, ids=range(len(CASES)))
def test_a_record_of_an_event_is_asked_by_its_type(raw: bytes, detection: dict[str, Any]) -> None:
    assert fired(AUDITD, detection, "auditd", raw)


def test_a_record_that_is_not_there_is_not_matched() -> None:
    assert not fired(AUDITD, {"type": "EXECVE", "a0": "chmod"}, "auditd", CONNECTED)
    assert not fired(AUDITD, {"type": "SYSCALL", "ppid": 21}, "auditd", SETUID)
    assert not fired(AUDITD, {"type": "USER_CMD", "exe": "/bin/id"}, "auditd", SUDO)
