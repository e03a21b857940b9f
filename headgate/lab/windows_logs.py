"""What Windows writes, as nxlog hands it on: flat JSON, one event a line.

The background is recorded (samples/lab/benign_day, see samples/lab/NOTICE.md): services, searches,
Windows Update and agents of a workstation that no attack touched. Names, addresses and times are
replaced. What the administrator does is written here by hand in the same form, since no recording
with a licence has it.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Mapping
from datetime import datetime
from functools import cache
from typing import Any

from headgate.lab.day import Day, lab_instant
from headgate.lab.site import DOMAIN
from infra.errors import Fatal
from infra.spark.session import project_root

RECORDED = project_root() / "samples" / "lab" / "benign_day" / "windows_background.jsonl.gz"
_TIMES = ("TimeCreated", "@timestamp", "EventTime")
_SECURITY = {
    "SourceName": "Microsoft-Windows-Security-Auditing",
    "ProviderGuid": "{54849625-5478-4994-a5ba-3e3b0328c30d}",
    "Level": "0",
    "Keywords": "0x8020000000000000",
    "Channel": "Security",
}
_SYSMON = {
    "SourceName": "Microsoft-Windows-Sysmon",
    "ProviderGuid": "{5770385f-c22a-43e0-bf4c-06f5698ffbd9}",
    "Level": "4",
    "Keywords": "0x8000000000000000",
    "Channel": "Microsoft-Windows-Sysmon/Operational",
}
_POWERSHELL = {
    "SourceName": "Microsoft-Windows-PowerShell",
    "ProviderGuid": "{a0c1853b-5c40-4b15-8766-3cf1c58f985a}",
    "Level": "5",
    "Channel": "Microsoft-Windows-PowerShell/Operational",
}
_SERVICES = {
    "SourceName": "Service Control Manager",
    "ProviderGuid": "{555908d1-a6d7-4695-8e1e-26931d2012f4}",
    "Level": "4",
    "Channel": "System",
}
SYSTEM32 = "C:\\Windows\\System32\\"
POWERSHELL = SYSTEM32 + "WindowsPowerShell\\v1.0\\powershell.exe"


@cache
def _recorded() -> tuple[dict[str, Any], ...]:
    if not RECORDED.exists():
        raise Fatal(
            f"{RECORDED} is missing: this installation is not whole; install headgate again"
        )
    lines = gzip.decompress(RECORDED.read_bytes()).splitlines()
    return tuple(json.loads(line) for line in lines)


def background(day: Day, start: float, host: str, user: str, ip: str) -> None:
    """The recorded events on a machine from `start` on, as far apart as they were, an hour at most
    in all."""
    events = _recorded()
    by_recording: dict[str, datetime] = {}
    for event in events:
        then = datetime.fromisoformat(event["@timestamp"])
        begun = by_recording.setdefault(event["recording"], then)
        # Recordings lasted minutes and stood apart by months; here one follows the other.
        later = 600.0 * (len(by_recording) - 1) + abs((then - begun).total_seconds()) % 600
        _write(day, start + later, host, _renamed(event, host, user, ip))


def _renamed(event: Mapping[str, Any], host: str, user: str, ip: str) -> dict[str, Any]:
    """The event of another machine, person and address."""
    text = json.dumps({n: v for n, v in event.items() if n != "recording"})
    for old, new in (
        ("WORKSTATION6.theshire.local", f"{host}.{DOMAIN}"),
        ("WORKSTATION6", host.upper()),
        ("THESHIRE", "CORP"),
        ("theshire.local", DOMAIN),
        ("sbeavers", user),
        ("172.18.39.6", ip),
        ("172.18.38.5", "10.40.0.10"),
    ):
        text = text.replace(old, new)
    renamed: dict[str, Any] = json.loads(text)
    return renamed


def started(day: Day, now: float, host: str, user: str, image: str, line: str, parent: str) -> None:
    """Sysmon's and the Security log's events of a process, written."""
    number = day.number()
    guid = f"{{39e4a257-79fb-5f92-{number:04x}-000000000700}}"
    _write(day, now, host, _SYSMON | {
        "EventID": 1, "Task": "1", "RuleName": "-", "ProcessGuid": guid,
        "ProcessId": str(number), "Image": image, "OriginalFileName": image.rpartition("\\")[2],
        "CommandLine": line, "CurrentDirectory": SYSTEM32, "User": _account(user),
        "LogonId": "0xc61d9", "TerminalSessionId": "2", "IntegrityLevel": "High",
        "ParentProcessId": "10044", "ParentImage": parent, "ParentCommandLine": parent,
    })  # fmt: skip
    _write(day, now + 0.002, host, _SECURITY | _subject(user) | {
        "EventID": 4688, "Task": "13312", "NewProcessId": hex(number), "NewProcessName": image,
        "CommandLine": line, "ProcessId": "0x273c", "ParentProcessName": parent,
        "TokenElevationType": "%%1937", "MandatoryLabel": "S-1-16-12288",
        "TargetUserSid": "S-1-0-0", "TargetUserName": "-", "TargetDomainName": "-",
        "TargetLogonId": "0x0",
    })  # fmt: skip


def logged_on(day: Day, now: float, host: str, user: str, ip: str, kind: int = 3) -> None:
    """A logon over the network; `kind` 10 is Remote Desktop. Written."""
    _write(day, now, host, _SECURITY | _nobody() | {
        "EventID": 4624, "Task": "12544", "TargetUserSid": _sid(user), "TargetUserName": user,
        "TargetDomainName": "CORP", "TargetLogonId": hex(day.number() * 16), "LogonType": str(kind),
        "LogonProcessName": "User32 " if kind == 10 else "Kerberos",
        "AuthenticationPackageName": "Negotiate" if kind == 10 else "Kerberos",
        "WorkstationName": "-", "IpAddress": ip, "IpPort": str(day.dice.randrange(49152, 65000)),
        "ProcessId": "0x0", "ProcessName": "-", "KeyLength": "0", "ElevatedToken": "%%1842",
    })  # fmt: skip


def logon_failed(day: Day, now: float, host: str, user: str, ip: str) -> None:
    """A wrong password. Written."""
    _write(day, now, host, _SECURITY | _nobody() | {
        "EventID": 4625, "Task": "12544", "Keywords": "0x8010000000000000",
        "TargetUserSid": "S-1-0-0", "TargetUserName": user, "TargetDomainName": "CORP",
        "Status": "0xc000006d", "SubStatus": "0xc000006a", "FailureReason": "%%2313",
        "LogonType": "3", "LogonProcessName": "NtLmSsp ", "AuthenticationPackageName": "NTLM",
        "WorkstationName": "ADM-08", "IpAddress": ip, "IpPort": "0", "ProcessId": "0x0",
        "ProcessName": "-",
    })  # fmt: skip


def script(day: Day, now: float, host: str, user: str, text: str) -> None:
    """PowerShell's log of a script block. Written."""
    _write(day, now, host, _POWERSHELL | {
        "EventID": 4104, "Task": "2", "AccountName": user, "Domain": "CORP", "UserID": _sid(user),
        "MessageNumber": "1", "MessageTotal": "1", "ScriptBlockText": text,
        "ScriptBlockId": f"6d3c3a52-0000-4000-8000-{day.number():012x}", "Path": "",
    })  # fmt: skip


def service(day: Day, now: float, host: str, name: str, path: str) -> None:
    """A service was installed. Written."""
    _write(day, now, host, _SERVICES | {
        "EventID": 7045, "Task": "0", "ServiceName": name, "ImagePath": path,
        "ServiceType": "user mode service", "StartType": "demand start",
        "AccountName": "LocalSystem",
    })  # fmt: skip


def security(day: Day, now: float, host: str, number: int, user: str, **fields: str) -> None:
    """Another event of the Security log that `user` caused. Written."""
    _write(day, now, host, _SECURITY | _subject(user) | {"EventID": number, "Task": "0"} | fields)


def value_set(day: Day, now: float, host: str, user: str, image: str, key: str, data: str) -> None:
    """Sysmon's event of a registry value. Written."""
    _write(day, now, host, _SYSMON | {
        "EventID": 13, "Task": "13", "RuleName": "-", "EventType": "SetValue",
        "ProcessGuid": "{39e4a257-79fb-5f92-7117-000000000700}", "ProcessId": str(day.number()),
        "Image": image, "TargetObject": key, "Details": data, "User": _account(user),
    })  # fmt: skip


def _write(day: Day, now: float, host: str, event: Mapping[str, Any]) -> None:
    when = lab_instant(now)
    written = when.strftime("%Y-%m-%dT%H:%M:%S.") + f"{when.microsecond // 1000:03d}Z"
    row = {"Hostname": f"{host}.{DOMAIN}", "TimeCreated": written, "@timestamp": written, **event}
    row |= {name: written for name in _TIMES if name in event}
    if event["Channel"] == _SYSMON["Channel"]:
        row["UtcTime"] = written[:-1].replace("T", " ")
    day.log("windows_nxlog", now, json.dumps(row, separators=(",", ":")))


def _account(user: str) -> str:
    return "NT AUTHORITY\\SYSTEM" if user == "SYSTEM" else f"CORP\\{user}"


def _sid(user: str) -> str:
    return "S-1-5-18" if user == "SYSTEM" else f"S-1-5-21-111-222-333-{1100 + len(user) * 7}"


def _subject(user: str) -> dict[str, str]:
    domain = "NT AUTHORITY" if user == "SYSTEM" else "CORP"
    logon = "0x3e7" if user == "SYSTEM" else "0xc61d9"
    names = {"SubjectUserSid": _sid(user), "SubjectUserName": user, "SubjectDomainName": domain}
    return names | {"SubjectLogonId": logon}


def _nobody() -> dict[str, str]:
    names = {"SubjectUserSid": "S-1-0-0", "SubjectUserName": "-", "SubjectDomainName": "-"}
    return names | {"SubjectLogonId": "0x0"}
