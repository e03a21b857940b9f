"""Squid's access log (https://wiki.squid-cache.org/Features/LogFormat).

The native format, with the client's port or quoted headers behind it, the emulation of web
servers' formats, and what `cache.log` says. A URL may hold spaces where Squid was told
to let them pass, so a line is read from both ends.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import timedelta
from types import MappingProxyType
from typing import Any
from urllib.parse import unquote

from ingest.parsing.framed_source import FramedSource
from ingest.parsing.ocsf import (
    ALLOWED,
    BASE,
    DENIED,
    FATAL,
    HIGH,
    INFORMATIONAL,
    MEDIUM,
    address,
    kept,
)
from ingest.parsing.source import Context, Event
from ingest.parsing.syslog import Line
from ingest.parsing.timestamps import Stamp, stamp_epoch, stamp_iso
from ingest.sources.shared.access_json import read_json, restamp_web_json
from ingest.sources.shared.clf import Token, access_event, given, read_clf, remaining, restamp_clf
from ingest.sources.shared.http_exchange import (
    CODE,
    NONE,
    Exchange,
    endpoint,
    host_port,
    http_event,
    unescape,
    url,
    whole,
)
from ingest.sources.shared.web_timestamps import first_of, replacing, write_epoch, write_slashed

_PRODUCT: Mapping[str, str] = {"name": "Squid", "vendor_name": "Squid"}
A_PASS, _BLOCKED = 1, 2
_QUOTED = r'"(?:[^"\\]|\\.)*+"'
# `.*` for the URL takes spaces; what stands behind it is bounded and found from the end.
NATIVE = re.compile(
    r"(?P<time>\d{9,11}\.\d{1,9}) +(?P<elapsed>-?\d{1,12}) "
    r"(?P<client>\S{1,255})(?: (?P<port>\d{1,5}))? "
    r"(?P<result>[A-Z][A-Z_0-9]{1,60})/(?P<code>-|\d{1,3}) (?P<bytes>-|\d{1,19}) "
    r"(?P<method>\S{1,64}) (?P<url>.*) (?P<user>\S{1,255}) "
    r"(?P<hierarchy>[A-Z][A-Z_0-9]{1,60})/(?P<peer>\S{1,255}) (?P<type>[^\s\"\[]\S{0,255})"
    rf"(?P<tail>(?: (?:{_QUOTED}|\[[^\]]*\]|-))*)",
    re.ASCII,
)
_RESULT = re.compile(
    r"(?P<result>(?:TCP|UDP|TAG|NONE)_?[A-Z_0-9]*)[:/](?P<hierarchy>[A-Z][A-Z_0-9]+)"
    r"(?:/(?P<peer>\S+))?",
    re.ASCII,
)
CACHE_LOG = re.compile(
    r"(?P<time>\d{4}/\d\d/\d\d \d\d:\d\d:\d\d(?:\.\d{1,6})?)(?: (?P<kid>kid\d{1,4}))?\| "
    r"(?P<text>.*)",
    re.ASCII,
)
_LEVELS: Mapping[str, int] = MappingProxyType({"FATAL": FATAL, "ERROR": HIGH, "WARNING": MEDIUM})
EXTRA = re.compile(rf"{_QUOTED}|\[[^\]]*\]|\S+")
DIRECT = ("DIRECT", "ORIGINAL_DST", "PINNED")


def _decided(x: Exchange, result: str) -> dict[str, Any]:
    """Whether the proxy let the request pass."""
    x.rest["result"] = result
    if "DENIED" in result:
        return {"action_id": DENIED, "disposition_id": _BLOCKED}
    if x.code is None or (x.code >= 400 and "NONE" in result):
        return {}  # nothing was asked that could have been let pass
    return {"action_id": ALLOWED, "disposition_id": A_PASS}


def _server(x: Exchange, hierarchy: str | None, peer: str | None) -> None:
    """The server asked for, and the host that was asked in its place where there is one."""
    link = url(x.target or "", x.method) or {}
    x.server = endpoint(link.get("hostname"), link.get("port"))
    if hierarchy:
        x.rest["hierarchy"] = hierarchy
    if peer in (None, "-", ""):
        return
    host, port = host_port(peer or "")
    ip = address(host or "")
    # Squid went to the server itself, so the peer's address is the server's.
    if hierarchy and hierarchy.endswith(DIRECT):
        if ip:
            x.server["ip"] = ip
            if port is not None:
                x.server.setdefault("port", port)
            return
        if x.server.get("hostname") == host:
            return
    x.rest["peer"] = peer


def _native(match: re.Match[str], line: Line, context: Context) -> Event:
    x = Exchange(rest=dict(line.rest) | kept(pid=line.pid))
    x.client, x.client_port = host_port(match["client"])
    x.client = x.client or match["client"]
    x.client_port = x.client_port or whole(match["port"], 65535)
    if match["method"] not in NONE:
        x.method = match["method"]
    target = match["url"].strip()
    # `error:` and a word stand in place of a URL that Squid could not read.
    x.target = target if target not in NONE and not target.startswith("error:") else None
    if x.target is None and target not in NONE:
        x.rest["url"] = target
    # Squid's word for a connection on which nothing was asked.
    if x.method == "NONE":
        x.method = None
        x.rest["method"] = "NONE"
    x.user = given(match["user"])
    if x.user and "%" in x.user and unquote(x.user).isprintable():
        x.user = unquote(x.user)  # Squid writes names as they stand in URLs
    x.code = whole(match["code"], CODE) or None
    if x.code is None and match["code"] != "-":
        x.rest["status"] = match["code"]
    x.received = x.length = whole(match["bytes"])
    x.content_type = given(match["type"])
    x.duration = whole(match["elapsed"])
    if x.duration is None:
        x.rest["elapsed"] = match["elapsed"]
    _tail(x, match["tail"])
    _server(x, match["hierarchy"], match["peer"])
    x.meta = kept(log_name="access", log_provider=line.program)
    stamp = stamp_epoch(match["time"], context.record.received_at)
    return http_event(
        x,
        stamp,
        _PRODUCT,
        host=line.host,
        **_decided(x, match["result"]),
        **_span(x, stamp),
    )


def _span(x: Exchange, stamp: Stamp) -> dict[str, Any]:
    """Squid writes a line when the request is over."""
    # A span of months is a forged or damaged one.
    if not x.duration or stamp.quality != "exact" or x.duration > 10**10:
        return {}
    return {"start_time": stamp.time - timedelta(milliseconds=x.duration), "end_time": stamp.time}


def _tail(x: Exchange, tail: str) -> None:
    """Quoted headers behind the line, and those of `log_mime_hdrs` in brackets."""
    groups = [match.group() for match in EXTRA.finditer(tail)]
    quoted = [unescape(match[1:-1]) for match in groups if match[:1] == '"']
    if len(quoted) == len(groups) == 1:
        x.agent = given(quoted[0])
    elif len(quoted) == len(groups) == 2:
        x.referrer, x.agent = given(quoted[0]), given(quoted[1])
    elif any(match.strip('[]"') not in NONE for match in groups):
        x.rest["extra"] = groups


def _extras(x: Exchange, tokens: list[Token]) -> None:
    """What stands behind the user agent: the result and the hierarchy."""
    for token in list(tokens):
        match = _RESULT.fullmatch(token.text)
        if match and "result" not in x.rest:
            tokens.remove(token)
            x.columns |= _decided(x, match["result"])
            _server(x, match["hierarchy"], match["peer"])
    remaining(x, tokens)


def _cache_log(match: re.Match[str], line: Line, context: Context) -> Event:
    """A word of Squid about itself."""
    when = match["time"].replace("/", "-")
    stamp = stamp_iso(when, context.zone(line.host), context.record.received_at)
    stamp = stamp._replace(original=match["time"])
    word = match["text"].partition(":")[0]
    x = Exchange(rest=dict(line.rest) | kept(kid=match["kid"]), meta={"log_name": "cache"})
    base: dict[str, Any] = {"class_uid": BASE, "activity_id": 0, "status_id": None}
    base |= {"severity_id": _LEVELS.get(word, INFORMATIONAL), "message": match["text"]}
    return http_event(x, stamp, _PRODUCT, host=line.host, **base)


def _read(line: Line, context: Context) -> Event | None:
    """A request, or a word of Squid about itself; None for what is neither."""
    match = NATIVE.fullmatch(line.text)
    if match:
        return _native(match, line, context)
    match = CACHE_LOG.fullmatch(line.text)
    if match:
        return _cache_log(match, line, context)
    if line.text[:1] == "{":
        x, stamp = read_json(line, context, _extras)
        return access_event(x, stamp, _PRODUCT, line)
    received_at = context.record.received_at
    access_line = read_clf(line.text, context.zone(line.host), received_at, _extras)
    if access_line is None:
        return None
    # In the emulated formats the result, which names the peer, may be left out.
    if "result" not in access_line[0].rest:
        _server(access_line[0], None, None)
    return access_event(*access_line, _PRODUCT, line)


_EPOCH = re.compile(r"(?P<time>\d{9,11}\.\d{1,9}) ", re.ASCII)
_SLASHED = re.compile(r"(?P<time>\d{4}/\d\d/\d\d \d\d:\d\d:\d\d(?:\.\d{1,6})?)", re.ASCII)

SOURCES = (
    FramedSource(
        name="squid",
        programs=frozenset({"squid", "squid3", "squid-1", "(squid-1)", "(squid)", "squid-access"}),
        product=_PRODUCT,
        reader=_read,
        restamper=first_of(
            replacing(_EPOCH, write_epoch),
            replacing(_SLASHED, write_slashed),
            restamp_web_json,
            restamp_clf,
        ),
    ),
)
