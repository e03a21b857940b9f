"""One Windows event in each of the forms its tools write, for the tests."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any
from xml.sax.saxutils import escape, quoteattr

NAMESPACE = "http://schemas.microsoft.com/win/2004/08/events/event"
SECURITY = "Microsoft-Windows-Security-Auditing"
SYSMON = "Microsoft-Windows-Sysmon"
SUCCESS, FAILURE, PLAIN = "0x8020000000000000", "0x8010000000000000", "0x8000000000000000"


@dataclass(frozen=True)
class Sample:
    """An event as its provider meant it. `data` without names is a tuple of values."""

    event_id: int
    data: Mapping[str, str] | tuple[str, ...] = field(default_factory=dict)
    provider: str = SECURITY
    channel: str = "Security"
    keywords: str = SUCCESS
    level: int = 0
    time: str = "2024-03-05T10:20:30.123456"
    computer: str = "WS01.corp.example"
    user_data: str = ""
    sid: str = ""

    @property
    def named(self) -> dict[str, str]:
        """The data by name, as flat forms have it."""
        if isinstance(self.data, tuple):
            return {f"param{at}": value for at, value in enumerate(self.data, 1)}
        return dict(self.data)


def sysmon(event_id: int, data: Mapping[str, str]) -> Sample:
    """An event of Sysmon."""
    return Sample(
        event_id,
        {"RuleName": "-", "UtcTime": "2024-03-05 10:20:30.123", **data},
        SYSMON,
        f"{SYSMON}/Operational",
        PLAIN,
        4,
        sid="S-1-5-18",
    )


def xml(one: Sample) -> bytes:
    """As Windows renders it."""
    if isinstance(one.data, tuple):
        inner = "".join(f"<Data>{escape(value)}</Data>" for value in one.data)
    elif one.user_data:
        inner = "".join(f"<{key}>{escape(value)}</{key}>" for key, value in one.data.items())
    else:
        inner = "".join(
            f"<Data Name={quoteattr(key)}>{escape(value)}</Data>" for key, value in one.data.items()
        )
    part = f"<EventData>{inner}</EventData>"
    if one.user_data:
        part = f"<UserData><{one.user_data} xmlns='urn:x'>{inner}</{one.user_data}></UserData>"
    security = f"<Security UserID='{one.sid}'/>" if one.sid else "<Security/>"
    return (
        f"<Event xmlns='{NAMESPACE}'><System><Provider Name='{one.provider}'/>"
        f"<EventID>{one.event_id}</EventID><Version>2</Version><Level>{one.level}</Level>"
        f"<Task>7</Task><Opcode>0</Opcode><Keywords>{one.keywords}</Keywords>"
        f"<TimeCreated SystemTime='{one.time}7Z'/><EventRecordID>4711</EventRecordID>"
        f"<Correlation/><Execution ProcessID='744' ThreadID='812'/>"
        f"<Channel>{one.channel}</Channel><Computer>{one.computer}</Computer>{security}"
        f"</System>{part}</Event>"
    ).encode()


def _system(one: Sample, text: Callable[[str, Any], Any]) -> dict[str, Any]:
    return {
        "EventID": one.event_id,
        "Version": 2,
        "Level": one.level,
        "Task": 7,
        "Opcode": 0,
        "Keywords": one.keywords,
        "EventRecordID": 4711,
        "Channel": one.channel,
        "Computer": one.computer,
        "Provider": text("Provider", {"Name": one.provider}),
        "TimeCreated": text("TimeCreated", {"SystemTime": f"{one.time}7Z"}),
        "Correlation": None,
        "Execution": text("Execution", {"ProcessID": 744, "ThreadID": 812}),
        "Security": text("Security", {"UserID": one.sid}) if one.sid else None,
    }


def _typed(value: str) -> Any:
    """As tools that know the types of XML's values write them."""
    if value in ("true", "false"):
        return value == "true"
    return int(value) if value.isdecimal() and str(int(value)) == value else value


def evtx_dump(one: Sample) -> bytes:
    """`evtx_dump -o jsonl`."""
    system = _system(one, lambda _, attributes: {"#attributes": attributes})
    event: dict[str, Any] = {"#attributes": {"xmlns": NAMESPACE}, "System": system}
    named = {key: _typed(value) for key, value in one.named.items()}
    if one.user_data:
        event["UserData"] = {one.user_data: {"#attributes": {"xmlns": "urn:x"}, **named}}
    elif isinstance(one.data, tuple):
        event["EventData"] = {"Data": {"#text": list(one.data)}}
    else:
        event["EventData"] = named or None
    return json.dumps({"Event": event}).encode()


def evtx_separate(one: Sample) -> bytes:
    """`evtx_dump --separate-json-attributes`."""
    found: dict[str, Any] = {}
    system = _system(one, lambda _, attributes: attributes)
    for name, value in system.items():
        if isinstance(value, dict):
            found[f"{name}_attributes"] = value
        else:
            found[name] = value
    named = {key: _typed(value) for key, value in one.named.items()}
    event: dict[str, Any] = {"System": found}
    if one.user_data:
        event["UserData"] = {one.user_data: named, f"{one.user_data}_attributes": {"xmlns": "u"}}
    elif isinstance(one.data, tuple):
        event["EventData"] = {"Data": list(one.data)}
    else:
        event["EventData"] = named
    return json.dumps({"Event": event, "Event_attributes": {"xmlns": NAMESPACE}}).encode()


def python_evtx(one: Sample) -> bytes:
    """python-evtx through xmltodict."""
    system = _system(
        one, lambda _, attributes: {f"@{key}": str(value) for key, value in attributes.items()}
    )
    system |= {key: str(value) for key, value in system.items() if isinstance(value, int)}
    system["EventID"] = {"@Qualifiers": "", "#text": str(one.event_id)}
    event: dict[str, Any] = {"@xmlns": NAMESPACE, "System": system}
    if one.user_data:
        event["UserData"] = {one.user_data: {"@xmlns": "urn:x", **one.named}}
    elif isinstance(one.data, tuple):
        event["EventData"] = {"Data": {"#text": list(one.data)}}
    else:
        data = [{"@Name": key, "#text": value} for key, value in one.data.items()]
        event["EventData"] = {"Data": data}
    return json.dumps({"Event": event}).encode()


def velociraptor(one: Sample) -> bytes:
    """Plain keys, without `Event` around."""
    system = _system(one, lambda _, attributes: attributes)
    system["EventID"] = {"Value": one.event_id}
    named = {key: _typed(value) for key, value in one.named.items()}
    part = {one.user_data: named} if one.user_data else named
    name = "UserData" if one.user_data else "EventData"
    return json.dumps({"System": system, name: part}).encode()


def nxlog(one: Sample) -> bytes:
    """NXLog's flat JSON, with Logstash's UTC time beside the local one (UTC-5)."""
    mask = int(one.keywords, 16)
    kind = {SUCCESS: "AUDIT_SUCCESS", FAILURE: "AUDIT_FAILURE"}.get(one.keywords, "INFO")
    found = {
        "EventTime": "2024-03-05 05:20:30",
        "Hostname": one.computer,
        "Keywords": mask - 2**64 if mask >= 2**63 else mask,
        "EventType": kind,
        "SeverityValue": 2,
        "Severity": "INFO",
        "EventID": one.event_id,
        "SourceName": one.provider,
        "Version": 2,
        "Task": 7,
        "OpcodeValue": 0,
        "RecordNumber": 4711,
        "ExecutionProcessID": 744,
        "ThreadID": 812,
        "Channel": one.channel,
        "EventReceivedTime": "2024-03-05 05:20:31",
        "SourceModuleName": "eventlog",
        "SourceModuleType": "im_msvistalog",
        "@timestamp": f"{one.time[:-3]}Z",
        "Level": one.level,
    }
    if one.sid:
        found["UserID"] = one.sid
    return json.dumps(found | one.named).encode()


def beat(one: Sample) -> bytes:
    """Winlogbeat 7 and 8."""
    levels = {1: "critical", 2: "error", 3: "warning"}
    words = {SUCCESS: ["Audit Success"], FAILURE: ["Audit Failure"]}.get(one.keywords)
    winlog: dict[str, Any] = {
        "api": "wineventlog",
        "channel": one.channel,
        "computer_name": one.computer,
        "event_id": str(one.event_id),
        "provider_name": one.provider,
        "record_id": 4711,
        "opcode": "Info",
        "version": 2,
        "process": {"pid": 744, "thread": {"id": 812}},
        "user_data" if one.user_data else "event_data": one.named,
    }
    if words:
        winlog["keywords"] = words
    if one.sid:
        winlog["user"] = {"identifier": one.sid}
    document = {
        "@timestamp": f"{one.time[:-3]}Z",
        "event": {"code": str(one.event_id), "kind": "event", "provider": one.provider},
        "host": {"name": one.computer},
        "log": {"level": levels.get(one.level, "information")},
        "agent": {"type": "winlogbeat", "version": "8.11.1"},
        "ecs": {"version": "8.0.0"},
        "winlog": winlog,
    }
    return json.dumps(document).encode()


def beat6(one: Sample) -> bytes:
    """Winlogbeat 6, flat."""
    document: dict[str, Any] = {
        "@timestamp": f"{one.time[:-3]}Z",
        "beat": {"name": "WS01", "hostname": "WS01", "version": "6.8.0"},
        "type": "wineventlog",
        "computer_name": one.computer,
        "event_id": one.event_id,
        "source_name": one.provider,
        "log_name": one.channel,
        "record_number": "4711",
        "level": {1: "Critical", 2: "Error", 3: "Warning"}.get(one.level, "Information"),
        "process_id": 744,
        "thread_id": 812,
        "user_data" if one.user_data else "event_data": one.named,
    }
    words = {SUCCESS: ["Audit Success"], FAILURE: ["Audit Failure"]}.get(one.keywords)
    if words:
        document["keywords"] = words
    if one.sid:
        document["user"] = {"identifier": one.sid}
    return json.dumps(document).encode()


FORMS: Mapping[str, tuple[str, Callable[[Sample], bytes]]] = MappingProxyType(
    {
        "xml": ("windows_xml", xml),
        "evtx_dump": ("windows_evtx_json", evtx_dump),
        "evtx_separate": ("windows_evtx_json", evtx_separate),
        "python_evtx": ("windows_evtx_json", python_evtx),
        "velociraptor": ("windows_evtx_json", velociraptor),
        "nxlog": ("windows_nxlog", nxlog),
        "beat": ("winlogbeat", beat),
        "beat6": ("winlogbeat", beat6),
    }
)
