"""Events of the Security log with data as it really looks: logons, accounts, objects."""

from __future__ import annotations

from tests.ingest.windows_forms import FAILURE, Sample

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
TYPES = {"TicketOptions": "0x40810000", "TicketEncryptionType": "0x17"}


LOGON_SAMPLES: dict[str, Sample] = {
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
}
