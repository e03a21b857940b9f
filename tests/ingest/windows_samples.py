"""Events of Windows with data as it really looks, for the tests."""

from __future__ import annotations

from tests.ingest.windows_forms import FAILURE, PLAIN, Sample, sysmon

ANN = {
    "SubjectUserSid": "S-1-5-21-1-2-3-1104",
    "SubjectUserName": "ann",
    "SubjectDomainName": "CORP",
    "SubjectLogonId": "0x3e7a1",
}
BOB = {"TargetUserName": "bob", "TargetDomainName": "CORP", "TargetSid": "S-1-5-21-1-2-3-1105"}
RUN = {"ProcessId": "0x1c48", "ProcessName": "C:\\Windows\\System32\\svchost.exe"}
NOBODY = {
    "SubjectUserSid": "S-1-0-0",
    "SubjectUserName": "-",
    "SubjectDomainName": "-",
    "SubjectLogonId": "0x0",
}
LOGON = {
    **NOBODY,
    "TargetUserSid": "S-1-5-21-1-2-3-1105",
    "TargetUserName": "bob",
    "TargetDomainName": "CORP",
    "TargetLogonId": "0x8f1c2",
    "LogonType": "3",
    "LogonProcessName": "NtLmSsp ",
    "AuthenticationPackageName": "NTLM",
    "WorkstationName": "KALI",
    "LogonGuid": "{00000000-0000-0000-0000-000000000000}",
    "TransmittedServices": "-",
    "LmPackageName": "NTLM V2",
    "KeyLength": "128",
    "ProcessId": "0x0",
    "ProcessName": "-",
    "IpAddress": "::ffff:10.9.8.7",
    "IpPort": "49152",
    "ElevatedToken": "%%1842",
}
FAILED = {
    **NOBODY,
    "TargetUserSid": "S-1-0-0",
    "TargetUserName": "administrator",
    "TargetDomainName": "",
    "Status": "0xc000006d",
    "FailureReason": "%%2313",
    "SubStatus": "0xc000006a",
    "LogonType": "10",
    "LogonProcessName": "User32 ",
    "AuthenticationPackageName": "Negotiate",
    "WorkstationName": "WS01",
    "ProcessId": "0x2c4",
    "ProcessName": "C:\\Windows\\System32\\svchost.exe",
    "IpAddress": "203.0.113.9",
    "IpPort": "0",
}
MEMBER = {
    "MemberName": "CN=Bob,OU=Staff,DC=corp,DC=example",
    "MemberSid": "S-1-5-21-1-2-3-1105",
    "TargetUserName": "Domain Admins",
    "TargetDomainName": "CORP",
    "TargetSid": "S-1-5-21-1-2-3-512",
    **ANN,
    "PrivilegeList": "-",
}
TASK_XML = (
    '<?xml version="1.0" encoding="UTF-16"?>\n<Task version="1.2"><RegistrationInfo>'
    "<Description>Looks &amp; feels</Description></RegistrationInfo><Actions><Exec>"
    "<Command>cmd.exe</Command><Arguments>/c &quot;calc &gt; x&quot;</Arguments></Exec></Actions>"
    "</Task>"
)
PACKET = {
    "ProcessID": "4584",
    "Application": "\\device\\harddiskvolume2\\windows\\system32\\svchost.exe",
    "Direction": "%%14593",
    "SourceAddress": "192.168.2.5",
    "SourcePort": "61628",
    "DestAddress": "93.184.216.34",
    "DestPort": "443",
    "Protocol": "6",
    "FilterRTID": "70676",
    "LayerName": "%%14611",
    "LayerRTID": "48",
    "RemoteUserID": "S-1-0-0",
}
OBJECT = {
    **ANN,
    "ObjectServer": "Security",
    "ObjectType": "File",
    "ObjectName": "C:\\secret\\plan.docx",
    "HandleId": "0xa0",
    "AccessList": "%%4416\n\t\t\t\t%%4417\n\t\t\t\t",
    "AccessMask": "0x3",
    **RUN,
}
IMAGE = {
    "ProcessGuid": "{5770385f-0001-0002-0003-000000000700}",
    "ProcessId": "9260",
    "Image": "C:\\Windows\\System32\\cmd.exe",
}
BY_ANN = {**IMAGE, "User": "CORP\\ann"}
HASHES = {
    "Hashes": "SHA1=A330EDE32DFA03AE6808EE7FB6916D8DEB8F5DDE,MD5=A094E2B38D3DD864B07580D243CB6E43,"
    "SHA256=C441E19D20961D4E990E117A300ED318BEDBF2F8BA0FF07BEE7832AC502CDDF2,"
    "IMPHASH=CE4BD072766253F6A267D0284CA82002"
}
VERSION = {
    "FileVersion": "10.0.18362.1",
    "Description": "Windows Command Processor",
    "Product": "Microsoft Windows",
    "Company": "Microsoft Corporation",
    "OriginalFileName": "Cmd.Exe",
}
CREATED = {
    **IMAGE,
    **VERSION,
    "CommandLine": 'cmd.exe /c "whoami /all"',
    "CurrentDirectory": "C:\\Users\\ann\\",
    "User": "CORP\\ann",
    "LogonGuid": "{5770385f-0001-0002-0003-000000000009}",
    "LogonId": "0x3e7a1",
    "TerminalSessionId": "2",
    "IntegrityLevel": "High",
    **HASHES,
    "ParentProcessGuid": "{5770385f-0001-0002-0003-000000000600}",
    "ParentProcessId": "10044",
    "ParentImage": "C:\\Windows\\explorer.exe",
    "ParentCommandLine": "C:\\Windows\\explorer.exe",
    "ParentUser": "CORP\\ann",
}
BETWEEN = {
    "SourceProcessGUID": "{5770385f-0001-0002-0003-000000000001}",
    "SourceProcessId": "3224",
    "SourceThreadId": "1060",
    "SourceImage": "C:\\Tools\\mimikatz.exe",
    "TargetProcessGUID": "{5770385f-0001-0002-0003-000000000002}",
    "TargetProcessId": "700",
    "TargetImage": "C:\\Windows\\system32\\lsass.exe",
    "GrantedAccess": "0x1010",
    "CallTrace": "C:\\windows\\SYSTEM32\\ntdll.dll+9c584|UNKNOWN(000002)",
    "SourceUser": "CORP\\ann",
    "TargetUser": "NT AUTHORITY\\SYSTEM",
}
CONTEXT = (
    "        Severity = Informational\r\n        Host Name = ConsoleHost\r\n"
    "        Host ID = 3a01e863-e5f7-4fe6-a55d-36e4078d77f9\r\n"
    "        Host Application = powershell.exe -nop\r\n        Engine Version = 5.1\r\n"
    "        Command Name = Invoke-Expression\r\n        Script Name = C:\\x.ps1\r\n"
    "        User = CORP\\ann\r\n"
)
CLASSIC = (
    "\tNewEngineState=Available\r\n\tPreviousEngineState=None\r\n\r\n\tSequenceNumber=13\r\n\r\n"
    "\tHostName=ConsoleHost\r\n\tHostVersion=5.1\r\n"
    "\tHostId=3a01e863-e5f7-4fe6-a55d-36e4078d77f9\r\n"
    "\tHostApplication=powershell -enc AAAA\r\n\tEngineVersion=2.0\r\n\tCommandLine="
)
PIPELINE = (
    "\tDetailSequence=1\r\n\tUserId=CORP\\ann\r\n\tHostName=ConsoleHost\r\n"
    "\tHostId=3a01e863-e5f7-4fe6-a55d-36e4078d77f9\r\n\tHostApplication=powershell.exe\r\n"
    "\tScriptName=\r\n\tCommandLine=whoami"
)
MALWARE = {
    "Product Name": "Microsoft Defender Antivirus",
    "Detection ID": "{A5C2D9E1-0000-4000-8000-000000000001}",
    "Threat ID": "2147729891",
    "Threat Name": "HackTool:Win32/Mimikatz.D",
    "Severity ID": "4",
    "Severity Name": "High",
    "Category ID": "34",
    "Category Name": "Tool",
    "FWLink": "https://go.microsoft.com/fwlink/?linkid=37020",
    "Path": "containerfile:_C:\\x\\a.zip; file:_C:\\x\\a.zip->mimikatz.exe",
    "Detection User": "CORP\\ann",
    "Process Name": "C:\\Windows\\explorer.exe",
    "Action Name": "Quarantine",
    "Error Code": "0x00000000",
}


def other(
    event_id: int,
    provider: str,
    data: dict[str, str] | tuple[str, ...],
    channel: str = "",
    level: int = 4,
    user_data: str = "",
    sid: str = "",
) -> Sample:
    """An event of another provider than Security and Sysmon."""
    return Sample(
        event_id,
        data,
        provider,
        channel or f"{provider}/Operational",
        PLAIN,
        level,
        user_data=user_data,
        sid=sid,
    )


SCM = "Service Control Manager"
TASKS = "Microsoft-Windows-TaskScheduler"
POWERSHELL = "Microsoft-Windows-PowerShell"
DEFENDER = "Microsoft-Windows-Windows Defender"
TERMINAL = "Microsoft-Windows-TerminalServices-LocalSessionManager"
RDP = "Microsoft-Windows-TerminalServices-RemoteConnectionManager"
WMI = "Microsoft-Windows-WMI-Activity"
FIREWALL = "Microsoft-Windows-Windows Firewall With Advanced Security"
TYPES = {"TicketOptions": "0x40810000", "TicketEncryptionType": "0x17"}

SAMPLES: dict[str, Sample] = {
    "4624": Sample(4624, LOGON),
    "4625": Sample(4625, FAILED, keywords=FAILURE),
    "4627": Sample(
        4627,
        {
            **NOBODY,
            "TargetUserSid": "S-1-5-21-1-2-3-1105",
            "TargetUserName": "bob",
            "TargetDomainName": "CORP",
            "TargetLogonId": "0x8f1c2",
            "LogonType": "3",
            "EventIdx": "1",
            "EventCountTotal": "1",
            "GroupMembership": "\n\t\t%{S-1-5-32-544}\n\t\t%{S-1-1-0}",
        },
    ),
    "4634": Sample(
        4634,
        {
            "TargetUserSid": "S-1-5-18",
            "TargetUserName": "DC$",
            "TargetDomainName": "CORP",
            "TargetLogonId": "0x7b90596",
            "LogonType": "3",
        },
    ),
    "4648": Sample(
        4648,
        {
            **ANN,
            "TargetUserName": "bob",
            "TargetDomainName": "CORP",
            "TargetServerName": "FILES01",
            "TargetInfo": "cifs/FILES01",
            **RUN,
            "IpAddress": "-",
            "IpPort": "-",
        },
    ),
    "4656": Sample(4656, OBJECT),
    "4656 process": Sample(
        4656, {**OBJECT, "ObjectType": "Process", "ObjectName": "\\Device\\x\\lsass.exe"}
    ),
    "4657": Sample(
        4657,
        {
            **ANN,
            "ObjectName": "\\REGISTRY\\MACHINE\\SOFTWARE\\Run",
            "ObjectValueName": "evil",
            "HandleId": "0x54",
            "OperationType": "%%1905",
            "OldValueType": "%%1873",
            "OldValue": "a",
            "NewValueType": "%%1873",
            "NewValue": "b",
            **RUN,
        },
    ),
    "4658": Sample(4658, {**ANN, "ObjectServer": "Security", "HandleId": "0x3d18", **RUN}),
    "4660": Sample(4660, {**ANN, "ObjectServer": "Security", "HandleId": "0x3d18", **RUN}),
    "4662": Sample(
        4662,
        {
            **ANN,
            "ObjectServer": "DS",
            "ObjectType": "%{19195a5b-6da0-11d0-afd3-00c04fd930c9}",
            "ObjectName": "%{3933c65d-ac7f-4c79-b5b7-ad0fb941333c}",
            "OperationType": "Object Access",
            "AccessMask": "0x100",
            "Properties": "%%7688 {1131f6aa-9c07-11d1-f79f-00c04fc2dcd2}",
        },
    ),
    "4663": Sample(4663, OBJECT),
    "4663 key": Sample(
        4663,
        {
            **OBJECT,
            "ObjectType": "Key",
            "ObjectName": "\\REGISTRY\\MACHINE\\SAM",
            "AccessList": "%%4432",
        },
    ),
    "4670": Sample(4670, {**OBJECT, "OldSd": "D:(A)", "NewSd": "D:(B)"}),
    "4672": Sample(4672, {**ANN, "PrivilegeList": "SeTcbPrivilege\r\n\t\t\tSeDebugPrivilege"}),
    "4673": Sample(
        4673,
        {
            **ANN,
            "ObjectServer": "Security",
            "Service": "-",
            "PrivilegeList": "SeTcbPrivilege",
            **RUN,
        },
        keywords=FAILURE,
    ),
    "4688": Sample(
        4688,
        {
            **ANN,
            "NewProcessId": "0x242c",
            "NewProcessName": "C:\\Windows\\System32\\bitsadmin.exe",
            "TokenElevationType": "%%1936",
            "ProcessId": "0x273c",
            "CommandLine": "bitsadmin /transfer x",
            "TargetUserSid": "S-1-0-0",
            "TargetUserName": "-",
            "TargetDomainName": "-",
            "TargetLogonId": "0x0",
            "ParentProcessName": "C:\\Windows\\System32\\cmd.exe",
            "MandatoryLabel": "S-1-16-12288",
        },
    ),
    "4689": Sample(4689, {**ANN, "Status": "0x0", **RUN}),
    "4690": Sample(
        4690,
        {
            **ANN,
            "SourceHandleId": "0xa0",
            "SourceProcessId": "0x242c",
            "TargetHandleId": "0x3d18",
            "TargetProcessId": "0x4",
        },
    ),
    "4697": Sample(
        4697,
        {
            **ANN,
            "ServiceName": "PSEXESVC",
            "ServiceFileName": "%SystemRoot%\\PSEXESVC.exe",
            "ServiceType": "0x10",
            "ServiceStartType": "3",
            "ServiceAccount": "LocalSystem",
        },
    ),
    "4698": Sample(4698, {**ANN, "TaskName": "\\Evil", "TaskContent": TASK_XML}),
    "4702": Sample(4702, {**ANN, "TaskName": "\\Evil", "TaskContentNew": TASK_XML}),
    "4703": Sample(
        4703,
        {
            **ANN,
            **BOB,
            "EnabledPrivilegeList": "SeDebugPrivilege",
            "DisabledPrivilegeList": "-",
            **RUN,
        },
    ),
    "4704": Sample(4704, {**ANN, "TargetSid": "S-1-5-9", "PrivilegeList": "SeDebugPrivilege"}),
    "4719": Sample(
        4719,
        {
            **ANN,
            "CategoryId": "%%8274",
            "SubcategoryId": "%%12804",
            "SubcategoryGuid": "{0cce9227-69ae-11d9-bed3-505054503030}",
            "AuditPolicyChanges": "%%8448, %%8450",
        },
    ),
    "4720": Sample(
        4720,
        {
            **BOB,
            **ANN,
            "PrivilegeList": "-",
            "SamAccountName": "bob",
            "DisplayName": "Bob B.",
            "UserPrincipalName": "bob@corp.example",
        },
    ),
    "4724": Sample(4724, {**BOB, **ANN}, keywords=FAILURE),
    "4728": Sample(4728, MEMBER),
    "4732": Sample(4732, {**MEMBER, "MemberName": "-"}),
    "4738": Sample(4738, {"Dummy": "-", **BOB, **ANN, "UserAccountControl": "%%2089"}),
    "4740": Sample(4740, {**BOB, "TargetDomainName": "WS77", **ANN}),
    "4768": Sample(
        4768,
        {
            **BOB,
            "ServiceName": "krbtgt",
            "ServiceSid": "S-1-5-21-1-2-3-502",
            **TYPES,
            "Status": "0x0",
            "PreAuthType": "2",
            "IpAddress": "::ffff:172.18.39.5",
            "IpPort": "57965",
        },
    ),
    "4769": Sample(
        4769,
        {
            "TargetUserName": "bob@CORP.EXAMPLE",
            "TargetDomainName": "CORP.EXAMPLE",
            "ServiceName": "sql01$",
            "ServiceSid": "S-1-5-21-1-2-3-1113",
            **TYPES,
            "IpAddress": "::1",
            "IpPort": "0",
            "Status": "0x0",
            "LogonGuid": "{e744bf56-8ee3-0b10-7414-b5f6bd74fd38}",
            "TransmittedServices": "-",
        },
    ),
    "4771": Sample(
        4771,
        {
            "TargetUserName": "bob",
            "TargetSid": "S-1-5-21-1-2-3-1105",
            "ServiceName": "krbtgt/CORP",
            "TicketOptions": "0x40810010",
            "Status": "0x18",
            "PreAuthType": "2",
            "IpAddress": "::ffff:10.1.2.3",
            "IpPort": "50001",
        },
        keywords=FAILURE,
    ),
    "4776": Sample(
        4776,
        {
            "PackageName": "MICROSOFT_AUTHENTICATION_PACKAGE_V1_0",
            "TargetUserName": "bob",
            "Workstation": "KALI",
            "Status": "0xc0000064",
        },
        keywords=FAILURE,
    ),
    "4778": Sample(
        4778,
        {
            "AccountName": "bob",
            "AccountDomain": "CORP",
            "LogonID": "0x8f1c2",
            "SessionName": "RDP-Tcp#0",
            "ClientName": "LAPTOP",
            "ClientAddress": "10.9.8.7",
        },
    ),
    "4798": Sample(
        4798,
        {
            "TargetUserName": "bob",
            "TargetDomainName": "WS01",
            "TargetSid": "S-1-5-21-1-2-3-500",
            **ANN,
            "CallerProcessId": "0x1258",
            "CallerProcessName": "C:\\Windows\\explorer.exe",
        },
    ),
    "4799": Sample(
        4799,
        {
            "TargetUserName": "Administrators",
            "TargetDomainName": "Builtin",
            "TargetSid": "S-1-5-32-544",
            **ANN,
            "CallerProcessId": "0x1258",
            "CallerProcessName": "C:\\Windows\\explorer.exe",
        },
    ),
    "4800": Sample(
        4800,
        {
            "TargetUserSid": "S-1-5-21-1-2-3-1105",
            "TargetUserName": "bob",
            "TargetDomainName": "CORP",
            "TargetLogonId": "0x1",
            "SessionId": "1",
        },
    ),
    "4825": Sample(
        4825,
        {
            "AccountName": "bob",
            "AccountDomain": "CORP",
            "LogonID": "0x1",
            "ClientAddress": "10.9.8.7",
        },
        keywords=FAILURE,
    ),
    "4887": Sample(
        4887,
        {
            "RequestId": "15",
            "Requester": "CORP\\ann",
            "Attributes": "CertificateTemplate:User",
            "Disposition": "3",
            "Subject": "CN=ann",
        },
    ),
    "4907": Sample(4907, {**OBJECT, "OldSd": "", "NewSd": "S:ARAI"}),
    "4946": Sample(4946, {"ProfileChanged": "All", "RuleId": "{1}", "RuleName": "allow evil"}),
    "4985": Sample(4985, {**ANN, "TransactionId": "{1}", "NewState": "52", **RUN}),
    "5136": Sample(
        5136,
        {
            **ANN,
            "OpCorrelationID": "{2}",
            "DSName": "corp.example",
            "ObjectDN": "CN=bob,DC=corp,DC=example",
            "ObjectGUID": "{3}",
            "ObjectClass": "user",
            "AttributeLDAPDisplayName": "servicePrincipalName",
            "AttributeValue": "http/x",
            "OperationType": "%%14674",
        },
    ),
    "5140": Sample(
        5140,
        {
            **ANN,
            "ObjectType": "File",
            "IpAddress": "172.18.38.6",
            "IpPort": "54639",
            "ShareName": "\\\\*\\IPC$",
            "ShareLocalPath": "",
            "AccessMask": "0x1",
            "AccessList": "%%4416",
        },
    ),
    "5145": Sample(
        5145,
        {
            **ANN,
            "ObjectType": "File",
            "IpAddress": "fe80::4d30:7d6f:8db9:ce3c%4",
            "IpPort": "60887",
            "ShareName": "\\\\*\\C$",
            "ShareLocalPath": "\\??\\C:\\",
            "RelativeTargetName": "Windows\\Temp\\a.exe",
            "AccessMask": "0x2",
            "AccessList": "%%4417",
        },
    ),
    "5152": Sample(5152, {**PACKET, "Direction": "%%14592", "Protocol": "17"}, keywords=FAILURE),
    "5154": Sample(
        5154,
        {
            "ProcessId": "4",
            "Application": "System",
            "SourceAddress": "::",
            "SourcePort": "8000",
            "Protocol": "6",
        },
    ),
    "5156": Sample(5156, PACKET),
    "5157": Sample(5157, PACKET, keywords=FAILURE),
    "5379": Sample(
        5379, {**ANN, "TargetName": "x", "Type": "0", "ReturnCode": "0", "ClientProcessId": "12036"}
    ),
    "6273": Sample(
        6273,
        {
            "SubjectUserSid": "S-1-5-21-1-2-3-1105",
            "SubjectUserName": "bob",
            "SubjectDomainName": "CORP",
            "FullyQualifiedSubjectUserName": "CORP\\bob",
            "CallingStationID": "02-42-AC-77-0B-19",
            "CalledStationID": "AA-BB:WIFI",
            "NASIPv4Address": "10.0.0.2",
            "NASIdentifier": "ap1",
            "NASPort": "1",
            "ClientName": "wlc",
            "ClientIPAddress": "10.0.0.3",
            "AuthenticationType": "EAP",
            "EAPType": "-",
            "ReasonCode": "16",
            "Reason": "Authentication failed.",
        },
        keywords=FAILURE,
    ),
    "6416": Sample(
        6416,
        {
            **ANN,
            "DeviceId": "USBSTOR\\Disk&Ven_X",
            "DeviceDescription": "X USB Device",
            "ClassId": "{4}",
            "ClassName": "DiskDrive",
            "VendorIds": "USBSTOR",
        },
    ),
    "4610": Sample(4610, {"AuthenticationPackageName": "C:\\Windows\\system32\\msv1_0.DLL : NTLM"}),
    "4616": Sample(4616, {**ANN, "PreviousTime": "2024-03-05T09:00:00Z", "NewTime": "x", **RUN}),
    "1102": Sample(
        1102,
        ANN,
        "Microsoft-Windows-Eventlog",
        keywords="0x4020000000000000",
        level=4,
        user_data="LogFileCleared",
    ),
    "104": other(
        104,
        "Microsoft-Windows-Eventlog",
        {
            "SubjectUserName": "ann",
            "SubjectDomainName": "CORP",
            "BackupPath": "",
        },
        "System",
        user_data="LogFileCleared",
    ),
    "1100": Sample(1100, {}, "Microsoft-Windows-Eventlog", level=4, user_data="ServiceShutdown"),
    "unknown": Sample(4999, {**ANN, "Odd": "x"}),
    "sysmon 1": sysmon(1, CREATED),
    "sysmon 2": sysmon(
        2,
        {
            **IMAGE,
            "TargetFilename": "C:\\a.txt",
            "CreationUtcTime": "2001-01-01 00:00:00.000",
            "PreviousCreationUtcTime": "2024-03-05 10:20:30.100",
        },
    ),
    "sysmon 3": sysmon(
        3,
        {
            **BY_ANN,
            "Protocol": "tcp",
            "Initiated": "true",
            "SourceIsIpv6": "false",
            "SourceIp": "10.0.0.5",
            "SourceHostname": "ws01",
            "SourcePort": "50111",
            "SourcePortName": "-",
            "DestinationIsIpv6": "false",
            "DestinationIp": "93.184.216.34",
            "DestinationHostname": "-",
            "DestinationPort": "443",
            "DestinationPortName": "https",
        },
    ),
    "sysmon 4": sysmon(4, {"State": "Stopped", "Version": "15.0", "SchemaVersion": "4.90"}),
    "sysmon 5": sysmon(5, BY_ANN),
    "sysmon 6": sysmon(
        6,
        {
            "ImageLoaded": "C:\\Windows\\System32\\drivers\\evil.sys",
            **HASHES,
            "Signed": "true",
            "Signature": "Evil Ltd",
            "SignatureStatus": "Expired",
        },
    ),
    "sysmon 7": sysmon(
        7,
        {
            **BY_ANN,
            "ImageLoaded": "C:\\x\\a.dll",
            **VERSION,
            **HASHES,
            "Signed": "false",
            "Signature": "-",
            "SignatureStatus": "Unavailable",
        },
    ),
    "sysmon 8": sysmon(
        8,
        {
            key: value
            for key, value in BETWEEN.items()
            if key not in ("GrantedAccess", "CallTrace", "SourceThreadId")
        }
        | {"NewThreadId": "10204", "StartAddress": "0x7FFB", "StartModule": "C:\\k.DLL"},
    ),
    "sysmon 9": sysmon(9, {**IMAGE, "Device": "\\Device\\HarddiskVolume1"}),
    "sysmon 10": sysmon(10, BETWEEN),
    "sysmon 11": sysmon(
        11,
        {**BY_ANN, "TargetFilename": "C:\\a.exe", "CreationUtcTime": "2024-03-05 10:20:30.100"},
    ),
    "sysmon 12": sysmon(
        12, {"EventType": "CreateKey", **IMAGE, "TargetObject": "HKLM\\SOFTWARE\\Evil"}
    ),
    "sysmon 12 value": sysmon(
        12, {"EventType": "DeleteValue", **IMAGE, "TargetObject": "HKLM\\SOFTWARE\\Run\\x"}
    ),
    "sysmon 13": sysmon(
        13,
        {
            "EventType": "SetValue",
            **IMAGE,
            "TargetObject": "HKLM\\SOFTWARE\\Run\\x",
            "Details": "DWORD (0x00000089)",
        },
    ),
    "sysmon 14": sysmon(
        14,
        {
            "EventType": "RenameKey",
            **IMAGE,
            "TargetObject": "HKLM\\A",
            "NewName": "HKLM\\B",
        },
    ),
    "sysmon 15": sysmon(
        15,
        {
            **IMAGE,
            "TargetFilename": "C:\\a.exe:Zone.Identifier",
            "CreationUtcTime": "2024-03-05 10:20:30.100",
            "Hash": HASHES["Hashes"],
            "Contents": "[ZoneTransfer]",
        },
    ),
    "sysmon 16": sysmon(16, {"Configuration": "C:\\s.xml", "ConfigurationFileHash": "SHA256=AB"}),
    "sysmon 17": sysmon(17, {"EventType": "CreatePipe", **IMAGE, "PipeName": "\\msagent_01"}),
    "sysmon 18": sysmon(18, {"EventType": "ConnectPipe", **IMAGE, "PipeName": "\\lsass"}),
    "sysmon 19": sysmon(
        19,
        {
            "EventType": "WmiFilterEvent",
            "Operation": "Created",
            "User": "CORP\\ann",
            "EventNamespace": '"root\\cimv2"',
            "Name": '"evil"',
            "Query": '"SELECT *"',
        },
    ),
    "sysmon 20": sysmon(
        20,
        {
            "EventType": "WmiConsumerEvent",
            "Operation": "Created",
            "User": "CORP\\ann",
            "Name": '"evil"',
            "Type": "Command Line",
            "Destination": '"calc.exe"',
        },
    ),
    "sysmon 22": sysmon(
        22,
        {
            **BY_ANN,
            "QueryName": "www.example.com",
            "QueryStatus": "0",
            "QueryResults": "type:  5 x.example.net;::ffff:93.184.216.34;2606:2800::1;",
        },
    ),
    "sysmon 22 fails": sysmon(
        22, {**BY_ANN, "QueryName": "nx.example.com", "QueryStatus": "9003", "QueryResults": "-"}
    ),
    "sysmon 23": sysmon(
        23,
        {
            **BY_ANN,
            "TargetFilename": "C:\\a.exe",
            **HASHES,
            "IsExecutable": "true",
            "Archived": "true",
        },
    ),
    "sysmon 24": sysmon(
        24, {**IMAGE, "Session": "2", "ClientInfo": "user: CORP\\ann", **HASHES, "Archived": "true"}
    ),
    "sysmon 25": sysmon(25, {**BY_ANN, "Type": "Image is replaced"}),
    "sysmon 26": sysmon(26, {**BY_ANN, "TargetFilename": "C:\\a.exe", **HASHES}),
    "sysmon 27": sysmon(27, {**BY_ANN, "TargetFilename": "C:\\a.exe", **HASHES}),
    "sysmon 29": sysmon(29, {**BY_ANN, "TargetFilename": "C:\\a.exe", **HASHES}),
    "sysmon 255": sysmon(255, {"ID": "DriverCommunication", "Description": "Failed"}),
    "4103": other(
        4103,
        POWERSHELL,
        {"ContextInfo": CONTEXT, "UserData": "", "Payload": "CommandInvocation(x)"},
    ),
    "4104": other(
        4104,
        POWERSHELL,
        {
            "MessageNumber": "1",
            "MessageTotal": "1",
            "ScriptBlockText": "  IEX (New-Object Net.WebClient)\n",
            "ScriptBlockId": "3a01e863-e5f7-4fe6-a55d-36e4078d77f9",
            "Path": "",
        },
        level=3,
        sid="S-1-5-21-1-2-3-1104",
    ),
    "40961": other(40961, POWERSHELL, {}),
    "400": other(400, "PowerShell", ("Available", "None", CLASSIC), "Windows PowerShell"),
    "800": other(
        800,
        "PowerShell",
        ("whoami", PIPELINE, "CommandInvocation(whoami)"),
        "Windows PowerShell",
    ),
    "7045": other(
        7045,
        SCM,
        {
            "ServiceName": "PSEXESVC",
            "ImagePath": "%SystemRoot%\\PSEXESVC.exe",
            "ServiceType": "user mode service",
            "StartType": "demand start",
            "AccountName": "LocalSystem",
        },
        "System",
        sid="S-1-5-21-1-2-3-1104",
    ),
    "7036": other(7036, SCM, {"param1": "Windows Update", "param2": "stopped"}, "System"),
    "7040": other(
        7040,
        SCM,
        {
            "param1": "Background Intelligent Transfer Service",
            "param2": "demand start",
            "param3": "disabled",
            "param4": "BITS",
        },
        "System",
    ),
    "7034": other(7034, SCM, {"param1": "Fax", "param2": "1"}, "System", 2),
    "6005": other(6005, "EventLog", {}, "System"),
    "6008": other(6008, "EventLog", ("10:00:00", "05/03/2024"), "System", 2),
    "1074": other(
        1074,
        "User32",
        {
            "param1": "C:\\Windows\\System32\\RuntimeBroker.exe (WS01)",
            "param3": "Other (Unplanned)",
            "param5": "restart",
            "param7": "CORP\\ann",
        },
        "System",
    ),
    "16": other(
        16,
        "Microsoft-Windows-Kernel-General",
        {"HiveNameLength": "4", "HiveName": "\\??\\C:\\SAM", "KeysUpdated": "1"},
        "System",
    ),
    "20001": other(
        20001,
        "Microsoft-Windows-UserPnp",
        {"DriverName": "x.inf", "DeviceInstanceID": "USB\\VID_1", "InstallStatus": "0x0"},
        "System",
        user_data="InstallDeviceID",
    ),
    "1000": other(
        1000,
        "Application Error",
        (
            "a.exe",
            "1.0",
            "5e",
            "ntdll.dll",
            "10.0",
            "5f",
            "c0000005",
            "1234",
            "1c",
            "1d",
            "C:\\a.exe",
        ),
        "Application",
        2,
    ),
    "1033": other(
        1033, "MsiInstaller", ("Evil Tool", "1.2", "1033", "0", "Evil Ltd", "(NULL)"), "Application"
    ),
    "11707": other(
        11707,
        "MsiInstaller",
        ("Product: Evil Tool -- Installation completed successfully.", "(NULL)"),
        "Application",
    ),
    "18456": other(
        18456,
        "MSSQL$DB",
        ("sa", "Reason: Password did not match.", " [CLIENT: 10.9.8.7]"),
        "Application",
    ),
    "task 106": other(106, TASKS, {"TaskName": "\\Evil", "UserContext": "CORP\\ann"}),
    "task 200": other(
        200,
        TASKS,
        {
            "TaskName": "\\Evil",
            "ActionName": "C:\\evil.exe",
            "TaskInstanceId": "{1}",
            "EnginePID": "77",
        },
    ),
    "task 201": other(
        201, TASKS, {"TaskName": "\\Evil", "ActionName": "C:\\evil.exe", "ResultCode": "2147942402"}
    ),
    "session 21": other(
        21,
        TERMINAL,
        {"User": "CORP\\bob", "SessionID": "3", "Address": "10.9.8.7"},
        user_data="EventXML",
    ),
    "session 25": other(
        25,
        TERMINAL,
        {"User": "CORP\\bob", "SessionID": "3", "Address": "LOCAL"},
        user_data="EventXML",
    ),
    "rdp 1149": other(
        1149,
        RDP,
        {"Param1": "bob", "Param2": "CORP", "Param3": "10.9.8.7"},
        user_data="EventXML",
    ),
    "defender 1116": other(1116, DEFENDER, MALWARE, level=3),
    "defender 1117": other(1117, DEFENDER, MALWARE),
    "defender 5001": other(5001, DEFENDER, {"Product Name": "Microsoft Defender Antivirus"}),
    "defender 5007": other(
        5007,
        DEFENDER,
        {"Old Value": "", "New Value": "HKLM\\SOFTWARE\\x\\Exclusions\\C:\\ = 0x0"},
    ),
    "bits 3": other(
        3,
        "Microsoft-Windows-Bits-Client",
        {
            "jobTitle": "evil",
            "jobId": "{1}",
            "jobOwner": "CORP\\ann",
            "processPath": "C:\\Windows\\System32\\bitsadmin.exe",
            "processId": "4242",
        },
    ),
    "bits 59": other(
        59,
        "Microsoft-Windows-Bits-Client",
        {"name": "evil", "url": "https://evil.example/a.exe?x=1", "bytesTransferred": "0"},
    ),
    "wmi 5857": other(
        5857,
        WMI,
        {
            "ProviderName": "x",
            "Code": "0x0",
            "HostProcess": "wmiprvse.exe",
            "ProcessID": "77",
            "ProviderPath": "%systemroot%\\system32\\wbem\\x.dll",
        },
        user_data="Operation_StartedOperational",
    ),
    "wmi 5858": other(
        5858,
        WMI,
        {
            "Id": "{1}",
            "ClientMachine": "WS01",
            "User": "CORP\\ann",
            "ClientProcessId": "77",
            "Component": "Unknown",
            "Operation": "Start IWbemServices::ExecQuery - root\\cimv2 : select *",
            "ResultCode": "0x80041032",
            "PossibleCause": "Unknown",
        },
        level=2,
        user_data="Operation_ClientFailure",
    ),
    "wmi 5861": other(
        5861,
        WMI,
        {"Namespace": "root", "ESS": "evil", "CONSUMER": "x", "PossibleCause": "Permanent"},
        user_data="Operation_ESStoConsumerBinding",
    ),
    "dns 3008": other(
        3008,
        "Microsoft-Windows-DNS-Client",
        {
            "QueryName": "evil.example",
            "QueryType": "1",
            "QueryOptions": "140737488355328",
            "QueryStatus": "0",
            "QueryResults": "93.184.216.34;",
        },
    ),
    "dns 257": other(
        257,
        "Microsoft-Windows-DNSServer",
        {
            "TCP": "0",
            "InterfaceIP": "10.0.0.2",
            "Destination": "10.0.0.77",
            "AA": "0",
            "QNAME": "evil.example.",
            "QTYPE": "28",
            "XID": "1",
            "RCODE": "3",
            "Port": "50123",
        },
    ),
    "ntlm 8004": other(
        8004,
        "Microsoft-Windows-NTLM",
        {
            "SChannelName": "FILES01",
            "UserName": "bob",
            "DomainName": "CORP",
            "WorkstationName": "KALI",
            "SChannelType": "2",
        },
    ),
    "codeintegrity 3077": other(
        3077,
        "Microsoft-Windows-CodeIntegrity",
        {"FileNameLength": "3", "File Name": "\\Device\\x\\a.dll", "Process Name": "C:\\b.exe"},
        level=2,
    ),
    "applocker 8004": other(
        8004,
        "Microsoft-Windows-AppLocker",
        {
            "PolicyName": "EXE",
            "RuleId": "{fd686d83-a829-4351-8ff4-27c7de5755d2}",
            "RuleName": "(Default Rule)",
            "TargetUser": "S-1-5-21-1-2-3-1105",
            "TargetProcessId": "77",
            "FilePath": "%OSDRIVE%\\X\\A.EXE",
            "FileHash": "C441E19D20961D4E990E117A300ED318BEDBF2F8BA0FF07BEE7832AC502CDDF2",
            "Fqbn": "-",
            "TargetLogonId": "0x1",
        },
        "Microsoft-Windows-AppLocker/EXE and DLL",
        level=2,
        user_data="RuleAndFileData",
    ),
    "applocker 8007": other(
        8007,
        "Microsoft-Windows-AppLocker",
        {"PolicyName": "SCRIPT", "FilePath": "%OSDRIVE%\\X\\A.PS1", "TargetProcessId": "77"},
        "Microsoft-Windows-AppLocker/MSI and Script",
        user_data="RuleAndFileData",
    ),
    "firewall 2004": other(
        2004,
        FIREWALL,
        {
            "RuleId": "{1}",
            "RuleName": "evil",
            "ApplicationPath": "C:\\evil.exe",
            "ModifyingUser": "S-1-5-21-1-2-3-1104",
            "ModifyingApplication": "C:\\Windows\\System32\\netsh.exe",
            "Direction": "1",
        },
    ),
    "smb 551": other(
        551,
        "Microsoft-Windows-SMBServer",
        {"ClientName": "\\\\10.9.8.7", "UserName": "bob", "Status": "0xc000006d"},
        "Microsoft-Windows-SMBServer/Security",
        2,
        user_data="EventData",
    ),
    "other provider": other(
        42, "Contoso-App", ("one", "two"), "Application", 3, sid="S-1-5-21-1-2-3-1104"
    ),
}
