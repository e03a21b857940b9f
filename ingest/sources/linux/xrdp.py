"""xrdp and xrdp-sesman: their own files, in both spellings of the time, or through syslog.

Messages of 0.6 to 0.10 (https://github.com/neutrinolabs/xrdp, sesman/ and libxrdp/). A user
name stands before the address in most; what follows a name is matched to the end of the line.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from ingest.parsing.ocsf import AUTHENTICATION, BASE, FAILURE, NETWORK, RDP, SUCCESS, UNKNOWN, kept
from ingest.parsing.source import Context, Event
from ingest.parsing.syslog import Line, severity
from ingest.sources.shared.daemon_source import NAMED, Daemon, daemon_event, endpoint
from ingest.sources.shared.daemon_timestamps import COMPACT, ISO

_PRODUCT: Mapping[str, str] = {"name": "xrdp", "vendor_name": "neutrinolabs"}
_LOGON, _LOGOFF, _PREAUTH = 1, 2, 6
# Windows' logon type of a remote desktop, whose numbers OCSF has taken over.
REMOTE_INTERACTIVE = 10
_REQUEST, _TLS, DISCONNECT, RECONNECT = 1, 5, 7, 8
_OPEN, _CLOSE = 1, 2

_LEVEL = r"\[(?P<level>CORE|ERROR|WARN|INFO|DEBUG|TRACE) *\]"
_OWN = re.compile(
    rf"\[(?P<time>{COMPACT}|{ISO})\] (?P<text>\[(?:CORE|ERROR|WARN|INFO|DEBUG|TRACE) *\].*)",
    re.ASCII,
)
_BODY = re.compile(
    rf"(?:\((?P<pid>\d{{1,10}})\)\((?P<thread>\d{{1,20}})\) ?)?{_LEVEL} "
    r"(?:\[(?P<place>[\w.]{1,80}\([\w./-]{1,80}:\d{1,6}\))\] )?(?P<words>.*)",
    re.ASCII,
)
# 45 characters: the longest spelling of an IPv6 address, with an IPv4 one at its end.
_IP = r"\[?(?P<ip>[0-9A-Fa-f.:]{2,45}?)\]?"
_IP_PORT = rf"{_IP}:(?P<port>\d{{1,5}})"
_SOCKET = r"(?: - socket: (?P<socket>\d{1,6}))?"

_PATTERNS: tuple[tuple[int, int, re.Pattern[str]], ...] = (
    (
        _LOGON,
        SUCCESS,
        re.compile(
            r"\+\+ created session(?: \((?P<detail>access granted)\))?: username (?P<user>.*), "
            rf"ip {_IP}(?::(?P<port>\d{{1,5}}))?{_SOCKET}"
        ),
    ),
    (
        _LOGON,
        SUCCESS,
        re.compile(r"\+\+ created session \((?P<detail>access granted)\): username (?P<user>\S+)"),
    ),
    (
        _LOGON,
        FAILURE,
        re.compile(r"AUTHFAIL: user=(?P<user>.*) ip=(?P<ip>\S{1,64}?)(?: time=(?P<at>\d{1,12}))?"),
    ),
    (
        _LOGON,
        SUCCESS,
        re.compile(r"login successful for user (?P<user>.*?)(?: on display \S{1,9})?"),
    ),
    (_LOGON, FAILURE, re.compile(r"login failed for user (?P<user>.*?)(?: on display \S{1,9})?")),
    (_LOGON, FAILURE, re.compile(r"login failed for display (?P<display>\d{1,6})")),
    (
        _PREAUTH,
        FAILURE,
        re.compile(
            r"(?P<detail>Username or password error|Authentication failed|Access denied)"
            rf" for user:? (?P<user>.*?)(?:,? (?:IP|ip):? {_IP})?"
        ),
    ),
    (
        _PREAUTH,
        FAILURE,
        re.compile(
            r"User (?P<user>.*) (?P<detail>(?:was )?(?:disallowed|denied|not allowed).{0,99})"
        ),
    ),
    (_PREAUTH, FAILURE, re.compile(r"(?P<detail>pam_authenticate failed: .{1,200})")),
    (
        _PREAUTH,
        SUCCESS,
        re.compile(r"(?P<detail>Access (?:permitted|granted)) for user: (?P<user>.*)"),
    ),
    (
        _PREAUTH,
        UNKNOWN,
        re.compile(
            r"(?P<detail>Received (?:\w+ )?log[io]n request) from xrdp for user: (?P<user>.*?)"
            r" IP: (?P<ip>\S{1,64})"
        ),
    ),
    (
        _LOGOFF,
        SUCCESS,
        re.compile(
            r"\+\+ terminated session: {1,2}username (?P<user>.*), "
            r"display (?P<display>[\d:.]{1,9}), "
            rf"session_pid (?P<session>\d{{1,10}}), ip {_IP}(?::(?P<port>\d{{1,5}}))?{_SOCKET}"
        ),
    ),
)
RECONNECTED = re.compile(
    r"\+\+ (?:reconnected|scp reconnected) session: username (?P<user>.*), "
    r"display (?P<display>[\d:.]{1,9}), session_pid (?P<session>\d{1,10}), "
    rf"ip {_IP}(?::(?P<port>\d{{1,5}}))?{_SOCKET}"
)
_RECEIVED = re.compile(
    r"(?:Socket (?P<socket>\d{1,6}): )?(?:(?P<family>AF_\w{1,10}) )?(?:A )?connection "
    rf"(?:received|accepted) from:? (?:AF_\w{{1,10}} )?{_IP} port (?P<port>\d{{1,5}})"
)
_CLOSED = re.compile(
    rf"An established connection closed to endpoint: (?:{_IP_PORT}|(?P<none>\S{{1,99}})){_SOCKET}"
)
_SECURED = re.compile(
    rf"TLS connection established from {_IP} port (?P<port>\d{{1,5}}): "
    r"(?P<version>[\w.]{1,16}) with cipher (?P<cipher>[\w-]{1,64})"
)
STARTED = re.compile(
    r"Starting session: session_pid (?P<session>\d{1,10}), display (?P<display>[\d:.]{1,9}), "
    rf".{{0,100}}client ip {_IP}(?::(?P<port>\d{{1,5}}))?{_SOCKET}, user name (?P<user>.*)"
)
PEER = re.compile(
    r"lib_mod_log_peer: xrdp_pid=\d{1,10} connected to \w{1,12}_pid=(?P<session>\d{1,10}) "
    rf".{{0,100}}client_ip={_IP} client_port=(?P<port>\d{{1,5}})"
)
COMPUTER = re.compile(r"(?:connected|Connected) client computer name: (?P<name>.*)")


def _read(line: Line, context: Context) -> Event | None:
    """A connection, login or session; a base event for what else xrdp says."""
    match = _BODY.fullmatch(line.text)
    if match is None:
        return None
    rest: dict[str, Any] = kept(
        log_level=match["level"].lower(), thread=match["thread"], place=match["place"]
    )
    pid = line.pid if line.pid is not None else int(match["pid"]) if match["pid"] else None
    # What the login window shows goes to the log with the function's name in front.
    words = match["words"].removeprefix("xrdp_wm_log_msg: ").strip()
    line = line._replace(text=words, pid=pid)
    for activity, status, pattern in _PATTERNS:
        login = pattern.fullmatch(words)
        if login:
            return _login(activity, status, login.groupdict(), rest, line)
    return _connection(words, rest, line) or _other(match["level"], rest, line)


def _peer(part: Mapping[str, Any], rest: dict[str, Any]) -> dict[str, Any] | None:
    ip, port = part.get("ip"), part.get("port")
    # Older versions write address and port as one word.
    if ip and port is None and ip.count(".") == 3 and ip.count(":") == 1:
        ip, _, port = ip.partition(":")
    return endpoint(ip, port, rest=rest) if ip and ip.lower() != "unknown" else None


def _server(line: Line) -> dict[str, str] | None:
    return {"hostname": line.host} if line.host else None


def _login(
    activity: int, status: int, part: dict[str, Any], rest: dict[str, Any], line: Line
) -> Event:
    user = part.get("user") or None
    return daemon_event(
        line,
        _PRODUCT,
        AUTHENTICATION,
        activity,
        status_id=status,
        status_detail=part.get("detail"),
        src_endpoint=_peer(part, rest),
        dst_endpoint=_server(line),
        user={"name": user} if user else None,
        session={"uid": part["session"]} if part.get("session") else None,
        logon_type_id=REMOTE_INTERACTIVE,
        is_remote=True,
        service={"name": "xrdp"},
        rest=rest
        | kept(socket=part.get("socket"), display=part.get("display"), time=part.get("at")),
    )


_CONNECTIONS: Mapping[re.Pattern[str], tuple[int, int]] = {
    _RECEIVED: (_REQUEST, _OPEN),
    _CLOSED: (DISCONNECT, _CLOSE),
    _SECURED: (_TLS, _OPEN),
    RECONNECTED: (RECONNECT, _OPEN),
}
"""The activity of a remote desktop, and that of a plain connection."""


def _connection(words: str, rest: dict[str, Any], line: Line) -> Event | None:
    matches = (pattern.fullmatch(words) for pattern in _CONNECTIONS)
    match = next((login for login in matches if login), None)
    if match is None:
        return _session(words, rest, line)
    activity, way = _CONNECTIONS[match.re]
    part = match.groupdict()
    source = _peer(part, rest)
    rest |= kept(
        socket=part.get("socket"),
        family=part.get("family"),
        display=part.get("display"),
        endpoint=part.get("none"),
        session_pid=part.get("session"),
    )
    # sesman is asked by xrdp on the same machine: that is no one's remote desktop.
    ip = (source or {}).get("ip", "")
    inside = ip in ("", "127.0.0.1", "::1") or (line.program or "xrdp") != "xrdp"
    inside = inside and match.re is not RECONNECTED
    user = part.get("user")
    return daemon_event(
        line,
        _PRODUCT,
        NETWORK if inside else RDP,
        way if inside else activity,
        status_id=SUCCESS,
        severity_id=None,
        src_endpoint=source,
        dst_endpoint=_server(line),
        user={"name": user} if user and not inside else None,
        tls={"version": part["version"], "cipher": part["cipher"]} if "version" in part else None,
        connection_info={"protocol_name": "tcp", "protocol_num": 6, "direction_id": 1},
        app_name="xrdp",
        rest=rest,
    )


def _session(words: str, rest: dict[str, Any], line: Line) -> Event | None:
    """What else says who the client is."""
    match = STARTED.fullmatch(words) or PEER.fullmatch(words)
    if match is None:
        return None
    part = match.groupdict()
    return daemon_event(
        line,
        _PRODUCT,
        BASE,
        0,
        src_endpoint=_peer(part, rest),
        user={"name": part["user"]} if part.get("user") else None,
        rest=rest
        | kept(session_pid=part["session"], display=part.get("display"), socket=part.get("socket")),
    )


def _other(level: str, rest: dict[str, Any], line: Line) -> Event:
    computer = COMPUTER.fullmatch(line.text)
    return daemon_event(
        line,
        _PRODUCT,
        BASE,
        0,
        # The line's own level and syslog's priority may differ: the graver one holds.
        severity_id=max(NAMED[level.lower()], severity(line)),
        rest=rest | kept(client_computer=computer["name"] if computer else None),
    )


SOURCES = (
    Daemon(
        name="xrdp",
        programs=frozenset({"xrdp", "xrdp-sesman", "xrdp-chansrv", "xrdp-sesexec"}),
        product=_PRODUCT,
        reader=_read,
        forms=(_OWN,),
        bare=re.compile(r"\[(?:CORE|ERROR|WARN|INFO|DEBUG|TRACE) *\] "),
    ),
)
