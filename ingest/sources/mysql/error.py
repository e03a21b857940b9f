"""Messages of the error log of MySQL and MariaDB.

Who knocks chooses the user's name: an account is read from the end of a message where nothing
of the client's follows it, and not at all where a name leaves it in doubt.
"""

from __future__ import annotations

import re
from typing import Any

from ingest.parsing.ocsf import BASE, FAILURE, NETWORK
from ingest.parsing.source import Event
from ingest.parsing.syslog import Line
from ingest.sources.mysql.events import LOGON, PRODUCT, logon, nonempty
from ingest.sources.shared.daemon_source import daemon_event, endpoint

_CLOSE, _REFUSE = 2, 5
LEVELS = "System|Error|ERROR|Warning|Note|Info|Debug"
BODY = re.compile(
    rf"(?:\[(?P<level>{LEVELS})\] )?(?:\[(?P<code>MY-\d{{6}})\] )?"
    r"(?:\[(?P<subsystem>[A-Za-z]\w{0,30})\] )?(?P<words>.*)",
    re.DOTALL,
)
_ACCOUNT = re.compile(
    r"'@'(?P<host>[^'\s]{0,255})'(?: \(using password: (?P<password>YES|NO)\))?"
    r"(?: to database '(?P<database>.*)')?(?P<tail>[^']*)"
)
ABORTED = re.compile(
    r"Aborted connection (?P<id>\d{1,20}) to db: '(?P<database>.*?)' user: '(?P<user>.*)' "
    r"host: '(?P<host>[^']{0,255})'(?: real ip: '(?P<ip>[^']{0,64})')? \((?P<why>[^()]{1,400})\)\.?"
)
_BLOCKED = re.compile(r"Host '(?P<host>[^']{1,255})' (?P<why>is (?:blocked|not allowed) .{1,300})")
_NAMELESS = re.compile(
    r"(?P<what>IP address|Host name|Hostname) '(?P<host>[^']{1,255})' (?P<why>.{1,400})"
)


def message(line: Line, code: str | None, severity: int | None, rest: dict[str, Any]) -> Event:
    """The event of a message of the error log, its level and code taken off."""
    fields = {"event_code": code, "log_name": "error"}
    thread = line.rest.get("thread")
    if line.text.startswith("Access denied for user '"):
        return _denied(line, rest, fields, thread)
    match = ABORTED.fullmatch(line.text)
    if match:
        return _aborted(match, line, rest, fields)
    match = _BLOCKED.fullmatch(line.text)
    if match:
        return daemon_event(
            line,
            PRODUCT,
            NETWORK,
            _REFUSE,
            status_id=FAILURE,
            status_detail=match["why"],
            severity_id=severity,
            src_endpoint=endpoint(match["host"], rest=rest),
            dst_endpoint={"hostname": line.host} if line.host else None,
            app_name="mysql",
            action_id=2,
            disposition_id=2,
            rest=rest,
            fields=fields,
        )
    match = _NAMELESS.fullmatch(line.text)
    source = endpoint(match["host"], rest=rest) if match else None
    return daemon_event(
        line, PRODUCT, BASE, 0, severity_id=severity, src_endpoint=source, rest=rest, fields=fields
    )


def _denied(line: Line, rest: dict[str, Any], fields: dict[str, str | None], thread: Any) -> Event:
    text, start = line.text, len("Access denied for user '")
    # Bounded: a user's name may hold the mark as often as it likes.
    matches = [
        (position, match)
        for position in (mark.start() for mark in list(re.finditer("'@'", text))[:16])
        if (match := _ACCOUNT.fullmatch(text, position))
    ]
    user: str | None = None
    part: dict[str, str | None] = {}
    # Nothing of the client's follows the password: there the last is the true one.
    if matches and (len(matches) == 1 or matches[-1][1]["password"]):
        position, match = matches[-1]
        user, part = text[start:position], match.groupdict()
    else:
        rest |= {"ambiguous": True}
    return logon(
        line,
        LOGON,
        FAILURE,
        user=user or None,
        host=part.get("host") or None,
        detail=text,
        session=thread,
        method="password" if part.get("password") == "YES" else None,
        rest=rest
        | nonempty(
            using_password=part.get("password"),
            database=part.get("database"),
            tail=(part.get("tail") or "").strip(),
        ),
        fields=fields,
    )


def _aborted(
    match: re.Match[str], line: Line, rest: dict[str, Any], fields: dict[str, str | None]
) -> Event:
    user, database = match["user"], match["database"]
    ip = match["ip"] or match["host"]
    return daemon_event(
        line,
        PRODUCT,
        NETWORK,
        _CLOSE,
        status_id=FAILURE,
        status_detail=match["why"],
        src_endpoint=endpoint(ip, rest=rest, hostname=match["host"] if match["ip"] else None),
        dst_endpoint={"hostname": line.host} if line.host else None,
        connection_info={"uid": match["id"], "direction_id": 1},
        # The server's word for a client that never logged in.
        by=user if user != "unauthenticated" else None,
        user_name=user if user != "unauthenticated" else None,
        app_name="mysql",
        rest=rest | nonempty(database=database if database != "unconnected" else None),
        fields=fields,
    )
