"""BIND 9's named (https://bind9.readthedocs.io/en/latest/reference.html, logging and queries).

A line is `[date ][category: ][severity: ]message`, each as the channel is told to print it,
in a file or in syslog. What a client asked, was refused, changed or transferred starts with
`client @0x7f.. 10.0.0.5#53124/key k (name): view v: `; older versions leave parts out. BIND
escapes what a name may not hold (`\\032`), so the client's words cannot end a field.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from ingest.parsing.framed_source import FramedSource
from ingest.parsing.ocsf import (
    CRITICAL,
    DENIED,
    FAILURE,
    HIGH,
    INFORMATIONAL,
    LOW,
    MEDIUM,
    SUCCESS,
    kept,
)
from ingest.parsing.source import Context, Event
from ingest.parsing.syslog import Line, severity
from ingest.parsing.timestamps import Stamp, month_number, stamp_iso, stamp_parts, stamp_rfc3164
from ingest.sources.dns.bind_client import (
    BLOCKED,
    CLIENT_MESSAGES,
    Columns,
    end_of,
    volume,
    zone_of,
)
from ingest.sources.shared.dns import RCODES, RESPONSE, TRAFFIC, answered, dns_event, question
from ingest.sources.shared.web_timestamps import replacing, write_dashed

_PRODUCT: Mapping[str, str] = {"name": "BIND", "vendor_name": "ISC"}
_LEVELS: Mapping[str, int] = MappingProxyType(
    {
        "critical": CRITICAL,
        "error": HIGH,
        "warning": MEDIUM,
        "notice": LOW,
        "info": INFORMATIONAL,
        "debug": INFORMATIONAL,
    }
)

_TIME = (
    r"(?:\d\d-[A-Z][a-z]{2}-\d{4} \d\d:\d\d:\d\d(?:\.\d{1,9})?"
    r"|\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{1,9})?(?:Z|[+-]\d\d:?\d\d)?"
    r"|[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d\.\d{1,9})"
)
_PREFIX = re.compile(
    rf"(?:(?P<time>{_TIME}) )?"
    r"(?:(?!(?:critical|error|warning|notice|info|debug): )(?P<category>[a-z][a-z-]{2,30}): "
    r"(?=\S))?"
    r"(?:(?P<level>critical|error|warning|notice|info|debug)(?: (?P<depth>\d{1,3}))?: )?",
    re.ASCII,
)
CATEGORIES = frozenset(
    {
        *("client", "cname", "config", "database", "default", "delegation-only", "dispatch"),
        *("dnssec", "dnstap", "edns-disabled", "general", "lame-servers", "network", "notify"),
        *("nsid", "queries", "query-errors", "rate-limit", "resolver", "responses", "rpz"),
        *(
            "rpz-passthru",
            "security",
            "serve-stale",
            "spill",
            "sslkeylog",
            "trust-anchor-telemetry",
        ),
        *("unmatched", "update", "update-security", "xfer-in", "xfer-out", "zoneload", "tat"),
        *("update-policy", "eventlib", "parser", "panic", "maintenance", "load", "statistics"),
    }
)
_CLIENT = re.compile(
    r"client (?:@(?P<object>0x[0-9a-fA-F]{1,16}) )?"
    r"(?P<ip>[0-9a-fA-F:.]{2,45})(?:%(?P<scope>[\w.-]{1,20}))?#(?P<port>\d{1,5})"
    r"(?:/key (?P<key>\S{1,255}))?(?: \((?P<name>(?:[^\s\\()]|\\.){1,1100})\))?: "
    r"(?:view (?P<view>\S{1,64}): )?(?:signer \"(?P<signer>[^\"]{1,255})\" )?(?P<said>.*)",
    re.ASCII | re.DOTALL,
)
FETCHED = re.compile(
    r"transfer of '(?P<zone>[^']{1,1100})' from (?P<peer>[0-9a-fA-F:.]{2,45})#(?P<port>\d{1,5}): "
    r"(?P<what>.*)",
    re.ASCII,
)
NOTIFY = re.compile(
    r"zone (?P<zone>\S{1,1100}): (?P<refused>refused )?notify from "
    r"(?:non-(?:master|primary): )?"
    r"(?P<peer>[0-9a-fA-F:.]{2,45})#(?P<port>\d{1,5}):? ?(?P<what>.*)",
    re.ASCII,
)
# `(in 'example.com'?)`: the zone that BIND takes the name to be in.
RESOLVING = re.compile(
    r"(?P<why>.{1,200}?) resolving '(?P<name>[^'/\s]{1,1100})(?:/(?P<type>[A-Z0-9-]{1,20}))?"
    r"(?:/(?P<class>[A-Z0-9]{1,10}))?'(?: \(in '(?P<zone>[^']{1,1100})'\?\))?"
    r"(?:: (?P<peer>[0-9a-fA-F:.]{2,45})#(?P<port>\d{1,5})|(?P<tail>.{0,200}))",
    re.ASCII,
)
_FORMAT = re.compile(
    r"DNS format error from (?P<peer>[0-9a-fA-F:.]{2,45})#(?P<port>\d{1,5}) resolving "
    r"(?P<name>[^/\s]{1,1100})/(?P<type>[A-Z0-9-]{1,20})(?: for (?:client )?"
    r"(?P<client>[0-9a-fA-F:.]{2,45})#(?P<client_port>\d{1,5})|(?: for <unknown>))?: (?P<why>.*)",
    re.ASCII,
)
# Versions put the code before the words or in brackets: `REFUSED unexpected RCODE`, `unexpected
# RCODE (REFUSED)`.
IN_WHY = re.compile(r"\b([A-Z]{5,10})\b")


def _stamp(text: str | None, line: Line, context: Context) -> Stamp:
    if text is None:
        return line.stamp
    zone, received_at = context.zone(line.host), context.record.received_at
    if text[:1].isalpha():
        whole_part, _, fraction = text.partition(".")
        stamp = stamp_rfc3164(whole_part, zone, received_at)
        if stamp.quality == "received":
            return stamp
        micros = int(f"{fraction[:6]:0<6}")
        return stamp._replace(time=stamp.time.replace(microsecond=micros), original=text)
    # `print-time local`: day, month by name, year.
    if text[2:3] == "-":
        day, month, rest = text.split("-", 2)
        year, clock = rest.split(" ")
        return stamp_parts(
            int(year), month_number(month), int(day), clock, zone, received_at, original=text
        )
    return stamp_iso(text, zone, received_at)


def read(line: Line, context: Context) -> Event | None:
    """A message of named; None for what is none."""
    prefix = _PREFIX.match(line.text)
    category = prefix["category"] if prefix else None
    end = prefix.end() if prefix else 0
    level, time = (prefix["level"], prefix["time"]) if prefix else (None, None)
    # Any word with a colon looks like a category; only BIND's own are taken for one.
    if category is not None and category not in CATEGORIES:
        category, level = None, None
        end = prefix.end("time") + 1 if prefix and time else 0
    text_value = line.text[end:]
    client = _CLIENT.fullmatch(text_value)
    # Nothing in it is BIND's, so that a file of other lines does not become DNS events.
    if line.program is None and time is None and level is None and category is None and not client:
        return None
    stamp = _stamp(time, line, context)
    # The channel may print no time where syslog has one.
    if stamp.quality == "received" and line.stamp.quality != "received":
        stamp = line.stamp
    line = line._replace(stamp=stamp, text=text_value)
    base = _LEVELS[level] if level else severity(line)
    about: dict[str, Any] = {"severity_id": base}
    if level:
        depth = prefix["depth"] if prefix else None
        named = f"{level} {depth}" if depth else level
        about["more"] = {"metadata": {"log_level": named}}
    meta = kept(log_name=category)
    return _of_client(client, line, meta, about) if client else _of_server(line, meta, about)


def _of_client(match: re.Match[str], line: Line, meta: Columns, about: Columns) -> Event:
    """What a client did."""
    message = match["said"]
    client = end_of(match["ip"], match["port"])
    rest = kept(
        object=match["object"],
        scope=match["scope"],
        key=match["key"],
        view=match["view"],
        signer=match["signer"],
        address=None if client else match["ip"],
    )
    if client and "port" not in client:
        rest["port"] = match["port"]
    for pattern, make in CLIENT_MESSAGES:
        event = pattern.fullmatch(message)
        if event:
            activity, columns, more = make(event)
            server, query = columns.pop("server", None), columns.pop("query", None)
            break
    else:
        activity, columns, more, server, query = TRAFFIC, {}, {}, None, None
    if query is None and match["name"]:
        query = question(match["name"])
    # The name in the head is that of the whole request; a message may be about another.
    elif match["name"] and query and question(match["name"])["hostname"] != query["hostname"]:
        rest["name"] = match["name"]
    return dns_event(
        activity,
        line.stamp,
        _PRODUCT,
        line,
        client=client,
        server=server,
        query=query,
        meta=meta,
        rest=rest | more,
        **(about | columns),
    )


def _of_server(line: Line, meta: Columns, about: Columns) -> Event:
    """What named did itself: it asked others, and they answered, or did not."""
    text_value = line.text
    match = _FORMAT.fullmatch(text_value)
    if match:
        client = end_of(match["client"], match["client_port"])
        return dns_event(
            RESPONSE,
            line.stamp,
            _PRODUCT,
            line,
            client=client,
            server=end_of(match["peer"], match["port"]),
            query=question(match["name"], match["type"]),
            meta=meta,
            **(about | {"status_id": FAILURE, "status_detail": match["why"]}),
        )
    match = RESOLVING.fullmatch(text_value)
    if match:
        return _resolving(match, line, meta, about)
    match = FETCHED.fullmatch(text_value) or NOTIFY.fullmatch(text_value)
    if match:
        return _between_servers(match, line, meta, about)
    return dns_event(0, line.stamp, _PRODUCT, line._replace(host=None), meta=meta, **about) | {
        "device": {"hostname": line.host, "type_id": 0} if line.host else None
    }


def _resolving(match: re.Match[str], line: Line, meta: Columns, about: Columns) -> Event:
    why = match["why"]
    code = next((word for word in IN_WHY.findall(why) if word in RCODES), None)
    columns = answered(code) if code else {"status_id": FAILURE}
    if why.startswith("success"):
        columns = {"status_id": SUCCESS}
    return dns_event(
        RESPONSE,
        line.stamp,
        _PRODUCT,
        line,
        client=kept(hostname=line.host),
        server=end_of(match["peer"], match["port"]),
        query=question(match["name"], match["type"], match["class"]),
        meta=meta,
        rest=kept(zone=match["zone"]),
        **(about | {"status_detail": f"{why}{match['tail'] or ''}"} | columns),
    )


def _between_servers(match: re.Match[str], line: Line, meta: Columns, about: Columns) -> Event:
    """A transfer from another server, or its notify."""
    peer, here = end_of(match["peer"], match["port"]), kept(hostname=line.host)
    fetched = match.re is FETCHED
    columns: Columns = {}
    what = match["what"]
    if fetched:
        columns = volume(what)
        failed = "fail" in what.lower() or "refused" in what.lower() or "timed out" in what
        columns["status_id"] = FAILURE if failed else SUCCESS
    elif match["refused"]:
        columns = {"action_id": DENIED, "disposition_id": BLOCKED, "status_id": FAILURE}
    return dns_event(
        TRAFFIC,
        line.stamp,
        _PRODUCT,
        line,
        client=here if fetched else peer,
        server=peer if fetched else here,
        query=zone_of(match["zone"]),
        meta=meta,
        rest=kept(**{"transfer" if fetched else "notify": what or None}),
        **(about | columns),
    )


_WRITTEN = re.compile(rf"(?P<time>{_TIME})", re.ASCII)

SOURCES = (
    FramedSource(
        name="bind",
        programs=frozenset({"named", "bind", "bind9", "named-sdb", "named-pkcs11"}),
        product=_PRODUCT,
        reader=read,
        # BIND's own times look like those of syslog.
        bare_first=True,
        restamper=replacing(_WRITTEN, write_dashed),
    ),
)
