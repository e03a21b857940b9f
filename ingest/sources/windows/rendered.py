"""The data of an event of which only the message was kept.

Security's messages are sections of `Label:<tab>value`, Sysmon's are `Name: value`. They are
text, into which names and command lines were put as they came: so what stands there
twice is believed nowhere, and what comes with its own field is never overruled.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from ingest.sources.windows.record import Logged
from ingest.sources.windows.system_part import is_sysmon

SYSMON_LINE = re.compile(r"([A-Z][A-Za-z0-9]{1,40}): (.*)")
LABEL = re.compile(r"(\t*)([A-Z][A-Za-z0-9 /()-]{1,60}?) ?:[ \t]*(.*)")
WHO: Mapping[str, str] = MappingProxyType(
    {
        "Subject": "Subject",
        "Creator Subject": "Subject",
        "New Logon": "Target",
        "Target Subject": "Target",
        "Target Account": "Target",
        "New Account": "Target",
        "Account For Which Logon Failed": "Target",
        "Account Whose Credentials Were Used": "Target",
        "Account That Was Locked Out": "Target",
        "Account Information": "Target",
        "Group": "Target",
        "New Group": "Target",
        "Member": "Member",
    }
)
OF_ACCOUNT: Mapping[str, str] = MappingProxyType(
    {
        "Security ID": "UserSid",
        "Account Name": "UserName",
        "Group Name": "UserName",
        "Account Domain": "DomainName",
        "Domain Name": "DomainName",
        "Group Domain": "DomainName",
        "Logon ID": "LogonId",
    }
)
FIELDS: Mapping[str, str] = MappingProxyType(
    {
        "Logon Type": "LogonType",
        "Logon Process": "LogonProcessName",
        "Authentication Package": "AuthenticationPackageName",
        "Workstation Name": "WorkstationName",
        "Source Workstation": "Workstation",
        "Logon Account": "TargetUserName",
        "Source Network Address": "IpAddress",
        "Client Address": "IpAddress",
        "Network Address": "IpAddress",
        "Source Port": "IpPort",
        "Client Port": "IpPort",
        "Process Name": "ProcessName",
        "Process ID": "ProcessId",
        "Caller Process Name": "ProcessName",
        "Caller Process ID": "ProcessId",
        "New Process ID": "NewProcessId",
        "New Process Name": "NewProcessName",
        "Process Command Line": "CommandLine",
        "Creator Process ID": "ProcessId",
        "Creator Process Name": "ParentProcessName",
        "Token Elevation Type": "TokenElevationType",
        "Mandatory Label": "MandatoryLabel",
        "Failure Reason": "FailureReason",
        "Status": "Status",
        "Sub Status": "SubStatus",
        "Error Code": "Status",
        "Service Name": "ServiceName",
        "Service ID": "ServiceSid",
        "Service File Name": "ServiceFileName",
        "Service Type": "ServiceType",
        "Service Start Type": "ServiceStartType",
        "Service Account": "ServiceAccount",
        "Task Name": "TaskName",
        "Task Content": "TaskContent",
        "Task New Content": "TaskContentNew",
        "Ticket Options": "TicketOptions",
        "Ticket Encryption Type": "TicketEncryptionType",
        "Result Code": "Status",
        "Failure Code": "Status",
        "Object Server": "ObjectServer",
        "Object Type": "ObjectType",
        "Object Name": "ObjectName",
        "Handle ID": "HandleId",
        "Access Mask": "AccessMask",
        "Share Name": "ShareName",
        "Share Path": "ShareLocalPath",
        "Relative Target Name": "RelativeTargetName",
        "Target Server Name": "TargetServerName",
    }
)
_LONG = frozenset({"Task Content", "Task New Content"})
"""Labels whose value goes on over the lines that follow."""
MOST_LINES = 2000


def data_of(log: Logged) -> dict[str, Any]:
    """The data in the message of an event; empty for providers that write sentences."""
    lines = [line.rstrip("\r") for line in (log.message or "").split("\n")[:MOST_LINES]]
    if is_sysmon(log.provider, log.guid, log.channel):
        return _once([match.groups() for line in lines if (match := SYSMON_LINE.fullmatch(line))])
    known = ("microsoft-windows-security-auditing", "microsoft-windows-eventlog")
    if (log.provider or "microsoft-windows-security-auditing").lower() not in known:
        return {}
    return _once(_labelled(lines, log.event_id))


def _once(pairs: list[tuple[Any, ...]]) -> dict[str, Any]:
    names = [pair[0] for pair in pairs]
    # A name with a line break can forge a line; which of two is true nobody can tell.
    return {pair[0]: pair[1] for pair in pairs if names.count(pair[0]) == 1}


def _labelled(lines: list[str], event_id: int) -> list[tuple[Any, ...]]:
    results: list[tuple[Any, ...]] = []
    section = ""
    long: list[str] | None = None
    # The first line is the sentence that says what happened.
    for line in lines[1:]:
        match = LABEL.fullmatch(line)
        if long is not None and (match is None or match[2] not in FIELDS):
            long.append(line)
            results[-1] = (results[-1][0], "\r\n".join(long).rstrip())
            continue
        long = None
        if match is None:
            continue
        tabs, label, value = match.groups()
        # Labels of a section are indented with tabs; a heading stands at the margin with no value.
        if not tabs and not value:
            section = label
            continue
        name = _name(section if tabs else "", label, event_id)
        if name is not None:
            results.append((name, value.strip()))
            long = [value] if label in _LONG else None
    return results


def _name(section: str, label: str, event_id: int) -> str | None:
    who = WHO.get(section)
    if who is not None and label in OF_ACCOUNT:
        return who + OF_ACCOUNT[label].replace(
            "UserSid", "Sid" if who == "Member" or section.endswith("Group") else "UserSid"
        )
    return FIELDS.get(label)
