"""Events of Sysmon with data as it really looks."""

from __future__ import annotations

from tests.ingest.windows_forms import Sample, sysmon

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

SYSMON_SAMPLES: dict[str, Sample] = {
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
}
