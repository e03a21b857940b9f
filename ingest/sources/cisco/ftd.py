"""Firepower's own messages, 430001 to 430005: `Key: value, Key: value`.

https://www.cisco.com/c/en/us/td/docs/security/firepower/Syslogs/b_fptd_syslog_guide/security-event-syslog-messages.html
A value may hold commas, and URLs, user agents and file names are chosen by others:
a value ends only before a key that Firepower is known to write, and what an
endpoint is stands before all of those.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from ingest.parsing.ocsf import (
    A_FILE,
    A_HASH,
    A_HOST,
    A_URL,
    AN_AGENT,
    FINDING,
    NETWORK,
    device,
    kept,
    metadata,
    unmapped,
)
from ingest.parsing.source import Event
from ingest.parsing.timestamps import Stamp
from ingest.sources.shared.device_header import Header
from ingest.sources.shared.firewall import (
    CLOSE,
    OPEN,
    REFUSE,
    Fields,
    connection,
    endpoint,
    ends_seen,
    firewall_disposition,
    located,
    severity,
    split_user,
    traffic,
    verdict,
)
from ingest.sources.shared.http_exchange import url
from ingest.sources.shared.key_values import put

_KEYS = """
    AccessControlRuleAction AccessControlRuleName AccessControlRuleReason ACPolicy
    ApplicationProtocol Classification Client ClientAppDetector ClientVersion ConnectionDuration
    ConnectionID DNS_Sinkhole DNS_TTL DNSQuery DNSRecordType DNSResponseType DNSSICategory
    DestinationSecurityGroup DestinationSecurityGroupTag DestinationSecurityGroupType DstIP
    DstPort DstVRF DeviceUUID EgressInterface EgressVRF EgressZone
    EncryptedVisibilityConfidenceScore EncryptedVisibilityFingerprint
    EncryptedVisibilityProcessConfidenceScore EncryptedVisibilityProcessName
    EncryptedVisibilityThreatConfidence EventPriority FileAction FileCount FileDirection
    FileName FilePolicy FileSandboxStatus FileSHA256 FileSize FileStaticAnalysisStatus
    FileStorageStatus FileType FirstPacketSecond GID HTTPReferer HTTPResponse HTTP_Hostname
    HTTP_URI HitCount ICMPCode ICMPType IPReputationSICategory IPSCount IngressInterface
    IngressVRF IngressZone InitiatorBytes InitiatorPackets InlineResult InlineResultReason
    InstanceID InterceptedMessage IntrusionPolicy Message MPLS_Label MITRE NAPPolicy
    NAT_InitiatorIP NAT_InitiatorPort NAT_ResponderIP NAT_ResponderPort NetBIOSDomain NumIOC
    OriginalClientSrcIP Priority Protocol QoS-AppliedInterface QoS-Policy QoS-RuleName Reason
    ReferencedHost ResponderBytes ResponderPackets Revision SHA_Disposition SID SSHVersion
    SSLActualAction SSLCertificate SSLCipherSuite SSLExpectedAction SSLFlowStatus SSLPolicy
    SSLRuleName SSLServerCertStatus SSLServerName SSLSessionID SSLTicketID SSLURLCategory
    SSLVersion SecIntMatchingIP SecurityZone Snort SperoDisposition SrcIP SrcPort SrcVRF
    SourceSecurityGroup SourceSecurityGroupTag SourceSecurityGroupType ThreatName ThreatScore
    TunnelOrPrefilterRule URI URL URLCategory URLReputation URLSICategory User UserAgent VLAN_ID
    WebApplication ArchiveDepth ArchiveFileName ArchiveFileStatus ArchiveSHA256
    ClientAppDetector EventType EndpointProfile SslRuleName RuleGroup VRF ClientDetectorType
"""
KEYS = frozenset(_KEYS.split()) | {
    "Prefilter Policy",
    "Endpoint Profile",
    "Tunnel or Prefilter Rule",
    "Prefilter Rule",
}
_PAIR = re.compile(r"(?:^|, ?)(?P<key>[A-Z][\w-]{1,50}|[A-Z]\w+(?: \w+){1,4}):(?: |$)")
"""A key; spaces are in the names of a few only."""
_NO_USER = frozenset({"No Authentication Required", "Not Found", "Unknown", "No Authentication"})
_LONGEST = 65536


def _pairs(text: str) -> Fields:
    """The values by key; of a key that stands twice the first counts, the second is kept apart."""
    fields = Fields()
    # A word with a colon in a URL or a user agent is none of these keys, and ends nothing.
    position = [match for match in _PAIR.finditer(text) if match["key"] in KEYS]
    for here, there in zip(position, [*position[1:], None], strict=False):
        value = text[here.end() : there.start() if there else len(text)]
        put(fields, here["key"], value.strip())
    return fields


def ftd_event(
    uid: str, level: int, text: str, header: Header, stamp: Stamp, product: Mapping[str, str]
) -> Event | None:
    """A connection, intrusion, file or malware event; None where the text is none."""
    if len(text) > _LONGEST:
        return None
    fields = _pairs(text)
    # Without either end it is no event of these, and its words stand as they are.
    if not fields.keys() & {"SrcIP", "DstIP"}:
        return None
    number = fields.text("ConnectionID")
    common: dict[str, Any] = {
        "metadata": metadata(product, stamp, event_code=uid, correlation_uid=number),
        "device": device(header.host) or _by_uuid(fields),
    }
    source = endpoint(
        ip=fields.ip("SrcIP"),
        port=fields.port("SrcPort"),
        interface_name=fields.text("IngressInterface"),
        zone=fields.text("IngressZone"),
    )
    target = endpoint(
        ip=fields.ip("DstIP"),
        port=fields.port("DstPort"),
        interface_name=fields.text("EgressInterface"),
        zone=fields.text("EgressZone"),
    )
    named = fields.get("User")
    # Firepower writes these words in place of a user.
    user = None if named in _NO_USER else split_user(fields.text("User"))
    common |= {
        "src_endpoint": source,
        "dst_endpoint": target,
        "actor": {"user": user} if user else None,
        "connection_info": connection(
            fields.text("Protocol"), (source or {}).get("ip"), uid=number
        ),
        "app_name": fields.text("ApplicationProtocol"),
    }
    if uid in ("430001", "430004", "430005"):
        return _finding(uid, fields, header, stamp, common, user)
    return _connection(uid, fields, header, stamp, common, user)


def _by_uuid(fields: Fields) -> dict[str, Any] | None:
    uid = fields.get("DeviceUUID")
    return {"uid": uid, "type_id": 0} if uid else None


def _exchange(
    fields: Fields, common: Mapping[str, Any]
) -> tuple[dict[str, Any] | None, dict[str, Any] | None]:
    """The request and response that Firepower saw inside of a connection."""
    spoken = str(common["app_name"] or "").lower()
    target, host = fields.text("URL"), fields.get("ReferencedHost")
    link = None
    if target:
        # Of HTTPS only the host of the certificate is known, and no scheme is written.
        whole = target if "://" in target[:12] or target[:1] == "/" else f"http://{target}"
        link = url(whole, host=host if type(host) is str else None)
        if link and whole != target:
            link |= {"url_string": target, "scheme": "https" if "https" in spoken else None}
        if link and link["hostname"] == host:
            del fields["ReferencedHost"]
    request = kept(
        user_agent=fields.text("UserAgent"), referrer=fields.text("HTTPReferer"), url=link
    )
    code = fields.number("HTTPResponse", most=999)
    return request or None, None if not code else {"code": code}


def _connection(
    uid: str,
    fields: Fields,
    header: Header,
    stamp: Stamp,
    common: dict[str, Any],
    user: Mapping[str, Any] | None,
) -> Event:
    """The start (430002) or end (430003) of a connection."""
    action = fields.text("AccessControlRuleAction")
    # Some releases have a line break of HTML in front.
    allowed = verdict((action or "").removeprefix("<br/>").strip())
    source, target = common["src_endpoint"], common["dst_endpoint"]
    seconds = fields.number("ConnectionDuration")
    rule = kept(name=fields.text("AccessControlRuleName"), desc=fields.text("ACPolicy"))
    request, response = _exchange(fields, common)
    link = (request or {}).get("url") or {}
    numbers = [
        fields.number(name)
        for name in ("InitiatorBytes", "ResponderBytes", "InitiatorPackets", "ResponderPackets")
    ]
    # A word such as `Block with reset` says more than the verdict, so it stays as well.
    if (action and allowed is None) or (action and action not in ("Allow", "Block")):
        fields["AccessControlRuleAction"] = action
    return located(
        NETWORK,
        REFUSE if allowed is False else OPEN if uid == "430002" else CLOSE,
        stamp,
        severity_id=severity(fields.text("EventPriority")),
        **firewall_disposition(allowed),
        status_detail=fields.text("AccessControlRuleReason"),
        message=f"Connection {'started' if uid == '430002' else 'ended'}: {action or '?'}"
        + (f" ({rule['name']})" if "name" in rule else ""),
        traffic=traffic(*numbers),
        duration=None if seconds is None else seconds * 1000,
        http_request=request,
        http_response=response,
        firewall_rule=rule or None,
        observables=ends_seen(
            source,
            target,
            user,
            ("http_request.url.url_string", A_URL, link.get("url_string")),
            ("http_request.url.hostname", A_HOST, link.get("hostname")),
            ("unmapped.ReferencedHost", A_HOST, fields.get("ReferencedHost")),
            ("http_request.user_agent", AN_AGENT, (request or {}).get("user_agent")),
            ("unmapped.DNSQuery", A_HOST, fields.get("DNSQuery")),
        ),
        **common,
        unmapped=unmapped(header.rest | fields.left()),
    )


def _finding(
    uid: str,
    fields: Fields,
    header: Header,
    stamp: Stamp,
    common: dict[str, Any],
    user: Mapping[str, Any] | None,
) -> Event:
    """An intrusion (430001), a file (430004) or malware (430005)."""
    source, target = common["src_endpoint"], common["dst_endpoint"]
    result = fields.get("InlineResult") or fields.get("FileAction")
    allowed = verdict(result) if result else None
    sid, revision = fields.text("SID"), fields.text("Revision")
    threat = fields.get("ThreatName")
    title = (fields.text("Message") or "").strip('"') or threat or fields.get("FileAction")
    path, sha = fields.text("FileName"), fields.text("FileSHA256")
    file = kept(
        path=path,
        size=fields.number("FileSize"),
        hashes=[{"algorithm": "SHA-256", "value": sha}] if sha else None,
    )
    category = fields.text("Classification")
    level = fields.text("EventPriority")
    number = fields.number("Priority", most=4)
    # Snort's priorities, of which 1 is the highest, where the event brings none of its own.
    severity_id = severity(level) if level else {1: 4, 2: 3, 3: 2}.get(number or 0, 1)
    if uid == "430005" and not level:
        severity_id = 4 if fields.get("SHA_Disposition") == "Malware" else 2
    # A finding's status tells how far people are with it, not what the firewall did.
    decision = {
        key: value for key, value in firewall_disposition(allowed).items() if key != "status_id"
    }
    return located(
        FINDING,
        1,
        stamp,
        severity_id=severity_id,
        **decision,
        message=title,
        finding_info={
            "uid": sid or uid,
            "title": title or uid,
            "types": [category] if category else None,
            "created_time": stamp.time,
            "analytic": kept(
                uid=sid or uid, name=title, version=revision, category=category, type_id=1
            ),
        },
        file=file or None,
        firewall_rule=kept(name=fields.text("AccessControlRuleName"), desc=fields.text("ACPolicy"))
        or None,
        # That a file was seen is no alert by itself.
        more={"is_alert": uid != "430004"},
        observables=ends_seen(
            source, target, user, ("file.name", A_FILE, path), ("file.hashes", A_HASH, sha)
        ),
        **common,
        unmapped=unmapped(header.rest | fields.left()),
    )
