"""Events of a MySQL or MariaDB server, whichever of its logs tells of them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from ingest.parsing.ocsf import AUTHENTICATION, DATASTORE, FAILURE, SUCCESS, UNKNOWN, kept
from ingest.parsing.source import Event
from ingest.parsing.syslog import Line
from ingest.sources.shared.daemon_source import daemon_event, endpoint

PRODUCT: Mapping[str, str] = {"name": "MySQL", "vendor_name": "Oracle"}
LOGON, LOGOFF, ACCOUNT_SWITCH, _NETWORK_LOGON = 1, 2, 7, 3
READ, UPDATE, CONNECT, QUERY, WRITE, CREATE, DELETE, _LIST = 1, 2, 3, 4, 5, 6, 7, 8
RELATIONAL, OF_DATABASE = 1, 1
_LOCAL = frozenset({"localhost", "127.0.0.1", "::1", ""})

_VERBS: Mapping[str, int] = {
    **dict.fromkeys(("insert", "replace", "load", "import"), WRITE),
    **dict.fromkeys(("update", "alter", "rename", "grant", "revoke", "set", "change"), UPDATE),
    **dict.fromkeys(("delete", "drop", "truncate"), DELETE),
    "create": CREATE,
    **dict.fromkeys(("show", "describe", "desc", "explain"), _LIST),
}
# Comments and brackets may stand before the first word of a statement.
_VERB = re.compile(r"(?:\s|/\*[^*]{0,400}\*/|\()*([A-Za-z]+)")


def verb_activity(sql: str | None) -> int:
    """The activity of a statement, by its first word; a query for all that only read."""
    match = _VERB.match(sql or "")
    return _VERBS.get(match[1].lower(), QUERY) if match else QUERY


def logon(
    line: Line,
    activity: int,
    status: int | None,
    *,
    user: str | None,
    host: str | None = None,
    ip: str | None = None,
    port: str | int | None = None,
    detail: str | None = None,
    code: str | None = None,
    session: str | None = None,
    method: str | None = None,
    rest: dict[str, Any],
    fields: Mapping[str, str | None] | None = None,
) -> Event:
    """A login or logout of a client."""
    peer = ip or host
    source = endpoint(peer, port, rest=rest, hostname=host if ip else None) if peer else None
    remote = None if peer is None else peer not in _LOCAL
    return daemon_event(
        line,
        PRODUCT,
        AUTHENTICATION,
        activity,
        status_id=status,
        status_detail=detail,
        status_code=code,
        src_endpoint=source,
        dst_endpoint={"hostname": line.host} if line.host else None,
        user={"name": user} if user else None,
        session={"uid": session} if session else None,
        auth_method=method,
        logon_type_id=_NETWORK_LOGON if remote else None,
        is_remote=remote,
        service={"name": "mysql"},
        rest=rest,
        fields=fields,
    )


def statement(
    line: Line,
    activity: int,
    *,
    sql: str | None,
    command: str | None = None,
    user: str | None = None,
    host: str | None = None,
    ip: str | None = None,
    session: str | None = None,
    database: str | None = None,
    tables: list[dict[str, Any]] | None = None,
    code: str | None = None,
    status: int | None = None,
    rest: dict[str, Any],
    fields: Mapping[str, str | None] | None = None,
    **columns: Any,
) -> Event:
    """Something a client asked of a database."""
    peer = ip or host
    source = endpoint(peer, rest=rest, hostname=host if ip else None) if peer else None
    if source is None:
        # OCSF wants the client of every request; the log knows it by its connection alone.
        source = {"uid": session or "unknown"}
    more: dict[str, Any] = {
        "database": {"name": database or "", "type_id": RELATIONAL},
        "type_id": OF_DATABASE,
    }
    if sql:
        more["query_info"] = {"name": command or "Query", "query_string": sql}
    if tables:
        more["table"] = tables[0]
    # OCSF demands an actor of every access to a database.
    if not user and not session and line.pid is None:
        more["actor"] = {"app_name": "mysql"}
    return daemon_event(
        line,
        PRODUCT,
        DATASTORE,
        activity,
        status_id=status,
        status_code=code,
        src_endpoint=source,
        dst_endpoint={"hostname": line.host} if line.host else None,
        by=user or None,
        by_session=session,
        user_name=user or None,
        api={"operation": command} if command else None,
        more=more,
        rest=rest,
        fields=fields,
        **columns,
    )


def outcome(code: str | None) -> int | None:
    """Success for the error number 0, failure for another, none for none."""
    if code is None or not code.lstrip("-").isdecimal():
        return UNKNOWN if code else None
    return SUCCESS if int(code) == 0 else FAILURE


def split_account(text: str) -> tuple[str, str | None]:
    """`ann@1.2.3.4` as user and host, the last `@` between them."""
    # The last one: a user's name may hold it, a host's cannot.
    user, position, host = text.rpartition("@")
    return (user, host or None) if position else (text, None)


def nonempty(**values: Any) -> dict[str, Any]:
    """The values that say something."""
    return {name: value for name, value in kept(**values).items() if value not in ("", [], {})}
