"""What ModSecurity says in the error log of the web server it guards.

`ModSecurity: Warning. ... [file ".."] [line ".."] [id "942100"] [msg ".."] ... [unique_id ".."]`
(https://github.com/owasp-modsecurity/ModSecurity/wiki/ModSecurity-2-Data-Formats). The fields
are read from the end, with escaped quotes: matched data is the attacker's own text.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from ingest.parsing.ocsf import (
    A_HOST,
    A_URL,
    AN_IP,
    CRITICAL,
    DENIED,
    FATAL,
    FINDING,
    HIGH,
    INFORMATIONAL,
    LOW,
    MEDIUM,
    OBSERVED,
    event,
    metadata,
    observables,
    unmapped,
)
from ingest.parsing.source import Event
from ingest.parsing.timestamps import Stamp
from ingest.sources.shared.http_exchange import CODE, Exchange, ends, unescape, url, whole

_PRODUCT: Mapping[str, str] = {"name": "ModSecurity", "vendor_name": "OWASP"}
_OPENING = re.compile(r"(?:\[client [^\]\s]{1,64}\] )?ModSecurity: ")
_FIELD = re.compile(r' ?\[(\w{1,32}) "((?:[^"\\]|\\.)*+)"\]', re.ASCII | re.DOTALL)
ACCESS = re.compile(r"Access (denied|allowed)(?: with code (\d{3}))?", re.ASCII)
# As ModSecurity 2 writes it, by name, and as ModSecurity 3 does, by number: both those of syslog.
_SEVERITIES: Mapping[str, int] = MappingProxyType(
    {
        **dict.fromkeys(("0", "EMERGENCY"), FATAL),
        **dict.fromkeys(("1", "ALERT", "2", "CRITICAL"), CRITICAL),
        **dict.fromkeys(("3", "ERROR"), HIGH),
        **dict.fromkeys(("4", "WARNING"), MEDIUM),
        **dict.fromkeys(("5", "NOTICE"), LOW),
        **dict.fromkeys(("6", "INFO", "7", "DEBUG"), INFORMATIONAL),
    }
)
_CREATE, A_RULE, _BLOCKED, DETECTED = 1, 1, 2, 15


def _fields_of(text: str) -> tuple[str, dict[str, str], list[str]] | None:
    """The words, the fields and the tags of a rule that matched; None where it is no such line."""
    opening = _OPENING.match(text)
    # The fields begin with the rule's file, which the server writes itself.
    find = text.find(' [file "') if opening else -1
    if opening is None or find < 0:
        return None
    fields: dict[str, str] = {}
    tags: list[str] = []
    words = text[opening.end() : find]
    while match := _FIELD.match(text, find):
        name, value = match[1], unescape(match[2])
        find = match.end()
        if name == "tag":
            tags.append(value)
        # A field that stands twice may have been forged inside of data: the first holds.
        elif name in fields:
            fields[f"{name}_again"] = value
        else:
            fields[name] = value
    if text[find:].strip():
        fields["rest"] = text[find:].strip()
    return (words, fields, tags) if "id" in fields or "msg" in fields else None


def modsecurity_finding(
    text: str, x: Exchange, stamp: Stamp, host: str | None, columns: Mapping[str, Any]
) -> Event | None:
    """The finding that a line of the error log tells of; None where it is no such line.

    `x` is what the server itself says of the request: its word about the client counts.
    """
    all_fields = _fields_of(text)
    if all_fields is None:
        return None
    words, fields, tags = all_fields
    access = ACCESS.match(words)
    denied = access is not None and access[1] == "denied"
    rule, title = fields.pop("id", None), fields.pop("msg", "") or words
    request, where = fields.pop("unique_id", None), fields.pop("hostname", None)
    severity = fields.pop("severity", "")
    if severity not in _SEVERITIES and severity:
        fields["severity"] = severity
    version = fields.pop("ver", None) or None
    # The rule's own `uri` has no query; the server's line, where it names the target, may have one.
    uri = fields.pop("uri", None)
    link = url(x.target or uri or "", x.method, x.host or where, x.port)
    source, target = ends(x, host)
    code = whole(access[2], CODE) if access else None
    made: dict[str, Any] = {
        "severity_id": _SEVERITIES.get(severity, MEDIUM),
        "action_id": DENIED if denied else OBSERVED,
        "disposition_id": _BLOCKED if denied else DETECTED,
        # With the name in front, by which people and rules look for it.
        "status_detail": f"ModSecurity: {words}",
        "message": title,
        "metadata": metadata(
            _PRODUCT, stamp, log_name="error", event_code=rule, correlation_uid=request
        ),
        "src_endpoint": source or None,
        "dst_endpoint": target or None,
        "http_request": {"url": link, "http_method": x.method, "version": x.version,
                         "referrer": x.referrer} if link or x.method else None,
        "http_response": {"code": code} if code else None,
        "finding_info": {
            "uid": "-".join(part for part in (request, rule) if part) or title,
            "title": title,
            "desc": fields.pop("data", None) or None,
            "types": tags or None,
            "analytic": {"uid": rule, "name": title, "version": version, "type_id": A_RULE},
        },
        "observables": observables(
            ("src_endpoint.ip", AN_IP, source.get("ip")),
            ("http_request.url.hostname", A_HOST, link and link["hostname"]),
            ("http_request.url.url_string", A_URL, link and link["url_string"]),
        ),
        "unmapped": unmapped(x.rest | fields),
    }  # fmt: skip
    if x.more:
        made["more"] = x.more
    return event(FINDING, _CREATE, stamp, **(made | dict(columns)))
