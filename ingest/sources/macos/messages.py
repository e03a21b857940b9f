"""What macOS's own services say of logins and rights in the unified log, by the process.

Wordings of macOS 10.12 to 15. `authd` and `authorizationhost` are open
(https://github.com/apple-oss-distributions/Security, OSX/authd/engine.c); those of
`opendirectoryd`, `loginwindow` and `screensharingd` are as the log shows them. A value that
macOS keeps to itself stands as `<private>`: then nobody is named.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from ingest.parsing.ocsf import AUTHENTICATION, AUTHORIZATION, FAILURE, LOW, SUCCESS, address, kept
from ingest.parsing.source import Event
from ingest.parsing.syslog import Line
from ingest.sources.shared.daemon_source import daemon_event

PRODUCT: Mapping[str, str] = {"name": "macOS", "vendor_name": "Apple"}
_LOGON, _LOGOFF = 1, 2
_ASSIGN = 1
_INTERACTIVE, _NETWORK = 2, 3
_PATH = r"'(?P<client>[^']{1,1024})'"
_RIGHT = re.compile(
    r"(?P<what>Succeeded|Failed to authorize|Failed|Denied|Canceled)(?: authorizing)? right "
    rf"'(?P<right>[^']{{1,256}})' by client {_PATH}(?: \[(?P<pid>\d{{1,10}})\])?"
    r"(?: for authorization created by '(?P<creator>[^']{1,1024})'(?: \[(?P<by>\d{1,10})\])?)?"
    r"(?P<tail>.{0,200})",
    re.ASCII,
)
_PROVED = re.compile(
    r"UID (?P<by>\d{1,10}) authenticated as user (?P<user>.{1,256}) \(UID (?P<uid>\d{1,10})\) "
    r"for right '(?P<right>[^']{1,256})'(?P<tail>.{0,100})",
    re.ASCII,
)
_DIRECTORY = re.compile(
    r"Authentication (?P<what>failed|succeeded|allowed|denied) for (?:user )?"
    r"(?:\"(?P<quoted>[^\"]{1,256})\"|(?P<user>[^\s\"(:]{1,256}))"
    r"(?: \((?P<uid>[0-9A-Fa-f-]{1,64})\))?(?:(?: -|:) (?P<why>.{1,200}))?",
    re.ASCII,
)
_HOST = re.compile(
    r"Failed to authenticate user <(?P<user>[^<>]{1,256})>(?: \((?P<why>.{1,200}?)\))?\.?"
)
_SCREEN = re.compile(
    r"Authentication: (?P<what>SUCCEEDED|FAILED) :: User Name: (?P<user>.{1,256}) :: "
    # A link-local address has its interface behind a `%` (RFC 4007, 11).
    r"Viewer Address: (?P<peer>[0-9a-fA-F:.]{2,45})(?:%\w{1,16})? :: "
    r"Type: (?P<type>[\w .()-]{1,60})",
    re.ASCII,
)
_UTMP = re.compile(r"(?P<what>USER|DEAD)_PROCESS: (?P<session>\d{1,10}) (?P<tty>[\w./-]{1,64})")
_HIDDEN = frozenset({"<private>", "private", "N/A", "(null)", "<null>"})


def _named(name: str | None) -> dict[str, Any] | None:
    return None if name is None or name in _HIDDEN else {"name": name}


def _status(word: str) -> int:
    return SUCCESS if word.lower().startswith(("succ", "allow")) else FAILURE


def _right(line: Line) -> Event | None:
    match = _RIGHT.fullmatch(line.text)
    if match is None:
        return _proved(line)
    good = _status(match["what"]) == SUCCESS
    path = match["client"]
    return daemon_event(
        # The actor is who asked, not the service that tells of it.
        line._replace(pid=None),
        PRODUCT,
        AUTHORIZATION,
        _ASSIGN,
        status_id=SUCCESS if good else FAILURE,
        status_detail=None if good else match["what"],
        severity_id=1 if good else LOW,
        privileges=[match["right"]],
        actor={
            "process": kept(
                name=path.rstrip("/").rpartition("/")[2],
                path=path,
                pid=int(match["pid"]) if match["pid"] else None,
                # OCSF wants a process to have one of the two.
                uid=None if match["pid"] else path,
            )
        },
        # The line tells the process, and not for whom it asked.
        more={"user": {"name": "", "type_id": 0}},
        rest=kept(
            pid=line.pid,
            created_by=match["creator"],
            creator_pid=match["by"],
            tail=match["tail"].strip() or None,
        ),
    )


def _proved(line: Line) -> Event | None:
    """Somebody proved who they are, to be given a right."""
    match = _PROVED.fullmatch(line.text)
    if match is None:
        return None
    user = _named(match["user"])
    return daemon_event(
        line,
        PRODUCT,
        AUTHENTICATION,
        _LOGON,
        status_id=SUCCESS,
        user=user | {"uid": match["uid"]} if user else {"uid": match["uid"]},
        logon_type_id=_INTERACTIVE,
        is_remote=False,
        service={"name": match["right"]},
        more=None if user else {"user": {"name": "", "type_id": 0}},
        rest=kept(by_uid=match["by"], tail=match["tail"].strip() or None),
    )


def _directory(line: Line) -> Event | None:
    match = _DIRECTORY.fullmatch(line.text)
    if match is None:
        return None
    return daemon_event(
        line,
        PRODUCT,
        AUTHENTICATION,
        _LOGON,
        status_id=_status(match["what"]),
        status_detail=match["why"],
        user=_named(match["quoted"] or match["user"]),
        service={"name": "opendirectoryd"},
        rest=kept(record_uuid=match["uid"]),
    )


def _host(line: Line) -> Event | None:
    match = _HOST.fullmatch(line.text)
    if match is None:
        return None
    return daemon_event(
        line,
        PRODUCT,
        AUTHENTICATION,
        _LOGON,
        status_id=FAILURE,
        status_detail=match["why"],
        user=_named(match["user"]),
        logon_type_id=_INTERACTIVE,
        is_remote=False,
        service={"name": line.program or "macOS"},
    )


def _screen(line: Line) -> Event | None:
    """Who looks at the screen from elsewhere (VNC, Apple Remote Desktop)."""
    match = _SCREEN.fullmatch(line.text)
    ip = address(match["peer"]) if match else None
    if match is None or ip is None:
        return None
    return daemon_event(
        line,
        PRODUCT,
        AUTHENTICATION,
        _LOGON,
        status_id=_status(match["what"]),
        user=_named(match["user"]),
        src_endpoint={"ip": ip},
        auth_method=match["type"],
        logon_type_id=_NETWORK,
        is_remote=True,
        service={"name": "screensharing"},
    )


def _utmp(line: Line) -> Event | None:
    """A session at the console or in a terminal begins or ends; whose is not said."""
    match = _UTMP.fullmatch(line.text)
    if match is None:
        return None
    return daemon_event(
        line,
        PRODUCT,
        AUTHENTICATION,
        _LOGON if match["what"] == "USER" else _LOGOFF,
        status_id=SUCCESS,
        logon_type_id=_INTERACTIVE,
        is_remote=False,
        service={"name": line.program or "macOS"},
        rest=kept(tty=match["tty"], session=match["session"]),
    )


READERS: Mapping[str, Callable[[Line], Event | None]] = MappingProxyType(
    {
        "authd": _right,
        "com.apple.SecurityServer": _right,
        "securityd": _right,
        "opendirectoryd": _directory,
        "authorizationhost": _host,
        "SecurityAgent": _host,
        "loginwindow": _utmp,
        "login": _utmp,
        "screensharingd": _screen,
    }
)
"""Who says such things, by the name of the process."""
