"""Which class an object of no known product is of: only where it says so beyond doubt.

Names are those of ECS (https://www.elastic.co/docs/reference/ecs), of OpenTelemetry
(https://opentelemetry.io/docs/specs/semconv/) and of CEF, as `field_lookup` spells them. Words of a
message decide nothing, and one sign alone neither: a login needs a user and its outcome, a request
its method and its target, a connection both of its ends; what ECS states is in `json_ecs`.
"""

from __future__ import annotations

import re
from typing import Any

from ingest.parsing import field_lookup
from ingest.parsing.field_lookup import Named
from ingest.parsing.ocsf import (
    AUTHENTICATION,
    DNS,
    FAILURE,
    HTTP,
    HTTP_METHODS,
    NETWORK,
    SUCCESS,
    address,
    kept,
)
from ingest.sources.generic.json_ecs import ClassGuess, by_category, words_of
from ingest.sources.shared.dns import RCODES, RESPONSE, answered
from ingest.sources.shared.firewall import connection, traffic
from ingest.sources.shared.http_exchange import url

_METHOD = ("httprequestmethod", "httpmethod", "requestmethod", "method", "verb")
_TARGET = (
    *("urlfull", "urloriginal", "httpurl", "requesturl", "url", "httptarget", "requesturi"),
    *("urlpath", "uri", "requestpath", "request", "path"),
)
_CODE = ("httpresponsestatuscode", "httpstatuscode", "statuscode", "responsestatus", "status")
_AGENT = ("useragentoriginal", "httpuseragent", "useragent", "requestclientapplication")
_NAME = ("dnsquestionname", "dnsquestion", "queryname", "qname", "dnsquery", "dnsrrname")
_TYPE = ("dnsquestiontype", "querytype", "qtype", "dnsrrtype")
_LOGIN = re.compile(
    r"(?:user[._ -]?)?(?:log[._ -]?[io]n|logon|sign[._ -]?in|authentication|logged[._ -]in)"
    r"(?:[._ -]?(?:success|succeeded|failed|failure|attempt))?",
    re.IGNORECASE,
)
_LOGOUT = re.compile(
    r"(?:user[._ -]?)?(?:log[._ -]?(?:out|off)|sign[._ -]?out|logged[._ -]out)", re.IGNORECASE
)
_LOGON, _LOGOFF, _QUERY, _TRAFFIC = 1, 2, 1, 6


def _method(value: Any) -> str | None:
    return value if type(value) is str and value.upper() in HTTP_METHODS else None


def _target(value: Any) -> str | None:
    return value if type(value) is str and re.match(r"/|https?://", value[:8]) else None


def _code(value: Any) -> int | None:
    number = field_lookup.whole(value)
    return number if number is not None and 100 <= number <= 599 else None


def _domain(value: Any) -> str | None:
    good = type(value) is str and re.fullmatch(r"[\w.-]{1,253}\.?", value) is not None
    return value if good else None


def guessed(
    named: Named,
    source: dict[str, Any] | None,
    target: dict[str, Any] | None,
    user: dict[str, Any] | None,
    process: dict[str, Any] | None,
    outcome: int | None,
    code: str | None,
) -> ClassGuess | None:
    """The class of an object, with what of its fields belongs to that class taken out."""
    categories, kinds = words_of(named, "eventcategory"), words_of(named, "eventtype")
    action = named.find(("eventaction", "eventname", "action", "event"), field_lookup.text)[0] or ""
    by = {"actor": {"user": user}} if user else {}
    if user and user.get("name") and outcome in (SUCCESS, FAILURE):
        word = code or ""
        ended = any(_LOGOUT.fullmatch(text) for text in (word, action))
        began = any(_LOGIN.fullmatch(text) for text in (word, action))
        if "authentication" in categories or began or ended:
            off = ended or "end" in kinds
            service = {"name": "unknown"}
            return ClassGuess(AUTHENTICATION, _LOGOFF if off else _LOGON, {"service": service})
    stated = by_category(named, user, process)
    if stated is not None or not (source or target):
        return stated
    method, _ = named.find(_METHOD, _method)
    path, _ = named.find(_TARGET, _target)
    if method and path:
        status = named.take(_CODE, _code)
        named.take(_METHOD, _method)
        named.take(_TARGET, _target)
        host = (target or {}).get("hostname")
        columns: dict[str, Any] = by | {
            "http_request": kept(
                http_method=method,
                url=url(path, method.upper(), host),
                user_agent=named.take(_AGENT),
            ),
            "http_response": {"code": status} if status else None,
        }
        if status and outcome is None:
            columns["status_id"] = SUCCESS if status < 400 else FAILURE
        return ClassGuess(HTTP, HTTP_METHODS[method.upper()], columns)
    name, _ = named.find(_NAME, _domain)
    if name and source:
        named.take(_NAME, _domain)
        # The name of the root zone is a dot alone.
        query = kept(hostname=name.rstrip(".") or name, type=named.take(_TYPE))
        code = named.take(("dnsresponsecode",), _rcode)
        reply = answered(code)
        addresses = named.take(("dnsresolvedip",), _addresses)
        if addresses:
            reply["answers"] = [{"rdata": ip} for ip in addresses]
        columns = by | {"query": query} | _link(named, source) | reply
        return ClassGuess(DNS, RESPONSE if code or addresses else _QUERY, columns)
    if source and target and source.get("ip") and target.get("ip") and target.get("port"):
        return ClassGuess(NETWORK, _TRAFFIC, by | _link(named, source) | _volumes(named))
    return None


def _rcode(value: Any) -> str | None:
    return value.upper() if type(value) is str and value.upper() in RCODES else None


def _addresses(value: Any) -> list[str] | None:
    values = value if type(value) is list else [value]
    good = all(type(each) is str and address(each) for each in values)
    return values if values and good else None


def _protocol(value: Any) -> str | None:
    return value if type(value) is str and re.fullmatch(r"[A-Za-z][\w-]{1,15}", value) else None


def _link(named: Named, source: dict[str, Any] | None) -> dict[str, Any]:
    spoken = named.take(("networktransport",), _protocol)
    return {"connection_info": connection(spoken, (source or {}).get("ip"))} if spoken else {}


def _volumes(named: Named) -> dict[str, Any]:
    """What each end sent, by the names of ECS, which nothing else writes."""
    numbers = [
        named.take((name,), field_lookup.whole)
        for name in ("sourcebytes", "destinationbytes", "sourcepackets", "destinationpackets")
    ]
    total, packets = (
        named.take((name,), field_lookup.whole) for name in ("networkbytes", "networkpackets")
    )
    volumes = traffic(*numbers, total=total, packets=packets)
    return {"traffic": volumes} if volumes else {}
