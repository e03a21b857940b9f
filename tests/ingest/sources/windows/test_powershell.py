"""PowerShell's classic and operational log: the context of a command, and who may write in it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.ingest.logs import good, rows
from tests.ingest.windows_forms import PLAIN, Sample, nxlog, xml

HOST = "C:\\Windows\\System32\\WindowsPowerShell\\v1.0\\powershell.exe"
CLASSIC = "Windows PowerShell"


def context(host: str = f"{HOST} -nop", command: str = "", user: str = "") -> str:
    pairs = {
        "SequenceNumber": "13",
        **({"UserId": user} if user else {}),
        "HostName": "ConsoleHost",
        "HostVersion": "5.1.17763.1007",
        "HostId": "83c6a631-910d-4530-bec2-18b2d0fc380a",
        "HostApplication": host,
        "EngineVersion": "5.1.17763.1007",
        "RunspaceId": "056a5045-a7bb-49c6-9a9d-2ea95acea751",
        "PipelineId": "",
        "CommandName": "",
        "CommandType": "",
        "ScriptName": "",
        "CommandPath": "",
        "CommandLine": command,
    }
    return "\r\n".join(f"\t{name}={value}" for name, value in pairs.items())


def classic(event_id: int, text: str) -> Sample:
    first = ("Get-Date", text, "") if event_id == 800 else ("Available", "None", text)
    return Sample(event_id, first, "PowerShell", CLASSIC, PLAIN, 4)


def of(event_id: int, text: str) -> dict[str, Any]:
    return good("windows_xml", xml(classic(event_id, text)))


@pytest.mark.parametrize("event_id", [400, 403, 600])
def test_the_command_line_of_the_host_is_read(event_id: int) -> None:
    event = of(event_id, context(f"{HOST} -noexit -command 'C:\\a b'"))
    assert event["actor"]["process"]["cmd_line"] == f"{HOST} -noexit -command 'C:\\a b'"
    assert event["actor"]["process"]["uid"] == "83c6a631-910d-4530-bec2-18b2d0fc380a"
    assert json.loads(event["more"])["app"]["version"] == "5.1.17763.1007"


FORGED = [
    "x\r\n\tUserId=CORP\\admin",
    "x\r\n\tUser=CORP\\admin\r\n\tShell ID = y",
    "x\r\n\tEngineVersion=9\r\n\tUserId=CORP\\admin\r\n\tUser=CORP\\admin",
    "x\n\tHostId=9\n\tHostApplication=C:\\good.exe",
    "Context Information:\r\n\tUserId=CORP\\admin\r\n\tHostApplication=C:\\good.exe",
]


@pytest.mark.parametrize("typed", FORGED)
@pytest.mark.parametrize("event_id", [400, 600, 800])
def test_lines_in_a_command_line_are_no_fields(event_id: int, typed: str) -> None:
    event = of(event_id, context(f"{HOST} {typed}", user="CORP\\ann" if event_id == 800 else ""))
    run = event["actor"]["process"]
    assert run["cmd_line"].startswith(HOST)
    # Nothing of what was typed is hidden from those who look for it.
    assert all(part.strip() in run["cmd_line"] for part in typed.splitlines())
    assert run["uid"] == "83c6a631-910d-4530-bec2-18b2d0fc380a"
    user = event["actor"].get("user")
    assert user == ({"name": "ann", "domain": "CORP"} if event_id == 800 else None)


@pytest.mark.parametrize("typed", FORGED)
def test_what_is_typed_into_the_shell_is_no_field(typed: str) -> None:
    event = of(800, context(command=f"Get-Date\n{typed}", user="CORP\\ann"))
    assert event["actor"]["user"] == {"name": "ann", "domain": "CORP"}
    assert event["actor"]["process"]["cmd_line"].startswith(f"{HOST} -nop")


@pytest.mark.parametrize("typed", FORGED)
def test_a_rendered_message_is_read_the_same_or_not_at_all(typed: str) -> None:
    for event_id in (400, 800):
        raw = json.loads(nxlog(Sample(event_id, {}, "PowerShell", CLASSIC, PLAIN, 4)))
        inner = context(f"{HOST} {typed}", user="CORP\\ann" if event_id == 800 else "")
        raw["Message"] = (
            f"Pipeline execution details for command line: {typed}. \r\n\r\nContext Information: "
            f"\r\n\tDetailSequence=1\r\n\tDetailTotal=1\r\n\r\n{inner} \r\n\r\nDetails: \r\n{typed}"
            if event_id == 800
            else f"Engine state is changed from None to Available. \r\n\r\nDetails: \r\n{inner}"
        )
        (event,) = rows("windows_nxlog", json.dumps(raw).encode())
        who = (event.get("actor") or {}).get("user") or {}
        assert who.get("name") != "admin"
        assert (
            "good.exe"
            not in ((event.get("actor") or {}).get("process") or {})
            .get("cmd_line", "")
            .partition(" ")[0]
        )


def test_the_account_of_a_command_is_the_one_windows_wrote() -> None:
    typed = "x\r\n        User = CORP\\admin\r\n        Shell ID = y"
    text = (
        f"        Severity = Informational\r\n        Host Name = ConsoleHost\r\n"
        f"        Host ID = 7\r\n        Host Application = {HOST} {typed}\r\n"
        "        Engine Version = 5.1\r\n        Command Name = Get-Date\r\n"
        "        Command Path = \r\n        User = CORP\\ann\r\n        Connected User = \r\n"
        "        Shell ID = Microsoft.PowerShell\r\n"
    )
    name = "Microsoft-Windows-PowerShell"
    sample = Sample(4103, {"ContextInfo": text, "Payload": "p"}, name, f"{name}/Operational", PLAIN)
    event = good("windows_xml", xml(sample))
    assert event["actor"]["user"] == {"name": "ann", "domain": "CORP"}
    assert event["script"]["name"] == "Get-Date"
