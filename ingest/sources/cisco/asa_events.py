"""What messages of Cisco's firewalls become, by kind."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from ingest.parsing.ocsf import (
    A_COMMAND,
    A_FILE,
    A_HOST,
    A_URL,
    ACCOUNT,
    API,
    AUTHENTICATION,
    BASE,
    FAILURE,
    FINDING,
    FTP,
    HTTP,
    NETWORK,
    OTHER,
    SUCCESS,
    TUNNEL,
    UNKNOWN,
    address,
    device,
    kept,
    metadata,
    unmapped,
)
from ingest.parsing.source import Event
from ingest.parsing.timestamps import Stamp
from ingest.sources.cisco.asa_messages import Shape, ambiguous
from ingest.sources.shared.device_header import Header
from ingest.sources.shared.firewall import (
    CLOSE,
    INBOUND,
    OPEN,
    OUTBOUND,
    REFUSE,
    SYSLOG_SEVERITY,
    Fields,
    connection,
    endpoint,
    ends_seen,
    firewall_disposition,
    located,
    split_user,
    traffic,
    verdict,
)

_WELL_KNOWN = 1024
_HOST = re.compile(r"[\w.-]{1,253}")
_SPAN = re.compile(r"(\d{1,6}):(\d\d):(\d\d)", re.ASCII)
AGE = re.compile(r"(?:(\d{1,5})d )?(\d{1,5})h:(\d{1,2})m:(\d{1,2})s", re.ASCII)


@dataclass(slots=True)
class Message:
    """One message: its header, its number and words; `parts` is what has not been used yet."""

    header: Header
    stamp: Stamp
    product: Mapping[str, str]
    uid: str
    level: int
    text: str
    parts: Fields

    def common(self) -> dict[str, Any]:
        """The columns that all messages fill alike."""
        return {
            "severity_id": SYSLOG_SEVERITY[self.level],
            "message": self.text,
            "metadata": metadata(self.product, self.stamp, event_code=self.uid),
            "device": device(self.header.host),
        }

    def rest(self) -> str | None:
        """What found no column."""
        return unmapped(self.header.rest | self.parts.left())

    def end(self, at: str) -> dict[str, Any] | None:
        """The endpoint whose parts begin with `at`: `src` or `dst`."""
        spelled = self.parts.pop(at, None)
        ip = address(spelled) if spelled else None
        name = spelled if spelled and ip is None and _HOST.fullmatch(spelled) else None
        numbered = not str(self.parts.get("proto", "")).upper().startswith("ICMP")
        # It is neither address nor name, so it stays in `unmapped` as it was written.
        if spelled and not ip and not name:
            self.parts[at] = spelled
        return endpoint(
            ip=ip,
            hostname=name,
            # What follows an address of ICMP is an identifier.
            port=self.parts.port(f"{at}port") if numbered else None,
            interface_name=self.parts.text(f"{at}if"),
        )

    def span(self) -> int | None:
        """The milliseconds of `1:02:03` or `1d 2h:03m:04s`."""
        for name, pattern in (("span", _SPAN), ("age", AGE)):
            match = pattern.fullmatch(self.parts.get(name, "").strip())
            if match:
                del self.parts[name]
                *days, hours, minutes, seconds = (int(part or 0) for part in match.groups())
                whole = (days[0] if days else 0) * 24 + hours
                return ((whole * 60 + minutes) * 60 + seconds) * 1000
        return None


def _user(name: str | None) -> dict[str, Any] | None:
    """A user; `LOCAL\\ann` is one of the firewall's own, not of a domain."""
    # The firewall hides a name that may be a mistyped password with asterisks.
    if not name or set(name) == {"*"}:
        return None
    return split_user(name.removeprefix("LOCAL\\"))


def _turn(message: Message) -> bool:
    """Whether the second end of a message opened the connection.

    A connection stands with the less trusted interface first: what is built
    outbound was opened by the second. A teardown does not say which; a client
    that speaks to a well-known port tells.
    """
    parts = message.parts
    way = parts.get("way")
    if way or message.uid not in ("302014", "302016", "302304", "302036"):
        return way == "outbound"
    ports = [parts.get(f"{position}port", "") for position in ("src", "dst")]
    if not all(port.isdecimal() and len(port) <= 5 for port in ports):
        return False
    first, second = map(int, ports)
    # Only where exactly one of the ports is well known; else the order is left as it is.
    return first < _WELL_KNOWN <= second


def _network(message: Message, shape: Shape) -> Event:
    """A connection opened, closed or refused, a translation, a packet."""
    parts = message.parts
    parts.pop("proto2", None)
    turned = _turn(message)
    allowed = _allowed(message, shape)
    way = {"inbound": INBOUND, "outbound": OUTBOUND}.get(parts.get("way", ""), {})
    if way:
        del parts["way"]
    source, target = message.end("src"), message.end("dst")
    user = _user(parts.text("srcuser", "user"))
    on = parts.text("on")
    # `on interface` names where the packet came in, so it belongs to the source.
    if on and source is not None and "interface_name" not in source:
        source["interface_name"] = on
    else:
        parts.keep("interface", on)
    size = parts.number("bytes")
    activity = shape.activity
    if message.uid in ("106100", "106102", "106103"):
        activity = REFUSE if allowed is False else OPEN
    if turned:
        source, target = target, source
        _swap(parts)
    _name_nat(parts)
    rule = parts.text("acl")
    reason = parts.text("reason")
    more: dict[str, Any] = {}
    if activity == CLOSE and target is not None:
        # What closes does not say who opened it.
        more["is_src_dst_assignment_known"] = False
    spoken = (parts.text("proto") or "").removeprefix("protocol ").lower() or None
    ip = (source or target or {}).get("ip")
    has_network = source or target
    return located(
        NETWORK if has_network else BASE,
        activity if has_network else UNKNOWN,
        message.stamp,
        **_outcome(activity, allowed),
        status_detail=reason,
        src_endpoint=source,
        dst_endpoint=target,
        actor={"user": user} if user else None,
        connection_info=connection(
            spoken, ip, uid=parts.text("conn"), **way, flag_history=parts.text("flags")
        ),
        traffic=traffic(total=size) if size is not None else None,
        duration=message.span(),
        firewall_rule={"name": rule} if rule else None,
        more=more,
        observables=ends_seen(source, target, user),
        **message.common(),
        unmapped=message.rest(),
    )


def _swap(parts: Fields) -> None:
    """Let what is left of either end follow it to the other side."""
    for leaf in ("map", "mapport", "port", "name"):
        ends = parts.pop(f"src{leaf}", None), parts.pop(f"dst{leaf}", None)
        parts.keep(f"src{leaf}", ends[1])
        parts.keep(f"dst{leaf}", ends[0])


def _name_nat(parts: Fields) -> None:
    """The addresses that ends are translated to, under names that can be read."""
    for short, long in (
        ("srcmap", "src_mapped_ip"),
        ("srcmapport", "src_mapped_port"),
        ("dstmap", "dst_mapped_ip"),
        ("dstmapport", "dst_mapped_port"),
        ("map", "mapped_ip"),
        ("mapport", "mapped_port"),
        ("mapif", "mapped_interface"),
    ):
        if short in parts:
            parts[long] = parts.pop(short)


def _allowed(message: Message, shape: Shape) -> bool | None:
    word = message.parts.get("verdict")
    if word is None:
        return shape.allowed
    value = {"requested": True, "successful": True, "discarded": False}.get(word)
    return verdict(word) if value is None else value


def _outcome(activity: int, allowed: bool | None) -> dict[str, Any]:
    if allowed is not None:
        return firewall_disposition(allowed)
    return {"status_id": SUCCESS} if activity in (OPEN, CLOSE) else {}


def _finding(message: Message, shape: Shape) -> Event:
    """What the firewall itself took for an attack."""
    parts = message.parts
    allowed = _allowed(message, shape)
    source, target = message.end("src"), message.end("dst")
    user = _user(parts.text("srcuser"))
    _name_nat(parts)
    title = parts.text("title") or message.text
    return located(
        FINDING,
        shape.activity,
        message.stamp,
        # Without the status, which in a finding says how far people are with it.
        **{
            key: value for key, value in firewall_disposition(allowed).items() if key != "status_id"
        },
        finding_info={
            "uid": message.uid,
            "title": title,
            "desc": parts.text("rest"),
            "created_time": message.stamp.time,
            "analytic": {"uid": message.uid, "name": title, "type_id": 1},
        },
        src_endpoint=source,
        dst_endpoint=target,
        connection_info=connection(parts.text("proto"), (source or {}).get("ip")),
        actor={"user": user} if user else None,
        observables=ends_seen(source, target, user),
        **message.common(),
        unmapped=message.rest(),
    )


def _login(message: Message, shape: Shape) -> Event:
    """Someone logs in or out, at the firewall or through it."""
    parts = message.parts
    allowed = _allowed(message, shape)
    user = _user(parts.get("user"))
    if user:
        del parts["user"]
    source, target = message.end("src"), message.end("dst")
    if target is None and message.header.host:
        target = {"hostname": message.header.host}
    service, group = parts.text("service"), parts.text("group")
    if service is None and target is None:
        service = message.product["name"]
    activity = shape.activity
    if parts.get("what") in ("authorization", "accounting"):
        activity = OTHER
    if group and user:
        user["groups"] = [group]
    return located(
        AUTHENTICATION,
        activity,
        message.stamp,
        activity_name=parts.text("what", "verdict") if activity == OTHER else None,
        status_id=UNKNOWN if allowed is None else SUCCESS if allowed else FAILURE,
        status_detail=parts.text("reason"),
        # OCSF will have a user, and some messages hide who it was.
        user=user or {"name": "unknown"},
        src_endpoint=source,
        dst_endpoint=target,
        service={"name": service} if service else None,
        is_remote=True if source else None,
        observables=ends_seen(source, target, user, where="user"),
        **message.common(),
        unmapped=message.rest(),
    )


def _account(message: Message, shape: Shape) -> Event:
    """An account of the firewall's own is made, changed, locked."""
    parts = message.parts
    user, actor = _user(parts.text("user")), _user(parts.text("actor"))
    return located(
        ACCOUNT,
        shape.activity,
        message.stamp,
        activity_name=parts.get("reason") if shape.activity == OTHER else None,
        status_id=SUCCESS,
        status_detail=parts.text("reason"),
        user=user or {"name": "unknown"},
        actor={"user": actor} if actor else None,
        observables=ends_seen(None, None, user, where="user"),
        **message.common(),
        unmapped=message.rest(),
    )


def _tunnel(message: Message, shape: Shape) -> Event:
    """A VPN session or the steps to it."""
    parts = message.parts
    allowed = _allowed(message, shape)
    if ambiguous(message.uid, shape.kind, message.text):
        parts["ambiguous"] = True
        # Rather no address than one that a user's name may have put there.
        parts.pop("src", None)
        parts.pop("user", None)
    user = _user(parts.text("user"))
    group = parts.text("group")
    if user and group:
        user["groups"] = [group]
    elif group:
        parts["group"] = group
    source, target = message.end("src"), message.end("dst")
    if target is None and message.header.host:
        target = {"hostname": message.header.host}
    activity = {"created": 1, "deleted": 2}.get(parts.get("verb", ""), shape.activity)
    sent, received = parts.number("rcv"), parts.number("xmt")
    endpoint_known = source or target
    return located(
        TUNNEL if endpoint_known else BASE,
        activity if endpoint_known else UNKNOWN,
        message.stamp,
        activity_name=(parts.get("verdict") or "Step")
        if endpoint_known and activity == OTHER
        else None,
        status_id=UNKNOWN if allowed is None else SUCCESS if allowed else FAILURE,
        status_detail=parts.text("reason"),
        user=user,
        src_endpoint=source,
        dst_endpoint=target,
        # As the firewall counts: what it received, the client sent.
        traffic=traffic(sent, received) if sent is not None else None,
        duration=message.span(),
        app_name=parts.text("service"),
        observables=ends_seen(source, target, user, where="user"),
        **message.common(),
        unmapped=message.rest(),
    )


def _command(message: Message, shape: Shape) -> Event:
    """An administrator's command."""
    parts = message.parts
    user, words = _user(parts.text("user")), parts.text("command")
    if user is None:
        parts.keep("command", words)
        return plain(message)
    source = message.end("src")
    service = parts.text("service")
    return located(
        API,
        OTHER,
        message.stamp,
        activity_name="Command",
        status_id=SUCCESS,
        status_detail=parts.text("reason"),
        actor={"user": user},
        # OCSF will have a source, and a command typed at the device names none.
        src_endpoint=source or {"name": "unknown"},
        api={"operation": words, "service": {"name": service} if service else None},
        observables=ends_seen(source, None, user, ("api.operation", A_COMMAND, words)),
        **message.common(),
        unmapped=message.rest(),
    )


def _http(message: Message, shape: Shape) -> Event:
    """A page asked for through the firewall."""
    parts = message.parts
    source, target = message.end("src"), message.end("dst")
    user = _user(parts.text("srcuser", "who"))
    url = parts.text("url") or ""
    scheme, between, rest = url.partition("://")
    host = rest.split("/", 1)[0].rpartition("@")[2] if between and scheme.isalpha() else ""
    name = host if _HOST.fullmatch(host) and not address(host) else None
    allowed = _allowed(message, shape)
    return located(
        HTTP,
        UNKNOWN,
        message.stamp,
        **firewall_disposition(allowed),
        http_request={"url": kept(url_string=url or None, hostname=name) or None},
        src_endpoint=source,
        dst_endpoint=target,
        actor={"user": user} if user else None,
        observables=ends_seen(
            source,
            target,
            user,
            ("http_request.url.url_string", A_URL, url),
            ("http_request.url.hostname", A_HOST, name),
        ),
        **message.common(),
        unmapped=message.rest(),
    )


def _ftp(message: Message, shape: Shape) -> Event:
    """A file that went through the firewall by FTP."""
    parts = message.parts
    source, target = message.end("src"), message.end("dst")
    user, path = _user(parts.text("user")), parts.text("file")
    stored = parts.pop("what", None) == "Stored"
    parts.pop("proto", None)
    return located(
        FTP,
        1 if stored else 2,
        message.stamp,
        status_id=SUCCESS,
        src_endpoint=source,
        dst_endpoint=target,
        actor={"user": user} if user else None,
        file={"path": path} if path else None,
        app_name="ftp",
        connection_info=connection("tcp", (source or {}).get("ip")),
        observables=ends_seen(source, target, user, ("file.path", A_FILE, path)),
        **message.common(),
        unmapped=message.rest(),
    )


def plain(message: Message) -> Event:
    """A message of no form known here: its words as they stand."""
    return located(BASE, UNKNOWN, message.stamp, **message.common(), unmapped=message.rest())


READERS: Mapping[str, Callable[[Message, Shape], Event]] = MappingProxyType(
    {
        "net": _network,
        "finding": _finding,
        "login": _login,
        "account": _account,
        "tunnel": _tunnel,
        "command": _command,
        "http": _http,
        "ftp": _ftp,
    }
)
