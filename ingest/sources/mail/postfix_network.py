"""What Postfix says of connections rather than of mail: smtpd, smtp, postscreen, tlsproxy."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from ingest.parsing.ocsf import ALLOWED, BASE, DENIED, FAILURE, LOW, NETWORK, SUCCESS, kept
from ingest.parsing.source import Event
from ingest.parsing.syslog import Line
from ingest.sources.shared.daemon_source import daemon_event, endpoint

_OPEN, _CLOSE, _FAIL, _REFUSE, _TRAFFIC = 1, 2, 4, 5, 6
PERMITTED, _BLOCKED = 1, 2
INBOUND, _OUTBOUND = 1, 2

_HOST = r"(?P<host>[^\s\[\]]{0,255})\[(?P<ip>[0-9A-Fa-f.:]{2,45}|unknown)\](?::(?P<port>\d{1,5}))?"
_TO = r"\[(?P<to>[0-9A-Fa-f.:]{2,45})\]:(?P<to_port>\d{1,5})"

# Each: pattern, activity, status, whether the decision was to let it in (True), not to, or none.
# The first that matches wins; each begins with words of Postfix's own.
_INBOUND: tuple[tuple[re.Pattern[str], int, int | None, bool | None], ...] = (
    (re.compile(rf"(?:connect|CONNECT) from {_HOST}(?: to {_TO})?"), _OPEN, SUCCESS, None),
    (
        re.compile(rf"(?:disconnect from|DISCONNECT) {_HOST}(?P<counts>(?: \w+=[\d/]+)*)"),
        _CLOSE,
        SUCCESS,
        None,
    ),
    (
        re.compile(
            r"(?P<detail>(?:lost connection|timeout|too many errors) after [^\[\]]{1,100}) "
            rf"from {_HOST}"
        ),
        _CLOSE,
        FAILURE,
        None,
    ),
    # OLD: what postscreen tested before still counts.
    (re.compile(rf"(?P<detail>PASS (?:NEW|OLD)) {_HOST}"), _TRAFFIC, SUCCESS, True),
    (
        re.compile(rf"(?P<detail>WHITELISTED|ALLOWLISTED|WHITELIST VETO|ALLOWLIST VETO) {_HOST}"),
        _TRAFFIC,
        SUCCESS,
        True,
    ),
    (re.compile(rf"(?P<detail>BLACKLISTED|DENYLISTED) {_HOST}"), _REFUSE, FAILURE, False),
    (
        # The sum of the weights that postscreen gives to the lists.
        re.compile(rf"(?P<detail>DNSBL rank (?P<rank>\d{{1,9}})) for {_HOST}"),
        _REFUSE,
        FAILURE,
        False,
    ),
    (
        re.compile(
            rf"(?P<detail>PREGREET (?P<bytes>\d{{1,9}})) after (?P<after>[\d.]{{1,16}}) "
            rf"from {_HOST}: (?P<sent>.*)"
        ),
        _REFUSE,
        FAILURE,
        False,
    ),
    (
        re.compile(
            rf"(?P<detail>HANGUP) after (?P<after>[\d.]{{1,16}}) from {_HOST} in (?P<stage>.*)"
        ),
        _CLOSE,
        FAILURE,
        None,
    ),
    (
        re.compile(
            r"(?P<detail>(?:COMMAND|BARE NEWLINE|NON-SMTP COMMAND|DATA|HELO|EHLO)[A-Z -]{0,40}) "
            rf"from {_HOST}(?: after (?P<stage>[^:]{{0,64}}))?(?:: (?P<sent>.*))?"
        ),
        _REFUSE,
        FAILURE,
        False,
    ),
    (
        re.compile(
            r"(?P<detail>improper command pipelining) after (?P<stage>\S{1,64}) "
            rf"from {_HOST}:? ?(?P<sent>.*)"
        ),
        _REFUSE,
        FAILURE,
        False,
    ),
    (
        re.compile(
            r"(?P<detail>(?:SSL_accept error|TLS (?:handshake|SNI)[^\[\]]{0,100}|"
            rf"TLS library problem[^\[\]]{{0,100}})) from {_HOST}:? ?(?P<sent>.*)"
        ),
        _FAIL,
        FAILURE,
        None,
    ),
    (
        re.compile(
            r"(?P<detail>(?:Connection|Message|Recipient|New TLS session|AUTH)[\w ]{0,40} "
            rf"limit exceeded: (?P<count>\d{{1,9}})) from {_HOST} "
            r"for service (?P<limited>\S{1,64})"
        ),
        _REFUSE,
        FAILURE,
        False,
    ),
)
_TLS = re.compile(
    rf"(?P<trust>\w{{1,20}}) TLS connection (?:re)?(?:used|established) (?P<way>from|to) {_HOST}: "
    r"(?P<version>TLSv[\d.]{1,4}|SSLv\d) with cipher (?P<cipher>[\w-]{1,64})(?P<more>.*)"
)
_OUT = re.compile(rf"connect to {_HOST}: (?P<detail>.*)")
# A sentence about a client, up to what the client itself can choose.
ABOUT = re.compile(rf"(?P<about>[\w ,'/()-]{{0,120}}?)\b(?:from|for) {_HOST}(?P<more>.*)")
_ADDRESS = re.compile(
    r"hostname (?P<name>\S{1,255}) does not resolve to address "
    r"(?P<ip>[0-9A-Fa-f.:]{1,44}[0-9A-Fa-f])(?P<more>\b.*)"
)
PLAIN = re.compile(
    rf"{_HOST}: (?P<more>.*)|addr (?P<addr>[0-9A-Fa-f.:]{{2,45}}) listed by domain "
    r"(?P<list>\S{1,255})(?: as (?P<as>\S{1,64}))?"
)
# From time to time anvil tells the busiest client since it last did: no connection by itself.
ANVIL = re.compile(
    r"statistics: .{1,100} for \((?P<service>[^()\s]{1,100}?):(?P<ip>[0-9A-Fa-f.:]{2,45})\) at .*"
)


def network(
    text: str,
    product: Mapping[str, str],
    rest: dict[str, Any],
    severity: int | None,
    line: Line,
) -> Event | None:
    """An event of a connection; None where the line speaks of none."""
    for pattern, activity, status, let_in in _INBOUND:
        match = pattern.fullmatch(text)
        if match:
            return _inbound(match, activity, status, let_in, product, rest, line)
    match = _TLS.fullmatch(text)
    if match:
        return _tls(match, product, rest, line)
    match = _OUT.fullmatch(text)
    if match:
        return daemon_event(
            line,
            product,
            NETWORK,
            _FAIL,
            status_id=FAILURE,
            severity_id=LOW,
            status_detail=match["detail"],
            src_endpoint=_server(line),
            dst_endpoint=other_end(match.groupdict(), rest),
            connection_info=_connection(_OUTBOUND),
            app_name="smtp",
            rest=rest,
        )
    return _about(text, product, rest, severity, line)


def _server(line: Line) -> dict[str, Any] | None:
    return {"hostname": line.host} if line.host else None


def _connection(way: int) -> dict[str, Any]:
    return {"protocol_name": "tcp", "protocol_num": 6, "direction_id": way}


def other_end(part: Mapping[str, Any], rest: dict[str, Any]) -> dict[str, Any] | None:
    """The other end of a connection, from `host`, `ip` and `port` as Postfix names them."""
    # Postfix writes `unknown` where the client was gone before it could be asked.
    ip = part["ip"] if part["ip"] != "unknown" else None
    return endpoint(ip, part.get("port"), rest=rest, hostname=part.get("host"))


_MAPPED = frozenset({"host", "ip", "port", "to", "to_port", "detail", "counts"})


def _inbound(
    match: re.Match[str],
    activity: int,
    status: int | None,
    let_in: bool | None,
    product: Mapping[str, str],
    rest: dict[str, Any],
    line: Line,
) -> Event:
    part = match.groupdict()
    rest |= {name: value for name, value in part.items() if value and name not in _MAPPED}
    # `auth=0/1`: of each command how many succeeded, and of how many.
    for piece in (part.get("counts") or "").split():
        name, _, value = piece.partition("=")
        rest[name] = value
    target = _server(line)
    if part.get("to"):
        local = endpoint(part["to"], part["to_port"], rest=rest, name="to") or {}
        target = (target or {}) | local
    return daemon_event(
        line,
        product,
        NETWORK,
        activity,
        status_id=status,
        status_detail=part.get("detail"),
        src_endpoint=other_end(part, rest),
        dst_endpoint=target,
        connection_info=_connection(INBOUND),
        app_name="smtp",
        action_id=None if let_in is None else ALLOWED if let_in else DENIED,
        disposition_id=None if let_in is None else PERMITTED if let_in else _BLOCKED,
        rest=rest,
    )


def _tls(
    match: re.Match[str], product: Mapping[str, str], rest: dict[str, Any], line: Line
) -> Event:
    inbound = match["way"] == "from"
    peer, server = other_end(match.groupdict(), rest), _server(line)
    return daemon_event(
        line,
        product,
        NETWORK,
        _OPEN,
        status_id=SUCCESS,
        src_endpoint=peer if inbound else server,
        dst_endpoint=server if inbound else peer,
        connection_info=_connection(INBOUND if inbound else _OUTBOUND),
        tls={"version": match["version"], "cipher": match["cipher"]},
        app_name="smtp",
        rest=rest | kept(trust=match["trust"], more=match["more"].strip() or None),
    )


def _about(
    text: str,
    product: Mapping[str, str],
    rest: dict[str, Any],
    severity: int | None,
    line: Line,
) -> Event | None:
    """A sentence of no class of its own that names a client."""
    match = _ADDRESS.fullmatch(text) or PLAIN.fullmatch(text) or ANVIL.fullmatch(text)
    match = match or ABOUT.fullmatch(text)
    if match is None:
        return None
    part = match.groupdict()
    ip = part.get("ip") or part.get("addr")
    rest |= kept(
        service_limited=part.get("service"),
        hostname=part.get("name"),
        dnsbl=part.get("list"),
        dnsbl_answer=part.get("as"),
    )
    return daemon_event(
        line,
        product,
        BASE,
        0,
        severity_id=severity,
        src_endpoint=other_end(part | {"ip": ip}, rest),
        rest=rest,
    )
