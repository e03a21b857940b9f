"""Channels beyond Security and Sysmon: AD FS, Domain Services, SMB, Remote Desktop.

AD FS's audits are shaped as in https://learn.microsoft.com/windows-server/identity/ad-fs/operations
(configure-ad-fs-extranet-smart-lockout-protection); SMB's fields are those of its manifest.
"""

from __future__ import annotations

import json
from typing import Any
from xml.sax.saxutils import escape

import pytest

from tests.ingest.conforms import faults, misfits
from tests.ingest.logs import good
from tests.ingest.windows_forms import FAILURE, PLAIN, SUCCESS, Sample, evtx_dump, xml
from tests.ingest.windows_samples import rpc_call

AD_FS = "AD FS Auditing"
HERE = {"hostname": "WS01.corp.example"}
ANN = {"name": "ann", "domain": "CORP"}
LOCAL = "Microsoft-Windows-TerminalServices-LocalSessionManager"
REMOTE = "Microsoft-Windows-TerminalServices-RemoteConnectionManager"
CORE = "Microsoft-Windows-RemoteDesktopServices-RdpCoreTS"
GATEWAY = "Microsoft-Windows-TerminalServices-Gateway"
SERVER, CLIENT = "Microsoft-Windows-SMBServer", "Microsoft-Windows-SMBClient"
WINRM = "Microsoft-Windows-WinRM"
CAPI2 = "Microsoft-Windows-CAPI2"
NTLM, NETLOGON = "Microsoft-Windows-NTLM", "Microsoft-Windows-Security-Netlogon"
DOMAIN = "Microsoft-Windows-ActiveDirectory_DomainService"
SOCKET = "0200C0EA0A0000070000000000000000"


def audit(result: str, **values: str) -> str:
    inner = {
        "RelyingParty": "urn:federation:MicrosoftOnline",
        "ClaimsProvider": "N/A",
        "UserId": "CORP\\ann",
        "IpAddress": "203.0.113.9",
        "NetworkIpAddress": "N/A",
        "ProxyServer": "PROXY2",
        "UserAgentString": "Mozilla/5.0 (Windows NT 10.0)",
        "Endpoint": "/adfs/ls/",
    } | values
    parts = "".join(f"<{name}>{escape(value)}</{name}>" for name, value in inner.items())
    return (
        '<?xml version="1.0" encoding="utf-16"?>\n<AuditBase xmlns:xsi="urn:x" xsi:type="A">'
        f"<AuditType>A</AuditType><AuditResult>{result}</AuditResult>"
        f"<FailureType>CredentialValidationError</FailureType><ErrorCode>N/A</ErrorCode>"
        f'<ContextComponents><Component xsi:type="R">{parts}</Component></ContextComponents>'
        "</AuditBase>"
    )


def adfs(event_id: int, *data: str, done: bool = False, channel: str = "Security") -> Sample:
    return Sample(event_id, data, AD_FS, channel, SUCCESS if done else FAILURE)


def of(sample: Sample) -> dict[str, Any]:
    event = good("windows_xml", xml(sample))
    assert faults(event) == []
    assert misfits(event) == []
    return event


def operational(event_id: int, provider: str, data: dict[str, str], part: str = "") -> Sample:
    return Sample(event_id, data, provider, f"{provider}/{part or 'Operational'}", PLAIN, 4)


NTLM_CLIENT = {
    "ProcessName": "C:\\Windows\\explorer.exe", "ProcessPID": "0x1234", "Username": "ann",
    "DomainName": "CORP", "Hostname": "WS01", "SingleSignOn": "Yes", "TargetMachine": "fs01",
    "TargetDomain": "", "TargetService": "cifs/fs01", "TargetIP": "10.0.0.5", "NtlmUsageId": "1",
    "NtlmUsageReason": "NTLM was called directly by the calling application.",
    "NtlmVersion": "NTLMv2", "ChannelBindingStatus": "Missing", "Mic Status": "Present",
}  # fmt: skip
NTLM_SERVER = {
    "ProcessName": "System", "ProcessPID": "0x4", "Username": "ann", "DomainName": "CORP",
    "RemoteClientMachine": "WKS-9", "ClientIP": "10.0.0.9", "NtlmVersion": "NTLMv1",
    "TargetMachine": "WS01", "Status": "0x0", "StatusMsg": "0",
}  # fmt: skip

CASES: list[tuple[Sample, int, int, int | None, dict[str, Any]]] = [
    (adfs(1200, "id", audit("Success"), done=True), 3002, 99, 1,
     {"user": ANN, "src_endpoint": {"ip": "203.0.113.9"},
      "service": {"name": "urn:federation:MicrosoftOnline"}}),
    (adfs(1202, "id", audit("Success"), done=True), 3002, 1, 1, {"user": ANN}),
    (adfs(1203, "id", audit("Failure")), 3002, 1, 2,
     {"user": ANN, "src_endpoint": {"ip": "203.0.113.9"}, "dst_endpoint": HERE,
      "status_detail": "CredentialValidationError",
      "http_request": {"user_agent": "Mozilla/5.0 (Windows NT 10.0)"}}),
    (adfs(1205, "id", audit("Failure")), 3001, 3, 2, {"user": ANN}),
    (adfs(1207, "id", audit("Failure")), 3002, 2, 2, {"user": ANN}),
    (adfs(1210, "id", audit("Failure")), 3002, 1, 2, {"user": ANN}),
    (adfs(411, "id", "http://schemas/Windows/UserNameToken", "203.0.113.9",
          "ann@corp.example-The user name or password is incorrect", "System.X"), 3002, 1, 2,
     {"user": {"name": "ann@corp.example"}, "src_endpoint": {"ip": "203.0.113.9"},
      "status_detail": "The user name or password is incorrect"}),
    (adfs(412, "i", "a", "type", "urn:x", done=True), 3002, 99, 1, {"service": {"name": "urn:x"}}),
    (adfs(515, "id", "CORP\\ann", "203.0.113.9"), 3002, 1, 2, {"user": ANN}),
    (adfs(516, "id", "CORP\\ann", "203.0.113.9", "5", "now"), 3001, 9, 1, {"user": ANN}),
    (adfs(403, "i", "a", "2026-01-01", "203.0.113.9", "POST", "/adfs/ls/", "?wa=x", "443",
          "10.0.0.1", "Mozilla", done=True), 4002, 6, 1,
     {"src_endpoint": {"ip": "203.0.113.9"}}),
    (adfs(403, "i", "a", "x", "not", "in", "this", "order", done=True), 0, 0, 1, {}),
    (Sample(2946, ("CN=gmsa,DC=corp", "S-1-5-21-1-2-3-1104", "10.0.0.5:50123"), DOMAIN,
            "Directory Service", PLAIN, 4), 3004, 2, 1,
     {"src_endpoint": {"ip": "10.0.0.5", "port": 50123},
      "actor": {"user": {"uid": "S-1-5-21-1-2-3-1104"}}}),
    (Sample(2889, ("10.0.0.5:50123", "CORP\\ann", "1"), DOMAIN, "Directory Service", PLAIN, 4),
     3002, 1, None, {"user": ANN, "src_endpoint": {"ip": "10.0.0.5", "port": 50123}}),
    (operational(551, SERVER, {"UserName": "", "ClientName": "\\\\10.0.0.7",
                               "Status": "0xC000006D"}, "Security"), 3002, 1, 2,
     {"src_endpoint": {"ip": "10.0.0.7"}, "dst_endpoint": HERE, "status_code": "0xC000006D"}),
    (operational(1006, SERVER, {"ShareName": "\\\\*\\IPC$", "ClientAddress": SOCKET,
                                "UserName": "CORP\\ann", "ClientName": "PC7",
                                "Status": "0xC0000022", "SessionID": "0x7"}, "Security"), 4006, 99,
     2, {"src_endpoint": {"ip": "10.0.0.7", "port": 49386, "hostname": "PC7"},
         "share": "\\\\*\\IPC$"}),
    (operational(1009, SERVER, {"ClientAddress": "1700C0EA00000000" + "0" * 31 + "1" + "0" * 8,
                                "ClientName": "PC7"}, "Security"), 3002, 1, 2,
     {"src_endpoint": {"ip": "::1", "port": 49386, "hostname": "PC7"}}),
    (operational(3000, SERVER, {"ClientName": "10.0.0.7"}, "Audit"), 4001, 1, None,
     {"src_endpoint": {"ip": "10.0.0.7"}, "dst_endpoint": HERE}),
    (operational(31017, CLIENT, {"ServerName": "\\198.51.100.7", "UserName": ""}, "Security"),
     3002, 1, 2, {"dst_endpoint": {"ip": "198.51.100.7"}, "src_endpoint": HERE}),
    (operational(30803, CLIENT, {"ServerName": "srv", "Status": "3221226038"}, "Connectivity"),
     4001, 4, 2, {"dst_endpoint": {"hostname": "srv"}}),
    (Sample(56, ("\\Device\\Termdd", "10.0.0.7", "00"), "TermDD", "System", PLAIN, 2), 4005, 7, 2,
     {"src_endpoint": {"ip": "10.0.0.7"}, "dst_endpoint": HERE}),
    (operational(131, CORE, {"ConnType": "TCP", "ClientIP": "10.0.0.7:50123"}), 4005, 3, None,
     {"src_endpoint": {"ip": "10.0.0.7", "port": 50123}}),
    (operational(140, CORE, {"IPString": "10.0.0.7"}), 4005, 4, 2,
     {"src_endpoint": {"ip": "10.0.0.7"}}),
    (operational(1149, REMOTE, {"Param1": "ann", "Param2": "CORP", "Param3": "10.0.0.7"}),
     3002, 1, 1, {"user": ANN, "src_endpoint": {"ip": "10.0.0.7"}}),
    (operational(1158, REMOTE, {"Param1": "10.0.0.7"}, "Admin"), 4005, 3, None,
     {"src_endpoint": {"ip": "10.0.0.7"}}),
    (operational(21, LOCAL, {"User": "CORP\\ann", "SessionID": "3", "Address": "10.0.0.7"}),
     3002, 1, 1, {"user": ANN, "src_endpoint": {"ip": "10.0.0.7"}, "session": {"uid": "3"}}),
    (operational(24, LOCAL, {"User": "CORP\\ann", "SessionID": "3", "Address": "10.0.0.7"}),
     4005, 7, None, {"src_endpoint": {"ip": "10.0.0.7"}}),
    (operational(201, GATEWAY, {"Username": "CORP\\ann", "IpAddress": "203.0.113.9",
                                "ErrorCode": "23003"}), 3002, 99, 2,
     {"user": ANN, "src_endpoint": {"ip": "203.0.113.9"}, "status_code": "23003"}),
    (operational(303, GATEWAY, {"Username": "CORP\\ann", "IpAddress": "203.0.113.9",
                                "Resource": "srv", "BytesReceived": "7"}), 4005, 7, 1,
     {"dst_endpoint": {"hostname": "srv"}, "traffic": {"bytes_in": 7}}),
    (Sample(4825, {"AccountName": "ann", "AccountDomain": "CORP", "ClientAddress": "10.0.0.7"},
            keywords=FAILURE), 3002, 1, 2, {"user": ANN, "src_endpoint": {"ip": "10.0.0.7"}}),
    (operational(6, WINRM, {"connection": "srv/wsman?PSVersion=5.1"}), 4001, 1, None,
     {"src_endpoint": HERE, "dst_endpoint": {"hostname": "srv"}}),
    (operational(6, WINRM, {"connection": "http://10.0.0.9:5985/wsman"}), 4001, 1, None,
     {"src_endpoint": HERE, "dst_endpoint": {"ip": "10.0.0.9", "port": 5985}}),
    (operational(6, WINRM, {"connection": "https://[2001:db8::1]/wsman"}), 4001, 1, None,
     {"src_endpoint": HERE, "dst_endpoint": {"ip": "2001:db8::1"}}),
    (rpc_call(FAILURE), 4001, 5, 2,
     {"user": ANN, "src_endpoint": {"ip": "10.0.0.9", "port": 49801}, "dst_endpoint": HERE,
      "action_id": 2}),
    (rpc_call(SUCCESS), 4001, 6, 1, {"src_endpoint": {"ip": "10.0.0.9", "port": 49801}}),
    (operational(8001, NTLM, {"TargetName": "cifs/fs01", "UserName": "ann", "DomainName": "CORP",
                              "CallerPID": "4", "ProcessName": "System", "ClientLUID": "0x3e7",
                              "ClientUserName": "WS01$", "ClientDomainName": "WORKGROUP"}),
     3002, 1, None, {"user": ANN, "src_endpoint": HERE, "dst_endpoint": {"hostname": "cifs/fs01"}}),
    (operational(4001, NTLM, {"TargetName": "cifs/fs01", "UserName": "ann", "DomainName": "CORP"}),
     3002, 1, 2, {"user": ANN, "src_endpoint": HERE}),
    (operational(8004, NETLOGON, {"SChannelName": "FS01", "UserName": "ann", "DomainName": "CORP",
                                  "WorkstationName": "PC7", "SChannelType": "2"}), 3002, 1, None,
     {"user": ANN, "src_endpoint": {"hostname": "PC7"}, "dst_endpoint": {"hostname": "FS01"}}),
    (operational(4004, NETLOGON, {"SChannelName": "FS01", "UserName": "ann", "DomainName": "CORP",
                                  "WorkstationName": "PC7"}), 3002, 1, 2, {"user": ANN}),
    (operational(4020, NTLM, NTLM_CLIENT), 3002, 1, None,
     {"user": ANN, "src_endpoint": HERE, "service": {"name": "cifs/fs01"},
      "dst_endpoint": {"ip": "10.0.0.5", "hostname": "fs01"}}),
    (operational(4021, NTLM, NTLM_CLIENT | {"TargetService": "Null", "TargetIP": "NULL",
                                            "NtlmVersion": "NTLMv1"}), 3002, 1, None,
     {"user": ANN, "dst_endpoint": {"hostname": "fs01"}}),
    (operational(4022, NTLM, NTLM_SERVER), 3002, 1, 1,
     {"user": ANN, "src_endpoint": {"ip": "10.0.0.9", "hostname": "WKS-9"},
      "dst_endpoint": HERE}),
    (operational(4023, NTLM, NTLM_SERVER | {"Status": "0xC000006D"}), 3002, 1, 2,
     {"user": ANN, "status_code": "0xC000006D", "src_endpoint": {"ip": "10.0.0.9",
                                                               "hostname": "WKS-9"}}),
    (operational(4025, NTLM, {"TargetName": "fs01", "UserName": "ann", "DomainName": "CORP"}),
     3002, 1, 2, {"user": ANN, "src_endpoint": HERE}),
    (operational(4033, NETLOGON, {"AccountName": "ann", "AccountDomain": "CORP",
                                  "ClientName": "PC7", "ServerName": "FS01", "Status": "0x0"}),
     3002, 1, 1, {"user": ANN, "src_endpoint": {"hostname": "PC7"},
                  "dst_endpoint": {"hostname": "FS01"}}),
    (operational(301, NTLM, {"AccountName": "ann", "DeviceName": "PC7", "Status": "0xC0000413"}),
     3002, 1, None, {"user": {"name": "ann"}, "src_endpoint": {"hostname": "PC7"}}),
    (Sample(5805, ("PC7", "%%5"), "NETLOGON", "System", PLAIN, 2), 3002, 1, 2,
     {"src_endpoint": {"hostname": "PC7"}, "dst_endpoint": HERE}),
    (Sample(5827, ("PC7$", "CORP", "Computer", "Windows 7"), "NETLOGON", "System", PLAIN, 2),
     3002, 1, 2, {"user": {"name": "PC7$", "domain": "CORP"}}),
    (Sample(5831, ("Trust", "OTHER", "other.example", "10.0.0.7"), "NETLOGON", "System", PLAIN, 3),
     3002, 1, 1, {"src_endpoint": {"ip": "10.0.0.7"}}),
    (Sample(20271, ("{C0}", "CORP\\ann", "203.0.113.9", "Wrong password."), "RemoteAccess",
            "System", PLAIN, 3), 3002, 1, 2,
     {"user": ANN, "src_endpoint": {"ip": "203.0.113.9"}, "status_detail": "Wrong password."}),
    (Sample(20250, ("{C0}", "CORP\\ann", "VPN2-127"), "RemoteAccess", "System", PLAIN, 4), 3002,
     1, 1, {"user": ANN}),
    (operational(4, "OpenSSH", {"process": "sshd", "payload": "Failed password for invalid user "
                                "bob from 10.0.0.7 port 50123 ssh2"}), 3002, 1, 2,
     {"user": {"name": "bob"}, "src_endpoint": {"ip": "10.0.0.7", "port": 50123},
      "dst_endpoint": HERE, "service": {"name": "sshd"}}),
    (operational(4, "OpenSSH", {"process": "sshd", "payload": "Failed password for x from 6.6.6.6 "
                                "port 1 ssh2 from 10.0.0.7 port 2 ssh2"}), 3002, 1, 2,
     {"src_endpoint": {"ip": "10.0.0.7", "port": 2}}),
    (operational(4, "OpenSSH", {"process": "sshd", "payload": "Server listening on :: port 22."}),
     0, 0, None, {}),
    (operational(4, "OpenSSH", {"process": "scp", "payload": "Accepted password for ann from "
                                "10.0.0.7 port 5 ssh2"}), 0, 0, None, {}),
    (operational(307, "Microsoft-Windows-PrintService",
                 {"Param1": "45", "Param2": "plan.pdf", "Param3": "CORP\\ann",
                  "Param4": "\\\\PC7", "Param5": "P1", "Param8": "3"}), 1001, 99, None,
     {"src_endpoint": {"hostname": "PC7"}}),
    (operational(8001, "Microsoft-Windows-WLAN-AutoConfig", {"SSID": "guests"}), 4001, 1, 1,
     {"src_endpoint": HERE}),
    (operational(12, "Microsoft-Windows-Security-Mitigations",
                 {"ProcessPath": "\\Device\\x\\MpCmdRun.exe", "ProcessCommandLine": "MpCmdRun",
                  "ImageName": "\\x\\mpclient.dll"}, "KernelMode"), 1005, 1, 2, {}),
]  # fmt: skip


@pytest.mark.parametrize(
    ("sample", "class_uid", "activity", "status", "columns"),
    CASES,
    ids=[f"{case[0].provider.rpartition('-')[2]}-{case[0].event_id}" for case in CASES],
)
def test_an_event_has_its_class_and_its_parties(
    sample: Sample, class_uid: int, activity: int, status: int | None, columns: dict[str, Any]
) -> None:
    event = of(sample)
    assert (event["class_uid"], event["activity_id"], event["status_id"]) == (
        class_uid,
        activity,
        status,
    )
    got = {name: event[name] for name in columns}
    for name, value in columns.items():
        if isinstance(value, dict):
            got[name] = {key: part for key, part in got[name].items() if part is not None}
    assert got == columns


def test_an_audit_stays_as_it_was() -> None:
    text = audit("Failure")
    assert json.loads(of(adfs(1203, "id", text))["unmapped"])["param2"] == text


@pytest.mark.parametrize(
    "values",
    [
        {"UserAgentString": "x</UserAgentString><UserId>CORP\\admin</UserId><IpAddress>6.6.6.6"},
        {"UserAgentString": "<IpAddress>6.6.6.6</IpAddress>"},
        {"Endpoint": "/adfs/ls/?x=<UserId>CORP\\admin</UserId>"},
    ],
)
def test_what_a_client_sends_is_no_element_of_an_audit(values: dict[str, str]) -> None:
    event = of(adfs(1203, "id", audit("Failure", **values)))
    assert event["user"] == ANN
    assert event["src_endpoint"] == {"ip": "203.0.113.9"}
    # A shipper that undid the escaping leaves two of a name, of which none is believed.
    undone = audit("Failure").replace("Mozilla", "<UserId>CORP\\admin</UserId>")
    assert (of(adfs(1203, "id", undone))["user"] or {}).get("name") is None


@pytest.mark.parametrize(
    ("listed", "seen", "expected"),
    [
        ("6.6.6.6,203.0.113.9", "203.0.113.9", {"ip": "203.0.113.9"}),
        ("6.6.6.6,203.0.113.9", "N/A", None),
        ("2001:db8::9", "N/A", {"ip": "2001:db8::9"}),
        ("N/A", "203.0.113.9", {"ip": "203.0.113.9"}),
    ],
)
def test_of_forwarded_addresses_only_the_one_that_was_seen_counts(
    listed: str, seen: str, expected: dict[str, str] | None
) -> None:
    event = of(adfs(1203, "id", audit("Failure", IpAddress=listed, NetworkIpAddress=seen)))
    assert event.get("src_endpoint") == expected


@pytest.mark.parametrize(
    "said",
    [
        "bob@corp.example-x y-The user name or password is incorrect",
        "bob@corp.example\r\n-The user name or password is incorrect",
        "The user name or password is incorrect",
    ],
)
def test_a_name_that_imitates_a_reason_is_no_user(said: str) -> None:
    event = of(adfs(411, "id", "UserNameToken", "203.0.113.9", said))
    assert (event["user"] or {}).get("name") is None


def test_an_audit_of_ntlm_tells_program_and_version() -> None:
    event = of(operational(4020, NTLM, NTLM_CLIENT))
    program = {"path": "C:\\Windows\\explorer.exe", "pid": 0x1234}
    assert {k: v for k, v in event["actor"]["process"].items() if v is not None} == program
    left = json.loads(event["unmapped"])
    assert (left["NtlmVersion"], left["NtlmUsageId"]) == ("NTLMv2", "1")


@pytest.mark.parametrize(
    "values",
    [
        {"Username": "x ClientIP: 6.6.6.6", "RemoteClientMachine": "6.6.6.6"},
        {"Username": 'x","ClientIP":"6.6.6.6'},
        {"TargetMachine": "6.6.6.6", "TargetIP": "6.6.6.6"},
        {"ProcessName": "Status: 0x0 ClientIP: 6.6.6.6"},
    ],
)
def test_names_in_an_audit_of_ntlm_are_no_address(values: dict[str, str]) -> None:
    event = of(operational(4022, NTLM, NTLM_SERVER | {"Status": "0xC000006D"} | values))
    assert (event["src_ip"], event["status_id"]) == ("10.0.0.9", 2)
    assert event["dst_endpoint"]["hostname"] == "WS01.corp.example"


def capi2(event_id: int, level: int, inner: str) -> bytes:
    return xml(
        Sample(event_id, {"x": "y"}, CAPI2, f"{CAPI2}/Operational", PLAIN, level, user_data="Call")
    ).replace(b"<x>y</x>", inner.encode())


FETCHED = (
    '<URL scheme="http">http://crl3.example/Root.crl</URL><Object type="CONTEXT_OID_CRL"/>'
    '<Flags value="202005" CRYPT_WIRE_ONLY_RETRIEVAL="true"/>'
    '<EventAuxInfo ProcessName="svchost.exe"/><Result value="{}">{}</Result>'
)


@pytest.mark.parametrize(
    ("event_id", "level", "inner", "operation", "status", "code"),
    [
        (53, 2, FETCHED.format("80092004", "Cannot find object."), "CryptRetrieveObjectByUrlWire",
         2, "0x80092004"),
        (53, 4, FETCHED.format("0", ""), "CryptRetrieveObjectByUrlWire", 1, None),
        (11, 2, '<EventAuxInfo ProcessName="svchost.exe"/>', "CertGetCertificateChain", 2, None),
        (81, 4, '<EventAuxInfo ProcessName="svchost.exe"/><Result value="zz"/>', "WinVerifyTrust",
         1, None),
        (80, 4, '<EventAuxInfo ProcessName="svchost.exe"/>', "WinVerifyTrust", None, None),
    ],
)  # fmt: skip
def test_a_check_of_certificates_is_a_call_with_a_result(
    event_id: int, level: int, inner: str, operation: str, status: int | None, code: str | None
) -> None:
    event = good("windows_xml", capi2(event_id, level, inner))
    assert faults(event) == []
    assert misfits(event) == []
    assert (event["class_uid"], event["api"]["operation"]) == (6003, operation)
    assert event["actor"]["process"]["name"] == "svchost.exe"
    assert (event["status_id"], event.get("status_code")) == (status, code)


def test_attributes_in_json_are_read_as_in_xml() -> None:
    parts = {
        "Flags": {"#attributes": {"value": "202005"}},
        "EventAuxInfo": {"#attributes": {"ProcessName": "svchost.exe"}},
        "Result": {"#attributes": {"value": "800B0109"}, "#text": "The root is not trusted."},
    }
    document = json.loads(evtx_dump(Sample(30, {}, CAPI2, f"{CAPI2}/Operational", PLAIN, 2)))
    document["Event"]["UserData"] = {"CertVerifyCertificateChainPolicy": parts}
    event = good("windows_evtx_json", json.dumps(document).encode())
    assert (event["status_id"], event["status_code"]) == (2, "0x800B0109")
    assert event["status_detail"] == "The root is not trusted."
    assert event["actor"]["process"]["name"] == "svchost.exe"
    left = json.loads(event["unmapped"])
    assert (left["Flags.value"], left["Result.value"]) == ("202005", "800B0109")
