"""Dropbear's SSH server, through syslog or as it writes to standard error with `-E`.

Messages are those of its source (https://github.com/mkj/dropbear, src/svr-*.c), from 0.50 to
2025. A user's name stands in quotes that a name may hold too, so a pattern finds the address
from the end of the line. OpenWrt, routers and cameras put it into syslog of either framing.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from ingest.parsing.ocsf import (
    AUTHENTICATION,
    BASE,
    FAILURE,
    INFORMATIONAL,
    SSH,
    SUCCESS,
    UNKNOWN,
    kept,
)
from ingest.parsing.source import Context, Event
from ingest.parsing.syslog import Line
from ingest.sources.shared.daemon_source import Daemon, daemon_event, endpoint
from ingest.sources.shared.daemon_timestamps import YEARLESS

_PRODUCT: Mapping[str, str] = {"name": "Dropbear SSH", "vendor_name": "Matt Johnston"}
_LOGON, _LOGOFF, _PREAUTH = 1, 2, 6
_OPEN, _CLOSE = 1, 2
_NETWORK_LOGON = 3

_PEER = r"(?P<peer>\S+?):(?P<port>\d{1,5})"
_FROM = rf" from {_PEER}"
_USER = r"'(?P<user>.*)'"
# The fingerprint changed with the versions: md5, sha1!! and SHA256.
_KEY = r"(?:(?P<kind>\S{1,64}) )?key (?P<key>(?:(?:md5|sha1!!|SHA256:) ?)?\S{1,200})"

_PATTERNS: tuple[tuple[int, int, str, re.Pattern[str]], ...] = tuple(
    (activity, status, method, re.compile(pattern, re.ASCII))
    for activity, status, method, pattern in (
        (_LOGON, SUCCESS, "password", rf"[Pp]assword auth succeeded for {_USER}{_FROM}"),
        (_LOGON, SUCCESS, "pam", rf"PAM password auth succeeded for {_USER}{_FROM}"),
        (_LOGON, SUCCESS, "none", rf"Auth succeeded with blank password for {_USER}{_FROM}"),
        (
            _LOGON,
            SUCCESS,
            "publickey",
            rf"[Pp]ubkey auth succeeded for {_USER} with {_KEY}{_FROM}",
        ),
        (_LOGON, FAILURE, "password", rf"[Bb]ad password attempt for {_USER}{_FROM}"),
        (_LOGON, FAILURE, "pam", rf"[Bb]ad PAM password attempt for {_USER}{_FROM}"),
        (
            _LOGON,
            FAILURE,
            "publickey",
            rf"[Pp]ubkey auth (?P<detail>bad signature) for {_USER} with {_KEY}{_FROM}",
        ),
        (
            _LOGON,
            FAILURE,
            "",
            rf"[Ll]ogin attempt (?P<detail>for nonexistent user)(?: {_USER})?{_FROM}",
        ),
        (
            _LOGON,
            FAILURE,
            "",
            rf"[Ll]ogin attempt (?P<detail>with wrong user) (?P<user>.*){_FROM}",
        ),
        (_LOGON, FAILURE, "", rf"[Uu]ser {_USER} (?P<detail>has [a-z ]{{1,40}}, rejected)"),
        (_LOGON, FAILURE, "", rf"[Uu]ser {_USER} (?P<detail>not in [a-z ]{{1,60}})"),
        (_LOGON, FAILURE, "", rf"[Uu]ser account {_USER} (?P<detail>is locked)"),
        (_LOGON, FAILURE, "", r"(?P<user>root) (?P<detail>login rejected)"),
        (
            _PREAUTH,
            FAILURE,
            "",
            rf"[Ee]xit before auth from <{_PEER}>: "
            rf"\(user {_USER}, (?P<fails>\d{{1,6}}) fails\): (?P<detail>.{{1,200}})",
        ),
        (
            _PREAUTH,
            FAILURE,
            "",
            r"[Ee]xit before auth \(user '(?P<user>.*)', (?P<fails>\d{1,6}) fails\): "
            rf"(?P<detail>Max auth tries reached) - user '(?P<again>.*)'{_FROM}",
        ),
        (
            _PREAUTH,
            FAILURE,
            "",
            rf"[Ee]xit before auth \(user {_USER}, (?P<fails>\d{{1,6}}) fails\): "
            r"(?P<detail>.{1,200})",
        ),
        (_LOGOFF, SUCCESS, "", rf"[Ee]xit \((?P<user>.*)\) from <{_PEER}>: (?P<detail>.{{1,200}})"),
        (_LOGOFF, SUCCESS, "", r"[Ee]xit \((?P<user>.*)\): (?P<detail>.{1,200})"),
    )
)
_CONNECTED = re.compile(rf"Child connection{_FROM}", re.ASCII)
LEFT = re.compile(
    rf"[Ee]xit before auth(?: from <{_PEER}>)?: (?P<detail>.*)|[Pp]remature exit.*", re.ASCII
)
# With -E every line starts so; journald keeps it behind a header of its own.
STAMPED = re.compile(r"\[(?P<pid>\d{1,10})\] (?P<time>[A-Z][a-z]{2} .\d [\d:]{8}) (?P<text>.*)")
_OWN = re.compile(rf"\[(?P<pid>\d{{1,10}})\] (?P<time>{YEARLESS}) (?P<text>.*)", re.ASCII)


def _read(line: Line, context: Context) -> Event | None:
    """A connection, a logon or a logoff; a base event for what else Dropbear says."""
    again = STAMPED.fullmatch(line.text)
    if again:
        line = line._replace(text=again["text"], pid=line.pid or int(again["pid"]))
    for activity, status, method, pattern in _PATTERNS:
        match = pattern.fullmatch(line.text)
        if match:
            return _login(activity, status, method, match.groupdict(), line)
    match = _CONNECTED.fullmatch(line.text) or LEFT.fullmatch(line.text)
    if match is None:
        return daemon_event(line, _PRODUCT, BASE, 0)
    part = match.groupdict()
    return _connection(_CLOSE if match.re is LEFT else _OPEN, part, line)


def _login(
    activity: int, status: int, method: str, part: dict[str, str | None], line: Line
) -> Event:
    user = part.get("user") or None
    rest = kept(fails=part.get("fails"), key=part.get("key"), key_type=part.get("kind"))
    peer = part.get("peer")
    return daemon_event(
        line,
        _PRODUCT,
        AUTHENTICATION,
        activity,
        status_id=status,
        severity_id=None if activity == _LOGON else INFORMATIONAL,
        status_detail=part.get("detail"),
        src_endpoint=endpoint(peer, part.get("port"), rest=rest) if peer else None,
        dst_endpoint={"hostname": line.host} if line.host else None,
        user={"name": user} if user else None,
        auth_method=method or None,
        logon_type_id=_NETWORK_LOGON,
        is_remote=True,
        service={"name": "dropbear"},
        rest=rest,
    )


def _connection(activity: int, part: dict[str, str | None], line: Line) -> Event:
    rest: dict[str, object] = {}
    source = endpoint(part.get("peer"), part.get("port"), rest=rest)
    return daemon_event(
        line,
        _PRODUCT,
        SSH,
        activity,
        status_id=SUCCESS if activity == _OPEN else UNKNOWN,
        status_detail=part.get("detail"),
        src_endpoint=source,
        dst_endpoint={"hostname": line.host} if line.host else None,
        connection_info={"protocol_name": "tcp", "protocol_num": 6, "direction_id": 1},
        rest=rest,
    )


SOURCES = (
    Daemon(
        name="dropbear",
        programs=frozenset({"dropbear", "dropbearmulti", "dropbear_server"}),
        product=_PRODUCT,
        reader=_read,
        forms=(_OWN,),
        bare=re.compile(
            r"(?:[Pp]ubkey|[Bb]ad (?:PAM )?password|[Pp]assword auth|Child connection|"
            r"[Ll]ogin attempt|[Ee]xit (?:before auth|\())"
        ),
    ),
)
