"""A row of a device table of Defender for Endpoint, made of Sigma's fields."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from alerts.rulepack.log_source import LogSource

_PRODUCT = "Defender for Endpoint"
_CODES, _NAME = "metadata.event_code", "metadata.product.name"
_TABLES: Mapping[str, str] = MappingProxyType(
    {
        "ProcessCreated": "DeviceProcessEvents",
        "ConnectionSuccess": "DeviceNetworkEvents",
        "InboundConnectionAccepted": "DeviceNetworkEvents",
        "FileCreated": "DeviceFileEvents",
        "FileDeleted": "DeviceFileEvents",
        "FileRenamed": "DeviceFileEvents",
        "RegistryValueSet": "DeviceRegistryEvents",
        "RegistryValueDeleted": "DeviceRegistryEvents",
        "RegistryKeyCreated": "DeviceRegistryEvents",
        "RegistryKeyDeleted": "DeviceRegistryEvents",
        "RegistryKeyRenamed": "DeviceRegistryEvents",
    }
)
"""By the action; all others are in `DeviceEvents`."""
_CHANGES: Mapping[str, str] = MappingProxyType(
    {
        "createkey": "RegistryKeyCreated",
        "deletekey": "RegistryKeyDeleted",
        "renamekey": "RegistryKeyRenamed",
        "setvalue": "RegistryValueSet",
        "deletevalue": "RegistryValueDeleted",
    }
)
_OF_PROCESS: Mapping[str, str] = MappingProxyType(
    {
        "CommandLine": "ProcessCommandLine",
        "ProcessCommandLine": "ProcessCommandLine",
        "ProcessId": "ProcessId",
        "ParentCommandLine": "InitiatingProcessCommandLine",
        "ParentProcessId": "InitiatingProcessId",
        "IntegrityLevel": "ProcessIntegrityLevel",
        "OriginalFileName": "ProcessVersionInfoOriginalFileName",
        "Company": "ProcessVersionInfoCompanyName",
        "Product": "ProcessVersionInfoProductName",
        "Description": "ProcessVersionInfoFileDescription",
        "FileVersion": "ProcessVersionInfoProductVersion",
    }
)
"""Of rows that tell of a process that began, whose parent is who acted."""
_OF_OTHERS: Mapping[str, str] = MappingProxyType(
    {
        "CommandLine": "InitiatingProcessCommandLine",
        "SourceCommandLine": "InitiatingProcessCommandLine",
        "ProcessId": "InitiatingProcessId",
        "SourceProcessId": "InitiatingProcessId",
        "TargetProcessId": "ProcessId",
        "SourceIp": "LocalIP",
        "SourcePort": "LocalPort",
        "DestinationIp": "RemoteIP",
        "DestinationPort": "RemotePort",
        "DestinationHostname": "RemoteUrl",
        "Protocol": "Protocol",
        "Details": "RegistryValueData",
    }
)
_OF_ALL: Mapping[str, str] = MappingProxyType(
    {
        "Computer": "DeviceName",
        "ComputerName": "DeviceName",
        "Hostname": "DeviceName",
        "md5": "MD5",
        "sha1": "SHA1",
        "sha256": "SHA256",
    }
)
_FILES = frozenset({"TargetImage", "TargetFilename", "FileName", "ImageLoaded"})
_ACTORS = frozenset({"Image", "SourceImage"})
_USERS = frozenset({"User", "SourceUser"})
_HIVES = (
    ("HKLM\\", "HKEY_LOCAL_MACHINE\\"),
    ("HKU\\S-1-", "HKEY_CURRENT_USER\\S-1-"),
    ("HKU\\", "HKEY_USERS\\"),
    ("HKCU\\", "HKEY_CURRENT_USER\\"),
    ("HKCR\\", "HKEY_CLASSES_ROOT\\"),
)
HASH = re.compile(r"(MD5|SHA1|SHA256)=([0-9A-Fa-f]+)")
DWORD = re.compile(r"DWORD \(0x([0-9a-fA-F]{8})\)")


def defender_condition(source: LogSource) -> Mapping[str, tuple[str, ...]] | None:
    """What marks Defender's rows among the events of a log source; None: it feeds it with none."""
    marked = (
        where
        for where in source.where
        if _PRODUCT in where.get(_NAME, ()) or "ProcessCreated" in where.get(_CODES, ())
    )
    return next(marked, None)


def defender_row(
    source: LogSource, values: Mapping[str, str], codes: frozenset[str] | None
) -> bytes:
    """The row; what Defender's tables do not tell has no place in it."""
    action = _action(defender_condition(source) or {}, values)
    columns: dict[str, Any] = {
        "Timestamp": "2025-03-05T12:00:00.0000000Z",
        "DeviceName": "pc1.corp.example",
        "DeviceId": "d1",
        "InitiatingProcessFileName": "x.exe",
        "InitiatingProcessFolderPath": "C:\\x.exe",
        "InitiatingProcessId": 7,
    }
    if _TABLES.get(action) == "DeviceNetworkEvents":
        columns |= {"LocalIP": "10.0.0.5", "LocalPort": 52817, "RemoteIP": "203.0.113.9",
                    "RemotePort": 8443, "Protocol": "Tcp"}  # fmt: skip
    details: dict[str, Any] = {}
    for field, value in values.items():
        columns |= _columns(action, field, value)
        details |= _details(action, field, value)
    if action == "InboundConnectionAccepted":
        columns = _turned(columns)
    columns |= {"ActionType": action, "AdditionalFields": json.dumps(details)}
    table = _TABLES.get(action, "DeviceEvents")
    envelope = {"time": "2025-03-05T12:00:05Z", "category": f"AdvancedHunting-{table}"}
    return json.dumps(envelope | {"properties": columns}).encode()


def _action(where: Mapping[str, tuple[str, ...]], values: Mapping[str, str]) -> str:
    """What happened, by what the rule asks of it where the log source leaves that open."""
    words = [code for code in where.get(_CODES, ()) if not code.isdecimal()]
    asked = _CHANGES.get(values.get("EventType", "").lower())
    if asked and (not words or asked in words):
        return asked
    if values.get("Initiated", "").lower() == "false" and "InboundConnectionAccepted" in words:
        return "InboundConnectionAccepted"
    return words[0] if words else "FileRenamed" if "activity_id" in where else "RegistryValueSet"


def _columns(action: str, field: str, value: str) -> dict[str, Any]:
    """What a row of this action has for a field of Sigma's."""
    of_process = action == "ProcessCreated"
    if field in _FILES or (of_process and field == "Image"):
        return _file("", value)
    if field == "ParentImage" if of_process else field in _ACTORS:
        return _file("InitiatingProcess", value)
    if field in _USERS or (of_process and field == "ParentUser"):
        start = "" if of_process and field == "User" else "InitiatingProcess"
        domain, _, account = value.rpartition("\\")
        return {f"{start}AccountName": account} | (
            {f"{start}AccountDomain": domain} if domain else {}
        )
    if field in ("Hashes", "Hash"):
        return dict(HASH.findall(value))
    if field == "TargetObject":
        path = next((full + value[len(short) :] for short, full in _HIVES
                     if value.upper().startswith(short)), value)  # fmt: skip
        key, _, name = path.rpartition("\\")
        if "Value" not in action:
            return {"RegistryKey": path}
        # A value lies in a key below a hive.
        if key.startswith("HKEY_") and "\\" not in key:
            key, name = path, "x"
        return {"RegistryKey": key or path, "RegistryValueName": name}
    if field == "Details" and (number := DWORD.fullmatch(value)):
        return {"RegistryValueData": str(int(number[1], 16)), "RegistryValueType": "Dword"}
    own = (_OF_PROCESS if of_process else _OF_OTHERS).get(field) or _OF_ALL.get(field)
    return {own: value} if own else {}


def _file(start: str, path: str) -> dict[str, str]:
    return {f"{start}FolderPath": path, f"{start}FileName": path.rpartition("\\")[2]}


def _details(action: str, field: str, value: str) -> dict[str, Any]:
    """What stands in the object of what the action has beside the columns."""
    if field == "GrantedAccess" and re.fullmatch(r"0x[0-9a-fA-F]{1,8}", value):
        return {"DesiredAccess": int(value, 16)}
    if field == "PipeName":
        return {"PipeName": f"\\Device\\NamedPipe{value}", "FileOperation": "File created"}
    return {"DnsQueryString": value} if field == "QueryName" else {}


def _turned(columns: Mapping[str, Any]) -> dict[str, Any]:
    """A connection that came in: what Sigma calls its source is the other side."""
    other = {"Local": "Remote", "Remote": "Local"}
    return {
        re.sub(r"^(?:Local|Remote)(?=IP|Port)", lambda side: other[side[0]], name): value
        for name, value in columns.items()
    }
