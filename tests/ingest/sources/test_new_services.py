"""Records of services in the forms that their documents show: one of each kind, and odd ones."""

from __future__ import annotations

import json
from random import Random
from typing import Any

import pytest

from ingest.parsing.source import lookup
from tests.ingest.cloud_samples import check, lost, spoilt
from tests.ingest.logs import NOW, good, rows
from tests.ingest.sources.documented_logs import SAMPLES as LOGS
from tests.ingest.sources.documented_records import IP, USER, Sample, js
from tests.ingest.sources.documented_records import SAMPLES as DOCUMENTED
from tests.ingest.sources.documented_services import SAMPLES as SERVICES

ACTING = {
    "InitiatingProcessFileName": "cmd.exe",
    "InitiatingProcessId": 7,
    "InitiatingProcessCommandLine": "cmd /c x",
    "InitiatingProcessAccountName": "ann",
    "InitiatingProcessAccountDomain": "corp",
    "InitiatingProcessFolderPath": "C:\\Windows\\System32\\cmd.exe",
    "InitiatingProcessParentId": 3,
    "InitiatingProcessParentFileName": "explorer.exe",
    "DeviceName": "pc1.corp.example",
    "DeviceId": "d1",
    "ReportId": 5,
    "Timestamp": "2026-03-02T09:00:00.1234567Z",
}


def hunting(table: str, **fields: Any) -> str:
    return js(
        time="2026-03-02T09:00:05Z",
        tenantId="t1",
        operationName="Publish",
        category=f"AdvancedHunting-{table}",
        properties=ACTING | fields,
    )


ACTIVITY: dict[str, Any] = {
    "kind": "admin#reports#activity",
    "id": {
        "time": "2026-03-02T09:00:00.123Z",
        "uniqueQualifier": "-5813",
        "applicationName": "login",
        "customerId": "C01",
    },
    "actor": {"email": USER, "profileId": "1095"},
    "ipAddress": IP,
    "events": [
        {
            "type": "login",
            "name": "login_failure",
            "parameters": [
                {"name": "login_type", "value": "google_password"},
                {"name": "login_failure_type", "value": "login_failure_invalid_password"},
            ],
        }
    ],
}
WAF = {
    "timestamp": 1772442000123,
    "formatVersion": 1,
    "webaclId": "arn:aws:wafv2:eu-west-1:111122223333:regional/webacl/a/b",
    "terminatingRuleId": "SQLi",
    "terminatingRuleType": "REGULAR",
    "action": "BLOCK",
    "httpSourceName": "ALB",
    "httpRequest": {
        "clientIp": IP,
        "country": "DE",
        "headers": [
            {"name": "Host", "value": "h.example"},
            {"name": "User-Agent", "value": "curl/8"},
        ],
        "uri": "/a",
        "args": "b=c",
        "httpVersion": "HTTP/1.1",
        "httpMethod": "GET",
        "requestId": "r1",
    },
}
DNS_FIREWALL = {
    "version": "1.100000",
    "account_id": "111122223333",
    "region": "us-east-1",
    "vpc_id": "vpc-1",
    "query_timestamp": "2026-03-02T09:00:00Z",
    "query_name": "evil.example.",
    "query_type": "A",
    "query_class": "IN",
    "rcode": "NXDOMAIN",
    "answers": [],
    "srcaddr": "10.0.0.5",
    "srcport": "51234",
    "transport": "UDP",
    "srcids": {"instance": "i-1"},
    "firewall_rule_action": "BLOCK",
    "firewall_rule_group_id": "rslvr-frg-1",
}
OWNER = "79a59df900b949e55d96a1e698fbacedfd6e09d98eacf8f8d5218e7cd47ef2be"
SAMPLES = [
    # -- Defender for Endpoint
    Sample(
        "defender_endpoint",
        hunting(
            "DeviceProcessEvents",
            ActionType="ProcessCreated",
            FileName="powershell.exe",
            FolderPath="C:\\Windows\\powershell.exe",
            ProcessId=9,
            ProcessCommandLine="powershell -enc x",
            AccountName="ann",
            AccountDomain="corp",
            SHA256="a" * 64,
        ),
        (1007, 1, 1, None, None, "ann"),
        {"process.cmd_line": "powershell -enc x", "actor.process.parent.name": "explorer.exe"},
    ),
    Sample(
        "defender_endpoint",
        hunting(
            "DeviceNetworkEvents",
            ActionType="ConnectionSuccess",
            LocalIP="10.0.0.5",
            LocalPort=51234,
            RemoteIP=IP,
            RemotePort=443,
            RemoteUrl="https://evil.example/x",
            Protocol="Tcp",
        ),
        (4001, 1, 1, "10.0.0.5", IP, "ann"),
        {"dst_endpoint.hostname": "evil.example", "connection_info.protocol_num": 6},
    ),
    Sample(
        "defender_endpoint",
        js(**ACTING, Type="DeviceLogonEvents", ActionType="LogonFailed", AccountName="root",
           RemoteIP=IP, LogonType="RemoteInteractive", FailureReason="InvalidUserNameOrPassword"),
        (3002, 1, 2, IP, None, "root"),
        {"logon_type_id": 10, "status_detail": "InvalidUserNameOrPassword"},
    ),
    Sample(
        "defender_endpoint",
        hunting("DeviceRegistryEvents", ActionType="RegistryValueSet", RegistryKey="HKLM\\Run",
                RegistryValueName="x", RegistryValueData="evil.exe", RegistryValueType="String"),
        (201002, 2, 1, None, None, "ann"),
        {"reg_value.data": "evil.exe"},
    ),
    Sample(
        "defender_endpoint",
        hunting("DeviceFileEvents", ActionType="FileCreated", FileName="x.exe", SHA1="b" * 40,
                FolderPath="C:\\Temp\\x.exe"),
        (1001, 1, 1, None, None, "ann"),
        {"file.path": "C:\\Temp\\x.exe"},
    ),
    Sample(
        "defender_endpoint",
        hunting("DeviceImageLoadEvents", ActionType="ImageLoaded", FileName="x.dll",
                FolderPath="C:\\Temp"),
        (1005, 1, 1, None, None, "ann"),
        {"module.file.path": "C:\\Temp\\x.dll"},
    ),
    # -- Google Workspace
    Sample("google_workspace", js(**ACTIVITY), (3002, 1, 2, IP, None, USER)),
    Sample("google_workspace", js(items=[ACTIVITY]), (3002, 1, 2, IP, None, USER)),
    Sample(
        "google_workspace",
        js(**ACTIVITY | {
            "id": ACTIVITY["id"] | {"applicationName": "drive"},
            "events": [{"type": "access", "name": "download", "parameters": [
                {"name": "doc_title", "value": "plan"}, {"name": "doc_id", "value": "1x"},
                {"name": "billable", "boolValue": True}]}]}),
        (6006, 2, 1, IP, None, USER),
        {"file.name": "plan"},
    ),
    Sample(
        "google_workspace",
        js(**ACTIVITY | {
            "id": ACTIVITY["id"] | {"applicationName": "admin"},
            "events": [{"type": "USER_SETTINGS", "name": "CREATE_USER", "parameters": [
                {"name": "USER_EMAIL", "value": "new@example.com"}]}]}),
        (6003, 1, 1, IP, None, USER),
    ),
    # -- AWS
    Sample("aws_waf", js(**WAF), (4002, 3, 2, IP, None, None),
           {"http_request.url.query_string": "b=c", "http_request.user_agent": "curl/8"}),
    Sample("route53_resolver", js(**DNS_FIREWALL), (4003, 2, 2, "10.0.0.5", None, None),
           {"query.hostname": "evil.example", "action_id": 2, "rcode": "NXDOMAIN"}),
    Sample(
        "aws_elb",
        "https 2026-03-02T09:00:00.186641Z app/my-lb/50dc6c495c0c9188 203.0.113.9:2817 "
        "10.0.0.1:80 0.086 0.048 0.037 200 200 0 57 \"GET https://h.example:443/a?b=c HTTP/1.1\" "
        '"curl/7.46.0" ECDHE-RSA-AES128-GCM-SHA256 TLSv1.2 arn:aws:elasticloadbalancing:x '
        '"Root=1-58337281-1d84f3d73c47ec4e58577259" "h.example" "arn:aws:acm:x" 1 '
        '2026-03-02T09:00:00.000000Z "forward" "-" "-" "10.0.0.1:80" "200" "-" "-"',
        (4002, 3, 1, IP, "10.0.0.1", None),
        {"http_request.url.path": "/a", "http_response.code": 200, "duration": 171},
    ),
    Sample(
        "aws_elb",
        "2026-03-02T09:00:00.945958Z my-lb 203.0.113.9:2817 - -1 -1 -1 503 0 0 0 "
        '"GET http://h.example:80/ HTTP/1.1" "-" - -',
        (4002, 3, 2, IP, None, None),
    ),
    Sample(
        "aws_s3_access",
        f"{OWNER} bucket1 [02/Mar/2026:09:00:00 +0000] 203.0.113.9 {OWNER} 3E57427F3EXAMPLE "
        'REST.GET.OBJECT key.txt "GET /bucket1/key.txt?versioning HTTP/1.1" 403 AccessDenied 113 '
        '- 7 - "-" "S3Console/0.4" - s9lzHYrFp76ZVxRcpX9+5cjAnEH2ROuNkd2BHfIa6UkFVdtjf5mKR3/eTPFvs'
        "iP/XV/VLi31234= SigV4 ECDHE-RSA-AES128-GCM-SHA256 AuthHeader "
        "bucket1.s3.us-west-1.amazonaws.com TLSV1.2 - -",
        (4002, 3, 2, IP, None, OWNER),
        {"http_response.code": 403, "status_detail": "AccessDenied"},
    ),
    Sample(
        "aws_cloudfront",
        "2026-03-02\t09:00:00\tFRA2\t2390282\t203.0.113.9\tGET\td1.cloudfront.net\t/view/a.html\t"
        "200\twww.example.com\tMozilla/5.0%20(X11)\tb=c\t-\tHit\tMRVMF7KydIvxMWfJIglgwHQwZsbG2IhR"
        "J07sn9AkKUFSHS9EXAMPLE==\td1.example.net\thttps\t-\t0.001",
        (4002, 3, 1, IP, None, None),
        {"http_request.user_agent": "Mozilla/5.0 (X11)", "http_request.url.query_string": "b=c"},
    ),
    # -- Cloudflare: Logpush with times in RFC 3339, in nanoseconds, in seconds; the audit by API
    Sample(
        "cloudflare",
        js(ClientIP=IP, ClientRequestHost="h.example", ClientRequestMethod="GET",
           ClientRequestURI="/a?b=c", EdgeEndTimestamp=1772442000100000000, EdgeResponseBytes=69,
           EdgeResponseStatus=403, EdgeStartTimestamp=1772442000000000000, RayID="3a6050bcbe121a87",
           ClientRequestUserAgent="curl/8", ClientSrcPort=51234, ClientCountry="de",
           SecurityAction="block", SecurityRuleDescription="SQLi"),
        (4002, 3, 2, IP, None, None),
        {"http_request.url.path": "/a", "http_response.code": 403, "action_id": 2},
    ),
    Sample(
        "cloudflare",
        js(Action="managed_challenge", ClientIP=IP, ClientRequestHost="h.example",
           ClientRequestMethod="POST", ClientRequestPath="/login", ClientRequestQuery="?x=1",
           Datetime="2026-03-02T09:00:00Z", RuleID="r1", Source="firewallCustom",
           Description="bad bots", RayID="r2"),
        (4002, 6, 2, IP, None, None),
        {"http_request.url.query_string": "x=1", "firewall_rule.desc": "bad bots"},
    ),
    Sample(
        "cloudflare",
        js(Datetime="2026-03-02T09:00:00Z", QueryName="evil.example", QueryTypeName="A", RCode=5,
           ResolverDecision="blockedByCategory", SrcIP="10.0.0.5", Email=USER, DeviceName="pc1"),
        (4003, 2, 2, "10.0.0.5", None, USER),
        {"query.hostname": "evil.example", "action_id": 2},
    ),
    Sample(
        "cloudflare",
        js(Datetime=1772442000, SourceIP="10.0.0.5", SourcePort=1, DestinationIP=IP,
           DestinationPort=443, Action="allow", SNI="h.example", Transport="tcp", Email=USER),
        (4001, 6, 1, "10.0.0.5", IP, USER),
    ),
    Sample(
        "cloudflare",
        js(CreatedAt="2026-03-02T09:00:00Z", Allowed=False, AppDomain="a.example", Email=USER,
           IPAddress=IP, Action="login", Country="us"),
        (3002, 1, 2, IP, None, USER),
    ),
    Sample(
        "cloudflare",
        js(id="a1", when="2026-03-02T09:00:00Z", action={"type": "delete_rule", "result": True},
           actor={"email": USER, "id": "u1", "ip": IP, "type": "user"},
           resource={"id": "z1", "type": "firewall"}),
        (6003, 4, 1, IP, None, USER),
    ),
    # -- Check Point R80 and R81: Log Exporter's syslog and generic forms
    Sample(
        "checkpoint",
        "<134>1 2026-03-02T09:00:01Z gw1 CheckPoint 30513 - "
        '[action:"Accept"; flags:"18692"; ifdir:"inbound"; ifname:"bond1"; loguid:"{0x5e6b01de}"; '
        'origin:"10.0.0.1"; time:"1772442000"; version:"1"; dst:"203.0.113.9"; inzone:"Internal"; '
        'product:"VPN-1 & FireWall-1"; proto:"17"; rule_uid:"{2548FE8F}"; s_port:"60131"; '
        'service:"53"; service_id:"domain-udp"; src:"10.0.0.5"; ]',
        (4001, 1, 1, "10.0.0.5", IP, None),
        {"connection_info.protocol_num": 17, "dst_endpoint.port": 53, "device.ip": "10.0.0.1"},
    ),
    Sample(
        "checkpoint",
        "<134>1 2026-03-02T09:00:01Z gw1 CheckPoint 30513 - "
        '[action:"Drop"; loguid:"{1}"; origin:"10.0.0.1"; time:"1772442000"; src:"10.0.0.5"; '
        'dst:"203.0.113.9"; service:"445"; proto:"6"; src_user_name:"CORP\\\\ann"; rule_name:"x"]',
        (4001, 5, 2, "10.0.0.5", IP, "ann"),
        {"firewall_rule.name": "x"},
    ),
    Sample(
        "checkpoint",
        "<134>1 2026-03-02T09:00:01Z gw1 CheckPoint 1 - "
        '[action:"Prevent"; origin:"10.0.0.1"; time:"1772442000"; product:"Anti-Virus"; '
        'protection_name:"Trojan.X"; file_name:"a.exe"; file_md5:"' + "ab" * 16 + '"; '
        'resource:"http://evil.example/a.exe"; severity:"Critical"; dst:"203.0.113.9"; '
        'service:"80"; proto:"6"; src:"10.0.0.5"]',
        (2004, 1, None, "10.0.0.5", IP, None),
        {
            "severity_id": 5,
            "file.name": "a.exe",
            "file.hashes": [{"algorithm": "MD5", "value": "ab" * 16}],
            "http_request.url.hostname": "evil.example",
        },
    ),
    Sample(
        "checkpoint",
        "<134>1 2026-03-02T09:00:01Z mgmt CheckPoint 1 - "
        '[action:"Accept"; origin:"10.0.0.1"; time:"1772442000"; administrator:"ann"; '
        'audit_status:"Failure"; machine:"pc1"; operation:"Log In"; product:"SmartConsole"; '
        'subject:"Administrator Login"; client_ip:"203.0.113.9"]',
        (3002, 1, 2, IP, None, "ann"),
    ),
    # -- Graph's alerts with evidence of a process and a file
    Sample(
        "graph_alerts",
        js(id="da2", title="Susp", severity="high", status="new", serviceSource="x",
           createdDateTime="2026-03-02T09:00:00Z",
           evidence=[
               {"@odata.type": "#microsoft.graph.security.processEvidence", "processId": 12,
                "processCommandLine": "a.exe -x",
                "imageFile": {"fileName": "a.exe", "filePath": "C:\\t", "sha256": "a" * 64}},
               {"@odata.type": "#microsoft.graph.security.fileEvidence",
                "fileDetails": {"fileName": "b.dll", "filePath": "C:\\t", "sha1": "b" * 40}}]),
        (2004, 1, None, None, None, None),
        {"actor.process.cmd_line": "a.exe -x", "actor.process.pid": 12,
         "actor.process.hashes": [{"algorithm": "SHA-256", "value": "a" * 64}],
         "file.name": "b.dll", "file.hashes": [{"algorithm": "SHA-1", "value": "b" * 40}]},
    ),
    # -- Azure's activity log, where the claims of the token tell who called
    Sample(
        "azure_audit",
        js(time="2026-03-02T09:00:00Z", category="Administrative", level="Error",
           resourceId="/SUBSCRIPTIONS/S/VM1", operationName="MICROSOFT.COMPUTE/VM/DELETE",
           resultType="Failure", callerIpAddress=IP,
           identity={"claims": {
               "http://schemas.xmlsoap.org/ws/2005/05/identity/claims/upn": USER,
               "http://schemas.microsoft.com/identity/claims/objectidentifier": "o1",
               "name": "Ann Lee", "appid": "a1"}}),
        (6003, 4, 2, IP, None, USER),
        {"actor.user.uid": "o1"},
    ),
    Sample(
        "azure_audit",
        js(time="2026-03-02T09:00:00Z", category="Administrative", level="Information",
           resourceId="/SUBSCRIPTIONS/S/VM1", operationName="MICROSOFT.COMPUTE/VM/WRITE",
           resultType="Success", callerIpAddress=IP, identity={"claims": {"appid": "a1"}}),
        (6003, 3, 1, IP, None, "a1"),
    ),
    # -- Zscaler Internet Access: the admin audit log
    Sample(
        "zscaler",
        js(sourcetype="zscalernss-audit",
           event={"time": "Mon Mar  2 09:00:00 2026", "recordid": "1", "action": "SIGN_IN",
                  "category": "LOGIN", "subcategory": "LOGIN", "resource": "None",
                  "interface": "UI", "adminid": USER, "clientip": IP, "result": "FAILURE",
                  "errorcode": "AUTHENTICATION_FAILED", "auditlogtype": "ZIA"}),
        (3002, 1, 2, IP, None, USER),
        {"status_detail": "AUTHENTICATION_FAILED"},
        "assumed_zone",
    ),
    Sample(
        "zscaler",
        js(time="Mon Mar  2 09:00:00 2026", tz="GMT", recordid="2", action="DELETE",
           category="POLICY", subcategory="SSL_POLICY", resource="rule1", interface="API",
           adminid=USER, clientip=IP, result="SUCCESS", errorcode="None", auditlogtype="ZIA"),
        (6003, 4, 1, IP, None, USER),
        {"resources": [{"name": "rule1", "type": "SSL_POLICY"}]},
        "assumed_zone",
    ),
    Sample(
        "checkpoint",
        "time=1772442000|hostname=gw1|severity=High|product=SmartDefense|action=Prevent|"
        "src=203.0.113.9|dst=10.0.0.5|s_port=1|service=80|proto=6|protection_name=SQLi|"
        "loguid={0x1}",
        (2004, 1, None, IP, "10.0.0.5", None),
        {"finding_info.title": "SQLi", "severity_id": 4},
    ),
    Sample(
        "checkpoint",
        "<134>1 2026-03-02T09:00:01Z mgmt CheckPoint 1 - "
        '[action:"Failed Log In"; origin:"10.0.0.1"; time:"1772442000"; client_ip:"203.0.113.9"; '
        'administrator:"ann"; product:"SmartConsole"; reason:"Wrong password"]',
        (3002, 1, 2, IP, None, "ann"),
    ),
    *DOCUMENTED,
    *LOGS,
    *SERVICES,
]  # fmt: skip


def at(row: dict[str, Any], path: str) -> Any:
    value: Any = row
    for name in path.split("."):
        value = (value or {}).get(name)
    return value


@pytest.mark.parametrize("sample", SAMPLES, ids=[f"{s.source}-{i}" for i, s in enumerate(SAMPLES)])
def test_a_record_of_each_kind(sample: Sample) -> None:
    row = good(sample.source, sample.raw)
    names = ("class_uid", "activity_id", "status_id", "src_ip", "dst_ip", "user_name")
    assert tuple(row.get(name) for name in names) == sample.expected
    assert {path: at(row, path) for path in sample.more} == sample.more
    assert row["time"].isoformat()[:19] == "2026-03-02T09:00:00"
    assert row["time_quality"] == sample.quality
    check([row])
    if sample.raw.startswith("{"):
        # Names of parameters become keys; a table's name loses its first word, a name its dot.
        gone = {
            word
            for word in lost(sample.raw.encode(), [row])
            if word not in (row["unmapped"] or "")
            and not word.startswith("1772442000")
            and word.lower() not in ("udp", "tcp")
            and not word.isdecimal()
        }
        assert {word for word in gone if "AdvancedHunting" not in word} <= {
            *("evil.example.", "doc_id", "doc_title", "USER_EMAIL", "login_type"),
            *("000D3AF8801A", "002248712345", "CORP\\ann"),
            *("login_failure_type", "Event_RemoteResponseSessionStartEvent"),
        }


@pytest.mark.parametrize("sample", SAMPLES, ids=[f"{s.source}-{i}" for i, s in enumerate(SAMPLES)])
def test_odd_values_and_cut_lines_stop_no_parser(sample: Sample) -> None:
    chance = Random(11)
    if sample.raw.startswith("{"):
        whole = json.loads(sample.raw)
        raws = [json.dumps(spoilt(whole, chance)).encode() for _ in range(40)]
    else:
        raws = [sample.raw[: chance.randrange(len(sample.raw))].encode() for _ in range(40)]
    found = rows(sample.source, *raws)
    assert [one for one in found if "failed:" in str(one.get("dead_letter_reason"))] == []
    check([one for one in found if one.get("dead_letter_reason") is None])


@pytest.mark.parametrize("sample", SAMPLES, ids=[f"{s.source}-{i}" for i, s in enumerate(SAMPLES)])
def test_a_restamped_record_is_the_same_at_another_time(sample: Sample) -> None:
    source = lookup(sample.source)
    if sample.source == "google_workspace" or sample.raw.startswith('{"value"'):
        return  # its time stands inside of `id`
    raw = source.restamp(sample.raw.encode(), NOW, NOW.tzinfo)  # type: ignore[arg-type]
    row, before = good(sample.source, raw.decode()), good(sample.source, sample.raw)
    assert row["class_uid"] == before["class_uid"]
    if "Timestamp" not in sample.raw and "lastTimestamp" not in sample.raw:
        assert row["time"].replace(microsecond=0) == NOW


def test_a_client_forges_nothing_in_lines_of_aws() -> None:
    text = 'x" 200 200 6.6.6.6:1 "'.replace('"', '\\"')
    line = next(s for s in SAMPLES if s.source == "aws_elb").raw.replace("curl/7.46.0", text)
    row = good("aws_elb", line)
    assert (row["src_ip"], row["dst_ip"]) == (IP, "10.0.0.1")
    assert row["http_request"]["user_agent"] == 'x" 200 200 6.6.6.6:1 "'


def test_a_name_forges_nothing_in_check_points_fields() -> None:
    name = 'x"; src:"6.6.6.6"; action:"Accept"; y:"'
    head = '<134>1 2026-03-02T09:00:01Z gw1 CheckPoint 1 - [action:"Drop"; time:"1772442000"; '
    rest = 'src:"10.0.0.5"; dst:"203.0.113.9"]'
    escaped = name.replace('"', '\\"')
    row = good("checkpoint", f'{head}user:"{escaped}"; {rest}')
    assert (row["src_ip"], row["status_id"], row["user_name"]) == ("10.0.0.5", 2, name)
    # An exporter that does not escape leaves it open which is its own: neither counts.
    row = good("checkpoint", f'{head}user:"{name}"; {rest}')
    assert row.get("src_ip") is None
    assert json.loads(row["unmapped"])["ambiguous"] is True


def test_each_flow_and_each_activity_of_a_record_is_an_event() -> None:
    texts = [f"1772442000,{IP},10.0.0.4,{port},22,T,I,A" for port in range(1, 4)]
    nsg = {"properties": {"Version": 1, "flows": [{"rule": "r", "flows": [{"mac": "", "flowTuples":
           [texts[0], "1772442000,6.6.6.6", 7, *texts[1:]]}]}]}}  # fmt: skip
    found = rows("azure_flow", js(records=[nsg, nsg]).encode())
    assert [row["src_endpoint"]["port"] for row in found if row["class_uid"]] == [1, 2, 3] * 2
    assert len([row for row in found if row.get("dead_letter_reason")]) == 4
    activity = ACTIVITY | {"events": [ACTIVITY["events"][0], {"name": "logout", "type": "login"}]}
    many = rows("google_workspace", js(items=[activity]).encode())
    assert [row["activity_id"] for row in many] == [1, 2]
