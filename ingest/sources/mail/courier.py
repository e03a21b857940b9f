"""Courier's IMAP and POP3 servers, as they write to syslog.

Words as in Courier's own sources (`imap/imaplogin.c`) and in logs of its versions: `LOGIN`,
`LOGIN FAILED`, `LOGOUT`, `DISCONNECTED`, `TIMEOUT` and `Connection`, each with `user=` before
`ip=[...]`, later also `port=[...]` and counts. A name may imitate all of that, so the last
address counts: behind it only Courier writes.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from ingest.parsing.ocsf import AUTHENTICATION, FAILURE, NETWORK, SUCCESS, kept
from ingest.parsing.source import Context, Event
from ingest.parsing.syslog import Line
from ingest.sources.shared.daemon_source import Daemon, daemon_event, endpoint

_PRODUCT: Mapping[str, str] = {"name": "Courier", "vendor_name": "Courier"}
_LOGON, _LOGOFF, _NETWORK_LOGON = 1, 2, 3
_OPEN, _CLOSE = 1, 2

_LINE = re.compile(
    r"(?:(?P<level>INFO|ERR|DEBUG|WARN): )?"
    r"(?P<what>LOGIN FAILED|LOGIN|LOGOUT|DISCONNECTED|TIMEOUT|Connection|Disconnected)"
    r"(?:, method=(?P<method>[\w-]{1,32}))?(?:, user=(?P<user>.*))?"
    r", ip=\[(?P<ip>[0-9A-Fa-f.:]{2,45})\]"
    r"(?:, port=\[(?P<port>\d{1,5})\])?(?P<counts>(?:, [a-z]{1,16}=[\w.-]{1,24}){0,16})"
)
_PROGRAMS = ("imapd", "pop3d", "imaplogin", "pop3login")


def _service(line: Line) -> dict[str, str]:
    return {"name": "pop3" if "pop3" in (line.program or "") else "imap"}


def _read(line: Line, context: Context) -> Event | None:
    """The event of a line; None where a server speaks of something else than its clients."""
    match = _LINE.fullmatch(line.text)
    if match is None:
        return None
    rest: dict[str, Any] = kept(log_level=match["level"])
    for piece in match["counts"].split(", ")[1:]:
        name, _, value = piece.partition("=")
        rest[name] = int(value) if value.isdecimal() else value
    source = endpoint(match["ip"], match["port"], rest=rest)
    server = {"hostname": line.host} if line.host else None
    user, what = match["user"] or None, match["what"]
    if what in ("Connection", "Disconnected") or (user is None and "LOGIN" not in what):
        # A session that ends without a user never logged in.
        return daemon_event(
            line,
            _PRODUCT,
            NETWORK,
            _OPEN if what == "Connection" else _CLOSE,
            status_id=SUCCESS,
            status_detail=what,
            src_endpoint=source,
            dst_endpoint=server,
            app_name=_service(line)["name"],
            rest=rest,
        )
    on = what.startswith("LOGIN")
    return daemon_event(
        line,
        _PRODUCT,
        AUTHENTICATION,
        _LOGON if on else _LOGOFF,
        status_id=FAILURE if what == "LOGIN FAILED" else SUCCESS,
        status_detail=None if on else what,
        src_endpoint=source,
        dst_endpoint=server,
        user={"name": user} if user else None,
        logon_type_id=_NETWORK_LOGON if on else None,
        is_remote=True,
        service=_service(line),
        rest=rest | kept(auth_method=match["method"]),
    )


SOURCES = (
    Daemon(
        name="courier",
        programs=frozenset(
            {
                *_PROGRAMS,
                *(f"{name}-ssl" for name in _PROGRAMS),
                *(f"courier-{name}" for name in _PROGRAMS),
                *(f"courier{name}" for name in _PROGRAMS),
            }
        ),
        product=_PRODUCT,
        reader=_read,
    ),
)
