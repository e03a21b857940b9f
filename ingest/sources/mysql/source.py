"""MySQL 5.1 to 9 and MariaDB: error log (text and JSON), general, slow and audit logs.

https://dev.mysql.com/doc/refman/8.4/en/error-log-format.html,
https://mariadb.com/kb/en/error-log/. Who knocks chooses the user's name: an account is read
from the end of a message where nothing of the client's follows it, and not at all where a
name leaves it in doubt.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime
from typing import Any, ClassVar
from zoneinfo import ZoneInfo

from ingest.parsing.json_source import objects
from ingest.parsing.json_time import restamp_json
from ingest.parsing.ocsf import BASE, kept
from ingest.parsing.source import Context, Event, Record, Unreadable
from ingest.parsing.syslog import Line, one_line
from ingest.parsing.timestamps import stamp_iso
from ingest.sources.mysql.audit import CSV, audit_stamp, audited, flat, oracle
from ingest.sources.mysql.error import BODY, LEVELS, message
from ingest.sources.mysql.events import PRODUCT, nonempty
from ingest.sources.mysql.query import GENERAL, HEADER, Clients, general, slow
from ingest.sources.shared.daemon_source import NAMED, Daemon, daemon_event
from ingest.sources.shared.daemon_timestamps import ISO, SHORT, read_clock

_HEAD = (
    r"(?:(?P<thread>\d{1,20}|0x[0-9a-f]{1,16}|[0-9a-f]{6,16}) )?"
    rf"(?=\[(?:{LEVELS})\]|InnoDB: |mysqld(?:_safe)?[ :]|mariadbd(?:-safe)?[ :]|/)"
)
_OWN = re.compile(rf"(?P<time>{ISO}|{SHORT}) +{_HEAD}(?P<text>.*)", re.ASCII | re.DOTALL)


def _read(line: Line, context: Context) -> Event | None:
    """What the server logged, through syslog or in its own file."""
    # systemd passes on what the server printed, with its own time before it.
    own = _OWN.fullmatch(line.text) if line.program else None
    if own:
        stamp = read_clock(own["time"], context.zone(line.host), context.record.received_at)
        rest = line.rest | kept(thread=own["thread"])
        line = line._replace(stamp=stamp, text=own["text"], rest=rest)
    if line.program and "audit" in line.program:
        return audited(line)
    match = BODY.fullmatch(line.text)
    if match is None:
        return None
    rest = kept(log_level=match["level"], subsystem=match["subsystem"])
    severity = NAMED[match["level"].lower()] if match["level"] else None
    return message(line._replace(text=match["words"]), match["code"], severity, rest)


def _json(fields: dict[str, Any], context: Context) -> Event:
    """A JSON object: of the error log's sink, or of one of the audit plugins."""
    zone, received_at = context.zone(context.host), context.record.received_at
    record = fields.get("audit_record")
    if type(record) is dict:
        fields = {name: fields[name] for name in fields if name != "audit_record"} | record
    text = next((fields[n] for n in ("msg", "query", "sqltext") if type(fields.get(n)) is str), "")
    stamp = audit_stamp(fields, zone, received_at)
    line = Line(stamp, context.host, None, None, text, {})
    # The error log's sink; audit records have neither a priority nor an error code of the server.
    if "msg" in fields and ("prio" in fields or "err_code" in fields):
        return _sunk(fields, line)
    for name in ("timestamp", "date"):
        if stamp.quality != "received":
            fields.pop(name, None)
    if "class" in fields and ("event" in fields or "account" in fields):
        named = f"{fields.get('class')} {fields.get('event')}"
        data = fields.get("general_data")
        sql = data.get("query") if type(data) is dict else None
        return oracle(fields, line._replace(text=sql if type(sql) is str and sql else named))
    if "name" in fields or "cmd" in fields:
        named = str(fields.get("name") or fields.get("cmd"))
        return flat(fields, line._replace(text=text or named))
    raise Unreadable("no MySQL record: neither 'msg' nor 'class' nor 'name' in the object")


def _sunk(fields: dict[str, Any], line: Line) -> Event:
    """An object of log_sink_json."""
    fields.pop("msg")
    if line.stamp.quality != "received":
        fields.pop("time", None)
    label, code, thread = fields.pop("label", None), fields.pop("err_code", None), None
    if type(fields.get("thread")) is int:
        thread = str(fields.pop("thread"))
    prio = fields.get("prio")
    severity = NAMED.get(str(label).lower()) or {0: 5, 1: 4, 2: 3}.get(
        prio if type(prio) is int else 9
    )
    number = f"MY-{code:06d}" if type(code) is int and 0 <= code < 10**6 else None
    rest = fields | nonempty(log_level=label, err_code=None if number else code)
    line = line._replace(rest=kept(thread=thread))
    return message(line, number, severity, rest)


@dataclass(frozen=True)
class MySql(Daemon):
    """All logs of the server; each line or object says which it is."""

    whole_file: ClassVar[bool] = True

    def is_header(self, line: bytes) -> bool:
        return HEADER.fullmatch(line) is not None

    def is_whole(self, first: bytes) -> bool:
        # Statements of several lines, and JSON over several, are read from the whole file.
        return (
            super().is_whole(first)
            or first.lstrip()[:1] == b"["
            or HEADER.fullmatch(first.rstrip()) is not None
            or first.startswith((b"# Time:", b"# User@Host:"))
            or GENERAL.fullmatch(first.decode("utf-8", "replace").rstrip()) is not None
        )

    def parse(self, record: Record, context: Context) -> list[Event]:
        raw = record.raw
        if raw.lstrip()[:1] in (b"{", b"[") or raw[:2] == b"\x1f\x8b":
            return self._objects(raw, context)
        return super().parse(record, context)

    def _objects(self, raw: bytes, context: Context) -> list[Event]:
        events: list[Event] = []
        for each in objects(raw):
            try:
                if isinstance(each, Unreadable):
                    raise each
                events.append(_json(each, context))
            except Unreadable as why:
                events.append({"dead_letter_reason": str(why)})
        if all("dead_letter_reason" in event for event in events):
            raise Unreadable(events[0]["dead_letter_reason"] if events else "no record in it")
        return events

    def framed(self, text: str, context: Context) -> Line:
        line = super().framed(text, context)
        # In a file of its own server_audit writes no program.
        if line.program is None and CSV.fullmatch(text):
            return line._replace(program="server_audit")
        return line

    def events(self, raw: bytes, context: Context) -> list[Event]:
        text = _decoded(raw)
        if HEADER.fullmatch(raw.strip()):
            return [_unread_line(text, "header of a query log", context)]
        if text.startswith("# ") and "\n" in text:
            return [slow(text.split("\n"), context, None)[0]]
        line = _query(text, context)
        if line is not None:
            return [line]
        if "\n" in text:
            first, _, more = text.partition("\n")
            line_ = self.framed(first, context)
            return [self.read(line_._replace(text=f"{line_.text}\n{more}"), context)]
        if text.startswith("# "):
            return [slow([text], context, None)[0]]
        return super().events(raw, context)

    def several(self, raws: list[bytes], context: Context) -> list[Event]:
        """The entries of a file, each with the lines that belong to it."""
        events: list[Event] = []
        clients, time = Clients(), None
        matches = [GENERAL.fullmatch(_decoded(blob)) for blob in raws]
        after = _following(matches)
        for raw, match, following in zip(raws, matches, after, strict=True):
            if match:
                time = match["time"] or time
                client = clients.of(match, following)
                events.append(general(match, _at(match, time, context), client))
            elif raw.startswith(b"# "):
                event, time = slow(_decoded(raw).split("\n"), context, time)
                events.append(event)
            else:
                try:
                    events += self.events(raw, context)
                except Unreadable as why:
                    events.append({"dead_letter_reason": str(why)})
        if all("dead_letter_reason" in blob for blob in events):
            raise Unreadable(events[0]["dead_letter_reason"])
        return events

    def pieces(self, raw: bytes) -> list[bytes]:
        """The entries: lines that open none belong to the one before them.

        A statement may hold a line that opens one (`ingest.sources.mysql.query`).
        """
        piece_list: list[list[bytes]] = []
        slow_entry = False
        for line in raw.split(b"\n"):
            bare = line.rstrip(b"\r")
            if not bare.strip():
                continue
            if bare.startswith(b"# "):
                # The comment lines of one slow entry stand together: only the first opens it.
                opens = not slow_entry
                slow_entry = True
            else:
                opens = not piece_list or _opens(bare)
                slow_entry = False
            if opens:
                piece_list.append([])
            piece_list[-1].append(bare)
        return [b"\n".join(lines) for lines in piece_list]

    def restamp(self, raw: bytes, when: datetime, zone: ZoneInfo) -> bytes:
        if raw.lstrip()[:1] == b"{":
            key = "time" if b'"prio"' in raw else "timestamp"
            return restamp_json(raw, key, when, zone)
        return super().restamp(raw, when, zone)


def _following(matches: list[re.Match[str] | None]) -> list[re.Match[str] | None]:
    """For each line the next one of its connection."""
    latest: dict[str, re.Match[str]] = {}
    match_rows: list[re.Match[str] | None] = []
    # From the end, so that the next line of each connection is known before the one in front of it.
    for match in reversed(matches):
        match_rows.append(latest.get(match["thread"]) if match else None)
        if match:
            latest[match["thread"]] = match
    return match_rows[::-1]


_OPENS = re.compile(rf"(?:{ISO}|{SHORT}|\d{{8}} \d\d:|[A-Z][a-z]{{2}} [ \d]\d \d\d:|<\d)", re.ASCII)


def _opens(line: bytes) -> bool:
    text = line[:200].decode("utf-8", "replace")
    return (
        _OPENS.match(text) is not None
        or GENERAL.fullmatch(text) is not None
        or HEADER.fullmatch(line) is not None
    )


def _decoded(raw: bytes) -> str:
    """The text of an entry, which may be of several lines."""
    lines = [one_line(line) for line in raw.split(b"\n") if line.strip()]
    if not lines:
        raise Unreadable("the record is empty")
    return "\n".join(lines)


def _at(match: re.Match[str], time: str | None, context: Context) -> Line:
    host, received_at = context.host, context.record.received_at
    stamp = read_clock(time or "", context.zone(host), received_at)
    if time is None:
        stamp = stamp._replace(original=None)
    return Line(stamp, host, None, None, match["text"] or match["command"], {})


def _query(text: str, context: Context) -> Event | None:
    match = GENERAL.fullmatch(text)
    return general(match, _at(match, match["time"], context)) if match else None


def _unread_line(text: str, what: str, context: Context) -> Event:
    stamp = stamp_iso(None, context.zone(None), context.record.received_at)
    return daemon_event(
        Line(stamp, context.host, None, None, text, {}), PRODUCT, BASE, 0, rest={"is": what}
    )


SOURCES = (
    MySql(
        name="mysql",
        programs=frozenset(
            {
                *("mysqld", "mysql", "mariadbd", "mariadb", "mysqld_safe", "mariadbd-safe"),
                *("mysql-server_auditing", "mariadb-server_auditing", "mysqld-audit"),
                "server_audit",
            }
        ),
        product=PRODUCT,
        reader=_read,
        forms=(_OWN, CSV),
        families=("mysqld", "mysql@", "mariadb@"),
    ),
)
