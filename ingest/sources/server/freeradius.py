"""FreeRADIUS 2 and 3: radius.log, its lines through syslog, and the records of a detail file.

https://www.freeradius.org/documentation/freeradius-server/3.2/ (log { auth = yes }, detail).
The user's name stands in brackets and may hold any character; the NAS, which FreeRADIUS knows
by its shared secret, comes last, so a line is read from its end. `cli` is what the NAS says
of the station that called, most often its hardware address.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from ingest.parsing.ocsf import (
    AUTHENTICATION,
    BASE,
    FAILURE,
    NETWORK,
    SUCCESS,
    UNKNOWN,
    address,
    kept,
    mac_address,
)
from ingest.parsing.source import Context, Event
from ingest.parsing.syslog import Line, one_line, severity
from ingest.parsing.timestamps import Stamp, stamp_epoch
from ingest.sources.shared.daemon_source import NAMED, Daemon, daemon_event, endpoint
from ingest.sources.shared.daemon_timestamps import CTIME, ISO, YEARLESS, read_clock

_PRODUCT: Mapping[str, str] = {"name": "FreeRADIUS", "vendor_name": "FreeRADIUS Server Project"}
_LOGON, _NETWORK_LOGON = 1, 3
_OPEN, _CLOSE, _TRAFFIC, _OTHER_TRAFFIC = 1, 2, 6, 99
RADIUS = 10

_TYPES = "Auth|Info|Error|Proxy|Acct|Warning|Warn|Debug|WARNING|ERROR"
_OWN = re.compile(
    rf"(?P<time>{CTIME}|(?:[A-Z][a-z]{{2}} )?{YEARLESS}|{ISO}) : (?P<text>(?:{_TYPES}): .*)",
    re.ASCII,
)
_BODY = re.compile(
    rf"(?:\((?P<request>\d{{1,20}})\) {{1,3}})?(?:(?P<type>{_TYPES}): )?"
    r"(?:\((?P<number>\d{1,20})\) {1,3})?(?P<words>.*)"
)
_LOGIN = re.compile(
    r"(?P<what>Login OK|Login incorrect|Invalid user|Multiple logins|Rejected in post-auth|"
    r"Login rejected|Account (?:disabled|expired|locked)|Password (?:expired|incorrect))"
    r"(?: \((?P<why>.*?)\))?(?P<extra>(?: \[[A-Za-z ]{1,40}\])?[^\[)]{0,100}?): \[(?P<user>.*)\] "
    r"\(from client (?P<client>[^\s()]{1,255}) port (?P<port>\d{1,10})"
    r"(?: cli (?P<cli>[^()]{1,253}?))?(?P<via>(?: (?:via|proxied)[^()]{1,200})?)\) ?(?P<tail>.*)"
)
AUTH_TYPE = re.compile(r"(?P<user>.*)/<(?P<how>[^<>]{1,100})>")
STRANGER = re.compile(
    r"(?P<what>Ignoring request to .{1,120} from unknown client|Received packet from|"
    r"Discarding duplicate request from client|Dropping packet from client|"
    r"Received conflicting packet from client) (?P<peer>\S{1,255})"
    r"(?: port (?P<port>\d{1,10}))?(?P<more>.*)"
)


def _read(line: Line, context: Context) -> Event | None:
    """A login, or a base event of what else the server says."""
    match = _BODY.fullmatch(line.text)
    if match is None:
        return None
    kind = match["type"]
    rest: dict[str, Any] = kept(log_type=kind, request=match["request"] or match["number"])
    words = match["words"]
    login = _LOGIN.fullmatch(words)
    if login:
        return _login(login, rest, line)
    stranger = STRANGER.fullmatch(words)
    level = (kind or "").lower()
    return daemon_event(
        line,
        _PRODUCT,
        BASE,
        0,
        # In a file only the type says how grave it is, through syslog the priority may say more.
        severity_id=max(NAMED.get(level, 0), severity(line)),
        src_endpoint=endpoint(stranger["peer"], stranger["port"], rest=rest) if stranger else None,
        rest=rest,
    )


def _station(cli: str | None, rest: dict[str, Any], ip: str | None = None) -> dict[str, Any] | None:
    """The station that called: its hardware address, its address, or what else the NAS says."""
    results: dict[str, Any] = {}
    text = (cli or "").strip()
    # Some NAS put more behind the address, such as the name of a network.
    mac = mac_address(text) or mac_address(text[:17])
    if mac:
        # OCSF takes no endpoint of a hardware address alone.
        results |= {"mac": mac, "name": text}
    elif address(text):
        results["ip"] = address(text)
    elif text:
        results["name"] = text
    if ip:
        results |= endpoint(ip, rest=rest, name="framed_ip") or {}
    return results or None


def _login(match: re.Match[str], rest: dict[str, Any], line: Line) -> Event:
    user, how = match["user"], None
    typed = AUTH_TYPE.fullmatch(user)
    # FreeRADIUS writes how it authenticated behind the name.
    if typed:
        user, how = typed["user"], typed["how"]
    good = match["what"] == "Login OK"
    method = how.removeprefix("via Auth-Type = ") if how else None
    why = match["why"] or (
        match["what"] if not good and match["what"] != "Login incorrect" else None
    )
    rest |= kept(
        nas_port=match["port"],
        via=match["via"].strip() or None,
        extra=match["extra"].strip() or None,
        message=match["tail"].strip() or None,
    )
    return daemon_event(
        line,
        _PRODUCT,
        AUTHENTICATION,
        _LOGON,
        status_id=SUCCESS if good else FAILURE,
        status_detail=why.strip() if why else None,
        src_endpoint=_station(match["cli"], rest),
        # Behind the slash stands a second name of the same NAS.
        dst_endpoint=endpoint(match["client"].partition("/")[0], rest=rest, name="client"),
        user={"name": user} if user else None,
        auth_protocol="RADIUS",
        auth_method=method.lower() if method else None,
        logon_type_id=_NETWORK_LOGON,
        is_remote=True,
        service={"name": "radius"},
        rest=rest | kept(client=match["client"] if "/" in match["client"] else None),
        more={"auth_protocol_id": RADIUS} | ({} if user else {"user": {"name": "", "type_id": 0}}),
    )


# -- detail files ---------------------------------------------------------------------------------

HEAD = re.compile(rf"(?P<time>{CTIME})\s*", re.ASCII)
_PAIR = re.compile(r"\s+(?P<name>[A-Za-z][\w:.-]{0,127}) (?::=|\+=|=) (?P<value>.*)")
ACCOUNTING: Mapping[str, int] = {
    "start": _OPEN,
    "stop": _CLOSE,
    "interim-update": _TRAFFIC,
    "alive": _TRAFFIC,
}
PACKETS: Mapping[str, int] = {
    "access-request": UNKNOWN,
    "access-challenge": UNKNOWN,
    "access-accept": SUCCESS,
    "access-reject": FAILURE,
}


def _detail(lines: list[str], context: Context) -> Event:
    """The event of a record: its time, then its attributes, each on a line."""
    received_at = context.record.received_at
    head = HEAD.fullmatch(lines[0])
    stamp = Stamp.missing(received_at, None)
    if head:
        stamp = read_clock(head["time"], context.zone(context.host), received_at)
    fields: dict[str, Any] = {}
    for text in lines[1 if head else 0 :]:
        match = _PAIR.fullmatch(text)
        if match is None:
            fields.setdefault("lines", []).append(text.strip())
            continue
        name, value = match["name"], _value(match["value"])
        if name in fields:  # an attribute may stand several times
            old = fields[name]
            fields[name] = [*old, value] if isinstance(old, list) else [old, value]
        else:
            fields[name] = value
    exact = stamp_epoch(fields.get("Timestamp"), received_at)
    # The attribute has the zone that the head of a record lacks.
    if exact.quality == "exact":
        stamp = exact
    line = Line(stamp, context.host, None, None, "", {})
    return _accounted(fields, line)


def _value(text: str) -> str:
    text = text.strip()
    if len(text) > 1 and text[0] == text[-1] and text[0] in "\"'":
        return text[1:-1].replace('\\"', '"').replace("\\\\", "\\")
    return text


def _take(fields: dict[str, Any], *names: str) -> str | None:
    """Take the first of the attributes that is there, if it stands but once."""
    for name in names:
        # An attribute that stands several times is kept whole, as nobody can tell which holds.
        if isinstance(fields.get(name), str):
            return fields.pop(name) or None
    return None


def _number(fields: dict[str, Any], name: str, high: str) -> int | None:
    """A count of octets, whose upper 32 bits are an attribute of their own."""
    value, upper = fields.get(name), fields.get(high, "0")
    if not (isinstance(value, str) and value.isdecimal() and len(value) < 12):
        return None
    if not (isinstance(upper, str) and upper.isdecimal() and len(upper) < 9):
        return None
    del fields[name]
    fields.pop(high, None)
    # RADIUS counts octets in 32 bits; how often that ran over is an attribute of its own.
    return int(value) + (int(upper) << 32)


def _accounted(fields: dict[str, Any], line: Line) -> Event:
    status, packet = _take(fields, "Acct-Status-Type"), _take(fields, "Packet-Type")
    user = _take(fields, "User-Name", "Stripped-User-Name")
    ip = _take(fields, "Framed-IP-Address", "Framed-IPv6-Address")
    nas = _take(fields, "NAS-IP-Address", "NAS-IPv6-Address", "Client-IP-Address")
    name, session = _take(fields, "NAS-Identifier"), _take(fields, "Acct-Session-Id")
    rest: dict[str, Any] = {}
    source = _station(_take(fields, "Calling-Station-Id"), rest, ip)
    target = endpoint(nas, rest=rest, name="NAS-IP-Address", hostname=name)
    what = status or packet or "record"
    columns: dict[str, Any] = {
        "src_endpoint": source,
        "dst_endpoint": target,
        "message": f"{what} of {user}" if user else what,
        "fields": kept(log_name="detail", event_code=what),
    }
    if status is None and (packet or "").lower() in PACKETS:
        return daemon_event(
            line,
            _PRODUCT,
            AUTHENTICATION,
            _LOGON,
            status_id=PACKETS[(packet or "").lower()],
            status_detail=_take(fields, "Reply-Message", "Module-Failure-Message"),
            user={"name": user} if user else None,
            auth_protocol="RADIUS",
            more={"auth_protocol_id": RADIUS}
            | ({} if user else {"user": {"name": "", "type_id": 0}}),
            session={"uid": session} if session else None,
            is_remote=True,
            service={"name": "radius"},
            rest=fields | rest,
            **columns,
        )
    sent = _number(fields, "Acct-Input-Octets", "Acct-Input-Gigawords")
    got = _number(fields, "Acct-Output-Octets", "Acct-Output-Gigawords")
    seconds = _take(fields, "Acct-Session-Time")
    activity = ACCOUNTING.get(what.lower(), _OTHER_TRAFFIC)
    # The NAS counts what comes from the station as its input; the station sent it out.
    total = (sent or 0) + (got or 0) if sent is not None or got is not None else None
    return daemon_event(
        line,
        _PRODUCT,
        NETWORK,
        activity,
        activity_name=what[:64] if activity == _OTHER_TRAFFIC else None,
        status_id=SUCCESS,
        status_detail=_take(fields, "Acct-Terminate-Cause"),
        by=user,
        by_session=session,
        user_name=user,
        traffic=kept(bytes=total, bytes_in=got, bytes_out=sent) or None,
        duration=_duration(seconds, rest),
        connection_info={"direction_id": 0, "uid": session} if session else None,
        rest=fields | rest,
        **columns,
    )


def _duration(seconds: str | None, rest: dict[str, Any]) -> int | None:
    if seconds is not None and seconds.isdecimal() and len(seconds) < 12:
        return int(seconds) * 1000
    rest |= kept(**{"Acct-Session-Time": seconds})
    return None


@dataclass(frozen=True)
class FreeRadius(Daemon):
    """radius.log, line by line; or a detail file, whose records are blocks of lines."""

    whole_file: ClassVar[bool] = True

    def is_whole(self, first: bytes) -> bool:
        return HEAD.fullmatch(first.decode("utf-8", "replace").rstrip()) is not None

    def pieces(self, raw: bytes) -> list[bytes]:
        piece_list: list[list[bytes]] = []
        for line in raw.split(b"\n"):
            if not line.strip():
                continue
            # Attributes are indented below the time that opens their record.
            if piece_list and line[:1] in b"\t ":
                piece_list[-1].append(line)
            else:
                piece_list.append([line])
        return [b"\n".join(lines) for lines in piece_list]

    def events(self, raw: bytes, context: Context) -> list[Event]:
        lines = [one_line(line) for line in raw.split(b"\n") if line.strip()]
        if len(lines) > 1 and (_PAIR.fullmatch(lines[1]) or HEAD.fullmatch(lines[0])):
            return [_detail(lines, context)]
        if len(lines) == 1 and (HEAD.fullmatch(lines[0]) or _PAIR.fullmatch(lines[0])):
            return [_detail(lines, context)]
        if len(lines) > 1:
            return [
                event
                for line in lines
                for event in super(FreeRadius, self).events(line.encode(), context)
            ]
        return super().events(raw, context)


SOURCES = (
    FreeRadius(
        name="freeradius",
        programs=frozenset({"radiusd", "freeradius"}),
        product=_PRODUCT,
        reader=_read,
        forms=(_OWN,),
        bare=re.compile(
            rf"(?:\(\d+\) )?(?:{_TYPES}: )?(?:\(\d+\) )?(?:Login OK|Login incorrect|Invalid user)"
        ),
    ),
)
