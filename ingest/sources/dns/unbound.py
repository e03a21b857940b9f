"""Unbound (https://unbound.docs.nlnetlabs.nl/en/latest/manpages/unbound.conf.html).

`log-queries`, `log-replies`, their tags (`log-tag-queryreply`), `log-destaddr`,
`log-local-actions`, `log-servfail`, response policy zones, and validation failures, from
Unbound's own file (epoch, `log-time-ascii`, `log-time-iso`) or syslog. Names are written
with escapes, so none holds a space.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime
from types import MappingProxyType
from typing import Any
from zoneinfo import ZoneInfo

from ingest.parsing.framed_source import FramedSource
from ingest.parsing.ocsf import (
    ALLOWED,
    BASE,
    CRITICAL,
    DENIED,
    FAILURE,
    HIGH,
    INFORMATIONAL,
    LOW,
    MEDIUM,
    address,
    device,
    event,
    kept,
    metadata,
    unmapped,
)
from ingest.parsing.source import Context, Event
from ingest.parsing.syslog import Line
from ingest.parsing.timestamps import Stamp, stamp_epoch, stamp_iso, stamp_rfc3164
from ingest.sources.shared.dns import QUERY, RESPONSE, TRAFFIC, answered, dns_event, question
from ingest.sources.shared.http_exchange import PORT, milliseconds, whole
from ingest.sources.shared.web_timestamps import write_dashed, write_epoch

_PRODUCT: Mapping[str, str] = {"name": "Unbound", "vendor_name": "NLnet Labs"}
_LEVELS: Mapping[str, int] = MappingProxyType(
    {
        "fatal error": CRITICAL,
        "error": HIGH,
        "warning": MEDIUM,
        "notice": LOW,
        "info": INFORMATIONAL,
        "debug": INFORMATIONAL,
        # No levels: with `log-tag-queryreply` these two stand in a level's place.
        "query": INFORMATIONAL,
        "reply": INFORMATIONAL,
    }
)
_PASSED, _BLOCKED, _DROPPED, _MODIFIED = 1, 2, 6, 4
_LEVEL = r"(?P<level>fatal error|error|warning|notice|info|debug|query|reply): (?P<text>.*)"
_OWN = re.compile(
    r"(?:\[(?P<epoch>\d{9,11}(?:\.\d{1,9})?)\]|(?P<iso>\d{4}-\d\d-\d\dT[\d:.]{8,18}"
    r"(?:Z|[+-]\d\d:?\d\d)?)|(?P<ascii>[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d)) "
    rf"(?P<program>[\w./-]{{1,64}})\[(?P<pid>\d{{1,10}}):(?P<thread>[0-9a-f]{{1,16}})\] {_LEVEL}",
    re.ASCII,
)
IN_SYSLOG = re.compile(
    rf"(?:\[(?P<pid>\d{{1,10}}):(?P<thread>[0-9a-f]{{1,16}})\] )?{_LEVEL}", re.ASCII
)
_ASKED = r"(?P<name>\S{1,1100}) (?P<type>[A-Za-z0-9-]{1,20}) (?P<class>[A-Za-z0-9]{1,10})"
_QUERY = re.compile(
    rf"(?P<client>\S{{1,100}}) {_ASKED}(?: (?P<rcode>[A-Z][A-Z0-9_]{{1,20}}|\d{{1,5}}) "
    r"(?P<took>\d{1,8}\.\d{6}) (?P<cached>[01]) (?P<size>\d{1,6})"
    r"(?: (?:on )?(?P<transport>[A-Za-z]{2,12}) (?P<server>\S{1,100}) (?P<port>\d{1,5}))?)?",
    re.ASCII,
)
_LOCAL = re.compile(
    rf"(?P<zone>\S{{1,1100}}) (?P<action>[a-z_]{{3,30}}) (?P<client>\S{{1,100}}) {_ASKED}", re.ASCII
)
_RPZ = re.compile(
    r"rpz: applied (?:\[(?P<log>[^\]]{1,255})\] )?(?:(?P<trigger>[a-z-]{3,30}) )?"
    rf"(?P<zone>\S{{1,1100}}) (?P<action>rpz-[a-z-]{{2,30}}) (?P<client>\S{{1,100}}) {_ASKED}",
    re.ASCII,
)
_FAILED = re.compile(rf"SERVFAIL <{_ASKED}>: (?P<why>.*)", re.ASCII)
BOGUS = re.compile(rf"validation failure <{_ASKED}>: (?P<why>.*)", re.ASCII)
RPZ_ACTIONS: Mapping[str, tuple[int, int]] = MappingProxyType(
    {
        "rpz-passthru": (ALLOWED, _PASSED),
        "rpz-drop": (DENIED, _DROPPED),
        "rpz-nxdomain": (DENIED, _BLOCKED),
        "rpz-nodata": (DENIED, _BLOCKED),
        "rpz-local-data": (_MODIFIED, _BLOCKED),
        "rpz-cname-override": (_MODIFIED, _BLOCKED),
    }
)
# Types of local zones by which a question gets no answer (unbound.conf, local-zone).
REFUSING = frozenset(
    {"deny", "refuse", "always_deny", "always_refuse", "always_nxdomain", "always_nodata"}
)


def _stamp(match: re.Match[str], line: Line, context: Context) -> Stamp:
    received_at = context.record.received_at
    zone = context.zone(line.host)
    if match["epoch"]:
        return stamp_epoch(match["epoch"], received_at)
    if match["iso"]:
        return stamp_iso(match["iso"], zone, received_at)
    return stamp_rfc3164(match["ascii"], zone, received_at)


def _client(text: str) -> dict[str, Any] | None:
    """`10.0.0.5` or `10.0.0.5@53124`; None where it is no address."""
    host, _, port = text.partition("@")
    ip = address(host)
    return kept(ip=ip, port=whole(port, PORT)) if ip else None


def _read(line: Line, context: Context) -> Event | None:
    """A question, a reply, a policy's decision, or what else Unbound says; None for others."""
    own = _OWN.fullmatch(line.text)
    if own:
        stamp = _stamp(own, line, context)
        line = line._replace(
            stamp=stamp, program=own["program"], pid=int(own["pid"]), text=own["text"]
        )
        return _event(line, own["level"], own["thread"])
    # Without a program and without Unbound's own head nothing tells that it is Unbound's.
    if line.program is None:
        return None
    match = IN_SYSLOG.fullmatch(line.text)
    if match is None:
        return None
    if match["pid"]:
        line = line._replace(pid=int(match["pid"]))
    return _event(line._replace(text=match["text"]), match["level"], match["thread"])


def _event(line: Line, level: str, thread: str | None) -> Event:
    line.rest.update(kept(thread=thread))
    for pattern, make in ((_QUERY, _asked), (_RPZ, _rpz), (_LOCAL, _local)):
        match = pattern.fullmatch(line.text)
        # A client that is no address means that the line only looks like this form.
        client = _client(match["client"]) if match else None
        if match and client:
            return make(match, client, line, level)
    match = _FAILED.fullmatch(line.text) or BOGUS.fullmatch(line.text)
    if match:
        return _failed(match, line, level)
    return event(
        BASE,
        0,
        line.stamp,
        severity_id=_LEVELS[level],
        message=line.text,
        metadata=metadata(_PRODUCT, line.stamp, log_provider=line.program),
        device=device(line.host),
        more={"metadata": {"log_level": level}},
        unmapped=unmapped(line.rest | kept(pid=line.pid)),
    )


def _query(match: re.Match[str]) -> dict[str, Any]:
    return question(match["name"], match["type"], match["class"])


def _asked(match: re.Match[str], client: dict[str, Any], line: Line, level: str) -> Event:
    """A question, or with `log-replies` its answer."""
    rest: dict[str, Any] = {}
    columns: dict[str, Any] = answered(match["rcode"])
    server = None
    if match["rcode"]:
        columns["duration"] = milliseconds(match["took"], 1000)
        columns["traffic"] = {"bytes_in": int(match["size"]), "bytes": int(match["size"])}
        rest = {"cached": match["cached"] == "1", "time_to_resolve": match["took"]}
    transport = (match["transport"] or "").lower()
    if transport:
        server = kept(ip=address(match["server"]), port=whole(match["port"], PORT))
        if "ip" not in server:
            server, rest["destination"] = None, f"{match['server']} {match['port']}"
        # DNS over TLS and HTTPS run over TCP, over QUIC on UDP.
        plain = {"udp": "udp", "tcp": "tcp", "dot": "tcp", "doh": "tcp", "doq": "udp"}
        rest["transport"] = transport
        if transport in plain:
            columns["connection_info"] = _connection(plain[transport])
    return dns_event(
        RESPONSE if match["rcode"] else QUERY,
        line.stamp,
        _PRODUCT,
        line,
        client=client,
        server=server,
        query=_query(match),
        rest=rest,
        severity_id=_LEVELS[level],
        **columns,
    )


def _connection(protocol: str) -> dict[str, Any]:
    return {
        "protocol_name": protocol,
        "protocol_num": 17 if protocol == "udp" else 6,
        "direction_id": 0,
        "direction": "Unknown",
    }


def _rpz(match: re.Match[str], client: dict[str, Any], line: Line, level: str) -> Event:
    """A response policy zone decided."""
    decided = RPZ_ACTIONS.get(match["action"])
    return dns_event(
        RESPONSE,
        line.stamp,
        _PRODUCT,
        line,
        client=client,
        query=_query(match),
        rest=kept(trigger=match["trigger"], action=match["action"]),
        severity_id=LOW if decided and decided[0] != ALLOWED else _LEVELS[level],
        firewall_rule=kept(name=match["log"] or match["zone"], uid=match["zone"], type="rpz"),
        action_id=decided[0] if decided else None,
        disposition_id=decided[1] if decided else None,
    )


def _local(match: re.Match[str], client: dict[str, Any], line: Line, level: str) -> Event:
    """A local zone answered (`log-local-actions`)."""
    refused = match["action"] in REFUSING
    # `deny` gives no answer at all, the others answer that there is none.
    dropped = match["action"].endswith("deny")
    return dns_event(
        RESPONSE,
        line.stamp,
        _PRODUCT,
        line,
        client=client,
        query=_query(match),
        rest={"action": match["action"]},
        severity_id=_LEVELS[level],
        firewall_rule={"name": match["zone"], "type": "local-zone"},
        action_id=DENIED if refused else None,
        disposition_id=(_DROPPED if dropped else _BLOCKED) if refused else None,
    )


def _failed(match: re.Match[str], line: Line, level: str) -> Event:
    """A question that Unbound could not answer, whoever asked."""
    code = answered("SERVFAIL") if line.text.startswith("SERVFAIL") else {"status_id": FAILURE}
    return dns_event(
        TRAFFIC,
        line.stamp,
        _PRODUCT,
        line,
        query=_query(match),
        severity_id=max(LOW, min(_LEVELS[level], MEDIUM)),
        status_detail=match["why"],
        **code,
    )


def _restamp(text: str, when: datetime, zone: ZoneInfo) -> str | None:
    """A line of Unbound's own file with its time replaced."""
    match = _OWN.fullmatch(text)
    if match is None:
        return None
    name = "epoch" if match["epoch"] else "iso" if match["iso"] else "ascii"
    write = write_epoch if name == "epoch" else write_dashed
    new = write(match[name], when, zone)
    return new and text[: match.start(name)] + new + text[match.end(name) :]


SOURCES = (
    FramedSource(
        name="unbound",
        programs=frozenset({"unbound"}),
        product=_PRODUCT,
        reader=_read,
        bare_first=True,
        restamper=_restamp,
    ),
)
