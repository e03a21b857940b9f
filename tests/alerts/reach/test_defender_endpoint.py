"""Rules of Sigma's Windows categories fire on the device tables of Defender for Endpoint, too."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from alerts.compiler.compiler import compile_rules
from alerts.reach.reach import reach_of
from tests.alerts.public_rules import document
from tests.alerts.reach.fired import fired
from tests.ingest.logs import good

SYSTEM = "C:\\Windows\\System32\\"
WORD = "C:\\Program Files\\Microsoft Office\\WINWORD.EXE"
BY_WORD = {
    "Timestamp": "2026-03-02T09:00:00.1234567Z",
    "DeviceName": "pc1.corp.example",
    "DeviceId": "d1",
    "InitiatingProcessFileName": "WINWORD.EXE",
    "InitiatingProcessFolderPath": WORD,
    "InitiatingProcessCommandLine": "WINWORD.EXE /n a.docm",
    "InitiatingProcessId": 7,
    "InitiatingProcessAccountName": "ann",
    "InitiatingProcessAccountDomain": "corp",
    "InitiatingProcessParentId": 3,
    "InitiatingProcessParentFileName": "explorer.exe",
}


def row(table: str, action: str, **columns: Any) -> bytes:
    """A row of a table, as the streaming API writes it."""
    properties = BY_WORD | {"ActionType": action} | columns
    envelope = {"time": "2026-03-02T09:00:05Z", "category": f"AdvancedHunting-{table}"}
    return json.dumps(envelope | {"properties": properties}).encode()


STARTED = row(
    "DeviceProcessEvents",
    "ProcessCreated",
    FileName="powershell.exe",
    FolderPath=SYSTEM + "powershell.exe",
    ProcessId=9,
    ProcessCommandLine="powershell -enc x",
    AccountName="system",
    AccountDomain="nt authority",
    SHA256="a" * 64,
    ProcessIntegrityLevel="High",
    ProcessVersionInfoCompanyName="Microsoft Corporation",
    ProcessVersionInfoProductName="Windows",
    ProcessVersionInfoFileDescription="Windows PowerShell",
    ProcessVersionInfoOriginalFileName="PowerShell.EXE",
    ProcessVersionInfoProductVersion="10.0.1",
)
OPENED = row("DeviceProcessEvents", "OpenProcess", FileName="lsass.exe", ProcessId=9)
CONNECTED = row(
    "DeviceNetworkEvents",
    "ConnectionSuccess",
    LocalIP="10.0.0.5",
    LocalPort=51234,
    RemoteIP="203.0.113.9",
    RemotePort=443,
    RemoteUrl="evil.example",
    Protocol="Tcp",
)
ACCEPTED = row(
    "DeviceNetworkEvents",
    "InboundConnectionAccepted",
    LocalIP="10.0.0.5",
    LocalPort=3389,
    RemoteIP="203.0.113.9",
    RemotePort=51234,
)
LISTENED = row("DeviceNetworkEvents", "ListeningConnectionCreated", LocalIP="::", LocalPort=4444)
WRITTEN = row(
    "DeviceFileEvents",
    "FileCreated",
    FileName="x.exe",
    FolderPath="C:\\Users\\ann\\x.exe",
    SHA1="b" * 40,
)
REMOVED = row("DeviceFileEvents", "FileDeleted", FileName="x.evtx", FolderPath="C:\\x.evtx")
RENAMED = row("DeviceFileEvents", "FileRenamed", FileName="x.locked", FolderPath="C:\\x.locked")
RUN = "HKEY_CURRENT_USER\\S-1-5-21-1-2-3-1001\\Software\\Microsoft\\Windows\\CurrentVersion\\Run"
SERVICE = "HKEY_LOCAL_MACHINE\\SYSTEM\\ControlSet001\\Services\\Odd"


def registry(action: str, key: str, name: str = "", data: str = "", kind: str = "String") -> bytes:
    """A row of the registry's table."""
    value = {"RegistryValueName": name, "RegistryValueData": data, "RegistryValueType": kind}
    return row("DeviceRegistryEvents", action, RegistryKey=key, **(value if name else {}))


SET = registry("RegistryValueSet", RUN, "Odd", "C:\\x.exe")
NUMBER = registry("RegistryValueSet", SERVICE, "Start", "4", "Dword")
LONG = registry("RegistryValueSet", SERVICE, "Long", str(2**32 + 1), "Qword")
KEY_ADDED = registry("RegistryKeyCreated", SERVICE)
KEY_GONE = registry("RegistryKeyDeleted", SERVICE)
VALUE_GONE = registry("RegistryValueDeleted", SERVICE, "Start")


def more(action: str, details: dict[str, Any], packed: bool = True, **columns: Any) -> bytes:
    """A row of the table of all other events, its details an object or one packed as text."""
    given = json.dumps(details) if packed else details
    return row("DeviceEvents", action, AdditionalFields=given, **columns)


LSASS: dict[str, Any] = {
    "FileName": "lsass.exe",
    "FolderPath": SYSTEM + "lsass.exe",
    "ProcessId": 700,
}
READ = more("OpenProcessApiCall", {"DesiredAccess": 5136}, **LSASS)
READ_ALL = more("OpenProcessApiCall", {"DesiredAccess": 2097151}, packed=False, **LSASS)
NAMED = more("OpenProcessApiCall", {"DesiredAccess": "0x1410"}, FileName="lsass.exe", ProcessId=700)
MEMORY_READ = more("ReadProcessMemoryApiCall", {"TotalBytesCopied": 9}, **LSASS)
INJECTED = more("CreateRemoteThreadApiCall", {}, **LSASS)
PIPE = {"FileOperation": "File created", "NamedPipeEnd": "Server"}
PIPED = more("NamedPipeEvent", PIPE | {"PipeName": "\\Device\\NamedPipe\\msf-pipe-5902"})
JOINED = more("NamedPipeEvent", {"FileOperation": "File opened", "PipeName": "\\postex_1"}, False)
DRIVER = row(
    "DeviceEvents",
    "DriverLoad",
    FileName="rtcore64.sys",
    FolderPath="C:\\Windows\\Temp\\rtcore64.sys",
    SHA256="d" * 64,
    SHA1="e" * 40,
)
ASKED = more(
    "DnsQueryResponse",
    {"DnsQueryString": "cdn.evil.example", "DnsQueryResult": '[{"Result":"203.0.113.9"}]'},
)
COMMAND = more("PowerShellCommand", {"Command": "Invoke-Mimikatz"})
SCRIPT = more("ScriptContent", {"ScriptContent": "Invoke-Mimikatz"})

CASES: list[tuple[str, bytes, dict[str, Any]]] = [
    ("process_creation", STARTED, {"Image|endswith": "\\powershell.exe", "ParentImage": WORD}),
    ("process_creation", STARTED, {"CommandLine|contains": " -enc ", "User|contains": "AUTHORI"}),
    ("process_creation", STARTED, {"ParentCommandLine|contains": "a.docm", "ParentProcessId": 7}),
    ("process_creation", STARTED, {"ParentUser": "corp\\ann", "IntegrityLevel": "High"}),
    ("process_creation", STARTED, {"OriginalFileName": "PowerShell.EXE", "Product": "Windows"}),
    ("process_creation", STARTED, {"Company|startswith": "Microsoft", "FileVersion": "10.0.1"}),
    ("process_creation", STARTED, {"Description": "Windows PowerShell", "Computer|endswith": "e"}),
    ("process_creation", STARTED, {"Hashes|contains": "SHA256=" + "A" * 64}),
    ("network_connection", CONNECTED, {"Image": WORD, "Initiated": "true", "DestinationPort": 443}),
    ("network_connection", CONNECTED, {"DestinationHostname|endswith": ".example"}),
    ("network_connection", CONNECTED, {"SourceIp|cidr": "10.0.0.0/8", "User": "corp\\ann"}),
    ("network_connection", ACCEPTED, {"Initiated": "false", "DestinationPort": 3389}),
    ("file_event", WRITTEN, {"TargetFilename|endswith": "\\ann\\x.exe", "Image": WORD}),
    ("file_delete", REMOVED, {"TargetFilename|endswith": ".evtx"}),
    ("file_rename", RENAMED, {"TargetFilename|endswith": ".locked"}),
    ("registry_set", SET, {"TargetObject|endswith": "\\CurrentVersion\\Run\\Odd", "Image": WORD}),
    ("registry_set", SET, {"TargetObject|startswith": "HKU\\S-1-5-21-", "Details": "C:\\x.exe"}),
    ("registry_set", NUMBER, {"TargetObject|contains": "HKLM\\SYSTEM\\CurrentControlSet\\Services",
                              "Details": "DWORD (0x00000004)"}),
    ("registry_set", LONG, {"Details": "QWORD (0x00000001-0x00000001)"}),
    ("registry_add", KEY_ADDED, {"TargetObject|endswith": "\\Services\\Odd"}),
    ("registry_delete", KEY_GONE, {"TargetObject|endswith": "\\Services\\Odd"}),
    ("registry_delete", VALUE_GONE, {"TargetObject|endswith": "\\Odd\\Start"}),
    ("registry_event", KEY_ADDED, {"EventType": "CreateKey"}),
    ("registry_event", SET, {"EventType": "SetValue", "TargetObject|contains": "\\Run\\"}),
    ("process_access", READ, {"TargetImage|endswith": "\\lsass.exe", "SourceImage": WORD,
                              "GrantedAccess": "0x1410"}),
    ("process_access", READ_ALL, {"GrantedAccess": ["0x1fffff", "0x1010"]}),
    ("process_access", READ_ALL, {"SourceUser": "corp\\ann"}),
    ("process_access", NAMED, {"TargetImage|endswith": "\\lsass.exe", "GrantedAccess": "0x1410"}),
    ("create_remote_thread", INJECTED, {"TargetImage|endswith": "\\lsass.exe"}),
    ("create_remote_thread", INJECTED, {"SourceImage": WORD}),
    ("create_remote_thread", INJECTED, {"SourceCommandLine|contains": "a.docm"}),
    ("pipe_created", PIPED, {"PipeName|startswith": "\\msf-pipe-", "Image": WORD}),
    ("pipe_created", JOINED, {"PipeName": "\\postex_1"}),
    ("driver_load", DRIVER, {"ImageLoaded|contains": "\\Temp\\"}),
    ("driver_load", DRIVER, {"Hashes|contains": "SHA256=" + "D" * 64, "sha1": "e" * 40}),
    ("dns_query", ASKED, {"QueryName|endswith": ".evil.example", "Image": WORD}),
]  # fmt: skip


@pytest.mark.parametrize(("category", "raw", "detection"), CASES, ids=range(len(CASES)))
def test_a_rule_of_a_windows_category_fires(
    category: str, raw: bytes, detection: dict[str, Any]
) -> None:
    source = {"product": "windows", "category": category}
    assert fired(source, detection, "defender_endpoint", raw)


@pytest.mark.parametrize(
    ("category", "raw"),
    [
        ("process_creation", OPENED),
        ("network_connection", LISTENED),
        ("file_event", REMOVED),
        ("file_delete", WRITTEN),
        ("registry_set", KEY_ADDED),
        ("registry_add", SET),
        ("registry_delete", SET),
        ("process_creation", READ),
        ("process_access", OPENED),
        ("process_access", MEMORY_READ),
        ("process_access", INJECTED),
        ("create_remote_thread", READ),
        ("create_remote_thread", MEMORY_READ),
        ("pipe_created", WRITTEN),
        ("file_event", PIPED),
        ("file_event", DRIVER),
        ("driver_load", PIPED),
        ("image_load", DRIVER),
        ("dns_query", CONNECTED),
        ("network_connection", ASKED),
        ("ps_script", COMMAND),
        ("ps_script", SCRIPT),
        ("ps_module", COMMAND),
        # Whether an image is signed its table does not say, which those rules mostly rest on.
        ("image_load", row("DeviceImageLoadEvents", "ImageLoaded", FileName="x.dll")),
    ],
)
def test_another_event_is_of_another_category(category: str, raw: bytes) -> None:
    source = {"product": "windows", "category": category}
    # True of every event that is looked at.
    anything = {"selection": {"message": "no such"}, "condition": "not selection"}
    assert not fired(source, anything, "defender_endpoint", raw)


def test_what_a_row_says_of_the_registry_stays_as_it_was_written() -> None:
    event = good("defender_endpoint", NUMBER)
    assert event["reg_value"]["path"] == "HKLM\\SYSTEM\\CurrentControlSet\\Services\\Odd"
    kept = json.loads(event["unmapped"])
    assert kept["RegistryKey"] == SERVICE
    assert kept["RegistryValueData"] == "4"


@pytest.mark.parametrize("data", ["-1", "4294967296", "\u0664", "0x4", "9" * 5000])
def test_a_number_that_is_none_stays_text(data: str) -> None:
    raw = registry("RegistryValueSet", SERVICE, "Start", data, "Dword")
    event = good("defender_endpoint", raw)
    assert event["reg_value"]["data"] == data


def test_the_parent_of_an_opened_process_is_not_who_opened_it() -> None:
    event = good("defender_endpoint", OPENED)
    assert event["process"].get("parent") is None


@pytest.mark.parametrize("raw", [READ, READ_ALL, INJECTED, PIPED, JOINED, DRIVER, ASKED])
def test_a_row_alone_is_read_as_in_its_table(raw: bytes) -> None:
    alone = json.dumps(json.loads(raw)["properties"]).encode()
    whole, bare = good("defender_endpoint", raw), good("defender_endpoint", alone)
    assert whole["class_uid"] == bare["class_uid"] != 0
    assert whole["activity_id"] == bare["activity_id"]
    assert whole["metadata"]["event_code"] == bare["metadata"]["event_code"]


def test_details_stay_as_they_were_written() -> None:
    for raw, name in ((READ, "DesiredAccess"), (PIPED, "PipeName"), (ASKED, "DnsQueryResult")):
        kept = json.loads(good("defender_endpoint", raw)["unmapped"])
        assert name in json.loads(kept["AdditionalFields"])


def test_who_opened_a_process_is_not_its_parent() -> None:
    event = good("defender_endpoint", READ)
    assert (event["class_uid"], event["activity_id"]) == (1007, 3)
    assert event["process"].get("parent") is None
    assert json.loads(event["more"])["requested_permissions"] == 5136


@pytest.mark.parametrize(
    "details",
    [None, 7, "", "{", "[]", "{}", '{"DesiredAccess": -1}', '{"DesiredAccess": "0xzz"}',
     '{"DesiredAccess": true}', '{"DesiredAccess": 99999999999}', '{"PipeName": 7}',
     '{"DesiredAccess": "\u0664"}', '{"PipeName": ""}', '{"DnsQueryString": ["a"]}', ["a"]],
)  # fmt: skip
@pytest.mark.parametrize("action", ["OpenProcessApiCall", "NamedPipeEvent", "DnsQueryResponse"])
def test_details_that_are_none_take_nothing_away(action: str, details: Any) -> None:
    event = good("defender_endpoint", row("DeviceEvents", action, AdditionalFields=details))
    assert event["metadata"]["event_code"] == action
    assert "GrantedAccess" not in (event["unmapped"] or "")


REACH: list[tuple[str, dict[str, Any], str, str]] = [
    ("process_creation", {"Image|startswith": "C:\\Temp\\", "ParentImage|endswith": "\\cmd.exe",
                          "User": "NT AUTHORITY\\SYSTEM", "ParentUser|endswith": "ann"},
     "fires", ""),
    ("process_creation", {"CommandLine|contains": "x", "ParentCommandLine|contains": "y",
                          "OriginalFileName": "z.exe", "IntegrityLevel": "High"}, "fires", ""),
    ("process_creation", {"CurrentDirectory": "C:\\"}, "dead", "CurrentDirectory"),
    ("network_connection", {"Initiated": "false", "SourceIp|cidr": "203.0.113.0/24",
                            "DestinationPort": 3389, "Image|endswith": "\\x.exe"}, "fires", ""),
    ("network_connection", {"Initiated": "true", "DestinationHostname": "x.example"}, "fires", ""),
    ("dns_query", {"QueryName": "x.example", "Image|endswith": "\\x.exe"}, "fires", ""),
    ("dns_query", {"QueryResults|contains": "203.0.113.9"}, "dead", "QueryResults"),
    ("file_event", {"TargetFilename|startswith": "C:\\Users\\", "User": "corp\\ann"}, "fires", ""),
    ("file_delete", {"TargetFilename|endswith": ".evtx"}, "fires", ""),
    ("file_rename", {"TargetFilename|endswith": ".locked"}, "fires", ""),
    ("registry_set", {"TargetObject|startswith": "HKLM\\SYSTEM\\CurrentControlSet\\x",
                      "Details": "DWORD (0x0000000a)"}, "fires", ""),
    ("registry_set", {"TargetObject|startswith": "HKU\\S-1-5-21-1"}, "fires", ""),
    ("registry_add", {"TargetObject|endswith": "\\Odd"}, "fires", ""),
    ("registry_delete", {"TargetObject|endswith": "\\Odd", "EventType": "DeleteValue"},
     "fires", ""),
    ("registry_event", {"TargetObject|contains": "\\Odd", "EventType": "CreateKey"}, "fires", ""),
    ("process_access", {"TargetImage|endswith": "\\lsass.exe", "GrantedAccess": "0x1410",
                        "SourceImage|contains": "\\Temp\\"}, "fires", ""),
    ("process_access", {"CallTrace|contains": "dbghelp.dll"}, "dead", "CallTrace"),
    ("create_remote_thread", {"TargetImage|endswith": "\\lsass.exe"}, "fires", ""),
    ("create_remote_thread", {"StartModule|endswith": "\\kernel32.dll"}, "dead", "StartModule"),
    ("pipe_created", {"PipeName|startswith": "\\MSSE-"}, "fires", ""),
    ("driver_load", {"ImageLoaded|endswith": "\\x.sys", "sha1": "e" * 40}, "fires", ""),
    ("driver_load", {"Signed": "false"}, "dead", "Signed"),
]  # fmt: skip


@pytest.mark.parametrize(("category", "selection", "state", "reason"), REACH)
def test_reach_tells_what_no_row_has(
    category: str, selection: dict[str, Any], state: str, reason: str, tmp_path: Path
) -> None:
    source = {"product": "windows", "category": category}
    detection = {"s": selection, "condition": "s"}
    text = document(0, {"logsource": source, "detection": detection})
    (tmp_path / "rule.yml").write_text(text, "utf-8")
    (reached,) = reach_of(compile_rules([tmp_path]), "defender_endpoint")
    assert reached.state == state, reached
    assert reason in reached.reason
