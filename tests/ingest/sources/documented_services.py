"""Records of Defender XDR, CrowdStrike, Cloudflare Gateway and AWS's network load balancer."""

from __future__ import annotations

from typing import Any

from tests.ingest.sources.documented_records import IP, USER, Sample, js

_TIME = "2026-03-02T09:00:00.1234567Z"
_WHO = {
    "AccountName": "ann",
    "AccountDomain": "corp.example",
    "AccountUpn": USER,
    "AccountSid": "S-1-5-21-1",
    "AccountObjectId": "o1",
    "AccountDisplayName": "Ann Lee",
}
_MAIL = {
    "NetworkMessageId": "n1",
    "InternetMessageId": "<m1@a.example>",
    "SenderFromAddress": "bob@a.example",
    "SenderMailFromAddress": "bounce@a.example",
    "RecipientEmailAddress": USER,
    "ReportId": "n1-1",
}


def _row(table: str, **fields: Any) -> str:
    """A row as the streaming API wraps it."""
    return js(
        time="2026-03-02T09:00:05Z",
        tenantId="t1",
        category=f"AdvancedHunting-{table}",
        properties={"Timestamp": _TIME} | fields,
    )


def _streamed(kind: str, **event: Any) -> str:
    metadata = {"customerIDString": "c1", "offset": 70689, "eventType": kind, "version": "1.0"}
    return js(metadata=metadata | {"eventCreationTime": 1772442000000}, event=event)


_FIREWALL: dict[str, Any] = {
    "DeviceId": "5c",
    "CustomerId": "c1",
    "Ipv": "ipv4",
    "CommandLine": "nginx -g x",
    "EventType": "FirewallRuleIP4Matched",
    "Flags": {"Audit": False, "Log": False, "Monitor": True},
    "HostName": "PC1",
    "ICMPCode": "",
    "ImageFileName": "/usr/bin/nginx",
    "LocalAddress": "10.0.0.5",
    "LocalPort": "445",
    "MatchCount": 1,
    "NetworkProfile": "2",
    "PID": "206158879910",
    "PolicyName": "PROD",
    "Protocol": "6",
    "RemoteAddress": IP,
    "RemotePort": "54952",
    "RuleGroupName": "SMB rules",
    "RuleName": "Inbound SMB",
    "RuleId": "4877172638743447345",
    "Timestamp": "2026-03-02T08:59:58Z",
}
_LOGON = {
    "ActionType": "LogonFailed",
    "Application": "Active Directory",
    "LogonType": "Credentials validation",
    "Protocol": "Ntlm",
    "FailureReason": "WrongPassword",
    "DeviceName": "pc1.corp.example",
    "IPAddress": "10.0.0.5",
    "Port": 51234,
    "DestinationDeviceName": "dc1.corp.example",
    "DestinationIPAddress": "10.0.0.1",
    "DestinationPort": 88,
    "TargetDeviceName": "srv1",
    "ReportId": "r1",
}
_CLICK = {
    "Url": "https://evil.example/a?b=c",
    "ActionType": "ClickBlocked",
    "AccountUpn": USER,
    "Workload": "Email",
    "NetworkMessageId": "n1",
    "ThreatTypes": "Phish",
    "IPAddress": IP,
    "IsClickedThrough": False,
    "UrlChain": '["https://evil.example/a?b=c"]',
    "ReportId": "r2",
}
_APP: dict[str, Any] = {
    "Application": "Microsoft Exchange Online",
    "ApplicationId": 20893,
    "AccountObjectId": "o1",
    "AccountDisplayName": "Ann Lee",
    "AccountType": "Regular",
    "IsAdminOperation": False,
    "IPAddress": IP,
    "CountryCode": "DE",
    "UserAgent": "curl/8",
    "ReportId": "r3",
}
_DNS: dict[str, Any] = {
    "Datetime": "2026-03-02T09:00:00Z",
    "QueryName": "evil.example",
    "QueryType": 28,
    "RCode": 0,
    "SrcIP": "10.0.0.5",
    "SrcPort": 51234,
    "DstIP": "172.64.36.1",
    "DstPort": 53,
    "Protocol": "udp",
    "Location": "office",
    "QueryCategoryIDs": [80, 117],
    "MatchedCategoryIDs": [80],
    "QueryID": "q1",
}
_TLS = (
    "net/my-lb/c6e77e28c25b2234 g3d4b5e8bb8464cd 203.0.113.9:51341 10.0.0.1:443 5 2 98 246 - "
    "arn:aws:acm:us-east-2:671290407336:certificate/2a108f19 - ECDHE-RSA-AES128-SHA tlsv12 - "
    "h.example"
)
SAMPLES = [
    # -- Defender XDR: identities
    Sample("defender_endpoint", _row("IdentityLogonEvents", **_LOGON, **_WHO),
           (3002, 1, 2, "10.0.0.5", "10.0.0.1", "ann"),
           {"user.domain": "corp.example", "user.email_addr": USER, "auth_protocol": "Ntlm",
            "status_detail": "WrongPassword", "src_endpoint.hostname": "pc1.corp.example",
            "dst_endpoint.hostname": "dc1.corp.example", "service.name": "Active Directory"}),
    # As a query exports it, without its table's name.
    Sample("defender_endpoint",
           js(Timestamp=_TIME, **_LOGON | {"ActionType": "LogonSuccess",
                                           "LogonType": "Remote interactive (RDP) logons"}, **_WHO),
           (3002, 1, 1, "10.0.0.5", "10.0.0.1", "ann"), {"logon_type_id": 10}),
    Sample("defender_endpoint",
           _row("IdentityDirectoryEvents", ActionType="Account Password changed",
                Application="Active Directory", TargetAccountUpn="bob@example.com",
                TargetAccountDisplayName="Bob", DestinationDeviceName="dc1", **_WHO),
           (3001, 3, 1, None, None, "bob@example.com"), {"actor.user.name": "ann"}),
    Sample("defender_endpoint",
           js(TimeGenerated=_TIME, Type="IdentityDirectoryEvents", IPAddress="10.0.0.5",
              ActionType="Group Membership changed", TargetAccountUpn="bob@example.com",
              AdditionalFields='{"TO.GROUP": "Domain Admins", "ACTOR.ACCOUNT": "ann"}', **_WHO),
           (3006, 3, 1, "10.0.0.5", None, "bob@example.com"), {"group.name": "Domain Admins"}),
    Sample("defender_endpoint",
           _row("IdentityQueryEvents", ActionType="LDAP query", QueryType="AllUsers",
                Query="LDAP query on domain", QueryTarget="corp.example", Protocol="Ldap",
                IPAddress="10.0.0.5", DestinationIPAddress="10.0.0.1", **_WHO),
           (6003, 2, 1, "10.0.0.5", "10.0.0.1", "ann"), {"api.operation": "LDAP query"}),
    # -- Defender XDR: mail
    Sample("defender_endpoint",
           _row("EmailEvents", **_MAIL, Subject="Invoice", EmailDirection="Inbound",
                DeliveryAction="Blocked", DeliveryLocation="Quarantine", SenderIPv4=IP,
                ThreatTypes="Phish", AuthenticationDetails='{"SPF":"fail"}', AttachmentCount=1),
           (4009, 2, 2, IP, None, None),
           {"email.from": "bob@a.example", "email.to": [USER], "email.subject": "Invoice",
            "email.message_uid": "<m1@a.example>", "action_id": 2, "severity_id": 3,
            "status_detail": "Quarantine"}),
    Sample("defender_endpoint",
           js(TimeGenerated=_TIME, Type="EmailEvents", **_MAIL, Subject="Hi", DeliveryAction=
              "Delivered", DeliveryLocation="Inbox/folder", EmailDirection="Intra-org"),
           (4009, 1, 1, None, None, None), {"action_id": None}),
    Sample("defender_endpoint",
           js(Timestamp=_TIME, **_MAIL, FileName="a.exe", FileType="Executable",
              SHA256="a" * 64, FileSize=7, ThreatTypes="Malware"),
           (4009, 3, 1, None, None, None), {"email.uid": "n1", "severity_id": 3}),
    Sample("defender_endpoint",
           _row("EmailUrlInfo", NetworkMessageId="n1", Url="https://evil.example/a",
                UrlDomain="evil.example", UrlLocation="Body", ReportId="r"),
           (4009, 3, 1, None, None, None)),
    Sample("defender_endpoint",
           _row("EmailPostDeliveryEvents", **_MAIL, Action="Moved to quarantine",
                ActionType="Phish ZAP", ActionTrigger="ZAP", ActionResult="Success"),
           (4009, 4, 1, None, None, None), {"metadata.event_code": "Phish ZAP"}),
    Sample("defender_endpoint", _row("UrlClickEvents", **_CLICK), (4002, 0, 2, IP, None, USER),
           {"http_request.url.hostname": "evil.example", "action_id": 2, "disposition_id": 2,
            "metadata.correlation_uid": "n1"}),
    Sample("defender_endpoint",
           js(Timestamp=_TIME, **_CLICK | {"ActionType": "ClickBlocked", "IsClickedThrough": True}),
           (4002, 0, 1, IP, None, USER), {"action_id": 1}),
    # -- Defender XDR: cloud apps
    Sample("defender_endpoint",
           _row("CloudAppEvents", **_APP, ActionType="New-InboxRule", ObjectName="fwd",
                ObjectType="Rule", ObjectId="i1",
                RawEventData={"UserId": USER, "ResultStatus": "True", "Workload": "Exchange"}),
           (6003, 1, 1, IP, None, USER),
           {"api.operation": "New-InboxRule", "http_request.user_agent": "curl/8",
            "api.service.name": "Microsoft Exchange Online", "src_endpoint.country": "DE"}),
    Sample("defender_endpoint",
           _row("CloudAppEvents", **_APP, ActionType="FileDownloaded", ObjectName="plan.docx",
                ObjectId="https://x.example/plan.docx",
                RawEventData='{"UserId": "ann@example.com", "Workload": "SharePoint"}'),
           (6006, 2, 1, IP, None, USER), {"file.name": "plan.docx"}),
    Sample("defender_endpoint",
           js(Timestamp=_TIME, **_APP, ActionType="UserLoginFailed",
              RawEventData={"UserId": USER, "ResultStatus": "Failed"}),
           (3002, 1, 2, IP, None, USER)),
    # -- CrowdStrike: the host's firewall and remote response, by the stream and the replicator
    Sample("crowdstrike",
           _streamed("FirewallMatchEvent", **_FIREWALL, ConnectionDirection="1", RuleAction="2"),
           (4001, 5, 2, IP, "10.0.0.5", None),
           {"dst_endpoint.port": 445, "firewall_rule.name": "Inbound SMB", "action_id": 2,
            "connection_info.direction_id": 1, "actor.process.cmd_line": "nginx -g x",
            "device.hostname": "PC1", "metadata.event_code": "FirewallMatchEvent"}),
    Sample("crowdstrike",
           _streamed("FirewallMatchEvent", **_FIREWALL, ConnectionDirection="2", RuleAction="1"),
           (4001, 1, 1, "10.0.0.5", IP, None),
           {"connection_info.direction_id": 2, "connection_info.protocol_name": "tcp"}),
    *(
        Sample("crowdstrike",
               _streamed(f"RemoteResponseSession{word}Event", SessionId="s1", HostnameField="PC1",
                         UserName=USER, **{f"{word}Timestamp": 1772442000}),
               (3002, activity, 1, None, None, USER),
               {"device.hostname": "PC1", "session.uid": "s1"})
        for word, activity in (("Start", 1), ("End", 2))
    ),
    Sample("crowdstrike",
           js(ExternalApiType="Event_RemoteResponseSessionStartEvent", SessionId="s1",
              EventType="Event_ExternalApiEvent", AgentIdString="5c", HostnameField="PC1",
              UserName=USER, UTCTimestamp=1772442000000, cid="c1", eid=118),
           (3002, 1, 1, None, None, USER), {"device.uid": "5c"}),
    # -- Cloudflare's Gateway: the resolver's decision as a number and as a word, and GraphQL's row
    Sample("cloudflare",
           js(**_DNS, ResolverDecision=9, PolicyID="p1", PolicyName="block threats"),
           (4003, 2, 1, "10.0.0.5", "172.64.36.1", None),
           {"query.type": "AAAA", "metadata.event_code": "blockedRule", "action_id": 2,
            "firewall_rule.name": "block threats"}),
    Sample("cloudflare",
           js(**_DNS, ResolverDecision="allowedOnNoPolicyMatch", ResolvedIPs=[IP],
              CNAMEs=["a.example"], Email=USER),
           (4003, 2, 1, "10.0.0.5", "172.64.36.1", USER),
           {"answers": [{"rdata": "a.example", "type": "CNAME"}, {"rdata": IP, "type": "A"}],
            "action_id": 1}),
    Sample("cloudflare",
           js(datetime="2026-03-02T09:00:00Z", queryName="evil.example", resolverDecision=7,
              queryCategoryIds=[80], srcIp="10.0.0.5"),
           (4003, 1, None, "10.0.0.5", None, None),
           {"action_id": 4, "metadata.event_code": "overrideForSafeSearch"}),
    # -- AWS's network load balancer: before and after ALPN, and without an agreed cipher
    Sample("aws_elb", f"tls 1.0 2026-03-02T09:00:00 {_TLS}", (4001, 2, 1, IP, "10.0.0.1", None),
           {"tls.cipher": "ECDHE-RSA-AES128-SHA", "tls.sni": "h.example", "duration": 5}),
    Sample("aws_elb",
           f'tls 2.0 2026-03-02T09:00:00 {_TLS} h2 - "h2","http/1.1" 2026-03-02T08:59:50',
           (4001, 2, 1, IP, "10.0.0.1", None),
           {"traffic.bytes_out": 98, "traffic.bytes_in": 246, "tls.version": "tlsv12"}),
    Sample("aws_elb",
           "tls 2.0 2026-03-02T09:00:00 net/my-lb/c6e7 g3d4 203.0.113.9:51341 10.0.0.1:443 5 - 0 0 "
           "40 - - - - - - - - - 2026-03-02T08:59:50",
           (4001, 4, 2, IP, "10.0.0.1", None)),
]  # fmt: skip
"""Of several forms and versions each, written for these tests after the products' documents."""
