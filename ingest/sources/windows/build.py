"""From an event of a Windows event log to its OCSF event."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from ingest.parsing.ocsf import (
    A_COMMAND,
    A_HASH,
    A_HOST,
    A_KEY,
    A_PATH,
    A_PROCESS,
    A_URL,
    A_USER,
    ACCOUNT,
    AN_IP,
    AUTHENTICATION,
    AUTHORIZATION,
    BASE,
    CRITICAL,
    DNS,
    EVENT_LOG,
    FAILURE,
    HIGH,
    HTTP,
    INFORMATIONAL,
    LOW,
    MEDIUM,
    MODULE,
    NETWORK,
    RDP,
    SMB,
    SUCCESS,
    USER_ACCESS,
    device,
    event,
    metadata,
    observables,
    unmapped,
)
from ingest.parsing.source import Event
from ingest.parsing.strict_json import encode
from ingest.parsing.timestamps import Stamp
from ingest.sources.windows.columns.many import holds
from ingest.sources.windows.providers import SYSMON_PRODUCT, product_of, rule_of
from ingest.sources.windows.record import NO_GUID, NOTHING, Fields, Logged, filled
from ingest.sources.windows.rule import EventRule, WindowsColumns, plain

_SEVERITY: Mapping[int, int] = MappingProxyType(
    {0: INFORMATIONAL, 1: CRITICAL, 2: HIGH, 3: MEDIUM, 4: INFORMATIONAL, 5: INFORMATIONAL}
)
NEED_ACTOR = frozenset(
    {1001, 1002, 1004, 1005, 1007, 1009, 1010, 201001, 201002, 201003, 201004, 6003}
)
"""Classes of which OCSF demands an actor."""
NEED_USER = frozenset({ACCOUNT, AUTHENTICATION, AUTHORIZATION, USER_ACCESS})
TO_HERE = frozenset({AUTHENTICATION, AUTHORIZATION, RDP, SMB})
_TRAFFIC = frozenset({NETWORK, HTTP, DNS, RDP, SMB})
START_IDS: Mapping[str, int] = MappingProxyType(
    {
        "boot start": 1,
        "system start": 2,
        "auto start": 3,
        "automatic": 3,
        "demand start": 4,
        "manual": 4,
        "disabled": 5,
    }
)
SERVICE_IDS: Mapping[str, int] = MappingProxyType(
    {
        "kernel mode driver": 1,
        "file system driver": 2,
        "user mode service": 3,
        "user mode shared service": 4,
    }
)
ENDPOINTS = ("src_endpoint", "dst_endpoint")
_NOBODY = "S-1-0-0"
"""The SID of Windows for no user at all."""
SENTENCE = 500
SEARCHED = (
    ("query", "hostname", A_HOST),
    ("reg_key", "path", A_KEY),
    ("reg_value", "path", A_KEY),
    ("job", "cmd_line", A_COMMAND),
    ("win_service", "cmd_line", A_COMMAND),
)
"""Columns with one leaf worth searching."""


class Parts(NamedTuple):
    """An event before anything of it is JSON: its columns, OCSF's `more`, what is left."""

    columns: Event
    more: dict[str, Any]
    left: dict[str, Any]


def event_of(log: Logged) -> Event:
    """The OCSF event. What finds no column is in `unmapped` under Windows' own names."""
    built, more, left = parts_of(log)
    if more:
        built["more"] = encode(more)
    built["observables"] = observables(*observed(built))
    built["unmapped"] = unmapped(left)
    return built


def parts_of(log: Logged) -> Parts:
    """The parts of the event, whose values may be many in place of one."""
    rule = rule_of(log)
    # What a mapping takes is gone from it, so what is left is what `unmapped` must keep.
    fields = Fields(log.data)
    columns = merge_always((rule.columns if rule else plain)(fields, log), rule)
    class_uid = columns.pop("class_uid", rule.class_uid if rule else BASE)
    activity = columns.pop("activity_id", rule.activity_id if rule else 0)
    status = columns.pop("status_id", None)
    if status is None and log.failed is not None:
        status = FAILURE if log.failed else SUCCESS
    title = columns.pop("message", None) or (rule.title if rule else None)
    _complete(columns, class_uid, log)
    more = columns.pop("more", {})
    stamp = Stamp(*log.stamp)
    built = event(
        class_uid,
        activity,
        stamp,
        activity_name=columns.pop("activity_name", None),
        severity_id=columns.pop("severity_id", None) or _severity(log, class_uid, status),
        status_id=status,
        action_id=columns.pop("action_id", None),
        disposition_id=columns.pop("disposition_id", None),
        message=title or _sentence(log),
        metadata=metadata(
            product_of(log),
            stamp,
            log_name=log.channel,
            log_provider=log.provider,
            event_code=str(log.event_id),
            uid=log.record_id,
            correlation_uid=_activity_id(log),
        ),
        device=device(log.computer),
        **{name: value for name, value in columns.items() if value is not None},
    )
    return Parts(built, more, _left(log, fields, title))


def merge_always(columns: WindowsColumns, rule: EventRule | None) -> WindowsColumns:
    """The columns with what the table says of every event of this id."""
    if rule is None or not rule.always:
        return columns
    more = {**rule.always.get("more", {}), **columns.get("more", {})}
    result = {
        **rule.always,
        **{name: column for name, column in columns.items() if column is not None},
    }
    if more:
        result["more"] = more
    return result


def _activity_id(log: Logged) -> str | None:
    uid = log.activity_id
    return None if uid is None or holds(_says_nothing, uid) else uid


def _says_nothing(uid: str) -> bool:
    return uid in NOTHING or uid in NO_GUID


def _severity(log: Logged, class_uid: int, status: int | None) -> int:
    """By the level; an audit has none but its outcome."""
    # Windows logs audits at level 0 or 4, whatever their outcome.
    if log.failed is not None and log.level in (None, 0, 4):
        return LOW if log.failed else INFORMATIONAL
    if log.level in (None, 0, 4) and class_uid == AUTHENTICATION and status == FAILURE:
        return LOW
    return _SEVERITY.get(log.level or 0, INFORMATIONAL)


def _complete(columns: WindowsColumns, class_uid: int, log: Logged) -> None:
    """What the class demands, from the rest of the event."""
    # Sysmon runs as a service: the account of its log entry is never who acted.
    if not columns.get("actor") and log.sid is not None and product_of(log) is not SYSMON_PRODUCT:
        name, domain = log.account
        columns["actor"] = {"user": filled(name=name, domain=domain, uid=log.sid)}
        log.sid, log.account = None, (None, None)
    if not columns.get("actor") and class_uid in NEED_ACTOR:
        columns["actor"] = {"invoked_by": log.provider or log.channel or "Windows"}
    has_target = any(columns.get(name) for name in ("dst_endpoint", "service"))
    if not has_target and log.computer:
        # These happen on the machine that logs them; of the rest OCSF wants one end at least.
        alone = class_uid in _TRAFFIC and not columns.get("src_endpoint")
        if class_uid in TO_HERE or alone:
            columns["dst_endpoint"] = {"hostname": log.computer}
    more = dict(columns.get("more") or {})
    if class_uid == EVENT_LOG:
        more.setdefault("log_name", log.channel or "unknown")
    if class_uid == MODULE:
        # OCSF wants to know how; Windows tells of the usual way alone.
        more["module"] = {"load_type_id": 1}
    # OCSF wants one of the two here, and Windows may name neither.
    if class_uid == AUTHORIZATION and not (columns.get("privileges") or columns.get("group")):
        more["privileges"] = []
    if class_uid != AUTHENTICATION:
        # Only a login has these two.
        more.pop("logon_type", None)
        more.pop("auth_protocol_id", None)
    if columns.get("win_service"):
        more["win_service"] = _service_ids(columns["win_service"])
    _identify(columns, more)
    columns["more"] = more
    if class_uid in NEED_USER and not columns.get("user"):
        columns["user"] = {"uid": _NOBODY}


def _service_ids(service: Mapping[str, Any]) -> dict[str, int]:
    """OCSF's numbers for the words of a service, of which it demands one."""
    start, kind = service.get("start_type"), service.get("type")
    return {
        "service_start_type_id": START_IDS.get(str(start).lower(), 0 if start is None else 99),
        "service_type_id": SERVICE_IDS.get(str(kind).lower(), 0 if kind is None else 99),
    }


def _identify(columns: WindowsColumns, more: dict[str, Any]) -> None:
    """OCSF wants an id of each process; where Windows only names one, its path stands for it.

    In `more` only, so that nobody searches for a path as an id.
    """
    who = columns.get("actor") or {}
    places = ((("actor", "process"), who.get("process")), (("process",), columns.get("process")))
    for path, run in places:
        while run:
            if "pid" not in run and "uid" not in run:
                setdefault = more
                for key in path:
                    setdefault = setdefault.setdefault(key, {})
                setdefault["uid"] = (
                    run.get("path") or run.get("name") or run.get("cmd_line") or "unknown"
                )
            run, path = run.get("parent"), (*path, "parent_process")


def _sentence(log: Logged) -> str:
    first = (log.message or "").strip().partition("\n")[0].strip()[:SENTENCE]
    return first or f"{log.provider or log.channel or 'Windows'} event {log.event_id}"


def _left(log: Logged, fields: Fields, title: str | None) -> dict[str, Any]:
    """The fields of Windows that no column has, under their own names."""
    left = {name: value for name, value in log.rest.items() if value is not None}
    # The rendered message only where it says more than the title.
    if log.message and log.message.strip() != (title or _sentence(log)):
        left["Message"] = log.message
    if log.level is not None:
        left.setdefault("Level", str(log.level))
    if log.sid is not None:
        left["UserID"] = log.sid
    for key, value in zip(("AccountName", "Domain"), log.account, strict=True):
        if value is not None:
            left[key] = value
    if log.pid is not None:
        left["ExecutionProcessID"] = log.pid
    if log.tid is not None:
        left["ExecutionThreadID"] = log.tid
    if log.guid is not None:
        left["ProviderGuid"] = log.guid
    for name, value in fields.left.items():
        # An event's own field may be called like one of the header; neither may hide the other.
        left[name if name not in left else f"Data.{name}"] = value
    return left


def observed(event: Event) -> Iterator[tuple[str, int, Any]]:
    """What is worth searching, from the columns that hold such."""
    for end in ENDPOINTS:
        if about := event.get(end):
            yield f"{end}.ip", AN_IP, about.get("ip")
            yield f"{end}.hostname", A_HOST, about.get("hostname")
    if about := event.get("device"):
        yield "device.hostname", A_HOST, about["hostname"]
    if about := event.get("user"):
        yield "user.name", A_USER, about.get("name")
    if who := event.get("actor"):
        if about := who.get("user"):
            yield "actor.user.name", A_USER, about.get("name")
        if about := who.get("process"):
            yield from _of_process("actor.process", about)
    if about := event.get("process"):
        yield from _of_process("process", about)
    if about := event.get("file"):
        yield from _of_file("file", about)
    if about := event.get("module"):
        yield from _of_file("module.file", about["file"])
    for column, leaf, kind in SEARCHED:
        if about := event.get(column):
            yield f"{column}.{leaf}", kind, about.get(leaf)
    if (about := event.get("http_request")) and about.get("url"):
        yield "http_request.url.url_string", A_URL, about["url"].get("url_string")


def _of_process(place: str, run: Mapping[str, Any]) -> Iterator[tuple[str, int, Any]]:
    path = run.get("path")
    if path:
        yield f"{place}.path", A_PATH, path
        yield f"{place}.name", A_PROCESS, path.rpartition("\\")[2].rpartition("/")[2]
    yield f"{place}.cmd_line", A_COMMAND, run.get("cmd_line")
    for hash_value in run.get("hashes") or ():
        yield f"{place}.hashes", A_HASH, hash_value["value"]


def _of_file(place: str, file: Mapping[str, Any]) -> Iterator[tuple[str, int, Any]]:
    yield f"{place}.path", A_PATH, file.get("path")
    for hash_value in file.get("hashes") or ():
        yield f"{place}.hashes", A_HASH, hash_value["value"]
