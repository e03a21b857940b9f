"""JSON of any product: time and common fields found by name, all else kept as it is.

Names are those of the Elastic Common Schema, nested or dotted
(https://www.elastic.co/docs/reference/ecs), of GELF, CEE, Docker, journald's export
(https://systemd.io/JOURNAL_EXPORT_FORMATS/), of the loggers of common languages, and the
spellings that products use for them. What is a syslog message in a wrapper of JSON, from journald
or from Azure's Log Analytics, is read as that message.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime
from types import MappingProxyType
from typing import Any, ClassVar, NamedTuple, Protocol, runtime_checkable
from zoneinfo import ZoneInfo

from ingest.parsing import field_lookup
from ingest.parsing.field_lookup import Named
from ingest.parsing.json_source import JsonSource
from ingest.parsing.json_time import restamp_json
from ingest.parsing.ocsf import (
    A_HOST,
    A_MAC,
    A_USER,
    AN_IP,
    AUTHENTICATION,
    BASE,
    CRITICAL,
    FAILURE,
    FATAL,
    FILE,
    HIGH,
    INFORMATIONAL,
    LOW,
    MEDIUM,
    PROCESS,
    SUCCESS,
    address,
    device,
    event,
    kept,
    metadata,
    observables,
    unmapped,
)
from ingest.parsing.source import Context, Event, Unreadable, sources
from ingest.parsing.strict_json import decode_object
from ingest.parsing.syslog import SEVERITIES, Line
from ingest.parsing.timestamps import Stamp, stamp_epoch
from ingest.sources.generic.json_class import guessed
from ingest.sources.generic.json_names import (
    COMMAND,
    EVENT_CODE,
    EVENT_UID,
    EXECUTABLE,
    HOST,
    LEVEL,
    MESSAGE,
    OUTCOME,
    PID,
    PROGRAM,
    SOURCE_HOST,
    SOURCE_IP,
    SOURCE_MAC,
    SOURCE_NAME,
    SOURCE_PORT,
    TARGET_HOST,
    TARGET_IP,
    TARGET_MAC,
    TARGET_NAME,
    TARGET_PORT,
    TIME,
    USER,
    USER_MAIL,
    USER_UID,
)
from ingest.sources.generic.otlp import records_of

_PRODUCT: Mapping[str, str] = {"name": "JSON", "vendor_name": "Unknown"}
_LEVELS: Mapping[str, int] = MappingProxyType(
    {
        **dict.fromkeys(("fatal", "emerg", "emergency", "panic"), FATAL),
        **dict.fromkeys(("critical", "crit", "alert", "severe"), CRITICAL),
        **dict.fromkeys(("error", "err", "high", "eror"), HIGH),
        **dict.fromkeys(("warning", "warn", "medium", "wrn"), MEDIUM),
        **dict.fromkeys(("notice", "low", "note"), LOW),
        **dict.fromkeys(("info", "information", "informational", "debug", "trace"), INFORMATIONAL),
        **dict.fromkeys(
            ("verbose", "fine", "finer", "finest", "dbg", "inf", "config"), INFORMATIONAL
        ),
    }
)
_BY_TENS = {10: 1, 20: 1, 30: 1, 40: 3, 50: 4, 60: 6}
"""Levels of pino and bunyan, from trace to fatal."""
_DONE = frozenset({"success", "succeeded", "successful", "ok", "true", "allowed", "allow", "pass"})
_FAILED = frozenset(
    {"failure", "failed", "fail", "error", "false", "denied", "deny", "blocked", "unauthorized"}
)


@runtime_checkable
class LineRouter(Protocol):
    """What hands a line of syslog to the source that knows its program."""

    def events_of_line(self, line: Line, context: Context) -> list[Event]: ...


class Framing(NamedTuple):
    """What came around an object of JSON, and holds where the object says nothing."""

    stamp: Stamp | None = None
    host: str | None = None
    program: str | None = None
    pid: int | None = None
    rest: Mapping[str, Any] = MappingProxyType({})


_ALONE = Framing()


def _read(fields: dict[str, Any], context: Context, framing: Framing = _ALONE) -> Event:
    """The event of an object, which is emptied of what is used."""
    named = Named(fields)
    host = named.take(HOST) or framing.host or context.host
    stamp = _stamp(named, context, host) or framing.stamp
    stamp = stamp or Stamp.missing(context.record.received_at, None)
    message = named.take(MESSAGE)
    level, number = _level(named)
    source = _endpoint(named, SOURCE_IP, SOURCE_PORT, SOURCE_MAC, SOURCE_HOST, SOURCE_NAME)
    target = _endpoint(named, TARGET_IP, TARGET_PORT, TARGET_MAC, TARGET_HOST, TARGET_NAME)
    user = _user(named)
    program = named.take(PROGRAM) or framing.program
    process = _process(named, program, framing.pid)
    outcome, _ = named.find(OUTCOME, _outcome)
    code, _ = named.find(EVENT_CODE, field_lookup.word)
    uid, _ = named.find(EVENT_UID, field_lookup.word)
    guess = guessed(named, source, target, user, process, outcome, code)
    observed = (
        ("src_endpoint.ip", AN_IP, (source or {}).get("ip")),
        ("src_endpoint.mac", A_MAC, (source or {}).get("mac")),
        ("src_endpoint.hostname", A_HOST, (source or {}).get("hostname")),
        ("dst_endpoint.ip", AN_IP, (target or {}).get("ip")),
        ("user.name", A_USER, (user or {}).get("name")),
    )
    columns: dict[str, Any] = {"user": user, "status_id": outcome}
    if process:
        columns["actor"] = {"process": process}
    if guess:
        # A process that began is no actor of its own beginning: that is what began it.
        began = "process" in guess.columns
        acting = {} if began else dict(columns.get("actor") or {})
        acting |= guess.columns.get("actor") or {}
        # Other classes have the user as the one who acts.
        if guess.class_uid != AUTHENTICATION:
            columns["user"] = None
        columns |= guess.columns | ({"actor": acting} if acting else {})
    more: dict[str, Any] = {"metadata": {"log_level": level}} if level else {}
    # OCSF demands the machine of these, also where the object names none.
    if guess and guess.class_uid in (FILE, PROCESS) and not host:
        more["device"] = {"type_id": 0, "name": "unknown"}
    return event(
        guess.class_uid if guess else BASE,
        guess.activity_id if guess else 0,
        stamp,
        severity_id=INFORMATIONAL if number is None else number,
        message=message,
        metadata=metadata(
            _PRODUCT, stamp, log_provider=program, event_code=code, uid=uid if uid != code else None
        ),
        src_endpoint=source,
        dst_endpoint=target,
        device=device(host),
        observables=observables(*observed),
        unmapped=unmapped(dict(framing.rest) | fields),
        more=more or None,
        **columns,
    )


def _stamp(named: Named, context: Context, host: str | None) -> Stamp | None:
    zone, received_at = context.zone(host), context.record.received_at
    day, day_at = named.find(("date", "day", "logdate", "eventdate"), field_lookup.text)
    clock, clock_at = named.find(("time", "clock", "logtime", "eventtime"), field_lookup.text)
    both = field_lookup.of_two(day, clock, zone, received_at)
    # Only where both could be read: half of it would leave a date without its time.
    if both and day_at and clock_at:
        named.drop(day_at)
        named.drop(clock_at)
        return both
    stamp: Stamp | None = named.take(
        TIME, lambda value: field_lookup.read_moment(value, zone, received_at)
    )
    if stamp is None:
        # The likeliest names alone: a `start` or a `t` that is no time mostly means something else.
        spelled, _ = named.find(TIME[:12], field_lookup.word)
        return None if spelled is None else Stamp.missing(received_at, spelled)
    return stamp


def _level(named: Named) -> tuple[str | None, int | None]:
    """The level as it is written, and the severity that it is."""
    # GELF counts as syslog does, 0 the gravest; elsewhere a small number may mean anything.
    gelf = named.has("shortmessage")

    def reads(value: Any) -> tuple[str | None, int] | None:
        if type(value) is str and value.lower() in _LEVELS:
            return value, _LEVELS[value.lower()]
        if type(value) is str and value.isdecimal() and len(value) < 4:
            value = int(value)
        if type(value) is not int:
            return None
        if value in _BY_TENS:
            return str(value), _BY_TENS[value]
        return (str(value), SEVERITIES[value]) if gelf and 0 <= value <= 7 else None

    value, path = named.find(LEVEL, reads)
    if path is None:
        return None, None
    named.drop(path)
    written, number = value
    return written, number


def _endpoint(
    named: Named,
    ips: tuple[str, ...],
    ports: tuple[str, ...],
    macs: tuple[str, ...],
    hosts: tuple[str, ...],
    names: tuple[str, ...],
) -> dict[str, Any] | None:
    take = named.take(ips, field_lookup.ip)
    port = named.take(ports, field_lookup.port)
    end = kept(
        ip=take[0] if take else None,
        port=port if port is not None else take[1] if take else None,
        mac=named.take(macs, field_lookup.mac),
        hostname=named.take(hosts) or named.take(names, _host_name),
    )
    return end or None


def _host_name(value: Any) -> str | None:
    """A host's name with a dot; an address in its place is none."""
    named = type(value) is str and re.fullmatch(r"[\w-]+(?:\.[\w-]+)+\.?", value, re.ASCII)
    return value if named and address(value) is None else None


def _user(named: Named) -> dict[str, Any] | None:
    name = named.take(USER)
    mail = named.take(USER_MAIL)
    uid = named.take(USER_UID, field_lookup.word)
    return kept(name=name or mail, uid=uid, email_addr=mail) or None


def _process(named: Named, program: str | None, pid: int | None) -> dict[str, Any] | None:
    number = named.take(PID, field_lookup.whole)
    # The object's own pid counts before that of the frame it came in.
    number = pid if number is None else number
    path, line = named.take(EXECUTABLE), named.take(COMMAND)
    # OCSF has no process of a name alone.
    if number is None and not path and not line:
        return None
    name = program or (path or "").rpartition("/")[2] or None
    return kept(pid=number, name=name, path=path, cmd_line=line)


def _outcome(value: Any) -> int | None:
    if type(value) is bool:
        return SUCCESS if value else FAILURE
    if type(value) is str and value.lower().lstrip("/") in _DONE:
        return SUCCESS
    return FAILURE if type(value) is str and value.lower().lstrip("/") in _FAILED else None


# -- syslog in a wrapper of JSON -------------------------------------------------------------------


def wrapped(fields: dict[str, Any], context: Context) -> Line | None:
    """The line of syslog that an object of journald or of Log Analytics holds, if it is one."""
    if type(fields.get("SyslogMessage")) is str:
        return _of_azure(fields, context)
    if "__REALTIME_TIMESTAMP" in fields and type(fields.get("MESSAGE")) is str:
        return _of_journal(fields, context)
    return None


def _of_azure(fields: dict[str, Any], context: Context) -> Line:
    rest = dict(fields)
    text = rest.pop("SyslogMessage")
    host = _pop_text(rest, "HostName") or _pop_text(rest, "Computer")
    zone, received_at = context.zone(host), context.record.received_at
    stamp = None
    for name in ("TimeGenerated", "EventTime"):
        stamp = field_lookup.read_moment(rest.get(name), zone, received_at)
        if stamp:
            del rest[name]
            break
    program, pid = _pop_text(rest, "ProcessName"), field_lookup.whole(rest.get("ProcessID"))
    if pid is not None:
        del rest["ProcessID"]
    # What some collections add: the text once more, taken apart.
    if type(rest.get("EventData")) is str and rest["EventData"] in text:
        del rest["EventData"]
    return Line(stamp or Stamp.missing(received_at, None), host, program, pid, text.strip(), rest)


def _of_journal(fields: dict[str, Any], context: Context) -> Line:
    rest = dict(fields)
    received_at = context.record.received_at
    spelled = rest.pop("__REALTIME_TIMESTAMP")
    micros = field_lookup.whole(spelled)
    stamp = (
        Stamp.missing(received_at, spelled)
        if micros is None
        # journald counts microseconds, whatever the size of the number says.
        else stamp_epoch(micros if micros >= 10**14 else spelled, received_at)
    )
    text, host = rest.pop("MESSAGE"), _pop_text(rest, "_HOSTNAME")
    program = _pop_text(rest, "SYSLOG_IDENTIFIER") or _pop_text(rest, "_COMM")
    pid = field_lookup.whole(rest.pop("_PID", None) or rest.pop("SYSLOG_PID", None))
    level = field_lookup.whole(rest.get("PRIORITY"))
    if level is not None and level <= 7:
        del rest["PRIORITY"]
        rest["level"] = level
    return Line(stamp, host or context.host, program, pid, text.strip(), rest)


def _pop_text(fields: dict[str, Any], name: str) -> str | None:
    value = fields.get(name)
    if type(value) is not str or not value:
        return None
    del fields[name]
    return value


def of_line(line: Line, text: bytes, context: Context) -> list[Event]:
    """The event of an object that a line of syslog holds. Raises `Unreadable`."""
    framing = Framing(line.stamp, line.host, line.program, line.pid, line.rest)
    return [_read(decode_object(text), context, framing)]


class Json(JsonSource):
    """Objects of any product."""

    name = "json"
    packings: ClassVar[frozenset[str]] = frozenset(
        {"logs", "events", "value", "data", "items", "records", "results", "entries", "logEvents"}
    )

    def events(self, fields: dict[str, Any], context: Context) -> list[Event]:
        if not fields:
            raise Unreadable("no 'time' or any other field in the object")
        # What OpenTelemetry's collector sends holds records of several machines.
        packed = records_of(fields) or self._packed(fields)
        if packed is not None:
            return [each for element in packed for each in self.events(element, context)]
        line = wrapped(fields, context)
        if line is not None:
            # By name: the router of syslog knows all sources, and so this one.
            router = sources()["syslog"]
            assert isinstance(router, LineRouter)
            return router.events_of_line(line, context)
        return [_read(fields, context)]

    def _packed(self, fields: dict[str, Any]) -> list[dict[str, Any]] | None:
        """The objects in an object that holds nothing else."""
        # An object with more fields is an event that happens to have such a list.
        if len(fields) != 1:
            return None
        ((key, value),) = fields.items()
        if key not in self.packings or type(value) is not list or not value:
            return None
        return value if all(type(element) is dict and element for element in value) else None

    def restamp(self, raw: bytes, when: datetime, zone: ZoneInfo) -> bytes:
        named = Named(decode_object(raw))
        _, path = named.find(TIME, lambda value: field_lookup.read_moment(value, zone, when))
        if path is None or len(path) != 1:
            raise Unreadable("no time at the top of the object")
        return restamp_json(raw, path[0], when, zone)


SOURCES = (Json(),)
