"""What `named` of Infoblox NIOS says: questions, answers, refusals and rewritten ones (RPZ).

A name in parentheses, and the one asked for, are the client's; BIND escapes blanks and
parentheses in names, so that neither can end early. Read for the source `infoblox`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from ingest.parsing.ocsf import (
    A_HOST,
    AN_IP,
    DNS,
    FAILURE,
    LOW,
    MEDIUM,
    OTHER,
    SUCCESS,
    address,
    device,
    event,
    kept,
    metadata,
    observables,
    unmapped,
)
from ingest.parsing.source import Context, Event
from ingest.parsing.syslog import Line
from ingest.parsing.timestamps import Stamp, month_number, stamp_parts

_PRODUCT: Mapping[str, str] = {"name": "NIOS", "vendor_name": "Infoblox"}
_QUERY, _RESPONSE = 1, 2
# A name has 255 octets, and each may be escaped as `\DDD`: at most some 1,020 characters.
_NAME = r"\S{1,1100}"
_CLASS = r"(?P<class>[A-Z0-9]{2,10})"
DATED = re.compile(r"(\d\d)-([A-Z][a-z]{2})-(\d{4}) (\d\d:\d\d:\d\d(?:\.\d{1,9})?) (.*)", re.ASCII)
CATEGORY = re.compile(r"([a-z][a-z-]{2,30}): (?=client |CEF:|\d\d-)(.*)", re.ASCII)
_CLIENT = re.compile(
    r"client (?:@0x[0-9a-f]+ )?(?P<ip>[0-9a-fA-F.:]+)#(?P<port>\d{1,5})"
    rf"(?: \((?P<about>{_NAME})\))?:? (?:view (?P<view>[^\s:]+): )?(?P<rest>.*)",
    re.ASCII,
)
QUESTION = re.compile(
    rf"query: (?P<name>{_NAME}) {_CLASS} (?P<type>[A-Z0-9-]+) (?P<flags>[+-]\S*)"
    r"(?: \((?P<server>[0-9a-fA-F.:]+)(?:%\S+)?\))?(?P<more>.{0,200})",
    re.ASCII,
)
_ANSWER = re.compile(
    rf"(?P<protocol>UDP|TCP): query: (?P<name>{_NAME}) {_CLASS} (?P<type>[A-Z0-9-]+) "
    r"response: (?P<rcode>[A-Z0-9]+) (?P<flags>[+-]\S*)(?: (?P<answers>.*))?",
    re.ASCII,
)
_FAILED = re.compile(
    rf"query failed \((?P<why>[^()]{{1,60}})\) for (?P<name>{_NAME})/(?P<class>[A-Z0-9]+)/"
    r"(?P<type>[A-Z0-9-]+)(?P<more> at \S+)?",
    re.ASCII,
)
# BIND says `(cache)` where the client may not even have what is cached.
_DENIED = re.compile(
    rf"query(?: \(cache\))? '(?P<name>{_NAME})/(?P<type>[A-Z0-9-]+)/(?P<class>[A-Z0-9]+)' "
    r"(?P<why>denied)(?P<more>.{0,200})",
    re.ASCII,
)
REWRITE = re.compile(
    r"CEF:0\|Infoblox\|NIOS\|(?P<version>[^|]*)\|(?P<policy>[^|]*)\|(?P<action>[^|]*)\|"
    r"(?P<severity>\d{1,2})\|(?P<pairs>.*)",
    re.ASCII,
)
_PAIR = re.compile(r'(?:^| )([A-Za-z_]{1,20})=("(?:[^"\\]|\\.)*"|\S*)', re.ASCII)
_RPZ = re.compile(
    rf"rpz (?P<trigger>\S+) (?P<action>\S+) rewrite (?P<name>{_NAME}) \[(?P<type>[A-Z0-9]+)\] "
    r"via (?P<via>\S+)",
    re.ASCII,
)
# The end of a record, or a text in quotes; where the group is empty it has no end.
_END = re.compile(r'"(?:[^"\\]|\\.)*+("?)|;')
_PARTS = re.compile(r"(\S+) (\d{1,10}) ([A-Z]+) ([A-Z0-9]+) (.*)", re.ASCII)
_RCODES: Mapping[str, int] = MappingProxyType(
    {
        "NOERROR": 0,
        "FORMERR": 1,
        "SERVFAIL": 2,
        "NXDOMAIN": 3,
        "NOTIMP": 4,
        "REFUSED": 5,
        "YXDOMAIN": 6,
        "YXRRSET": 7,
        "NXRRSET": 8,
        "NOTAUTH": 9,
        "NOTZONE": 10,
        # Above 15 the code does not fit the header; EDNS carries its upper bits (RFC 6891).
        "BADVERS": 16,
    }
)


def read(line: Line, context: Context) -> Event | None:
    """A question, an answer, a refusal or a rewriting; None for what else `named` says."""
    text, stamp = line.text, line.stamp
    rest: dict[str, Any] = dict(line.rest)
    category = CATEGORY.fullmatch(text)
    if category:
        rest["category"], text = category[1], category[2]
    dated = DATED.fullmatch(text)
    if dated:
        stamp, text = _stamp(dated, line, context), dated[5]
    rewrite = REWRITE.fullmatch(text)
    if rewrite:
        return _rewrite(rewrite, line, rest)
    client = _CLIENT.fullmatch(text)
    if client is None:
        return None
    ip, port = address(client["ip"]), int(client["port"])
    # Not named's own words; the line then stays an event of no class.
    if ip is None or port > 65535:
        return None
    rest |= kept(view=client["view"])
    source = {"ip": ip, "port": port}
    readers = ((_ANSWER, _answer), (QUESTION, _question), (_FAILED, _failed), (_DENIED, _failed))
    for pattern, make in readers:
        match = pattern.fullmatch(client["rest"])
        if match:
            return make(match.groupdict(), source, stamp, line, rest)
    return None


def _stamp(dated: re.Match[str], line: Line, context: Context) -> Stamp:
    """The time `named` wrote itself: it has a year and milliseconds, unlike RFC 3164."""
    day, month, year, clock, _ = dated.groups()
    received_at = context.record.received_at
    result = stamp_parts(
        int(year),
        month_number(month),
        int(day),
        clock,
        context.zone(line.host),
        received_at,
        original=f"{day}-{month}-{year} {clock}",
    )
    # Where it makes no time, that of syslog is better than the arrival.
    return line.stamp if result.quality == "received" else result


def _event(
    activity: int,
    part: Mapping[str, str | None],
    source: dict[str, Any],
    stamp: Stamp,
    line: Line,
    rest: dict[str, Any],
    **columns: Any,
) -> Event:
    rcode = part.get("rcode")
    server = address(part.get("server") or "")
    name = part.get("name")
    answers = columns.pop("answers", None)
    status = columns.pop("status_id", None)
    if rcode and status is None:
        status = SUCCESS if rcode == "NOERROR" else FAILURE
    protocol = (part.get("protocol") or "").lower()
    return event(
        DNS,
        activity,
        stamp,
        status_id=status,
        message=line.text,
        metadata=metadata(_PRODUCT, stamp, log_provider=line.program),
        src_endpoint=source,
        dst_endpoint={"ip": server, "hostname": line.host} if server or line.host else None,
        device=device(line.host),
        query={"hostname": name, "type": part.get("type"), "class": part.get("class")}
        if name
        else None,
        answers=answers,
        rcode=rcode,
        rcode_id=_RCODES.get(rcode or ""),
        connection_info={
            "protocol_name": protocol,
            "protocol_num": 6 if protocol == "tcp" else 17,
            "direction_id": 0,
        }
        if protocol
        else None,
        observables=observables(
            ("src_endpoint.ip", AN_IP, source.get("ip")),
            ("query.hostname", A_HOST, name),
            *(("answers[].rdata", AN_IP, address(answer["rdata"])) for answer in answers or ()),
        ),
        unmapped=unmapped(rest | kept(pid=line.pid, flags=part.get("flags"))),
        **columns,
    )


def _question(
    part: dict[str, str | None],
    source: dict[str, Any],
    stamp: Stamp,
    line: Line,
    rest: dict[str, Any],
) -> Event:
    more = (part["more"] or "").strip()
    return _event(_QUERY, part, source, stamp, line, rest | kept(more=more or None))


def _answer(
    part: dict[str, str | None],
    source: dict[str, Any],
    stamp: Stamp,
    line: Line,
    rest: dict[str, Any],
) -> Event:
    results: list[dict[str, Any]] = []
    for text in records(part["answers"] or ""):
        match = _PARTS.fullmatch(text.strip())
        if match:
            _name, ttl, _, kind, rdata = match.groups()
            results.append({"rdata": rdata, "type": kind, "ttl": int(ttl)})
        elif text.strip():
            results.append({"rdata": text.strip()})
    return _event(_RESPONSE, part, source, stamp, line, rest, answers=results or None)


def records(text: str) -> list[str]:
    """An answer's records, parted by semicolons, which text in quotes may hold too."""
    # A quote whose text has no end counts by itself, and so do those behind it up to where the
    # search for the end stopped: each of them would stop there, too. One search for each of them
    # would take minutes for a line of escaped quotes.
    ends = [
        match.start() + place
        for match in _END.finditer(text)
        if not match[1]
        for place, character in enumerate(match[0])
        if character == ";"
    ]
    starts = [0, *(end + 1 for end in ends)]
    return [
        text[start:end]
        for start, end in zip(starts, [*ends, len(text)], strict=True)
        if start < end
    ]


def _failed(
    part: dict[str, str | None],
    source: dict[str, Any],
    stamp: Stamp,
    line: Line,
    rest: dict[str, Any],
) -> Event:
    rest = rest | kept(at=(part["more"] or "").strip() or None)
    why = part["why"] or ""
    # `denied` is BIND's word for what it answers with REFUSED.
    part = part | {"rcode": why if why in _RCODES else "REFUSED" if why == "denied" else None}
    return _event(
        _RESPONSE, part, source, stamp, line, rest, status_id=FAILURE, status_detail=f"query {why}"
    )


def _rewrite(match: re.Match[str], line: Line, rest: dict[str, Any]) -> Event:
    """A question that a response policy zone answered in another way."""
    pairs = dict(_PAIR.findall(match["pairs"]))
    policy_message = _RPZ.fullmatch(pairs.get("msg", "").strip('"'))
    ip, server = address(pairs.pop("src", "")), address(pairs.pop("dst", ""))
    port = pairs.pop("spt", "")
    source: dict[str, Any] = {"ip": ip} if ip else {"name": "unknown"}
    if ip and port.isdecimal() and len(port) < 6 and int(port) <= 65535:
        source["port"] = int(port)
    level = int(match["severity"])
    part = {
        "name": policy_message["name"] if policy_message else None,
        "type": policy_message["type"] if policy_message else pairs.get("qtype"),
        "server": server,
    }
    action = match["action"].upper()
    passed = action in ("PASSTHRU", "PASS-THRU", "INFORM")
    return _event(
        _RESPONSE,
        part,
        source,
        line.stamp,
        line,
        rest | {"policy": match["policy"], "version": match["version"]} | pairs,
        severity_id=MEDIUM if level >= 7 else LOW,
        status_id=SUCCESS if passed else FAILURE,
        status_detail=match["action"],
        action_id=1 if passed else 2,
        disposition_id=1 if passed else 2 if action in ("NXDOMAIN", "NODATA") else OTHER,
        firewall_rule={
            "name": policy_message["via"] if policy_message else match["policy"],
            "type": match["policy"],
        },
    )
