"""HAProxy (https://docs.haproxy.org/3.0/configuration.html, chapter 8).

The HTTP, HTTPS, TCP and default formats, errors of connections, and what it says of
servers. Clients' bytes that could end a field are encoded by HAProxy (`#22`), and the
client's address stands before them. Times have milliseconds and no zone.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo

from ingest.parsing.framed_source import FramedSource
from ingest.parsing.ocsf import (
    BASE,
    DENIED,
    FAILURE,
    HIGH,
    INFORMATIONAL,
    LOW,
    MEDIUM,
    NETWORK,
    SUCCESS,
    kept,
)
from ingest.parsing.source import Context, Event
from ingest.parsing.syslog import Line, severity
from ingest.parsing.timestamps import Stamp, stamp_clf
from ingest.sources.shared.access_json import read_json, restamp_web_json
from ingest.sources.shared.clf import Token, access_event, read_clf, remaining, restamp_clf
from ingest.sources.shared.http_exchange import (
    CODE,
    PORT,
    Exchange,
    endpoint,
    http_event,
    request_line,
    whole,
)
from ingest.sources.shared.web_timestamps import first_of, replacing, write_clf

_PRODUCT: Mapping[str, str] = {"name": "HAProxy", "vendor_name": "HAProxy"}
_OPEN, _CLOSE, _FAIL, _TRAFFIC, _BLOCKED = 1, 2, 4, 6, 2

_WHEN = r"\d\d/[A-Z][a-z]{2}/\d{4}:\d\d:\d\d:\d\d(?:\.\d{1,9})?(?: [+-]\d{4})?"
_START = (
    r"(?P<client>[^\s:\[\]]\S{0,254}|:\S{1,60}|\[[0-9A-Fa-f:.]+\](?::\d{1,5})?|-) "
    rf"\[(?P<time>{_WHEN})\] (?P<frontend>[^\s/]{{1,255}})"
)
# A plus before the retries: the request was handed to another server (option redispatch).
_COUNTS = (
    r"(?P<actconn>\d{1,10})/(?P<feconn>\d{1,10})/(?P<beconn>\d{1,10})/(?P<srv_conn>\d{1,10})/"
    r"(?P<retries>\+?\d{1,10}) (?P<srv_queue>\d{1,10})/(?P<backend_queue>\d{1,10})"
)
_HTTP = re.compile(
    rf"{_START} (?P<backend>[^\s/]{{1,255}})/(?P<server>\S{{1,255}}) "
    # -1 is a phase that was not reached, and a code of -1 a request without a response.
    r"(?P<timers>-?\d{1,10}/-?\d{1,10}/-?\d{1,10}/-?\d{1,10}/\+?-?\d{1,10}) "
    r"(?P<code>-?\d{1,3}) \+?(?P<bytes>\d{1,19}) "
    r"(?P<request_cookie>\S{1,255}) (?P<response_cookie>\S{1,255}) (?P<state>\S{4}) "
    rf"{_COUNTS}(?: \{{(?P<one>[^{{}}]*)\}})?(?: \{{(?P<two>[^{{}}]*)\}})? "
    r'"(?P<request>[^"]*)(?:"(?: (?P<tail>.*))?)?',
    re.ASCII,
)
TCP = re.compile(
    rf"{_START} (?P<backend>[^\s/]{{1,255}})/(?P<server>\S{{1,255}}) "
    r"(?P<timers>-?\d{1,10}/-?\d{1,10}/\+?-?\d{1,10}) \+?(?P<bytes>\d{1,19}) "
    rf"(?P<state>\S{{2,4}}) {_COUNTS}(?: (?P<tail>.*))?",
    re.ASCII,
)
_CONNECT = re.compile(
    r"Connect from (?P<client>\S{1,255}) to (?P<target>\S{1,255}) "
    r"\((?P<frontend>[^\s/()]{1,255})/(?P<mode>[A-Z]{3,4})\)",
    re.ASCII,
)
_BROKEN = re.compile(rf"{_START}/(?P<bind>[^\s:]{{1,255}}): (?P<why>.*)", re.ASCII)
HTTPS_TAIL = re.compile(
    r"(?P<errors>[0-9A-Fa-fx]{1,20}(?:/[0-9A-Fa-fx]{1,20}){3,4}) "
    r"(?P<sni>[^\s/]{1,255})/(?P<version>[^\s/]{1,40})/(?P<cipher>\S{1,100})",
    re.ASCII,
)
SERVER_STATE = re.compile(
    r"(?:(?:Backup )?Server|Health check for (?:backup )?server) "
    r"(?P<backend>[^\s/]+)/(?P<server>\S+?),? "
    r"(?:is (?P<state>UP|DOWN|going DOWN|stopping)|(?P<result>failed|succeeded)).*",
    re.ASCII,
)
TAG = re.compile(r"haproxy\[(\d{1,10})\]: ", re.ASCII)
EMPTY = re.compile(r"(?:backend|proxy) (?P<backend>\S+) has no server available!", re.ASCII)
LIFE = re.compile(
    r"(?:Proxy|Stopping|Starting|Pausing|Enabling|Loading|New worker|Reexecuting|Exiting|Former|"
    r"Current worker|All workers|Server|Backend|Frontend|Master|Available|WARNING|ALERT|NOTICE)"
    r"\b.*",
    re.IGNORECASE,
)


def _address(text: str) -> tuple[str | None, int | None]:
    """`10.0.0.5:53124`, `2001:db8::1:53124` or `unix:1`: the port is behind the last colon."""
    host, colon, port = text.rpartition(":")
    if text.startswith("unix:") or not colon:
        return text, None
    return host.strip("[]") or None, whole(port, PORT)


def _common(match: re.Match[str], line: Line) -> Exchange:
    """What the HTTP and the TCP format have in common."""
    x = Exchange()
    x.client, x.client_port = _address(match["client"])
    server, backend = match["server"], match["backend"]
    x.server = {"svc_name": backend}
    # It is what HAProxy writes where the request went to no server.
    if server != "<NOSRV>":
        x.server["name"] = server
    frontend = match["frontend"]
    # HAProxy marks a frontend whose connection came by TLS so.
    if frontend.endswith("~"):
        frontend, x.scheme = frontend[:-1], "https"
        x.rest["tls_frontend"] = True
    x.more = {"load_balancer": kept(name=frontend, dst_endpoint=dict(x.server))}
    names = ("actconn", "feconn", "beconn", "srv_conn", "retries", "srv_queue", "backend_queue")
    x.rest |= line.rest | {name: match[name] for name in names}
    x.rest |= {"termination_state": match["state"], "timers": match["timers"]}
    x.received = x.length = whole(match["bytes"])
    # With `option logasap` the total has a plus: the line was written before the end.
    total = match["timers"].rpartition("/")[2].lstrip("+")
    x.duration = whole(total)
    x.columns = {
        "actor": {"process": {"name": line.program, "pid": line.pid}} if line.pid else None,
        "app_name": frontend,
    }
    x.meta = kept(log_name="traffic", log_provider=line.program)
    return x


def _http(match: re.Match[str], stamp: Stamp, line: Line) -> Event:
    x = _common(match, line)
    # `<BADREQ>` stands in place of a request that HAProxy could not read.
    x.request(match["request"] if match["request"] != "<BADREQ>" else "")
    if x.method is None and (cut := request_line(f"{match['request']} HTTP/0")):
        x.method, x.target = cut[0], cut[1]  # cut off at the length of a log line
        x.rest.pop("request", None)
    if match["request"] == "<BADREQ>":
        x.rest["request"] = "<BADREQ>"
    x.code = whole(match["code"], CODE)
    if x.code is None:
        x.rest["status"] = match["code"]
    for name in ("request_cookie", "response_cookie"):
        if match[name] != "-":
            x.rest[name] = match[name]
    # Braces alone are taken for those of the request: of a frontend that captures only responses
    # the line looks the same.
    first, two = match["one"], match["two"]
    for name, held in (("captured_request_headers", first), ("captured_response_headers", two)):
        if held:
            x.rest[name] = held.split("|")
    _https(x, match["tail"])
    columns: dict[str, Any] = {}
    # The state `PR` means that the proxy itself refused the request.
    if match["state"][:2] == "PR" or (match["server"] == "<NOSRV>" and x.code in (401, 403, 429)):
        columns = {"action_id": DENIED, "disposition_id": _BLOCKED}
    if x.code is None and not x.method:
        columns |= {"class_uid": NETWORK, "activity_id": _FAIL, "status_id": FAILURE}
    columns["status_detail"] = match["state"] if match["state"][:2] != "--" else None
    return http_event(x, stamp, _PRODUCT, host=line.host, **columns)


def _https(x: Exchange, tail: str | None) -> None:
    """What `option httpslog` puts behind the request."""
    if not tail:
        return
    match = HTTPS_TAIL.fullmatch(tail)
    if match is None:
        x.rest["extra"] = tail
        return
    x.scheme = "https"
    x.rest["errors"] = match["errors"]
    named = {"sni": match["sni"], "version": match["version"], "cipher": match["cipher"]}
    x.tls = {name: value for name, value in named.items() if value != "-"}


def _tcp(match: re.Match[str], stamp: Stamp, line: Line) -> Event:
    x = _common(match, line)
    if match["tail"]:
        x.rest["extra"] = match["tail"]
    # Who ended the session, and in which phase; of HTTP two letters about cookies follow.
    state = match["state"]
    # An end in the phase of data is how TCP sessions mostly end, whoever ends them.
    fine = state[:2] in ("--", "CD", "SD", "cD", "sD")
    refused = state[:2] == "PR"
    columns: dict[str, Any] = {
        "class_uid": NETWORK,
        "activity_id": _CLOSE if fine else _FAIL,
        "status_id": SUCCESS if fine else FAILURE,
        "status_code": state,
        "message": f"{match['client']} to {match['backend']}/{match['server']}: {state}",
        "connection_info": {"protocol_name": "tcp", "protocol_num": 6, "direction_id": 0},
    }
    if refused:
        columns |= {"action_id": DENIED, "disposition_id": _BLOCKED}
    return http_event(x, stamp, _PRODUCT, host=line.host, **columns)


def _connect(match: re.Match[str], line: Line) -> Event:
    """The default format: a connection that was accepted."""
    x = Exchange(rest=dict(line.rest) | {"mode": match["mode"]})
    x.client, x.client_port = _address(match["client"])
    host, port = _address(match["target"])
    x.server = endpoint(host, port)
    x.more = {"load_balancer": {"name": match["frontend"]}}
    columns: dict[str, Any] = {
        "activity_id": _OPEN,
        "status_id": SUCCESS,
        "app_name": match["frontend"],
        "message": line.text,
        "connection_info": {"protocol_name": "tcp", "protocol_num": 6, "direction_id": 0},
        "actor": {"process": {"name": line.program, "pid": line.pid}} if line.pid else None,
    }
    return http_event(x, line.stamp, _PRODUCT, host=line.host, **columns)


def _broken(match: re.Match[str], stamp: Stamp, line: Line) -> Event:
    x = Exchange(rest=dict(line.rest) | {"bind": match["bind"]})
    x.client, x.client_port = _address(match["client"])
    x.more = {"load_balancer": {"name": match["frontend"].rstrip("~")}}
    columns: dict[str, Any] = {
        "activity_id": _FAIL,
        "status_id": FAILURE,
        "severity_id": LOW,
        "app_name": match["frontend"].rstrip("~"),
        "status_detail": match["why"],
        "message": match["why"],
        "actor": {"process": {"name": line.program, "pid": line.pid}} if line.pid else None,
    }
    return http_event(x, stamp, _PRODUCT, host=line.host, **columns)


def _own_event(line: Line) -> Event | None:
    """What HAProxy says of itself and its servers."""
    state = SERVER_STATE.fullmatch(line.text)
    empty = EMPTY.fullmatch(line.text)
    if not (state or empty or LIFE.fullmatch(line.text)):
        return None
    down = state and (state["state"] in ("DOWN", "going DOWN") or state["result"] == "failed")
    level = HIGH if empty else MEDIUM if down else INFORMATIONAL
    status = FAILURE if down or empty else SUCCESS if state else None
    about = state or empty
    x = Exchange(rest=dict(line.rest) | (kept(**about.groupdict()) if about else {}))
    x.meta = kept(log_provider=line.program)
    columns: dict[str, Any] = {
        "class_uid": BASE,
        "activity_id": 0,
        "status_id": status,
        "severity_id": max(level, severity(line) if "level" in line.rest else 0),
        "message": line.text,
        "actor": {"process": {"name": line.program, "pid": line.pid}} if line.pid else None,
    }
    return http_event(x, line.stamp, _PRODUCT, host=line.host, **columns)


def _no_extras(x: Exchange, tokens: list[Token]) -> None:
    remaining(x, tokens)


def _read(line: Line, context: Context) -> Event | None:
    """A request, a connection or a word about servers; None for what is none of HAProxy's."""
    zone, received_at = context.zone(line.host), context.record.received_at
    tag = TAG.match(line.text) if line.program is None else None
    if tag:
        line = line._replace(program="haproxy", pid=int(tag[1]), text=line.text[tag.end() :])
    text = line.text
    for pattern, make in ((_HTTP, _http), (TCP, _tcp), (_BROKEN, _broken)):
        match = pattern.fullmatch(text)
        if match:
            return make(match, _stamp(match["time"], zone, received_at), line)
    match = _CONNECT.fullmatch(text)
    if match:
        return _connect(match, line)
    if text[:1] == "{":
        x, stamp = read_json(line, context, _no_extras)
        return access_event(x, stamp, _PRODUCT, line)
    access_line = read_clf(text, zone, received_at, _no_extras)
    return access_event(*access_line, _PRODUCT, line) if access_line else _own_event(line)


def _stamp(text: str, zone: ZoneInfo, received_at: datetime) -> Stamp:
    return stamp_clf(text, zone, received_at)


_TIME = re.compile(rf"\S{{1,255}} \[(?P<time>{_WHEN})\] ", re.ASCII)

SOURCES = (
    FramedSource(
        name="haproxy",
        programs=frozenset({"haproxy", "hapee-lb"}),
        product=_PRODUCT,
        reader=_read,
        restamper=first_of(replacing(_TIME, write_clf), restamp_web_json, restamp_clf),
    ),
)
