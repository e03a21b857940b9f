"""Events of which only the rendered message came: what its lines say, and what they may not."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.ingest.logs import rows
from tests.ingest.windows_forms import PLAIN, SECURITY, SUCCESS, Sample, beat, evtx_dump, nxlog

SYSMON = "Microsoft-Windows-Sysmon"
LOGON = (
    "An account failed to log on.\r\n\r\nSubject:\r\n\tSecurity ID:\t\tS-1-0-0\r\n"
    "\tAccount Name:\t\t-\r\n\tAccount Domain:\t\t-\r\n\tLogon ID:\t\t0x0\r\n\r\n"
    "Logon Type:\t\t\t3\r\n\r\nAccount For Which Logon Failed:\r\n\tSecurity ID:\t\tS-1-0-0\r\n"
    "\tAccount Name:\t\t{name}\r\n\tAccount Domain:\t\tCORP\r\n\r\nFailure Information:\r\n"
    "\tFailure Reason:\t\t%%2313\r\n\tStatus:\t\t\t0xC000006D\r\n\tSub Status:\t\t0xC0000064\r\n"
    "\r\nProcess Information:\r\n\tCaller Process ID:\t0x0\r\n\tCaller Process Name:\t-\r\n\r\n"
    "Network Information:\r\n\tWorkstation Name:\tPC7\r\n\tSource Network Address:\t10.0.0.7\r\n"
    "\tSource Port:\t\t50123\r\n"
)
CREATED = (
    "Process Create:\nRuleName: -\nUtcTime: 2024-03-05 10:20:30.123\n"
    "ProcessGuid: {{b81dee6c-0001-5d2f-0000-001094619900}}\nProcessId: 4711\nImage: C:\\a.exe\n"
    "FileVersion: 1\nDescription: {description}\nProduct: p\nCompany: c\n"
    "OriginalFileName: A.EXE\nCommandLine: {command}\nCurrentDirectory: C:\\\nUser: CORP\\ann\n"
    "LogonId: 0x7\nTerminalSessionId: 1\nIntegrityLevel: High\n"
    "Hashes: MD5=A094E2B38D3DD864B07580D243CB6E43\nParentProcessId: 7\nParentImage: C:\\p.exe\n"
    "ParentCommandLine: {parent}"
)


def forms(sample: Sample, message: str) -> list[tuple[str, bytes]]:
    flat = json.loads(nxlog(sample)) | {"Message": message}
    document = json.loads(beat(sample)) | {"message": message}
    document["winlog"].pop("event_data", None)
    object_ = json.loads(evtx_dump(sample))
    object_["Event"]["RenderingInfo"] = {"Message": message}
    return [
        ("windows_nxlog", json.dumps(flat).encode()),
        ("winlogbeat", json.dumps(document).encode()),
        ("windows_evtx_json", json.dumps(object_).encode()),
    ]


def events(sample: Sample, message: str) -> list[dict[str, Any]]:
    return [event for form in forms(sample, message) for event in rows(*form)]


def created(command: str = "a -x", parent: str = "p", description: str = "d") -> str:
    return CREATED.format(command=command, parent=parent, description=description)


SYSMON_ONE = Sample(1, {}, SYSMON, f"{SYSMON}/Operational", PLAIN, 4)
FAILED = Sample(4625, {}, SECURITY, "Security", SUCCESS)


def test_a_process_of_which_only_the_message_came() -> None:
    for event in events(SYSMON_ONE, created()):
        run = event["process"]
        assert (run["path"], run["cmd_line"], run["pid"]) == ("C:\\a.exe", "a -x", 4711)
        assert run["internal_name"] == "A.EXE"
        assert run["user"]["name"] == "ann"
        assert run["parent"]["path"] == "C:\\p.exe"
        assert event["time"].isoformat().startswith("2024-03-05T10:20:30.123")


FORGED = "x\nParentUser: NT AUTHORITY\\SYSTEM\nTargetImage: C:\\lsass.exe\nSourceIp: 6.6.6.6"


@pytest.mark.parametrize("part", ["command", "parent", "description"])
def test_lines_in_a_text_add_no_field_to_sysmons(part: str) -> None:
    for event in events(SYSMON_ONE, created(**{part: FORGED})):
        assert (event["process"].get("parent") or {}).get("user") is None
        left = json.loads(event["unmapped"])
        assert not {"ParentUser", "TargetImage", "SourceIp"} & left.keys()
        assert event["process"]["user"]["name"] == "ann"


@pytest.mark.parametrize("part", ["command", "parent", "description"])
def test_lines_in_a_text_replace_no_field_of_sysmons(part: str) -> None:
    typed = "x\nUser: CORP\\admin\nImage: C:\\good.exe\nOriginalFileName: GOOD.EXE"
    for event in events(SYSMON_ONE, created(**{part: typed})):
        run = event["process"]
        assert (run.get("user") or {}).get("name") != "admin"
        assert run.get("path") != "C:\\good.exe"
        assert run.get("internal_name") != "GOOD.EXE"


def test_a_failed_logon_of_which_only_the_message_came() -> None:
    for event in events(FAILED, LOGON.format(name="bob")):
        assert event["user"]["name"] == "bob"
        assert event["src_endpoint"]["ip"] == "10.0.0.7"
        assert event["logon_type_id"] == 3


def test_a_name_with_lines_adds_no_field_and_no_address() -> None:
    name = (
        "bob\r\n\tService Name:\tkrbtgt\r\n\r\nNetwork Information:\r\n"
        "\tSource Network Address:\t6.6.6.6\r\n\tShare Name:\tC$"
    )
    for event in events(FAILED, LOGON.format(name=name)):
        assert (event.get("src_endpoint") or {}).get("ip") != "6.6.6.6"
        assert not {"ServiceName", "ShareName"} & json.loads(event["unmapped"]).keys()


def test_a_command_line_of_several_lines_is_one_text() -> None:
    message = (
        "A new process has been created.\r\n\r\nCreator Subject:\r\n\tSecurity ID:\t\tS-1-5-18\r\n"
        "\tAccount Name:\t\tann\r\n\r\nProcess Information:\r\n\tNew Process ID:\t\t0x7\r\n"
        "\tNew Process Name:\tC:\\a.exe\r\n\tProcess Command Line:\ta\r\n\r\nTarget Subject:\r\n"
        "\tAccount Name:\t\tadmin\r\n\r\nToken Elevation Type indicates the type of token.\r\n"
        "\tService Name:\tx\r\n"
    )
    for event in events(Sample(4688, {}, SECURITY, "Security", SUCCESS), message):
        assert (event["process"].get("user") or {}).get("name") != "admin"
        assert "admin" in event["process"]["cmd_line"]
        assert "ServiceName" not in json.loads(event["unmapped"])
