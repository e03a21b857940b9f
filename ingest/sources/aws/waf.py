"""AWS WAF: a record for each web request that a web ACL looked at.

https://docs.aws.amazon.com/waf/latest/developerguide/logging-fields.html
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from ingest.parsing.ocsf import HTTP, HTTP_METHODS, OTHER, UNKNOWN, kept
from ingest.parsing.source import Context, Event, Unreadable
from ingest.sources.cloud.common import (
    EnvelopedSource,
    Fields,
    inner,
    listed,
    look,
    take_ip,
    take_text,
    take_time,
)
from ingest.sources.cloud.record import CloudRecord
from ingest.sources.shared.firewall import firewall_disposition
from ingest.sources.shared.http_exchange import url

_PRODUCT: Mapping[str, str] = {"name": "WAF", "vendor_name": "AWS"}
_ALLOWED = {"ALLOW": True, "BLOCK": False, "CAPTCHA": False, "CHALLENGE": False}


def _headers(request: Fields) -> dict[str, str]:
    """Headers by name in lower case; of one that was sent twice the first."""
    headers: dict[str, str] = {}
    for element in listed(request, "headers"):
        name, value = look(element, "name"), look(element, "value")
        if type(name) is str and type(value) is str:
            headers.setdefault(name.lower(), value)
    return headers


def _read(fields: Fields, context: Context) -> Event:
    acl, action = take_text(fields, "webaclId"), take_text(fields, "action")
    request = inner(fields, "httpRequest")
    if action is None or not request:
        raise Unreadable("no 'action' and 'httpRequest' in the record")
    stamp = take_time(fields, context, ("timestamp",))
    headers = _headers(request)
    ip, country = take_ip(request, "clientIp"), take_text(request, "country")
    method, target = take_text(request, "httpMethod"), take_text(request, "uri")
    args = take_text(request, "args")
    whole = f"{target}?{args}" if target and args else target
    host = headers.get("host")
    rule = take_text(fields, "terminatingRuleId")
    uid = take_text(request, "requestId")
    record = CloudRecord(_PRODUCT, fields, stamp)
    activity = HTTP_METHODS.get((method or "").upper(), OTHER if method else UNKNOWN)
    columns: dict[str, Any] = firewall_disposition(_ALLOWED.get(action.upper()))
    status = columns.pop("status_id", None)
    return record.event(
        HTTP,
        activity,
        about=kept(log_name=acl, uid=uid, event_code=action),
        message=f"{action} {method or ''} {whole or ''}".strip(),
        status=status,
        source=kept(ip=ip, country=country) if ip else {"name": "unknown"},
        target={"hostname": host} if host and len(host) < 254 else None,
        agent=headers.get("user-agent"),
        request=kept(
            http_method=method,
            url=url(whole or "", method, host) if whole or host else None,
            referrer=headers.get("referer"),
        ),
        operation=method,
        firewall_rule=kept(name=rule, type=take_text(fields, "terminatingRuleType"))
        if rule
        else None,
        **columns,
    )


@dataclass(frozen=True)
class AwsWaf(EnvelopedSource):
    """Records of AWS WAF."""

    name: str = "aws_waf"
    time_keys: ClassVar[tuple[str, ...]] = ("timestamp",)

    def is_own(self, fields: Fields) -> bool:
        return "httpRequest" in fields

    def read(self, fields: Fields, context: Context) -> Event:
        return _read(fields, context)


SOURCES = (AwsWaf(),)
