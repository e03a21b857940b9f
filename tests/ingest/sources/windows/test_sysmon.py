"""What events of Sysmon, PowerShell, Defender and other logs of Windows mean."""

from __future__ import annotations

import json

from tests.ingest.logs import good
from tests.ingest.sources.windows.test_windows_events import HOST, left, more, of
from tests.ingest.windows_forms import nxlog
from tests.ingest.windows_samples import SAMPLES, other


def test_sysmon_process() -> None:
    event = of("sysmon 1")
    run = event["process"]
    assert (run["path"], run["pid"]) == ("C:\\Windows\\System32\\cmd.exe", 9260)
    assert run["cmd_line"] == 'cmd.exe /c "whoami /all"'
    assert (run["internal_name"], run["integrity"]) == ("Cmd.Exe", "High")
    assert run["user"] == {"name": "ann", "domain": "CORP"}
    assert [one["algorithm"] for one in run["hashes"]] == ["SHA-1", "MD5", "SHA-256", "Imphash"]
    assert run["hashes"][1]["value"] == "a094e2b38d3dd864b07580d243cb6e43"
    assert run["parent"]["cmd_line"] == "C:\\Windows\\explorer.exe"
    assert event["actor"]["process"]["pid"] == run["parent"]["pid"] == 10044
    assert event["metadata"]["product"]["name"] == "Sysmon"
    values = {one["value"] for one in event["observables"]}
    assert {run["path"], run["cmd_line"], run["hashes"][3]["value"], "ann", HOST} <= values


def test_sysmon_network_and_dns() -> None:
    event = of("sysmon 3")
    assert event["src_endpoint"] == {"ip": "10.0.0.5", "port": 50111, "hostname": "ws01"}
    assert event["dst_endpoint"] == {"ip": "93.184.216.34", "port": 443, "svc_name": "https"}
    assert event["connection_info"]["direction_id"] == 2
    assert event["actor"]["user"] == {"name": "ann", "domain": "CORP"}
    asked = of("sysmon 22")
    assert asked["query"] == {"hostname": "www.example.com"}
    assert asked["answers"] == [
        {"rdata": "x.example.net", "type": "CNAME"},
        {"rdata": "93.184.216.34", "type": "A"},
        {"rdata": "2606:2800::1", "type": "AAAA"},
    ]
    assert of("sysmon 22 fails")["rcode"] == "NXDOMAIN"


def test_sysmon_between_processes() -> None:
    event = of("sysmon 10")
    assert event["process"]["path"] == "C:\\Windows\\system32\\lsass.exe"
    assert event["actor"]["process"]["path"] == "C:\\Tools\\mimikatz.exe"
    assert event["actor"]["process"]["tid"] == 1060
    assert left(event)["GrantedAccess"] == "0x1010"
    assert more(event)["actual_permissions"] == 0x1010
    assert left(of("sysmon 8"))["StartModule"] == "C:\\k.DLL"


def test_sysmon_images_registry_and_pipes() -> None:
    loaded = of("sysmon 7")
    assert loaded["module"]["file"]["path"] == "C:\\x\\a.dll"
    assert (left(loaded)["Signed"], left(loaded)["Signature"]) == ("false", "-")
    driver = of("sysmon 6")
    assert driver["module"]["file"]["signature"] == "Evil Ltd"
    assert more(driver)["driver"]["file"]["name"] == "evil.sys"
    assert of("sysmon 12")["reg_key"] == {"path": "HKLM\\SOFTWARE\\Evil"}
    value = of("sysmon 13")["reg_value"]
    assert value == {
        "name": "x",
        "path": "HKLM\\SOFTWARE\\Run",
        "data": "DWORD (0x00000089)",
        "type": "REG_DWORD",
    }
    renamed = of("sysmon 14")
    assert renamed["reg_key"] == {"path": "HKLM\\B"}
    assert more(renamed)["prev_reg_key"] == {"path": "HKLM\\A"}
    assert of("sysmon 17")["file"] == {"path": "\\msagent_01", "type_id": 6}


def test_powershell() -> None:
    event = of("4104")
    assert event["script"]["content"] == "  IEX (New-Object Net.WebClient)\n"
    assert event["script"]["uid"] == "3a01e863-e5f7-4fe6-a55d-36e4078d77f9"
    assert event["actor"]["process"]["pid"] == 744
    assert event["actor"]["user"] == {"uid": "S-1-5-21-1-2-3-1104"}
    assert event["severity_id"] == 3
    called = of("4103")
    assert called["actor"]["process"]["cmd_line"] == "powershell.exe -nop"
    assert called["actor"]["user"] == {"name": "ann", "domain": "CORP"}
    assert called["script"]["path"] == "C:\\x.ps1"
    started = of("400")
    assert started["actor"]["process"]["cmd_line"] == "powershell -enc AAAA"
    assert more(started)["app"]["version"] == "2.0"
    assert of("800")["script"]["content"] == "whoami"


def test_classic_powershell_with_its_message_only() -> None:
    message = (
        "Pipeline execution details for command line: $x = 1\r\nHostApplication=forged. \r\n\r\n"
        "Context Information: \r\n\tUserId=CORP\\ann\r\n\tHostApplication=powershell.exe\r\n"
    )
    raw = {"EventID": 800, "SourceName": "PowerShell", "Hostname": "h", "Message": message}
    event = good("windows_nxlog", json.dumps(raw))
    assert event["script"]["content"] == "$x = 1\r\nHostApplication=forged"
    assert event["actor"]["process"]["cmd_line"] == "powershell.exe"


def test_what_defender_found() -> None:
    event = of("defender 1116")
    assert event["finding_info"]["title"] == "HackTool:Win32/Mimikatz.D"
    assert event["file"]["path"] == "C:\\x\\a.zip"
    assert (event["severity_id"], event["disposition_id"]) == (4, 3)
    assert event["actor"]["user"] == {"name": "ann", "domain": "CORP"}
    assert event["metadata"]["product"]["name"] == "Microsoft Defender Antivirus"
    assert of("defender 5001")["severity_id"] == 4
    named = {key.replace(" ", "_"): value for key, value in SAMPLES["defender 1116"].named.items()}
    spaced = other(1116, "Microsoft-Windows-Windows Defender", named, level=3)
    again = good("windows_nxlog", nxlog(spaced))
    assert again["finding_info"]["title"] == "HackTool:Win32/Mimikatz.D"


def test_other_logs() -> None:
    session = of("session 21")
    assert (session["src_ip"], session["is_remote"], session["logon_type_id"]) == (
        "10.9.8.7",
        True,
        10,
    )
    assert session["user"]["name"] == "bob"
    local = of("session 25")
    assert local.get("src_ip") is None
    assert left(local)["Address"] == "LOCAL"
    assert of("rdp 1149")["src_ip"] == "10.9.8.7"
    assert of("rdp 1149")["user"]["domain"] == "CORP"
    assert of("task 200")["job"] == {"name": "\\Evil", "cmd_line": "C:\\evil.exe"}
    assert of("18456")["src_ip"] == "10.9.8.7"
    assert of("bits 59")["http_request"]["url"]["hostname"] == "evil.example"
    assert of("dns 257")["src_endpoint"] == {"ip": "10.0.0.77", "port": 50123}
    assert of("dns 257")["rcode_id"] == 3
    assert of("applocker 8004")["process"]["path"] == "%OSDRIVE%\\X\\A.EXE"
    assert of("firewall 2004")["firewall_rule"] == {"uid": "{1}", "name": "evil"}
    assert of("smb 551")["src_ip"] == "10.9.8.7"
    assert of("6273")["mac"] == "02:42:ac:77:0b:19"
    crash = of("1000")
    assert crash["actor"]["process"]["path"] == "C:\\a.exe"
    assert left(crash)["param1"] == "a.exe"
    # Without names Windows writes the id of a process in hexadecimal, and does not say so.
    assert crash["actor"]["process"]["pid"] == 0x1274
    assert of("1074")["actor"]["process"]["path"] == "C:\\Windows\\System32\\RuntimeBroker.exe"
