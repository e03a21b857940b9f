"""Common Event Format (ArcSight) and LEEF (QRadar), which many products can write.

https://www.microfocus.com/documentation/arcsight/arcsight-smartconnectors-8.4/cef-implementation-standard/
and https://www.ibm.com/docs/en/dsm?topic=overview-leef-event-components . In a CEF
extension a value runs to the next ` key=`, and an equals sign in it is written `\\=`.
A product that does not escape lets others write keys: an address or a user that stands
twice with two values is therefore neither, and the event is marked `ambiguous`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import suppress
from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo

from ingest.parsing.field_lookup import read_moment
from ingest.parsing.ocsf import (
    A_FILE,
    A_HASH,
    A_HOST,
    A_URL,
    A_USER,
    AN_AGENT,
    AUTHENTICATION,
    BASE,
    FAILURE,
    FINDING,
    HTTP,
    HTTP_METHODS,
    NETWORK,
    OTHER,
    SUCCESS,
    TUNNEL,
    UNKNOWN,
    kept,
    metadata,
    unmapped,
)
from ingest.parsing.source import Context, Event, Record, Source, Unreadable
from ingest.parsing.syslog import one_line
from ingest.parsing.timestamps import (
    EPOCH,
    Stamp,
    like_iso,
    month_number,
    stamp_epoch,
    stamp_iso,
    stamp_parts,
)
from ingest.sources.generic.cef_leef_syntax import CefHeader, of_cef, of_leef
from ingest.sources.generic.cef_panos import is_login, usual_keys
from ingest.sources.shared.device_header import (
    OFFSETS,
    Header,
    each_line,
    read_header,
    restamp_header,
)
from ingest.sources.shared.firewall import (
    INBOUND,
    OPEN,
    OUTBOUND,
    REFUSE,
    TRAFFIC,
    Fields,
    connection,
    endpoint,
    ends_seen,
    file_hash,
    firewall_disposition,
    located,
    severity,
    split_user,
    traffic,
    verdict,
)
from ingest.sources.shared.key_values import certain

# Not behind a letter or dot, so that a host's or a program's name cannot end in it.
MARK = re.compile(r"(?<![\w.])(?:CEF: ?(?P<cef>\d)|LEEF: ?(?P<leef>[12]\.0))\|")
# The mark is looked for only so far: in a long value it would be somebody's text.
_LONGEST_HEADER = 1024
_DATE = re.compile(
    r"(?P<month>[A-Z][a-z]{2}) (?P<day>\d{1,2})(?: (?P<year>\d{4}))? (?P<clock>\d\d:\d\d:\d\d"
    r"(?:\.\d{1,9})?)(?: (?P<zone>[A-Z]{3,4}|(?:GMT|UTC)?[+-]\d\d:?\d\d))?",
    re.ASCII,
)
# Words of the event's name or class; matched whole, so that `blogindex` is no login.
_LOGIN = re.compile(
    r"(?<![a-z])(?:log[ -_]?[io]n|logged (?:in|on)|sign[ -]?in|logon|authenticat\w+|"
    r"log[ -]?(?:out|off)|logged (?:out|off)|sign[ -]?out)(?![a-z])",
    re.IGNORECASE,
)
LOGOUT = re.compile(r"log[ -]?(?:out|off)|logged (?:out|off)|sign[ -]?out", re.IGNORECASE)
_FAILED = re.compile(
    r"fail|den(?:y|ied)|reject|invalid|unsuccessful|bad |wrong|error", re.IGNORECASE
)
_TUNNEL = re.compile(
    r"(?:.* )?(?:globalprotect|gateway-(?:connected|logout|tunnel|config)\S*|portal-\S+|"
    r"vpn (?:connect|disconnect|tunnel)\w*)(?: .*)?",
    re.IGNORECASE,
)
THREAT = re.compile(
    r"threat|virus|malware|trojan|spyware|exploit|attack|intrusion|ransom|botnet|phish|ips|ids"
    r"|vulnerab|wildfire|signature",
    re.IGNORECASE,
)
LABELLED = re.compile(
    r"(?:cs|cn|cfp|c6a|flexString|flexNumber|flexDate|deviceCustomDate)\d", re.ASCII
)
_CHOSEN = """
    src dst spt dpt smac dmac shost dhost suser duser act outcome dvchost rt
"""
CHOSEN = _CHOSEN.split()
"""Keys that must not stand twice with two values: others may have written one of them."""


# -- values ------------------------------------------------------------------------------------


def stamp_of(fields: Fields, header: Header, context: Context) -> Stamp:
    """When it happened: what the event itself says, else the header, else the arrival."""
    zone_name = fields.get("dtz")
    received_at = context.record.received_at
    host = fields.get("dvchost") or header.host
    zone = context.zone(host if type(host) is str else None)
    if type(zone_name) is str and re.fullmatch(r"[A-Za-z_]+/[A-Za-z_/]+|UTC|GMT", zone_name):
        # Of a zone that no one knows, what is configured holds.
        with suppress(ValueError, OSError, KeyError):
            zone = ZoneInfo(zone_name)
    # FortiGate's own, in nanoseconds; its `start` is FortiAnalyzer's local time.
    exact = stamp_epoch(fields.get("FTNTFGTeventtime"), received_at)
    if exact.quality == "exact":
        del fields["FTNTFGTeventtime"]
        return exact
    for name in ("rt", "start", "end", "startTime", "endTime", "deviceReceiptTime"):
        value = fields.get(name)
        stamp = _of(value, zone, received_at) if type(value) is str else None
        if stamp is not None and stamp.quality != "received":
            del fields[name]
            return stamp
    return header.stamp or Stamp.missing(received_at, None)


def _of(value: str, zone: ZoneInfo, received_at: datetime) -> Stamp:
    if value.replace(".", "", 1).isdecimal():
        return stamp_epoch(value, received_at)
    match = _DATE.fullmatch(value)
    if match is None:
        # Cisco's ESA writes `Mon Mar  2 09:00:00 2026`.
        spoken = read_moment(value.replace("  ", " "), zone, received_at)
        return spoken or stamp_iso(value, zone, received_at)
    named = match["zone"] or ""
    offset = named.removeprefix("GMT").removeprefix("UTC") or OFFSETS.get(named)
    if offset and offset.isalpha():
        offset = OFFSETS.get(named)
    return stamp_parts(
        # CEF's usual form of a time has no year.
        int(match["year"] or received_at.year),
        month_number(match["month"]),
        int(match["day"]),
        match["clock"],
        zone,
        received_at,
        original=value,
        offset=offset,
    )


def labelled(fields: Fields) -> None:
    """`cs1=x cs1Label=Rule` becomes `Rule=x`; what is there already is not replaced."""
    for key in [key for key in fields if LABELLED.fullmatch(key)]:
        label = fields.get(f"{key}Label")
        # A label is free text: it must not take the place of one of the format's own keys.
        if type(label) is str and label and label not in fields:
            del fields[f"{key}Label"]
            fields[label] = fields.pop(key)


def _level(text: str) -> int:
    """CEF's severity, 0 to 10 or a word."""
    if text.strip().isdecimal() and len(text.strip()) < 4:
        number = int(text)
        return (
            1
            if number == 0
            else 2
            if number <= 3
            else 3
            if number <= 6
            else 4
            if number <= 8
            else 5
        )
    return severity(text, 0) if text and text.lower() != "unknown" else 0


def _rule(fields: Fields) -> dict[str, Any] | None:
    name = fields.text("Rule", "Rule Name", "Rule name", "rule", "Policy", "PolicyName", "policy")
    return kept(name=name, uid=fields.text("rule_uid", "Rule UUID", "ruleId")) or None


def _ends(fields: Fields) -> tuple[dict[str, Any] | None, dict[str, Any] | None]:
    ipv6 = "Source IPv6 Address", "Destination IPv6 Address"
    return (
        endpoint(
            ip=fields.ip("src", "sourceAddress", "c6a2", ipv6[0], "PanOSPublicIPv4"),
            port=fields.port("spt", "sourcePort"),
            mac=fields.mac("smac", "sourceMacAddress"),
            hostname=fields.text("shost", "sourceHostName"),
            domain=fields.text("sntdom", "sourceNtDomain"),
            interface_name=fields.text("deviceInboundInterface"),
            zone=fields.text("Source Zone", "inzone", "sourceZoneURI"),
        ),
        endpoint(
            ip=fields.ip("dst", "destinationAddress", "c6a3", ipv6[1]),
            port=fields.port("dpt", "destinationPort"),
            mac=fields.mac("dmac", "destinationMacAddress"),
            hostname=fields.text("dhost", "destinationHostName"),
            domain=fields.text("dntdom", "destinationNtDomain"),
            interface_name=fields.text("deviceOutboundInterface"),
            zone=fields.text("Destination Zone", "outzone", "destinationZoneURI"),
        ),
    )


def _user(fields: Fields, side: str) -> dict[str, Any] | None:
    long = "source" if side == "s" else "destination"
    user = split_user(fields.text(f"{side}user", f"{long}UserName")) or {}
    uid = fields.text(f"{side}uid", f"{long}UserId")
    account = user | kept(uid=uid)
    return account or None


def _file(fields: Fields) -> dict[str, Any] | None:
    path, name = fields.text("filePath"), fields.text("fname", "fileName")
    hashes = file_hash(fields.get("fileHash"))
    if hashes:
        del fields["fileHash"]
    leaves = kept(path=path, name=name, hashes=hashes, size=fields.number("fsize", "fileSize"))
    return leaves if {"path", "name", "hashes"} & leaves.keys() else None


def _request(fields: Fields) -> dict[str, Any] | None:
    url = fields.get("request", fields.get("requestURL"))
    method = fields.get("requestMethod")
    if not (type(url) is str and url) and not (
        type(method) is str and method.upper() in HTTP_METHODS
    ):
        return None
    url = fields.text("request", "requestURL")
    after = (url or "").partition("://")[2]
    # The last `@`: what stands before it is a user's name, which may look like a host.
    host = re.split(r"[/?#]", after, maxsplit=1)[0].rpartition("@")[2].partition(":")[0]
    return kept(
        http_method=fields.text("requestMethod"),
        user_agent=fields.text("requestClientApplication"),
        referrer=fields.text("requestContext"),
        url=kept(url_string=url, hostname=host if 0 < len(host) < 254 else None) or None,
    )


# -- events ------------------------------------------------------------------------------------


def _class(cef: CefHeader, common: Mapping[str, Any], level: int) -> int:
    """The class that an event's own keys speak for."""
    words = f"{cef.name} {cef.signature} {cef.fields.get('cat', '')}"
    login, threat = _LOGIN.search(words), THREAT.search(words)
    ends = common.get("src_endpoint") or common.get("dst_endpoint")
    named = common.get("user") or common.get("actor")
    # A login without a user would be no Authentication to OCSF.
    if named and is_login(cef.vendor, cef.signature, cef.fields):
        return AUTHENTICATION
    # Who connects to a VPN gateway says so in the class that the product gives the event.
    if _TUNNEL.match(f"{cef.name} {cef.signature} {cef.fields.get('cat', '')}") and ends:
        return TUNNEL
    if login and named:
        return AUTHENTICATION
    # OCSF's High; a word of threats makes a finding of a lower one, but not of a mere notice.
    if level >= 4 or (threat and level >= 2):
        return FINDING
    if common.get("http_request"):
        return HTTP
    return NETWORK if ends else BASE


def _seen(
    source: Mapping[str, Any] | None,
    target: Mapping[str, Any] | None,
    by: Mapping[str, Any] | None,
    upon: Mapping[str, Any] | None,
    request: Mapping[str, Any] | None,
    file: Mapping[str, Any] | None,
) -> list[dict[str, Any]] | None:
    request, file = request or {}, file or {}
    url = request.get("url") or {}
    return ends_seen(
        source,
        target,
        by or upon,
        ("user.name", A_USER, (upon or {}).get("name") if by else None),
        ("http_request.url.url_string", A_URL, url.get("url_string")),
        ("http_request.url.hostname", A_HOST, url.get("hostname")),
        ("http_request.user_agent", AN_AGENT, request.get("user_agent")),
        ("file.name", A_FILE, file.get("name")),
        *(("file.hashes", A_HASH, hash_value["value"]) for hash_value in file.get("hashes") or ()),
        where="actor.user" if by else "user",
    )


def _to_event(cef: CefHeader, header: Header, context: Context) -> Event:
    """The event of what was told."""
    fields = cef.fields
    stamp = stamp_of(fields, header, context)
    labelled(fields)
    usual_keys(cef.vendor, cef.signature, fields)
    level = _level(cef.severity)
    source, target = _ends(fields)
    by, upon = _user(fields, "s"), _user(fields, "d")
    act, outcome = fields.text("act", "deviceAction"), fields.text("outcome", "eventOutcome")
    allowed = verdict(act)
    if act and allowed is None:
        fields["act"] = act
    way = {"0": INBOUND, "1": OUTBOUND}.get(str(fields.get("deviceDirection")), {})
    if way:
        del fields["deviceDirection"]
    request, file = _request(fields), _file(fields)
    message = fields.text("msg", "message")
    host, ip = fields.text("dvchost", "deviceHostName"), fields.ip("dvc", "deviceAddress")
    device = kept(hostname=host or header.host, ip=ip, uid=fields.text("deviceExternalId"))
    columns: dict[str, Any] = {
        "severity_id": level,
        "message": message or cef.name,
        "metadata": metadata(
            {"name": cef.product, "vendor_name": cef.vendor, "version": cef.version},
            stamp,
            event_code=cef.signature or None,
            uid=fields.text("externalId", "eventId"),
            log_name=fields.text("cat", "deviceEventCategory"),
        ),
        "src_endpoint": source,
        "dst_endpoint": target,
        "device": device | {"type_id": 0} if device else None,
        "http_request": request,
        "file": file,
        "actor": {"user": by} if by else None,
        "user": upon,
        "app_name": fields.text("app", "applicationProtocol"),
        "connection_info": connection(
            fields.text("proto", "transportProtocol"), (source or target or {}).get("ip"), **way
        ),
        "traffic": traffic(fields.number("out", "bytesOut"), fields.number("in", "bytesIn")),
        "firewall_rule": _rule(fields),
        "status_detail": fields.text("reason"),
        "observables": _seen(source, target, by, upon, request, file),
    }
    uid = _class(cef, columns, level)
    return _shaped(uid, cef, header, stamp, columns, allowed, outcome)


def _shaped(
    uid: int,
    cef: CefHeader,
    header: Header,
    stamp: Stamp,
    columns: dict[str, Any],
    allowed: bool | None,
    outcome: str | None,
) -> Event:
    """The event under the class it speaks for."""
    fields = cef.fields
    status = firewall_disposition(allowed)
    if outcome:
        failed = _FAILED.search(outcome) is not None
        status["status_id"] = FAILURE if failed else SUCCESS
        columns["status_code"] = outcome
    extra: dict[str, Any] = {}
    activity, name = UNKNOWN, None
    if uid == AUTHENTICATION:
        activity = 2 if LOGOUT.search(cef.name) else 1
        failed = allowed is False or _FAILED.search(f"{cef.name} {outcome or ''}") is not None
        status["status_id"] = FAILURE if failed else SUCCESS
        # Who logs in is the target, where one is named besides whoever acts.
        columns["user"] = columns["user"] or (columns["actor"] or {}).get("user")
        extra["service"] = {"name": columns.pop("app_name") or cef.product or "unknown"}
    elif uid == FINDING:
        # Of a finding this is its state, new or closed, and no success.
        status.pop("status_id", None)
        activity = 1
        extra["finding_info"] = {
            "uid": cef.signature or "unknown",
            "title": cef.name or cef.signature or "unknown",
            "desc": columns["message"],
            "created_time": stamp.time,
            "analytic": {
                "uid": cef.signature or None,
                "name": cef.name or None,
                "type_id": 1,
            },
        }
    elif uid == HTTP:
        method = (columns["http_request"] or {}).get("http_method")
        activity = HTTP_METHODS.get((method or "").upper(), OTHER if method else UNKNOWN)
        name = method if activity == OTHER else None
    elif uid == TUNNEL:
        words = f"{cef.name} {cef.signature} {fields.get('PanOSEventID', '')}".lower()
        activity = 2 if "logout" in words or "disconnect" in words else 1
        wrong = _FAILED.search(f"{words} {fields.get('PanOSEventStatus', '')} {outcome or ''}")
        status["status_id"] = FAILURE if wrong else SUCCESS
        columns["user"] = columns["user"] or (columns["actor"] or {}).get("user")
    elif uid == NETWORK:
        activity = REFUSE if allowed is False else OPEN if allowed else TRAFFIC
    return located(
        uid,
        activity,
        stamp,
        activity_name=name,
        **status,
        **columns,
        **extra,
        unmapped=unmapped(header.rest | fields.left()),
    )


def read_cef(text: str, context: Context) -> Event:
    """The event of one line in either format."""
    mark = MARK.search(text, 0, _LONGEST_HEADER)
    if mark is None:
        raise Unreadable(f"neither 'CEF:0|' nor 'LEEF:1.0|' in '{text[:60]}'")
    header = read_header(text[: mark.start()], context)
    body = text[mark.end() :]
    cef = of_cef(body) if mark["cef"] else of_leef(mark["leef"], body)
    certain(cef.fields, CHOSEN)
    return _to_event(cef, header, context)


_TIMED = re.compile(
    r"(?<=[ \t|^])(?P<key>rt|start|end|devTime)=(?P<value>\d{10,19}|"
    + re.sub(r"\?P<\w+>", "?:", _DATE.pattern)
    + r"|\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d[^ \t]*)(?=[ \t^]|$)"
)


def _restamped(body: str, when: datetime, zone: ZoneInfo) -> tuple[str, int]:
    """An event with its times replaced, and how many those are."""
    since = when - EPOCH
    nanoseconds = ((since.days * 86400 + since.seconds) * 10**6 + since.microseconds) * 1000

    def new(match: re.Match[str]) -> str:
        value = match["value"]
        if value.isdecimal():
            # As many digits as before: that is what says whether they are seconds or milliseconds.
            return f"{match['key']}={str(nanoseconds).zfill(19)[: len(value)]}"
        written = like_iso(value, when, zone)
        return f"{match['key']}={written or restamp_header(value, when, zone)}"

    return _TIMED.subn(new, body)


class Cef(Source):
    """CEF and LEEF of any product."""

    name = "cef"

    def parse(self, record: Record, context: Context) -> list[Event]:
        return each_line(record.raw, lambda text: [read_cef(text, context)])

    def restamp(self, raw: bytes, when: datetime, zone: ZoneInfo) -> bytes:
        text = one_line(raw)
        mark = MARK.search(text, 0, _LONGEST_HEADER)
        if mark is None:
            raise Unreadable("neither 'CEF:0|' nor 'LEEF:1.0|' in the line")
        body, changed = _restamped(text[mark.start() :], when, zone)
        head = text[: mark.start()]
        try:
            head = restamp_header(head, when, zone)
        except Unreadable:
            if not changed:
                raise
        return (head + body).encode() + raw[len(text.encode()) :]


SOURCES = (Cef(),)
