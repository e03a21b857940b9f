"""Courier's IMAP, POP3 and SMTP servers, as they write to syslog.

Words as in Courier's own sources (`imap/imaplogin.c`) and in logs of its versions: `LOGIN`,
`LOGIN FAILED`, `LOGOUT`, `DISCONNECTED`, `TIMEOUT` and `Connection`, each with `user=` before
`ip=[...]`, later also `port=[...]` and counts. A name may imitate all of that, so the last
address counts: behind it only Courier writes. `courieresmtpd` (`courier/module.esmtp`) says
`started,ip=[...]` and `error,relay=...`, with the address in front of what the client sent.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from ingest.parsing.ocsf import (
    AUTHENTICATION,
    DENIED,
    EMAIL,
    FAILURE,
    NETWORK,
    SUCCESS,
    kept,
)
from ingest.parsing.source import Context, Event
from ingest.parsing.syslog import Line
from ingest.sources.shared.daemon_source import Daemon, daemon_event, endpoint

_PRODUCT: Mapping[str, str] = {"name": "Courier", "vendor_name": "Courier"}
_LOGON, _LOGOFF, _NETWORK_LOGON = 1, 2, 3
_OPEN, _CLOSE, _FAIL = 1, 2, 4
_RECEIVE, _BLOCKED, _INBOUND = 2, 2, 1

_LINE = re.compile(
    r"(?:(?P<level>INFO|ERR|DEBUG|WARN): )?"
    r"(?P<what>LOGIN FAILED|LOGIN|LOGOUT|DISCONNECTED|TIMEOUT|Connection|Disconnected)"
    r"(?:, method=(?P<method>[\w-]{1,32}))?(?:, user=(?P<user>.*))?"
    r", ip=\[(?P<ip>[0-9A-Fa-f.:]{2,45})\]"
    r"(?:, port=\[(?P<port>\d{1,5})\])?(?P<counts>(?:, [a-z]{1,16}=[\w.-]{1,24}){0,16})"
)
_STARTED = re.compile(r"started,ip=\[(?P<ip>[0-9A-Fa-f.:]{2,45})\](?:,port=\[(?P<port>\d{1,5})\])?")
# The address stands in front, so nothing that a client sends can take its place.
_ERROR = re.compile(
    r"error,relay=(?P<ip>[0-9A-Fa-f.:]{2,45})(?:,port=(?P<port>\d{1,5}))?"
    r"(?:,ident=(?P<ident>[^,]{0,64}))?,(?P<what>.*)",
    re.DOTALL,
)
_COMMAND = re.compile(r'msg="(?P<reply>[^"]{0,300})",cmd: ?(?P<command>.*)', re.DOTALL)
# The last reply counts: an address of mail may imitate one.
_REFUSED = re.compile(
    r"from=<(?P<sender>.*?)>(?:,to=<(?P<to>.*)>)?: (?P<reply>[45]\d\d\b.*)", re.DOTALL
)
_PROGRAMS = ("imapd", "pop3d", "imaplogin", "pop3login")


def _service(line: Line) -> dict[str, str]:
    return {"name": "pop3" if "pop3" in (line.program or "") else "imap"}


def _smtp(line: Line) -> Event | None:
    """What the SMTP server says of a client; None for anything else."""
    rest: dict[str, Any] = {}
    started, error = _STARTED.fullmatch(line.text), _ERROR.fullmatch(line.text)
    match = started or error
    if match is None:
        return None
    columns: dict[str, Any] = {
        "src_endpoint": endpoint(match["ip"], match["port"], rest=rest),
        "dst_endpoint": {"hostname": line.host} if line.host else None,
        "status_id": SUCCESS if started else FAILURE,
        "rest": rest,
    }
    if error is None:
        return daemon_event(line, _PRODUCT, NETWORK, _OPEN, app_name="smtp", **columns)
    rest |= kept(ident=error["ident"])
    command, refused = _COMMAND.fullmatch(error["what"]), _REFUSED.fullmatch(error["what"])
    if refused:
        sender, to = refused["sender"], refused["to"]
        return daemon_event(
            line,
            _PRODUCT,
            EMAIL,
            _RECEIVE,
            action_id=DENIED,
            disposition_id=_BLOCKED,
            status_code=refused["reply"][:3],
            status_detail=refused["reply"],
            email=kept(**{"from": sender}, to=[to] if to else None),
            more={"direction_id": _INBOUND},
            **columns,
        )
    reply = command["reply"] if command else error["what"]
    columns |= {"status_detail": reply, "status_code": reply[:3] if reply[:3].isdigit() else None}
    # 535 refuses credentials (RFC 4954). What follows `cmd:` may be a password, and names nobody.
    if reply.startswith("535"):
        return daemon_event(
            line,
            _PRODUCT,
            AUTHENTICATION,
            _LOGON,
            logon_type_id=_NETWORK_LOGON,
            is_remote=True,
            service={"name": "smtp"},
            **columns,
        )
    return daemon_event(line, _PRODUCT, NETWORK, _FAIL, app_name="smtp", **columns)


def _read(line: Line, context: Context) -> Event | None:
    """The event of a line; None where a server speaks of something else than its clients."""
    match = _LINE.fullmatch(line.text)
    if match is None:
        return _smtp(line)
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
                "courieresmtpd",
            }
        ),
        product=_PRODUCT,
        reader=_read,
    ),
)
