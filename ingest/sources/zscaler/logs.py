"""Events of ZIA's web, firewall and DNS logs, from the fields of a feed in any of its forms.

A feed's columns are what its administrator typed: Zscaler's templates for JSON, for tabs and
for CEF name the same value differently, and the bare names of NSS (`cip`, `urlcat`) are common
too. Each value is looked up under all of them; what found no column stays under its own name.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from ipaddress import ip_address, ip_network
from types import MappingProxyType
from typing import Any

from ingest.parsing.ocsf import (
    A_HASH,
    A_HOST,
    A_URL,
    AN_AGENT,
    BASE,
    DNS,
    FAILURE,
    FINDING,
    HTTP,
    HTTP_METHODS,
    NETWORK,
    OTHER,
    SUCCESS,
    UNKNOWN,
    address,
    kept,
    metadata,
    unmapped,
)
from ingest.parsing.source import Event
from ingest.parsing.timestamps import Stamp
from ingest.sources.cloud.record import person
from ingest.sources.shared.dns import QUERY, RCODES, RESPONSE, answered, question
from ingest.sources.shared.firewall import (
    CLOSE,
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
    traffic,
    verdict,
)
from ingest.sources.shared.http_exchange import url

_PRODUCT: Mapping[str, str] = {"name": "Zscaler Internet Access", "vendor_name": "Zscaler"}
_NONE = frozenset({"none", "na", "n/a", "-", "", "$null", "unknown", "null"})
"""How ZIA writes that a value is not there."""
_USERS = ("user", "login", "elogin", "suser", "ologin")
_PLACES = ("location", "locationname", "elocation", "spriv")
_SCHEMES: Mapping[str, str] = MappingProxyType(
    {"http": "http", "https": "https", "http_proxy": "http", "ftp": "ftp", "ssl": "https"}
)
# RFC 1918, the addresses of carriers' NAT (RFC 6598), and unique local ones of IPv6 (RFC 4193).
_OWN_NETWORKS = tuple(
    map(ip_network, ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10", "fc00::/7"))
)
"""Addresses that never go out to the internet as they are."""
_FIRST_WORD = re.compile(r"[A-Za-z]+")


def plain(fields: Fields, *names: str) -> str | None:
    """The first of `names` with words that are no placeholder, taken out."""
    for name in names:
        value = fields.get(name)
        if type(value) is str and value.strip().lower() not in _NONE:
            del fields[name]
            return value
    return None


class Log:
    """One record of a feed; `fields` is what has not been used, `feed` the feed's name."""

    def __init__(self, feed: str, fields: Fields, stamp: Stamp, rest: Mapping[str, Any]) -> None:
        self.feed, self.fields, self.stamp, self.rest = feed, fields, stamp, dict(rest)
        self.user = self._user()
        self.action = plain(fields, "action", "act", "reqaction")
        self.device = kept(
            hostname=plain(fields, "devicehostname", "edevicehostname", "dvchost"),
        )

    def _user(self) -> dict[str, Any] | None:
        places = [self.fields.get(name) for name in _PLACES]
        for name in _USERS:
            # Of traffic without a login ZIA writes the place's name: that is nobody.
            if self.fields.get(name) not in places and (value := plain(self.fields, name)):
                domain, slash, account = value.rpartition("\\")
                return person(account, domain=domain) if slash and account else person(value)
        return None

    def allowed(self) -> bool | None:
        """Whether it was let through; None where the action says neither."""
        # `Allow due to insufficient app data` is an action of the firewall.
        word = self.action or ""
        # The DNS control says it of the question and of the answer apart.
        low = word.lower().removeprefix("req_").removeprefix("res_")
        return True if low.startswith("allow") else verdict(low)

    def event(self, class_uid: int, activity: int, **columns: Any) -> Event:
        """The event, with what all kinds of logs have in common."""
        source, target = columns.get("src_endpoint"), columns.get("dst_endpoint")
        request = columns.get("http_request") or {}
        link = request.get("url") or {}
        hashes = (columns.get("file") or {}).get("hashes") or ()
        seen = ends_seen(
            source,
            target,
            self.user,
            ("http_request.url.url_string", A_URL, link.get("url_string")),
            ("http_request.user_agent", AN_AGENT, request.get("user_agent")),
            ("query.hostname", A_HOST, (columns.get("query") or {}).get("hostname")),
            *(("file.hashes", A_HASH, each["value"]) for each in hashes),
        )
        return located(
            class_uid,
            activity,
            self.stamp,
            metadata=metadata(
                _PRODUCT,
                self.stamp,
                uid=plain(self.fields, "event_id", "recordid", "externalId"),
                event_code=self.action,
                log_name=self.feed,
            ),
            actor={"user": self.user} if self.user else None,
            observables=seen,
            **columns,
            unmapped=unmapped(self.rest | self.fields.left()),
        )

    def finding(self, name: str, **columns: Any) -> Event:
        """The event of traffic in which a threat `name` was seen."""
        fields = self.fields
        # `Critical (90-100)`; its range stays in `unmapped`.
        word = _FIRST_WORD.match(str(fields.get("threatseverity", fields.get("threat_severity"))))
        category = plain(fields, "threatcategory", "malwarecat", "threatcat", "cat")
        columns.pop("status_id", None)  # of a finding it is its state
        return self.event(
            FINDING,
            1,
            severity_id=severity(word[0] if word else None, 4),
            message=f"{self.action or 'seen'}: {name}",
            finding_info={
                "uid": name,
                "title": name,
                "desc": category,
                "created_time": self.stamp.time,
            },
            **columns,
        )


def _client(fields: Fields, names: tuple[str, ...], out: tuple[str, ...]) -> str | None:
    """The client's address: of two the one of its own network, whichever column it is in.

    Zscaler's templates of different years have the two in either order.
    """
    for name in (*names, *out):
        value = fields.get(name)
        ip = address(value) if type(value) is str else None
        if ip and any(ip_address(ip) in network for network in _OWN_NETWORKS):
            return fields.ip(name)
    return fields.ip(*names, *out)


def _link(log: Log, method: str | None, spoken: str | None) -> dict[str, Any] | None:
    """The URL, which ZIA writes without its scheme, as `example.com/a?b=c`."""
    fields = log.fields
    target = plain(fields, "url", "eurl", "request")
    host = plain(fields, "hostname", "host", "ehost", "dhost")
    if target is None:
        return url("", method, host) if host else None
    if re.match(r"[A-Za-z][A-Za-z0-9+.-]{0,20}://", target):
        link = url(target, method)
    else:
        scheme = _SCHEMES.get((spoken or "").lower())
        link = url(f"{scheme or 'http'}://{target}", method)
        if link and scheme is None:
            link = link | {"url_string": target, "scheme": None}
    if host and link and link.get("hostname") != host:
        fields["hostname"] = host
    return link


def _file(fields: Fields) -> dict[str, Any] | None:
    hashes: list[dict[str, str]] = []
    for name in ("sha256", "bamd5", "md5", "md5hash"):
        each = file_hash(fields.get(name))
        if each:
            del fields[name]
            hashes += each
    filename = plain(fields, "filename", "upload_filename", "efilename")
    return kept(name=filename, hashes=hashes or None) or None


def web(log: Log) -> Event:
    """A transaction of the web proxy: HTTP Activity, or a finding where a threat is named."""
    fields = log.fields
    spoken = plain(fields, "protocol", "proto", "app")
    if spoken and spoken.lower() not in ("http", "https"):
        fields["protocol"] = spoken
    method = plain(fields, "requestmethod", "reqmethod", "requestMethod")
    link = _link(log, method, spoken)
    code = fields.number("status", "respcode", "outcome", most=999)
    sent = fields.number("requestsize", "reqsize", "out")
    back = fields.number("responsesize", "respsize", "in")
    decided = firewall_disposition(log.allowed())
    if decided.get("status_id") != FAILURE and code is not None:
        decided["status_id"] = SUCCESS if code < 400 else FAILURE
    request = kept(
        http_method=method,
        user_agent=plain(
            fields, "useragent", "ua", "eua", "user_agent", "requestClientApplication"
        ),
        referrer=plain(fields, "refererURL", "referer", "ereferer", "requestContext"),
        length=sent,
        url=link,
    )
    response = None
    if code is not None:
        kind = plain(fields, "contenttype")
        response = kept(code=code, length=back, content_type=kind)
    columns: dict[str, Any] = {
        "src_endpoint": endpoint(
            ip=_client(
                fields,
                ("ClientIP", "clientip", "cip", "src"),
                ("clientpublicIP", "cintip", "cpubip", "sourceTranslatedAddress"),
            ),
            port=fields.port("clt_sport", "spt"),
            hostname=log.device.get("hostname"),
            country=plain(fields, "srcip_country"),
        )
        or {"name": "unknown"},
        "dst_endpoint": endpoint(
            ip=fields.ip("serverip", "sip", "dst"),
            port=fields.port("srv_dport", "dpt"),
            hostname=_short((link or {}).get("hostname")),
            country=plain(fields, "dstip_country"),
        ),
        "http_request": request or None,
        "http_response": response,
        "traffic": traffic(sent, back),
        "duration": fields.number("clienttranstime", "ctime"),
        "app_name": plain(fields, "appname", "destinationServiceName"),
        "file": _file(fields),
        "firewall_rule": _rule(fields),
        "status_detail": plain(fields, "reason"),
        **decided,
    }
    threat = plain(fields, "threatname", "ethreatname")
    if threat:
        return log.finding(threat, **columns)
    activity = HTTP_METHODS.get((method or "").upper(), OTHER if method else UNKNOWN)
    columns["status_code"] = None if code is None else str(code)
    return log.event(
        HTTP,
        activity,
        activity_name=method if activity == OTHER else None,
        severity_id=1,
        message=f"{method or 'request'} {(link or {}).get('url_string') or ''}: "
        f"{log.action or code or '?'}",
        **columns,
    )


def _short(name: object) -> str | None:
    return name if type(name) is str and len(name) < 254 and not address(name) else None


def _rule(fields: Fields) -> dict[str, Any] | None:
    return kept(name=plain(fields, "rulelabel", "erulelabel", "ipsrulelabel")) or None


def firewall(log: Log) -> Event:
    """A session of the cloud firewall, or what its intrusion prevention saw in one."""
    fields = log.fields
    allowed = log.allowed()
    way = {"0": INBOUND, "1": OUTBOUND}.get(str(fields.get("deviceDirection")), {})
    if way:
        del fields["deviceDirection"]
    source = endpoint(
        ip=fields.ip("csip", "src"),
        port=fields.port("csport", "spt"),
        hostname=log.device.get("hostname"),
        country=plain(fields, "srcip_country"),
    )
    # What the client asked for; the server's address behind translation is `sdip`.
    target = endpoint(
        ip=fields.ip("cdip", "dst") or fields.ip("sdip"),
        port=fields.port("cdport", "dpt") or fields.port("sdport"),
        hostname=_short(plain(fields, "cdfqdn")),
        country=plain(fields, "destcountry", "destCountry", "dstip_country"),
    )
    seconds = fields.number("duration", most=10**9)
    lasted = fields.number("durationms", most=10**12)
    if lasted is None and seconds is not None:
        lasted = seconds * 1000
    if fields.get("rulelabel") is not None and fields.get("rulelabel") == fields.get("reason"):
        del fields["reason"]  # the template for CEF writes the rule's name twice
    columns: dict[str, Any] = {
        "src_endpoint": source,
        "dst_endpoint": target,
        "connection_info": connection(
            plain(fields, "proto", "ipproto"), (source or target or {}).get("ip"), **way
        ),
        "traffic": traffic(
            fields.number("outbytes", "out", "outBytes"), fields.number("inbytes", "in", "inBytes")
        ),
        "duration": lasted,
        "app_name": plain(fields, "nwapp", "nwApp", "nwsvc", "nwService"),
        "firewall_rule": _rule(fields) or (kept(name=plain(fields, "reason")) or None),
        **firewall_disposition(allowed),
    }
    threat = plain(fields, "threatname", "ethreatname")
    if threat:
        return log.finding(threat, **columns)
    # Sessions that were counted together have no end of their own.
    together = str(fields.get("aggregate", fields.get("aggregated"))).lower() == "yes"
    activity = CLOSE if lasted is not None and not together else OPEN if allowed else TRAFFIC
    return log.event(
        NETWORK,
        REFUSE if allowed is False else TRAFFIC if together else activity,
        severity_id=1,
        message=f"{log.action or '?'} {(columns['firewall_rule'] or {}).get('name') or ''}".strip(),
        **columns,
    )


def dns(log: Log) -> Event:
    """A question that the DNS control saw."""
    fields = log.fields
    name = plain(fields, "dns_req", "req") or ""
    kind = plain(fields, "dns_reqtype", "reqtype")
    answer = plain(fields, "dns_resp", "res")
    replied = plain(fields, "resaction")
    allowed = log.allowed()
    if replied and "allow" not in replied.lower():
        allowed = False
    if replied:
        fields["resaction"] = replied
    # The response is an address, a name, or the code of a failure.
    code = answer if answer and answer.upper() in RCODES else None
    columns: dict[str, Any] = answered(code)
    if answer and code is None:
        columns = answered("NOERROR") | {"answers": [{"rdata": answer}]}
    decided = firewall_disposition(allowed)
    source = endpoint(
        ip=fields.ip("clt_sip", "cip", "src"),
        hostname=log.device.get("hostname"),
    )
    target = endpoint(
        ip=fields.ip("srv_dip", "sip", "dst"), port=fields.port("srv_dport", "sport", "dpt")
    )
    spoken = plain(fields, "protocol")
    return log.event(
        DNS,
        RESPONSE if answer else QUERY,
        src_endpoint=source or {"name": "unknown"},
        dst_endpoint=target,
        severity_id=1,
        message=f"{kind or ''} {name}: {log.action or answer or '?'}".strip(),
        query=question(name, kind) if name else None,
        connection_info=connection(spoken, (source or {}).get("ip")) if spoken else None,
        duration=fields.number("durationms", most=10**12),
        firewall_rule=kept(name=plain(fields, "reqrulelabel", "resrulelabel")) or None,
        **(columns | decided),
    )


def other(log: Log) -> Event:
    """A record of another feed, such as tunnels or alerts."""
    return log.event(
        BASE,
        UNKNOWN,
        severity_id=1,
        message=f"{log.feed}: {log.action or plain(log.fields, 'reason') or 'record'}",
    )


READERS: Mapping[str, Callable[[Log], Event]] = MappingProxyType(
    {"web": web, "fw": firewall, "dns": dns}
)
"""By the last word of a record's `sourcetype`."""
