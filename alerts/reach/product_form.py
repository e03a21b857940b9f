"""A record as its product writes it, made of Sigma's fields."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any

from alerts.reach.example_values import KEYWORDS
from alerts.rulepack.field_mapping import LogSource
from ingest.parsing.event_rows import event_rows
from ingest.parsing.source import ParseSettings, Record

NOON = datetime(2025, 3, 5, 12, tzinfo=UTC)
_STAMP = "2025-03-05T12:00:00.000Z"
_ISO_STAMP = "2025-03-05T12:00:00.000000Z"
SYSMON = "Microsoft-Windows-Sysmon"


@dataclass(frozen=True)
class RawRecord:
    """A record and the source that reads it."""

    source: str
    raw: bytes

    def events(self) -> list[dict[str, Any]]:
        """What the parser makes of it; what it refuses has `dead_letter_reason`."""
        settings = ParseSettings(scopes=(("default", ()),))
        return event_rows([Record("reach", self.source, "live", NOON, self.raw)], settings)


def product_record(
    source: LogSource, values: Mapping[str, str], codes: frozenset[str] | None
) -> RawRecord | None:
    """The record with these fields; None where no form is known for the log source."""
    for name, form in FORMS.items():
        if name in source.sources:
            return RawRecord(name, form(source, values, codes))
    if source.sources and source.sources[0].startswith("zeek:"):
        return RawRecord(source.sources[0], _zeek(values))
    channels = {text for where in source.where for text in where.get("metadata.log_name", ())}
    if LINUX_SYSMON in channels:
        code = sorted(codes, key=int)[0] if codes else _default_code(source)
        return RawRecord("windows_evtx_json", _event(values, code, LINUX_SYSMON, "Linux-Sysmon"))
    if any("sshd" in where.get("service.name", ()) for where in source.where):
        line = values.get(KEYWORDS) or values.get("Message") or "x"
        return RawRecord("sshd", f"Mar  5 12:00:00 host sshd[1]: {line}".encode())
    zeek = {4001: "zeek:conn", 4002: "zeek:http", 4003: "zeek:dns"}
    if not source.sources and source.classes and source.classes[0] in zeek:
        return RawRecord(zeek[source.classes[0]], _zeek(values))
    return None


_HASH = re.compile(r"[A-Z0-9]{3,10}=[0-9A-Fa-f]+")
LINUX_SYSMON = "Linux-Sysmon/Operational"


def _windows(source: LogSource, values: Mapping[str, str], codes: frozenset[str] | None) -> bytes:
    data = dict(values)
    where = source.where[0] if source.where else {}
    code = data.pop("EventID", None) or data.pop("EventId", None)
    code = code or (sorted(codes, key=int)[0] if codes else _default_code(source))
    channel = data.pop("Channel", None) or next(iter(where.get("metadata.log_name", ())), None)
    if "Sysmon" in where.get("metadata.product.name", ()):
        channel = f"{SYSMON}/Operational"
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
    provider = data.pop("Provider_Name", None) or data.pop("Source", None)
    provider = provider or next(iter(where.get("metadata.log_provider", ())), None)
    if keywords := data.pop(KEYWORDS, None):
        # Classic events have their texts in `Data`.
        data["Data"] = keywords
    named = [data.pop(name, "") for name in ("Computer", "ComputerName", "Hostname")]
    computer = next(filter(None, named), "")
    provider = provider or _PROVIDERS.get(channel) or _of(channel)
    return _event(data, code, channel, provider, computer)


def _event(
    values: Mapping[str, str], code: str, channel: str, provider: str, computer: str = ""
) -> bytes:
    data = dict(values)
    system = {
        "Provider": {"#attributes": {"Name": provider}},
        "EventID": int(code) if code.isdecimal() else code,
        "Channel": channel,
        "Computer": computer or "WS01.corp.example",
        "TimeCreated": {"#attributes": {"SystemTime": _STAMP}},
        "Level": int(data.pop("Level", "4")) if data.get("Level", "4").isdecimal() else 4,
    }
    event_data: dict[str, Any] = dict(data)
    if channel == "Windows PowerShell" and "Data" in data:
        # Its data has no names: what happened, before what, and the context.
        event_data = {"Data": ["Available", "None", data["Data"]]}
    message = {"RenderingInfo": {"Message": data.pop("Message")}} if "Message" in data else {}
    return json.dumps({"Event": {"System": system, "EventData": event_data} | message}).encode()


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


def _nested(values: Mapping[str, str], base: Mapping[str, Any]) -> dict[str, Any]:
    """Dotted names as objects within objects, over what every record has."""
    record: dict[str, Any] = json.loads(json.dumps(base))
    for path, value in values.items():
        *outer, last = path.split(".")
        place = record
        for name in outer:
            inner = place.get(name)
            if not isinstance(inner, dict):
                inner = place[name] = {}
            place = inner
        place[last] = _typed(value)
    return record


def _typed(value: str) -> Any:
    return {"true": True, "false": False}.get(value, int(value) if value.isdecimal() else value)


def _json_form(
    base: Mapping[str, Any], names: Mapping[str, str] = MappingProxyType({}), keywords: str = "note"
) -> Callable[[LogSource, Mapping[str, str], frozenset[str] | None], bytes]:
    """A form in JSON; `names` are the product's own for those that rules have made up."""

    def form(source: LogSource, values: Mapping[str, str], codes: frozenset[str] | None) -> bytes:
        own = {names.get(n, keywords if n == KEYWORDS else n): v for n, v in values.items()}
        return json.dumps(_nested(own, base)).encode()

    return form


def _zeek(values: Mapping[str, str]) -> bytes:
    base: dict[str, Any] = {
        "ts": 1741176000.1, "uid": "C1", "id.orig_h": "10.0.0.5", "id.orig_p": 50000,
        "id.resp_h": "203.0.113.9", "id.resp_p": 443, "proto": "tcp",
    }  # fmt: skip
    path = values.get("c-uri-path") or values.get("cs-uri-stem") or values.get("c-uri-stem")
    query = values.get("cs-uri-query") or values.get("c-uri-query")
    extension = values.get("c-uri-extension")
    if path or query or extension:
        dotted = f"/x.{extension}" if extension else "/"
        base["uri"] = (path or dotted) + (f"?{query}" if query else "")
    renamed = {
        _ZEEK_NAMES.get(name, name): _typed(value)
        for name, value in values.items()
        if name not in _PARTS_OF_URI
    }
    for name in ("answers",):
        if name in renamed:
            renamed[name] = [renamed[name]]
    return json.dumps(base | renamed).encode()


_PARTS_OF_URI = frozenset(
    {"c-uri-path", "cs-uri-stem", "c-uri-stem", "cs-uri-query", "c-uri-query", "c-uri-extension"}
)
_ZEEK_NAMES: Mapping[str, str] = MappingProxyType(
    {
        "c-uri": "uri",
        "cs-uri": "uri",
        "c-useragent": "user_agent",
        "cs-method": "method",
        "cs-user-agent": "user_agent",
        "cs-host": "host",
        "r-dns": "host",
        "cs-cookie": "cookie",
        "cs-referer": "referrer",
        "cs-referrer": "referrer",
        "sc-status": "status_code",
        "sc-content-type": "resp_mime_types",
        "cs-version": "version",
        "c-ip": "id.orig_h",
        "src_ip": "id.orig_h",
        "dst_ip": "id.resp_h",
        "dst_port": "id.resp_p",
        KEYWORDS: "note",
        "src_port": "id.orig_p",
        "record_type": "qtype_name",
        "answer": "answers",
        "DestinationIp": "id.resp_h",
        "DestinationPort": "id.resp_p",
        "QueryName": "query",
    }
)
"""Zeek's own name for what Sigma's categories ask."""

_CLOUDTRAIL = {
    "eventVersion": "1.08", "eventTime": "2025-03-05T12:00:00Z", "eventSource": "x.amazonaws.com",
    "eventName": "X", "awsRegion": "us-east-1", "sourceIPAddress": "203.0.113.9", "eventID": "e1",
    "userAgent": "x", "userIdentity": {"type": "IAMUser", "userName": "ann"},
    "eventType": "AwsApiCall", "recipientAccountId": "111122223333", "eventCategory": "Management",
}  # fmt: skip
_GITHUB = {"@timestamp": 1741176000000, "action": "x", "actor": "ann", "org": "acme"}
_OKTA = {
    "actor": {"alternateId": "ann@example.com", "id": "00u1", "type": "User"},
    "client": {"ipAddress": "203.0.113.9"}, "eventType": "x", "outcome": {"result": "SUCCESS"},
    "published": _STAMP, "severity": "INFO", "uuid": "a1", "version": "0",
}  # fmt: skip
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
_AZURE = {
    "time": "2025-03-05T12:00:00.123Z", "resourceId": "/tenants/t/providers/Microsoft.aadiam",
    "operationName": "x", "category": "AuditLogs", "tenantId": "t",
    "callerIpAddress": "203.0.113.9", "properties": {},
}  # fmt: skip
_AZURE_NAMES = {
    **dict.fromkeys(("OperationName", "operationNameValue", "eventName"), "operationName"),
    "properties.message": "operationName",
    "ActivityDisplayName": "operationName",
    "ActivityType": "operationName",
    "Category": "category",
    "ResultType": "resultType",
    "ResultDescription": "resultDescription",
    "Username": "properties.userPrincipalName",
    "UserPrincipalName": "properties.userPrincipalName",
    "userAgent": "properties.userAgent",
    "ClientApp": "properties.clientAppUsed",
    "AppDisplayName": "properties.appDisplayName",
    "ResourceDisplayName": "properties.resourceDisplayName",
    "Location": "properties.location",
    "AuthenticationRequirement": "properties.authenticationRequirement",
    "ConditionalAccessStatus": "properties.conditionalAccessStatus",
    "riskEventType": "properties.riskEventType",
    KEYWORDS: "properties.note",
}


def _azure(source: LogSource, values: Mapping[str, str], codes: frozenset[str] | None) -> bytes:
    own = {_AZURE_NAMES.get(name, name): value for name, value in values.items()}
    record = _nested(own, _AZURE)
    channels = next(iter(source.where), {}).get("metadata.log_name")
    if channels and "category" not in own:
        record["category"] = channels[0]
    # These are texts in Azure's records, whatever they look like.
    for name in ("resultType", "operationName"):
        if name in record:
            record[name] = str(record[name])
    return json.dumps(record).encode()


_GCP_NAMES = {
    f"{prefix}.audit.{name}": f"protoPayload.{own}"
    for prefix in ("gcp", "gcloud")
    for name, own in (
        ("method_name", "methodName"), ("service_name", "serviceName"),
        ("resource_name", "resourceName"),
    )
}  # fmt: skip
_GCP_NAMES |= {f"data.protoPayload.{n}": f"protoPayload.{n}" for n in ("methodName", "serviceName")}

FORMS: Mapping[str, Callable[[LogSource, Mapping[str, str], frozenset[str] | None], bytes]] = (
    MappingProxyType(
        {
            "windows_evtx_json": _windows,
            "auditd": _auditd,
            "aws_cloudtrail": _json_form(_CLOUDTRAIL),
            "github_audit": _json_form(_GITHUB),
            "okta": _json_form(
                _OKTA, {"eventtype": "eventType", "displaymessage": "displayMessage"}
            ),
            "k8s_audit": _json_form(_K8S),
            "azure_audit": _azure,
            "gcp_audit": _json_form(_GCP, _GCP_NAMES, "protoPayload.note"),
        }
    )
)
"""By the parser that reads the form."""
