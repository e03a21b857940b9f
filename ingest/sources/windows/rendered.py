"""The data of an event of which only the message was kept.

Security's messages are sections of `Label:<tab>value`, Sysmon's are `Name: value`. They are
text, into which names and command lines were put as they came: so what stands there
twice is believed nowhere, what comes with its own field is never overruled, and behind a text
that anybody fills only those names are believed that each event has there.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from ingest.sources.windows.record import Logged, is_sysmon

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
_FIELDS: Mapping[str, str] = MappingProxyType(
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
_LONG = frozenset({"Task Content", "Task New Content", "Process Command Line"})
"""Labels whose value goes on over the lines that follow, as far as to one of `_ENDS`."""
_ENDS = ("Other Information:", "Token Elevation Type indicates")
_CREATED = (
    *("Description", "Product", "Company", "OriginalFileName", "CommandLine", "CurrentDirectory"),
    *("User", "LogonGuid", "LogonId", "TerminalSessionId", "IntegrityLevel", "Hashes"),
    *("ParentProcessGuid", "ParentProcessId", "ParentImage", "ParentCommandLine"),
)
_LOADED = (
    *("Description", "Product", "Company", "OriginalFileName", "Hashes"),
    *("Signed", "Signature", "SignatureStatus"),
)
SYSMON_FREE = frozenset(
    {
        *("FileVersion", "Description", "Product", "Company", "CommandLine", "ParentCommandLine"),
        *("Details", "Contents", "Query", "Destination", "QueryName", "QueryResults"),
    }
)
"""Fields of Sysmon whose text another program, a file or a server makes."""
SYSMON_BEHIND: Mapping[int, frozenset[str]] = MappingProxyType(
    {
        1: frozenset(_CREATED),
        7: frozenset(_LOADED),
        22: frozenset({"QueryStatus", "QueryResults", "Image"}),
    }
)
"""What each event has behind such a text. `User` and `ParentUser`, which later versions write at
the end, could as well be a line of the text before."""
_WHERE = ("SubjectUserSid", "SubjectUserName", "SubjectDomainName", "SubjectLogonId")
_TARGET = ("TargetUserSid", "TargetUserName", "TargetDomainName", "TargetLogonId")
_FAR = ("WorkstationName", "IpAddress", "IpPort", "ProcessId", "ProcessName")
_KERBEROS = (
    *("TargetUserName", "TargetDomainName", "ServiceName", "ServiceSid", "IpAddress", "IpPort"),
    *("TicketOptions", "TicketEncryptionType", "Status", "TargetUserSid"),
)
SECURITY_HAS: Mapping[int, frozenset[str]] = MappingProxyType(
    {
        4624: frozenset(
            (*_WHERE, *_TARGET, *_FAR, "LogonType", "LogonProcessName", "AuthenticationPackageName")
        ),
        4625: frozenset(
            {
                *(*_WHERE, *_TARGET, *_FAR, "LogonType", "LogonProcessName", "FailureReason"),
                *("AuthenticationPackageName", "Status", "SubStatus"),
            }
        ),
        4648: frozenset((*_WHERE, *_TARGET, *_FAR, "TargetServerName")),
        **dict.fromkeys((4768, 4769, 4770, 4771, 4772, 4773), frozenset(_KERBEROS)),
        4776: frozenset({"TargetUserName", "Workstation", "Status"}),
    }
)
"""What there is in events into which somebody who has not logged on puts a name."""
MOST_LINES = 2000


def data_of(log: Logged) -> dict[str, Any]:
    """The data in the message of an event; empty for providers that write sentences."""
    lines = [line.rstrip("\r") for line in (log.message or "").split("\n")[:MOST_LINES]]
    if is_sysmon(log.provider, log.guid, log.channel):
        return _once(_of_sysmon(lines, log.event_id))
    providers = ("microsoft-windows-security-auditing", "microsoft-windows-eventlog")
    if (log.provider or "microsoft-windows-security-auditing").lower() not in providers:
        return {}
    has = SECURITY_HAS.get(log.event_id)
    return _once([p for p in _labelled(lines, log.event_id) if has is None or p[0] in has])


def _of_sysmon(lines: list[str], event_id: int) -> list[tuple[Any, ...]]:
    pairs: list[tuple[Any, ...]] = []
    behind: frozenset[str] | None = None
    for line in lines:
        match = SYSMON_LINE.fullmatch(line)
        if match is None or (behind is not None and match[1] not in behind):
            continue
        pairs.append(match.groups())
        if match[1] in SYSMON_FREE:
            behind = SYSMON_BEHIND.get(event_id, frozenset())
    return pairs


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
        if long is not None:
            # Nothing behind a text is a field: it may have lines of any looks.
            if line.startswith(_ENDS):
                break
            long.append(line)
            results[-1] = (results[-1][0], "\r\n".join(long).rstrip())
            continue
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
        # Windows' own data say `MemberSid`, and of a group `TargetSid`, where all others say
        # `...UserSid`.
        return who + OF_ACCOUNT[label].replace(
            "UserSid", "Sid" if who == "Member" or section.endswith("Group") else "UserSid"
        )
    return _FIELDS.get(label)
