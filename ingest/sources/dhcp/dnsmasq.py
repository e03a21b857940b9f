"""dnsmasq 2.7x to 2.9x: DHCP (`dnsmasq-dhcp`) and DNS (`dnsmasq`, with log-queries).

With `log-dhcp` a DHCP line starts with the transaction's number, with
`log-queries=extra` a DNS line with a serial number and the client's address.
dnsmasq words its answer to an INFORM like any other DHCPACK, so the two cannot
be told apart. Formats: `rfc2131.c`, `rfc3315.c` and `cache.c` of dnsmasq.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING

from ingest.parsing.ocsf import (
    A_HOST,
    AN_IP,
    BASE,
    DNS,
    FAILURE,
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
from ingest.parsing.source import Context, Event, ParseSettings, Read
from ingest.parsing.syslog import Line, SyslogSource
from ingest.sources.dhcp.dhcp_event import (
    ACK,
    DECLINE,
    DISCOVER,
    INFORM,
    NAK,
    OFFER,
    RELEASE,
    REQUEST,
    dhcp_event,
    mac_of_duid,
)

if TYPE_CHECKING:
    import pyarrow as pa

_PRODUCT: Mapping[str, str] = {"name": "dnsmasq", "vendor_name": "Simon Kelley"}

_ACTIVITY = MappingProxyType(
    {
        "DHCPDISCOVER": DISCOVER,
        "DHCPOFFER": OFFER,
        "DHCPREQUEST": REQUEST,
        "DHCPDECLINE": DECLINE,
        "DHCPACK": ACK,
        "DHCPNAK": NAK,
        "DHCPRELEASE": RELEASE,
        "DHCPINFORM": INFORM,
    }
)
ACTIVITY6 = MappingProxyType(
    {
        "DHCPSOLICIT": DISCOVER,
        "DHCPADVERTISE": OFFER,
        "DHCPREQUEST": REQUEST,
        "DHCPRENEW": REQUEST,
        "DHCPREBIND": REQUEST,
        "DHCPCONFIRM": REQUEST,
        "DHCPREPLY": ACK,
        "DHCPRELEASE": RELEASE,
        "DHCPDECLINE": DECLINE,
        "DHCPINFORMATION-REQUEST": INFORM,
    }
)
NAMING = frozenset({"DHCPACK", "DHCPDECLINE"})
"""Messages whose last word is the client's name; after the others it is a remark."""

_DHCP_LINE = re.compile(
    r"(?:(?P<xid>\d+) )?(?P<word>DHCP[A-Z]+)\((?P<interface>[^)\s]+)\) "
    r"(?:(?P<ip>\d+\.\d+\.\d+\.\d+) )?"
    # dnsmasq puts the type of the hardware before addresses that are not of Ethernet.
    r"(?:[0-9a-f]{2}-)?(?P<mac>[0-9a-fA-F]{2}(?::[0-9a-fA-F]{2}){5})(?: (?P<tail>.*))?",
    re.ASCII,
)
DHCP6_LINE = re.compile(
    r"(?:(?P<xid>\d+) )?(?P<word>DHCP[A-Z-]+)\((?P<interface>[^)\s]+)\) "
    r"(?:(?P<ip>[0-9a-f]{0,4}:[0-9a-f:.]*:[0-9a-f.]*) )?"
    # A type of two octets and 1 to 128 more (RFC 8415, 11.1).
    r"(?P<duid>[0-9a-f]{2}(?::[0-9a-f]{2}){2,129}) ?(?P<tail>.*)",
    re.ASCII,
)
REMARKS = ("no address", "address unavailable", "address not ", "success", "unknown ", "released")
"""What stands in place of a client's name where DHCPv6 has something to say."""
TRANSACTION = re.compile(r"(?P<xid>\d+) (?P<text>.*)", re.ASCII)
_EXTRA = r"(?:(?P<serial>\d+) (?P<client>[0-9a-fA-F.:]+)/(?P<port>\d+) )?"
_QUERY = re.compile(
    rf"{_EXTRA}(?P<word>query|auth|dnssec-query)\[(?P<type>[^\]\s]+)\] (?P<name>\S+) "
    r"(?:from (?P<from>[0-9a-fA-F.:]+)|to (?P<to>[0-9a-fA-F.:]+))",
    re.ASCII,
)
FORWARDED = re.compile(
    rf"{_EXTRA}(?P<word>forwarded) (?P<name>\S+) to (?P<to>[0-9a-fA-F.:]+)(?:#\d+)?", re.ASCII
)
_ANSWER = re.compile(
    rf"{_EXTRA}(?P<word>reply|cached|cached-stale|config|local|DHCP|dnssec-reply|/\S*|"
    # The last ones are Pi-hole's, whose resolver is dnsmasq with lists: `gravity blocked`, `exactly
    # denied`.
    r"validation|read|(?:exactly|regex|gravity|special) \S+) (?P<name>\S+) is (?P<answer>.*)",
    re.ASCII,
)
_TYPED = re.compile(r"(?P<what>NODATA|NXDOMAIN|SERVFAIL|REFUSED|NOTIMP|FORMERR)(?:-(?P<type>\S+))?")
_RCODES = MappingProxyType(
    {"NOERROR": 0, "FORMERR": 1, "SERVFAIL": 2, "NXDOMAIN": 3, "NOTIMP": 4, "REFUSED": 5}
)
NUMBERED = MappingProxyType({"type=64": "SVCB", "type=65": "HTTPS"})
"""Types that dnsmasq knows by number only."""
FAMILIES = MappingProxyType({"IPv4": "A", "IPv6": "AAAA"})


def _read(line: Line, context: Context) -> Event | None:
    """A DHCP message, a DNS question or its answer; None for what else dnsmasq says."""
    # DHCP comes under the name `dnsmasq-dhcp`.
    if line.program == "dnsmasq":
        return _dns(line)
    match = _DHCP_LINE.fullmatch(line.text)
    if match and match["word"] in _ACTIVITY:
        return _dhcp(match.groupdict(), line, context)
    match = DHCP6_LINE.fullmatch(line.text)
    if match and match["word"] in ACTIVITY6:
        return _dhcp6(match.groupdict(), line, context)
    match = TRANSACTION.fullmatch(line.text)
    return _detail(match["xid"], line) if match else None


def _dhcp(part: dict[str, str | None], line: Line, context: Context) -> Event:
    word = part["word"] or ""
    tail = part["tail"] or None
    named = word in NAMING
    return dhcp_event(
        _ACTIVITY[word],
        context,
        line.stamp,
        _PRODUCT,
        ip=part["ip"],
        mac=part["mac"],
        hostname=tail if named else None,
        host=line.host,
        refused=None if named else tail,
        transaction_uid=part["xid"],
        message=line.text,
        rest=line.rest | kept(pid=line.pid, interface=part["interface"]),
        fields={"log_provider": line.program},
    )


def _dhcp6(part: dict[str, str | None], line: Line, context: Context) -> Event:
    """A DHCPv6 message; a reply without an address grants nothing."""
    word, tail = part["word"] or "", (part["tail"] or "").strip()
    activity, ip = ACTIVITY6[word], address(part["ip"] or "")
    if activity == ACK and ip is None:
        activity = OTHER
    remark = tail if tail.startswith(REMARKS) else ""
    good = remark in ("", "success", "released")
    octets = bytes.fromhex((part["duid"] or "").replace(":", ""))
    return dhcp_event(
        activity,
        context,
        line.stamp,
        _PRODUCT,
        activity_name="Reply" if activity == OTHER else None,
        ip=ip,
        mac=mac_of_duid(octets),
        client_uid=part["duid"],
        hostname=None if remark else tail or None,
        host=line.host,
        refused=None if good else remark,
        transaction_uid=part["xid"],
        message=line.text,
        rest=line.rest
        | kept(
            pid=line.pid, interface=part["interface"], remark=remark if good and remark else None
        ),
        fields={"log_provider": line.program},
    )


def _detail(xid: str, line: Line) -> Event:
    """A line about a DHCP exchange, such as its options: tied to it by its number."""
    return event(
        BASE,
        0,
        line.stamp,
        message=line.text,
        metadata=metadata(_PRODUCT, line.stamp, log_provider=line.program, correlation_uid=xid),
        device=device(line.host),
        unmapped=unmapped(line.rest | kept(pid=line.pid)),
    )


def _dns(line: Line) -> Event | None:
    # The most bounded first: an answer's text may be anything.
    for pattern in (_QUERY, FORWARDED, _ANSWER):
        match = pattern.fullmatch(line.text)
        if match:
            return _dns_event(match.groupdict(), line)
    return None


def _dns_event(part: dict[str, str | None], line: Line) -> Event | None:
    """A question, one that is passed on, or an answer; only questions name who asked."""
    word, answer = part["word"] or "", part.get("answer")
    client = address(part.get("from") or part["client"] or "")
    port = int(part["port"]) if part["port"] and len(part["port"]) <= 5 else None
    if (part.get("from") and client is None) or (port or 0) > 65535:
        return None
    onward = address(part.get("to") or "")
    kind, records, rcode = _answer(answer, part.get("type"))
    source: dict[str, str | int | None] | None = {"ip": client, "port": port} if client else None
    own: dict[str, str | int | None] | None = {"hostname": line.host} if line.host else None
    # A question that is passed on: dnsmasq itself is who asks.
    if onward and not client:
        source = own
    target = {"ip": onward} if onward else own
    if not source and not target:
        target = {"name": "dnsmasq"}
    name, kind = part["name"], NUMBERED.get(kind or "", kind)
    activity = 2 if answer is not None else 1
    return event(
        DNS,
        OTHER if onward else activity,
        line.stamp,
        activity_name="Forward" if onward else None,
        status_id=None if rcode is None else FAILURE if _RCODES[rcode] else SUCCESS,
        message=line.text,
        metadata=metadata(
            _PRODUCT, line.stamp, log_provider=line.program, correlation_uid=part["serial"]
        ),
        src_endpoint=source,
        dst_endpoint=target,
        device=device(line.host),
        query={"hostname": name, "type": kind} if kind else {"hostname": name},
        answers=records,
        rcode=rcode,
        rcode_id=None if rcode is None else _RCODES[rcode],
        observables=observables(
            ("src_endpoint.ip", AN_IP, (source or {}).get("ip")),
            ("query.hostname", A_HOST, name),
            *(("answers[].rdata", AN_IP, address(record["rdata"])) for record in records or ()),
        ),
        unmapped=unmapped(
            line.rest
            | kept(pid=line.pid, kind=None if word == "query" else word)
            | kept(answer=answer if answer and not records else None)
        ),
    )


def _answer(
    text: str | None, kind: str | None
) -> tuple[str | None, list[dict[str, str]] | None, str | None]:
    """The type asked for, the records, and the code of the answer, as far as it tells them."""
    if text is None:
        return kind, None, None
    typed = _TYPED.fullmatch(text)
    if typed:
        of = FAMILIES.get(typed["type"] or "", typed["type"])
        # NODATA: the name is there, without a record of that type (RFC 2308, 2.2).
        return of, None, "NOERROR" if typed["what"] == "NODATA" else typed["what"]
    ip = address(text)
    if ip:
        of = "AAAA" if ":" in ip else "A"
        return of, [{"rdata": ip, "type": of}], "NOERROR"
    # dnsmasq writes this word in place of the name that the record points to.
    if text == "<CNAME>":
        return None, [{"rdata": text, "type": "CNAME"}], "NOERROR"
    return None, [{"rdata": text}] if text else None, "NOERROR"


def _at_once(records: pa.RecordBatch, settings: ParseSettings) -> Read:
    # Imported where Arrow is at hand anyway: the command line starts without it.
    from ingest.sources.dhcp.dnsmasq_columns import read_dnsmasq

    return read_dnsmasq(records, settings)


SOURCES = (
    SyslogSource(
        name="dnsmasq",
        programs=frozenset({"dnsmasq", "dnsmasq-dhcp"}),
        product=_PRODUCT,
        reader=_read,
        at_once=_at_once,
    ),
)
