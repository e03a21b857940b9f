"""Records as the documents of their products show them, written for these tests."""

from __future__ import annotations

import json
from typing import Any, NamedTuple


class Sample(NamedTuple):
    """A record, and what it becomes: class, activity, outcome, source, destination, user."""

    source: str
    raw: str
    expected: tuple[Any, ...]
    more: dict[str, Any] = {}  # noqa: RUF012  # never changed
    quality: str = "exact"


def js(**fields: Any) -> str:
    return json.dumps(fields)


IP, USER = "203.0.113.9", "ann@example.com"

_GCP: dict[str, Any] = {
    "insertId": "1a",
    "logName": "projects/p1/logs/compute.googleapis.com%2Fvpc_flows",
    "resource": {
        "type": "gce_subnetwork",
        "labels": {"project_id": "p1", "location": "europe-west1-b", "subnetwork_name": "s1"},
    },
    "timestamp": "2026-03-02T09:00:00.5Z",
    "receiveTimestamp": "2026-03-02T09:00:07Z",
}
_FLOW: dict[str, Any] = {
    "connection": {
        "src_ip": "10.0.0.5",
        "src_port": 51234,
        "dest_ip": IP,
        "dest_port": 443,
        "protocol": 6,
    },
    "start_time": "2026-03-02T08:59:55Z",
    "end_time": "2026-03-02T09:00:00Z",
    "bytes_sent": "1250",
    "packets_sent": "11",
    "rtt_msec": "12",
    "reporter": "SRC",
    "src_instance": {"project_id": "p1", "vm_name": "vm1", "zone": "europe-west1-b"},
    "src_vpc": {"project_id": "p1", "vpc_name": "v1", "subnetwork_name": "s1"},
    "dest_location": {"country": "usa", "asn": 15169},
}
_VNET = "/subscriptions/u1/resourceGroups/g/providers/Microsoft.Network/virtualNetworks/v1"


def _nsg(version: int, *flows: str) -> dict[str, Any]:
    group = {"mac": "000D3AF8801A", "flowTuples": list(flows)}
    return {
        "time": "2026-03-02T09:00:30.1Z",
        "systemId": "s1",
        "category": "NetworkSecurityGroupFlowEvent",
        "resourceId": "/SUBSCRIPTIONS/U1/RESOURCEGROUPS/G/PROVIDERS/NSG1",
        "operationName": "NetworkSecurityGroupFlowEvents",
        "properties": {
            "Version": version,
            "flows": [{"rule": "DefaultRule_DenyAllInBound", "flows": [group]}],
        },
    }


_POD: dict[str, Any] = {
    "kind": "Pod",
    "namespace": "shop",
    "name": "web-1",
    "uid": "8c1f",
    "apiVersion": "v1",
}
_EVENT: dict[str, Any] = {
    "apiVersion": "v1",
    "kind": "Event",
    "metadata": {"name": "web-1.17", "namespace": "shop", "uid": "e1"},
    "involvedObject": _POD,
    "reason": "Started",
    "message": "Started container web",
    "source": {"component": "kubelet", "host": "node1"},
    "firstTimestamp": "2026-03-02T08:00:00Z",
    "lastTimestamp": "2026-03-02T09:00:00Z",
    "count": 3,
    "type": "Normal",
    "eventTime": None,
}
_ALERT: dict[str, Any] = {
    "@odata.type": "#microsoft.graph.security.alert",
    "id": "da1",
    "providerAlertId": "da1_p",
    "incidentId": "28",
    "status": "new",
    "severity": "high",
    "serviceSource": "microsoftDefenderForEndpoint",
    "detectionSource": "antivirus",
    "detectorId": "e0da",
    "tenantId": "b3c1",
    "title": "Suspicious execution of a hidden file",
    "description": "A hidden file was launched.",
    "category": "DefenseEvasion",
    "alertWebUrl": "https://security.example/alerts/da1",
    "mitreTechniques": ["T1564.001"],
    "createdDateTime": "2026-03-02T08:58:00Z",
    "lastUpdateDateTime": "2026-03-02T09:00:00.2Z",
    "firstActivityDateTime": "2026-03-02T08:57:00Z",
    "evidence": [
        {
            "@odata.type": "#microsoft.graph.security.deviceEvidence",
            "deviceDnsName": "pc1.example",
            "mdeDeviceId": "73e7",
        },
        {
            "@odata.type": "#microsoft.graph.security.userEvidence",
            "userAccount": {"accountName": "ann", "userPrincipalName": USER, "userSid": "S-1-5"},
        },
        {
            "@odata.type": "#microsoft.graph.security.ipEvidence",
            "ipAddress": "10.0.0.9",
            "roles": ["destination"],
        },
        {"@odata.type": "#microsoft.graph.security.ipEvidence", "ipAddress": IP},
    ],
}
_STREAM = {
    "customerIDString": "c1",
    "offset": 14947764,
    "eventType": "DetectionSummaryEvent",
    "eventCreationTime": 1772442000123,
    "version": "1.0",
}


def _sensor(name: str, **fields: str) -> str:
    return js(
        event_simpleName=name,
        name=f"{name}V1",
        ContextTimeStamp="1772442000.513",
        timestamp="1772442001333",
        aid="5c",
        aip=IP,
        cid="c1",
        id="e1",
        event_platform="Win",
        ComputerName="PC1",
        **fields,
    )


SAMPLES = [
    # -- Flow logs of Google Cloud: an entry of Cloud Logging, and the flow alone
    Sample(
        "gcp_vpcflow",
        js(**_GCP, jsonPayload=_FLOW),
        (4001, 6, 1, "10.0.0.5", IP, None),
        {"connection_info.direction_id": 2, "traffic.bytes_out": 1250, "src_endpoint.name": "vm1",
         "src_endpoint.zone": "europe-west1-b", "dst_endpoint.country": "usa"},
    ),
    Sample(
        "gcp_vpcflow",
        js(**_FLOW | {"start_time": "2026-03-02T09:00:00Z", "reporter": "DEST"}),
        (4001, 6, 1, "10.0.0.5", IP, None),
        {"connection_info.direction_id": 1, "connection_info.protocol_name": "tcp"},
    ),
    # -- Flow logs of Azure: security groups in versions 1 and 2, virtual networks in version 4
    Sample(
        "azure_flow",
        js(records=[_nsg(1, f"1772442000,{IP},10.0.0.4,44931,22,T,I,D")]),
        (4001, 5, 2, IP, "10.0.0.4", None),
        {"dst_endpoint.mac": "00:0d:3a:f8:80:1a", "dst_endpoint.port": 22, "action_id": 2,
         "firewall_rule.name": "DefaultRule_DenyAllInBound", "cloud.account.uid": "U1"},
    ),
    Sample(
        "azure_flow",
        js(**_nsg(2, f"1772442000,10.0.0.4,{IP},50842,443,T,O,A,E,25,7500,24,6200")),
        (4001, 2, 1, "10.0.0.4", IP, None),
        {"traffic.bytes_out": 7500, "traffic.packets_in": 24, "connection_info.direction_id": 2,
         "src_endpoint.mac": "00:0d:3a:f8:80:1a"},
    ),
    Sample(
        "azure_flow",
        js(records=[{"time": "2026-03-02T09:00:30Z", "flowLogVersion": 4, "flowLogGUID": "g1",
                     "macAddress": "002248712345", "category": "FlowLogFlowEvent",
                     "targetResourceID": _VNET, "operationName": "FlowLogFlowEvent",
                     "flowRecords": {"flows": [{"aclID": "a1", "flowGroups": [
                         {"rule": "UserRule_web", "flowTuples": [
                             f"1772442000123,{IP},10.0.0.4,51234,443,6,I,B,NX,0,0,0,0"]}]}]}}]),
        (4001, 1, 1, IP, "10.0.0.4", None),
        {"connection_info.protocol_name": "tcp", "firewall_rule.uid": "a1",
         "cloud.account.uid": "u1"},
    ),
    # -- Events of Kubernetes: core, events.k8s.io, a watch's
    Sample("k8s_events", js(**_EVENT), (6002, 3, 1, None, None, None),
           {"device.hostname": "node1", "metadata.event_code": "Started"}),
    Sample(
        "k8s_events",
        js(apiVersion="events.k8s.io/v1", kind="Event", metadata={"uid": "e2"}, regarding=_POD,
           reason="FailedScheduling", note="0/3 nodes are available", type="Warning",
           eventTime="2026-03-02T09:00:00.123456Z", reportingController="default-scheduler",
           reportingInstance="s-1", action="Scheduling"),
        (6003, 3, 2, None, None, None),
        {"actor.invoked_by": "default-scheduler", "severity_id": 3},
    ),
    Sample(
        "k8s_events",
        js(type="ADDED", object=_EVENT | {"reason": "Unhealthy", "type": "Warning"}),
        (0, 0, 2, None, None, None),
    ),
    # -- GitLab: the log of 11 and of 16, a stream, the API
    Sample(
        "gitlab_audit",
        js(severity="INFO", time="2026-03-02T09:00:00.523Z", author_id=3, entity_id=2,
           entity_type="Project", change="visibility", to="Public", author_name="ann",
           target_id=2, target_type="Project", target_details="group/project",
           **{"from": "Private"}),
        (6003, 3, 1, None, None, "ann"),
        {"api.operation": "change_visibility"},
    ),
    Sample(
        "gitlab_audit",
        js(severity="INFO", time="2026-03-02T09:00:00Z", correlation_id="01H", author_id=-1,
           author_name="mallory", entity_id=-1, entity_type="User", failed_login="STANDARD",
           ip_address=IP, event_name="login_failed_with_standard_authentication",
           target_details="mallory", target_type="User", entity_path=None),
        (3002, 1, 2, IP, None, "mallory"),
        {"metadata.correlation_uid": "01H", "severity_id": 2},
    ),
    Sample(
        "gitlab_audit",
        js(id="5c", author_id=3, author_name="ann", entity_id=2, entity_type="Project",
           entity_path="group/project", event_type="project_deploy_key_created",
           created_at="2026-03-02T09:00:00.5Z", ip_address=IP, target_id=7,
           target_type="DeployKey", target_details="key 1",
           details={"author_name": "ann", "custom_message": "Added a key", "target_id": 7,
                    "target_details": "key 1", "ip_address": IP}),
        (6003, 1, 1, IP, None, "ann"),
    ),
    Sample(
        "gitlab_audit",
        js(id=9, author_id=3, entity_id=2, entity_type="Group",
           created_at="2026-03-02T09:00:00Z",
           details={"remove": "user_access", "author_name": "ann", "target_id": 8,
                    "target_type": "User", "target_details": "bob", "ip_address": IP}),
        (6003, 4, 1, IP, None, "ann"),
        {"api.operation": "remove_user_access"},
    ),
    # -- Microsoft Graph: an alert alone and in the API's list
    *(
        Sample("graph_alerts", raw, (2004, 1, None, IP, None, USER),
               {"finding_info.uid": "da1", "severity_id": 4, "device.hostname": "pc1.example",
                "metadata.correlation_uid": "28"})
        for raw in (js(**_ALERT), js(value=[_ALERT]))
    ),
    # -- CrowdStrike: the stream of old and of new, and events of sensors
    Sample(
        "crowdstrike",
        js(metadata=_STREAM, event={
            "ProcessStartTime": 1772441900, "ProcessId": 3868, "ComputerName": "PC1",
            "UserName": "CORP\\ann", "DetectName": "Suspicious Activity", "Severity": 4,
            "SeverityName": "High", "FileName": "x.exe", "FilePath": "C:\\Temp",
            "CommandLine": "x.exe -a", "SHA256String": "a" * 64, "DetectId": "ldt:1:2",
            "DetectDescription": "A process did so.", "LocalIP": "10.0.0.5",
            "Tactic": "Execution", "Technique": "PowerShell", "SensorId": "5c",
            "FalconHostLink": "https://falcon.example/x"}),
        (2004, 1, None, None, None, "ann"),
        {"severity_id": 4, "finding_info.uid": "ldt:1:2", "device.ip": "10.0.0.5",
         "actor.process.cmd_line": "x.exe -a"},
    ),
    Sample(
        "crowdstrike",
        js(metadata=_STREAM | {"eventType": "EpDetectionSummaryEvent"}, event={
            "Name": "Malware", "CompositeId": "c:1", "Hostname": "PC1", "Severity": 70,
            "Description": "Found.", "AgentId": "5c", "LocalIPv4": "10.0.0.5"}),
        (2004, 1, None, None, None, None),
        {"severity_id": 4, "device.hostname": "PC1"},
    ),
    Sample(
        "crowdstrike",
        js(metadata=_STREAM | {"eventType": "AuthActivityAuditEvent"}, event={
            "UserId": USER, "UserIp": IP, "OperationName": "userAuthenticate",
            "ServiceName": "CrowdStrike Authentication", "Success": False,
            "UTCTimestamp": 1772442000}),
        (3002, 1, 2, IP, None, USER),
    ),
    Sample("crowdstrike", _sensor("ProcessRollup2", ImageFileName="/usr/bin/curl", UserName="ann",
                                  CommandLine="curl x", TargetProcessId="4295", RawProcessId="77",
                                  SHA256HashData="b" * 64, ParentBaseFileName="bash"),
           (1007, 1, 1, None, None, "ann"),
           {"process.pid": 77, "process.name": "curl", "process.parent.name": "bash"}),
    Sample("crowdstrike", _sensor("NetworkConnectIP4", LocalAddressIP4="10.0.0.5", LocalPort="51",
                                  RemoteAddressIP4=IP, RemotePort="443", Protocol="6",
                                  ConnectionDirection="0", ContextProcessId="4295"),
           (4001, 1, 1, "10.0.0.5", IP, None),
           {"connection_info.protocol_name": "tcp", "actor.process.uid": "4295"}),
    Sample("crowdstrike", _sensor("DnsRequest", DomainName="evil.example", RequestType="28",
                                  ContextProcessId="4295"),
           (4003, 1, None, None, None, None),
           {"query.type": "AAAA", "query.hostname": "evil.example"}),
    Sample("crowdstrike", _sensor("UserLogonFailed2", UserName="root", LogonType="10",
                                  RemoteAddressIP4=IP, LogonDomain="CORP"),
           (3002, 1, 2, IP, None, "root"), {"logon_type_id": 10}),
    Sample("crowdstrike", _sensor("PeFileWritten", TargetFileName="C:\\Temp\\x.exe", Size="7"),
           (1001, 1, 1, None, None, "unknown"), {"file.name": "x.exe"}),
    Sample("crowdstrike", _sensor("AsepValueUpdate", RegObjectName="HKLM\\Run", RegValueName="x",
                                  RegStringValue="evil.exe"),
           (201002, 2, 1, None, None, "unknown"), {"reg_value.data": "evil.exe"}),
    Sample("crowdstrike", _sensor("AgentOnline"), (0, 0, None, None, None, None)),
]  # fmt: skip
