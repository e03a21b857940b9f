"""A record as its product writes it, made of Sigma's fields."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any

from alerts.reach.asa_form import asa_line
from alerts.reach.azure_form import azure_record
from alerts.reach.daemon_form import daemon_line
from alerts.reach.example_values import KEYWORDS
from alerts.reach.fortios_form import fortios_line
from alerts.reach.nested_form import nested
from alerts.reach.osquery_form import osquery_row
from alerts.reach.zeek_form import zeek_line
from alerts.rulepack.log_source import LogSource
from ingest.parsing.event_rows import event_rows
from ingest.parsing.source import ParseSettings, Record
from ingest.sources.windows.network_logs import RPC_CALL
from ingest.sources.windows.record import level_of

NOON = datetime(2025, 3, 5, 12, tzinfo=UTC)
_STAMP = "2025-03-05T12:00:00.000Z"
_ISO_STAMP = "2025-03-05T12:00:00.000000Z"
SYSMON = "Microsoft-Windows-Sysmon"


@dataclass(frozen=True)
class RawRecord:
    """A record and the source that reads it."""

    source: str
    raw: bytes

    def by_another(self) -> RawRecord:
        """The same by a name that is no address, from outside: a rule may rule the usual out."""
        named = self.raw.replace(b"ann@example.com", b"ann")
        return replace(self, raw=named.replace(b"10.0.0.5", b"198.51.100.7"))

    def events(self) -> list[dict[str, Any]]:
        """What the parser makes of it; what it refuses has `dead_letter_reason`."""
        settings = ParseSettings(scopes=(("default", ()),))
        return event_rows([Record("reach", self.source, "live", NOON, self.raw)], settings)


def product_record(
    source: LogSource, values: Mapping[str, str], codes: frozenset[str] | None
) -> RawRecord | None:
    """The record with these fields; None where no form is known for the log source."""
    if (line := daemon_line(source, values)) is not None:
        return RawRecord(*line)
    for name, form in FORMS.items():
        if name in source.sources:
            return RawRecord(name, form(source, values, codes))
    if source.sources and source.sources[0].startswith("zeek:"):
        return RawRecord(source.sources[0], zeek_line(values))
    channels = {text for where in source.where for text in where.get("metadata.log_name", ())}
    if LINUX_SYSMON in channels:
        code = _code_of(source, codes)
        return RawRecord("windows_evtx_json", _event(values, code, LINUX_SYSMON, "Linux-Sysmon"))
    if not source.sources and "Signature" in source.fields:
        return RawRecord("windows_evtx_json", _antivirus(values))
    zeek = {4001: "zeek:conn", 4002: "zeek:http", 4003: "zeek:dns"}
    if not source.sources and source.classes and source.classes[0] in zeek:
        return RawRecord(zeek[source.classes[0]], zeek_line(values))
    return None


_HASH = re.compile(r"[A-Z0-9]{3,10}=[0-9A-Fa-f]+")
LINUX_SYSMON = "Linux-Sysmon/Operational"


def _windows(source: LogSource, values: Mapping[str, str], codes: frozenset[str] | None) -> bytes:
    data: dict[str, Any] = dict(values)
    where = source.where[0] if source.where else {}
    code = data.pop("EventID", None) or data.pop("EventId", None)
    code = code or _code_of(source, codes)
    channel = data.pop("Channel", None) or next(iter(where.get("metadata.log_name", ())), None)
    if "Sysmon" in where.get("metadata.product.name", ()):
        channel = f"{SYSMON}/Operational"
    channel = channel or _CHANNELS.get(next(iter(where.get("metadata.log_provider", ())), ""))
    channel = channel or _channel_of(int(code) if code.isdecimal() else 0)
    for path, texts in where.items():
        if path.startswith("unmapped:"):
            data.setdefault(path.removeprefix("unmapped:"), texts[0])
    for name in ("Hashes", "Hash"):
        if name in data:
            # A list of hashes is nothing but hashes.
            written = _HASH.findall(data[name])
            data[name] = ",".join(written) if written else data[name]
    # What Sysmon writes with each event of these.
    kind = {"12": "CreateKey", "13": "SetValue", "14": "RenameKey"}.get(code)
    if kind and channel.startswith(SYSMON):
        data.setdefault("EventType", kind)
        if "TargetObject" not in data:
            data["TargetObject"] = "HKLM\\x"
    if code in ("4656", "4663") and "FileName" in data:
        # Sigma's category has the names of a trace of the kernel.
        data |= {"ObjectName": data.pop("FileName"), "ObjectType": "File"}
    if words := data.pop("Accesses", None):
        data["AccessList"] = _codes_of(source, words)
    if channel == "RPCFW":
        data.pop("EventLog", None)
        data = {"Data": [data.get(name, "x") for name in RPC_CALL]}
    for name in [*data]:
        places = source.fields.get(name, ())
        # Rules write names without blanks; where one place is known, it has the product's own.
        if len(places) == 1 and places[0].startswith("unmapped:") and "*" not in places[0]:
            data[places[0].removeprefix("unmapped:")] = data.pop(name)
    provider = data.pop("Provider_Name", None) or data.pop("Source", None)
    provider = provider or next(iter(where.get("metadata.log_provider", ())), None)
    if keywords := data.pop(KEYWORDS, None):
        # Classic events have their texts in `Data`.
        data["Data"] = keywords
    named = [data.pop(name, "") for name in ("Computer", "ComputerName", "Hostname")]
    computer = next(filter(None, named), "")
    provider = provider or _PROVIDERS.get(channel) or _of(channel)
    return _event(data, code, channel, provider, computer)


def _codes_of(source: LogSource, words: str) -> str:
    """The codes of rights that a rule asks in words."""
    table = next((place for place in source.fields.get("Accesses", ()) if "?%%" in place), "")
    pairs = (pair.split("=", 1) for pair in table.partition("?")[2].split("&") if "=" in pair)
    codes = [code for code, name in pairs if any(w in words for w in re.findall(r"\w{4,}", name))]
    return "\n\t\t\t\t".join(codes) or words


def _event(
    values: Mapping[str, Any], code: str, channel: str, provider: str, computer: str = ""
) -> bytes:
    data = dict(values)
    system = {
        "Provider": {"#attributes": {"Name": provider}},
        "EventID": int(code) if code.isdecimal() else code,
        "Channel": channel,
        "Computer": computer or "WS01.corp.example",
        "TimeCreated": {"#attributes": {"SystemTime": _STAMP}},
        "Level": 4 if (level := level_of(data.pop("Level", "4"))) is None else level,
    }
    event_data: dict[str, Any] = dict(data)
    context = "".join(f"\t{name}={data[name]}\r\n" for name in _CONTEXT if name in data)
    if channel == "Windows PowerShell" and (context or "Data" in data):
        # Its data has no names: what happened, before what, and the context.
        event_data = {"Data": ["Available", "None", context + data.get("Data", "")]}
    message = {"RenderingInfo": {"Message": data.pop("Message")}} if "Message" in data else {}
    return json.dumps({"Event": {"System": system, "EventData": event_data} | message}).encode()


_CONTEXT = ("HostName", "HostVersion", "HostApplication", "EngineVersion", "CommandName")
"""What PowerShell's classic log says of its host, in the order in which it does."""


def _antivirus(values: Mapping[str, str]) -> bytes:
    """A detection of Windows' own antivirus: of those of our sources the one that most have."""
    data = {_OF_DEFENDER.get(name, name): value for name, value in values.items()}
    if "Path" in data:
        data["Path"] = f"file:_{data['Path']}"
    usual = {"Threat Name": "Virus:DOS/EICAR_Test_File", "Threat ID": "2147519003"}
    computer = next((values[name] for name in _COMPUTER if name in values), "")
    rest = {name: value for name, value in data.items() if name not in _COMPUTER}
    return _event(usual | rest, "1116", f"{_DEFENDER}/Operational", _DEFENDER, computer)


_DEFENDER = "Microsoft-Windows-Windows Defender"
_COMPUTER = ("Computer", "ComputerName", "Hostname")
_OF_DEFENDER: Mapping[str, str] = MappingProxyType(
    {
        "Signature": "Threat Name",
        "Filename": "Path",
        "TargetFilename": "Path",
        "Action": "Action Name",
        "User": "Detection User",
        "Image": "Process Name",
    }
)
_FIREWALL = "Microsoft-Windows-Windows Firewall With Advanced Security"
_CHANNELS: Mapping[str, str] = MappingProxyType({_FIREWALL: f"{_FIREWALL}/Firewall"})
"""By the provider, of log sources that are known by it."""
_PROVIDERS: Mapping[str, str] = MappingProxyType(
    {
        "Security": "Microsoft-Windows-Security-Auditing",
        "System": "Service Control Manager",
        "Windows PowerShell": "PowerShell",
        "DNS Server": "Microsoft-Windows-DNS-Server-Service",
    }
)


def _of(channel: str) -> str:
    return channel.partition("/")[0]


def _channel_of(code: int) -> str:
    """The channel of an id where a rule's log source names none."""
    if code in (4103, 4104):
        return "Microsoft-Windows-PowerShell/Operational"
    return "Security" if code >= 1100 else f"{SYSMON}/Operational"


def _code_of(source: LogSource, codes: frozenset[str] | None) -> str:
    """The lowest number that a rule can mean; other products of the log source have words."""
    numbers = filter(str.isdecimal, codes or ())
    return min(numbers, key=int, default=_default_code(source))


def _default_code(source: LogSource) -> str:
    """Sysmon's id of a class where a log source has several and a rule names none."""
    by_class = {1007: "1", 1001: "11", 1005: "7", 4001: "3", 4003: "22", 201002: "13"}
    return next((by_class[c] for c in source.classes if c in by_class), "1")


# auditd: which record a field stands in, where the rule does not say so.
_RECORDS: Mapping[str, str] = MappingProxyType(
    {
        "cwd": "CWD",
        "name": "PATH",
        "nametype": "PATH",
        "saddr": "SOCKADDR",
        "proctitle": "PROCTITLE",
    }
)
_CALL = {
    "arch": "c000003e", "syscall": "59", "success": "yes", "exit": "0", "ppid": "20", "pid": "21",
    "auid": "1000", "uid": "0", "ses": "3", "comm": '"x"', "exe": '"/usr/bin/x"',
}  # fmt: skip
_QUOTED = frozenset({"exe", "comm", "name", "cwd", "key", "acct", "unit"})
_ENCODED = frozenset({"cmd", "proctitle", "data"})


def _auditd(source: LogSource, values: Mapping[str, str], codes: frozenset[str] | None) -> bytes:
    data = dict(values)
    kind = data.pop("type", "EXECVE" if any(n[:1] == "a" and n[1:].isdigit() for n in data) else "")
    if keywords := data.pop(KEYWORDS, None):
        data.setdefault("key", keywords)
    head = "msg=audit(1741176000.123:99):"
    if kind.startswith(("USER_", "ADD_", "DEL_", "SERVICE_", "CRED_", "GRP_")):
        inner = " ".join(f"{name}={_quoted(name, value)}" for name, value in data.items())
        return f"type={kind} {head} pid=7 uid=0 auid=1000 ses=3 msg='{inner} res=success'".encode()
    if kind and kind not in ("SYSCALL", "EXECVE", *_RECORDS.values()):
        return f"type={kind} {head} {_pairs(data)}".encode()
    call = dict(_CALL)
    others: dict[str, dict[str, str]] = {kind: {}} if kind in ("EXECVE", *_RECORDS.values()) else {}
    for name, value in data.items():
        argument = name[:1] == "a" and name[1:].isdigit() and kind != "SYSCALL"
        record = "EXECVE" if argument else _RECORDS.get(name)
        if record:
            others.setdefault(record, {})[name] = value
        else:
            call["syscall" if name == "SYSCALL" else name] = _quoted(name, value)
    # A record cannot be without its own field.
    for record, name in (("PATH", "name"), ("CWD", "cwd"), ("EXECVE", "a0")):
        if record in others:
            others[record].setdefault(name, "x")
    lines = [f"type=SYSCALL {head} " + " ".join(f"{n}={v}" for n, v in call.items())]
    lines += [f"type={record} {head} {_pairs(fields)}" for record, fields in others.items()]
    return "\n".join(lines).encode()


def _pairs(data: Mapping[str, str]) -> str:
    return " ".join(f"{name}={_quoted(name, value)}" for name, value in data.items())


def _quoted(name: str, value: str) -> str:
    argument = name[:1] == "a" and name[1:].isdigit()
    # The kernel writes in hexadecimal what holds a blank or a quote.
    if name in _ENCODED or ((name in _QUOTED or argument) and not _plain(value)):
        return value.encode().hex().upper()
    return f'"{value}"' if name in _QUOTED or argument else value


def _plain(value: str) -> bool:
    return all(33 <= ord(character) < 127 and character != '"' for character in value)


def _json_form(
    base: Mapping[str, Any], names: Mapping[str, str] = MappingProxyType({}), keywords: str = "note"
) -> Callable[[LogSource, Mapping[str, str], frozenset[str] | None], bytes]:
    """A form in JSON; `names` are the product's own for those that rules have made up."""

    def form(source: LogSource, values: Mapping[str, str], codes: frozenset[str] | None) -> bytes:
        own = {
            keywords if name == KEYWORDS else names.get(name) or source.own_name(name): value
            for name, value in values.items()
        }
        return json.dumps(nested(own, base)).encode()

    return form


_CLOUDTRAIL = {
    "eventVersion": "1.08", "eventTime": "2025-03-05T12:00:00Z", "eventSource": "x.amazonaws.com",
    "eventName": "X", "awsRegion": "us-east-1", "sourceIPAddress": "203.0.113.9", "eventID": "e1",
    "userAgent": "x", "userIdentity": {"type": "IAMUser", "userName": "ann"},
    "eventType": "AwsApiCall", "recipientAccountId": "111122223333", "eventCategory": "Management",
}  # fmt: skip
_BITBUCKET = {
    "auditType": {"action": "x", "category": "x"}, "author": {"id": "7", "name": "ann"},
    "source": "203.0.113.9", "timestamp": {"epochSecond": 1741176000, "nano": 0},
}  # fmt: skip
_CANARY = {
    "dst_host": "10.0.0.9", "dst_port": 22, "logdata": {}, "logtype": 4002, "node_id": "canary-1",
    "src_host": "203.0.113.9", "src_port": 50123, "utc_time": "2025-03-05 12:00:00.000000",
}  # fmt: skip
_GITHUB = {"@timestamp": 1741176000000, "action": "x", "actor": "ann", "org": "acme"}
_OKTA = {
    "actor": {"alternateId": "ann@example.com", "id": "00u1", "type": "User"},
    "client": {"ipAddress": "203.0.113.9"}, "eventType": "x", "outcome": {"result": "SUCCESS"},
    "published": _STAMP, "severity": "INFO", "uuid": "a1", "version": "0",
}  # fmt: skip
_OKTA_NAMES = {
    "eventtype": "eventType",
    "displaymessage": "displayMessage",
    "legacyeventtype": "legacyEventType",
    "actor.alternateid": "actor.alternateId",
    "client.ipaddress": "client.ipAddress",
    "client.user.id": "actor.id",
    "securitycontext.isproxy": "securityContext.isProxy",
    "debugcontext.debugdata.behaviors": "debugContext.debugData.behaviors",
    "debugcontext.debugdata.logonlysecuritydata": "debugContext.debugData.logOnlySecurityData",
}
_K8S = {
    "kind": "Event", "apiVersion": "audit.k8s.io/v1", "auditID": "a1", "stage": "ResponseComplete",
    "requestURI": "/api/v1/x", "verb": "get", "user": {"username": "ann"},
    "sourceIPs": ["203.0.113.9"], "objectRef": {"resource": "pods", "namespace": "default"},
    "responseStatus": {"code": 200}, "requestReceivedTimestamp": _ISO_STAMP,
}  # fmt: skip
_GCP = {
    "insertId": "i1", "timestamp": _STAMP,
    "logName": "projects/p/logs/cloudaudit.googleapis.com%2Factivity",
    "protoPayload": {
        "@type": "type.googleapis.com/google.cloud.audit.AuditLog", "status": {},
        "authenticationInfo": {"principalEmail": "ann@example.com"}, "methodName": "x",
        "serviceName": "x.googleapis.com", "resourceName": "projects/p/x",
        "requestMetadata": {"callerIp": "203.0.113.9"},
    },
}  # fmt: skip
_GCP_NAMES = {
    "data.protoPayload.logName": "logName",
    "data.protoPayload.resource.type": "resource.type",
}
_K8S_NAMES = {
    "username": "user.username",
    "apiGroup": "objectRef.apiGroup",
    "hostPath": "requestObject.spec.volumes.hostPath.path",
    "capabilities": "requestObject.spec.containers.securityContext.capabilities.add",
}
_M365 = {
    "CreationTime": "2025-03-05T12:00:00", "Id": "e1", "Operation": "x", "OrganizationId": "o",
    "RecordType": 1, "UserKey": "k1", "UserType": 0, "Version": 1, "Workload": "Exchange",
    "UserId": "ann@example.com", "ClientIP": "203.0.113.9",
}  # fmt: skip
_M365_NAMES = {
    "Operations": "Operation",
    "eventName": "Operation",
    "eventSource": "Workload",
    "user.id": "UserId",
    "user.email": "UserId",
    "ClientIPAddress": "ClientIP",
    "ActorIpAddress": "ClientIP",
    "status": "ResultStatus",
    KEYWORDS: "note",
}


def _m365(source: LogSource, values: Mapping[str, str], codes: frozenset[str] | None) -> bytes:
    data = dict(values)
    logs = next(iter(source.where), {}).get("metadata.log_name", ())
    if "SecurityComplianceCenter" in logs and "eventName" in data:
        # An alert: what rules call the event's name is the alert's.
        data |= {"Operation": "AlertTriggered", "Name": data.pop("eventName"), "AlertId": "a1"}
    parameters = [
        {"Name": data.pop("Parameters.Name", "x"), "Value": data.pop("Parameters.Value", "x")}
    ]
    parameters += [{"Name": data.pop("Parameters"), "Value": "x"}] if "Parameters" in data else []
    own = {
        _M365_NAMES.get(name) or source.own_name(name).replace("{}", ""): value
        for name, value in data.items()
    }
    workload = {"Workload": logs[0]} if logs else {}
    record = nested(own, _M365 | workload) | {"Parameters": parameters}
    if str(record.get("ResultStatus")).lower() == "success" and "status" in data:
        record["ResultStatus"] = "Succeeded"
    return json.dumps(record).encode()


_APPLICATIONS = {"oauth2.googleapis.com": "token"}


def _workspace(source: LogSource, values: Mapping[str, str], codes: frozenset[str] | None) -> bytes:
    data = dict(values)
    take = data.pop
    name = take("protoPayload.metadata.event.eventName", None) or take("eventName", None) or "x"
    service = take("protoPayload.serviceName", None) or take("eventService", None)
    logs = next(iter(source.where), {}).get("metadata.log_name", ("admin",))
    application = logs[0]
    if service:
        application = _APPLICATIONS.get(service) or service.partition(".")[0]
    mail = take("actor.email", None) or take(_PRINCIPAL, None) or "ann@example.com"
    ip = take("ipAddress", "203.0.113.9")
    parameters = []
    for field, value in data.items():
        meant = source.own_name(field).removeprefix("parameters.")
        # The names of an administrator's acts are in capitals, those of other logs are not.
        parameters.append(
            {"name": meant.upper() if application == "admin" else meant, "value": value}
        )
    return json.dumps(
        {
            "id": {"time": _STAMP, "uniqueQualifier": "1", "applicationName": application,
                   "customerId": "C1"},
            "actor": {"email": mail, "profileId": "1"},
            "ipAddress": ip,
            "events": [{"type": "x", "name": name, "parameters": parameters}],
        }
    ).encode()  # fmt: skip


_PRINCIPAL = "protoPayload.authenticationInfo.principalEmail"


FORMS: Mapping[str, Callable[[LogSource, Mapping[str, str], frozenset[str] | None], bytes]] = (
    MappingProxyType(
        {
            "windows_evtx_json": _windows,
            "auditd": _auditd,
            "aws_cloudtrail": _json_form(_CLOUDTRAIL, {"type": "userIdentity.type"}),
            "bitbucket_audit": _json_form(_BITBUCKET),
            "opencanary": _json_form(_CANARY),
            "github_audit": _json_form(_GITHUB),
            "okta": _json_form(_OKTA, _OKTA_NAMES),
            "k8s_audit": _json_form(_K8S, _K8S_NAMES),
            "azure_audit": azure_record,
            "m365_audit": _m365,
            "google_workspace": _workspace,
            "fortigate": fortios_line,
            "gcp_audit": _json_form(_GCP, _GCP_NAMES, "protoPayload.note"),
            "osquery": osquery_row,
            "cisco_asa": asa_line,
        }
    )
)
"""By the parser that reads the form."""
