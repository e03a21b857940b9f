"""What logs of web servers and proxies have in common: one request and its response.

A parser fills an `Exchange`, by itself or by the names its product gives to fields
(`fill`); `http_event` makes the event of it. Names, addresses and numbers that do not fit
stay with their own name, never in a column.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from ingest.parsing.ocsf import (
    A_HOST,
    A_URL,
    A_USER,
    AN_AGENT,
    AN_IP,
    AUTHENTICATION,
    BASE,
    CRITICAL,
    FAILURE,
    FATAL,
    HIGH,
    HTTP,
    HTTP_METHODS,
    INFORMATIONAL,
    LOW,
    MEDIUM,
    NETWORK,
    OTHER,
    SUCCESS,
    UNKNOWN,
    address,
    device,
    event,
    kept,
    metadata,
    observables,
    unmapped,
)
from ingest.parsing.source import Event
from ingest.parsing.strict_json import integral
from ingest.parsing.timestamps import Stamp

ERROR_LEVELS: Mapping[str, int] = MappingProxyType(
    {
        "emerg": FATAL,
        "alert": CRITICAL,
        "crit": CRITICAL,
        "error": HIGH,
        "warn": MEDIUM,
        "notice": LOW,
        "info": INFORMATIONAL,
        "debug": INFORMATIONAL,
    }
)
"""Levels of a web server's error log, as severities."""
FAILED = frozenset({"emerg", "alert", "crit", "error"})
"""Those at which something failed."""
_TRAFFIC = 6
_LOGON, _NETWORK_LOGON = 1, 3
PORT = 65535
_INT64 = 2**63 - 1
CODE = 999
NONE = frozenset({"", "-"})

# The last ` HTTP/` counts: a target may hold spaces, and even the word itself.
_REQUEST = re.compile(
    r"(?P<method>[!#$%&'*+.^_`|~0-9A-Za-z-]{1,32}) (?P<target>.*) HTTP/(?P<version>\d(?:\.\d)?)",
    re.ASCII | re.DOTALL,
)
SIMPLE = re.compile(r"(?P<method>[A-Z]{3,16}) (?P<target>[/*]\S*|[a-z]+://\S+)", re.ASCII)
ABSOLUTE = re.compile(
    r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]{0,20})://(?P<authority>[^/?#]*)(?P<rest>.*)",
    re.ASCII | re.DOTALL,
)
AUTHORITY = re.compile(r"(?:\[(?P<v6>[0-9A-Fa-f:.]+)\]|(?P<host>[^:\s]*))(?::(?P<port>\d{1,5}))?")
SCHEMES = MappingProxyType({80: "http", 443: "https", 8443: "https"})
_ESCAPES = re.compile(r'\\(["\\])|((?:\\x[0-9A-Fa-f]{2})+)')


def unescape(text: str) -> str:
    r"""`text` without the escapes of an access log: `\x22`, `\"`, `\\`, UTF-8 as `\xd0\x9f`.

    What could not be shown, such as control characters, marks of direction and bytes
    that are no UTF-8, stays escaped.
    """
    if "\\" not in text:
        return text
    return _ESCAPES.sub(lambda m: m[1] or shown_bytes(m[2]), text)


def shown_bytes(run: str) -> str:
    r"""A run of `\xd0\x9f` as UTF-8, except what could not be shown."""
    # In the case the server wrote it, so that a search for the line finds it.
    upper = not any(c in "abcdef" for c in run)
    raw = bytes.fromhex(run.replace("\\x", ""))
    return "".join(
        char
        if char.isprintable()
        else "".join(
            f"\\x{byte:02X}" if upper else f"\\x{byte:02x}"
            for byte in char.encode("utf-8", "surrogateescape")
        )
        for char in raw.decode("utf-8", "surrogateescape")
    )


def whole(value: object, most: int = _INT64) -> int | None:
    """`value` as a number from 0 to `most`; None for text that is none, and for others."""
    value = integral(value)
    if type(value) is int:
        return value if 0 <= value <= most else None
    # 2^63 has 19 digits; `int` of a text of thousands would take long.
    if type(value) is not str or not 0 < len(value) <= 19:
        return None
    return int(value) if value.isascii() and value.isdecimal() and int(value) <= most else None


_SPAN = re.compile(r"\d{1,10}(?:\.\d{1,9})?", re.ASCII)


def milliseconds(value: object, per_unit: float) -> int | None:
    """A span as milliseconds; `per_unit` is how many of them its unit has."""
    if type(value) is str and _SPAN.fullmatch(value):
        value = float(value)
    if (type(value) is not float and type(value) is not int) or not 0 <= value < 1e15:
        return None
    # 1.001 seconds are 1000.9999.. milliseconds as a float; the small sum keeps them 1001.
    return int(value * per_unit + 1e-6)


def request_line(text: str) -> tuple[str, str, str | None] | None:
    """Method, target and version of `GET /x HTTP/1.1`; None where it is no request line.

    The target is all between the first and the last space, whatever it holds.
    """
    match = _REQUEST.fullmatch(text)
    if match:
        return match["method"], match["target"], match["version"]
    # HTTP 0.9 has no version, and some logs leave it out.
    match = SIMPLE.fullmatch(text)
    return (match["method"], match["target"], None) if match else None


def host_port(text: str) -> tuple[str | None, int | None]:
    """Name or address and port of `host:port`, `[2001:db8::1]:80` or either alone."""
    if address(text):
        return text, None
    match = AUTHORITY.fullmatch(text)
    if match is None:
        return None, None
    return match["v6"] or match["host"] or None, whole(match["port"], PORT)


def url(
    target: str,
    method: str | None = None,
    host: str | None = None,
    port: int | None = None,
    scheme: str | None = None,
) -> dict[str, Any] | None:
    """The URL that a request's target stands for; what it names itself wins over the rest."""
    target = "" if target == "-" else target
    if not target and not host:
        return None
    whole_url = ABSOLUTE.fullmatch(target)
    named: str | None
    if whole_url:
        scheme = whole_url["scheme"].lower()
        # A client can write a user in front of the host, to make the URL look like another site's.
        named, own = host_port(whole_url["authority"].rpartition("@")[2])
        port, target_path = own, whole_url["rest"]
    elif method == "CONNECT":
        named, own = host_port(target)
        port, target_path = own or port, ""
    else:
        named, port_of_host = host_port(host) if host else (None, None)
        named, port, target_path = named or host, port_of_host or port, target
    scheme = scheme or SCHEMES.get(port or 0)
    path, _, query = target_path.partition("?")
    url_text = target
    if not whole_url and method != "CONNECT" and named and scheme and target[:1] in ("/", ""):
        # A port that the scheme implies is left out; 8443 stands for https, too, and has to be
        # written.
        usual = port is None or SCHEMES.get(port) == scheme != "https" or port == 443
        bracketed = f"[{named}]" if ":" in named else named
        url_text = f"{scheme}://{bracketed}{'' if usual else f':{port}'}{target}"
    return {
        "url_string": url_text or named,
        "hostname": named,
        "path": path.partition("#")[0] or None,
        "query_string": query or None,
        "port": port,
        "scheme": scheme,
    }


def forwarded(text: str) -> list[str] | None:
    """The addresses of an X-Forwarded-For header; None if a part of it is none."""
    ip_address = [address(_bare(part.strip(" +"))) for part in text.split(",")]
    # With one hop that is no address the positions of the others mean nothing.
    return [hop for hop in ip_address if hop] if all(ip_address) else None


def _bare(text: str) -> str:
    """An address without the port that some proxies add."""
    host, _ = host_port(text)
    return host or text


@dataclass(slots=True)
class Exchange:
    """One request and its response, as far as a log tells; `rest` is for `unmapped`."""

    client: str | None = None
    client_port: int | None = None
    server: dict[str, Any] = field(default_factory=dict)
    method: str | None = None
    target: str | None = None
    version: str | None = None
    scheme: str | None = None
    host: str | None = None
    port: int | None = None
    user: str | None = None
    agent: str | None = None
    referrer: str | None = None
    xff: list[str] | None = None
    code: int | None = None
    length: int | None = None
    sent: int | None = None
    received: int | None = None
    duration: int | None = None
    content_type: str | None = None
    tls: dict[str, str] = field(default_factory=dict)
    rest: dict[str, Any] = field(default_factory=dict)
    more: dict[str, Any] = field(default_factory=dict)
    meta: dict[str, str] = field(default_factory=dict)
    columns: dict[str, Any] = field(default_factory=dict)

    def request(self, text: str) -> None:
        """Take a request line apart; one that is none goes to `rest`."""
        first_line = request_line(text)
        if first_line:
            self.method, self.target, self.version = first_line
        elif text[:1] == "/" and " " not in text:
            self.target = text
        elif text not in NONE:
            self.rest["request"] = text

    def forwarded_for(self, text: str, name: str = "x_forwarded_for") -> None:
        """Take the X-Forwarded-For header, which anybody can write: never the client."""
        self.xff = forwarded(text)
        if self.xff is None:
            self.rest[name] = text


def endpoint(host: str | None, port: int | None = None) -> dict[str, Any]:
    """An endpoint from an address or a name; empty for none."""
    if not host:
        return {}
    ip = address(host)
    name = None if ip or host.startswith("unix:") else host
    other = None if ip or name else host
    return kept(ip=ip, hostname=name, name=other, port=port)


def basic_logon(user: str, service: str) -> dict[str, Any]:
    """The columns of a login by HTTP that failed, as servers' error logs tell of it."""
    return {
        "class_uid": AUTHENTICATION,
        "activity_id": _LOGON,
        "status_id": FAILURE,
        "user": user_of(user) if user else None,
        "is_remote": True,
        "logon_type_id": _NETWORK_LOGON,
        "auth_protocol": "Basic",
        "service": {"name": service},
    }


def severity_of_answer(code: int | None) -> int:
    """The OCSF severity of a response by its status code; informational where there is none."""
    if code is None or code < 400:
        return INFORMATIONAL
    return LOW if code < 500 else MEDIUM


def ends(x: Exchange, host: str | None) -> tuple[dict[str, Any], dict[str, Any]]:
    """Client and server; a port alone is nobody's and goes to `rest`."""
    source, target = endpoint(x.client, x.client_port), x.server
    if not source and x.client_port is not None:
        x.rest["client_port"] = x.client_port
    if not target.keys() & {"ip", "hostname", "name", "svc_name"}:
        target = endpoint(host) | x.server
        if not endpoint(host) and x.server:
            x.rest["server_port"] = x.server["port"]
            target = {}
    return source, target


def _request(x: Exchange) -> tuple[dict[str, Any] | None, dict[str, Any]]:
    """The URL and the request; what needs either and finds none goes to `rest`."""
    link = None
    if x.target is not None or x.host:
        link = url(x.target or "", x.method, x.host, x.port, x.scheme)
    if link is None:
        x.rest |= kept(scheme=x.scheme, port=x.port)
    if x.code is None and x.content_type:
        x.rest["content_type"] = x.content_type
    request = kept(
        http_method=x.method,
        version=x.version,
        user_agent=x.agent,
        referrer=x.referrer,
        length=x.sent,
        x_forwarded_for=x.xff,
        url=link,
    )
    return link, request


def http_event(
    x: Exchange,
    stamp: Stamp,
    product: Mapping[str, str],
    *,
    host: str | None = None,
    message: str | None = None,
    **columns: Any,
) -> Event:
    """The event of an exchange: HTTP Activity, or a connection where nothing was asked.

    `host` is the machine that logged; `columns` win over what the exchange says.
    """
    source, target = ends(x, host)
    link, request = _request(x)
    response = None
    if x.code is not None:
        response = kept(code=x.code, length=x.length, content_type=x.content_type)
    spoken = bool(request or response)
    status = UNKNOWN if x.code is None else SUCCESS if 100 <= x.code < 400 else FAILURE
    made: dict[str, Any] = {
        "severity_id": severity_of_answer(x.code),
        "status_id": status,
        "status_code": None if x.code is None else str(x.code),
        "message": message or _sentence(x),
        "metadata": metadata(product, stamp, **x.meta),
        "src_endpoint": source or None,
        "dst_endpoint": target or None,
        "actor": {"user": user_of(x.user)} if x.user else None,
        "device": device(host),
        "http_request": request or None,
        "http_response": response,
        "traffic": _traffic(x),
        "duration": x.duration,
        "tls": {"version": "unknown", **x.tls} if x.tls else None,
        "observables": _observables(source, target, link, x),
        "more": x.more or None,
        "unmapped": unmapped(x.rest),
    }
    made |= x.columns | columns
    if made.get("class_uid") == BASE and not source:
        made["dst_endpoint"] = None  # of itself a server only says where it stands
    activity = made.pop("activity_id", None)
    if activity is None:
        method_activity = HTTP_METHODS.get((x.method or "").upper(), OTHER if x.method else UNKNOWN)
        activity = method_activity if spoken else _TRAFFIC
    return event(made.pop("class_uid", HTTP if spoken else NETWORK), activity, stamp, **made)


def user_of(name: str) -> dict[str, str]:
    """Name and, of `DOMAIN\\name`, domain of a user."""
    domain, result, account = name.partition("\\")
    return {"name": account, "domain": domain} if result and domain and account else {"name": name}


def _sentence(x: Exchange) -> str | None:
    request = " ".join(part for part in (x.method, x.target) if part)
    request = request or str(x.rest.get("request", ""))
    return f"{request or 'no request'}: {x.code}" if x.code is not None else request or None


def _traffic(x: Exchange) -> dict[str, int] | None:
    # What was sent with headers is the traffic; the body alone is the best there is without.
    back = x.received if x.received is not None else x.length
    if back is None and x.sent is None:
        return None
    return kept(bytes_in=back, bytes_out=x.sent, bytes=min((back or 0) + (x.sent or 0), _INT64))


def _observables(
    source: dict[str, Any], target: dict[str, Any], link: dict[str, Any] | None, x: Exchange
) -> list[dict[str, Any]] | None:
    link = link or {}
    return observables(
        ("src_endpoint.ip", AN_IP, source.get("ip")),
        ("src_endpoint.hostname", A_HOST, source.get("hostname")),
        ("dst_endpoint.ip", AN_IP, target.get("ip")),
        ("http_request.url.hostname", A_HOST, link.get("hostname")),
        ("http_request.url.url_string", A_URL, link.get("url_string")),
        ("http_request.user_agent", AN_AGENT, x.agent),
        ("actor.user.name", A_USER, user_of(x.user)["name"] if x.user else None),
    )
