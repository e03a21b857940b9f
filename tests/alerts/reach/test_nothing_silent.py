"""What a rule says compiles to what it says, on raw records."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.alerts.reach.fired import fired
from tests.ingest.windows_forms import Sample, sysmon, xml

CREATED = {"product": "windows", "category": "process_creation"}
BETWEEN = {"product": "windows", "category": "process_access"}
SET = {"product": "windows", "category": "registry_set"}
PROXY = {"category": "proxy"}
MD5, SHA = "A094E2B38D3DD864B07580D243CB6E43", "AB" * 32


def started(**data: str) -> bytes:
    return xml(sysmon(1, {"Image": "C:\\a.exe", "CommandLine": "a.exe -x", **data}))


OPENED = xml(
    sysmon(10, {"SourceImage": "C:\\a", "TargetImage": "C:\\b", "GrantedAccess": "0x1010"})
)
AUDITED = xml(
    Sample(
        4657,
        {
            "SubjectUserName": "ann",
            "ObjectName": "\\REGISTRY\\MACHINE\\SOFTWARE\\Microsoft\\Windows\\CurrentVersion\\Run",
            "ObjectValueName": "evil",
            "OperationType": "%%1904",
            "NewValue": "C:\\evil.exe",
            "ProcessName": "C:\\reg.exe",
        },
    )
)
SECURITY = {"product": "windows", "service": "security"}
SHARED = xml(
    Sample(
        5145,
        {
            "SubjectUserName": "ann",
            "ShareName": "\\\\*\\IPC$",
            "RelativeTargetName": "oddctl",
            "AccessMask": "0x3",
            "AccessList": "%%4416\n\t\t\t\t%%4417\n\t\t\t\t",
        },
    )
)
HASHED = started(Hashes=f"MD5={MD5},SHA256={SHA}")
ASKED = json.dumps(
    {
        "ts": 1741176000.1, "uid": "C1", "id.orig_h": "10.0.0.5", "id.orig_p": 5, "method": "GET",
        "id.resp_h": "203.0.113.9", "id.resp_p": 80, "host": "x.top", "uri": "/a/b.EXE?x=1.zip",
    }
).encode()  # fmt: skip
EXCHANGE = {"product": "windows", "service": "msexchange-management"}
# An event whose values have no names and, without its rendered text, nothing between them.
UNNAMED = json.dumps(
    {
        "Event": {
            "System": {
                "Provider": {"#attributes": {"Name": "MSExchange CmdletLogs"}},
                "EventID": 1,
                "Channel": "MSExchange Management",
                "TimeCreated": {"#attributes": {"SystemTime": "2025-03-05T12:00:00.000Z"}},
            },
            "EventData": {"Data": ["Set-Odd", '-Odd "a" -FilePath "\\\\h\\s"']},
        }
    }
).encode()
# Sysmon's event of 2024-03-05T10:20:30Z.
CASES: list[tuple[dict[str, str], dict[str, Any], str, bytes, bool]] = [
    (CREATED, {"UtcTime|hour|gte": 10}, "windows_xml", started(), True),
    (CREATED, {"UtcTime|hour|gte": 11}, "windows_xml", started(), False),
    (CREATED, {"UtcTime|hour|lt": 11}, "windows_xml", started(), True),
    (CREATED, {"UtcTime|year|lt": 2024}, "windows_xml", started(), False),
    (CREATED, {"Description": "-"}, "windows_xml", started(Description="-"), True),
    (CREATED, {"Description": "-"}, "windows_xml", started(Description="x"), False),
    (CREATED, {"Description": ""}, "windows_xml", started(Description=""), True),
    (CREATED, {"Description": ""}, "windows_xml", started(Description="-"), False),
    (CREATED, {"Description": ["?", "-"]}, "windows_xml", started(Description="-"), True),
    (PROXY, {"cs-referer": ""}, "zeek:http", ASKED, True),
    (BETWEEN, {"GrantedAccess": 0x1010}, "windows_xml", OPENED, True),
    (BETWEEN, {"GrantedAccess": 0x1410}, "windows_xml", OPENED, False),
    (CREATED, {"Hashes": f"MD5={MD5},SHA256={SHA}"}, "windows_xml", HASHED, True),
    (CREATED, {"Hashes|contains": f"SHA256={SHA.lower()}"}, "windows_xml", HASHED, True),
    (CREATED, {"Hashes": f"MD5={MD5},SHA256={'CD' * 32}"}, "windows_xml", HASHED, False),
    (SET, {"TargetObject|endswith": "\\Run\\evil", "Details|endswith": "evil.exe"},
     "windows_xml", AUDITED, True),
    (PROXY, {"c-uri-extension": "exe"}, "zeek:http", ASKED, True),
    (PROXY, {"c-uri-extension": "zip"}, "zeek:http", ASKED, False),
    ({"product": "windows", "service": "sysmon"}, {"condition": "words", "words": ["C:\\evilpar"]},
     "windows_xml", started(ParentImage="C:\\evilparent.exe"), True),
    # Rights of access in words, where the event has their codes.
    (SECURITY, {"EventID": 5145, "Accesses|contains": "WriteData"}, "windows_xml", SHARED, True),
    (SECURITY, {"Accesses|contains|all": ["ReadData", "AddFile"]}, "windows_xml", SHARED, True),
    (SECURITY, {"Accesses|contains": ["%%4417"]}, "windows_xml", SHARED, True),
    (SECURITY, {"AccessList|contains": "writedata"}, "windows_xml", SHARED, True),
    (SECURITY, {"AccessList|contains": "%%4416"}, "windows_xml", SHARED, True),
    (SECURITY, {"Accesses|contains": ["WriteEA", "DELETE"]}, "windows_xml", SHARED, False),
    # A blank before a word is, at the start of a value, the one between the values.
    (EXCHANGE, {"condition": "words", "words": {"|all": ["Set-Odd", ' -Odd "a" -F']}},
     "windows_evtx_json", UNNAMED, True),
    (EXCHANGE, {"condition": "words", "words": [" dd"]}, "windows_evtx_json", UNNAMED, False),
]  # fmt: skip


@pytest.mark.parametrize(
    ("logsource", "detection", "source", "raw", "expected"), CASES, ids=range(len(CASES))
)
def test_a_rule_means_what_it_says(
    logsource: dict[str, str], detection: dict[str, Any], source: str, raw: bytes, expected: bool
) -> None:
    assert fired(logsource, detection, source, raw) is expected
