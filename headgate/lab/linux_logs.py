"""What Linux writes: sshd, sudo and others by syslog (RFC 5424), auditd's records, nginx.

Forms: OpenSSH 9.2, sudo 1.9 and nginx 1.22 of the recorded lab in samples; auditd of samples/linux.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from headgate.lab.day import Day, lab_instant
from headgate.lab.site import Server

_IDS = {"root": 0, "hal": 1000, "gita": 1004, "ella": 1005, "backup": 34, "deploy": 1010}


def syslog(day: Day, now: float, source: str, host: str, program: str, text: str) -> None:
    """One line as rsyslog hands it on."""
    priority = {"sshd": 86, "sudo": 85, "CRON": 78}.get(program, 30)
    written = lab_instant(now).isoformat(timespec="microseconds")
    process = "-" if program == "sudo" else str(day.number())
    day.log(source, now, f"<{priority}>1 {written} {host} {program} {process} - - {text}")


def ssh_failed(day: Day, now: float, host: str, user: str, ip: str, port: int) -> None:
    """A wrong password."""
    text = f"Failed password for {user} from {ip} port {port} ssh2"
    syslog(day, now, "sshd", host, "sshd", text)


def ssh_accepted(
    day: Day, now: float, host: str, user: str, ip: str, port: int, method: str = "publickey"
) -> None:
    """A login, and PAM's word of it."""
    key = hashlib.sha256(user.encode()).hexdigest()[:43]
    shown = f": ED25519 SHA256:{key}" if method == "publickey" else ""
    text = f"Accepted {method} for {user} from {ip} port {port} ssh2{shown}"
    syslog(day, now, "sshd", host, "sshd", text)
    opened = f"session opened for user {user}(uid={_IDS[user]}) by (uid=0)"
    syslog(day, now + 0.01, "sshd", host, "sshd", f"pam_unix(sshd:session): {opened}")


def ssh_closed(day: Day, now: float, host: str, user: str, ip: str, port: int) -> None:
    """A session ends."""
    text = f"Disconnected from user {user} {ip} port {port}"
    syslog(day, now, "sshd", host, "sshd", text)


def sudo(day: Day, now: float, host: str, user: str, command: str) -> None:
    """A command as root, allowed."""
    where = f"TTY=pts/0 ; PWD=/home/{user} ; USER=root"
    syslog(day, now, "sudo", host, "sudo", f"{user:>8} : {where} ; COMMAND={command}")


def sudo_wrong(day: Day, now: float, host: str, user: str, command: str) -> None:
    """A wrong password for sudo."""
    where = f"TTY=pts/0 ; PWD=/home/{user} ; USER=root"
    text = f"{user:>8} : 1 incorrect password attempt ; {where} ; COMMAND={command}"
    syslog(day, now, "sudo", host, "sudo", text)


def ran(
    day: Day, now: float, host: str, words: Sequence[str], exe: str = "", user: str = "root"
) -> None:
    """auditd's records of a program that started: `user` is the login's (auid); root runs it."""
    path = exe or f"/usr/bin/{words[0]}"
    arguments = " ".join(f"a{n}={_quoted(word)}" for n, word in enumerate(words))
    _records(
        day,
        now,
        host,
        59,
        path,
        user,
        f"EXECVE|argc={len(words)} {arguments}",
        _item(path, "NORMAL"),
    )


def wrote(day: Day, now: float, host: str, path: str, exe: str, user: str = "root") -> None:
    """auditd's records of a watched file that was opened for writing (flags 241: O_WRONLY...)."""
    _records(day, now, host, 257, exe, user, _item(path, "NORMAL"), flags="a1=55d a2=241 a3=1b6")


def renamed(day: Day, now: float, host: str, old: str, new: str, exe: str, user: str) -> None:
    """auditd's records of a file that took another's place, as programs write that fear a crash."""
    _records(
        day, now, host, 82, exe, user, _item(old, "DELETE"), _item(new, "CREATE", 1), flags="a1=55d"
    )


def page(
    day: Day, now: float, ip: str, uri: str, code: int = 200, agent: str = "Mozilla/5.0"
) -> None:
    """A line of the intranet's nginx."""
    when = f"{lab_instant(now):%d/%b/%Y:%H:%M:%S} +0000"
    size = day.dice.randrange(200, 40_000)
    day.log("nginx", now, f'{ip} - - [{when}] "GET {uri} HTTP/1.1" {code} {size} "-" "{agent}"')


def quiet_hours(day: Day, server: Server) -> None:
    """What a server does by itself: cron, timers, rotation of logs."""
    for hour in range(24):
        now = day.at(hour + 17 / 60)
        text = "(root) CMD (cd / && run-parts --report /etc/cron.hourly)"
        syslog(day, now, "syslog", server.name, "CRON", text)
        words = ("run-parts", "--report", "/etc/cron.hourly")
        ran(day, now + 0.1, server.name, words)
    for begun, unit in ((0.0, "logrotate.service - Rotate log files"),
                       (6.3, "apt-daily.service - Daily apt download activities"),
                       (6.7, "apt-daily-upgrade.service - Daily apt upgrade and clean activities"),
                       (11.5, "fwupd-refresh.service - Refresh fwupd metadata")):  # fmt: skip
        syslog(day, day.at(begun), "syslog", server.name, "systemd", f"Starting {unit}...")
        syslog(day, day.at(begun) + 4, "syslog", server.name, "systemd", f"Finished {unit}.")


def _quoted(word: str) -> str:
    """As auditd writes it: in hexadecimal where it holds a space or a quote."""
    plain = word.isascii() and not any(letter in word for letter in ' "') and word.isprintable()
    return f'"{word}"' if plain else word.encode().hex().upper()


def _item(path: str, kind: str, number: int = 0) -> str:
    return (
        f'PATH|item={number} name="{path}" inode={len(path) + 8191} dev=08:01 mode=0100644 '
        f"ouid=0 ogid=0 rdev=00:00 nametype={kind}"
    )


def _records(
    day: Day, now: float, host: str, call: int, exe: str, user: str, *more: str, flags: str = ""
) -> None:
    """One event: its system call, then `type|fields` of each further record."""
    head = f"msg=audit({now:.3f}:{day.number()}):"
    login = _IDS[user]
    name = exe.rpartition("/")[2][:15]
    call_fields = (
        f"SYSCALL|arch=c000003e syscall={call} success=yes exit=0 a0=ffffff9c "
        f"{flags or 'a1=55d a2=55e a3=8'} items=1 ppid={day.number()} pid={day.number()} "
        f"auid={login} uid=0 gid=0 euid=0 suid=0 fsuid=0 egid=0 sgid=0 fsgid=0 tty=pts0 ses=3 "
        f'comm="{name}" exe="{exe}" key=(null)'
    )
    for record in (call_fields, *more):
        kind, _, fields = record.partition("|")
        day.log("auditd", now, f"node={host} type={kind} {head} {fields}")
