"""nginx's error log (https://nginx.org/en/docs/ngx_core_module.html#error_log).

`2026/11/21 10:00:00 [error] 12#12: *5 message, client: .., server: .., request: ".."`, and
`upstream`, `host` and `referrer` behind it. Nothing in it is escaped: the message may hold
a path or a user's name, the request and the referrer what they like, quotes and `, client:
6.6.6.6` too. So every place where such an end could begin is looked at, and where nginx can have
written the line in two ways, no client is named.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple
from urllib.parse import unquote

from ingest.parsing.framed_source import FramedSource
from ingest.parsing.ocsf import BASE, DENIED, FAILURE, kept
from ingest.parsing.source import Context, Event
from ingest.parsing.syslog import Line
from ingest.parsing.timestamps import Stamp, stamp_iso
from ingest.sources.shared.http_exchange import (
    ERROR_LEVELS,
    FAILED,
    Exchange,
    basic_logon,
    endpoint,
    host_port,
    http_event,
    whole,
)
from ingest.sources.shared.web_timestamps import replacing, write_slashed
from ingest.sources.web.modsecurity import modsecurity_finding

_PRODUCT: Mapping[str, str] = {"name": "nginx", "vendor_name": "F5"}
_CLOSE, _FAIL, _REFUSE, _OTHER_TRAFFIC, _BLOCKED = 2, 4, 5, 6, 2
_LINE = re.compile(
    r"(?P<time>\d{4}/\d\d/\d\d \d\d:\d\d:\d\d(?:\.\d{1,6})?) \[(?P<level>[a-z]{4,6})\] "
    r"(?P<pid>\d{1,10})#(?P<tid>\d{1,20}): (?:\*(?P<connection>\d{1,20}) )?(?P<text>.*)",
    re.ASCII | re.DOTALL,
)
CONTINUED = re.compile(
    r"PHP (?:message|Fatal error|Warning|Notice|Deprecated|Parse error)|Stack trace|#\d+ "
    r"|  thrown in "
)
"""How lines begin that belong to a message of PHP of several lines."""
_CLIENT = re.compile(
    r", (?:udp )?client: (?P<client>[^\s,\"]{1,100}), server: (?P<server>[^\"\s]{0,255}?)"
    r"(?=, |\Z)"
)
_NAMED = re.compile(r", (request|subrequest|upstream|host|referrer|login|bytes from/to client): ")
_CLOSED = re.compile(r'"(?=, (?:subrequest|upstream|host|referrer|login): "|\Z)')
_MOST_TAILS = 8
_BLANK = re.compile(r"[\x00-\x20\x7f]")
"""What nginx refuses in a Host header, so that it never stands in `host: "..."`."""
_HOLDS_TEXT = re.compile(
    r'user "|PAM: user |http_auth_ldap: |\w{2,20}\(\) "|directory index of "|'
    r'(?:FastCGI|uwsgi|SCGI) sent in stderr: "|"'
)
_COMPLETE = re.compile(
    r'user ".*"(?:: password mismatch| was not found in "[^"]*")'
    r'|\w{2,20}\(\) ".*" failed \(\d{1,5}: [^"]*\)'
    r'|directory index of ".*" is forbidden'
    r'|(?:FastCGI|uwsgi|SCGI) sent in stderr: ".*" while [a-z ]*'
    r'|".*" is (?:not found|forbidden|not a directory)(?: \(\d{1,5}: [^"]*\))?',
    re.ASCII | re.DOTALL,
)
"""Messages that hold what a client sent, and how they go on behind it."""
_PATH = re.compile(r'(?:\w{2,20}\(\) |directory index of |)"', re.ASCII)
_OF_NGINX = re.compile(
    r'(?!\[lua\]|js:|perl|PAM: |http_auth_ldap: )[^"]*|'
    r'(?:limiting|delaying) (?:request|connection)s?[^"]*"[^"]*"',
    re.ASCII | re.DOTALL,
)
_CUT = 1900
"""nginx cuts lines at 2,048 bytes; in one that may be cut, the true end may be missing."""
_USER = re.compile(
    r'user "(?P<user>.*)" (?P<why>was not found in ".*"|: password mismatch)'
    r'|user "(?P<other>.*)": password mismatch'
    # modules of others: PAM, LDAP, SPNEGO, digest
    r"|PAM: user '(?P<pam>.*)' - (?:not authenticated|invalid account).*"
    r'|http_auth_ldap: Authentication failed for user "(?P<ldap>.*)".*'
    r"|http_auth_ldap: User bind failed.*|Negotiate authentication failed.*"
    r"|(?:GSSAPI|Basic) authentication failed.*",
    re.DOTALL,
)
_REFUSED = re.compile(
    r"access forbidden by rule|limiting (?:requests|connections)|delaying request"
)


CLOSED_BY = re.compile(r"client (?P<client>\S{2,100}) closed keepalive connection(?: \(.*\))?")


class _Tail(NamedTuple):
    """What stands behind the message."""

    at: int
    client: str
    server: str
    fields: dict[str, str]
    closed: bool


def _fields(text: str, position: int) -> tuple[dict[str, str], bool]:
    """The named fields from `at` on, and whether the last one was closed."""
    fields: dict[str, str] = {}
    while position < len(text):
        match = _NAMED.match(text, position)
        if match is None:
            fields["tail"] = text[position:]
            return fields, True
        name, position = match[1], match.end()
        if text[position : position + 1] != '"':
            end = text.find(", ", position)
            end = len(text) if end < 0 else end
            fields[name], position = text[position:end], end
            continue
        close = _CLOSED.search(text, position + 1)
        if close is None:
            fields[name] = text[position + 1 :]
            return fields, False
        # The first holds: a later one of the same name stands in what the client sent.
        fields.setdefault(name, text[position + 1 : close.start()])
        position = close.end()
    return fields, True


def _tails(text: str) -> list[_Tail]:
    """Every place where the end of the message may begin; at most one more than are weighed."""
    tails: list[_Tail] = []
    for match in _CLIENT.finditer(text):
        fields, closed = _fields(text, match.end())
        tails.append(_Tail(match.start(), match["client"], match["server"], fields, closed))
        if len(tails) > _MOST_TAILS:
            break
    return tails


def _is_possible(text: str, tail: _Tail) -> bool:
    """Whether nginx can have written this message with this end."""
    if not tail.closed or "tail" in tail.fields or _BLANK.search(tail.fields.get("host", "")):
        return False
    message = text[: tail.at]
    return not _HOLDS_TEXT.match(message) or _COMPLETE.fullmatch(message) is not None


def _is_explained(tail: _Tail, first: _Tail) -> bool:
    """Whether the end that comes first may be a part of the path that was asked for."""
    return f", client: {first.client}" in unquote(tail.fields.get("request", ""), errors="replace")


def _tail_of(text: str) -> tuple[_Tail | None, list[str]]:
    """The true end of a message, and the clients that were named where that is unsure."""
    tails = _tails(text)
    if not tails:
        return None, []
    if len({tail.client for tail in tails}) == 1 and len(tails) == 1:
        only = tails[0]
        unsure = not only.closed and len(text) >= _CUT and '"' in text[: only.at]
        return (None, [only.client]) if unsure else (only, [])
    # Nothing that a client sent stands in such a message, so nothing can be forged before it ends.
    if _OF_NGINX.fullmatch(text[: tails[0].at]):
        return tails[0], []
    possible = [tail for tail in tails if _is_possible(text, tail)]
    if possible and len(tails) <= _MOST_TAILS:
        first = possible[0]
        rivals = [tail for tail in possible if tail.client != first.client]
        if not rivals:
            return first, []
        # The text of a path comes from the request, so the request shows where it was forged.
        of_path = _PATH.match(text[: first.at])
        if of_path and not any(_is_explained(tail, first) for tail in rivals):
            return first, []
    # No address is better than one that somebody wrote into a name or a path.
    return None, [tail.client for tail in tails[:_MOST_TAILS]]


def _exchange(tail: _Tail) -> Exchange:
    x = Exchange()
    x.client, x.client_port = host_port(tail.client)
    x.client = x.client or tail.client
    fields = dict(tail.fields)
    if "request" in fields:
        x.request(fields.pop("request"))
    host = fields.pop("host", None)
    x.host = host or None
    x.referrer = fields.pop("referrer", None)
    server = tail.server
    # `_` is the usual name of a server block that catches all.
    if server not in ("", "_"):
        name, port = host_port(server)
        # An address to listen on, not one that anybody has.
        bound = server.startswith(("0.0.0.0:", "[::]:"))
        x.server = kept(port=port) if bound else endpoint(name or server, port)
        if bound:
            x.rest["server"] = server
    elif server:
        x.rest["server"] = server
    x.rest |= fields
    return x


def _read(line: Line, context: Context) -> Event | None:
    """A message; None for what is no line of an error log."""
    match = _LINE.fullmatch(line.text)
    if match is None or match["level"] not in ERROR_LEVELS:
        return _continued(line)
    zone = context.zone(line.host)
    when = match["time"].replace("/", "-")
    stamp = stamp_iso(when, zone, context.record.received_at)
    if stamp.original:
        stamp = stamp._replace(original=match["time"])
    text_value = match["text"]
    tail, unsure = _tail_of(text_value)
    x = _exchange(tail) if tail else Exchange()
    words = text_value[: tail.at] if tail else text_value
    if unsure:
        x.rest |= {"ambiguous": True, "client": unsure}
    x.rest |= line.rest
    x.more = {"metadata": {"log_level": match["level"]}}
    x.columns["actor"] = {
        "process": {"name": "nginx", "pid": whole(match["pid"]), "tid": whole(match["tid"])}
    }
    if match["connection"]:
        x.columns["connection_info"] = {
            "uid": match["connection"],
            "direction_id": 0,
            "direction": "Unknown",
        }
    return _event(x, words, match["level"], stamp, line)


def _event(x: Exchange, words: str, level: str, stamp: Stamp, line: Line) -> Event:
    failed = level in FAILED
    columns: dict[str, Any] = {
        "severity_id": ERROR_LEVELS[level],
        "status_id": FAILURE if failed else None,
        "message": words,
    }
    attack = modsecurity_finding(words, x, stamp, line.host, x.columns)
    if attack:
        return attack
    x.meta = kept(log_name="error", log_provider=line.program)
    closed = CLOSED_BY.fullmatch(words)
    if closed and x.client is None:
        x.client = closed["client"]
    has_request = x.client is not None and (x.method or x.target)
    user = _USER.fullmatch(words)
    if user and x.client:
        return _logon(user, x, stamp, line, columns)
    # The mail proxy names the account behind the client, in a field that nginx writes last: it may
    # be cut off, and a login of nobody is none.
    if x.client and words.startswith("client login failed: ") and x.rest.get("login"):
        name = str(x.rest.pop("login"))
        proxied = basic_logon(name, "nginx") | {"auth_protocol": None}
        return http_event(x, stamp, _PRODUCT, host=line.host, **(columns | proxied))
    if _REFUSED.match(words):
        columns |= {"action_id": DENIED, "disposition_id": _BLOCKED, "status_id": FAILURE}
    if has_request or x.client is None:
        return http_event(x, stamp, _PRODUCT, host=line.host, **(columns | _class(x)))
    columns["activity_id"] = _CLOSE if closed else _FAIL if failed else _OTHER_TRAFFIC
    if "action_id" in columns:
        columns["activity_id"] = _REFUSE
    return http_event(x, stamp, _PRODUCT, host=line.host, **columns)


def _class(x: Exchange) -> dict[str, Any]:
    """Of the server itself, where no client is named: no class, unless a request is."""
    if x.client or x.method:
        return {}
    if "connection_info" in x.columns:
        x.rest["connection"] = x.columns.pop("connection_info")["uid"]
    return {"class_uid": BASE, "activity_id": 0}


def _logon(
    user: re.Match[str], x: Exchange, stamp: Stamp, line: Line, columns: dict[str, Any]
) -> Event:
    """Basic authentication that failed."""
    name = next((name for key, name in user.groupdict().items() if key != "why" and name), "")
    return http_event(
        x,
        stamp,
        _PRODUCT,
        host=line.host,
        **(columns | basic_logon(name, "nginx")),
    )


def _continued(line: Line) -> Event | None:
    """A further line of a message of several, which only says what the first did not."""
    if not CONTINUED.match(line.text):
        return None
    x = Exchange(rest=dict(line.rest), meta={"log_name": "error"})
    base: dict[str, Any] = {"class_uid": BASE, "activity_id": 0, "status_id": None}
    return http_event(x, line.stamp, _PRODUCT, host=line.host, message=line.text, **base)


_TIME = re.compile(r"(?P<time>\d{4}/\d\d/\d\d \d\d:\d\d:\d\d)", re.ASCII)

SOURCES = (
    FramedSource(
        name="nginx_error",
        programs=frozenset({"nginx", "nginx-error", "nginx_error"}),
        product=_PRODUCT,
        reader=_read,
        restamper=replacing(_TIME, write_slashed),
    ),
)
