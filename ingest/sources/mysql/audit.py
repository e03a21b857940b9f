"""The audit logs of MySQL and MariaDB: JSON of Oracle's, Percona's and McAfee's plugins, and CSV
of MariaDB's server_audit, which Amazon's Aurora and RDS write as well.

https://dev.mysql.com/doc/refman/8.4/en/audit-log-file-formats.html,
https://mariadb.com/kb/en/mariadb-audit-plugin-log-format/,
https://docs.percona.com/percona-server/8.0/audit-log-plugin.html
"""

from __future__ import annotations

import re
from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo

from ingest.parsing.ocsf import FAILURE, SUCCESS
from ingest.parsing.source import Event
from ingest.parsing.strict_json import integral
from ingest.parsing.syslog import Line
from ingest.parsing.timestamps import Stamp, stamp_epoch, stamp_iso
from ingest.sources.mysql.events import (
    ACCOUNT_SWITCH,
    CREATE,
    DELETE,
    LOGOFF,
    LOGON,
    QUERY,
    READ,
    UPDATE,
    WRITE,
    logon,
    nonempty,
    outcome,
    statement,
    verb_activity,
)

OPERATIONS = {
    "QUERY": QUERY,
    "QUERY_DDL": QUERY,
    "QUERY_DML": QUERY,
    "QUERY_DML_NO_SELECT": QUERY,
    "QUERY_DCL": QUERY,
    "TABLE": QUERY,
    "READ": READ,
    "WRITE": WRITE,
    "CREATE": CREATE,
    "ALTER": UPDATE,
    "RENAME": UPDATE,
    "DROP": DELETE,
}
_LOGINS = {
    "CONNECT": LOGON,
    "FAILED_CONNECT": LOGON,
    "DISCONNECT": LOGOFF,
    "CHANGEUSER": ACCOUNT_SWITCH,
    "PROXY_CONNECT": LOGON,
}
_OPERATION = re.compile(
    rf",(?P<host>[^,\s]{{0,255}}),(?P<connection>\d{{1,20}}),(?P<query>\d{{1,20}}),"
    rf"(?P<operation>{'|'.join(sorted({*OPERATIONS, *_LOGINS}, key=len, reverse=True))}),"
)
_TAIL = re.compile(
    r"(?P<database>[^,]{0,128}),(?P<object>.*),(?P<code>-?\d{0,10})(?:,(?P<tls>[\w. -]{0,32}))?",
    re.DOTALL,
)
CSV = re.compile(
    # Aurora writes microseconds since 1970 in place of a date.
    r"(?P<time>\d{8} \d\d:\d\d:\d\d|\d{10,16}),(?P<text>[^,]{0,255},.*,\d{1,20},\d{1,20},"
    r"[A-Z_]{4,20},.*,-?\d{0,10}(?:,[\w. -]{0,32})?)",
    re.ASCII | re.DOTALL,
)


def audited(line: Line) -> Event | None:
    """A line of server_audit behind its time; None where it is none."""
    text = line.text
    # Bounded: a statement may imitate the middle of a line as often as it likes.
    matches = list(_OPERATION.finditer(text))[:16]
    if not matches:
        return None
    # A login has no object: all that could imitate it stands before. A statement is quoted.
    match = matches[-1] if text.rstrip("0123456789").endswith(",,") else matches[0]
    head = text[: match.start()]
    server, _, user = head.partition(",")
    tail = _TAIL.fullmatch(text, match.end())
    if tail is None:
        return None
    # In a file of its own the plugin names the server first; syslog has named it already.
    if line.host is None and server:
        line = line._replace(host=server)
    operation, code = match["operation"], tail["code"]
    sql = _unquoted(tail["object"])
    rest = nonempty(
        query_id=match["query"], tls=tail["tls"], object=None if sql else tail["object"]
    )
    if server and server != line.host:
        rest["serverhost"] = server
    host = match["host"] or None
    fields = {"log_name": "server_audit", "event_code": operation}
    if operation in _LOGINS:
        rest |= nonempty(database=tail["database"], object=sql)
        failed = operation.startswith("FAILED") or code != "0"
        return logon(
            line,
            _LOGINS[operation],
            FAILURE if failed else SUCCESS,
            user=user,
            host=host,
            code=code,
            session=match["connection"],
            rest=rest,
            fields=fields,
        )
    is_table = not operation.startswith("QUERY")
    return statement(
        line,
        OPERATIONS[operation] if is_table else verb_activity(sql),
        sql=None if is_table else sql,
        command=operation,
        user=user,
        host=host,
        session=match["connection"],
        database=tail["database"],
        tables=[{"name": sql or tail["object"]}] if is_table and tail["object"] else None,
        code=code or None,
        status=outcome(code or None),
        rest=rest,
        fields=fields,
    )


def _unquoted(text: str) -> str | None:
    """The object of a line: a statement in quotes, with its escapes undone."""
    if len(text) > 1 and text[0] == "'" and text[-1] == "'":
        return re.sub(r"\\(.)", _character, text[1:-1])
    return text or None


def _character(match: re.Match[str]) -> str:
    return {"n": "\n", "t": "\t", "r": "\r"}.get(match[1], match[1])


# -- JSON -----------------------------------------------------------------------------------------


def audit_stamp(fields: dict[str, Any], zone: ZoneInfo, received_at: datetime) -> Stamp:
    """The time of an audit record, in whichever of its plugins' spellings."""
    for name in ("timestamp", "date", "time"):
        value = fields.get(name)
        # `2026-11-21 10:00:00 UTC`, as Percona and Oracle write it.
        if type(value) is str and not value.isdecimal():
            text = value.removesuffix(" UTC") + "Z" if value.endswith(" UTC") else value
            return stamp_iso(text, zone, received_at)
        if value is not None:
            return stamp_epoch(value, received_at)
    return Stamp.missing(received_at, None)


def _text(fields: dict[str, Any], name: str) -> str | None:
    """Take a value as text; what is neither text nor number stays where it is."""
    value = integral(fields.get(name))
    if type(value) is str or type(value) is int:
        del fields[name]
        return str(value) if value != "" else None
    return None


def _under(fields: dict[str, Any], name: str) -> dict[str, Any]:
    value = fields.get(name)
    return fields.pop(name) if type(value) is dict else {}


def oracle(fields: dict[str, Any], line: Line) -> Event:
    """A record of MySQL Enterprise Audit."""
    kind, what = _text(fields, "class"), _text(fields, "event")
    login, account = _under(fields, "login"), _under(fields, "account")
    session = _text(fields, "connection_id")
    user = _text(login, "user") or _text(account, "user")
    ip, host = _text(login, "ip"), _text(account, "host")
    number = _text(fields, "id")
    data: dict[str, Any] = {}
    for name in ("connection_data", "general_data", "table_access_data", "query_data"):
        data |= _under(fields, name)
    code, database = _text(data, "status"), _text(data, "db")
    rest = fields | data | nonempty(login=login, account=account)
    about = {"log_name": "audit", "event_code": f"{kind}/{what}", "uid": number}
    if kind == "connection":
        activity = {"disconnect": LOGOFF, "change_user": ACCOUNT_SWITCH}.get(what or "", LOGON)
        return logon(
            line,
            activity,
            outcome(code),
            user=user,
            host=host,
            ip=ip,
            code=code,
            session=session,
            rest=rest | nonempty(database=database),
            fields=about,
        )
    sql, command = _text(data, "query"), _text(data, "sql_command") or _text(data, "command")
    table = _text(data, "table")
    # Again, since what was taken meanwhile is no rest any more.
    rest = fields | data | nonempty(login=login, account=account)
    activity = {"read": READ, "insert": WRITE, "update": UPDATE, "delete": DELETE}.get(
        what or "", verb_activity(sql or command)
    )
    return statement(
        line,
        activity,
        sql=sql,
        command=command or what,
        user=user,
        host=host,
        ip=ip,
        session=session,
        database=database,
        tables=[{"name": table}] if table else None,
        code=code,
        status=outcome(code),
        rest=rest,
        fields=about,
    )


def flat(fields: dict[str, Any], line: Line) -> Event:
    """A record of Percona's plugin, or of McAfee's: all fields on one level."""
    name = _text(fields, "name") or _text(fields, "cmd") or "Unknown"
    user, host, ip = _text(fields, "user"), _text(fields, "host"), _text(fields, "ip")
    session = _text(fields, "connection_id") or _text(fields, "thread-id")
    sql = _text(fields, "sqltext") or _text(fields, "query")
    code, uid = _text(fields, "status"), _text(fields, "record") or _text(fields, "query-id")
    database = _text(fields, "db")
    about = {"log_name": "audit", "event_code": name, "uid": uid}
    if user and "[" in user and user.endswith("]"):
        # `root[root] @ localhost [127.0.0.1]` of Percona's plugin
        user = user.partition("[")[0]
    activity = {"Connect": LOGON, "Failed Login": LOGON, "Quit": LOGOFF}.get(
        name, ACCOUNT_SWITCH if name == "Change user" else None
    )
    if activity is not None:
        status = FAILURE if name == "Failed Login" else outcome(code)
        return logon(
            line,
            activity,
            status,
            user=user,
            host=host,
            ip=ip,
            code=code,
            session=session,
            rest=fields | nonempty(database=database),
            fields=about,
        )
    return statement(
        line,
        verb_activity(sql or name),
        sql=sql,
        command=_text(fields, "command_class") or name,
        user=user,
        host=host,
        ip=ip,
        session=session,
        database=database,
        code=code,
        status=outcome(code),
        rest=fields,
        fields=about,
    )
