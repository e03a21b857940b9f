"""A Sigma field of Windows means one place, by the event it is asked of."""

from __future__ import annotations

from typing import Any

import pytest

from alerts.reach import windows_places
from alerts.reach.windows_places import places_text, traced
from alerts.rulepack.field_mapping import mapping_data
from tests.alerts.raw_records import ANN, member, ran
from tests.alerts.reach.fired import fired
from tests.ingest.windows_forms import Sample, sysmon, xml

SECURITY = {"product": "windows", "service": "security"}
CREATED = {"product": "windows", "category": "process_creation"}
SYSMON = {"product": "windows", "service": "sysmon"}
TASKS = "Microsoft-Windows-TaskScheduler"
APPLICATION = "Application Error"


def started(user: str, parent: str) -> bytes:
    data = {"Image": "C:\\a.exe", "User": user, "ParentUser": parent, "ParentImage": "C:\\b.exe"}
    return xml(sysmon(1, data))


def logon(subject: str, target: str) -> bytes:
    data = {
        "SubjectUserName": subject,
        "SubjectDomainName": "-" if subject == "-" else "CORP",
        "TargetUserName": target,
        "TargetDomainName": "CORP",
        "LogonType": "3",
        "IpAddress": "10.0.0.5",
    }
    return xml(Sample(4624, data))


def security(event_id: int, **data: str) -> bytes:
    return xml(Sample(event_id, {**ANN, **data}))


def task(user: str) -> bytes:
    data = {"TaskName": "\\x", "UserName": user}
    return xml(Sample(141, data, TASKS, f"{TASKS}/Operational"))


def crash(code: str) -> bytes:
    data = {"AppName": "a.exe", "AppPath": "C:\\a.exe", "ExceptionCode": code}
    return xml(Sample(1000, data, APPLICATION, "Application"))


OPENED = xml(sysmon(10, {"SourceImage": "C:\\a.exe", "TargetImage": "C:\\lsass.exe"}))
TWO_IDS = {"EventID": [4672, 4624], "SubjectUserName": "ann"}
LEFT = {"service": "security", "product": "windows"}

CASES: list[tuple[dict[str, str], dict[str, Any], bytes, bool]] = [
    (CREATED, {"User|contains": "SYSTEM"}, started("CORP\\ann", "NT AUTHORITY\\SYSTEM"), False),
    (CREATED, {"User|contains": "SYSTEM"}, started("NT AUTHORITY\\SYSTEM", "CORP\\ann"), True),
    (CREATED, {"User": "NT AUTHORITY\\SYSTEM"}, started("NT AUTHORITY\\SYSTEM", "x"), True),
    (CREATED, {"User": "SYSTEM"}, started("NT AUTHORITY\\SYSTEM", "x"), False),
    (CREATED, {"ParentUser|contains": "SYSTEM"}, started("CORP\\ann", "X\\SYSTEM"), True),
    (SYSMON, {"Image|endswith": "lsass.exe"}, OPENED, False),
    (SYSMON, {"TargetImage|endswith": "lsass.exe"}, OPENED, True),
    (SYSMON, {"EventID": 1, "User": "CORP\\ann"}, ran("C:\\a.exe", "a"), True),
    (SECURITY, {"EventID": 4624, "SubjectUserName|endswith": "$"}, logon("ann", "WS01$"), False),
    (SECURITY, {"EventID": 4624, "SubjectUserName|endswith": "$"}, logon("-", "WS01$"), False),
    (SECURITY, {"EventID": 4624, "SubjectUserName": "-"}, logon("-", "WS01$"), True),
    (SECURITY, {"EventID": 4624, "TargetUserName|endswith": "$"}, logon("ann", "WS01$"), True),
    (SECURITY, {"SubjectUserName|endswith": "$"}, logon("ann", "WS01$"), False),
    (SECURITY, {"SubjectUserName|fieldref": "TargetUserName"}, logon("ann", "bob"), False),
    (SECURITY, {"SubjectUserName|fieldref": "TargetUserName"}, logon("bob", "BOB"), True),
    (SECURITY, {"EventID": 4672, "SubjectUserName": "ann"}, security(4672), True),
    (SECURITY, {"SubjectUserName": "ann"}, security(4672), True),
    (SECURITY, {"TargetUserName": "ann"}, security(4672), False),
    (SECURITY, TWO_IDS, security(4672), True),
    (SECURITY, TWO_IDS, logon("bob", "ann"), False),
    (SECURITY, {"EventID": 4732, "TargetUserName": "Some group"}, member(4732, "S-1-5-32-544"),
     True),
    (SECURITY, {"EventID": 4732, "MemberName": None}, member(4732, "S-1-5-32-544"), False),
    (SECURITY, {"EventID": 4732, "SubjectUserName": None}, member(4732, "S-1-5-32-544"), False),
    (SECURITY, {"EventID": 4781, "NewTargetUserName": "new"},
     security(4781, OldTargetUserName="old", NewTargetUserName="new", TargetDomainName="CORP"),
     True),
    (SECURITY, {"EventID": 5447, "FilterName": "block edr"}, security(5447, FilterName="Block EDR"),
     True),
    (SECURITY, {"EventID": 4904, "AuditSourceName": "VSSAudit"},
     security(4904, AuditSourceName="VSSAudit", EventSourceId="0x1"), True),
    ({"product": "windows", "service": "application"},
     {"EventID": 1000, "ExceptionCode": "c0000005"}, crash("c0000005"), True),
    ({"product": "windows", "service": "taskscheduler"}, {"UserName|contains": "CORP\\"},
     task("CORP\\ann"), True),
]  # fmt: skip


@pytest.mark.parametrize(
    ("logsource", "detection", "raw", "expected"), CASES, ids=range(len(CASES))
)
def test_a_field_is_asked_where_its_event_has_it(
    logsource: dict[str, str], detection: dict[str, Any], raw: bytes, expected: bool
) -> None:
    assert fired(logsource, detection, "windows_xml", raw) is expected


OTHER_WORDS = {
    ("win_security", "SubjectMachineName"),
    ("win_sysmon", "Hash"),
    ("win_applocker", "FileHash"),
}
"""Taken by a parser and kept in another form."""


def test_the_places_are_what_the_parsers_do_now(monkeypatch: pytest.MonkeyPatch) -> None:
    # The security log is most of the work and has a test of its own below.
    quick = {name: log for name, log in windows_places.LOGS.items() if name != "win_security"}
    monkeypatch.setattr(windows_places, "LOGS", quick)
    places, changed = traced()
    assert {(name, field) for name, _, field in changed} <= OTHER_WORDS
    assert places == {name: mapping_data()["places"][name] for name in quick}


@pytest.mark.full
def test_the_whole_file_is_what_the_parsers_do_now() -> None:
    places, changed = traced()
    assert {(name, field) for name, _, field in changed} <= OTHER_WORDS
    assert places_text(places) == windows_places.PLACES_FILE.read_text("utf-8")
