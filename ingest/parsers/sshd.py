"""OpenSSH's sshd, as it writes to syslog.

User names come from whoever knocks and may hold anything, such as
`a from 6.6.6.6`. So a pattern finds the address from the very end of the line,
and what may follow it is bounded, or a long name could cost quadratic time.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from ingest.ocsf import (
    A_USER,
    AN_IP,
    AUTHENTICATION,
    FAILURE,
    INFORMATIONAL,
    LOW,
    SUCCESS,
    address,
    device,
    event,
    kept,
    metadata,
    observables,
    unmapped,
)
from ingest.source import Context, Event
from ingest.syslog import Line, SyslogSource

PRODUCT: Mapping[str, str] = {"name": "OpenSSH", "vendor_name": "OpenBSD"}
LOGON, LOGOFF, PREAUTH = 1, 2, 6
NETWORK_LOGON = 3

_PEER = r"(?P<peer>\S+) port (?P<port>\d{1,5})"
_KEY = r"(?:: (?P<key>\S+ \S+(?: ID \S+ \(serial \d+\) CA \S+ \S+)?))?"
_TRY = r"(?P<method>\S+) for (?P<invalid>invalid user )?(?P<user>.*) from "
PATTERNS = (
    (LOGON, SUCCESS, re.compile(rf"Accepted {_TRY}{_PEER}(?: (?P<protocol>ssh\d?))?{_KEY}")),
    (
        LOGON,
        FAILURE,
        re.compile(rf"Failed {_TRY}{_PEER}(?: (?P<protocol>ssh\d?))?{_KEY}(?: \[preauth\])?"),
    ),
    (PREAUTH, FAILURE, re.compile(rf"(?P<invalid>Invalid user) (?P<user>.*) from {_PEER}")),
    (LOGOFF, SUCCESS, re.compile(rf"Disconnected from user (?P<user>.*) {_PEER}")),
    (
        PREAUTH,
        FAILURE,
        re.compile(
            r"(?P<detail>Disconnected from|Connection (?:closed|reset) by) "
            rf"(?:(?P<invalid>invalid)|authenticating) user (?P<user>.*) {_PEER}"
            r"(?:: .{1,200})? \[preauth\]"
        ),
    ),
    (
        PREAUTH,
        FAILURE,
        re.compile(
            r"error: (?P<detail>maximum authentication attempts exceeded) for "
            rf"(?P<invalid>invalid user )?(?P<user>.*) from {_PEER}"
            r"(?: (?P<protocol>ssh\d?))?(?: \[preauth\])?"
        ),
    ),
    (
        PREAUTH,
        FAILURE,
        re.compile(
            r"User (?P<user>.*) from (?P<peer>\S+) "
            r"(?P<detail>not allowed because .{1,200})"
        ),
    ),
)
"""A logon is `Accepted` or `Failed`; what sshd says around it is preauth, so that one
attempt counts once."""


def read(line: Line, context: Context) -> Event | None:
    """A logon, a logoff or what preceded one; None for what else sshd says."""
    for activity, status, pattern in PATTERNS:
        match = pattern.fullmatch(line.text)
        if match:
            return _event(activity, status, match.groupdict(), line)
    return None


def _event(activity: int, status: int, part: dict[str, str | None], line: Line) -> Event | None:
    peer, port = part["peer"] or "", int(part.get("port") or 0)
    if port > 65535:
        return None
    ip = address(peer)
    hostname = None if ip or peer == "UNKNOWN" else peer
    user = part["user"] or None
    invalid = "invalid user" if part.get("invalid") else None
    failed = status == FAILURE
    return event(
        AUTHENTICATION,
        activity,
        line.stamp,
        status_id=status,
        severity_id=LOW if failed and activity == LOGON else INFORMATIONAL,
        status_detail=part.get("detail") or invalid,
        message=line.text,
        metadata=metadata(PRODUCT, line.stamp, log_provider=line.program),
        src_endpoint={"ip": ip, "hostname": hostname, "port": port or None},
        dst_endpoint={"hostname": line.host} if line.host else None,
        user={"name": user} if user else None,
        actor={"process": {"name": line.program, "pid": line.pid}} if line.pid else None,
        device=device(line.host),
        auth_method=part.get("method"),
        logon_type_id=NETWORK_LOGON,
        is_remote=True,
        service={"name": "sshd"},
        observables=observables(("src_endpoint.ip", AN_IP, ip), ("user.name", A_USER, user)),
        unmapped=unmapped(
            line.rest
            | kept(
                invalid_user=True if invalid else None,
                protocol=part.get("protocol"),
                key=part.get("key"),
            )
        ),
    )


SOURCES = (
    SyslogSource(
        # Since OpenSSH 9.8 the part that authenticates is a program of its own.
        name="sshd",
        programs=frozenset({"sshd", "sshd-session", "sshd-auth"}),
        product=PRODUCT,
        reader=read,
    ),
)
