"""Events of Windows with data as it really looks, for the tests."""

from __future__ import annotations

from tests.ingest.windows_forms import PLAIN, Sample
from tests.ingest.windows_logon_samples import LOGON_SAMPLES
from tests.ingest.windows_security_samples import SECURITY_SAMPLES
from tests.ingest.windows_sysmon_samples import SYSMON_SAMPLES

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


def rpc_call(keywords: str, opnum: str = "3") -> Sample:
    """A call that RPC Firewall told of: the values in the order of its message."""
    values = ("NdrServerCall2", "744", "C:\\Windows\\System32\\lsass.exe", "ncacn_ip_tcp", "49667")
    more = ("10.0.0.9", "e3514235-4b06-11d1-ab04-00c04fc2dcd2", opnum, "CORP\\ann", "PKT", "9")
    return Sample(3, (*values, *more, "49801"), "RPCFW", "RPCFW", keywords, 4)


SCM = "Service Control Manager"
TASKS = "Microsoft-Windows-TaskScheduler"
POWERSHELL = "Microsoft-Windows-PowerShell"
DEFENDER = "Microsoft-Windows-Windows Defender"
TERMINAL = "Microsoft-Windows-TerminalServices-LocalSessionManager"
RDP = "Microsoft-Windows-TerminalServices-RemoteConnectionManager"
WMI = "Microsoft-Windows-WMI-Activity"
FIREWALL = "Microsoft-Windows-Windows Firewall With Advanced Security"

OTHER_SAMPLES: dict[str, Sample] = {
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
            "1274",
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
        "Microsoft-Windows-DNSServer/Analytical",
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
    "openssh 4": other(
        4,
        "OpenSSH",
        {"process": "sshd", "payload": "Accepted password for ann from 10.0.0.7 port 50123 ssh2"},
    ),
    "remoteaccess 20271": other(
        20271,
        "RemoteAccess",
        ("{0C7A}", "CORP\\ann", "203.0.113.9", "The password is wrong."),
        "System",
        3,
    ),
    "rpcfw 3": rpc_call(PLAIN),
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

SAMPLES = LOGON_SAMPLES | SECURITY_SAMPLES | SYSMON_SAMPLES | OTHER_SAMPLES
