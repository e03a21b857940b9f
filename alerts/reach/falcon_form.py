"""An event of a sensor of CrowdStrike Falcon, made of Sigma's fields."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from types import MappingProxyType

from alerts.reach.defender_form import DWORD, HASH
from alerts.rulepack.log_source import LogSource
from ingest.sources.windows.codes import DNS_TYPES, INTEGRITY

_PROVIDER = "metadata.log_provider"
_PLATFORMS: Mapping[str, str] = MappingProxyType(
    {
        "Falcon sensor for Windows": "Win",
        "Falcon sensor for Linux": "Lin",
        "Falcon sensor for Mac": "Mac",
    }
)
_BY_CLASS: Mapping[int, str] = MappingProxyType({1001: "NewExecutableWritten"})
"""Events of log sources that Falcon feeds with more than can be named."""
_RENAMED = "NewExecutableRenamed"
_NAMES: Mapping[str, str] = MappingProxyType(
    {
        "CommandLine": "CommandLine",
        "ProcessCommandLine": "CommandLine",
        "OriginalFileName": "OriginalFilename",
        "Computer": "ComputerName",
        "ComputerName": "ComputerName",
        "Hostname": "ComputerName",
        "ImageLoaded": "ImageFileName",
        "TargetFilename": "TargetFileName",
        "FileName": "TargetFileName",
        "md5": "MD5HashData",
        "sha1": "SHA1HashData",
        "sha256": "SHA256HashData",
        "DestinationPort": "RemotePort",
        "SourcePort": "LocalPort",
        "ProcessId": "RawProcessId",
        "QueryName": "DomainName",
        "QueryStatus": "QueryStatus",
        "Details": "RegStringValue",
    }
)
_USUAL: Mapping[str, Mapping[str, str]] = MappingProxyType(
    {
        "ProcessRollup2": {"ImageFileName": "x", "CommandLine": "x", "ParentBaseFileName": "x",
                           "RawProcessId": "7412"},
        "NetworkConnectIP4": {"LocalAddressIP4": "10.0.0.5", "LocalPort": "52817",
                              "RemoteAddressIP4": "203.0.113.9", "RemotePort": "8443",
                              "ConnectionDirection": "0", "Protocol": "6"},
        "DnsRequest": {"DomainName": "x", "RequestType": "1"},
        "DriverLoad": {"ImageFileName": "x"},
        "AsepValueUpdate": {"RegObjectName": "x", "RegValueName": "x", "RegOperationType": "1"},
        "NewExecutableWritten": {"TargetFileName": "x"},
        "NewExecutableRenamed": {"TargetFileName": "x"},
        "ExecutableDeleted": {"TargetFileName": "x"},
    }
)  # fmt: skip
"""What each has that a rule may not ask."""
_IMAGES: Mapping[str, str] = MappingProxyType(
    {
        "ProcessRollup2": "ImageFileName",
        "NetworkConnectIP4": "ContextBaseFileName",
        "DnsRequest": "ContextBaseFileName",
        "NewExecutableWritten": "ContextImageFileName",
    }
)
"""Where an event names its program; others have its id alone."""
_OF_DRIVERS: Mapping[str, str] = MappingProxyType(
    {"Company": "CompanyName", "FileVersion": "FileVersion"}
)
_PATHS = frozenset({"ImageFileName", "TargetFileName"})
_DRIVE = re.compile(r"[A-Za-z]:(?=\\)")


def falcon_condition(source: LogSource) -> Mapping[str, tuple[str, ...]] | None:
    """What marks the events of Falcon among those of a log source; None: it feeds it with none."""
    marked = (where for where in source.where if _PLATFORMS.keys() & {*where.get(_PROVIDER, ())})
    return next(marked, None)


def falcon_event(
    source: LogSource, values: Mapping[str, str], codes: frozenset[str] | None
) -> bytes:
    """The event; what Falcon's events do not tell has no place in it."""
    where = falcon_condition(source) or {}
    name = next(iter(where.get("metadata.event_code", ())), None)
    name = name or (_RENAMED if "5" in where.get("activity_id", ()) else None)
    name = name or next((_BY_CLASS[each] for each in source.classes if each in _BY_CLASS), "x")
    fields: dict[str, str] = {
        "event_simpleName": name,
        "event_platform": _PLATFORMS.get(next(iter(where.get(_PROVIDER, ())), ""), "Win"),
        "timestamp": "1741176000000",
        "aid": "5c",
        "cid": "c1",
        **_USUAL.get(name, {}),
    }
    for field, value in values.items():
        fields |= _fields(name, field, value)
    if values.get("Initiated", "").lower() == "false":
        fields = _turned(fields)
    return json.dumps(fields).encode()


def _fields(name: str, field: str, value: str) -> dict[str, str]:
    """What an event of this name has for a field of Sigma's."""
    last = re.split(r"[\\/]", value)[-1]
    if field == "Image":
        key = _IMAGES.get(name)
        return {key: last if "Base" in key else _by_device(value)} if key else {}
    if field in ("ParentImage", "ProcessId", "User") and name != "ProcessRollup2":
        return {}
    if field == "ParentImage":
        return {"ParentBaseFileName": last}
    if field == "User":
        domain, _, account = value.rpartition("\\")
        return {"UserName": account} | ({"LogonDomain": domain} if domain else {})
    if field in ("IntegrityLevel", "MandatoryLabel"):
        sids = (
            sid for sid, word in INTEGRITY.items() if value.lower() in (word.lower(), sid.lower())
        )
        return {"IntegrityLevel": next(sids, value).rpartition("-")[2]}
    if field in ("Hashes", "Hash"):
        return {f"{kind}HashData": text for kind, text in HASH.findall(value)}
    if field == "TargetObject":
        path, _, own_name = value.rpartition("\\")
        return {"RegObjectName": _kernel_key(path or value), "RegValueName": own_name,
                "RegOperationType": "1"}  # fmt: skip
    if field == "Details" and (number := DWORD.fullmatch(value)):
        return {"RegNumericValue": str(int(number[1], 16)), "RegType": "4"}
    if field in ("SourceIp", "DestinationIp"):
        side = "Local" if field == "SourceIp" else "Remote"
        return {f"{side}AddressIP4": "", f"{side}AddressIP{6 if ':' in value else 4}": value}
    if field in ("QueryType", "record_type"):
        numbers = [str(number) for number, word in DNS_TYPES.items() if word == value]
        return {"RequestType": (numbers or [value])[0]}
    if field in ("QueryResults", "answer"):
        return {"IP4Records": value}
    own = (_OF_DRIVERS if name == "DriverLoad" else {}).get(field) or _NAMES.get(field)
    return {own: _by_device(value) if own in _PATHS else value} if own else {}


def _by_device(path: str) -> str:
    return _DRIVE.sub(r"\\Device\\HarddiskVolume3", path, count=1) if _DRIVE.match(path) else path


def _kernel_key(path: str) -> str:
    for short, whole in (("HKLM", "MACHINE"), ("HKU", "USER")):
        if path.upper().startswith(f"{short}\\"):
            return f"\\REGISTRY\\{whole}{path[len(short) :]}"
    return path


def _turned(fields: Mapping[str, str]) -> dict[str, str]:
    """A connection that came in: what Sigma calls its source is the other side."""
    other = {"Local": "Remote", "Remote": "Local"}
    turned = {
        re.sub(r"^(?:Local|Remote)", lambda side: other[side[0]], name): value
        for name, value in fields.items()
    }
    return turned | {"event_simpleName": "NetworkReceiveAcceptIP4", "ConnectionDirection": "1"}
