"""Cloudflare's logs, as Logpush and its APIs write them.

https://developers.cloudflare.com/logs/logpush/logpush-job/datasets/ : HTTP requests, firewall
events, Gateway (DNS, HTTP, network), DNS logs, Access requests, Spectrum and the audit log, each
told by its own fields. Times are RFC 3339, seconds or nanoseconds, as the job is configured.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from ingest.parsing.ocsf import (
    API,
    AUTHENTICATION,
    DNS,
    FAILURE,
    HTTP,
    HTTP_METHODS,
    NETWORK,
    OTHER,
    SUCCESS,
    UNKNOWN,
    kept,
)
from ingest.parsing.source import Context, Event, Unreadable
from ingest.sources.cloud.common import (
    EnvelopedSource,
    Fields,
    activity_of,
    key_of,
    look,
    take_ip,
    take_name,
    take_number,
    take_text,
    take_texts,
    take_time,
)
from ingest.sources.cloud.record import CloudRecord, person, status_of
from ingest.sources.shared.firewall import connection, endpoint, firewall_disposition, traffic
from ingest.sources.shared.http_exchange import url
from ingest.sources.windows.codes import DNS_TYPES

_PRODUCT: Mapping[str, str] = {"name": "Cloudflare", "vendor_name": "Cloudflare"}
_BYTES = 2**63 - 1
_ALLOWED = {
    "allow": True,
    "allowed": True,
    "log": True,
    "skip": True,
    "bypass": True,
    "isolate": True,
    "allowedonnorulematch": True,
    "allowedbyqueryname": True,
    "allowedonnolocation": True,
    "allowedonnopolicymatch": True,
    "allowedrule": True,
    "block": False,
    "blocked": False,
    "drop": False,
    "challenge": False,
    "jschallenge": False,
    "managed_challenge": False,
    "managedchallenge": False,
    "blockedbyqueryname": False,
    "blockedbycategory": False,
    "blockedalwayscategory": False,
    "blockedrule": False,
    "connectionclose": False,
}
"""Actions of rules; a challenge is a denial until it is solved."""
# https://developers.cloudflare.com/cloudflare-one/insights/logs/gateway-logs/ : decisions of the
# resolver, which GraphQL and some jobs write as numbers.
_DECISIONS = (
    *("unknown", "allowedByQueryName", "blockedByQueryName", "blockedByCategory"),
    *("allowedOnNoLocation", "allowedOnNoPolicyMatch", "blockedAlwaysCategory"),
    *("overrideForSafeSearch", "overrideApplied", "blockedRule", "allowedRule"),
)
_MODIFIED = 4
"""OCSF's action for an answer that is not what the name resolves to."""


def _decided(word: str | None) -> dict[str, Any]:
    return firewall_disposition(_ALLOWED.get((word or "").lower()))


def _client(fields: Fields) -> Fields | None:
    return endpoint(
        ip=take_ip(fields, "ClientIP") or take_ip(fields, "SourceIP") or take_ip(fields, "SrcIP"),
        port=take_number(fields, "ClientSrcPort", most=65535)
        or take_number(fields, "SourcePort", most=65535)
        or take_number(fields, "SrcPort", most=65535)
        or take_number(fields, "ClientPort", most=65535),
        country=take_text(fields, "ClientCountry") or take_text(fields, "SourceIPCountryCode"),
        hostname=take_text(fields, "DeviceName"),
    )


def _http(fields: Fields, context: Context) -> Event:
    """HTTP requests, firewall events and Gateway's HTTP."""
    stamp = take_time(
        fields, context, ("EdgeStartTimestamp",), ("Datetime",), ("EdgeEndTimestamp",)
    )
    method = take_text(fields, "ClientRequestMethod") or take_text(fields, "HTTPMethod")
    host = take_text(fields, "ClientRequestHost") or take_text(fields, "HTTPHost")
    target = take_text(fields, "ClientRequestURI") or take_text(fields, "URL")
    path, query = take_text(fields, "ClientRequestPath"), take_text(fields, "ClientRequestQuery")
    target = target or f"{path or ''}{query or ''}" or None
    code = take_number(fields, "EdgeResponseStatus", most=999)
    code = code or take_number(fields, "HTTPStatusCode", most=999)
    action = take_text(fields, "Action") or take_text(fields, "SecurityAction")
    decided = _decided(action)
    # What the policy decided stands before the server's answer: a block page comes with a code too.
    status = decided.pop("status_id", None)
    if status is None and code is not None:
        status = SUCCESS if code < 400 else FAILURE
    rule = take_text(fields, "RuleID") or take_text(fields, "PolicyID")
    user = person(take_text(fields, "Email"), take_text(fields, "UserID"))
    server = endpoint(
        ip=take_ip(fields, "OriginIP") or take_ip(fields, "DestinationIP"),
        port=take_number(fields, "DestinationPort", most=65535),
        # No name is longer (RFC 1035), while a client may send any text as `Host`.
        hostname=host if host and len(host) < 254 else None,
    )
    scheme = take_text(fields, "ClientRequestScheme")
    record = CloudRecord(_PRODUCT, fields, stamp)
    return record.event(
        HTTP,
        HTTP_METHODS.get((method or "").upper(), OTHER if method else UNKNOWN),
        about=kept(
            uid=take_text(fields, "RayID") or take_text(fields, "RequestID"),
            event_code=action or None,
            log_name=take_text(fields, "ZoneName") or take_text(fields, "Source"),
        ),
        message=f"{method or 'request'} {target or host or ''}: {action or code or '?'}",
        status=status,
        source=_client(fields) or {"name": "unknown"},
        target=server,
        by=user,
        agent=take_text(fields, "ClientRequestUserAgent") or take_text(fields, "UserAgent"),
        request=kept(
            http_method=method,
            referrer=take_text(fields, "ClientRequestReferer") or take_text(fields, "Referer"),
            url=url(target or "", method, host, None, scheme) if target or host else None,
        ),
        http_response=kept(
            code=code,
            length=take_number(fields, "EdgeResponseBytes", most=_BYTES),
            content_type=take_text(fields, "EdgeResponseContentType"),
        )
        if code is not None
        else None,
        operation=method,
        firewall_rule=kept(uid=rule, desc=take_text(fields, "Description")) if rule else None,
        **decided,
    )


def _resolved(fields: Fields) -> list[Fields]:
    """What a name resolved to, as answers."""
    names = take_texts(fields, "CNAMEs") or []
    addresses = take_texts(fields, "ResolvedIPs") or []
    return [{"rdata": text, "type": "CNAME"} for text in names] + [
        {"rdata": text, "type": "AAAA" if ":" in text else "A"} for text in addresses
    ]


def _resolver_decision(fields: Fields) -> str | None:
    number = take_number(fields, "ResolverDecision", most=len(_DECISIONS) - 1)
    if number is not None:
        return _DECISIONS[number]
    return take_text(fields, "ResolverDecision")


def _dns(fields: Fields, context: Context) -> Event:
    """Names asked of Gateway, or of a zone that Cloudflare serves."""
    stamp = take_time(fields, context, ("Datetime",), ("Timestamp",))
    name = take_text(fields, "QueryName") or ""
    action = _resolver_decision(fields)
    decided = _decided(action)
    if (action or "").startswith("override"):
        decided = {"action_id": _MODIFIED}
    # The status says whether the name was resolved, not what the policy made of it.
    decided.pop("status_id", None)
    code = take_number(fields, "RCode", most=65535)
    code = take_number(fields, "ResponseCode", most=65535) if code is None else code
    number = take_number(fields, "QueryType", most=65535)
    kind = take_name(fields, "QueryTypeName") or take_name(fields, "QueryType")
    if kind is None and number is not None:
        kind = DNS_TYPES.get(number, f"TYPE{number}")
    user = person(take_text(fields, "Email"), take_text(fields, "UserID"))
    answers = _resolved(fields)
    policy, rule = take_text(fields, "PolicyName"), take_text(fields, "PolicyID")
    record = CloudRecord(_PRODUCT, fields, stamp)
    return record.event(
        DNS,
        2 if code is not None or answers else 1,
        about=kept(event_code=action, uid=take_text(fields, "QueryID")),
        message=f"{kind or ''} {name}: {action or code}".strip(),
        status=None if code is None else SUCCESS if code == 0 else FAILURE,
        source=_client(fields) or {"name": "unknown"},
        target=endpoint(
            ip=take_ip(fields, "DstIP"), port=take_number(fields, "DstPort", most=65535)
        ),
        by=user,
        # The name of the root zone is a dot alone.
        query=kept(hostname=name.rstrip(".") or name, type=kind),
        answers=answers or None,
        # 12 to 15 are assigned to nothing (IANA, DNS RCODEs).
        rcode_id=code if code is None or code <= 11 or 16 <= code <= 25 else 99,
        connection_info=connection(take_text(fields, "Protocol"), None),
        firewall_rule=kept(uid=rule, name=policy) or None,
        **decided,
    )


def _network(fields: Fields, context: Context) -> Event:
    """Sessions through Gateway and Spectrum."""
    stamp = take_time(
        fields, context, ("Datetime",), ("Timestamp",), ("SessionStartTime",), ("ConnectTimestamp",)
    )
    source = _client(fields)
    target = endpoint(
        ip=take_ip(fields, "DestinationIP") or take_ip(fields, "OriginIP"),
        port=take_number(fields, "DestinationPort", most=65535)
        or take_number(fields, "OriginPort", most=65535),
        hostname=take_text(fields, "SNI"),
    )
    action = take_text(fields, "Action") or take_text(fields, "Event")
    decided = _decided(action)
    status = decided.pop("status_id", None)
    sent, back = (take_number(fields, name, most=_BYTES) for name in ("ClientBytes", "OriginBytes"))
    record = CloudRecord(_PRODUCT, fields, stamp)
    return record.event(
        NETWORK,
        # OCSF's Refuse and Traffic: sessions are told of once, when they are over.
        5 if status == FAILURE else 6,
        about=kept(event_code=action, uid=take_text(fields, "SessionID")),
        message=f"{action or 'session'} to {(target or {}).get('hostname') or '?'}",
        status=status,
        source=source,
        target=target,
        by=person(take_text(fields, "Email"), take_text(fields, "UserID")),
        connection_info=connection(
            take_text(fields, "Transport") or take_text(fields, "Protocol"),
            (source or {}).get("ip"),
        ),
        traffic=traffic(sent, back),
        **decided,
    )


def _access(fields: Fields, context: Context) -> Event:
    """A login to an application behind Access."""
    stamp = take_time(fields, context, ("CreatedAt",), ("created_at",))
    allowed = look(fields, "Allowed")
    # False is an answer: only what is absent is looked for under the API's name.
    allowed = look(fields, "allowed") if allowed is None else allowed
    logout = look(fields, "Action") == "logout"
    ip = take_ip(fields, "IPAddress") or take_ip(fields, "ip_address")
    record = CloudRecord(_PRODUCT, fields, stamp)
    name = take_text(fields, "Email") or take_text(fields, "user_email")
    return record.event(
        AUTHENTICATION,
        2 if logout else 1,
        about=kept(uid=take_text(fields, "RayID") or take_text(fields, "ray_id")),
        message=f"{name or 'unknown'}: {'allowed' if allowed is True else 'denied'}",
        status=SUCCESS if allowed is True else FAILURE if allowed is False else UNKNOWN,
        source=endpoint(ip=ip, country=take_text(fields, "Country")),
        by=person(name, take_text(fields, "UserUID")),
        service=take_text(fields, "AppDomain") or take_text(fields, "app_domain"),
        auth_protocol=take_text(fields, "Connection"),
        is_remote=True,
    )


def _audit(fields: Fields, context: Context) -> Event:
    """A change of the account, from Logpush (`ActionType`) or the API (`action.type`)."""
    stamp = take_time(fields, context, ("When",), ("when",))
    kind = take_text(fields, "ActionType") or take_text(fields, "action", "type") or "unknown"
    name = take_text(fields, "ActorEmail") or take_text(fields, "actor", "email")
    uid = take_text(fields, "ActorID") or take_text(fields, "actor", "id")
    ip = take_ip(fields, "ActorIP") or take_ip(fields, "actor", "ip")
    result = look(fields, "ActionResult")
    result = look(fields, "action", "result") if result is None else result
    thing = take_text(fields, "ResourceID") or take_text(fields, "resource", "id")
    of = take_text(fields, "ResourceType") or take_text(fields, "resource", "type")
    record = CloudRecord(_PRODUCT, fields, stamp)
    about = kept(uid=take_text(fields, "ID") or take_text(fields, "id"), event_code=kind)
    status = status_of(result)
    if kind in ("login", "logout"):
        return record.event(
            AUTHENTICATION,
            1 if kind == "login" else 2,
            about=about,
            message=f"{name or 'unknown'}: {kind}",
            status=status,
            source=endpoint(ip=ip),
            by=person(name, uid),
            is_remote=True,
        )
    return record.event(
        API,
        activity_of(kind),
        about=about,
        message=f"{name or 'unknown'}: {kind}",
        status=status,
        source=endpoint(ip=ip),
        by=person(name, uid),
        operation=kind,
        service=of,
        resources=[kept(uid=thing, name=thing, type=of)] if thing else None,
    )


_KINDS: tuple[tuple[tuple[str, ...], Callable[[Fields, Context], Event]], ...] = (
    (("QueryName",), _dns),
    (("ClientRequestMethod", "ClientRequestHost", "ClientRequestURI", "HTTPMethod"), _http),
    (("AppDomain", "app_domain"), _access),
    (("ActorEmail", "ActorIP", "ActionType"), _audit),
    (("SourceIP", "ConnectTimestamp", "ClientBytes", "SNI"), _network),
    (("ClientIP", "RayID"), _http),
)
"""Fields that tell the dataset, the surest first."""


@dataclass(frozen=True)
class Cloudflare(EnvelopedSource):
    """Cloudflare's datasets."""

    name: str = "cloudflare"
    time_keys: ClassVar[tuple[str, ...]] = (
        *("EdgeStartTimestamp", "Datetime", "Timestamp", "When", "CreatedAt", "when"),
        *("created_at", "SessionStartTime", "ConnectTimestamp"),
    )

    def is_own(self, fields: Fields) -> bool:
        if any(name in fields for names, _ in _KINDS for name in names):
            return True
        # GraphQL's rows of the resolver: Logpush's names, though `queryName` for `QueryName`.
        if key_of(fields, "QueryName"):
            return True
        return type(fields.get("action")) is dict and type(fields.get("actor")) is dict

    def read(self, fields: Fields, context: Context) -> Event:
        for names, reader in _KINDS:
            if any(name in fields for name in names):
                return reader(fields, context)
        if key_of(fields, "QueryName"):
            return _dns(fields, context)
        if type(fields.get("action")) is dict:
            return _audit(fields, context)
        raise Unreadable("no field of any of Cloudflare's datasets")


SOURCES = (Cloudflare(),)
