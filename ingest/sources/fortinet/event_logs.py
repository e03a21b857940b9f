"""FortiOS' logs of itself: logins, tunnels, changes, leases, calls of its interfaces."""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from ingest.parsing.ocsf import (
    API,
    AUTHENTICATION,
    BASE,
    FAILURE,
    NETWORK,
    OTHER,
    SUCCESS,
    TUNNEL,
    UNKNOWN,
    address,
    kept,
    mac_address,
)
from ingest.parsing.source import Event
from ingest.sources.dhcp.dhcp_event import (
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
from ingest.sources.fortinet.traffic_logs import PRODUCT, Log
from ingest.sources.shared.firewall import TRAFFIC as OTHER_TRAFFIC
from ingest.sources.shared.firewall import (
    Fields,
    endpoint,
    ends_seen,
    located,
    traffic,
)
from ingest.sources.shared.http_exchange import url

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
        # FSSO and RSSO: FortiOS learns from the domain, or from RADIUS accounting, who logged in
        # elsewhere.
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
    if log.subtype == "rest-api":
        return _api_call(log)
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


def _api_call(log: Log) -> Event:
    """A call of the firewall's REST interface."""
    fields = log.fields
    common = log.common()
    source, _ = log.ends()
    source, service = _from_ui(fields, source)
    user = log.user()
    method, path = fields.text("method"), fields.text("path", "url")
    # With `path` the name of the call, `url` is it with what was asked.
    request_url = fields.text("url")
    code = fields.text("status")
    failed = (code or "")[:1] in ("4", "5") or _FAILED.search(
        str(fields.get("logdesc"))
    ) is not None
    return located(
        API,
        {"POST": 1, "GET": 2, "PUT": 3, "PATCH": 3, "DELETE": 4}.get((method or "").upper(), OTHER),
        log.stamp,
        status_id=FAILURE if failed else SUCCESS,
        status_code=code,
        message=fields.text("msg") or fields.get("logdesc"),
        actor={"user": user or {"name": "unknown"}},
        src_endpoint=source or {"name": service or "unknown"},
        api={
            "operation": " ".join(word for word in (method, path) if word) or "call",
            "service": {"name": service} if service else None,
        },
        http_request=kept(
            http_method=method if request_url else None,
            url=url(request_url, method) if request_url else None,
        )
        or None,
        observables=ends_seen(source, None, user),
        **common,
        unmapped=log.rest(),
    )


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
        fields={name: common["metadata"][name] for name in ("log_name", "event_code")},
        message=fields.get("msg") or f"DHCP {message}",
        severity_id=common["severity_id"],
    )


def _plain(log: Log, common: dict[str, Any] | None = None) -> Event:
    """What FortiOS says of itself."""
    fields = log.fields
    common = common or log.common()
    source, target = log.ends()
    if source and target:
        # What the proxy (`wad`) and others say of a connection.
        return located(
            NETWORK,
            OTHER_TRAFFIC,
            log.stamp,
            message=fields.text("msg") or fields.get("logdesc"),
            src_endpoint=source,
            dst_endpoint=target,
            connection_info=log.connection(source),
            observables=ends_seen(source, target, None),
            **common,
            unmapped=log.rest(),
        )
    if source is None and (ip := fields.ip("ip")):
        # Of an endpoint (FortiClient) FortiOS names the address and the machine so.
        source = endpoint(ip=ip, hostname=fields.text("name"))
    user = log.user()
    words = fields.text("msg") or fields.get("logdesc")
    return located(
        BASE,
        UNKNOWN,
        log.stamp,
        message=words if type(words) is str else f"{log.kind} {log.subtype}".strip(),
        actor={"user": user} if user else None,
        src_endpoint=source,
        observables=ends_seen(source, None, user),
        **common,
        unmapped=log.rest(),
    )
