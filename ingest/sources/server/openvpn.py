"""OpenVPN 2.x: the log of a server (or client), through syslog or in its file, and its status file.

https://openvpn.net/community-resources/reference-manual-for-openvpn-2-6/ (--log, --status,
--machine-readable-output, --verb). Lines about a client begin with its address, once it has
authenticated with its name before it; nothing that a client sends stands before that.
A login is `Peer Connection Initiated`, a tunnel opens when the server learns its address.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

from ingest.parsing.ocsf import (
    AUTHENTICATION,
    BASE,
    FAILURE,
    HIGH,
    LOW,
    MEDIUM,
    NETWORK,
    OTHER,
    SUCCESS,
    TUNNEL,
    address,
    kept,
)
from ingest.parsing.source import Context, Event, Record
from ingest.parsing.syslog import Line
from ingest.sources.server.openvpn_status import STATUS, is_status, status_events
from ingest.sources.shared.daemon_source import Daemon, daemon_event, endpoint
from ingest.sources.shared.daemon_timestamps import CTIME, DAEMON_EPOCH, ISO
from ingest.sources.shared.vpn import PRODUCT, Peer

_LOGON, _PREAUTH, _NETWORK_LOGON = 1, 6, 3
_OPEN, _CLOSE, _RENEW = 1, 2, 3
_FAIL = 4

_OWN = re.compile(rf"(?P<time>{CTIME}|{ISO}) (?P<text>.*)", re.ASCII)
_MACHINE = re.compile(
    rf"(?P<time>{DAEMON_EPOCH}) (?P<flags>[0-9a-f]{{1,8}}) (?P<text>.*)", re.ASCII
)
_AF = r"(?:\[(?:AF_)?\w{4,10}(?:-client|-server)?\])?"
_V4 = r"\d{1,3}\.\d{1,3}\.\d{1,3}\.\d{1,3}"
_V6 = r"\[?[0-9A-Fa-f]{0,4}:[0-9A-Fa-f:.]{1,43}?\]?"
_ADDRESS = (
    rf"(?:(?:udp|tcp)[46]?(?:-server|-client)?:)?{_AF}(?P<ip>{_V4}|{_V6}):(?P<port>\d{{1,5}})"
)
_PREFIX = re.compile(rf"(?:(?P<name>[^/]{{1,255}})/)?{_ADDRESS} (?P<words>.*)", re.ASCII)
_NAMELESS = re.compile(rf"(?P<name>){_ADDRESS} (?P<words>.*)", re.ASCII)
# In some builds the name of the instance, in others that of a unit stands first.
INITIATED = re.compile(
    rf"\[(?P<name>.*)\] Peer Connection Initiated with {_ADDRESS}(?P<more>(?:[ ,].*)?)"
)
PACKET = re.compile(rf"TLS: Initial packet from {_ADDRESS}(?P<more>(?:[ ,].*)?)")
_ACCEPTED = re.compile(rf"TCP connection established with {_ADDRESS}(?P<more>(?:[ ,].*)?)")
VERIFIED = re.compile(
    r"VERIFY (?P<what>OK|ERROR|SCRIPT OK|SCRIPT ERROR|X509NAME OK|X509NAME ERROR|EKU OK|KU OK|"
    r"EKU ERROR|KU ERROR|WARNING)(?:: (?P<rest>.*))?"
)
_DEPTH = re.compile(r"depth=(?P<depth>\d{1,3}), (?:error=(?P<error>[^:]{1,200}): )?(?P<subject>.*)")
# Names of a subject are parted by slashes in old versions, by commas in newer ones.
_CN = re.compile(r"(?:^|[/, ])CN ?= ?(?P<cn>[^,/]{1,255})")
_PASSWORD = re.compile(
    r"TLS: Username/Password authentication (?P<how>succeeded|deferred) for username '(?P<user>.*)'"
    r"(?P<more>[^']*)"
)
_DENIED = re.compile(
    r"TLS Auth Error: (?P<why>(?:Auth Username/Password verification failed for peer|"
    r"Auth Username/Password was not provided by peer|.{1,200}))"
)
PLUGIN = re.compile(
    r"(?:AUTH-PAM: BACKGROUND: |PLUGIN AUTH-PAM: BACKGROUND: )user '(?P<user>.*)' "
    r"(?P<why>failed to authenticate.{0,200})"
)
SENT_FAILED = re.compile(
    r"(?:SENT CONTROL \[(?P<name>.*)\]: |(?:AUTH: )?Received control message: )"
    r"'?(?P<why>AUTH_FAILED[^']{0,200})'?(?P<more>.*)"
)
LEARNED = re.compile(r"MULTI: Learn: (?P<vpn>\S{1,64}) -> (?P<who>.*)")
POOLED = re.compile(r"MULTI_sva: pool returned IPv4=(?P<vpn>[^,]{1,64}), IPv6=(?P<vpn6>.{1,64})")
PRIMARY = re.compile(r"MULTI: primary virtual IP(?:v6)? for (?P<who>.*): (?P<vpn>\S{1,64})")
SPOOFED = re.compile(
    r"MULTI: bad source address from client \[(?P<vpn>[^\[\]]{1,64})\], packet dropped"
)
_CLOSED = re.compile(
    r"(?P<why>SIG(?:TERM|USR1|HUP|INT)\[(?:soft|hard|),?[\w-]{0,40}\] received, "
    r"client-instance (?:exiting|restarting)|"
    r"(?:\[(?P<name>.*)\] )?Inactivity timeout \(--(?:ping-restart|ping-exit|inactive)\), \w+|"
    r"Connection reset, (?:restarting|inetd/xinetd exit).{0,20}|"
    r"Connection reset command was pushed by server|Delayed exit in \d{1,9} seconds)"
)
RENEWED = re.compile(r"TLS: (?P<why>soft reset|tls_process: killed expiring key).{0,200}")
_BROKEN = re.compile(
    r"(?P<why>TLS Error: (?!Auth ).{1,400}|TLS_ERROR: .{1,400}|OpenSSL: error.{1,400}|"
    r"Fatal TLS error .{1,200}|TLS: handshake failed.{0,200}|"
    r"Bad encapsulated packet length .{1,300}|WARNING: Bad encapsulated packet length .{1,300}|"
    r"Authenticate/Decrypt packet error: .{1,300}|tls-crypt unwrap error: .{1,200})"
)
CHANNEL = re.compile(
    r"Control Channel: (?P<version>TLSv[\d.]{1,4}), cipher (?:\S{1,40} )?(?P<cipher>[\w-]{1,64})"
    r"(?P<more>.*)"
)
PEER_INFO = re.compile(r"peer info: (?P<key>\w{1,64})=(?P<value>.*)")


def _read(line: Line, context: Context) -> Event | None:
    """The event of a line: about a client, or a base event."""
    peer, words, rest = _peer(line.text)
    for pattern, reader in _READERS:
        match = pattern.fullmatch(words)
        if match:
            return reader(match, peer, rest, line)
    severity = None
    if words.startswith(("WARNING", "DEPRECATED")):
        severity = MEDIUM
    elif words.startswith(("ERROR", "Error", "Exiting due to fatal error", "Cannot ", "FATAL")):
        severity = HIGH
    return daemon_event(
        line,
        PRODUCT,
        BASE,
        0,
        severity_id=severity,
        src_endpoint=peer.source(rest),
        user={"name": peer.name} if peer.name else None,
        rest=rest,
    )


def _peer(text: str) -> tuple[Peer, str, dict[str, Any]]:
    # A line that begins with an address is of a client without a name yet: what looks like
    # `name/address` further on is that client's text.
    match = _NAMELESS.fullmatch(text) or _PREFIX.fullmatch(text)
    rest: dict[str, Any] = {}
    if match is None or (address(match["ip"].strip("[]")) is None):
        return Peer(None, None, None), text, rest
    return Peer(match["name"] or None, match["ip"], match["port"]), match["words"], rest


def _with(peer: Peer, match: re.Match[str]) -> Peer:
    """The client as the message names it, which says no less than the line's beginning."""
    part = match.groupdict()
    name = part.get("name") or peer.name
    # The beginning of the line is the server's; what the message repeats fills what is missing.
    return Peer(name, peer.ip or part.get("ip"), peer.port or part.get("port"))


def _authentication(
    line: Line,
    peer: Peer,
    rest: dict[str, Any],
    activity: int,
    status: int,
    *,
    user: str | None = None,
    detail: str | None = None,
    method: str | None = None,
) -> Event:
    user = user or peer.name
    return daemon_event(
        line,
        PRODUCT,
        AUTHENTICATION,
        activity,
        status_id=status,
        severity_id=LOW if status == FAILURE and activity == _LOGON else None,
        status_detail=detail,
        src_endpoint=peer.source(rest),
        dst_endpoint={"hostname": line.host} if line.host else None,
        user={"name": user} if user else None,
        auth_method=method,
        logon_type_id=_NETWORK_LOGON,
        is_remote=True,
        service={"name": "openvpn"},
        rest=rest,
    )


def _tunnel(
    line: Line,
    peer: Peer,
    rest: dict[str, Any],
    activity: int,
    *,
    status: int | None = SUCCESS,
    detail: str | None = None,
    vpn: str | None = None,
    name: str | None = None,
    more: dict[str, Any] | None = None,
    **columns: Any,
) -> Event:
    more = dict(more or {})
    # A learned address may be a network behind the client, or have a VLAN behind an `@`.
    inside = vpn.partition("@")[0].partition("/")[0] if vpn else None
    if inside and address(inside):
        more["tunnel_interface"] = {"ip": address(inside), "type_id": 4, "name": "tun"}
        rest |= {"vpn_address": vpn}
    elif vpn:
        rest |= {"vpn_address": vpn}
    session = more.setdefault("session", {})
    session["is_vpn"] = True
    return daemon_event(
        line,
        PRODUCT,
        TUNNEL,
        activity,
        activity_name=name if activity == OTHER else None,
        status_id=status,
        status_detail=detail,
        src_endpoint=peer.source(rest),
        dst_endpoint={"hostname": line.host} if line.host else None,
        user={"name": peer.name} if peer.name else None,
        app_name="openvpn",
        rest=rest,
        more=more,
        **columns,
    )


def _initiated(match: re.Match[str], peer: Peer, rest: dict[str, Any], line: Line) -> Event:
    rest |= kept(more=match["more"].strip() or None)
    if peer.ip is None:
        # Only a server begins its lines with the client: here it is the client who tells
        # of its server.
        return daemon_event(
            line,
            PRODUCT,
            TUNNEL,
            _OPEN,
            status_id=SUCCESS,
            src_endpoint={"hostname": line.host} if line.host else None,
            dst_endpoint=endpoint(match["ip"], match["port"], rest=rest, hostname=match["name"]),
            app_name="openvpn",
            rest=rest | {"server": match["name"]},
            more={"session": {"is_vpn": True}},
        )
    return _authentication(line, _with(peer, match), rest, _LOGON, SUCCESS)


def _connected(match: re.Match[str], peer: Peer, rest: dict[str, Any], line: Line) -> Event:
    rest |= kept(more=match["more"].strip(" ,") or None)
    tcp = match.re is _ACCEPTED
    return daemon_event(
        line,
        PRODUCT,
        NETWORK,
        _OPEN,
        status_id=SUCCESS,
        src_endpoint=_with(peer, match).source(rest),
        dst_endpoint={"hostname": line.host} if line.host else None,
        connection_info={"direction_id": 1}
        | ({"protocol_name": "tcp", "protocol_num": 6} if tcp else {}),
        app_name="openvpn",
        rest=rest,
    )


def _verified(match: re.Match[str], peer: Peer, rest: dict[str, Any], line: Line) -> Event:
    good = match["what"].endswith("OK")
    depth = _DEPTH.fullmatch(match["rest"] or "")
    subject = depth["subject"] if depth else match["rest"]
    cn = _CN.search(subject or "")
    rest |= kept(
        verify=match["what"],
        depth=depth["depth"] if depth else None,
        certificate_subject=subject,
    )
    # Above depth 0 stand the authorities; only the certificate at 0 is the client's.
    if good and not (depth and depth["depth"] == "0"):
        return daemon_event(line, PRODUCT, BASE, 0, src_endpoint=peer.source(rest), rest=rest)
    user = cn["cn"].strip() if cn and (depth is None or depth["depth"] == "0") else None
    return _authentication(
        line,
        peer,
        rest,
        _PREAUTH if good else _LOGON,
        SUCCESS if good else FAILURE,
        user=user,
        detail=(depth["error"] if depth else None) or (None if good else match["rest"]),
        method="certificate",
    )


def _password(match: re.Match[str], peer: Peer, rest: dict[str, Any], line: Line) -> Event:
    rest |= kept(more=match["more"].strip() or None)
    return _authentication(
        line,
        peer,
        rest,
        _PREAUTH,
        SUCCESS if match["how"] == "succeeded" else 0,
        user=match["user"],
        detail=match["how"],
        method="password",
    )


def _denied(match: re.Match[str], peer: Peer, rest: dict[str, Any], line: Line) -> Event:
    part = match.groupdict()
    # OpenVPN's own error counts as the login: a plugin's word and the control message tell of the
    # same attempt.
    activity = _LOGON if match.re is _DENIED else _PREAUTH
    name = part.get("name")
    rest |= kept(more=(part.get("more") or "").strip() or None)
    return _authentication(
        line,
        peer,
        rest,
        activity,
        FAILURE,
        # OpenVPN writes UNDEF for a client that has not said its name.
        user=part.get("user") or (name if name != "UNDEF" else None),
        detail=part["why"],
        method="password",
    )


def _learned(match: re.Match[str], peer: Peer, rest: dict[str, Any], line: Line) -> Event:
    part = match.groupdict()
    opened = match.re is LEARNED
    if peer.ip is None and part.get("who"):
        # Spelled as the beginning of a line is, so it is read as one.
        peer = _peer(f"{part['who']} .")[0]
    rest |= kept(vpn_address6=part.get("vpn6"))
    return _tunnel(
        line, peer, rest, _OPEN if opened else OTHER, vpn=part["vpn"], name="Address Assigned"
    )


def _spoofed(match: re.Match[str], peer: Peer, rest: dict[str, Any], line: Line) -> Event:
    return _tunnel(
        line,
        peer,
        rest,
        OTHER,
        status=FAILURE,
        detail="bad source address",
        vpn=match["vpn"],
        name="Packet Dropped",
        action_id=2,
        disposition_id=6,
    )


def _closed(match: re.Match[str], peer: Peer, rest: dict[str, Any], line: Line) -> Event:
    return _tunnel(line, _with(peer, match), rest, _CLOSE, detail=match["why"])


def _renewed(match: re.Match[str], peer: Peer, rest: dict[str, Any], line: Line) -> Event:
    return _tunnel(line, peer, rest, _RENEW, detail=match["why"])


def _broken(match: re.Match[str], peer: Peer, rest: dict[str, Any], line: Line) -> Event:
    return daemon_event(
        line,
        PRODUCT,
        NETWORK,
        _FAIL,
        status_id=FAILURE,
        severity_id=LOW,
        status_detail=match["why"],
        src_endpoint=peer.source(rest),
        dst_endpoint={"hostname": line.host} if line.host else None,
        app_name="openvpn",
        rest=rest,
    )


def _channel(match: re.Match[str], peer: Peer, rest: dict[str, Any], line: Line) -> Event:
    rest |= kept(more=match["more"].strip(" ,") or None)
    tls = {"version": match["version"], "cipher": match["cipher"]}
    return _tunnel(line, peer, rest, OTHER, name="TLS Established", tls=tls)


def _info(match: re.Match[str], peer: Peer, rest: dict[str, Any], line: Line) -> Event:
    rest |= {"peer_info": {match["key"]: match["value"]}}
    return daemon_event(line, PRODUCT, BASE, 0, src_endpoint=peer.source(rest), rest=rest)


_Read = Callable[[re.Match[str], Peer, dict[str, Any], Line], Event]
# The first that matches wins, and a line says one thing only.
_READERS: tuple[tuple[re.Pattern[str], _Read], ...] = (
    (INITIATED, _initiated),
    (PACKET, _connected),
    (_ACCEPTED, _connected),
    (VERIFIED, _verified),
    (_PASSWORD, _password),
    (_DENIED, _denied),
    (PLUGIN, _denied),
    (SENT_FAILED, _denied),
    (LEARNED, _learned),
    (POOLED, _learned),
    (PRIMARY, _learned),
    (SPOOFED, _spoofed),
    (_CLOSED, _closed),
    (RENEWED, _renewed),
    (_BROKEN, _broken),
    (CHANNEL, _channel),
    (PEER_INFO, _info),
)


@dataclass(frozen=True)
class OpenVpn(Daemon):
    """The log, line by line; the status file as one record."""

    whole_file: ClassVar[bool] = True

    def is_whole(self, first: bytes) -> bool:
        return is_status(first)

    def parse(self, record: Record, context: Context) -> list[Event]:
        if is_status(record.raw.lstrip()[:200].partition(b"\n")[0]) or STATUS.match(record.raw):
            return status_events(record.raw, context)
        return super().parse(record, context)


SOURCES = (
    OpenVpn(
        name="openvpn",
        programs=frozenset({"openvpn", "openvpn-server", "ovpn-server"}),
        product=PRODUCT,
        reader=_read,
        forms=(_OWN, _MACHINE),
        families=("openvpn", "ovpn"),
        bare=re.compile(
            rf"(?:[^/\s]{{1,255}}/)?(?:(?:udp|tcp)[46]?\w*:)?(?:{_V4}|{_V6}):\d{{1,5}} |"
            r"MULTI|TLS|VERIFY|OpenVPN|SIG[A-Z0-9]+\[|\[.*\] Peer Connection|Initialization Seq|"
            r"AUTH|PLUGIN|MANAGEMENT|Control Channel|Data Channel|WARNING|TUN/TAP|TCP|UDP|IFCONFIG"
        ),
    ),
)
