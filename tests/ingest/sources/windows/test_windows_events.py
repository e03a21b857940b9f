"""What events of Windows mean: the right class and the right fields."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from ingest.parsing.ocsf_export import ocsf_object
from tests.ingest.logs import good
from tests.ingest.windows_forms import FAILURE, SECURITY, Sample, beat, xml
from tests.ingest.windows_logon_samples import ANN, BOB, LOGON, NOBODY
from tests.ingest.windows_samples import SAMPLES

ANN_USER = {"name": "ann", "domain": "CORP", "uid": "S-1-5-21-1-2-3-1104"}
BOB_USER = {"name": "bob", "domain": "CORP", "uid": "S-1-5-21-1-2-3-1105"}
HOST = "WS01.corp.example"


def of(name: str) -> dict[str, Any]:
    return good("windows_xml", xml(SAMPLES[name]))


def left(event: dict[str, Any]) -> dict[str, Any]:
    found = json.loads(event["unmapped"] or "{}")
    assert isinstance(found, dict)
    return found


def more(event: dict[str, Any]) -> dict[str, Any]:
    found = json.loads(event.get("more") or "{}")
    assert isinstance(found, dict)
    return found


@pytest.mark.parametrize(
    ("name", "class_uid", "activity", "status"),
    [
        ("4624", 3002, 1, 1),
        ("4625", 3002, 1, 2),
        ("4627", 3003, 2, 1),
        ("4634", 3002, 2, 1),
        ("4648", 3002, 1, 1),
        ("4656", 1001, 14, 1),
        ("4656 process", 1007, 3, 1),
        ("4657", 201002, 3, 1),
        ("4658", 201003, 99, 1),
        ("4662", 201003, 1, 1),
        ("4663", 1001, 3, 1),
        ("4663 key", 201001, 2, 1),
        ("4670", 1001, 7, 1),
        ("4672", 3003, 1, 1),
        ("4673", 3003, 99, 2),
        ("4688", 1007, 1, 1),
        ("4689", 1007, 2, 1),
        ("4697", 201004, 1, 1),
        ("4698", 1006, 1, 1),
        ("4702", 1006, 2, 1),
        ("4703", 3003, 1, 1),
        ("4704", 3005, 1, 1),
        ("4719", 3004, 3, 1),
        ("4720", 3001, 1, 1),
        ("4724", 3001, 4, 2),
        ("4728", 3006, 3, 1),
        ("4740", 3001, 9, 1),
        ("4768", 3002, 3, 1),
        ("4769", 3002, 4, 1),
        ("4771", 3002, 6, 2),
        ("4776", 3002, 1, 2),
        ("4778", 4005, 8, 1),
        ("4798", 3001, 99, 1),
        ("4799", 3006, 99, 1),
        ("5136", 3004, 3, 1),
        ("5140", 4006, 2, 1),
        ("5152", 4001, 5, 2),
        ("5154", 4001, 7, 1),
        ("5156", 4001, 1, 1),
        ("6273", 3002, 1, 2),
        ("6416", 1010, 1, 1),
        ("1102", 1008, 1, 1),
        ("104", 1008, 1, 1),
        ("sysmon 1", 1007, 1, 1),
        ("sysmon 2", 1001, 6, None),
        ("sysmon 3", 4001, 1, 1),
        ("sysmon 4", 6002, 4, None),
        ("sysmon 5", 1007, 2, None),
        ("sysmon 6", 1002, 1, None),
        ("sysmon 7", 1005, 1, None),
        ("sysmon 8", 1007, 4, None),
        ("sysmon 9", 1001, 2, None),
        ("sysmon 10", 1007, 3, None),
        ("sysmon 11", 1001, 1, None),
        ("sysmon 12", 201001, 1, None),
        ("sysmon 12 value", 201002, 4, None),
        ("sysmon 13", 201002, 2, None),
        ("sysmon 14", 201001, 5, None),
        ("sysmon 18", 1001, 14, None),
        ("sysmon 19", 3004, 1, None),
        ("sysmon 22", 4003, 1, 1),
        ("sysmon 22 fails", 4003, 1, 2),
        ("sysmon 23", 1001, 4, None),
        ("sysmon 27", 1001, 1, 2),
        ("sysmon 255", 6008, 1, None),
        ("4103", 1009, 1, None),
        ("4104", 1009, 1, None),
        ("400", 6002, 3, None),
        ("800", 1009, 1, None),
        ("7045", 201004, 1, None),
        ("7036", 201004, 4, None),
        ("7040", 201004, 2, None),
        ("7034", 201004, 4, 2),
        ("1033", 6002, 1, 1),
        ("18456", 3002, 1, 2),
        ("task 106", 1006, 1, None),
        ("task 201", 1006, 99, 2),
        ("session 21", 3002, 1, 1),
        ("session 25", 4005, 8, 1),
        ("rdp 1149", 3002, 1, 1),
        ("defender 1116", 2004, 1, None),
        ("defender 5001", 6002, 7, 1),
        ("bits 59", 4002, 3, None),
        ("wmi 5858", 6003, 99, 2),
        ("dns 3008", 4003, 2, 1),
        ("applocker 8004", 1007, 1, 2),
        ("applocker 8007", 1009, 1, 2),
        ("codeintegrity 3077", 1005, 1, 2),
        ("firewall 2004", 3004, 1, None),
    ],
)
def test_the_class_of_an_event(
    name: str, class_uid: int, activity: int, status: int | None
) -> None:
    event = of(name)
    assert (event["class_uid"], event["activity_id"]) == (class_uid, activity)
    assert event.get("status_id") == status
    assert event["type_uid"] == class_uid * 100 + activity


def test_a_logon_over_the_network() -> None:
    event = of("4624")
    assert event["user"] == BOB_USER
    assert event["session"] == {"uid": "0x8f1c2"}
    assert event["src_endpoint"] == {"ip": "10.9.8.7", "port": 49152, "hostname": "KALI"}
    assert event["dst_endpoint"] == {"hostname": HOST}
    assert (event["logon_type_id"], event["is_remote"], event["auth_protocol"]) == (3, True, "NTLM")
    assert event.get("actor") is None
    assert event["user_name"] == "bob"
    assert event["host_name"] == HOST
    assert event["message"] == "An account was successfully logged on."
    assert left(event)["LmPackageName"] == "NTLM V2"
    assert left(event)["SubjectUserSid"] == "S-1-0-0"
    shown = ocsf_object(event)
    assert (shown["auth_protocol_id"], shown["logon_type"]) == (1, "Network")
    about = event["metadata"]
    assert (about["log_name"], about["log_provider"], about["uid"]) == (
        "Security",
        SECURITY,
        "4711",
    )


def test_a_logon_that_failed_says_why() -> None:
    event = of("4625")
    assert event["user"] == {"name": "administrator"}
    assert event["src_endpoint"] == {"ip": "203.0.113.9", "hostname": "WS01"}
    assert event["status_code"] == "0xC000006A"
    assert event["status_detail"] == "user name is correct but the password is wrong"
    assert event["logon_type_id"] == 10
    assert event["severity_id"] == 2
    assert event["actor"]["process"]["pid"] == 0x2C4
    assert (left(event)["Status"], left(event)["SubStatus"]) == ("0xc000006d", "0xc000006a")


@pytest.mark.parametrize(
    ("number", "uid", "remote"),
    [
        ("2", 2, False),
        ("5", 5, False),
        ("7", 7, False),
        ("8", 8, True),
        ("12", 12, True),
        ("0", 1, False),
    ],
)
def test_logon_types(number: str, uid: int, remote: bool) -> None:
    event = good("windows_xml", xml(Sample(4624, LOGON | {"LogonType": number})))
    assert (event["logon_type_id"], event["is_remote"]) == (uid, remote)
    odd = good("windows_xml", xml(Sample(4624, LOGON | {"LogonType": "77"})))
    assert (odd["logon_type_id"], left(odd)["LogonType"]) == (99, "77")


@pytest.mark.parametrize("ip", ["-", "", "LOCAL", "10.0.0.999", "1.2.3.4 5.6.7.8", "::g"])
def test_what_is_no_address_does_not_become_one(ip: str) -> None:
    event = good("windows_xml", xml(Sample(4624, LOGON | {"IpAddress": ip, "IpPort": "0"})))
    assert event["src_endpoint"] == {"hostname": "KALI"}
    assert event.get("src_ip") is None
    assert left(event)["IpAddress"] == ip
    assert left(event)["IpPort"] == "0"


def test_nobody_logs_on() -> None:
    nobody = {"TargetUserSid": "S-1-0-0", "TargetUserName": "-", "TargetDomainName": "-"}
    event = good("windows_xml", xml(Sample(4625, {**NOBODY, **nobody}, keywords=FAILURE)))
    assert event["user"] == {"uid": "S-1-0-0"}
    assert event["user_name"] is None


def test_credentials_used_for_another_machine() -> None:
    event = of("4648")
    assert event["user"] == {"name": "bob", "domain": "CORP"}
    assert event["actor"]["user"] == ANN_USER
    assert event["actor"]["session"] == {"uid": "0x3e7a1"}
    assert event["actor"]["process"] == {"path": "C:\\Windows\\System32\\svchost.exe", "pid": 7240}
    assert event["dst_endpoint"] == {"hostname": "FILES01"}


def test_kerberos() -> None:
    ticket = of("4768")
    assert ticket["user"] == BOB_USER
    assert ticket["service"] == {"name": "krbtgt", "uid": "S-1-5-21-1-2-3-502"}
    assert ticket["src_endpoint"] == {"ip": "172.18.39.5", "port": 57965}
    assert (ticket["auth_protocol"], ticket["status_code"]) == ("Kerberos", "0x0")
    assert left(ticket)["TicketEncryptionType"] == "0x17"
    assert of("4769")["user"] == {"name": "bob", "domain": "CORP.EXAMPLE"}
    failed = of("4771")
    assert (failed["status_code"], failed["src_ip"]) == ("0x18", "10.1.2.3")
    assert failed["status_detail"] == "pre-authentication failed: wrong password"


def test_ntlm_names_the_workstation() -> None:
    event = of("4776")
    assert event["src_endpoint"] == {"hostname": "KALI"}
    assert (event["status_code"], event["status_detail"]) == (
        "0xC0000064",
        "user name does not exist",
    )
    assert event["auth_protocol"] == "NTLM"


def test_a_process_of_the_security_log_has_hexadecimal_ids() -> None:
    event = of("4688")
    run = event["process"]
    assert (run["path"], run["pid"]) == ("C:\\Windows\\System32\\bitsadmin.exe", 0x242C)
    assert run["cmd_line"] == "bitsadmin /transfer x"
    assert run["parent"] == {"path": "C:\\Windows\\System32\\cmd.exe", "pid": 0x273C}
    assert event["actor"]["process"] == run["parent"]
    assert run["user"] == event["actor"]["user"] == ANN_USER
    assert (run["integrity"], run["session_uid"]) == ("High", "0x3e7a1")
    assert left(event)["TokenElevationType"] == "%%1936"


def test_accounts_and_groups() -> None:
    made = of("4720")
    assert made["user"] == BOB_USER | {"full_name": "Bob B.", "email_addr": "bob@corp.example"}
    assert made["actor"]["user"] == ANN_USER
    added = of("4728")
    assert added["group"] == {
        "name": "Domain Admins",
        "domain": "CORP",
        "uid": "S-1-5-21-1-2-3-512",
    }
    assert added["user"]["uid"] == "S-1-5-21-1-2-3-1105"
    assert added["actor"]["user"] == ANN_USER
    locked = of("4740")
    assert locked["user"] == {"name": "bob", "uid": "S-1-5-21-1-2-3-1105"}
    assert locked["src_endpoint"] == {"hostname": "WS77"}
    assert of("4672")["privileges"] == ["SeTcbPrivilege", "SeDebugPrivilege"]
    assert of("4627")["user"]["groups"] == ["S-1-5-32-544", "S-1-1-0"]
    listed = of("4799")
    assert listed["actor"]["process"] == {"path": "C:\\Windows\\explorer.exe", "pid": 0x1258}


@pytest.mark.parametrize(
    ("rights", "activity"),
    [("%%4416", 2), ("%%1537\n\t\t%%4416", 4), ("%%4424", 6), ("%%1539", 7), ("%%4423", 8)],
)
def test_what_was_done_to_a_file_goes_by_the_gravest_right(rights: str, activity: int) -> None:
    data = dict(SAMPLES["4663"].named) | {"AccessList": rights}
    event = good("windows_xml", xml(Sample(4663, data)))
    assert (event["class_uid"], event["activity_id"]) == (1001, activity)
    assert event["file"]["path"] == left(event)["ObjectName"] == "C:\\secret\\plan.docx"


def test_the_filtering_platform() -> None:
    event = of("5156")
    assert event["src_endpoint"] == {"ip": "192.168.2.5", "port": 61628}
    assert event["dst_endpoint"] == {"ip": "93.184.216.34", "port": 443}
    assert event["connection_info"]["direction_id"] == 2
    assert event["connection_info"]["protocol_name"] == "tcp"
    assert event["actor"]["process"]["pid"] == 4584
    assert (event["action_id"], event["disposition_id"]) == (1, 1)
    blocked = of("5152")
    assert (blocked["action_id"], blocked["disposition_id"]) == (2, 2)
    assert blocked["connection_info"]["direction"] == "Inbound"


def test_shares_tasks_and_services() -> None:
    event = of("5145")
    assert (event["share"], event["src_ip"]) == ("\\\\*\\C$", "fe80::4d30:7d6f:8db9:ce3c")
    assert left(event)["IpAddress"] == "fe80::4d30:7d6f:8db9:ce3c%4"
    assert event["file"] == {"path": "Windows\\Temp\\a.exe"}
    task = of("4698")
    assert task["job"]["name"] == "\\Evil"
    assert task["job"]["cmd_line"] == 'cmd.exe /c "calc > x"'
    assert "<Command>" in left(task)["TaskContent"]
    for name in ("4697", "7045"):
        assert of(name)["win_service"] == {
            "name": "PSEXESVC",
            "cmd_line": "%SystemRoot%\\PSEXESVC.exe",
            "start_type": "demand start",
            "type": "user mode service",
            "start_name": "LocalSystem",
        }
    changed = of("7040")
    assert changed["win_service"]["name"] == "BITS"
    assert changed["win_service"]["start_type"] == "disabled"
    assert left(changed)["param2"] == "demand start"


def test_the_audit_log_cleared() -> None:
    event = of("1102")
    assert event["actor"]["user"] == ANN_USER
    assert event["severity_id"] == 4
    assert more(event)["log_name"] == "Security"
    of_another = dict(SAMPLES["104"].named) | {"Channel": "Application"}
    raw = xml(replace(SAMPLES["104"], data=of_another))
    assert more(good("windows_xml", raw))["log_name"] == "Application"


def test_nothing_of_an_event_is_dropped() -> None:
    """Every value is found again, but for those that were turned into numbers or split."""
    turned = {
        *("ProcessId", "NewProcessId", "ProcessID", "SourceProcessId", "TargetProcessId"),
        *("CallerProcessId", "ClientProcessId", "Status", "LogonType", "Protocol", "Direction"),
        *("IpAddress", "Hashes", "Hash", "User", "UtcTime", "SourceIsIpv6", "DestinationIsIpv6"),
        *("Initiated", "MandatoryLabel", "TargetUserName", "PrivilegeList", "GroupMembership"),
        *("EnabledPrivilegeList", "QueryResults", "TargetObject", "ServiceType", "RemoteName"),
        *("ServiceStartType", "ParentUser", "SourceUser", "TargetUser", "Requester", "TCP"),
        *("AuthenticationPackageName", "State", "QueryType", "QTYPE", "QNAME", "Detection User"),
        *("UserContext", "param7", "jobOwner", "ResultCode", "FileHash", "ClientName", "param2"),
        *("CallingStationID", "ModifyingUser", "DestPort", "ShareName", "NewValue", "QueryStatus"),
        *("LogonProcessName", "ScriptBlockText", "ReasonCode"),
    }
    for name, sample in SAMPLES.items():
        event = good("winlogbeat", beat(sample))
        kept = list(leaves([event, more(event), left(event)]))
        for field, value in sample.named.items():
            if field not in turned and value.strip():
                assert any(value.strip() in one for one in kept), (name, field, value)


def leaves(node: Any) -> Iterator[str]:
    if isinstance(node, dict):
        for one in node.values():
            yield from leaves(one)
    elif isinstance(node, list):
        for one in node:
            yield from leaves(one)
    elif node is not None:
        yield str(node)


def test_the_account_of_a_change_is_not_its_author() -> None:
    event = good("windows_xml", xml(Sample(4726, {**BOB, **ANN})))
    assert (event["user"]["name"], event["actor"]["user"]["name"]) == ("bob", "ann")
    assert event["user_name"] == "bob"
