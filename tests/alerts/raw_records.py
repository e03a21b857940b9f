"""Raw records as products write them, for the tests of rules: one function a kind of event."""

from __future__ import annotations

import json
from typing import Any

from tests.ingest.windows_forms import Sample, sysmon, xml

WIN, SYS = "C:\\Windows\\", "C:\\Windows\\System32\\"
ANN = {
    "SubjectUserSid": "S-1-5-21-1-2-3-1104",
    "SubjectUserName": "ann",
    "SubjectDomainName": "CORP",
    "SubjectLogonId": "0x3e7a1",
}
AUDIT = "msg=audit(1772445600.123:99):"
WEB = "203.0.113.9 - - [02/Mar/2026:10:00:00 +0000] "
ASA = "<166>Mar 02 2026 09:00:00 fw1 : %ASA-"
MAIL = "Mar  2 10:00:00 mx "
FORTI = 'date=2026-03-02 time=01:00:00 devname="fg1" devid="F" vd="root" tz="-0800" '


def ran(image: str, line: str, parent: str = WIN + "explorer.exe") -> bytes:
    """Sysmon's event of a process that started."""
    return xml(
        sysmon(
            1,
            {
                "ProcessGuid": "{5770385f-0001-0002-0003-000000000700}",
                "ProcessId": "9260",
                "Image": image,
                "CommandLine": line,
                "User": "CORP\\ann",
                "ParentProcessId": "10044",
                "ParentImage": parent,
                "ParentCommandLine": parent,
            },
        )
    )


def created(image: str, line: str, parent: str) -> bytes:
    """The same in the Security log."""
    data = {
        **ANN,
        "NewProcessId": "0x242c",
        "NewProcessName": image,
        "ProcessId": "0x273c",
        "CommandLine": line,
        "ParentProcessName": parent,
    }
    return xml(Sample(4688, data))


def between(event_id: int, source: str, target: str, **more: str) -> bytes:
    data = {
        "SourceProcessId": "3224",
        "SourceImage": source,
        "TargetProcessId": "700",
        "TargetImage": target,
        **more,
    }
    return xml(sysmon(event_id, data))


def value_set(target: str, details: str) -> bytes:
    data = {
        "EventType": "SetValue",
        "ProcessId": "9260",
        "Image": SYS + "reg.exe",
        "TargetObject": target,
        "Details": details,
    }
    return xml(sysmon(13, data))


def block(text: str) -> bytes:
    data = {"MessageNumber": "1", "MessageTotal": "1", "ScriptBlockText": text, "Path": ""}
    provider = "Microsoft-Windows-PowerShell"
    return xml(Sample(4104, data, provider, f"{provider}/Operational", level=5))


def service(name: str, path: str) -> bytes:
    data = {
        "ServiceName": name,
        "ImagePath": path,
        "ServiceType": "user mode service",
        "StartType": "demand start",
        "AccountName": "LocalSystem",
    }
    return xml(Sample(7045, data, "Service Control Manager", "System"))


def task(command: str, arguments: str) -> bytes:
    content = (
        '<?xml version="1.0"?><Task version="1.2"><Actions><Exec>'
        f"<Command>{command}</Command><Arguments>{arguments}</Arguments></Exec></Actions></Task>"
    )
    return xml(Sample(4698, {**ANN, "TaskName": "\\Updater", "TaskContent": content}))


def member(event_id: int, group: str) -> bytes:
    data = {
        "MemberName": "-",
        "MemberSid": "S-1-5-21-1-2-3-1105",
        "TargetUserName": "Some group",
        "TargetDomainName": "CORP",
        "TargetSid": group,
        **ANN,
    }
    return xml(Sample(event_id, data))


def ticket(service_name: str, encryption: str) -> bytes:
    data = {
        "TargetUserName": "bob@CORP.EXAMPLE",
        "TargetDomainName": "CORP.EXAMPLE",
        "ServiceName": service_name,
        "ServiceSid": "S-1-5-21-1-2-3-1113",
        "TicketOptions": "0x40810000",
        "TicketEncryptionType": encryption,
        "IpAddress": "::ffff:10.0.0.5",
        "IpPort": "50001",
        "Status": "0x0",
    }
    return xml(Sample(4769, data))


def replicated(user: str) -> bytes:
    data = ANN | {
        "SubjectUserName": user,
        "ObjectServer": "DS",
        "ObjectType": "%{19195a5b-6da0-11d0-afd3-00c04fd930c9}",
        "ObjectName": "%{3933c65d-ac7f-4c79-b5b7-ad0fb941333c}",
        "OperationType": "Object Access",
        "AccessMask": "0x100",
        "Properties": "%%7688 {1131f6ad-9c07-11d1-f79f-00c04fc2dcd2}",
    }
    return xml(Sample(4662, data))


def cleared(event_id: int) -> bytes:
    provider = "Microsoft-Windows-Eventlog"
    return xml(Sample(event_id, ANN, provider, level=4, user_data="LogFileCleared"))


def call(number: int, exe: str, *others: str, auid: int = 1000, arguments: str = "") -> bytes:
    """auditd's records of one system call."""
    known = arguments or "a0=0 a1=0 a2=0 a3=0"
    first = (
        f"type=SYSCALL {AUDIT} arch=c000003e syscall={number} success=yes exit=0 {known} items=1 "
        f"ppid=20 pid=21 auid={auid} uid=0 gid=0 euid=0 tty=pts0 ses=3 "
        f'comm="x" exe="{exe}" key=(null)'
    )
    return "\n".join([first, *others]).encode()


def execve(exe: str, *words: str) -> bytes:
    said = " ".join(
        f'a{at}="{word}"' if word.isalnum() else f"a{at}={word.encode().hex().upper()}"
        for at, word in enumerate(words)
    )
    return call(59, exe, f"type=EXECVE {AUDIT} argc={len(words)} {said}")


def touched(path: str, exe: str, flags: str = "241", kind: str = "NORMAL") -> bytes:
    """A file opened: flags 241 write, 0 read."""
    found = f'type=PATH {AUDIT} item=0 name="{path}" inode=1 mode=0100644 nametype={kind}'
    return call(257, exe, found, arguments=f"a0=ffffff9c a1=55d a2={flags} a3=1b6")


def mode_set(mode: str) -> bytes:
    found = f'type=PATH {AUDIT} item=0 name="/tmp/bash" inode=1 mode=0100755 nametype=NORMAL'
    return call(268, "/usr/bin/chmod", found, arguments=f"a0=ffffff9c a1=55d a2={mode} a3=0")


def module(auid: int) -> bytes:
    name = f'type=KERN_MODULE {AUDIT} name="odd"'
    return call(313, "/usr/bin/kmod", name, auid=auid)


def eve(severity: int) -> bytes:
    alert = {"gid": 1, "signature_id": 1, "rev": 1, "signature": "A", "severity": severity}
    event = {
        "timestamp": "2026-03-02T10:00:00.123456+0000",
        "src_ip": "10.0.0.5",
        "dest_ip": "203.0.113.9",
        "proto": "TCP",
        "event_type": "alert",
        "alert": alert,
    }
    return json.dumps(event).encode()


def guardduty(severity: float) -> bytes:
    finding = {
        "AccountId": "111122223333",
        "Id": "f1",
        "Region": "us-east-1",
        "SchemaVersion": "2.0",
        "CreatedAt": "2026-03-02T10:00:00.123Z",
        "UpdatedAt": "2026-03-02T10:00:00.123Z",
        "Severity": severity,
        "Title": "It calls home",
        "Type": "Backdoor:EC2/C&CActivity.B",
        "Resource": {"ResourceType": "Instance", "InstanceDetails": {"InstanceId": "i-99"}},
        "Service": {"Count": 1},
    }
    return json.dumps(finding).encode()


def okta(kind: str, result: str = "SUCCESS", **debug: str) -> bytes:
    event = {
        "actor": {"alternateId": "ann@example.com", "id": "00u1", "type": "User"},
        "client": {"ipAddress": "203.0.113.9"},
        "eventType": kind,
        "outcome": {"result": result},
        "published": "2026-03-02T10:00:00.000Z",
        "severity": "INFO",
        "target": [{"alternateId": "bob@example.com", "id": "00u2", "type": "User"}],
        "debugContext": {"debugData": debug},
        "uuid": "a1",
        "version": "0",
    }
    return json.dumps(event).encode()


def k8s(verb: str, resource: str, user: str = "ann", sub: str = "", code: int = 200) -> bytes:
    event = {
        "kind": "Event",
        "apiVersion": "audit.k8s.io/v1",
        "auditID": "a1",
        "stage": "ResponseComplete",
        "requestURI": f"/api/v1/namespaces/default/{resource}/x",
        "verb": verb,
        "user": {"username": user},
        "sourceIPs": ["203.0.113.9"],
        "objectRef": {"resource": resource, "namespace": "default", "name": "x"}
        | ({"subresource": sub} if sub else {}),
        "responseStatus": {"code": code},
        "requestReceivedTimestamp": "2026-03-02T10:00:00.123456Z",
    }
    return json.dumps(event).encode()


def gcp(service_name: str, method: str, request: dict[str, Any]) -> bytes:
    payload = {
        "@type": "type.googleapis.com/google.cloud.audit.AuditLog",
        "authenticationInfo": {"principalEmail": "ann@example.com"},
        "methodName": method,
        "request": request,
        "requestMetadata": {"callerIp": "203.0.113.9"},
        "resourceName": "projects/p1/x",
        "serviceName": service_name,
        "status": {},
    }
    event = {"insertId": "i1", "protoPayload": payload, "timestamp": "2026-03-02T10:00:00.123Z"}
    return json.dumps(event).encode()


def firewall(*ranges: str) -> bytes:
    request = {"sourceRanges": list(ranges), "direction": "INGRESS", "name": "open"}
    return gcp("compute.googleapis.com", "v1.compute.firewalls.insert", request)


def iam(method: str) -> bytes:
    return gcp("iam.googleapis.com", f"google.iam.admin.v1.{method}", {})


def github(action: str, **more: str) -> bytes:
    event = {"@timestamp": 1772445600000, "action": action, "actor": "ann", "org": "acme"}
    return json.dumps(event | {"repo": "acme/secret"} | more).encode()


def entra(operation: str, category: str, properties: dict[str, Any]) -> bytes:
    event = {
        "time": "2026-03-02T10:00:00.123Z",
        "resourceId": "/tenants/t/providers/Microsoft.aadiam",
        "operationName": operation,
        "category": category,
        "tenantId": "t",
        "callerIpAddress": "203.0.113.9",
        "properties": properties,
    }
    return json.dumps(event | ({"resultType": "0"} if category == "SignInLogs" else {})).encode()


def sign_in(risk: str) -> bytes:
    user = {"userPrincipalName": "ann@example.com", "userId": "u1", "ipAddress": "203.0.113.9"}
    found = {"riskLevelDuringSignIn": risk, "riskState": "atRisk", "status": {"errorCode": 0}}
    return entra("Sign-in activity", "SignInLogs", user | found)


def role(name: str) -> bytes:
    new = {"displayName": "Role.DisplayName", "newValue": f'"{name}"'}
    target = {"id": "2", "type": "User", "modifiedProperties": [new]}
    told = {"result": "success", "targetResources": [target], "loggedByService": "Core Directory"}
    return entra("Add member to role", "AuditLogs", told)


def asa_denied(address: str) -> str:
    ends = f"src inside:{address}/41000 dst outside:10.9.0.5/445"
    return f'{ASA}4-106023: Deny tcp {ends} by access-group "a" [0x0, 0x0]'


def forti_session(action: str) -> str:
    return (
        f'{FORTI}logid="0000000013" type="traffic" subtype="forward" srcip=10.0.0.5 '
        f'srcport=58012 dstip=192.0.2.7 dstport=443 proto=6 action="{action}"'
    )


def forti_tunnel(action: str) -> str:
    return (
        f'{FORTI}logid="0101039424" type="event" subtype="vpn" logdesc="SSL VPN" '
        f'action="{action}" tunneltype="ssl-tunnel" remip=203.0.113.9 user="ann"'
    )
