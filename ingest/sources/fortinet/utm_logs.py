"""What FortiOS logs besides sessions: of its security profiles, and of itself."""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from ingest.parsing.dhcp import (
    ACK,
    DECLINE,
    DISCOVER,
    INFORM,
    NAK,
    OFFER,
    RELEASE,
    REQUEST,
    dhcp_event,
)
from ingest.parsing.ocsf import (
    A_FILE,
    A_HASH,
    A_HOST,
    A_MAIL,
    A_URL,
    AN_AGENT,
    API,
    AUTHENTICATION,
    BASE,
    DNS,
    EMAIL,
    FAILURE,
    FINDING,
    HTTP,
    HTTP_METHODS,
    OTHER,
    SUCCESS,
    TUNNEL,
    UNKNOWN,
    address,
    kept,
    mac_address,
)
from ingest.parsing.source import Event
from ingest.sources.fortinet.traffic_logs import PRODUCT, Log, session
from ingest.sources.shared.firewall import (
    Fields,
    code,
    endpoint,
    ends_seen,
    file_hash,
    firewall_disposition,
    located,
    severity,
    traffic,
)

_FINDINGS = frozenset(
    {"virus", "ips", "anomaly", "dlp", "waf", "attack", "virtual-patch", "casb", "malware-list"}
)
UI = re.compile(r"(?P<service>[\w -]{1,32})\((?P<ip>[0-9a-fA-F:.]{2,45})\)", re.ASCII)
DHCP_MESSAGES: Mapping[str, int] = MappingProxyType(
    {
        "discover": DISCOVER,
        "offer": OFFER,
        "request": REQUEST,
        "decline": DECLINE,
        "ack": ACK,
        "nak": NAK,
        "release": RELEASE,
        "inform": INFORM,
    }
)
_LOGON, _LOGOFF = 1, 2
_LOGINS: Mapping[str, int] = MappingProxyType(
    {
        "login": _LOGON,
        "logon": _LOGON,
        "auth-logon": _LOGON,
        "FSSO-logon": _LOGON,
        "authentication": _LOGON,
        "ssl-login-fail": _LOGON,
        "auth-logout": _LOGOFF,
        "logout": _LOGOFF,
        "logoff": _LOGOFF,
        "FSSO-logoff": _LOGOFF,
        "RSSO-logon": _LOGON,
        "RSSO-logoff": _LOGOFF,
        "NTLM-auth": _LOGON,
        "auth-login": _LOGON,
    }
)
"""Actions that are logins, as OCSF's activity."""
_TUNNELS: Mapping[str, int] = MappingProxyType(
    {
        "tunnel-up": 1,
        "phase2-up": 1,
        "ssl-new-con": 1,
        "tunnel-down": 2,
        "phase2-down": 2,
        "ssl-exit-fail": 2,
        "ssl-web-close": 2,
        "delete_ipsec_sa": 2,
        "delete_phase1_sa": 2,
        "install_sa": 1,
        "tunnel-stats": OTHER,
    }
)
_FAILED = re.compile(r"fail|error|den(?:y|ied)|reject|invalid|block", re.IGNORECASE)


# -- security profiles -------------------------------------------------------------------------


def of_utm(log: Log) -> Event:
    """What a security profile saw."""
    # Releases differ: `type=utm subtype=dns`, or the profile as the type itself.
    subtype = log.subtype if log.kind == "utm" else log.subtype or log.kind
    if subtype == "webfilter" or log.kind == "webfilter":
        return _page(log)
    if subtype == "dns" or log.kind == "dns":
        return name_asked(log)
    if subtype == "emailfilter" or log.kind == "emailfilter":
        return _mail(log)
    if subtype in _FINDINGS or log.kind in _FINDINGS:
        return _finding(log)
    return session(log)


def _page(log: Log) -> Event:
    """A page that was asked for (webfilter)."""
    fields = log.fields
    common = log.common()
    allowed = log.allowed()
    source, target = log.ends()
    user = log.user()
    host, path, agent = fields.text("hostname"), fields.text("url"), fields.text("agent")
    method = fields.text("httpmethod")
    scheme = (fields.get("service") or "http").lower()
    # Some releases log the whole URL in `url`, others only its path.
    whole = path is not None and "://" in path[:12]
    url = path if whole or not host else f"{scheme}://{host}{path or '/'}"
    only = path.partition("?") if path and not whole else ("", "", "")
    return located(
        HTTP,
        HTTP_METHODS.get((method or "").upper(), OTHER if method else UNKNOWN),
        log.stamp,
        **firewall_disposition(allowed),
        message=fields.text("msg") or f"{url}: {fields.get('action')}",
        http_request=kept(
            http_method=method,
            user_agent=agent,
            referrer=fields.text("referralurl"),
            url=kept(
                url_string=url,
                hostname=host,
                path=only[0] or None,
                query_string=only[2] or None,
                scheme=scheme if url and scheme in ("http", "https") else None,
            )
            or None,
        )
        or None,
        src_endpoint=source,
        dst_endpoint=target,
        actor={"user": user} if user else None,
        connection_info=log.connection(source),
        traffic=_traffic(fields),
        app_name=fields.text("service"),
        firewall_rule=log.rule(),
        observables=ends_seen(
            source,
            target,
            user,
            ("http_request.url.url_string", A_URL, url),
            ("http_request.url.hostname", A_HOST, host),
            ("http_request.user_agent", AN_AGENT, agent),
        ),
        **common,
        unmapped=log.rest(),
    )


def _traffic(fields: Fields) -> dict[str, Any] | None:
    return traffic(fields.number("sentbyte"), fields.number("rcvdbyte"))


def name_asked(log: Log) -> Event:
    """A name that was asked for, or its answer (dns)."""
    fields = log.fields
    common = log.common()
    allowed = log.allowed()
    source, target = log.ends()
    user = log.user()
    name = fields.text("qname")
    answered = str(fields.get("eventtype", "")).startswith("dns-response")
    ipaddr = fields.get("ipaddr")
    ips = [address(word.strip()) for word in ipaddr.split(",")] if type(ipaddr) is str else []
    answers = [{"rdata": word} for word in ips if word]
    # Only where all of it was addresses: a part that was not taken must stay readable.
    if answers and all(ips):
        del fields["ipaddr"]
    rcode = fields.number("rcode", most=65535)
    return located(
        DNS,
        2 if answered else 1,
        log.stamp,
        **firewall_disposition(allowed),
        message=fields.text("msg") or f"DNS {'answer for' if answered else 'query'} {name}",
        query=kept(hostname=name, type=fields.text("qtype"), **{"class": fields.text("qclass")})
        if name
        else None,
        answers=answers or None,
        rcode_id=code(rcode),
        src_endpoint=source,
        dst_endpoint=target,
        actor={"user": user} if user else None,
        connection_info=log.connection(source),
        firewall_rule=log.rule(),
        observables=ends_seen(source, target, user, ("query.hostname", A_HOST, name)),
        **common,
        unmapped=log.rest(),
    )


def _mail(log: Log) -> Event:
    """A mail that a filter looked at."""
    fields = log.fields
    common = log.common()
    allowed = log.allowed()
    source, target = log.ends()
    sender, to = fields.text("from", "sender"), fields.text("to", "recipient")
    return located(
        EMAIL,
        3,
        log.stamp,
        **firewall_disposition(allowed),
        message=fields.text("msg") or f"Mail from {sender}",
        email=kept(subject=fields.text("subject"), to=[to] if to else None, **{"from": sender})
        or {"subject": "unknown"},
        more={"direction_id": 0},
        src_endpoint=source,
        dst_endpoint=target,
        firewall_rule=log.rule(),
        observables=ends_seen(source, target, None, ("email.from", A_MAIL, sender)),
        **common,
        unmapped=log.rest(),
    )


def _finding(log: Log) -> Event:
    """An attack, a virus, an anomaly."""
    fields = log.fields
    common = log.common()
    allowed = log.allowed()
    source, target = log.ends()
    user = log.user()
    uid = fields.text("attackid", "virusid", "filteridx")
    title = fields.text("attack", "virus", "filtername", "dtype") or log.subtype
    # The finding's own grade; `level` only grades the log line.
    level = fields.text("severity") or fields.get("crlevel")
    if type(level) is str:
        common["severity_id"] = severity(level, common["severity_id"])
    path, sha = fields.text("filename"), fields.text("filehash", "analyticscksum")
    hashes = file_hash(sha)
    if not hashes:
        fields.keep("filehash", sha)
    host, path_asked = fields.get("hostname"), fields.get("url")
    url = None
    if type(path_asked) is str and path_asked:
        whole = "://" in path_asked[:12] or not host
        url = fields.pop("url") if whole else f"http://{host}{path_asked}"
        fields.pop("url", None)
    shown = {
        key: value for key, value in firewall_disposition(allowed).items() if key != "status_id"
    }
    return located(
        FINDING,
        1,
        log.stamp,
        **shown,
        message=fields.text("msg") or title,
        finding_info={
            "uid": uid or str(common["metadata"]["event_code"] or "unknown"),
            "title": title,
            "types": [log.subtype] if log.subtype else None,
            "src_url": fields.text("ref"),
            "created_time": log.stamp.time,
            "analytic": kept(uid=uid, name=title, category=log.subtype or None, type_id=1),
        },
        file=kept(path=path, hashes=hashes, size=fields.number("filesize"))
        if path or hashes
        else None,
        http_request={"url": kept(url_string=url, hostname=fields.text("hostname"))}
        if url
        else None,
        src_endpoint=source,
        dst_endpoint=target,
        actor={"user": user} if user else None,
        connection_info=log.connection(source),
        firewall_rule=log.rule(),
        more={"is_alert": True},
        observables=ends_seen(
            source,
            target,
            user,
            ("file.path", A_FILE, path),
            ("file.hashes", A_HASH, sha),
            ("http_request.url.url_string", A_URL, url),
        ),
        **common,
        unmapped=log.rest(),
    )


# -- the firewall itself -----------------------------------------------------------------------


def of_event(log: Log) -> Event:
    """A login, a tunnel, a change, a lease; else what FortiOS says of itself."""
    fields = log.fields
    action = str(fields.get("action", ""))
    # Leases first: such a line may have an `action` as well.
    if str(fields.get("dhcp_msg", "")).lower() in DHCP_MESSAGES and mac_address(
        str(fields.get("mac"))
    ):
        return _lease(log)
    if action in _LOGINS:
        return _login(log, _LOGINS[action])
    if "cfgpath" in fields or ("cfgobj" in fields and "user" in fields):
        return change(log)
    if log.subtype == "vpn" or action in _TUNNELS:
        return _tunnel(log)
    return _plain(log)


def _from_ui(
    fields: Fields, source: dict[str, Any] | None
) -> tuple[dict[str, Any] | None, str | None]:
    """The source and service that `ui="ssh(10.0.0.1)"` tells."""
    match = UI.fullmatch(str(fields.get("ui", "")))
    if match is None:
        return source, fields.text("ui")
    ip = address(match["ip"])
    # The administrator's address stands in `ui` where no `srcip` is logged.
    if source is None and ip:
        return endpoint(ip=ip), match["service"]
    return source, match["service"]


def _login(log: Log, activity: int) -> Event:
    """Someone logs in or out, at the firewall or through it."""
    fields = log.fields
    common = log.common()
    source, target = log.ends()
    source, service = _from_ui(fields, source)
    user = log.user()
    if target is None and (name := (common["device"] or {}).get("hostname")):
        target = {"hostname": name}
    status, action = fields.text("status"), str(fields.get("action", ""))
    failed = _FAILED.search(f"{status or ''} {action}") is not None
    reason = fields.text("reason")
    return located(
        AUTHENTICATION,
        activity,
        log.stamp,
        status_id=FAILURE if failed else SUCCESS,
        status_code=status,
        status_detail=reason,
        message=fields.text("msg") or fields.get("logdesc"),
        user=user or {"name": "unknown"},
        src_endpoint=source,
        dst_endpoint=target,
        service={"name": service or fields.text("authproto", "method") or "FortiOS"},
        is_remote=True if source else None,
        observables=ends_seen(source, target, user, where="user"),
        **common,
        unmapped=log.rest(),
    )


def _tunnel(log: Log) -> Event:
    """A tunnel or the steps to it."""
    fields = log.fields
    common = log.common()
    source, target = log.ends()
    action, status = fields.text("action") or "unknown", fields.text("status")
    user = log.user("user", "xauthuser")
    if source is None and target is None:
        fields["action"] = action
        return _plain(log, common)
    activity = _TUNNELS.get(action, OTHER)
    seconds = fields.number("duration", most=10**9)
    failed = _FAILED.search(f"{status or ''} {action}") is not None
    return located(
        TUNNEL,
        activity,
        log.stamp,
        activity_name=action if activity == OTHER else None,
        status_id=FAILURE if failed else SUCCESS,
        status_code=status,
        status_detail=fields.text("reason"),
        message=fields.text("msg") or fields.get("logdesc"),
        user=user,
        src_endpoint=source,
        dst_endpoint=target,
        traffic=_traffic_of_tunnel(fields),
        duration=None if seconds is None else seconds * 1000,
        app_name=fields.text("tunneltype", "vpntunnel"),
        observables=ends_seen(source, target, user, where="user"),
        **common,
        unmapped=log.rest(),
    )


def _traffic_of_tunnel(fields: Fields) -> dict[str, Any] | None:
    """What FortiOS received, the peer sent."""
    return traffic(fields.number("rcvdbyte"), fields.number("sentbyte"))


def change(log: Log) -> Event:
    """A change of configuration."""
    fields = log.fields
    common = log.common()
    source, _ = log.ends()
    source, service = _from_ui(fields, source)
    user = log.user()
    action, path, object_ = fields.text("action"), fields.text("cfgpath"), fields.text("cfgobj")
    name = ".".join(part for part in (path, object_) if part)
    # FortiOS' words of a change, as those of OCSF's API Activity.
    activity = {"add": 1, "edit": 3, "delete": 4}.get((action or "").lower(), OTHER)
    return located(
        API,
        activity,
        log.stamp,
        activity_name=(action or "Other") if activity == OTHER else None,
        status_id=SUCCESS,
        message=fields.text("msg") or f"{action} {name}",
        actor={"user": user or {"name": "unknown"}},
        src_endpoint=source or {"name": service or "unknown"},
        api={
            "operation": f"{action or 'change'} {path or object_}",
            "service": {"name": service} if service else None,
        },
        resources=[{"name": name}] if name else None,
        observables=ends_seen(source, None, user),
        **common,
        unmapped=log.rest(),
    )


def _lease(log: Log) -> Event:
    """A message of the firewall's DHCP server."""
    fields = log.fields
    common = log.common()
    message = fields.text("dhcp_msg") or ""
    ip = fields.ip("ip")
    return dhcp_event(
        DHCP_MESSAGES[message.lower()],
        log.context,
        log.stamp,
        PRODUCT,
        # A client without a lease asks from 0.0.0.0, which is nobody's address.
        ip=None if ip in ("0.0.0.0", None) else ip,
        mac=fields.mac("mac"),
        hostname=fields.text("hostname"),
        host=(common["device"] or {}).get("hostname"),
        lease_seconds=fields.number("lease", most=2**32),
        rest=log.header.rest | fields.left(),
        fields={"event_code": common["metadata"]["event_code"]},
        message=fields.get("msg") or f"DHCP {message}",
        severity_id=common["severity_id"],
    )


def _plain(log: Log, common: dict[str, Any] | None = None) -> Event:
    """What FortiOS says of itself."""
    fields = log.fields
    common = common or log.common()
    user = log.user()
    words = fields.text("msg") or fields.get("logdesc")
    return located(
        BASE,
        UNKNOWN,
        log.stamp,
        message=words if type(words) is str else f"{log.kind} {log.subtype}".strip(),
        actor={"user": user} if user else None,
        observables=ends_seen(None, None, user),
        **common,
        unmapped=log.rest(),
    )
