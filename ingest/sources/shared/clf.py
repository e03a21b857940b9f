"""The Common Log Format and what grew out of it: combined, with a virtual host, with extras.

`[vhost[:port] ]client ident user [time] "request" status bytes ["referer" "agent"] ...`
(https://httpd.apache.org/docs/2.4/mod/mod_log_config.html,
https://nginx.org/en/docs/http/ngx_http_log_module.html). Servers escape quotes in what
clients send, so a closing bracket, a space and a quote only stand behind the time; a user
name may hold everything else. The client is what stands first, never what a header says.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo

from ingest.parsing.ocsf import address, kept
from ingest.parsing.source import Event
from ingest.parsing.syslog import Line
from ingest.parsing.timestamps import Stamp
from ingest.sources.shared.http_exchange import (
    CODE,
    NONE,
    PORT,
    Exchange,
    forwarded,
    http_event,
    unescape,
    whole,
)
from ingest.sources.shared.http_fields import fill, stamp_of
from ingest.sources.shared.web_timestamps import write_clf

# Possessive, so that a client's quotes and backslashes cannot make the search try every split.
_ANSWER = re.compile(r'"((?:[^"\\]|\\.)*+)"(?: (-|\d{3}))?(?: (-|\d{1,19}))?(?= |\Z)', re.DOTALL)
UNESCAPED = re.compile(r'"(.*?)" (-|\d{3}) (-|\d{1,19})(?= |\Z)', re.DOTALL)
_TOKEN = re.compile(
    r' *(?:(?P<key>[A-Za-z_][\w.-]{0,64})=)?(?:"(?P<quoted>(?:[^"\\]|\\.)*+)"|'
    r"\[(?P<bracket>[^\[\]]*)\]|(?P<bare>\S+))(?= |\Z)",
    re.ASCII | re.DOTALL,
)
VHOST = re.compile(r"(?P<name>\[[0-9A-Fa-f:.]+\]|[^\s:/]+):(?P<port>\d{1,5})", re.ASCII)
_CLIENT = re.compile(r"[A-Za-z0-9_.:%-]{1,255}", re.ASCII)
NAME = re.compile(r"(?=.{1,255}\Z)\w[\w-]*(?:\.[\w-]+)+", re.ASCII)
SITE = re.compile(r"(?=.{4,255}\Z)(?:[A-Za-z0-9_-]+\.)+[A-Za-z]{2,24}", re.ASCII)
CHAIN = re.compile(r"(?:[0-9A-Fa-f:.]+, )+[0-9A-Fa-f:.]+(?= )", re.ASCII)
TLS_LINE = re.compile(
    r'\[(?P<time>[^\]"]{1,40})\] (?P<client>\S+) (?P<tls>\S+) (?P<cipher>\S+) '
    r'"(?P<request>(?:[^"\\]|\\.)*+)" (?P<size>-|\d{1,19})(?: "(?P<referrer>(?:[^"\\]|\\.)*+)" '
    r'"(?P<agent>(?:[^"\\]|\\.)*+)")?',
    re.ASCII,
)
TIMED = re.compile(
    r"(?:\d{2}/[A-Z][a-z]{2}/\d{4}:\d\d:\d\d:\d\d(?:\.\d{1,9})?(?: [+-]\d{4})?"
    r"|\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?:Z|[+-]\d\d:?\d\d)?"
    r"|\d{10,13}(?:\.\d{1,6})?)",
    re.ASCII,
)


_LOOKS = 8
"""How often a line may hold a bracket and a quote before its time, as users' names can."""


class Token(NamedTuple):
    """A field behind the answer: its name where it has one, its text, and how it stood there."""

    key: str | None
    text: str
    quoted: bool
    bracket: bool


Extras = Callable[[Exchange, list[Token]], None]
"""What a product's own fields behind the usual ones mean."""


def read_clf(
    text: str, zone: ZoneInfo, received_at: datetime, extras: Extras
) -> tuple[Exchange, Stamp] | None:
    """The exchange and time of a line; None where it is no such line."""
    instant, end = _time_at(text)
    quote, between = end + 2, ""
    if end < 0:
        instant, end, quote = _time_before_host(text)
        between = text[end + 2 : quote - 1]
    if end < 0:
        return _read_tls(text, zone, received_at)
    head, when = text[: instant - 1], text[instant:end]
    answer = _ANSWER.match(text, quote)
    if answer is None or answer[2] is None:
        # Servers that do not escape quotes; the status is then the client's word.
        answer = UNESCAPED.match(text, quote) or answer
    if answer is None:
        return None
    x = Exchange()
    if head.strip() and not _head(x, head.strip(" ")):
        return None
    if between:
        x.host = between
    x.request(unescape(answer[1]))
    code, size = answer[2], answer[3]
    # A lone number behind the request that can be no status is the size.
    if size is None and code is not None and code != "-" and not 100 <= int(code) <= 599:
        code, size = None, code
    # nginx writes 000 for a client that left before it had an answer.
    x.code = whole(code, CODE) or None
    if code not in (None, "-") and x.code is None:
        x.rest["status"] = code
    x.length = whole(size)
    token_list = tokens(text, answer.end())
    _usual(x, token_list)
    extras(x, token_list)
    return x, stamp_of(when, zone, received_at)


def _time_at(text: str) -> tuple[int, int]:
    """Where the time starts and ends, the first one before a quote; -1 where there is none."""
    end = -1
    for _ in range(_LOOKS):
        end = text.find('] "', end + 1)
        if end < 0:
            break
        # The nearest bracket before the quote: one in a user's name stands further left.
        rfind = text.rfind("[", 0, end) + 1
        if rfind and TIMED.fullmatch(text, rfind, end):
            return rfind, end
    return -1, -1


def _time_before_host(text: str) -> tuple[int, int, int]:
    """Where the time stands in `[time] www.example.com "GET ..`, and the quote."""
    quote = text.find(' "') + 1
    before, _, host = text[: quote - 1].rpartition(" ")
    rfind = before.rfind("[") + 1
    if quote and rfind and before[-1:] == "]" and NAME.fullmatch(host.partition(":")[0]):
        end = len(before) - 1
        if TIMED.fullmatch(text, rfind, end):
            return rfind, end, quote
    return -1, -1, -1


def _read_tls(text: str, zone: ZoneInfo, received_at: datetime) -> tuple[Exchange, Stamp] | None:
    """A line of Apache's ssl_request_log."""
    match = TLS_LINE.fullmatch(text)
    if match is None or not TIMED.fullmatch(match["time"]):
        return None
    x = Exchange(client=match["client"], scheme="https", received=whole(match["size"]))
    if match["tls"] != "-":
        x.tls = {"version": match["tls"], "cipher": match["cipher"]}
    x.request(unescape(match["request"]))
    for name in ("referrer", "agent"):
        if match[name] and match[name] != "-":
            setattr(x, name, unescape(match[name]))
    return x, stamp_of(match["time"], zone, received_at)


def _head(x: Exchange, head: str) -> bool:
    """What stands before the time: perhaps the virtual host, the client, ident and user."""
    chain = CHAIN.match(f"{head} ")
    if chain:
        # A header in the place of the client: nobody knows who it was.
        x.forwarded_for(chain[0])
        first, rest = "", head[chain.end() :].split(" ")
        rest = rest[1:] if rest[0] == "" else rest
    else:
        first, *rest = head.split(" ")
    # `host:port` in front can only be a virtual host, unless it is an IPv6 address.
    vhost = VHOST.fullmatch(first)
    if vhost and rest and not address(first):
        x.host, x.port = vhost["name"].strip("[]"), whole(vhost["port"], PORT)
        x.server = {"hostname": x.host, "port": x.port}
        if address(x.host):
            x.server = {"ip": address(x.host), "port": x.port}
        first, *rest = rest
    elif not address(first) and len(rest) > 2 and address(rest[0]):
        x.host = x.server["hostname"] = first
        first, *rest = rest
    elif len(rest) > 2 and rest[1] == "-" and (NAME.fullmatch(rest[0]) or address(rest[0])):
        x.host, *rest = rest
    first = first.strip("[]")
    if first and not _CLIENT.fullmatch(first):
        return False
    x.client = given(first)
    if len(rest) > 2 and rest[0] == "-" and rest[1] == f"[{first}]":
        rest = rest[2:]  # as old versions of ingress-nginx write the client twice
    if rest and rest[0] != "-":
        x.rest["ident"] = rest[0]
    # A user name may hold spaces, so it is all that is left before the time.
    user = unescape(" ".join(rest[1:]))
    if user not in NONE and user != '""':
        x.user = user
    return bool(first or chain)


def tokens(text: str, end: int) -> list[Token]:
    """The fields from `at` on."""
    token_list = []
    while end < len(text) and (match := _TOKEN.match(text, end)):
        end = match.end()
        quoted, bracket = match["quoted"], match["bracket"]
        value = quoted if quoted is not None else bracket if bracket is not None else match["bare"]
        key = match["key"]
        token_list.append(Token(key, unescape(value), quoted is not None, bracket is not None))
    if text[end:].strip():
        token_list.append(Token(None, text[end:].strip(), False, False))
    return token_list


def _usual(x: Exchange, tokens: list[Token]) -> None:
    """Referer, agent and X-Forwarded-For where they stand as always; and fields with names."""
    plain = [token.quoted and token.key is None for token in tokens[:_LOOKS]]
    position = next((n for n in range(len(plain) - 1) if plain[n : n + 2] == [True, True]), 0)
    if position and given(tokens[position].text) and "://" not in tokens[position].text:
        position = 0
    if plain[position : position + 2] == [True, True]:
        x.referrer, x.agent = given(tokens[position].text), given(tokens[position + 1].text)
        del tokens[position : position + 2]
    elif plain[:1] == [True]:
        alone = given(tokens[0].text)
        if alone and alone.startswith(("http://", "https://")):
            x.referrer = alone
        else:
            x.agent = alone
        del tokens[0]
    if tokens and tokens[0].quoted and tokens[0].key is None and forwarded(tokens[0].text):
        x.forwarded_for(tokens.pop(0).text)
    if x.host is None:
        named = [token for token in tokens[:_LOOKS] if token.quoted and SITE.fullmatch(token.text)]
        if named and named[0].key is None:
            x.host = named[0].text
            tokens.remove(named[0])
    for token in [token for token in tokens if token.key]:
        tokens.remove(token)
        # nginx's documentation calls the upstream's address `ua`.
        if token.text not in NONE and (
            token.key == "ua" or not fill(x, token.key or "", token.text)
        ):
            x.rest[token.key or ""] = token.text


def given(text: str) -> str | None:
    """A field's text; None where it only says that there is none."""
    return None if text in NONE else text


def remaining(x: Exchange, tokens: list[Token]) -> None:
    """Keep the fields nobody could name, in their order."""
    left = [token.text for token in tokens]
    if any(text not in NONE for text in left):
        x.rest["extra"] = left


def restamp_clf(text: str, when: datetime, zone: ZoneInfo) -> str | None:
    """The line with its time replaced; None where it has none."""
    start, _ = _time_at(text)
    match = TIMED.match(text, max(start, 1))
    if match is None or (
        start < 0 and (text[0] != "[" or text[match.end() : match.end() + 1] != "]")
    ):
        return None
    start = match.start()
    new = write_clf(match[0], when, zone)
    return None if new is None else text[:start] + new + text[match.end() :]


def access_event(
    x: Exchange, stamp: Stamp, product: Mapping[str, str], line: Line, **columns: Any
) -> Event:
    """The event of a line of an access log; a time it lacks is that of syslog."""
    x.rest |= line.rest | kept(pid=line.pid)
    if line.program:
        x.meta["log_provider"] = line.program
    x.meta.setdefault("log_name", "access")
    # Some formats leave the time to syslog.
    if stamp.quality == "received" and line.stamp.quality != "received":
        stamp = line.stamp
    return http_event(x, stamp, product, host=line.host, **columns)
