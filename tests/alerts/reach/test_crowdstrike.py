"""Rules of Sigma's categories of hosts fire on the events of CrowdStrike Falcon's sensors, too."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import pytest

from alerts.cli import __main__
from alerts.cli.rules import OTHERS as CHOICES
from alerts.compiler.compiler import compile_rules
from alerts.reach.reach import OF_SEVERAL, reach_of
from infra.config.settings import load
from tests.alerts.public_rules import document
from tests.alerts.reach.fired import fired
from tests.ingest.logs import good

SYSTEM = "\\Device\\HarddiskVolume3\\Windows\\System32\\"
TEMP = "\\Device\\HarddiskVolume3\\Users\\ann\\AppData\\Local\\Temp\\"


def sensor(name: str, platform: str = "Win", **fields: str) -> bytes:
    """An event as the Data Replicator writes it: flat, and each value a text."""
    usual = {
        "event_simpleName": name,
        "name": f"{name}V19",
        "event_platform": platform,
        "timestamp": "1772442001333",
        "aid": "4d92d2adf9009775a446ce0fe2689915",
        "cid": "c1",
        "aip": "203.0.113.1",
        "id": "6a1f0c9e-9b42-11f1-8a6e-02b7c41d5e21",
        "ConfigBuild": "1007.3.0019807.1",
    }
    return json.dumps(usual | fields).encode()


STARTED = sensor(
    "ProcessRollup2",
    ImageFileName=SYSTEM + "WindowsPowerShell\\v1.0\\powershell.exe",
    CommandLine='"C:\\Windows\\System32\\WindowsPowerShell\\v1.0\\powershell.exe" -enc x',
    ParentBaseFileName="WINWORD.EXE",
    ParentProcessId="289734651298",
    TargetProcessId="289741187433",
    RawProcessId="7412",
    UserSid="S-1-5-18",
    IntegrityLevel="16384",
    SHA256HashData="a" * 64,
    MD5HashData="b" * 32,
)
LINUX = sensor(
    "ProcessRollup2",
    "Lin",
    ImageFileName="/usr/bin/curl",
    CommandLine="curl http://evil.example",
    ParentBaseFileName="bash",
    RawProcessId="77",
    UserName="root",
    UID="0",
)
MAC = sensor(
    "ProcessRollup2",
    "Mac",
    ImageFileName="/usr/bin/osascript",
    CommandLine="osascript -e x",
    ParentBaseFileName="zsh",
    RawProcessId="78",
)
RAN_BEFORE = sensor("SyntheticProcessRollup2", ImageFileName=SYSTEM + "lsass.exe", RawProcessId="7")
ENDED = sensor("EndOfProcess", TargetProcessId="289741187433", RawProcessId="7412")
BY_POWERSHELL = {"ContextProcessId": "289741187433", "ContextBaseFileName": "powershell.exe"}
CONNECTION = BY_POWERSHELL | {
    "LocalPort": "52817",
    "RemotePort": "443",
    "Protocol": "6",
    "ConnectionDirection": "0",
}
CONNECTED = sensor(
    "NetworkConnectIP4",
    **CONNECTION | {"LocalAddressIP4": "10.0.0.5", "RemoteAddressIP4": "203.0.113.9"},
)
CONNECTED_6 = sensor(
    "NetworkConnectIP6",
    **CONNECTION | {"LocalAddressIP6": "2001:db8::5", "RemoteAddressIP6": "2001:db8::9"},
)
ACCEPTED = sensor(
    "NetworkReceiveAcceptIP4",
    **CONNECTION
    | {
        "LocalAddressIP4": "10.0.0.5",
        "LocalPort": "3389",
        "RemoteAddressIP4": "203.0.113.9",
        "ConnectionDirection": "1",
    },
)
LISTENED = sensor(
    "NetworkListenIP4", **CONNECTION | {"LocalAddressIP4": "0.0.0.0", "ConnectionDirection": "2"}
)
ASKED = sensor(
    "DnsRequest",
    **BY_POWERSHELL,
    DomainName="cdn.evil.example",
    RequestType="1",
    QueryStatus="0",
    IP4Records="203.0.113.9;",
)
WRITTEN = sensor(
    "PeFileWritten",
    ContextProcessId="289741187433",
    ContextImageFileName=SYSTEM + "cmd.exe",
    TargetFileName=TEMP + "x.exe",
    FileOperatorSid="S-1-5-21-1-2-3-1001",
    SHA256HashData="c" * 64,
    Size="7",
)
SCRIPT = sensor("NewScriptWritten", **BY_POWERSHELL, TargetFileName=TEMP + "x.vbs")
REMOVED = sensor("ExecutableDeleted", TargetFileName=TEMP + "x.exe", ContextProcessId="2")
RENAMED = sensor(
    "NewExecutableRenamed", TargetFileName=TEMP + "y.exe", SourceFileName=TEMP + "y.tmp"
)
RUN = "\\REGISTRY\\USER\\S-1-5-21-1-2-3-1001\\Software\\Microsoft\\Windows\\CurrentVersion\\Run"
SERVICE = "\\REGISTRY\\MACHINE\\SYSTEM\\ControlSet001\\Services\\Odd"
SET = sensor(
    "AsepValueUpdate",
    RegObjectName=RUN,
    RegValueName="Odd",
    RegStringValue="C:\\x.exe",
    RegType="1",
    RegOperationType="1",
)
NUMBER = sensor(
    "RegSystemConfigValueUpdate",
    RegObjectName=SERVICE,
    RegValueName="Start",
    RegNumericValue="4",
    RegType="4",
    RegOperationType="1",
)
GONE = sensor("RegGenericValueUpdate", RegObjectName=RUN, RegValueName="Odd", RegOperationType="2")
KEY = sensor("AsepKeyUpdate", RegObjectName=SERVICE, RegOperationType="5")
DEFAULT = sensor(
    "RegGenericValueUpdate",
    RegObjectName=RUN,
    RegValueName="",
    RegStringValue="x",
    RegOperationType="1",
)
DRIVER = sensor(
    "DriverLoad",
    ImageFileName=SYSTEM + "drivers\\rtcore64.sys",
    SHA256HashData="d" * 64,
    CompanyName="Odd Ltd",
    OriginalFilename="RTCore64.sys",
    FileVersion="1.0",
)

CASES: list[tuple[str, str, bytes, dict[str, Any]]] = [
    ("windows", "process_creation", STARTED, {"Image|endswith": "\\powershell.exe"}),
    ("windows", "process_creation", STARTED, {"Image|contains": "\\Windows\\System32\\"}),
    ("windows", "process_creation", STARTED, {"ParentImage|endswith": "\\winword.exe"}),
    ("windows", "process_creation", STARTED, {"ParentImage|re": "(?i)\\\\winword\\.exe$"}),
    ("windows", "process_creation", STARTED, {"ParentImage|endswith|cased": "\\WINWORD.EXE"}),
    ("windows", "process_creation", STARTED, {"CommandLine|contains": " -enc "}),
    ("windows", "process_creation", STARTED, {"User|contains": "AUTHORI", "User|endswith": "TEM"}),
    ("windows", "process_creation", STARTED, {"IntegrityLevel": ["System", "S-1-16-16384"]}),
    ("windows", "process_creation", STARTED, {"MandatoryLabel": "S-1-16-16384"}),
    ("windows", "process_creation", STARTED, {"Hashes|contains": "SHA256=" + "A" * 64}),
    ("windows", "process_creation", STARTED, {"ProcessId": 7412, "md5": "b" * 32}),
    ("linux", "process_creation", LINUX, {"Image|endswith": "/curl", "User": "root"}),
    ("linux", "process_creation", LINUX, {"ParentImage|endswith": "/bash"}),
    ("macos", "process_creation", MAC, {"Image": "/usr/bin/osascript"}),
    ("macos", "process_creation", MAC, {"ParentImage|endswith": "/zsh"}),
    ("windows", "network_connection", CONNECTED, {"Image|endswith": "\\powershell.exe",
                                                  "Initiated": "true", "DestinationPort": 443}),
    ("windows", "network_connection", CONNECTED, {"DestinationIp|cidr": "203.0.113.0/24"}),
    ("windows", "network_connection", CONNECTED_6, {"DestinationIp": "2001:db8::9",
                                                    "DestinationIsIpv6": "true"}),
    ("windows", "network_connection", ACCEPTED, {"Initiated": "false", "DestinationPort": 3389}),
    ("windows", "dns_query", ASKED, {"QueryName|endswith": ".evil.example"}),
    ("windows", "dns_query", ASKED, {"Image|endswith": "\\powershell.exe", "QueryStatus": 0}),
    ("windows", "dns_query", ASKED, {"QueryResults|contains": "203.0.113.9;", "record_type": "A"}),
    ("windows", "file_event", WRITTEN, {"TargetFilename|contains": "\\AppData\\Local\\Temp\\",
                                        "TargetFilename|endswith": ".exe"}),
    ("windows", "file_event", WRITTEN, {"Image|endswith": "\\System32\\cmd.exe"}),
    ("windows", "file_event", SCRIPT, {"Image|endswith": "\\powershell.exe",
                                       "TargetFilename|endswith": ".vbs"}),
    ("windows", "file_delete", REMOVED, {"TargetFilename|endswith": "\\x.exe"}),
    ("windows", "file_rename", RENAMED, {"TargetFilename|endswith": "\\y.exe"}),
    ("windows", "registry_set", SET, {"TargetObject|endswith": "\\CurrentVersion\\Run\\Odd",
                                      "Details": "C:\\x.exe"}),
    ("windows", "registry_set", SET, {"TargetObject|startswith": "HKU\\S-1-5-21-"}),
    ("windows", "registry_set", NUMBER, {"Details": "DWORD (0x00000004)", "TargetObject":
        "HKLM\\SYSTEM\\CurrentControlSet\\Services\\Odd\\Start"}),
    ("windows", "registry_set", DEFAULT, {"TargetObject|endswith": "\\Run\\(Default)"}),
    ("windows", "driver_load", DRIVER, {"ImageLoaded|endswith": "\\rtcore64.sys"}),
    ("windows", "driver_load", DRIVER, {"Hashes|contains": "SHA256=" + "D" * 64,
                                        "OriginalFileName": "RTCore64.sys", "Company": "Odd Ltd"}),
    ("windows", "registry_event", SET, {"TargetObject|contains": "\\Run\\"}),
]  # fmt: skip


@pytest.mark.parametrize(("product", "category", "raw", "detection"), CASES, ids=range(len(CASES)))
def test_a_rule_of_a_category_fires(
    product: str, category: str, raw: bytes, detection: dict[str, Any]
) -> None:
    assert fired({"product": product, "category": category}, detection, "crowdstrike", raw)


OTHERS = [
    ("windows", "process_creation", RAN_BEFORE),
    ("windows", "process_creation", ENDED),
    ("windows", "process_creation", LINUX),
    ("windows", "process_creation", MAC),
    ("windows", "process_creation", sensor("ProcessRollup2Stats", ImageFileName=SYSTEM + "x.exe")),
    ("linux", "process_creation", STARTED),
    ("linux", "process_creation", MAC),
    ("macos", "process_creation", LINUX),
    ("windows", "network_connection", LISTENED),
    ("windows", "network_connection", sensor("NetworkCloseIP4", **CONNECTION)),
    ("windows", "network_connection", sensor("NetworkConnectIP4", "Lin", **CONNECTION)),
    ("windows", "dns_query", sensor("DnsRequest", "Lin", DomainName="x.example", **BY_POWERSHELL)),
    ("windows", "dns_query", sensor("SuspiciousDnsRequest", DomainName="x", **BY_POWERSHELL)),
    ("windows", "file_event", REMOVED),
    ("windows", "file_event", RENAMED),
    ("windows", "file_event", sensor("PeFileWritten", "Lin", TargetFileName="/x.exe")),
    ("windows", "file_delete", WRITTEN),
    ("windows", "file_rename", WRITTEN),
    ("windows", "registry_set", GONE),
    ("windows", "registry_set", KEY),
    ("windows", "registry_event", KEY),
    ("windows", "image_load", sensor("ClassifiedModuleLoad", ImageFileName=SYSTEM + "x.dll")),
    ("windows", "driver_load", sensor("ClassifiedModuleLoad", ImageFileName=SYSTEM + "x.sys")),
    ("windows", "image_load", DRIVER),
    ("windows", "create_remote_thread", sensor("BrowserInjectedThread", TargetProcessId="7")),
]


@pytest.mark.parametrize(("product", "category", "raw"), OTHERS, ids=range(len(OTHERS)))
def test_another_event_is_of_another_category(product: str, category: str, raw: bytes) -> None:
    # Of each a condition that is true of every event that is looked at.
    anything = {"selection": {"message": "no such"}, "condition": "not selection"}
    assert not fired({"product": product, "category": category}, anything, "crowdstrike", raw)


@pytest.mark.parametrize(
    ("detection", "fires"),
    [
        # Which drive a device is no event says.
        ({"Image|startswith": "C:\\Windows\\"}, False),
        ({"ParentImage|startswith": "C:\\"}, False),
        ({"ParentImage|contains": "\\Office16\\"}, False),
        # So what a rule rules out by the drive is not ruled out.
        ({"s": {"Image|endswith": "\\powershell.exe"}, "filter": {"Image|startswith": "C:\\Win"},
          "condition": "s and not filter"}, True),
        ({"s": {"Image|endswith": "\\powershell.exe"}, "filter": {"Image|contains": ":\\Win"},
          "condition": "s and not filter"}, True),
        ({"s": {"Image|endswith": "\\powershell.exe"},
          "filter": {"ParentImage|endswith": "\\WINWORD.EXE"},
          "condition": "s and not filter"}, False),
        ({"ParentImage": None}, False),
        ({"ParentCommandLine": None}, True),
    ],
)  # fmt: skip
def test_a_path_stays_that_of_a_device(detection: dict[str, Any], fires: bool) -> None:
    source = {"product": "windows", "category": "process_creation"}
    assert fired(source, detection, "crowdstrike", STARTED) is fires


def test_what_an_event_says_stays_as_it_was_written() -> None:
    process = good("crowdstrike", STARTED)
    assert process["process"]["path"].startswith("\\Device\\HarddiskVolume3\\")
    assert process["process"]["parent"]["name"] == "WINWORD.EXE"
    assert process["process"]["user"]["uid"] == "S-1-5-18"
    kept = json.loads(process["unmapped"])
    assert (kept["IntegrityLevel"], kept["event_platform"]) == ("16384", "Win")
    value = good("crowdstrike", NUMBER)
    assert value["reg_value"]["path"] == "HKLM\\SYSTEM\\CurrentControlSet\\Services\\Odd"
    kept = json.loads(value["unmapped"])
    assert (kept["RegObjectName"], kept["RegNumericValue"]) == (SERVICE, "4")


def test_a_port_that_is_listened_on_has_no_direction() -> None:
    assert good("crowdstrike", LISTENED)["connection_info"]["direction_id"] == 0
    assert good("crowdstrike", CONNECTED)["connection_info"]["direction_id"] == 2


REACH: list[tuple[str, dict[str, Any], str, str]] = [
    ("process_creation", {"s": {"Image|endswith": "\\cmd.exe", "IntegrityLevel": "High"},
                          "condition": "s"}, "fires", ""),
    ("process_creation", {"s": {"ParentImage|endswith": "\\cmd.exe",
                                "User|startswith": "NT AUTHORITY\\"}, "condition": "s"},
     "fires", ""),
    ("process_creation", {"s": {"Image|startswith": "C:\\Temp\\"}, "condition": "s"},
     "dead", "no event of crowdstrike has these values for Image"),
    ("process_creation", {"s": {"CurrentDirectory": "C:\\"}, "condition": "s"},
     "dead", "no event of crowdstrike has these values for CurrentDirectory"),
    ("process_creation", {"s": {"CommandLine|contains": "-enc"},
                          "f": {"ParentImage": ["C:\\a.exe", "C:\\b.exe"]},
                          "g": {"ParentImage|endswith": "\\c.exe", "Image": ["", "-"]},
                          "condition": "s and not 1 of f and not g"},
     "fires", "what it rules out by ParentImage no event of crowdstrike has"),
    ("network_connection", {"s": {"DestinationIp|cidr": "2001:db8::/32", "Initiated": "false",
                                  "SourcePort": 3389}, "condition": "s"}, "fires", ""),
    ("network_connection", {"s": {"DestinationHostname": "x"}, "condition": "s"},
     "dead", "DestinationHostname"),
    ("dns_query", {"s": {"QueryName": "x.example", "Image|endswith": "\\x.exe",
                         "record_type": "TXT"}, "condition": "s"}, "fires", ""),
    ("file_event", {"s": {"TargetFilename|contains": "\\Temp\\", "Image|endswith": "\\a.exe"},
                    "condition": "s"}, "fires", ""),
    ("file_delete", {"s": {"TargetFilename|endswith": ".exe"}, "condition": "s"}, "fires", ""),
    ("file_rename", {"s": {"TargetFilename|endswith": ".exe"}, "condition": "s"}, "fires", ""),
    ("registry_set", {"s": {"TargetObject|startswith": "HKLM\\SYSTEM\\CurrentControlSet\\x",
                            "EventType": "SetValue", "Details": "DWORD (0x0000000a)"},
                      "condition": "s"}, "fires", ""),
    ("driver_load", {"s": {"ImageLoaded|endswith": "\\x.sys", "Company": "Odd",
                           "Hashes|contains": "SHA256=" + "D" * 64}, "condition": "s"},
     "fires", ""),
    ("driver_load", {"s": {"Signed": "false"}, "condition": "s"}, "dead", "Signed"),
    ("registry_set", {"s": {"Image|endswith": "\\a.exe"}, "condition": "s"}, "dead", "Image"),
]  # fmt: skip


@pytest.mark.parametrize(("category", "detection", "state", "reason"), REACH)
def test_reach_tells_what_no_event_of_the_sensor_has(
    category: str, detection: dict[str, Any], state: str, reason: str, tmp_path: Path
) -> None:
    source = {"product": "windows", "category": category}
    rule: dict[str, Any] = {"logsource": source, "detection": detection}
    other: dict[str, Any] = {"logsource": {"product": "windows", "service": "system"},
             "detection": {"s": {"EventID": 7045}, "condition": "s"}}  # fmt: skip
    for number, entry in enumerate((rule, other)):
        (tmp_path / f"{number}.yml").write_text(document(number, entry), "utf-8")
    (reached,) = reach_of(compile_rules([tmp_path]), "crowdstrike")
    assert reached.state == state
    assert reason in reached.reason
    assert bool(reason) is bool(reached.reason)


def test_each_source_that_reach_knows_beside_others_can_be_named() -> None:
    assert set(CHOICES) == set(OF_SEVERAL)


def test_the_command_lists_what_fires_more_often_and_fails_on_what_cannot(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    parser = argparse.ArgumentParser()
    __main__.build(parser.add_subparsers())
    source = {"product": "windows", "category": "process_creation"}
    detections: tuple[dict[str, Any], ...] = (
        {"s": {"Image|startswith": "C:\\Temp\\"}, "condition": "s"},
        {"s": {"CommandLine": "x y"}, "f": {"Image": "C:\\a.exe"}, "condition": "s and not f"},
        {"s": {"CommandLine": "x y"}, "condition": "s"},
    )
    for number, detection in enumerate(detections):
        text = document(number, {"logsource": source, "detection": detection})
        (tmp_path / f"{number}.yml").write_text(text, "utf-8")
    words = ["rules", "reach", str(tmp_path), "--source", "crowdstrike", "--output", "json"]
    args = parser.parse_args(words)
    assert args.run(args, load(home=tmp_path)) == 1
    shown = json.loads(capsys.readouterr().out)
    assert [(row["state"], row["reason"][:4]) for row in shown] == [
        ("dead", "no e"),
        ("fires", "what"),
    ]
