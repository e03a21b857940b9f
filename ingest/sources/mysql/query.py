"""The general and the slow query log of MySQL and MariaDB.

https://dev.mysql.com/doc/refman/8.4/en/query-log.html and
https://dev.mysql.com/doc/refman/8.4/en/slow-query-log.html. A statement may have many lines,
and only the line of its connection names the client; a file is therefore best read whole.

The server writes a statement as it came, line feeds and all, neither escaped nor indented, and no
length before it. So a statement with a line that looks like the beginning of an entry cannot be
told from two entries: whoever may run statements can put any entry here, with any time, thread and
account. Times that run on show nothing, since the current one can be written as well. Where this
matters, read an audit log: those of `ingest.sources.mysql.audit` escape line feeds.
"""

from __future__ import annotations

import re
from typing import Any

from ingest.parsing.ocsf import FAILURE, SUCCESS, UNKNOWN
from ingest.parsing.source import Context, Event
from ingest.parsing.syslog import Line
from ingest.parsing.timestamps import Stamp
from ingest.sources.mysql.events import (
    ACCOUNT_SWITCH,
    CONNECT,
    LOGOFF,
    LOGON,
    QUERY,
    logon,
    nonempty,
    split_account,
    statement,
    verb_activity,
)
from ingest.sources.shared.daemon_timestamps import ISO, SHORT, read_clock

_COMMANDS = (
    "Binlog Dump GTID|Binlog Dump|Bulk execute|Change user|Close stmt|Connect Out|Connect|"
    "Create DB|Daemon|Debug|Delayed insert|Drop DB|Error|Execute|Fetch|Field List|Init DB|Kill|"
    "Long Data|Ping|Prepare|Processlist|Query|Quit|Refresh|Register Slave|Register Replica|"
    "Reset Connection|Reset stmt|Set option|Shutdown|Sleep|Statistics|Table Dump|Time|clone"
)
GENERAL = re.compile(
    rf"(?:(?P<time>{ISO}|{SHORT}))?[\t ]{{1,40}}(?P<thread>\d{{1,20}}) "
    rf"(?P<command>{_COMMANDS})(?:[\t ]+(?P<text>.*)|\s*)",
    re.ASCII | re.DOTALL,
)
HEADER = re.compile(
    rb"\S*(?:mysqld|mariadbd)\S*, Version: .{0,400}started with:\s*|Tcp port: .{0,400}|"
    rb"Time\s+Id\s+Command\s+Argument\s*"
)
_CONNECTED = re.compile(
    r"(?P<account>.*?)(?: as (?P<as>\S*))?(?: on (?P<database>.*?))?(?: using (?P<over>[\w/ ]+))?"
)
_DENIED = re.compile(r"Access denied for user '(?P<account>.*)'(?P<how>.*)")
SLOW_USER = re.compile(
    r"# User@Host: (?P<user>[^\[\]]*)\[(?P<priv>[^\[\]]*)\] @ (?P<host>[^\[\]\s]*) "
    r"\[(?P<ip>[^\[\]]*)\](?:\s+Id:\s+(?P<id>\d{1,20}))?.*"
)
SLOW_TIME = re.compile(rf"# Time: (?P<time>{ISO}|{SHORT})\s*", re.ASCII)
# From the beginning of a word alone: a long one without a colon would be tried from each letter.
_FACT = re.compile(r"\b(\w+): +(\S+)")
_SET_TIME = re.compile(r"SET timestamp=(\d{9,12}(?:\.\d+)?);")


def general(match: re.Match[str], line: Line, client: dict[str, str] | None = None) -> Event:
    """A line of the general log; `client` is what an earlier line said of its connection."""
    command, argument, thread = match["command"], match["text"] or "", match["thread"]
    client = client or {}
    rest: dict[str, Any] = {}
    fields = {"log_name": "general", "event_code": command}
    line = line._replace(text=f"{command} {argument}".strip())
    if command in ("Connect", "Change user") or command == "Quit":
        return _session(command, argument, thread, client, line, fields)
    database = argument if command == "Init DB" else client.get("database")
    sql = argument if command in ("Query", "Prepare", "Execute", "Bulk execute") else None
    if not sql and argument and command != "Init DB":
        rest["argument"] = argument
    return statement(
        line,
        CONNECT if command == "Init DB" else verb_activity(sql) if sql else QUERY,
        sql=sql,
        command=command,
        user=client.get("user"),
        host=client.get("host"),
        session=thread,
        database=database,
        rest=rest,
        fields=fields,
    )


def _session(
    command: str,
    argument: str,
    thread: str,
    client: dict[str, str],
    line: Line,
    fields: dict[str, str],
) -> Event:
    if command == "Quit":
        user, host = client.get("user"), client.get("host")
        return logon(
            line, LOGOFF, SUCCESS, user=user, host=host, session=thread, rest={}, fields=fields
        )
    activity = ACCOUNT_SWITCH if command == "Change user" else LOGON
    denied = _DENIED.fullmatch(argument)
    if denied:
        # From the end: the user's name is chosen by whoever knocks.
        user, _, host = denied["account"].rpartition("'@'")
        return logon(
            line,
            activity,
            FAILURE,
            user=user or None,
            host=host or None,
            detail=argument,
            session=thread,
            rest={},
            fields=fields,
        )
    part = _connected(argument)
    # The server writes this line before it has looked at the password: only what follows
    # in the same file can say whether it was let in.
    status = {"no": FAILURE, "yes": SUCCESS}.get(client.get("admitted", ""), UNKNOWN)
    return logon(
        line,
        activity,
        status,
        user=part.get("user"),
        host=part.get("host"),
        session=thread,
        rest=nonempty(
            database=part.get("database"), using=part.get("over"), proxied_as=part.get("as")
        ),
        fields=fields,
    )


def _connected(argument: str) -> dict[str, str]:
    """User, host and database of a `Connect` line."""
    match = _CONNECTED.fullmatch(argument)
    if match is None:
        return {}
    # A database can be named ` on `, but the account comes first: its host has no space.
    user, host = split_account(match["account"])
    results = {"user": user, "host": host, "database": match["database"], "as": match["as"]}
    return {name: value for name, value in (results | {"over": match["over"]}).items() if value}


class Clients:
    """What the lines of one general log say of its connections so far."""

    def __init__(self) -> None:
        self._by_thread: dict[str, dict[str, str]] = {}

    def of(self, match: re.Match[str], following: re.Match[str] | None) -> dict[str, str]:
        """The client of a line; `following` is the next line of the same connection."""
        thread, command = match["thread"], match["command"]
        argument = match["text"] or ""
        if command in ("Connect", "Change user") and not _DENIED.fullmatch(argument):
            client = _connected(argument)
            if following is not None:
                # A refusal is a second line of the same command and connection, right behind the
                # first.
                denied = following["command"] == command and _DENIED.fullmatch(
                    following["text"] or ""
                )
                client["admitted"] = "no" if denied else "yes"
            # Only the line of the connection names the client; later ones have its number alone.
            self._by_thread[thread] = client
        elif command == "Init DB" and thread in self._by_thread:
            self._by_thread[thread]["database"] = argument
        return self._by_thread.get(thread, {})


def slow(lines: list[str], context: Context, time: str | None) -> tuple[Event, str | None]:
    """An entry of the slow log, and its time, which holds for entries that name none."""
    facts: dict[str, str] = {}
    account: re.Match[str] | None = None
    body: list[str] = []
    match = None
    for text in lines:
        when = SLOW_TIME.fullmatch(text)
        if when:
            time = when["time"]
        elif text.startswith("# User@Host:"):
            account = SLOW_USER.fullmatch(text)
            facts |= {} if account else {"user_host": text}
        elif text.startswith("# "):
            facts |= dict(_FACT.findall(text))
        elif _SET_TIME.fullmatch(text):
            match = _SET_TIME.fullmatch(text)
        else:
            body.append(text)
    database = facts.pop("Schema", None)
    # The slow log repeats `use` before the statement when the database has changed.
    if body and body[0].lower().startswith("use ") and len(body) > 1:
        database = body.pop(0)[4:].strip(" ;`")
    received_at = context.record.received_at
    stamp = Stamp.missing(received_at, None)
    if time:
        stamp = read_clock(time, context.zone(context.host), received_at)
    elif match:
        # `SET timestamp` is when the statement began; the line `# Time` when it was logged.
        stamp = read_clock(match[1], context.zone(context.host), received_at)
    sql = "\n".join(body).strip()
    seconds = facts.get("Query_time", "")
    line = Line(stamp, context.host, None, None, sql or "slow query", {})
    thread = (account["id"] if account else None) or facts.pop("Thread_id", None)
    event = statement(
        line,
        verb_activity(sql),
        sql=sql or None,
        command="Query",
        user=account["user"].strip() if account else None,
        host=account["host"] if account else None,
        ip=account["ip"] if account else None,
        session=thread,
        database=database,
        rest=dict(facts) | nonempty(set_timestamp=match[1] if match else None),
        fields={"log_name": "slow"},
        duration=_milliseconds(seconds),
    )
    return event, time


def _milliseconds(seconds: str) -> int | None:
    return int(float(seconds) * 1000) if re.fullmatch(r"\d{1,9}(?:\.\d{1,9})?", seconds) else None
