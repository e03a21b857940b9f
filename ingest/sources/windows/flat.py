"""Windows events as flat JSON: one object of fields, as NXLog and what follows it write.

NXLog's im_msvistalog (https://docs.nxlog.co/refman/current/im/msvistalog.html) names the
fields; HELK and the recordings made with it add Logstash's.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime, timedelta
from types import MappingProxyType
from typing import Any
from zoneinfo import ZoneInfo

from ingest.parsing.source import Context, Unreadable
from ingest.parsing.strict_json import integral
from ingest.parsing.timestamps import Stamp, of_iso, stamp_epoch, stamp_iso
from ingest.sources.windows.columns.many import each, holds, is_of
from ingest.sources.windows.record import Logged, as_text, keywords_of, level_of, whole
from ingest.sources.windows.rendered import data_of
from ingest.sources.windows.system_part import by_sysmon, event_id_of, utc_stamp

_UTC = ZoneInfo("UTC")
QUARTER = timedelta(minutes=15)
LATE = timedelta(minutes=5)
"""How long after an event its `@timestamp` may be for both to be taken for one instant."""
_EARLY = timedelta(seconds=60)
EVENT_IDS = ("EventID", "EventId", "event_id", "EventIdentifier", "Id")
PROVIDERS = ("SourceName", "ProviderName", "EventSourceName", "Provider", "source_name")
CHANNELS = ("Channel", "LogName", "Logname", "log_name", "LogFileName")
_HOSTS = ("Hostname", "Computer", "ComputerName", "MachineName", "computer_name", "HostName")
GUIDS = ("ProviderGuid", "ProviderId", "provider_guid")
RECORDS = ("RecordNumber", "EventRecordID", "RecordId", "RecordID", "record_number")
LOCAL_TIMES = ("EventTime", "TimeCreated", "EventCreatedTime", "Timestamp")
UTC_TIMES = ("@timestamp", "TimeGenerated", "SystemTime")
# What NXLog writes of the `System` part and of itself; all the rest is the event's data.
CORE = frozenset(
    {
        *("Version", "Task", "Opcode", "OpcodeValue", "Category", "Severity", "SeverityValue"),
        *("SourceModuleName", "SourceModuleType", "EventReceivedTime", "AccountType", "Qualifiers"),
        *("@version", "host", "port", "tags", "type", "EventTypeOrignal", "ERROR_EVT_UNRESOLVED"),
        *(
            "RelatedActivityID",
            "TenantId",
            "SourceSystem",
            "MG",
            "_ResourceId",
            "z_logstash_pipeline",
        ),
    }
)
EVENT_TYPES: Mapping[str, int] = MappingProxyType(
    {"CRITICAL": 1, "ERROR": 2, "WARNING": 3, "INFO": 4, "INFORMATION": 4, "VERBOSE": 5}
)
SEVERITY_VALUES: Mapping[int, int] = MappingProxyType({1: 5, 2: 4, 3: 3, 4: 2, 5: 1})
JSON_DATE = re.compile(r"/Date\((-?\d{1,17})\)/")


def logged(fields: dict[str, Any], context: Context) -> Logged:
    """The event of one flat object, which is used up. Raises `Unreadable`."""
    take = fields.pop
    id_key = next((key for key in EVENT_IDS if fields.get(key) is not None), None)
    if id_key is None:
        raise Unreadable("no 'EventID' in the record")
    event_id = event_id_of(take(id_key))
    log = Logged(
        event_id=event_id,
        provider=_first(fields, PROVIDERS),
        channel=_first(fields, CHANNELS),
        computer=_first(fields, _HOSTS) or _host(fields) or context.host,
        stamp=Stamp.missing(context.record.received_at, None),
        data={},
        guid=_first(fields, GUIDS),
        record_id=_first(fields, RECORDS),
        activity_id=_first(fields, ("ActivityID", "ActivityId")),
        sid=_first(fields, ("UserID",)),
        message=_first(fields, ("Message", "RenderedDescription"), bare=False),
    )
    if log.provider is None and log.channel is None and log.guid is None:
        raise Unreadable("neither 'SourceName' nor 'Channel' in the record")
    _level(fields, log)
    _execution(fields, log)
    if "." in str(fields.get("Version")):
        log.data["Version"] = take("Version")  # that of a product, as Sysmon says its own
    log.rest |= {name: take(name) for name in list(fields) if name in CORE}
    times = {name: take(name) for name in (*LOCAL_TIMES, *UTC_TIMES) if name in fields}
    log.data |= {
        key: value if type(value) is str else as_text(value)
        for key, value in fields.items()
        if value is not None
    }
    _account(log)
    # What has a field of its own is never taken from the message, which is free text.
    if log.message and not _has_data(log):
        log.data = data_of(log) | log.data
    log.rest |= {name: value for name, value in times.items() if value is not None}
    # Sysmon's `UtcTime` says its zone and is the more exact, so the others are not needed.
    if not by_sysmon(log, log.data):
        _time(times, log, context)
    return log


def _has_data(log: Logged) -> bool:
    return any(name not in ("AccountName", "Domain", "EventType") for name in log.data)


def _first(fields: dict[str, Any], names: tuple[str, ...], bare: bool = True) -> str | None:
    """Take the first of these that is text, or a number as text."""
    for name in names:
        value = fields.get(name)
        # Most of the names stand in no event, and this is asked of all of them in each.
        if value is None:
            continue
        text: str | None = each(_text_of, value, bare)
        if text is not None:
            del fields[name]
            return text
    return None


def _text_of(value: Any, bare: bool) -> str | None:
    if type(value) is not str:
        value = integral(value)
        if type(value) is not int:
            return None
        value = str(value)
    stripped: str = value.strip()
    return (stripped if bare else value) if stripped else None


def _host(fields: Mapping[str, Any]) -> str | None:
    """The host of shippers that only name it so; it may also be the collector."""
    value = fields.get("host")
    return None if value is None else each(_host_in, value)


def _host_in(value: Any) -> str | None:
    if type(value) is dict:
        # Beats write `host` as an object.
        value = value.get("name") or value.get("hostname")
    return value if type(value) is str and value else None


def _level(fields: dict[str, Any], log: Logged) -> None:
    """Level and outcome, of which the shippers keep one or another."""
    kind = fields.get("EventType")
    kind = kind.upper() if type(kind) is str else None
    keywords = fields.get("Keywords")
    if keywords is not None:
        log.failed, mask = keywords_of(keywords)
        if mask is None and type(keywords) is str:
            log.failed = {"audit failure": True, "audit success": False}.get(keywords.lower())
        log.rest["Keywords"] = mask or fields["Keywords"]
        del fields["Keywords"]
    if kind in ("AUDIT_FAILURE", "AUDIT_SUCCESS"):
        log.failed = kind == "AUDIT_FAILURE"
    if kind in ("AUDIT_FAILURE", "AUDIT_SUCCESS") or kind in EVENT_TYPES:
        log.rest["EventType"] = fields.pop("EventType")
    level = level_of(fields.get("Level"))
    if level is not None:
        del fields["Level"]
        log.level = level
        return
    if log.failed is not None:
        return
    log.level = SEVERITY_VALUES.get(whole(fields.get("SeverityValue")) or 0)
    if log.level is None and kind is not None:
        log.level = EVENT_TYPES.get(kind)


def _execution(fields: dict[str, Any], log: Logged) -> None:
    """Who wrote the event. Old NXLog calls that `ProcessID`, a number; as text it is data."""
    if is_of(fields.get("ExecutionProcessID"), int):
        log.pid = fields.pop("ExecutionProcessID")
    # Events 5150 to 5159 of the filtering platform have a `ProcessID` among their own data.
    elif is_of(fields.get("ProcessID"), int) and log.event_id not in range(5150, 5160):
        log.pid = fields.pop("ProcessID")
    for name in ("ExecutionThreadID", "ThreadID"):
        if log.tid is None and is_of(fields.get(name), int):
            log.tid = fields.pop(name)


def _account(log: Logged) -> None:
    """The name of the account whose SID is `UserID`, where the event has no such field itself."""
    # NXLog puts `AccountType` beside the two it adds; without it they belong to the event.
    if log.sid is None or "AccountType" not in log.rest:
        return
    name, domain = log.data.get("AccountName"), log.data.get("Domain")
    if is_of(name, str) and is_of(domain, str):
        log.account = (name, domain)
        del log.data["AccountName"], log.data["Domain"]


# -- time --------------------------------------------------------------------------------------


def _time(times: Mapping[str, Any], log: Logged, context: Context) -> None:
    """Sets the time; what says no more than the time of the event goes out of `rest`."""
    local = next((name for name in LOCAL_TIMES if times.get(name) is not None), None)
    time_name = next((name for name in UTC_TIMES if times.get(name) is not None), None)
    utc = None if time_name is None else times[time_name]
    if local is None:
        log.stamp = each(_utc, utc, context.record.received_at)
        if time_name is not None and not holds(_is_arrival, log.stamp):
            del log.rest[time_name]
        return
    zone = each(context.zone, log.computer)
    log.stamp = each(_local, times[local], utc, zone, context.record.received_at)
    if holds(_is_plain, log.stamp):
        del log.rest[local]


def _is_arrival(stamp: Stamp) -> bool:
    return stamp.quality == "received"


def _is_plain(stamp: Stamp) -> bool:
    return stamp.original is None


def _utc(value: Any, received: datetime) -> Stamp:
    """The time of what is UTC by its name; the arrival where it cannot be read."""
    stamp = utc_stamp(_number(value), received)
    return Stamp.missing(received, value) if stamp.quality == "received" else stamp


def _local(value: Any, beside: Any, zone: ZoneInfo, received: datetime) -> Stamp:
    """The time of what may be local, with an `@timestamp` beside it, which is UTC.

    Where that is as late as events are shipped, behind a local time moved by a whole
    quarter of an hour, that is the zone of the local time, which is the more exact of both.
    """
    utc = None if beside is None else utc_stamp(_number(beside), received)
    if utc is not None and utc.quality == "received":
        utc = None
    written = _number(value)
    if type(written) is str:
        stamp = stamp_iso(written, zone, received)
        meant = _meant(written, utc.time) if utc is not None else None
    else:
        stamp, meant = stamp_epoch(written, received), None
    if meant is not None:
        same = stamp.quality == "exact" and stamp.time == meant
        return Stamp(meant, "exact", None if same else written)
    if stamp.quality == "received" and utc is not None:
        return utc._replace(original=str(written)[:64])
    return stamp


def _number(value: Any) -> Any:
    """The milliseconds of .NET's `/Date(1600000000000)/`; anything else as it is."""
    match = JSON_DATE.fullmatch(value) if type(value) is str else None
    return int(match[1]) if match else value


def _meant(written: str, utc: datetime) -> datetime | None:
    """The UTC instant of a local time without zone, if `utc` shows what its zone was."""
    read = of_iso(written, _UTC) if len(written) < 64 else None
    # Some shippers put a Z behind a local time; any other offset is believed.
    if read is None or (read[1] == "exact" and not written.endswith("Z")):
        return None
    behind = utc - read[0]
    # All zones of the world are whole quarters of an hour from UTC.
    offset = QUARTER * ((behind + _EARLY) // QUARTER)
    # No zone is further away than +14; so late an event was not shipped at once.
    if not -_EARLY <= behind - offset <= LATE or abs(offset) > timedelta(hours=14):
        return None
    if read[1] == "exact" and not offset:
        return read[0]
    meant = read[0] + offset
    # Both the same second: the other one may have a fraction.
    return utc if timedelta(0) <= utc - meant < timedelta(seconds=1) else meant
