"""A line as a program of a host writes it, made of the fields or words that a rule asks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from alerts.reach.example_values import KEYWORDS
from alerts.rulepack.log_source import LogSource
from ingest.parsing.ocsf import address

_TEXT = frozenset({KEYWORDS, "message", "Message", "msg"})
_SUDO = ("TTY", "PWD", "USER", "COMMAND")


def daemon_line(source: LogSource, values: Mapping[str, str]) -> tuple[str, bytes] | None:
    """The source that reads it and the line; None where the log source is no program's."""
    if any("sshd" in where.get("service.name", ()) for where in source.where):
        return "sshd", f"Mar  5 12:00:00 host sshd[1]: {_of_sshd(values)}".encode()
    programs = {text for where in source.where for text in where.get("metadata.product.name", ())}
    if "sudo" in programs:
        return "syslog", f"<86>Mar  5 12:00:00 host sudo[9]: {_of_sudo(values)}".encode()
    if not values or not _TEXT.issuperset(values):
        return None
    text = " ".join(values.values())
    for program, written in _PROGRAMS.items():
        if program in programs:
            return written(text)
    if "syslog" in source.sources and not programs:
        program = next(iter(next(iter(source.where), {}).get("metadata.log_provider", ())), "app")
        return "syslog", f"<14>Mar  5 12:00:00 host {program}[7]: {text}".encode()
    return next((written(text) for name, written in _LOGS.items() if name in source.sources), None)


def _of_sshd(values: Mapping[str, str]) -> str:
    user = values.get("User") or values.get("user_name")
    ip = values.get("SourceIP") or values.get("client_ip")
    if user or ip:
        # Of a rule that asks whether there is any address, the value is no address.
        shown = address(ip or "") or "203.0.113.9"
        return f"Failed password for {user or 'ann'} from {shown} port 50000 ssh2"
    return values.get(KEYWORDS) or values.get("Message") or "x"


def _of_sudo(values: Mapping[str, str]) -> str:
    usual = {"TTY": "pts/0", "PWD": "/home/ann", "USER": "root", "COMMAND": "/usr/bin/id"}
    command = values.get("CommandLine") or values.get("Image") or values.get(KEYWORDS)
    logged = usual | ({"COMMAND": command} if command else {}) | dict(values)
    fields = " ; ".join(f"{name}={logged[name]}" for name in _SUDO)
    return f"{values.get('User') or 'ann'} : {fields}"


Written = Callable[[str], tuple[str, bytes]]

_PROGRAMS: Mapping[str, Written] = MappingProxyType(
    {
        "cron": lambda text: (
            "syslog",
            f"<78>Mar  5 12:00:00 host crontab[7]: (root) {text} (root)".encode(),
        ),
        "vsftpd": lambda text: (
            "vsftpd",
            f"Wed Mar  5 12:00:00 2025 [pid 7] OOPS: {text}".encode(),
        ),
    }
)
"""By the program that a log source is of."""
_LOGS: Mapping[str, Written] = MappingProxyType(
    {
        "apache_error": lambda text: (
            "apache_error",
            f"[Wed Mar 05 12:00:00.123456 2025] [core:notice] [pid 7] AH00052: {text}".encode(),
        ),
        "nginx_error": lambda text: (
            "nginx_error",
            f"2025/03/05 12:00:00 [alert] 7#7: worker process 8 {text}".encode(),
        ),
        "mysql": lambda text: (
            "mysql",
            f"2025-03-05T12:00:00.123456Z\t    7 Query\t{text}".encode(),
        ),
    }
)
"""By the parser that reads the log."""
